"""`python -m cxrhf` -> the same as `cxrhf`."""

import sys

from cxrhf.cli import main

if __name__ == "__main__":
    sys.exit(main())
