"""Pictures of runs are drawn small, except where they are what is tested."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _small_pictures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Three quarters of a small audit's time are PNGs: a sixth as wide, they take a fifth of it and are as real."""
    if "report" in request.path.parts or request.path.stem == "test_auditing_real":
        yield
        return
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cxrhf.report.files.ZOOM", 0.25)
        yield
