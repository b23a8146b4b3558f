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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import ndtr

from cxrhf.metrics.checks import InputError, as_count, one_of
from cxrhf.metrics.displacement import (
    DEFAULT_CATEGORIES,
    OMITTED_RATE,
    PAPER_CATEGORIES,
    Association,
    Displacement,
    WordScores,
    adjust_in_family,
    association,
    categories,
    count_categories,
    default_categories,
    exact_p,
    log_ratio,
    measure_displacement,
    paper_categories,
)
from cxrhf.metrics.intervals import Interval, interval
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

Floats = NDArray[np.float64]


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
    return measure_displacement((first, second), words, ref, pred, rule=rule, min_count=min_count, **options)


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
    return measure_displacement((first, second), two.vocabulary, *two.counts(), presence=two.presence(), **options)


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
        sides = [{name: side.get(name, {}), rest: _sum_other_groups(side, name)} for side in (reference, prediction)]
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
    q = adjust_in_family(displacement.p_omission, n_ref >= displacement.min_count)
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
        "either": count_categories(ours.category, DEFAULT_CATEGORIES),
        "either_raw": count_categories(raw.category, DEFAULT_CATEGORIES),
        "score": count_categories(score.category, DEFAULT_CATEGORIES),
        "exact": count_categories(exact.category, DEFAULT_CATEGORIES),
        "paper": count_categories(printed.category, PAPER_CATEGORIES),
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
        {"p_star": p_star, **count_categories(categories(displacement, rule=chosen, p_star=p_star).category, names)}
        for p_star in p_stars
    ]


def _row(counts: Mapping[str, int], words: Sequence[str], name: str) -> NDArray[np.int64]:
    """The counts of one group in the order of the vocabulary."""
    for word, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 0:
            raise InputError(f"{name}[{word!r}]: expected a whole number >= 0, got {count!r}")
    return np.array([counts.get(word, 0) for word in words], dtype=np.int64)


def _sum_other_groups(side: GroupCounts, but: str) -> dict[str, int]:
    """Counts of all groups but one, added up."""
    out: dict[str, int] = {}
    for name, counts in side.items():
        if name != but:
            for word, count in counts.items():
                out[word] = out.get(word, 0) + count
    return out


# Counted corpora -> counts by patient, and the scores and WAE statistics of many replicates at once.

Z_NEUTRAL = 1.0  # as everywhere in the paper: which words count as a group's own in WAE_g
STATISTICS = (
    "wae_prediction",
    "wae_reference",
    "wae_prediction_first",
    "wae_prediction_second",
    "wae_reference_first",
    "wae_reference_second",
    "delta_wae_prediction",
    "delta_wae_reference",
    "delta_dir",
)


