"""The context audit: planted strata are found, nothing is found where nothing is, what is missing is said."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cxrhf import metrics
from cxrhf.audits.context import divide, stratify_finding
from cxrhf.audits.plan import AuditOutput, run_audits
from cxrhf.audits.sample import samples
from cxrhf.twin.models import predictions
from cxrhf.twin.people import people
from cxrhf.twin.planted import calibrated, context, context_of, patients_of
from cxrhf.twin.scores import model_truth
from tests.audits.tables import audited, block, settings
from tests.thinned import thinned

GROUPS = ("pretest=bottom", "pretest=middle", "pretest=top")
RATES = ("auroc", "sensitivity_at_specificity", "sensitivity_global", "specificity_global")
TESTED = (*RATES, "brier_skill_score", "ace_excess")


class Rows:
    """RESULT rows by metric, slice, finding and versus."""

    def __init__(self, output: AuditOutput) -> None:
        self.output = output
        self.rows = output.results.to_pylist()
        self.notes = "\n".join(output.notes)

    def __call__(self, metric: str, part: str, finding: str = "x", versus: str | None = None) -> dict[str, Any]:
        key = (metric, part, finding, versus)
        (row,) = [row for row in self.rows if (row["metric"], row["slice"], row["finding"], row["versus"]) == key]
        return row

    def significant(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["p_value"] is not None and row["p_value"] < 0.05]


def strata(*blocks: pa.Table, n_resamples: int = 200, **options: Any) -> Rows:
    return Rows(audited(*blocks, n_resamples=n_resamples, only=("context",), **options))


def planted_block(made: Any, name: str = "x", **columns: Any) -> pa.Table:
    return block(name, made.y, made.patient, **({"prob": made.prob, "pretest": made.pretest} | columns))


def inside(row: dict[str, Any], truth: float) -> bool:
    return bool(row["ci_low"] <= truth <= row["ci_high"])


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_planted_values_lie_in_their_intervals(seed) -> None:
    made = context(6000, images_per_patient=(1, 6), seed=seed)
    found = strata(planted_block(made), n_resamples=400, level=0.99)
    true = made.truth
    by_metric = zip(
        RATES, (true.strata, true.sensitivity_local, true.sensitivity_global, true.specificity_global), strict=True
    )
    for metric, values in by_metric:
        for part, value in zip(GROUPS, values, strict=True):
            assert inside(found(metric, part), value), (metric, part)
        difference = found(metric, "pretest=bottom", versus="pretest=top")
        assert inside(difference, values[0] - values[2]), metric
        assert difference["p_value"] < 0.01, metric
        apart = found(metric, "pretest=bottom")["value"] - found(metric, "pretest=top")["value"]
        assert difference["value"] == pytest.approx(apart, abs=1e-12)
    for part, share in zip(GROUPS, (0.25, 0.5, 0.25), strict=True):
        assert found("share", part)["value"] == pytest.approx(share, abs=0.001)


def test_the_twin() -> None:
    table = predictions(people(1200, seed=4), model="ideal")
    wanted = ("cardiomegaly", "edema", "lung_lesion", "support_devices")
    table = table.filter(pc.is_in(table["finding"], pa.array(wanted)))
    found = Rows(run_audits(table, settings(300, only=("context",), level=0.99)))
    truth = model_truth(model="ideal")
    for finding in wanted[:3]:
        for part, value in zip(GROUPS, truth[finding]["strata"], strict=True):
            assert inside(found("auroc", part, finding), value), (finding, part)
        for part, name in (("mention=yes", "mentioned"), ("mention=no", "not_mentioned")):
            assert inside(found("auroc", part, finding), truth[finding]["by_mention"][name]), (finding, part)
    assert found("auroc", "pretest=bottom", "cardiomegaly", "pretest=top")["p_value"] < 0.05
    assert found("auroc", "mention=no", "cardiomegaly", "mention=yes")["p_value"] < 0.05
    assert found("auroc", "pretest=bottom", "lung_lesion", "pretest=top")["p_value"] == 1.0  # the null of D1
    assert "support_devices: no row states whether a prior note mentions it" in found.notes
    assert "by mention: cardiomegaly" in found.notes
    assert found("auroc", "mention=yes", "macro")["note"] == "mean of 3 of 4 findings"


def null_blocks(seed: int, n: int, informative: bool) -> list[pa.Table]:
    """Scores that ignore the chart. Where the chart tells the label, prevalence and hence calibration differ between
    its strata whatever the score does, so only ranks are given; where it tells nothing, everything must be equal."""
    rng = np.random.default_rng([seed, 7])
    patient = patients_of(n, (1, 5), rng)
    blocks = []
    for at, pi in enumerate((0.1, 0.2, 0.35)):
        made = context_of(patient, rng, pi=pi, m=1.0, g=0.0, eta=0.0, d0=1.5)
        chance = rng.random(int(patient.max()) + 1)[patient]
        columns = (
            {"logit": made.score, "pretest": made.pretest, "mention": made.context > 0.6}
            if informative
            else {"prob": made.prob, "pretest": chance, "mention": chance > 0.8}
        )
        blocks.append(block(f"finding_{at}", made.y, patient, **columns))
    return blocks


@pytest.mark.parametrize("informative", thinned([True, False], [False]))
def test_nothing_is_found_where_nothing_is(informative) -> None:
    clean = 0
    for seed in range(10):
        found = strata(*null_blocks(seed, 2500, informative), n_resamples=150)
        assert {row["metric"] for row in found.rows if row["versus"]} == set(RATES if informative else TESTED)
        clean += not found.significant()
    assert clean >= 9


def test_values_are_those_of_the_metrics() -> None:
    made = context(3000, images_per_patient=2, seed=5)
    mention = np.where(np.arange(3000) % 7 == 0, np.nan, made.context > 0.4)
    whole = planted_block(made, mention=pa.array(mention, from_pandas=True).cast(pa.bool_()))
    found = strata(whole, n_resamples=30)
    pooled = metrics.sensitivity_at_specificity(made.y, made.prob)
    quantiles = metrics.quantile_groups(made.pretest)
    masks = dict(zip(GROUPS, quantiles[:3], strict=True)) | {"mention=no": mention == 0, "mention=yes": mention == 1}
    for part, rows in masks.items():
        y, p = made.y[rows], made.prob[rows]
        local = metrics.sensitivity_at_specificity(y, p)
        everywhere = metrics.rates_at(y, p, pooled.threshold)
        expected = {
            "auroc": metrics.auroc(y, p),
            "sensitivity_at_specificity": local.sensitivity,
            "sensitivity_at_specificity.threshold": local.threshold,
            "sensitivity_at_specificity.specificity": local.specificity,
            "sensitivity_global": everywhere.tpr,
            "specificity_global": 1 - everywhere.fpr,
            "adaptive_calibration_error": metrics.adaptive_calibration_error(y, p),
            "expected_ace": metrics.expected_ace(p),
            "brier_skill_score": metrics.brier_skill_score(y, p),
            "prevalence": float(y.mean()),
            "share": rows.sum() / (3000 if part in GROUPS else (~np.isnan(mention)).sum()),
        }
        for metric, value in expected.items():
            assert found(metric, part)["value"] == pytest.approx(value, abs=1e-12), (metric, part)
            assert found(metric, part)["n"] == rows.sum()
    assert f"by mention: x {int(np.isnan(mention).sum())}" in found.notes
    row = found("sensitivity_global", "mention=no")
    assert f"one threshold for all, {pooled.threshold:.6g}, set on all rows" in row["method"]
    assert found("specificity_global", "mention=no")["higher_is_better"] is True
    excess = [
        found("adaptive_calibration_error", part)["value"] - found("expected_ace", part)["value"] for part in GROUPS
    ]
    difference = found("ace_excess", "pretest=bottom", versus="pretest=top")
    assert difference["value"] == pytest.approx(excess[0] - excess[2])
    assert difference["ci_low"] < difference["value"] < difference["ci_high"]
    assert "0.95 t" in difference["method"]


def test_the_common_threshold_is_set_anew_in_every_resample() -> None:
    """Each replicate is what the plain metrics give on rows counted as often as their patient was drawn."""
    made = context(900, images_per_patient=(1, 4), seed=8)
    weight = np.random.default_rng(1).uniform(0.5, 2, 900)
    table = planted_block(made, mention=made.context > 0.5, weight=weight)
    (sample,) = samples(table, settings(20), 1, lambda _: None, [])
    finding = sample.finding(0)
    ways = [divide(finding, "pretest"), divide(finding, "mention")]
    y, p, at = finding.y, finding.p, finding.at
    for study in stratify_finding(sample, finding, ways, lambda _: None):
        for cell in study.cells.values():
            for replicate in (0, 7, 19):
                times = sample.draws.counts(replicate, replicate + 1)[sample.draws.unit[at], 0] * finding.weight
                threshold = metrics.sensitivity_at_specificity(y, p, 0.95, times).threshold
                own = np.isin(at, cell.stratum.finding.at)
                rates = metrics.rates_at(y[own], p[own], threshold, times[own])
                local = metrics.sensitivity_at_specificity(y[own], p[own], 0.95, times[own])
                drawn = {name: values[replicate] for name, values in cell.drawn.items()}
                assert drawn["sensitivity_global"] == pytest.approx(rates.tpr, abs=1e-12)
                assert drawn["specificity_global"] == pytest.approx(1 - rates.fpr, abs=1e-12)
                assert drawn["auroc"] == pytest.approx(metrics.auroc(y[own], p[own], times[own]), abs=1e-12)
                assert drawn["sensitivity_at_specificity"] == pytest.approx(local.sensitivity, abs=1e-12)


def test_the_common_threshold_comes_from_validation_when_there_is_one() -> None:
    made = context(2400, seed=9)
    split = np.where(np.arange(2400) < 800, "validate", "test")
    found = strata(planted_block(made, split=split), n_resamples=30)
    held, test = split == "validate", split == "test"
    threshold = metrics.sensitivity_at_specificity(made.y[held], made.prob[held]).threshold
    bottom = metrics.quantile_groups(made.pretest[test]).bottom
    rates = metrics.rates_at(made.y[test][bottom], made.prob[test][bottom], threshold)
    row = found("sensitivity_global", "pretest=bottom")
    assert row["value"] == pytest.approx(rates.tpr, abs=1e-12)
    assert f"{threshold:.6g}, from 800 validation rows" in row["method"]
    # The paper's is "computed using all samples".
    asked = strata(planted_block(made, split=split), n_resamples=30, threshold_from="sample")
    threshold = metrics.sensitivity_at_specificity(made.y[test], made.prob[test]).threshold
    rates = metrics.rates_at(made.y[test][bottom], made.prob[test][bottom], threshold)
    row = asked("sensitivity_global", "pretest=bottom")
    assert row["value"] == pytest.approx(rates.tpr, abs=1e-12)
    assert "set on all rows" in row["method"]
    # A validation split without negatives has no threshold to give.
    table = planted_block(made, split=split)
    bare = table.filter(pc.or_(pc.equal(table["split"], "test"), pc.equal(table["label"], 1)))
    assert "set on all rows" in strata(bare, n_resamples=30)("sensitivity_global", "pretest=bottom")["method"]


def test_a_weight_is_a_repetition() -> None:
    made = context(1500, images_per_patient=2, seed=10)
    twice = np.where(np.random.default_rng(3).random(1500) < 0.4, 2, 1)
    weighted = strata(planted_block(made, mention=made.context > 0.5, weight=twice.astype(float)), n_resamples=30)
    rows = np.repeat(np.arange(1500), twice)
    repeated = strata(
        block(
            "x",
            made.y[rows],
            made.patient[rows],
            prob=made.prob[rows],
            pretest=made.pretest[rows],
            mention=made.context[rows] > 0.5,
        ),
        n_resamples=30,
    )
    # expected_ace is simulated row by row, so it only comes near.
    for part in (*GROUPS, "mention=no", "mention=yes"):
        for metric in (*RATES, "adaptive_calibration_error", "brier_skill_score", "prevalence", "share"):
            assert weighted(metric, part)["value"] == pytest.approx(repeated(metric, part)["value"], abs=1e-9), metric
            if metric in RATES:
                for end in ("ci_low", "ci_high"):
                    assert weighted(metric, part)[end] == pytest.approx(repeated(metric, part)[end], abs=0.05)
    assert weighted("auroc", "pretest=top")["method"].startswith("weight column")


def test_few_negatives_get_the_careful_rule_beside() -> None:
    made = context(1200, seed=11)
    found = strata(planted_block(made), n_resamples=30)
    groups = metrics.quantile_groups(made.pretest)
    for part, rows in zip(GROUPS, groups[:3], strict=True):
        key = ("sensitivity_at_specificity.plus_one", part)
        there = [row for row in found.rows if (row["metric"], row["slice"]) == key]
        negatives = int((made.y[rows] == 0).sum())
        assert bool(there) == (negatives < 400), part
        for row in there:
            careful = metrics.sensitivity_at_specificity(made.y[rows], made.prob[rows], rule="plus_one")
            assert row["value"] == careful.sensitivity
            assert f"{negatives} negatives" in row["note"]


def test_the_reference_of_the_skill_is_the_stratums_own_prevalence() -> None:
    """CONTEXT's Table A.22, also where the weights of equation 1 take the training prevalence."""
    made = context(1500, seed=12)
    found = strata(planted_block(made), n_resamples=30, train_prevalence=("0.3",))
    rows = metrics.quantile_groups(made.pretest).top
    row = found("brier_skill_score", "pretest=top")
    assert row["value"] == pytest.approx(metrics.brier_skill_score(made.y[rows], made.prob[rows]))
    assert "against the stratum's own prevalence" in row["method"]


