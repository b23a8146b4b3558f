"""Groups at one threshold: the planted truth of D3, a null, rows written out one by one, and what must not matter."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cxrhf.metrics import (
    auroc,
    average_precision,
    bootstrap_many,
    bootstrap_subgroups,
    draw,
    expected_calibration_error,
    measure_subgroups,
    subgroup_rates,
    threshold_at_fpr,
)
from cxrhf.metrics.calibration import NO_INTERVAL, expected_ece
from cxrhf.metrics.checks import InputError
from cxrhf.metrics.operating import rates_at
from cxrhf.metrics.subgroups import BY_PREVALENCE, CALIBRATION, NO_PROBABILITIES, NUMBERS, RATES
from cxrhf.twin.planted_groups import subgroups
from tests.metrics import twins

RULES = ("nearest", "nearest_all", "conservative")


def sample(seed=0, patients=80, decimals=1):
    """Several images a patient; rounded scores, because ties decide where a threshold can be."""
    rng = np.random.default_rng(seed)
    clusters = rng.integers(0, patients, 3 * patients)
    groups = np.array(["F", "M", "x"])[rng.choice(3, len(clusters), p=[0.5, 0.4, 0.1])]
    y = (rng.random(len(clusters)) < 0.35).astype(float)
    p = np.round(y + rng.normal(size=len(y)), decimals)
    return y, p, groups, clusters, rng.choice([0.0, 0.3, 1.0, 2.5], len(y))


def numbers(found):
    """(groups + 1, 4) as the replicates have it."""
    return np.array([[getattr(each, name) for name in NUMBERS] for each in (*found.rates.values(), found.overall)])


def same(one, other):
    np.testing.assert_allclose(numbers(one), numbers(other), atol=1e-12)
    assert one.threshold == other.threshold
    assert [gap.value for gap in one.gaps.values()] == pytest.approx([gap.value for gap in other.gaps.values()])


# ---------------------------------------------------------------- planted truth and null


@pytest.fixture(scope="module", params=[0.0, 0.5])
def planted(request):
    data = subgroups(20_000, shift=request.param, seed=1)
    found = measure_subgroups(data.y, data.score, data.race, clusters=data.patient, n_resamples=1000, level=0.99)
    return request.param, data.truth, found


def test_planted_truth_is_the_printed_one(planted):
    shift, truth, _ = planted
    assert truth.threshold == pytest.approx(1.3597, abs=5e-5)
    assert truth.fpr == pytest.approx([0.2059, 0.1899, 0.1598], abs=5e-5)
    if shift == 0:
        assert truth.tpr == pytest.approx([0.7324, 0.7118, 0.6628], abs=5e-5)


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_planted_rates_lie_in_their_intervals(shift):
    """60 intervals at 99% from five samples: none may be far off, and not more may miss than chance allows."""
    missed = []
    for seed in range(5):
        data = subgroups(10_000, shift=shift, seed=seed)
        found = measure_subgroups(data.y, data.score, data.race, n_resamples=400, level=0.99, seed=seed)
        truth = data.truth
        assert found["threshold"] == pytest.approx(truth.threshold, abs=0.06)
        assert found["threshold_source"] == "fpr 0.2 of the whole sample, nearest"
        assert found["overall"]["fpr"] == pytest.approx(0.2, abs=2e-3)  # corners are a few negatives apart
        expected = {"auroc": truth.auroc, "tpr": truth.tpr, "fpr": truth.fpr, "j": truth.tpr - truth.fpr}
        for race in range(3):
            got = found["groups"][str(race)]
            for name, value in expected.items():
                low, high = got[f"{name}_ci_low"], got[f"{name}_ci_high"]
                assert 0 < high - low < 0.25
                assert got[name] == pytest.approx(value[race], abs=high - low)
                if not low <= value[race] <= high:
                    missed.append((seed, race, name))
    assert len(missed) <= 3, missed


def test_planted_gaps_are_found(planted):
    shift, truth, found = planted
    gap = found["gaps"]["tpr"]
    assert (gap["highest"], gap["lowest"]) == ("0", "2")
    assert gap["ci_low"] <= truth.tpr[0] - truth.tpr[2] <= gap["ci_high"]
    assert gap["method"] == "percentile, Bonferroni over 3 pairs"
    if shift:  # positives of the third race score lower: they are ranked lower too, which age alone does not do
        assert gap["ci_low"] > 0.1
        assert gap["p_value"] < 0.01
        assert found["gaps"]["auroc"]["lowest"] == "2"
        assert found["gaps"]["auroc"]["ci_low"] > 0.03
    else:
        assert found["gaps"]["auroc"]["ci_low"] < 0 < found["gaps"]["auroc"]["ci_high"]


@pytest.mark.parametrize("n_groups", [2, 4])
def test_groups_alike_have_no_gap(n_groups):
    """0 lies in the interval of the gap in about 95% of samples, also when the pair was picked out of six."""
    holds = dict.fromkeys(NUMBERS, 0)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        y = (rng.random(600) < 0.3).astype(float)
        p = 1.4 * y + rng.normal(size=600)
        gaps = measure_subgroups(y, p, rng.integers(0, n_groups, 600), n_resamples=200, seed=seed)["gaps"]
        for name, gap in gaps.items():
            inside = gap["ci_low"] <= 0 <= gap["ci_high"]
            holds[name] += inside
            # The p value of a percentile interval counts whole replicates, so it is the more careful of the two.
            assert inside or gap["p_value"] < 0.05 or "percentile" in gap["method"]
            assert not inside or gap["p_value"] > 0.04
    assert min(holds.values()) >= 34, holds


# ---------------------------------------------------------------- slow twins


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("fpr", [0.05, 0.2, 0.5])
def test_point_is_what_the_definitions_say(rule, fpr):
    y, p, groups, _, weight = sample()
    for w in (None, weight):
        found = subgroup_rates(y, p, groups, fpr=fpr, rule=rule, weight=w)
        assert found.threshold == threshold_at_fpr(y, p, fpr, w, rule)
        for name, got in [*found.rates.items(), (None, found.overall)]:
            inside = groups == name if name else np.ones(len(y), dtype=bool)
            own = None if w is None else w[inside]
            tpr, fpr_reached, *_, j = twins.rates(y[inside], p[inside], found.threshold, own)
            expected = (twins.auroc(y[inside], p[inside], own), tpr, fpr_reached, j)
            assert (got.auroc, got.tpr, got.fpr, got.j) == pytest.approx(expected, abs=1e-12)
        for name, gap in found.gaps.items():
            values = {group: getattr(each, name) for group, each in found.rates.items()}
            assert gap.value == max(values.values()) - min(values.values())
            assert values[gap.highest] - values[gap.lowest] == gap.value


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("threshold", [None, 0.4])
@pytest.mark.parametrize("weighted", [False, True])
def test_replicates_are_the_numbers_of_copied_rows(rule, threshold, weighted):
    y, p, groups, clusters, weight = sample(decimals=1 if weighted else 2)
    weight = weight if weighted else None
    draws = draw(clusters, y=y, n_resamples=70, seed=3)
    option = {"threshold": threshold, "fpr": 0.2, "rule": rule}
    found = bootstrap_subgroups(y, p, groups, weight=weight, draws=draws, **option)
    first = subgroup_rates(y, p, groups, weight=weight, **option)
    names = list(first.groups)
    for r in range(draws.n_resamples):
        counts = draws.counts(r, r + 1)[:, 0]
        at = np.repeat(np.arange(len(y)), counts[draws.unit])
        slow = subgroup_rates(y[at], p[at], groups[at], weight=None if weight is None else weight[at], **option)
        assert slow.groups == first.groups
        expected = numbers(slow)
        np.testing.assert_allclose([found[name][r] for name in NUMBERS], expected.T, atol=1e-12)
        for k, (name, gap) in enumerate(first.gaps.items()):
            pair = expected[names.index(gap.highest), k] - expected[names.index(gap.lowest), k]
            np.testing.assert_allclose(found[f"{name}_gap"][r], pair, atol=1e-12)


def test_the_last_corner_counts_too():
    """Negatives in a row make no corner but the last: the nearest to .9 is 1, as in scikit-learn's curve."""
    from sklearn.metrics import roc_curve

    y, p = [0, 0, 0, 0, 1], [1, 2, 3, 4, 5]
    rates, _, thresholds = roc_curve(y, p)
    for fpr, expected in ((0.9, 1.0), (0.4, np.inf)):
        assert threshold_at_fpr(y, p, fpr) == expected == thresholds[np.argmin(np.abs(rates - fpr))]
    assert threshold_at_fpr(y, p, 0.4, rule="nearest_all") == 3
    assert threshold_at_fpr(y, p, 0.9, rule="conservative") == 2


