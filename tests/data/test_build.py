"""Builds of the twin: what is written, resuming after a kill, damaged sources, read-only sources, refusals."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import datasets
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from cxrhf.data.build import build
from cxrhf.data.load import load_images, load_notes
from cxrhf.data.settings import BuildConfig
from cxrhf.data.shards import open_shards
from cxrhf.errors import CxrhfError, LeakageError, RunError, SourceError
from cxrhf.hub.dataset_tables import opened
from cxrhf.twin import write
from tests.real_data import published_tables, real_data
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A dirty twin with pictures, small enough to be built in a second."""
    folder = tmp_path_factory.mktemp("source")
    write("mimic", folder / "twin", n_patients=14, seed=3, dirty=True, size=64)
    return folder / "twin"


def config(source, out, **settings) -> BuildConfig:
    return BuildConfig("mimic_cxr_context", root=(str(source),), out=str(out), size=64, **settings)


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder with a hash of its bytes, hidden ones too."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def built(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "set"
    return build(config(source, folder))


def test_what_lies_in_the_folder(built, source):
    names = {name.split("/")[0] for name in contents(built.folder)}
    assert names == {
        "README.md", "build.json", "images", "notes", "quarantine.parquet", "attrition.parquet", "attrition.csv",
        "flow.svg",
    }  # fmt: skip
    record = json.loads((built.folder / "build.json").read_text())
    assert record["credentialed"] is True
    steps = {row["step"]: row["images"] for row in pl.read_parquet(built.folder / "attrition.parquet").to_dicts()}
    lost = steps["images with labels"] - steps["images with a prior note"]
    assert lost > 0
    assert any(each.startswith(f"{lost:,} of {steps['images with labels']:,} images have no") for each in built.notes)
    assert sum(record["splits"].values()) == load_images(built.folder).num_rows
    text = "".join(
        path.read_text() for path in built.folder.glob("*.*") if path.suffix in (".md", ".json", ".csv", ".svg")
    )
    assert str(source) not in text  # nothing says where the source lay
    defects = json.loads((source / "defects.json").read_text())
    spoilt = {each for kind in ("missing", "empty", "truncated", "not_an_image") for each in defects[kind]}
    quarantine = pl.read_parquet(built.folder / "quarantine.parquet")
    bad = quarantine.filter(~pl.col("kind").str.starts_with("note"))
    kept = set(load_images(built.folder).column("image_id").to_pylist())
    assert spoilt
    assert not kept & spoilt
    assert set(bad["id"]) <= spoilt
    assert all(path.endswith(".jpg") for path in bad["path"])
    # The card counts the labels of the images that are there.
    edema = load_images(built.folder, labels="raw").column("edema").to_pylist()
    counts = " | ".join(str(edema.count(label)) for label in (1, 0, -1, None))
    assert f"| Edema | {counts} |" in (built.folder / "README.md").read_text()


def test_it_loads_with_plain_datasets_and_streams(built, tmp_path):
    files = {"train": str(built.folder / "images" / "train-*.parquet")}
    loaded = datasets.load_dataset("parquet", data_files=files, cache_dir=str(tmp_path))["train"]
    assert loaded.num_rows == built.record["splits"]["train"]
    row = loaded[0]
    assert row["image"].size == (64, 64)
    assert row["image"].mode == "L"
    assert row["edema"] in (1, 0, -1, None)
    streamed = next(iter(datasets.load_dataset("parquet", data_files=files, streaming=True)["train"]))
    assert streamed["image_id"] == row["image_id"]
    assert streamed["image"].size == (64, 64)
    pixels = open_shards(built.folder / "images", split="train")
    assert np.array_equal(pixels[0], np.asarray(row["image"]))


def test_links_and_policy_on_loading(built):
    raw = load_images(built.folder, labels="raw")
    table = load_images(built.folder)
    assert set(table.column("edema").to_pylist()) <= {0, 1}
    assert {-1, None} & set(raw.column("edema").to_pylist())
    linked = {note for ids in table.column("prior_note_ids").to_pylist() for note in ids}
    notes = load_notes(built.folder)
    # A note that only a spoilt picture lists stays: its image may be mended.
    assert linked <= set(notes.column("note_id").to_pylist())


