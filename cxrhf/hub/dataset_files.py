"""A build folder -> its tables, checked to be whole and of this very build, and how the Hub describes them.

Nothing is sent because it lies in the folder: a table is known by the name that a build gives it, its shards are
counted, and every image shard carries the fingerprint that build.json says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cxrhf.data.shards import finished
from cxrhf.data.stored_times import stored_schema
from cxrhf.errors import RunError, TableError
from cxrhf.hub.artefact import Piece
from cxrhf.schema import ATTRIBUTE, NOTE, image_schema
from cxrhf.tables.places import check_inside

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
    if fingerprint is not None and not finished(path, fingerprint):
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
