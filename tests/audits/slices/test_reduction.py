"""The reduction layer: it keeps what the labels need and the hidden slice, holds patients out whole, and is fixed."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf.audits.slices.found import fit_reduction, hold_out_patients
from cxrhf.audits.slices.methods import Seen, assign, discover
from cxrhf.errors import CxrhfError
from cxrhf.metrics import auroc
from cxrhf.twin.planted_groups import PlantedSlices, slices
from tests.audits.slices.planted import silent
from tests.refusals import refused


def long_vectors(n: int = 2_000, axes: int = 200) -> tuple[PlantedSlices, np.ndarray]:
    """D2's embedding and score, mixed into many axes with a little noise."""
    made = slices(n, seed=1)
    rng = np.random.default_rng(0)
    mixed = made.embedding @ rng.standard_normal((16, axes)) / 4 + 0.3 * made.logit[:, None] * rng.standard_normal(axes)
    return made, mixed + 0.2 * rng.standard_normal((n, axes))


@pytest.mark.slow
def test_keeps_the_auroc_and_the_hidden_slice() -> None:
    from sklearn.linear_model import LogisticRegression

    made, vectors = long_vectors()
    first = np.arange(len(made.y)) % 2 == 0
    reduced = fit_reduction(vectors[first], made.y[first], made.patient[first], size=64, seed=0, progress=silent)
    short = reduced(vectors)
    assert short.shape == (2_000, 64)
    assert 0 <= short.min() < short.max() <= 1
    head = LogisticRegression(max_iter=500).fit(short[first], made.y[first])
    kept = float(auroc(made.y[~first], head.decision_function(short[~first])))
    assert kept > float(auroc(made.y[~first], made.logit[~first])) - 0.02
    seen, other = (made.y == 1) & first, (made.y == 1) & ~first
    found = discover(
        "mixture", Seen(short[seen], made.y[seen].astype(float), made.prob[seen]), seed=0, progress=silent
    )  # fmt: skip
    code = assign(found.weights(short[other], made.y[other], made.prob[other]), found.floor)
    precision = max(made.hidden[other][code == j].mean() for j in np.unique(code))
    assert precision > 5 * made.hidden[other].mean()


@pytest.mark.slow
def test_the_same_for_any_order_of_rows() -> None:
    made, vectors = long_vectors(600, 40)
    order = np.random.default_rng(2).permutation(600)
    one = fit_reduction(vectors, made.y, made.patient, size=8, seed=0, progress=silent)
    two = fit_reduction(vectors[order], made.y[order], made.patient[order], size=8, seed=0, progress=silent)
    np.testing.assert_array_equal(one(vectors), two(vectors))


def test_patients_are_held_out_whole() -> None:
    rng = np.random.default_rng(0)
    patients = rng.integers(0, 80, 400)
    y = (rng.random(400) < 0.1).astype(float)
    held = hold_out_patients(patients, y, seed=0)
    assert not set(patients[held]) & set(patients[~held])
    assert {0.0, 1.0} == set(y[held]) == set(y[~held])
    assert len(set(patients[held])) == pytest.approx(0.2 * len(set(patients)), abs=1)
    names = np.char.add("p", patients.astype(str))  # a name is as good as a number
    assert hold_out_patients(names, y, seed=0).mean() == pytest.approx(0.2, abs=0.1)


def test_too_little_is_said() -> None:
    x = np.random.default_rng(0).standard_normal((60, 5))
    with refused(CxrhfError, "or more", got="6", fix="reduce"):
        fit_reduction(x, np.arange(60) % 2, np.arange(60) // 10, seed=0, progress=silent)
    with refused(CxrhfError, got="60 positives of 60", fix="reduce"):
        fit_reduction(x, np.ones(60), np.arange(60), seed=0, progress=silent)
