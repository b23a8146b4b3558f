"""WORD rows -> which words may be shown, and the plot of their displacement.

A word goes into a page only if at least LEAST patients have it, or the data may be shown; how many were left out is
said. A plot holds at most MOST words: all that moved by either rule, then the most frequent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cxrhf.report.blocks import Block, Figure, Fold, Words, as_json
from cxrhf.report.figures import CONTEXT, FIFTH, FOURTH, OVERALL, REMAINS, SEVENTH, SIXTH, Placed, displacement
from cxrhf.report.figures.displacement import BAND, NEUTRAL, STILL, STRETCHED, STRONG, reach
from cxrhf.report.maps import LEAST
from cxrhf.report.numbers import known
from cxrhf.report.sections.reports_shelf import Pair, Writer

MOST, BUDGET, FEWEST = 400, 9600, 100  # words of a plot, of all plots of a page, and of a plot at the least
STILLS = 150  # words that did not move, in a picture that stands still
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


class Chosen(NamedTuple):
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


def chosen(models: Sequence[Writer], may_show: bool) -> list[Chosen]:
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
    return [_chosen(*each, may_show, most) for each in found]


def _chosen(
    model: Writer, strategy: str, pair: Pair, rows: Sequence[Mapping[str, Any]], may_show: bool, most: int
) -> Chosen:
    whole = [row for row in rows if all(row[z] is not None and known(row[z]) for z in ("z_ref", "z_pred"))]
    open_to_see = [row for row in whole if may_be_shown(row, may_show)]

    def order(row: Mapping[str, Any]) -> tuple[bool, bool, float, str]:
        moved, by_print = row["category"] not in ("stable", None), row["category_paper"] not in ("stable", None)
        size = abs(row["z_pred"] - row["z_ref"]) if moved or by_print else float(_tokens(row))
        return not moved, not by_print, -size, row["word"]

    kept = sorted(open_to_see, key=order)[:most]
    return Chosen(model, strategy, pair, kept, len(whole), len(whole) - len(open_to_see))


def _tokens(row: Mapping[str, Any]) -> int:
    return sum(row[name] for name in ("n_ref_group", "n_ref_other", "n_pred_group", "n_pred_other"))


def words_of(found: Sequence[Chosen], model: Writer, strategy: str, pair: Pair, categories: Sequence[str]) -> list[str]:
    """Words of some categories that may be named, the most displaced first."""
    for each in found:
        if each.model is model and each.strategy == strategy and each.pair == pair:
            return [row["word"] for row in each.rows if row["category"] in categories]
    return []


def plot(found: Sequence[Chosen], ident: str, may_show: bool) -> list[Block]:
    """The plot that the reader chooses from, with one that stands still; and all strategies of the first pair."""
    if not found:
        return []
    ends = _ends(found)
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
    still = picture(first, ends[first.model.model, first.pair], f"{ident}-still")
    names = [pair.name for pair in pairs]
    block = Words(f"{ident}-plot", models, names, strategies, legend, as_json(data), still)
    return [block, Fold("All strategies side by side", [_side_by_side(found, ends, ident)])]


def _ends(found: Sequence[Chosen]) -> dict[tuple[str, Pair], float]:
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


def picture(each: Chosen, end: float, ident: str, most: int = STILLS) -> Any:
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


def _side_by_side(found: Sequence[Chosen], ends: Mapping[tuple[str, Pair], float], ident: str) -> Figure:
    head = found[0]
    same = [each for each in found if each.model is head.model and each.pair == head.pair]
    panels = [
        (each.strategy, picture(each, ends[each.model.model, each.pair], f"{ident}-each-{at}", 60))
        for at, each in enumerate(same)
    ]
    shown = {row["category"] for each in same for row in each.rows}
    legend = [(kind, name) for name, (kind, _) in CATEGORIES.items() if name in shown]
    caption = f"{head.model.model or 'The model'}, {head.pair.name}. {READ}"
    return Figure("", panels, legend, caption, file="displacement")


READ = (
    "Horizontal: association with a group in the references. Vertical: in the generated reports. Words on the "
    "diagonal did not change (grey band: within chance for a word with as many tokens in both). Words in the "
    "horizontal band are no longer associated with a group. Dotted vertical lines mark strong associations in the "
    "references."
)
