"""Only what was known strictly before an image is prior to it, whatever the file looks like."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from cxrhf.context.notes import prior_notes_of_build, prior_notes_of_file, read_notes
from cxrhf.errors import LeakageError, TableError
from cxrhf.tables.times import DAYS, NUMBERS
from tests.refusals import refused

TAKEN = datetime(2180, 5, 6, 14, 5, 30)


def day(when: datetime) -> float:
    return (when - datetime(1970, 1, 1)) / timedelta(days=1)


def images(*moments: float | None, patient: str = "7", metadata: dict[str, str] | None = None) -> pa.Table:
    table = pa.table(
        {
            "image_id": [f"i{at}" for at in range(len(moments))],
            "patient_id": [patient] * len(moments),
            "time": pa.array(moments, pa.float64()),
        }
    )
    return table.replace_schema_metadata(metadata)


def linked(notes, times: pa.Table) -> list[list[str]]:
    """The texts of the prior notes of each image."""
    prior = prior_notes_of_file(notes, times=times, predictions=times)
    texts = prior.notes["text"].to_pylist()
    return [sorted(texts[at] for at in row.indices) for row in prior.of(prior.images.take(pa.array(range(len(times)))))]


def notes(*moments, **columns) -> pa.Table:
    texts = [f"note {at}" for at in range(len(moments))]
    return pa.table({"patient_id": ["7"] * len(moments), "charttime": pa.array(moments), "text": texts} | columns)


@pytest.mark.parametrize(
    ("when", "prior"),
    [
        (TAKEN - timedelta(seconds=1), True),
        (TAKEN, False),  # the same time is not before
        (TAKEN + timedelta(seconds=1), False),
        (TAKEN - timedelta(milliseconds=2), True),
        (datetime(2180, 5, 6), False),  # midnight is how a bare date is written: it may have been evening
        (datetime(2180, 5, 6, 0, 0, 1), True),
        (datetime(2180, 5, 5), True),  # the day before has ended
        (datetime(2180, 5, 7), False),
    ],
)
def test_before_is_strict(when, prior):
    expected = [["note 0"]] if prior else [[]]
    times = images(day(TAKEN))
    assert linked(notes(when), times) == expected
    assert linked(notes(when.isoformat(" ")), times) == expected
    assert linked(notes(when.isoformat("T")), times) == expected
    if when == datetime(when.year, when.month, when.day):
        for bare in (when.date(), f"{when:%Y-%m-%d}", f"{when:%Y%m%d}", int(f"{when:%Y%m%d}")):
            assert linked(notes(bare), times) == expected


def test_the_day_before_an_image_without_a_clock():
    """An image with a date alone may be of its first minute: only notes of earlier days are certain."""
    times = images(day(datetime(2180, 5, 6)))
    moments = [datetime(2180, 5, 5), datetime(2180, 5, 5, 23, 59, 59), datetime(2180, 5, 6), datetime(2180, 5, 6, 0, 1)]
    assert linked(notes(*moments), times) == [["note 0", "note 1"]]


@pytest.mark.slow
def test_times_made_in_two_ways_are_the_same():
    """Days as a sum of parts or from microseconds differ in the last digit: that is not earlier."""
    rng = np.random.default_rng(0)
    for second in rng.integers(0, 86_400, 300).tolist():
        when = datetime(2199, 12, 30) + timedelta(seconds=second)
        summed = day(datetime(2199, 12, 30)) + (second // 3600 * 3600 + second % 3600) / 86_400
        assert linked(notes(when), images(summed)) == [[]]
        assert linked(notes(when), images(summed + 1 / 86_400)) == [["note 0"]] if second else True


def test_each_image_has_the_notes_before_it():
    times = images(10.5, 20.5, None, 5.0)
    table = notes("1970-01-06 01:00", "1970-01-11", "1970-01-15", "1970-01-21 06:00")
    assert linked(table, times) == [["note 0"], ["note 0", "note 1", "note 2", "note 3"], [], []]
    said = prior_notes_of_file(table, times=times, predictions=times).said
    assert len(said) == 1
    assert said[0].startswith("1 images have no time")
    unknown = prior_notes_of_file(table, times=times, predictions=times).of(pa.array(["nobody", "i0"]))
    assert np.diff(unknown.indptr).tolist() == [0, 1]


def test_notes_of_others_are_not_prior():
    table = notes("1970-01-02 01:00", "1970-01-02 01:00").set_column(0, "patient_id", pa.array(["7", "8"]))
    assert linked(table, images(9.0)) == [["note 0"]]


def test_the_latest_of_several_times_decides():
    times = images(10.5)
    early, late = "1970-01-02 06:00", "1970-01-20 06:00"
    assert linked(notes(early, dischtime=[late]), times) == [[]]
    assert linked(notes(early, storetime=[late]), times) == [[]]
    assert linked(notes(early, storetime=pa.array([None], pa.string())), times) == [["note 0"]]
    assert linked(notes(early, dischtime=pa.array([None], pa.string())), times) == [[]]
    assert linked(notes(early, dischtime=pa.array([None], pa.string()), storetime=[early]), times) == [[]]
    unknown = notes(early, storetime=[early]).set_column(1, "charttime", pa.array([None], pa.string()))
    assert linked(unknown, times) == [[]]  # when it was stored does not tell when it was charted
    assert linked(notes(late, available_at=[early]), times) == [["note 0"]]
    assert linked(notes(early, available_at=[late]), times) == [[]]


def test_a_radiology_report_counts_from_the_end_of_its_day():
    """Its time is that of the picture, the writing came later: it could be the image's own."""
    times = images(10.5)
    minute_before = "1970-01-11 11:59"
    assert linked(notes(minute_before), times) == [["note 0"]]
    for kind in ("RR", "Radiology report", "radiology"):
        assert linked(notes(minute_before, note_type=[kind]), times) == [[]]
        assert linked(notes("1970-01-10 11:59", note_type=[kind]), times) == [["note 0"]]
    assert linked(notes(minute_before, note_type=["DS"]), times) == [["note 0"]]


