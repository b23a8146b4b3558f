"""Which part of a build is published: rows and pixels come back the same, credentialed data stay, recipes hold ids."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from huggingface_hub import DatasetCard, HfApi
from PIL import Image

from cxrhf.cli.flags import parse
from cxrhf.data.build import build
from cxrhf.data.card import TERMS, published_split
from cxrhf.data.load import load_images, load_notes
from cxrhf.data.notes import from_stored
from cxrhf.data.settings import BuildConfig
from cxrhf.data.shards import open_shards
from cxrhf.errors import CxrhfError, RunError, TableError
from cxrhf.hub.artefact import Artefact
from cxrhf.hub.connection import Hub, HubError
from cxrhf.hub.dataset import dataset_artefact
from cxrhf.hub.dataset_recipe import command, compare_recipe, main
from cxrhf.hub.scan import check
from cxrhf.hub.upload import push
from cxrhf.run import standing
from cxrhf.twin import write
from tests.hub.loopback_cards import complaints
from tests.real_data import real_data
from tests.refusals import refused

IDS = ["image_id", "study_id", "patient_id", "dataset", "split"]
LAYOUTS = {"chexpert": "chexpert", "chexpert_plus": "chexpert_plus", "rexgradient": "rexgradient"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="module")
def twin(place) -> Path:
    return build(BuildConfig("synthetic", n_patients=8, seed=3, size=64, out=str(place / "twin"))).folder


@pytest.fixture(scope="module")
def published(place, twin) -> Artefact:
    return made(twin, place / "published", to="tester/twin")


@pytest.fixture(scope="module")
def mimic(place, twin) -> Path:
    """The twin's files, taken for MIMIC's."""
    config = BuildConfig("mimic_cxr_context", root=(str(twin / "source"),), out=str(place / "mimic"), size=64)
    return build(config).folder


@pytest.fixture(scope="module")
def nih(place) -> Path:
    write("nih", place / "nih-files", n_patients=6, size=64)
    return build(
        BuildConfig("nih_chestxray14", root=(str(place / "nih-files"),), out=str(place / "nih"), size=64)
    ).folder


@pytest.fixture(scope="module")
def covid(place) -> Path:
    """Some pictures may not be shared, and one says nothing."""
    root = place / "covid-files"
    write("covid", root, n_patients=6, size=64)
    table = pl.read_csv(root / "metadata.csv", infer_schema=False)
    licences = table["license"].to_list()
    for at, other in zip(
        range(0, len(licences), 5), ["CC BY-NC-ND 4.0", None, "All rights reserved"] * 99, strict=False
    ):
        licences[at] = other
    table.with_columns(license=pl.Series(licences)).write_csv(root / "metadata.csv")
    config = BuildConfig(
        "covid_chestxray", root=(str(root),), out=str(place / "covid"), size=64, keep_without_notes=True
    )
    return build(config).folder


@pytest.fixture(scope="module")
def gated(place, mimic) -> dict[str, Path]:
    """A build of every credentialed source."""
    found = {"mimic_cxr_context": mimic}
    for dataset, layout in LAYOUTS.items():
        write(layout, place / f"{dataset}-files", n_patients=8, pixels=False)
        config = BuildConfig(dataset, root=(str(place / f"{dataset}-files"),), out=str(place / dataset), no_pixels=True)
        found[dataset] = build(config).folder
    return found


def made(folder: Path, work: Path, to: str = "tester/set", **settings) -> Artefact:
    return dataset_artefact(folder, to, work=work, **settings)


def copied(artefact: Artefact, folder: Path) -> Path:
    """What a download of it holds."""
    for piece in artefact.pieces:
        (folder / piece.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / piece.path).write_bytes(piece.read())
    return folder


def marks(artefact: Artefact) -> dict[str, str]:
    return {piece.path: piece.sha256() for piece in artefact.pieces}


def edited(folder: Path, target: Path, **changes) -> Path:
    """A copy of a build with another build.json."""
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("source"))
    record = json.loads((target / "build.json").read_text())
    record.update(changes)
    (target / "build.json").write_text(json.dumps(record))
    return target


def rewritten(path: Path, **columns) -> None:
    """A Parquet file with other values in some columns, and the schema metadata that it had."""
    table = pq.ParquetFile(path).read()
    about = table.schema.metadata
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(name), pa.array(values, table.schema.field(name).type))
    pq.write_table(table.replace_schema_metadata(about), path)


# What is open or made up.


def test_a_twin_comes_back_row_for_row_and_pixel_for_pixel(twin, published, tmp_path):
    artefact = published
    paths = [piece.path for piece in artefact.pieces]
    assert not [path for path in paths if path.startswith(("source/", ".")) or "quarantine" in path]
    assert {"README.md", "build.json", "flow.svg", "attrition.parquet", "attributes.parquet", "planted.parquet",
            "truth.json", "notes/notes-00000.parquet"} <= set(paths)  # fmt: skip
    assert artefact.may_hold == {"ids", "text", "pixels", "labels", "rows"}
    assert artefact.repo_type == "dataset"
    assert all(isinstance(piece.content, Path) for piece in artefact.pieces if piece.path.endswith(".parquet"))
    repo = copied(artefact, tmp_path / "repo")
    loaded = datasets.load_dataset(str(repo), cache_dir=str(tmp_path / "cache"))
    splits = json.loads((twin / "build.json").read_text())["splits"]
    assert list(loaded) == [published_split(split) for split in splits]
    for split in splits:
        ours = load_images(twin, split=split, labels="raw", columns=pq.read_schema(
            next((twin / "images").glob(f"{split}-*"))).names)  # fmt: skip
        theirs = loaded[published_split(split)]
        rest = [name for name in ours.column_names if name != "image"]
        assert theirs.column_names == ours.column_names
        there = from_stored(theirs.select_columns(rest).with_format("arrow")[:])
        assert there.equals(ours.select(rest).cast(there.schema))
        for picture, stored in zip(theirs["image"], ours["image"].to_pylist(), strict=True):
            assert np.array_equal(np.asarray(picture), np.asarray(Image.open(io.BytesIO(stored["bytes"]))))
    notes = datasets.load_dataset(str(repo), "notes", cache_dir=str(tmp_path / "cache"))["train"]
    assert notes["text"][:] == load_notes(twin)["text"].to_pylist()
    planted = datasets.load_dataset(str(repo), "planted", cache_dir=str(tmp_path / "cache"))["train"]
    assert set(loaded["test"]["image_id"]) <= set(planted["image_id"])
    assert (repo / "truth.json").read_bytes() == (twin / "source" / "truth.json").read_bytes()
    # A download is a build again, for every verb and for a second push.
    assert load_images(repo).equals(load_images(twin))
    assert marks(made(repo, tmp_path / "again", to="tester/twin")) == marks(artefact)


def test_a_second_call_gives_the_same_bytes(twin, nih, covid, mimic, tmp_path):
    for number, folder in enumerate((nih, covid)):
        assert marks(made(folder, tmp_path / f"{number}a")) == marks(made(folder, tmp_path / f"{number}b"))
    assert marks(made(mimic, tmp_path / "ma", recipe=True)) == marks(made(mimic, tmp_path / "mb", recipe=True))
    recipe = {piece.path: piece.read() for piece in made(twin, tmp_path / "t", recipe=True).pieces}["recipe.json"]
    assert json.loads(recipe)["command"] == ("cxrhf build synthetic --out data/synthetic --seed 3 --n-patients 8")


def test_nothing_goes_because_it_lies_there(twin, published, tmp_path):
    """Edited cards, stray files and what a hand added to build.json stay."""
    folder = edited(twin, tmp_path / "mine", secret="planted-secret", checked={"patients": 3, "planted-secret": 1})
    (folder / "README.md").write_text("planted-secret")
    (folder / "mine.csv").write_text("planted-secret")
    (folder / "notes" / "extra.txt").write_text("planted-secret")
    artefact = made(folder, tmp_path / "work")
    assert [piece.path for piece in artefact.pieces] == [piece.path for piece in published.pieces]
    text = b"".join(piece.read() for piece in artefact.pieces if not piece.path.endswith(".parquet"))
    assert b"planted-secret" not in text
    assert str(twin).encode() not in text
    assert str(tmp_path).encode() not in text


def test_nih_goes_with_credit_and_without_others_annotations(nih, tmp_path):
    artefact = made(nih, tmp_path / "work")
    assert "attributes.parquet" not in marks(artefact)
    assert "unknown terms" in artefact.notes[0]
    repo = copied(artefact, tmp_path / "repo")
    card = (repo / "README.md").read_text()
    assert "NIH Clinical Center" in card
    assert "Hospital-scale Chest X-ray Database" in card
    assert TERMS["nih_chestxray14"].link in card
    loaded = datasets.load_dataset(str(repo), cache_dir=str(tmp_path / "cache"))
    assert sum(part.num_rows for part in loaded.values()) == load_images(nih).num_rows
    assert loaded["test"][0]["image"].size == (64, 64)


def test_a_hospital_in_nihs_layout_is_not_nihs(nih, tmp_path):
    folder = edited(nih, tmp_path / "own")
    shard = next((folder / "images").glob("test-*"))
    count = pq.read_metadata(shard).num_rows
    rewritten(shard, image_id=[f"film{number}" for number in range(count)])
    for recipe in (False, True):
        with refused(HubError, "NIH ids", fix="privacy"):
            made(folder, tmp_path / "work", recipe=recipe)


def test_covid_rows_go_by_their_licence(covid, tmp_path):
    attributes = pq.read_table(covid / "attributes.parquet").to_pylist()
    licence = {row["image_id"]: row["value"] for row in attributes if row["name"] == "licence"}
    allowed = {image for image, said in licence.items() if said in ("CC BY-NC-SA", "CC BY 4.0", "CC BY-SA")}
    images = load_images(covid, labels="raw")
    assert 0 < len(allowed) < images.num_rows
    artefact = made(covid, tmp_path / "work")
    left = images.num_rows - len(allowed)
    assert f"{left:,} of {images.num_rows:,} images are excluded" in artefact.notes[0]
    assert "not stated" in artefact.notes[0]
    repo = copied(artefact, tmp_path / "repo")
    loaded = datasets.load_dataset(str(repo), cache_dir=str(tmp_path / "cache"))
    kept = {image for part in loaded.values() for image in part["image_id"]}
    assert kept == allowed
    raw = {row["image_id"]: row for row in load_images(covid, labels="raw", columns=["image_id", "image"]).to_pylist()}
    for row in loaded["test"]:
        stored = Image.open(io.BytesIO(raw[row["image_id"]]["image"]["bytes"]))
        assert np.array_equal(np.asarray(row["image"]), np.asarray(stored))
    notes = datasets.load_dataset(str(repo), "notes", cache_dir=str(tmp_path / "cache"))["train"]
    linked = {note for part in loaded.values() for ids in part["prior_note_ids"] for note in ids}
    assert set(notes["note_id"]) == linked
    assert set(pq.read_table(repo / "attributes.parquet")["image_id"].to_pylist()) == allowed
    card = (repo / "README.md").read_text()
    assert f"{left:,} of {images.num_rows:,} images are excluded" in card
    assert f"| images whose licence allows sharing | {len(allowed):,} |" in card
    positive = sum(sum(value == 1 for value in part["pneumonia"]) for part in loaded.values())
    assert f"| Pneumonia | {positive:,} |" in card
    for split, part in loaded.items():
        assert f"| split {split} | {part.num_rows:,} |" in card
    assert load_images(repo).num_rows == len(allowed)
    first = open_shards(repo / "images", split="test")[0]  # as training reads them
    assert np.array_equal(first, np.asarray(loaded["test"][0]["image"]))


def test_the_real_collection_may_go_whole(tmp_path):
    root = real_data("covid/metadata.csv").parent
    folder = build(
        BuildConfig("covid_chestxray", root=(str(root),), out=str(tmp_path / "covid"), no_pixels=True)
    ).folder
    artefact = made(folder, tmp_path / "work")
    assert artefact.notes == ()
    check(artefact)
    card = artefact.pieces[0].read().decode()
    assert "CC BY-NC-SA" in card
    assert "Tables only" in card


def test_notes_alone(place, twin, tmp_path):
    config = BuildConfig(
        "synthetic", n_patients=8, seed=3, configuration="notes", no_pixels=True, out=str(tmp_path / "notes")
    )
    folder = build(config).folder
    artefact = made(folder, tmp_path / "work")
    repo = copied(artefact, tmp_path / "repo")
    loaded = datasets.load_dataset(str(repo), "notes", cache_dir=str(tmp_path / "cache"))["train"]
    assert loaded["note_id"][:] == load_notes(folder)["note_id"].to_pylist()
    with refused(RunError, fix="cxrhf build"):
        made(folder, tmp_path / "work", recipe=True)


def test_cards_are_valid_and_their_numbers_are_the_tables(published, nih, covid, mimic, tmp_path):
    artefacts = [published, made(nih, tmp_path / "nih"), made(covid, tmp_path / "covid")]
    artefacts.append(made(mimic, tmp_path / "mimic", recipe=True))
    for artefact in artefacts:
        check(artefact)
        pieces = {piece.path: piece for piece in artefact.pieces}
        text = pieces["README.md"].read().decode()
        assert complaints(text, "dataset") == ([], [])
        data = DatasetCard(text).data
        assert data.to_dict() == yaml.safe_load(text.split("---")[1])
        for info in data.dataset_info if isinstance(data.dataset_info, list) else [data.dataset_info]:
            config = next(each for each in data.configs if each["config_name"] == info.get("config_name", "ids"))
            assert len(info["splits"]) == len(config["data_files"])
            for split, files in zip(info["splits"], config["data_files"], strict=True):
                start, _, end = files["path"].partition("*")
                here = [piece for path, piece in pieces.items() if path.startswith(start) and path.endswith(end)]
                assert split["num_examples"] == sum(
                    pq.read_metadata(pa.BufferReader(each.read())).num_rows for each in here
                )
        assert 'load_dataset("tester/' in text


# What is credentialed.


def test_credentialed_builds_are_refused_and_told_what_is_allowed(gated, tmp_path):
    for dataset, folder in gated.items():
        with pytest.raises(HubError) as caught:
            made(folder, tmp_path / "work", to="me/mine")
        said = str(caught.value)
        assert dataset in said
        assert "ids and splits, without text, pixels or labels" in said
        assert f"cxrhf push dataset {folder} --to me/mine --recipe" in said


@pytest.mark.parametrize("dataset", ["mimic_cxr_context", *LAYOUTS])
def test_a_recipe_holds_ids_and_splits_and_nothing_else(dataset, gated, tmp_path):
    folder = gated[dataset]
    artefact = made(folder, tmp_path / "work", recipe=True)
    check(artefact)
    pieces = {piece.path: piece.read() for piece in artefact.pieces}
    record = json.loads((folder / "build.json").read_text())
    assert set(pieces) == {
        "README.md",
        "recipe.json",
        "attrition.csv",
        *(f"ids/{split}.parquet" for split in record["splits"]),
    }
    assert artefact.may_hold == {"ids", "rows"}
    assert "check that your agreement" in artefact.notes[0]
    raw = load_images(folder, labels="raw")
    rows = []
    for path, content in pieces.items():
        if path.endswith(".parquet"):
            file = pq.ParquetFile(pa.BufferReader(content))
            assert file.schema_arrow.names == IDS
            assert set(file.metadata.metadata or ()) <= {b"ARROW:schema"}
            assert file.schema_arrow.metadata is None
            rows += file.read().to_pylist()
    assert sorted(rows, key=str) == sorted(raw.select(IDS).to_pylist(), key=str)
    text = b"\n".join(content for path, content in pieces.items() if not path.endswith(".parquet")).decode()
    secrets = {str(value) for name in ("indication", "comparison", "findings", "impression", "study_time")
               for value in raw[name].to_pylist() if value} | {
               value for name in ("image_id", "patient_id") for value in raw[name].to_pylist()}  # fmt: skip
    if record["n_notes"]:
        secrets |= set(load_notes(folder)["text"].to_pylist()) | set(load_notes(folder)["note_id"].to_pylist())
    # "None." is a section of many reports, "patient1" could stand in any word: what is looked for must say something.
    assert not [each for each in secrets if len(each) > 7 and each in text]
    assert str(folder) not in text
    assert "\xff\xd8" not in text
    assert "positive" not in text.replace("positive_only", "").replace("positive_first", "")  # no counts of labels
    counts = list(csv.DictReader(io.StringIO(pieces["attrition.csv"].decode())))
    assert list(counts[0]) == ["step", "images", "studies", "patients", "admissions", "notes"]
    assert all(value.isdigit() or not value for row in counts for name, value in row.items() if name != "step")


def test_a_recipe_loads_with_its_splits_and_builds_the_same(mimic, twin, tmp_path, capsys):
    recipe = copied(made(mimic, tmp_path / "work", recipe=True), tmp_path / "recipe")
    loaded = datasets.load_dataset(str(recipe), cache_dir=str(tmp_path / "cache"))
    splits = json.loads((mimic / "build.json").read_text())["splits"]
    assert {split: part.num_rows for split, part in loaded.items()} == {
        published_split(split): count for split, count in splits.items()
    }
    assert all(set(loaded[published_split(split)]["split"]) == {split} for split in splits)
    line = json.loads((recipe / "recipe.json").read_text())["command"]
    words = shlex.split(line.replace("FOLDER", str(twin / "source")))
    config = parse(BuildConfig, [*words[2:], "--out", str(tmp_path / "again")], verb="build", about="")
    again = build(config)
    assert again.record["fingerprint"] == json.loads((recipe / "recipe.json").read_text())["fingerprint"]
    found = compare_recipe(recipe, again.folder)
    assert found == (sum(splits.values()), 0, 0, 0)
    assert main([str(recipe), str(again.folder)]) == 0
    other = build(BuildConfig("mimic_cxr_context", root=config.root, out=str(tmp_path / "other"), size=64, seed=9,
                              no_pixels=True)).folder  # fmt: skip
    assert compare_recipe(recipe, other).moved > 0
    assert main([str(recipe), str(other)]) == 1
    assert "differ: seed" in capsys.readouterr().out
    assert main([str(twin), str(other)]) == 2
    (recipe / "recipe.json").write_text("{")
    assert main([str(recipe), str(other)]) == 2
    assert "recipe.json is damaged" in capsys.readouterr().err


def test_a_split_from_a_file_goes_as_a_file(mimic, twin, tmp_path):
    ids = load_images(mimic, labels="raw", columns=["patient_id", "split"])
    patients = pl.DataFrame({"subject_id": ids["patient_id"].to_pylist()}).unique().sort("subject_id")
    names = ["train", "valid", "test"] * patients.height
    patients.with_columns(split=pl.Series(names[: patients.height])).write_csv(tmp_path / "johns_list.csv")
    config = BuildConfig("mimic_cxr_context", root=(str(twin / "source"),), out=str(tmp_path / "set"), no_pixels=True,
                         split_file=str(tmp_path / "johns_list.csv"))  # fmt: skip
    folder = build(config).folder
    artefact = made(folder, tmp_path / "work", recipe=True)
    check(artefact)
    recipe = copied(artefact, tmp_path / "recipe")
    said = json.loads((recipe / "recipe.json").read_text())
    assert "johns" not in json.dumps(said)
    words = shlex.split(said["command"].replace("FOLDER", str(twin / "source")).replace("recipe/", f"{recipe}/"))
    again = build(parse(BuildConfig, [*words[2:], "--out", str(tmp_path / "again")], verb="build", about="")).folder
    assert compare_recipe(recipe, again)[1:] == (0, 0, 0)


def test_a_choice_by_label_is_told(twin, tmp_path):
    config = BuildConfig("mimic_cxr_context", root=(str(twin / "source"),), out=str(tmp_path / "set"), no_pixels=True,
                         exclude_devices=True, keep_without_notes=True)  # fmt: skip
    artefact = made(build(config).folder, tmp_path / "work", recipe=True)
    assert "without support devices" in artefact.notes[1]
    assert b"without support devices" in artefact.pieces[0].read()
    assert "--exclude-devices --keep-without-notes --no-pixels" in command(config)


# Who tries to get by.


def test_real_files_do_not_become_made_up(place, mimic, tmp_path):
    """MIMIC's files built as `synthetic`, or a build.json that was edited: nothing leaves, not even as a recipe."""
    write(
        "mimic", tmp_path / "real", n_patients=12, seed=8, pixels=False
    )  # stands for files that the twin does not know
    config = BuildConfig(
        "synthetic", root=(str(tmp_path / "real"),), out=str(tmp_path / "as-twin"), n_patients=12, no_pixels=True
    )
    disguised = build(config).folder
    renamed = edited(mimic, tmp_path / "renamed", dataset="synthetic", credentialed=False)
    settings = json.loads((mimic / "build.json").read_text())["settings"] | {"dataset": "synthetic"}
    thorough = edited(mimic, tmp_path / "thorough", dataset="synthetic", credentialed=False, settings=settings)
    for recipe in (False, True):
        with refused(HubError, "images", "notes", "they may be real", fix="cxrhf build mimic_cxr_context"):
            made(disguised, tmp_path / "work", recipe=recipe)
        for folder in (renamed, thorough):
            with refused(HubError, "mimic_cxr_context", fix="cxrhf build"):
                made(folder, tmp_path / "work", recipe=recipe)


