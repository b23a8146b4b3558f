"""Made-up RESULT and CURVE rows of every audit, named as the audits name them: pages without computing anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

GROUPS: Mapping[str, Sequence[str]] = {"sex": ("F", "M"), "age": ("0-39", "40-59", "60+")}
STRATA = ("pretest=bottom", "pretest=middle", "pretest=top", "mention=no", "mention=yes")
RECORD: Mapping[str, Any] = {
    "verb": "audit",
    "config": {"level": 0.95, "n_resamples": 200, "correction": "bonferroni"},
    "seed": 0,
    "inputs": [{"name": "predictions.csv", "sha256": "ab" * 32, "size": 1234}],
    "versions": {"cxrhf": "0.1.0", "numpy": "2.4.6"},
    "finished": "2026-01-02T03:04:05+00:00",
    "notes": ["net: mass: few positives: 12 patients with positive images; read the interval, not the number"],
    "reading": ["predictions.csv: wide form"],
}


class Rows:
    """Collects rows of one model; numbers come from a seed."""

    def __init__(self, model: str = "net", dataset: str | None = None, seed: int = 0) -> None:
        self.model, self.dataset = model, dataset
        self.random = np.random.default_rng(seed)
        self.rows: list[dict[str, Any]] = []
        self.curves: list[dict[str, Any]] = []

    def add(self, audit: str, metric: str, finding: str, value: float, **more: Any) -> None:
        width = more.pop("width", 0.05)
        self.rows.append(
            {
                "audit": audit, "metric": metric, "dataset": self.dataset, "model": self.model, "finding": finding,
                "slice": "all", "versus": None, "value": float(value), "ci_low": value - width,
                "ci_high": value + width, "p_value": None, "n": 1000, "n_pos": 100, "n_patients": 400,
                "method": "unweighted; 0.95 percentile, patients resampled", "seed": 0, "higher_is_better": None,
                "note": None, **more,
            }
        )  # fmt: skip

    def some(self, low: float, high: float) -> float:
        return float(self.random.uniform(low, high))

    def curve(self, finding: str, kind: str, x: Sequence[float], y: Sequence[float]) -> None:
        for a, b in zip(x, y, strict=True):
            point = {"x": float(a), "y": float(b), "low": float(b) - 0.02, "high": float(b) + 0.02}
            self.curves.append({"model": self.model, "finding": finding, "kind": kind, "slice": "all", **point})


def overview(made: Rows, finding: str) -> None:
    for metric in ("auroc", "average_precision", "prevalence", "brier", "brier_skill_score", "expected_ace", "npv",
                   "adaptive_calibration_error", "calibration_slope", "calibration_in_the_large", "precision", "j",
                   "sensitivity_at_specificity", "sensitivity_at_specificity.specificity", "f1"):  # fmt: skip
        made.add("overview", metric, finding, made.some(0.55, 0.95))
    if finding != "macro":
        made.add("overview", "verdict", finding, 80, note="enough data: 80 patients with positive images")
        grid = np.linspace(0, 1, 21)
        made.curve(finding, "roc", grid, np.sqrt(grid))
        made.curve(finding, "pr", grid, 1 - grid / 2)
        made.curve(finding, "reliability", grid[::2], grid[::2])


def context(made: Rows, finding: str) -> None:
    for part in STRATA:
        for metric in ("auroc", "sensitivity_at_specificity", "sensitivity_global", "specificity_global", "prevalence",
                       "adaptive_calibration_error", "expected_ace", "brier_skill_score", "share"):  # fmt: skip
            made.add("context", metric, finding, made.some(0.1, 0.9), slice=part)
    for first, last in (("pretest=bottom", "pretest=top"), ("mention=no", "mention=yes")):
        for metric in ("auroc", "sensitivity_at_specificity", "sensitivity_global", "ace_excess"):
            p_value = 0.01 if metric == "auroc" else 0.5
            made.add("context", metric, finding, made.some(0.1, 0.2), slice=first, versus=last, p_value=p_value)


def controlled(made: Rows, finding: str) -> None:
    overall = made.some(0.85, 0.9)
    values = {"auroc": overall, "auroc_context": 0.78, "auroc_att": overall - 0.1, "auroc_ipw": overall - 0.06}
    for metric, value in values.items():
        made.add("reweighted", metric, finding, value, width=0.02)
    made.add("reweighted", "auroc_drop", finding, 0.1, versus="auroc_att", p_value=0.002, width=0.03)
    made.add("reweighted", "auroc_drop", finding, 0.06, versus="auroc_ipw", p_value=0.2)
    made.add("matched", "auroc", finding, overall)
    made.add("matched", "matched_auroc", finding, overall - 0.09)
    made.add("matched", "auroc_drop", finding, 0.09, versus="matched_auroc", p_value=0.01)
    for way in ("att", "ipw"):
        for metric in ("sensitivity_at_specificity", "sensitivity_global", "specificity_global", "brier_skill_score"):
            made.add("reweighted", f"{metric}_{way}", finding, made.some(0.2, 0.5))
    if finding == "macro":
        return
    for name, value in (("balance", 0.9), ("balance_att", 0.02), ("balance_ipw", 0.01)):
        made.add("reweighted", f"{name}.standardised_difference", finding, value)
    made.add("reweighted", "balance.overlap", finding, 0.6)
    for way in ("att", "ipw"):
        for side, size in (("positive", 90), ("negative", 300), ("total", 390)):
            made.add("reweighted", f"effective_sample_size_{way}.{side}", finding, size)
    made.add("reweighted", "pretest_calibration_slope", finding, 1.02)
    made.add("reweighted", "verdict", finding, 0.6, note="enough overlap")
    made.add("matched", "balance_matched.standardised_difference", finding, 0.05)
    for name, value in (("n_pairs", 90), ("mean_difference", 0.01), ("same_patient_share", 0.2),
                        ("high_pretest_share", 0.3)):  # fmt: skip
        made.add("matched", f"pair_summary.{name}", finding, value)


def imbalance(made: Rows, finding: str) -> None:
    for metric in ("auroc", "average_precision", "auprc_trapezoid", "brier", "brier_positive", "brier_negative",
                   "balanced_brier", "npv", "precision", "f1", "mcc", "net_benefit"):  # fmt: skip
        made.add("imbalance", metric, finding, made.some(0.3, 0.9))
    made.add("imbalance", "prevalence", finding, 0.1)
    made.add("imbalance", "tpr", finding, 0.8)
    made.add("imbalance", "specificity", finding, 0.9)
    for part, value in (("calibration", 0.01), ("refinement", 0.06), ("discrimination", 0.03), ("uncertainty", 0.09)):
        made.add("imbalance", f"pav_decomposition.{part}", finding, value)
    for at in (0.01, 0.1, 0.5):
        for metric in ("precision", "npv", "average_precision", "brier", "net_benefit"):
            made.add("imbalance", metric, finding, made.some(0.1, 0.9), slice=f"prevalence={at:g}")
    if finding != "macro":
        made.add("imbalance", "max_f1_threshold", finding, 0.3)
        grid = np.array([0.005, 0.01, 0.05, 0.1, 0.3, 0.5])
        for kind in ("brier", "balanced_brier", "ap", "ppv", "npv", "net_benefit"):
            made.curve(finding, f"{kind}_by_prevalence", grid, np.sqrt(grid))


def subgroups(made: Rows, finding: str, groups: Mapping[str, Sequence[str]]) -> None:
    parts = [f"{kind}={name}" for kind, names in groups.items() for name in names]
    first, *others = groups
    parts += [f"{first}={one} & {other}={two}" for other in others for one in groups[first] for two in groups[other]]
    for metric in ("auroc", "tpr", "fpr", "j"):
        for end in ("", "_balanced"):
            for part in parts:
                made.add("subgroups", metric + end, finding, made.some(0.5, 0.9), slice=part)
            for kind, names in groups.items():
                high, low = f"{kind}={names[0]}", f"{kind}={names[1]}"
                p_value = 0.01 if not end else 0.8
                made.add("subgroups", metric + end, finding, 0.05, slice=high, versus=low, p_value=p_value)

    if finding != "macro":
        simple = [part for part in parts if " & " not in part]
        for metric in ("prevalence", "average_precision", "precision", "npv", "observed_minus_predicted",
                       "expected_calibration_error", "expected_ece"):  # fmt: skip
            for part in simple:
                made.add("subgroups", metric, finding, made.some(0.1, 0.9), slice=part)


def compared(made: Rows, finding: str, second: str) -> None:
    for metric in ("auroc", "average_precision", "brier", "auroc_att", "auroc_drop vs auroc_att"):
        made.add("compare", metric, finding, 0.03, versus=f"model={second}", p_value=0.01)
    for part in ("pretest=bottom", "sex=F", "sex=F & age=60+"):
        made.add("compare", "auroc", finding, 0.02, slice=part, versus=f"model={second}")


def everything(
    findings: Sequence[str] = ("edema", "mass", "pneumonia", "hernia"),
    *,
    model: str = "net",
    second: str | None = None,
    dataset: str | None = None,
    groups: Mapping[str, Sequence[str]] = GROUPS,
    seed: int = 0,
) -> Rows:
    """All audits of one model, and its comparison with a second one that is not given."""
    made = Rows(model, dataset, seed)
    for finding in [*findings, "macro"]:
        overview(made, finding)
        context(made, finding)
        controlled(made, finding)
        imbalance(made, finding)
        subgroups(made, finding, groups)
        if second is not None:
            compared(made, finding, second)
    return made


def several_runs(findings: Sequence[str] = ("edema", "mass"), seeds: Sequence[int] = (0, 1, 2)) -> Rows:
    """Three runs of one model and their mean."""
    whole = Rows("net")
    for seed in seeds:
        run = Rows(f"net (seed {seed})", seed=seed)
        for finding in [*findings, "macro"]:
            overview(run, finding)
            imbalance(run, finding)
        whole.rows += run.rows
        whole.curves += run.curves
    for finding in [*findings, "macro"]:
        for metric in ("auroc", "average_precision", "brier"):
            how = {"ci_low": None, "ci_high": None, "method": f"mean of {len(seeds)} runs"}
            whole.add("imbalance", metric, finding, 0.8, **how)
            whole.add("imbalance", f"{metric}.sd", finding, 0.0125, **how)
        if finding != "macro":
            grid = np.linspace(0, 1, 11)
            whole.curve(finding, "roc_mean", grid, np.sqrt(grid))
            whole.curve(finding, "pr_mean", grid, 1 - grid / 2)
    return whole
