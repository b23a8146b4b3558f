"""Counted corpora -> uncertainty of CAD and WAE: paired bootstrap, two permutation tests, and WAE's split-half null.

Patients are the unit everywhere, and a patient's reference and generated reports move together:
- `bootstrap_words`: patients drawn with replacement within their group, one draw for both corpora;
- `permute_groups` tests "no association": group labels permuted across patients;
- `swap_corpora` tests "no displacement": reference and generated reports exchanged within a patient, or not, by a coin;
- `split_half`: what WAE is when "reference" and "generated" are two halves of the same human reports.

Counts of many replicates are one sparse product: (words x patients) @ (patients x replicates). Replicates are computed
in batches to bound memory; draws come from one stream in replicate order, so results depend on the seed only, not on
the batch. The vocabulary (and so the smoothing mass alpha V) is that of the observed corpora in every replicate.

WAE grows with noise: a replicate adds sampling noise to every z_disp, so bootstrap replicates lie *above* the observed
WAE and percentile intervals miss it: for faithful independent text they held the expected WAE in 0% of 150 simulated
corpora. `WordBootstrap.interval` shifts the replicates to the observed value instead: 100% there (too wide: the noise
counts twice in the spread), 95% once there is real displacement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cxrhf.metrics.checks import InputError, one_of
from cxrhf.metrics.displacement import Association
from cxrhf.metrics.intervals import Interval, interval
from cxrhf.metrics.words_corpora import Corpora
from cxrhf.metrics.words_patients import STATISTICS, PatientCounts, by_name, weighted_counts

Floats = NDArray[np.float64]

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
    return _tested(two, null, drawn, cells, ("z_ref", "z_pred", "z_disp"), seed)


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
    return _tested(two, null, drawn, cells, ("z_disp",), seed)


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


def _tested(
    two: PatientCounts,
    null: str,
    drawn: Callable[[int], Floats],
    cells: Callable[[Floats], tuple[Floats, ...]],
    scores: tuple[str, ...],
    seed: int,
) -> WordTest:
    """Run a permutation test: replicates of the statistics, and how often each word's scores are as large."""
    observed = _absolute(two.ref, two.pred)
    reached = {name: np.zeros(two.n_words) for name in scores}
    replicates: list[Floats] = []
    for draws in two.batches(drawn):
        ref, pred, values = two.scores(*cells(draws))
        replicates.append(values)
        sizes = _absolute(ref, pred)
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


def _absolute(ref: Association, pred: Association) -> dict[str, Floats]:
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
