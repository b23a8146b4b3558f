"""A digest of a small build of each dataset: where its rows change, the version has to be raised."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cxrhf.data import folder as fingerprint
from cxrhf.data.build import build
from cxrhf.data.folder import build_print, version_of
from cxrhf.data.load import build_record
from cxrhf.data.settings import BuildConfig
from cxrhf.errors import RunError
from cxrhf.twin import write
from tests.refusals import refused

# (version, digest of all rows but pictures) of a build of seven made-up patients.
GOLDEN = {
    "mimic_cxr_context": ("1.1", "dcdc01573159bdb9"),
    "chexpert": ("1.1", "19c19db3b65952ce"),
    "nih_chestxray14": ("1.1", "b847c445cbfb336c"),
    "covid_chestxray": ("1.1", "97d57f467ff595fb"),
    "synthetic": ("1.2", "0682c905149ff3ef"),
    "rexgradient": ("1.1", "e5745eea1e8fb7e2"),
    "chexpert_plus": ("1.1", "1fdd5bda7cdc442a"),
}


def digest(folder: Path) -> str:
    """Of what the tables hold: not of how Parquet packs it, which changes with pyarrow, nor of wording."""
    said = hashlib.sha256()
    for path in sorted(folder.rglob("*.parquet")):
        table = pq.ParquetFile(path).read()
        if path.name == "attrition.parquet":
            table = table.drop_columns(["step", "note"])
        said.update(json.dumps([path.name, str(table.schema.remove_metadata()), table.to_pylist()]).encode())
    return said.hexdigest()[:16]


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_rows_change_with_the_version_only(name, tmp_path):
    roots: tuple[str, ...] = ()
    if name != "synthetic":
        write(name, tmp_path / "raw", n_patients=7, seed=4, pixels=False)
        roots = (str(tmp_path / "raw"),)
    done = build(BuildConfig(name, root=roots, out=str(tmp_path / "out"), no_pixels=True, n_patients=7, seed=4))
    (tmp_path / "out" / "quarantine.parquet").unlink()  # it names paths
    if (tmp_path / "out" / "source").exists():
        (tmp_path / "out" / "source").rename(tmp_path / "source")
    assert done.record["version"] == version_of(name)
    assert (version_of(name), digest(done.folder)) == GOLDEN[name], (
        "a build has other rows than before. If that is so for files that users have, raise READERS (one dataset) or "
        "FORMAT (all) in cxrhf/data/folder.py, so that finished builds are not taken for the same; then write the "
        "new version and digest here. If only the made-up files of these tests changed, write the new digest here; for "
        "`synthetic` that is a new version too"
    )


def test_a_finished_build_outlives_a_change_of_the_code(tmp_path, monkeypatch):
    """A record made before there were versions has a hash of the code instead, and is of version 1.1."""
    write("chexpert", tmp_path / "raw", n_patients=7, seed=4, pixels=False)
    config = BuildConfig("chexpert", root=(str(tmp_path / "raw"),), out=str(tmp_path / "out"), no_pixels=True)
    record = dict(build(config).record)
    del record["version"]
    record["fingerprint"] = "0" * 32  # of code that nobody has any more
    (tmp_path / "out" / "build.json").write_text(json.dumps(record))
    assert "--overwrite" in build(config).notes[0]
    assert build_record(tmp_path / "out")["fingerprint"] == "0" * 32
    monkeypatch.setitem(fingerprint.READERS, "chexpert", 2)
    with refused(RunError, "version", fix="--overwrite"):
        build(config)
    assert build_print({}, [], version_of("chexpert")) != build_print({}, [], fingerprint.FIRST)
