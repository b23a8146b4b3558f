"""A build folder -> its tables, checked to be whole and of this very build, and how the Hub describes them.

Nothing is sent because it lies in the folder: a table is known by the name that a build gives it, its shards are
counted, and every image shard carries the fingerprint that build.json says.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cxrhf.data.card import TERMS, Terms
from cxrhf.data.folder import FIRST
from cxrhf.data.layout import LAYOUTS
from cxrhf.data.load import build_record
from cxrhf.data.notes import stored_schema
from cxrhf.data.settings import RETIRED, BuildConfig
from cxrhf.data.shards import is_finished_shard
from cxrhf.errors import ConfigError, RunError, TableError
from cxrhf.hub.artefact import Piece
from cxrhf.hub.connection import HubError
from cxrhf.schema import ATTRIBUTE, ATTRITION, NOTE, image_schema
from cxrhf.tables.files import read_table
from cxrhf.tables.folders import check_inside

_NOTES = re.compile(r"notes-\d{5}\.parquet")
_AGAIN = "build it again: cxrhf build ... --overwrite"


@dataclass(frozen=True, slots=True)
class Tables:
    """The files of a build by what they hold; image shards by split, in order."""

    images: Mapping[str, Sequence[Path]]
    notes: Sequence[Path] = ()
    attributes: Path | None = None

    def rows(self) -> dict[str, Any]:
        """The counts as build.json has them."""
        return {
            "splits": {split: _rows(files) for split, files in self.images.items()},
            "n_notes": _rows(self.notes),
            "attributes": _rows([self.attributes] if self.attributes else []),
        }

    def pieces(self) -> list[Piece]:
        """Each file under the name that it has in a build."""
        made = [
            Piece(f"images/{split}-{number:05d}-of-{len(files):05d}.parquet", path)
            for split, files in self.images.items()
            for number, path in enumerate(files)
        ]
        made += [Piece(f"notes/notes-{number:05d}.parquet", path) for number, path in enumerate(self.notes)]
        return made + ([Piece("attributes.parquet", self.attributes)] if self.attributes else [])

    def image_columns(self, columns: Sequence[str]) -> pa.Table:
        """Some columns of all images, in the order of the shards."""
        files = [path for shards in self.images.values() for path in shards]
        parts = [pq.ParquetFile(path).read(columns=list(columns)).select(list(columns)) for path in files]
        return pa.concat_tables(parts) if parts else pa.table({name: pa.array([], pa.string()) for name in columns})


def tables_of(folder: Path, record: Mapping[str, Any]) -> Tables:
    """The tables that build.json speaks of, each whole; anything missing, damaged or strange is an error."""
    schema = image_schema([str(each) for each in record["findings"]])
    check_inside(folder, [folder / "attributes.parquet", *(folder / "images").glob("*"), *(folder / "notes").glob("*")])
    images: dict[str, list[Path]] = {split: [] for split in record["splits"]}
    for path in sorted((folder / "images").glob("*.parquet")):
        split = path.name.split("-")[0]
        if split not in images:
            raise TableError(f"{folder / 'images' / path.name} is not a shard of this build", next_step="move it away")
        _check(path, schema, record["fingerprint"])
        images[split].append(path)
    for split, files in images.items():
        names = [f"{split}-{number:05d}-of-{len(files):05d}.parquet" for number in range(len(files))]
        if [path.name for path in files] != names:
            raise TableError(f"{folder / 'images'}, shards of {split}", allowed=", ".join(names),
                             got=", ".join(path.name for path in files), next_step=_AGAIN)  # fmt: skip
    notes = sorted(path for path in (folder / "notes").glob("*.parquet") if _NOTES.fullmatch(path.name))
    for path in notes:
        _check(path, NOTE)
    attributes = folder / "attributes.parquet"
    if record["attributes"] and attributes.is_file():
        _check(attributes, ATTRIBUTE)
    made = Tables(images, notes, attributes if record["attributes"] and attributes.is_file() else None)
    for what, here in made.rows().items():
        if here != record[what]:
            raise TableError(f"{folder}, {what}", got=here, allowed=f"{record[what]}, as in build.json",
                             next_step=_AGAIN)  # fmt: skip
    return made


def _check(path: Path, schema: pa.Schema, fingerprint: str | None = None) -> None:
    """A file that can be opened, belongs to the build and has its columns alone."""
    try:
        found = pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise TableError(
            f"{path.name} is damaged ({str(error).splitlines()[0]}), so nothing was uploaded", next_step=_AGAIN
        ) from None
    if fingerprint is not None and not is_finished_shard(path, fingerprint):
        raise TableError(f"{path.name} is a shard of another build than its build.json", next_step=_AGAIN)
    now = stored_schema(schema)  # builds made before times were stored as text have `schema` itself
    strange = [
        each.name
        for each in found
        if each.name not in schema.names or each.type not in (schema.field(each.name).type, now.field(each.name).type)
    ]
    if strange:
        raise TableError(f'{path.name}: cxrhf build does not write the column "{strange[0]}"', next_step=_AGAIN)


def _rows(files: Sequence[Path]) -> int:
    return sum(pq.read_metadata(path).num_rows for path in files)


def check_record(record: Mapping[str, Any], folder: Path) -> None:
    """build.json must hold what the checks go by."""
    kinds: dict[str, type | tuple[type, ...]] = {
        "dataset": str, "splits": dict, "findings": list, "n_notes": int, "attributes": int, "settings": dict,
        "inputs": list, "checked": dict, "fingerprint": str,
    }  # fmt: skip
    for name, kind in kinds.items():
        if not isinstance(record.get(name), kind):
            raise RunError(f'{folder / "build.json"}: the field "{name}" is missing or damaged', next_step=_AGAIN)


def dataset_info(tables: Mapping[str, Mapping[str, Sequence[Path]]]) -> dict[str, Any]:
    """`dataset_info` for the front matter: features and sizes. `load_dataset` holds the numbers of rows against it.

    Bytes are those of the unpacked Parquet columns.
    """
    from datasets import DatasetInfo, Features
    from datasets.info import DatasetInfosDict
    from huggingface_hub import DatasetCardData

    infos = DatasetInfosDict()
    for config, splits in tables.items():
        sizes = {split: [pq.read_metadata(path) for path in files] for split, files in splits.items()}
        unpacked = {
            split: sum(each.row_group(at).total_byte_size for each in metas for at in range(each.num_row_groups))
            for split, metas in sizes.items()
        }
        infos[config] = DatasetInfo(
            config_name=config,
            features=Features.from_arrow_schema(pq.read_schema(next(iter(splits.values()))[0])),
            splits={
                split: {"name": split, "num_bytes": unpacked[split], "num_examples": sum(one.num_rows for one in metas)}
                for split, metas in sizes.items()
            },
            download_size=sum(path.stat().st_size for files in splits.values() for path in files),
            dataset_size=sum(unpacked.values()),
        )  # fmt: skip
    data = DatasetCardData()
    infos.to_dataset_card_data(data)
    return {"dataset_info": data.to_dict()["dataset_info"]}


# A build folder -> whose data it holds, as strictly as anything in it says; what cannot be told is not published.
#
# build.json is a file that anybody can edit, so it is only the first witness. Further ones are the `dataset` of every
# row, the names of the source files, and the ids themselves: those of MIMIC, CheXpert and ReXGradient have shapes
# that nobody else's have. One sign of a credentialed source is enough to refuse everything but the recipe.
#
# - A build that says it is made up must prove it (dataset_twin): the same ids and texts come out of the generator
#   again. So neither an edited build.json nor `cxrhf build synthetic --root REAL-FILES` makes real data made up.
# - A build that says it is NIH's must have NIH's ids: a hospital's own films in NIH's layout are not NIH's.
# - A build that says it is the COVID-19 collection publishes rows by their own licences (dataset_licences).
#
# Known gap: pixels are not looked at. Whoever writes false ids and false names around real pictures is not stopped
# here.

IDS = ("image_id", "study_id", "patient_id", "dataset", "split")
# Credentialed source -> what its image ids look like.
_SHAPES = {
    "mimic_cxr_context": r"^[0-9a-f]{8}(-[0-9a-f]{8}){4}$",
    "chexpert": r"^[^/]+/patient\d+/study\d+/",
    "rexgradient": r"^\d+(\.\d+){5,}$",
}
_MIMIC_NOTE = r"^\d{8}-[A-Z]{2}-\d+$"
_NIH = r"^\d{8}_\d{3}$"
_ALLOWED = "a recipe (the settings of the build, ids and splits, without text, pixels or labels)"


@dataclass(frozen=True, slots=True)
class Build:
    """A finished and whole build, and the signs that its source is credentialed."""

    folder: Path
    record: Mapping[str, Any]
    config: BuildConfig
    tables: Tables
    ids: pa.Table
    steps: Sequence[Mapping[str, Any]]
    signs: tuple[str, ...] = ()

    @property
    def dataset(self) -> str:
        return str(self.record["dataset"])

    @property
    def terms(self) -> Terms:
        return TERMS[self.dataset]


def opened(folder: Path) -> Build:
    """A build folder, looked through; what is not finished, damaged, or not of one known source is an error."""
    if not (folder / "build.json").is_file():
        _no_build(folder)
    record = build_record(folder)
    check_record(record, folder)
    dataset = record["dataset"]
    if dataset not in TERMS:
        raise HubError(f"{folder}, dataset", got=dataset, allowed=f"one whose terms cxrhf knows ({', '.join(TERMS)})",
                       next_step="publish only builds of these sources")  # fmt: skip
    tables = tables_of(folder, record)
    ids = tables.image_columns(IDS)
    named = set(pc.unique(ids["dataset"]).to_pylist()) if ids.num_rows else {dataset}
    if named != {dataset} or record["settings"].get("dataset") != dataset:
        said = sorted(str(each) for each in {*named, record["settings"].get("dataset")} - {dataset})
        raise HubError(f"{folder}: build.json names {dataset} but its rows and settings name {', '.join(said)}, so the "
                       "source of the data is unclear",
                       next_step=f"build it again: cxrhf build {said[0]} --root FOLDER")  # fmt: skip
    if not (folder / "attrition.parquet").is_file():
        raise RunError(
            f"{folder} is incomplete: it has no attrition.parquet", next_step="build it again with --overwrite"
        )
    steps = read_table(folder / "attrition.parquet", ATTRITION).to_pylist()
    found = Build(folder, record, _settings(record, folder), tables, ids, steps)
    return replace(found, signs=tuple(_signs(found)))


def refuse_credentialed(build: Build, to: str) -> None:
    """Stop where anything says that the source is credentialed; the message says what may be published instead."""
    if not build.signs:
        return
    words = ["cxrhf", "push", "dataset", str(build.folder), "--to", to, "--recipe", "--dry-run"]
    raise HubError(
        f"{build.folder} holds credentialed data and cannot be published ({'; '.join(build.signs)}). "
        f"{build.terms.said} Nothing was uploaded. If your agreement lets you share ids, you can publish {_ALLOWED}",
        next_step=shlex.join(words),
    )


def refuse_unknown(build: Build) -> None:
    """NIH's ids are known by their shape; other films in NIH's layout are somebody else's."""
    if build.dataset != "nih_chestxray14" or not build.ids.num_rows:
        return
    right = pc.match_substring_regex(build.ids["image_id"], _NIH)
    patient = pc.utf8_ltrim(pc.utf8_slice_codeunits(build.ids["image_id"], 0, 8), characters="0")
    right = pc.and_(right, pc.equal(patient, pc.utf8_ltrim(build.ids["patient_id"], characters="0")))
    strange = right.length() - (pc.sum(right).as_py() or 0)
    if strange:
        raise HubError(f"{build.folder}: {strange:,} of {right.length():,} image ids are not NIH ids (such as "
                       "00000001_000 for patient 1)",
                       allowed="ChestX-ray14 as published", next_step="publish your own images by other means, with "
                       "the approval of those responsible for patient privacy")  # fmt: skip


