"""The reweighted audit: planted shares of context are found, nothing is found where nothing is, doubts are said."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit, ndtr

from cxrhf import metrics
from cxrhf.audits.controlled import KINDS, REWEIGHTED
from cxrhf.audits.material import Material
from cxrhf.audits.plan import run_audits
from cxrhf.twin.planted import context
from tests.audits.tables import Found, audited, block, settings

AUDIT = "reweighted"


def found_in(planted, n_resamples: int = 300, **options) -> Found:
    made = block("x", planted.y, planted.patient, prob=planted.prob, pretest=planted.pretest)
    return Found(audited(made, n_resamples=n_resamples, only=(AUDIT,), **options))


def truths(truth, pi=0.2, m=1.0, g=0.8, eta=0.4, d0=1.5) -> dict[str, float]:
    """Population values of D1; those at the common threshold are sums of normal tails."""
    positive, negative, at = np.sqrt(1 + (g - eta) ** 2), np.sqrt(1 + g * g), truth.threshold
    seen, hidden = ndtr((d0 + (g - eta) * m - at) / positive), ndtr((d0 - at) / positive)
    return {
        "auroc": truth.standard,
        "auroc_context": float(ndtr(m / np.sqrt(2))),
        "auroc_att": truth.att,
        "auroc_ipw": truth.ipw,
        "sensitivity_at_specificity": truth.sensitivity,
        "sensitivity_at_specificity_att": truth.sensitivity_att,
        "sensitivity_at_specificity_ipw": truth.sensitivity_ipw,
        "sensitivity_global_att": truth.sensitivity,
        "sensitivity_global_ipw": float(pi * seen + (1 - pi) * hidden),
        "specificity_global_att": float(ndtr((at - g * m) / negative)),
        "specificity_global_ipw": float(pi * ndtr((at - g * m) / negative) + (1 - pi) * ndtr(at / negative)),
        "pretest_calibration_slope": 1.0,
    }


@pytest.fixture(scope="module")
def clustered() -> list[tuple[Found, dict[str, float]]]:
    """99% intervals: many true values are looked for, and at 95% some would be outside by chance alone."""
    made = [context(6000, images_per_patient=(1, 6), seed=seed) for seed in (21, 22, 23, 24)]
    return [(found_in(planted, 400, level=0.99), truths(planted.truth)) for planted in made]


def test_planted_values_lie_in_their_intervals(clustered) -> None:
    missed = [
        (seed, metric)
        for seed, (found, truth) in enumerate(clustered)
        for metric, value in truth.items()
        if not found.holds(value, metric, "x", AUDIT)
    ]
    missed += [
        (seed, "drop", metric)
        for seed, (found, truth) in enumerate(clustered)
        for metric in REWEIGHTED
        if not found.holds(truth["auroc"] - truth[metric], "auroc_drop", "x", AUDIT, metric)
    ]
    assert len(missed) <= 1, missed  # of 56, at 99%


def test_drops_are_paired_differences_of_the_rows_beside_them(clustered) -> None:
    found, _ = clustered[0]
    for metric in REWEIGHTED:
        drop, full, rest = (
            found("auroc_drop", "x", AUDIT, metric),
            found("auroc", "x", AUDIT),
            found(metric, "x", AUDIT),
        )
        assert drop["value"] == pytest.approx(full["value"] - rest["value"], abs=1e-12)
        assert drop["p_value"] is None if drop["versus"] == "auroc_ipw" else drop["p_value"] < 0.05
        assert drop["ci_high"] - drop["ci_low"] < sum(row["ci_high"] - row["ci_low"] for row in (full, rest))


def test_nothing_is_found_where_the_score_ignores_context() -> None:
    clean = 0
    for seed in range(10):
        planted = context(2500, g=0.0, eta=0.0, images_per_patient=(1, 4), seed=seed)
        found = found_in(planted, 250, level=0.99)
        p_values = [row["p_value"] for row in found.rows if row["versus"] == "auroc_att" and row["finding"] != "macro"]
        assert len(p_values) == 1
        clean += min(p_values) > 0.05
    assert clean >= 9


def test_constant_context_changes_nothing() -> None:
    planted = context(600, seed=2)
    made = block("x", planted.y, planted.patient, prob=planted.prob, pretest=np.full(600, 0.2))
    found = Found(audited(made, n_resamples=50, only=(AUDIT,)))
    for metric in REWEIGHTED:
        drop = found("auroc_drop", "x", AUDIT, metric)
        assert drop["value"] == pytest.approx(0, abs=1e-12)
        assert drop["p_value"] is None if drop["versus"] == "auroc_ipw" else drop["p_value"] > 0.9
    assert found("auroc_context", "x", AUDIT)["value"] == 0.5
    assert found("brier_skill_score_att", "x", AUDIT)["value"] == pytest.approx(
        metrics.brier_skill_score(planted.y, planted.prob)
    )


def test_values_and_diagnostics_are_those_of_the_metrics() -> None:
    planted = context(900, images_per_patient=2, seed=5)
    y, p, q = planted.y, planted.prob, planted.pretest
    found = found_in(planted, 30)
    prevalence = float(y.mean())
    weights = {"att": metrics.att_weights(y, q), "ipw": metrics.ipw_weights(y, q, prevalence)}
    back = {"att": metrics.rescale_to_prevalence(y, weights["att"], prevalence), "ipw": weights["ipw"]}
    standard = metrics.sensitivity_at_specificity(y, p)
    for kind in KINDS:

        def value(metric: str, kind=kind) -> float:
            return found(f"{metric}_{kind}", "x", AUDIT)["value"]

        weight = weights[kind]
        assert value("auroc") == pytest.approx(metrics.auroc(y, p, weight), abs=1e-12)
        assert value("sensitivity_at_specificity") == pytest.approx(
            metrics.sensitivity_at_specificity(y, p, weight=weight).sensitivity, abs=1e-12
        )
        rates = metrics.rates_at(y, p, standard.threshold, weight)
        assert value("sensitivity_global") == pytest.approx(rates.tpr, abs=1e-12)
        assert value("specificity_global") == pytest.approx(1 - rates.fpr, abs=1e-12)
        assert value("adaptive_calibration_error") == pytest.approx(
            metrics.adaptive_calibration_error(y, p, back[kind]), abs=1e-12
        )
        assert value("brier_skill_score") == pytest.approx(metrics.brier_skill_score(y, p, back[kind]), abs=1e-12)
        for field, size in metrics.effective_sample_size(weight, y)._asdict().items():
            assert found(f"effective_sample_size_{kind}.{field}", "x", AUDIT)["value"] == pytest.approx(size)
        assert found(f"balance_{kind}.ks", "x", AUDIT)["value"] == pytest.approx(metrics.balance(y, q, weight).ks)
    assert found("balance.overlap", "x", AUDIT)["value"] == pytest.approx(metrics.balance(y, q).overlap)
    assert found("sensitivity_global_att", "x", AUDIT)["value"] == pytest.approx(standard.sensitivity)
    assert "of the unweighted sample, reset in each resample" in found("sensitivity_global_att", "x", AUDIT)["method"]
    assert found("specificity_global_att", "x", AUDIT)["higher_is_better"] is True
    slope = found("pretest_calibration_slope", "x", AUDIT)
    assert slope["value"] == pytest.approx(metrics.calibration_line(y, q).slope)
    assert slope["ci_low"] < 1 < slope["ci_high"]
    assert found("verdict", "x", AUDIT)["note"]


def test_the_common_threshold_comes_from_validation_where_there_is_one() -> None:
    planted = context(2400, seed=4)
    split = np.where(np.arange(2400) < 1200, "validate", "test")
    columns = {"prob": planted.prob, "pretest": planted.pretest, "split": split}
    found = Found(audited(block("x", planted.y, planted.patient, **columns), n_resamples=30, only=(AUDIT,)))
    at = metrics.sensitivity_at_specificity(planted.y[:1200], planted.prob[:1200]).threshold
    y, p, q = (values[1200:] for values in (planted.y, planted.prob, planted.pretest))
    row = found("specificity_global_att", "x", AUDIT)
    assert row["value"] == pytest.approx(1 - metrics.rates_at(y, p, at, metrics.att_weights(y, q)).fpr)
    assert f"threshold {at:.4g} from the validation rows" in row["method"]
    assert found("sensitivity_at_specificity_att", "x", AUDIT)["value"] == pytest.approx(
        metrics.sensitivity_at_specificity(y, p, weight=metrics.att_weights(y, q)).sensitivity
    )


def test_training_prevalence_sets_the_classes_of_ipw() -> None:
    planted = context(900, seed=5)
    y, p, q = planted.y, planted.prob, planted.pretest
    found = found_in(planted, 30, train_prevalence=("0.4",))
    weight = metrics.ipw_weights(y, q, 0.4)
    error = found("adaptive_calibration_error_ipw", "x", AUDIT)
    assert error["value"] == pytest.approx(metrics.adaptive_calibration_error(y, p, weight), abs=1e-12)
    assert "classes weighted to prevalence 0.4" in error["method"]
    skill = found("brier_skill_score_ipw", "x", AUDIT)
    assert skill["value"] == pytest.approx(metrics.brier_skill_score(y, p, weight, 0.4), abs=1e-12)
    assert "against the training prevalence 0.4" in skill["method"]
    assert found("auroc_ipw", "x", AUDIT)["value"] == pytest.approx(
        metrics.auroc(y, p, metrics.ipw_weights(y, q, 0.2)), abs=1e-12
    )


def test_p_values_are_raw_until_all_are_corrected_together() -> None:
    null = context(700, g=0.0, eta=0.0, seed=31)

    def made(name, y):
        return block(name, y, null.patient, prob=null.prob, pretest=null.pretest)

    blocks = made("a", null.y), made("b", null.y), made("none", np.zeros(700))
    raw = Found(audited(*blocks, n_resamples=60, only=(AUDIT,), correction="none"))
    several = Found(audited(*blocks, n_resamples=60, only=(AUDIT,)))
    row = several("auroc_drop", "a", AUDIT, "auroc_att")
    assert row["p_value"] == pytest.approx(min(1, 3 * raw("auroc_drop", "a", AUDIT, "auroc_att")["p_value"]))
    assert "corrected for 3 differences" in row["method"]
    none = several("auroc_drop", "none", AUDIT, "auroc_att")
    assert np.isnan(none["value"])
    assert none["p_value"] is None or np.isnan(none["p_value"])
    assert "no positives" in none["note"]
    macro = several("auroc_att", "macro", AUDIT)
    assert macro["note"] == "mean of 2 of 3 findings"
    assert macro["value"] == pytest.approx(several("auroc_att", "a", AUDIT)["value"])


def test_few_resamples_do_not_hide_a_large_drop() -> None:
    row = found_in(context(3000, seed=17), 20)("auroc_drop", "x", AUDIT, "auroc_att")
    assert "percentile" in row["method"]
    assert row["p_value"] < 1e-4


def test_rows_without_pretest_leave_this_audit_only() -> None:
    planted = context(900, seed=6)
    keep = np.arange(900) % 3 != 0
    found = Found(
        audited(
            block("x", planted.y, planted.patient, prob=planted.prob, pretest=np.where(keep, planted.pretest, np.nan)),
            block("bare", planted.y, planted.patient, prob=planted.prob, pretest=np.full(900, np.nan)),
            n_resamples=30,
            only=("overview", AUDIT),
        )
    )
    assert found("auroc", "x")["n"] == 900
    row = found("auroc", "x", AUDIT)
    assert row["n"] == keep.sum()
    assert row["value"] == pytest.approx(metrics.auroc(planted.y[keep], planted.prob[keep]), abs=1e-12)
    assert row["ci_low"] != found("auroc", "x")["ci_low"]
    assert "x: 300 labelled rows without pretest are excluded" in found.notes
    assert "no pretest value for bare" in found.notes


def test_scores_beyond_one_still_rank() -> None:
    planted = context(600, seed=7)
    made = block("x", planted.y, planted.patient, logit=2.8 * planted.prob, pretest=planted.pretest)
    found = Found(audited(made, n_resamples=20, only=(AUDIT,)))
    same = found_in(planted, 20)
    for metric in ("auroc_att", "sensitivity_at_specificity_ipw", "specificity_global_att"):
        assert found(metric, "x", AUDIT)["value"] == pytest.approx(same(metric, "x", AUDIT)["value"])
    assert not [row for row in found.rows if "calibration_error" in row["metric"] or "skill" in row["metric"]]


def test_doubts_are_said() -> None:
    found = found_in(context(1500, m=2.5, g=1.0, seed=12), 30)
    assert "poor overlap (ATT)" in found.notes
    assert found("verdict", "x", AUDIT)["note"].startswith("poor overlap (ATT)")

    planted = context(3000, seed=14)
    crooked = block("x", planted.y, planted.patient, prob=planted.prob, pretest=expit(2 * logit(planted.pretest)))
    assert "too much context" in Found(audited(crooked, n_resamples=60, only=(AUDIT,))).notes

    backwards = block("x", planted.y, planted.patient, prob=planted.prob, pretest=1 - planted.pretest)
    assert "does not rise with the finding" in Found(audited(backwards, n_resamples=60, only=(AUDIT,))).notes


def test_pretest_of_zero_and_one_counts_with_a_finite_weight() -> None:
    planted = context(1200, seed=18)
    q = planted.pretest.copy()
    q[::40], q[1::40] = 0.0, 1.0
    made = block("x", planted.y, planted.patient, prob=planted.prob, pretest=q)
    found = Found(audited(made, n_resamples=30, only=(AUDIT,)))
    for row in found.rows:
        assert np.isfinite(row["value"]), row["metric"]
    weight = metrics.att_weights(planted.y, np.clip(q, 0.001, 0.999))
    assert found("auroc_att", "x", AUDIT)["value"] == pytest.approx(
        metrics.auroc(planted.y, planted.prob, weight), abs=1e-12
    )


def test_the_weight_column_multiplies_the_weights() -> None:
    planted = context(700, seed=15)
    weight = np.random.default_rng(2).uniform(0.5, 2, 700)
    made = block("x", planted.y, planted.patient, prob=planted.prob, pretest=planted.pretest, weight=weight)
    found = Found(audited(made, n_resamples=20, only=(AUDIT,)))
    both = weight * metrics.att_weights(planted.y, planted.pretest)
    row = found("auroc_att", "x", AUDIT)
    assert row["value"] == pytest.approx(metrics.auroc(planted.y, planted.prob, both), abs=1e-12)
    assert row["method"].startswith("att x weight column")
    assert found("sensitivity_at_specificity_att", "x", AUDIT)["value"] == pytest.approx(
        metrics.sensitivity_at_specificity(planted.y, planted.prob, weight=both).sensitivity
    )
    prevalence = float((weight * planted.y).sum() / weight.sum())
    back = metrics.rescale_to_prevalence(planted.y, both, prevalence)
    assert found("brier_skill_score_att", "x", AUDIT)["value"] == pytest.approx(
        metrics.brier_skill_score(planted.y, planted.prob, back)
    )


def test_three_positives_are_said_to_be_few() -> None:
    rng = np.random.default_rng(1)
    y = np.r_[np.ones(3), np.zeros(300)]
    found = Found(
        audited(
            block("x", y, np.arange(303), prob=rng.random(303), pretest=rng.random(303)), n_resamples=50, only=(AUDIT,)
        )
    )
    assert "few positives (ATT): 3 images, at least 100" in found.notes
    row = found("auroc_att", "x", AUDIT)
    assert row["ci_low"] < row["value"] < row["ci_high"]


def test_the_prevalence_in_training_that_a_context_run_knows_weighs_and_does_not_refer() -> None:
    """IPW classes have the training prevalence; the reference of the Brier skill stays that of the rows."""
    made = context(1500, seed=21)
    table = block("x", made.y, made.patient, prob=made.prob, pretest=made.pretest)
    plain, asked, known = (
        Found(run_audits(table, settings(30, only=("overview", "reweighted"), **options), material=material))
        for options, material in (
            ({}, None), ({"train_prevalence": ("0.4",)}, None), ({}, Material(prevalence={"x": 0.4})),
        )
    )  # fmt: skip
    ipw = [each("adaptive_calibration_error_ipw", "x", "reweighted") for each in (plain, asked, known)]
    assert ipw[2]["value"] == ipw[1]["value"] != ipw[0]["value"]
    assert "prevalence 0.4" in ipw[2]["method"]
    skill = [each("brier_skill_score_ipw", "x", "reweighted")["method"] for each in (asked, known)]
    assert "against the training prevalence" in skill[0]
    assert "against the training prevalence" not in skill[1]