def test_built_again_it_says_so(built, source):
    before = contents(built.folder)
    again = build(config(source, built.folder))
    assert "--overwrite" in again.notes[0]
    assert contents(built.folder) == before
    with refused(RunError, str(built.folder), "settings", fix="--overwrite"):
        build(config(source, built.folder, seed=9))
    assert contents(built.folder) == before


def test_a_setting_that_is_no_more_does_not_undo_a_build(built, source, tmp_path):
    """Builds once recorded `resamples`, for a file that nothing read: they stay finished, and can be published."""
    folder = tmp_path / "old"
    shutil.copytree(built.folder, folder)
    record = json.loads((folder / "build.json").read_text())
    record["settings"]["resamples"] = 10
    (folder / "build.json").write_text(json.dumps(record))
    assert "--overwrite" in build(config(source, folder)).notes[0]
    assert opened(folder).config.seed == record["settings"]["seed"]


def test_another_folder_gives_the_same_bytes(built, source, tmp_path):
    moved = tmp_path / "elsewhere"
    shutil.copytree(source, moved)
    other = build(config(moved, tmp_path / "out", workers=1))
    ours, theirs = contents(built.folder), contents(other.folder)
    different = {name for name in ours if ours[name] != theirs.get(name)}
    assert different <= {"quarantine.parquet"}  # it names the paths of the source, and stays on this disk
    assert ours.keys() == theirs.keys()


def test_overwrite_replaces_only_a_build(source, tmp_path):
    (tmp_path / "mine.txt").write_text("keep me")
    with refused(RunError, str(tmp_path), "not empty", fix="--overwrite"):
        build(config(source, tmp_path))
    done = build(config(source, tmp_path, overwrite=True, no_pixels=True))
    assert (tmp_path / "mine.txt").read_text() == "keep me"
    assert load_images(done.folder).num_rows
    (tmp_path / "other" / "images").mkdir(parents=True)
    (tmp_path / "other" / "images" / "mine.jpg").write_text("keep me too")
    with refused(RunError, '"images"', fix="move it away"):
        build(config(source, tmp_path / "other", overwrite=True))
    assert (tmp_path / "other" / "images" / "mine.jpg").exists()


def test_overwrite_builds_anew_what_is_finished(source, tmp_path):
    first = build(config(source, tmp_path / "out", no_pixels=True))
    (tmp_path / "out" / "README.md").write_text("somebody's edit")
    again = build(config(source, tmp_path / "out", no_pixels=True, overwrite=True))
    assert "somebody" not in (tmp_path / "out" / "README.md").read_text()
    assert again.record == first.record


def test_a_split_file_that_is_none(source, tmp_path):
    for path in (tmp_path, tmp_path / "nope.csv"):
        with refused(SourceError, "--split-file", str(path)):
            build(config(source, tmp_path / "out", split_file=str(path)))


def test_never_around_the_source(source, tmp_path):
    """A root called like something that a build replaces must not be removed with it."""
    shutil.copytree(source, tmp_path / "notes", ignore=shutil.ignore_patterns("files"))
    before = contents(tmp_path)
    for overwrite in (False, True):
        with refused(RunError, f"{tmp_path}/notes", fix="--out"):
            build(config(tmp_path / "notes", tmp_path, no_pixels=True, overwrite=overwrite))
    assert contents(tmp_path) == before


def test_a_folder_called_source_is_nobodys_but_its_owners(tmp_path):
    """The twin goes to OUT/source: what lies there already is kept, whatever was said."""
    mine = tmp_path / "source" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("keep me")
    small = {"out": str(tmp_path), "n_patients": 8, "no_pixels": True}
    for overwrite in (False, True):
        with refused(RunError, f"{tmp_path}/source", fix="--out"):
            build(BuildConfig("synthetic", **small, overwrite=overwrite))
    assert contents(tmp_path) == {"source/mine.txt": hashlib.sha256(b"keep me").hexdigest()}


