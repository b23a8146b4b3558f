"""One rule says whether context can be held equal, in the overview's verdict and in that of the reweighted audit."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf.twin.planted import context
from tests.audits.tables import Found, audited, block

AUDIT = "reweighted"


def verdict_of(y, pretest=None, patient=None) -> str:
    n = len(y)
    p = np.random.default_rng(0).random(n)
    columns = {"prob": p} if pretest is None else {"prob": p, "pretest": pretest}
    made = block("x", y, np.arange(n) if patient is None else patient, **columns)
    return Found(audited(made, n_resamples=20, only=("overview",)))("verdict", "x")["note"]


def test_verdicts_name_what_is_scarce() -> None:
    """Patients count, not images; poor overlap is said only where context is known and the rest would do."""
    many, few = np.arange(400) % 2, (np.arange(400) < 5).astype(int)
    assert verdict_of(many) == "enough data: 200 patients with positive images"
    assert verdict_of(few).startswith("too few positives: 5 patients with positive images; do not quote")
    assert verdict_of(1 - few).startswith("too few negatives: 5 patients with negative images")
    assert verdict_of((np.arange(400) < 30).astype(int)).startswith("few positives: 30 patients")
    assert verdict_of(many, patient=np.arange(400) // 100).startswith("too few positives: 4 patients")
    known = context(1500, seed=2)
    apart = context(1500, m=2.5, seed=12)
    assert verdict_of(known.y, known.pretest).startswith("enough data")
    poor = verdict_of(apart.y, apart.pretest)
    assert poor.startswith("poor overlap (ATT): ")
    assert "context held equal" in poor
    assert verdict_of(few, np.where(few == 1, 0.9, 0.1)).startswith("too few positives")
    assert verdict_of(many, np.where(many == 1, 0.9, 0.1)).startswith("poor overlap: ")
    assert verdict_of(many, np.full(400, np.nan)).startswith("enough data")


def test_the_verdict_on_overlap_is_that_of_the_reweighted_audit() -> None:
    for seed, m in ((12, 2.5), (13, 1.0), (14, 1.6)):
        planted = context(1500, m=m, seed=seed)
        made = block("x", planted.y, planted.patient, prob=planted.prob, pretest=planted.pretest)
        found = Found(audited(made, n_resamples=20, only=("overview", "reweighted")))
        poor = "poor overlap" in found.notes
        assert found("verdict", "x")["note"].startswith("poor overlap") == poor


def test_classes_without_common_ground_are_seen_though_no_weight_is_large() -> None:
    planted = context(800, seed=3)
    made = block("x", planted.y, planted.patient, prob=planted.prob, pretest=np.where(planted.y == 1, 0.9, 0.1))
    found = Found(audited(made, n_resamples=20, only=(AUDIT,)))
    assert found("effective_sample_size_att.negative", "x", AUDIT)["value"] == pytest.approx((planted.y == 0).sum())
    assert found("verdict", "x", AUDIT)["note"].startswith("poor overlap: the pre-test probabilities")
