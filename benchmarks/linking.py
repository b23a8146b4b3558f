"""Linking images with prior notes at full MIMIC size: time against decompressing the notes, memory, the join itself.

The twin writes MIMIC's tables at full size (no pixels; some minutes and 2 GB of disk, removed afterwards). The peer of
the join is the pipeline that CONTEXT describes, in pandas: admissions x labels, x metadata, x notes, then the times.
Set CXRHF_BENCH_SHARE=0.1 for a tenth of the size.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.rows import Row, row

SHARE = float(os.environ.get("CXRHF_BENCH_SHARE", "1"))
JOIN_SHARE = 0.02  # where the published join still fits into memory
LIMIT = 1.5  # GB

# Linux keeps the peak since it was last reset, so that reading the tables cannot hide what the join takes.
_WATCH = """
import sys, time
from pathlib import Path

def memory(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024

def measured(join):
    Path("/proc/self/clear_refs").write_text("5")
    before = memory("VmRSS")
    start = time.perf_counter()
    rows = join()
    print(time.perf_counter() - start, memory("VmHWM") - before, rows)
"""
_OURS = (
    _WATCH
    + """
import polars as pl
from cxrhf.data.settings import BuildConfig
from cxrhf.data import mimic
from cxrhf.data.attrition import Steps
from cxrhf.data.notes import link
from cxrhf.data.notes import stage_notes
read = mimic.read(BuildConfig("mimic_cxr_context", root=(sys.argv[1],)), Steps("mimic_cxr_context"), reports=False)
images = read.source.images
latest = images.group_by("patient_id").agg(pl.col("study_time").max().alias("latest"))
index = stage_notes(read.notes, read.admissions, latest, Path(sys.argv[2])).index
link(images.head(10), index.head(10))

def join():
    lists = link(images, index)
    return int((lists.list.len() > 0).sum())

measured(join)
"""
)
_PANDAS = (
    _WATCH
    + """
import pandas as pd
root = Path(sys.argv[1])
def table(pattern, **options):
    return pd.read_csv(next(root.rglob(pattern)), **options)

admissions = table("admissions.csv.gz", usecols=["subject_id", "hadm_id", "admittime", "dischtime"])
labels = table("*-chexpert.csv.gz")
metadata = table("*-metadata.csv.gz", usecols=["dicom_id", "subject_id", "study_id", "StudyDate", "StudyTime"])
notes = table("discharge.csv.gz", usecols=["note_id", "subject_id", "hadm_id", "charttime", "text"])
clock = pd.to_numeric(metadata["StudyTime"], errors="coerce").map("{:013.6f}".format)
moment = metadata["StudyDate"].astype(str) + " " + clock
metadata["study_time"] = pd.to_datetime(moment, format="%Y%m%d %H%M%S.%f", errors="coerce")
for frame, column in ((admissions, "dischtime"), (notes, "charttime")):
    frame[column] = pd.to_datetime(frame[column], errors="coerce")

def join():
    joined = admissions.merge(labels, on="subject_id").merge(metadata, on=["subject_id", "study_id"])
    joined = joined.merge(notes, on=["subject_id", "hadm_id"])
    prior = joined[(joined["dischtime"] < joined["study_time"]) & (joined["charttime"] < joined["study_time"])]
    return prior["dicom_id"].nunique()

measured(join)
"""
)


def run() -> list[Row]:
    folder = Path(tempfile.mkdtemp(prefix="cxrhf-linking-"))
    try:
        return [*_end_to_end(folder), *_join(folder)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _twin(folder: Path, share: float) -> Path:
    """The raw files, made in a process of its own: Linux counts the parent's peak memory as that of its children."""
    words = ["mimic", str(folder), "--share", str(share), "--no-pixels", "--no-reports", "--notes", "full"]
    subprocess.run([sys.executable, "-m", "cxrhf.twin", *words], stdout=subprocess.DEVNULL, check=True)
    return folder


def _build(source: Path, out: Path) -> tuple[float, float]:
    """Seconds and peak memory in GB of the command, in a process of its own."""
    start = time.perf_counter()
    words = ["build", "mimic_cxr_context", "--no-pixels", "--root", str(source), "--out", str(out)]
    child = subprocess.Popen([sys.executable, "-m", "cxrhf", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    assert status == 0, "the build failed"
    return time.perf_counter() - start, usage.ru_maxrss / (1 << 20)


def _unzip(path: Path) -> float:
    """Seconds to decompress a file: the faster of the system's gunzip and Python's."""
    start = time.perf_counter()
    with gzip.open(path, "rb") as file:
        while file.read(1 << 20):
            pass
    seconds = time.perf_counter() - start
    if shutil.which("gzip"):
        start = time.perf_counter()
        subprocess.run(["gzip", "-dc", str(path)], stdout=subprocess.DEVNULL, check=True)
        seconds = min(seconds, time.perf_counter() - start)
    return seconds


def _end_to_end(folder: Path) -> list[Row]:
    found = []
    for share in (SHARE / 4, SHARE):
        source = _twin(folder / f"twin-{share:g}", share)
        notes = next(source.rglob("discharge.csv.gz"))
        unzip = _unzip(notes)
        seconds, memory = _build(source, folder / f"out-{share:g}")
        found.append((share, unzip, seconds, memory, notes.stat().st_size / 1e9))
        shutil.rmtree(folder / f"out-{share:g}")
        shutil.rmtree(source)
    (_, quarter_unzip, quarter, small, _), (share, unzip, whole, memory, size) = found
    note = (
        f"peer: decompressing the notes ({size:.2f} GB gzipped); peak memory {memory:.2f} GB (target < {LIMIT}: "
        f"{'met' if memory < LIMIT else 'MISSED'}); a quarter of the size took {quarter:.1f} s (unzip "
        f"{quarter_unzip:.1f} s) and {small:.2f} GB: {whole / quarter:.1f} times the time for 4 times the size"
    )
    name = f"MIMIC end to end, share {share:g}, no pixels"
    return [row(name, whole, unzip, note, ratio=whole / unzip, target=2.0, at_most=True)]


def _join(folder: Path) -> list[Row]:
    source = _twin(folder / "join", JOIN_SHARE * SHARE)
    ours, ours_memory, ours_images = _measured(_OURS, str(source), str(folder / "staged"))
    peer, peer_memory, peer_images = _measured(_PANDAS, str(source))
    assert ours_images == peer_images, f"{ours_images} images with prior notes, pandas finds {peer_images}"
    note = f"published pandas join, in a separate process; both find {ours_images:,.0f} images with prior notes"
    smaller = peer_memory / max(ours_memory, 0.1)
    said = f"the ratio is of memory: ours {ours_memory:.1f} MB above the tables, theirs {peer_memory:,.0f} MB"
    return [
        row(f"join alone, share {JOIN_SHARE * SHARE:g}: time", ours, peer, note, target=10.0),
        row(f"join alone, share {JOIN_SHARE * SHARE:g}: memory", ours, peer, said, ratio=smaller, target=10.0),
    ]


def _measured(code: str, *args: str) -> tuple[float, float, float]:
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    seconds, megabytes, rows = (float(each) for each in done.stdout.split())
    return seconds, megabytes, rows
