"""Matching against the assignment solver, against every tie-break, and against planted truth."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf import metrics
from cxrhf.twin.planted import context
from tests.metrics import twins


def random_case(rng, kind):
    """Few values (heavy ties), many values, or a few lumps; either class larger, equal, or missing."""
    n_pos, n_neg = (int(v) for v in rng.integers(0, 11, size=2))
    if kind == "equal":
        n_neg = n_pos
    n_neg += n_pos + n_neg == 0
    n = n_pos + n_neg
    if kind == "continuous":
        q = rng.random(n)
    elif kind == "lumps":
        q = np.round(rng.choice([0.1, 0.15, 0.4, 0.8], size=n) + rng.choice([0, 0, 0.01], size=n), 2)
    else:
        q = rng.integers(0, rng.integers(2, 9), size=n) / 8
    y = np.r_[np.ones(n_pos, dtype=int), np.zeros(n_neg, dtype=int)]
    shuffled = rng.permutation(n)
    return y[shuffled], q[shuffled]


def check_pairs(y, q, pairs):
    """Right classes, nobody twice, equal lengths; returns the total cost."""
    positives, negatives = pairs
    assert len(positives) == len(negatives)
    assert np.all(y[positives] == 1)
    assert np.all(y[negatives] == 0)
    assert len(set(positives.tolist())) == len(positives)
    assert len(set(negatives.tolist())) == len(negatives)
    return np.abs(q[positives] - q[negatives]).sum()


@pytest.mark.parametrize("kind", ["ties", "lumps", "continuous", "equal"])
def test_total_difference_is_the_assignment_solvers(kind):
    rng = np.random.default_rng(["ties", "lumps", "continuous", "equal"].index(kind))
    for _ in range(1500):
        y, q = random_case(rng, kind)
        pairs = metrics.match_pairs(y, q)
        cost = check_pairs(y, q, pairs)
        assert len(pairs.positives) == min(y.sum(), (1 - y).sum())
        assert cost == pytest.approx(twins.assignment_cost(y, q), abs=1e-9), (y, q)


@pytest.mark.parametrize("kind", ["ties", "lumps", "continuous", "equal"])
def test_caliper_is_the_price_of_staying_alone(kind):
    rng = np.random.default_rng(10 + ["ties", "lumps", "continuous", "equal"].index(kind))
    for _ in range(800):
        y, q = random_case(rng, kind)
        caliper = float(rng.choice([1e-9, 0.01, 0.1, 0.125, 0.2, 0.3, 0.9, 2.0]))
        pairs = metrics.match_pairs(y, q, caliper=caliper)
        cost = check_pairs(y, q, pairs)
        gaps = np.abs(q[pairs.positives] - q[pairs.negatives])
        assert np.all(gaps <= caliper + 1e-12)
        alone = min(y.sum(), (1 - y).sum()) - len(gaps)
        assert cost + caliper * alone == pytest.approx(twins.assignment_cost(y, q, caliper), abs=1e-9), (y, q, caliper)


def test_larger_samples_keep_the_least_cost():
    rng = np.random.default_rng(3)
    for n_pos, n_neg, digits in ((60, 300, 6), (300, 60, 2), (150, 150, 2), (80, 400, 1)):
        y = np.r_[np.ones(n_pos, dtype=int), np.zeros(n_neg, dtype=int)]
        q = np.round(np.r_[rng.beta(2, 3, n_pos), rng.beta(1, 6, n_neg)], digits)
        cost = check_pairs(y, q, metrics.match_pairs(y, q))
        assert cost == pytest.approx(twins.assignment_cost(y, q), abs=1e-9)


@pytest.mark.parametrize("caliper", [None, 0.13])
def test_chosen_rows_do_not_depend_on_row_order(caliper):
    rng = np.random.default_rng(4)
    for _ in range(300):
        y, q = random_case(rng, "ties")
        ids = np.array([f"image{i:03d}" for i in rng.permutation(len(y))])
        expected = None
        for _ in range(3):
            order = rng.permutation(len(y))
            pairs = metrics.match_pairs(y[order], q[order], ids=ids[order], caliper=caliper)
            chosen = set(zip(ids[order][pairs.positives], ids[order][pairs.negatives], strict=True))
            expected = chosen if expected is None else expected
            assert chosen == expected


def test_same_input_same_pairs():
    y, q = random_case(np.random.default_rng(0), "ties")
    first, second = metrics.match_pairs(y, q), metrics.match_pairs(y, q)
    np.testing.assert_array_equal(first.positives, second.positives)
    np.testing.assert_array_equal(first.negatives, second.negatives)


@pytest.mark.parametrize("caliper", [None, 0.13])
def test_matched_auroc_is_the_mean_over_tie_breaks(caliper):
    rng = np.random.default_rng(5)
    compared = 0
    while compared < 150:
        n = int(rng.integers(4, 13))
        y, q = rng.integers(0, 2, n), rng.integers(0, 4, n) / 8
        p = np.round(rng.random(n), 1)
        pairs = metrics.match_pairs(y, q, caliper=caliper)
        got = metrics.matched_auroc(y, p, q, caliper=caliper)
        if len(pairs.positives) == 0:
            assert np.isnan(got)
            continue
        values = twins.tie_break_aurocs(y, p, q, *pairs)
        assert got == pytest.approx(np.mean(values), abs=1e-12), (y, p, q)
        compared += 1


@pytest.mark.parametrize("caliper", [None, 0.13])
def test_match_weights_are_selected_over_available(caliper):
    rng = np.random.default_rng(6)
    for _ in range(400):
        y, q = random_case(rng, "ties")
        pairs = metrics.match_pairs(y, q, caliper=caliper)
        weight = metrics.match_weights(y, q, caliper)
        for label, chosen in ((1, pairs.positives), (0, pairs.negatives)):
            assert weight[y == label].sum() == pytest.approx(len(chosen))
            for value in np.unique(q):
                here = (y == label) & (q == value)
                if here.any():
                    np.testing.assert_allclose(weight[here], (q[chosen] == value).sum() / here.sum())
        order = rng.permutation(len(y))
        np.testing.assert_allclose(metrics.match_weights(y[order], q[order], caliper), weight[order], atol=1e-12)


def test_matched_auroc_without_row_order():
    rng = np.random.default_rng(7)
    y, q, p = rng.integers(0, 2, 300), rng.integers(0, 20, 300) / 20, np.round(rng.random(300), 2)
    value = metrics.matched_auroc(y, p, q)
    for _ in range(5):
        order = rng.permutation(300)
        assert metrics.matched_auroc(y[order], p[order], q[order]) == pytest.approx(value, abs=1e-12)


def test_nothing_to_match_on_is_the_plain_auroc():
    """One pre-test value for all: every row of the larger class has the same share in the matched set."""
    rng = np.random.default_rng(8)
    y, p = rng.integers(0, 2, 200), rng.random(200)
    assert metrics.matched_auroc(y, p, np.full(200, 0.3)) == pytest.approx(metrics.auroc(y, p), abs=1e-12)


def test_one_class_has_no_pairs():
    pairs = metrics.match_pairs([1, 1], [0.2, 0.3])
    assert len(pairs.positives) == len(pairs.negatives) == 0
    assert np.isnan(metrics.matched_auroc([0, 0], [0.1, 0.2], [0.2, 0.3]))


def test_no_rows_have_no_pairs():
    pairs = metrics.match_pairs([], [])
    assert len(pairs.positives) == len(pairs.negatives) == 0
    assert np.isnan(metrics.matched_auroc([], [], []))


def test_no_pair_from_one_patient():
    """With `clusters` the same least cost among pairs of different patients, on cases the solver can do in full."""
    from scipy.optimize import linear_sum_assignment

    rng = np.random.default_rng(9)
    for _ in range(150):
        y, q = random_case(rng, "ties")
        if min(y.sum(), (1 - y).sum()) == 0:
            continue
        patient = rng.integers(0, 6, len(y))
        pairs = metrics.match_pairs(y, q, clusters=patient)
        cost = check_pairs(y, q, pairs)
        assert np.all(patient[pairs.positives] != patient[pairs.negatives])
        few, many = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
        if len(few) > len(many):
            few, many = many, few
        price = np.abs(q[few][:, None] - q[many][None, :])
        price[patient[few][:, None] == patient[many][None, :]] = 1e6
        alone = np.full((len(few), len(few)), 1e9)
        np.fill_diagonal(alone, 1e3)
        rows, columns = linear_sum_assignment(np.hstack([price, alone]))
        matched = columns < len(many)
        assert len(pairs.positives) == matched.sum()
        assert cost == pytest.approx(price[rows[matched], columns[matched]].sum(), abs=1e-9)


def test_pair_summary_counts_patients_matched_with_themselves():
    y, q = np.array([1, 0, 1, 0, 0]), np.array([0.6, 0.6, 0.2, 0.1, 0.9])
    pairs = metrics.match_pairs(y, q)
    summary = metrics.pair_summary(pairs, y, q, clusters=["a", "a", "b", "c", "d"])
    assert (summary.n_pairs, summary.same_patient_share, summary.high_pretest_share) == (2, 0.5, 0.5)
    assert (summary.total_difference, summary.largest_difference) == pytest.approx((0.1, 0.1))


@pytest.mark.parametrize(("pi", "m"), [(0.2, 1.0), (0.7, 1.0), (0.2, 0.0)])
def test_planted_matched_auroc(pi, m):
    """D1: the limit by integration, for either class larger and without context."""
    samples = [context(8000, pi=pi, m=m, images_per_patient=(1, 4), seed=s) for s in range(16)]
    values = np.array([metrics.matched_auroc(s.y, s.score, s.pretest) for s in samples])
    assert abs(values.mean() - samples[0].truth.matched) < 4 * values.std(ddof=1) / 4 + 0.003


def test_null_context_changes_nothing():
    """g = eta = 0: matched equals standard up to noise."""
    sample = context(20_000, g=0.0, eta=0.0, seed=2)
    assert metrics.matched_auroc(sample.y, sample.score, sample.pretest) == pytest.approx(0.855578, abs=0.02)


def test_matched_rows_are_the_rows_that_are_scored():
    """Public matching code indexed twice (rows of the subset used as rows of the sample) and so reported the unmatched
    AUROC. On D1 the matched value must lie at its own truth, far from the standard one, for the point estimate, for the
    rows of match_pairs and for the bootstrap that redoes the matching."""
    sample = context(6000, seed=11)
    truth = sample.truth
    assert truth.standard - truth.matched > 0.1
    point = metrics.matched_auroc(sample.y, sample.score, sample.pretest)
    rows = np.concatenate(metrics.match_pairs(sample.y, sample.pretest))
    assert metrics.auroc(sample.y[rows], sample.score[rows]) == pytest.approx(point, abs=0.005)
    assert point == pytest.approx(truth.matched, abs=0.03)
    draws = metrics.draw(n=len(sample.y), y=sample.y, n_resamples=200, seed=1)
    replicates = metrics.bootstrap("matched_auroc", sample.y, sample.score, draws=draws, pretest=sample.pretest)
    assert replicates.shape == (200,)
    assert np.mean(replicates) == pytest.approx(point, abs=0.015)
    assert np.max(replicates) < truth.standard - 0.04


@pytest.mark.parametrize("caliper", [None, 0.05])
def test_each_replicate_is_the_matching_of_its_own_rows(caliper):
    """A replicate equals matched_auroc of the drawn rows written out, patients drawn whole."""
    sample = context(400, images_per_patient=(1, 4), seed=12)
    y, p, q = sample.y, np.round(sample.score, 1), np.round(sample.pretest, 2)
    draws = metrics.draw(sample.patient, y=y, n_resamples=20, seed=5)
    options = {} if caliper is None else {"caliper": caliper}
    replicates = metrics.bootstrap("matched_auroc", y, p, draws=draws, pretest=q, **options)
    counts = draws.counts(0, 20)
    for r in range(20):
        rows = np.repeat(np.arange(len(y)), counts[draws.unit, r])
        assert replicates[r] == pytest.approx(metrics.matched_auroc(y[rows], p[rows], q[rows], caliper), abs=1e-12)
