"""What a page is made of: sections of text, tables, figures and folds. The template knows how each is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

from markupsafe import Markup

from cxrhf.findings import display_name
from cxrhf.report.book import MACRO, Book, Cell
from cxrhf.report.numbers import format_number, format_p_value, format_percent, is_finite

# A corrected p value below this is called beyond chance.
CHANCE = 0.05
# Rows of a table that stays open.
LONG = 24


class Column(NamedTuple):
    """A heading and what it means."""

    title: str
    about: str = ""
    words: bool = False


class Entry(NamedTuple):
    """One cell: main text, small text below, a hint; `tail` = a p value, `data` = numbers for the script.

    `key` is what the column sorts by where that is not the number in the text (the script reads those).
    """

    text: str
    below: str = ""
    key: str = ""
    hint: str = ""
    words: bool = False
    tail: str = ""
    strong: bool = False
    data: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A caption, columns and rows; the first entry of a row is its name. `mean` is the last row, never sorted away."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Entry]]
    mean: Sequence[Entry] | None = None
    about: str = ""
    by_finding: bool = True  # the first column names a finding


@dataclass(frozen=True, slots=True)
class Grid:
    """A table whose rows are different numbers, in groups with titles, so that it cannot be sorted.

    The first entry of a row is its name; the small text below it says which way the number points.
    """

    kind: ClassVar[str] = "grid"
    caption: str
    columns: Sequence[Column]
    groups: Sequence[tuple[str, Sequence[Sequence[Entry]]]]
    about: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; `tone` is plain, muted or warnings."""

    kind: ClassVar[str] = "text"
    words: str
    tone: str = "plain"


@dataclass(frozen=True, slots=True)
class Figure:
    """Pictures of one idea side by side, each with a title; `file` names it in RUN/figures; `narrow` for phones."""

    kind: ClassVar[str] = "figure"
    title: str
    panels: Sequence[tuple[str, Markup]]
    legend: Sequence[tuple[str, str]] = ()
    caption: str = ""
    file: str = ""
    narrow: Markup | None = None
    size: str = "panel"


@dataclass(frozen=True, slots=True)
class Multiples:
    """Small pictures of one kind, one a finding: its name, a line below it, the picture."""

    kind: ClassVar[str] = "multiples"
    title: str
    about: str
    pictures: Sequence[tuple[str, str, Markup]]
    legend: Sequence[tuple[str, str]] = ()
    file: str = ""


@dataclass(frozen=True, slots=True)
class Simulator:
    """A table of PPV and NPV whose prevalence the reader moves; without a script it stands at the sample's own."""

    kind: ClassVar[str] = "simulator"
    ident: str
    table: Table


class Legend(NamedTuple):
    """What colours a map: its name, and each value with its mark."""

    name: str
    values: Sequence[tuple[str, str]]


def as_json(data: Mapping[str, Any]) -> Markup:
    """Data for the page's script, in a form that cannot end the block it stands in."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Inside a string these are the same letters; elsewhere JSON has none of them.
    return Markup(text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e"))


@dataclass(frozen=True, slots=True)
class Map:
    """A map that the reader moves about in; `still` stands there without a script, `words` say whom it shows."""

    kind: ClassVar[str] = "map"
    ident: str
    words: str
    maps: Sequence[str]
    legends: Sequence[Legend]
    data: Markup
    still: Markup
    one_at_a_time: bool  # a grid: only the attribute that colours it can be filtered
    n: int  # patients


@dataclass(frozen=True, slots=True)
class Gallery:
    """Thumbnails of worst and best slices, which the reader can label; `findings` are those with any."""

    kind: ClassVar[str] = "gallery"
    ident: str
    findings: Sequence[str]
    data: Markup
    n: int


@dataclass(frozen=True, slots=True)
class Words:
    """A plot of words that the reader chooses from; `still` stands there without a script.

    `legends`: for each rule its name, and each category with its mark and meaning.
    """

    kind: ClassVar[str] = "words"
    ident: str
    models: Sequence[str]
    pairs: Sequence[str]
    strategies: Sequence[str]
    legends: Sequence[tuple[str, Sequence[tuple[str, str, str]]]]
    data: Markup
    still: Markup


@dataclass(frozen=True, slots=True)
class Sentences:
    """Sentences, one a finding: name, words, tag, tone. `verbatim`: names are shown as they are."""

    kind: ClassVar[str] = "said"
    title: str
    sentences: Sequence[NamedTuple]
    by_finding: bool = True
    verbatim: bool = False


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that open on demand."""

    kind: ClassVar[str] = "fold"
    summary: str
    blocks: Sequence[Block]


Block = Table | Grid | Text | Figure | Multiples | Simulator | Map | Gallery | Words | Sentences | Fold


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: a title, sentences that sum it up, and its blocks. `short` is its name in the contents."""

    ident: str
    title: str
    short: str
    lead: Sequence[str] = ()
    blocks: Sequence[Block] = field(default_factory=list)


def fold_block(block: Figure | Multiples | Table | None) -> Fold | None:
    """A block that opens on demand; its title moves to what is clicked."""
    if block is None:
        return None
    if isinstance(block, Table):
        long = f" ({len(block.rows)} rows)" if len(block.rows) > LONG else ""
        return Fold(block.caption + long, [block])
    return Fold(block.title, [replace(block, title="")])


def finding_name(finding: str) -> str:
    """A finding as people write it."""
    return "Mean over findings" if finding == MACRO else display_name(finding)


def name_entry(finding: str) -> Entry:
    """The first cell of a finding's row."""
    return Entry(finding_name(finding))


def entry(cell: Cell, digits: int = 3) -> Entry:
    """A number with its interval below."""
    if not is_finite(cell.value):
        return Entry("–", hint=cell.note)
    span = (
        f"({format_number(cell.low, digits)} to {format_number(cell.high, digits)})"
        if is_finite(cell.low, cell.high)
        else ""
    )
    return Entry(format_number(cell.value, digits), span)


def difference(cell: Cell, digits: int = 3) -> Entry:
    """A difference with its interval, and its corrected p value in the same cell."""
    made = entry(cell, digits)
    if not is_finite(cell.value, cell.p_value):
        return made
    strong = cell.p_value < CHANCE
    return made._replace(tail=f"p\u00a0{format_p_value(cell.p_value)}", strong=strong)


def count_entry(value: float, below: str = "") -> Entry:
    """A count with thousands apart."""
    return Entry(f"{value:,.0f}", below) if is_finite(value) else Entry("–")


def percent_entry(value: float, hint: str = "") -> Entry:
    """A share in percent."""
    return Entry(format_percent(value)) if is_finite(value) else Entry("–", hint=hint)


def words_entry(words: str, hint: str = "", below: str = "") -> Entry:
    """A cell of words; it sorts by them."""
    return Entry(words, below, hint=hint, words=True)


def finding_table(
    book: Book, caption: str, columns: Sequence[Column], rows: dict[str, list[Entry]], about: str = ""
) -> Table:
    """One row per finding, and their mean at the end; without the columns that have no number at all."""
    used = [k for k in range(len(columns)) if any(row[k].text not in ("–", "") for row in rows.values())]

    def row(finding: str) -> list[Entry]:
        return [name_entry(finding), *(rows[finding][k] for k in used)]

    body = [row(finding) for finding in book.findings if finding in rows]
    return Table(
        caption, [Column("Finding"), *(columns[k] for k in used)], body, row(MACRO) if MACRO in rows else None, about
    )
