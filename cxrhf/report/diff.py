"""RESULT rows of two runs -> what changed: each number beside its counterpart, and whether that is more than noise.

A difference is the second run's number less the first's. Its interval is put together from the two runs' own (Zou and
Donner's square-and-add), which holds where the runs have different patients. Where they share patients it is too wide:
what is beyond noise then stands, but much that is within may be real, and only a paired comparison (`cxrhf audit A B
--only overview,compare`) can tell. Either way it is no test: nothing is corrected for the many rows that are looked at.

Models and datasets are matched by name; where one of either run is left over, these two are matched, which is said.
Gaps between groups are turned round where the other run has them the other way. Slices that a method numbers (`mixture:
positive:1`) are of each run alone and are not compared, nor are the seconds that something took.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from cxrhf.report.blocks import Block, Column, Entry, Figure, Section, Table, entry, finding_name, words_entry
from cxrhf.report.book import ALL, MACRO, Cell
from cxrhf.report.figures import OVERALL, REMAINS, Axis, Dot, DotRow, dots
from cxrhf.report.html import environment
from cxrhf.report.lines import WIDTH, align_columns, printable
from cxrhf.report.numbers import format_number, is_finite, shorten
from cxrhf.report.sections.provenance import mapping
from cxrhf.report.sheet import page_script, page_style, policy

Row = Mapping[str, Any]
Names = Mapping[str, str]
KEY = ("audit", "metric", "dataset", "model", "strategy", "finding", "slice", "versus")
SAME, WITHIN_NOISE, BEYOND_NOISE, NO_INTERVAL, UNDEFINED = (
    "same",
    "within noise",
    "beyond noise",
    "no interval",
    "undefined in one",
)
_NUMBERED = re.compile(r"\w+:\w+:\d+")
_TIMES = ("seconds",)
_NONE: Names = {}
_SEED = re.compile(r" \(seed .*\)$", re.DOTALL)


class Change(NamedTuple):
    """A number in both runs. `model` and `dataset` are the first run's; `size` is the change over its noise."""

    audit: str
    metric: str
    dataset: str
    model: str
    strategy: str
    finding: str
    slice: str
    versus: str
    first: Cell
    second: Cell
    difference: Cell
    verdict: str
    size: float


@dataclass(frozen=True, slots=True)
class Diff:
    """All that two runs have in common and apart; changes are sorted, the largest beside their noise first."""

    changes: list[Change]
    only_first: list[Row]
    only_second: list[Row]
    models: dict[str, str]  # of the first run -> of the second, where they have other names
    datasets: dict[str, str]
    left_out: int  # rows of either run that cannot be compared


def diff_rows(first: Iterable[Row], second: Iterable[Row]) -> Diff:
    """Compare the RESULT rows of two runs."""
    one, two = list(first), list(second)
    left, right = ([row for row in rows if not _is_not_comparable(row)] for rows in (one, two))
    models, datasets = _pairs(_models(left), _models(right)), _pairs(_datasets(left), _datasets(right))
    waiting = {_key(row): row for row in right}
    changes, only_first = [], []
    for row in left:
        key = _key(row, models, datasets)
        match = waiting.pop(key, None)
        if match is None and (turned := waiting.pop(_reverse_key(key), None)) is not None:
            match = _reverse_difference(turned)
        if match is None:
            only_first.append(row)
        else:
            changes.append(_change(row, match))
    order = {kind: at for at, kind in enumerate((BEYOND_NOISE, WITHIN_NOISE, UNDEFINED, NO_INTERVAL, SAME))}
    # Rows that come to the same keep the order of the audits.
    changes.sort(key=lambda each: (order[each.verdict], -each.size))
    lost = len(one) + len(two) - len(left) - len(right)
    return Diff(changes, only_first, list(waiting.values()), models, datasets, lost)


def _is_not_comparable(row: Row) -> bool:
    return row["metric"] in _TIMES or bool(_NUMBERED.match(row["slice"] or ""))


def _key(row: Row, models: Names = _NONE, datasets: Names = _NONE) -> tuple[str, ...]:
    """What a row is of, under the names of the second run."""
    audit, metric, dataset, model, strategy, finding, part, versus = (str(row.get(name) or "") for name in KEY)
    if versus.startswith("model="):
        versus = "model=" + _renamed(versus.removeprefix("model="), models)
    return audit, metric, datasets.get(dataset, dataset), _renamed(model, models), strategy, finding, part, versus


