"""Imbalance: planted Brier scores are found, values are those of the metrics, the threshold is the tuned one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from cxrhf import metrics
from cxrhf.audits.imbalance import KINDS, RISK, SLICES
from cxrhf.audits.plan import run_audits
from cxrhf.tables.predictions import load_predictions
from cxrhf.twin.planted import calibrated, context
from tests.audits.imbalanced import Found, made_up, three
from tests.audits.tables import block, settings
from tests.real_data import real_data

PROBABILITY = {"brier", "brier_positive", "brier_negative", "balanced_brier", "net_benefit"}


@pytest.fixture(scope="module")
def planted():
    return made_up()


@pytest.fixture(scope="module")
def found(planted) -> Found:
    return three(planted)


@pytest.mark.parametrize("h", [0.0, 0.4])
def test_planted_brier_scores(h) -> None:
    made = calibrated(6000, h, seed=11)
    found = Found(block("x", made.y, np.arange(6000), prob=made.prob), n_resamples=400, level=0.99)
    truth = made.truth
    for metric in ("prevalence", "brier", "brier_positive", "brier_negative", "balanced_brier"):
        row = found(metric)
        assert row["ci_low"] < getattr(truth, metric) < row["ci_high"], metric
    for prevalence in SLICES:
        row = found("brier", slice=f"prevalence={prevalence:g}")
        there = prevalence * truth.brier_positive + (1 - prevalence) * truth.brier_negative
        assert row["ci_low"] < there < row["ci_high"]
    assert {row["y"] for row in found.curve("balanced_brier_by_prevalence")} == {found("balanced_brier")["value"]}
    lost = found("pav_decomposition.calibration")["value"]
    assert lost < 0.004 if h == 0 else 0.002 < lost < 0.01
    assert "not a proper score" in found("balanced_brier")["note"]
    if h == 0:  # D5 says so
        assert (truth.brier, truth.brier_positive, truth.brier_negative) == pytest.approx((0.128, 0.448, 0.048))


def test_values_are_those_of_the_metrics(found, planted) -> None:
    y, p = planted.y, planted.prob
    own = y.mean()
    for name in ("auroc", "average_precision", "auprc_trapezoid", "brier", "brier_positive", "balanced_brier"):
        row = found(name)
        assert row["value"] == pytest.approx(getattr(metrics, name)(y, p), abs=1e-12)
        assert row["ci_low"] < row["value"] < row["ci_high"]
    assert found("prevalence")["value"] == pytest.approx(own)
    assert f"the prevalence, {own:.4g}" in found("average_precision")["note"]
    parts = metrics.pav_decomposition(y, p)
    for name in ("calibration", "refinement", "discrimination", "uncertainty"):
        row = found(f"pav_decomposition.{name}")
        assert row["value"] == pytest.approx(getattr(parts, name))
        assert row["ci_low"] is None
    better = [found(f"pav_decomposition.{name}")["higher_is_better"] for name in ("calibration", "discrimination")]
    assert better == [False, True]
    threshold = metrics.max_f1_threshold(y, p)
    assert found("max_f1_threshold")["value"] == threshold
    rates = metrics.rates_at(y, p, threshold)
    for name in ("tpr", "precision", "npv", "f1", "mcc"):
        assert found(name)["value"] == pytest.approx(getattr(rates, name))
        assert found(name)["ci_low"] < found(name)["value"] < found(name)["ci_high"]
    assert found("specificity")["value"] == pytest.approx(1 - rates.fpr)
    assert found("specificity")["higher_is_better"]
    benefit = found("net_benefit")
    assert benefit["value"] == pytest.approx(metrics.net_benefit(y, p, RISK))
    assert "risk threshold 0.1" in benefit["method"]
    assert "p as output by the model" in benefit["note"]


@pytest.mark.real
@pytest.mark.slow
def test_real_predictions() -> None:
    """What IMBALANCE shows: the rarer class is forecast worse, and Brier hides it; AUC-PR tells of the prevalence."""
    loaded = load_predictions(real_data("nih/predictions.csv.gz"))
    output = run_audits(loaded.table, settings(30, only=("imbalance",)))
    rows = {(row["finding"], row["metric"]): row for row in output.results.to_pylist() if row["slice"] == "all"}
    names = [name for name, metric in rows if metric == "auroc" and name != "macro"]
    assert len(names) == 14
    for name in names:
        assert rows[name, "brier_positive"]["value"] > 5 * rows[name, "brier_negative"]["value"]
        assert rows[name, "average_precision"]["value"] > rows[name, "prevalence"]["value"]
    assert rows["hernia", "brier"]["value"] < 0.01
    assert rows["hernia", "brier_positive"]["value"] > 0.9


def test_macro(found) -> None:
    row = found("average_precision", "macro", "prevalence=0.1")
    both = [found("average_precision", name, "prevalence=0.1")["value"] for name in ("x", "rare")]
    assert row["value"] == pytest.approx(np.mean(both))
    assert row["note"] == "mean of 2 of 3 findings"
    note = "mean of 2 of 3 findings; excluded for fewer than 10 patients of a class: none"
    assert found("brier", "macro")["note"] == note
    assert "optimistic" in found("f1", "macro")["note"]


def test_a_tuning_split_gives_the_threshold(planted) -> None:
    split = np.where(np.arange(1500) < 600, "validate", "test")
    tuned = Found(block("x", planted.y, planted.patient, prob=planted.prob, split=split))
    threshold = metrics.max_f1_threshold(planted.y[:600], planted.prob[:600])
    assert threshold != metrics.max_f1_threshold(planted.y[600:], planted.prob[600:])
    assert tuned("max_f1_threshold")["value"] == threshold
    assert "600 validation rows" in tuned("max_f1_threshold")["method"]
    rates = metrics.rates_at(planted.y[600:], planted.prob[600:], threshold)
    assert tuned("f1")["value"] == pytest.approx(rates.f1)
    assert tuned("tpr")["value"] == pytest.approx(rates.tpr)
    assert "chosen on" not in tuned.notes + "".join(row["note"] or "" for row in tuned.rows.values())


def test_without_a_tuning_split_every_row_says_so(found, planted) -> None:
    for name in ("max_f1_threshold", "tpr", "specificity", "precision", "npv", "f1", "mcc"):
        assert "optimistic" in found(name)["note"]
    assert "optimistic" in found("precision", slice="prevalence=0.1")["note"]
    assert found.notes.count("split column with validate and test rows") == 1
    split = np.where(np.arange(1500) < 600, "validate", "test")
    no_positives = np.where((np.arange(1500) < 600), 0, planted.y)
    lacking = Found(block("x", no_positives, planted.patient, prob=planted.prob, split=split))
    assert "x: the validation split has no positives" in lacking.notes
    assert "optimistic" in lacking("f1")["note"]


def test_undefined_is_nan_with_a_reason(found) -> None:
    for name in ("auroc", "balanced_brier", "max_f1_threshold", "specificity", "mcc"):
        row = found(name, "none")
        assert np.isnan(row["value"])
        assert row["note"] == f"{name} is undefined: no positives among 1500 rows"
    for name in KINDS:
        row = found(name, "none", "prevalence=0.01")
        assert np.isnan(row["value"])
        assert "no positives among 1500 rows" in row["note"]
    assert found("brier", "none")["value"] > 0


def test_no_weight_is_undefined(planted) -> None:
    weight = np.ones(1500)
    found = Found(
        block("x", planted.y, planted.patient, prob=planted.prob, weight=weight),
        block("none", planted.y, planted.patient, prob=planted.prob, weight=0 * weight),
        n_resamples=20,
    )
    assert found("auroc")["value"] == pytest.approx(metrics.auroc(planted.y, planted.prob))
    for (finding, metric, _), row in found.rows.items():
        if finding == "none":
            assert np.isnan(row["value"]), metric
            assert row["note"], metric


def test_scores_that_are_no_probabilities(planted) -> None:
    found = Found(block("x", planted.y, planted.patient, logit=planted.prob * 2.8), n_resamples=30)
    given = {metric for _, metric, _ in found.rows}
    assert not given & PROBABILITY
    assert not any(name.startswith("pav") for name in given)
    assert {"auroc", "tpr", "average_precision"} <= given
    assert "scores are not probabilities" in found.notes
    assert ("x", "average_precision", "prevalence=0.01") in found.rows
    kinds = {row["kind"] for row in found.output.curves.to_pylist()}
    assert kinds == {"ap_by_prevalence", "ppv_by_prevalence", "npv_by_prevalence"}


@pytest.mark.parametrize(
    ("y", "p", "patient"),
    [
        ([0, 1], [0.2, 0.7], [0, 1]),
        ([0, 1, 0, 1], [0.5] * 4, [0, 0, 1, 1]),
        ([0, 1, 1, 0, 1], [0.0, 1.0, 1.0, 0.0, 0.0], [0, 1, 2, 3, 4]),
        ([0, 1, 1, 0], [0.1, 0.4, 0.3, 0.8], [7] * 4),
        ([1, 1, 1], [0.3, 0.4, 0.5], [0, 1, 2]),
        ([0] * 60 + [1] * 3, np.linspace(0, 1, 63), range(63)),
        ([np.nan, np.nan], [0.3, 0.4], [0, 1]),
    ],
    ids=["two rows", "all tied", "zeros and ones", "one patient", "one class", "three positives", "no label"],
)
def test_odd_samples_give_rows_not_tracebacks(y, p, patient) -> None:
    found = Found(block("x", y, list(patient), prob=p), n_resamples=20)
    for row in found.rows.values():
        assert np.isfinite(row["value"]) or row["note"], row["metric"]
        if np.isfinite(row["value"]) and row["ci_low"] is not None and np.isfinite(row["ci_low"]):
            assert row["ci_low"] <= row["value"] + 1e-12
            assert row["ci_high"] >= row["value"] - 1e-12


def test_workers_row_order_and_memory_do_not_matter(planted) -> None:
    made = block("x", planted.y, planted.patient, prob=planted.prob)
    shuffled = made.take(pa.array(np.random.default_rng(0).permutation(1500)))
    first = Found(made, n_resamples=130, workers=1)
    second = Found(shuffled, n_resamples=130, workers=2)
    assert first.output.results.equals(second.output.results)
    assert first.output.curves.equals(second.output.curves)
    beside = Found(made, n_resamples=130, only=("overview", "imbalance"))  # replicates come from the overview
    assert beside.rows == first.rows


def test_patients_not_images_are_the_unit() -> None:
    made = context(400, seed=16)
    twice = np.repeat(np.arange(400), 2)
    once = Found(block("x", made.y, np.arange(400), prob=made.prob), n_resamples=100)
    again = Found(block("x", made.y[twice], twice, prob=made.prob[twice]), n_resamples=100)
    for key, row in once.rows.items():
        for name in ("value", "ci_low", "ci_high"):
            assert again.rows[key][name] == pytest.approx(row[name], abs=1e-9, nan_ok=True), key
