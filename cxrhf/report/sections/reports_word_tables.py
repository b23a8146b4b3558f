"""Words that may be shown -> tables of them by category, with their counts in references and generated reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrhf.report.blocks import Block, Column, Entry, Table, Text, folded, words_entry
from cxrhf.report.maps import LEAST
from cxrhf.report.numbers import known, number
from cxrhf.report.sections.reports_shelf import Pair
from cxrhf.report.sections.reports_words import CATEGORIES, Chosen, q_of

LONGEST = 300  # rows of a table


def word_tables(found: Sequence[Chosen]) -> list[Block]:
    """One table a category, of the first pair of groups; then what moved in all others."""
    if not found:
        return []
    pairs = list(dict.fromkeys(each.pair for each in found))
    same = [each for each in found if each.pair == pairs[0]]
    several = len({each.model.model for each in found}) > 1
    blocks: list[Block | None] = []
    for name, (_, about) in CATEGORIES.items():
        if name == "stable":
            continue
        rows = [(each, row) for each in same for row in each.rows if row["category"] == name]
        blocks.append(folded(_table(f"{name.capitalize()}: {about}", rows, several, None)))
    others = [
        (each, row)
        for each in found
        if each.pair != pairs[0]
        for row in each.rows
        if row["category"] not in ("stable", "preserved", None)
    ]
    blocks.append(folded(_table("Words that changed between other groups", others, several, pairs)))
    if hidden := max(each.hidden for each in found):
        words = f"Words of fewer than {LEAST} patients are excluded from every figure and table on this page: up to "
        blocks.append(Text(f"{words}{hidden:,} in one comparison.", "muted"))
    return [block for block in blocks if block is not None]


def _table(
    caption: str, rows: Sequence[tuple[Chosen, Mapping[str, Any]]], several: bool, pairs: Sequence[Pair] | None
) -> Table | None:
    """Words with their counts by group; `pairs`: they are of several, so each row says of which."""
    if not rows:
        return None
    first, second = ("group", "other") if pairs else rows[0][0].pair.signs
    columns = [Column("Word"), *([Column("Model", words=True)] if several else []), Column("Strategy", words=True)]
    columns += [Column("Groups", words=True), Column("Category", words=True)] if pairs else []
    columns += [
        Column(f"Reference, {first}", "Tokens in the references of this group"),
        Column(f"Reference, {second}"),
        Column(f"Generated, {first}", "Tokens in the generated reports of this group"),
        Column(f"Generated, {second}"),
        Column("z reference", f"Association in the references; above 0: more frequent for {first}"),
        Column("z generated", "The same in the generated reports"),
        Column("q", "Corrected p value (Benjamini-Hochberg) of the displacement; for omitted words, of the omission"),
        Column("Published rule", "The category by the rule as published", words=True),
    ]
    made = []
    for each, row in rows[:LONGEST]:
        cells = [Entry(row["word"]), *([words_entry(each.model.model)] if several else []), words_entry(each.strategy)]
        cells += [words_entry(each.pair.name), words_entry(row["category"])] if pairs else []
        counts = ("n_ref_group", "n_ref_other", "n_pred_group", "n_pred_other")
        cells += [Entry(f"{row[name]:,}") for name in counts]
        cells += [Entry(number(row[name], 1)) for name in ("z_ref", "z_pred")]
        cells.append(_q(q_of(row)))
        made.append([*cells, words_entry(row["category_paper"] or "–")])
    more = f"The first {LONGEST} of {len(rows):,}; all are in words.parquet." if len(rows) > LONGEST else ""
    return Table(caption, columns, made, about=more, by_finding=False)


def _q(value: float | None) -> Entry:
    """A corrected p value, which sorts by all its digits."""
    if value is None or not known(value):
        return Entry("–")
    return Entry("< 0.001" if value < 0.001 else number(value), key=f"{value:g}")
