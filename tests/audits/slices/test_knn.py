"""KNN: local errors as by a loop over all pairs, a row never its own neighbour, equal vectors one point."""

from __future__ import annotations

import numpy as np

from cxrhf.audits.slices.found import end_slices, to_unit_variance
from cxrhf.audits.slices.methods import Seen, assign, discover
from tests.audits.slices.planted import halves, silent


def test_as_by_all_pairs() -> None:
    data = halves(500)
    seen, other = data.seen, data.other
    k = max(10, round(np.sqrt(len(seen.y))))
    scale = to_unit_variance(seen.vectors)

    def local(row: np.ndarray, leave: int | None = None) -> float:
        far = ((scale(seen.vectors) - row) ** 2).sum(axis=1)
        if leave is not None:
            far[leave] = np.inf
        return float(seen.error[np.argsort(far)[:k]].mean())

    around = np.array([local(row, at) for at, row in enumerate(scale(seen.vectors))])
    slow = end_slices(around)
    assert slow is not None
    expected = slow(np.array([local(row) for row in scale(other.vectors)]))
    found = discover("knn", seen, seed=0, progress=silent)
    np.testing.assert_allclose(found.weights(*other), expected, atol=1e-9)


def test_equal_vectors_share_their_neighbours() -> None:
    """Forty copies of each of forty vectors: whichever copy comes first, the worst places are found."""
    rng = np.random.default_rng(0)
    places = rng.uniform(0, 1, (100, 2))
    vectors = np.repeat(places, 10, axis=0)
    p = np.where(vectors[:, 0] > 0.8, 0.2, 0.9) + rng.uniform(-0.05, 0.05, 1000)
    found = discover("knn", Seen(vectors, np.ones(1000), p), seed=0, progress=silent)
    code = assign(found.weights(vectors, np.ones(1000), p), found.floor)
    assert vectors[code == 0, 0].min() > 0.6
    assert all(len(set(code[at : at + 10])) == 1 for at in range(0, 1000, 10))
