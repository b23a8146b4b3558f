"""A block of linear algebra -> the same block on one thread.

Sums then do not depend on the number of cores, and threads that wait for each other do not stall where cores are shared
(t-SNE of 5,000 rows: 48 s on one thread, 83 s on two of a busy machine).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any


def one_thread() -> AbstractContextManager[Any]:
    """Holds BLAS and OpenMP at one thread; their libraries must be loaded before, or they are not seen."""
    for name in ("scipy.linalg", "sklearn.utils"):
        import_module(name)
    limits: AbstractContextManager[Any] = import_module("threadpoolctl").threadpool_limits(1)  # scikit-learn brings it
    return limits