def test_words_under_made_up_ids_are_found(twin, tmp_path):
    notes = edited(twin, tmp_path / "notes")
    path = notes / "notes" / "notes-00000.parquet"
    texts = pq.read_table(path)["text"].to_pylist()
    rewritten(path, text=["Seen in clinic with a cough.", *texts[1:]])
    with refused(HubError, "1 notes"):
        made(notes, tmp_path / "work")
    reports = edited(twin, tmp_path / "reports")
    shard = next((reports / "images").glob("test-*"))
    count = pq.read_metadata(shard).num_rows
    rewritten(shard, impression=["A real impression."] * count)
    with refused(HubError, f"{count} images"):
        made(reports, tmp_path / "work")


def test_rows_that_name_an_open_source_and_have_mimics_ids(mimic, nih, tmp_path):
    settings = json.loads((nih / "build.json").read_text())["settings"]
    folder = edited(mimic, tmp_path / "as-covid", dataset="covid_chestxray", credentialed=False,
                    settings=settings | {"dataset": "covid_chestxray"})  # fmt: skip
    for shard in (folder / "images").glob("*.parquet"):
        rewritten(shard, dataset=["covid_chestxray"] * pq.read_metadata(shard).num_rows)
    with pytest.raises(HubError) as caught:
        made(folder, tmp_path / "work")
    for sign in ("it was built from mimic-cxr-2.0.0-chexpert.csv.gz", "its ids are from mimic", "MIMIC-IV-Note"):
        assert sign in str(caught.value)


