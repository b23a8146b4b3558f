"""Work done -> a line now and then: how far, how fast, how long still."""

from __future__ import annotations

import time
from collections.abc import Callable

Progress = Callable[[str], None]
EVERY = 2.0  # seconds between lines


class Meter:
    """Counts images; says nothing more often than every few seconds. Time left goes by the speed since it began."""

    def __init__(self, total: int, progress: Progress, *, every: float = EVERY) -> None:
        self.total, self.progress, self.every = total, progress, every
        self.done = 0
        self.start = self.told = time.monotonic()

    def add(self, images: int, say: Callable[[], str], *, now: bool = False) -> None:
        """So many more images are done; `say` is asked only when a line is due."""
        self.done += images
        clock = time.monotonic()
        if now or clock - self.told >= self.every:
            self.told = clock
            speed = self.done / max(clock - self.start, 1e-9)
            left = shown((self.total - self.done) / speed) if speed and self.total > self.done else ""
            self.progress(f"{say()}, {speed:,.0f} images/s" + (f", {left} left" if left else ""))


def shown(seconds: float) -> str:
    """A time as people say it.

    >>> shown(42), shown(160), shown(7300)
    ('42 s', '3 min', '2.0 h')
    """
    if seconds < 100:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
