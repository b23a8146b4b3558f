"""Settings -> the rows of a dataset, ready to be written: chosen, linked with prior notes, split and checked.

The order is the order in which a reader of the attrition table asks: what was published, which pictures count, which
have a prior note, which one of a patient, which split. Pictures are not opened here. Both `cxrhf build` and the
`datasets` builders start from what this returns.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from cxrhf.data import layout, splits
from cxrhf.data.attrition import Steps, has_published_split, paper_of
from cxrhf.data.fields import DEVICES, need_columns
from cxrhf.data.leakage import can_hold_reports, check_leakage, own_report_pairs
from cxrhf.data.notes import QUARANTINE, Staged, keep_linked, link, read_notes, remove_pairs, staged_notes, write_notes
from cxrhf.data.settings import ONE_IMAGE, BuildConfig
from cxrhf.errors import ConfigError, SourceError, did_you_mean
from cxrhf.schema import IMAGE, NOTE
from cxrhf.tables.checks import quoted

READERS = {
    "chexpert": "chexpert",
    "nih_chestxray14": "nih",
    "covid_chestxray": "covid",
    "rexgradient": "rexgradient",
    "chexpert_plus": "chexpert_plus",
}
# Columns that serve the linking and the splitting and are not part of IMAGE.
HELPERS = ("own_text", "source_row", "ethnicity")


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows to write. `images` is empty for notes alone; `path` says where each picture lies."""

    images: pl.DataFrame
    findings: tuple[str, ...]
    attributes: pl.DataFrame | None
    quarantine: pl.DataFrame
    steps: Steps
    n_notes: int
    checked: dict[str, int]


def prepare(config: BuildConfig, work: Path, notes_to: Path, fingerprint: str) -> Prepared:
    """Everything but the pictures. `work` keeps what a later try can take over; NOTE files go to `notes_to`."""
    layout.check_roots(config.root)
    steps = Steps(config.dataset, paper=paper_of(config))
    source, staged = _read(config, steps, work, fingerprint)
    quarantine = staged.quarantine if staged else pl.DataFrame(schema=QUARANTINE)
    if config.configuration == "notes":
        assert staged is not None
        n_notes = keep_linked(staged.folder, notes_to, staged.index.get_column("note_id"))
        steps.add("notes kept", notes=n_notes, patients=staged.index.get_column("patient_id").n_unique())
        return Prepared(pl.DataFrame(), (), None, quarantine, steps, n_notes, {})
    annotated = _annotated_images(config, source)
    images = _choose_images(config, source, steps)
    if staged is not None:
        images = _link_images(config, images, source.images, staged, steps)
    if config.images_per_patient != "all":
        images = one_per_patient(images, source.findings, config.images_per_patient, config.finding, prefer=annotated)
        steps.add(f"one image per patient: {config.images_per_patient}", images)
    images = _split(config, images, source, annotated, steps)
    if not images.height:
        counted = "; ".join(f"{row['step']}: {row['images']:,}" for row in steps.rows if row["images"] is not None)
        raise SourceError(
            f"{config.dataset}: no images remain (images after each step: {counted})",
            next_step="change the settings that exclude them",
        )
    checked = check_leakage(
        images,
        staged.index if staged else None,
        read_notes(staged.folder) if staged else None,
        work.parent / "leakage.csv",
        source.images,
    )
    n_notes = 0
    if staged is not None:
        n_notes = keep_linked(staged.folder, notes_to, images.get_column("prior_note_ids").explode().drop_nulls())
    return Prepared(
        _image_columns(images.drop(HELPERS, strict=False), config.dataset),
        source.findings,
        _of_images(source.attributes, images),
        quarantine,
        steps,
        n_notes,
        checked,
    )


