"""Linked images -> proof that nothing leaked, or a LeakageError that counts what did and names it in a local file.

Three things are looked for, each from the finished table and not from the code that made it: a linked note that is not
strictly before its image (or is another patient's), a patient in two splits, and a linked note that holds the image's
own report. For the last one a section of at least 60 letters must stand in the note, word for word; where an earlier
report of the same patient says the same words before the note was written, the note quotes that one and nothing leaked.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from cxrhf.errors import LeakageError

SHORTEST = 60
LEAK: dict[str, Any] = {"kind": pl.String, "image_id": pl.String, "note_id": pl.String, "patient_id": pl.String}
KINDS = {
    "time": "note not strictly before its image",
    "patient": "note of another patient, or unknown",
    "split": "patient in several splits",
    "report": "note contains the image's own report",
}


def check_leakage(
    images: pl.DataFrame,
    notes: pl.DataFrame | None,
    texts: Iterable[pa.Table] | None,
    written: Path,
    history: pl.DataFrame | None = None,
) -> dict[str, int]:
    """Raise a LeakageError where anything leaked; otherwise what was checked, counted.

    `images` has image_id, patient_id, split and, with notes, study_time and prior_note_ids; `notes` is the index
    (note_id, patient_id, available_at) and `texts` the NOTE tables themselves. `history` has the reports of all the
    patients' studies, also of those that were left out: notes may quote them. Ids go to `written`, on this disk only.
    Counted are patients, pairs of image and linked note, and reports: images whose own text was looked for in notes.
    """
    found = [patients_across_splits(images)]
    checked = {"patients": images.get_column("patient_id").n_unique()}
    if notes is not None:
        pairs = linked_pairs(images)
        checked["pairs"] = pairs.height
        found.append(wrong_pairs(pairs, notes))
        if texts is not None and can_hold_reports(images):
            checked["reports"] = sum(bool(each) for each in _own_texts(images))
            found.append(
                own_report_pairs(images, texts, history).select(pl.lit("report").alias("kind"), *list(LEAK)[1:])
            )
    leaks = pl.concat([each.select(list(LEAK)) for each in found])
    written.unlink(missing_ok=True)
    if leaks.height:
        written.parent.mkdir(parents=True, exist_ok=True)
        leaks.write_csv(written)
        counts = dict(leaks.group_by("kind", maintain_order=True).len().iter_rows())
        said = "; ".join(f"{n:,} x {KINDS[kind]}" for kind, n in counts.items())
        raise LeakageError(
            f"the build would leak: {said}", counts=counts, next_step=f"see the ids in {written} (a local file)"
        )
    return checked


def linked_pairs(images: pl.DataFrame) -> pl.DataFrame:
    """One row an image and linked note."""
    return (
        images.select("image_id", "patient_id", "study_time", pl.col("prior_note_ids").alias("note_id"))
        .filter(pl.col("note_id").list.len() > 0)
        .explode("note_id")
    )


def wrong_pairs(pairs: pl.DataFrame, notes: pl.DataFrame) -> pl.DataFrame:
    """Linked notes that are not strictly before their image, or not of its patient."""
    known = notes.select("note_id", pl.col("patient_id").alias("owner"), "available_at")
    joined = pairs.join(known, on="note_id", how="left")
    foreign = pl.col("owner").is_null() | (pl.col("owner") != pl.col("patient_id"))
    before = (pl.col("available_at") < pl.col("study_time")).fill_null(False)
    kind = pl.when(foreign).then(pl.lit("patient")).when(~before).then(pl.lit("time")).alias("kind")
    return joined.with_columns(kind).filter(pl.col("kind").is_not_null())


def patients_across_splits(images: pl.DataFrame) -> pl.DataFrame:
    """Patients that stand in more than one split."""
    if "split" not in images.columns:
        return pl.DataFrame(schema=LEAK)
    several = images.group_by("patient_id").agg(pl.col("split").n_unique().alias("n")).filter(pl.col("n") > 1)
    none = pl.lit(None, dtype=pl.String)
    return several.sort("patient_id").select(
        pl.lit("split").alias("kind"), none.alias("image_id"), none.alias("note_id"), "patient_id"
    )


def can_hold_reports(images: pl.DataFrame) -> bool:
    """Whether there is any text of the images' own to look for."""
    return any(
        name in images.columns and images.get_column(name).null_count() < images.height
        for name in ("own_text", "findings", "impression")
    )


def own_report_pairs(
    images: pl.DataFrame, texts: Iterable[pa.Table], history: pl.DataFrame | None = None
) -> pl.DataFrame:
    """(image_id, note_id, patient_id) where a linked note holds the image's own report."""
    own = _own_texts(images)
    sections = _first_said(images if history is None else history)
    linked: dict[str, list[int]] = {}
    for row, ids in enumerate(images.get_column("prior_note_ids").to_list()):
        if own[row]:
            for note in ids or ():
                linked.setdefault(note, []).append(row)
    image_ids, patients = images.get_column("image_id").to_list(), images.get_column("patient_id").to_list()
    hits = []
    for table in texts:
        notes = zip(table["note_id"].to_pylist(), table["available_at"].to_pylist(), table["text"], strict=True)
        for note, known, text in notes:
            rows = linked.get(note)
            if not rows:
                continue
            held = fold_text(text.as_py())
            for row in rows:
                said = [needle for needle in own[row] if needle in held]
                quoted = sections.get(patients[row], {})
                if any(not _is_earlier(quoted.get(needle), known) for needle in said):
                    hits.append((image_ids[row], note, patients[row]))
    schema = dict.fromkeys(("image_id", "note_id", "patient_id"), pl.String)
    return pl.DataFrame(hits, schema=schema, orient="row")


def fold_text(text: str) -> str:
    """Lower-cased, white space folded: how a report looks after it was pasted."""
    return " ".join(text.lower().split())


def _is_earlier(first_said: Any, known: Any) -> bool:
    return first_said is not None and known is not None and first_said < known


def _own_texts(images: pl.DataFrame) -> list[list[str]]:
    """Each image's own texts to look for."""
    if "own_text" in images.columns:  # written about this picture, whatever its length
        return [[fold_text(text)] if text and text.strip() else [] for text in images.get_column("own_text")]
    return [_needles(texts) for texts in images.select(_sections(images)).iter_rows()]


def _first_said(history: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """When a report of each patient first said each section."""
    if "own_text" in history.columns:  # no report, and nothing explains it
        return {}
    first: dict[str, dict[str, Any]] = {}
    for patient, moment, *texts in history.select("patient_id", "study_time", *_sections(history)).iter_rows():
        for needle in _needles(texts) if moment is not None else ():
            said = first.setdefault(patient, {})
            if needle not in said or moment < said[needle]:
                said[needle] = moment
    return first


def _sections(images: pl.DataFrame) -> list[str]:
    return [name for name in ("findings", "impression") if name in images.columns]


def _needles(texts: Iterable[str | None]) -> list[str]:
    return [each for each in (fold_text(text) for text in texts if text) if len(each) >= SHORTEST]
