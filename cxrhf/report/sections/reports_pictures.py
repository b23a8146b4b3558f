"""Numbers of strategies -> pictures: what is lost against what is added, diversity, vocabulary, the level p*."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from cxrhf.report.blocks import Block, Figure, Fold
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
from cxrhf.report.figures.sweep import STYLES
from cxrhf.report.numbers import known, percent, short
from cxrhf.report.sections.reports_rows import DIVERSITY, metric_of
from cxrhf.report.sections.reports_shelf import Pair, Writer, emergent

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
        if any(known(each.lost, each.added) for each in points):
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
                (short(book.strategy, 14), [Dot(OVERALL, model.get(book, metric.name).mark, book.strategy, null)])
                for book in model.strategies
                if known(model.get(book, metric.name).value)
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
            if known(kept, lost, new):
                tick = kept + lost
                share = f"{percent(kept / tick)} kept" if tick else ""
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
            end = max([4.0, *(value for each in twin for value in each.curve.y if known(value))])
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
        + (f"; dashed: {here:g}, as used here" if known(here) else "")
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
            if known((cell := book.get("reports", "macro", metric, "", group)).value)
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
