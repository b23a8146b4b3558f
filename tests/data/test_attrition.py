"""The attrition as table, lines, card and picture: every count, the published ones, nothing of anybody."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest
import yaml

import cxrhf.configs
from cxrhf.data.attrition import PAPERS, Steps, has_published_split, paper_of
from cxrhf.data.build import flow
from cxrhf.data.card import TERMS, card, front
from cxrhf.data.folder import build_print, file_print, version_of
from cxrhf.data.settings import BuildConfig
from cxrhf.data.splits import NAMES
from cxrhf.schema import ATTRITION

CONFIGS = Path(cxrhf.configs.__file__).parent
IMAGES = pl.DataFrame(
    {"image_id": ["i1", "i2", "i3"], "study_id": ["s1", "s1", "s2"], "patient_id": ["p1", "p1", "p2"]}
)


@pytest.fixture
def steps():
    made = Steps("mimic_cxr_context", paper="context")
    made.add("admissions", patients=223_452, admissions=546_028)
    made.add("images with labels", IMAGES)
    made.add(
        "images with a prior note", IMAGES.head(1), notes=4, note="<b>12</b> links & more, and more words than fit"
    )
    made.add("split train", IMAGES.head(1), published=False)
    return made


def test_counts_and_published_counts(steps):
    table = steps.table()
    assert table.schema.equals(ATTRITION, check_metadata=False)
    assert table.column("studies").to_pylist() == [None, 2, 1, 1]
    assert table.column("expected_patients").to_pylist()[0] == 223_452
    assert table.column("expected_images").to_pylist() == [None, None, 209_300, None]
    lines = steps.lines()
    assert "223,452 [223,452]" in lines[1]
    assert "1 [209,300]" in lines[3]
    assert PAPERS["context"]["mimic_cxr_context"]["split train"]["images"] == 167_291


def test_every_recipe_has_the_counts_of_its_own_paper():
    """ENCODING's recipe on MIMIC used to stand beside CONTEXT's split counts."""
    found = {}
    for recipe in sorted(path.stem for path in CONFIGS.glob("*_paper.yaml")):
        if recipe == "pretest_paper":  # a recipe of `cxrhf context fit`
            continue
        for dataset in ("mimic_cxr_context", "chexpert"):
            if (recipe, dataset) == ("context_paper", "chexpert"):
                continue
            settings = yaml.safe_load((CONFIGS / f"{recipe}.yaml").read_text())
            config = BuildConfig(dataset, **settings)
            # No other paper leaves out images without prior notes.
            assert config.keep_without_notes == (dataset == "mimic_cxr_context" and recipe != "context_paper")
            made = Steps(dataset, paper=paper_of(config))
            for step in ("sample encoding", "images with a prior note", "split train", "split test"):
                made.add(step, IMAGES, published=has_published_split(config) or not step.startswith("split"))
            found[recipe, dataset] = [row["expected_images"] for row in made.rows]
    assert found["context_paper", "mimic_cxr_context"][1:] == [209_300, 167_291, 20_770]
    assert found["encoding_paper", "mimic_cxr_context"] == [183_207, None, 110_280, 55_262]
    assert found["encoding_paper", "chexpert"] == [127_118, None, 76_205, 38_240]
    others = {key: counts[1:] for key, counts in found.items() if key[0].split("_")[0] not in ("context", "encoding")}
    assert len(others) == 6
    assert {each for counts in others.values() for each in counts} == {None}
    for changed in ({"ratios": "80/10/10"}, {"split": "official"}, {"female": 0.5}, {"exclude_devices": True}):
        assert not has_published_split(
            BuildConfig("chexpert", **{"sample": "encoding", "ratios": "60/10/30", **changed})
        )
    sums = PAPERS["encoding"]["mimic_cxr_context"]
    assert sum(sums[f"split {name}"]["images"] for name in NAMES) == 183_207
    assert sum(sums[f"split {name}"]["patients"] for name in NAMES) == 43_209


def test_the_picture_is_whole_and_escaped(steps):
    text = flow(steps.rows, "a <set>")
    tree = ElementTree.fromstring(text)
    words = " ".join(tree.itertext())
    assert "3 images" in words.replace("\u00a0", " ")
    assert "Excluded" in words
    assert "2 images" in words.replace("\u00a0", " ")
    assert "<b>12</b> links" in words.replace("\u00a0", " ")
    boxes = [(float(each.get("x", 0)), float(each.get("width"))) for each in tree.iter() if each.tag.endswith("rect")]
    assert all(x + width <= 880 for x, width in boxes)
    assert flow([], "nothing")


def test_card_front_and_counts(steps):
    record = {
        "settings": {"labels": "masked", "views": "all", "female": None}, "splits": {"train": 1, "test": 2},
        "n_notes": 4, "attributes": 3, "checked": {"patients": 2, "pairs": 9}, "fingerprint": "abc",
    }  # fmt: skip
    labels = pl.DataFrame({"finding": ["edema"], "positive": [1], "negative": [2], "uncertain": [3], "blank": [4]})
    for dataset, terms in TERMS.items():
        text = card(dataset, record, steps.rows, labels)
        front = yaml.safe_load(text.split("---")[1])
        assert [each["config_name"] for each in front["configs"]] == ["images", "notes", "attributes"]
        assert ("refuses this folder" in text) == terms.credentialed
        assert "| Edema | 1 | 2 | 3 | 4 |" in text
        assert "1 [209,300]" in text
        assert "female" not in text
        assert not re.search(r"\bi1\b|\bp1\b", text)


def test_a_card_claims_only_what_was_checked(steps):
    record = {
        "settings": {"labels": "masked"},
        "splits": {"train": 1},
        "n_notes": 0,
        "attributes": 0,
        "fingerprint": "a",
    }
    said = {}
    for checked in ({"patients": 2}, {"patients": 2, "pairs": 9}, {"patients": 2, "pairs": 9, "reports": 3}):
        text = card("mimic_cxr_context", {**record, "checked": checked}, steps.rows, None)
        said[len(checked)] = next(line for line in text.splitlines() if line.startswith("Leakage"))
    assert all("no patient is in two splits" in line for line in said.values())
    assert ["linked note is strictly before" in line for line in said.values()] == [False, True, True]
    assert ["no linked note contains" in line for line in said.values()] == [False, False, True]
    assert "not checked" in said[2]


def test_fingerprints(tmp_path):
    small, large = tmp_path / "a.csv", tmp_path / "b.csv"
    small.write_bytes(b"x" * 10)
    first = file_print(small)
    small.write_bytes(b"x" * 9 + b"y")
    assert file_print(small) != first
    assert first["whole"] is True
    with large.open("wb") as file:
        file.truncate((64 << 20) + 10)
    assert file_print(large)["whole"] is False
    one = build_print({"a": 1}, [first], "code")
    assert one == build_print({"a": 1}, [first], "code")
    others = [
        build_print({"a": 2}, [first], "code"),
        build_print({"a": 1}, [], "code"),
        build_print({"a": 1}, [first], "k"),
    ]
    assert len({one, *others}) == 4
    assert build_print({}, [], version_of("chexpert")) != build_print({}, [], "0.1")


def test_a_card_is_yaml_whatever_the_names_and_says_what_the_set_is_for():
    names = {'"Quoted": a set', "yes", "2.10", "- a list", "Sammlung # 1", "a 'name'"}
    tables = {"images": {"train": "images/train-*.parquet", "validation": "images/validate-*.parquet"}}
    for name in names:
        lines = front("rexgradient", name, tables, 10, {"dataset_info": {"config_name": "images"}})
        assert (lines[0], lines[-2:]) == ("---", ["---", ""])
        found = yaml.safe_load("\n".join(lines[1:-2]))
        assert found["pretty_name"] == name
        assert found["task_categories"] == ["image-to-text"]  # it has reports, and no labels
        assert found["dataset_info"] == {"config_name": "images"}
        assert found["configs"][0]["data_files"][1] == {"split": "validation", "path": "images/validate-*.parquet"}
    assert "image-classification" in "\n".join(front("chexpert", "CheXpert", tables, 10))
    notes = {"notes": {"train": "notes/notes-*.parquet"}}
    assert "task_categories" not in "\n".join(front("mimic_cxr_context", "MIMIC", notes, 10))