def _read(config: BuildConfig, steps: Steps, work: Path, fingerprint: str) -> tuple[Source, Staged | None]:
    with_notes = config.configuration != "images"
    if config.dataset in ("mimic_cxr_context", "synthetic"):
        from cxrhf.data import mimic

        read = mimic.read(config, steps)
        rows = (
            replace(read.source, attributes=_read_planted_attributes(config))
            if config.dataset == "synthetic"
            else read.source
        )
        if read.notes is None:
            return rows, None
        return rows, staged_notes(config, read, work / "staged", fingerprint, steps)
    module = importlib.import_module(f"cxrhf.data.{READERS[config.dataset]}")
    source: Source = module.read(config, steps)
    if not with_notes or source.notes is None:
        return source, None
    write_notes([source.notes.select(NOTE.names).to_arrow().cast(NOTE)], work / "staged")
    index = source.notes.select("note_id", "patient_id", "available_at", pl.col("text").alias("text_hash"))
    return source, Staged(work / "staged", index, pl.DataFrame(schema=QUARANTINE))


def _read_planted_attributes(config: BuildConfig) -> pl.DataFrame | None:
    """What the twin says lies in each picture, where its folder was given as it was written."""
    paths = [Path(root) / "attributes.parquet" for root in config.root]
    found = next((path for path in paths if path.is_file()), None)
    return None if found is None else pl.read_parquet(found)


def _choose_images(config: BuildConfig, source: Source, steps: Steps) -> pl.DataFrame:
    images = source.images
    if config.views == "frontal":
        images = frontal(images)
        steps.add("frontal views", images)
    if config.exclude_devices:
        images = without_devices(images)
        steps.add("without support devices", images)
    if config.one_per_study:
        images = first_of_study(images)
        steps.add("one image per study", images)
    return images


def _link_images(
    config: BuildConfig, images: pl.DataFrame, history: pl.DataFrame, staged: Staged, steps: Steps
) -> pl.DataFrame:
    images = images.with_columns(link(images, staged.index))
    note = ""
    if config.own_report == "drop" and can_hold_reports(images):
        own = own_report_pairs(images, read_notes(staged.folder), history)
        images = remove_pairs(images, own)
        note = f"excluded {own.height:,} links to notes that contain the image's own text" if own.height else ""
    if not config.keep_without_notes:
        images = images.filter(pl.col("prior_note_ids").list.len() > 0)
    links = images.get_column("prior_note_ids")
    steps.add(
        "images with a prior note" if not config.keep_without_notes else "images linked with prior notes",
        images,
        note=note,
        notes=links.explode().drop_nulls().n_unique(),
    )
    return images


def _annotated_images(config: BuildConfig, source: Source) -> pl.Series | None:
    """The images whose patients are withheld from training, if any are. Of the twin all are described, by nobody."""
    if not config.withhold_annotated or source.attributes is None or config.dataset == "synthetic":
        return None
    return source.attributes.get_column("image_id").unique()


def _withhold_annotated(
    config: BuildConfig, images: pl.DataFrame, source: Source, annotated: pl.Series | None, steps: Steps
) -> pl.DataFrame:
    """Patients with any annotated image, kept or not, go to test: the others stay where they were dealt."""
    if annotated is None:
        reason = "the twin annotates every image" if config.dataset == "synthetic" else "no image is annotated"
        steps.add("annotated patients withheld", images, note=f"none: {reason}")
        return images
    patients = source.images.filter(pl.col("image_id").is_in(annotated.implode())).get_column("patient_id").unique()
    those = pl.col("patient_id").is_in(patients.implode())
    images = images.with_columns(split=pl.when(those).then(pl.lit("test")).otherwise("split"))
    train = images.filter(pl.col("split") == "train")
    if not train.height:
        raise SourceError(
            f"{config.dataset}: every training patient has an annotated image, so no patient remains for training",
            next_step="build without --withhold-annotated",
        )
    kept = images.filter(pl.col("image_id").is_in(annotated.implode())).height
    note = f"{images.filter(those).get_column('patient_id').n_unique():,} patients, {kept:,} annotated images, in test"
    if config.finding and not (train.get_column(config.finding) == 1).any():
        note += f"; no image with {config.finding} remains for training"
    steps.add("annotated patients withheld", images, note=note)
    return images


