"""Flags of an audit and the folders it reads -> Material: vectors, attributes, characteristics, probes.

What a flag names wins; else what lies in the run folders themselves is taken, and for attributes the build that a run
was trained on, where it still lies there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.audits.material import Material
from cxrhf.config import AuditConfig
from cxrhf.errors import TableError
from cxrhf.representations.sheets import merged, read_sheet
from cxrhf.schema import ATTRIBUTE, EMBEDDING, IMAGE, RESULT, TABLES, check, read_table

_PEOPLE = ("image_id", "study_id", "patient_id", "dataset", "split", "view", "study_time", "age", "sex", "race")


def read_material(config: AuditConfig, folders: Sequence[Path], predictions: pa.Table, notes: list[str]) -> Material:
    """Everything that lies beside these predictions; empty where nothing does."""
    images = predictions["image_id"].unique()
    embeddings = _embeddings(config.embeddings, folders, notes)
    attributes = _attributes(config, folders, images, notes)
    if config.annotations:
        sheets = [read_sheet(Path(each), images.to_pylist()) for each in config.annotations]
        attributes, changed = merged(attributes, sheets)
        filled = sum(len(each) for each in sheets)
        notes.append(
            f"annotations: {filled:,} values of {', '.join(sorted({n for s in sheets for n in s['name'].to_pylist()}))}"
            + (f"; {changed:,} of them replace earlier ones" if changed else "")
        )
    probes = [Path(each) for each in config.probes]
    return Material(
        embeddings=embeddings,
        attributes=attributes,
        characteristics=_joined([each for each in folders if not _is_probe(each)], "characteristics"),
        images=_people(folders, config.embeddings),
        probes=[row for each in [*folders, *probes] for row in split_rows(each, named=each in probes)],
    )


def build_of(config: AuditConfig, folders: Sequence[Path]) -> Path | None:
    """The build with the pictures: the one that is named, else the one a run was trained on or embedded from."""
    from cxrhf.run import record_of

    if config.pictures is not None:
        return Path(config.pictures)
    for folder in folders:
        if not (folder / "run.json").is_file():
            continue
        for verb in ("audit", "embed", "train", "predict", "probe", "zeroshot"):
            settings = record_of(folder, verb).get("config", {})
            named = settings.get("pictures" if verb == "audit" else "build")
            if named and (Path(named) / "build.json").is_file():
                return Path(named)
    return None


def _embeddings(named: str | None, folders: Sequence[Path], notes: list[str]) -> pa.Table | None:
    if named is None:
        return _joined(folders, "embeddings")
    path = Path(named)
    table = read_table(path / "embeddings.parquet" if path.is_dir() else path, None)
    if "model" not in table.column_names:
        table = table.append_column("model", pa.repeat(pa.scalar("vectors"), len(table)))
        notes.append(f"{path.name}: no column model, so the embeddings are named 'vectors'")
    known = [name for name in table.column_names if name in EMBEDDING.names]
    left = [name for name in table.column_names if name not in known]
    if left:
        notes.append(f"{path.name}: unused columns: {', '.join(left[:8])}")
        table = table.select(known)
    return check(table, EMBEDDING, source=path.name)


def _attributes(config: AuditConfig, folders: Sequence[Path], images: pa.Array, notes: list[str]) -> pa.Table | None:
    if config.attributes is None:
        found = _joined(folders, "attributes")
        build = build_of(config, folders)
        if found is None and build is not None and (build / "attributes.parquet").is_file():
            found = _of_images(read_table(build / "attributes.parquet", ATTRIBUTE), images)
            found = found if found.num_rows else None
        return found
    path = Path(config.attributes)
    if path.is_dir():
        path = path / "attributes.parquet"
    if path.suffix in (".parquet", ".pq"):
        table = read_table(path, ATTRIBUTE)
    else:
        from cxrhf.data.attributes import attribute_table

        table, said = attribute_table(path, images.to_pylist())
        notes.append(said)
    kept = _of_images(table, images)
    if not kept.num_rows:
        raise TableError(
            f"{path.name}: none of its images is in the predictions",
            next_step="use the image ids of the predictions",
        )  # fmt: skip
    return kept


def _of_images(table: pa.Table, images: pa.Array) -> pa.Table:
    return table.filter(pc.is_in(table["image_id"], value_set=images))


def _is_probe(folder: Path) -> bool:
    """Whether its characteristics are what new layers read from a frozen network, not what the network says itself."""
    from cxrhf.run import record_of

    return (folder / "run.json").is_file() and bool(record_of(folder, "probe")) and not record_of(folder, "train")


def _joined(folders: Iterable[Path], name: str) -> pa.Table | None:
    """A table of the run folders together; None where none has it."""
    paths = [folder / f"{name}.parquet" for folder in folders]
    tables = [read_table(path, TABLES[name]) for path in paths if path.is_file()]
    return pa.concat_tables(tables) if tables else None


def _people(folders: Sequence[Path], named: str | None) -> pa.Table | None:
    """Who is in the pictures that have vectors, without the pictures."""
    import pyarrow.parquet as pq

    more = [Path(named)] if named is not None and Path(named).is_dir() else []
    tables = []
    for folder in dict.fromkeys([*folders, *more]):
        path = folder / "images.parquet"
        if path.is_file():
            there = [name for name in _PEOPLE if name in pq.read_schema(path).names]
            table = pq.read_table(path, columns=there)
            tables.append(pa.table({name: table[name].cast(IMAGE.field(name).type) for name in there}))
    return pa.concat_tables(tables, promote_options="default") if tables else None


def split_rows(folder: Path, *, named: bool) -> list[dict[str, Any]]:
    """RESULT rows of `cxrhf probe` in a run folder."""
    path = folder / "results.parquet"
    if not path.is_file():
        if named:
            raise TableError(f"{folder} has no results of cxrhf probe", next_step=f"cxrhf probe BUILD --out {folder}")
        return []
    table = read_table(path, RESULT)
    found: list[dict[str, Any]] = table.filter(pc.equal(table["audit"], "split")).to_pylist()
    if named and not found:
        raise TableError(f"{folder} has no results of cxrhf probe", next_step="pass a run of cxrhf probe")
    return found