class PatientCounts:
    """Counts by patient as (words x patients) matrices, the observed scores, and the loop over batches."""

    def __init__(self, texts: Corpora, alpha: float, n_resamples: int, batch: int | None) -> None:
        if not alpha > 0:
            raise InputError(f"alpha: expected a number > 0, got {alpha!r}")
        two = texts.pair()
        rows = np.arange(len(two.patient))
        self.vocabulary, self.patients, self.alpha = two.vocabulary, two.patients, alpha
        self.n_patients, self.n_words = len(two.patients), len(two.vocabulary)
        if not (self.n_patients and self.n_words):
            raise InputError(
                f"counts: expected at least one patient and word, got {self.n_patients} and {self.n_words}"
            )
        self.reference: list[sp.csr_array] = []
        self.prediction: list[sp.csr_array] = []
        self.membership = np.zeros(self.n_patients, dtype=np.int64)  # 1 first group, 2 second, 3 reports in both
        for code in (0, 1):
            here = rows[two.group == code]
            owner = sp.csr_array(
                (np.ones(len(here)), (two.patient[here], np.arange(len(here)))), shape=(self.n_patients, len(here))
            )
            self.reference.append((owner @ two.reference[here]).T.tocsr())
            self.prediction.append((owner @ two.prediction[here]).T.tocsr())
            self.membership[two.patient[here]] |= code + 1
        self.strata = [np.flatnonzero(self.membership == code) for code in np.unique(self.membership)]
        # A quarter of a million numbers an array: fits the caches, and bounds memory at some tens of MB.
        self.batch = max(1, 2**18 // max(self.n_words, self.n_patients)) if batch is None else as_count(batch, "batch")
        self.n_resamples = as_count(n_resamples, "n_resamples")
        everybody = np.ones((1, self.n_patients))
        self.ref, self.pred, values = self.scores(
            *(weighted_counts(cell, everybody) for cell in (*self.reference, *self.prediction))
        )
        self.observed = {name: float(value[0]) for name, value in by_name(values).items()}

    def batches(self, drawn: Callable[[int], Floats]) -> Iterator[Floats]:
        for start in range(0, self.n_resamples, self.batch):
            yield drawn(min(self.batch, self.n_resamples - start))

    def scores(
        self, ref_first: Floats, ref_second: Floats, pred_first: Floats, pred_second: Floats
    ) -> tuple[Association, Association, Floats]:
        """Associations (replicates x words) and the statistics (replicates x STATISTICS) of counts."""
        ref, pred = log_ratio(ref_first, ref_second, self.alpha), log_ratio(pred_first, pred_second, self.alpha)
        squared = (pred.s - ref.s) ** 2 / (pred.variance + ref.variance)
        masks = (None, ref.z > Z_NEUTRAL, ref.z < -Z_NEUTRAL)
        out = np.empty((len(ref_first), len(STATISTICS)))
        for column, weight in ((0, pred_first + pred_second), (1, ref_first + ref_second)):
            energy = weight * squared
            for place, mask in zip((column, 2 + 2 * column, 3 + 2 * column), masks, strict=True):
                top, mass = (energy, weight) if mask is None else (energy * mask, weight * mask)
                out[:, place] = _ratio(top.sum(axis=1), mass.sum(axis=1))
        out[:, 6], out[:, 7] = out[:, 2] - out[:, 3], out[:, 4] - out[:, 5]
        tokens = [cell.sum(axis=1) for cell in (ref_first, ref_second, pred_first, pred_second)]
        out[:, 8] = _ratio(tokens[3], tokens[2]) - _ratio(tokens[1], tokens[0])
        return ref, pred, out


def weighted_counts(cell: sp.csr_array, times: Floats) -> Floats:
    """(replicates x words) counts when patient i enters times[replicate, i] times. Whole numbers, so exact."""
    return np.ascontiguousarray((cell @ np.ascontiguousarray(times.T)).T)


def _ratio(top: Floats, bottom: Floats) -> Floats:
    return np.divide(top, bottom, out=np.full(len(top), np.nan), where=bottom > 0)


def by_name(values: Floats) -> dict[str, Floats]:
    return {name: np.ascontiguousarray(values[:, i]) for i, name in enumerate(STATISTICS)}


# Counted corpora -> uncertainty of CAD and WAE: paired bootstrap, two permutation tests, and WAE's split-half null.
#
# Patients are the unit everywhere, and a patient's reference and generated reports move together:
# - `bootstrap_words`: patients drawn with replacement within their group, one draw for both corpora;
# - `permute_groups` tests "no association": group labels permuted across patients;
# - `swap_corpora` tests "no displacement": reference and generated reports exchanged within a patient, or not, by a
#   coin;
# - `split_half`: what WAE is when "reference" and "generated" are two halves of the same human reports.
#
# Counts of many replicates are one sparse product: (words x patients) @ (patients x replicates). Replicates are
# computed in batches to bound memory; draws come from one stream in replicate order, so results depend on the seed
# only, not on the batch. The vocabulary (and so the smoothing mass alpha V) is that of the observed corpora in every
# replicate.
#
# WAE grows with noise: a replicate adds sampling noise to every z_disp, so bootstrap replicates lie *above* the
# observed WAE and percentile intervals miss it: for faithful independent text they held the expected WAE in 0% of 150
# simulated corpora. `WordBootstrap.interval` shifts the replicates to the observed value instead: 100% there (too
# wide: the noise counts twice in the spread), 95% once there is real displacement.

_TWO_SIDED = ("delta_wae_prediction", "delta_wae_reference", "delta_dir")


@dataclass(frozen=True, slots=True)
class WordBootstrap:
    """Observed value and replicates of each statistic (`STATISTICS`), and standard errors of each word's log ratios.

    `se_disp` is that of s_pred - s_ref with both corpora from the same patients, so it includes their covariance.
    """

    vocabulary: list[str]
    observed: dict[str, float]
    replicates: dict[str, Floats]
    se_ref: Floats
    se_pred: Floats
    se_disp: Floats
    n_patients: int
    seed: int

    def interval(self, statistic: str, level: float = 0.95) -> Interval:
        """Percentile interval of the replicates, shifted so that their mean is the observed value; WAE ends at 0."""
        one_of(statistic, "statistic", STATISTICS)
        return interval(
            self.observed[statistic],
            self.replicates[statistic],
            level=level,
            method="centred percentile",
            bounds=(-np.inf if statistic in _TWO_SIDED else 0.0, np.inf),
        )


@dataclass(frozen=True, slots=True)
class WordTest:
    """A null hypothesis, the observed statistics, their values under it, and p values (1 + #) / (1 + R).

    The test of WAE is one-sided (larger values), those of differences are two-sided. `word_p` holds the two-sided p
    values of z_ref, z_pred and z_disp of each word for which the null applies, not corrected for the number of words.
    """

    null: str
    vocabulary: list[str]
    observed: dict[str, float]
    replicates: dict[str, Floats]
    p_value: dict[str, float]
    word_p: dict[str, Floats]
    seed: int


def bootstrap_words(
    texts: Corpora, *, alpha: float = 0.1, n_resamples: int = 1000, seed: int = 0, batch: int | None = None
) -> WordBootstrap:
    """Paired patient-level bootstrap, stratified by group so that group sizes stay fixed."""
    two = PatientCounts(texts, alpha, n_resamples, batch)
    streams = _streams(seed, len(two.strata))

    def drawn(size: int) -> Floats:
        times = np.zeros((size, two.n_patients))
        for members, rng in zip(two.strata, streams, strict=True):
            picked = rng.integers(0, len(members), size=(size, len(members)))
            picked += np.arange(size)[:, None] * len(members)
            counts = np.bincount(picked.ravel(), minlength=size * len(members))
            times[:, members] = counts.reshape(size, len(members))
        return times

    moments = np.zeros((2, 3, two.n_words))
    replicates: list[Floats] = []
    for times in two.batches(drawn):
        ref, pred, values = two.scores(*(weighted_counts(cell, times) for cell in (*two.reference, *two.prediction)))
        replicates.append(values)
        moved = np.stack([ref.s - two.ref.s, pred.s - two.pred.s, pred.s - ref.s - (two.pred.s - two.ref.s)], axis=1)
        for row in moved:  # one by one: the order of additions must not depend on the batch
            moments[0] += row
            moments[1] += row**2
    n = n_resamples
    spread = np.sqrt(np.maximum(moments[1] - moments[0] ** 2 / n, 0.0) / (n - 1)) if n > 1 else moments[0] * np.nan
    named = by_name(np.concatenate(replicates))
    return WordBootstrap(two.vocabulary, two.observed, named, spread[0], spread[1], spread[2], two.n_patients, seed)


def permute_groups(
    texts: Corpora, *, alpha: float = 0.1, n_resamples: int = 1000, seed: int = 0, batch: int | None = None
) -> WordTest:
    """Test for no association by permuting group labels across patients. Each patient must have one group."""
    two = PatientCounts(texts, alpha, n_resamples, batch)
    if (two.membership == 3).any():
        who = two.patients[int(np.argmax(two.membership == 3))]
        raise InputError(f"groups: a permutation test requires one group per patient, got patient {who!r} in both")
    is_first = two.membership == 1
    (rng,) = _streams(seed, 1)
    sides = [two.reference[0] + two.reference[1], two.prediction[0] + two.prediction[1]]
    totals = [weighted_counts(side, np.ones((1, two.n_patients))) for side in sides]

    def cells(labels: Floats) -> tuple[Floats, ...]:
        firsts = [weighted_counts(side, labels) for side in sides]
        return firsts[0], totals[0] - firsts[0], firsts[1], totals[1] - firsts[1]

    def drawn(size: int) -> Floats:
        return rng.permuted(np.tile(is_first, (size, 1)), axis=1).astype(np.float64)

    null = "no association: group labels permuted across patients"
    return _run_permutations(two, null, drawn, cells, ("z_ref", "z_pred", "z_disp"), seed)


def swap_corpora(
    texts: Corpora, *, alpha: float = 0.1, n_resamples: int = 1000, seed: int = 0, batch: int | None = None
) -> WordTest:
    """Test for no displacement by exchanging reference and generated reports within patients at random."""
    two = PatientCounts(texts, alpha, n_resamples, batch)
    (rng,) = _streams(seed, 1)
    everybody = np.ones((1, two.n_patients))
    ref, pred = ([weighted_counts(cell, everybody) for cell in side] for side in (two.reference, two.prediction))
    change = [two.prediction[i] - two.reference[i] for i in (0, 1)]

    def cells(swapped: Floats) -> tuple[Floats, ...]:
        moved = [weighted_counts(cell, swapped) for cell in change]
        return ref[0] + moved[0], ref[1] + moved[1], pred[0] - moved[0], pred[1] - moved[1]

    def drawn(size: int) -> Floats:
        return rng.integers(0, 2, size=(size, two.n_patients)).astype(np.float64)

    null = "no displacement: reference and generated reports exchanged within patients"
    return _run_permutations(two, null, drawn, cells, ("z_disp",), seed)


def split_half(
    texts: Corpora, *, alpha: float = 0.1, n_resamples: int = 1000, seed: int = 0, batch: int | None = None
) -> dict[str, Floats]:
    """WAE between two random halves of the references, split by patient within groups: its value for faithful text.

    Returns replicates of each statistic; `wae_prediction` is weighted by the second half, `wae_reference` by the first.
    Halves have half the tokens, so rare words count slightly less than between two whole corpora.
    """
    two = PatientCounts(texts, alpha, n_resamples, batch)
    streams = _streams(seed, len(two.strata))
    whole = [weighted_counts(cell, np.ones((1, two.n_patients))) for cell in two.reference]

    def drawn(size: int) -> Floats:
        half = np.zeros((size, two.n_patients))
        for members, rng in zip(two.strata, streams, strict=True):
            pattern = np.tile(np.arange(len(members)) < len(members) // 2, (size, 1))
            half[:, members] = rng.permuted(pattern, axis=1)
        return half

    replicates = []
    for half in two.batches(drawn):
        one = [weighted_counts(cell, half) for cell in two.reference]
        replicates.append(two.scores(*one, *(total - part for total, part in zip(whole, one, strict=True)))[2])
    return by_name(np.concatenate(replicates))


def _run_permutations(
    two: PatientCounts,
    null: str,
    drawn: Callable[[int], Floats],
    cells: Callable[[Floats], tuple[Floats, ...]],
    scores: tuple[str, ...],
    seed: int,
) -> WordTest:
    """Run a permutation test: replicates of the statistics, and how often each word's scores are as large."""
    observed = _absolute_scores(two.ref, two.pred)
    reached = {name: np.zeros(two.n_words) for name in scores}
    replicates: list[Floats] = []
    for draws in two.batches(drawn):
        ref, pred, values = two.scores(*cells(draws))
        replicates.append(values)
        sizes = _absolute_scores(ref, pred)
        for name in scores:
            # Not "as large" only if surely smaller: an undefined replicate counts against the finding.
            reached[name] += (~(sizes[name] < observed[name] * (1 - 1e-12))).sum(axis=0)
    named = by_name(np.concatenate(replicates))
    p_value = {name: _p(two.observed[name], named[name], name in _TWO_SIDED) for name in STATISTICS}
    word_p = {
        name: np.where(np.isnan(observed[name][0]), np.nan, (1 + count) / (1 + two.n_resamples))
        for name, count in reached.items()
    }
    return WordTest(null, two.vocabulary, two.observed, named, p_value, word_p, seed)


def _absolute_scores(ref: Association, pred: Association) -> dict[str, Floats]:
    moved = np.abs(pred.s - ref.s) / np.sqrt(pred.variance + ref.variance)
    return {"z_ref": np.abs(ref.z), "z_pred": np.abs(pred.z), "z_disp": moved}


def _p(observed: float, replicates: Floats, two_sided: bool) -> float:
    """(1 + #) / (1 + R) over the replicates in which the statistic exists; NaN where it is not observed."""
    values = replicates[~np.isnan(replicates)]
    if np.isnan(observed):
        return float("nan")
    if two_sided:
        observed, values = abs(observed), np.abs(values)
    return float((1 + (values >= observed * (1 - 1e-12)).sum()) / (1 + len(values)))


def _streams(seed: int, n: int) -> list[np.random.Generator]:
    return [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(n)]


# Counted corpora -> how many words each rule puts into each category when groups mean nothing.
#
# Group labels are permuted across patients, so that what is left is chance: of the vocabulary's size, of words
# repeated within a patient's reports (which the tests of words take for independent), and of the rule. The pooled
# counts of a word stay as they are, so a word that the model leaves out is left out here too; but no word goes with a
# group.


@dataclass(frozen=True, slots=True)
class Chance:
    """Counts of words in each permutation: rule (the one asked for, "paper") -> category -> one count each."""

    counts: dict[str, dict[str, NDArray[np.int64]]]

    def p_value(self, rule: str, category: str, observed: int) -> float:
        """P(as many words or more by chance) = (1 + #) / (1 + permutations)."""
        drawn = self.counts[rule][category]
        return float((1 + (drawn >= observed).sum()) / (1 + len(drawn)))


def category_chance(
    texts: Corpora, found: Displacement, *, rule: str = "either", n_resamples: int = 200, seed: int = 0
) -> Chance:
    """Categories of the corpora that gave `found`, with its settings, over permutations of the groups.

    By `rule` (either, score, exact) and by the published one. Each patient must have one group.
    """
    one_of(rule, "rule", ("either", "score", "exact"))
    two = PatientCounts(texts, found.alpha, n_resamples, None)
    if (two.membership == 3).any():
        raise InputError("groups: a permutation test requires one group per patient, got a patient in both")
    if list(two.vocabulary) != list(found.words):
        raise InputError(f"found: expected the {two.n_words} words of the corpora, got {len(found.words)} words")
    is_first = two.membership == 1
    blank = np.full(two.n_words, np.nan)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    sides = [two.reference[0] + two.reference[1], two.prediction[0] + two.prediction[1]]
    totals = [weighted_counts(side, np.ones((1, two.n_patients))) for side in sides]

    def drawn(size: int) -> NDArray[np.float64]:
        return rng.permuted(np.tile(is_first, (size, 1)), axis=1).astype(np.float64)

    lists: dict[str, list[dict[str, int]]] = {rule: [], "paper": []}
    holders = sp.csr_array((sides[0] > 0).astype(np.float64))  # words x patients with the word in a reference
    everybody = np.asarray(holders.sum(axis=1), dtype=np.float64).ravel()
    for labels in two.batches(drawn):
        having = weighted_counts(holders, labels)
        firsts = [weighted_counts(side, labels) for side in sides]
        ref, pred, _ = two.scores(firsts[0], totals[0] - firsts[0], firsts[1], totals[1] - firsts[1])
        z_disp = (pred.s - ref.s) / np.sqrt(pred.variance + ref.variance)
        p_reference, p_displacement = 2 * ndtr(-np.abs(ref.z)), 2 * ndtr(-np.abs(z_disp))
        for row in range(len(labels)):
            words = WordScores(
                s_ref=ref.s[row],
                s_pred=pred.s[row],
                z_ref=ref.z[row],
                z_pred=pred.z[row],
                p_reference=p_reference[row],
                p_exact=blank if rule == "score" else _exact(having[row], everybody, firsts[0][row], totals[0][0]),
                p_displacement=p_displacement[row],
                p_omission=found.p_omission,
                rate_ratio=found.rate_ratio,
                n_reference=found.reference.sum(axis=0),
                n_prediction=found.prediction.sum(axis=0),
                p_star=found.p_star,
                z_neutral=found.z_neutral,
                z_strong=found.z_strong,
                min_count=found.min_count,
            )
            lists[rule].append(count_categories(default_categories(words, gate=rule).category, DEFAULT_CATEGORIES))
            lists["paper"].append(count_categories(paper_categories(words).category, PAPER_CATEGORIES))
    return Chance(
        {
            rule: {name: np.array([each[name] for each in rows], dtype=np.int64) for name in rows[0]}
            for rule, rows in lists.items()
        }
    )


def _exact(having: Floats, everybody: Floats, first: Floats, tokens: Floats) -> Floats:
    """p values of the exact test: patients of the first group with each word, of all, and tokens likewise."""
    units = np.stack([having, everybody - having]).astype(np.int64)
    return exact_p(units, np.stack([first, tokens - first]).astype(np.int64))