def test_a_model_calibrated_in_every_stratum_shows_no_excess() -> None:
    """Groups of very different size: the raw error is far larger in the small one, what exceeds chance is not."""
    made = calibrated(6000, seed=14)
    rng = np.random.default_rng(4)
    mention = rng.random(6000) < 0.05
    found = strata(block("x", made.y, np.arange(6000), prob=made.prob, mention=mention), n_resamples=300)
    large, small = found("adaptive_calibration_error", "mention=no"), found("adaptive_calibration_error", "mention=yes")
    assert small["value"] > 2 * large["value"]
    assert "compare with expected_ace" in small["note"]
    difference = found("ace_excess", "mention=no", versus="mention=yes")
    assert inside(difference, 0.0)
    assert difference["p_value"] is None
    assert "not tested" in difference["note"]
    wrong = np.where(mention, made.prob, np.clip(made.prob + 0.15, 0, 1))
    off = strata(block("x", made.y, np.arange(6000), prob=wrong, mention=mention), n_resamples=300)
    assert off("ace_excess", "mention=no", versus="mention=yes")["ci_low"] > 0


def test_missing_columns_are_said_with_the_command() -> None:
    made = context(300, seed=14)
    found = strata(planted_block(made, pretest=np.full(300, np.nan)), n_resamples=20)
    assert found.rows == []
    assert len(found.output.notes) == 2
    for command in ("--pretest COLUMN", "--pretest from:age,sex,view,prior_labels", "--notes NOTES"):
        assert command in found.notes
    half = strata(planted_block(made), n_resamples=20)
    assert {row["slice"] for row in half.rows} == set(GROUPS)
    assert "--notes NOTES" in half.notes
    assert "--pretest COLUMN" not in half.notes


