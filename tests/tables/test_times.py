"""When an image was taken, from anybody's column of times."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pytest

from cxrhf.errors import TableError
from cxrhf.schema import PREDICTION
from cxrhf.tables.files import write_table
from cxrhf.tables.predictions import Loaded, load_predictions
from cxrhf.tables.times import calendar_days
from tests.refusals import refused

DAY = 17986.0  # 2019-03-31


def table(values: Any, name: str = "date", patients: list[str] | None = None) -> dict[str, Any]:
    n = len(values)
    who = patients or ["p"] * n
    return {"id": [f"i{at}" for at in range(n)], "pid": who, "label": [1] * n, "score": [0.5] * n, name: values}


def times(loaded: Loaded) -> list[float | None]:
    assert loaded.times is not None
    assert loaded.times.column_names == ["image_id", "patient_id", "time"]
    assert loaded.table.schema.equals(PREDICTION)
    return loaded.times["time"].to_pylist()


def unit(loaded: Loaded) -> str:
    assert loaded.times is not None
    return str(loaded.times.schema.metadata[b"unit"].decode())


@pytest.mark.parametrize(
    "values",
    [
        ["2019-03-31", "2019-04-01 12:00"],
        ["2019-03-31T00:00:00Z", "2019-04-01T14:00:00.000+02:00"],
        [datetime(2019, 3, 31), datetime(2019, 4, 1, 12)],
        [np.datetime64("2019-03-31", "ns"), np.datetime64("2019-04-01T12", "ns")],
        pandas.to_datetime(["2019-03-31 00:00", "2019-04-01 12:00"], utc=True),
    ],
)
def test_dates_become_days(values: Any) -> None:
    loaded = load_predictions(table(values))
    assert times(loaded) == [DAY, DAY + 1.5]
    assert unit(loaded) == "days since 1970"
    assert ("time", "date") in loaded.readings[0].columns
    assert loaded.notes == ()


def test_files_of_every_format(tmp_path: Path) -> None:
    for name in ("t.csv", "t.parquet", "t.jsonl", "t.tsv.gz"):
        for values in (["2019-03-31", "2019-04-01"], [20190331, 20190401], [7, 9]):
            loaded = load_predictions(write_table(pa.table(table(values)), tmp_path / name))
            assert times(loaded) == ([7, 9] if values == [7, 9] else [DAY, DAY + 1]), name


def test_eight_digits_that_are_all_dates_are_dates() -> None:
    for values in ([20190331, 20190401, None], [20190331.0, 20190401.0, None], ["20190331", "20190401", ""]):
        loaded = load_predictions(table(values))
        assert times(loaded) == [DAY, DAY + 1, None]
        assert "YYYYMMDD" in loaded.notes[0]
        assert "1 image:" in loaded.notes[1]
    with refused(TableError, '"date"', "row 3", got="20190230"):
        load_predictions(table([20190331, 20190401, 20190230]), time="date")
    assert calendar_days(np.array([20000229, 19000229, 18000101, 20191301, 20190100, 0])).tolist()[:3] == [
        pytest.approx((date(2000, 2, 29) - date(1970, 1, 1)).days),
        pytest.approx(np.nan, nan_ok=True),
        pytest.approx((date(1800, 1, 1) - date(1970, 1, 1)).days),
    ]


def test_numbers_stay_numbers() -> None:
    for name in ("follow_up", "Follow-up #", "visit", "offset"):
        loaded = load_predictions(table([3, 10, 0], name))
        assert times(loaded) == [3, 10, 0]
        assert unit(loaded) == "numbers as given"
    assert times(load_predictions(table(["1e1", " 2.5 "]), time="date")) == [10, 2.5]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["2019-03-31", "31.3.2019"], ["row 2", "31.3.2019", "2019-03-31 14:05", "--time COLUMN"]),
        (["2019-03-31", "7"], ["row 2", '"7"', "a date"]),
        (["2019-03-31", "2019-03-31T10:00Z"], ["row 2", "time zone"]),
        (["0001-01-01T00:00:00+14:00"], ["row 1", "+14:00"]),
        ([1.0, np.inf], ["row 2", "inf"]),
        ([True, False], ["bool"]),
        ([None, None], ["empty"]),
        ([datetime(2019, 3, 31).time()], ["time64"]),
    ],
)
def test_what_is_no_time_is_an_error_when_named_and_a_note_when_guessed(values: Any, words: list[str]) -> None:
    with refused(TableError, 'table, column "date"', *words):
        load_predictions(table(values), time="date")
    guessed = load_predictions(table(values))
    assert guessed.times is None
    said = "\n".join(guessed.notes)
    assert ("--time 'date'" in said) is (values != [None, None])
    assert "31.3.2019" not in said  # notes stand on the page: no cell of the table in them


def test_one_image_has_one_time(tmp_path: Path) -> None:
    text = "id,patient,finding,label,score,visit\na,p,x,1,.5,1\nb,p,x,1,.5,\nb,p,y,1,.5,4\na,p,y,0,.5,2\n"
    path = tmp_path / "p.csv"
    path.write_text(text)
    with refused(TableError, 'p.csv, column "visit", line 5', '"a"', "line 2", got="2"):
        load_predictions(path, time="visit")
    assert load_predictions(path).times is None
    path.write_text(text.replace("0,.5,2", "0,.5,1"))
    loaded = load_predictions(path)
    assert loaded.times is not None
    assert loaded.times.to_pylist() == [
        {"image_id": "a", "patient_id": "p", "time": 1.0},
        {"image_id": "b", "patient_id": "p", "time": 4.0},
    ]


def test_a_clock_beside_its_date() -> None:
    dicom = table([20190331, 20190331, 20190401], "StudyDate")
    for clock in ([93000.0, 120000.5, 0.0], ["093000", "120000.5", "0"], ["09:30", "12:00:00.5", "0:00"]):
        assert times(load_predictions({**dicom, "StudyTime": clock})) == pytest.approx(
            [DAY + 9.5 / 24, DAY + 0.5 + 0.5 / 86400, DAY + 1]
        )
    # At an unknown hour it would seem the first of its day.
    blank = load_predictions({**dicom, "StudyTime": ["09:30", None, "10:00"]})
    assert times(blank) == [DAY, DAY, DAY + 1]
    assert '"StudyTime" has empty cells' in blank.notes[1]
    assert "not times of day" in load_predictions({**dicom, "StudyTime": ["soon", "", "x"]}).notes[1]


def test_what_may_be_something_else_is_not_taken() -> None:
    alone = load_predictions(table([93000.25, 120000.5], "StudyTime"))
    assert alone.times is None
    with refused(TableError, '"StudyTime"', got="93000.25", fix="--time"):
        load_predictions(table([93000.25, 120000.5], "StudyTime"), time="StudyTime")
    took = table([0.21, 0.35], "time")  # seconds that the model needed
    assert load_predictions(took).times is None
    assert times(load_predictions(took, time="time")) == [0.21, 0.35]
    assert load_predictions(table([1, 2], "score2")).times is None


def test_the_order_in_nih_names() -> None:
    ids = ["00000071_000.png", "00000071_003.png", "images/00000072_001.png"]
    nih = {**table([1, 2, 3], "junk", ["71", "71", "72"]), "id": ids}
    loaded = load_predictions(nih)
    assert loaded.times is not None
    assert dict(zip(*(loaded.times[name].to_pylist() for name in ("image_id", "time")), strict=True)) == {
        ids[0]: 0.0, ids[1]: 3.0, ids[2]: 1.0,
    }  # fmt: skip
    assert "NIH" in loaded.notes[0]
    assert load_predictions({**nih, "id": [*ids[:2], "c.png"]}).times is None
    assert load_predictions({**nih, "pid": ["71"] * 3}).times is None  # two of NIH's patients in one of the table
    assert times(load_predictions({**nih, "follow_up": [9, 8, 7]})) == [9, 8, 7]


def test_several_files(tmp_path: Path) -> None:
    def saved(name: str, values: Any, column: str = "visit") -> Path:
        return write_table(pa.table(table(values, column)), tmp_path / name)

    a, b = saved("a.csv", [1, 2]), saved("b.csv", [1, 2, 3])
    assert times(load_predictions([a, b])) == [1, 2, 3]
    assert times(load_predictions([a, saved("c.csv", [5, 5, 5], "junk")])) == [1, 2]
    with refused(TableError, "b.csv", '"i1"', "a.csv"):
        load_predictions([saved("a.csv", [1, 7]), b])
    with refused(TableError, "b.csv and d.csv", got="days since 1970"):
        load_predictions([b, saved("d.csv", ["2019-03-31"], "date")])


def test_a_time_zone_is_remembered() -> None:
    rows = {"image_id": ["a", "b"], "patient_id": ["p", "p"], "label": [0, 1], "prob": [0.1, 0.2]}
    for times, zoned in (
        (["2019-03-31T10:00:00+02:00", "2019-04-01T10:00:00+02:00"], True),
        (["2019-03-31T10:00:00", "2019-04-01T10:00:00"], False),
    ):
        found = load_predictions(rows | {"study_time": times}).times
        assert (b"zone" in found.schema.metadata) is zoned
