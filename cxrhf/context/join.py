"""PREDICTION rows and prior notes -> the same rows with `mention` and `pretest` filled in.

What comes out beside the table is counts and AUROC figures: no text, no words, no ids of notes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from cxrhf.context.bow import FOLDS, NotesPretest, notes_pretest
from cxrhf.context.material import Material
from cxrhf.context.mentions import Rule, has_phrases, mentions
from cxrhf.context.notes import Prior
from cxrhf.errors import TableError
from cxrhf.metrics import auroc
from cxrhf.schema import PREDICTION
from cxrhf.tables.checks import check

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Progress = Callable[[str], None]


class JoinedContext(NamedTuple):
    """PREDICTION rows in their order, sentences for the reader, and the same in figures."""

    table: pa.Table
    notes: list[str]
    about: dict[str, Any]


def join_notes(
    predictions: pa.Table,
    prior: Prior,
    *,
    want_pretest: bool,
    seed: int = 0,
    progress: Progress = lambda _: None,
    rule: Rule = "words",
) -> JoinedContext:
    """Fill `mention` where it is null and, if wanted and the column is empty, `pretest` (bow.notes_pretest).

    An image without prior notes gets neither, so the audits of context leave it out. The numbers do not depend on the
    order of rows or notes; labels are those of all splits and models of the table.
    """
    cells = _cells(predictions)
    links = prior.of(cells.images)
    used = np.flatnonzero(np.bincount(links.indices, minlength=links.shape[1]))
    links, notes = sparse.csr_array(links[:, used]), _rows(prior.notes, used)
    noted = np.diff(links.indptr) > 0
    said = [*prior.said, _notes_sentence(noted, len(used), notes)]
    about: dict[str, Any] = {
        "images": len(noted),
        "images_with_prior_notes": int(noted.sum()),
        "notes": len(used),
        "patients_with_prior_notes": len(pc.unique(notes["patient_id"])),
        "mention_rule": rule,
        "findings": {finding: {} for finding in cells.findings},
    }
    progress(f"mentions in {len(used):,} prior notes")
    flags = mention_matrix(cells.findings, links, notes["text"], rule)
    _tell_mentions(flags, noted, cells.findings, said, about)
    filled = {"mention": pc.coalesce(predictions["mention"], _column(flags, cells, pa.bool_()))}
    given = predictions["pretest"].null_count < predictions.num_rows
    if want_pretest and given:
        said.append("the predictions keep their own pre-test probabilities: none were fitted from the notes")
    elif want_pretest:
        y, disputed = _labels(predictions, cells)
        if disputed:
            said.append(f"{disputed:,} labels differ between rows of an image: the fit counts them as positive")
        who = _patients(cells.patients, links, notes["patient_id"])
        found = notes_pretest(y, links, notes["text"], who, findings=cells.findings, seed=seed, progress=progress)
        filled["pretest"] = _column(found.pretest, cells, pa.float64())
        _tell_pretest(found, y, cells.findings, said, about)
    table = predictions
    for name, values in filled.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), values)
    return JoinedContext(table, said, about)


class _Cells(NamedTuple):
    """Where each row stands in a matrix of images (by id) and findings (as they come), and the images' patients."""

    images: pa.Array
    findings: list[str]
    image: Integers  # of each row
    finding: Integers  # of each row
    patients: Integers  # of each image, numbered by id


def _cells(table: pa.Table) -> _Cells:
    images, image = _encode_column(table["image_id"])
    _, patient = _encode_column(table["patient_id"])
    findings = table["finding"].combine_chunks().dictionary_encode()
    if isinstance(findings, pa.ChunkedArray):
        findings = findings.combine_chunks()
    of_image = np.zeros(len(images), dtype=np.int64)
    of_image[image] = patient
    if (of_image[image] != patient).any():
        raise TableError(
            "one image id belongs to several patients, so its notes cannot be distinguished",
            next_step="audit the datasets one by one, or give each image its own id",
        )
    finding = findings.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return _Cells(images, findings.dictionary.to_pylist(), image, finding, of_image)


def _encode_column(column: pa.ChunkedArray) -> tuple[pa.Array, Integers]:
    """Distinct values in their order, and which of them each row holds."""
    values = pc.unique(column)
    values = values.take(pc.sort_indices(values))
    return values, pc.index_in(column, value_set=values).to_numpy().astype(np.int64)


def _rows(table: pa.Table, at: Integers) -> pa.Table:
    """Some rows in their order, chunk by chunk: one array may not hold more than 2 GB of text."""
    mask = np.zeros(table.num_rows, dtype=bool)
    mask[at] = True
    return table.select(["patient_id", "text"]).filter(pa.array(mask))


def _labels(table: pa.Table, cells: _Cells) -> tuple[Floats, int]:
    """Images x findings: 1 where any row says so, else 0 where any does, else NaN; and how many cells said both."""
    label = np.asarray(table["label"].cast(pa.float64()).to_numpy(), dtype=np.float64)
    k = len(cells.findings)
    cell = cells.image * k + cells.finding
    positive = np.bincount(cell[label == 1], minlength=len(cells.images) * k) > 0
    negative = np.bincount(cell[label == 0], minlength=len(cells.images) * k) > 0
    y = np.where(positive, 1.0, np.where(negative, 0.0, np.nan)).reshape(-1, k)
    return y, int((positive & negative).sum())


