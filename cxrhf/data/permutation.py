"""A length and a seed -> the permutation that torch draws from them, without torch.

Published splits were drawn by torch's `random_split`. Its CPU generator is the Mersenne Twister with the classic
seeding, the stream of numpy's legacy generator; `randperm` then swaps each place with one at or after it, found by the
remainder of one 32-bit draw. The test compares with the torch that is installed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cxrhf.config import within
from cxrhf.errors import ConfigError

LONGEST = (2**32 - 1) // 20  # from here on torch draws 64 bits a place


def torch_permutation(n: int, seed: int) -> NDArray[np.int64]:
    """What torch.randperm(n) gives with a CPU generator seeded by `seed`.

    >>> torch_permutation(5, 0).tolist()
    [4, 0, 1, 3, 2]
    """
    within("n", n, 0, LONGEST - 1)
    within("seed", seed, 0, 2**32 - 1)
    draws = np.random.RandomState(seed).randint(0, 2**32, size=max(n - 1, 0), dtype=np.uint32)
    steps = (draws % np.arange(n, 1, -1, dtype=np.int64)).tolist() if n > 1 else []
    order = list(range(n))
    for at, step in enumerate(steps):
        order[at], order[at + step] = order[at + step], order[at]
    return np.array(order, np.int64)


def torch_random_split(n: int, lengths: Sequence[int], seed: int) -> list[NDArray[np.int64]]:
    """The row numbers of each part of torch's random_split(range(n), lengths) with a generator seeded by `seed`."""
    if sum(lengths) != n or min(lengths, default=0) < 0:
        raise ConfigError("the lengths of the parts do not sum to the number of rows", got=f"{list(lengths)}, n = {n}")
    ends = np.cumsum(lengths, dtype=np.int64)[:-1]
    return np.split(torch_permutation(n, seed), ends)
