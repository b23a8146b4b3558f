"""Many cases of one test -> a few of them with `make test`, the others with `make test-slow`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """For pytest.mark.parametrize: every case, those that are not among the quick ones marked slow."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=[] if case in quick else [pytest.mark.slow])
        for case in cases
    ]
