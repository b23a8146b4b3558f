"""D1, scores that lean on the chart by a known amount -> what the audits of context make of it, and of none."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from cxrhf.data.planted_context import PlantedContext, context
from cxrhf.selfchecking.check import Check, Rows, near, seen, unseen, wide
from cxrhf.selfchecking.spread import auroc_error, auroc_parts, error, rate_error, share_error

N = 8000
AUDITS = "overview,context,matched,reweighted"
STRATA = ("bottom", "middle", "top")
G, ETA, D0 = 0.8, 0.4, 1.5  # of D1: the chart in the score, what the picture shows less, what it shows


def check(seed: int = 0) -> list[Check]:
    """Two findings of the same patients: one whose score leans on the chart, one whose score does not."""
    import cxrhf

    leaning = context(N, g=G, eta=ETA, d0=D0, seed=seed)
    blind = context(N, g=0.0, eta=0.0, d0=D0, seed=seed + 1)
    table = {
        "image_id": np.tile(np.arange(N), 2),
        "patient_id": np.tile(np.arange(N), 2),
        "finding": np.repeat(["edema", "fracture"], N),
        "label": np.r_[leaning.y, blind.y],
        "prob": np.r_[leaning.prob, blind.prob],
        "pretest": np.r_[leaning.pretest, blind.pretest],
    }
    found = Rows(cxrhf.audit(table, only=AUDITS, n_resamples=400, seed=seed).results.to_pylist())
    return [*of_leaning(found, leaning), *of_blind(found, blind)]


def of_leaning(found: Rows, made: PlantedContext) -> list[Check]:
    """Every number of D1 that has a closed form."""
    truth, y, score = made.truth, made.y, made.score
    own = {"finding": "edema"}
    weighted = {**own, "audit": "reweighted"}
    odds = made.pretest / (1 - made.pretest)
    att = np.where(y == 1, 1.0, odds)
    share = truth.prevalence
    ipw = np.where(y == 1, share / made.pretest, (1 - share) / (1 - made.pretest))
    full, held = auroc_error(y, score), auroc_error(y, score, att)
    dropped = error(auroc_parts(y, score) - auroc_parts(y, score, att))
    positives, negatives = int(y.sum()), int((1 - y).sum())
    drop = found("auroc_drop", versus="auroc_att", **weighted)
    checks = [
        near("AUROC", truth.standard, found.value("auroc", audit="overview", **own), full),
        wide("AUROC: width of its interval", found("auroc", audit="overview", **own), full),
        near("AUROC, context held equal (ATT)", truth.att, found.value("auroc_att", **weighted), held),
        near("drop when context is held equal", truth.standard - truth.att, float(drop["value"]), dropped),
        wide("drop: width of its interval", drop, dropped),
        seen("drop: exceeds chance", drop),
        near("AUROC, context of all patients (IPW)", truth.ipw, found.value("auroc_ipw", **weighted),
             auroc_error(y, score, ipw)),
        # No AUROC can vary more than this (Birnbaum and Klose); as many negatives as positives are matched.
        near("AUROC of matched pairs", truth.matched, found.value("matched_auroc", audit="matched", **own),
             share_error(truth.matched, positives)),
        near("sensitivity at 95% specificity", truth.sensitivity,
             found.value("sensitivity_at_specificity", audit="overview", **own),
             rate_error(truth.sensitivity, positives, 0.05, negatives, _slope(truth.threshold))),
    ]  # fmt: skip
    order = np.argsort(np.argsort(made.pretest)) / len(y)
    for name, low, high, area in zip(STRATA, (0, 0.25, 0.75), (0.25, 0.75, 1), truth.strata, strict=True):
        rows = (order >= low) & (order < high)
        value = found.value("auroc", audit="context", slice=f"pretest={name}", **own)
        checks.append(
            near(f"AUROC, {name} stratum of pre-test probability", area, value, auroc_error(y[rows], score[rows]))
        )
    apart = found("auroc", audit="context", slice="pretest=bottom", versus="pretest=top", **own)
    return [*checks, seen("bottom and top strata differ", apart)]


def of_blind(found: Rows, made: PlantedContext) -> list[Check]:
    """A score that ignores the chart: holding it equal changes nothing."""
    own = {"finding": "fracture"}
    weight = np.where(made.y == 1, 1.0, made.pretest / (1 - made.pretest))
    value = found.value("auroc_att", audit="reweighted", **own)
    return [
        near("no context: AUROC, context held equal", made.truth.att, value, auroc_error(made.y, made.score, weight)),
        unseen("no context: drop (ATT)", found("auroc_drop", audit="reweighted", versus="auroc_att", **own)),
        unseen("no context: drop (matched)", found("auroc_drop", audit="matched", versus="matched_auroc", **own)),
        unseen("no context: bottom against top stratum",
               found("auroc", audit="context", slice="pretest=bottom", versus="pretest=top", **own)),
    ]  # fmt: skip


def _slope(threshold: float) -> float:
    """The density of positives over that of negatives at the threshold: both are normal."""
    spread_neg, spread_pos, mean = np.sqrt(1 + G * G), np.sqrt(1 + (G - ETA) ** 2), D0 + (G - ETA)
    negative = np.exp(-(ndtri(0.95) ** 2) / 2) / spread_neg
    positive = np.exp(-(((threshold - mean) / spread_pos) ** 2) / 2) / spread_pos
    return float(positive / negative)
