"""A worker process -> one that ends when the process that started it is gone, killed or not.

Pools of joblib and `datasets` notice an orderly end only: after `kill -9` of the parent their workers wait for ever and
keep on writing; forked ones also hold the locks of the parent.

Known gap: of workers that are not forked, one that never got any work, and the manager beside them, stay. They hold no
data and no locks.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Iterator

_EVERY = 0.5  # seconds between two looks
_watching: set[int] = set()  # processes with a watcher; a forked one starts its own
_forks_for = 0  # the process whose forks end with it


def end_with_parent(started_by: int) -> None:
    """End this process soon after its parent has ended; nothing in `started_by` itself, where no worker was needed.

    `started_by` is `os.getpid()` of the process that made the pool. It polls, for prctl(PR_SET_PDEATHSIG) is Linux's
    alone and goes by the thread that started the worker.
    """
    if os.getpid() in {started_by, *_watching}:
        return
    _watching.add(os.getpid())
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


@contextlib.contextmanager
def forks_end_with_me() -> Iterator[None]:
    """Processes that are forked within the block, by whomever, end soon after this one."""
    global _forks_for  # noqa: PLW0603
    if hasattr(os, "register_at_fork"):
        _register()
    before, _forks_for = _forks_for, os.getpid()
    try:
        yield
    finally:
        _forks_for = before


@functools.cache
def _register() -> None:
    os.register_at_fork(after_in_child=lambda: end_with_parent(_forks_for) if _forks_for else None)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_EVERY)
    os._exit(1)