def test_a_user_may_be_stricter(nih, tmp_path):
    folder = edited(nih, tmp_path / "strict", credentialed=True)
    with refused(HubError, "build.json", "credentialed"):
        made(folder, tmp_path / "work")
    assert made(folder, tmp_path / "work", recipe=True).may_hold == {"ids", "rows"}


# What is no build, or a broken one.


def test_the_terms_agree():
    """The list of names that the other parts go by."""
    for dataset, terms in TERMS.items():
        assert standing([dataset]) == ("credentialed" if terms.credentialed else "open")


def test_no_build_no_push(twin, tmp_path):
    (tmp_path / "empty").mkdir()
    with refused(RunError, "has no build.json", fix="cxrhf build"):
        made(tmp_path / "empty", tmp_path / "work")
    with pytest.raises(RunError, match="is not a folder"):
        made(tmp_path / "nowhere", tmp_path / "work")
    with refused(RunError, str(twin.parent), fix="cxrhf push dataset"):
        made(twin.parent, tmp_path / "work")
    (tmp_path / "empty" / ".build").mkdir()
    with refused(RunError, "unfinished", fix="resume"):
        made(tmp_path / "empty", tmp_path / "work")
    with refused(HubError, "dataset", got="hospital"):
        made(edited(twin, tmp_path / "unknown", dataset="hospital"), tmp_path / "work")
    for changes in ({"settings": {"dataset": "synthetic", "colour": "red"}}, {"splits": None}, {"inputs": {}}):
        with refused(RunError, fix="build it again"):
            made(edited(twin, tmp_path / str(changes.keys()), **changes), tmp_path / "work")


