"""Along prevalence: rows and curves as weighted rows say, limits that agree, chance, calls that are never wrong."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logit, ndtr

from cxrhf import metrics
from cxrhf.audits.imbalance import GRID, KINDS, RISK, SLICES
from tests.audits.imbalanced import Found, made_up, three, weighted_to
from tests.audits.tables import block


@pytest.fixture(scope="module")
def planted():
    return made_up()


@pytest.fixture(scope="module")
def found(planted) -> Found:
    return three(planted)


@pytest.mark.parametrize("weighted", [False, True])
def test_along_prevalence_as_weighted_rows(planted, weighted) -> None:
    y, p = planted.y.astype(float), planted.prob
    weight = np.random.default_rng(1).uniform(0.5, 2, 1500) if weighted else np.ones(1500)
    found = Found(block("x", y, planted.patient, prob=p, weight=weight), n_resamples=50)
    own = float((weight * y).sum() / weight.sum())
    threshold = metrics.max_f1_threshold(y, p, weight)
    for prevalence in SLICES:
        there, at = weighted_to(y, prevalence, weight), f"prevalence={prevalence:g}"
        rates = metrics.rates_at(y, p, threshold, there)
        corrected = metrics.correct_prevalence(p, own, prevalence)
        slow = {
            "brier": metrics.brier(y, p, there),
            "average_precision": metrics.average_precision(y, p, there),
            "precision": rates.precision,
            "npv": rates.npv,
            "net_benefit": metrics.net_benefit(y, corrected, RISK, there),
        }
        for name, value in slow.items():
            row = found(name, slice=at)
            assert row["value"] == pytest.approx(value, abs=1e-10), (name, prevalence)
            assert row["ci_low"] <= row["value"] <= row["ci_high"]
    assert f"p corrected from prevalence {own:.4g}" in found("net_benefit", slice="prevalence=0.01")["method"]


def test_curves(found, planted) -> None:
    own = float(planted.y.mean())
    for metric, kind in KINDS.items():
        curve = found.curve(kind)
        assert [row["x"] for row in curve] == sorted({*GRID, own})
        assert all(row["low"] <= row["y"] <= row["high"] for row in curve)
        by_place = {row["x"]: row for row in curve}
        row = found(metric, slice="prevalence=0.05")
        assert (by_place[0.05]["y"], by_place[0.05]["low"]) == (row["value"], row["ci_low"])
        assert by_place[own]["y"] == pytest.approx(found(metric)["value"])
        assert [row["x"] for row in found.curve(kind, "macro")] == list(GRID)
    assert not found.curve("ppv_by_prevalence", "none")
    # The closed form, from the two rows that the simulator of the page has.
    tpr, specificity = found("tpr")["value"], found("specificity")["value"]
    for row in found.curve("ppv_by_prevalence"):
        positive = row["x"] * tpr
        assert row["y"] == pytest.approx(positive / (positive + (1 - row["x"]) * (1 - specificity)))
    for row in found.curve("npv_by_prevalence"):
        negative = (1 - row["x"]) * specificity
        assert row["y"] == pytest.approx(negative / (negative + row["x"] * (1 - tpr)))


def test_limits_of_precision_agree_between_prevalences(found) -> None:
    """Log odds of precision and NPV shift by the log odds of the prevalence, and so must their limits."""
    for name, sign in (("precision", 1), ("npv", -1)):
        shifted = [
            [logit(row[each]) - sign * logit(prevalence) for each in ("value", "ci_low", "ci_high")]
            for prevalence in SLICES
            for row in [found(name, "rare", f"prevalence={prevalence:g}")]
        ]
        assert np.ptp(shifted, axis=0) == pytest.approx([0, 0, 0], abs=1e-9)


@pytest.mark.slow
def test_coverage_of_precision_and_npv() -> None:
    """20 positives among 1,000: the limits at 5% hold the truth about as often as they say."""
    threshold, shift, held = 1.5, 1.5, {"precision": 0, "npv": 0}
    tpr, fpr = ndtr(shift - threshold), ndtr(-threshold)
    truth = {"precision": 0.05 * tpr / (0.05 * tpr + 0.95 * fpr), "npv": 0.95 * (1 - fpr)}
    truth["npv"] /= truth["npv"] + 0.05 * (1 - tpr)
    y = np.r_[np.ones(20), np.zeros(980), 1.0, 0.0]
    split = np.where(np.arange(1002) < 1000, "test", "validate")  # two rows that set the threshold
    for seed in range(300):
        score = np.r_[np.random.default_rng(seed).normal(size=1000) + shift * y[:1000], threshold, threshold - 1]
        found = Found(block("x", y, np.arange(1002), logit=score, split=split), n_resamples=200, seed=seed)
        assert found("max_f1_threshold")["value"] == threshold
        for name, value in truth.items():
            row = found(name, slice="prevalence=0.05")
            held[name] += row["ci_low"] <= value <= row["ci_high"]
    assert all(count > 0.91 * 300 for count in held.values()), held


def test_training_prevalence_is_what_p_is_corrected_from(planted) -> None:
    y, p = planted.y.astype(float), planted.prob
    found = Found(block("x", y, planted.patient, prob=p), n_resamples=20, train_prevalence=("0.4",))
    slow = metrics.net_benefit(y, metrics.correct_prevalence(p, 0.4, 0.05), RISK, weighted_to(y, 0.05))
    row = found("net_benefit", slice="prevalence=0.05")
    assert row["value"] == pytest.approx(slow)
    assert "corrected from prevalence 0.4" in row["method"]
    assert found("net_benefit")["value"] == pytest.approx(metrics.net_benefit(y, p, RISK))


def test_nothing_moves_when_scores_say_nothing() -> None:
    rng = np.random.default_rng(5)
    y = (rng.random(4000) < 0.2).astype(float)
    found = Found(block("x", y, np.arange(4000), prob=rng.random(4000)), level=0.99)
    for prevalence in SLICES:  # a coin toss reaches the prevalence, whatever it is called at
        at = f"prevalence={prevalence:g}"
        for name, chance in (("precision", prevalence), ("npv", 1 - prevalence)):
            assert found(name, slice=at)["ci_low"] < chance < found(name, slice=at)["ci_high"]
        assert found("average_precision", slice=at)["value"] == pytest.approx(prevalence, rel=0.25)
    assert found("auroc")["ci_low"] < 0.5 < found("auroc")["ci_high"]


def test_when_no_call_is_wrong_the_limits_of_the_rates_speak() -> None:
    """40 positives and 400 negatives, none called falsely: a precision of 1, but not certainly at 1%."""
    y = np.r_[np.ones(40), np.zeros(400)]
    p = np.r_[np.linspace(0.6, 0.9, 40), np.linspace(0.1, 0.4, 400)]
    found = Found(block("x", y, np.arange(440), prob=p))
    row = found("precision", slice="prevalence=0.01")
    assert row["value"] == row["ci_high"] == 1
    assert row["ci_low"] < 0.6
    assert "from the limits of tpr and specificity" in row["method"]
    assert found("npv", slice="prevalence=0.5")["ci_low"] < 0.95
    nothing = np.where(np.arange(440) % 2, "validate", "test")
    unseen = Found(block("x", y, np.arange(440), prob=np.where(np.arange(440) % 2, p, p / 3), split=nothing))
    assert unseen("tpr")["value"] == 0
    reason = unseen("precision")["note"]
    assert reason.startswith("precision is undefined: no row is predicted positive at the threshold")
    assert unseen("precision", slice="prevalence=0.1")["note"] == reason
    assert unseen("npv", slice="prevalence=0.1")["value"] == pytest.approx(0.9)