def _split(
    config: BuildConfig, images: pl.DataFrame, source: Source, annotated: pl.Series | None, steps: Steps
) -> pl.DataFrame:
    official = images.get_column("split") if "split" in images.columns else None
    images = images.drop("split", strict=False)
    note = ""
    if config.split == "official":
        if official is None or official.null_count() == len(official):
            raise SourceError(
                f"{config.dataset}: these files have no official split",
                next_step=f"build with --split ratio, or check the files: cxrhf doctor {config.dataset}",
            )
        images = images.with_columns(official)
        if "validate" not in official.unique().to_list():
            share = config.shares()
            images = splits.validate_from_train(images, share[1] / max(share[0] + share[1], 1e-9), config.seed)
            note = "validate is drawn from the official training patients"
    elif config.split == "file":
        images = splits.file_split(images, Path(str(config.split_file)))
    elif config.split == "ratio":
        made = splits.ratio_split(images.get_column("patient_id"), config.shares(), config.seed)
        images = images.join(made, on="patient_id", how="left", maintain_order="left")
    else:
        images = images.with_columns(split=pl.lit("train"))
    unlisted = int(images.get_column("split").is_null().sum())
    if unlisted:
        images = images.filter(pl.col("split").is_not_null())
        steps.add("images in the split", images, note=f"{unlisted:,} images are in no split")
    if config.withhold_annotated:
        images = _withhold_annotated(config, images, source, annotated, steps)
    if config.female is not None:
        images = splits.sex_sample(images, config.female, config.sample_size, config.seed)
        steps.add(f"sample with {config.female:.0%} female images", images, note=_share_note(images, config.female))
    elif config.sample_size is not None:
        images = splits.take(images, config.sample_size, config.seed)
        steps.add(f"at most {config.sample_size:,} images per split", images)
    published = has_published_split(config)
    for name in splits.NAMES:
        part = images.filter(pl.col("split") == name)
        if part.height:
            steps.add(f"split {name}", part, note=note if name == "validate" else "", published=published)
    return images


def _share_note(images: pl.DataFrame, female: float) -> str:
    """Splits in which the share cannot be had: one of the sexes is missing, or nearly."""
    shares = images.group_by("split").agg((pl.col("sex") == "F").mean().alias("share"), pl.len().alias("n"))
    off = [
        f"{split}: {share:.0%} of {n:,}"
        for split, share, n in shares.sort("split").iter_rows()
        if abs(share - female) > max(0.01, 0.5 / n)
    ]
    return f"too few images of one sex; the share is {'; '.join(off)}" if off else ""


def _image_columns(images: pl.DataFrame, dataset: str) -> pl.DataFrame:
    """IMAGE's columns first, in its order, then the findings; what a source lacks is null."""
    images = images.with_columns(dataset=pl.lit(dataset))
    known = [name for name in IMAGE.names if name != "image"]
    absent = [pl.lit(None).alias(name) for name in known if name not in images.columns]
    rest = [name for name in images.columns if name not in known]
    return images.with_columns(absent).select(*known, *rest)


def _of_images(attributes: pl.DataFrame | None, images: pl.DataFrame) -> pl.DataFrame | None:
    if attributes is None:
        return None
    return attributes.join(images.select("image_id"), on="image_id", how="semi", maintain_order="left")


# Image rows -> the rows a study keeps: frontal views, no devices, one image a study or a patient.
#
# Every choice keeps rows in their order, and "first" always means first in that order: what the published tables and
# the code behind the papers mean by it. Times are not looked at; a reader that knows them may sort before.

FRONTAL = ("PA", "AP")
_ROW = "__row"


def frontal(images: pl.DataFrame) -> pl.DataFrame:
    """The rows whose view is PA or AP; a row whose view is not known is not kept."""
    need_columns(images, ("view",), "frontal views")
    return images.filter(pl.col("view").is_in(FRONTAL))