def test_damage_is_found_before_anything_leaves(twin, nih, tmp_path):
    def broken(name: str) -> tuple[Path, Path]:
        folder = edited(twin, tmp_path / name)
        return folder, next((folder / "images").glob("train-*"))

    cut, shard = broken("cut")
    shard.write_bytes(shard.read_bytes()[:-100])
    gone, shard_gone = broken("gone")
    shard_gone.unlink()
    more, shard_more = broken("more")
    shutil.copy(shard_more, shard_more.with_name("train-extra.parquet"))
    other, shard_other = broken("other")
    shutil.copy(next((nih / "images").glob("train-*")), shard_other)
    wide, shard_wide = broken("wide")
    table = pq.ParquetFile(shard_wide).read()
    about = table.schema.metadata
    table = table.append_column("name", pa.array(["J. Doe"] * table.num_rows)).replace_schema_metadata(about)
    pq.write_table(table, shard_wide)
    named = edited(
        wide, tmp_path / "named", findings=[*json.loads((twin / "build.json").read_text())["findings"], "name"]
    )
    fewer, _ = broken("fewer")
    rewritten_notes = pq.read_table(fewer / "notes" / "notes-00000.parquet").slice(1)
    pq.write_table(rewritten_notes, fewer / "notes" / "notes-00000.parquet")
    bare, _ = broken("bare")
    (bare / "attrition.parquet").unlink()
    for folder, facts in (
        (cut, ["damaged", "nothing was uploaded"]), (gone, ["build.json"]), (more, ["train", "train-extra.parquet"]),
        (other, ["another build"]), (wide, ['column "name"']), (named, ['column "name"']),
        (fewer, ["n_notes", "build.json"]), (bare, ["attrition.parquet"]),
    ):  # fmt: skip
        with refused(CxrhfError, *facts):
            made(folder, tmp_path / "work")
    another = edited(twin, tmp_path / "another", fingerprint="f" * 32)
    with refused(TableError, "another build"):
        made(another, tmp_path / "work")


