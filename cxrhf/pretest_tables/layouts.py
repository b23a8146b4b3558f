"""RESULT rows of the audit "pretest" -> Tables 1, A.6, A.7, A.9, A.12, A.13 and A.14 as the paper lays them out.

Ours has one thing more wherever it helps to read a number: the interval of an AUROC, and beside the adaptive
calibration error what a calibrated model would show. On MIMIC the printed AUROC stand in a column "Paper". Table 1, A.6
and A.7 are of encoders, A.9, A.12 and A.13 of the bag of words, A.14 of boosted trees: a table whose models were not
fitted has no rows. The best encoder of a finding is the one that validation (else cross-validation) chose, not the
best on the test images.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from cxrhf.errors import ConfigError
from cxrhf.findings import display_name
from cxrhf.pretest_tables.published import published
from cxrhf.pretest_tables.results import AUDIT, MACRO, TOP

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
    found = [(finding, *each) for finding, choice in findings_of(choices) if (each := best(choice, kind))]
    if name in ("A.7", "A.9"):
        return _calibration(cells, found, encoder=name == "A.7")
    dataset = next((row["dataset"] for row in rows), None)
    return _discrimination(cells, found, published(name, dataset), classifier=name != "1", falling=name == "A.13")


def best(choice: Mapping[str, Any], kind: str) -> tuple[str, Mapping[str, Any]] | None:
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


def worded(choice: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
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


def plain(value: Any, digits: int = 3) -> str:
    return NONE if value is None or math.isnan(value) else f"{value:.{digits}f}"


def number(row: Mapping[str, Any] | None, digits: int = 3) -> str:
    return NONE if row is None else plain(row["value"], digits)


def interval(row: Mapping[str, Any] | None) -> str:
    ends = [] if row is None else [plain(row[name]) for name in ("ci_low", "ci_high")]
    return " to ".join(ends) if ends and NONE not in ends else NONE


def in_brackets(row: Mapping[str, Any] | None) -> str:
    return "" if (text := interval(row)) == NONE else f"({text})"


Found = Sequence[tuple[str, str, Mapping[str, Any]]]  # finding, family, what was fitted


def _discrimination(
    cells: Cells, found: Found, paper: Mapping[str, float], *, classifier: bool, falling: bool
) -> Layout:
    header = ["Label", *(["Classifier"] if classifier else []), "AUROC", "Interval", *(["Paper"] if paper else [])]
    made = []
    for finding, family, fitted in found:
        row = cells.get((family, finding, "auroc"))
        made.append(
            [display_name(finding), *([str(fitted.get("classifier"))] if classifier else []), number(row),
             interval(row), *([plain(paper.get(finding))] if paper else [])]
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


def _calibration(cells: Cells, found: Found, *, encoder: bool) -> Layout:
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