def test_a_given_threshold_is_the_engines_own_rates():
    y, p, groups, clusters, weight = sample()
    draws = draw(clusters, y=y, n_resamples=100)
    found = bootstrap_subgroups(y, p, groups, threshold=0.3, weight=weight, draws=draws)
    one = np.where(groups == "M", y, np.nan)
    engine = bootstrap_many({name: {"threshold": 0.3} for name in RATES}, one, p, weight, draws=draws)
    for name in RATES:
        np.testing.assert_allclose(found[name][:, 1], engine[name], atol=1e-12)


# ---------------------------------------------------------------- what depends on the prevalence


def probabilities(seed=0):
    y, score, groups, clusters, weight = sample(seed)
    return y, np.round(1 / (1 + np.exp(-score)), 2), groups, clusters, weight


@pytest.mark.parametrize("threshold", [None, 0.4])
@pytest.mark.parametrize("weighted", [False, True])
def test_predictive_values_and_calibration_are_those_of_the_metrics(threshold, weighted):
    y, p, groups, _, weight = probabilities()
    weight = weight if weighted else np.ones(len(y))
    found = subgroup_rates(y, p, groups, threshold=threshold, weight=weight)
    assert found.note is None
    for name, got in [*found.rates.items(), (None, found.overall)]:
        own = groups == name if name else np.ones(len(y), dtype=bool)
        data = y[own], p[own], weight[own]
        rates = rates_at(data[0], data[1], found.threshold, data[2])
        expected = {
            "prevalence": np.average(data[0], weights=data[2]),
            "average_precision": average_precision(*data),
            "precision": rates.precision,
            "npv": rates.npv,
            "observed_minus_predicted": np.average(data[0] - data[1], weights=data[2]),
            "expected_calibration_error": expected_calibration_error(*data),
            "expected_ece": expected_ece(data[1], data[2]),
        }
        assert list(expected) == [*BY_PREVALENCE, *CALIBRATION]
        for number, value in expected.items():
            assert getattr(got, number) == pytest.approx(value, abs=1e-12), number


