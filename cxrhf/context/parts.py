"""What the steps of fitting a context model hand to each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cxrhf.calibrate import Calibration, Calibrator

__all__ = [
    "Calibration", "Calibrator", "Candidate", "Family", "Features", "Fitted", "Flags", "Floats", "Integers",
    "Labelled", "Progress", "Tried",
]  # fmt: skip

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Features = sparse.csr_array | NDArray[np.float32]
Progress = Callable[[str], None]


class Candidate(NamedTuple):
    """A classifier and its parameters: one cell of a grid."""

    kind: str  # a key of classifiers.KINDS, such as "LinearSVC", "WordRidge", "XGBoost"
    params: Mapping[str, Any]

    @property
    def label(self) -> str:
        """`LinearSVC(C=0.1)`, for people."""
        inner = ", ".join(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
                          for name, value in self.params.items())  # fmt: skip
        return f"{self.kind}({inner})"


@dataclass(frozen=True, slots=True)
class Family:
    """One way to read the notes: its features, the classifiers that are tried on them, and how scores are calibrated.

    `name` is what tables show: "words", "boosted", or the encoder ("minilm", "org/model").
    """

    name: str
    kind: Literal["words", "boosted", "encoder"]
    features: Features = field(repr=False)  # sets x features, float32 or sparse
    feature_names: tuple[str, ...] = field(repr=False)  # words; () for vectors
    candidates: tuple[Candidate, ...]
    calibration: Calibration


class Labelled(NamedTuple):
    """One finding's images that can be learned from or scored: all that have prior notes, labelled or not."""

    rows: Integers  # the row of Family.features of each image
    y: Floats  # 1, 0, NaN
    patients: Integers
    learn: Flags  # images that models are fitted to (train, or train and validate)
    validate: Flags  # images that choose between classifiers; all False where cross-validation chooses
    fold: Integers  # of each image that is learned from, by patient; -1 elsewhere


class Tried(NamedTuple):
    """What cross-validation says of a candidate."""

    candidate: Candidate
    auroc: float  # mean over folds
    auroc_sd: float
    scores: Floats  # out of fold, of every learning image that has a fold; NaN elsewhere; empty if not kept
    seconds: float
    failed: str | None = None  # why it gives nothing
    unsettled: int = 0  # folds in which the search for the best coefficients ended at its last allowed step


@dataclass(frozen=True, slots=True)
class Fitted:
    """The best classifier of a family for one finding, and what it says."""

    family: str
    candidate: Candidate
    model: Any = field(repr=False)
    calibrator: Calibrator = field(repr=False)
    cv_auroc: float
    validation_auroc: float  # NaN where nothing was validated
    probability: Floats = field(repr=False)  # of every image of Labelled: cross-fitted where it was learned from
    tried: tuple[Tried, ...] = field(repr=False)  # the best of each kind first, scores dropped
    reasons: tuple[str, ...] = ()  # what a reader must know, e.g. why validation did not choose
