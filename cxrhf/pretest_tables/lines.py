"""What was chosen and measured -> lines for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from cxrhf.errors import shorten
from cxrhf.findings import display_name
from cxrhf.pretest_tables.layouts import (
    CALIBRATION,
    cells_of,
    findings_of,
    in_brackets,
    number,
    plain,
    pretest_rows,
    worded,
)
from cxrhf.pretest_tables.results import CONTEXT

_LETTERS = 40  # of a cell


def table_lines(
    results: pa.Table | Sequence[Mapping[str, Any]],
    choices: Mapping[str, Any],
    findings: Sequence[str] | None = None,
) -> list[str]:
    """What was chosen for each finding and what it reaches."""
    cells = cells_of(pretest_rows(results))
    rows, missing = [], []
    for finding, choice in _wanted(choices, findings):
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
            [display_name(finding), str(family), str(fitted.get("classifier")), plain(fitted.get("cv_auroc")), reached,
             slope, *error]
        )  # fmt: skip
    header = ["Finding", "Read by", "Classifier", "CV AUROC", "AUROC", "Slope", "ACE", "ACE if calibrated"]
    return [*(_aligned([header, *rows]) if rows else []), *missing]


def word_lines(choices: Mapping[str, Any], findings: Sequence[str] | None = None, *, top: int = 10) -> list[str]:
    """A line a finding: the words it rests on, + for more likely and − for less where the model has a sign."""
    lines = []
    for finding, choice in _wanted(choices, findings):
        found = worded(choice)
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


def _wanted(choices: Mapping[str, Any], findings: Sequence[str] | None) -> list[tuple[str, Mapping[str, Any]]]:
    return [each for each in findings_of(choices) if findings is None or each[0] in findings]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    cut = [[shorten(cell, _LETTERS) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in cut) for at in range(len(cut[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cut]
