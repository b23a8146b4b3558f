"""RESULT, CURVE and WORD rows of generated reports -> sections: strategies, words, groups, differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cxrhf.report.blocks import (
    CHANCE,
    Block,
    Column,
    Entry,
    Figure,
    Fold,
    Section,
    Sentences,
    Table,
    Text,
    difference,
    entry,
    fold_block,
)
from cxrhf.report.book import DECODING, MACRO, REPORTS, Book, Cell
from cxrhf.report.figures import (
    CONTEXT,
    FIFTH,
    FOURTH,
    OVERALL,
    REMAINS,
    SIXTH,
    Axis,
    Dot,
    DotRow,
    Swept,
    Tally,
    Trade,
    dots,
    sweep,
    tally,
    tradeoff,
)
from cxrhf.report.figures.scatter import STYLES
from cxrhf.report.numbers import format_number, format_p_value, format_percent, is_finite, join_names, shorten
from cxrhf.report.sections.provenance import Facts, mapping
from cxrhf.report.sections.reports_table import (
    DIVERSITY,
    GROUPS,
    SIMILARITY,
    Pair,
    Writer,
    emergent,
    extreme_strategies,
    largest_cell,
    metric_of,
    report_entry,
    reports_of,
    strategy_table,
    writers,
)
from cxrhf.report.sections.reports_words import READING_GUIDE, ChosenWords, choose_words, plot, word_tables, words_of
from cxrhf.report.sections.view import Rows, Sentence

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
    found = choose_words(models, may_show)
    start = f"reports{end}"
    title, blocks = f"Similarity, variety and lost words{where}", _strategies(models, found, level, may_show, start)
    out = [Section(start, title, f"Generated reports{where}", reports_summary(models), blocks)]
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
    models: Sequence[Writer], found: Sequence[ChosenWords], level: str, may_show: bool, ident: str
) -> list[Block]:
    pair = next((each for each in map(first_pair, models) if each), None)
    title = "Words lost against words added"
    blocks: list[Block | None] = [trade_offs(models, pair, ident, title, "tradeoff")]
    blocks += [strategy_table(model, first_pair(model), level) for model in models]
    blocks.append(Text(_CARE, "muted"))
    for at, model in enumerate(models):
        if said := sentences(model, found, may_show):
            title = "Each strategy in words" + (f": {model.model}" if len(models) > 1 else "")
            one = Sentences(title, said, by_finding=False, verbatim=True)
            blocks.append(one if not at else Fold(title, [Sentences("", said, by_finding=False, verbatim=True)]))
    blocks += [diversity(models, level, ident), vocabulary(models, ident)]
    return [block for block in blocks if block is not None]


def _plot(found: Sequence[ChosenWords], ident: str, may_show: bool) -> list[Block]:
    made = plot(found, ident, may_show)
    return [Text(READING_GUIDE), *made] if made else []


def report_facts(books: Sequence[Book]) -> Facts:
    """Data, reports, patients, models and strategies, where there is nothing else on the page."""
    facts: Facts = []
    names = list(dict.fromkeys(book.dataset for book in books if book.dataset))
    facts += [("Datasets" if len(names) > 1 else "Data", join_names(names, 4))] if names else []
    models = writers(books, (), ())
    if models:
        largest = max((largest_cell(book) for model in models for book in model.strategies), key=lambda cell: cell.n)
        facts += [("Images", f"{largest.n:,}"), ("Patients", f"{largest.n_patients:,}")] if largest.n else []
        named = list(dict.fromkeys(model.model for model in models if model.model))
        facts += [("Models" if len(named) > 1 else "Model", join_names(named, 4))] if named else []
        ways = list(dict.fromkeys(book.strategy for model in models for book in model.strategies))
        facts.append(("Strategies", join_names(ways, 7)))
    return facts


# Numbers of reports by patient group -> likeness by group, and words that go with other groupings.

PICTURED = 6  # pairs of groups with a picture; the table has all
_ASSOCIATION = {metric.name for _, metrics in GROUPS for metric in metrics if metric.pair}


def quality_metrics(model: Writer) -> list[str]:
    """Numbers of likeness that some group has, in the order of the table."""
    there = {
        key[2] for book in model.strategies for key in book.keys(REPORTS)
        if key[3] != "all" and not key[4] and key[2] not in _ASSOCIATION and not key[2].startswith("wae_")
    }  # fmt: skip
    first = [metric.name for metric in SIMILARITY if metric.name in there]
    return [*first, *sorted(there - set(first))]


def by_group(models: Sequence[Writer], level: str, ident: str) -> list[Block]:
    """A picture of one number of likeness by group; tables of all in folds; then words of other groupings."""
    blocks: list[Block | None] = []
    for at, model in enumerate(models):
        whose = f", {model.model}" if len(models) > 1 else ""
        metrics = quality_metrics(model)
        shown = next((name for name in ("bertscore_f1", "rougeL", *metrics) if name in metrics), None)
        if shown and not at:
            blocks.append(quality_dots(model, shown, level, f"{ident}-{at}"))
        blocks += [fold_block(_quality(model, name, whose)) for name in metrics]
    for model in models:
        whose = f", {model.model}" if len(models) > 1 else ""
        blocks += [fold_block(_associations(model, whose)), fold_block(_displacement(model, whose))]
    figures = []
    for k, pair in enumerate(_other_pairs(models)[:PICTURED]):
        own = [model for model in models if pair in model.pairs]
        figures.append(trade_offs(own, pair, f"{ident}-pair-{k}", pair.name))
    if there := [figure for figure in figures if figure is not None]:
        blocks.append(Fold("Words lost against words added, other groups", there))
    return [block for block in blocks if block is not None]


def _other_pairs(models: Sequence[Writer]) -> list[Pair]:
    first = models[0].pairs[:1] if models else []
    return [pair for pair in dict.fromkeys(p for model in models for p in model.pairs) if pair not in first]


def _quality(model: Writer, metric: str, whose: str) -> Table | None:
    """Groups and differences between them as rows, strategies as columns."""
    keys = dict.fromkeys((key[3], key[4]) for book in model.strategies for key in book.keys(REPORTS)
                         if key[2] == metric and key[3] != "all")  # fmt: skip
    rows = []
    for group, versus in sorted(keys, key=lambda key: bool(key[1])):
        cells = [book.get(REPORTS, MACRO, metric, versus, group) for book in model.strategies]
        name = f"{_name(group)} minus {_name(versus)}" if versus else _name(group)
        made = [difference(cell) if versus else entry(cell) for cell in cells]
        sizes = "" if versus else f"{max(cell.n for cell in cells):,}"
        rows.append([Entry(name), Entry(sizes), *made])
    columns = [Column("Group"), Column("Reports"), *(Column(book.strategy) for book in model.strategies)]
    found = metric_of(metric)
    about = (
        "Differences are the first group minus the second, with the p value for no difference. Groups also differ in "
        "what their images show, so a difference alone does not mean that the reports of one group are worse."
    )
    title = f"{found.title} by patient group{whose}"
    return Table(title, columns, rows, about=about, by_finding=False) if rows else None


def _name(group: str) -> str:
    return group.replace("=", " ")


def _associations(model: Writer, whose: str) -> Table | None:
    """Erased, new and flipped words of every pair of groups, a column a strategy."""
    rows = []
    for pair in model.pairs:
        cells = []
        for book in model.strategies:
            counts = [model.get(book, name, pair).value for name in ("erasure", "new", "flip")]
            if not any(is_finite(value) for value in counts):
                cells.append(Entry("–", hint=model.get(book, "erasure", pair).note))
                continue
            chances = [model.get(book, f"{name}.chance", pair).value for name in ("erasure", "new", "flip")]
            below = (
                f"by chance {' / '.join(format_number(v, 1) for v in chances)}"
                if any(is_finite(v) for v in chances)
                else ""
            )
            cells.append(Entry(" / ".join(format_number(value, 0) for value in counts), below))
        total = max((model.get(b, "n_associated", pair).value for b in model.strategies), key=_or_below_zero)
        rows.append([Entry(pair.name), Entry(format_number(total, 0)), *cells])
    if len(rows) < 2:
        return None
    columns = [
        Column("Groups"),
        Column("Associated", "Words significantly associated with one of the groups in the references"),
        *(Column(book.strategy, "Erased / new / flipped words") for book in model.strategies),
    ]
    title = f"Erased / new / flipped words of every pair of groups{whose}"
    about = "With few patients in a group, hardly any word can be shown to be associated with it, so a 0 means little."
    return Table(title, columns, rows, about=about, by_finding=False)


def _or_below_zero(value: float) -> float:
    return value if is_finite(value) else -1.0


def _displacement(model: Writer, whose: str) -> Table | None:
    """WAE over the words of each group and both WAE of each pair."""
    rows = []
    for name, title in (("wae_prediction", "generated weights"), ("wae_reference", "reference weights")):
        for pair in model.pairs:
            cells = [model.get(book, name, pair) for book in model.strategies]
            if any(is_finite(cell.value) for cell in cells):
                rows.append([Entry(pair.name), Entry(f"WAE, {title}", words=True), *map(difference, cells)])
        for group in model.groups:
            of = [_of_group(book, f"{name}.group", group) for book in model.strategies]
            if any(is_finite(cell.value) for cell in of):
                words = Entry(f"WAE over words of this group, {title}", words=True)
                rows.append([Entry(_name(group)), words, *map(entry, of)])
    if not rows:
        return None
    columns = [Column("Groups"), Column("Number", words=True), *(Column(book.strategy) for book in model.strategies)]
    about = (
        "WAE has no direction: it is low for faithful text, and low again after collapse. p tests for no displacement."
    )
    return Table(f"WAE of every pair and group{whose}", columns, rows, about=about, by_finding=False)


def _of_group(book: Book, metric: str, group: str) -> Cell:
    return book.get(REPORTS, MACRO, metric, "", group)


# Numbers of strategies -> pictures: what is lost against what is added, diversity, vocabulary, the level p*.

_MARKS = (OVERALL, REMAINS, FOURTH, FIFTH, SIXTH)  # of models, in their order; more than these share the last
_RULES = (("", "Tested (our rule)"), (".paper", "The published rule"))
_PARTS = (("kept", "kept"), ("lost", "lost"), ("added", "new"))


def trade_offs(
    models: Sequence[Writer], pair: Pair | None, ident: str, title: str = "", file: str = ""
) -> Figure | None:
    """Erasure against new and flipped associations, by our rule and by the printed one."""
    if pair is None:
        return None
    several = len(models) > 1
    panels = []
    for end, name in _RULES:
        points = []
        for at, model in enumerate(models):
            kind = _MARKS[min(at, len(_MARKS) - 1)]
            for book in model.strategies:
                lost, chance = (model.get(book, f"erasure{end}{x}", pair).value for x in ("", ".chance"))
                added, by_chance = (emergent(model, book, pair, f"{end}{x}") for x in ("", ".chance"))
                points.append(Trade(kind, book.strategy, lost, added, chance, by_chance))
        if any(is_finite(each.lost, each.added) for each in points):
            how = {"across": "erased words", "up": "new and flipped words", "title": f"{name}: lost and added"}
            panels.append((name, tradeoff(points, ident=f"{ident}-trade{end.replace('.', '-')}", **how)))
    if not panels:
        return None
    legend = [(_MARKS[min(at, len(_MARKS) - 1)], model.model or "the model") for at, model in enumerate(models)]
    caption = (
        f"{pair.name}. Right: more words lose the association they have in the references. Up: more words gain one "
        "that the references do not have. Grey: expected by chance (group labels shuffled between patients). The "
        "published rule counts without correction and cannot detect words that are never written."
    )
    return Figure(title, panels, [*(legend if several else []), (CONTEXT, "expected by chance")], caption, file=file)


def diversity(models: Sequence[Writer], level: str, ident: str) -> Figure | None:
    """How varied the reports of each strategy are, a panel a number; a tick is what the references have."""
    panels = []
    for metric in DIVERSITY:
        if metric.form != "share" or metric.name == "top_template":
            continue
        rows = []
        for model in models:
            null = model.get(model.reference, metric.name).value
            lanes = [
                (shorten(book.strategy, 14), [Dot(OVERALL, model.get(book, metric.name).mark, book.strategy, null)])
                for book in model.strategies
                if is_finite(model.get(book, metric.name).value)
            ]
            if lanes:
                rows.append(DotRow(model.model or "Generated reports", lanes, other=True))
        if rows:
            most = max(d.mark.value for row in rows for _, lane in row.lanes for d in lane)
            small = most < 0.1 and not any(d.null > 0.1 for row in rows for _, lane in row.lanes for d in lane)
            axis = Axis(f"{metric.points}", 0.0, 0.05 if small else 1.0, floor=0.0, ceiling=1.0, step=0.05)
            panels.append((metric.title, dots(rows, axis, ident=f"{ident}-{metric.name}", title=metric.title, lane=17)))
    if not panels:
        return None
    legend = [(OVERALL, "generated"), ("tick-null", "references")]
    return Figure("Variety of the reports", panels, legend, f"Bars are {level} intervals.", file="diversity")


def vocabulary(models: Sequence[Writer], ident: str) -> Figure | None:
    """Words kept, lost and new, a bar a strategy."""
    panels = []
    for at, model in enumerate(models):
        tallies, tick = [], math.nan
        for book in model.strategies:
            kept, lost, new = (model.get(book, f"vocabulary_{name}").value for name in ("kept", "lost", "new"))
            if is_finite(kept, lost, new):
                tick = kept + lost
                share = f"{format_percent(kept / tick)} kept" if tick else ""
                tallies.append(Tally(book.strategy, (kept, lost, new), share))
        if tallies:
            how = {"label": "words; tick: all words of the references", "title": "Vocabulary kept, lost and new"}
            panels.append((model.model, tally(tallies, _PARTS, tick=tick, ident=f"{ident}-vocabulary-{at}", **how)))
    if not panels:
        return None
    about = "Kept and lost words are words of the references, without stop words. New words are in no reference."
    panels = panels if len(panels) > 1 else [("", panels[0][1])]
    return Figure("Vocabulary", panels, list(_PARTS), about, file="vocabulary")


def along_p_star(model: Writer, pair: Pair | None, here: float, ident: str) -> Figure | None:
    """Counts along the level of significance, ours and those of the printed rule."""
    if pair is None:
        return None
    kinds = (
        ("p_star.erasure", "Erased, tested"), ("p_star.emergent", "Added, tested"),
        ("p_star.erasure.paper", "Erased, published rule"), ("p_star.emergent.paper", "Added, published rule"),
    )  # fmt: skip
    panels, used = [], dict[str, int]()
    found = {
        kind: [
            Swept(book.strategy, model.lines[key], 1 + at % STYLES)
            for at, book in enumerate(model.strategies)
            if (key := (book.strategy, kind, pair.group)) in model.lines
        ]
        for kind, _ in kinds
    }
    for at, (kind, title) in enumerate(kinds):
        lines = found[kind]
        if lines:
            # Both rules on one scale.
            twin = [each for other in (kind.removesuffix(".paper"), f"{kind.removesuffix('.paper')}.paper")
                    for each in found[other]]  # fmt: skip
            end = max([4.0, *(value for each in twin for value in each.curve.y if is_finite(value))])
            drawn = sweep(
                lines, across="p* (logarithmic)", up="words", here=here, end=end, ident=f"{ident}-p-{at}", title=title
            )
            panels.append((title, drawn))
            used |= {each.name: each.style for each in lines}
    if not panels:
        return None
    legend = [(f"line-{style}", name) for name, style in used.items()]
    caption = (
        f"{pair.name}. Number of words that each rule counts as erased, and as new or flipped (added), at other "
        "significance levels"
        + (f"; dashed: {here:g}, as used here" if is_finite(here) else "")
        + ". If the order of strategies stays the same, it does not depend on the level."
    )
    return Figure(
        "Erased and added words at other significance levels (p*)", panels, legend, caption, file="p_star", size="small"
    )


def p_stars(models: Sequence[Writer], here: float, ident: str) -> list[Block]:
    """That of the first model open, the others folded."""
    blocks = list[Block]()
    for at, model in enumerate(models):
        figure = along_p_star(model, next(iter(model.pairs), None), here, f"{ident}-{at}")
        if figure is not None:
            alone = replace(figure, title="", file="")
            blocks.append(figure if not at else Fold(f"{figure.title}: {model.model}", [alone]))
    return blocks


def quality_dots(model: Writer, metric: str, level: str, ident: str) -> Figure | None:
    """One number of likeness by patient group, a row a strategy."""
    rows = []
    groups = [group for group in model.groups if " & " not in group]
    for book in model.strategies:
        lanes = [
            (group.replace("=", " "), [Dot(OVERALL, cell.mark, group)])
            for group in groups
            if is_finite((cell := book.get("reports", "macro", metric, "", group)).value)
        ]
        if lanes:
            rows.append(DotRow(book.strategy, lanes, other=True))
    if not rows:
        return None
    title = metric_of(metric).title
    values = [d.mark.value for row in rows for _, lane in row.lanes for d in lane]
    axis = Axis(title, math.floor(10 * min(values)) / 10, math.ceil(10 * max(values)) / 10, step=0.05)
    half = (len(rows) + 1) // 2 if len(rows) > 2 else len(rows)
    panels = [
        ("", dots(part, axis, ident=f"{ident}-quality-{at}", title=f"{title} by patient group", lane=15))
        for at, part in enumerate((rows[:half], rows[half:]))
        if part
    ]
    return Figure(f"{title} by patient group", panels, (), f"Bars are {level} intervals.", file="report_groups")


# Numbers of strategies -> plain sentences: how many different reports, what is lost, what is added.

# The likeness that is named in sentences: the first that is there.
_ALIKE = (("bertscore_f1", "BERTScore F1"), ("rougeL", "ROUGE-L"), ("rouge1", "ROUGE-1"), ("bleu", "BLEU"))


def reports_summary(models: Sequence[Writer]) -> list[str]:
    """The least and the most varied strategy of each model, or the least of more than two; the worst model first."""
    said = []
    for model in sorted(models, key=_least_varied):
        ends = extreme_strategies(model, "template_diversity", -1)[:1]
        ends += extreme_strategies(model, "template_diversity")[-1:] if len(models) <= 2 else []
        chosen = list({book.strategy: book for book in ends or model.strategies[:1]}.values())
        whose = model.model or "the model"
        for book in chosen:
            words = " ".join(
                part
                for part in (_diversity_words(model, book), _association_words(model, book, first_pair(model)))
                if part
            )
            how = "As given," if book.strategy == "as given" else f"With {book.strategy} decoding,"
            said += [f"{how} {whose} {words}"] if words else []
    return said + (_other_grouping_sentence(models[0]) if models else [])


def _least_varied(model: Writer) -> float:
    values = [model.get(book, "template_diversity").value for book in model.strategies]
    return min(filter(is_finite, values), default=1.0)


def _other_grouping_sentence(model: Writer) -> list[str]:
    """The grouping beyond the first of which a strategy loses most words; crossings are too many to search."""
    found = [
        (cell.value, book, pair)
        for pair in model.pairs[1:]
        for book in model.strategies
        if " & " not in pair.group and is_finite((cell := model.get(book, "erasure", pair)).value) and cell.value
    ]
    if not found:
        return []
    lost, book, pair = max(found, key=lambda each: each[0])
    total = model.get(book, "n_associated", pair).value
    of = f" of {total:,.0f}" if is_finite(total) else ""
    how = "" if book.strategy == "as given" else f" with {book.strategy} decoding"
    whose = f"Among other groups, the largest loss is of words associated with {pair.people}"
    return [f"{whose}: {lost:,.0f}{of} erased{how}."]


def first_pair(model: Writer) -> Pair | None:
    """The pair of groups that sentences are of: the sexes where they were compared."""
    return next(iter(model.pairs), None)


def sentences(model: Writer, found: Sequence[ChosenWords], may_show: bool) -> list[Sentence]:
    """What is said of each strategy, with words that were lost and added, and its most frequent report if it may be."""
    out = []
    for book in model.strategies:
        pair = first_pair(model)
        parts = [_diversity_words(model, book), _association_words(model, book, pair)]
        if pair is not None:
            for title, categories in (
                ("Erased", ("omitted", "neutralised")),
                ("New", ("new",)),
                ("Flipped", ("flip",)),
            ):
                names = words_of(found, model, book.strategy, pair, categories)
                parts.append(f"{title}: {join_names(names, 7)}." if names else "")
        top = model.get(book, "top_template")
        if may_show and is_finite(top.value) and top.note:
            parts.append(
                f"The most frequent report, for {format_percent(top.value)} of the images: “{shorten(top.note, 240)}”"
            )
        words = " ".join(part for part in parts if part)
        if words:
            out.append(Sentence(book.strategy, words, *_tag(model, book)))
    return out


def _diversity_words(model: Writer, book: Book) -> str:
    """`writes 3 different reports for 400 images (0.8%; ...). ROUGE-L is 0.291, the highest of the 6 strategies.`"""
    kinds, diversity = (model.get(book, name).value for name in ("n_templates", "template_diversity"))
    n, theirs = reports_of(book), model.get(model.reference, "template_diversity").value
    beside = f", against {format_percent(theirs)} in the references" if is_finite(theirs) else ""
    parts = []
    if is_finite(kinds) and n:
        noun = f"{kinds:,.0f} different reports" if kinds != 1 else "the same report"
        parts.append(f"writes {noun} for {n:,} images ({format_percent(kinds / n)}{beside}).")
    else:
        share = f"{format_percent(diversity)} of them different{beside}" if is_finite(diversity) else ""
        parts.append(f"writes {n:,} reports{f', {share}' if share else ''}.")
    alike = next(((name, title) for name, title in _ALIKE if is_finite(model.get(book, name).value)), None)
    if alike:
        name, title = alike
        best, place = extreme_strategies(model, name), ""
        several = sum(is_finite(model.get(each, name).value) for each in model.strategies)
        if several > 1 and any(each is book for each in best):
            place = f", the highest of the {several} strategies" if len(best) == 1 else ", among the highest"
        parts.append(f"{title} is {format_number(model.get(book, name).value)}{place}.")
    return " ".join(parts)


def _association_words(model: Writer, book: Book, pair: Pair | None) -> str:
    """What became of the words that go with a group."""
    if pair is None:
        return ""
    total, lost = (model.get(book, name, pair).value for name in ("n_associated", "erasure"))
    omitted, neutral = (model.get(book, name, pair).value for name in ("omitted", "neutralised"))
    new, flip = (model.get(book, name, pair).value for name in ("new", "flip"))
    if not is_finite(lost):
        note = model.get(book, "erasure", pair).note
        return f"Changes in words associated with {pair.people} are undefined: {note}." if note else ""
    if is_finite(total) and not total:
        said = f"In the references, no word is significantly associated with {pair.people}, so no loss can be shown"
        if is_finite(mass := model.get(book, "omitted_mass").value) and mass:
            said += f" ({format_percent(mass)} of all reference words are written less than half as often)"
    else:
        of = f"Of the {total:,.0f} words associated" if is_finite(total) and total != 1 else "Of the words associated"
        ways = []
        if lost and is_finite(omitted, neutral):
            ways += [f"{omitted:,.0f} rarely or never written"] if omitted else []
            ways += [f"{neutral:,.0f} no longer associated with a group"] if neutral else []
        ways += _by_chance(model, book, pair, ("erasure",))
        inside = f" ({'; '.join(ways)})" if ways else ""
        count, verb = f"{lost:,.0f}" if lost else "none", "is" if lost in (0, 1) else "are"
        said = f"{of} with {pair.people} in the references, {count} {verb} erased{inside}"
    if is_finite(new, flip):
        by_chance = _by_chance(model, book, pair, ("new", "flip"))
        beside = f" ({by_chance[0]})" if by_chance else ""
        noun = "association is" if new == 1 else "associations are"
        added = f"{new:,.0f} {noun} new and {flip:,.0f} flipped{beside}"
        said += f"; {added if new or flip else 'no new or flipped association was found'}"
    return f"{said}."


def _by_chance(model: Writer, book: Book, pair: Pair, names: Sequence[str]) -> list[str]:
    value = sum(model.get(book, f"{name}.chance", pair).value for name in names)
    return [f"{format_number(value, 1)} expected by chance"] if is_finite(value) else []


def _tag(model: Writer, book: Book) -> tuple[str, str]:
    """A tag where fewer than half as many reports differ as among the references."""
    own, theirs = (model.get(each, "template_diversity").value for each in (book, model.reference))
    collapsed = is_finite(own, theirs) and own < 0.5 * theirs
    return ("few templates", "strong") if collapsed else ("", "plain")


# RESULT rows of the audit "decoding" -> strategies compared on the same images, a table a model.

_ORDER = [metric.name for _, metrics in GROUPS for metric in metrics]


def decoding(models: Sequence[Writer]) -> list[Block]:
    """That of the first model open, the others folded."""
    blocks = list[Block]()
    for model in models:
        table = _table(model, f": {model.model}" if len(models) > 1 else "")
        if table is not None:
            fold = fold_block(table) if blocks else None
            blocks.append(fold or table)
    return blocks


def baseline(models: Sequence[Writer]) -> str:
    """The strategy that the others are compared with, "" where none are."""
    return next((each[3] for model in models for each in model.differences()), "")


def _table(model: Writer, whose: str) -> Table | None:
    keys = model.differences()
    if not keys:
        return None
    keys.sort(key=lambda key: (key[1] != "all", _ORDER.index(key[0]) if key[0] in _ORDER else len(_ORDER)))
    against = baseline([model])
    books = [book for book in model.strategies if book.has(DECODING)]
    rows = []
    for metric, part, versus, _ in keys:
        found = metric_of(metric)
        cells = [_cell(book, metric, part, versus) for book in books]
        made = []
        for cell in cells:
            entry = report_entry(cell, found)
            if is_finite(cell.value, cell.p_value):
                entry = entry._replace(tail=f"p\u00a0{format_p_value(cell.p_value)}", strong=cell.p_value < CHANCE)
            made.append(entry)
        where = "all" if part == "all" else part.replace("=", " ")
        rows.append([Entry(found.title), Entry(where, words=True), *made])
    columns = [Column("Number"), Column("Of", "The whole sample, or words associated with this group", words=True)]
    columns += [Column(f"{book.strategy} minus {against}") for book in books]
    about = (
        "Each strategy minus the baseline strategy, on the same images and the same resamples of patients. WAE has no "
        "direction: a difference shows that displacement differs, not which strategy is better."
    )
    return Table(f"Strategies minus {against}{whose}", columns, rows, about=about, by_finding=False)


def _cell(book: Book, metric: str, part: str, versus: str) -> Cell:
    return book.get(DECODING, MACRO, metric, versus, part)
