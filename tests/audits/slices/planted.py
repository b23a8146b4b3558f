"""D2 -> the rows of its positives, half to discover on and half to look at, and how well a slice matches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cxrhf.audits.slices.methods import Found, Seen, assign
from cxrhf.twin.planted_groups import Null, slices


class Halves(NamedTuple):
    """Positives of D2: those to discover on, the others, and who of the others is hidden."""

    seen: Seen
    other: Seen
    hidden: np.ndarray


def halves(n: int = 4_000, *, seed: int = 0, null: Null = "none") -> Halves:
    made = slices(n, seed=seed, null=null)
    positive, first = made.y == 1, np.arange(n) % 2 == 0
    seen, other = (
        Seen(made.embedding[rows], made.y[rows].astype(float), made.prob[rows])
        for rows in (positive & first, positive & ~first)
    )
    return Halves(seen, other, made.hidden[positive & ~first] == 1)


def match(found: Found, data: Halves) -> tuple[float, float, float]:
    """Precision, recall and precision at 10 of the slice that matches best, on the rows not discovered on."""
    weights = found.weights(*data.other)
    assert weights.shape == (len(data.hidden), found.n_slices)
    assert weights.min() >= 0
    assert weights.max() <= 1
    code = assign(weights, found.floor)
    sizes = np.array([(code == j).sum() for j in range(found.n_slices)])
    right = np.array([(data.hidden & (code == j)).sum() for j in range(found.n_slices)])
    best = int(np.argmax(right / (sizes + data.hidden.sum())))
    top = np.argsort(-weights[:, best], kind="stable")[:10]
    return right[best] / sizes[best], right[best] / data.hidden.sum(), float(data.hidden[top].mean())


def silent(text: str) -> None:
    """Progress that nobody reads."""
