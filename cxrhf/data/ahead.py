"""An iterator -> the same items, made in a thread of their own while the caller is busy with the ones before."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Iterable[T], room: int = 2) -> Iterator[T]:
    """Yield `items` in order; at most `room` are made ahead. What making them raises is raised here.

    A caller that stops early stops the thread as well.
    """
    waiting: queue.Queue[tuple[bool, T | BaseException | None]] = queue.Queue(maxsize=room)
    stopped = threading.Event()

    def put(entry: tuple[bool, T | BaseException | None]) -> bool:
        while not stopped.is_set():
            try:
                waiting.put(entry, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def make() -> None:
        try:
            for item in items:
                if not put((True, item)):
                    return
        except BaseException as error:
            put((False, error))
        else:
            put((False, None))

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    try:
        while True:
            more, item = waiting.get()
            if more:
                yield item  # type: ignore[misc]
            elif item is None:
                return
            else:
                raise item  # type: ignore[misc]
    finally:
        stopped.set()
        thread.join()