@pytest.mark.parametrize("threshold", [None, 0.4])
def test_replicates_of_what_depends_on_the_prevalence_are_those_of_copied_rows(threshold):
    y, p, groups, clusters, weight = probabilities()
    draws = draw(clusters, y=y, n_resamples=20, seed=3)
    found = bootstrap_subgroups(y, p, groups, threshold=threshold, weight=weight, draws=draws)
    numbers_ = [name for name in (*BY_PREVALENCE, *CALIBRATION) if name != "expected_ece"]
    assert set(numbers_) < set(found)
    counts = draws.counts(0, 20, conditional=False)[draws.unit]
    assert (counts[y == 1].sum(axis=0) != counts[y == 1, 0].sum()).any()
    for r in range(20):
        at = np.repeat(np.arange(len(y)), counts[:, r])
        slow = subgroup_rates(y[at], p[at], groups[at], threshold=threshold, weight=weight[at])
        for name in numbers_:
            expected = [getattr(each, name) for each in (*slow.rates.values(), slow.overall)]
            np.testing.assert_allclose(found[name][r], expected, atol=1e-12)


def test_a_calibration_error_has_no_interval_and_the_mean_difference_has():
    y, p, groups, clusters, _ = probabilities()
    found = measure_subgroups(y, p, groups, clusters=clusters, n_resamples=200)
    for each in (*found["groups"].values(), found["overall"]):
        for name in (*BY_PREVALENCE, "observed_minus_predicted"):
            assert each[f"{name}_ci_low"] < each[name] < each[f"{name}_ci_high"], name
        assert each["expected_calibration_error"] > 0
        assert each["expected_ece"] > 0
        assert math.isnan(each["expected_calibration_error_ci_low"])
        assert math.isnan(each["expected_calibration_error_ci_high"])
        assert each["expected_calibration_error_ci_method"] == NO_INTERVAL
        assert "expected_ece_ci_low" not in each
        assert "note" not in each
    assert set(found["gaps"]) == set(NUMBERS)


