"""A build that says it is made up -> proof of it, and what is true in it: truth.json and planted.parquet.

The generator runs again with the seed and the number of patients that build.json says, without pictures (half a second
for a thousand patients). Every image, study, patient and note id of the build must come out of it, every note with the
same text, every section of a report. Real data have other ids and other words, whatever build.json says. The truth is
taken from this second run as well, not from files that lie beside the build.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from cxrhf.hub.artefact import Piece
from cxrhf.hub.connection import HubError
from cxrhf.hub.dataset_source import Build

if TYPE_CHECKING:
    from cxrhf.data.synthetic.people import People

_SECTIONS = ("indication", "comparison", "findings", "impression")
_NOTES = "mimic-iv-note/2.2/note/discharge.csv.gz"


def truth_pieces(build: Build, work: Path) -> list[Piece]:
    """truth.json and planted.parquet of the twin, after every row of the build was found in it."""
    from cxrhf.data.synthetic import write

    config, twin = build.config, work / "twin"
    people = write("mimic", twin, n_patients=config.n_patients, seed=config.seed, dirty=config.dirty, pixels=False,
                   reports=False, overwrite=True)  # fmt: skip
    strange = {
        "images": _strange_images(build, twin, people),
        "notes": sum(_strange_notes(build, twin)),
        "attributes": _strange_attributes(build, twin),
    }
    if sum(strange.values()):
        said = ", ".join(f"{count:,} {what}" for what, count in strange.items() if count)
        command = f"cxrhf build synthetic --n-patients {config.n_patients} --seed {config.seed}"
        raise HubError(
            f"{build.folder} is marked as synthetic, but its {said} differ from the synthetic twin with "
            f"{config.n_patients:,} patients and seed {config.seed}, so they may be real. Nothing was uploaded",
            next_step=f"build the twin again ({command} --out NEW), or if --root named real files, build them as real "
            "data: cxrhf build mimic_cxr_context --root FOLDER",
        )
    return [Piece("planted.parquet", twin / "planted.parquet"), Piece("truth.json", twin / "truth.json")]


def _strange_images(build: Build, twin: Path, people: People) -> int:
    """Rows whose ids, or whose sections, are not the twin's."""
    from cxrhf.data.synthetic.reports import report_sections

    if not build.ids.num_rows:
        return 0
    known = _by_image(pq.read_table(twin / "planted.parquet", columns=["image_id", "study_id", "patient_id"]))
    sections = report_sections(people, build.config.seed).to_arrow()
    words = {name: set(sections[name].to_pylist()) | {None} for name in _SECTIONS}
    rows = build.tables.image_columns(("image_id", "study_id", "patient_id", *_SECTIONS)).to_pylist()
    return sum(
        known.get(row["image_id"]) != (row["study_id"], row["patient_id"])
        or any(row[name] not in words[name] for name in _SECTIONS)
        for row in rows
    )


def _by_image(table: pa.Table) -> Mapping[str, tuple[str, str]]:
    columns = (table[name].to_pylist() for name in ("image_id", "study_id", "patient_id"))
    return {image: (study, patient) for image, study, patient in zip(*columns, strict=True)}


def _strange_notes(build: Build, twin: Path) -> Iterator[int]:
    """For each file of notes, those with another id or text than the twin's."""
    from cxrhf.data.raw import stream_csv

    if not build.tables.notes:
        return
    known: dict[str, tuple[str, str]] = {}
    for batch in stream_csv(twin / _NOTES, ("note_id", "subject_id", "text")):
        columns = (batch.column(name).to_pylist() for name in ("note_id", "subject_id", "text"))
        known.update({note: (patient, text) for note, patient, text in zip(*columns, strict=True)})
    for path in build.tables.notes:
        table = pq.ParquetFile(path).read(columns=["note_id", "patient_id", "text"])
        yield sum(known.get(row["note_id"]) != (row["patient_id"], row["text"]) for row in table.to_pylist())


def _strange_attributes(build: Build, twin: Path) -> int:
    if build.tables.attributes is None:
        return 0
    known = {tuple(row.values()) for row in pq.read_table(twin / "attributes.parquet").to_pylist()}
    return sum(tuple(row.values()) not in known for row in pq.ParquetFile(build.tables.attributes).read().to_pylist())
