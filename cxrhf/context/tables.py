"""Probabilities from prior notes -> RESULT rows of the audit "pretest", and the paper's tables made from them.

`pretest_results` measures, `paper_table` lays out, `write_tables` writes RUN/tables/*.csv, `table_lines` and
`word_lines` are for the terminal.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.audits.plan import run_audits
from cxrhf.errors import ConfigError, TableError, shorten
from cxrhf.findings import display_name
from cxrhf.schema import CURVE, RESULT
from cxrhf.settings import AuditConfig
from cxrhf.tables.checks import table_of

__all__ = ["AUDIT", "TABLES", "Measured", "paper_table", "pretest_results", "table_lines", "word_lines", "write_tables"]

Progress = Callable[[str], None]


# RESULT rows of the audit "pretest" -> Tables 1, A.6, A.7, A.9, A.12, A.13 and A.14 as the paper lays them out.
#
# Ours has one thing more wherever it helps to read a number: the interval of an AUROC, and beside the adaptive
# calibration error what a calibrated model would show. On MIMIC the printed AUROC stand in a column "Paper". Table 1,
# A.6 and A.7 are of encoders, A.9, A.12 and A.13 of the bag of words, A.14 of boosted trees: a table whose models
# were not fitted has no rows. The best encoder of a finding is the one that validation (else cross-validation) chose,
# not the best on the test images.

Cells = dict[tuple[str, str, str], Mapping[str, Any]]  # model, finding, metric
Layout = tuple[list[str], list[list[str]]]

# Name -> what it shows.
TABLES: Mapping[str, str] = {
    "1": "Discrimination of the best language model of each finding",
    "A.6": "AUROC of every language model, with the best classifier",
    "A.7": "Calibration of the best language model of each finding",
    "A.9": "Calibration of the bag of words",
    "A.12": "Words that the bag of words rests on",
    "A.13": "Discrimination of the bag of words",
    "A.14": "Discrimination of boosted trees (XGBoost)",
}
# Classifier -> its short name in Table A.6.
SHORT = {
    "LinearSVC": "SVC", "LinearDiscriminantAnalysis": "LinearDisc", "MLPClassifier": "MLP",
    "RidgeClassifierCV": "Ridge", "PassiveAggressive": "PassAgg", "RandomForestClassifier": "RF",
    "SGDClassifier": "SGD", "Perceptron": "Percep", "KNeighborsClassifier": "KNN", "LogisticRegression": "LogReg",
}  # fmt: skip
NONE = "–"
CALIBRATION = (
    ("ACE", "adaptive_calibration_error"),
    ("ACE if calibrated", "expected_ace"),
    ("Brier Score", "brier"),
    ("Brier Skill Score", "brier_skill_score"),
)


def paper_table(results: pa.Table | Sequence[Mapping[str, Any]], choices: Mapping[str, Any], name: str) -> Layout:
    """Header and rows of one of TABLES, as text; no rows where its models were not fitted."""
    if name not in TABLES:
        raise ConfigError("unknown table", got=name, allowed=f"one of {', '.join(TABLES)}")
    rows = pretest_rows(results)
    cells = cells_of(rows)
    if name == "A.12":
        return _words(rows, choices)
    if name == "A.6":
        return _encoders(cells, choices)
    kind = {"1": "encoder", "A.7": "encoder", "A.14": "boosted"}.get(name, "words")
    found = [(finding, *each) for finding, choice in findings_of(choices) if (each := best_family(choice, kind))]
    if name in ("A.7", "A.9"):
        return _calibration(cells, found, encoder=name == "A.7")
    dataset = next((row["dataset"] for row in rows), None)
    return _discrimination(
        cells, found, published_aurocs(name, dataset), classifier=name != "1", falling=name == "A.13"
    )


def best_family(choice: Mapping[str, Any], kind: str) -> tuple[str, Mapping[str, Any]] | None:
    """The family of a kind that was chosen for a finding, by validation where all have it, else by cross-validation."""
    families = {name: each for name, each in (choice.get("families") or {}).items() if each.get("kind") == kind}
    if not families:
        return None
    validated = all(each.get("validation_auroc") is not None for each in families.values())

    def value(name: str) -> tuple[float, float]:
        each = families[name]
        cv = -1.0 if each.get("cv_auroc") is None else each["cv_auroc"]
        return (each["validation_auroc"] if validated else cv, cv)

    name = max(families, key=value)
    return name, families[name]


def write_tables(
    folder: str | Path, results: pa.Table | Sequence[Mapping[str, Any]], choices: Mapping[str, Any]
) -> Path:
    """FOLDER/table_1.csv, table_a6.csv, ... of the tables that have rows; those of an earlier fit go. Returns it."""
    from cxrhf.tables.files import write_atomically

    for name in TABLES:
        target = Path(folder) / f"table_{name.replace('.', '').lower()}.csv"
        header, rows = paper_table(results, choices, name)
        if not rows:
            target.unlink(missing_ok=True)
            continue
        sheet = io.StringIO()
        csv.writer(sheet, lineterminator="\n").writerows([header, *rows])
        content = sheet.getvalue().encode()
        write_atomically(target, lambda file, content=content: file.write(content))  # type: ignore[misc]
    return Path(folder)


def explained_family(choice: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """The family whose words explain a finding: the chosen one if it reads words, else the bag of words, else trees."""
    families = choice.get("families") or {}
    order = [choice.get("chosen"), *(name for kind in ("words", "boosted") for name in families
                                     if families[name].get("kind") == kind)]  # fmt: skip
    return next(((name, families[name]) for name in order if name in families and families[name].get("features")), None)


def pretest_rows(results: pa.Table | Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    rows: Iterable[Mapping[str, Any]] = results.to_pylist() if isinstance(results, pa.Table) else results
    return [row for row in rows if row["audit"] == AUDIT]


def cells_of(rows: Iterable[Mapping[str, Any]]) -> Cells:
    return {
        (row["model"], row["finding"], row["metric"]): row
        for row in rows
        if row["slice"] == "all" and row["versus"] is None
    }


def findings_of(choices: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, each) for name, each in choices.get("findings", {}).items() if name != MACRO]


def format_plain(value: Any, digits: int = 3) -> str:
    return NONE if value is None or math.isnan(value) else f"{value:.{digits}f}"


def number(row: Mapping[str, Any] | None, digits: int = 3) -> str:
    return NONE if row is None else format_plain(row["value"], digits)


def interval(row: Mapping[str, Any] | None) -> str:
    ends = [] if row is None else [format_plain(row[name]) for name in ("ci_low", "ci_high")]
    return " to ".join(ends) if ends and NONE not in ends else NONE


def in_brackets(row: Mapping[str, Any] | None) -> str:
    return "" if (text := interval(row)) == NONE else f"({text})"


ChosenFamilies = Sequence[tuple[str, str, Mapping[str, Any]]]  # finding, family, what was fitted


def _discrimination(
    cells: Cells, found: ChosenFamilies, paper: Mapping[str, float], *, classifier: bool, falling: bool
) -> Layout:
    header = ["Label", *(["Classifier"] if classifier else []), "AUROC", "Interval", *(["Paper"] if paper else [])]
    made = []
    for finding, family, fitted in found:
        row = cells.get((family, finding, "auroc"))
        made.append(
            [display_name(finding), *([str(fitted.get("classifier"))] if classifier else []), number(row),
             interval(row), *([format_plain(paper.get(finding))] if paper else [])]
        )  # fmt: skip
    if falling:  # as the paper has it
        at = header.index("AUROC")
        made.sort(key=lambda row: -1.0 if row[at] == NONE else float(row[at]), reverse=True)
    return header, made


def _encoders(cells: Cells, choices: Mapping[str, Any]) -> Layout:
    """A row a finding, a column an encoder; * marks the highest of a row."""
    findings = findings_of(choices)
    names = list(
        dict.fromkeys(
            name
            for _, choice in findings
            for name, each in (choice.get("families") or {}).items()
            if each.get("kind") == "encoder"
        )
    )
    made = []
    for finding, choice in findings:
        row = {name: cells.get((name, finding, "auroc")) for name in names}
        known = {name: each["value"] for name, each in row.items() if each and not math.isnan(each["value"])}
        if not known:
            continue
        top = max(known.values())
        line = [display_name(finding)]
        for name in names:
            kind = str(choice["families"].get(name, {}).get("classifier"))
            mark = "*" if known.get(name) == top and len(known) > 1 else ""
            words = (f"{number(row[name])}{mark}", in_brackets(row[name]), SHORT.get(kind, kind))
            line.append(" ".join(filter(None, words)) if name in known else NONE)
        made.append(line)
    return ["Label", *names], made


def _calibration(cells: Cells, found: ChosenFamilies, *, encoder: bool) -> Layout:
    header = ["Label", *(["Language Model"] if encoder else []), "Classifier", *(title for title, _ in CALIBRATION)]
    made = []
    for finding, family, fitted in found:
        numbers = [number(cells.get((family, finding, metric))) for _, metric in CALIBRATION]
        made.append([display_name(finding), *([family] if encoder else []), str(fitted.get("classifier")), *numbers])
    return header, made


def _words(rows: Iterable[Mapping[str, Any]], choices: Mapping[str, Any]) -> Layout:
    """Words by finding and rank, the weights from the RESULT rows."""
    weights = {(row["model"], row["finding"], row["slice"], row["metric"]): row["value"] for row in rows}
    made = []
    for finding, choice in findings_of(choices):
        for family, fitted in (choice.get("families") or {}).items():
            if fitted.get("kind") != "words":
                continue
            metric = "feature_weight" if fitted.get("signed") else "feature_importance"
            for each in (fitted.get("features") or [])[:TOP]:
                value = weights.get((family, finding, f"word={each['word']}", metric))
                shown = NONE if value is None else f"{value:.4g}"
                made.append(
                    [each["word"], str(each["rank"]), display_name(finding), str(fitted.get("classifier")), shown]
                )
    return ["Feature", "Rank", "Label Name", "Classifier Name", "Weight"], made


# What was chosen and measured -> lines for a terminal.

_LETTERS = 40  # of a cell


def table_lines(
    results: pa.Table | Sequence[Mapping[str, Any]],
    choices: Mapping[str, Any],
    findings: Sequence[str] | None = None,
) -> list[str]:
    """What was chosen for each finding and what it reaches."""
    cells = cells_of(pretest_rows(results))
    rows, missing = [], []
    for finding, choice in _wanted_findings(choices, findings):
        family = choice.get("chosen")
        fitted = (choice.get("families") or {}).get(family)
        auroc = cells.get((CONTEXT, finding, "auroc"))
        if fitted is None:
            missing.append(shorten(f"{display_name(finding)}: no pre-test probability, {choice.get('reason')}"))
            continue
        reached = " ".join(filter(None, (number(auroc), in_brackets(auroc))))
        slope = number(cells.get((CONTEXT, finding, "calibration_slope")), 2)
        error = [number(cells.get((CONTEXT, finding, metric))) for _, metric in CALIBRATION[:2]]
        rows.append(
            [display_name(finding), str(family), str(fitted.get("classifier")), format_plain(fitted.get("cv_auroc")),
             reached, slope, *error]
        )  # fmt: skip
    header = ["Finding", "Read by", "Classifier", "CV AUROC", "AUROC", "Slope", "ACE", "ACE if calibrated"]
    return [*(_aligned([header, *rows]) if rows else []), *missing]


def word_lines(choices: Mapping[str, Any], findings: Sequence[str] | None = None, *, top: int = 10) -> list[str]:
    """A line a finding: the words it rests on, + for more likely and − for less where the model has a sign."""
    lines = []
    for finding, choice in _wanted_findings(choices, findings):
        found = explained_family(choice)
        if found is None:
            continue
        family, fitted = found
        words = [
            f"{each['word']}{(' +' if each['value'] > 0 else ' −') if fitted.get('signed') else ''}"
            for each in fitted["features"][:top]
        ]
        head = f"{display_name(finding)} ({family}, {fitted.get('classifier')})"
        lines.append(shorten(f"{head}: {', '.join(words)}", 10_000))
    return lines


def _wanted_findings(choices: Mapping[str, Any], findings: Sequence[str] | None) -> list[tuple[str, Mapping[str, Any]]]:
    return [each for each in findings_of(choices) if findings is None or each[0] in findings]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    cut = [[shorten(cell, _LETTERS) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in cut) for at in range(len(cut[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cut]


# AUROC as the CONTEXT paper prints them (MIMIC-CXR, its own split, prior discharge notes), for users with the data.

# Table -> finding -> test AUROC. A user's split and build differ: something to compare with, no target.
PUBLISHED: Mapping[str, Mapping[str, float]] = {
    "1": {
        "atelectasis": 0.623, "cardiomegaly": 0.701, "consolidation": 0.633, "edema": 0.751,
        "enlarged_cardiomediastinum": 0.566, "fracture": 0.676, "lung_lesion": 0.765, "lung_opacity": 0.628,
        "pleural_effusion": 0.745, "pleural_other": 0.654, "pneumonia": 0.592, "pneumothorax": 0.712,
        "support_devices": 0.682,
    },
    "A.13": {
        "atelectasis": 0.623, "cardiomegaly": 0.688, "consolidation": 0.611, "edema": 0.717,
        "enlarged_cardiomediastinum": 0.573, "fracture": 0.657, "lung_lesion": 0.759, "lung_opacity": 0.617,
        "pleural_effusion": 0.734, "pleural_other": 0.577, "pneumonia": 0.550, "pneumothorax": 0.703,
        "support_devices": 0.681,
    },
    "A.14": {
        "atelectasis": 0.640, "cardiomegaly": 0.712, "consolidation": 0.627, "edema": 0.741,
        "enlarged_cardiomediastinum": 0.574, "fracture": 0.737, "lung_lesion": 0.800, "lung_opacity": 0.626,
        "pleural_effusion": 0.751, "pleural_other": 0.704, "pneumonia": 0.581, "pneumothorax": 0.736,
        "support_devices": 0.675,
    },
}  # fmt: skip


def published_aurocs(table: str, dataset: str | None) -> Mapping[str, float]:
    """The printed values of a table where the dataset is the paper's; nothing elsewhere."""
    return PUBLISHED.get(table, {}) if (dataset or "").lower().startswith("mimic") else {}


