"""A build -> images with the sections of their reports; with settings, examples to learn from and to validate on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrhf.errors import ConfigError, RunError, TableError
from cxrhf.models.report_settings import FinetuneConfig
from cxrhf.models.train_run import CARRIED_COLUMNS, choose_splits

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from cxrhf.models.data import Images, Integers


FRONTAL = ("PA", "AP")
SECTIONS = ("indication", "comparison", "findings", "impression")


@dataclass(frozen=True, slots=True)
class Reports:
    """Images whose reports are known, and what is asked of each."""

    images: Images
    prompts: list[str]
    answers: list[str]

    def __len__(self) -> int:
        return len(self.answers)

    def counts(self) -> dict[str, int]:
        """Images of each sex, patients, and all."""
        table = self.images.table
        sexes = Counter(each or "unknown" for each in table["sex"].to_pylist())
        patients = len(set(table["patient_id"].to_pylist()))
        return {"images": len(self), "patients": patients, **dict(sorted(sexes.items()))}


def images_with_reports(build: str | Path, splits: Sequence[str]) -> Images:
    """The images of these splits with the sections of their reports; every image id once."""
    import pyarrow as pa

    from cxrhf.data.load import RAW, load_images
    from cxrhf.data.shards import Pixels, open_shards
    from cxrhf.models.data import Images, unique_ids

    tables = []
    for split in splits:
        table = load_images(build, split=split, labels=RAW)
        tables.append(table.select([name for name in (*CARRIED_COLUMNS, *SECTIONS) if name in table.column_names]))
    files = [file for split in splits for file in open_shards(Path(build) / "images", split).files]
    table = pa.concat_tables(tables, promote_options="default").combine_chunks()
    if not {"findings", "impression"} & set(table.column_names):
        raise TableError(
            f"{build} has no reports (neither findings nor impression)",
            next_step="build a dataset with reports: rexgradient, chexpert_plus or mimic_cxr_context",
        )
    images = Images(table.replace_schema_metadata(None), Pixels(files))
    unique_ids(images)
    return images


def open_reports(config: FinetuneConfig, split: str) -> tuple[Reports, Reports | None, list[str]]:
    """Examples of training and of validation, and what must be said of them."""
    from cxrhf.models.train_run import check_disjoint_patients, has_validation

    notes: list[str] = []
    validates = has_validation(config)  # before the first table is read
    train = _with_reports(config, split, notes)
    if not len(train):
        raise RunError(
            f'{config.build}: no image of split "{split}" has a report to train on ({"; ".join(notes) or "no images"})',
            next_step="build a dataset with reports: rexgradient, mimic_cxr_context or synthetic",
        )
    train = _limit_and_mix(train, config, notes)
    if not validates:
        notes.append(f"there is no split {config.validate_split}, so the last adapter is kept")
        return train, None, notes
    validate = _with_reports(config, config.validate_split, notes)
    if not len(validate):
        notes.append("no validation image has a report, so the last adapter is kept")
        return train, None, notes
    check_disjoint_patients(train.images, validate.images)
    return train, _fewer(validate, config.max_validate, config.seed), notes


def _with_reports(config: FinetuneConfig, split: str, notes: list[str]) -> Reports:
    """All images of a split that are of the views asked for and have a report; the others are counted."""
    import numpy as np

    from cxrhf.models.vlm import DEFAULT_PROMPT, prompt_for, report_of

    images = images_with_reports(config.build, [split])
    known = images.table.to_pylist()
    seen = [config.views == "all" or row["view"] in FRONTAL for row in known]
    answers = [report_of(row) if use else "" for row, use in zip(known, seen, strict=True)]
    rows = np.array([at for at, answer in enumerate(answers) if answer], dtype=np.int64)
    if other := len(seen) - sum(seen):
        notes.append(f"split {split}: {other:,} of {len(seen):,} images were excluded because they are not frontal")
    if without := sum(seen) - len(rows):
        notes.append(f"split {split}: {without:,} images without a report were excluded")
    template = config.prompt or DEFAULT_PROMPT
    return Reports(images.take(rows), [prompt_for(template, known[at]) for at in rows], [answers[at] for at in rows])


def _limit_and_mix(reports: Reports, config: FinetuneConfig, notes: list[str]) -> Reports:
    """At most so many examples, with the share of women that was asked for."""
    from cxrhf.data.splits import sex_mix

    before = len(reports)
    if config.female is None:
        reports = _fewer(reports, config.max_examples, config.seed)
    else:
        rows = sex_mix(reports.images.table, config.female, config.max_examples, config.seed)
        if not len(rows):
            raise ConfigError("the build has images of one sex only", got=f"--female {config.female}",
                              next_step="choose another --female")  # fmt: skip
        reports = _take_reports(reports, rows)
    if len(reports) < before:
        counts = reports.counts()
        share = counts.get("F", 0) / max(counts.get("F", 0) + counts.get("M", 0), 1)
        notes.append(f"{len(reports):,} of {before:,} examples are used for training, {share:.1%} of them of women")
    return reports


def _fewer(reports: Reports, most: int | None, seed: int) -> Reports:
    import numpy as np

    from cxrhf.models.data import Images, limit_images

    if most is None or len(reports) <= most:
        return reports
    numbered = reports.images.table.append_column("at", [np.arange(len(reports))])
    kept = limit_images(Images(numbered, reports.images.pictures), most, seed)
    return _take_reports(reports, np.asarray(kept.table["at"]))


def _take_reports(reports: Reports, rows: np.ndarray[Any, Any]) -> Reports:
    places = [int(row) for row in rows]
    return Reports(
        reports.images.take(rows), [reports.prompts[at] for at in places], [reports.answers[at] for at in places]
    )


# A build -> the images that reports are written about, with their references: frontal, one a patient, sexes balanced.
#
# WORDS takes 2,000 frontal test images, half of women, and does not say of how many patients. Tests of words count
# every word as a new one, so words that one patient's reports repeat would look like words of a group: one image a
# patient, drawn by the seed, unless more are asked for. Patients come in an order drawn by the seed, until there are
# enough; of the last one only some images may be taken. The same seed and build give the same images, and fewer of
# them are a part of more.


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
    from cxrhf.models.vlm import report_of

    images = images_with_reports(build, choose_splits(build, [split], all_of=split != "all"))
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
