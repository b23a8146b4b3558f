"""Every folder of dataset_scripts/: a builder class that gives what `cxrhf build` gives, from the twin's layout."""

from __future__ import annotations

import warnings
from pathlib import Path

import datasets
import pytest
import yaml

from cxrhf.config_build import DATASETS, BuildConfig
from cxrhf.data import fingerprint
from cxrhf.data.build import build
from cxrhf.data.hf import builder_class, config_names
from cxrhf.data.load import load_images, load_notes
from cxrhf.data.synthetic import write
from cxrhf.errors import ConfigError, CxrhfWarning, RunError
from cxrhf.paths import shipped
from tests.thinned import thinned

ROOT = Path(__file__).resolve().parents[1]
NAMES = shipped("dataset_scripts")
SETTINGS = {"size": 48}


def test_every_dataset_has_its_folder():
    assert set(NAMES) == set(DATASETS)
    for name in NAMES:
        folder = ROOT / "dataset_scripts" / name
        assert {path.name for path in folder.iterdir() if not path.name.startswith("_")} == {f"{name}.py", "README.md"}


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    """The raw files of each dataset, made up, a few patients each."""
    made: dict[str, Path] = {}

    def of(name: str) -> Path:
        name = "mimic_cxr_context" if name == "synthetic" else name  # the same files
        if name not in made:
            folder = tmp_path_factory.mktemp(name) / "raw"
            write(name, folder, n_patients=7, seed=4, size=64)
            made[name] = folder
        return made[name]

    return of


@pytest.mark.parametrize("name", thinned(NAMES, slow=("chexpert", "chexpert_plus", "covid_chestxray", "rexgradient")))
def test_builder_gives_what_the_command_gives(name, twins, tmp_path):
    root = str(twins(name))
    builder = builder_class(name)(root=root, cache_dir=str(tmp_path / "cache"), **SETTINGS)
    assert builder.config.name == config_names(name)[0]
    builder.download_and_prepare()
    loaded = builder.as_dataset()
    done = build(BuildConfig(name, root=(root,), out=str(tmp_path / "out"), **SETTINGS))
    assert set(loaded) == set(done.record["splits"])
    for split, rows in done.record["splits"].items():
        ours = load_images(done.folder, split=split, labels="raw")
        table = loaded[split].with_format("arrow")[:]
        assert table.num_rows == rows > 0
        for column in ours.column_names:
            assert table.column(column).to_pylist() == ours.column(column).to_pylist(), (split, column)
        picture = loaded[split][0]["image"]
        assert picture.mode == "L"
        assert max(picture.size) <= 48
        assert isinstance(loaded[split].features["image"], datasets.Image)


@pytest.mark.parametrize("name", thinned(NAMES, slow=("chexpert", "chexpert_plus", "mimic_cxr_context")))
def test_it_streams(name, twins, tmp_path):
    builder = builder_class(name)(root=str(twins(name)), cache_dir=str(tmp_path), **SETTINGS)
    streams = builder.as_streaming_dataset()
    for stream in streams.values():
        row = next(iter(stream))
        assert row["image"].mode == "L"
        assert row["image_id"]


def test_notes_have_a_configuration_of_their_own(twins, tmp_path):
    root = str(twins("mimic_cxr_context"))
    builder = builder_class("mimic_cxr_context")(config_name="notes", root=root, cache_dir=str(tmp_path / "c"))
    builder.download_and_prepare()
    notes = builder.as_dataset(split="train")
    done = build(BuildConfig("mimic_cxr_context", root=(root,), out=str(tmp_path / "out"), configuration="notes"))
    assert notes["note_id"][:] == load_notes(done.folder).column("note_id").to_pylist()
    assert notes.features["available_at"].dtype == "timestamp[us]"


@pytest.mark.slow
def test_two_processes_give_the_same_rows(twins, tmp_path, monkeypatch):
    monkeypatch.setattr("cxrhf.data.build.ROWS_PER_SHARD", 5)
    root = str(twins("chexpert"))
    tables = []
    for processes in (None, 2):
        builder = builder_class("chexpert")(root=root, cache_dir=str(tmp_path / str(processes)), **SETTINGS)
        builder.download_and_prepare(num_proc=processes)
        tables.append(builder.as_dataset(split="train").with_format("arrow")[:])
    assert tables[0].column("image_id").to_pylist() == tables[1].column("image_id").to_pylist()
    assert tables[0].column("image").to_pylist() == tables[1].column("image").to_pylist()


