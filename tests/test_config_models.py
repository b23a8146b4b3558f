"""Settings of image models: recipes load, help is there, the papers' figures stand in them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import cxrhf
from cxrhf.errors import ConfigError
from cxrhf.models.settings import (
    CalibrateConfig,
    EmbedConfig,
    PredictConfig,
    ProbeConfig,
    TrainConfig,
    ZeroshotConfig,
    condition,
    seed_list,
)
from cxrhf.settings import from_mapping, load_mapping
from tests.refusals import refused

KINDS = (TrainConfig, PredictConfig, EmbedConfig, CalibrateConfig, ProbeConfig, ZeroshotConfig)
RECIPES = {
    "quick": {"backbone", "size", "max_steps"},
    "context_densenet": {"schedule", "patience"},
    "context_resnet": {"freeze"},
    "slices_resnet": {"augment_p"},
    "imbalance_densenet": {"kaiming"},
    "encoding_densenet": {"batch_size"},
    "encoding_resnet": {"batch_size"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_has_help(kind: type) -> None:
    assert kind.__doc__
    for field in dataclasses.fields(kind):
        assert field.metadata["help"].endswith("."), field.name


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_recipes_are_trainings(name: str) -> None:
    values = load_mapping(name)
    assert set(values) >= RECIPES[name]
    config = from_mapping(TrainConfig, {"build": "b", **values}, source=name)
    assert config.build == "b"


def test_every_training_recipe_is_listed() -> None:
    """A recipe with a backbone is one of ours, and `cxrhf train --help` names it."""
    from cxrhf.cli.train import ABOUT

    there = {
        path.stem
        for path in (Path(cxrhf.__file__).parent / "configs").glob("*.yaml")
        if "backbone:" in path.read_text()
    }
    assert there == set(RECIPES)
    assert all(name in ABOUT for name in RECIPES)


def test_figures_of_the_papers() -> None:
    """From methods: CONTEXT, SLICES, IMBALANCE and ENCODING."""
    dense = from_mapping(TrainConfig, {"build": "b", **load_mapping("context_densenet")})
    assert (dense.size, dense.rotation, dense.learning_rate, dense.epochs, dense.batch_size) == (256, 15, 5e-4, 64, 256)
    assert (dense.schedule, dense.factor, dense.patience, dense.best_by) == ("plateau", 0.5, 3, "loss")
    assert dense.plateau_by == "accuracy"
    assert (dense.fit, dense.flip, dense.clip, dense.weight_decay) == ("squash", 0.5, 0.5, 0)
    frozen = from_mapping(TrainConfig, {"build": "b", **load_mapping("context_resnet")})
    assert (frozen.freeze, frozen.optimizer, frozen.learning_rate, frozen.epochs) == (True, "adamw", 1e-3, 10)
    assert (frozen.fit, frozen.flip, frozen.rotation, frozen.weight_decay) == ("squash", 0, 0, 0.01)
    assert frozen.best_by == "auroc"
    slices = from_mapping(TrainConfig, {"build": "b", **load_mapping("slices_resnet")})
    assert (slices.learning_rate, slices.batch_size, slices.epochs) == (1e-6, 64, 20)
    assert (slices.flip, slices.rotation, slices.scale, slices.augment_p) == (0.5, 15, 0.1, 0.5)
    scratch = from_mapping(TrainConfig, {"build": "b", **load_mapping("imbalance_densenet")})
    assert (scratch.weights, scratch.kaiming, scratch.channels, scratch.pixels) == ("random", True, 1, "xrv")
    assert (scratch.rotation, scratch.translate, scratch.scale, scratch.weight_decay) == (45, 0.15, 0.15, 1e-5)
    assert (scratch.schedule, scratch.step_every, scratch.factor, scratch.epochs) == ("step", 40, 0.1, 100)
    for name in ("encoding_densenet", "encoding_resnet"):
        encoding = from_mapping(TrainConfig, {"build": "b", **load_mapping(name)})
        assert (encoding.learning_rate, encoding.batch_size, encoding.epochs) == (1e-3, 150, 20)


@pytest.mark.parametrize("text", ["", "a", "3-1", "0-99999", "1.5", "-1"])
def test_bad_seeds(text: str) -> None:
    with refused(ConfigError, "seeds", got=text):
        seed_list(text)


@pytest.mark.parametrize("text", ["sex", "sex=", "colour=red", "age=old", "age=5", "age=65-18"])
def test_bad_conditions(text: str) -> None:
    with refused(ConfigError, "only"):
        condition(text)


def test_other_settings_that_cannot_be() -> None:
    with refused(ConfigError, "test", fix="--split validate"):
        CalibrateConfig("r", split="test")
    with refused(ConfigError, "splits"):
        PredictConfig("r", splits=())
    with refused(ConfigError, "splits"):
        ZeroshotConfig("b", splits=())
    with refused(ConfigError, "workers", got="-1"):
        ProbeConfig("b", workers=-1)
    with refused(ConfigError, "method", got="temprature", fix="'temperature'"):
        CalibrateConfig("r", method="temprature")
    with refused(ConfigError, "targets", got="sexes"):
        ProbeConfig("b", targets=("sexes",))