def _no_build(folder: Path) -> None:
    inside = next((each.parent for each in sorted(folder.glob("*/build.json"))), None)
    if inside is not None:
        raise RunError(f"{folder} is not a build folder, but {inside} is", next_step=f"cxrhf push dataset {inside} ...")
    if (folder / ".build").is_dir():
        raise RunError(f"{folder} holds an unfinished build",
                       next_step="run the same cxrhf build command again to resume")  # fmt: skip
    what = "has no build.json" if folder.is_dir() else "is not a folder"
    raise RunError(f"{folder} {what}. cxrhf publishes only its own builds, because the terms of other data are unknown",
                   next_step=f"cxrhf build DATASET --root FOLDER --out {folder}")  # fmt: skip


def _settings(record: Mapping[str, Any], folder: Path) -> BuildConfig:
    """The settings as a build takes them: nothing else that stands in build.json goes further."""
    given = {name: value for name, value in record["settings"].items() if name not in RETIRED}
    if given.get("split") == "file":
        given["split_file"] = "split.csv"
    try:
        return BuildConfig(**given)
    except (TypeError, ConfigError) as error:
        raise RunError(f"{folder / 'build.json'}: the settings are not valid ({error})",
                       next_step="build it again with --overwrite") from None  # fmt: skip


def _signs(build: Build) -> list[str]:
    """What says that the source is credentialed, a few words each."""
    said = []
    if build.terms.credentialed:
        said.append(f"build.json and the rows name {build.dataset}")
    if build.record.get("credentialed") is not False and not build.terms.credentialed:
        said.append("build.json marks it as credentialed")
    if build.dataset == "synthetic":  # has MIMIC's names and ids on purpose; dataset_twin asks for more
        return said
    secret = [each for each, terms in TERMS.items() if terms.credentialed and each != build.dataset]
    names = [str(each.get("name", "")) for each in build.record["inputs"]]
    # A name that this dataset has too, such as an annotation file's, tells nothing.
    strange = [
        name
        for name in names
        if not _has_id_shape(name, build.dataset) and any(_has_id_shape(name, each) for each in secret)
    ]
    said += [f"it was built from {name}" for name in strange]
    for each, shape in _SHAPES.items():
        if build.ids.num_rows and pc.any(pc.match_substring_regex(build.ids["image_id"], shape)).as_py():
            said.append(f"its ids are from {each}")
    if not build.terms.credentialed and _mimic_notes(build.tables.notes):
        said.append("its notes have MIMIC-IV-Note ids")
    return said


