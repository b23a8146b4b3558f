"""IMAGE and NOTE tables -> what context models learn from: labels, patients, splits, and the prior notes of each image.

Rows are images in the order of their ids, so the numbers do not depend on the order of files. Each distinct set of
prior notes is one row of every feature matrix, whatever the number of its images.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import sparse

from cxrhf.context.bow import distinct_rows
from cxrhf.context.notes import prior_notes_of_build
from cxrhf.errors import LeakageError, TableError, did_you_mean, need_packages
from cxrhf.learn import Calibration, Calibrator
from cxrhf.tables.checks import quoted

__all__ = [
    "Calibration",
    "Calibrator",
    "Candidate",
    "Family",
    "Features",
    "Fitted",
    "Flags",
    "Floats",
    "Integers",
    "Labelled",
    "Progress",
    "Tried",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Progress = Callable[[str], None]


PIECE = 5_000
# PREDICTION's columns that an image brings along.
CARRIED_COLUMNS = ("image_id", "study_id", "patient_id", "dataset", "split", "age", "sex", "race", "view")


@dataclass(frozen=True, slots=True)
class Material:
    """Images, their labels, and the notes that were known before each."""

    images: pa.Table = field(repr=False)  # CARRIED, by image id
    findings: tuple[str, ...]
    y: Floats = field(repr=False)  # images x findings: 1, 0, NaN = no label
    patients: Integers = field(repr=False)  # a number for the patient of each image
    links: sparse.csr_array = field(repr=False)  # images x notes, 1 where the note is prior
    notes: pa.Table = field(repr=False)  # note_id, patient_id, text: notes prior to any image, by time
    noted: Flags = field(repr=False)  # images that have a prior note
    set_of: Integers = field(repr=False)  # the distinct set of prior notes of each image; -1 without notes
    sets: sparse.csr_array = field(repr=False)  # sets x notes

    def split(self, name: str) -> Flags:
        """Images of a split."""
        return np.asarray(pc.equal(self.images["split"], name).fill_null(False))

    def fingerprint(self) -> str:
        """What is learned from, as one hash: images, splits, labels, links and texts."""
        digest = hashlib.sha256()
        for name in ("image_id", "patient_id", "split"):
            for value in self.images[name].to_pylist():
                digest.update(f"{value}\x1f".encode())
        digest.update(self.y.tobytes() + self.links.indptr.tobytes() + self.links.indices.tobytes())
        for chunk in self.notes["text"].chunks:
            for value in chunk:
                digest.update(value.as_buffer())
                digest.update(b"\x1f")
        return digest.hexdigest()


def material(images: pa.Table, notes: pa.Table, findings: Sequence[str]) -> Material:
    """Tables of a build -> Material. `images` has CARRIED (split may be null), study_time, prior_note_ids and findings.

    Every link is checked again: a note that is not strictly earlier than its image is a LeakageError.
    """
    for name in findings:
        if name not in images.column_names:
            raise TableError(
                f"the images have no finding {quoted(name)}", next_step=did_you_mean(name, images.column_names) or None
            )
    images = images.take(pc.sort_indices(images["image_id"]))
    notes = in_time_order(notes)
    prior = prior_notes_of_build(images, notes, predictions=images)
    links = prior.of(images["image_id"].combine_chunks())
    used = np.flatnonzero(np.bincount(links.indices, minlength=links.shape[1]))
    links = sparse.csr_array(links[:, used])
    links.sum_duplicates()  # in the order of time, and a note that is named twice is read once
    links.data[:] = 1
    mask = np.zeros(notes.num_rows, dtype=bool)
    mask[used] = True
    kept = notes.select(["note_id", "patient_id", "text"]).filter(pa.array(mask))
    _same_patients(images, links, kept)
    noted = np.diff(links.indptr) > 0
    set_of = np.full(len(noted), -1, dtype=np.int64)
    with_notes = sparse.csr_array(links[np.flatnonzero(noted)])
    set_of[noted], first = distinct_rows(with_notes)
    columns = [np.asarray(images[name].cast(pa.float64()).to_numpy(), dtype=np.float64) for name in findings]
    y = np.column_stack(columns) if columns else np.zeros((images.num_rows, 0))
    people = images["patient_id"].combine_chunks().dictionary_encode().indices
    return Material(
        pa.table({name: _carried(images, name) for name in CARRIED_COLUMNS}),
        tuple(findings),
        np.where(y == 1, 1.0, np.where(y == 0, 0.0, np.nan)),
        np.asarray(people.to_numpy(zero_copy_only=False), dtype=np.int64),
        links,
        kept,
        noted,
        set_of,
        sparse.csr_array(with_notes[first]),
    )


def one_split_each(material: Material) -> Material:
    """The same material. A patient in two splits is an error: a model that learned from one image would score others.

    `cxrhf build` sees to it; tables may come from elsewhere. No split is a split here.
    """
    split = material.images["split"].combine_chunks().dictionary_encode(null_encoding="encode").indices
    pairs = np.unique(np.column_stack([material.patients, np.asarray(split)]), axis=0)
    twice = len(pairs) - len(np.unique(material.patients))
    if twice:
        raise LeakageError(
            f"patients are in more than one split ({twice:,} times)",
            counts={"patients in two splits": twice},
            next_step="split the dataset by patient: cxrhf build ... --split ratio",
        )
    return material


def in_time_order(notes: pa.Table) -> pa.Table:
    """The same notes by the time they were known, then by id; texts in pieces, since one array holds 2 GB at most."""
    order = pc.sort_indices(notes, sort_keys=[("available_at", "ascending"), ("note_id", "ascending")])
    place = order.to_numpy()
    if (np.diff(place.astype(np.int64)) == 1).all():
        return notes
    pieces = [notes.take(order.slice(start, PIECE)) for start in range(0, len(order), PIECE)]
    return pa.concat_tables(pieces)


def _carried(images: pa.Table, name: str) -> pa.ChunkedArray:
    if name in images.column_names:
        return images[name]
    return pa.chunked_array([pa.nulls(images.num_rows, pa.float64() if name == "age" else pa.string())])


def _same_patients(images: pa.Table, links: sparse.csr_array, notes: pa.Table) -> None:
    """A note of another patient would put one patient into two folds."""
    owner = notes["patient_id"].take(pa.array(links.indices))
    image = images["patient_id"].take(pa.array(np.repeat(np.arange(links.shape[0]), np.diff(links.indptr))))
    wrong = pc.sum(pc.not_equal(owner, image)).as_py() or 0
    if wrong:
        raise TableError(
            f"{wrong:,} links from an image lead to a note of another patient",
            next_step="build the dataset again: cxrhf build ... --overwrite",
        )


# What the steps of fitting a context model hand to each other.

Features = sparse.csr_array | NDArray[np.float32]


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


# What is read of the notes -> the optional packages that it needs, looked for before hours are spent.

# What is read -> modules; "" is what every fit needs to keep its models.
_NEEDED = {"": ("skops", "safetensors"), "boosted": ("xgboost",), "encoder": ("torch", "transformers", "accelerate")}


def check_packages(features: Sequence[str]) -> None:
    """A missing package as an error that says how to get it."""
    light = not {"boosted", "encoder"} & set(features)  # the extra that brings all of it: one install, not two
    other = "" if light else ", or pip install 'cxrhf[words]' and pass --features words"
    for feature in (*features, ""):
        what = f"--features {feature}" if feature else "context models"
        need_packages(what, _NEEDED.get(feature, ()), "words" if light else "context", other)
