"""Labelling sheets: what is in them, nobody's work is lost, a bad row is named, what is filled in comes back."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pytest

from cxrhf.audits.representations import (
    EMPTY,
    IMAGES_PER_SHEET_SLICE,
    is_blank,
    merge_attributes,
    read_sheet,
    write_sheets,
)
from cxrhf.errors import TableError
from cxrhf.schema import ATTRIBUTE, RESULT, SLICE
from cxrhf.tables.checks import table_of
from tests.refusals import refused


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def found() -> tuple[pa.Table, pa.Table]:
    """Results and slices of one model with a worst, a middle and a best slice of 300 images each."""
    ends = [
        {"audit": "slices", "metric": role, "model": "net", "finding": "edema", "slice": f"mixture:positive:{k}"}
        for role, k in (("worst", 1), ("best", 3))
    ]
    slices = [
        {
            "image_id": f"i{k}-{n:03d}", "model": "net", "method": "mixture", "finding": "edema",
            "slice": f"mixture:positive:{k}", "half": "confirm" if n % 2 else "discover", "weight": 1.0,
        }
        for k in (1, 2, 3)
        for n in range(300)
    ]  # fmt: skip
    return table_of(ends, RESULT), table_of(slices, SLICE)


def test_a_sheet_holds_both_ends_and_both_halves_and_does_not_tell_them(tmp_path: Path, found) -> None:
    (path,) = write_sheets(tmp_path, *found, seed=0)
    rows = rows_of(path)
    assert path.name == "net-edema-mixture-positive.csv"
    assert set(rows[0]) == {"image_id", "finding", "label", EMPTY}
    assert len(rows) == 4 * IMAGES_PER_SHEET_SLICE
    ids = [row["image_id"] for row in rows]
    for k, parity in ((1, 0), (1, 1), (3, 0), (3, 1)):
        assert sum(each.startswith(f"i{k}-") and int(each[3:]) % 2 == parity for each in ids) == IMAGES_PER_SHEET_SLICE
    assert ids != sorted(ids)
    first = [each[1] for each in ids[:40]]
    assert 5 < first.count("1") < 35  # slices are mixed
    assert {row["label"] for row in rows} == {"1"}


def test_datasets_of_one_model_have_sheets_of_their_own(tmp_path: Path, found) -> None:
    results, slices = (each.to_pylist() for each in found)
    here = [row | {"dataset": name} for name in ("here", "there") for row in results]
    theirs = [row | {"model": f"net on {name}", "image_id": f"{name}-{row['image_id']}"} for name in ("here", "there")
              for row in slices]  # fmt: skip
    paths = write_sheets(tmp_path, table_of(here, RESULT), table_of(theirs, SLICE), seed=0)
    assert [path.name.partition("-edema")[0] for path in paths] == ["net-on-here", "net-on-there"]
    for path, name in zip(paths, ("here", "there"), strict=True):
        assert {row["image_id"].partition("-")[0] for row in rows_of(path)} == {name}


def test_a_sheet_that_somebody_wrote_into_stays(tmp_path: Path, found) -> None:
    (path,) = write_sheets(tmp_path, *found, seed=0)
    blank = path.read_text()
    write_sheets(tmp_path, *found, seed=1)
    assert path.read_text() != blank  # a blank one is written anew
    filled = blank.replace(EMPTY, "ecg_wires")
    path.write_text(filled)
    assert not is_blank(path)
    write_sheets(tmp_path, *found, seed=1)
    assert path.read_text() == filled


def sheet(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "sheet.csv"
    path.write_text(text)
    return path


def test_filled_cells_come_back_as_attributes(tmp_path: Path) -> None:
    path = sheet(tmp_path, "image_id,finding,label,ECG wires,rotated\na,edema,1,yes,\nb,edema,1,0,1\nc,edema,1,,\n")
    rows = read_sheet(path, ["a", "b", "c"]).to_pylist()
    assert {(row["image_id"], row["name"], row["value"]) for row in rows} == {
        ("a", "ecg_wires", "1"), ("b", "ecg_wires", "0"), ("b", "rotated", "1"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "facts", "got"),
    [
        ("image_id,wires\na,1\nb,maybe\n", ("wires", "line 3"), "maybe"),
        ("image_id,wires\na,1\nzz,0\n", ("image_id", "line 3", "predictions"), None),
        ("image_id,wires\na,1\n,0\n", ("image_id", "line 3"), "empty"),
        ("image_id,wires\na,1\na,0\n", ("wires", "line 3"), "0"),
        (f"image_id,{EMPTY}\na,1\nb,0\n", (EMPTY, "not named"), None),
        ("image_id,finding,wires\na,edema,\nb,edema,\n", ("no annotations",), "wires"),
        ("image_id,finding\na,edema\n", ("no annotations",), "columns of the sheet"),
        ("picture,wires\na,1\n", ("image_id",), "picture"),
        ("image_id,wires\na,1,1,1\n", (), None),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_taken(
    tmp_path: Path, text: str, facts: tuple[str, ...], got: str | None
) -> None:
    with refused(TableError, "sheet.csv", *facts, got=got):
        read_sheet(sheet(tmp_path, text), ["a", "b"])


def test_sheets_win_over_what_was_known_and_say_how_often() -> None:
    def table(*rows: tuple[str, str, str]) -> pa.Table:
        return table_of([dict(zip(("image_id", "name", "value"), row, strict=True)) for row in rows], ATTRIBUTE)

    earlier = table(("a", "wires", "1"), ("b", "wires", "0"), ("a", "drain", "1"))
    whole, changed = merge_attributes(earlier, [table(("a", "wires", "0"), ("c", "wires", "1"))])
    assert changed == 1
    values = {(row["image_id"], row["name"]): row["value"] for row in whole.to_pylist()}
    assert values == {("a", "wires"): "0", ("b", "wires"): "0", ("a", "drain"): "1", ("c", "wires"): "1"}
