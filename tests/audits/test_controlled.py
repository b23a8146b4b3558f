"""What the matched and the reweighted audit share: the noise of a weighted calibration error, seeds, odd samples."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import norm

from cxrhf import metrics
from cxrhf.audits.controlled import KINDS, calibration_noise
from cxrhf.twin.planted import context
from tests.audits.tables import Found, audited, block

AUDIT = "reweighted"


def calibrated_when_weighted(planted, kind: str, pi=0.2, m=1.0, g=0.8, eta=0.4, d0=1.5) -> np.ndarray:
    """P(Y=1 | score) in the weighted population of D1."""
    s, positive, negative = planted.score, np.sqrt(1 + (g - eta) ** 2), np.sqrt(1 + g * g)
    shares = {"att": (0.0, 1.0), "ipw": (1 - pi, pi)}[kind]
    one = sum(share * norm.pdf(s, d0 + (g - eta) * m * k, positive) for k, share in enumerate(shares))
    zero = sum(share * norm.pdf(s, g * m * k, negative) for k, share in enumerate(shares))
    return np.asarray(pi * one / (pi * one + (1 - pi) * zero))


@pytest.mark.parametrize("kind", KINDS)
def test_calibration_error_of_a_model_calibrated_for_the_weighted_population_is_noise(kind) -> None:
    errors, noise = [], []
    for seed in range(30):
        planted = context(2500, images_per_patient=(1, 4), seed=seed)
        y, p = planted.y, calibrated_when_weighted(planted, kind)
        weight = metrics.ipw_weights(y, planted.pretest, 0.2)
        if kind == "att":
            weight = metrics.rescale_to_prevalence(y, metrics.att_weights(y, planted.pretest), 0.2)
        errors.append(metrics.adaptive_calibration_error(y, p, weight))
        noise.append(calibration_noise(y.astype(float), p, weight, planted.patient))
    assert 0.85 < np.mean(noise) / np.mean(errors) < 1.15


def test_calibration_noise_does_not_depend_on_row_order_and_needs_rows() -> None:
    rng = np.random.default_rng(0)
    y, p, weight, patient = (
        rng.integers(0, 2, 300) * 1.0,
        rng.integers(0, 9, 300) / 8,
        rng.random(300),
        rng.permutation(300),
    )
    order = rng.permutation(300)
    again = calibration_noise(y[order], p[order], weight[order], patient[order])
    assert again == pytest.approx(calibration_noise(y, p, weight, patient), rel=1e-9)
    assert np.isnan(calibration_noise(y, p, 0 * weight, patient))


def test_no_pretest_is_said_not_guessed() -> None:
    planted = context(300, seed=1)
    output = audited(block("x", planted.y, planted.patient, prob=planted.prob), n_resamples=20, only=(AUDIT, "matched"))
    said = [note for note in output.notes if "no pretest column" in note]
    assert len(said) == 1
    assert "--pretest COLUMN" in said[0]
    assert output.results.num_rows == 0


def test_numbers_are_the_same_alone_or_after_the_overview() -> None:
    planted = context(800, images_per_patient=(1, 3), seed=9)
    made = block("x", planted.y, planted.patient, prob=planted.prob, pretest=planted.pretest)
    numbers = [
        [(row["metric"], row["versus"], row["value"], row["ci_low"], row["ci_high"]) for row in found.rows]
        for found in (
            Found(audited(made, n_resamples=60, only=(AUDIT,))),
            Found(audited(made, n_resamples=60, only=("overview", "matched", AUDIT))),
        )
    ]
    numbers[1] = numbers[1][-len(numbers[0]) :]
    assert repr(numbers[0]) == repr(numbers[1])


def test_the_seed_not_workers_or_row_order_decides() -> None:
    planted = context(900, images_per_patient=(1, 3), seed=3)
    made = block("x", planted.y, planted.patient, prob=planted.prob, pretest=np.round(planted.pretest, 2))
    shuffled = made.take(pa.array(np.random.default_rng(0).permutation(900)))
    first = audited(made, n_resamples=130, workers=1, only=(AUDIT, "matched"))
    second = audited(shuffled, n_resamples=130, workers=2, only=(AUDIT, "matched"))
    assert first.results.equals(second.results)
    assert first.notes == second.notes


@pytest.mark.parametrize(
    ("y", "p", "patient"),
    [
        ([0] * 6, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], range(6)),
        ([0, 1, 1, 0, 1, 0], [0.5] * 6, range(6)),
        ([0, 1, 1, 0, 1, 0], [0.1, 0.4, 0.3, 0.8, 0.2, 0.2], [7] * 6),
        ([0, 1, 1, 0, 1, 0], [0.0, 1.0, 1.0, 0.0, 0.0, 1.0], range(6)),
        ([1], [0.3], [0]),
    ],
    ids=["one class", "all tied", "one patient", "zeros and ones", "one row"],
)
def test_odd_samples_give_rows_with_reasons(y, p, patient) -> None:
    q = np.linspace(0, 1, len(y))
    found = Found(audited(block("x", y, patient, prob=p, pretest=q), n_resamples=20, only=("matched", AUDIT)))
    for row in found.rows:
        assert row["note"] or np.isfinite(row["value"]), row["metric"]
    for audit in ("matched", AUDIT):
        value = found("auroc", "x", audit)["value"]
        assert np.isnan(value) if len(set(y)) == 1 else value == pytest.approx(metrics.auroc(y, p))
        if len(set(y)) == 1:
            assert found("verdict", "x", audit)["note"] == "undefined: a class is missing"


def test_a_validation_split_with_scores_of_another_kind_gives_no_threshold() -> None:
    planted = context(800, seed=3)
    test = np.arange(800) % 2 == 0
    split = np.where(test, "test", "validate")
    made = {"pretest": planted.pretest, "split": split, "sex": np.where(planted.context > 0, "F", "M")}
    mixed = {"prob": np.where(test, planted.prob, np.nan), "logit": np.where(test, np.nan, planted.score)}
    found = Found(audited(block("x", planted.y, planted.patient, **mixed, **made), n_resamples=20))
    assert found("sensitivity_global_att", "x", AUDIT)["value"] > 0.05
    assert "of the unweighted sample" in found("sensitivity_global_att", "x", AUDIT)["method"]
    (everybody,) = [
        row
        for row in found.rows
        if (row["audit"], row["metric"], row["slice"], row["finding"]) == ("subgroups", "fpr", "all", "x")
    ]
    assert everybody["value"] == pytest.approx(0.2, abs=0.01)
