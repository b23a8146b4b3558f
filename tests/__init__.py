"""Tests of cxrhf."""

import os

# As cxrhf.models sets it, but before any test file loads torch: two test processes share two cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
