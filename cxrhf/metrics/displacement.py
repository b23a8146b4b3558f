"""Counts [group, word] of two corpora -> the Displacement record: scores, tests and category of every word.

The arithmetic behind `cxrhf.metrics.words`, which says what it means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, bdtrc, ndtr

from cxrhf.metrics.checks import InputError, as_count, as_fraction, one_of
from cxrhf.metrics.intervals import benjamini_hochberg

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Association(NamedTuple):
    """Log ratio of a word's probability in the first and the second group, its variance, and z = s / sd."""

    s: Floats
    variance: Floats
    z: Floats


def association(counts_a: ArrayLike, counts_b: ArrayLike, alpha: float = 0.1) -> Association:
    """Association of each word with group a (positive) against group b (negative).

    p = (c + alpha) / (N + alpha V) over the shared vocabulary (the last axis, V words), s = log(p_a / p_b),
    Var = 1/(c_a + alpha) + 1/(c_b + alpha). NaN where a group has no token at all.
    """
    a, b = as_word_counts(counts_a, "counts_a"), as_word_counts(counts_b, "counts_b")
    if a.shape != b.shape:
        raise InputError(f"counts_b: expected shape {a.shape} as in counts_a, got {b.shape}")
    if not alpha > 0:
        raise InputError(f"alpha: expected a number > 0, got {alpha!r}")
    return log_ratio(a.astype(np.float64), b.astype(np.float64), alpha)


def log_ratio(a: Floats, b: Floats, alpha: float) -> Association:
    """`association` for trusted float counts, words on the last axis; leading axes are replicates."""
    smooth = alpha * a.shape[-1]
    total_a, total_b = a.sum(axis=-1, keepdims=True), b.sum(axis=-1, keepdims=True)
    both = np.where((total_a > 0) & (total_b > 0), 1.0, np.nan)
    shift = np.log((total_b + smooth) * both) - np.log((total_a + smooth) * both)
    s = np.log(a + alpha) - np.log(b + alpha) + shift
    variance = 1.0 / (a + alpha) + 1.0 / (b + alpha)
    return Association(s, variance, s / np.sqrt(variance))


@dataclass(frozen=True, slots=True)
class Displacement:
    """Counts [group, word], scores, tests and category of every word in the vocabulary, and the settings.

    `p_value` and `q_value` are for z_disp; `p_reference` is for z_ref; `p_exact` is for the exact test of the same
    association (on patients with the word if counted from texts, otherwise on tokens); `q_reference` is for the one
    that the rule uses; `p_omission` and `q_omission` are for the pooled test. A q value is NaN for words outside its
    family. `rate_ratio` is a word's share of the predicted tokens over its share of the reference tokens.
    """

    groups: tuple[str, str]
    words: tuple[str, ...]
    reference: Counts
    prediction: Counts
    s_ref: Floats
    s_pred: Floats
    z_ref: Floats
    z_pred: Floats
    z_disp: Floats
    p_value: Floats
    q_value: Floats
    p_reference: Floats
    q_reference: Floats
    p_exact: Floats
    p_omission: Floats
    q_omission: Floats
    rate_ratio: Floats
    category: NDArray[np.str_]
    rule: str
    alpha: float
    p_star: float
    z_neutral: float
    z_strong: float
    min_count: int


