"""A folder in the hands of somebody else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cxrhf.tables.folders import one_writer


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """`folder`, held by another thread: a lock of this thread would let it in."""
    ready, over = threading.Event(), threading.Event()

    def hold() -> None:
        with one_writer(folder, "train"):
            ready.set()
            over.wait(300)

    thread = threading.Thread(target=hold)
    thread.start()
    assert ready.wait(60)
    try:
        yield
    finally:
        over.set()
        thread.join()
