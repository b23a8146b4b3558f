"""Rows and pictures -> shards -> datasets and Pixels: same pictures, nothing half-written, nothing lost on resume."""

from __future__ import annotations

import datetime
import io
import json
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from cxrhf.data import shards
from cxrhf.data.images import decode_picture, stored
from cxrhf.data.notes import from_stored, stored_schema
from cxrhf.data.shards import (
    QUARANTINE,
    Pixels,
    ShardPlan,
    features,
    is_finished_shard,
    open_shards,
    shown_name,
    write_shard,
    write_shards,
)
from cxrhf.errors import TableError
from cxrhf.schema import image_schema
from tests.refusals import refused

SIZE, ROWS = 64, 23
BAD = {4: "missing", 11: "empty", 12: "truncated", 20: "missing"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pictures, some spoilt, that is read-only."""
    folder = tmp_path_factory.mktemp("source")
    rng = np.random.default_rng(0)
    for number in range(ROWS):
        values = np.asarray(Image.fromarray(rng.integers(0, 256, (9, 7), dtype=np.uint8)).resize((150, 190)))
        Image.fromarray(values).save(folder / f"{number:03d}.{'png' if number % 3 else 'jpg'}")
    paths = _paths(folder)
    (folder / "deep").mkdir()
    Path(paths[4]).unlink()
    Path(paths[11]).write_bytes(b"")
    Path(paths[12]).write_bytes(Path(paths[12]).read_bytes()[:900])
    for path in folder.iterdir():
        path.chmod(0o555 if path.is_dir() else 0o444)
    folder.chmod(0o555)
    return folder


def _paths(folder: Path) -> list[str]:
    return [str(folder / f"{number:03d}.{'png' if number % 3 else 'jpg'}") for number in range(ROWS)]


@pytest.fixture
def rows(source: Path) -> pa.Table:
    ids = [f"image{number}" for number in range(ROWS)]
    return pa.table(
        {
            "image_id": pa.array(ids, pa.large_string()),  # as polars hands them over
            "study_id": [f"study{number}" for number in range(ROWS)],
            "patient_id": [f"patient{number // 2}" for number in range(ROWS)],
            "split": ["train"] * ROWS,
            "study_time": pa.array([TIME] * ROWS, pa.timestamp("us")),
            "age": [50.0 + number for number in range(ROWS)],
            "prior_note_ids": [[f"note{each}" for each in range(number % 3)] for number in range(ROWS)],
            "path": [None if number == 20 else path for number, path in enumerate(_paths(source))],
            "edema": pa.array([(1, 0, -1, None)[number % 4] for number in range(ROWS)], pa.int8()),
        }
    )


TIME = datetime.datetime(2180, 5, 6, 21, 30, 14, 531_000)


def build(rows: pa.Table, folder: Path, **more: Any) -> list[shards.ShardResult]:
    settings = {"size": SIZE, "threads": 2, "fingerprint": "one", "progress": False, **more}
    plan = ShardPlan("train", rows, rows_per_shard=settings.pop("rows_per_shard", 10))
    return write_shards(plan, folder, build=folder / ".build", **settings)


def test_plan(rows: pa.Table) -> None:
    plan = ShardPlan("train", rows, rows_per_shard=10)
    assert plan.names == [f"train-{number:05d}-of-00003.parquet" for number in range(3)]
    assert pa.concat_tables([plan.shard(number) for number in range(3)]).equals(rows)
    assert ShardPlan("test", rows.slice(0, 0)).names == []
    with refused(TableError, '"path"', got="image_id"):
        ShardPlan("train", rows.drop_columns(["path"]))
    with pytest.raises(ValueError, match="at least 1"):
        ShardPlan("train", rows, 0)


def test_shards_hold_the_good_pictures_in_order(rows: pa.Table, source: Path, tmp_path: Path) -> None:
    results = build(rows, tmp_path)
    table = pa.concat_tables([pq.read_table(result.path) for result in results])
    good = [number for number in range(ROWS) if number not in BAD]
    assert table.column("image_id").to_pylist() == [f"image{number}" for number in good]
    assert table.column("edema").to_pylist() == [(1, 0, -1, None)[number % 4] for number in good]
    assert table.schema.remove_metadata() == stored_schema(image_schema(["edema"])).remove_metadata()
    for number, picture in zip(good, table.column("image").to_pylist(), strict=True):
        path = Path(_paths(source)[number])
        assert picture["bytes"] == stored(path, SIZE)
        assert picture["path"] == f"{path.stem}.jpg"
    assert str(source) not in "".join(result.path.read_bytes().decode("latin-1") for result in results)

    quarantined = pa.concat_tables([result.quarantined for result in results])
    assert quarantined.schema == QUARANTINE
    assert quarantined.column("image_id").to_pylist() == [f"image{number}" for number in BAD]
    assert quarantined.column("kind").to_pylist() == list(BAD.values())
    assert quarantined.column("path").to_pylist() == [_paths(source)[number] for number in (4, 11, 12)] + [None]
    assert all(quarantined.column("said").to_pylist())


def test_source_is_untouched(rows: pa.Table, source: Path, tmp_path: Path) -> None:
    def listing() -> list[tuple[str, int, int, bytes]]:
        found = sorted(each for each in source.rglob("*") if each.is_file())
        return [(str(each), each.stat().st_mtime_ns, each.stat().st_mode, each.read_bytes()) for each in found]

    before = listing()
    build(rows, tmp_path)
    assert listing() == before


def test_equal_bytes_whatever_the_threads(rows: pa.Table, tmp_path: Path) -> None:
    one, two = build(rows, tmp_path / "one", threads=1), build(rows, tmp_path / "two", threads=5)
    assert [each.path.read_bytes() for each in one] == [each.path.read_bytes() for each in two]


def test_without_pixels_nothing_is_opened(rows: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "stored", lambda *_: pytest.fail("a picture was opened"))
    results = build(rows, tmp_path, size=None)
    assert [each.rows for each in results] == [10, 10, 3]
    table = pq.read_table(results[0].path)
    assert table.column("image").null_count == 10
    with refused(TableError, "row 1", "no image", fix="--no-pixels"):
        open_shards(tmp_path)[0]


def test_resume(rows: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build(rows, tmp_path)
    stamps = [each.path.stat().st_mtime_ns for each in first]
    seen: list[str] = []
    monkeypatch.setattr(shards, "stored", lambda path, size: seen.append(path.name) or stored(path, size))

    again = build(rows, tmp_path)
    assert not seen
    assert all(each.skipped for each in again)
    assert [each.path.stat().st_mtime_ns for each in again] == stamps
    assert [(each.rows, each.quarantined) for each in again] == [(each.rows, each.quarantined) for each in first]

    # Killed while the second shard was written: a draft lies there, the shard does not.
    again[1].path.rename(tmp_path / ".train-00001-of-00003.parquet.99.tmp")
    assert [each.skipped for each in build(rows, tmp_path)] == [True, False, True]
    assert len(seen) == 10
    assert not list(tmp_path.glob(".*.tmp"))
    # Its quarantine gone, cut short by something else, other settings, other rows under the same settings.
    (tmp_path / ".build" / "train-00000-of-00003.quarantine.parquet").unlink()
    whole = first[2].path.read_bytes()
    first[2].path.write_bytes(whole[:-20])
    assert [each.skipped for each in build(rows, tmp_path)] == [False, True, False]
    assert first[2].path.read_bytes() == whole
    assert [each.skipped for each in build(rows, tmp_path, fingerprint="two")] == [False] * 3
    assert [each.skipped for each in build(rows.slice(0, 22), tmp_path, fingerprint="two")] == [True, True, False]


def test_finished(rows: pa.Table, tmp_path: Path) -> None:
    target = tmp_path / "a.parquet"
    assert not is_finished_shard(target, "one")
    write_shard(rows.slice(0, 3), target, size=SIZE, metadata={"fingerprint": "one", "more": 1})
    assert is_finished_shard(target, "one")
    assert not is_finished_shard(target, "two")
    pq.write_table(pa.table({"a": [1]}), target)
    assert not is_finished_shard(target, "one")
    target.write_bytes(b"PAR1")
    assert not is_finished_shard(target, "one")


def test_a_failure_leaves_nothing(rows: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, size: int) -> bytes:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(shards, "stored", fail)
        with pytest.raises(MemoryError):
            build(rows, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(shards.pq, "write_table", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            build(rows, tmp_path)
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]


def test_all_bad(rows: pa.Table, tmp_path: Path) -> None:
    result = write_shard(rows.slice(11, 2), tmp_path / "a.parquet", size=SIZE)
    assert (result.rows, result.quarantined.num_rows) == (0, 2)
    assert len(open_shards(tmp_path / "a.parquet")) == 0


def test_progress_is_for_terminals(rows: pa.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(rows, tmp_path, progress=True)
    assert capsys.readouterr() == ("", "")


def test_shown_name() -> None:
    assert shown_name("/a/b/c.dcm") == "c.jpg"
    assert shown_name("c.JPG") == "c.JPG"
    assert shown_name("/a/1.2.840.10") == "1.2.840.10.jpg"


def test_datasets_read_them(rows: pa.Table, source: Path, tmp_path: Path) -> None:
    import datasets

    schema = stored_schema(image_schema(["edema"]))
    expected = datasets.Features.from_arrow_schema(schema.remove_metadata())
    expected["image"] = datasets.Image()
    assert features(schema) == expected.to_dict()

    files = [str(each.path) for each in build(rows, tmp_path)]
    held = json.loads(pq.read_schema(files[0]).metadata[b"huggingface"])
    assert held == json.loads(expected.arrow_schema.metadata[b"huggingface"])
    options = {"data_files": {"train": files}, "split": "train"}
    whole = datasets.load_dataset("parquet", **options, cache_dir=str(tmp_path / "cache"))
    stream = datasets.load_dataset("parquet", **options, streaming=True)
    assert whole.features == expected
    assert whole.num_rows == ROWS - len(BAD)
    for row in (whole[2], list(stream)[2]):
        assert isinstance(row["image"], Image.Image)
        assert (np.asarray(row["image"]) == decode_picture(stored(Path(_paths(source)[2]), SIZE))).all()
        assert (row["image_id"], row["edema"], row["prior_note_ids"]) == ("image2", -1, ["note0", "note1"])
        assert row["study_time"] == "2180-05-06T21:30:14.531000"
    assert from_stored(whole.with_format("arrow")[:])["study_time"][2].as_py() == TIME


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_pixels(rows: pa.Table, tmp_path: Path, compression: str | None) -> None:
    files = [each.path for each in build(rows, tmp_path)]
    held = pa.concat_tables([pq.read_table(file) for file in files])
    if compression:  # as another tool may have rewritten them
        for file in files:
            pq.write_table(pq.read_table(file), file, compression=compression, row_group_size=4)
    pixels = open_shards(tmp_path, "train")
    pixels.cache_megabytes = 0  # keeps the last group only
    assert len(pixels) == ROWS - len(BAD)
    assert pixels.table.equals(from_stored(held.drop_columns(["image"]).replace_schema_metadata(None)))
    pictures = [row["bytes"] for row in held.column("image").to_pylist()]
    for row in [*np.random.default_rng(0).permutation(len(pixels)), *range(len(pixels)), -1]:
        assert pixels.encoded(row) == pictures[row]
        assert (pixels[row] == np.asarray(Image.open(io.BytesIO(pictures[row])))).all()
    assert len(pixels._groups) == (1 if compression else 0)
    stacked = np.stack(pixels.batch([3, 0, 3], side=24))
    assert stacked.shape == (3, 24, 24)
    assert (stacked[0] == decode_picture(pictures[3], 24)).all()
    assert [each.shape for each in pixels.batch([1])] == [pixels[1].shape]
    assert pickle.loads(pickle.dumps(pixels)).encoded(5) == pictures[5]
    for outside in (len(pixels), -len(pixels) - 1):
        with pytest.raises(IndexError):
            pixels[outside]


def test_a_damaged_picture_is_named_by_its_row(tmp_path: Path) -> None:
    column = pa.array([{"bytes": b"no picture", "path": "a.jpg"}], shards._IMAGE_TYPE)
    pq.write_table(pa.table({"image": column}), tmp_path / "a.parquet")
    pixels = open_shards(tmp_path / "a.parquet")
    for read in (lambda: pixels[0], lambda: pixels.batch([0], side=24)):
        with refused(TableError, "a.parquet, row 1", "damaged"):
            read()


def test_pixels_are_shared_by_threads(rows: pa.Table, tmp_path: Path) -> None:
    files = [each.path for each in build(rows, tmp_path)]
    for compression in ("none", "zstd"):
        for file in files:
            pq.write_table(pq.read_table(file), file, compression=compression, row_group_size=4)
        pixels, expected = Pixels(files), list(map(Pixels(files).encoded, range(ROWS - len(BAD))))
        barrier = threading.Barrier(4)

        def read(seed: int, pixels: Pixels = pixels, barrier: threading.Barrier = barrier) -> list[tuple[int, bytes]]:
            barrier.wait()
            return [(row, pixels.encoded(row)) for row in np.random.default_rng(seed).permutation(len(pixels))]

        with ThreadPoolExecutor(4) as pool:
            for found in pool.map(read, range(4)):
                assert all(data == expected[row] for row, data in found)


def test_pictures_across_pages_and_equal_ones(tmp_path: Path) -> None:
    """A page holds about a megabyte; equal pictures must not be confused about their length or place."""
    rng = np.random.default_rng(0)
    pictures = [rng.bytes(int(length)) for length in rng.integers(1, 90_000, 150)]
    pictures[7] = pictures[8] = pictures[120] = b""
    pictures[30] = pictures[31] = pictures[20] + pictures[20]
    column = pa.array([{"bytes": each, "path": "a.jpg"} for each in pictures], shards._IMAGE_TYPE)
    ids = pa.array([str(number) for number in range(150)])
    shards._write(pa.table({"image": column, "image_id": ids}), tmp_path / "a.parquet", {}, shards.ROWS_PER_GROUP)
    pixels = open_shards(tmp_path / "a.parquet")
    for row in [*rng.permutation(150), *range(150)]:
        assert pixels.encoded(int(row)) == pictures[row]
    assert not pixels._groups


def test_sets_that_are_not_whole(rows: pa.Table, tmp_path: Path) -> None:
    with refused(TableError, str(tmp_path), got="train-00000-of-00012.parquet"):
        open_shards(tmp_path)
    files = [each.path for each in build(rows, tmp_path)]
    with refused(TableError, '"test"', got="train"):
        open_shards(tmp_path, "test")
    build(rows.slice(0, 15), tmp_path)
    with refused(TableError, '"train"', got="sets of 2 and 3"):
        open_shards(tmp_path)
    for file in tmp_path.glob("*-of-00002.parquet"):
        file.unlink()
    files[1].unlink()
    with refused(TableError, '"train"', got="2 files"):
        open_shards(tmp_path, "train")
    assert len(open_shards([files[0], files[2]])) > 0
    files[0].write_bytes(files[0].read_bytes()[:-9])
    with refused(TableError, "Parquet", files[0].name):
        open_shards([files[0]])
    pq.write_table(pa.table({"a": [1]}), files[0])
    with refused(TableError, '"image"', got="columns a"):
        open_shards(files[0])
    with refused(TableError, "none.parquet"):
        open_shards([tmp_path / "none.parquet"])
