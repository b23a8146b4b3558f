"""(seed, replicate) -> random numbers inside compiled loops.

Every replicate starts its own stream from the seed and its own number, so a result does not depend on how many
threads shared the work or in which order they took it. The generator is SplitMix64; whole numbers are drawn by
multiplication with rejection, so every patient has exactly the same chance.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cxrhf.metrics.compiled import compiled

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_LOW = np.uint64(0xFFFFFFFF)


def stream_key(seed: int) -> np.uint64:
    """A well-spread 64-bit key from any whole number >= 0 (numpy's SeedSequence does the spreading)."""
    return np.uint64(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])


@compiled(inline="always")
def mixed(state: Any) -> Any:
    """The output function of SplitMix64."""
    z = (state ^ (state >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


@compiled(inline="always")
def stream_start(key: Any, replicate: int) -> Any:
    """The first state of one replicate's stream."""
    return mixed(key + mixed(np.uint64(replicate) * _GOLDEN + _GOLDEN))


@compiled(inline="always")
def advanced(state: Any) -> Any:
    """The next state; the random number is `mixed` of it."""
    return state + _GOLDEN


@compiled(inline="always")
def uniform(bits: Any) -> float:
    """A number in [0, 1) from 64 random bits."""
    return float(bits >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled
def draw_with_replacement(state: Any, members: Any, counts: Any, lane: int) -> Any:
    """Add one draw of len(members) units with replacement to column `lane` of counts; returns the state after.

    Two 32-bit halves of each output are used. A half is refused when its low product falls under the bias limit,
    which keeps every member equally likely (Lemire's method).
    """
    size = np.uint64(members.shape[0])
    limit = (np.uint64(4294967296) - size) % size if size > np.uint64(0) else np.uint64(0)
    drawn = np.uint64(0)
    while drawn < size:
        state = advanced(state)
        bits = mixed(state)
        product = (bits & _LOW) * size
        if (product & _LOW) >= limit:
            counts[members[product >> np.uint64(32)], lane] += 1
            drawn += np.uint64(1)
        if drawn < size:
            product = (bits >> np.uint64(32)) * size
            if (product & _LOW) >= limit:
                counts[members[product >> np.uint64(32)], lane] += 1
                drawn += np.uint64(1)
    return state
