"""One column at a time: what is accepted, what is refused and how the cell is named."""

from __future__ import annotations

import decimal
import math

import numpy as np
import pyarrow as pa
import pytest

from cxrhf.errors import TableError
from cxrhf.tables import cells
from tests.refusals import refused

WHERE = cells.Where("p.csv", "c", lambda row: f"line {row + 2}")


def column(values: object, kind: pa.DataType | None = None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, kind)])


@pytest.mark.parametrize(
    ("values", "expected", "uncertain"),
    [
        (["1", "0", "", "nan", "None", None, "-1", "1.0", "0.0", "-1.0", " 1 ", "True", "FALSE"],
         [1, 0, None, None, None, None, None, 1, 0, None, 1, 1, 0], 2),
        ([1, 0, -1, None], [1, 0, None, None], 1),
        ([1.0, 0.0, -1.0, math.nan, None], [1, 0, None, None, None], 1),
        ([True, False, None], [1, 0, None], 0),
        ([None, None], [None, None], 0),
        ([decimal.Decimal("1.0"), decimal.Decimal("0.0")], [1, 0], 0),
    ],
)  # fmt: skip
def test_labels(values: list[object], expected: list[object], uncertain: int) -> None:
    for form in (column(values), column(values).dictionary_encode() if values[0] == "1" else column(values)):
        found = cells.labels(form, WHERE)
        assert found.values.to_pylist() == expected
        assert found.values.type == pa.int8()
        assert found.n_uncertain == uncertain


@pytest.mark.parametrize(
    ("values", "got", "line"),
    [
        (["1", "2"], "2", 3),
        (["maybe"], "maybe", 2),
        (["0", "", "0.37"], "0.37", 4),
        ([0, 1, 5], "5", 4),
        ([0.0, 0.5], "0.5", 3),
        ([math.inf], "inf", 2),
    ],
)
def test_not_labels(values: list[object], got: str, line: int) -> None:
    with refused(TableError, "p.csv", '"c"', f"line {line}", "-1", got=got) as refusal:
        cells.labels(column(values), WHERE)
    assert ("--label" in (refusal.error.next_step or "")) == ("." in got or got == "inf")


def test_numbers() -> None:
    for values in (["1", " 0.5 ", "", "nan"], [1.0, 0.5, None, math.nan]):
        np.testing.assert_array_equal(cells.numbers(column(values), WHERE), [1, 0.5, np.nan, np.nan])
    assert cells.numbers(column([True, False]), WHERE).tolist() == [1, 0]
    assert cells.numbers(column([1, 2], pa.uint8()), WHERE).tolist() == [1, 2]
    assert cells.numbers(column(["0.1", "0.1"]).dictionary_encode(), WHERE).tolist() == [0.1, 0.1]
    assert cells.numbers(column([1.0], pa.float16()), WHERE).tolist() == [1]
    assert np.isnan(cells.numbers(column([None]), WHERE)).all()
    with refused(TableError, "line 3", got="35%", fix="0.35"):
        cells.numbers(column(["1", "35%"]), WHERE)
    with refused(TableError, '"c"', got="list<"):
        cells.numbers(column([[1.0]]), WHERE)


def test_text_and_ids() -> None:
    assert cells.text(column([" a ", "NA", None, "b"]), WHERE).to_pylist() == ["a", None, None, "b"]
    assert cells.text(column([71.0, None, math.nan]), WHERE).to_pylist() == ["71", None, None]
    assert cells.text(column([71, 7]), WHERE).to_pylist() == ["71", "7"]
    assert cells.text(column(["x"], pa.large_string()), WHERE).to_pylist() == ["x"]
    assert cells.text(column(["x"], pa.string_view()), WHERE).to_pylist() == ["x"]
    with refused(TableError, "line 3", "ids as text", got="1e+24"):
        cells.text(column([1.0, 1e24]), WHERE)
    with refused(TableError, '"c"', got="struct<"):
        cells.text(column([{"a": 1}]), WHERE)
    with refused(TableError, "line 3", got=cells.EMPTY):
        cells.identifiers(column(["a", ""]), WHERE)
    with refused(TableError, "line 3", "line break", got=r"b\nc"):
        cells.names(column(["a", "b\nc"]), WHERE)


def test_flags() -> None:
    written = ["1", "0", "True", "no", "", "1.0", "Y"]
    assert cells.flags(column(written), WHERE).to_pylist() == [True, False, True, False, None, True, True]
    assert cells.flags(column([1, 0, None]), WHERE).to_pylist() == [True, False, None]
    assert cells.flags(column([1.0, 0.0]), WHERE).to_pylist() == [True, False]
    assert cells.flags(column([True, None]), WHERE).to_pylist() == [True, None]
    assert cells.flags(column([None]), WHERE).to_pylist() == [None]
    with refused(TableError, "line 3", got="maybe"):
        cells.flags(column(["1", "Maybe"]), WHERE)


def test_groups() -> None:
    written = column(["male", "F", "Female", "U", None])
    assert cells.sexes(written, WHERE).to_pylist() == ["M", "F", "F", "U", None]
    assert cells.names(column(["F", "a b"]), WHERE).to_pylist() == ["F", "a b"]


def test_ages() -> None:
    found = cells.ages(column(["61", "069Y", "006M", "", ">89", "414"]), WHERE)
    np.testing.assert_allclose(found.values, [61, 69, 0.5, np.nan, np.nan, np.nan])
    assert (found.n_unknown, found.example) == (2, ">89")
    found = cells.ages(column([61.5, None, -1.0]), WHERE)
    np.testing.assert_allclose(found.values, [61.5, np.nan, np.nan])
    assert (found.n_unknown, found.example) == (1, -1.0)
    assert cells.ages(column([40]), WHERE).n_unknown == 0


def test_no_rows() -> None:
    for kind in (pa.string(), pa.float64(), pa.null(), pa.bool_()):
        empty = pa.chunked_array([], kind)
        assert len(cells.labels(empty, WHERE).values) == 0
        assert len(cells.numbers(empty, WHERE)) == 0
        assert len(cells.text(empty, WHERE)) == 0
