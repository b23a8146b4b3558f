"""Where the real data of the tests lies: CXRHF_REAL_DATA, or ../shared/data beside the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def real_data(name: str) -> Path:
    """Path of one real file; skips the test, with the reason, where it is not there."""
    root = Path(os.environ.get("CXRHF_REAL_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
    path = root / name
    if not path.exists():
        pytest.skip(f"real data not found: {path.name} (set CXRHF_REAL_DATA to the folder that holds {name})")
    return path