def test_of_a_twin_the_films_that_are_kept_are_drawn_and_a_stop_loses_none(tmp_path, monkeypatch):
    """Half of the images have no prior note; those of the others are what a whole twin holds, byte for byte."""
    from cxrhf.twin import films

    write("mimic", tmp_path / "whole", n_patients=8, seed=0, size=64)
    draw, drawn = films.save, []

    def stopped(pixels, path):
        if len(drawn) == 5:
            raise KeyboardInterrupt
        draw(pixels, path)
        drawn.append(path)

    small = BuildConfig("synthetic", out=str(tmp_path / "twin"), n_patients=8, size=64)
    monkeypatch.setattr(films, "save", stopped)
    with pytest.raises(KeyboardInterrupt):
        build(small)
    times = {path: path.stat().st_mtime_ns for path in drawn}
    monkeypatch.setattr(films, "save", draw)
    done = build(small)
    assert not done.record["quarantined"]
    kept = set(load_images(done.folder)["image_id"].to_pylist())
    there = {path.stem: path for path in (tmp_path / "twin" / "source").rglob("*.jpg")}
    whole = {path.stem: path for path in (tmp_path / "whole").rglob("*.jpg")}
    assert set(there) == kept < set(whole)
    assert all(path.read_bytes() == whole[name].read_bytes() for name, path in there.items())
    assert {path: path.stat().st_mtime_ns for path in drawn} == times  # what was drawn is not drawn again
    assert "python -m cxrhf.twin mimic FOLDER --patients 8" in (done.folder / "source/README.md").read_text()


@pytest.mark.slow
def test_other_settings_do_not_touch_a_finished_twin(tmp_path):
    small = {"out": str(tmp_path / "twin"), "n_patients": 8, "no_pixels": True}
    build(BuildConfig("synthetic", **small))
    before = contents(tmp_path)
    with refused(RunError, "twin/source", fix="--overwrite"):
        build(BuildConfig("synthetic", **small, seed=1))
    assert contents(tmp_path) == before
    assert build(BuildConfig("synthetic", **small, seed=1, overwrite=True)).record["settings"]["seed"] == 1
    assert json.loads((tmp_path / "twin" / "source" / "made.json").read_text())["seed"] == 1


@pytest.mark.slow
def test_no_shard_is_empty(source, tmp_path, monkeypatch):
    """A download that was cut off leaves whole shards without a picture: datasets cannot read an empty one."""
    monkeypatch.setattr("cxrhf.data.build.ROWS_PER_SHARD", 4)
    copy = tmp_path / "part"
    shutil.copytree(source, copy)
    pictures = sorted(copy.rglob("*.jpg"))
    for path in pictures[: 2 * len(pictures) // 3]:
        path.unlink()
    done = build(config(copy, tmp_path / "out", split="none"))
    files = sorted((done.folder / "images").iterdir())
    assert all(pq.read_metadata(path).num_rows for path in files)
    assert [path.name for path in files] == [f"train-{i:05d}-of-{len(files):05d}.parquet" for i in range(len(files))]
    rows = datasets.load_dataset(
        "parquet", data_files=str(done.folder / "images" / "*.parquet"), cache_dir=str(tmp_path)
    )
    assert rows["train"].num_rows == done.record["splits"]["train"] == len(open_shards(done.folder / "images"))
    for path in pictures:
        path.unlink(missing_ok=True)
    with refused(SourceError, "none of the", "(missing)", fix="--no-pixels"):
        build(config(copy, tmp_path / "nothing", split="none"))
    assert not (tmp_path / "nothing" / "build.json").exists()
    assert (tmp_path / "nothing" / "quarantine.parquet").exists()
    assert build(config(copy, tmp_path / "nothing", split="none", no_pixels=True)).record["splits"]


def test_reports_that_come_later_are_noticed(source, tmp_path):
    copy = tmp_path / "raw"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("mimic-cxr", "*.jpg"))
    build(config(copy, tmp_path / "out", no_pixels=True))
    shutil.copytree(source / "mimic-cxr", copy / "mimic-cxr")
    with refused(RunError, "sources", fix="--overwrite"):
        build(config(copy, tmp_path / "out", no_pixels=True))
    done = build(config(copy, tmp_path / "out", no_pixels=True, overwrite=True))
    assert load_images(done.folder).column("findings").null_count == 0


