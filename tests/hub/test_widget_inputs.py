"""What a visitor gives the page of a metric: cells, files, pasted lines and options become inputs, or a sentence."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from cxrhf.hub.widget import (
    MAX_BYTES,
    MAX_ROWS,
    Choice,
    Column,
    Number,
    Problem,
    Text,
    columns_of,
    in_order,
    read_cells,
    read_csv,
    read_text,
)

SCORE, LABEL = Column("predictions", False, True), Column("references", False, True)
WEIGHT, GROUP = Column("sample_weight", False, False), Column("groups", True, False)
COLUMNS = [SCORE, LABEL, WEIGHT, GROUP]
REPORTS = [Column("predictions", True, True), Column("references", True, True)]


def test_cells_become_inputs() -> None:
    rows = [["0.5", 1, None, " f "], [0.25, "", math.nan, 7.0], [" 1e-3 ", 0.0, "", "m"], ["", None, "  ", math.nan]]
    assert read_cells(rows, COLUMNS) == {
        "predictions": [0.5, 0.25, 0.001],
        "references": [1.0, None, 0.0],
        "groups": [" f ", "7", "m"],
    }


def test_empty_reports_are_reports() -> None:
    rows = [["", "Clear."], ["Effusion.", None], ["", ""], ["Clear.", "Clear."], ["", ""]]
    read = read_cells(rows, REPORTS)
    assert read == {"predictions": ["", "Effusion.", "", "Clear."], "references": ["Clear.", "", "", "Clear."]}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "The table is empty"),
        ([["", None, math.nan, " "]], "The table is empty"),
        ([[0.5, 1, 1, "f"], [0.5, 1, "", "f"]], 'Row 2, column "sample_weight": .*or in none'),
        ([[0.5, 1, 1, "f"], [0.5, 1, 1, ""]], 'Row 2, column "groups": .*empty'),
        ([[0.5, 1, 1, "f"], ["", 1, 1, "f"]], 'Row 2, column "predictions": expected a value in every row, got'),
        ([[0.5, "", 1, "f"], [0.5, "", 1, "f"]], 'Column "references": .*empty'),
        ([["0,5", 1, 1, "f"]], "Row 1, column \"predictions\": .*got '0,5'"),
        ([[0.5, "yes", 1, "f"]], "Row 1, column \"references\": .*got 'yes'"),
        ([["inf", 1, 1, "f"]], "Row 1, column \"predictions\": .*got 'inf'"),
        ([[0.5, 1, 1, "f"]] * (MAX_ROWS + 1), "50,000 rows, got 50,001"),
    ],
)
def test_cells_that_cannot_be_computed(rows: list[list[Any]], said: str) -> None:
    with pytest.raises(Problem, match=said):
        read_cells(rows, COLUMNS)


def test_columns_are_found_by_name() -> None:
    assert in_order(["references", "predictions"], [[1, 0.5]], [SCORE, LABEL]) == [[0.5, 1]]
    with pytest.raises(Problem, match=r"expected predictions, references, got references, x"):
        in_order(["references", "x"], [[1, 0.5]], [SCORE, LABEL])


def test_a_file_is_read_by_its_header() -> None:
    data = '\ufeffid, references ,predictions,groups\r\n7,1,.5,"a, b"\r\n\r\n8,,.25,ü\r\n'.encode()
    assert read_csv(data, COLUMNS) == ([[0.5, 1.0, None, "a, b"], [0.25, None, None, "ü"]], ["id"])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "columns predictions, references, got an empty line"),
        (b"predictions;references\n.5;1\n", "got predictions;references"),
        (b"0.5,1\n", "columns predictions, references"),
        (b"predictions,references,references\n.5,1,1\n", "got references several times"),
        (b"predictions,references\n.5,1\n.5\n", "Row 2: expected 2 cells .*got 1"),
        (b"predictions,references\n.5,1\n.5,NA\n", "Row 2, column \"references\": .*got 'NA'"),
        (b"predictions,references\n", "The table is empty"),
        (b'predictions,references\n.5,"1\n', "not valid CSV"),
        ("predictions,references,ä\n".encode("latin-1"), "not UTF-8"),
        (b" " * (MAX_BYTES + 2**20), "50 MB, got 51 MB"),
    ],
)
def test_files_that_cannot_be_read(data: bytes, said: str) -> None:
    with pytest.raises(Problem, match=said):
        read_csv(data, COLUMNS)


def test_pasted_lines_need_no_header() -> None:
    assert read_text("0.5\t1\n0.25\t\n", COLUMNS)[0] == [[0.5, 1.0, None, None], [0.25, None, None, None]]
    assert read_text("references\tpredictions\n1\t0.5", COLUMNS)[0] == [[0.5, 1.0, None, None]]
    with pytest.raises(Problem, match=r"Row 2: .*got 1"):
        read_text("0.5,1\n0.25\n", COLUMNS)


def test_options() -> None:
    assert Choice("weighting", ("att", None), "att").read("None") is None
    assert Choice("k", (1, 2), 1).read("2") == 2
    assert Number("n", 0, whole=True).read(3.0) == 3
    assert isinstance(Number("n", 0, whole=True).read(3.0), int)
    assert Number("n", None).read(None) is None
    assert (Text("group").read("  "), Text("group").read(" F ")) == (None, "F")
    for option, field, said in (
        (Number("n", 0, whole=True, least=0, most=10), 2.5, "n: expected a whole number >= 0 and <= 10, got 2.5"),
        (Number("n", 0, whole=True, most=10_000), 1_000_000, "n: expected a whole number <= 10000, got 1000000"),
        (Number("n", 0.5, least=0), -1, "n: expected a number >= 0, got -1"),
        (Number("n", 0.5), None, "n: expected a number, got nothing"),
        (Number("n", 0.5), math.inf, "n: expected a number, got inf"),
        (Choice("k", ("a", "b"), "a"), "c", "k: expected a, b, got 'c'"),
    ):
        with pytest.raises(Problem, match=said):
            option.read(field)


def test_kinds_of_columns() -> None:
    features = [
        {"predictions": SimpleNamespace(dtype="float64"), "clusters": SimpleNamespace(dtype="string")},
        {"predictions": SimpleNamespace(feature=None)},
    ]
    module = SimpleNamespace(features=features, _compute=lambda predictions, note=None, **more: {})
    found = columns_of(module, {"predictions": [0.5], "clusters": [None], "note": ["a"]})
    assert found == [Column("predictions", False, True), Column("clusters", True, False), Column("note", True, False)]
    module.required = ("predictions", "clusters")
    assert [column.required for column in columns_of(module, {"predictions": [], "clusters": []})] == [
        True,
        True,
    ]


def test_a_number_that_may_stay_empty() -> None:
    option = Number("caliper", None, least=0)
    assert option.read("") is None
    assert option.read(" ") is None
    assert option.read(None) is None
    assert option.read(" 0.25 ") == 0.25
    with pytest.raises(Problem, match="caliper: expected a number >= 0, got 'wide'"):
        option.read("wide")
