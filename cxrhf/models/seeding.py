"""A seed and what it is for -> a number of 64 bits; and torch's random numbers from it, for a while.

Nothing is drawn in sequence: order, augmentation and dropout of an image or a step follow from (seed, purpose, epoch or
step, image) alone. So a stopped training goes on exactly without any generator's state being kept, worker processes
need no seeds of their own, and the order of rows in a table does not matter.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

Progress = Callable[[str], None]


def number(seed: int, *what: object) -> int:
    """From 0 to 2**64 - 1.

    >>> number(0, "order", 3, "p10") == number(0, "order", 3, "p10") != number(1, "order", 3, "p10")
    True
    """
    text = "\x1f".join(map(str, (seed, *what)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def numbers(seed: int, *what: object, ids: Sequence[str]) -> NDArray[np.uint64]:
    """One for each id: `number(seed, *what, id)`, at a third of the time."""
    start = hashlib.blake2b(("\x1f".join(map(str, (seed, *what))) + "\x1f").encode(), digest_size=8)
    found = np.empty(len(ids), dtype=np.uint64)
    for at, each in enumerate(ids):
        digest = start.copy()
        digest.update(each.encode())
        found[at] = int.from_bytes(digest.digest(), "big")
    return found


@contextmanager
def seeded_torch(seed: int) -> Iterator[None]:
    """torch's own generator (of the CPU) starts from this number, and is put back afterwards."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(seed % 2**63)
    try:
        yield
    finally:
        torch.set_rng_state(before)


# Work done -> a line now and then: how far, how fast, how long still.

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