def test_copies_count_once():
    table = pa.table(
        {"patient_id": ["7", "7", "7", "8"], "charttime": ["1970-01-02"] * 4, "text": ["a", "b", "a", "a"]}
    )
    prior = prior_notes_of_file(table, times=images(9.0), predictions=images(9.0))
    assert prior.links.nnz == 2
    assert prior.said == ("table: 1 notes repeat an earlier note of the same patient and count once",)


def test_time_zones_must_agree():
    zoned = notes("1970-01-02T06:00:00+02:00")
    with refused(TableError, "the times of the notes have a time zone"):
        linked(zoned, images(9.0))
    with refused(TableError, "the times of the images have a time zone"):
        linked(notes("1970-01-02 06:00"), images(9.0, metadata={"zone": "UTC"}))
    with refused(TableError, "row 2: some cells have a time zone"):
        linked(notes("1970-01-02T06:00:00+02:00", "1970-01-02T06:00:00"), images(9.0))
    utc = {"unit": DAYS, "zone": "UTC"}
    four = day(datetime(1970, 1, 2, 4))  # 06:00 two hours east
    assert linked(zoned, images(four, four + 1e-3, metadata=utc)) == [[], ["note 0"]]
    stamp = notes(datetime(1970, 1, 2, 6, tzinfo=timezone(timedelta(hours=2))).astimezone(UTC))
    assert linked(stamp, images(four, four + 1e-3, metadata=utc)) == [[], ["note 0"]]
    midnight = notes("1970-01-02T00:00:00+02:00")  # a bare date of the hospital, which ends at 22:00 of Greenwich
    ends = day(datetime(1970, 1, 2, 22))
    assert linked(midnight, images(ends - 0.1, ends + 1e-3, metadata=utc)) == [[], ["note 0"]]
    local = pa.array([datetime(1970, 1, 1, 23)], pa.timestamp("us", "Europe/Berlin"))  # midnight there
    berlin = notes("x").set_column(1, "charttime", local)
    ends = day(datetime(1970, 1, 2, 23))
    assert linked(berlin, images(ends - 0.1, ends + 1e-3, metadata=utc)) == [[], ["note 0"]]
    report = midnight.append_column("kind", pa.array(["radiology"]))
    assert linked(report, images(ends + 0.5, ends + 1.1, metadata=utc)) == [[], ["note 0"]]


def test_numbers_go_with_numbers():
    offsets = images(3.0, 4.0, metadata={"unit": NUMBERS})
    table = notes(2, 3, 5)
    assert linked(table, offsets) == [["note 0"], ["note 0", "note 1"]]
    with refused(TableError, got="numbers as given for the notes and days since 1970 for the images"):
        linked(table, images(9.0))
    with refused(TableError, got="days since 1970 for the notes and numbers as given for the images"):
        linked(notes("2180-01-01"), offsets)
    with refused(TableError, '"charttime", "storetime"'):
        linked(notes("2180-01-01", storetime=[3]), images(9.0))


@pytest.mark.parametrize(
    ("columns", "facts"),
    [
        ({"subject_id": ["7"], "charttime": ["2180-01-01"]}, ["no text column", "text: text, note_text"]),
        ({"text": ["a"], "charttime": ["2180-01-01"]}, ["no patient column"]),
        ({"text": ["a"], "patient": ["7"], "hour": ["9"]}, ["no time column"]),
        ({"report": ["a"]}, ["no text and no patient and no time column"]),
        ({"text": ["a"], "patient": ["8"], "time": ["2180-01-01"]}, ["--patient", "1 patients in the notes"]),
        ({"text": ["a"], "patient": ["7"], "time": ["05/07/2180"]}, ['column "time", row 1', "05/07/2180"]),
        ({"text": [1.5], "patient": ["7"], "time": ["2180-01-01"]}, ['column "text"', "double"]),
    ],
)
def test_errors_of_a_file(columns, facts):
    with refused(TableError, *facts):
        prior_notes_of_file(columns, times=images(9.0), predictions=images(9.0))


