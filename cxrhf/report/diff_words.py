"""What changed between two runs -> sentences, lines for a terminal, and one JSON object for a script."""

from __future__ import annotations

import json
import math
import shlex
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrhf.report.book import ALL, MACRO, Cell
from cxrhf.report.diff import BEYOND, KEY, PLAIN, SAME, UNDEFINED, WITHIN, Change, Diff, Row, same_counts
from cxrhf.report.diff_records import Setting, diff_records, same_inputs
from cxrhf.report.lines import aligned
from cxrhf.report.notes import WIDTH, printable
from cxrhf.report.numbers import known, number, short
from cxrhf.report.sections.provenance import mapping

FORMAT = 1
MOST, LETTERS = 12, 44  # rows of a table on a terminal, letters of a name in it
# Audit -> whole-sample numbers that are shown first, beyond noise or not.
HEADLINE: Mapping[str, Sequence[str]] = {
    "overview": ("auroc", "average_precision", "sensitivity_at_specificity", "brier"),
    "reweighted": ("auroc_att",),
    "matched": ("matched_auroc",),
    "reports": ("rougeL", "bertscore_f1", "template_diversity"),
}


@dataclass(frozen=True, slots=True)
class Compared:
    """Two runs by name, what differs in how they were made, and what differs in their results."""

    names: tuple[str, str]
    records: tuple[Mapping[str, Any], Mapping[str, Any]]
    diff: Diff
    places: tuple[str, str] | None = None  # the folders as they were typed; a page shows names alone

    @property
    def settings(self) -> list[Setting]:
        return diff_records(*self.records)

    def paired(self, places: tuple[str, str] | None = None) -> str | None:
        """The command that compares the models on the patients they share; None where no audit does: of reports.

        `places`: where the runs are, if they are not shown by their names.
        """
        if not all("predictions" in mapping(record.get("tables")) for record in self.records):
            return None
        folders = places or self.names
        if all(each in self.diff.models for each in models_of(self.diff)):
            files = " ".join(shlex.quote(f"{folder}/predictions.parquet") for folder in folders)
            return f"cxrhf audit {files} --only overview,compare --out runs/compared"
        # Models of the same name in both: only Python can give them others.
        models = json.dumps(dict(zip(("first", "second"), folders, strict=True)))
        code = f'import cxrhf; cxrhf.audit({models}, only="overview,compare").save("runs/compared")'
        return f"python -c {shlex.quote(code)}"


def counts(diff: Diff) -> dict[str, int]:
    """How many rows of each kind."""
    kinds = Counter(each.verdict for each in diff.changes)
    return {
        **{kind: kinds.get(kind, 0) for kind in (SAME, WITHIN, BEYOND, PLAIN, UNDEFINED)},
        "only in the first": len(diff.only_first),
        "only in the second": len(diff.only_second),
        "not comparable": diff.left_out,
    }


def sentences(both: Compared, *, command: bool = True) -> list[str]:
    """What a reader must know before any number."""
    diff, said = both.diff, list[str]()
    found = counts(diff)
    for what, pairs in (("model", diff.models), ("dataset", diff.datasets)):
        said += [
            f"The {what} {one} of the first run is compared with {two} of the second." for one, two in pairs.items()
        ]
    if not diff.changes:
        return [
            *said,
            "The runs have no number in common: no combination of audit, model, finding and slice is in both.",
        ]
    judged = found[WITHIN] + found[BEYOND]
    if found[SAME] == len(diff.changes):
        said.append(f"All {len(diff.changes):,} numbers in both runs are the same.")
    else:
        said.append(
            f"Of {len(diff.changes):,} numbers in both runs, {found[SAME]:,} are the same. Of {judged:,} that changed "
            f"and have intervals, {found[BEYOND]:,} are beyond noise, without correction for multiple comparisons."
        )
    if found[SAME] == len(diff.changes):
        return said
    words, before = cases(both)
    typed = both.paired() if before and command else None
    return [*said, words if typed is None else f"{words} {before} {typed}"]


def cases(both: Compared) -> tuple[str, str]:
    """Whether the runs share their patients, as far as that can be known, and before which command it says so."""
    if same_inputs(*both.records):
        return (
            "Both runs were made from the same files and share their patients: a change within noise may still be "
            "real. Differences come from settings, seeds or versions."
        ), ""
    counted = same_counts(both.diff)
    if counted is not False:
        begin = "The runs have equal numbers of images, positives and patients. " if counted else ""
        said = f"{begin}If they share their cases, intervals here are too wide, and overlapping intervals say little."
        return said, "A paired comparison is more sensitive:"
    return (
        "The runs cover different cases, so a difference may come from the patients. Intervals that do not overlap are "
        "no test."
    ), "For models on the same cases:"


