"""Paired comparison of two models: equal ones do not differ, a worse one does, common ground is found and said."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from cxrhf.audits.plan import run_audits
from cxrhf.metrics import auroc, bootstrap, draw
from cxrhf.twin.planted import context
from tests.audits.tables import block, settings

ONLY = ("overview", "compare")


def compared(*blocks: pa.Table, only: tuple[str, ...] = ONLY, n_resamples: int = 200, **options: object):
    config = settings(n_resamples, only=only, **options)
    output = run_audits(pa.concat_tables(blocks), config)
    rows = [row for row in output.results.to_pylist() if row["audit"] == "compare"]
    return {(row["metric"], row["finding"], row["slice"]): row for row in rows}, output


@pytest.fixture(scope="module")
def planted():
    return context(2000, images_per_patient=(1, 4), seed=3)


def test_a_noisier_model_is_worse_and_the_difference_is_paired(planted) -> None:
    noisy = planted.score + 2 * np.random.default_rng(0).standard_normal(len(planted.y))
    found, _ = compared(
        block("edema", planted.y, planted.patient, model="good", logit=planted.score),
        block("edema", planted.y, planted.patient, model="noisy", logit=noisy),
    )
    row = found["auroc", "edema", "all"]
    assert row["model"] == "good"
    assert row["versus"] == "model=noisy"
    truth = auroc(planted.y, planted.score) - auroc(planted.y, noisy)
    assert row["value"] == pytest.approx(truth)
    assert row["ci_low"] > 0
    assert row["p_value"] < 0.05
    # Slow twin: the same draws, one model after the other.
    draws = draw(planted.patient, y=planted.y, n_resamples=200, seed=0)
    both = [bootstrap("auroc", planted.y, each, draws=draws) for each in (planted.score, noisy)]
    low, high = np.quantile(both[0] - both[1], [0.025, 0.975])
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((low, high), abs=0.02)


def test_equal_models_do_not_differ() -> None:
    planted = context(500, images_per_patient=(1, 4), seed=3)  # every audit runs; a difference of 0 needs few patients
    found, output = compared(
        block("edema", planted.y, planted.patient, model="a", prob=planted.prob, pretest=planted.pretest),
        block("edema", planted.y, planted.patient, model="b", prob=planted.prob, pretest=planted.pretest),
        only=(),
        n_resamples=50,
    )
    assert found
    assert all(row["value"] == 0 for row in found.values())
    assert not any((row["p_value"] or 1) < 0.05 for row in found.values())
    assert {"auroc", "auroc_drop vs auroc_att", "matched_auroc"} <= {key[0] for key in found}
    assert "a against b" not in "\n".join(output.notes)


def test_models_with_other_images_meet_on_common_ground(planted) -> None:
    n = len(planted.y)
    first = block("edema", planted.y, planted.patient, model="a", logit=planted.score)
    second = block("edema", planted.y, planted.patient, model="b", logit=-planted.score).slice(500)
    found, output = compared(first, second)
    row = found["auroc", "edema", "all"]
    at = slice(500, n)
    assert row["n"] == n - 500
    assert row["value"] == pytest.approx(2 * auroc(planted.y[at], planted.score[at]) - 1)
    assert f"compared on the {n - 500:,} images" in "\n".join(output.notes)


def test_labels_that_differ_are_left_out_and_said(planted) -> None:
    other = planted.y.copy()
    other[:10] = 1 - other[:10]
    found, output = compared(
        block("edema", planted.y, planted.patient, model="a", logit=planted.score),
        block("edema", other, planted.patient, model="b", logit=planted.score),
    )
    assert found["auroc", "edema", "all"]["value"] == 0
    assert "10 labels differ" in "\n".join(output.notes)


def test_nothing_in_common_is_said(planted) -> None:
    first = block("edema", planted.y, planted.patient, model="a", logit=planted.score)
    second = block("pneumonia", planted.y, planted.patient, model="b", logit=planted.score)
    found, output = compared(first, second)
    assert not found
    assert "no finding in common" in "\n".join(output.notes)


def test_one_model_alone_is_said(planted) -> None:
    found, output = compared(block("edema", planted.y, planted.patient, logit=planted.score), only=("compare",))
    assert not found
    assert "nothing to compare" in "\n".join(output.notes)


def test_the_baseline_can_be_chosen(planted) -> None:
    blocks = [
        block("edema", planted.y, planted.patient, model=name, logit=sign * planted.score)
        for name, sign in (("a", 1), ("b", -1))
    ]
    found, _ = compared(*blocks, baseline="b")
    assert found["auroc", "edema", "all"]["model"] == "b"
    assert found["auroc", "edema", "all"]["value"] < 0


def test_numbers_with_context_are_of_the_same_cases(planted) -> None:
    known = np.random.default_rng(1).random(len(planted.y)) < 0.7
    gaps = np.where(known, planted.pretest, np.nan)
    first = block("edema", planted.y, planted.patient, model="a", prob=planted.prob, pretest=gaps)
    second = block("edema", planted.y, planted.patient, model="b", prob=planted.prob, pretest=planted.pretest)
    found, output = compared(first, second, only=("context", "matched", "reweighted", "compare"))
    assert {"auroc_att", "matched_auroc", "auroc_drop vs auroc_att"} <= {key[0] for key in found}
    assert all(row["value"] == 0 for row in found.values())
    assert found["auroc_att", "edema", "all"]["n"] == known.sum()
    said = "\n".join(output.notes)
    assert "a against b: they differ in pre-test probabilities" in said
    assert "compared on the" not in said


def test_groups_are_those_of_the_first(planted) -> None:
    sex = np.where(np.arange(len(planted.y)) % 2, "F", "M")
    blocks = [
        block("edema", planted.y, planted.patient, model=name, logit=planted.score, sex=each)
        for name, each in (("a", sex), ("b", sex[::-1]))
    ]
    found, output = compared(*blocks, only=("subgroups", "compare"))
    assert found["auroc", "edema", "sex=F"]["value"] == 0
    assert "differ in sex" in "\n".join(output.notes)


def test_a_rate_says_whose_threshold_it_has(planted) -> None:
    blocks = [block("edema", planted.y, planted.patient, model=name, prob=planted.prob, sex="F") for name in ("a", "b")]
    found, _ = compared(*blocks, only=("imbalance", "compare"))
    assert found["tpr", "edema", "all"]["method"].endswith("from the audit imbalance")


def test_means_over_other_findings_are_not_compared(planted) -> None:
    """Each model has probabilities of another finding: a Brier score each, but none of the same findings."""
    blocks = [
        block(finding, planted.y, planted.patient, model=model, **{kind: planted.prob * (1 if kind == "prob" else 9)})
        for model, kinds in (("a", ("prob", "logit")), ("b", ("logit", "prob")))
        for finding, kind in zip(("edema", "mass"), kinds, strict=True)
    ]
    found, _ = compared(*blocks)
    assert ("auroc", "macro", "all") in found
    assert ("brier", "macro", "all") not in found