def test_errors_without_times():
    for times in (None, images(None, None)):
        with pytest.raises(TableError, match=r"no times of the images.*--time COLUMN"):
            prior_notes_of_file(notes("2180-01-01"), times=times, predictions=images(9.0))
    with pytest.raises(TableError, match="no rows"):
        prior_notes_of_file(notes("2180-01-01").slice(0, 0), times=images(9.0), predictions=images(9.0))


def test_messages_hold_no_text_and_no_ids():
    table = notes("1970-01-02", None, "1970-01-02", "1970-01-02").set_column(
        2, "text", pa.array(["secret", "secret two", " \n", None])
    )
    prior = prior_notes_of_file(table, times=images(9.0), predictions=images(9.0))
    assert prior.said == (
        "table: excluded 2 notes without text",
        "table: excluded 1 notes without a time",
    )
    assert "secret" not in repr(prior)
    assert "i0" not in repr(prior)


@pytest.mark.parametrize("form", ["csv", "csv.gz", "jsonl", "parquet"])
def test_formats(tmp_path, form):
    from cxrhf.tables.files import write_table

    table = pa.table(
        {
            "Note ID": ["a", "b", "c"],
            "Subject_ID": ["0071", "0071", "0072"],
            "ChartTime": ["1970-01-02 10:00:00", "1970-01-05 00:00:00", "1970-01-02"],
            "TEXT": ['He said "no",\nthen left', "second", "third"],
        }
    )
    path = write_table(table, tmp_path / f"notes.{form}")
    prior = prior_notes_of_file(path, times=images(4.9, patient="0071"), predictions=images(4.9))
    assert prior.notes["text"].to_pylist() == ['He said "no",\nthen left', "second"]
    assert prior.links.toarray().tolist() == [[1, 0]]  # the second ends with day 4, at 5.0
    file = read_notes(path, pa.array(["0072"]))
    assert file.table.num_rows == 1
    assert file.known.unit == DAYS


def test_dates_of_parquet(tmp_path):
    table = pa.table({"patient_id": [7, 7], "date": pa.array([date(1970, 1, 2), None]), "text": ["a", "b"]})
    pq.write_table(table, tmp_path / "notes.parquet")
    prior = prior_notes_of_file(tmp_path / "notes.parquet", times=images(1.9, 2.0), predictions=images(1.9, 2.0))
    assert prior.links.toarray().tolist() == [[0], [1]]


def test_a_build_and_its_files_agree(hospital):
    """The same links from the build, from its notes by time, and (less a few of the same day) from MIMIC's own file."""
    micro = hospital.images["study_time"].cast(pa.int64()).cast(pa.float64())
    times = pa.table(
        {name: hospital.images[name] for name in ("image_id", "patient_id")} | {"time": pc.divide(micro, 86_400e6)}
    )
    by_time = prior_notes_of_file(hospital.notes, times=times, predictions=hospital.bare)
    ids = hospital.prior.images
    built, timed = hospital.prior.of(ids), by_time.of(ids)
    assert built.nnz > 3000
    assert 0 <= built.nnz - timed.nnz <= 0.002 * built.nnz  # a note of exactly midnight waits for the day's end
    assert (timed > built).nnz == 0
    (file,) = hospital.raw.rglob("discharge.csv.gz")
    own = prior_notes_of_file(file, times=times, predictions=hospital.bare)
    assert 0.95 < own.links.nnz / built.nnz <= 1


def test_a_build_is_checked_again(hospital):
    assert hospital.prior.said == ()
    late = pc.add(hospital.notes["available_at"], pa.scalar(timedelta(days=40_000)))
    at = hospital.notes.schema.get_field_index("available_at")
    with refused(LeakageError, "a note that is not earlier", fix="--overwrite"):
        prior_notes_of_build(
            hospital.images, hospital.notes.set_column(at, "available_at", late), predictions=hospital.bare
        )
    one = hospital.images.slice(0, 1)
    note = one["prior_note_ids"][0].as_py()[0]
    row = hospital.notes.filter(pc.equal(hospital.notes["note_id"], note))
    same = one.set_column(2, "study_time", row["available_at"])  # the image's very time
    with pytest.raises(LeakageError):
        prior_notes_of_build(same, hospital.notes, predictions=hospital.bare)
    with refused(TableError, "prior notes", fix="--overwrite"):
        prior_notes_of_build(hospital.images, hospital.notes.slice(5), predictions=hospital.bare)
    other = pa.table({"image_id": ["x"], "prior_note_ids": [["y"]]})
    with refused(TableError, "image id", got="1 images in the folder"):
        prior_notes_of_build(other, hospital.notes, predictions=hospital.bare)
