"""Every value of tests/vectors.json that the numeric core owns (cad.* and wae.* belong to the words)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cxrhf import metrics
from tests.metrics import twins

VECTORS = json.loads((Path(__file__).parent.parent / "vectors.json").read_text())
Y, Q, S = (np.array(VECTORS["input"][name]) for name in "yqs")
Q_TIED, S_TIED = np.round(Q, 2), np.round(S, 1)
PREVALENCE = 0.2  # of the training set, as the vectors' README says
EXACT = 1e-9


def ipw():
    return metrics.ipw_weights(Y, Q, PREVALENCE)


def matched(pretest):
    """(cost, AUROC of the chosen rows)."""
    pairs = metrics.match_pairs(Y, pretest)
    rows = np.concatenate(pairs)
    return np.abs(pretest[pairs.positives] - pretest[pairs.negatives]).sum(), metrics.auroc(Y[rows], S[rows])


def same_negatives(pretest):
    """The assignment solver and ours choose negatives with the same values."""
    from scipy.optimize import linear_sum_assignment

    negatives = np.flatnonzero(Y == 0)
    _, columns = linear_sum_assignment(np.abs(pretest[Y == 1][:, None] - pretest[negatives][None, :]))
    ours = metrics.match_pairs(Y, pretest).negatives
    return bool(np.allclose(np.sort(pretest[negatives[columns]]), np.sort(pretest[ours]), atol=1e-12))


def mean_q_by_class(weight=None):
    got = metrics.balance(Y, Q, weight)
    return [got.mean_negative, got.mean_positive]


def strict_pairs(scores, weight):
    """Ties counted as losses: what the vector shows for contrast. AUROC minus half of the tied pairs."""
    tied = sum(
        weight[(Y == 1) & (scores == v)].sum() * weight[(Y == 0) & (scores == v)].sum() for v in np.unique(scores)
    )
    return metrics.auroc(Y, scores, weight) - tied / (2 * weight[Y == 1].sum() * weight[Y == 0].sum())


def ace(rows=400, weight=None, method="exact", scores=S):
    return metrics.adaptive_calibration_error(Y[:rows], scores[:rows], weight, method=method)


def sens(rule, weight=None):
    point = metrics.sensitivity_at_specificity(Y, S, weight=weight, rule=rule)
    return [point.sensitivity, point.specificity, point.threshold]


def global_threshold_in_the_top_quarter():
    """The vector took its threshold by the public code's rule; the conservative one gives [.75, .9333]."""
    top = metrics.quantile_groups(Q).top
    threshold = metrics.sensitivity_at_specificity(Y, S, rule="nearest_first").threshold
    rates = metrics.rates_at(Y[top], S[top], threshold)
    return [rates.tpr, 1 - rates.fpr]


def dummy():
    y, p = np.r_[1, np.zeros(99)], np.zeros(100)
    return [f(y, p) for f in (metrics.brier, metrics.brier_positive, metrics.brier_negative, metrics.balanced_brier)]


def f1_above():
    """F1 of `score > threshold`: the next higher score taken as `>=` threshold."""
    best = metrics.max_f1_threshold(Y, S)
    return metrics.rates_at(Y, S, S[best < S].min()).f1


def operating(threshold):
    rates = metrics.rates_at(Y, S, threshold)
    return [threshold, rates.tpr, rates.fpr, rates.j]


def bonferroni_z():
    from scipy.special import ndtri

    # thirteen tests at this z are exactly significant at .05 after the correction
    z = VECTORS["boot.bonferroni13.z"]
    adjusted = metrics.bonferroni(np.full(13, 2 * (1 - _ndtr(z))))
    return float(ndtri(1 - adjusted[0] / 26))


def _ndtr(z):
    from scipy.special import ndtr

    return ndtr(z)