# To the Hub and back.

_LOAD = """
import hashlib, json, sys
import numpy as np
from datasets import load_dataset
twin, recipe = load_dataset("tester/twin"), load_dataset("tester/recipe")
digest = hashlib.sha256()
for split, part in twin.items():
    for row in part:
        digest.update(json.dumps([split, row["image_id"], row["edema"], row["impression"]]).encode())
        digest.update(np.asarray(row["image"]).tobytes())
notes = load_dataset("tester/twin", "notes")["train"]
print(json.dumps({
    "twin": digest.hexdigest(), "notes": notes["text"][:], "columns": recipe["train"].column_names,
    "recipe": {split: part["image_id"][:] for split, part in recipe.items()},
}))
"""


def test_from_the_hub_it_loads_the_same(hub, twin, published, mimic, tmp_path):
    client = Hub(HfApi(endpoint=hub.endpoint, token=hub.token), hub.endpoint, (0.0,))
    said: list[str] = []
    recipe = made(mimic, tmp_path / "recipe", to="tester/recipe", recipe=True)
    for artefact, repo in ((published, "tester/twin"), (recipe, "tester/recipe")):
        check(artefact)
        assert push(client, artefact, repo, private=False, said=said.append).changed
    for folder, name, recipe_only in ((twin, "twin", False), (mimic, "recipe", True)):
        again = made(folder, tmp_path / f"{name}-again", to=f"tester/{name}", recipe=recipe_only)
        assert not push(client, again, f"tester/{name}", private=False, said=said.append).changed
    done = subprocess.run([sys.executable, "-c", _LOAD], env=hub.env(tmp_path / "home"), capture_output=True, text=True,
                          check=True, timeout=120)  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    digest = hashlib.sha256()
    for split in json.loads((twin / "build.json").read_text())["splits"]:
        rows = load_images(twin, split=split, labels="raw", columns=["image", "image_id", "edema", "impression"])
        for row in rows.to_pylist():
            digest.update(
                json.dumps([published_split(split), row["image_id"], row["edema"], row["impression"]]).encode()
            )
            digest.update(np.asarray(Image.open(io.BytesIO(row["image"]["bytes"]))).tobytes())
    assert found["twin"] == digest.hexdigest()
    assert found["notes"] == load_notes(twin)["text"].to_pylist()
    assert found["columns"] == IDS
    for split, listed in found["recipe"].items():
        assert listed == sorted(load_images(mimic, split=split, columns=["image_id"])["image_id"].to_pylist())


def test_a_build_from_before_times_were_text_is_read_and_published(covid, nih, tmp_path):
    """Times were timestamps, the record held no version, and a shard of either kind may be written again."""
    for name, folder in (("covid", covid), ("nih", nih)):
        earlier = edited(folder, tmp_path / name)
        record = json.loads((earlier / "build.json").read_text())
        del record["version"]
        (earlier / "build.json").write_text(json.dumps(record))
        for path in [*earlier.glob("images/*.parquet"), *earlier.glob("notes/*.parquet")]:
            table = pq.ParquetFile(path).read()
            pq.write_table(from_stored(table).replace_schema_metadata(table.schema.metadata), path)
            assert "timestamp" in str(pq.read_schema(path))
        assert load_images(earlier).equals(load_images(folder))
        assert open_shards(earlier / "images").table.equals(open_shards(folder / "images").table)
        artefact = made(earlier, tmp_path / f"{name}-work")
        repo = copied(artefact, tmp_path / f"{name}-repo")
        assert json.loads((repo / "build.json").read_text())["version"] == "1.1"
        assert datasets.load_dataset(str(repo), cache_dir=str(tmp_path / "cache"))
