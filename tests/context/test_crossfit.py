"""The winner is chosen by validation and calibrated; no image is told anything by its own label."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from joblib import parallel_config
from scipy import sparse
from scipy.special import expit

from cxrhf.context.fit import fit_family
from cxrhf.context.material import Calibration, Candidate, Family, Labelled, Tried
from cxrhf.context.sweep import best_of_each_kind, deal, fit, scores, sweep_candidates
from cxrhf.errors import LeakageError, TableError
from cxrhf.learn import apply_calibrator, fit_calibrator
from cxrhf.metrics import auroc, calibration_line
from tests.refusals import refused
from tests.thinned import thinned

SVC = Candidate("LinearSVC", {"C": 0.3})
RIDGE = Candidate("WordRidge", {"penalty": 3.0})
LOGISTIC = Candidate("LogisticRegression", {"C": 1.0})
BOOSTED = Candidate("XGBoost", {"n_estimators": 30, "max_depth": 3, "eta": 0.2, "colsample_bynode": 0.3})
NEIGHBOUR = Candidate("KNeighborsClassifier", {"n_neighbors": 1})
FOREST = Candidate("RandomForestClassifier", {"n_estimators": 10})


def chart(
    seed: int, *candidates: Candidate, n_patients: int = 300, strength: float = 2.0, words: int = 300,
    calibration: Calibration = "platt", blank: float = 0.0, folds: int = 5, dense: bool = False,
) -> tuple[Family, Labelled, np.ndarray]:  # fmt: skip
    """Words of which eight matter; the first 60% of the patients are learned from, then 20% validate, 20% test."""
    rng = np.random.default_rng(seed)
    patients = np.repeat(np.arange(n_patients), rng.integers(1, 8, n_patients))
    rows = np.cumsum(rng.random(len(patients)) < 0.7)  # some neighbouring images share their notes
    rows[patients != np.r_[-1, patients[:-1]]] += 1
    rows = np.unique(np.column_stack([patients, rows]), axis=0, return_inverse=True)[1].astype(np.int64)
    owner = np.zeros(rows.max() + 1, dtype=np.int64)
    owner[rows] = patients
    chronic = rng.random((n_patients, words)) < 0.05
    there = (chronic[owner] | (rng.random((len(owner), words)) < 0.03)).astype(float)
    signs = np.zeros(words)
    signs[:8] = strength * np.tile([1, -1], 4)
    truth = expit(-1 + (there @ signs)[rows])
    y = (rng.random(len(rows)) < truth).astype(float)
    y[rng.random(len(y)) < blank] = np.nan
    length = np.maximum(np.sqrt(there.sum(axis=1, keepdims=True)), 1)
    features: Any = (there / length).astype(np.float32)
    place = np.searchsorted([0.6, 0.8], patients / n_patients, side="right")
    learn = place == 0
    data = Labelled(rows, y, patients, learn, place == 1, deal(y, patients, learn, folds, seed))
    used = features if dense else sparse.csr_array(features)
    return Family("words", "words", used, (), candidates or (LOGISTIC,), calibration), data, truth


def fitted(family: Family, data: Labelled, **more: Any):
    return fit_family(family, data, sweep_candidates(family, data, seed=0, workers=1), seed=0, workers=1, **more)


# Cross-fitting


@pytest.mark.parametrize(
    ("candidate", "calibration", "blank"),
    [(SVC, "platt", 0.0), (RIDGE, "platt", 0.2), (LOGISTIC, "isotonic", 0.2), (BOOSTED, "isotonic", 0.0)],
)
def test_no_label_of_a_fold_plays_a_part_in_its_probabilities(candidate, calibration, blank):
    family, data, _ = chart(1, candidate, n_patients=100, words=40, calibration=calibration, blank=blank)
    before = fitted(family, data)
    assert not np.isnan(before.probability).any()
    for held, change in ((0, lambda y: 1 - y), (3, lambda y: y * np.nan)):
        mine = data.fold == held
        after = fitted(family, data._replace(y=np.where(mine, change(data.y), data.y)))
        assert np.array_equal(after.probability[mine], before.probability[mine])
        assert not np.array_equal(after.probability[data.learn & ~mine], before.probability[data.learn & ~mine])


def test_labels_of_other_splits_change_nothing():
    """Of validation and test; with two kinds, validation may change the choice and nothing else."""
    family, data, _ = chart(2, LOGISTIC, n_patients=150, words=80)
    before = fitted(family, data)
    for labels in (np.where(data.learn, data.y, 1 - data.y), np.where(data.learn, data.y, np.nan)):
        after = fitted(family, data._replace(y=labels))
        assert np.array_equal(after.probability, before.probability)
        assert np.array_equal(after.model.coef_, before.model.coef_)
        assert after.cv_auroc == before.cv_auroc
    family, data, _ = chart(2, LOGISTIC, NEIGHBOUR, n_patients=250, dense=True)
    test = ~data.learn & ~data.validate
    first = fitted(family, data)
    assert first.candidate == LOGISTIC
    swapped = fitted(family, data._replace(y=np.where(test, 1 - data.y, data.y)))
    assert np.array_equal(first.probability, swapped.probability)
    assert swapped.validation_auroc == first.validation_auroc
    turned = fitted(family, data._replace(y=np.where(data.validate, 1 - data.y, data.y)))
    assert turned.candidate == NEIGHBOUR  # what ranked well ranks badly now
    alone = fitted(Family("words", "words", family.features, (), (NEIGHBOUR,), "platt"), data)
    assert np.array_equal(turned.probability, alone.probability)


@pytest.mark.parametrize("candidate", [NEIGHBOUR, FOREST])
def test_memory_is_worth_nothing_on_noise(candidate):
    """Models that know every label they saw: cross-fitted they know nothing, and say little."""
    areas, spread = [], []
    for seed in range(3):
        family, data, _ = chart(seed, candidate, n_patients=200, strength=0.0, words=40, dense=True)
        found = fitted(family, data)
        p, y = found.probability[data.learn], data.y[data.learn]
        areas.append(auroc(y, p))
        spread.append(p.std())
        inside = scores(found.model, family.features[data.rows[data.learn]])
        assert auroc(y, inside) > 0.7  # the final model itself does remember
    assert abs(np.mean(areas) - 0.5) < 0.05
    assert np.mean(spread) < 0.07


@pytest.mark.parametrize(("blank", "folds"), [(0.0, 5), (0.3, 4)])
def test_scheme_is_what_it_says(blank, folds):
    """A slow twin with loops: own score from the fit without the fold, calibrator from fits without two, stretched."""
    family, data, _ = chart(3, LOGISTIC, n_patients=100, words=50, blank=blank, folds=folds)
    found = fitted(family, data)
    known = data.learn & ~np.isnan(data.y)

    def said(without: tuple[int, ...], asked: np.ndarray) -> np.ndarray:
        rows = known & ~np.isin(data.fold, without)
        model = fit(LOGISTIC, family.features, data.rows[rows], data.y[rows], data.patients[rows], 0)
        return scores(model, family.features[data.rows[asked]])

    expected = np.full(len(data.y), np.nan)
    own = np.full(len(data.y), np.nan)
    times, steps = [], []
    for u in range(folds):
        mine = data.fold == u
        own[mine] = said((u,), mine)
        pairs = [said((u, v), mine) for v in range(folds) if v != u]
        times.append(np.sqrt(own[mine].std() / np.mean([each.std() for each in pairs])))
        steps.append(own[mine].mean() - np.mean(pairs))
        away = np.full(len(data.y), np.nan)
        for v in range(folds):
            if v != u:
                away[data.fold == v] = said((u, v), data.fold == v)
        others = known & ~mine
        narrower = np.mean(pairs) + (own[mine] - own[mine].mean()) / times[-1]
        expected[mine] = apply_calibrator(fit_calibrator(away[others], data.y[others], "platt"), narrower)
    rest = ~data.learn
    power = np.log(folds / (folds - 1)) / np.log((folds - 1) / (folds - 2))
    centre = own[data.learn].mean()
    narrower = centre + (said((), rest) - centre - power * np.mean(steps)) / np.exp(power * np.log(times).mean())
    expected[rest] = apply_calibrator(fit_calibrator(own[known], data.y[known], "platt"), narrower)
    assert found.probability == pytest.approx(expected, abs=1e-9)
    assert 1 < np.mean(times) < 1.2
    again = apply_calibrator(found.calibrator, scores(found.model, family.features[data.rows[rest]]))
    assert np.array_equal(again, found.probability[rest])


@pytest.mark.parametrize(
    ("candidate", "calibration"), thinned([(SVC, "platt"), (RIDGE, "platt"), (BOOSTED, "isotonic")], [(RIDGE, "platt")])
)
def test_calibrated_on_a_planted_problem(candidate, calibration):
    """Slopes near 1 in the mean over charts, of images that were learned from and of others; neither knows too much."""
    slopes, gaps = [], []
    for seed in range(3):
        family, data, truth = chart(seed, candidate, n_patients=800, strength=2.5, words=150, calibration=calibration)
        found = fitted(family, data)
        for part in (data.learn, ~data.learn):
            slopes.append(calibration_line(data.y[part], found.probability[part]).slope)
            gaps.append(auroc(data.y[part], truth[part]) - auroc(data.y[part], found.probability[part]))
    assert 0.88 < np.mean(slopes[::2]) < 1.13  # learned from
    assert 0.85 < np.mean(slopes[1::2]) < 1.18
    assert -0.01 < np.mean(gaps) < 0.08


@pytest.mark.slow
def test_same_numbers_for_any_workers_and_order():
    family, data, _ = chart(4, LOGISTIC, RIDGE, n_patients=150, words=60, blank=0.1)
    tried = sweep_candidates(family, data, seed=0, workers=1)
    first = fit_family(family, data, tried, seed=0, workers=1)
    two = fit_family(family, data, tried, seed=0, workers=2)
    with parallel_config(backend="threading", n_jobs=2):
        threads = fit_family(family, data, tried, seed=0)
    for other in (two, threads):
        assert np.array_equal(other.probability, first.probability)
        assert other.candidate == first.candidate
    # Rows in another order: the same but for rounding.
    order = np.random.default_rng(0).permutation(len(data.y))
    moved = Labelled(*(each[order] for each in data))
    again = fitted(family, moved)
    assert again.probability == pytest.approx(first.probability[order], abs=2e-3)


def test_scores_that_were_not_kept_are_made_again():
    family, data, _ = chart(5, LOGISTIC, n_patients=100, words=50)
    tried = sweep_candidates(family, data, seed=0, workers=1)
    first = fit_family(family, data, tried, seed=0, workers=1)
    bare = [each._replace(scores=np.zeros(0)) for each in tried]
    assert np.array_equal(fit_family(family, data, bare, seed=0, workers=1).probability, first.probability)
    assert first.tried[0].scores.size == 0


# Choice


@pytest.mark.slow
def test_validation_chooses_between_kinds():
    family, data, _ = chart(6, NEIGHBOUR, LOGISTIC, Candidate("LogisticRegression", {"C": 1e-4}), dense=True)
    said: list[str] = []
    found = fitted(family, data, progress=said.append)
    judge = data.validate
    assert found.reasons == ()
    assert found.candidate == LOGISTIC
    expected = auroc(data.y[judge], scores(found.model, family.features[data.rows[judge]]))
    assert found.validation_auroc == pytest.approx(expected)
    kinds = [each.candidate.kind for each in found.tried]
    assert kinds[:2] == ["LogisticRegression", "KNeighborsClassifier"]
    assert len(found.tried) == 3
    assert any("10 models" in each for each in said)
    # Cross-validation favours one, validation the other: validation decides.
    tried = [each._replace(auroc=0.99) if each.candidate == NEIGHBOUR else each
             for each in sweep_candidates(family, data, seed=0, workers=1)]  # fmt: skip
    again = fit_family(family, data, tried, seed=0, workers=1)
    assert again.candidate == LOGISTIC
    assert again.tried[0].candidate == NEIGHBOUR
    pooled = fit_family(family, data, tried, seed=0, workers=1, choose="pooled")
    assert pooled.candidate == NEIGHBOUR
    assert np.isnan(pooled.validation_auroc)
    assert pooled.reasons == ()


def test_small_validation_does_not_choose():
    family, data, _ = chart(7, LOGISTIC, RIDGE, n_patients=150, words=60)
    few = data.validate & (data.patients < np.unique(data.patients[data.validate])[12])
    found = fitted(family, data._replace(validate=few))
    assert len(found.reasons) == 1
    assert "cross-validation chose the classifier" in found.reasons[0]
    assert "10 are required" in found.reasons[0]
    assert np.isnan(found.validation_auroc)
    assert found.candidate == best_of_each_kind(sweep_candidates(family, data, seed=0, workers=1))[0].candidate
    none = fitted(family, data._replace(validate=np.zeros(len(few), dtype=bool)))
    assert "0 patients with the finding" in none.reasons[0]
    assert np.array_equal(none.probability, found.probability)


def test_candidates_that_fail():
    family, data, _ = chart(8, LOGISTIC, n_patients=100, words=50)
    good = sweep_candidates(family, data, seed=0, workers=1)[0]
    broken = Candidate("LogisticRegression", {"C": -1.0})
    other = Tried(Candidate("LinearSVC", {"C": -1.0}), 0.99, 0.0, good.scores, 0.0)  # fails when fitted to all
    failed = Tried(broken, np.nan, np.nan, np.zeros(0), 0.0, "C must be above 0")
    for choose in ("validation", "pooled"):
        found = fit_family(family, data, [other, good, failed], seed=0, workers=1, choose=choose)
        assert found.candidate == LOGISTIC
        assert found.reasons[0].startswith("LinearSVC(C=-1) cannot be fitted to all images")
    with pytest.raises(TableError, match=r"no classifier can be fitted to words.*C must be above 0"):
        fit_family(family, data, [failed], seed=0, workers=1)
    with pytest.raises(TableError, match="no classifier can be fitted to words"):
        fit_family(family, data, [other], seed=0, workers=1)
    with pytest.raises(TableError, match="no candidates"):
        fit_family(family, data, [], seed=0, workers=1)


def test_a_patient_in_two_places_is_refused():
    family, data, _ = chart(9, LOGISTIC, n_patients=100, words=50)
    tried = sweep_candidates(family, data, seed=0, workers=1)
    fold = data.fold.copy()
    twice = np.flatnonzero(data.learn & (np.bincount(data.patients)[data.patients] > 1))[0]
    fold[twice] = (fold[twice] + 1) % 5
    with refused(LeakageError, "1 patients are in two folds"):
        fit_family(family, data._replace(fold=fold), tried, seed=0)
    patients = data.patients.copy()
    patients[np.flatnonzero(data.validate)[0]] = data.patients[data.learn][0]
    with refused(LeakageError, "1 are in both training and validation"):
        fit_family(family, data._replace(patients=patients), tried, seed=0)


def test_few_patients():
    """As many patients with the finding as folds: it still runs, and every image has a probability."""
    family, data, _ = chart(10, LOGISTIC, n_patients=60, words=20)
    rare = np.where(data.learn & ~np.isin(data.patients, [1, 5, 9, 14, 20]), 0.0, 1.0)
    fold = deal(rare, data.patients, data.learn, 5, 0)
    found = fitted(family, data._replace(y=rare, fold=fold), choose="pooled")
    assert ((found.probability > 0) & (found.probability < 1)).all()
