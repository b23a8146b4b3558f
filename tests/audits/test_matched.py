"""The matched audit: planted shares of context are found, nothing is found where nothing is, doubts are said."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit, ndtr

from cxrhf import metrics
from cxrhf.audits.matched import AUROCS, CONTROLLED
from cxrhf.data.planted import context
from tests.audits.tables import Found, audited, block


def found_in(planted, n_resamples: int = 300, **options) -> Found:
    made = block("x", planted.y, planted.patient, prob=planted.prob, pretest=planted.pretest)
    return Found(audited(made, n_resamples=n_resamples, only=("matched",), **options))


@pytest.fixture(scope="module")
def clustered() -> Found:
    """99% intervals: a dozen true values are looked for, and at 95% one would often be outside by chance alone."""
    return found_in(context(8000, images_per_patient=(1, 6), seed=21), 400, level=0.99)


def test_planted_values_lie_in_their_intervals(clustered) -> None:
    truth = {"auroc": 0.871910, "auroc_att": 0.744530, "auroc_ipw": 0.796822, "matched_auroc": 0.7615}
    truth["auroc_context"] = float(ndtr(1 / np.sqrt(2)))
    for metric, value in truth.items():
        assert clustered.holds(value, metric, "x", "matched"), metric
    for metric in CONTROLLED:
        assert clustered.holds(truth["auroc"] - truth[metric], "auroc_drop", "x", "matched", metric), metric


def test_the_matching_is_redone_and_not_the_unmatched_value(clustered) -> None:
    """A public script indexed twice and so reported the standard AUROC as the matched one."""
    row = clustered("matched_auroc", "x", "matched")
    assert row["ci_high"] < clustered("auroc", "x", "matched")["ci_low"]
    assert row["ci_low"] < row["value"] < row["ci_high"]


def test_drops_are_differences_of_the_rows_beside_them(clustered) -> None:
    for metric in CONTROLLED:
        drop = clustered("auroc_drop", "x", "matched", metric)
        apart = clustered("auroc", "x", "matched")["value"] - clustered(metric, "x", "matched")["value"]
        assert drop["value"] == pytest.approx(apart, abs=1e-12)
        assert drop["p_value"] < 0.05
        # Paired: narrower than the two intervals put together.
        assert drop["ci_high"] - drop["ci_low"] < sum(
            row["ci_high"] - row["ci_low"]
            for row in (clustered("auroc", "x", "matched"), clustered(metric, "x", "matched"))
        )


def test_nothing_is_found_where_the_score_ignores_context() -> None:
    found = found_in(context(4000, g=0.0, eta=0.0, images_per_patient=(1, 4), seed=8), 400, level=0.99)
    for metric in CONTROLLED:
        assert found.holds(0.0, "auroc_drop", "x", "matched", metric), metric
        assert found("auroc_drop", "x", "matched", metric)["p_value"] > 0.01
    for metric in ("auroc", "auroc_att", "auroc_ipw", "matched_auroc"):
        assert found.holds(0.855578, metric, "x", "matched"), metric


def test_constant_context_changes_nothing() -> None:
    planted = context(600, seed=2)
    made = block("x", planted.y, planted.patient, prob=planted.prob, pretest=np.full(600, 0.2))
    found = Found(audited(made, n_resamples=50, only=("matched",)))
    for metric in CONTROLLED:
        drop = found("auroc_drop", "x", "matched", metric)
        assert drop["value"] == pytest.approx(0, abs=1e-12)
        assert drop["p_value"] > 0.9
    assert found("auroc_context", "x", "matched")["value"] == 0.5


def test_values_and_diagnostics_are_those_of_the_metrics() -> None:
    planted = context(800, images_per_patient=2, seed=5)
    y, p, q = planted.y, planted.prob, planted.pretest
    found = found_in(planted, 30)
    weights = {"att": metrics.att_weights(y, q), "ipw": metrics.ipw_weights(y, q, float(y.mean()))}
    for name, weight in weights.items():
        assert found(f"auroc_{name}", "x", "matched")["value"] == pytest.approx(metrics.auroc(y, p, weight), abs=1e-12)
        size = metrics.effective_sample_size(weight, y)
        for field, value in size._asdict().items():
            assert found(f"effective_sample_size_{name}.{field}", "x", "matched")["value"] == pytest.approx(value)
        assert found(f"balance_{name}.ks", "x", "matched")["value"] == pytest.approx(metrics.balance(y, q, weight).ks)
    assert found("matched_auroc", "x", "matched")["value"] == pytest.approx(metrics.matched_auroc(y, p, q), abs=1e-12)
    assert found("balance.overlap", "x", "matched")["value"] == pytest.approx(metrics.balance(y, q).overlap)
    pairs = metrics.pair_summary(metrics.match_pairs(y, q), y, q, planted.patient)
    assert found("pair_summary.mean_difference", "x", "matched")["value"] == pytest.approx(pairs.mean_difference)
    assert found("pair_summary.high_pretest_share", "x", "matched")["value"] == pytest.approx(pairs.high_pretest_share)
    slope = found("pretest_calibration_slope", "x", "matched")
    assert slope["value"] == pytest.approx(metrics.calibration_line(y, q).slope)
    assert slope["ci_low"] < 1 < slope["ci_high"]


def test_p_values_are_corrected_over_the_findings_that_have_one() -> None:
    null = context(700, g=0.0, eta=0.0, seed=31)

    def made(name, y):
        return block(name, y, null.patient, prob=null.prob, pretest=null.pretest)

    alone = Found(audited(made("a", null.y), n_resamples=60, only=("matched",)))
    several = Found(
        audited(made("a", null.y), made("b", null.y), made("none", np.zeros(700)), n_resamples=60, only=("matched",))
    )
    raw = alone("auroc_drop", "a", "matched", "auroc_att")["p_value"]
    row = several("auroc_drop", "a", "matched", "auroc_att")
    assert row["p_value"] == pytest.approx(min(1, 2 * raw))
    assert "corrected for 2 findings" in row["method"]
    none = several("auroc_drop", "none", "matched", "auroc_att")
    assert np.isnan(none["value"])
    assert np.isnan(none["p_value"])
    assert "no positives" in none["note"]
    macro = several("auroc_att", "macro", "matched")
    assert macro["note"] == "mean of 2 of 3 findings"
    assert macro["value"] == pytest.approx(several("auroc_att", "a", "matched")["value"])


def test_few_resamples_do_not_hide_a_large_drop() -> None:
    planted = context(3000, seed=17)
    row = found_in(planted, 20)("auroc_drop", "x", "matched", "auroc_att")
    assert "percentile" in row["method"]
    assert row["p_value"] < 1e-4


def test_no_pretest_is_said_not_guessed() -> None:
    planted = context(300, seed=1)
    output = audited(block("x", planted.y, planted.patient, prob=planted.prob), n_resamples=20)
    assert "no pretest column" in "\n".join(output.notes)
    assert "--pretest COLUMN" in "\n".join(output.notes)
    assert set(output.results["audit"].to_pylist()) == {"overview"}


def test_rows_without_pretest_leave_this_audit_only() -> None:
    planted = context(900, seed=6)
    keep = np.arange(900) % 3 != 0
    found = Found(
        audited(
            block("x", planted.y, planted.patient, prob=planted.prob, pretest=np.where(keep, planted.pretest, np.nan)),
            block("bare", planted.y, planted.patient, prob=planted.prob, pretest=np.full(900, np.nan)),
            n_resamples=30,
        )
    )
    assert found("auroc", "x")["n"] == 900
    row = found("auroc", "x", "matched")
    assert row["n"] == keep.sum()
    assert row["value"] == pytest.approx(metrics.auroc(planted.y[keep], planted.prob[keep]), abs=1e-12)
    assert "x: 300 labelled rows without pretest are left out" in found.notes
    assert "no pretest value for bare" in found.notes


def test_scores_beyond_one_still_rank() -> None:
    planted = context(600, seed=7)
    made = block("x", planted.y, planted.patient, logit=2.8 * planted.prob, pretest=planted.pretest)
    found = Found(audited(made, n_resamples=20, only=("matched",)))
    assert found("auroc_att", "x", "matched")["value"] == pytest.approx(
        found_in(planted, 20)("auroc_att", "x", "matched")["value"]
    )


def test_doubts_are_said() -> None:
    apart = context(1500, m=2.5, g=1.0, seed=12)
    found = found_in(apart, 30)
    assert "poor overlap (ATT)" in found.notes
    assert found("verdict", "x", "matched")["note"].startswith("poor overlap (ATT)")

    planted = context(2000, images_per_patient=4, seed=13)
    first = np.unique(planted.patient, return_index=True)[1][planted.patient]
    shared = block("x", planted.y, planted.patient, prob=planted.prob, pretest=planted.pretest[first])
    assert "same patient on both sides" in Found(audited(shared, n_resamples=20, only=("matched",))).notes

    extreme = expit(2 * logit(context(3000, seed=14).pretest))
    planted = context(3000, seed=14)
    crooked = block("x", planted.y, planted.patient, prob=planted.prob, pretest=extreme)
    assert "too much context" in Found(audited(crooked, n_resamples=60, only=("matched",))).notes


def test_the_weight_column_multiplies_the_weights() -> None:
    planted = context(700, seed=15)
    weight = np.random.default_rng(2).uniform(0.5, 2, 700)
    made = block("x", planted.y, planted.patient, prob=planted.prob, pretest=planted.pretest, weight=weight)
    found = Found(audited(made, n_resamples=20, only=("matched",)))
    both = weight * metrics.att_weights(planted.y, planted.pretest)
    row = found("auroc_att", "x", "matched")
    assert row["value"] == pytest.approx(metrics.auroc(planted.y, planted.prob, both), abs=1e-12)
    assert row["method"].startswith("att x weight column")
    assert "matched_auroc does not use the weight column" in found.notes


def test_every_auroc_has_an_interval_and_a_name(clustered) -> None:
    for metric in AUROCS:
        row = clustered(metric, "x", "matched")
        assert row["slice"] == "all"
        assert row["versus"] is None
        assert row["higher_is_better"] is True
        assert "patients resampled" in row["method"]
