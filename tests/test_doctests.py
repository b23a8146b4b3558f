"""Every example in a docstring of cxrhf runs and gives what it says."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import cxrhf

ROOT = Path(cxrhf.__file__).parent
WITH_EXAMPLES = sorted(path for path in ROOT.rglob("*.py") if ">>> " in path.read_text())


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples(path):
    name = ".".join(("cxrhf", *path.relative_to(ROOT).with_suffix("").parts))
    outcome = doctest.testmod(importlib.import_module(name))
    assert outcome.attempted > 0
    assert outcome.failed == 0
