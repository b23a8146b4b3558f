"""CLIP-style models: found, fetched and read by the real libraries, at tiny size; vectors as theirs."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoProcessor

from cxrhf.errors import ConfigError, CxrhfError, CxrhfWarning
from cxrhf.models.clip import PRESETS, Clip, _published, _trim_padding, load_clip, locate_clip
from tests.encode.test_download import Hub
from tests.encode.tiny import save_tiny
from tests.models.clip_tiny import SAVED, SIDE, TEXTS, films, save_biomed_like, save_clip, save_open_clip, seen_by
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]
KINDS = tuple(SAVED)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)  # several tests run at once


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: save(tmp_path_factory.mktemp(kind) / kind) for kind, save in SAVED.items()}


@pytest.fixture(scope="module")
def loaded(folders: dict[str, Path]) -> dict[str, Clip]:
    return {kind: load_clip(str(folder), "cpu") for kind, folder in folders.items()}


def copied(folder: Path, to: Path) -> Path:
    return Path(shutil.copytree(folder, to / folder.name))


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_have_unit_length_and_do_not_depend_on_the_batch(loaded: dict[str, Clip], kind: str) -> None:
    clip, pictures = loaded[kind], films(7)
    seen, read = seen_by(clip, pictures), clip.text_features(TEXTS[:40])
    assert seen.shape == (7, clip.dim)
    assert read.shape == (40, clip.dim)
    for each in (seen, read):
        assert each.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(each, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(seen, np.concatenate([seen_by(clip, [each]) for each in pictures]), atol=1e-5)
    np.testing.assert_allclose(read, np.concatenate([clip.text_features([each]) for each in TEXTS[:40]]), atol=1e-5)
    np.testing.assert_array_equal(seen, seen_by(clip, pictures))
    assert not np.allclose(seen[0], seen[1], atol=1e-4)
    assert len({each.tobytes() for each in read}) > 1
    assert seen_by(clip, []).shape == clip.text_features([]).shape == (0, clip.dim)


@pytest.mark.parametrize("kind", ["clip", "siglip", "siglip2"])
def test_as_transformers_gives_it(loaded: dict[str, Clip], folders: dict[str, Path], kind: str) -> None:
    """The logits of the whole model, asked for as its makers say."""
    clip, pictures, texts = loaded[kind], films(3), [TEXTS[0], TEXTS[9], TEXTS[33]]
    model, processor = AutoModel.from_pretrained(folders[kind]).eval(), AutoProcessor.from_pretrained(folders[kind])
    rgb = [Image.fromarray(each).convert("RGB") for each in pictures]
    if kind == "clip":
        inputs = processor(text=texts, images=rgb, padding=True, return_tensors="pt")
    else:
        tokens = processor.tokenizer(texts, padding="max_length", max_length=clip.context, return_tensors="pt")[
            "input_ids"
        ]
        inputs = {"input_ids": tokens, **processor.image_processor(rgb, return_tensors="pt")}
    with torch.no_grad():
        wanted = model(**inputs).logits_per_image.numpy()
    got = clip.scale * seen_by(clip, pictures) @ clip.text_features(texts).T + (clip.bias or 0)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    assert (clip.bias is None) == (kind == "clip")
    assert clip.library == "transformers"


@pytest.mark.parametrize("kind", ["open_clip", "biomed"])
def test_as_open_clip_gives_it(loaded: dict[str, Clip], folders: dict[str, Path], kind: str) -> None:
    clip, pictures, texts = loaded[kind], films(3), [TEXTS[0], TEXTS[9], TEXTS[33]]
    model, transform = open_clip.create_model_from_pretrained(f"local-dir:{folders[kind]}")
    tokens = open_clip.get_tokenizer(f"local-dir:{folders[kind]}")(texts)
    batch = torch.stack([transform(Image.fromarray(each)) for each in pictures])
    with torch.no_grad():
        wanted = model.eval().get_logits(batch, tokens)[0].numpy()
    got = clip.scale * seen_by(clip, pictures) @ clip.text_features(texts).T
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    assert clip.library == "open_clip"
    assert clip.bias is None


def test_what_fills_up_is_left_out_only_where_nobody_looks() -> None:
    """BiomedCLIP's prompts are filled up to 256 tokens. open_clip's own text tower counts on its length."""
    bert = SimpleNamespace(text=SimpleNamespace(config=SimpleNamespace(pad_token_id=0)))
    tokens = torch.tensor([[2, 5, 6, 3, 0, 0], [2, 7, 3, 0, 0, 0]])
    assert _trim_padding(tokens, bert).tolist() == [[2, 5, 6, 3], [2, 7, 3, 0]]
    assert _trim_padding(tokens, SimpleNamespace()) is tokens
    last = torch.tensor([[2, 5, 3, 0, 0, 9]])  # a class token at the end
    assert _trim_padding(last, bert) is last


def test_open_clip_leaves_the_log_alone(folders: dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    before = list(logging.getLogger().handlers), logging.getLogger().level
    load_clip(str(folders["open_clip"]), "cpu")
    assert (list(logging.getLogger().handlers), logging.getLogger().level) == before
    assert not caplog.records


@pytest.mark.parametrize("kind", KINDS)
def test_long_prompts_are_not_cut(loaded: dict[str, Clip], kind: str) -> None:
    clip = loaded[kind]
    fits = " ".join(["edema"] * 3)
    assert len(clip.text_features([fits])) == 1
    with refused(ConfigError, f"at most the {clip.context} tokens that {clip.name} reads", fix="shorten the prompt"):
        clip.text_features([fits, " ".join(["edema"] * 200)])


def test_pictures_must_be_grey(loaded: dict[str, Clip]) -> None:
    for bad in (np.zeros((4, 4), np.float32), np.zeros((4, 4, 3), np.uint8), np.zeros((0, 4), np.uint8)):
        with refused(CxrhfError, "uint8", got=str(bad.shape)):
            seen_by(loaded["clip"], [bad])
    turned = films(1)[0].T  # not contiguous
    assert seen_by(loaded["clip"], [turned]).shape == (1, loaded["clip"].dim)


@pytest.mark.parametrize("kind", ["clip", "open_clip"])
def test_the_hash_names_the_content(
    loaded: dict[str, Clip], folders: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    other = copied(folders[kind], tmp_path)
    assert load_clip(str(other), "cpu").model_hash() == loaded[kind].model_hash()
    config = other / ("processor_config.json" if kind == "clip" else "open_clip_config.json")
    config.write_text(config.read_text() + "\n")
    assert load_clip(str(other), "cpu").model_hash() != loaded[kind].model_hash()


def test_names(folders: dict[str, Path], tmp_path: Path) -> None:
    assert locate_clip("biomedclip").hub_id == PRESETS["biomedclip"]
    assert locate_clip("hf-hub:org/model")[:4] == ("org/model", "open_clip", None, "org/model")
    assert locate_clip(" org/model ")[:4] == ("org/model", "transformers", None, "org/model")
    assert locate_clip(str(folders["clip"])).library == "transformers"
    assert locate_clip(str(folders["biomed"])).library == "open_clip"
    both = copied(folders["clip"], tmp_path)  # as transformers models are published: with open_clip's config beside
    shutil.copy(folders["open_clip"] / "open_clip_config.json", both)
    assert locate_clip(str(both)).library == "transformers"
    shutil.copy(folders["open_clip"] / "open_clip_model.safetensors", both)
    assert locate_clip(str(both)).library == "open_clip"
    assert locate_clip(f"open_clip:{folders['clip']}").library == "open_clip"


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("biomedclp", ("biomedclip, ORG/NAME", "did you mean 'biomedclip'?")),
        ("", ("--model", "biomedclip")),
        ("hf-hub:one", ("--model", "hf-hub:ORG/NAME")),
        ("open_clip:ViT-B-32", ("--model", "open_clip:ARCH@WEIGHTS")),
        ("open_clip:ViT-B-32@none.safetensors", ("none.safetensors does not exist",)),
        (f"open_clip:ViT-B-32@{__file__}", ("test_clip.py", ".safetensors")),
        (__file__, ("test_clip.py", "a folder")),
    ],
)
def test_bad_names(name: str, facts: tuple[str, ...]) -> None:
    with refused(ConfigError, *facts):
        load_clip(name, "cpu")


def test_an_architecture_with_a_weights_file(folders: dict[str, Path], loaded: dict[str, Clip], tmp_path: Path) -> None:
    said = json.loads((folders["open_clip"] / "open_clip_config.json").read_text())
    (tmp_path / "cxrhf-tiny.json").write_text(json.dumps(said["model_cfg"]))
    open_clip.add_model_config(tmp_path / "cxrhf-tiny.json")
    file = Path(shutil.copy(folders["open_clip"] / "open_clip_model.safetensors", tmp_path / "mine.safetensors"))
    for place in (file, tmp_path):
        clip = load_clip(f"open_clip:cxrhf-tiny@{place}", "cpu")
        assert clip.name == "cxrhf-tiny@mine"
        np.testing.assert_allclose(
            clip.text_features(TEXTS[:3]), loaded["open_clip"].text_features(TEXTS[:3]), atol=1e-6
        )
        assert seen_by(clip, films(1)).shape == (1, clip.dim)
    torch.save({"state_dict": load_file(file)}, tmp_path / "mine.pt")
    again = load_clip(f"open_clip:cxrhf-tiny@{tmp_path / 'mine.pt'}", "cpu")
    np.testing.assert_array_equal(seen_by(again, films(2)), seen_by(clip, films(2)))
    with refused(CxrhfError, got="mine.pt", fix="open_clip:ARCH@WEIGHTS_FILE"):
        load_clip(f"open_clip:cxrhf-tiny@{tmp_path}", "cpu")
    with refused(ConfigError, got="cxrhf-tony", fix="did you mean 'cxrhf-tiny'"):
        load_clip(f"open_clip:cxrhf-tony@{file}", "cpu")


def test_scaling_of_pictures_for_bare_weights() -> None:
    assert _published("ViT-B-16-SigLIP") == {
        "mean": (0.5,) * 3, "std": (0.5,) * 3, "interpolation": "bicubic", "resize_mode": "squash",
    }  # fmt: skip
    with pytest.warns(CxrhfWarning, match=r"ViT-L-14.*open_clip_config\.json"):
        _published("ViT-L-14")
    assert _published("no-such") == {}


# What is wrong with a model


class Runs:
    """What a harmful weights file would do when it is read by pickle."""

    def __init__(self, file: Path) -> None:
        self.file = str(file)

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (self.file, "w"))


@pytest.mark.parametrize("kind", ["clip", "open_clip"])
def test_weights_that_run_something_are_refused(folders: dict[str, Path], tmp_path: Path, kind: str) -> None:
    folder = copied(folders[kind], tmp_path)
    safe = next(folder.glob("*.safetensors"))
    weights = load_file(safe)
    safe.unlink()
    name = "pytorch_model.bin" if kind == "clip" else "open_clip_pytorch_model.bin"
    torch.save(weights, folder / name)  # plain tensors are read
    assert load_clip(str(folder), "cpu").text_features(TEXTS[:1]).shape[0] == 1
    torch.save({**weights, "own": Runs(tmp_path / "ran")}, folder / name)
    with refused(CxrhfError, f"model {kind}:", "something other than weights"):
        load_clip(str(folder), "cpu")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("kind", "part"), [("clip", "visual_projection.weight"), ("open_clip", "visual.proj")])
def test_weights_that_lack_a_part_are_refused(folders: dict[str, Path], tmp_path: Path, kind: str, part: str) -> None:
    folder = copied(folders[kind], tmp_path)
    safe = next(folder.glob("*.safetensors"))
    weights = load_file(safe)
    del weights[part]
    save_file(weights, safe, metadata={"format": "pt"})
    with pytest.raises(CxrhfError, match=r"lack 1 of|Missing key|Error\(s\) in loading"):
        load_clip(str(folder), "cpu")


def test_vectors_without_direction_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(folders["clip"], tmp_path)
    weights = load_file(folder / "model.safetensors")
    weights["visual_projection.weight"][:] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with refused(CxrhfError, "not finite", fix="download"):
        seen_by(load_clip(str(folder), "cpu"), films(1))


def test_other_models_and_code_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    bert = save_tiny("bert", tmp_path / "bert")
    with refused(CxrhfError, "model bert", "CLIP-style", got="bert"):
        load_clip(str(bert), "cpu")
    own = copied(folders["clip"], tmp_path)
    config = json.loads((own / "config.json").read_text())
    config |= {"model_type": "own_clip", "auto_map": {"AutoConfig": "own.Own", "AutoModel": "own.Model"}}
    (own / "config.json").write_text(json.dumps(config))
    (own / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with refused(CxrhfError, "model clip ", "its own code"):
        load_clip(str(own), "cpu")
    # The same for a text tower of open_clip.
    tower = tmp_path / "tower"
    like = save_biomed_like(tmp_path / "like", tower)
    (tower / "config.json").write_text(json.dumps(config))
    with refused(CxrhfError, "its own code"):
        load_clip(str(like), "cpu")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "is damaged"), ("[]", "is damaged"), ('{"model_cfg": {"text_cfg": 1, "vision_cfg": {}}}', "is damaged")],
)
def test_damaged_configs(folders: dict[str, Path], tmp_path: Path, text: str, said: str) -> None:
    folder = copied(folders["open_clip"], tmp_path)
    (folder / "open_clip_config.json").write_text(text)
    with pytest.raises(CxrhfError, match=said):
        load_clip(str(folder), "cpu")


def test_incomplete_folders(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(folders["open_clip"], tmp_path)
    config = json.loads((folder / "open_clip_config.json").read_text())
    config["model_cfg"]["vision_cfg"] = {"timm_model_name": "hf-hub:org/tower", "image_size": SIDE}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    with refused(CxrhfError, "image tower", got="hf-hub:org/tower"):
        load_clip(str(folder), "cpu")
    (folder / "open_clip_model.safetensors").unlink()
    with refused(CxrhfError, got="no weights"):
        load_clip(str(folder), "cpu")
    (tmp_path / "empty").mkdir()
    with refused(CxrhfError, "config.json"):
        load_clip(str(tmp_path / "empty"), "cpu")
    with refused(CxrhfError, got="no weights"):
        load_clip(f"open_clip:{tmp_path / 'empty'}", "cpu")
    shutil.copy(folders["open_clip"] / "open_clip_model.safetensors", tmp_path / "empty")
    with refused(CxrhfError, "open_clip_config.json"):
        load_clip(f"open_clip:{tmp_path / 'empty'}", "cpu")
    without = copied(folders["clip"], tmp_path)
    (without / "processor_config.json").unlink()
    with refused(CxrhfError, "model clip ", "image processor"):
        load_clip(str(without), "cpu")


# The Hub


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_without_network_the_answer_comes_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    start = time.monotonic()
    said = []
    for name in ("biomedclip", "hf-hub:org/none", "org/none"):
        with pytest.raises(CxrhfError) as raised:
            load_clip(name, "cpu")
        said.append(str(raised.value))
    assert time.monotonic() - start < 5
    assert f"the model biomedclip ({PRESETS['biomedclip']}) is not" in said[0]
    assert f"`hf download {PRESETS['biomedclip']}` and" in said[0]
    assert "`hf download microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract config.json`" in said[0]
    assert said[1].startswith("the model org/none is not on this machine, and the Hub cannot be reached")
    assert "`hf download org/none` on a machine with network" in said[2]
    with monkeypatch.context() as patched:
        patched.setattr("transformers.utils.hub.is_offline_mode", lambda: True)
        with pytest.raises(CxrhfError, match="is not on this machine, and HF_HUB_OFFLINE is set"):
            load_clip("org/none", "cpu")
    # A folder whose text tower is described elsewhere: what is missing is that config.
    like = save_biomed_like(tmp_path / "like", tmp_path / "tower", name="org/tower")
    with pytest.raises(CxrhfError, match=r"`hf download org/tower config\.json`"):
        load_clip(str(like), "cpu")
    shutil.copy(tmp_path / "tower" / "config.json", like)
    assert load_clip(str(like), "cpu").text_features(TEXTS[:2]).shape[0] == 2


# Each step: address, whether offline, function of clip_files, argument -> what comes of it, as a line of JSON.
ASK = """
import json, os, sys
from pathlib import Path
from cxrhf.errors import CxrhfError
from cxrhf.models.clip import locate_clip, source_folder, tokenizer_folder, tower_folder
for address, call, name in json.loads(sys.argv[1]):
    os.environ["HF_ENDPOINT"] = address
    try:
        if call == "model":
            said = source_folder(locate_clip(name))
        else:
            said = (tower_folder if call == "tower" else tokenizer_folder)(name, None)
    except CxrhfError as error:
        said = error
    print(json.dumps(str(said)))