def test_rows_without_pretest_are_left_out_and_counted() -> None:
    made = context(900, seed=15)
    keep = np.arange(900) % 3 != 0
    found = strata(
        planted_block(made, pretest=np.where(keep, made.pretest, np.nan)),
        planted_block(made, "bare", pretest=np.full(900, np.nan)),
        n_resamples=20,
    )
    assert sum(found("auroc", part)["n"] for part in GROUPS) == keep.sum()
    assert "by pretest: x 300" in found.notes
    assert "bare: no pre-test probability; not shown by pretest" in found.notes
    assert found("auroc", "pretest=top", "macro")["note"] == "mean of 1 of 2 findings"


def test_an_empty_group_is_nan_with_a_reason_and_no_contrast() -> None:
    made = context(800, seed=16)
    found = strata(planted_block(made, pretest=np.full(800, 0.2)), n_resamples=20)
    assert [found("share", part)["value"] for part in GROUPS] == [0, 1, 0]
    for part in ("pretest=bottom", "pretest=top"):
        for metric in (*RATES, "adaptive_calibration_error", "prevalence"):
            row = found(metric, part)
            assert np.isnan(row["value"])
            assert "equal pre-test probabilities" in row["note"]
    for finding in ("x", "macro"):
        row = found("auroc", "pretest=bottom", finding, "pretest=top")
        assert np.isnan(row["value"])
        assert row["p_value"] is None
        assert row["note"]
    assert found("auroc", "pretest=middle")["value"] == pytest.approx(metrics.auroc(made.y, made.prob))
    assert "no rows in pretest=bottom" in found.notes
    rough = strata(planted_block(made, pretest=np.where(made.pretest > 0.5, 0.6, 0.1)), n_resamples=20)
    assert "instead of 25%" in rough("share", "pretest=top")["note"]