def test_scores_that_are_no_probabilities_have_no_calibration():
    y, p, groups, clusters, weight = probabilities()
    found = measure_subgroups(y, 10 * p, groups, clusters=clusters, n_resamples=20)
    assert found["note"] == NO_PROBABILITIES
    assert not any(name.startswith(CALIBRATION) for name in found["overall"])
    assert found["overall"]["average_precision"] == average_precision(y, p)
    assert "note" not in found["overall"]
    assert math.isnan(subgroup_rates(y, 10 * p, groups).overall.expected_calibration_error)
    # What stands beside a missing label is no score.
    assert "note" not in measure_subgroups(np.where(weight == 0, np.nan, y), np.where(weight == 0, 7.0, p), groups)


def test_predictive_values_where_nobody_is_called():
    y, p, groups, clusters, _ = probabilities()
    found = measure_subgroups(y, p, groups, threshold=2.0, clusters=clusters, n_resamples=20)
    assert found["overall"]["note"].startswith("precision undefined: ")
    assert found["overall"]["note"].endswith("predicted positive")
    assert found["overall"]["npv"] == pytest.approx(1 - y.mean())
    everybody = measure_subgroups(y, p, groups, threshold=-1.0)
    assert everybody["overall"]["note"].startswith("npv undefined: ")
    assert everybody["overall"]["note"].endswith("predicted negative")


def test_the_threshold_is_set_anew_in_every_replicate():
    """FPR of all rows then stays where it was asked for; with a fixed threshold it moves."""
    y, p, groups, clusters, _ = sample(patients=300, decimals=6)
    draws = draw(clusters, y=y, n_resamples=200)
    anew = bootstrap_subgroups(y, p, groups, draws=draws)
    fixed = bootstrap_subgroups(y, p, groups, threshold=threshold_at_fpr(y, p), draws=draws)
    assert np.abs(anew["fpr"][:, -1] - 0.2).max() < 0.01
    assert fixed["fpr"][:, -1].std() > 5 * anew["fpr"][:, -1].std()


def test_numbers_do_not_depend_on_threads_and_progress_counts_once():
    y, p, groups, clusters, _ = sample()
    draws = draw(clusters, y=y, n_resamples=1100)
    seen: list[int] = []
    one = bootstrap_subgroups(y, p, groups, draws=draws, workers=1, progress=seen.append)
    two = bootstrap_subgroups(y, p, groups, draws=draws, workers=2)
    assert sum(seen) == 1100
    for name, values in one.items():
        np.testing.assert_array_equal(values, two[name])


# ---------------------------------------------------------------- what must not matter