def _renamed(model: str, pairs: Names) -> str:
    base = _SEED.sub("", model)
    return pairs[base] + model[len(base) :] if base in pairs else model


def _reverse_key(key: tuple[str, ...]) -> tuple[str, ...]:
    """The same gap, the other group first."""
    *rest, part, versus = key
    return (*rest, versus, part) if "=" in versus and "=" in part else key


def _reverse_difference(row: Row) -> Row:
    ends = {"ci_low": row["ci_high"], "ci_high": row["ci_low"]}
    low, high = (None if ends[name] is None else -ends[name] for name in ("ci_low", "ci_high"))
    value = None if row["value"] is None else -row["value"]
    return {**row, "value": value, "ci_low": low, "ci_high": high, "slice": row["versus"], "versus": row["slice"]}


def _models(rows: Sequence[Row]) -> list[str]:
    """Models without their training seeds."""
    return list(dict.fromkeys(_SEED.sub("", row["model"]) for row in rows if row["model"]))


def _datasets(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["dataset"] for row in rows if row["dataset"]))


def _pairs(first: Sequence[str], second: Sequence[str]) -> dict[str, str]:
    """The two that are left when names that are in both are taken away."""
    left = [each for each in first if each not in second]
    right = [each for each in second if each not in first]
    return {left[0]: right[0]} if len(left) == len(right) == 1 else {}


def _change(first: Row, second: Row) -> Change:
    one, two = _cell(first), _cell(second)
    verdict, difference, size = _compare_cells(one, two)
    audit, metric, dataset, model, strategy, finding, part, versus = _key(first)
    return Change(audit, metric, dataset, model, strategy, finding, part, versus, one, two, difference, verdict, size)


def _cell(row: Row) -> Cell:
    value, low, high = (math.nan if row[name] is None else float(row[name]) for name in ("value", "ci_low", "ci_high"))
    n, n_pos, n_patients = (int(row.get(name) or 0) for name in ("n", "n_pos", "n_patients"))
    return Cell(value, low, high, n=n, n_pos=n_pos, n_patients=n_patients, note=str(row.get("note") or ""))


def _compare_cells(one: Cell, two: Cell) -> tuple[str, Cell, float]:
    """Verdict, difference with its interval, and its size: 1 where the interval just reaches 0."""
    if not is_finite(one.value) and not is_finite(two.value):
        return SAME, Cell(), 0.0
    if not is_finite(one.value, two.value):
        return UNDEFINED, Cell(), 0.0
    change = two.value - one.value
    spans = is_finite(one.low, one.high, two.low, two.high)
    low = change - math.hypot(two.value - two.low, one.high - one.value) if spans else math.nan
    high = change + math.hypot(two.high - two.value, one.value - one.low) if spans else math.nan
    difference = Cell(change, low, high)
    if change == 0 and (one.low, one.high) == (two.low, two.high):
        return SAME, difference, 0.0
    if not spans:
        if change == 0:
            return SAME, difference, 0.0
        return NO_INTERVAL, difference, abs(change) / max(abs(one.value), abs(two.value))
    noise = change - low if change > 0 else high - change
    size = abs(change) / noise if noise > 0 else math.inf if change else 0.0
    return BEYOND_NOISE if size > 1 else WITHIN_NOISE, difference, size


def same_counts(diff: Diff) -> bool | None:
    """Whether all numbers of the whole sample rest on as many images, positives and patients; None if there is none."""
    whole = [each for each in diff.changes if each.slice == ALL and each.first.n and each.second.n]
    counts = [tuple((cell.n, cell.n_pos, cell.n_patients) for cell in (each.first, each.second)) for each in whole]
    return all(one == two for one, two in counts) if counts else None


# run.json of two runs -> settings, versions and inputs that differ.

# Where a run lies and when it was made says nothing of its numbers.
_PLACES = ("out", "overwrite", "predictions", "workers")
_FACTS = ("verb", "seed", "commit", "python", "platform")
NONE = "–"


class Setting(NamedTuple):
    """A fact of both runs that differs: its kind (setting, version, input, machine), name and values as text."""

    kind: str
    name: str
    first: str
    second: str


