"""Every folder of dataset_scripts/: a builder class that gives what `cxrhf build` gives, from the twin's layout."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import datasets
import pytest
import yaml
from filelock import FileLock

from cxrhf.data import builders
from cxrhf.data import builders as guard
from cxrhf.data import folder as fingerprint
from cxrhf.data.build import build
from cxrhf.data.builders import builder_class, config_names, findings_of
from cxrhf.data.card import published_split
from cxrhf.data.load import load_images, load_notes
from cxrhf.data.notes import from_stored
from cxrhf.data.settings import DATASETS, BuildConfig
from cxrhf.errors import ConfigError, CxrhfError, CxrhfWarning, RunError
from cxrhf.paths import shipped
from cxrhf.twin import write
from tests.refusals import refused
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
    assert set(loaded) == {published_split(split) for split in done.record["splits"]}
    assert "validate" not in loaded
    for split, rows in done.record["splits"].items():
        ours = load_images(done.folder, split=split, labels="raw")
        part = loaded[published_split(split)]
        table = from_stored(part.with_format("arrow")[:])
        assert table.num_rows == rows > 0
        for column in ours.column_names:
            assert table.column(column).to_pylist() == ours.column(column).to_pylist(), (split, column)
        picture = part[0]["image"]
        assert picture.mode == "L"
        assert max(picture.size) <= 48
        assert isinstance(part.features["image"], datasets.Image)


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
    assert notes.features["available_at"].dtype == "string"
    assert from_stored(notes.with_format("arrow")[:])["available_at"].equals(load_notes(done.folder)["available_at"])


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


def test_the_cache_key_knows_settings_sources_and_version(twins, tmp_path, monkeypatch):
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
    monkeypatch.setitem(fingerprint.READERS, "nih_chestxray14", 2)
    assert folder() != first


@pytest.mark.slow
def test_spoilt_pictures_are_said(tmp_path):
    write("nih", tmp_path / "raw", n_patients=12, seed=4, size=64, dirty=True)
    builder = builder_class("nih_chestxray14")(root=str(tmp_path / "raw"), cache_dir=str(tmp_path / "c"), **SETTINGS)
    with pytest.warns(CxrhfWarning, match="nih_chestxray14: .*quarantine"):
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
    with refused(RunError, f"source folder {root}", fix="cache_dir"):
        builder_class("mimic_cxr_context")(root=str(root), cache_dir=str(root / "cache"))
    builder = builder_class("mimic_cxr_context")(root=str(root), cache_dir=str(tmp_path), **SETTINGS)
    with refused(RunError, f"source folder {root}", fix="output_dir"):
        builder.download_and_prepare(str(root / "out"))
    assert sorted(root.rglob("*")) == before


def test_without_a_root_the_next_step_is_said(tmp_path):
    with refused(ConfigError, fix='Chexpert(root="FOLDER"'):
        builder_class("chexpert")(cache_dir=str(tmp_path)).download_and_prepare()


@pytest.mark.parametrize("name", NAMES)
def test_cards_have_a_front_and_working_words(name):
    text = (ROOT / "dataset_scripts" / name / "README.md").read_text()
    front = yaml.safe_load(text.split("---")[1])
    assert front["pretty_name"]
    assert f"cxrhf build {name}" in text
    assert f'builder_class("{name}")' in text
    assert name in (ROOT / "dataset_scripts" / "README.md").read_text()


@pytest.fixture(scope="module")
def credentialed(twins, tmp_path_factory):
    """A builder of credentialed data, as the files say, without pictures."""
    root, cache = str(twins("mimic_cxr_context")), tmp_path_factory.mktemp("cache")
    builder = builder_class("mimic_cxr_context")(root=root, cache_dir=str(cache), no_pixels=True)
    builder.download_and_prepare()
    return builder


def test_credentialed_data_are_not_pushed_past_the_refusals_of_cxrhf_push(credentialed, tmp_path, monkeypatch):
    """`push_to_hub` is one call away from `as_dataset`; whatever is made of it keeps the licence, and is refused."""
    monkeypatch.setattr("huggingface_hub.HfApi.repo_info", lambda *args, **kwargs: pytest.fail("the Hub was asked"))
    every = credentialed.as_dataset()
    part = every["train"]
    assert "do not share" in part.info.license
    part.save_to_disk(tmp_path / "saved")
    made = {
        "all splits": every,
        "one split": part,
        "map": part.map(lambda row: {"image_id": row["image_id"]}),
        "removed": part.remove_columns(["image", "prior_note_ids"]),
        "filter": part.filter(lambda row: True),
        "format": part.with_format("torch"),
        "slice": part.select(range(2)),
        "parts": part.train_test_split(0.5, seed=0),
        "joined": datasets.concatenate_datasets([part, every["validation"].remove_columns(["image"])]),
        "beside others": datasets.concatenate_datasets([part, datasets.Dataset.from_dict({"image_id": ["1"]})]),
        "in memory": part.add_column("more", [1] * len(part)),
        "saved": datasets.load_from_disk(tmp_path / "saved"),
        "iterable": part.to_iterable_dataset().map(lambda row: row),
        "stream": credentialed.as_streaming_dataset(),
        "part of a split": credentialed.as_dataset(split="train[:2]"),
    }
    for each in made.values():
        with refused(CxrhfError, "credentialed", "nothing was sent", fix="cxrhf push dataset"):
            each.push_to_hub("user/name", token="none")


def test_what_may_be_shared_is_pushed_and_others_are_warned(twins, tmp_path, monkeypatch):
    class Asked(Exception):
        pass

    def asked(*args, **kwargs):
        raise Asked

    monkeypatch.setattr("huggingface_hub.HfApi.repo_info", asked)
    plain = datasets.Dataset.from_dict({"a": [1]})
    open_set = builder_class("covid_chestxray")(
        root=str(twins("covid_chestxray")), cache_dir=str(tmp_path / "covid"), no_pixels=True
    )
    open_set.download_and_prepare()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Asked):
            plain.push_to_hub("user/name", token="none")
    with pytest.warns(CxrhfWarning, match="cxrhf push dataset"), pytest.raises(Asked):
        open_set.as_dataset().push_to_hub("user/name", token="none")
    # Files that somebody gave may be real, whatever the dataset is called.
    given = builder_class("synthetic")(root=str(twins("synthetic")), cache_dir=str(tmp_path), no_pixels=True)
    assert guard.REFUSED in given.info.license
    assert guard.REFUSED not in builder_class("synthetic")(cache_dir=str(tmp_path)).info.license


def test_torch_takes_a_row_and_a_batch(twins, credentialed, tmp_path):
    """Times were a type that no tensor has, and one such column failed the whole row."""
    torch = pytest.importorskip("torch")
    part = credentialed.as_dataset(split="train").with_format("torch")
    assert isinstance(part[0]["study_time"], str)
    assert isinstance(part[:2]["edema"][0], torch.Tensor)
    done = build(BuildConfig("mimic_cxr_context", root=(str(twins("mimic_cxr_context")),), out=str(tmp_path / "out"),
                             size=48))  # fmt: skip
    for files in ("images", "notes"):
        loaded = datasets.load_dataset(
            "parquet", data_files=f"{done.folder}/{files}/*.parquet", cache_dir=str(tmp_path / "cache")
        )["train"].with_format("torch")
        assert loaded[0]
        assert loaded[:2]
    # A build folder says itself how it is loaded: its card is read like that of a repository.
    card = datasets.load_dataset(str(done.folder), cache_dir=str(tmp_path / "cache"))
    assert set(card) == {"train", "validation", "test"} & {published_split(each) for each in done.record["splits"]}


def test_a_worker_process_that_is_not_forked_knows_the_class(tmp_path):
    """macOS, Windows and Python 3.14 start workers anew: they import the class by its name."""
    import dill
    import multiprocess

    for kind in builders.BUILDERS.values():
        assert getattr(builders, kind.__name__) is kind
    builder = builder_class("nih_chestxray14")(cache_dir=str(tmp_path))
    assert dill.loads(dill.dumps(builder.config)) == builder.config
    with multiprocess.get_context("spawn").Pool(1) as pool:
        assert pool.apply(type, (builder,)) is type(builder)


_TWO_PROCESSES = """
import sys, multiprocess, cxrhf.data.build as module
if __name__ == "__main__":
    multiprocess.set_start_method(sys.argv[1])
    from cxrhf.data.builders import builder_class
    module.ROWS_WITHOUT_PIXELS = 5
    builder = builder_class("chexpert")(root=sys.argv[2], cache_dir=sys.argv[3], no_pixels=True)
    builder.download_and_prepare(num_proc=2)
    print(*builder.as_dataset(split="train")["image_id"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_two_processes_however_they_are_started(method, twins, tmp_path):
    root, env = str(twins("chexpert")), {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", _TWO_PROCESSES, method, root, str(tmp_path / "cache")]
    done = subprocess.run(words, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    builder = builder_class("chexpert")(root=root, cache_dir=str(tmp_path / "one"), no_pixels=True)
    builder.download_and_prepare()
    assert done.stdout.split() == builder.as_dataset(split="train")["image_id"][:]


def test_an_unknown_dataset_has_no_findings():
    """It got those of MIMIC, without a word."""
    assert findings_of("mimic_cxr_context")
    for ask in (findings_of, builder_class):
        with refused(ConfigError, "mimic_cxr_context", got="mimic_cxr"):
            ask("mimic_cxr")


def test_what_a_killed_builder_left_is_removed(twins, tmp_path):
    """Tables with ids and texts in the drafts of `datasets`, of these settings and of others."""
    root = str(twins("chexpert"))
    builder = builder_class("chexpert")(root=root, cache_dir=str(tmp_path), no_pixels=True)
    own = Path(builder.cache_dir)
    other = own.with_name("0" * 32)
    live = own.with_name("1" * 32)
    for each in (own, other, live):
        Path(f"{each}.incomplete").mkdir(parents=True)
        (Path(f"{each}.incomplete") / "chexpert-train-00000-00007-of-NNNNN.arrow").write_text("ids")
    with FileLock(f"{live}_builder.lock"):
        builder.download_and_prepare()
    assert [path.name for path in own.parent.glob("*.incomplete")] == [f"{live.name}.incomplete"]
    assert not list(own.glob("*00007*"))
