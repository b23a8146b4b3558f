"""Python functions over arrays -> compiled kernels, cached on disk until their file or any beside this one changes.

numba's own cache looks only at the file a function stands in. A kernel that calls kernels of other files would go on
giving old numbers after those were changed, for example by an upgrade. Here the stamp of every cached kernel is the
content of all files of this folder, and of its own file where that is elsewhere. Kernels release the GIL, so threads
can share the work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit


def _stamp() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


STAMP = _stamp()


def _stamp_of(function: Callable[..., Any]) -> str:
    path = Path(function.__code__.co_filename)
    if path.parent == Path(__file__).parent or not path.is_file():
        return STAMP
    return hashlib.sha256(STAMP.encode() + path.read_bytes()).hexdigest()


def compiled(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorator: numba.njit with the cache above; options go to njit."""
    if function is None:
        return lambda each: compiled(each, **options)
    dispatcher = njit(cache=True, nogil=True, **options)(function)
    # A place numba does not document; should it move, the kernel is compiled anew in each process, never stale.
    cache: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(cache, "_source_stamp"):
        cache._source_stamp = _stamp_of(function)
        return dispatcher
    return njit(nogil=True, **options)(function)


def is_kept(kernel: Any) -> bool:
    """Whether the cache holds some version of a compiled kernel, so that its next call need not compile."""
    cache: Any = getattr(getattr(kernel, "_cache", None), "_cache_file", None)
    return bool(hasattr(cache, "_load_index") and cache._load_index())
