"""A build folder -> the dataset repository that `load_dataset("user/name")` reads; of credentialed data the recipe.

Published are the image shards, notes, attributes, and a card, flow picture, attrition and build.json that are written
anew from what the checks found: an edited README.md stays where it is, and so do quarantine, source and caches. With
build.json in it, a download is again a folder that every verb of cxrhf reads. The synthetic twin takes its truth along.

Terms decide what goes:
- made up (proved, see dataset_twin): everything;
- NIH: free use with attribution, which the card gives. Attributes are left out: they come from a file of somebody
  else's annotations, whose terms nobody here knows;
- COVID-19 collection: the rows whose own licence allows it (dataset_licences);
- credentialed: the recipe (dataset_recipe), asked for with `recipe=True`; anything else is refused;
- everything else: refused.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cxrhf.data.attrition import Steps
from cxrhf.data.build import flow
from cxrhf.data.card import Published, card, configs, counted_labels, published_split
from cxrhf.data.notes import from_stored
from cxrhf.data.shards import write_shard
from cxrhf.hub.artefact import Artefact, Piece
from cxrhf.hub.connection import HubError
from cxrhf.hub.dataset_tables import (
    Build,
    Tables,
    clean_record,
    dataset_info,
    json_piece,
    opened,
    refuse_credentialed,
    refuse_unknown,
)
from cxrhf.schema import ATTRITION
from cxrhf.tables.checks import table_of
from cxrhf.tables.files import write_table

if TYPE_CHECKING:
    from cxrhf.twin.people import People


EVERYTHING = frozenset({"ids", "text", "pixels", "labels", "rows"})


def dataset_artefact(folder: Path, to: str, *, work: Path, recipe: bool = False) -> Artefact:
    """What of a build is published under the name `to`; files that are written anew lie in `work` until it is sent."""
    build = opened(folder)
    truth: list[Piece] = []
    if build.dataset == "synthetic":
        truth = truth_pieces(build, work)
    refuse_unknown(build)
    if recipe:
        from cxrhf.hub.dataset_recipe import recipe_artefact

        return recipe_artefact(build, to, work)
    refuse_credentialed(build, to)
    build, said, notes = _publishable_build(build, work)
    pieces = [*_description_pieces(build, to, said, truth, work), *build.tables.pieces(), *truth]
    name = to.rsplit("/", 1)[-1]
    return Artefact("dataset", name, tuple(pieces), may_hold=EVERYTHING, notes=tuple(notes))


def _publishable_build(build: Build, work: Path) -> tuple[Build, list[str], list[str]]:
    """What the terms let go, paragraphs for the card, and notes for the user."""
    if build.dataset == "covid_chestxray":
        return shared_rows(build, work)
    if build.dataset == "nih_chestxray14" and build.tables.attributes is not None:
        left = f"{build.record['attributes']:,} attributes are excluded: they are third-party annotations with "
        left += "unknown terms"
        steps = [row for row in build.steps if row["step"] != "attributes"]
        return replace(build, tables=replace(build.tables, attributes=None), steps=steps), [], [left]
    return build, [], []


def _description_pieces(
    build: Build, repo: str, said: Sequence[str], truth: Sequence[Piece], work: Path
) -> list[Piece]:
    """Card, build.json, flow picture and attrition."""
    record = clean_record(build) | {"planted": bool(truth)}
    findings = record["findings"]
    labels = counted_labels(build.tables.image_columns(findings), findings) if build.ids.num_rows and findings else None
    paragraphs = list(said)
    if build.config.no_pixels:
        paragraphs.append("Tables only: the images were not read, and the column `image` is empty.")
    if truth:
        paragraphs.append("`truth.json` holds the true population values of the audits' metrics, and `planted` the "
                          "ground truth of every image. Tests compare the results of an audit with them.")  # fmt: skip
    published = Published(repo, dataset_info(_files(build, record, truth)), paragraphs)
    text = card(build.dataset, record, build.steps, labels, published)
    steps = table_of(list(build.steps), ATTRITION, source="attrition")
    title = f"{build.dataset}: from the published files to this dataset"
    return [
        Piece("README.md", text.encode()),
        json_piece("build.json", record),
        Piece("flow.svg", flow(build.steps, title).encode(), drawn=True),
        Piece("attrition.parquet", write_table(steps, work / "attrition.parquet")),
    ]


def _files(
    build: Build, record: Mapping[str, object], truth: Sequence[Piece]
) -> dict[str, Mapping[str, Sequence[Path]]]:
    """The files of each configuration, by split."""
    planted = [piece.content for piece in truth if piece.path == "planted.parquet"]
    there: dict[str, Mapping[str, Sequence[Path]]] = {
        "images": {published_split(split): files for split, files in build.tables.images.items()},
        "notes": {"train": build.tables.notes},
        "attributes": {"train": [build.tables.attributes] if build.tables.attributes else []},
        "planted": {"train": [each for each in planted if isinstance(each, Path)]},
    }
    return {config: there[config] for config in configs(record)}


# Rows with a licence each -> the rows that may be published, and how many were left out under which licence.
#
# The COVID-19 collection says a licence for every picture; its table, and so labels and notes, is CC BY-NC-SA 4.0 as
# its authors say. A row goes only where its picture's licence lets others pass on a copy that was made smaller: CC
# BY, CC BY-SA, CC BY-NC and CC BY-NC-SA of any version, CC0, Apache 2.0. Left out are licences without derivatives
# (the stored picture is a resized one), any other wording, and rows that say none. A note goes with the images that
# list it.

_SHARED = re.compile(
    r"(CC-)?BY(-NC)?(-SA)?(-\d(\.\d)?)?(-(INTERNATIONAL|UNPORTED|IGO))?|CC-?0(-1\.0)?(-UNIVERSAL)?|APACHE(-LICEN[CS]E)?-2(\.0)?"
)
_NONE = "not stated"


def may_be_shared(licence: str | None) -> bool:
    """Whether a licence lets others pass on a smaller copy, with attribution.

    >>> [may_be_shared(each) for each in ("CC BY-NC-SA 4.0", "cc by", "by-nc-sa", "CC0", "CC BY-NC-ND 4.0", "?", None)]
    [True, True, True, True, False, False, False]
    """
    words = re.sub(r"[\s_-]+", "-", (licence or "").strip().upper()).removesuffix("-LICENSE").removesuffix("-LICENCE")
    return bool(_SHARED.fullmatch(words))


def shared_rows(build: Build, work: Path) -> tuple[Build, list[str], list[str]]:
    """The build without the rows that may not be published, paragraphs for the card, and notes for the user."""
    if not build.ids.num_rows:
        return build, [_TABLE], []
    licence = _licences(build)
    images = build.ids["image_id"].to_pylist()
    kept = {image for image in images if may_be_shared(licence.get(image))}
    inside = Counter(licence[image] for image in images if image in kept)
    outside = Counter(licence.get(image) or _NONE for image in images if image not in kept)
    if not kept:
        raise HubError(f"{build.folder}: licences of its {len(images):,} images", got=_count_licences(outside),
                       allowed="at least one of CC BY, CC BY-SA, CC BY-NC, CC BY-NC-SA, CC0 and Apache 2.0",
                       next_step="publish its recipe: cxrhf push dataset "
                       f"{shlex.quote(str(build.folder))} --recipe --to USER/NAME")  # fmt: skip
    said = [_TABLE, "Images by licence (see the attribute `licence` of each image): " + _count_licences(inside) + "."]
    if not outside:
        return build, said, []
    left = f"{len(images) - len(kept):,} of {len(images):,} images are excluded because their licence does not allow " \
           f"sharing: {_count_licences(outside)}"  # fmt: skip
    made = _drop_images(build, kept, work / "shared")
    return replace(made, steps=_steps(made, left)), [*said, f"{left}."], [left]


_TABLE = "Labels, days and notes come from the collection's metadata, released by its authors under CC BY-NC-SA 4.0."


def _licences(build: Build) -> Mapping[str, str]:
    """Image -> its licence, where the table says one."""
    if build.tables.attributes is None:
        return {}
    rows = pq.ParquetFile(build.tables.attributes).read().to_pylist()
    return {row["image_id"]: row["value"] for row in rows if row["name"] == "licence" and row["value"]}


def _count_licences(licences: Counter[str]) -> str:
    return ", ".join(
        f"{name}: {count:,}" for name, count in sorted(licences.items(), key=lambda each: (-each[1], each))
    )


def _drop_images(build: Build, kept: set[str], work: Path) -> Build:
    """Shards, notes and attributes of the kept images, written anew below `work`."""
    wanted = pa.array(sorted(kept), pa.string())
    images: dict[str, list[Path]] = {}
    linked: set[str] = set()
    for split, files in build.tables.images.items():
        for path in files:
            table = from_stored(pq.ParquetFile(path).read())
            table = table.filter(pc.is_in(table["image_id"], value_set=wanted))
            if not table.num_rows:
                continue
            linked.update(note for notes in table["prior_note_ids"].to_pylist() for note in notes or ())
            rows = table.append_column("path", pa.nulls(table.num_rows, pa.string()))
            about = {"fingerprint": build.record["fingerprint"]}
            images.setdefault(split, []).append(
                write_shard(rows, work / path.name, size=None, metadata=about, threads=1).path
            )
    notes = [_filtered(path, "note_id", linked, work) for path in build.tables.notes]
    attributes = build.tables.attributes
    tables = Tables(
        images,
        [path for path in notes if pq.read_metadata(path).num_rows],
        _filtered(attributes, "image_id", kept, work) if attributes else None,
    )
    ids = build.ids.filter(pc.is_in(build.ids["image_id"], value_set=wanted))
    return replace(build, tables=tables, ids=ids)


def _filtered(path: Path, column: str, kept: set[str], work: Path) -> Path:
    table = pq.ParquetFile(path).read()
    return write_table(
        table.filter(pc.is_in(table[column], value_set=pa.array(sorted(kept), pa.string()))), work / path.name
    )


def _steps(build: Build, left: str) -> list[dict[str, Any]]:
    """The attrition with one more step, and the splits counted after it."""
    steps = Steps(build.dataset, [dict(row) for row in build.steps if not row["step"].startswith("split ")])
    _add(steps, "images whose licence allows sharing", build.ids, left)
    for split in build.tables.images:
        _add(steps, f"split {split}", build.ids.filter(pc.equal(build.ids["split"], split)))
    return steps.rows


def _add(steps: Steps, step: str, ids: pa.Table, note: str = "") -> None:
    studies, patients = (pc.count_distinct(ids[name]).as_py() for name in ("study_id", "patient_id"))
    steps.add(step, note=note, published=False, images=ids.num_rows, studies=studies, patients=patients)


# A build that says it is made up -> proof of it, and what is true in it: truth.json and planted.parquet.
#
# The generator runs again with the seed and the number of patients that build.json says, without pictures (half a
# second for a thousand patients). Every image, study, patient and note id of the build must come out of it, every
# note with the same text, every section of a report. Real data have other ids and other words, whatever build.json
# says. The truth is taken from this second run as well, not from files that lie beside the build.

_SECTIONS = ("indication", "comparison", "findings", "impression")
_TWIN_NOTES = "mimic-iv-note/2.2/note/discharge.csv.gz"


def truth_pieces(build: Build, work: Path) -> list[Piece]:
    """truth.json and planted.parquet of the twin, after every row of the build was found in it."""
    from cxrhf.twin import write

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
    from cxrhf.twin.texts import report_sections

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
    for batch in stream_csv(twin / _TWIN_NOTES, ("note_id", "subject_id", "text")):
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
