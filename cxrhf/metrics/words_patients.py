"""Counted corpora -> counts by patient, and the scores and WAE statistics of many replicates at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cxrhf.metrics.checks import InputError, as_count
from cxrhf.metrics.displacement import Association, log_ratio
from cxrhf.metrics.words_corpora import Corpora

Floats = NDArray[np.float64]

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
