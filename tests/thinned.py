"""Many cases of one test -> a few of them with `make test`, the others with `make test-slow`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], quick: Collection[Any] | None = None, *, slow: Collection[Any] = ()) -> list[Any]:
    """For pytest.mark.parametrize: every case, those that are not among the quick ones marked slow.

    Where others add cases (a dataset, a metric), name the slow ones instead: what is new is then tested at once.
    """
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[pytest.mark.slow] if case in slow or (quick is not None and case not in quick) else [],
        )
        for case in cases
    ]
