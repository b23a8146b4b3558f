"""PREDICTION rows of context models and what was chosen -> RESULT and CURVE rows of the audit "pretest".

`model` is a family ("words", "boosted", an encoder) or "context", which has the chosen family of each finding. The
numbers are those of the overview audit on the test split, with its names and intervals; every note ends with the
classifier and its cross-validated AUROC. Beside them, per family and finding: `cv_auroc` and `validation_auroc`
(learning and validation images, so optimistic for what was chosen by them), `chosen` (1 = this family's probabilities
are those of "context"; classifier and reasons in `note`), and one row a word: `feature_weight` where it has a sign
(above 0 = more likely), else `feature_importance`, with `feature_effect` (the same times the word's spread), slice
`word=<word>`, rank in `note`. `auroc` and `brier` with `versus` are paired differences of two families.
`images_without_notes` counts. A finding without a model has one row, `auroc` = NaN with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.audits import run_audits
from cxrhf.config import AuditConfig
from cxrhf.errors import TableError
from cxrhf.schema import CURVE, RESULT, table_of

AUDIT = "pretest"
CONTEXT = "context"
MACRO = "macro"
SPLIT = "test"  # whose images had no part in the fit or in the choice
TOP = 10  # words of a finding and family, as in the paper's Table A.12
# What is kept of the overview.
METRICS = (
    "auroc",
    "average_precision",
    "prevalence",
    "brier",
    "brier_skill_score",
    "adaptive_calibration_error",
    "expected_ace",
    "calibration_slope",
    "calibration_intercept",
    "calibration_in_the_large",
    "verdict",
)
PAIRED = ("auroc", "brier")
CURVES = ("roc", "reliability")
Row = dict[str, Any]
Progress = Callable[[str], None]


class Measured(NamedTuple):
    """RESULT and CURVE tables, and sentences a reader must see beside the numbers."""

    results: pa.Table
    curves: pa.Table
    notes: list[str]


def pretest_results(
    scored: pa.Table,
    choices: Mapping[str, Any],
    *,
    n_resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Measure every family and the chosen ones on the test images.

    `choices` is what context.json holds. Families are compared on the same draws of patients.
    """
    if scored.num_rows == 0 and not choices.get("findings"):
        raise TableError("the context run has no fits and no scores", next_step="cxrhf context fit BUILD")
    described = choices.get("findings", {})
    rows, notes = _tested(scored)
    rows = _in_order(rows, list(described))
    results, curves = list[Row](), list[Row]()
    is_context = pc.equal(rows["model"], CONTEXT)
    for part in (rows.filter(is_context), rows.filter(pc.invert(is_context))):
        if not part.num_rows:
            continue
        models = pc.unique(part["model"]).to_pylist()
        settings = AuditConfig(
            predictions=("context",), only=("overview", "compare"), n_resamples=n_resamples, level=level, seed=seed,
            baseline=_first(described, models),
        )  # fmt: skip
        found = run_audits(part, settings, progress, workers=workers)
        results += [_renamed(row, described) for row in found.results.to_pylist() if _wanted(row)]
        curves += [row for row in found.curves.to_pylist() if row["kind"] in CURVES]
        notes += _said(found.notes, models, notes)
    dataset = rows["dataset"][0].as_py() if rows.num_rows else None
    base: Row = {"audit": AUDIT, "dataset": dataset, "slice": "all", "seed": seed}
    for finding, choice in described.items():
        results += _unmeasured(base, finding, choice, results)
        for family, fitted in choice.get("families", {}).items():
            results += _chosen(base, finding, family, choice, fitted)
            results += _features(base, finding, family, choice, fitted)
    results += _without_notes(base, choices.get("without_notes"))
    return Measured(table_of(results, RESULT, source="results"), table_of(curves, CURVE, source="curves"), notes)


def _in_order(rows: pa.Table, findings: Sequence[str]) -> pa.Table:
    """Findings as they were fitted, then images: then no digit of a sum depends on the order of the rows."""
    place = pc.index_in(rows["finding"], value_set=pa.array(findings, pa.string()))
    keys = pa.table({"place": place, "finding": rows["finding"], "image": rows["image_id"], "model": rows["model"]})
    return rows.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names]))


def _first(described: Mapping[str, Any], models: Sequence[str]) -> str:
    """The family that the others are compared with, whatever the order of rows: the first that was fitted."""
    fitted = (name for choice in described.values() for name in choice.get("families", {}))
    return next((name for name in fitted if name in models), min(models))


def label(fitted: Mapping[str, Any]) -> str:
    """`LinearSVC(C=0.1)`."""
    inner = ", ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in (fitted.get("parameters") or {}).items()
    )
    return f"{fitted.get('classifier', 'unknown')}({inner})" if inner else str(fitted.get("classifier", "unknown"))


def _tested(scored: pa.Table) -> tuple[pa.Table, list[str]]:
    """The rows that are measured, and what must be said of them."""
    scored = scored.filter(pc.is_valid(scored["prob"]))  # findings that were not fitted have mentions alone
    rows = scored.filter(pc.equal(scored["split"], SPLIT))
    others = sorted(str(each) for each in pc.unique(scored["split"]).to_pylist() if each is not None and each != SPLIT)
    left = len(pc.unique(scored["image_id"])) - len(pc.unique(rows["image_id"]))
    if not rows.num_rows:
        return rows, [f"no image of the split {SPLIT} has a pre-test probability, so nothing can be measured"]
    return rows, [
        f"only the split {SPLIT} is evaluated; {left:,} images of {', '.join(others)} are not"
    ] if left else []


