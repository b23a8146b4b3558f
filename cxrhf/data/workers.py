"""A worker process -> one that ends when the process that started it is gone, killed or not.

Pools of joblib and `datasets` notice an orderly end only: after `kill -9` of the parent their workers wait for ever,
hold its open files and locks, and keep on writing.
"""

from __future__ import annotations

import os
import threading
import time

_EVERY = 0.5  # seconds between two looks
_watching: set[int] = set()  # processes with a watcher; a forked one starts its own


def end_with_parent(started_by: int) -> None:
    """End this process soon after its parent has ended; nothing in `started_by` itself, where no worker was needed.

    `started_by` is `os.getpid()` of the process that made the pool. It polls, for prctl(PR_SET_PDEATHSIG) is Linux's
    alone and goes by the thread that started the worker.
    """
    if os.getpid() in {started_by, *_watching}:
        return
    _watching.add(os.getpid())
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_EVERY)
    os._exit(1)
