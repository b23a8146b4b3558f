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
WAE and percentile intervals miss it. `WordBootstrap.interval` therefore shifts them to the observed value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cxrhf.metrics.checks import InputError, as_count, as_fraction, one_of
from cxrhf.metrics.displacement import Association, log_ratio
from cxrhf.metrics.words_corpora import Corpora

Floats = NDArray[np.float64]
Draw = Callable[[int], NDArray[np.generic]]

Z_NEUTRAL = 1.0
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
_TWO_SIDED = ("delta_wae_prediction", "delta_wae_reference", "delta_dir")


@dataclass(frozen=True, slots=True)
class WordBootstrap:
    """Observed value and replicates of each statistic (`STATISTICS`); standard errors of each word's log ratios.

    `se_disp` is that of s_pred - s_ref with both corpora from the same patients: it counts what they share.
    """

    vocabulary: list[str]
    observed: dict[str, float]
    replicates: dict[str, Floats]
    se_ref: Floats
    se_pred: Floats
    se_disp: Floats
    n_patients: int
    seed: int

    def interval(self, statistic: str, level: float = 0.95) -> tuple[float, float]:
        """Percentile interval of the replicates, shifted so that their mean is the observed value; WAE ends at 0."""
        one_of(statistic, "statistic", STATISTICS)
        tail = (1 - as_fraction(level, "level")) / 2
        values = self.replicates[statistic]
        values = values[~np.isnan(values)]
        if not len(values) or np.isnan(self.observed[statistic]):
            return float("nan"), float("nan")
        low, high = np.quantile(values - values.mean() + self.observed[statistic], [tail, 1 - tail])
        return float(low if statistic in _TWO_SIDED else max(low, 0.0)), float(high)


