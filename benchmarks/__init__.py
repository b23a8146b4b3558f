"""Claims about speed, each measured with its peer in the same run: `make bench`."""

import os

# As cxrhf.models sets it, before a benchmark loads torch.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
