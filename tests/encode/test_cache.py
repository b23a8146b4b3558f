"""The cache: hits, kills, other versions, damage, disks that are full, and what must never be in it."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cxrhf.encode import cache as cache_module
from cxrhf.encode import encode_texts
from cxrhf.encode import notes as notes_module
from cxrhf.encode.cache import cache_folder
from cxrhf.encode.settings import EncodeConfig
from cxrhf.errors import CxrhfWarning
from tests.encode.tiny import notes

ROOT = Path(__file__).resolve().parents[2]
TEXTS = notes(12, longest=20)


def folder_of(cache: Path) -> Path:
    (only,) = cache.iterdir()
    return only


def test_what_is_there_is_not_encoded_again(
    bert: str, own_cache: Path, passes: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = EncodeConfig(bert, overlap=10)
    first = encode_texts(TEXTS, settings)
    more = [*TEXTS[6:], "something new"]
    passes.clear()
    second = encode_texts(more, settings)
    assert sum(rows for rows, _ in passes) == 1
    np.testing.assert_array_equal(second[:6], first[6:])

    def never(encoder: Any) -> Any:
        raise AssertionError("the weights were loaded")

    monkeypatch.setattr(notes_module, "load_model", never)
    np.testing.assert_array_equal(encode_texts(more[::-1], settings), second[::-1])
    other = EncodeConfig(bert, overlap=10, device="cpu", batch_tokens=999)  # where and how fast: not in the key
    np.testing.assert_array_equal(encode_texts(TEXTS, other), first)
    for changed in ({"overlap": 11}, {"pooling": "paper"}, {"dtype": "bfloat16"}, {"max_length": 40}):
        with pytest.raises(AssertionError, match="weights were loaded"):
            encode_texts(TEXTS, EncodeConfig(bert, **{"overlap": 10, **changed}))
    assert len(list(own_cache.iterdir())) == 5


def test_nothing_of_the_notes_is_in_the_folder(bert: str, own_cache: Path) -> None:
    secret = "Mrs Zyxwvut has a pleural effusion"
    encode_texts([secret, *TEXTS], EncodeConfig(bert))
    for path in own_cache.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or path.is_file()
        if path.is_file():
            data = path.read_bytes().lower()
            assert not any(word in data for word in (b"zyxwvut", b"effusion", b"pleural", str(ROOT).encode().lower()))
    assert stat.S_IMODE(own_cache.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder_of(own_cache).stat().st_mode) == 0o700
    (shard,) = folder_of(own_cache).glob("*.parquet")
    assert pq.read_schema(shard).names == ["digest", "vector"]


def test_a_folder_that_was_there_keeps_its_permissions(bert: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    mine.chmod(0o755)
    encode_texts(TEXTS, EncodeConfig(bert), cache=mine)
    assert stat.S_IMODE(mine.stat().st_mode) == 0o755
    assert stat.S_IMODE(folder_of(mine).stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 0}, "has format 0, not 1"),
        ({"key": {"pooling": "other"}}, "different settings"),
        (None, "has no readable manifest.json"),
    ],
)
def test_a_cache_of_another_version_is_left_aside(
    bert: str, own_cache: Path, passes: list[Any], change: dict[str, Any] | None, said: str
) -> None:
    settings = EncodeConfig(bert)
    first = encode_texts(TEXTS, settings)
    folder = folder_of(own_cache)
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | change) if change else "not JSON")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    passes.clear()
    with pytest.warns(CxrhfWarning, match=said):
        again = encode_texts(TEXTS, settings)
    assert passes
    np.testing.assert_array_equal(again, first)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    passes.clear()
    np.testing.assert_array_equal(encode_texts(TEXTS, settings), first)  # from the new folder, and not said again
    assert not passes
    assert sorted(path.name for path in own_cache.iterdir()) == [folder.name, f"{folder.name}-2"]


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "other columns", "not finite"])
def test_a_damaged_shard_is_named_and_its_notes_encoded_again(
    bert: str, own_cache: Path, passes: list[Any], damage: str
) -> None:
    settings = EncodeConfig(bert)
    first = encode_texts(TEXTS[:6], settings)
    (shard,) = folder_of(own_cache).glob("*.parquet")
    encode_texts(TEXTS[6:], settings)
    data = bytearray(shard.read_bytes())
    if damage == "cut":
        data = data[: len(data) // 2]
    elif damage == "flipped":
        data[len(data) // 2] ^= 0x10  # inside the vectors
    elif damage == "emptied":
        data = bytearray()
    shard.write_bytes(bytes(data))
    if damage == "other columns":
        pq.write_table(pq.read_table(shard).drop_columns(["vector"]), shard)
    elif damage == "not finite":
        table = pq.read_table(shard)
        values = pa.FixedSizeListArray.from_arrays(pa.array([math.nan] * 6 * 32, pa.float32()), 32)
        pq.write_table(pa.table([table["digest"], values], schema=table.schema), shard)
    passes.clear()
    with pytest.warns(CxrhfWarning, match=f"{shard.name} is damaged"):
        again = encode_texts(TEXTS, settings)
    assert sum(rows for rows, _ in passes) == 6
    np.testing.assert_allclose(again[:6], first, atol=1e-6)
    assert shard.exists()


def test_a_cache_that_cannot_be_written_does_not_stop_the_work(
    bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = EncodeConfig(bert)
    expected = encode_texts(TEXTS, settings, cache="off")
    file = tmp_path / "a file"
    file.touch()
    with pytest.warns(CxrhfWarning, match=r"cannot be written to.*CXRHF_CACHE=off.*without a cache"):
        np.testing.assert_array_equal(encode_texts(TEXTS, settings, cache=file), expected)

    def full(target: Path, write: Any) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache_module, "write_atomically", full)
    with pytest.warns(CxrhfWarning, match=r"No space left on device.*continues"):
        np.testing.assert_array_equal(encode_texts(TEXTS, settings), expected)


def test_a_read_only_cache_is_read(
    bert: str, own_cache: Path, monkeypatch: pytest.MonkeyPatch, passes: list[Any]
) -> None:
    settings = EncodeConfig(bert)
    encode_texts(TEXTS[:6], settings)
    passes.clear()
    monkeypatch.setattr(cache_module.os, "access", lambda path, mode: False)
    with pytest.warns(CxrhfWarning, match="read-only"):
        encode_texts(TEXTS, settings)
    assert sum(rows for rows, _ in passes) == 6
    assert len(list(folder_of(own_cache).glob("*.parquet"))) == 1


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder("off") is None
    assert cache_folder(tmp_path) == tmp_path
    monkeypatch.setenv("CXRHF_CACHE", "off")
    assert cache_folder(None) is None
    monkeypatch.delenv("CXRHF_CACHE")
    assert cache_folder(None) == Path.home() / ".cache/cxrhf/notes"


def test_many_writers_at_once(tmp_path: Path) -> None:
    """Eight open a cache that is not there, write and read; one folder comes of it, and every vector is there."""
    ready = threading.Barrier(8)

    def work(number: int) -> Path:
        ready.wait()
        store = cache_module.open_store(tmp_path / "a" / "notes", {"model_hash": "x"}, {}, 4)
        for part in range(5):
            digests = [bytes([number, part, at]) + bytes(13) for at in range(3)]
            store.add(digests, np.full((3, 4), number + part / 10, dtype=np.float32))
            store.flush()
            store.refresh()
        return store.folder

    with ThreadPoolExecutor(8) as pool, warnings.catch_warnings():
        warnings.simplefilter("error")
        (folder,) = set(pool.map(work, range(8)))
    assert [path.name for path in (tmp_path / "a" / "notes").iterdir()] == [folder.name]
    assert stat.S_IMODE((tmp_path / "a" / "notes").stat().st_mode) == 0o700
    store = cache_module.Store(folder, 4)
    store.refresh()
    digests = [bytes([number, part, 1]) + bytes(13) for number in range(8) for part in range(5)]
    found = np.zeros((40, 4), dtype=np.float32)
    assert store.load(digests, found).all()
    np.testing.assert_allclose(found[:, 0], [number + part / 10 for number in range(8) for part in range(5)])
    assert not any(path.name.endswith(".tmp") for path in folder.iterdir())


SLOW_JOB = """
import sys, time
from cxrhf.encode.settings import EncodeConfig
from cxrhf.encode import cache, encode_texts
from cxrhf.encode import notes as module
from tests.encode.tiny import notes
cache.SHARD_SECONDS = 0.0
forward = module.forward
def slowly(*given):
    time.sleep(0.1)
    return forward(*given)
