"""Counted corpora -> what the `evaluate` modules `cad` and `wae` return: plain numbers and words, with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from cxrhf.metrics.checks import InputError, as_count, as_fraction, one_of
from cxrhf.metrics.displacement import DEFAULT_CATEGORIES, PAPER_CATEGORIES, Displacement, categories, count_categories
from cxrhf.metrics.words import (
    WordBootstrap,
    bootstrap_words,
    cad_corpora,
    delta_dir,
    delta_wae,
    omitted_mass,
    split_half,
    swap_corpora,
    wae,
)
from cxrhf.metrics.words_corpora import Corpora, corpora

_CALM = ("stable", "preserved", "undefined")


def two_groups(
    references: Iterable[str],
    predictions: Iterable[str],
    groups: Sequence[Any],
    patients: Sequence[Any] | None = None,
    *,
    pair: Sequence[str] | None = None,
    group: str | None = None,
) -> Corpora:
    """Both corpora of two groups: the only two, the `pair`, or one `group` and all others together."""
    if pair is not None and group is not None:
        raise InputError("pair and group: expected one of them, got both")
    texts = corpora(references, predictions, groups, patients)
    if group is not None:
        return texts.against_rest(group)
    if pair is None:
        if len(texts.groups) != 2:
            raise InputError(
                f"groups: expected 2, got {len(texts.groups)} ({', '.join(texts.groups) or 'none'}). "
                "Pass pair=('F', 'M') to choose two, or group='F' to compare one with all others."
            )
        return texts.pair()
    if isinstance(pair, str) or len(pair) != 2:
        raise InputError(f"pair: expected the names of two groups, got {pair!r}")
    return texts.pair((str(pair[0]), str(pair[1])))


def cad_result(
    found: Displacement, drawn: WordBootstrap | None = None, *, max_words: int = 50, level: float = 0.95
) -> dict[str, Any]:
    """The result of the module `cad`: erased words as a share of the associated ones, counts, and the moved words."""
    as_count(max_words, "max_words", 0)
    as_fraction(level, "level")
    printed = found.rule == "paper"
    by_category = count_categories(found.category, PAPER_CATEGORIES if printed else DEFAULT_CATEGORIES)
    # The printed rule has no test of the reference association; its band for a strong one stands in.
    associated = int((np.abs(found.z_ref) > found.z_strong).sum() if printed else (~np.isnan(found.q_omission)).sum())
    erased = by_category["erasure"]
    reason = _silent(found) or (None if associated else "no word is associated with a group in the references")
    out: dict[str, Any] = {
        "cad": float("nan") if reason else erased / associated,
        "cad_erased": erased,
        "cad_associated": associated,
        "cad_words": len(found.words),
        "cad_categories": by_category,
        "cad_paper": count_categories(categories(found, rule="paper").category, PAPER_CATEGORIES),
        "cad_omitted_mass": omitted_mass(found),
        "cad_delta_dir": delta_dir(found),
        "cad_groups": list(found.groups),
    }
    if reason:
        out["cad_note"] = f"undefined: {reason}"
    if drawn is not None:
        ends = drawn.interval("delta_dir", level)
        out |= _interval_keys("cad_delta_dir", ends.low, ends.high, ends.method)
    out["cad_moved"] = _moved_word_rows(found, drawn, max_words, level)
    return out


def _moved_word_rows(
    found: Displacement, drawn: WordBootstrap | None, max_words: int, level: float
) -> list[dict[str, Any]]:
    """Displaced or erased words: erased ones first, then by |z_disp|, then by alphabet."""
    names = found.category.tolist()
    erased = ("omitted", "neutralised", "erasure")
    size = np.nan_to_num(np.abs(found.z_disp))
    order = sorted(
        (i for i, name in enumerate(names) if name not in _CALM),
        key=lambda i: (names[i] not in erased, -size[i], found.words[i]),
    )
    place = {} if drawn is None else {word: i for i, word in enumerate(drawn.vocabulary)}
    z = float(ndtri(0.5 + level / 2))
    rows = []
    for i in order[:max_words]:
        row: dict[str, Any] = {
            "word": found.words[i],
            "category": names[i],
            "reference": found.reference[:, i].tolist(),
            "prediction": found.prediction[:, i].tolist(),
            "z_ref": float(found.z_ref[i]),
            "z_pred": float(found.z_pred[i]),
            "z_disp": float(found.z_disp[i]),
            "q_value": float(found.q_value[i]),
        }
        if drawn is not None:
            value, se = float(found.s_pred[i] - found.s_ref[i]), float(drawn.se_disp[place[found.words[i]]])
            row |= {"displacement": value} | _interval_keys(
                "displacement", value - z * se, value + z * se, "bootstrap se"
            )
        rows.append(row)
    return rows


def wae_result(
    texts: Corpora,
    *,
    weights: str = "prediction",
    alpha: float = 0.1,
    n_null: int = 200,
    n_resamples: int = 0,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, Any]:
    """The result of the module `wae`: value, null (halves of the references), omitted mass, interval, p value."""
    one_of(weights, "weights", ("prediction", "reference"))
    tail = (1 - as_fraction(level, "level")) / 2
    found = cad_corpora(texts, alpha=alpha)
    statistic, delta = f"wae_{weights}", f"delta_wae_{weights}"
    value = wae(found, weights)
    out: dict[str, Any] = {"wae": value}
    drawn = bootstrap_words(texts, alpha=alpha, n_resamples=n_resamples, seed=seed) if n_resamples else None
    if drawn is not None:
        ends = drawn.interval(statistic, level)
        out |= _interval_keys("wae", ends.low, ends.high, ends.method)
        out["wae_p_value"] = swap_corpora(texts, alpha=alpha, n_resamples=n_resamples, seed=seed).p_value[statistic]
    if n_null:
        halves = split_half(texts, alpha=alpha, n_resamples=n_null, seed=seed)[statistic]
        known = halves[~np.isnan(halves)]
        low, high = np.quantile(known, [tail, 1 - tail]) if len(known) else (np.nan, np.nan)
        mean = float(known.mean()) if len(known) else float("nan")
        out |= {"wae_null": mean, "wae_null_low": float(low), "wae_null_high": float(high)}
    out["wae_omitted_mass"] = omitted_mass(found)
    out["wae_by_group"] = {name: wae(found, weights, name) for name in found.groups}
    out["wae_delta"] = delta_wae(found, weights)
    if drawn is not None:
        ends = drawn.interval(delta, level)
        out |= _interval_keys("wae_delta", ends.low, ends.high, ends.method)
    out["wae_groups"] = list(found.groups)
    if np.isnan(value):
        out["wae_note"] = f"undefined: {_silent(found) or 'no words'}"
    elif lacking := [name for name, each in out["wae_by_group"].items() if np.isnan(each)]:
        corpus = "generated reports hold" if weights == "prediction" else "references hold"
        out["wae_delta_note"] = f"undefined: the {corpus} no word associated with {' or '.join(lacking)}"
    return out


def _silent(found: Displacement) -> str | None:
    """Which group has no words at all, and where: nothing can then be said of any word."""
    for corpus, counts in (("references", found.reference), ("generated reports", found.prediction)):
        without = [name for name, n in zip(found.groups, counts.sum(axis=1), strict=True) if not n]
        if without:
            return f"no words in the {corpus} of {' and '.join(without)}"
    return None


def _interval_keys(name: str, low: float, high: float, method: str) -> dict[str, Any]:
    return {f"{name}_ci_low": float(low), f"{name}_ci_high": float(high), f"{name}_ci_method": method}
