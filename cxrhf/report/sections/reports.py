"""RESULT, CURVE and WORD rows of generated reports -> sections: strategies, words, groups, differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cxrhf.report.blocks import Block, Fold, Said, Section, Text
from cxrhf.report.book import Book
from cxrhf.report.numbers import listed
from cxrhf.report.sections.decoding import baseline, decoding
from cxrhf.report.sections.provenance import Facts, mapping
from cxrhf.report.sections.reports_groups import by_group
from cxrhf.report.sections.reports_pictures import diversity, p_stars, trade_offs, vocabulary
from cxrhf.report.sections.reports_said import first_pair, lead, sentences
from cxrhf.report.sections.reports_shelf import Writer, writers
from cxrhf.report.sections.reports_table import size, strategy_table
from cxrhf.report.sections.reports_word_tables import word_tables
from cxrhf.report.sections.reports_words import READ, Chosen, chosen, plot
from cxrhf.report.sections.view import Rows

_CARE = (
    "Similarity metrics count what two reports share, so a text that fits every patient scores well against every "
    "normal reference. Words that only some patients need hardly change them: check which words are lost before you "
    "choose a strategy by similarity. Words associated with a group are not bias by themselves (mastectomy is "
    "associated with women). Losing them loses information; adding others may be an error."
)

_GROUPS = "Similarity of generated reports to their references, and words lost or added, in each patient group."
_DECODING = "Differences between decoding strategies on the same images, with paired intervals."


def reports(books: Sequence[Book], curves: Rows, words: Rows, record: Mapping[str, Any], level: str) -> list[Section]:
    """Up to four sections for each dataset with generated reports."""
    models = writers(books, curves, words)
    datasets = list(dict.fromkeys(model.dataset for model in models))
    may_show = record.get("may_show") is True
    out = list[Section]()
    for at, dataset in enumerate(datasets):
        own = [model for model in models if model.dataset == dataset]
        where = f" on {dataset}" if len(datasets) > 1 else ""
        out += _sections(own, where, f"{at}" if at else "", level, may_show, _p_star(record))
    return out


def _p_star(record: Mapping[str, Any]) -> float:
    given = mapping(record.get("config")).get("p_star")
    return float(given) if isinstance(given, (int, float)) else math.nan


def _sections(
    models: Sequence[Writer], where: str, end: str, level: str, may_show: bool, p_star: float
) -> list[Section]:
    found = chosen(models, may_show)
    start = f"reports{end}"
    out = [Section(start, f"Similarity, variety and lost words{where}", f"Generated reports{where}", lead(models),
                   _strategies(models, found, level, may_show, start))]  # fmt: skip
    about = [*_plot(found, f"{start}-words", may_show), *word_tables(found), *p_stars(models, p_star, start)]
    if about:
        title = f"Words associated with a patient group{where}"
        out.append(Section(f"{start}-words", title, f"Words{where}", [], about))
    if groups := by_group(models, level, f"{start}-groups"):
        out.append(
            Section(
                f"{start}-groups",
                f"Similarity to references by patient group{where}",
                f"Subgroups{where}",
                [_GROUPS],
                groups,
            )
        )
    if compared := decoding(models):
        title = f"Every strategy against {baseline(models)}{where}"
        out.append(Section(f"decoding{end}", title, f"Decoding{where}", [_DECODING], compared))
    return out


def _strategies(
    models: Sequence[Writer], found: Sequence[Chosen], level: str, may_show: bool, ident: str
) -> list[Block]:
    pair = next((each for each in map(first_pair, models) if each), None)
    title = "Words lost against words added"
    blocks: list[Block | None] = [trade_offs(models, pair, ident, title, "tradeoff")]
    blocks += [strategy_table(model, first_pair(model), level) for model in models]
    blocks.append(Text(_CARE, "muted"))
    for at, model in enumerate(models):
        if said := sentences(model, found, may_show):
            title = "Each strategy in words" + (f": {model.model}" if len(models) > 1 else "")
            one = Said(title, said, by_finding=False, verbatim=True)
            blocks.append(one if not at else Fold(title, [Said("", said, by_finding=False, verbatim=True)]))
    blocks += [diversity(models, level, ident), vocabulary(models, ident)]
    return [block for block in blocks if block is not None]


def _plot(found: Sequence[Chosen], ident: str, may_show: bool) -> list[Block]:
    made = plot(found, ident, may_show)
    return [Text(READ), *made] if made else []


def report_facts(books: Sequence[Book]) -> Facts:
    """Data, reports, patients, models and strategies, where there is nothing else on the page."""
    facts: Facts = []
    names = list(dict.fromkeys(book.dataset for book in books if book.dataset))
    facts += [("Datasets" if len(names) > 1 else "Data", listed(names, 4))] if names else []
    models = writers(books, (), ())
    if models:
        largest = max((size(book) for model in models for book in model.strategies), key=lambda cell: cell.n)
        facts += [("Images", f"{largest.n:,}"), ("Patients", f"{largest.n_patients:,}")] if largest.n else []
        named = list(dict.fromkeys(model.model for model in models if model.model))
        facts += [("Models" if len(named) > 1 else "Model", listed(named, 4))] if named else []
        ways = list(dict.fromkeys(book.strategy for model in models for book in model.strategies))
        facts.append(("Strategies", listed(ways, 7)))
    return facts