module.forward = slowly
encode_texts(notes(60, longest=20), EncodeConfig(sys.argv[1], overlap=10, batch_tokens=64))
"""


@pytest.mark.slow
def test_a_killed_job_goes_on_where_it_was(bert: str, own_cache: Path, passes: list[Any]) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    job = subprocess.Popen([sys.executable, "-c", SLOW_JOB, bert], env=env, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while job.poll() is None and len(list(own_cache.rglob("*.parquet"))) < 3 and time.monotonic() < end:
        time.sleep(0.02)
    job.send_signal(signal.SIGKILL)
    said = job.communicate()[1]
    assert job.returncode == -signal.SIGKILL, said
    kept = sum(pq.read_metadata(path).num_rows for path in own_cache.rglob("*.parquet"))
    assert 0 < kept < 60
    texts = notes(60, longest=20)
    settings = EncodeConfig(bert, overlap=10)
    found = encode_texts(texts, settings)
    assert sum(rows for rows, _ in passes) >= 60 - kept
    fresh = sum(pq.read_metadata(path).num_rows for path in own_cache.rglob("*.parquet"))
    assert fresh == 60  # none twice
    np.testing.assert_allclose(found, encode_texts(texts, settings, cache="off"), atol=1e-5)


def test_drafts_of_killed_processes_go(bert: str, own_cache: Path) -> None:
    encode_texts(["no effusion"], EncodeConfig(bert))
    (folder,) = (each for each in own_cache.iterdir() if each.is_dir())
    drafts = [folder / ".old.parquet.1.tmp", folder / ".new.parquet.2.tmp", own_cache / f".{folder.name}.0a" / "x"]
    for each in drafts:
        each.parent.mkdir(exist_ok=True)
        each.write_bytes(b"")
    for each in (drafts[0], drafts[2].parent):
        os.utime(each, (time.time() - 7200,) * 2)
    encode_texts(["no effusion"], EncodeConfig(bert))
    assert [each.exists() for each in drafts] == [False, True, False]
