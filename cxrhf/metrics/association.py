"""Word counts by group, in references and in generated reports -> how associations of words with groups moved.

CAD (clinical association displacement): for every word the smoothed log ratio of its frequency between two groups, in
the references and in the predictions, and the standardised difference of the two. WAE (weighted association erasure):
the mean squared displacement over the vocabulary. After "Measuring What VLMs Don't Say" (Parikh et al. 2026).

Signs: the first group is positive. Groups are taken in alphabetical order unless named: F positive, M negative, as in
the paper.

Where our default differs from the paper, and why: a word that is never generated has Var_pred = 2/alpha = 20, so with
200 F / 20 M in the reference z_ref = 9.8 but |z_disp| = .51, "stable" by the printed rule. Whether a word is missing is
therefore tested on pooled counts, and only words whose reference association passes a corrected test can be erased.
`rule="paper"` gives the printed categories, `rule="score"` does not see words that only one group has, and `summary`
shows them side by side. The same blindness hides words that only the model uses: exchange the two corpora
(`cad(prediction, reference)`) and read "omitted" as "brought in with an association".

WAE has no direction: 0 for identical corpora, about 1 for faithful but independent text, and *low* when a model
collapses to one template. Read it with its null (`words_resample.split_half`) and `omitted_mass`, and never call lower
better.

Known gap: variances are those of independent tokens; words repeated within reports, and patients shared by the
corpora, are seen by the resampling of `words_resample` only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrhf.metrics.checks import InputError, one_of
from cxrhf.metrics.displacement import (
    Association,
    Displacement,
    association,
    categories,
    displaced,
)
from cxrhf.metrics.words_category import DEFAULT_CATEGORIES, OMITTED_RATE, PAPER_CATEGORIES, counted, within
from cxrhf.metrics.words_corpora import Corpora, corpora, pair_of

__all__ = [
    "Association",
    "Displacement",
    "association",
    "cad",
    "cad_corpora",
    "cad_each",
    "cad_texts",
    "categories",
    "corpora",
    "delta_dir",
    "delta_wae",
    "omitted_mass",
    "summary",
    "sweep",
    "wae",
]

GroupCounts = Mapping[str, Mapping[str, int]]


def cad(
    reference: GroupCounts,
    prediction: GroupCounts,
    *,
    groups: tuple[str, str] | None = None,
    rule: str = "either",
    alpha: float = 0.1,
    p_star: float = 0.05,
    z_neutral: float = 1.0,
    z_strong: float = 2.0,
    min_count: int = 10,
) -> Displacement:
    """Clinical association displacement (CAD) of every word from counts `{group: {word: count}}`.

    The vocabulary is the union of both corpora, in alphabetical order. `groups` chooses two groups and their order (the
    first is positive); for more than two groups, use `cad_each`. `rule` is "either" (default), "score", "exact" or
    "paper": see `words_category`.

    >>> moved = cad({"F": {"lung": 50}, "M": {"lung": 52}}, {"F": {"lung": 80}, "M": {"lung": 78}})
    >>> moved.category.tolist()
    ['stable']
    """
    first, second = pair_of({*reference, *prediction}, groups)
    sides = {"reference": reference, "prediction": prediction}
    words = sorted({word for side in sides.values() for name in (first, second) for word in side.get(name, {})})
    ref, pred = (
        np.array([_row(side.get(name, {}), words, f"{what}[{name!r}]") for name in (first, second)])
        for what, side in sides.items()
    )
    options: dict[str, Any] = {"alpha": alpha, "p_star": p_star, "z_neutral": z_neutral, "z_strong": z_strong}
    return displaced((first, second), words, ref, pred, rule=rule, min_count=min_count, **options)


def cad_texts(
    reference: Iterable[str],
    generated: Iterable[str],
    groups: Sequence[Any],
    patients: Sequence[Any] | None = None,
    *,
    pair: tuple[str, str] | None = None,
    **options: Any,
) -> Displacement:
    """Compute `cad` from reports. Row i of both corpora belongs to groups[i] (and patients[i]); excludes stop words."""
    return cad_corpora(corpora(reference, generated, groups, patients), pair=pair, **options)


def cad_corpora(texts: Corpora, *, pair: tuple[str, str] | None = None, **options: Any) -> Displacement:
    """Compute `cad` from counted `corpora`, which the resampling functions also accept."""
    two = texts.pair(pair)
    first, second = two.groups
    return displaced((first, second), two.vocabulary, *two.counts(), presence=two.presence(), **options)


def cad_each(reference: GroupCounts, prediction: GroupCounts, **options: Any) -> dict[str, Displacement]:
    """Compute `cad` of each group (positive) against all others; tests are corrected within each comparison."""
    names = sorted({*reference, *prediction})
    if len(names) < 2:
        raise InputError(f"groups: expected at least two, got {names}")
    for what, side in (("reference", reference), ("prediction", prediction)):
        for name, counts in side.items():
            _row(counts, (), f"{what}[{name!r}]")
    out = {}
    for name in names:
        rest = f"not {name}"
        sides = [{name: side.get(name, {}), rest: _summed(side, name)} for side in (reference, prediction)]
        out[name] = cad(*sides, groups=(name, rest), **options)
    return out


def wae(displacement: Displacement, weights: str = "prediction", group: str | None = None) -> float:
    """Weighted association erasure (WAE): the weighted mean of z_disp^2 over words, >= 0.

    `weights` are the counts in the predictions (default) or in the references. With `group`, only words associated with
    it in the references (|z_ref| > z_neutral) are used. WAE has no better direction: it is 0 for identical corpora,
    about 1 for faithful independent text, and low again after complete collapse. NaN if the words have no weight or a
    group has no tokens.
    """
    one_of(weights, "weights", ("prediction", "reference"))
    counts = displacement.prediction if weights == "prediction" else displacement.reference
    weight = counts.sum(axis=0).astype(np.float64)
    if group is not None:
        one_of(group, "group", displacement.groups)
        sign = 1 if group == displacement.groups[0] else -1
        weight = np.where(sign * displacement.z_ref > displacement.z_neutral, weight, 0.0)
    total = weight.sum()
    return float((weight * displacement.z_disp**2).sum() / total) if total > 0 else float("nan")


def delta_wae(displacement: Displacement, weights: str = "prediction") -> float:
    """Delta WAE: WAE of the first group minus that of the second (F - M).

    Positive if words of the first group moved more.
    """
    first, second = displacement.groups
    return wae(displacement, weights, first) - wae(displacement, weights, second)


def delta_dir(displacement: Displacement) -> float:
    """Delta DIR: tokens of the second group over tokens of the first (male to female), predictions minus references.

    0 if the model's verbosity favours neither group more than the references do. NaN without tokens.
    """
    (ref_first, ref_second), (pred_first, pred_second) = (
        counts.sum(axis=1).astype(np.float64) for counts in (displacement.reference, displacement.prediction)
    )
    if not (ref_first > 0 and pred_first > 0):
        return float("nan")
    return float(pred_second / pred_first - ref_second / ref_first)


def omitted_mass(displacement: Displacement) -> float:
    """Share of the reference tokens that belong to words the model omits, whatever their association; 0 to 1.

    A word is omitted if it is generated at less than half the reference rate and the pooled test passes BH over all
    words with at least min_count reference tokens. WAE does not detect such words. NaN without tokens.
    """
    n_ref = displacement.reference.sum(axis=0)
    if not (n_ref.sum() and displacement.prediction.sum()):
        return float("nan")
    q = within(displacement.p_omission, n_ref >= displacement.min_count)
    left_out = (q <= displacement.p_star) & (displacement.rate_ratio < OMITTED_RATE)
    return float(n_ref[left_out].sum() / n_ref.sum())


def summary(displacement: Displacement) -> dict[str, Any]:
    """Summarise all rules, with the numbers that must be read together.

    `either`, `score`, `exact` and `paper` count words by category (`either_raw`: with raw p values), each with
    `erasure`. The other numbers are WAE, delta WAE, delta DIR, and the shares of reference tokens in words that are
    omitted (`omitted_mass`) or never generated.
    """
    n_ref, n_pred = displacement.reference.sum(axis=0), displacement.prediction.sum(axis=0)
    ours = categories(displacement, rule="either")
    raw = categories(displacement, rule="either", adjusted=False)
    score, exact = (categories(displacement, rule=rule) for rule in ("score", "exact"))
    printed = categories(displacement, rule="paper")
    never = n_ref[n_pred == 0].sum() / n_ref.sum() if n_ref.sum() else float("nan")
    return {
        "groups": displacement.groups,
        "n_words": len(displacement.words),
        "n_associated": int((~np.isnan(ours.q_omission)).sum()),
        "either": counted(ours.category, DEFAULT_CATEGORIES),
        "either_raw": counted(raw.category, DEFAULT_CATEGORIES),
        "score": counted(score.category, DEFAULT_CATEGORIES),
        "exact": counted(exact.category, DEFAULT_CATEGORIES),
        "paper": counted(printed.category, PAPER_CATEGORIES),
        "wae_prediction": wae(displacement, "prediction"),
        "wae_reference": wae(displacement, "reference"),
        "delta_wae_prediction": delta_wae(displacement, "prediction"),
        "delta_wae_reference": delta_wae(displacement, "reference"),
        "delta_dir": delta_dir(displacement),
        "omitted_mass": omitted_mass(displacement),
        "never_generated_mass": float(never),
    }


def sweep(
    displacement: Displacement,
    p_stars: Iterable[float] = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2),
    rule: str | None = None,
) -> list[dict[str, Any]]:
    """Count words by category at each significance level p*, which applies to all families of tests."""
    chosen = rule or displacement.rule
    names = PAPER_CATEGORIES if chosen == "paper" else DEFAULT_CATEGORIES
    return [
        {"p_star": p_star, **counted(categories(displacement, rule=chosen, p_star=p_star).category, names)}
        for p_star in p_stars
    ]


def _row(counts: Mapping[str, int], words: Sequence[str], name: str) -> NDArray[np.int64]:
    """The counts of one group in the order of the vocabulary."""
    for word, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 0:
            raise InputError(f"{name}[{word!r}]: expected a whole number >= 0, got {count!r}")
    return np.array([counts.get(word, 0) for word in words], dtype=np.int64)


def _summed(side: GroupCounts, but: str) -> dict[str, int]:
    """Counts of all groups but one, added up."""
    out: dict[str, int] = {}
    for name, counts in side.items():
        if name != but:
            for word, count in counts.items():
                out[word] = out.get(word, 0) + count
    return out
