"""Groups of many findings in one pass: the sample and every replicate as copied rows would have it, in all rules."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf.metrics import average_precision, draw, expected_calibration_error, rates_at
from cxrhf.metrics.calibration import observed_minus_predicted
from cxrhf.metrics.grouped import (
    Grouping,
    drawn_groups,
    drawn_prevalence,
    drawn_starts,
    rank_findings,
    sample_groups,
    sample_prevalence,
    sample_starts,
    threshold_of,
)
from cxrhf.metrics.operating import FPR_RULES, fpr_sorted, threshold_at_fpr
from tests.metrics import twins


def sample(seed=0, n=300, findings=3, decimals=1, weighted=False):
    """Several images a patient, ties, missing labels, groups, bins; one finding without any negative."""
    rng = np.random.default_rng(seed)
    clusters = rng.integers(0, n // 3, n)
    y = (rng.random((n, findings)) < np.linspace(0.1, 0.5, findings)).astype(float)
    p = np.round(y + rng.normal(size=(n, findings)), decimals)
    y[rng.random((n, findings)) < 0.1] = np.nan
    weight = rng.choice([0.0, 0.3, 1.0, 2.5], (n, findings)) if weighted else None
    group, bins = rng.integers(-1, 3, n), rng.integers(-1, 3, n)
    return y, p, weight, group, bins, clusters


def slow(y, p, weight, group, bins, part, threshold=None, rule="nearest"):
    """(original, balanced), each (groups, 3), of one finding: the definitions, one group at a time."""
    rows = ~np.isnan(y) & (weight > 0)
    y, p, weight, group, bins = y[rows], p[rows], weight[rows], group[rows], bins[rows]
    inside = np.where((group >= 0) & part[group], group, -1)
    both = []
    for w, code in ((weight, group), (twins.balancing_weights(y, inside, bins, weight), inside)):
        at = threshold_at_fpr(y, p, 0.2, w, rule) if threshold is None else threshold
        found = np.full((len(part), 3), np.nan)
        for g in range(len(part)):
            own = (code == g) & (w > 0)
            tpr, fpr = (np.nan, np.nan) if np.isnan(at) else twins.rates(y[own], p[own], at, w[own])[:2]
            found[g] = twins.auroc(y[own], p[own], w[own]), tpr, fpr
        both.append(found)
    return both


def check(found, expected, at=()):
    for numbers, slow_numbers in zip(found[:2], expected, strict=True):
        got = np.stack([numbers.auroc[at], numbers.tpr[at], numbers.fpr[at]], axis=-1)
        np.testing.assert_allclose(got, slow_numbers, atol=1e-9, rtol=0)
        np.testing.assert_allclose(numbers.j[at], slow_numbers[:, 1] - slow_numbers[:, 2], atol=1e-9, rtol=0)


PART = np.array([[True, True, True], [True, False, True], [False, True, True]])


@pytest.mark.parametrize("rule", FPR_RULES)
@pytest.mark.parametrize(("weighted", "decimals", "threshold"), [(False, 1, None), (True, 3, None), (True, 1, 0.6)])
def test_sample_and_replicates_are_those_of_the_slow_twin(rule, weighted, decimals, threshold):
    y, p, weight, group, bins, clusters = sample(weighted=weighted, decimals=decimals)
    draws = draw(clusters, y=y, n_resamples=70, seed=2)
    given = None if threshold is None else [threshold] * 3
    ranked = rank_findings(y, p, weight, draws.unit, threshold=given, rule=rule)
    grouping = Grouping(group, 3, bins, 3, PART)
    point = sample_groups(ranked, grouping, sample_starts(ranked))
    drawn = drawn_groups(ranked, grouping, drawn_starts(ranked, draws), draws)
    weight = np.ones(y.shape) if weight is None else weight
    for k in range(3):
        expected = slow(y[:, k], p[:, k], weight[:, k], group, bins, PART[k], threshold, rule)
        check(point, expected, (k,))
    for r in range(0, 70, 3):
        times = draws.counts(r, r + 1)[draws.unit, 0]
        for k in range(3):
            expected = slow(y[:, k], p[:, k], weight[:, k] * times, group, bins, PART[k], threshold, rule)
            check(drawn, expected, (r, k))


def test_prevalence_only_changes_the_threshold_but_no_auroc():
    y, p, _, group, _, clusters = sample(decimals=6)
    draws = draw(clusters, y=y, n_resamples=64)
    ranked = rank_findings(y, p, None, draws.unit)
    grouping = Grouping(group, 3, None, 1, np.ones((3, 3), dtype=bool))
    found = drawn_groups(ranked, grouping, drawn_starts(ranked, draws), draws)
    np.testing.assert_allclose(found.original.auroc, found.balanced.auroc, atol=1e-12)
    assert not np.allclose(found.original.tpr, found.balanced.tpr)
    fixed = rank_findings(y, p, None, draws.unit, threshold=[0.5] * 3)
    found = drawn_groups(fixed, grouping, drawn_starts(fixed, draws), draws)
    np.testing.assert_allclose(found.original.tpr, found.balanced.tpr, atol=1e-12)


CURVES = {
    "few positives": lambda rng, n: (rng.random(n) < 0.01, rng.normal(size=n)),
    "long straight pieces": lambda rng, n: (np.arange(n) > n - 40, np.arange(n) + 0.0),
    "positives in one block": lambda rng, n: (np.abs(np.arange(n) - 0.8 * n) < 0.05 * n, np.arange(n) + 0.0),
    "three scores": lambda rng, n: (rng.random(n) < 0.3, rng.integers(0, 3, n) + 0.0),
    "one score": lambda rng, n: (rng.random(n) < 0.3, np.zeros(n)),
    "no positives": lambda rng, n: (np.zeros(n), rng.normal(size=n)),
    "no negatives": lambda rng, n: (np.ones(n), rng.normal(size=n)),
    "upside down": lambda rng, n: (np.arange(n) < 0.3 * n, np.arange(n) + 0.0),
}


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("rule", FPR_RULES)
def test_thresholds_are_those_of_the_whole_walk(curve, rule):
    """Replicates start near the rate they look for; wherever the curve is straight they must go back."""
    rng = np.random.default_rng(5)
    n = 1500
    y, p = CURVES[curve](rng, n)
    y = np.asarray(y, dtype=float)[:, None]
    draws = draw(rng.integers(0, 900, n), y=y, n_resamples=80, strata="none")
    for fpr in (0.02, 0.2, 0.9):
        ranked = rank_findings(y, p[:, None], None, draws.unit, fpr=fpr, rule=rule)
        found = drawn_starts(ranked, draws)
        counts = draws.counts(0, 80, conditional=False)[ranked.unit].astype(float)
        expected = [fpr_sorted(ranked.y, ranked.p, counts[:, r].copy(), fpr, FPR_RULES.index(rule)) for r in range(80)]
        np.testing.assert_array_equal(found[:, 0], expected)
        # In the sample everybody counts once, so pieces are as straight as they can be; one group is always balanced.
        grouping = Grouping(np.zeros(n, dtype=np.int64), 1, None, 1, np.ones((1, 1), dtype=bool))
        original, balanced, within = sample_groups(ranked, grouping, sample_starts(ranked))
        assert within == ()
        np.testing.assert_allclose(balanced, original, atol=1e-12)


def test_threads_and_row_order_do_not_matter():
    y, p, weight, group, bins, clusters = sample(n=600, weighted=True)
    grouping = Grouping(group, 3, bins, 3, PART)

    def found(order, workers):
        draws = draw(clusters[order], y=y[order], n_resamples=700, seed=1)
        ranked = rank_findings(y[order], p[order], weight[order], draws.unit)
        own = grouping._replace(group=group[order], age_bin=bins[order])
        return drawn_groups(ranked, own, drawn_starts(ranked, draws, workers), draws, workers)

    same = np.arange(len(y))
    one, two = found(same, 1), found(same, 2)
    other = found(np.random.default_rng(3).permutation(len(y)), 2)
    for a, b, c in zip(one[:2], two[:2], other[:2], strict=True):
        for x, z, s in zip(a, b, c, strict=True):
            np.testing.assert_array_equal(x, z)
            np.testing.assert_allclose(x, s, atol=1e-9)


def test_thresholds_have_their_score():
    y, p, *_, clusters = sample()
    draws = draw(clusters, y=y, n_resamples=2)
    ranked = rank_findings(y, p, None, draws.unit, threshold=[np.nan, 0.4, np.inf])
    starts = sample_starts(ranked)
    own = ~np.isnan(y[:, 0])
    assert threshold_of(ranked, 0, int(starts[0])) == threshold_at_fpr(y[own, 0], p[own, 0])
    assert threshold_of(ranked, 1, int(starts[1])) == 0.4
    assert threshold_of(ranked, 2, int(starts[2])) == np.inf
    assert np.isnan(threshold_of(ranked, 0, -1))
    assert threshold_of(ranked, 0, int(own.sum())) == np.inf


def test_nothing_at_all():
    draws = draw(n=4, n_resamples=3)
    y = np.full((4, 1), np.nan)
    ranked = rank_findings(y, np.zeros((4, 1)), None, draws.unit)
    grouping = Grouping(np.zeros(4, dtype=np.int64), 2, None, 1, np.ones((1, 2), dtype=bool))
    assert np.isnan(sample_groups(ranked, grouping, sample_starts(ranked)).original.auroc).all()
    found = drawn_groups(ranked, grouping, drawn_starts(ranked, draws), draws)
    assert np.isnan(np.stack(found.original)).all()
    assert np.isnan(np.stack(found.balanced)).all()


@pytest.mark.parametrize("threshold", [None, [0.3, 0.5, 0.7]])
def test_what_depends_on_the_prevalence_is_that_of_copied_rows(threshold):
    """Ties, weights, several rows a patient: every replicate against the metric functions on copied rows."""
    rng = np.random.default_rng(0)
    n = 150
    patient, group = rng.integers(0, 60, n), rng.integers(-1, 3, n)
    y = (rng.random((n, 3)) < 0.4).astype(float)
    y[rng.random((n, 3)) < 0.1] = np.nan
    p, weight = np.round(rng.random((n, 3)), 1), rng.choice([0.5, 1.0, 2.0], n)
    draws = draw(patient, y=y, n_resamples=20)
    ranked = rank_findings(y, p, weight, draws.unit, threshold=threshold)
    grouping, kinds = Grouping(group, 3), np.array([True, True, False])
    starts = drawn_starts(ranked, draws, conditional=False)
    point = sample_prevalence(ranked, grouping, sample_starts(ranked), kinds)
    drawn = drawn_prevalence(ranked, grouping, starts, kinds, draws, 1)
    counts = draws.counts(0, 20, conditional=False)
    for r in range(-1, 20):
        times = np.ones(n, dtype=int) if r < 0 else counts[draws.unit, r].astype(int)
        at = np.repeat(np.arange(n), times)
        for k in range(3):
            own = at[~np.isnan(y[at, k])]
            chosen = threshold[k] if threshold else threshold_at_fpr(y[own, k], p[own, k], 0.2, weight[own])
            for g in range(3):
                rows = own[group[own] == g]
                data = (y[rows, k], p[rows, k])
                rates = rates_at(*data, chosen, weight[rows])
                expected = [
                    np.average(data[0], weights=weight[rows]),
                    average_precision(*data, weight[rows]),
                    rates.precision,
                    rates.npv,
                    expected_calibration_error(*data, weight[rows]) if k < 2 else np.nan,
                    observed_minus_predicted(*data, weight[rows]) if k < 2 else np.nan,
                ]
                got = [numbers[k, g] if r < 0 else numbers[r, k, g] for numbers in (point if r < 0 else drawn)]
                np.testing.assert_allclose(got, expected, atol=1e-12)


def test_groups_in_the_balanced_population_of_another_grouping():
    """Sample and replicates: weights that balance one grouping, one threshold on them, the other grouping measured."""
    y, p, _, race, bins, clusters = sample(n=240)
    sex = np.random.default_rng(5).integers(-1, 2, len(race))
    draws = draw(clusters, y=y, n_resamples=12)
    ranked = rank_findings(y, p, None, draws.unit)
    grouping = Grouping(sex, 2, within=(Grouping(race, 3, bins, 3, PART),))
    point = sample_groups(ranked, grouping, sample_starts(ranked))
    drawn = drawn_groups(ranked, grouping, drawn_starts(ranked, draws), draws)
    assert point.balanced is None
    for r in range(-1, 12):
        times = np.ones(len(race)) if r < 0 else draws.counts(r, r + 1)[draws.unit, 0]
        for k in range(3):
            rows = ~np.isnan(y[:, k]) & (times > 0)
            label, score = y[rows, k], p[rows, k]
            inside = np.where((race >= 0) & PART[k][race], race, -1)[rows]
            w = twins.balancing_weights(label, inside, bins[rows], times[rows].astype(float))
            at = threshold_at_fpr(label, score, 0.2, w)
            for g in range(2):
                own = (sex[rows] == g) & (w > 0)
                tpr, fpr = twins.rates(label[own], score[own], at, w[own])[:2]
                expected = (twins.auroc(label[own], score[own], w[own]), tpr, fpr)
                (found,) = point.within if r < 0 else drawn.within
                place = (k, g) if r < 0 else (r, k, g)
                got = (found.auroc[place], found.tpr[place], found.fpr[place])
                np.testing.assert_allclose(got, expected, atol=1e-9)


@pytest.mark.parametrize("threshold", [None, 0.4])
def test_groups_where_another_grouping_is_balanced_over_disease_groups(threshold):
    """Two populations at once: over each finding's label, and over classes that any label may lie across."""
    y, p, weight, race, bins, clusters = sample(n=240, weighted=True)
    rng = np.random.default_rng(5)
    sex, disease = rng.integers(-1, 2, len(race)), rng.choice([0.0, 1.0, 2.0, np.nan], len(race))
    part = np.array([[True, True, True], [False] * 3, [False, True, True]])
    draws = draw(clusters, y=y, n_resamples=12)
    given = None if threshold is None else [threshold] * 3
    ranked = rank_findings(y, p, weight, draws.unit, threshold=given)
    both = (Grouping(race, 3, bins, 3, PART), Grouping(race, 3, bins, 3, part, disease))
    grouping = Grouping(sex, 2, within=both)
    point = sample_groups(ranked, grouping, sample_starts(ranked))
    drawn = drawn_groups(ranked, grouping, drawn_starts(ranked, draws), draws)
    alone = sample_groups(ranked, grouping._replace(within=both[:1]), sample_starts(ranked))
    np.testing.assert_array_equal(point.within[0], alone.within[0])
    for r in range(-1, 12):
        times = np.ones(len(race)) if r < 0 else draws.counts(r, r + 1)[draws.unit, 0]
        found = (point if r < 0 else drawn).within[1]
        for k in range(3):
            mass = weight[:, k] * times
            rows = ~np.isnan(y[:, k]) & (mass > 0)
            label, score, mass = y[rows, k], p[rows, k], mass[rows]
            known = (race >= 0) & part[k][race] & ~np.isnan(disease)
            w = twins.balancing_weights(disease[rows], np.where(known, race, -1)[rows], bins[rows], mass)
            at = threshold if threshold is not None else threshold_at_fpr(label, score, 0.2, w)
            for g in range(2):
                place = (k, g) if r < 0 else (r, k, g)
                got = (found.auroc[place], found.tpr[place], found.fpr[place])
                if k == 1:
                    assert np.isnan(got).all()
                    continue
                own = (sex[rows] == g) & (w > 0)
                tpr, fpr = twins.rates(label[own], score[own], at, w[own])[:2]
                expected = (twins.auroc(label[own], score[own], w[own]), tpr, fpr)
                np.testing.assert_allclose(got, expected, atol=1e-9)