def edge(name: str) -> pa.Table:
    made = context(400, images_per_patient=2, seed=17)
    y, patient, p = made.y.copy(), made.patient, made.prob.copy()
    columns: dict[str, Any] = {"pretest": made.pretest, "mention": made.context > 0.5}
    if name == "no positives":
        y = np.zeros(400)
    elif name == "no negatives":
        y = np.ones(400)
    elif name == "three positives":
        y = np.zeros(400)
        y[[3, 100, 300]] = 1
    elif name == "one patient":
        patient = np.zeros(400)
    elif name == "all tied":
        p = np.full(400, 0.3)
    elif name == "zeros and ones":
        p = (p > 0.3).astype(float)
    elif name == "weight zero":
        columns["weight"] = np.where(made.pretest > 0.3, 0.0, 1.0)
    return block("x", y, patient, prob=p, **columns)


@pytest.mark.parametrize(
    "name",
    ["no positives", "no negatives", "three positives", "one patient", "all tied", "zeros and ones", "weight zero"],
)
def test_undefined_is_nan_with_a_reason(name) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = strata(edge(name), n_resamples=40)
    for row in found.rows:
        assert not np.isnan(row["value"]) or row["note"], row
        if row["versus"] is None and row["metric"] not in ("sensitivity_at_specificity.threshold",):
            assert np.isnan(row["value"]) or -np.inf < row["value"] <= 1
        if name in ("no positives", "no negatives") and row["metric"] == "auroc":
            assert np.isnan(row["value"])
            assert f"{name} among" in row["note"] or row["finding"] == "macro"
    if name == "three positives":  # of the many negatives more is known
        assert {row["metric"] for row in found.significant()} <= {"specificity_global"}
    if name == "one patient":
        assert all(row["p_value"] is None or np.isnan(row["p_value"]) for row in found.rows)
    if name == "no positives":
        assert found("specificity_global", "pretest=bottom")["value"] >= 0.95


