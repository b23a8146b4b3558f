"""Weights in .bin files: the paper's recipe reads its three, nothing in such a file runs, and none fills the memory."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cxrhf.context.run import fit_run
from cxrhf.context.settings import ContextFitConfig
from cxrhf.encode import download as bin_weights
from cxrhf.encode import encode_texts
from cxrhf.encode.download import check_kept
from cxrhf.encode.encoder import open_encoder
from cxrhf.encode.files import HUB_IDS
from cxrhf.encode.settings import EncodeConfig
from cxrhf.errors import CxrhfError
from cxrhf.settings import from_mapping, load_mapping
from tests.encode.tiny import BIN, ONLY_BIN, notes, save_bin, save_stand_in
from tests.refusals import refused

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Hub's cache as its client leaves it, with stand-ins for the six; twins of the three hold safetensors."""
    for name, hub_id in HUB_IDS.items():
        model = tmp_path / "hub" / f"models--{hub_id.replace('/', '--')}"
        (model / "refs").mkdir(parents=True)
        (model / "refs" / "main").write_text(COMMIT)
        save_stand_in(name, model / "snapshots" / COMMIT, tmp_path / "twins" / name)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("transformers.utils.hub.is_offline_mode", lambda: True)
    return tmp_path


def test_the_recipe_of_the_paper_reads_all_six_encoders(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of them have .bin weights only, which were refused, so that the recipe could not run."""
    read: list[Any] = []
    load = torch.load

    def counted(path: Any, *rest: Any, **settings: Any) -> Any:
        assert settings["weights_only"] is True
        read.append(path)
        return load(path, *rest, **settings)

    monkeypatch.setattr(torch, "load", counted)
    config = from_mapping(ContextFitConfig, {"build": "data", **load_mapping("pretest_paper")})
    assert set(config.encoders) == set(HUB_IDS)
    assert not config.allow_bin
    texts = notes(5)
    for name in config.encoders:
        settings = config.encode(name)
        check_kept(settings)  # as `context predict` asks for an encoder that a run names
        assert open_encoder(settings).files.safe == (name not in ONLY_BIN)
        vectors = encode_texts(texts, settings)
        assert vectors.shape == (5, 32)
        if name in ONLY_BIN:
            twin = EncodeConfig(str(hub_cache / "twins" / name), recipe="oberst", pooling="paper")
            np.testing.assert_allclose(vectors, encode_texts(texts, twin), atol=1e-6)
    assert [path.parent.parent.parent.name.rpartition("--")[2] for path in read] == [
        HUB_IDS[name].rpartition("/")[2] for name in config.encoders if name in ONLY_BIN
    ]
    copy = shutil.copytree(read[0].parent, hub_cache / "copy")  # the same files in another place need the flag
    with pytest.raises(CxrhfError, match=r"only \.bin weights.*--allow-bin"):
        open_encoder(EncodeConfig(str(copy)))


def spoil_bin(folder: Path) -> None:
    whole = (folder / BIN).read_bytes()
    (folder / BIN).write_bytes(whole[: len(whole) // 2])


def spoil_safetensors(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])


def lack_a_layer(folder: Path) -> None:
    path = folder / "model.safetensors"
    save_file({key: each for key, each in load_file(path).items() if "layer.1." not in key}, path)


@pytest.mark.parametrize(
    ("encoder", "spoil", "facts"),
    [
        ("biolinkbert", lambda folder: (folder / BIN).unlink(), ["encoder biolinkbert", "model.safetensors"]),
        ("biolinkbert", spoil_bin, ["encoder biolinkbert", "BadZipFile"]),
        ("roberta", spoil_safetensors, ["encoder roberta", "SafetensorError"]),
        ("roberta", lack_a_layer, ["encoder roberta", "16 parts", "encoder.layer.1."]),
        ("roberta", lambda folder: (folder / "tokenizer.json").unlink(), ["encoder roberta", "tokenizer"]),
        ("robreta", lambda _: None, ["encoder robreta", "'roberta'"]),
        (None, lambda _: None, ["notes are read"]),
    ],
)  # fmt: skip
def test_whatever_is_wrong_with_the_last_encoder_is_said_before_the_first_note_is_read(
    hub_cache: Path, monkeypatch: pytest.MonkeyPatch, encoder: str | None, spoil: Any, facts: list[str]
) -> None:
    """The recipe took days of GPUs for the encoders before it."""
    build, out = hub_cache / "build", hub_cache / "run"
    build.mkdir()
    (build / "build.json").write_text(json.dumps({"labels": "masked", "findings": ["edema"]}))
    config = from_mapping(ContextFitConfig, {"build": str(build), "out": str(out), **load_mapping("pretest_paper")})
    names = [name for name in config.encoders if name != encoder]
    if encoder in HUB_IDS:
        (folder,) = (hub_cache / "hub" / f"models--{HUB_IDS[encoder].replace('/', '--')}").glob("snapshots/*")
        spoil(folder)

    def read(*_: Any) -> None:
        raise CxrhfError("notes are read")

    monkeypatch.setattr("cxrhf.context.run.read_build", read)
    with refused(CxrhfError, *facts):
        fit_run(replace(config, encoders=(*names, encoder) if encoder else config.encoders), lambda _: None)
    assert not out.exists()


class Trap:
    """What a pickle can do: run a program when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def copy(bert: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bert, tmp_path / "copy"))


