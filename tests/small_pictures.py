"""`python tests/small_pictures.py -m cxrhf VERB ...`: the same with pictures a sixth as wide, as tests draw them."""

from __future__ import annotations

import sys

ZOOM = 0.25

if __name__ == "__main__":
    from cxrhf import cli
    from cxrhf.report import files

    files.ZOOM = ZOOM
    sys.exit(cli.main(sys.argv[3:]))