def diff_lines(both: Compared) -> list[str]:
    """The whole as a short text."""
    diff = both.diff
    lines = [f"first:  {both.names[0]}", f"second: {both.names[1]}", ""]
    if settings := both.settings:
        table = [["made with", "first", "second"]]
        table += [[f"{each.kind} {each.name}", short(each.first, 40), short(each.second, 40)] for each in settings]
        lines += [*aligned(table), ""]
    for words in sentences(both, command=False):
        lines += textwrap.wrap(words, WIDTH, break_on_hyphens=False, break_long_words=False)
    _, before = cases(both)
    if before and any(each.verdict != SAME for each in diff.changes) and (typed := both.paired(both.places)):
        lines += [before, f"  {typed}"]  # on a line of its own, to be copied as it stands
    for title, changes in parts(diff):
        more = f" ({MOST} of {len(changes):,})" if len(changes) > MOST else ""
        table = [["audit", "number", "of", "first", "second", "difference", ""]]
        table += [_cells(each, several=len(models_of(diff)) > 1) for each in changes[:MOST]]
        lines += ["", f"{title}{more}:", *aligned(table)]
    only = [(which, rows) for which, rows in (("first", diff.only_first), ("second", diff.only_second)) if rows]
    lines += [""] if only else []
    for which, rows in only:
        lines.append(f"Only in the {which} run: {'; '.join(f'{name} ({n:,})' for name, n in only_in(rows).items())}")
    return [printable(line) for line in lines]


def parts(diff: Diff) -> list[tuple[str, list[Change]]]:
    """Titles and their changes, each change under the first title that it fits; the largest first."""
    single = (
        len({each.finding for each in diff.changes} - {MACRO, ""}) == 1
    )  # of one finding the mean says nothing more
    titles = {BEYOND: "Largest changes beyond noise", PLAIN: "Largest changes without an interval",
              UNDEFINED: "Undefined in one run"}  # fmt: skip
    found: dict[str, list[Change]] = {"Whole sample": [], **{title: [] for title in titles.values()}}
    for each in diff.changes:
        if each.verdict == SAME or (single and each.finding == MACRO):
            continue
        whole = each.slice == ALL and not each.versus and each.metric in HEADLINE.get(each.audit, ())
        if whole and each.verdict != UNDEFINED:
            found["Whole sample"].append(each)
        elif each.verdict in titles:
            found[titles[each.verdict]].append(each)
    return [(title, changes) for title, changes in found.items() if changes]


def models_of(diff: Diff) -> list[str]:
    """Models of which there are numbers in both runs."""
    return list(dict.fromkeys(each.model for each in diff.changes if each.model))


def _cells(change: Change, *, several: bool) -> list[str]:
    first, second = (_number(cell) for cell in (change.first, change.second))
    moved = change.difference
    said = number(moved.value) + (f" ({moved.span})" if moved.span else "")
    why = reason(change)
    last = f"{change.verdict}: {short(why, 60)}" if why else change.verdict
    of = short(": ".join(each for each in place(change, several=several) if each), LETTERS)
    return [change.audit, short(title_of(change), LETTERS), of, first, second, said, last]


def _number(cell: Cell) -> str:
    return "undefined" if not known(cell.value) else cell.with_interval()


def title_of(change: Change) -> str:
    """The number's name; of a difference, of what."""
    return change.metric + (f" vs {change.versus}" if change.versus else "")


def place(change: Change, *, several: bool) -> list[str]:
    """Model (where there are several), strategy, finding and part of the sample."""
    return [
        change.model if several else "",
        change.strategy,
        change.finding,
        change.slice if change.slice != ALL else "",
    ]


def reason(change: Change) -> str:
    """Why a number is undefined in one of the runs."""
    if change.verdict != UNDEFINED:
        return ""
    which, cell = ("first", change.first) if not known(change.first.value) else ("second", change.second)
    return f"{which} run: {cell.note or 'no reason given'}"


def only_in(rows: Sequence[Row]) -> dict[str, int]:
    """Audit and model -> how many rows, the most frequent first."""
    return dict(Counter(f"{row['audit']}, {row['model'] or 'no model'}" for row in rows).most_common())


def as_mapping(both: Compared) -> dict[str, Any]:
    """Every number that is not the same in both runs, as plain values; NaN is null."""
    diff = both.diff
    return {
        "format": FORMAT,
        "first": both.names[0],
        "second": both.names[1],
        "same_inputs": same_inputs(*both.records),
        "models": diff.models,
        "datasets": diff.datasets,
        "made_with": [each._asdict() for each in both.settings],
        "counts": counts(diff),
        "said": sentences(both),
        "changes": [_plain(each) for each in diff.changes if each.verdict != SAME],
        "only_in_first": [_key(row) for row in diff.only_first],
        "only_in_second": [_key(row) for row in diff.only_second],
    }


def _plain(change: Change) -> dict[str, Any]:
    cells = {
        name: {"value": _finite(cell.value), "ci_low": _finite(cell.low), "ci_high": _finite(cell.high)}
        for name, cell in (("first", change.first), ("second", change.second), ("difference", change.difference))
    }
    of = {name: getattr(change, name) or None for name in KEY}
    return {
        **of,
        **cells,
        "verdict": change.verdict,
        "times_noise": _finite(change.size),
        "note": reason(change) or None,
    }


def _key(row: Row) -> dict[str, Any]:
    return {name: row.get(name) for name in KEY}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