@pytest.mark.parametrize("rule", RULES)
def test_row_order(rule):
    y, p, groups, clusters, weight = sample()
    order = np.random.default_rng(1).permutation(len(y))
    same(
        subgroup_rates(y, p, groups, weight=weight, rule=rule),
        subgroup_rates(y[order], p[order], groups[order], weight=weight[order], rule=rule),
    )
    a = bootstrap_subgroups(y, p, groups, draws=draw(clusters, y=y, n_resamples=64), rule=rule)
    b = bootstrap_subgroups(
        y[order], p[order], groups[order], draws=draw(clusters[order], y=y[order], n_resamples=64), rule=rule
    )
    for name in a:
        np.testing.assert_allclose(a[name], b[name], atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_weight_is_repetition(rule):
    y, p, groups, _, _ = sample()
    times = np.random.default_rng(2).integers(0, 4, len(y))
    at = np.repeat(np.arange(len(y)), times)
    same(subgroup_rates(y, p, groups, weight=times, rule=rule), subgroup_rates(y[at], p[at], groups[at], rule=rule))


def test_a_monotone_transform_changes_no_rate():
    y, p, groups, _, _ = sample()
    one, other = subgroup_rates(y, p, groups), subgroup_rates(y, np.exp(p), groups)
    np.testing.assert_array_equal(numbers(one), numbers(other))
    assert other.threshold == pytest.approx(math.exp(one.threshold))


def test_names_of_groups_do_not_matter():
    y, p, groups, clusters, _ = sample()
    renamed = np.array([{"F": "z", "M": "b", "x": "a"}[each] for each in groups])
    found = measure_subgroups(y, p, groups, clusters=clusters, n_resamples=100)
    other = measure_subgroups(y, p, renamed, clusters=clusters, n_resamples=100)
    assert list(other["groups"]) == ["a", "b", "z"]
    assert other["groups"]["z"] == found["groups"]["F"]
    assert other["groups"]["a"] == found["groups"]["x"]
    assert other["gaps"]["tpr"]["p_value"] == found["gaps"]["tpr"]["p_value"]


def test_groups_may_be_anything_hashable():
    y, p, groups, _, _ = sample()
    code = np.unique(groups, return_inverse=True)[1]
    text = subgroup_rates(y, p, code.astype(str))
    assert text.groups == ("0", "1", "2")
    assert subgroup_rates(y, p, code) == text
    assert subgroup_rates(y, p, code.tolist()) == text
    assert subgroup_rates(y, p, [f"{each}" for each in code]) == text
    pairs = subgroup_rates(y, p, [(int(each), "old") for each in code])
    assert pairs.groups == ("(0, 'old')", "(1, 'old')", "(2, 'old')")
    same(pairs, text)


def test_null_labels_and_rows_of_weight_0_are_no_rows():
    y, p, groups, clusters, _ = sample()
    hidden = np.random.default_rng(3).random(len(y)) < 0.2
    labels, scores = np.where(hidden, np.nan, y), np.where(hidden, np.nan, p)
    kept = ~hidden
    expected = subgroup_rates(y[kept], p[kept], groups[kept])
    same(subgroup_rates(labels, scores, groups), expected)
    assert subgroup_rates(y, p, groups, weight=kept.astype(float)) == expected
    listed = [None if each else int(label) for each, label in zip(hidden, y, strict=True)]
    found = measure_subgroups(listed, [None if np.isnan(s) else s for s in scores], groups.tolist())
    assert found["overall"]["n"] == kept.sum()
    assert found["overall"]["tpr"] == expected.overall.tpr
    # The same patients are drawn, whether a row is null or weighs nothing; the strata need a label that is there.
    y_known = np.where(hidden, 0, y)
    a = measure_subgroups(labels, scores, groups, clusters=clusters, n_resamples=150)
    b = measure_subgroups(y_known, p, groups, clusters=clusters, n_resamples=150, weight=kept.astype(float))
    assert a == b


# ---------------------------------------------------------------- undefined, and bad input


def test_a_group_without_positives():
    y, p, groups, clusters, _ = sample()
    y = np.where(groups == "x", 0.0, y)
    n = int((groups == "x").sum())
    found = measure_subgroups(y, p, groups, clusters=clusters, n_resamples=100)
    lone = found["groups"]["x"]
    assert all(math.isnan(lone[name]) for name in ("auroc", "tpr", "j", "auroc_ci_low", "j_ci_high"))
    assert lone["auroc_ci_method"] == "undefined"
    assert lone["note"] == f"auroc, tpr, j, average_precision undefined: no positives among {n} rows"
    assert lone["prevalence"] == lone["precision"] == 0
    assert 0 <= lone["fpr_ci_low"] <= lone["fpr"] <= lone["fpr_ci_high"] <= 1
    assert lone["n_positive"] == 0
    assert "note" not in found["groups"]["F"]
    assert found["gaps"]["tpr"]["method"] == "t"  # one pair is left
    assert found["gaps"]["fpr"]["method"].endswith("3 pairs")


def test_a_small_group_makes_the_gap_uncertain():
    """The interval rests on the patients of the smaller group, however many the other has."""
    rng = np.random.default_rng(0)
    y = (rng.random(3000) < 0.4).astype(float)
    p, groups = y + rng.normal(size=3000), np.r_[["few"] * 60, ["many"] * 2940]
    found = measure_subgroups(y, p, groups, n_resamples=100)
    assert found["groups"]["many"]["tpr_ci_method"] == "percentile"
    assert found["groups"]["few"]["tpr_ci_method"] == "logit-t"
    assert {gap["method"] for gap in found["gaps"].values()} == {"t"}


def test_one_group_has_no_gap():
    y, p, _, clusters, _ = sample()
    found = measure_subgroups(y, p, ["all"] * len(y), clusters=clusters, n_resamples=80)
    assert found["groups"]["all"] == found["overall"]
    gap = found["gaps"]["j"]
    assert math.isnan(gap["value"])
    assert math.isnan(gap["p_value"])
    assert (gap["highest"], gap["lowest"]) == (None, None)
    assert gap["note"] == "j gap is undefined: j is defined in 1 of 1 groups, two are required"


def test_no_negatives_no_threshold():
    found = subgroup_rates([1, 1, 1], [0.1, 0.2, 0.3], ["a", "a", "b"])
    assert math.isnan(found.threshold)
    assert math.isnan(found.overall.tpr)
    assert found.rates["b"].note == (
        "auroc, fpr, j, average_precision undefined: no negatives among 1 rows; "
        "tpr, precision, npv undefined: no negatives among 3 rows"
    )
    given = subgroup_rates([1, 1, 1], [0.1, 0.2, 0.3], ["a", "a", "b"], threshold=0.2)
    assert (given.rates["a"].tpr, given.rates["b"].tpr, given.threshold_source) == (0.5, 1.0, "given")
    draws = draw(n=3, n_resamples=5)
    assert np.isnan(bootstrap_subgroups([1, 1, 1], [0.1, 0.2, 0.3], list("aab"), draws=draws)["tpr"]).all()


def test_nothing_at_all():
    found = measure_subgroups([], [], [])
    assert found["groups"] == {}
    numbers = (*NUMBERS, *BY_PREVALENCE, *CALIBRATION)
    assert found["overall"]["note"] == f"{', '.join(numbers)} undefined: no rows"
    assert found["gaps"]["auroc"]["note"].startswith("auroc gap is undefined: auroc is defined in 0 of 0")


def test_equal_groups_still_make_a_pair():
    y, p = [0, 1, 0, 1, 0, 1], [0.1, 0.9] * 3
    gap = subgroup_rates(y, p, list("aabbcc"), threshold=0.5).gaps["auroc"]
    assert gap == (0.0, "a", "c", None)


def test_an_infinite_threshold_calls_nothing():
    y, p, groups, clusters, _ = sample()
    draws = draw(clusters, y=y, n_resamples=10)
    assert subgroup_rates(y, p, groups, threshold=math.inf).overall.tpr == 0
    assert (bootstrap_subgroups(y, p, groups, threshold=math.inf, draws=draws)["tpr"][:, -1] == 0).all()


def test_everything_is_plain_python():
    y, p, groups, clusters, weight = sample()

    def leaves(value):
        return [leaf for each in value.values() for leaf in leaves(each)] if isinstance(value, dict) else [value]

    found = measure_subgroups(y, p, groups, weight=weight, clusters=clusters, n_resamples=64)
    assert {type(leaf) for leaf in leaves(found)} == {str, int, float}
    assert found["groups"]["F"]["n_patients"] == len(np.unique(clusters[(groups == "F") & (weight > 0)]))
    assert found["overall"]["auroc"] == auroc(y, p, weight)
    assert not any("_ci_" in key for key in measure_subgroups(y, p, groups)["overall"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": ["a", "b", "a", None]}, "groups[3]: expected a group in every row, got None"),
        ({"groups": ["a", float("nan"), "a", "b"]}, "groups[1]: expected a group in every row, got nan"),
        ({"groups": np.array(["a", np.nan, "a", "b"])}, "groups[1]: expected a group in every row, got 'nan'"),
        ({"groups": ["a", "b"]}, "groups: expected 4 rows as in y, got 2"),
        ({"groups": "abab"}, "groups: expected one group per row, got 'abab'"),
        ({"groups": [["a"], ["b"], ["a"], ["b"]]}, "groups[0]: expected a name or number, got ['a']"),
        ({"y": [[0, 1], [1, 0]]}, "y: expected a 1-D array of one label"),
        ({"y": [0, 1, 2, 1]}, "y[2]: expected 0, 1 or null, got 2.0"),
        ({"y": [0, 1, None, 1], "p": [0.1, math.nan, 0.2, 0.3]}, "p[1]: expected a finite number, got nan"),
        ({"threshold": math.nan}, "got nan"),
        ({"threshold": "high"}, "got 'high'"),
        ({"rule": "closest"}, "got 'closest'"),
        ({"fpr": 1.2}, "fpr: expected a number between 0 and 1, got 1.2"),
        ({"n_resamples": -1}, "got -1"),
        ({"level": 95}, "level: expected a number between 0 and 1, got 95"),
        ({"clusters": [1, 2, None, 3]}, "clusters[2]: expected a patient in every row, got None"),
    ],
)
def test_bad_input_is_named(change, message):
    given = {"y": [0, 1, 0, 1], "p": [0.1, 0.9, 0.3, 0.2], "groups": ["a", "b", "a", "b"]} | change
    with pytest.raises(InputError) as error:
        measure_subgroups(given.pop("y"), given.pop("p"), given.pop("groups"), **given)
    assert message in str(error.value)