# PREDICTION rows of context models and what was chosen -> RESULT and CURVE rows of the audit "pretest".
#
# `model` is a family ("words", "boosted", an encoder) or "context", which has the chosen family of each finding. The
# numbers are those of the overview audit on the test split, with its names and intervals; every note ends with the
# classifier and its cross-validated AUROC. Beside them, per family and finding: `cv_auroc` and `validation_auroc`
# (learning and validation images, so optimistic for what was chosen by them), `chosen` (1 = this family's
# probabilities are those of "context"; classifier and reasons in `note`), and one row a word: `feature_weight` where
# it has a sign (above 0 = more likely), else `feature_importance`, with `feature_effect` (the same times the word's
# spread), slice `word=<word>`, rank in `note`. `auroc` and `brier` with `versus` are paired differences of two
# families. `images_without_notes` counts. A finding without a model has one row, `auroc` = NaN with the reason.

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
    rows, notes = _test_rows(scored)
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
        results += [_to_pretest_row(row, described) for row in found.results.to_pylist() if _is_reported(row)]
        curves += [row for row in found.curves.to_pylist() if row["kind"] in CURVES]
        notes += _new_notes(found.notes, models, notes)
    dataset = rows["dataset"][0].as_py() if rows.num_rows else None
    base: Row = {"audit": AUDIT, "dataset": dataset, "slice": "all", "seed": seed}
    for finding, choice in described.items():
        results += _unmeasured(base, finding, choice, results)
        for family, fitted in choice.get("families", {}).items():
            results += _choice_rows(base, finding, family, choice, fitted)
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


def _test_rows(scored: pa.Table) -> tuple[pa.Table, list[str]]:
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


def _is_reported(row: Mapping[str, Any]) -> bool:
    if row["slice"] != "all":
        return False
    if row["audit"] == "compare":
        return row["metric"] in PAIRED
    return row["metric"] in METRICS and row["versus"] is None


def _to_pretest_row(row: Row, described: Mapping[str, Any]) -> Row:
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


def _new_notes(found: Sequence[str], models: Sequence[str], before: Sequence[str]) -> list[str]:
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


def _choice_rows(
    base: Row, finding: str, family: str, choice: Mapping[str, Any], fitted: Mapping[str, Any]
) -> list[Row]:
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
