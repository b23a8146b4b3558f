"""The doctor: each missing file named with its place and project, wrong ones with the reason, in seconds."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import time

import pytest

from cxrhf import cli
from cxrhf.data.doctor import examine
from cxrhf.data.layout import LAYOUTS
from cxrhf.errors import SourceError
from cxrhf.twin import write
from tests.refusals import refused
from tests.thinned import thinned

REQUIRED = [(name, each.key) for name in LAYOUTS for each in LAYOUTS[name] if not each.optional]


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    made = {}

    def of(name):
        name = "mimic_cxr_context" if name == "synthetic" else name  # the same files
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name) / "raw"
            write(name, made[name], n_patients=4, seed=4, size=64, pixels=name != "rexgradient")
        return made[name]

    return of


@pytest.mark.parametrize(
    "name", thinned(sorted(LAYOUTS), slow=("chexpert_plus", "nih_chestxray14", "rexgradient", "synthetic"))
)
def test_a_whole_download_is_ready(name, twins, capsys):
    start = time.perf_counter()
    assert cli.main(["doctor", name, "--root", str(twins(name))]) == 0
    assert time.perf_counter() - start < 10
    out = capsys.readouterr().out
    assert "ready: cxrhf build" in out
    assert "MISSING" not in out
    if name != "rexgradient":
        assert "sampled image files exist" in out


@pytest.mark.parametrize(("name", "key"), REQUIRED)
def test_each_missing_file_is_named(name, key, twins, tmp_path, capsys):
    copy = tmp_path / "raw"
    shutil.copytree(twins(name), copy)
    from cxrhf.data.layout import find, needed

    path = find([copy], name, key)
    assert path is not None
    path.unlink()
    assert cli.main(["doctor", name, "--root", str(copy)]) == 2
    got = capsys.readouterr()
    line = next(line for line in got.out.splitlines() if line.startswith("MISSING"))
    assert needed(name, key).lies in line
    assert needed(name, key).project in line
    assert key in got.err


def test_a_renamed_column_and_a_cut_archive_are_wrong(twins, tmp_path):
    copy = tmp_path / "raw"
    shutil.copytree(twins("mimic_cxr_context"), copy)
    notes = next(copy.rglob("discharge.csv.gz"))
    whole = notes.read_bytes()
    text = gzip.decompress(whole)
    notes.write_bytes(gzip.compress(text.replace(b"charttime", b"time", 1)))
    said = {check.what: check for check in examine("mimic_cxr_context", [str(copy)])}
    assert said["discharge"].verdict == "WRONG"
    assert '"charttime"' in said["discharge"].said
    notes.write_bytes(whole[: len(whole) // 2])
    said = {check.what: check for check in examine("mimic_cxr_context", [str(copy)])}
    assert "damaged" in said["discharge"].said


def test_missing_pictures_are_no_reason_to_stop(twins, tmp_path, capsys):
    copy = tmp_path / "raw"
    shutil.copytree(twins("chexpert"), copy, ignore=shutil.ignore_patterns("*.jpg"))
    said = {check.what: check for check in examine("chexpert", [str(copy)])}
    assert said["images"].verdict == "absent"
    assert "0 of" in said["images"].said
    assert cli.main(["doctor", "chexpert", "--root", str(copy)]) == 0
    assert "--no-pixels" in capsys.readouterr().out.splitlines()[-1]


def test_counts_that_differ_from_the_published_ones_are_said(twins):
    said = [
        check.said
        for check in examine("mimic_cxr_context", [str(twins("mimic_cxr_context"))])
        if check.what == "counts"
    ]
    assert any("the published release has 223,452" in each for each in said)


def test_a_folder_that_is_none(tmp_path):
    with refused(SourceError, "--root", "nowhere"):
        examine("chexpert", [str(tmp_path / "nowhere")])


def test_without_the_lists_another_split_is_named(twins, tmp_path, capsys):
    copy = tmp_path / "raw"
    shutil.copytree(twins("nih_chestxray14"), copy, ignore=shutil.ignore_patterns("*_list.txt"))
    assert cli.main(["doctor", "nih_chestxray14", "--root", str(copy)]) == 0
    assert "--split ratio" in capsys.readouterr().out


def test_the_synthetic_one_needs_no_folder(capsys):
    assert cli.main(["doctor", "synthetic"]) == 0
    assert "ready: cxrhf build synthetic --out" in capsys.readouterr().out


def test_two_copies_are_said_and_no_demo_is_taken(twins, tmp_path):
    copy = tmp_path / "raw"
    shutil.copytree(twins("mimic_cxr_context"), copy)
    demo = copy / "mimic-iv-demo" / "2.2" / "hosp"
    shutil.copytree(copy / "mimiciv" / "3.0" / "hosp", demo)
    shutil.copytree(copy / "mimiciv" / "3.0", copy / "mimiciv" / "2.2")
    from cxrhf.data.layout import find

    assert str(find([copy], "mimic_cxr_context", "admissions")).endswith("mimiciv/3.0/hosp/admissions.csv.gz")
    said = [check.said for check in examine("mimic_cxr_context", [str(copy)]) if check.what == "copies"]
    assert any("admissions.csv.gz" in each and "demo" in each for each in said)


def test_missing_files_never_abort(twins, tmp_path):
    """A process of its own: nothing may be left running when it ends."""
    copy = tmp_path / "raw"
    shutil.copytree(twins("mimic_cxr_context"), copy)
    next(copy.rglob("*-metadata.csv.gz")).unlink()
    words = [sys.executable, "-m", "cxrhf", "doctor", "mimic_cxr_context", "--root", str(copy)]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 2