def refusal(folder: Path) -> str:
    with pytest.raises(CxrhfError) as error:
        encode_texts(["a"], EncodeConfig(str(folder), allow_bin=True))
    return str(error.value)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_program_in_the_file_does_not_run(copy: Path, tmp_path: Path, zipped: bool) -> None:
    state = {**load_file(copy / "model.safetensors"), "trap": Trap(tmp_path / "sprung")}
    said = refusal(save_bin(copy, state, _use_new_zipfile_serialization=zipped))
    assert "something other than weights" in said
    assert "weights_only" not in said  # torch recommends to load it all the same
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("wrong", ["list", "nested", "number", "sparse", "expanded"])
def test_what_is_no_flat_table_of_stored_numbers_is_refused(copy: Path, wrong: str) -> None:
    state: dict[str, Any] = load_file(copy / "model.safetensors")
    whole = {
        "list": list(state.values()),
        "nested": {"state_dict": state},
        "number": {**state, "step": 7},
        "sparse": {**state, "more": torch.eye(3).to_sparse()},
        "expanded": {**state, "more": torch.zeros(1).expand(1 << 40)},
    }
    assert "something other than weights" in refusal(save_bin(copy, whole[wrong]))


def test_names_and_shapes_are_those_of_the_model(copy: Path) -> None:
    state = load_file(copy / "model.safetensors")
    lacking = {key: each for key, each in state.items() if "layer.1.output.dense.weight" not in key}
    assert "lack 1 parts of the model" in refusal(save_bin(copy, lacking))
    name = "embeddings.word_embeddings.weight"
    assert "cannot be read" in refusal(save_bin(copy, {**state, name: state[name][:-1].clone()}))


def test_a_file_that_is_larger_than_the_model_is_not_read(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither as it lies there, nor one that grows when it is unpacked."""
    monkeypatch.setattr(bin_weights, "_ROOM", 0)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("was read"))
    state = {**load_file(copy / "model.safetensors"), "more": torch.zeros(1 << 20)}
    assert "larger than the model" in refusal(save_bin(copy, state))
    (copy / BIN).rename(copy / "stored")
    with zipfile.ZipFile(copy / "stored") as stored, zipfile.ZipFile(copy / BIN, "w", zipfile.ZIP_DEFLATED) as packed:
        for each in stored.infolist():
            packed.writestr(each.filename, stored.read(each))
    assert (copy / BIN).stat().st_size < (copy / "stored").stat().st_size / 10
    assert "larger than the model" in refusal(copy)


def test_a_damaged_file_is_a_sentence(copy: Path) -> None:
    save_bin(copy, load_file(copy / "model.safetensors"))
    whole = (copy / BIN).read_bytes()
    for part in (whole[: len(whole) // 2], whole[:2], b"", b"no pickle"):
        (copy / BIN).write_bytes(part)
        assert "copy" in refusal(copy)
