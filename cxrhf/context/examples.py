"""Pre-test probabilities and prior notes -> the images that show them at their best and worst, in a file of this disk.

Examples name images and notes, so they go to one local folder that only the user can read: never to results, page or
log. They are what the paper's Table A.8 shows (high for a positive, low for a negative), and the opposite: positives
that the notes did not announce, negatives that they did.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.context.material import Material
from cxrhf.errors import TableError, did_you_mean

# Kind of example -> what it shows, label, whether the highest probabilities come first.
KINDS: Mapping[str, tuple[str, int, bool]] = {
    "expected_positive": ("the finding was present, and the notes gave it a high probability", 1, True),
    "expected_negative": ("the finding was absent, and the notes gave it a low probability", 0, False),
    "surprising_positive": ("the finding was present, but the notes gave it a low probability", 1, False),
    "surprising_negative": ("the finding was absent, but the notes gave it a high probability", 0, True),
}
EXAMPLE = pa.schema(
    [
        pa.field("finding", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("image_id", pa.string()),
        pa.field("patient_id", pa.string()),
        pa.field("note_ids", pa.list_(pa.string())),
        pa.field("prob", pa.float64()),
        pa.field("label", pa.int8()),
    ]
)
_README = """These files name images and notes of patients, and may contain the notes' text.
Keep them on this machine: do not share, publish or commit them, and do not send them to any service.

examples.csv  images with the highest and lowest pre-test probability of each finding, at most one per patient
examples.txt  the prior notes of the same images, if the build is given
"""


def write_examples(
    folder: str | Path,
    predictions: pa.Table,
    material: Material | None,
    *,
    number: int = 5,
    findings: Sequence[str] | None = None,
    split: str | None = "test",
    texts: bool = False,
) -> Path:
    """PREDICTION rows -> FOLDER/examples.csv and, with texts, examples.txt; returns the folder.

    It and its files are for the user alone, no repository takes them up, and a README says so.
    """
    found = examples(predictions, material, number=number, findings=findings, split=split).to_pylist()
    local = Path(folder)
    local.mkdir(parents=True, exist_ok=True)
    local.chmod(0o700)
    _write(local / "README.txt", _README)
    _write(local / ".gitignore", "*\n")
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    writer.writerow(EXAMPLE.names)
    for row in found:
        writer.writerow([";".join(row[name]) if name == "note_ids" else row[name] for name in EXAMPLE.names])
    _write(local / "examples.csv", sheet.getvalue())
    if texts and material is not None:
        wanted = pa.array(sorted({name for row in found for name in row["note_ids"]}), pa.string())
        kept = material.notes.filter(pc.is_in(material.notes["note_id"], value_set=wanted))
        known = dict(zip(kept["note_id"].to_pylist(), kept["text"].to_pylist(), strict=True))
        _write(local / "examples.txt", "\n".join(_told(row, known) for row in found))
    else:
        (local / "examples.txt").unlink(missing_ok=True)  # texts of other examples would mislead
    return local


def examples(
    predictions: pa.Table,
    material: Material | None = None,
    *,
    number: int = 5,
    findings: Sequence[str] | None = None,
    model: str = "context",
    split: str | None = "test",
) -> pa.Table:
    """PREDICTION rows -> EXAMPLE rows: `number` images of each kind and finding, at most one a patient and kind.

    With the material the notes of each image are named, and images without notes left out. An image stands in one kind
    only, the expected before the surprising. Among equal probabilities the image id decides.
    """
    there = pc.unique(predictions["model"]).to_pylist()
    if model not in there:
        raise TableError(
            "unknown model", got=model, allowed=f"one of {', '.join(there)}", next_step=did_you_mean(model, there)
        )
    rows = predictions.filter(pc.equal(predictions["model"], model))
    rows = rows.filter(pc.and_(pc.is_valid(rows["label"]), pc.is_valid(rows["prob"])))
    if split is not None:
        rows = rows.filter(pc.equal(rows["split"], split))
    if material is not None:
        noted = material.images["image_id"].filter(pa.array(material.noted))
        rows = rows.filter(pc.is_in(rows["image_id"], value_set=noted.combine_chunks()))
    made: list[dict[str, Any]] = []
    for finding in pc.unique(rows["finding"]).to_pylist():
        if findings is None or finding in findings:
            made += _of_finding(rows.filter(pc.equal(rows["finding"], finding)), number)
    if material is not None:
        _name_notes(made, material)
    return pa.Table.from_pylist(made, schema=EXAMPLE)


def _of_finding(rows: pa.Table, number: int) -> list[dict[str, Any]]:
    rows = rows.take(pc.sort_indices(rows["image_id"]))
    prob, label = rows["prob"].to_numpy(), rows["label"].to_numpy()
    patient = rows["patient_id"].to_pylist()
    taken: set[int] = set()
    chosen = []
    for kind, (_, wanted, highest) in KINDS.items():
        seen: set[str] = set()
        for at in np.argsort(-prob if highest else prob, kind="stable").tolist():
            if len(seen) >= number:
                break
            if label[at] == wanted and at not in taken and patient[at] not in seen:
                seen.add(patient[at])
                taken.add(at)
                chosen.append((kind, at))
    names = ("finding", "image_id", "patient_id", "prob", "label")
    found = rows.select(names).take(pa.array([at for _, at in chosen], pa.int64())).to_pylist()
    return [row | {"kind": kind, "note_ids": []} for (kind, _), row in zip(chosen, found, strict=True)]


def _name_notes(rows: Sequence[dict[str, Any]], material: Material) -> None:
    """Fill in the prior notes of the chosen images, in the order of the notes table."""
    names = material.notes["note_id"]
    wanted = pa.array([row["image_id"] for row in rows], pa.string())
    at = pc.index_in(wanted, value_set=material.images["image_id"].combine_chunks()).to_pylist()
    for row, image in zip(rows, at, strict=True):
        own = np.sort(material.links.indices[material.links.indptr[image] : material.links.indptr[image + 1]])
        row["note_ids"] = names.take(pa.array(own)).to_pylist()


def _told(row: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    about = KINDS[row["kind"]][0]
    head = (
        f"{'=' * 100}\n{row['finding']}: {about}\n"
        f"image {row['image_id']}, patient {row['patient_id']}: probability {row['prob']:.4f}, label {row['label']}\n"
    )
    notes = [f"{'-' * 40} note {name}\n{texts.get(name, '(its text is not given)')}\n" for name in row["note_ids"]]
    return head + "".join(notes)


def _write(target: Path, text: str) -> Path:
    """Write a file that nobody else can read, not even while it is being written."""
    draft = target.parent / f".{target.name}.{os.getpid()}.tmp"
    try:
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return target