def test_the_cache_key_knows_settings_sources_and_code(twins, tmp_path, monkeypatch):
    """`datasets` alone would hand out the old cache after a source or a rule has changed."""
    kind = builder_class("nih_chestxray14")
    root = twins("nih_chestxray14")

    def folder(**settings) -> str:
        return kind(root=str(root), cache_dir=str(tmp_path), **settings).cache_dir

    first = folder()
    assert folder() == first
    assert folder(seed=1) != first
    table = next(root.rglob("Data_Entry*.csv"))
    before = table.read_text()
    try:
        table.write_text(before + "\n")
        assert folder() != first
    finally:
        table.write_text(before)
    assert folder() == first
    split = tmp_path / "split.csv"
    split.write_text("patient_id,split\n1,train\n")
    listed = folder(split_file=str(split))
    split.write_text("patient_id,split\n1,test\n")
    assert folder(split_file=str(split)) != listed
    fingerprint.code_print.cache_clear()
    monkeypatch.setattr(Path, "read_bytes", lambda self, read=Path.read_bytes: read(self) + b"# changed")
    changed = fingerprint.code_print()
    monkeypatch.undo()
    fingerprint.code_print.cache_clear()
    assert changed != fingerprint.code_print()


@pytest.mark.slow
def test_spoilt_pictures_are_said(tmp_path):
    write("nih", tmp_path / "raw", n_patients=12, seed=4, size=64, dirty=True)
    builder = builder_class("nih_chestxray14")(root=str(tmp_path / "raw"), cache_dir=str(tmp_path / "c"), **SETTINGS)
    with pytest.warns(CxrhfWarning, match="pictures of .* left out"):
        builder.download_and_prepare()


@pytest.mark.slow
def test_the_synthetic_one_needs_no_files(tmp_path):
    builder = builder_class("synthetic")(n_patients=8, size=48, cache_dir=str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error", CxrhfWarning)  # a film that was not drawn would be left out with one
        builder.download_and_prepare()
    assert builder.as_dataset()["train"].num_rows


def test_data_dir_is_a_root_too(twins, tmp_path):
    root = str(twins("covid_chestxray"))
    ours, theirs = (
        builder_class("covid_chestxray")(cache_dir=str(tmp_path / name), no_pixels=True, **{name: root})
        for name in ("root", "data_dir")
    )
    for builder in (ours, theirs):
        builder.download_and_prepare()
    assert ours.as_dataset()["train"]["image_id"][:] == theirs.as_dataset()["train"]["image_id"][:]


def test_never_into_the_source(twins, tmp_path):
    """Rows and notes of credentialed data would lie where others look for the files as they were published."""
    root = twins("mimic_cxr_context")
    before = sorted(root.rglob("*"))
    with pytest.raises(RunError, match=r"only read.*choose another cache_dir"):
        builder_class("mimic_cxr_context")(root=str(root), cache_dir=str(root / "cache"))
    builder = builder_class("mimic_cxr_context")(root=str(root), cache_dir=str(tmp_path), **SETTINGS)
    with pytest.raises(RunError, match=r"only read.*choose another output_dir"):
        builder.download_and_prepare(str(root / "out"))
    assert sorted(root.rglob("*")) == before


def test_without_a_root_the_next_step_is_said(tmp_path):
    with pytest.raises(ConfigError, match=r'Chexpert\(root="FOLDER"'):
        builder_class("chexpert")(cache_dir=str(tmp_path)).download_and_prepare()


@pytest.mark.parametrize("name", NAMES)
def test_cards_have_a_front_and_working_words(name):
    text = (ROOT / "dataset_scripts" / name / "README.md").read_text()
    front = yaml.safe_load(text.split("---")[1])
    assert front["pretty_name"]
    assert f"cxrhf build {name}" in text
    assert f'builder_class("{name}")' in text
    assert name in (ROOT / "dataset_scripts" / "README.md").read_text()