def without_devices(images: pl.DataFrame) -> pl.DataFrame:
    """The rows without a positive support_devices; uncertain and blank ones stay."""
    need_columns(images, (DEVICES,), "images without devices")
    return images.filter(pl.col(DEVICES).ne_missing(1))


def first_of_study(images: pl.DataFrame) -> pl.DataFrame:
    """The first row of each study."""
    # By patient too: some sources count studies from 1 for each patient.
    return images.unique(["patient_id", "study_id"], keep="first", maintain_order=True)


def one_per_patient(
    images: pl.DataFrame,
    findings: Sequence[str],
    choice: str,
    finding: str | None = None,
    prefer: pl.Series | None = None,
) -> pl.DataFrame:
    """One row a patient, patients in the order in which they first appear; `all` keeps every row.

    first: the patient's first row. positive_first: his first row with `finding` = 1, else his first (SLICES); of equals
    those whose image_id is in `prefer` come before the others.
    stitched: his first row, where each label is his first that is not blank in any of his images (IMBALANCE's public
    code, by a grouped "first" that skips blanks). Uncertain is not blank. A stitched row can hold labels of several
    images, and No Finding of one beside a disease of another: 42.8% of CheXpert's patients get labels from an image
    that is not the one kept, devices not counted. It is there to reproduce published numbers, not to make new ones.
    """
    if choice not in ONE_IMAGE:
        raise ConfigError(
            "--images-per-patient",
            got=quoted(choice),
            allowed=f"one of {', '.join(ONE_IMAGE)}",
            next_step=did_you_mean(choice, ONE_IMAGE),
        )
    if choice == "all":
        return images
    if choice == "positive_first":
        return _positive_first(images, findings, finding, prefer)
    first = images.unique("patient_id", keep="first", maintain_order=True)
    if choice == "first":
        return first
    need_columns(images, findings, "stitched labels")
    by_patient = images.group_by("patient_id", maintain_order=True)
    stitched = by_patient.agg(pl.col(*findings).first(ignore_nulls=True)) if findings else first.select("patient_id")
    # Both are in the order of first appearance, so the columns fit row by row.
    return first.with_columns(stitched.drop("patient_id"))


def _positive_first(
    images: pl.DataFrame, findings: Sequence[str], finding: str | None, prefer: pl.Series | None
) -> pl.DataFrame:
    if finding is None or finding not in findings:
        raise ConfigError(
            "positive_first requires a finding of this dataset",
            got=finding,
            allowed=f"one of {', '.join(findings)}",
            next_step=did_you_mean(finding or "", findings) or f"--finding {next(iter(findings), 'FINDING')}",
        )
    need_columns(images, (finding,), "positive_first")
    row, positive = pl.col(_ROW), pl.col(finding) == 1
    preferred = pl.lit(False) if prefer is None else pl.col("image_id").is_in(prefer.implode())
    rows = images.select("patient_id", "image_id", finding).with_row_index(_ROW)
    order = (positive & preferred, positive, preferred)
    chosen = rows.group_by("patient_id", maintain_order=True).agg(
        pl.coalesce(*(row.filter(each).first() for each in order), row.first())
    )
    return images[chosen.get_column(_ROW)]


# What the reader of a dataset hands to the build: image rows, and attributes and notes where there are any.


@dataclass(frozen=True, slots=True)
class Source:
    """One row an image in `images`: IMAGE columns without the picture, its `path`, and raw labels as Int8 columns.

    `image_id`, `study_id`, `patient_id` and `path` are always there; `path` is absolute, or null where it is unknown.
    `attributes` holds image_id, name, value. `notes` is for datasets whose notes are small enough to be a frame.
    """

    dataset: str
    images: pl.DataFrame
    findings: tuple[str, ...]
    attributes: pl.DataFrame | None = None
    notes: pl.DataFrame | None = None