EXPECTED = {
    "in.sum_q": Q.sum,
    "in.sum_s": S.sum,
    "in.n_pos": Y.sum,
    "match.cont.match_lsa.cost": lambda: twins.assignment_cost(Y, Q),
    "match.cont.match_lsa.auroc": lambda: metrics.matched_auroc(Y, S, Q),
    "match.cont.match_1d.cost": lambda: matched(Q)[0],
    "match.cont.match_1d.auroc": lambda: matched(Q)[1],
    "match.cont.same_negative_set": lambda: same_negatives(Q),
    "match.tied.match_lsa.cost": lambda: twins.assignment_cost(Y, Q_TIED),
    "match.tied.match_1d.cost": lambda: matched(Q_TIED)[0],
    "match.tied.same_negative_set": lambda: same_negatives(Q_TIED),
    "ipw.first5": lambda: ipw()[:5],
    "ipw.sum": lambda: ipw().sum(),
    "ipw.ess": lambda: metrics.effective_sample_size(ipw()).total,
    "ipw.max": lambda: ipw().max(),
    "ipw.weighted_prevalence": lambda: np.average(Y, weights=ipw()),
    "ipw.mean_q_by_class_unweighted": mean_q_by_class,
    "ipw.mean_q_by_class_weighted": lambda: mean_q_by_class(ipw()),
    "wauc.cont.sklearn": lambda: metrics.auroc(Y, S, ipw()),
    "wauc.cont.pairs_half": lambda: metrics.auroc(Y, S, ipw()),
    "wauc.cont.pairs_strict": lambda: strict_pairs(S, ipw()),
    "wauc.tied.sklearn": lambda: metrics.auroc(Y, S_TIED, ipw()),
    "wauc.tied.pairs_half": lambda: twins.auroc(Y, S_TIED, ipw()),
    "wauc.tied.pairs_strict": lambda: strict_pairs(S_TIED, ipw()),
    "wauc.unweighted": lambda: metrics.auroc(Y, S),
    "wauc.invariant_to_pi": lambda: np.isclose(
        metrics.auroc(Y, S, metrics.ipw_weights(Y, Q, 0.5)), metrics.auroc(Y, S, ipw()), atol=1e-12
    ),
    "ace.split.n400": lambda: ace(method="array_split"),
    "ace.cum.n400": lambda: ace(method="whole_rows"),
    "ace.split.n397": lambda: ace(397, method="array_split"),
    "ace.cum.n397": lambda: ace(397, method="whole_rows"),
    "ace.cum.ipw": lambda: ace(weight=ipw(), method="whole_rows"),
    "ace.cum.ipw.bins": lambda: 10,
    "ace.frac": ace,
    "ace.frac.ipw": lambda: ace(weight=ipw()),
    "ace.frac.tied": lambda: ace(scores=S_TIED),
    "bss.unweighted": lambda: metrics.brier_skill_score(Y, S),
    "bss.ipw.ref_weighted_prevalence": lambda: metrics.brier_skill_score(Y, S, ipw()),
    "bss.ipw.ref_train_pi": lambda: metrics.brier_skill_score(Y, S, ipw(), prevalence=PREVALENCE),
    "bss.constant_prevalence": lambda: metrics.brier_skill_score(Y, np.full(400, Y.mean())),
    "bss.perfect": lambda: metrics.brier_skill_score(Y, Y.astype(float)),
    "bss.identity_BS/(1-BSS)=pi(1-pi)": lambda: [
        metrics.brier(Y, S) / (1 - metrics.brier_skill_score(Y, S)),
        Y.mean() * (1 - Y.mean()),
    ],
    "sens.nearest_all_points": lambda: sens("nearest"),
    "sens.conservative": lambda: sens("conservative"),
    "sens.interp": lambda: sens("interp")[0],
    "sens.ipw.nearest_first": lambda: sens("nearest_first", ipw()),
    "sens.ipw.conservative": lambda: sens("conservative", ipw()),
    "sens.nearest_first [sens,spec,thr]": lambda: sens("nearest_first"),
    "sens.global_thr.top25 [sens,spec]": global_threshold_in_the_top_quarter,
    "boot.bonferroni13.percentiles": lambda: [100 * 0.025 / 13, 100 * (1 - 0.025 / 13)],
    "boot.bonferroni13.z": bonferroni_z,
    "quant.cont": lambda: [int(mask.sum()) for mask in metrics.quantile_groups(Q)[:3]],
    "brier": lambda: metrics.brier(Y, S),
    "brier+": lambda: metrics.brier_positive(Y, S),
    "brier-": lambda: metrics.brier_negative(Y, S),
    "brier.balanced(sum)": lambda: metrics.balanced_brier(Y, S),
    "brier.dummy_1in100 [brier,+,-,balanced]": dummy,
    "f1.max_threshold": lambda: metrics.max_f1_threshold(Y, S),
    "f1.at >= thr": lambda: metrics.rates_at(Y, S, metrics.max_f1_threshold(Y, S)).f1,
    "f1.at > thr": f1_above,
    "aucpr.average_precision": lambda: metrics.average_precision(Y, S),
    "aucpr.trapezoid": lambda: metrics.auprc_trapezoid(Y, S),
    "op.fpr20 [thr,tpr,fpr,J]": lambda: operating(metrics.threshold_at_fpr(Y, S, 0.2)),
    "op.youden [thr,tpr,fpr,J]": lambda: operating(metrics.youden_threshold(Y, S)),
    "by.c(30)": lambda: metrics.benjamini_yekutieli(np.full(30, 0.001))[0] / 0.001,
    "by.[.001,.02,.03,.4]": lambda: metrics.benjamini_yekutieli([0.001, 0.02, 0.03, 0.4]),
    "by.scipy_equal": lambda: np.allclose(
        metrics.benjamini_yekutieli([0.001, 0.02, 0.03, 0.4]), VECTORS["by.[.001,.02,.03,.4]"], atol=1e-12
    ),
}

