"""WORD rows -> which words may be shown, and the plot of their displacement.

A word goes into a page only if at least LEAST patients have it, or the data may be shown; how many were left out is
said. A plot holds at most MOST words: all that moved by either rule, then the most frequent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cxrhf.report.blocks import Block, Column, Entry, Figure, Fold, Table, Text, Words, as_json, fold_block, words_entry
from cxrhf.report.figures import CONTEXT, FIFTH, FOURTH, OVERALL, REMAINS, SEVENTH, SIXTH, Placed, displacement
from cxrhf.report.figures.scatter import BAND, NEUTRAL, STILL, STRETCHED, STRONG, reach
from cxrhf.report.numbers import format_number, is_finite
from cxrhf.report.sections.features import LEAST
from cxrhf.report.sections.reports_table import Pair, Writer

MOST, BUDGET, FEWEST = 400, 9600, 100  # words of a plot, of all plots of a page, and of a plot at the least
MOST_STATIC_DOTS = 150  # words that did not move, in a picture that stands still
# Category -> its mark and what it means, by our rule and by the printed one. The order is that of the legend.
CATEGORIES = {
    "omitted": (REMAINS, "associated with a group in the references, but rarely or never written"),
    "neutralised": (FIFTH, "written, but no longer more often for one group"),
    "new": (SIXTH, "neutral in the references, associated with a group in the generated reports"),
    "flip": (SEVENTH, "associated with the other group"),
    "amplified": (FOURTH, "associated with the same group, more than in the references"),
    "weakened": (CONTEXT, "less than in the references, or lost without a significant association there"),
    "preserved": (OVERALL, "associated with the same group as in the references"),
    "stable": (STILL, "no significant change, or too rare to tell"),
}
PRINTED = {
    "erasure": (REMAINS, "strong in the references, neutral in the generated reports"),
    "new": (SIXTH, "neutral in the references, not neutral in the generated reports"),
    "flip": (SEVENTH, "associated with the other group"),
    "preserved": (OVERALL, "displaced, on the same side"),
    "other": (CONTEXT, "displaced, but in no other category"),
    "stable": (STILL, "not displaced by this rule; includes every word that is never written"),
}
RULES = (("tested", "category", CATEGORIES), ("published rule", "category_paper", PRINTED))


class ChosenWords(NamedTuple):
    """The words of one model, strategy and pair of groups: those shown, and how many there are and were left out."""

    model: Writer
    strategy: str
    pair: Pair
    rows: Sequence[Mapping[str, Any]]
    n: int
    hidden: int  # of fewer than LEAST patients


def may_be_shown(row: Mapping[str, Any], may_show: bool) -> bool:
    """Whether a word may stand in a page."""
    return may_show or (row["n_patients"] or 0) >= LEAST


def choose_words(models: Sequence[Writer], may_show: bool) -> list[ChosenWords]:
    """Every model, pair of groups and strategy with its words, in this order."""
    found = []
    for model in models:
        by_key: dict[tuple[Pair, str], list[Mapping[str, Any]]] = {}
        for row in model.words:
            by_key.setdefault((Pair(row["group"], row["versus"] or ""), row["strategy"] or ""), []).append(row)
        pairs = [*model.pairs, *(key[0] for key in by_key if key[0] not in model.pairs)]
        for pair in dict.fromkeys(pairs):
            keys = [(pair, book.strategy) for book in model.strategies]
            found += [(model, key[1], pair, by_key[key]) for key in keys if key in by_key]
    most = max(FEWEST, min(MOST, BUDGET // max(1, len(found))))
    return [_choose_strategy_words(*each, may_show, most) for each in found]


def _choose_strategy_words(
    model: Writer, strategy: str, pair: Pair, rows: Sequence[Mapping[str, Any]], may_show: bool, most: int
) -> ChosenWords:
    whole = [row for row in rows if all(row[z] is not None and is_finite(row[z]) for z in ("z_ref", "z_pred"))]
    open_to_see = [row for row in whole if may_be_shown(row, may_show)]

    def order(row: Mapping[str, Any]) -> tuple[bool, bool, float, str]:
        moved, by_print = row["category"] not in ("stable", None), row["category_paper"] not in ("stable", None)
        size = abs(row["z_pred"] - row["z_ref"]) if moved or by_print else float(_tokens(row))
        return not moved, not by_print, -size, row["word"]

    kept = sorted(open_to_see, key=order)[:most]
    return ChosenWords(model, strategy, pair, kept, len(whole), len(whole) - len(open_to_see))


def _tokens(row: Mapping[str, Any]) -> int:
    return sum(row[name] for name in ("n_ref_group", "n_ref_other", "n_pred_group", "n_pred_other"))


def words_of(
    found: Sequence[ChosenWords], model: Writer, strategy: str, pair: Pair, categories: Sequence[str]
) -> list[str]:
    """Words of some categories that may be named, the most displaced first."""
    for each in found:
        if each.model is model and each.strategy == strategy and each.pair == pair:
            return [row["word"] for row in each.rows if row["category"] in categories]
    return []


def plot(found: Sequence[ChosenWords], ident: str, may_show: bool) -> list[Block]:
    """The plot that the reader chooses from, with one that stands still; and all strategies of the first pair."""
    if not found:
        return []
    ends = _axis_ends(found)
    vocabulary = {word: at for at, word in enumerate(dict.fromkeys(row["word"] for each in found for row in each.rows))}
    models = list(dict.fromkeys(each.model.model for each in found))
    pairs = list(dict.fromkeys(each.pair for each in found))
    strategies = list(dict.fromkeys(each.strategy for each in found))
    data = {
        "words": list(vocabulary),
        "band": round(BAND, 3),
        "neutral": NEUTRAL,
        "strong": STRONG,
        "stretched": STRETCHED,
        "least": 0 if may_show else LEAST,
        "sides": [list(pair.signs) for pair in pairs],
        "rules": [[[name, kind] for name, (kind, _) in kinds.items()] for _, _, kinds in RULES],
        "plots": [
            {
                "at": [models.index(e.model.model), pairs.index(e.pair), strategies.index(e.strategy)],
                "end": ends[e.model.model, e.pair],
                "n": e.n,
                "hidden": e.hidden,
                "rows": [_row(row, vocabulary) for row in e.rows],
            }
            for e in found
        ],
    }
    legend = [(name, [(kind, value, about) for value, (kind, about) in kinds.items()]) for name, _, kinds in RULES]
    first = found[0]
    still = static_plot(first, ends[first.model.model, first.pair], f"{ident}-still")
    names = [pair.name for pair in pairs]
    block = Words(f"{ident}-plot", models, names, strategies, legend, as_json(data), still)
    return [block, Fold("All strategies side by side", [_side_by_side(found, ends, ident)])]


def _axis_ends(found: Sequence[ChosenWords]) -> dict[tuple[str, Pair], float]:
    """One range for all strategies of a model and pair, so that they compare."""
    scores: dict[tuple[str, Pair], list[float]] = {}
    for each in found:
        values = [row[z] for row in each.rows for z in ("z_ref", "z_pred")]
        scores.setdefault((each.model.model, each.pair), []).extend(values)
    return {key: reach(values) for key, values in scores.items()}


def _row(row: Mapping[str, Any], vocabulary: Mapping[str, int]) -> list[Any]:
    counts = [row[name] for name in ("n_ref_group", "n_ref_other", "n_pred_group", "n_pred_other")]
    scores = [_rounded(row[name], 2) for name in ("z_ref", "z_pred", "z_disp")]
    codes = [_code(row[column] or "stable", kinds) for _, column, kinds in RULES]
    return [vocabulary[row["word"]], *counts, *scores, _rounded(q_of(row), 4), row["n_patients"], *codes]


def q_of(row: Mapping[str, Any]) -> float | None:
    """The corrected p value that decides: of omitted words that of the omission, of all others of the displacement."""
    found: float | None = row["q_omission" if row["category"] == "omitted" else "q_value"]
    return found


def _code(category: str, kinds: Mapping[str, Any]) -> int:
    names = list(kinds)
    return names.index(category if category in kinds else "stable")


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, digits)


def static_plot(each: ChosenWords, end: float, ident: str, most: int = MOST_STATIC_DOTS) -> Any:
    """One plot that stands still; words that did not move up to so many."""
    first, second = each.pair.signs
    placed, still = [], 0
    for row in each.rows:
        kind = CATEGORIES.get(row["category"] or "stable", CATEGORIES["stable"])[0]
        still += kind == STILL
        if kind == STILL and still > most:
            continue
        said = (
            f"{row['word']}: {row['category']}; references {row['n_ref_group']:,} ({first}), "
            f"{row['n_ref_other']:,} ({second}); generated {row['n_pred_group']:,} ({first}), "
            f"{row['n_pred_other']:,} ({second})"
        )
        placed.append(Placed(row["word"], kind, row["z_ref"], row["z_pred"], said))
    moved = [f"{row['word']} ({row['category']})" for row in each.rows if row["category"] not in ("stable", None)]
    about = f"Words that changed, {each.strategy}: {', '.join(moved[:40]) or 'none'}."
    title = f"Association of words with {each.pair.people}: references against {each.strategy}"
    return displacement(placed, end=end, sides=(first, second), ident=ident, title=title, about=about)


def _side_by_side(found: Sequence[ChosenWords], ends: Mapping[tuple[str, Pair], float], ident: str) -> Figure:
    head = found[0]
    same = [each for each in found if each.model is head.model and each.pair == head.pair]
    panels = [
        (each.strategy, static_plot(each, ends[each.model.model, each.pair], f"{ident}-each-{at}", 60))
        for at, each in enumerate(same)
    ]
    shown = {row["category"] for each in same for row in each.rows}
    legend = [(kind, name) for name, (kind, _) in CATEGORIES.items() if name in shown]
    caption = f"{head.model.model or 'The model'}, {head.pair.name}. {READING_GUIDE}"
    return Figure("", panels, legend, caption, file="displacement")


READING_GUIDE = (
    "Horizontal: association with a group in the references. Vertical: in the generated reports. Words on the "
    "diagonal did not change (grey band: within chance for a word with as many tokens in both). Words in the "
    "horizontal band are no longer associated with a group. Dotted vertical lines mark strong associations in the "
    "references."
)


# Words that may be shown -> tables of them by category, with their counts in references and generated reports.

LONGEST = 300  # rows of a table


def word_tables(found: Sequence[ChosenWords]) -> list[Block]:
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
        blocks.append(fold_block(_table(f"{name.capitalize()}: {about}", rows, several, None)))
    others = [
        (each, row)
        for each in found
        if each.pair != pairs[0]
        for row in each.rows
        if row["category"] not in ("stable", "preserved", None)
    ]
    blocks.append(fold_block(_table("Words that changed between other groups", others, several, pairs)))
    if hidden := max(each.hidden for each in found):
        words = f"Words of fewer than {LEAST} patients are excluded from every figure and table on this page: up to "
        blocks.append(Text(f"{words}{hidden:,} in one comparison.", "muted"))
    return [block for block in blocks if block is not None]


def _table(
    caption: str, rows: Sequence[tuple[ChosenWords, Mapping[str, Any]]], several: bool, pairs: Sequence[Pair] | None
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
        cells += [Entry(format_number(row[name], 1)) for name in ("z_ref", "z_pred")]
        cells.append(_q(q_of(row)))
        made.append([*cells, words_entry(row["category_paper"] or "–")])
    more = f"The first {LONGEST} of {len(rows):,}; all are in words.parquet." if len(rows) > LONGEST else ""
    return Table(caption, columns, made, about=more, by_finding=False)


def _q(value: float | None) -> Entry:
    """A corrected p value, which sorts by all its digits."""
    if value is None or not is_finite(value):
        return Entry("–")
    return Entry("< 0.001" if value < 0.001 else format_number(value), key=f"{value:g}")