def test_scores_beyond_one_are_ranked_only() -> None:
    made = context(700, seed=18)
    found = strata(block("x", made.y, made.patient, logit=2.8 * made.prob, pretest=made.pretest), n_resamples=20)
    there = {row["metric"] for row in found.rows}
    assert set(RATES) < there
    assert not there & {"adaptive_calibration_error", "expected_ace", "brier_skill_score", "ace_excess"}
    assert "x: scores are not probabilities" in found.notes


def test_ten_positives_that_are_all_caught_are_no_certainty() -> None:
    """Their numbers do not vary between resamples, though at AUROC .98 ten of ten on top is what is to be expected."""
    rng = np.random.default_rng(5)
    y = np.r_[np.ones(10), np.zeros(990), np.ones(500), np.zeros(500)]
    score = np.r_[rng.normal(3.6, 0.2, 10), np.minimum(rng.normal(0, 1, 990), 2.8), rng.normal(2.9, 1, 500)]
    score = np.r_[score, rng.normal(0, 1, 500)]
    mention = np.arange(2000) >= 1000
    found = strata(block("x", y, np.arange(2000), logit=score, mention=mention), n_resamples=200)
    row = found("auroc", "mention=no", versus="mention=yes")
    assert found("auroc", "mention=no")["value"] == 1.0
    assert row["value"] > 0.01
    assert row["p_value"] > 0.05


def test_neither_threads_nor_row_order_matter() -> None:
    made = context(1200, images_per_patient=(1, 4), seed=19)
    table = planted_block(made, mention=made.context > 0.5)
    one = strata(table, n_resamples=130, workers=1)
    order = np.random.default_rng(6).permutation(1200)
    for other in (strata(table, n_resamples=130, workers=2), strata(table.take(pa.array(order)), n_resamples=130)):
        assert len(other.rows) == len(one.rows)
        for a, b in zip(one.rows, other.rows, strict=True):
            assert {**a, "value": 0} == {**b, "value": 0}
            assert a["value"] == pytest.approx(b["value"], abs=0, nan_ok=True)
