"""A finding, its vectors and the halves -> its positives and its negatives apart, ready to be sliced."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.material import Layer
from cxrhf.audits.sample import Finding, Sample
from cxrhf.audits.slices.confirm import Rows
from cxrhf.metrics.estimates import FEW

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
SIDES = (("positive", 1.0), ("negative", 0.0))
LEAST = 60  # rows of a class to discover on


class Class(NamedTuple):
    """Rows of one class that have a vector. `found_on` are to discover on, `shown_on` are those that numbers are of."""

    side: str
    finding: Finding
    vectors: Floats
    found_on: Flags
    shown_on: Flags

    @property
    def error(self) -> Floats:
        """Squared error of each row: of one class, so its mean is Brier+ or Brier-."""
        return np.asarray((self.finding.y - self.finding.p) ** 2)

    def rows(self, which: Flags) -> Rows:
        """Places, errors and patients of some of the rows."""
        return Rows(self.finding.at[which], self.error[which], self.finding.patients[which])

    def patients(self, which: Flags) -> int:
        """How many patients some of the rows are of."""
        return len(np.unique(self.finding.patients[which]))

    @property
    def too_few(self) -> str | None:
        """Why no slices can be found in it, if so."""
        n, patients = int(self.found_on.sum()), min(self.patients(self.found_on), self.patients(self.shown_on))
        if n >= LEAST and patients >= 2 * FEW:
            return None
        return f"{n} images of {patients} patients, at least {LEAST} of {2 * FEW} are needed"


def classes(sample: Sample, finding: Finding, layer: Layer, confirm: Flags | None) -> list[Class]:
    """Positives and negatives with their vectors, which are reduced where they are long.

    `confirm` marks the rows of the sample to confirm on; None: everything is done on all rows.
    """
    place = np.full(len(sample.data.image_ids), -1, dtype=np.intp)
    place[layer.at] = np.arange(len(layer.at))
    finding = finding.only(place[finding.at] >= 0)
    vectors = layer.vectors[place[finding.at]].astype(np.float64)
    everybody = np.ones(len(finding.at), dtype=bool)
    shown_on = everybody if confirm is None else confirm[finding.at]
    found_on = everybody if confirm is None else ~shown_on
    size = sample.settings.reduce
    found = [
        Class(side, finding.only(mine), vectors[mine], found_on[mine], shown_on[mine])
        for side, label in SIDES
        if (mine := finding.y == label).any()
    ]
    some = any(each.too_few is None for each in found)
    if some and vectors.shape[1] > size and len(np.unique(finding.y[found_on])) == 2:
        from cxrhf.audits.slices.reduction import fit_reduction

        text = f"{sample.model}: {finding.name}: a layer of {size} sigmoids"
        sample.progress(text)
        reduced = fit_reduction(
            vectors[found_on], finding.y[found_on], finding.patients[found_on], size=size, seed=sample.settings.seed,
            progress=lambda said: sample.progress(f"{text}: {said}"),
        )  # fmt: skip
        found = [each._replace(vectors=reduced(each.vectors)) for each in found]
    return found
