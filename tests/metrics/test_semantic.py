"""Semantic diversity with its interval, against the jackknife written out."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf import metrics
from cxrhf.metrics.diversity import semantic_spread


def test_semantic_spread_is_a_jackknife_over_patients() -> None:
    rng = np.random.default_rng(1)
    vectors, patient = rng.normal(size=(30, 4)), rng.integers(0, 8, 30)
    found = semantic_spread(vectors, patient)
    assert found.value == metrics.semantic_diversity(vectors)
    names = np.unique(patient)
    without = np.array([metrics.semantic_diversity(vectors[patient != name]) for name in names])
    n = len(names)
    spread = np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum())
    assert found.high - found.value == pytest.approx(2.364624 * spread, rel=1e-5)  # Student's t, 7 degrees
    assert np.isnan(semantic_spread(vectors[:3]).low)
    order = rng.permutation(30)
    assert semantic_spread(vectors[order], patient[order]) == pytest.approx(found)