def _wanted(row: Mapping[str, Any]) -> bool:
    if row["slice"] != "all":
        return False
    if row["audit"] == "compare":
        return row["metric"] in PAIRED
    return row["metric"] in METRICS and row["versus"] is None


def _renamed(row: Row, described: Mapping[str, Any]) -> Row:
    """A row of the overview as a row of this audit, with the classifier in its note."""
    row = row | {"audit": AUDIT}
    choice = described.get(row["finding"])
    if choice is None or row["versus"] is not None or row["metric"] == "verdict":
        return row
    family = choice.get("chosen") if row["model"] == CONTEXT else row["model"]
    fitted = choice.get("families", {}).get(family)
    if fitted is None:
        return row
    said = f"{family}: {label(fitted)}" if row["model"] == CONTEXT else label(fitted)
    if fitted.get("cv_auroc") is not None:
        said += f", CV AUROC {fitted['cv_auroc']:.3f}"
    return row | {"note": f"{row['note']}; {said}" if row["note"] else said}


def _said(found: Sequence[str], models: Sequence[str], before: Sequence[str]) -> list[str]:
    """Notes of the audits that say something new: what the data lack they lack for every family."""

    def bare(note: str) -> str:
        return next((note[len(name) + 2 :] for name in models if note.startswith(f"{name}: ")), note)

    known = {bare(note) for note in before} | {note.removeprefix(f"{CONTEXT}: ") for note in before}
    out = []
    for note in found:
        if bare(note) not in known and not note.startswith("nothing to compare"):
            known.add(bare(note))
            out.append(note)
    return out


def _counts(choice: Mapping[str, Any], *, learned: bool = False) -> Row:
    """Labelled images with notes, positives and patients: of those learned from where that is known and asked for."""
    about = (choice.get("learned") or choice) if learned else choice
    return {name: about.get(name) for name in ("n", "n_pos", "n_patients")}


def _unmeasured(base: Row, finding: str, choice: Mapping[str, Any], rows: Sequence[Row]) -> list[Row]:
    """The one row of a finding that has no number, with the reason."""
    if any(row["model"] == CONTEXT and row["finding"] == finding for row in rows):
        return []
    why = choice.get("reason") or f"no labelled image of the split {SPLIT} has a pre-test probability"
    more: Row = {"metric": "auroc", "model": CONTEXT, "finding": finding, "value": np.nan, "note": why}
    return [base | _counts(choice) | more | {"method": "none", "higher_is_better": True}]


def _chosen(base: Row, finding: str, family: str, choice: Mapping[str, Any], fitted: Mapping[str, Any]) -> list[Row]:
    """Whether the family was chosen, and the numbers it was chosen by."""
    made = base | _counts(choice, learned=True) | {"model": family, "finding": finding}
    reasons = "; ".join(str(each) for each in fitted.get("reasons") or ())
    ways = {"platt": "calibrated by Platt's line", "isotonic": "calibrated by isotonic steps"}
    said = "; ".join(filter(None, (label(fitted), ways.get(str(fitted.get("calibration"))), reasons)))
    is_chosen = float(choice.get("chosen") == family)
    rows = [made | {"metric": "chosen", "value": is_chosen, "method": "1 = chosen", "note": said}]
    numbers = (
        ("cv_auroc", "mean over grouped folds of the training images"),
        ("validation_auroc", "validation images, which chose the classifier"),
    )
    for metric, how in numbers:
        value = fitted.get(metric)
        if value is not None:
            sd = fitted.get("cv_auroc_sd") if metric == "cv_auroc" else None
            note = f"SD between folds {sd:.3f}" if sd is not None else None
            rows.append(
                made | {"metric": metric, "value": value, "method": how, "higher_is_better": True, "note": note}
            )
    return rows


def _features(base: Row, finding: str, family: str, choice: Mapping[str, Any], fitted: Mapping[str, Any]) -> list[Row]:
    """A word's weight or importance, and its effect, as rows."""
    metric = "feature_weight" if fitted.get("signed") else "feature_importance"
    made = base | _counts(choice, learned=True) | {"model": family, "finding": finding}
    how = "of the final model, fitted to the training images"
    rows = []
    for each in (fitted.get("features") or [])[:TOP]:
        own = made | {"slice": f"word={each['word']}", "note": f"rank {each['rank']}, Table A.12"}
        rows.append(own | {"metric": metric, "value": each["value"], "method": how})
        if each.get("effect") is not None:
            rows.append(own | {"metric": "feature_effect", "value": each["effect"], "method": f"{how}; ranks words"})
    return rows


def _without_notes(base: Row, about: Mapping[str, Any] | None) -> list[Row]:
    if not about:
        return []
    how = {
        "exclude": "excluded from all results",
        "stratum": "their own stratum, whose pre-test probability is the share of positives among them in training",
    }
    count = int(about.get("images") or 0)
    note = how.get(str(about.get("how")), str(about.get("how")))
    more = {"metric": "images_without_notes", "model": CONTEXT, "finding": MACRO, "value": float(count), "n": count}
    return [base | more | {"n_patients": about.get("patients"), "method": "count", "note": note}]
