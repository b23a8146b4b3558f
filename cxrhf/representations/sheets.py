"""Best and worst slices -> labelling sheets to fill in; a filled sheet -> ATTRIBUTE rows.

A sheet holds up to 100 images of the worst and of the best slice of a class, half of them from either half of the
patients, so that what is annotated can be confirmed. It does not say which image is of which slice, and the order is
drawn: who knows the slice sees what he expects. The user names the empty column after what he looks for (ecg_wires) and
writes 1, 0 or nothing.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.errors import TableError
from cxrhf.findings import snake_case
from cxrhf.representations.ends import ends
from cxrhf.schema import ATTRIBUTE, check
from cxrhf.tables import cells
from cxrhf.tables.files import open_raw, write_atomically
from cxrhf.tables.places import file_name

FOLDER = "labelling"
EACH = 50  # images of a slice and half
EMPTY = "rename_me"  # the column to fill in
_KEPT = ("image_id", "model", "finding", "label", "slice", "role", "half")


def write_sheets(folder: Path, results: pa.Table, slices: pa.Table, seed: int) -> list[Path]:
    """A sheet for each model, finding and class that has a worst and a best slice.

    Blank sheets of an earlier audit go; one that somebody wrote into stays as it is.
    """
    target = folder / FOLDER
    for old in target.glob("*.csv"):
        if is_blank(old):
            old.unlink()
    groups: dict[tuple[str, str, str], set[str]] = {}
    for end in ends(results, slices):
        groups.setdefault((end.model, end.finding, end.slice.rpartition(":")[0]), set()).add(end.slice)
    written = []
    for (model, finding, head), names in groups.items():
        rows = slices.filter(
            pc.and_(
                pc.and_(pc.equal(slices["model"], model), pc.equal(slices["finding"], finding)),
                pc.is_in(slices["slice"], value_set=pa.array(sorted(names))),
            )
        )
        images = _drawn(rows, seed)
        name = file_name(re.sub(r"[^\w.+-]+", "-", f"{model}-{finding}-{head}").strip(".-"))
        label = "1" if head.endswith("positive") else "0"
        lines = [[image, finding, label, ""] for image in images]
        text = _text([["image_id", "finding", "label", EMPTY], *lines])
        path = target / f"{name}.csv"
        if not path.exists():
            target.mkdir(exist_ok=True)
            _write(path, text)
        written.append(path)
    return written


def _write(path: Path, text: str) -> None:
    write_atomically(path, lambda file: file.write(text.encode()))


def is_blank(path: Path) -> bool:
    """Whether a sheet is as it was written: nobody's work is in it."""
    try:
        rows = list(csv.reader(io.StringIO(path.read_text("utf-8"))))
    except (OSError, UnicodeDecodeError, csv.Error):
        return False
    return bool(rows) and rows[0][-1:] == [EMPTY] and all(row[-1:] == [""] for row in rows[1:])


def _drawn(rows: pa.Table, seed: int) -> list[str]:
    """Up to EACH images of each slice and half, in an order that tells nothing."""
    rng = np.random.default_rng([seed, 211])
    columns = (rows[name].to_pylist() for name in ("slice", "half", "image_id"))
    by: dict[tuple[str, str], list[str]] = {}
    for slice_name, half, image in sorted(zip(*columns, strict=True)):
        by.setdefault((slice_name, half or ""), []).append(image)
    chosen = [image for images in by.values() for image in rng.permutation(images)[:EACH].tolist()]
    return [str(each) for each in rng.permutation(sorted(set(chosen)))]


def _text(rows: Iterable[Sequence[str]]) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def read_sheet(path: Path, image_ids: Iterable[str]) -> pa.Table:
    """ATTRIBUTE rows of a filled sheet. A bad cell is an error with its line; nothing of the sheet is taken then.

    Every column that is not one of the sheet's own is an attribute: 1, 0, yes, no or blank.
    """
    raw = open_raw(path)
    names = {snake_case(name): at for at, name in reversed(list(enumerate(raw.columns)))}
    if "image_id" not in names:
        raise TableError(
            f'{raw.name}: no column "image_id"', got=f"columns {', '.join(raw.columns)}",
            next_step="keep this column of the labelling sheet",
        )  # fmt: skip
    asked = {name: at for name, at in names.items() if name not in _KEPT and name}
    places = [names["image_id"], *asked.values()]
    columns = dict(zip(places, raw.load(dict.fromkeys(places, "text")), strict=True))
    where = cells.Where(raw.name, raw.columns[names["image_id"]], raw.place)
    ids = cells.identifiers(columns[names["image_id"]], where)
    _check_images(ids, set(image_ids), where)
    tables = []
    for name, at in asked.items():
        flags = cells.flags(columns[at], cells.Where(raw.name, raw.columns[at], raw.place))
        if flags.null_count == len(flags):
            continue
        if name == EMPTY:
            raise TableError(
                f'{raw.name}: column "{EMPTY}" is filled but not named',
                next_step="name it after the attribute, for example ecg_wires",
            )
        _check_once(ids, flags, cells.Where(raw.name, raw.columns[at], raw.place))
        value = pc.if_else(flags, "1", "0")
        rows = pa.table({"image_id": ids, "name": pa.repeat(pa.scalar(name), len(ids)), "value": value})
        tables.append(rows.filter(pc.is_valid(value)))
    if not tables:
        raise TableError(
            f"{raw.name}: no annotations",
            got=f"columns {', '.join(raw.columns)}, all blank" if asked else "only the columns of the sheet",
            next_step="write 1 or 0 into a column named after the attribute, for example ecg_wires",
        )
    # The same image may stand in a sheet twice, as long as both say the same.
    whole = pa.concat_tables(tables).group_by(["image_id", "name", "value"], use_threads=False).aggregate([])
    return check(whole, ATTRIBUTE, source=raw.name)


def _check_images(ids: pa.Array, known: set[str], where: cells.Where) -> None:
    for row, image in enumerate(ids.to_pylist()):
        if image not in known:  # the id itself stays out of messages: logs travel further than data
            allowed = "an image id of the sheet"
            raise where.error(row, "this image is not in the predictions", None, allowed, "correct or remove the row")


def _check_once(ids: pa.Array, flags: pa.Array, where: cells.Where) -> None:
    seen: dict[str, bool] = {}
    for row, (image, flag) in enumerate(zip(ids.to_pylist(), flags.to_pylist(), strict=True)):
        if flag is not None and seen.setdefault(image, flag) != flag:
            raise where.error(
                row, "an earlier row has another value for this image", int(flag), "one value for each image"
            )


def merged(earlier: pa.Table | None, sheets: Sequence[pa.Table]) -> tuple[pa.Table, int]:
    """Attributes with those of sheets, of which the last holds; and how many values a sheet changed."""
    found: dict[tuple[str, str], str | None] = {}
    changed = 0
    for place, table in enumerate([*([earlier] if earlier is not None else []), *sheets]):
        columns = (table[name].to_pylist() for name in ("image_id", "name", "value"))
        for image, name, value in zip(*columns, strict=True):
            if place and found.get((image, name), value) not in (None, value):
                changed += 1
            found[image, name] = value
    rows = {"image_id": [key[0] for key in found], "name": [key[1] for key in found], "value": list(found.values())}
    return check(pa.table({name: pa.array(each, pa.string()) for name, each in rows.items()}), ATTRIBUTE), changed
