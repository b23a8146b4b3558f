"""Tables and rows against their schema: what is put right, and errors that name column, row and value."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from cxrhf import schema
from cxrhf.errors import TableError
from cxrhf.tables.checks import check, table_of
from tests.refusals import refused

ROW = {
    "image_id": "a",
    "patient_id": "p",
    "model": "m",
    "finding": "edema",
    "label": 1,
    "prob": 0.5,
}


def predictions(**changes: object) -> pa.Table:
    columns = {name: [value, value] for name, value in ROW.items()}
    columns["image_id"] = ["a", "b"]
    return pa.table({**columns, **changes})


def test_check_orders_casts_and_fills() -> None:
    table = predictions(label=pa.array([1, None], pa.int64())).select(
        ["prob", "label", "image_id", "finding", "model", "patient_id"]
    )
    checked = check(table, schema.PREDICTION)
    assert checked.schema.equals(schema.PREDICTION)
    assert checked["label"].to_pylist() == [1, None]
    assert checked["age"].null_count == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"label": [1, 2]}, ["x.parquet", '"label"', "row 2", "0, 1 or null"]),
        ({"prob": [0.1, 1.5]}, ['"prob"', "row 2", "1.5", "from 0 to 1"]),
        ({"prob": [float("nan"), 0.5]}, ['"prob"', "row 1", "nan"]),
        ({"logit": [0.0, float("inf")]}, ['"logit"', "row 2", "inf", "finite"]),
        ({"weight": [1.0, -1.0]}, ['"weight"', "row 2", "-1", ">= 0"]),
        ({"image_id": ["a", None]}, ['"image_id"', "row 2", "empty"]),
        ({"label": ["yes", "no"]}, ['"label"', "int8"]),
        ({"probs": [0.1, 0.2]}, ['"probs"', "did you mean 'prob'?"]),
        ({"seed": [0.5, 1.0]}, ['"seed"', "int64"]),
    ],
)
def test_check_names_column_row_and_value(changes: dict[str, list[object]], words: list[str]) -> None:
    with refused(TableError, *words):
        check(predictions(**changes), schema.PREDICTION, source="x.parquet")


def test_check_names_a_missing_column_and_a_doubled_one() -> None:
    with refused(TableError, "PREDICTION", got="columns image_id", fix='"finding"'):
        check(predictions().drop_columns(["finding"]), schema.PREDICTION)
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["image_id", "image_id"])
    with refused(TableError, "2 times"):
        check(twice, schema.PREDICTION)


def test_images_take_one_integer_column_a_finding() -> None:
    table = pa.table({"image_id": ["a"], "patient_id": ["p"], "edema": [-1], "mass": pa.array([None], pa.int8())})
    checked = check(table, schema.IMAGE)
    assert checked.schema.field("edema").type == pa.int8()
    assert checked.column_names[-2:] == ["edema", "mass"]
    with refused(TableError, "row 1"):
        check(table.set_column(2, "edema", pa.array([3])), schema.IMAGE)
    with refused(TableError, '"edema"', "IMAGE"):
        check(table.set_column(2, "edema", pa.array(["x"])), schema.IMAGE)


def test_rows_become_a_table_and_a_misspelt_key_is_an_error() -> None:
    row = {"audit": "overview", "metric": "auroc", "slice": "all", "value": np.float64(0.8), "n": np.int64(5)}
    table = table_of([row, {**row, "value": float("nan"), "note": "0 positives"}], schema.RESULT)
    assert table.schema.equals(schema.RESULT)
    assert table["value"].to_pylist()[0] == 0.8
    assert table_of([], schema.RESULT).num_rows == 0
    with refused(TableError, '"ci_lo"', fix="'ci_low'"):
        table_of([{**row, "ci_lo": 0.1}], schema.RESULT)
    with refused(TableError, '"n"', "int64"):
        table_of([{**row, "n": "many"}], schema.RESULT)


def test_check_keeps_the_findings_that_the_schema_names():
    table = pa.table({"image_id": ["a"], "patient_id": ["p"], "edema": pa.array([1], pa.int8())})
    for named in (schema.IMAGE, schema.image_schema(["edema"])):
        assert check(table, named).column("edema").to_pylist() == [1]
    assert check(table, schema.image_schema(["edema", "mass"])).column("mass").to_pylist() == [None]


def test_ids_are_written_alike_in_every_table() -> None:
    rows = [{"image_id": " e\u0301\u200b", "name": "drain", "value": "\u200byes"}]
    assert table_of(rows, schema.ATTRIBUTE).to_pylist() == [
        {"image_id": "\u00e9", "name": "drain", "value": "\u200byes"}
    ]


def test_ids_of_book_length_are_an_error() -> None:
    with refused(TableError, '"image_id"', "row 1", got="1,001"):
        table_of([{"image_id": "x" * 1001, "name": "drain"}], schema.ATTRIBUTE)
