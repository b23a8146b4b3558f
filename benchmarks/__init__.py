"""Speed claims, each measured against the peer in one run: `make bench`."""

import os

# As cxrhf.models sets it, before a benchmark loads torch.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
