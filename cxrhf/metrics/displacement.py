"""Counts [group, word] of two corpora -> the Displacement record: scores, tests and category of every word.

The arithmetic behind `cxrhf.metrics.association`, which says what it means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, bdtrc, ndtr

from cxrhf.metrics.checks import InputError, as_count, as_fraction, one_of
from cxrhf.metrics.words_category import RULES, Categories, WordScores, default_categories, paper_categories

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


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


def displaced(
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