"""


@pytest.fixture
def hub(folders: dict[str, Path], tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """A Hub with an open_clip model whose text tower is another model's, as BiomedCLIP's is, and other CLIPs."""
    like = save_biomed_like(tmp_path / "hub" / "like", tmp_path / "hub" / "tower", name="org/tower")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.move(like / name, tmp_path / "hub" / "tower" / name)
    (like / "own.py").write_text("raise SystemExit")
    clip = copied(folders["clip"], tmp_path / "hub")
    old = Path(shutil.copytree(clip, tmp_path / "hub" / "old"))
    torch.save(load_file(old / "model.safetensors"), old / "pytorch_model.bin")
    (old / "model.safetensors").unlink()
    shutil.copy(old / "pytorch_model.bin", clip)
    bare = Path(shutil.copytree(clip, tmp_path / "hub" / "bare"))
    (bare / "processor_config.json").unlink()
    served = {"org/like": like, "org/tower": tmp_path / "hub" / "tower", "org/clip": clip, "org/old": old,
              "org/bare": bare}  # fmt: skip
    asked: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Asked", (Hub,), {"folders": served, "asked": asked}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_models_are_fetched_without_code_then_kept(
    hub: tuple[str, list[str]], tmp_path: Path, loaded: dict[str, Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, asked = hub
    nobody = f"http://127.0.0.1:{free_port()}"
    steps = [
        (address, "model", "hf-hub:org/like"), (address, "tower", "org/tower"), (address, "tokenizer", "org/tower"),
        (address, "model", "org/clip"), (address, "model", "org/old"), (address, "model", "org/bare"),
        (address, "model", "org/like"), (address, "model", "hf-hub:org/clip"), (address, "tower", "org/like"),
        (address, "model", "org/gated"), (address, "model", "org/none"),
        (nobody, "model", "hf-hub:org/like"), (nobody, "model", "org/clip"), (nobody, "tower", "org/tower"),
    ]  # fmt: skip
    plain = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    env = {**plain, "PYTHONPATH": str(ROOT), "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}
    env["HF_ENDPOINT"] = address
    done = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps(steps)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    like, tower, tokenizer, clip, old, bare, not_one, not_other, no_tower, gated, none = said[:11]
    assert said[11:] == [like, clip, tower]  # kept: nobody answered
    assert {each.name for each in Path(like).iterdir()} == {"open_clip_config.json", "open_clip_pytorch_model.bin"}
    assert tower == tokenizer
    assert {"config.json", "tokenizer.json", "tokenizer_config.json"} == {each.name for each in Path(tower).iterdir()}
    assert load_clip(clip, "cpu").model_hash() == loaded["clip"].model_hash()
    assert not (Path(clip) / "pytorch_model.bin").exists()
    np.testing.assert_array_equal(
        load_clip(old, "cpu").text_features(TEXTS[:2]), loaded["clip"].text_features(TEXTS[:2])
    )
    assert "org/bare is incomplete: got no processor_config.json" in bare
    assert "has no config.json. Pass --model hf-hub:org/like" in not_one
    assert "has no open_clip_config.json. Pass --model org/clip" in not_other
    assert "org/like has no config.json. Check the id" in no_tower
    assert "is gated" in gated
    assert "the Hub has no model org/none" in none
    assert not any(path.endswith(".py") for path in asked)
    # By their ids out of the cache, the text tower and its tokenizer from the other model.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    monkeypatch.setenv("HF_ENDPOINT", nobody)
    read = load_clip("hf-hub:org/like", "cpu")
    assert read.name == "org/like"
    np.testing.assert_array_equal(read.text_features(TEXTS[:2]), loaded["biomed"].text_features(TEXTS[:2]))
    assert load_clip("org/clip", "cpu").name == "org/clip"


def test_builders_are_the_same_twice(tmp_path: Path) -> None:
    """The tiny models are what the other tests stand on."""
    for save in (save_clip, save_open_clip):
        one, two = save(tmp_path / "one" / save.__name__), save(tmp_path / "two" / save.__name__)
        for file in sorted(one.iterdir()):
            assert file.read_bytes() == (two / file.name).read_bytes(), file.name
