"""A build -> the images that reports are written about, with their references: frontal, one a patient, sexes balanced.

WORDS takes 2,000 frontal test images, half of women, and does not say of how many patients. Tests of words count every
word as a new one, so words that one patient's reports repeat would look like words of a group: one image a patient,
drawn by the seed, unless more are asked for. Patients come in an order drawn by the seed, until there are enough; of
the last one only some images may be taken. The same seed and build give the same images, and fewer of them are a part
of more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cxrhf.errors import ConfigError, TableError
from cxrhf.imaging.opened import splits_there
from cxrhf.writing.reports import FRONTAL, images_with_reports

if TYPE_CHECKING:
    import pyarrow as pa

    from cxrhf.models.images import Images, Integers


@dataclass(frozen=True, slots=True)
class Sample:
    """Images with the references of their reports, and what must be said of how they were chosen."""

    images: Images
    references: list[str]
    notes: list[str]


def sample_images(
    build: str | Path,
    *,
    split: str = "test",
    views: str = "frontal",
    per: str = "patient",
    n: int = 2000,
    balance: str = "sex",
    seed: int = 0,
) -> Sample:
    """The images of a study of reports; `n` 0 takes all that are left."""
    import numpy as np

    from cxrhf.models.seeding import number
    from cxrhf.models.vlm_prompts import report_of

    images = images_with_reports(build, splits_there(build, [split], all_of=split != "all"))
    table, notes = images.table, list[str]()
    rows = np.arange(len(images))
    said = [f"{len(rows):,} images of split {split}"]
    if views == "frontal":
        rows = _frontal(table, build)
        said.append(f"{len(rows):,} frontal")
    there = [name for name in ("findings", "impression") if name in table.column_names]
    references = [report_of(row) for row in table.select(there).to_pylist()]
    written = np.array([bool(each) for each in references], dtype=bool)
    if missing := int((~written[rows]).sum()):
        notes.append(f"{missing:,} images without a reference report are excluded")
    rows = rows[written[rows]]
    said.append(f"{len(rows):,} with a reference report")
    if not len(rows):
        raise TableError(
            f'{build}: no image of the split "{split}" has a reference report', next_step="choose another --split"
        )
    if per != "image":
        rows = _first_of_study(table, rows)
        said.append(f"{len(rows):,} studies")
    patients = table["patient_id"].to_pylist()
    if per == "patient":
        rows = _one_a_patient(images.ids, patients, rows, seed)
        said.append(f"{len(rows):,} patients")
    drawn = {each: number(seed, "patient", each) for each in {patients[row] for row in rows}}
    order = rows[np.argsort([drawn[patients[row]] for row in rows], kind="stable")]
    if balance == "sex":
        order, more = _balanced(table, order, n)
        notes += more
    elif n:
        if len(order) < n:
            notes.append(f"{n:,} images were requested, {len(order):,} are available")
        order = order[:n]
    kept = np.sort(order)
    said.append(f"{len(kept):,} taken")
    return Sample(images.take(kept), [references[row] for row in kept], [", ".join(said), *notes])


def _frontal(table: pa.Table, build: str | Path) -> Integers:
    """Rows of frontal views; one whose view is not known is none."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    view = table["view"] if "view" in table.column_names else pa.nulls(table.num_rows, pa.string())
    rows = np.flatnonzero(np.asarray(pc.fill_null(pc.is_in(view, value_set=pa.array(FRONTAL)), False)))
    if not len(rows):
        raise TableError(f"{build}: no image is marked as frontal (view PA or AP)", next_step="--views all")
    return rows


def _first_of_study(table: pa.Table, rows: Integers) -> Integers:
    """The first image of each study; one whose study is not known is its own."""
    import numpy as np

    seen: set[tuple[object, object]] = set()
    kept = []
    studies = table["study_id"].to_pylist() if "study_id" in table.column_names else [None] * table.num_rows
    patients = table["patient_id"].to_pylist()
    for row in rows:
        study = (patients[row], studies[row] if studies[row] is not None else int(row))
        if study not in seen:
            seen.add(study)
            kept.append(row)
    return np.array(kept, dtype=np.int64)


def _one_a_patient(ids: Sequence[str], patients: Sequence[str], rows: Integers, seed: int) -> Integers:
    """One image of each patient, drawn by the seed and the image, whatever else is there."""
    import numpy as np

    from cxrhf.models.seeding import number

    best: dict[str, tuple[int, int]] = {}
    for row in rows.tolist():
        drawn = (number(seed, "image", ids[row]), row)
        best[patients[row]] = min(drawn, best.get(patients[row], drawn))
    return np.sort(np.array([row for _, row in best.values()], dtype=np.int64))


def _balanced(table: pa.Table, order: Integers, n: int) -> tuple[Integers, list[str]]:
    """As many images of women as of men, the first in the order."""
    import numpy as np

    sexes = np.array(table["sex"].to_pylist() if "sex" in table.column_names else [None] * table.num_rows, dtype=object)
    own = {sex: order[sexes[order] == sex] for sex in ("F", "M")}
    unknown = len(order) - sum(map(len, own.values()))
    notes = [f"{unknown:,} images are excluded because their sex is not F or M"] if unknown else []
    there = min(map(len, own.values()))
    if not there:
        raise ConfigError(
            "--balance",
            got=", ".join(f"{len(rows):,} of {sex}" for sex, rows in own.items()),
            allowed="images of both sexes",
            next_step="--balance none",
        )
    each = min(n // 2, there) if n else there
    if not each:
        raise ConfigError("--n-images", got=n, allowed="2 or more for both sexes, or 0 for all")
    if n and there < n // 2:
        counts = " and ".join(f"{len(rows):,} of {sex}" for sex, rows in own.items())
        notes.append(f"{n:,} images were requested; {counts} are available, so {each:,} of each are used")
    return np.concatenate([rows[:each] for rows in own.values()]), notes