def measure_displacement(
    groups: tuple[str, str],
    words: Sequence[str],
    reference: Counts,
    prediction: Counts,
    *,
    presence: Counts | None = None,
    rule: str = "either",
    alpha: float = 0.1,
    p_star: float = 0.05,
    z_neutral: float = 1.0,
    z_strong: float = 2.0,
    min_count: int = 10,
) -> Displacement:
    """The arithmetic of `cad`, from counts [group, word] over one vocabulary; words nobody uses are left out.

    `presence`: in how many patients' references each word stands, [group, word], for the exact test.
    """
    one_of(rule, "rule", RULES)
    as_fraction(p_star, "p_star")
    as_count(min_count, "min_count", 0)
    used = (reference.sum(axis=0) + prediction.sum(axis=0)) > 0
    reference, prediction = reference[:, used], prediction[:, used]
    ref, pred = (association(side[0], side[1], alpha) for side in (reference, prediction))
    z_disp = (pred.s - ref.s) / np.sqrt(pred.variance + ref.variance)
    n_ref, n_pred = reference.sum(axis=0), prediction.sum(axis=0)
    blank = np.full(len(n_ref), np.nan)
    out = Displacement(
        groups=groups,
        words=tuple(word for word, here in zip(words, used, strict=True) if here),
        reference=reference,
        prediction=prediction,
        s_ref=ref.s,
        s_pred=pred.s,
        z_ref=ref.z,
        z_pred=pred.z,
        z_disp=z_disp,
        p_value=2 * ndtr(-np.abs(z_disp)),
        q_value=blank,
        p_reference=2 * ndtr(-np.abs(ref.z)),
        q_reference=blank,
        p_exact=exact_p(reference if presence is None else presence[:, used], reference),
        p_omission=_p_omission(n_ref, n_pred),
        q_omission=blank,
        rate_ratio=_rate_ratio(n_ref, n_pred),
        category=np.full(len(n_ref), "", dtype=np.str_),
        rule=rule,
        alpha=float(alpha),
        p_star=float(p_star),
        z_neutral=float(z_neutral),
        z_strong=float(z_strong),
        min_count=min_count,
    )
    found = categories(out)
    return replace(
        out,
        category=found.category,
        q_value=found.q_displacement,
        q_reference=found.q_reference,
        q_omission=found.q_omission,
    )


def categories(
    displacement: Displacement, *, rule: str | None = None, p_star: float | None = None, adjusted: bool = True
) -> Categories:
    """Categories under another rule, another p*, or raw instead of adjusted p values (not for the published rule)."""
    limits = {name: getattr(displacement, name) for name in ("p_star", "z_neutral", "z_strong", "min_count")}
    if p_star is not None:
        limits["p_star"] = as_fraction(p_star, "p_star")
    scores = WordScores(
        s_ref=displacement.s_ref,
        s_pred=displacement.s_pred,
        z_ref=displacement.z_ref,
        z_pred=displacement.z_pred,
        p_reference=displacement.p_reference,
        p_exact=displacement.p_exact,
        p_displacement=displacement.p_value,
        p_omission=displacement.p_omission,
        rate_ratio=displacement.rate_ratio,
        n_reference=displacement.reference.sum(axis=0),
        n_prediction=displacement.prediction.sum(axis=0),
        **limits,
    )
    chosen = one_of(rule or displacement.rule, "rule", RULES)
    return paper_categories(scores) if chosen == "paper" else default_categories(scores, adjusted, chosen)


def exact_p(units: Counts, tokens: Counts) -> Floats:
    """Two-sided exact test that a word's units (patients or tokens) split between the groups as all tokens do."""
    total = tokens.sum()
    if not tokens.sum(axis=1).all():
        return np.full(tokens.shape[1], np.nan)
    first, both, share = units[0].astype(np.float64), units.sum(axis=0), tokens[0].sum() / total
    few = bdtr(first, both, share)
    many = np.where(first > 0, bdtrc(np.maximum(first - 1, 0), both, share), 1.0)
    return np.minimum(1.0, 2 * np.minimum(few, many))


def _p_omission(n_ref: Counts, n_pred: Counts) -> Floats:
    """P(as few or fewer in predictions), were a word as frequent there as in the references: exact binomial test."""
    total_ref, total_pred = int(n_ref.sum()), int(n_pred.sum())
    if not (total_ref and total_pred):
        return np.full(len(n_ref), np.nan)
    return np.asarray(bdtr(n_pred.astype(np.float64), n_ref + n_pred, total_pred / (total_ref + total_pred)))


