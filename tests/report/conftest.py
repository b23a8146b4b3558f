"""Pictures beside a page are drawn small, as in all tests; those of test_files.py are as large as users get them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _small_pictures(request: pytest.FixtureRequest) -> Iterator[None]:
    """In place of that in tests/conftest.py, which leaves this folder's pictures large."""
    with pytest.MonkeyPatch.context() as patched:
        if request.path.stem != "test_files":
            patched.setattr("cxrhf.report.files.ZOOM", 0.25)
        yield