def _has_id_shape(name: str, dataset: str) -> bool:
    patterns = [each.rsplit("/", 1)[-1] for needed in LAYOUTS[dataset] for each in needed.names if not needed.folder]
    return any(fnmatch(name, pattern) for pattern in patterns)


def _mimic_notes(files: Sequence[Path]) -> bool:
    return any(
        pc.any(pc.match_substring_regex(pq.ParquetFile(path).read(columns=["note_id"])["note_id"], _MIMIC_NOTE)).as_py()
        for path in files
    )


def clean_inputs(build: Build) -> list[dict[str, Any]]:
    """Name, size and hash of the source files: which edition it was. The user's own names of files stay here."""
    kept = ("size", "sha256", "whole", "there")
    return [
        {"name": name if name == "reports" or _has_id_shape(name, build.dataset) else "split file"}
        | {key: each[key] for key in kept if key in each}
        for each in build.record["inputs"]
        if (name := str(each.get("name", "")))
    ]


def clean_record(build: Build) -> dict[str, Any]:
    """build.json for others: the same keys, settings and hashes, and nothing that a hand may have added."""
    record = build.record
    return {
        "format": 1,
        "version": str(record.get("version", FIRST)),
        "dataset": build.dataset,
        "labels": build.config.labels,
        "findings": [str(each) for each in record["findings"]],
        "credentialed": build.terms.credentialed,
        **build.tables.rows(),
        "settings": build.config.content(),
        "inputs": clean_inputs(build),
        "checked": {
            what: int(record["checked"][what]) for what in ("patients", "pairs", "reports") if what in record["checked"]
        },
        "quarantined": int(record.get("quarantined", 0)),
        "fingerprint": record["fingerprint"],
    }


def json_piece(path: str, content: Mapping[str, Any]) -> Piece:
    """A JSON file, the same bytes for the same content."""
    return Piece(path, (json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n").encode())