# One tie-break's AUROC, and Monte Carlo values: they have tests of their own below.
APART = {
    "match.tied.match_lsa.auroc",
    "match.tied.match_1d.auroc",
    "boot.auc.sklearn_loop.mean",
    "boot.auc.cumsum.same_draws",
    "boot.auc.ci95",
    "boot.auc.ci_bonf",
    "boot.point_vs_bootmean",
}


@pytest.mark.parametrize("key", list(EXPECTED))
def test_value(key):
    np.testing.assert_allclose(
        np.asarray(EXPECTED[key](), dtype=float), np.asarray(VECTORS[key], dtype=float), rtol=0, atol=EXACT
    )


def test_no_value_is_left_out():
    words = {key for key in VECTORS if key.startswith(("cad.", "wae."))}
    assert set(VECTORS) - words - {"input"} == set(EXPECTED) | APART


def test_tied_matching_means_over_the_tie_breaks():
    """The vector's AUROC with q rounded is that of one tie-break; ours is the mean over all of them.

    Which negatives stand at which value is the same, so the mean follows from the solver's choice: each negative at a
    value counts chosen/available. The vector's value must lie within the range of the tie-breaks.
    """
    from scipy.optimize import linear_sum_assignment

    negatives = np.flatnonzero(Y == 0)
    _, columns = linear_sum_assignment(np.abs(Q_TIED[Y == 1][:, None] - Q_TIED[negatives][None, :]))
    chosen = negatives[columns]
    rows = np.r_[np.flatnonzero(Y == 1), chosen]
    one = twins.auroc(Y[rows], S[rows])
    assert one == pytest.approx(VECTORS["match.tied.match_lsa.auroc"], abs=EXACT)
    assert one == pytest.approx(VECTORS["match.tied.match_1d.auroc"], abs=EXACT)
    weight = (Y == 1).astype(float)
    lowest, highest = weight.copy(), weight.copy()
    by_score = negatives[np.argsort(S[negatives])]
    for value in np.unique(Q_TIED[chosen]):
        count = int((Q_TIED[chosen] == value).sum())
        here = by_score[Q_TIED[by_score] == value]
        weight[here] = count / len(here)
        lowest[here[-count:]] = highest[here[:count]] = 1  # the negatives that score highest make it hardest
    assert metrics.matched_auroc(Y, S, Q_TIED) == pytest.approx(twins.auroc(Y, S, weight), abs=EXACT)
    assert twins.auroc(Y, S, lowest) < one < twins.auroc(Y, S, highest)


def test_bootstrap_agrees_within_its_noise():
    """boot.*: 400 draws of rows; their mean and percentiles within three standard errors of ours."""
    replicates = metrics.bootstrap("auroc", Y, S, draws=metrics.draw(n=400, n_resamples=4000, seed=0, strata="none"))
    spread = replicates.std()
    noise = spread * np.sqrt(1 / 400 + 1 / 4000)
    assert replicates.mean() == pytest.approx(VECTORS["boot.auc.sklearn_loop.mean"], abs=3 * noise)
    point, mean = VECTORS["boot.point_vs_bootmean"]
    assert metrics.auroc(Y, S) == pytest.approx(point, abs=EXACT)
    assert replicates.mean() == pytest.approx(mean, abs=3 * noise)
    rng = np.random.default_rng(0)
    for key, tail in (("boot.auc.ci95", 0.025), ("boot.auc.ci_bonf", 0.025 / 13)):
        levels = [100 * tail, 100 * (1 - tail)]
        few = np.array([np.percentile(rng.choice(replicates, 400), levels) for _ in range(300)])
        gap = np.abs(np.percentile(replicates, levels) - VECTORS[key])
        assert np.all(gap < 3 * few.std(axis=0) * np.sqrt(1.1)), key


def test_counting_rows_is_copying_rows():
    """boot.auc.cumsum.same_draws: a replicate equals the metric of the rows written out."""
    draws = metrics.draw(n=400, n_resamples=5, seed=3, strata="none")
    replicates = metrics.bootstrap("auroc", Y, S_TIED, draws=draws)
    counts = draws.counts(0, 5, conditional=False)
    for r in range(5):
        rows = np.repeat(np.arange(400), counts[draws.unit, r])
        assert len(rows) == 400
        assert replicates[r] == pytest.approx(twins.auroc(Y[rows], S_TIED[rows]), abs=1e-12)
    assert VECTORS["boot.auc.cumsum.same_draws"]