def _patients(patients: Integers, links: sparse.csr_array, owners: pa.ChunkedArray) -> Integers:
    """Numbers of the people whose images must stay in one fold: whom the predictions or the notes call the same.

    Predictions without a patient column make every image a patient of its own; their notes know better.
    """
    owner = pc.index_in(owners, value_set=pc.unique(owners)).to_numpy().astype(np.int64)
    n = int(patients.max(initial=-1)) + 1
    ends = (np.repeat(patients, np.diff(links.indptr)), n + owner[links.indices])
    size = n + int(owner.max(initial=-1)) + 1
    graph = sparse.coo_array((np.ones(len(ends[0])), ends), shape=(size, size))
    return np.asarray(connected_components(graph, directed=False)[1][patients], dtype=np.int64)


def mention_matrix(findings: list[str], links: sparse.csr_array, texts: pa.ChunkedArray, rule: Rule) -> Floats:
    """Images x findings: 1 where a prior note mentions the finding, 0 where none does, NaN without notes or phrases."""
    listed = [at for at, finding in enumerate(findings) if has_phrases(finding)]
    flags = np.full((links.shape[0], len(findings)), np.nan)
    found = mentions(texts, [findings[at] for at in listed], rule=rule)
    flags[:, listed] = (links @ found.astype(np.float64)) > 0
    flags[np.diff(links.indptr) == 0] = np.nan
    return flags


def _column(values: Floats, cells: _Cells, kind: pa.DataType) -> pa.ChunkedArray:
    long = values[cells.image, cells.finding]
    if pa.types.is_boolean(kind):
        return pa.chunked_array([pa.array(long == 1, kind, mask=np.isnan(long))])
    return pa.chunked_array([pa.array(long, kind, from_pandas=True)])


def _notes_sentence(noted: NDArray[np.bool_], n_notes: int, notes: pa.Table) -> str:
    if not noted.any():
        return (
            f"none of the {len(noted):,} images has a prior note, so there are no mentions and no pre-test "
            "probabilities from notes"
        )
    patients = len(pc.unique(notes["patient_id"]))
    said = (
        f"{int(noted.sum()):,} of {len(noted):,} images have prior notes ({n_notes:,} notes of {patients:,} patients)"
    )
    rest = int((~noted).sum())
    return said + (f"; the audits of context exclude the other {rest:,}" if rest else "")


def _tell_mentions(
    flags: Floats, noted: NDArray[np.bool_], findings: list[str], said: list[str], about: dict[str, Any]
) -> None:
    if not noted.any():
        return
    for at, finding in enumerate(findings):
        about["findings"][finding]["images_mentioned"] = int(np.nansum(flags[:, at])) if has_phrases(finding) else None
    if without := [finding for finding in findings if not has_phrases(finding)]:
        said.append(f"no prior mentions of {', '.join(without)}, which have no list of phrases")


def _tell_pretest(found: NotesPretest, y: Floats, findings: list[str], said: list[str], about: dict[str, Any]) -> None:
    about |= {"words": found.n_words, "folds": FOLDS}
    reached = []
    for at, finding in enumerate(findings):
        scored = ~np.isnan(found.pretest[:, at]) & ~np.isnan(y[:, at])
        value = float(auroc(y[scored, at], found.pretest[scored, at])) if scored.any() else math.nan
        about["findings"][finding] |= {
            "n": int(scored.sum()),
            "n_pos": int((y[scored, at] == 1).sum()),
            "auroc": None if math.isnan(value) else round(value, 4),
            "reason": found.reasons.get(finding),
        }
        reached += [] if math.isnan(value) else [value]
    if reached:
        said.append(
            f"pre-test probability from the words of prior notes, cross-fitted by patient in {FOLDS} folds: AUROC "
            f"{min(reached):.2f} to {max(reached):.2f} over {len(reached)} findings"
        )
    if about["images_with_prior_notes"]:
        said += [f"no pre-test probability for {finding}: {why}" for finding, why in found.reasons.items()]


# Material and probabilities -> PREDICTION rows, with prior mentions.


def mentions_of(material: Material, rule: str, *, stratum: bool) -> Floats:
    """Images x findings: 1 where a prior note mentions the finding, 0 where none does, NaN where nobody can say.

    Images without notes have no mention as a stratum of their own, and are NaN otherwise.
    """
    flags = mention_matrix(list(material.findings), material.links, material.notes["text"], cast(Rule, rule))
    if stratum:
        listed = np.flatnonzero([has_phrases(each) for each in material.findings])
        flags[np.ix_(np.flatnonzero(~material.noted), listed)] = 0.0
    return flags


def prediction_rows(
    material: Material, rows: Integers, finding: int, model: str, probability: Floats, mention: Floats, seed: int
) -> pa.Table:
    """PREDICTION rows of some images for one finding."""
    images = material.images.take(pa.array(rows))
    # Without a probability a row has a mention only; a label without a score is what readers refuse.
    label = np.where(np.isnan(probability), np.nan, material.y[rows, finding])
    n = len(rows)
    columns = {name: images[name] for name in images.column_names} | {
        "model": pa.repeat(pa.scalar(model), n),
        "seed": pa.repeat(pa.scalar(seed, pa.int64()), n),
        "finding": pa.repeat(pa.scalar(material.findings[finding]), n),
        "label": pa.array(np.nan_to_num(label).astype(np.int8), mask=np.isnan(label)),
        "prob": pa.array(probability, from_pandas=True),
        "mention": pa.array(mention == 1, mask=np.isnan(mention)),
    }
    return check(pa.table(columns), PREDICTION, source="context predictions")
