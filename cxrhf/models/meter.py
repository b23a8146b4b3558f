"""Work done -> a line now and then: how far, how fast, how long still."""

from __future__ import annotations

import time
from collections.abc import Callable

Progress = Callable[[str], None]
EVERY = 2.0  # seconds between lines


class Meter:
    """Counts what is done, with a line every few seconds. Time left goes by the speed since it began."""

    def __init__(self, total: int, progress: Progress, unit: str = "images") -> None:
        self.total, self.progress, self.unit = total, progress, unit
        self.done = 0
        self.start = self.told = time.monotonic()

    def add(self, more: int, say: Callable[[], str]) -> None:
        """So many more are done; `say` is asked only when a line is due."""
        self.done += more
        clock = time.monotonic()
        if clock - self.told < EVERY:
            return
        self.told = clock
        speed = self.done / max(clock - self.start, 1e-9)
        fast = f"{speed:,.0f} {self.unit}/s" if speed >= 10 else f"{60 * speed:,.0f} {self.unit}/min"
        left = f", {shown((self.total - self.done) / speed)} left" if speed and self.done < self.total else ""
        self.progress(f"{say()}, {fast}{left}")


def shown(seconds: float) -> str:
    """A time as people say it.

    >>> shown(42), shown(160), shown(7300)
    ('42 s', '3 min', '2.0 h')
    """
    if seconds < 100:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
