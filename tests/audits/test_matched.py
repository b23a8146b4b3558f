"""The matched audit: the matching is redone in every replicate, planted values are found, the pairs are described."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from cxrhf import metrics
from cxrhf.audits.controlled import matched
from cxrhf.audits.rows import INTERVAL_SOURCE
from cxrhf.audits.sample import samples
from cxrhf.twin.planted import context
from tests.audits.tables import Found, audited, block, settings

AUDIT = "matched"


def found_in(planted, n_resamples: int = 300, **options) -> Found:
    made = block("x", planted.y, planted.patient, prob=planted.prob, pretest=planted.pretest)
    return Found(audited(made, n_resamples=n_resamples, only=(AUDIT,), **options))


@pytest.fixture(scope="module")
def clustered() -> list[Found]:
    """99% intervals: many true values are looked for, and at 95% some would be outside by chance alone."""
    return [found_in(context(6000, images_per_patient=(1, 6), seed=seed), 300, level=0.99) for seed in (21, 22, 23, 24)]


def test_planted_values_lie_in_their_intervals(clustered) -> None:
    truth = {"auroc": 0.871910, "matched_auroc": 0.7615, "sensitivity_at_specificity": 0.4240}
    for found in clustered:
        for metric, value in truth.items():
            assert found.holds(value, metric, "x", AUDIT), metric
        assert found.holds(truth["auroc"] - truth["matched_auroc"], "auroc_drop", "x", AUDIT, "matched_auroc")


def test_the_sensitivity_among_pairs_lies_between_the_sample_and_att(clustered) -> None:
    """Matching asks what ATT asks, but for the negatives of high pre-test probability that run out."""
    rows = [found("sensitivity_at_specificity_matched", "x", AUDIT) for found in clustered]
    assert 0.1750 < np.mean([row["value"] for row in rows]) < 0.30
    for row, found in zip(rows, clustered, strict=True):
        assert row["ci_low"] < row["value"] < row["ci_high"] < found("sensitivity_at_specificity", "x", AUDIT)["value"]


def double_index(y, p, rows: np.ndarray, n_resamples: int) -> np.ndarray:
    """The mistake of a public script: `rows` are places in the whole table, `drawn` are places among `rows`.

    It draws from the matched set and then takes the drawn places in the whole table, so what it calls the matched
    AUROC is that of rows nobody matched.
    """
    rng = np.random.default_rng(0)
    out = np.empty(n_resamples)
    for r in range(n_resamples):
        drawn = rng.choice(len(rows), len(rows))
        out[r] = metrics.auroc(y[drawn], p[drawn])  # should be y[rows[drawn]]
    return out


def test_the_double_index_mistake_is_not_ours() -> None:
    """Most of the score is the chart: the standard and the matched AUROC are far apart, and ours is the matched one."""
    planted = context(8000, pi=0.1, m=1.3, g=2.0, eta=0.0, d0=0.5, seed=40)
    y, p, truth = planted.y, planted.prob, planted.truth
    assert truth.standard - truth.matched > 0.25
    pairs = metrics.match_pairs(y, planted.pretest)
    rows = np.r_[pairs.positives, pairs.negatives]
    assert metrics.auroc(y[rows], p[rows]) == pytest.approx(truth.matched, abs=0.03)
    assert double_index(y, p, rows, 100).mean() == pytest.approx(truth.standard, abs=0.03)

    made = block("x", y, planted.patient, prob=p, pretest=planted.pretest)
    (sample,) = samples(made, settings(100, correction="max_t"), None, lambda _: None, [])
    (ours,) = [row for row in matched(sample).rows if (row["metric"], row["finding"]) == ("matched_auroc", "x")]
    replicates = ours[INTERVAL_SOURCE].replicates
    assert ours["value"] == pytest.approx(truth.matched, abs=0.03)
    assert replicates.mean() == pytest.approx(truth.matched, abs=0.03)
    assert replicates.max() < truth.standard - 0.15
    assert ours["ci_low"] < truth.matched < ours["ci_high"]


def test_the_matching_is_redone_in_every_replicate() -> None:
    """A replicate is the matched AUROC of the rows that were drawn."""
    planted = context(300, images_per_patient=(1, 3), seed=2)
    y, p, q = planted.y, planted.prob, planted.pretest
    made = block("x", y, planted.patient, prob=p, pretest=q)
    (sample,) = samples(made, settings(10, correction="max_t"), None, lambda _: None, [])
    (ours,) = [row for row in matched(sample).rows if (row["metric"], row["finding"]) == ("matched_auroc", "x")]
    counts = sample.draws.counts(0, 10)
    place = np.argsort(np.argsort(made["image_id"].to_pylist()))
    for r in range(10):
        times = counts[sample.draws.unit, r][place]
        drawn = np.repeat(np.arange(300), times)
        assert ours[INTERVAL_SOURCE].replicates[r] == pytest.approx(
            metrics.matched_auroc(y[drawn], p[drawn], q[drawn]), abs=1e-12
        )


def test_nothing_is_found_where_the_score_ignores_context() -> None:
    clean = 0
    for seed in range(10):
        found = found_in(context(2500, g=0.0, eta=0.0, images_per_patient=(1, 4), seed=seed), 200)
        clean += found("auroc_drop", "x", AUDIT, "matched_auroc")["p_value"] > 0.05
    assert clean >= 9


def test_the_drop_is_a_paired_difference(clustered) -> None:
    found = clustered[0]
    drop, full, rest = (
        found("auroc_drop", "x", AUDIT, "matched_auroc"),
        found("auroc", "x", AUDIT),
        found("matched_auroc", "x", AUDIT),
    )
    assert drop["value"] == pytest.approx(full["value"] - rest["value"], abs=1e-12)
    assert drop["p_value"] < 0.05
    assert drop["ci_high"] - drop["ci_low"] < sum(row["ci_high"] - row["ci_low"] for row in (full, rest))


def test_values_and_diagnostics_are_those_of_the_metrics() -> None:
    planted = context(800, images_per_patient=2, seed=5)
    y, p, q = planted.y, planted.prob, planted.pretest
    found = found_in(planted, 30)
    weight = metrics.match_weights(y, q)
    back = metrics.rescale_to_prevalence(y, weight, float(y.mean()))
    truth = {
        "auroc": metrics.auroc(y, p),
        "matched_auroc": metrics.matched_auroc(y, p, q),
        "sensitivity_at_specificity_matched": metrics.sensitivity_at_specificity(y, p, weight=weight).sensitivity,
        "adaptive_calibration_error_matched": metrics.adaptive_calibration_error(y, p, back),
        "brier_skill_score_matched": metrics.brier_skill_score(y, p, back),
        "balance_matched.ks": metrics.balance(y, q, weight).ks,
    }
    pairs = metrics.pair_summary(metrics.match_pairs(y, q), y, q, planted.patient)
    truth |= {f"pair_summary.{name}": value for name, value in pairs._asdict().items()}
    for metric, value in truth.items():
        assert found(metric, "x", AUDIT)["value"] == pytest.approx(value, abs=1e-12), metric
    assert found("expected_ace_matched", "x", AUDIT)["value"] > 0
    error = found("adaptive_calibration_error_matched", "x", AUDIT)
    assert error["ci_low"] is None
    assert "no interval" in error["method"]
    assert "compare with expected_ace_matched" in error["note"]


def test_stands_alone_without_pretest_and_without_the_other_audits() -> None:
    planted = context(300, seed=1)
    output = audited(block("x", planted.y, planted.patient, prob=planted.prob), n_resamples=20, only=(AUDIT,))
    assert output.results.num_rows == 0
    assert "no pretest column" in output.notes[0]
    assert {row["audit"] for row in found_in(planted, 20).rows} == {AUDIT}


def test_rows_without_pretest_are_left_out() -> None:
    planted = context(900, seed=6)
    keep = np.arange(900) % 3 != 0
    made = block("x", planted.y, planted.patient, prob=planted.prob, pretest=np.where(keep, planted.pretest, np.nan))
    found = Found(audited(made, n_resamples=30, only=("overview", AUDIT)))
    row = found("matched_auroc", "x", AUDIT)
    assert row["n"] == keep.sum()
    assert row["value"] == pytest.approx(
        metrics.matched_auroc(planted.y[keep], planted.prob[keep], planted.pretest[keep]), abs=1e-12
    )
    assert "x: 300 labelled rows without pretest are excluded" in found.notes


def test_means_are_over_findings_with_both_classes() -> None:
    planted = context(700, seed=31)

    def made(name, y):
        return block(name, y, planted.patient, prob=planted.prob, pretest=planted.pretest)

    found = Found(
        audited(made("a", planted.y), made("b", planted.y), made("none", np.zeros(700)), n_resamples=60, only=(AUDIT,))
    )
    row = found("auroc_drop", "a", AUDIT, "matched_auroc")
    assert "corrected for 3 differences" in row["method"]
    macro = found("matched_auroc", "macro", AUDIT)
    assert macro["note"] == "mean of 2 of 3 findings"
    assert macro["value"] == pytest.approx(found("matched_auroc", "a", AUDIT)["value"])
    assert found("brier_skill_score_matched", "macro", AUDIT)["ci_low"] is None
    none = found("matched_auroc", "none", AUDIT)
    assert np.isnan(none["value"])
    assert "no positives" in none["note"]


def test_doubts_are_said() -> None:
    planted = context(2000, images_per_patient=4, seed=13)
    first = np.unique(planted.patient, return_index=True)[1][planted.patient]
    shared = block("x", planted.y, planted.patient, prob=planted.prob, pretest=planted.pretest[first])
    found = Found(audited(shared, n_resamples=20, only=(AUDIT,)))
    assert "same patient" in found.notes
    assert "same patient on both sides" in found("verdict", "x", AUDIT)["note"]

    found = found_in(context(1500, m=2.5, g=1.0, seed=12), 20)
    assert "some context remains in matched_auroc: x" in found.notes
    assert "too few negatives" in found("verdict", "x", AUDIT)["note"]

    few = found_in(context(300, seed=3), 20)
    assert f"few matched pairs (at least 100 are needed): x ({int(context(300, seed=3).y.sum())})" in few.notes
    assert few("verdict", "x", AUDIT)["note"].startswith("few pairs")
    alike = context(3000, m=0.3, seed=4)
    assert found_in(alike, 20)("verdict", "x", AUDIT)["note"] == "the pairs are alike"


def test_pretest_of_zero_and_one_is_matched_like_any_other() -> None:
    planted = context(1000, seed=18)
    q = planted.pretest.copy()
    q[::40], q[1::40] = 0.0, 1.0
    made = block("x", planted.y, planted.patient, prob=planted.prob, pretest=q)
    found = Found(audited(made, n_resamples=30, only=(AUDIT,)))
    row = found("matched_auroc", "x", AUDIT)
    assert row["value"] == pytest.approx(metrics.matched_auroc(planted.y, planted.prob, q), abs=1e-12)
    assert row["ci_low"] < row["value"] < row["ci_high"]


def test_the_weight_column_is_not_used_and_that_is_said() -> None:
    planted = context(700, seed=15)
    weight = np.random.default_rng(2).uniform(0.5, 2, 700)
    made = block("x", planted.y, planted.patient, prob=planted.prob, pretest=planted.pretest, weight=weight)
    found = Found(audited(made, n_resamples=20, only=(AUDIT,)))
    assert "ignores the weight column" in found.notes
    # A drop from a weighted AUROC would be one between two populations.
    full, rest = (
        metrics.auroc(planted.y, planted.prob),
        metrics.matched_auroc(planted.y, planted.prob, planted.pretest),
    )
    assert found("auroc", "x", AUDIT)["value"] == pytest.approx(full, abs=1e-12)
    assert found("matched_auroc", "x", AUDIT)["value"] == pytest.approx(rest, abs=1e-12)
    assert found("auroc_drop", "x", AUDIT, "matched_auroc")["value"] == pytest.approx(full - rest, abs=1e-12)
    assert found("auroc", "x", AUDIT)["method"].startswith("unweighted")
    both = Found(audited(made, n_resamples=20, only=("overview", AUDIT)))
    assert both("auroc", "x", AUDIT)["ci_low"] == found("auroc", "x", AUDIT)["ci_low"]


def test_scores_beyond_one_still_rank() -> None:
    planted = context(600, seed=7)
    made = block("x", planted.y, planted.patient, logit=2.8 * planted.prob, pretest=planted.pretest)
    found = Found(audited(made, n_resamples=20, only=(AUDIT,)))
    assert found("matched_auroc", "x", AUDIT)["value"] == pytest.approx(
        found_in(planted, 20)("matched_auroc", "x", AUDIT)["value"]
    )
    assert not [row for row in found.rows if "calibration_error" in row["metric"] or "skill" in row["metric"]]


def test_ties_in_context_do_not_let_row_order_in() -> None:
    planted = context(900, images_per_patient=(1, 3), seed=3)
    made = block("x", planted.y, planted.patient, prob=planted.prob, pretest=np.round(planted.pretest, 1))
    shuffled = made.take(pa.array(np.random.default_rng(0).permutation(900)))
    first = audited(made, n_resamples=130, workers=1, only=(AUDIT,))
    assert first.results.equals(audited(shuffled, n_resamples=130, workers=2, only=(AUDIT,)).results)
