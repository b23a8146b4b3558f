"""What changed between two runs -> diff.html: one file that loads nothing from anywhere, in the report's look."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from cxrhf.report.assets import page_script, page_style, policy
from cxrhf.report.blocks import (
    Block,
    Column,
    Entry,
    Figure,
    Section,
    Table,
    entry,
    finding_name,
    words_entry,
)
from cxrhf.report.book import ALL, MACRO
from cxrhf.report.diff import BEYOND, SAME, UNDEFINED, Change, Diff, Row, diff_rows
from cxrhf.report.diff_records import NONE
from cxrhf.report.diff_words import Compared, counts, models_of, only_in, parts, reason, sentences, title_of
from cxrhf.report.figures import OVERALL, REMAINS, Axis, Dot, DotRow, dots
from cxrhf.report.html import environment
from cxrhf.report.numbers import number

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


def compare_runs(first: str | Path, second: str | Path) -> Compared:
    """Read the results of two run folders and compare them."""
    from cxrhf.run import public_path, read_run

    runs = [read_run(each) for each in (first, second)]
    diff = diff_rows(*(run.table("results").to_pylist() for run in runs))
    names = (public_path(str(runs[0].path)), public_path(str(runs[1].path)))
    return Compared(names, (runs[0].record, runs[1].record), diff, (str(first), str(second)))


def write_diff(both: Compared, folder: str | Path) -> Path:
    """Write the page into a folder, there whole or not at all; returns its path."""
    from cxrhf.report.files import write_bytes
    from cxrhf.tables.folders import one_writer
    from cxrhf.tables.places import check_links

    target = Path(folder) / PAGE
    text = diff_html(both)
    with one_writer(folder, "report"):
        check_links(target.parent, (PAGE,))
        return write_bytes(target, text.encode())


def diff_html(both: Compared) -> str:
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


def sections(both: Compared) -> list[Section]:
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
            _only(f"Only in the {which} run", rows)
            for which, rows in (("first", diff.only_first), ("second", diff.only_second)) if rows
        ]  # fmt: skip
        found.append(Section("only", "In one run only", "In one only", (), blocks))
    return found


def _settings(both: Compared) -> Table:
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
        moved = entry(each.difference)._replace(tail=tag, strong=each.verdict == BEYOND)
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


def _only(title: str, rows: Sequence[Row]) -> Table:
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
                moved = SAME if each.verdict == SAME else number(each.difference.value)
                rows.append(DotRow(name, [("", marks)], moved, name))
        if rows:
            axis = Axis("AUROC", 0.5, 1.0, reference=0.5, floor=0.4, ceiling=1.0)
            panels.append((model, dots(rows, axis, ident=f"diff-{at}", title=f"AUROC of both runs, {model}", lane=20)))
    legend = [(OVERALL, "first run"), (REMAINS, "second run")]
    caption = "Next to each finding: second minus first. Bars are the intervals of the runs."
    return [Figure("AUROC of both runs", panels, legend, caption)] if panels else []
