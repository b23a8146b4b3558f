"""Tests of slices run without UMAP, whether it is installed or not: what they find must not depend on that."""

from __future__ import annotations

import pytest

from cxrhf.audits.slices import found as maps


@pytest.fixture(autouse=True)
def _without_umap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "find_spec", lambda name: None)
