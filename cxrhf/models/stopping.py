"""Ctrl-C or a cluster's request to end -> a word to the loop, which ends when its step is done."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stopping(*, alone: bool) -> Iterator[list[int]]:
    """Ctrl-C, or a cluster's request to end: the step is finished and saved first; a second Ctrl-C ends at once.

    With several processes the launcher ends all of them, each at its own step: the last checkpoint is what remains.
    """
    asked: list[int] = []
    if not alone:
        yield asked
        return

    def heard(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        print("\nstopping after this step (again: at once)", file=sys.stderr)

    before = {}
    try:
        for each in (signal.SIGINT, signal.SIGTERM):
            before[each] = signal.signal(each, heard)
    except ValueError:  # not in the main thread: somebody else decides
        pass
    try:
        yield asked
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
