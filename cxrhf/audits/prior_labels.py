"""Labels and times of images -> what the same patient's strictly earlier images say about each of them.

Earlier means taken before the first image of the study at hand: neither the image's own label nor one of the same
moment, of the same study or of later can enter. An image without a time has no earlier images and is none for others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class PriorLabels(NamedTuple):
    """For n images and k findings; where no earlier label is known, `unknown` is 1 and the others 0."""

    last: Floats  # (n, k) the latest known label; the mean of several of one moment
    unknown: Floats  # (n, k) 1 = no earlier image has a label
    share: Floats  # (n, k) positive share of the known earlier labels
    any: Floats  # (n, k) 1 = some earlier label is positive
    images: Floats  # (n,) how many earlier images there are


def prior_labels(y: Floats, patients: Integers, time: Floats, study: Integers) -> PriorLabels:
    """`y` (n, k) has NaN where there is no label, `time` (n,) NaN where unknown; `study` < 0 = a study of its own."""
    n, k = y.shape
    timed = ~np.isnan(time)
    _, rank = np.unique(time[timed], return_inverse=True)  # times as whole numbers, so that a moment is one key
    width = len(rank) + 1
    moment = np.full(n, -1, dtype=np.int64)
    moment[timed] = patients[timed] * width + rank
    keys, place = np.unique(moment[timed], return_inverse=True)  # all moments of all patients, in time order
    labels = y[timed]
    known = ~np.isnan(labels)
    counted, positive = np.zeros((len(keys), k)), np.zeros((len(keys), k))
    np.add.at(counted, place, known.astype(np.float64))
    np.add.at(positive, place, np.where(known, labels, 0.0))
    taken = np.bincount(place, minlength=len(keys)).astype(np.float64)
    # For each image the moments [begin, end) are its patient's before its study starts.
    start = _study_start(moment, patients, study)
    begin = np.searchsorted(keys, patients * width)
    end = np.where(timed, np.searchsorted(keys, start), begin)
    n_known, n_positive, images = (_between(_sums(each), begin, end) for each in (counted, positive, taken[:, None]))
    latest = np.maximum.accumulate(np.where(counted > 0, np.arange(len(keys))[:, None], -1), axis=0)
    latest = np.vstack([np.full((1, k), -1), latest])[end]
    there = latest >= begin[:, None]
    mean = np.vstack([positive / np.maximum(counted, 1), np.zeros((1, k))])  # the added row: where there is none
    last = np.take_along_axis(mean, np.where(there, latest, len(keys)), axis=0)
    return PriorLabels(
        last=last,
        unknown=(~there).astype(np.float64),
        share=n_positive / np.maximum(n_known, 1),
        any=(n_positive > 0).astype(np.float64),
        images=images[:, 0],
    )


def _study_start(moment: Integers, patients: Integers, study: Integers) -> Integers:
    """The first known moment of each image's study (of this patient); its own where it has no study."""
    start = moment.copy()
    member = np.flatnonzero((study >= 0) & (moment >= 0))
    _, group = np.unique(np.column_stack([patients[member], study[member]]), axis=0, return_inverse=True)
    group = group.reshape(-1)
    first = np.full(int(group.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, group, moment[member])
    start[member] = first[group]
    return start


def _sums(values: Floats) -> Floats:
    return np.vstack([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])


def _between(sums: Floats, begin: Integers, end: Integers) -> Floats:
    return np.asarray(sums[end] - sums[begin], dtype=np.float64)
