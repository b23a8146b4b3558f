"""A seed and what it is for -> a number of 64 bits; and torch's random numbers from it, for a while.

Nothing is drawn in sequence: order, augmentation and dropout of an image or a step follow from (seed, purpose, epoch or
step, image) alone. So a stopped training goes on exactly without any generator's state being kept, worker processes
need no seeds of their own, and the order of rows in a table does not matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray


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
def drawing(seed: int) -> Iterator[None]:
    """torch's own generator (of the CPU) starts from this number, and is put back afterwards."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(seed % 2**63)
    try:
        yield
    finally:
        torch.set_rng_state(before)