def test_a_boilerplate_report_is_no_leak(source, tmp_path):
    """A note quotes a first study that has no prior note itself; a later study says the same words."""
    plain = build(config(source, tmp_path / "plain", no_pixels=True, keep_without_notes=True))
    rows = load_images(plain.folder).to_pylist()
    by_patient: dict[str, list[dict]] = {}
    for row in sorted((row for row in rows if row["study_time"]), key=lambda row: row["study_time"]):
        by_patient.setdefault(row["patient_id"], []).append(row)
    early, late, note = next(
        (first, last, last["prior_note_ids"][-1])
        for first, *_, last in (each for each in by_patient.values() if len(each) > 1)
        if not first["prior_note_ids"] and last["prior_note_ids"] and first["study_id"] != last["study_id"]
    )
    said = "Lungs are clear. The heart is of normal size. No effusion, no pneumothorax, bones unremarkable."

    def paste(text: str) -> str:
        opened = text.index('"', text.index(f"{note},")) + 1
        return text[:opened] + said + " " + text[opened:]

    copy = damaged(source, tmp_path, "discharge.csv.gz", rewritten(paste))
    shutil.copytree(source / "mimic-cxr", copy / "mimic-cxr", dirs_exist_ok=True)
    for row in (early, late):
        path = next(copy.rglob(f"s{row['study_id']}.txt"))
        path.write_text(f" FINAL REPORT\n FINDINGS: {said}\n")
    done = build(config(copy, tmp_path / "out", no_pixels=True))
    left = {row["image_id"]: row["prior_note_ids"] for row in load_images(done.folder).to_pylist()}
    assert note in left[late["image_id"]]
    assert early["image_id"] not in left


def test_never_into_the_source(source):
    before = contents(source)
    for out in (source, source / "out"):
        with refused(RunError, f"source folder {source}", fix="--out"):
            build(config(source, out))
    assert contents(source) == before


