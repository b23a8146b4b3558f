"""Where the real data of the tests lies: CXRHF_REAL_DATA, or ../shared/data beside the repository.

Published tables of NIH and CheXpert come inside the wheel torchxrayvision, which the tests install.
"""

from __future__ import annotations

import importlib.util
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


def published_tables() -> Path:
    """The folder of torchxrayvision's wheel with the published tables; found, not imported: that would load torch."""
    spec = importlib.util.find_spec("torchxrayvision")
    if spec is None or not spec.submodule_search_locations:
        assert not os.environ.get("CI"), "torchxrayvision is not installed: where CI is set nobody reads of skips"
        pytest.skip("torchxrayvision is not installed (it carries the published tables)")
    return Path(spec.submodule_search_locations[0]) / "data"