@dataclass(frozen=True, slots=True)
class WordTest:
    """A named null hypothesis, the observed statistics, their values under it, and p values (1 + #) / (1 + R).

    WAE is tested upwards, differences in both directions. `word_p` holds, for each word of the vocabulary, the two-sided
    p values of z_ref, z_pred and z_disp, as far as the null says something about them; they are not corrected for the
    number of words.
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
    """Paired bootstrap over patients, drawn within their group so that group sizes stay as designed."""
    two = _Patients(texts, alpha, n_resamples, batch)
    strata = [np.flatnonzero(two.membership == code) for code in np.unique(two.membership)]
    streams = _streams(seed, len(strata))

    def drawn(size: int) -> Floats:
        times = np.zeros((size, two.n_patients))
        for members, rng in zip(strata, streams, strict=True):
            picked = rng.integers(0, len(members), size=(size, len(members)))
            picked += np.arange(size)[:, None] * len(members)
            counts = np.bincount(picked.ravel(), minlength=size * len(members))
            times[:, members] = counts.reshape(size, len(members))
        return times

    cells = [two.reference[0], two.reference[1], two.prediction[0], two.prediction[1]]
    moments = np.zeros((2, 3, two.n_words))
    replicates: list[Floats] = []
    for times in two.batches(drawn):
        ref, pred, values = two.scores(*(_times(cell, times) for cell in cells))
        replicates.append(values)
        moved = np.stack([ref.s - two.ref.s, pred.s - two.pred.s, pred.s - ref.s - (two.pred.s - two.ref.s)], axis=1)
        for row in moved:  # one by one: the order of additions must not depend on the batch
            moments[0] += row
            moments[1] += row**2
    n = n_resamples
    spread = np.sqrt(np.maximum(moments[1] - moments[0] ** 2 / n, 0.0) / (n - 1)) if n > 1 else moments[0] * np.nan
    named = _named(np.concatenate(replicates))
    return WordBootstrap(two.vocabulary, two.observed, named, *spread, two.n_patients, seed)


def permute_groups(
    texts: Corpora, *, alpha: float = 0.1, n_resamples: int = 1000, seed: int = 0, batch: int | None = None
) -> WordTest:
    """Test "no association": group labels permuted across patients (each patient must have one group)."""
    two = _Patients(texts, alpha, n_resamples, batch)
    if (two.membership == 3).any():
        who = texts.pair(None).patients[int(np.argmax(two.membership == 3))]
        raise InputError(f"patient {who!r} has reports in both groups, allowed: one group a patient to permute labels")
    is_first = two.membership == 1
    (rng,) = _streams(seed, 1)
    sides = [two.reference[0] + two.reference[1], two.prediction[0] + two.prediction[1]]
    totals = [_times(side, np.ones((1, two.n_patients))) for side in sides]

    def cells(labels: Floats) -> tuple[Floats, ...]:
        firsts = [_times(side, labels) for side in sides]
        return firsts[0], totals[0] - firsts[0], firsts[1], totals[1] - firsts[1]

    def drawn(size: int) -> Floats:
        return rng.permuted(np.tile(is_first, (size, 1)), axis=1).astype(np.float64)

    null = "no association: group labels permuted across patients"
    return _tested(two, null, drawn, cells, ("z_ref", "z_pred", "z_disp"), seed)


def swap_corpora(
    texts: Corpora, *, alpha: float = 0.1, n_resamples: int = 1000, seed: int = 0, batch: int | None = None
) -> WordTest:
    """Test "no displacement": reference and generated reports exchanged within a patient by a fair coin."""
    two = _Patients(texts, alpha, n_resamples, batch)
    (rng,) = _streams(seed, 1)
    everybody = np.ones((1, two.n_patients))
    ref, pred = ([_times(cell, everybody) for cell in side] for side in (two.reference, two.prediction))
    change = [two.prediction[i] - two.reference[i] for i in (0, 1)]

    def cells(swapped: Floats) -> tuple[Floats, ...]:
        moved = [_times(cell, swapped) for cell in change]
        return ref[0] + moved[0], ref[1] + moved[1], pred[0] - moved[0], pred[1] - moved[1]

    def drawn(size: int) -> Floats:
        return rng.integers(0, 2, size=(size, two.n_patients)).astype(np.float64)

    null = "no displacement: reference and generated reports exchanged within patients"
    return _tested(two, null, drawn, cells, ("z_disp",), seed)


def split_half(
    texts: Corpora, *, alpha: float = 0.1, n_resamples: int = 1000, seed: int = 0, batch: int | None = None
) -> dict[str, Floats]:
    """WAE between two random halves of the references, by patient within groups: its value for faithful text.

    Returns replicates of each statistic; `wae_prediction` is weighted by the second half, `wae_reference` by the first.
    Halves hold half the tokens, so rare words weigh in a little less than between two whole corpora.
    """
    two = _Patients(texts, alpha, n_resamples, batch)
    strata = [np.flatnonzero(two.membership == code) for code in np.unique(two.membership)]
    streams = _streams(seed, len(strata))
    whole = [_times(cell, np.ones((1, two.n_patients))) for cell in two.reference]

    def drawn(size: int) -> Floats:
        half = np.zeros((size, two.n_patients))
        for members, rng in zip(strata, streams, strict=True):
            pattern = np.tile(np.arange(len(members)) < len(members) // 2, (size, 1))
            half[:, members] = rng.permuted(pattern, axis=1)
        return half

    replicates = []
    for half in two.batches(drawn):
        one = [_times(cell, half) for cell in two.reference]
        replicates.append(two.scores(*one, *(total - part for total, part in zip(whole, one, strict=True)))[2])
    return _named(np.concatenate(replicates))


class _Patients:
    """Counts by patient as (words x patients) matrices, the observed scores, and the loop over batches."""

    def __init__(self, texts: Corpora, alpha: float, n_resamples: int, batch: int | None) -> None:
        if not alpha > 0:
            raise InputError(f"alpha is {alpha!r}, allowed: a number > 0")
        two = texts if len(texts.groups) == 2 else texts.pair(None)
        rows = np.arange(len(two.patient))
        self.vocabulary, self.alpha = two.vocabulary, alpha
        self.n_patients, self.n_words = len(two.patients), len(two.vocabulary)
        if not (self.n_patients and self.n_words):
            raise InputError(f"{self.n_patients} patients with {self.n_words} words, allowed: at least one of each")
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
        # About a million numbers an array: fits the caches, and bounds memory at some tens of MB.
        self.batch = as_count(batch, "batch") if batch is not None else max(1, 2**18 // max(self.n_words, 1))
        self.n_resamples = as_count(n_resamples, "n_resamples")
        everybody = np.ones((1, self.n_patients))
        self.ref, self.pred, values = self.scores(
            *(_times(cell, everybody) for cell in (*self.reference, *self.prediction))
        )
        self.observed = {name: float(value[0]) for name, value in _named(values).items()}

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


def _tested(
    two: _Patients,
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
            reached[name] += (sizes[name] >= observed[name] * (1 - 1e-12)).sum(axis=0)
    named = _named(np.concatenate(replicates))
    p_value = {name: _p(two.observed[name], named[name], name in _TWO_SIDED) for name in STATISTICS}
    word_p = {name: (1 + count) / (1 + two.n_resamples) for name, count in reached.items()}
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


def _times(cell: sp.csr_array, times: Floats) -> Floats:
    """(replicates x words) counts when patient i enters times[replicate, i] times. Whole numbers, so exact."""
    return np.ascontiguousarray((cell @ np.ascontiguousarray(times.T)).T)


def _ratio(top: Floats, bottom: Floats) -> Floats:
    return np.divide(top, bottom, out=np.full(len(top), np.nan), where=bottom > 0)


def _named(values: Floats) -> dict[str, Floats]:
    return {name: np.ascontiguousarray(values[:, i]) for i, name in enumerate(STATISTICS)}


def _streams(seed: int, n: int) -> list[np.random.Generator]:
    return [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(n)]