def test_a_read_only_source(source, tmp_path):
    copy = tmp_path / "source"
    shutil.copytree(source, copy)
    before = contents(copy)
    paths = [copy, *copy.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        build(config(copy, tmp_path / "out"))
    finally:
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert contents(copy) == before


def command(source: Path, out: Path) -> list[str]:
    words = ["build", "mimic_cxr_context", "--root", str(source), "--out", str(out), "--size", "48"]
    return [sys.executable, "-m", "cxrhf", *words]


def begun(child: subprocess.Popen, out: Path) -> float:
    """Wait until a build has begun to write (imports are most of a short run) and say when that was."""
    while not (out / ".build" / "begun.json").exists() and child.poll() is None:
        time.sleep(0.002)
    return time.monotonic()


@pytest.mark.slow
def test_killed_at_random_it_ends_with_the_same_bytes(source, tmp_path):
    """kill -9 at five random moments of the work, each time the same command again, until it is finished."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    quiet = {"env": env, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    child = subprocess.Popen(command(source, tmp_path / "whole"), **quiet)
    start = begun(child, tmp_path / "whole")
    assert child.wait() == 0
    seconds = time.monotonic() - start
    want = contents(tmp_path / "whole")
    rng = random.Random(0)
    out, kills = tmp_path / "killed", 0
    for _ in range(20):
        child = subprocess.Popen(command(source, out), **quiet)
        begun(child, out)
        time.sleep(rng.uniform(0, 0.9) * seconds)
        child.send_signal(signal.SIGKILL)
        if child.wait() == -signal.SIGKILL:
            kills += 1
        else:  # it was faster than the kill: see what it made, and begin anew
            assert contents(out) == want
            shutil.rmtree(out)
        if kills == 5:
            break
    assert kills == 5
    done = subprocess.run(command(source, out), env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert contents(out) == want


@pytest.mark.parametrize("step", ["staged", "images", "finish", "record"])
def test_killed_at_each_step(source, tmp_path, step, monkeypatch, built):
    """The same with the kill placed: after the notes, between shards, before the last tables, before clearing up."""
    from cxrhf.data import build as module
    from cxrhf.data import shards

    class Killed(BaseException):
        pass

    def stop(*args, **kwargs):
        raise Killed

    with monkeypatch.context() as patch:
        if step == "staged":
            patch.setattr("cxrhf.data.prepare.link", stop)
        elif step == "images":
            patch.setattr(shards, "write_shard", stop)
        elif step == "finish":
            patch.setattr(module, "flow", stop)
        else:
            patch.setattr(module, "tidy", stop)
        with pytest.raises(Killed):
            build(config(source, tmp_path / "out"))
    (tmp_path / "out" / ".README.md.123.tmp").write_text("half a file")
    done = build(config(source, tmp_path / "out"))
    assert contents(done.folder) == contents(built.folder)


def damaged(source: Path, tmp_path: Path, name: str, change) -> Path:
    copy = tmp_path / "damaged"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("files"))
    path = next(copy.rglob(name))
    path.write_bytes(change(path.read_bytes()))
    return copy


def rewritten(change):
    return lambda data: gzip.compress(change(gzip.decompress(data).decode()).encode(), mtime=0)


@pytest.mark.parametrize(
    ("name", "change", "facts"),
    [
        ("patients.csv.gz", rewritten(lambda text: text + text.splitlines()[1] + "\n"), ["several rows"]),
        ("*-split.csv.gz", rewritten(lambda text: text + text.splitlines()[1] + "\n"), ["several rows"]),
        ("*-split.csv.gz", rewritten(lambda text: text.replace("train", "holdout", 1)), ['"holdout"', "validate"]),
        ("discharge.csv.gz", lambda data: data[: len(data) // 2], ["damaged"]),
        ("discharge.csv.gz", rewritten(lambda text: text.replace("charttime", "time", 1)), ['a column "charttime"']),
        ("discharge.csv.gz", rewritten(lambda text: text[: text.rindex('"')] + "\n"), ["quotation mark"]),
        ("admissions.csv.gz", rewritten(lambda text: text + "1,2,3\n"), ["3", "cells, as in the header"]),
        ("*-metadata.csv.gz", lambda data: data[:-9], ["damaged"]),
        ("*-chexpert.csv.gz", rewritten(lambda text: text.replace("Edema", "Oedem", 1)), ['a column "Edema"']),
        ("patients.csv.gz", lambda data: b"", []),
    ],
)  # fmt: skip
def test_a_damaged_table_is_an_error(source, tmp_path, name, change, facts):
    copy = damaged(source, tmp_path, name, change)
    with refused(SourceError, name.strip("*"), *facts):
        build(config(copy, tmp_path / "out", no_pixels=True))
    assert not (tmp_path / "out" / "build.json").exists()


def test_a_planted_leak_stops_the_build(source, tmp_path):
    """The report of a later study is pasted into a note that is known before it."""
    plain = build(config(source, tmp_path / "plain", no_pixels=True))
    table = load_images(plain.folder).to_pylist()
    row = next(row for row in table if row["prior_note_ids"] and row["findings"] and len(row["findings"]) >= 60)
    note, secret = row["prior_note_ids"][0], row["findings"]

    def paste(text: str) -> str:
        at = text.index(f"{note},")
        opened = text.index('"', at) + 1
        return text[:opened] + secret.replace('"', '""') + " " + text[opened:]

    copy = damaged(source, tmp_path, "discharge.csv.gz", rewritten(paste))
    shutil.copytree(source / "mimic-cxr", copy / "mimic-cxr", dirs_exist_ok=True)
    with pytest.raises(LeakageError, match="own report") as caught:
        build(config(copy, tmp_path / "out", no_pixels=True))
    assert caught.value.counts["report"] >= 1
    assert note not in str(caught.value)
    ids = pl.read_csv(tmp_path / "out" / "leakage.csv")
    assert (row["image_id"], note) in ids.select("image_id", "note_id").rows()
    assert not (tmp_path / "out" / "build.json").exists()
    dropped = build(config(copy, tmp_path / "dropped", no_pixels=True, own_report="drop"))
    left = {each["image_id"]: each["prior_note_ids"] for each in load_images(dropped.folder).to_pylist()}
    assert note not in left.get(row["image_id"], [])


def test_a_patient_in_two_splits_stops_the_build(source, tmp_path):
    """An official split by image, as some copies have it, deals a patient's images into both."""
    table = load_images(build(config(source, tmp_path / "plain", no_pixels=True)).folder)
    rows = list(zip(table.column("image_id").to_pylist(), table.column("patient_id").to_pylist(), strict=True))
    patient = max({each for _, each in rows}, key=[each for _, each in rows].count)
    his = [image for image, each in rows if each == patient]
    lines = [f"{image},{'test' if image == his[0] else 'train'}" for image, _ in rows]
    (tmp_path / "split.csv").write_text("\n".join(["image_id,split", *lines]) + "\n")
    with pytest.raises(LeakageError, match="patient in several splits") as caught:
        build(config(source, tmp_path / "out", no_pixels=True, split_file=str(tmp_path / "split.csv")))
    assert caught.value.counts == {"split": 1}
    assert pl.read_csv(tmp_path / "out" / "leakage.csv", infer_schema=False)["patient_id"].to_list() == [patient]


def test_without_the_packages_nothing_is_called_damaged(source, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refused(CxrhfError, "PIL, pydicom", fix="pip install 'cxrhf[data]'"):
        build(config(source, tmp_path / "out"))


def test_notes_alone_and_images_alone(source, tmp_path):
    notes = build(config(source, tmp_path / "notes", configuration="notes"))
    assert not (notes.folder / "images").exists()
    every = {path.name: pq.read_metadata(path).num_rows for path in (notes.folder / "notes").iterdir()}
    assert sum(every.values()) == notes.record["n_notes"] > 0
    images = build(config(source, tmp_path / "images", configuration="images", no_pixels=True))
    assert not (images.folder / "notes").exists()
    linked = build(config(source, tmp_path / "linked", no_pixels=True))
    assert load_images(images.folder).num_rows > load_images(linked.folder).num_rows


@pytest.mark.parametrize(
    "settings",
    [
        {"views": "frontal", "one_per_study": True},
        {"images_per_patient": "positive_first", "finding": "edema", "female": 0.5},
        {"images_per_patient": "stitched", "labels": "masked", "split": "official"},
        {"split": "none", "sample_size": 7},
    ],
)
def test_choices_reach_the_rows(source, tmp_path, settings):
    done = build(config(source, tmp_path / "out", no_pixels=True, configuration="images", **settings))
    table = pl.DataFrame(load_images(done.folder, labels="raw"))
    if settings.get("views") == "frontal":
        assert set(table["view"]) <= {"PA", "AP"}
        assert table["study_id"].is_unique().all()
    if "images_per_patient" in settings:
        assert table["patient_id"].is_unique().all()
    if "sample_size" in settings:
        assert table.height == 7
    assert json.loads((done.folder / "build.json").read_text())["labels"] == settings.get("labels", "positive_only")


@pytest.mark.slow
def test_real_nih_and_covid(tmp_path):
    """The open data that lies beside the project: every picture of it is readable."""
    names = sorted(path.stem for path in real_data("nih/images").glob("*.jpg"))
    rows = [f"{name},{'test' if int(name[:8]) % 4 == 0 else 'train'}" for name in names]
    (tmp_path / "split.csv").write_text("\n".join(["image_id,split", *rows, "00000001_000,train"]) + "\n")
    roots = (str(published_tables()), str(real_data("nih")))
    nih = BuildConfig(
        "nih_chestxray14", root=roots, out=str(tmp_path / "nih"), split_file=str(tmp_path / "split.csv"), size=128
    )
    done = build(nih)
    assert sum(done.record["splits"].values()) == 621
    lost = pl.read_parquet(done.folder / "quarantine.parquet")
    assert lost.select("id", "kind").rows() == [("00000001_000", "missing")]
    assert lost["path"][0].endswith("00000001_000.png")
    covid = build(
        BuildConfig("covid_chestxray", root=(str(real_data("covid")),), out=str(tmp_path / "covid"), size=128)
    )
    assert covid.record["quarantined"] == 0
    assert sum(covid.record["splits"].values()) == 57
    assert {name: covid.record["checked"][name] for name in ("patients", "pairs")} == {"patients": 32, "pairs": 100}
    assert covid.record["checked"]["reports"] > 0


def test_one_at_a_time_and_the_next_command_cleans_up(tmp_path):
    """Two builds with other seeds at once made a folder that failed for good; a killed one left its drafts."""
    out = tmp_path / "twin"
    draft = out / ".build" / "staged" / ".index.parquet.1.tmp"
    hold = (
        "import sys, time; from pathlib import Path; from cxrhf.data import build as module\n"
        "from cxrhf.data.settings import BuildConfig\n"
        "def wait(*args): print('held', flush=True); time.sleep(60)\n"
        "module.draw_films = wait\n"
        "module.build(BuildConfig('synthetic', out=sys.argv[1], n_patients=8, seed=1, no_pixels=True))\n"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", hold, str(out)], env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE
    )
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        draft.write_text("a note")
        for overwrite in (False, True):
            with refused(RunError, f"cxrhf build, process {first.pid}"):
                build(BuildConfig("synthetic", out=str(out), n_patients=8, seed=2, no_pixels=True, overwrite=overwrite))
        assert draft.exists()  # it may be the other's
    finally:
        first.kill()
        first.wait()
    with refused(RunError, "twin/source", fix="--overwrite"):
        build(BuildConfig("synthetic", out=str(out), n_patients=8, seed=2, no_pixels=True))
    assert not draft.exists()
    done = build(BuildConfig("synthetic", out=str(out), n_patients=8, seed=2, no_pixels=True, overwrite=True))
    assert done.record["settings"]["seed"] == 2
    assert not list(tmp_path.glob(".*")) + list(out.glob(".*"))


@pytest.mark.slow
def test_builds_at_once_leave_a_whole_one(tmp_path):
    """Four commands with other seeds, all at the same moment: whoever comes first builds, the others are refused."""
    words = [sys.executable, "-m", "cxrhf", "build", "synthetic", "--out", str(tmp_path / "twin"), "--n-patients", "8"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    every = [
        subprocess.Popen([*words, "--no-pixels", "--seed", str(seed)], env=env, stderr=subprocess.PIPE, text=True)
        for seed in range(4)
    ]
    said = [child.communicate()[1] for child in every]
    codes = [child.returncode for child in every]
    assert set(codes) == {0, 2}
    assert all(line.count("\n") == 1 for line, code in zip(said, codes, strict=True) if code)
    seed = json.loads((tmp_path / "twin" / "build.json").read_text())["settings"]["seed"]
    assert codes[seed] == 0
    assert "finished" in build(BuildConfig("synthetic", out=str(tmp_path / "twin"), n_patients=8, no_pixels=True,
                                           seed=seed)).notes[0]  # fmt: skip


def test_a_kill_while_an_old_build_is_removed(source, tmp_path, monkeypatch):
    """Half removed it is no finished build any more, and the same command makes it anew."""
    from cxrhf.data import folder as module

    build(config(source, tmp_path / "out", no_pixels=True))

    def stop(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "remove", stop)
        with pytest.raises(KeyboardInterrupt):
            build(config(source, tmp_path / "out", no_pixels=True, seed=1, overwrite=True))
    with refused(RunError, "build.json", got="unfinished"):
        load_images(tmp_path / "out")
    (tmp_path / "out" / "attributes.parquet").write_text("of the old one")
    done = build(config(source, tmp_path / "out", no_pixels=True, seed=1))
    assert done.record["settings"]["seed"] == 1
    assert not (tmp_path / "out" / "attributes.parquet").exists()


def test_links_are_removed_and_what_they_point_to_stays(source, tmp_path):
    out = tmp_path / "out"
    build(config(source, out, no_pixels=True))
    for name in ("images", "notes"):
        (out / name).rename(tmp_path / name)
        (out / name).symlink_to(tmp_path / name)
    before = contents(tmp_path / "images") | contents(tmp_path / "notes")
    assert load_notes(out).num_rows
    build(config(source, out, no_pixels=True, seed=1, overwrite=True))
    assert not (out / "images").is_symlink()
    assert not (out / "notes").is_symlink()
    assert contents(tmp_path / "images") | contents(tmp_path / "notes") == before


_WORKER = """
import os, sys, time; from cxrhf.tables.folders import end_with_parent
end_with_parent(int(sys.argv[1])); print("works", flush=True); time.sleep(60)
"""
_STARTED = """
import os, subprocess, sys, time; from cxrhf.tables.folders import end_with_parent
end_with_parent(os.getpid()); subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())]); time.sleep(60)
"""
_FORKED = """
import os, time; from cxrhf.tables.folders import forks_end_with_me
with forks_end_with_me():
    if not os.fork():
        print("works", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("parent", [_STARTED, _FORKED])
def test_a_worker_ends_with_its_parent(parent):
    """After kill -9 they waited for ever, with the notes they were writing and the locks of the parent."""
    child = subprocess.Popen(
        [sys.executable, "-c", parent, _WORKER], env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"works\n"
    child.kill()
    child.wait()
    assert child.stdout.read() == b""  # returns when the worker, which holds the other end, has ended


def test_the_source_is_walked_once(source, tmp_path, monkeypatch):
    """Every file that was looked for meant a walk through all folders, minutes each on a network disk."""
    from cxrhf.data import doctor, layout

    walk, roots = layout._walk, []

    def counted(folder, shown, depth):
        if folder == source.resolve():
            roots.append(folder)
        return walk(folder, shown, depth)

    monkeypatch.setattr(layout, "_walk", counted)
    build(config(source, tmp_path / "out", no_pixels=True))
    assert len(roots) == 1
    doctor.examine("mimic_cxr_context", [str(source)])
    assert len(roots) == 2