def diff_records(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Setting]:
    """What was set, installed or read otherwise."""
    found = list[Setting]()
    for kind, field in (("setting", "config"), ("version", "versions")):
        one, two = mapping(first.get(field)), mapping(second.get(field))
        names = [name for name in dict.fromkeys((*one, *two)) if name not in _PLACES and one.get(name) != two.get(name)]
        found += [Setting(kind, name, _value_text(one.get(name)), _value_text(two.get(name))) for name in names]
    for name in _FACTS:
        if first.get(name) != second.get(name):
            kind = "setting" if name in ("verb", "seed") else "version" if name == "commit" else "machine"
            found.append(Setting(kind, name, _value_text(first.get(name)), _value_text(second.get(name))))
    if not same_inputs(first, second):
        found.append(Setting("input", "files", _inputs(first), _inputs(second)))
    return list(dict.fromkeys(found))


def same_inputs(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether both were made from the same files, whatever their names; False where that is not recorded."""
    one, two = (
        sorted(str(each.get("sha256")) for each in record.get("inputs") or [] if isinstance(each, Mapping))
        for record in (first, second)
    )
    return one == two and bool(one)


def _inputs(record: Mapping[str, Any]) -> str:
    names = [
        f"{each.get('name', '')} ({str(each.get('sha256', ''))[:8]})"
        for each in record.get("inputs") or []
        if isinstance(each, Mapping)
    ]
    return ", ".join(names) or "not recorded"


def _value_text(value: Any) -> str:
    if value is None or value == []:
        return NONE
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


# What changed between two runs -> sentences, lines for a terminal, and one JSON object for a script.

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
class ComparedRuns:
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
        **{kind: kinds.get(kind, 0) for kind in (SAME, WITHIN_NOISE, BEYOND_NOISE, NO_INTERVAL, UNDEFINED)},
        "only in the first": len(diff.only_first),
        "only in the second": len(diff.only_second),
        "not comparable": diff.left_out,
    }


def sentences(both: ComparedRuns, *, command: bool = True) -> list[str]:
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
    judged = found[WITHIN_NOISE] + found[BEYOND_NOISE]
    if found[SAME] == len(diff.changes):
        said.append(f"All {len(diff.changes):,} numbers in both runs are the same.")
    else:
        said.append(
            f"Of {len(diff.changes):,} numbers in both runs, {found[SAME]:,} are the same. Of {judged:,} that "
            f"changed and have intervals, {found[BEYOND_NOISE]:,} are beyond noise, without correction "
            "for multiple comparisons."
        )
    if found[SAME] == len(diff.changes):
        return said
    words, before = cases(both)
    typed = both.paired() if before and command else None
    return [*said, words if typed is None else f"{words} {before} {typed}"]


def cases(both: ComparedRuns) -> tuple[str, str]:
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


def diff_lines(both: ComparedRuns) -> list[str]:
    """The whole as a short text."""
    diff = both.diff
    lines = [f"first:  {both.names[0]}", f"second: {both.names[1]}", ""]
    if settings := both.settings:
        table = [["made with", "first", "second"]]
        table += [[f"{each.kind} {each.name}", shorten(each.first, 40), shorten(each.second, 40)] for each in settings]
        lines += [*align_columns(table), ""]
    for words in sentences(both, command=False):
        lines += textwrap.wrap(words, WIDTH, break_on_hyphens=False, break_long_words=False)
    _, before = cases(both)
    if before and any(each.verdict != SAME for each in diff.changes) and (typed := both.paired(both.places)):
        lines += [before, f"  {typed}"]  # on a line of its own, to be copied as it stands
    for title, changes in parts(diff):
        more = f" ({MOST} of {len(changes):,})" if len(changes) > MOST else ""
        table = [["audit", "number", "of", "first", "second", "difference", ""]]
        table += [_cells(each, several=len(models_of(diff)) > 1) for each in changes[:MOST]]
        lines += ["", f"{title}{more}:", *align_columns(table)]
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
    titles = {BEYOND_NOISE: "Largest changes beyond noise", NO_INTERVAL: "Largest changes without an interval",
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
    said = format_number(moved.value) + (f" ({moved.span})" if moved.span else "")
    why = reason(change)
    last = f"{change.verdict}: {shorten(why, 60)}" if why else change.verdict
    of = shorten(": ".join(each for each in place(change, several=several) if each), LETTERS)
    return [change.audit, shorten(title_of(change), LETTERS), of, first, second, said, last]


def _number(cell: Cell) -> str:
    return "undefined" if not is_finite(cell.value) else cell.with_interval()


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
    which, cell = ("first", change.first) if not is_finite(change.first.value) else ("second", change.second)
    return f"{which} run: {cell.note or 'no reason given'}"


def only_in(rows: Sequence[Row]) -> dict[str, int]:
    """Audit and model -> how many rows, the most frequent first."""
    return dict(Counter(f"{row['audit']}, {row['model'] or 'no model'}" for row in rows).most_common())


def as_mapping(both: ComparedRuns) -> dict[str, Any]:
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
        "changes": [_change_as_mapping(each) for each in diff.changes if each.verdict != SAME],
        "only_in_first": [_sort_key(row) for row in diff.only_first],
        "only_in_second": [_sort_key(row) for row in diff.only_second],
    }


def _change_as_mapping(change: Change) -> dict[str, Any]:
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


def _sort_key(row: Row) -> dict[str, Any]:
    return {name: row.get(name) for name in KEY}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# What changed between two runs -> diff.html: one file that loads nothing from anywhere, in the report's look.

PAGE = "diff.html"
ROWS = 200  # of a table on the page; all are in --json
ASKED = "What changed between two runs, and does it exceed noise?"
READING = (
    ("Difference", "The number of the second run minus that of the first."),
    (
        "Its interval",
        "Combined from the intervals of both runs (square and add, Zou and Donner 2008). It is valid if the runs have "
        "different patients; if they share patients it is too wide.",
    ),
    (
        "Beyond noise",
        "The interval excludes 0. This is not a test: of many rows some are beyond noise by chance, about one in "
        "twenty independent rows at 95%, without correction.",
    ),
    (
        "Intervals that overlap",
        "say little about a difference, and intervals that do not overlap are no test either. To compare models on the "
        "same cases, run cxrhf audit A B --only overview,compare: it resamples the patients of both together.",
    ),
    (
        "Order",
        "By size: the change divided by the half of its interval that points to 0; at 1 the interval just reaches 0. "
        "Numbers without an interval are ordered by relative change.",
    ),
    (
        "Not compared",
        "Numbered slices, because their numbers differ between runs, and run times.",
    ),
)


def compare_runs(first: str | Path, second: str | Path) -> ComparedRuns:
    """Read the results of two run folders and compare them."""
    from cxrhf.run import public_path, read_run

    runs = [read_run(each) for each in (first, second)]
    diff = diff_rows(*(run.table("results").to_pylist() for run in runs))
    names = (public_path(str(runs[0].path)), public_path(str(runs[1].path)))
    return ComparedRuns(names, (runs[0].record, runs[1].record), diff, (str(first), str(second)))


def write_diff(both: ComparedRuns, folder: str | Path) -> Path:
    """Write the page into a folder, there whole or not at all; returns its path."""
    from cxrhf.report.files import write_bytes
    from cxrhf.tables.folders import check_links, one_writer

    target = Path(folder) / PAGE
    text = diff_html(both)
    with one_writer(folder, "report"):
        check_links(target.parent, (PAGE,))
        return write_bytes(target, text.encode())


def diff_html(both: ComparedRuns) -> str:
    """The page as text."""
    found = sections(both)
    script = page_script(())
    facts = [("First", both.names[0]), ("Second", both.names[1])]
    facts += [(name.capitalize(), f"{n:,}") for name, n in counts(both.diff).items() if n]
    return (
        environment()
        .get_template("diff.html.j2")
        .render(
            style=Markup(page_style()),
            script=Markup(script),
            policy=policy(script),
            title=f"{both.names[0]} and {both.names[1]}",
            question=ASKED,
            summary=facts,
            sections=found,
            reading=READING,
            command=f"cxrhf report --diff {' '.join(map(shlex.quote, both.names))} --json",
            counter=itertools.count(1),
        )
    )


def sections(both: ComparedRuns) -> list[Section]:
    """In short, what they were made with, what changed, what stands in one only."""
    diff = both.diff
    found = [Section("short", "In short", "In short", sentences(both), list(_pictures(diff)))]
    lead, tables = ([], [_settings(both)]) if both.settings else (["They are the same."], [])
    found.append(Section("made", "Settings, versions and inputs", "Settings", lead, tables))
    for at, (title, changes) in enumerate(parts(diff)):
        table = _table(title, changes[:ROWS], several=len(models_of(diff)) > 1)
        lead = [f"The {ROWS} largest of {len(changes):,}; --json prints all."] if len(changes) > ROWS else []
        found.append(Section(f"part-{at}", title, title, lead, [table]))
    if diff.only_first or diff.only_second:
        blocks: list[Block] = [
            _only_table(f"Only in the {which} run", rows)
            for which, rows in (("first", diff.only_first), ("second", diff.only_second)) if rows
        ]  # fmt: skip
        found.append(Section("only", "In one run only", "In one only", (), blocks))
    return found


def _settings(both: ComparedRuns) -> Table:
    rows = [[Entry(each.name), words_entry(each.kind), words_entry(each.first), words_entry(each.second)]
            for each in both.settings]  # fmt: skip
    columns = [Column("What"), Column("Kind", words=True), Column("First", words=True), Column("Second", words=True)]
    return Table("What differs", columns, rows, by_finding=False)


def _table(title: str, changes: Sequence[Change], *, several: bool) -> Table:
    """A row for each change; a column that would be empty everywhere is left out."""
    places = [part_of(each, several=several) for each in changes]
    reasons = [reason(each) for each in changes]
    apart, explained = any(map(any, places)), any(reasons)
    columns = [Column("Finding"), Column("Number", "With its audit below", words=True)]
    columns += [Column("Part", "Part of the sample, model, strategy", words=True)] if apart else []
    columns += [Column("First"), Column("Second"), Column("Difference", "Second minus first")]
    columns += [Column("Why", words=True)] if explained else []
    rows = []
    for each, place, why in zip(changes, places, reasons, strict=True):
        tag = "" if each.verdict == UNDEFINED else each.verdict
        moved = entry(each.difference)._replace(tail=tag, strong=each.verdict == BEYOND_NOISE)
        cells = [Entry(finding_name(each.finding) if each.finding else NONE)]
        cells.append(words_entry(title_of(each), below=each.audit))
        cells += [words_entry(place[0], below=place[1])] if apart else []
        cells += [entry(each.first), entry(each.second), moved]
        rows.append([*cells, words_entry(why)] if explained else cells)
    return Table(title, columns, rows)


def part_of(change: Change, *, several: bool) -> tuple[str, str]:
    """What stands first and what below it: part of the sample, then model and strategy."""
    part = change.slice if change.slice != ALL else ""
    whose = ", ".join(each for each in (change.model if several else "", change.strategy) if each)
    return (part, whose) if part else (whose, "")


def _only_table(title: str, rows: Sequence[Row]) -> Table:
    body = [[Entry(name), Entry(f"{n:,}")] for name, n in only_in(rows).items()]
    return Table(title, [Column("Audit, model"), Column("Numbers")], body, by_finding=False)


def _pictures(diff: Diff) -> list[Figure]:
    """The AUROC of both runs, a panel a model, the mean of its findings last."""
    panels = []
    for at, model in enumerate(models_of(diff)):
        whole = [each for each in diff.changes if each.model == model and each.slice == ALL and not each.versus
                 and (each.audit, each.metric) == ("overview", "auroc")]  # fmt: skip
        several = len(whole) > 2  # of one finding the mean says nothing more
        rows = []
        for each in sorted(whole, key=lambda change: (change.finding == MACRO, change.finding)):
            if several or each.finding != MACRO:
                name = finding_name(each.finding)
                marks = [Dot(OVERALL, each.first.mark, "first"), Dot(REMAINS, each.second.mark, "second")]
                moved = SAME if each.verdict == SAME else format_number(each.difference.value)
                rows.append(DotRow(name, [("", marks)], moved, name))
        if rows:
            axis = Axis("AUROC", 0.5, 1.0, reference=0.5, floor=0.4, ceiling=1.0)
            panels.append((model, dots(rows, axis, ident=f"diff-{at}", title=f"AUROC of both runs, {model}", lane=20)))
    legend = [(OVERALL, "first run"), (REMAINS, "second run")]
    caption = "Next to each finding: second minus first. Bars are the intervals of the runs."
    return [Figure("AUROC of both runs", panels, legend, caption)] if panels else []
