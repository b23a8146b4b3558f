"""Settings of builds: defaults by dataset, wrong ones said with what is allowed, recipes that load."""

from __future__ import annotations

from pathlib import Path

import pytest

from cxrhf.cli.flags import parse
from cxrhf.context.settings import ContextFitConfig
from cxrhf.data.settings import DATASETS, BuildConfig, DoctorConfig
from cxrhf.errors import ConfigError
from cxrhf.settings import from_mapping, load_mapping
from tests.refusals import refused

RECIPES = sorted(path.stem for path in (Path(__file__).parents[1] / "cxrhf" / "configs").glob("*_paper.yaml"))


def test_each_dataset_has_its_defaults():
    for name in DATASETS:
        made = BuildConfig(name)
        assert made.configuration
        assert made.views in ("all", "frontal")
        assert abs(sum(made.shares()) - 1) < 1e-12
    assert BuildConfig("nih-chestxray14").split == "official"
    assert BuildConfig("rexgradient").views == "frontal"
    assert BuildConfig("covid_chestxray").own_report == "drop"
    assert BuildConfig("mimic_cxr_context").own_report == "fail"


@pytest.mark.parametrize(
    ("settings", "fact"),
    [
        ({"dataset": "mimic"}, "mimic_cxr_context"),
        ({"dataset": "chexprt"}, "'chexpert'"),
        ({"dataset": "chexpert", "configuration": "linked"}, "configuration images"),
        ({"dataset": "chexpert", "labels": "mask"}, "'masked'"),
        ({"dataset": "chexpert", "ratios": "80/20"}, "ratios"),
        ({"dataset": "chexpert", "ratios": "a/b/c"}, "ratios"),
        ({"dataset": "chexpert", "ratios": "nan/1/1"}, "ratios"),
        ({"dataset": "nih_chestxray14", "sample": "encoding"}, "race"),
        ({"dataset": "chexpert", "images_per_patient": "positive_first"}, "--finding pneumothorax"),
        ({"dataset": "chexpert", "split": "file"}, "--split-file"),
        ({"dataset": "chexpert", "female": 1.5}, "female"),
        ({"dataset": "chexpert", "size": 8}, "size"),
        ({"dataset": "chexpert", "seed": -1}, "seed"),
    ],
)
def test_wrong_settings_are_said(settings, fact):
    with refused(ConfigError, fact):
        BuildConfig(**settings)


def test_a_split_file_is_enough():
    assert BuildConfig("chexpert", split_file="x.csv").split == "file"
    assert BuildConfig("chexpert", finding="Effusion").finding == "pleural_effusion"
    assert BuildConfig("chexpert", root="a").root == ("a",)


def test_what_decides_the_content():
    one = BuildConfig("chexpert", root=("a",), out="x", workers=1)
    other = BuildConfig("chexpert", root=("b",), out="y", workers=7, overwrite=True)
    assert one.content() == other.content()
    assert one.content() != BuildConfig("chexpert", seed=1).content()
    assert "n_patients" in BuildConfig("synthetic").content()


def test_doctor_needs_a_folder():
    with refused(ConfigError, "--root", fix="cxrhf doctor chexpert --root FOLDER"):
        DoctorConfig("chexpert")
    assert DoctorConfig("chexpert", root=("a",)).root == ("a",)


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_are_settings(recipe):
    assert len(RECIPES) == 6
    if recipe == "pretest_paper":  # the text models of CONTEXT
        assert from_mapping(ContextFitConfig, {"build": "data", **load_mapping(recipe)}).draws() == 60
        return
    dataset = "mimic_cxr_context" if recipe == "context_paper" else "chexpert"
    made = from_mapping(BuildConfig, {"dataset": dataset, **load_mapping(recipe)})
    parsed = parse(BuildConfig, [dataset, "--config", recipe, "--seed", "7"], verb="build", about="")
    assert parsed.seed == 7  # a flag wins over the recipe
    assert parsed.labels == made.labels
    assert parsed.images_per_patient == made.images_per_patient
