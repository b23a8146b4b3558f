"""The overview: numbers are those of cxrhf.metrics, planted truths lie in their intervals, odd input is said."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from cxrhf import metrics
from cxrhf.audits.overview import PROBABILITY
from cxrhf.audits.plan import run_audits
from cxrhf.audits.rows import RATES, SPECIFICITY
from cxrhf.errors import ConfigError, TableError
from cxrhf.metrics.operating import false_positive_rate_to_expect
from cxrhf.schema import PREDICTION, RESULT
from cxrhf.twin.planted import calibrated, context
from tests.audits.tables import Found, audited, block, settings
from tests.refusals import refused

PLAIN = {
    "auroc": metrics.auroc,
    "average_precision": metrics.average_precision,
    "auprc_trapezoid": metrics.auprc_trapezoid,
    "brier": metrics.brier,
    "brier_positive": metrics.brier_positive,
    "brier_negative": metrics.brier_negative,
    "balanced_brier": metrics.balanced_brier,
    "brier_skill_score": metrics.brier_skill_score,
    "adaptive_calibration_error": metrics.adaptive_calibration_error,
    "expected_calibration_error": metrics.expected_calibration_error,
}


@pytest.fixture(scope="module")
def planted():
    return context(1500, images_per_patient=(1, 5), seed=3)


@pytest.fixture(scope="module")
def found(planted) -> Found:
    rare = context(1500, pi=0.05, images_per_patient=(1, 5), seed=4)
    masked = np.where(np.arange(1500) % 7 == 0, np.nan, rare.y)
    return Found(
        audited(
            block("edema", planted.y, planted.patient, prob=planted.prob),
            block("fracture", masked, planted.patient, prob=rare.prob),
            block("mass", np.zeros(1500), planted.patient, prob=rare.prob),
            only=("overview",),
        )
    )


@pytest.mark.parametrize("name", PLAIN)
def test_values_are_those_of_the_metrics(found, planted, name) -> None:
    row = found(name, "edema")
    assert row["value"] == pytest.approx(PLAIN[name](planted.y, planted.prob), abs=1e-12)
    assert row["ci_low"] < row["value"] < row["ci_high"]
    assert (row["n"], row["n_pos"]) == (1500, int(planted.y.sum()))
    assert row["n_patients"] == len(np.unique(planted.patient))


def test_operating_point_and_rates(found, planted) -> None:
    point = metrics.sensitivity_at_specificity(planted.y, planted.prob, SPECIFICITY)
    assert found("sensitivity_at_specificity", "edema")["value"] == point.sensitivity
    assert found("sensitivity_at_specificity.threshold", "edema")["value"] == point.threshold
    assert found("sensitivity_at_specificity.specificity", "edema")["value"] == point.specificity >= SPECIFICITY
    rates = metrics.rates_at(planted.y, planted.prob, point.threshold)
    assert found("precision", "edema")["value"] == rates.precision
    assert found("npv", "edema")["value"] == rates.npv
    assert found("mcc", "edema")["value"] == rates.mcc
    for metric, function, name in (
        ("youden_threshold", metrics.youden_threshold, "j"),
        ("max_f1_threshold", metrics.max_f1_threshold, "f1"),
    ):
        best = function(planted.y, planted.prob)
        rates = metrics.rates_at(planted.y, planted.prob, best)
        assert found(metric, "edema")["value"] == best
        assert found(name, "edema")["value"] == getattr(rates, name)
        assert found(f"{metric}.sensitivity", "edema")["value"] == rates.tpr
        assert found(f"{metric}.specificity", "edema")["value"] == 1 - rates.fpr
        assert found(f"{metric}.specificity", "edema")["higher_is_better"] is True
    for metric in RATES:
        row = found(metric, "edema")
        assert row["ci_low"] < row["value"] < row["ci_high"], metric
        assert "threshold" in row["note"]
        assert found(metric, "macro")["note"] == "mean of 2 of 3 findings"


def test_few_negatives_give_the_safer_sensitivity_too(found) -> None:
    assert not [row for row in found.rows if row["metric"].endswith(".plus_one")]  # 1,200 negatives
    small = context(300, seed=19)
    row = Found(audited(block("x", small.y, small.patient, prob=small.prob), n_resamples=20, only=("overview",)))(
        "sensitivity_at_specificity.plus_one", "x"
    )
    safer = metrics.sensitivity_at_specificity(small.y, small.prob, rule="plus_one")
    assert row["value"] == safer.sensitivity
    negatives = int((small.y == 0).sum())
    assert f"only {negatives} negatives" in row["note"]
    assert f"{false_positive_rate_to_expect(negatives):.1%} false positives" in row["note"]


def test_calibration_error_stands_beside_its_expectation(found, planted) -> None:
    expected = found("expected_ace", "edema")
    assert expected["value"] == pytest.approx(metrics.expected_ace(planted.prob), abs=1e-12)
    assert expected["ci_low"] is None
    assert "expected_ace" in found("adaptive_calibration_error", "edema")["note"]


def test_masked_labels_are_left_out(found) -> None:
    rare = context(1500, pi=0.05, images_per_patient=(1, 5), seed=4)
    keep = np.arange(1500) % 7 != 0
    row = found("auroc", "fracture")
    assert row["n"] == keep.sum()
    assert row["value"] == pytest.approx(metrics.auroc(rare.y[keep], rare.prob[keep]), abs=1e-12)


def test_undefined_is_nan_with_a_reason(found) -> None:
    row = found("auroc", "mass")
    assert np.isnan(row["value"])
    assert np.isnan(row["ci_low"])
    assert row["note"] == "auroc is undefined: no positives among 1500 rows"
    for name in ("precision", "sensitivity_at_specificity.threshold", "youden_threshold"):
        assert "no positives among 1500 rows" in found(name, "mass")["note"]
    assert found("brier", "mass")["value"] > 0
    prevalence = found("prevalence", "mass")
    assert prevalence["value"] == 0
    assert 0 < prevalence["ci_high"] < 0.02


def test_macro_is_the_mean_of_what_is_defined(found) -> None:
    mean = (found("auroc", "edema")["value"] + found("auroc", "fracture")["value"]) / 2
    row = found("auroc", "macro")
    assert row["value"] == pytest.approx(mean, abs=1e-12)
    assert row["note"] == "mean of 2 of 3 findings"
    assert row["ci_low"] < mean < row["ci_high"]
    note = "mean of 2 of 3 findings; excluded for fewer than 10 patients of a class: mass"
    assert found("brier", "macro")["note"] == note


def test_verdicts(found) -> None:
    assert found("verdict", "edema")["note"].startswith("enough data: ")
    assert found("verdict", "mass")["note"].startswith("no positives")
    assert found("verdict", "edema")["value"] > 50


def test_every_row_is_a_result_and_none_is_twice(found, planted) -> None:
    keys = [(row["audit"], row["finding"], row["metric"], row["versus"]) for row in found.rows]
    assert len(keys) == len(set(keys))
    output = audited(block("edema", planted.y, planted.patient, prob=planted.prob), n_resamples=20, only=("overview",))
    assert output.results.schema.equals(RESULT)
    kinds = output.curves.group_by(["kind"], use_threads=False).aggregate([("x", "count")]).to_pylist()
    assert {each["kind"]: each["x_count"] for each in kinds} == {"roc": 101, "pr": 100, "reliability": 10}


@pytest.mark.parametrize("h", [0.0, 0.4])
def test_planted_calibration(h) -> None:
    made = calibrated(6000, h, seed=11)
    found = Found(audited(block("x", made.y, np.arange(6000), prob=made.prob), n_resamples=400, only=("overview",)))
    truth = made.truth
    for metric in ("prevalence", "brier", "brier_skill_score", "brier_positive", "brier_negative", "balanced_brier"):
        assert found.holds(getattr(truth, metric), metric, "x", "overview"), metric
    assert found.holds(truth.slope, "calibration_slope", "x", "overview")
    assert found.holds(truth.in_the_large, "calibration_in_the_large", "x", "overview")
    error, expected = found("adaptive_calibration_error", "x"), found("expected_ace", "x")["value"]
    if h == 0:
        assert error["ci_low"] < expected < error["ci_high"]
    else:
        assert found.holds(truth.adaptive_calibration_error, "adaptive_calibration_error", "x", "overview")
        assert error["ci_low"] > expected


def test_skill_against_the_training_prevalence(planted) -> None:
    made = block("edema", planted.y, planted.patient, prob=planted.prob)
    found = Found(audited(made, n_resamples=50, only=("overview",), train_prevalence=("0.4",)))
    row = found("brier_skill_score", "edema")
    assert row["value"] == pytest.approx(metrics.brier_skill_score(planted.y, planted.prob, prevalence=0.4), abs=1e-12)
    assert row["ci_low"] < row["value"] < row["ci_high"]
    assert "training prevalence 0.4" in row["method"]


def test_scores_that_are_no_probabilities(planted) -> None:
    scores = planted.prob * 2.8
    made = block("edema", planted.y, planted.patient, logit=scores)
    found = Found(audited(made, n_resamples=30))
    assert found("auroc", "edema")["value"] == pytest.approx(metrics.auroc(planted.y, scores), abs=1e-12)
    given = {row["metric"] for row in found.rows}
    assert not given & {*PROBABILITY, "adaptive_calibration_error", "expected_ace"}
    assert "ranking metrics only" in found.notes


def test_weights_are_respected_and_a_constant_is_none(planted) -> None:
    weight = np.random.default_rng(1).uniform(0.5, 2, 1500)
    found = Found(audited(block("edema", planted.y, planted.patient, prob=planted.prob, weight=weight), n_resamples=30))
    for name, function in PLAIN.items():
        assert found(name, "edema")["value"] == pytest.approx(function(planted.y, planted.prob, weight), abs=1e-12)
    assert found("auroc", "edema")["method"].startswith("weight column")
    same = block("edema", planted.y, planted.patient, prob=planted.prob, weight=np.full(1500, 3.0))
    assert Found(audited(same, n_resamples=30))("auroc", "edema")["method"].startswith("unweighted")


def test_weights_may_differ_between_findings(planted) -> None:
    other = np.where(np.arange(1500) % 2, 2.0, 1.0)
    found = Found(
        audited(
            block("a", planted.y, planted.patient, prob=planted.prob, weight=np.ones(1500)),
            block("b", planted.y, planted.patient, prob=planted.prob, weight=other),
            n_resamples=30,
            only=("overview",),
        )
    )
    assert found("auroc", "a")["value"] == pytest.approx(metrics.auroc(planted.y, planted.prob), abs=1e-12)
    assert found("auroc", "b")["value"] == pytest.approx(metrics.auroc(planted.y, planted.prob, other), abs=1e-12)


def test_a_row_without_a_weight_counts_once_in_every_resample_too(planted) -> None:
    weight = np.where(np.arange(1500) % 2, 2.0, np.nan)
    other = block("b", planted.y, planted.patient, prob=planted.prob, weight=np.full(1500, 3.0))
    rows = []
    for given in (weight, np.nan_to_num(weight, nan=1.0)):
        made = block("a", planted.y, planted.patient, prob=planted.prob, weight=given)
        row = Found(audited(made, other, n_resamples=30, only=("overview",)))("auroc", "a")
        rows.append((row["value"], row["ci_low"], row["ci_high"]))
    assert rows[0] == rows[1]


def test_numbers_depend_on_the_seed_not_on_workers_or_row_order(planted) -> None:
    made = block("edema", planted.y, planted.patient, prob=planted.prob, pretest=planted.pretest)
    shuffled = made.take(pa.array(np.random.default_rng(0).permutation(1500)))
    first = audited(made, n_resamples=130, workers=1)
    second = audited(shuffled, n_resamples=130, workers=2)
    assert first.results.equals(second.results)
    assert first.curves.equals(second.curves)
    other = audited(made, n_resamples=130, seed=1)
    assert not first.results["ci_low"].equals(other.results["ci_low"])
    assert first.results["metric"].equals(other.results["metric"])


def test_patients_not_images_are_the_unit() -> None:
    """Every image twice under its patient is no new information: the same values, the same intervals."""
    planted = context(400, seed=16)
    twice = np.repeat(np.arange(400), 2)
    once = Found(audited(block("x", planted.y, np.arange(400), prob=planted.prob, pretest=planted.pretest)))
    doubled = block("x", planted.y[twice], twice, prob=planted.prob[twice], pretest=planted.pretest[twice])
    again = Found(audited(doubled))
    for audit, metric in (
        ("overview", "auroc"),
        ("overview", "brier"),
        ("matched", "auroc"),
        ("reweighted", "auroc_att"),
    ):
        for name in ("value", "ci_low", "ci_high"):
            assert again(metric, "x", audit)[name] == pytest.approx(once(metric, "x", audit)[name], abs=1e-9), metric
    assert again("auroc", "x")["n_patients"] == 400


def test_models_seeds_and_datasets_apart(planted) -> None:
    flipped = 1 - planted.prob
    output = audited(
        block("edema", planted.y, planted.patient, prob=planted.prob, dataset="a", seed=np.ones(1500, dtype=int)),
        block("edema", planted.y, planted.patient, prob=flipped, dataset="a", seed=np.full(1500, 2)),
        block("edema", planted.y, planted.patient, prob=flipped, dataset="b", model="other"),
        n_resamples=20,
        only=("overview",),
    )
    right = metrics.auroc(planted.y, planted.prob)
    for model, value in (("net (seed 1)", right), ("net (seed 2)", 1 - right), ("other", 1 - right)):
        assert Found(output, model)("auroc", "edema")["value"] == pytest.approx(value)
    assert {"net (seed 1) on a", "net (seed 2) on a", "other on b"} <= set(output.curves["model"].to_pylist())
    assert "several datasets" in output.notes[0]


def test_only_the_test_split_is_evaluated(planted) -> None:
    split = np.where(np.arange(1500) < 500, "train", "test")
    found = Found(audited(block("edema", planted.y, planted.patient, prob=planted.prob, split=split), n_resamples=20))
    row = found("auroc", "edema")
    assert row["n"] == 1000
    assert row["value"] == pytest.approx(metrics.auroc(planted.y[500:], planted.prob[500:]), abs=1e-12)
    assert "only the split test is evaluated; 500 rows of train are not" in found.notes


def test_rows_without_a_split_are_not_taken_for_the_test_split(planted) -> None:
    some = pa.array([None if at < 500 else "test" for at in range(1500)])
    made = block("edema", planted.y, planted.patient, prob=planted.prob, split="test")
    made = made.set_column(made.schema.get_field_index("split"), made.schema.field("split"), some)
    found = Found(audited(made, n_resamples=20, only=("overview",)))
    assert found("auroc", "edema")["n"] == 1000
    assert "only the split test is evaluated; 500 rows of no split are not" in found.notes


def test_a_model_without_splits_is_evaluated_whole_beside_one_with_them(planted) -> None:
    split = np.where(np.arange(1500) < 500, "validate", "test")
    output = audited(
        block("edema", planted.y, planted.patient, prob=planted.prob, split=split),
        block("edema", planted.y, planted.patient, prob=planted.prob, model="vendor"),
        n_resamples=20,
        only=("overview",),
    )
    assert Found(output, "net")("auroc", "edema")["n"] == 1000
    assert Found(output, "vendor")("auroc", "edema")["n"] == 1500
    assert "vendor: its rows have no split, so all of them are evaluated" in output.notes


@pytest.mark.parametrize(
    ("y", "p", "patient"),
    [
        ([0, 1], [0.2, 0.7], [0, 1]),
        ([0, 1, 0, 1], [0.5] * 4, [0, 0, 1, 1]),
        ([0, 1, 1, 0, 1], [0.0, 1.0, 1.0, 0.0, 0.0], [0, 1, 2, 3, 4]),
        ([0, 1, 1, 0], [0.1, 0.4, 0.3, 0.8], [7] * 4),
        ([1], [0.3], [0]),
        ([np.nan, np.nan], [0.3, 0.4], [0, 1]),
    ],
    ids=["two rows", "all tied", "zeros and ones", "one patient", "one row", "no label"],
)
def test_odd_samples_give_rows_not_tracebacks(y, p, patient) -> None:
    pretest = np.full(len(y), 0.3)
    output = audited(block("x", y, patient, prob=p, pretest=pretest), n_resamples=20)
    found = Found(output)
    value = found("auroc", "x")["value"]
    labels = [each for each in y if not np.isnan(each)]
    if len(set(labels)) == 2:
        assert value == pytest.approx(metrics.auroc(labels, p))
    else:
        assert np.isnan(value)
        assert found("auroc", "x")["note"]


def test_no_rows_and_unknown_audits_are_errors() -> None:
    with refused(TableError, "no rows"):
        run_audits(PREDICTION.empty_table(), settings())

    class Wrong:
        n_resamples, seed, level, only = 10, 0, 0.95, ("overvue",)

        def training_prevalence(self, finding: str) -> None:
            return None

    with refused(ConfigError, "only", "overview", got="overvue"):
        run_audits(PREDICTION.empty_table(), Wrong())


def test_notes_say_which_of_several_datasets_they_are_about() -> None:
    made = context(60, seed=0)
    rows = [block("edema", made.y, made.patient, prob=made.prob, dataset=name) for name in ("here", "there")]
    notes = audited(*rows, n_resamples=20, only=("overview",)).notes
    said = [note for note in notes if "positives" in note]
    assert [note.rpartition(" (")[2] for note in said] == ["dataset here)", "dataset there)"]
    alone = audited(rows[0], n_resamples=20, only=("overview",)).notes
    assert not any("dataset" in note for note in alone)


def test_rows_of_weight_zero_are_no_data() -> None:
    made = context(600, images_per_patient=2, seed=4)
    columns = {"prob": made.prob, "pretest": made.pretest}
    weight = np.random.default_rng(0).choice([0.0, 1.0], 600)
    zero = audited(block("edema", made.y, made.patient, weight=weight, **columns), n_resamples=20)
    kept = np.where(weight > 0, made.y, np.nan)
    masked = audited(block("edema", kept, made.patient, **columns), n_resamples=20)
    for a, b in zip(zero.results.to_pylist(), masked.results.to_pylist(), strict=True):
        for name in ("metric", "slice", "versus", "n", "n_pos", "n_patients"):
            assert a[name] == b[name], (name, a)
        assert a["value"] == pytest.approx(b["value"], abs=1e-12, nan_ok=True), a
    assert f"net: {int((weight == 0).sum())} labels of weight 0 are excluded" in zero.notes


def test_a_finding_too_rare_to_resample_does_not_blur_the_mean() -> None:
    """Its interval is that of a bootstrap of the mean of the others; it was .09 to .86 with two positives of one."""
    common = [context(1200, pi=0.2, images_per_patient=(1, 3), seed=seed) for seed in range(4)]
    hernia = np.zeros(1200)
    hernia[[5, 900]] = 1
    out = Found(
        audited(
            *(block(f"common {k}", each.y, common[0].patient, prob=each.prob) for k, each in enumerate(common)),
            block("hernia", hernia, common[0].patient, prob=common[1].prob),
            only=("overview",), n_resamples=400,
        )
    )  # fmt: skip
    row = out("auroc", "macro")
    assert row["note"] == "mean of 4 of 5 findings; excluded for fewer than 10 patients of a class: hernia"
    assert row["value"] == pytest.approx(np.mean([metrics.auroc(each.y, each.prob) for each in common]))
    rng = np.random.default_rng(0)
    places = [np.flatnonzero(common[0].patient == patient) for patient in np.unique(common[0].patient)]
    drawn = []
    for _ in range(300):
        at = np.concatenate([places[k] for k in rng.integers(0, len(places), len(places))])
        drawn.append(np.mean([metrics.auroc(each.y[at], each.prob[at]) for each in common]))
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert (row["ci_low"], row["ci_high"]) == (pytest.approx(low, abs=0.012), pytest.approx(high, abs=0.012))