def _rate_ratio(n_ref: Counts, n_pred: Counts) -> Floats:
    """Share of the predicted tokens over share of the reference tokens; inf for words only the model uses."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return (n_pred / n_pred.sum()) / (n_ref / n_ref.sum())


def as_word_counts(counts: ArrayLike, name: str) -> Counts:
    """Whole numbers >= 0 as int64, or an InputError with the first position that is none."""
    raw = np.asarray(counts)
    if raw.dtype.kind not in "biuf" and raw.size:
        raise InputError(f"{name}: expected whole numbers >= 0, got {raw.ravel().tolist()[0]!r} ({raw.dtype})")
    bad = ~((raw >= 0) & (raw < 2**53) & (raw == np.floor(raw)))
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InputError(f"{name}{list(where)}: expected a whole number >= 0, got {raw[where].item()!r}")
    return raw.astype(np.int64)


# Association scores and tests of every word -> its category of displacement, by one of four rules.
#
# Rule "score". Three families of tests, each corrected by Benjamini-Hochberg (BH) at `p_star` on its own:
#
# 1. reference: two-sided z_ref, over the words with at least `min_count` tokens in the reference. Words that pass, with
#    |z_ref| > z_strong, are *associated*: only they can be erased or preserved, because chance alone gives a large
#    vocabulary dozens of words with |z_ref| > 2.
# 2. omission: the exact one-sided binomial test on pooled counts, over the associated words only. The claim is about
#    them, and the split of a word between the groups says nothing about how often it is generated, so having been
#    picked by family 1 does not bias this test.
# 3. displacement: two-sided z_disp, over the words with at least `min_count` tokens in one of the corpora. Rarer words
#    cannot reach significance and would only dilute the correction; the filter looks at totals, not at groups.
#
# Categories, the first that holds:
# - omitted: associated, omission passes, generated at less than half the reference rate, and |z_pred| < z_neutral;
# - neutralised: associated, displaced, |z_pred| < z_neutral (erasure = omitted + neutralised);
# - new: displaced, |z_ref| < z_neutral <= |z_pred|;
# - flip: displaced, opposite signs, both at least z_neutral;
# - amplified: displaced, same sign, both at least z_neutral, larger log ratio than in the reference;
# - weakened: displaced in any other way (the same sign but a smaller ratio, or lost without having been established);
# - preserved: associated, not displaced, same sign, |z_pred| >= z_neutral;
# - stable: all others. Among them are associated words for which the data decide nothing.
#
# With `adjusted=False` raw p values stand in for BH in all three families ("raw level").
#
# Rule "exact": the same, but family 1 is an exact two-sided binomial test of the reference counts, on the number of
# patients whose reports hold the word where that is known, and without the demand on |z_ref|. z_ref is a Wald score
# of smoothed counts: a word with 60 tokens in one group and none in the other has z_ref = 2.0 (Var = 1/alpha = 10)
# and never passes, so the rule "score" is blind to the erasure of the very words that only one group has. Measured on
# the public Indiana reports with random group labels, 20 one-group words of 60-400 tokens planted and a collapsed
# model: "score" finds 0, this rule 20; without planting, .06 and .01 false erasures a corpus (patients are
# independent, tokens are not). The cost is power for weaker associations: at a ratio of 2.5 to 1 it finds 10 of 20
# where "score" finds 13.
#
# Rule "either", the default: associated is what passes the first family of "score" or that of "exact", because
# neither gate alone sees both a word that only one group has and one at a ratio of 2.5 to 1.
#
# Printed rule (`paper_categories`): |z_disp| > z_crit without correction, then the printed bands; what is displaced
# but in none of them is "other". It cannot see a word that is never generated: see `cxrhf.metrics.words`.

RULES = ("either", "score", "exact", "paper")
DEFAULT_CATEGORIES = ("omitted", "neutralised", "new", "flip", "amplified", "weakened", "preserved", "stable")
PAPER_CATEGORIES = ("erasure", "new", "flip", "preserved", "other", "stable")
UNDEFINED = "undefined"  # a group without a single token: nothing can be said of any word
OMITTED_RATE = 0.5


@dataclass(frozen=True, slots=True)
class WordScores:
    """What the rules need to know of every word (arrays of one length) and the limits they use."""

    s_ref: Floats
    s_pred: Floats
    z_ref: Floats
    z_pred: Floats
    p_reference: Floats
    p_exact: Floats
    p_displacement: Floats
    p_omission: Floats
    rate_ratio: Floats
    n_reference: NDArray[np.int64]
    n_prediction: NDArray[np.int64]
    p_star: float
    z_neutral: float
    z_strong: float
    min_count: int


@dataclass(frozen=True, slots=True)
class Categories:
    """The category of every word and the adjusted p values behind it (NaN: not in that family)."""

    category: NDArray[np.str_]
    q_displacement: Floats
    q_reference: Floats
    q_omission: Floats


def adjust_in_family(p: Floats, family: Flags, adjusted: bool = True) -> Floats:
    """BH-adjusted p values over the words of a family, NaN elsewhere; the raw ones if not `adjusted`."""
    kept = np.where(family, p, np.nan)
    return benjamini_hochberg(kept) if adjusted and family.any() else kept


def default_categories(words: WordScores, adjusted: bool = True, gate: str = "either") -> Categories:
    """Categories by our rule; `gate`: either, score or exact (see the top of this file)."""
    frequent = words.n_reference >= words.min_count
    by_score, by_count = (adjust_in_family(each, frequent, adjusted) for each in (words.p_reference, words.p_exact))
    strong = np.abs(words.z_ref) > words.z_strong
    q_reference = {"score": by_score, "exact": by_count, "either": np.fmin(by_score, by_count)}[gate]
    associated = (by_score <= words.p_star) & strong if gate != "exact" else by_count <= words.p_star
    if gate == "either":
        associated = associated | (by_count <= words.p_star)
    q_omission = adjust_in_family(words.p_omission, associated, adjusted)
    tested = frequent | (words.n_prediction >= words.min_count)
    q_displacement = adjust_in_family(words.p_displacement, tested, adjusted)
    displaced = q_displacement <= words.p_star

    quiet = np.abs(words.z_pred) < words.z_neutral
    neutral = np.abs(words.z_ref) < words.z_neutral
    same = np.sign(words.z_ref) == np.sign(words.z_pred)
    both = displaced & ~quiet & ~neutral
    larger = np.abs(words.s_pred) > np.abs(words.s_ref)
    rules: dict[str, Any] = {
        "omitted": associated & quiet & (q_omission <= words.p_star) & (words.rate_ratio < OMITTED_RATE),
        "neutralised": associated & quiet & displaced,
        "new": displaced & neutral & ~quiet,
        "flip": both & ~same,
        "amplified": both & same & larger,
        "weakened": displaced,
        "preserved": associated & same & ~quiet,
    }
    return Categories(_first(rules, words), q_displacement, q_reference, q_omission)


def paper_categories(words: WordScores) -> Categories:
    """Categories as printed: raw |z_disp| > z_crit. The adjusted p values (of the whole vocabulary) decide nothing."""
    displaced = words.p_displacement < words.p_star
    quiet = np.abs(words.z_pred) < words.z_neutral
    neutral = np.abs(words.z_ref) < words.z_neutral
    same = np.sign(words.z_ref) == np.sign(words.z_pred)
    both = displaced & ~quiet & ~neutral
    rules: dict[str, Any] = {
        "erasure": displaced & quiet & (np.abs(words.z_ref) > words.z_strong),
        "new": displaced & neutral & ~quiet,
        "flip": both & ~same,
        "preserved": both & same,
        "other": displaced,
    }
    everything = np.ones(len(words.z_ref), dtype=bool)
    q_displacement = adjust_in_family(words.p_displacement, everything)
    q_reference = adjust_in_family(words.p_reference, everything)
    return Categories(_first(rules, words), q_displacement, q_reference, np.full(len(words.z_ref), np.nan))


def _first(rules: dict[str, Any], words: WordScores) -> NDArray[np.str_]:
    """The name of the first rule that holds for each word."""
    undefined = np.isnan(words.p_displacement)
    names = [UNDEFINED, *rules]
    return np.select([undefined, *rules.values()], names, default="stable").astype(np.str_)


def count_categories(category: NDArray[np.str_], names: tuple[str, ...]) -> dict[str, int]:
    """How many words each category holds, with zeros, and `erasure` = omitted + neutralised."""
    counts = {name: int((category == name).sum()) for name in names}
    if "erasure" not in counts:
        counts = {"erasure": counts["omitted"] + counts["neutralised"], **counts}
    return counts
