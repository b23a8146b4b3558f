"""Saved networks: the same logits for timm, transformers and us, bit for bit; whole or not there; damage is said."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn
from transformers import AutoConfig, AutoImageProcessor, AutoModelForImageClassification, pipeline

from cxrhf.errors import CxrhfError, RunError
from cxrhf.models.backbone import last_layer, last_layer_name, make_model
from cxrhf.models.data import Look, look_facts, to_pixels, to_square
from cxrhf.models.saved import load_saved, read_about, save_model, write_tensors
from cxrhf.report.card_text import load_lines
from tests.refusals import refused
from tests.thinned import thinned

BACKBONES = ("densenet121", "resnet18", "vit_tiny_patch16_224", "convnext_atto", "tf_efficientnet_lite0")
NAMES = ["edema", "sex=F", "sex=M"]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)  # several tests run at once


def pixels(count: int, channels: int, size: int = 32) -> torch.Tensor:
    return torch.randn(count, channels, size, size, generator=torch.Generator().manual_seed(count))


def made(backbone: str, n: int, channels: int, size: int = 32) -> nn.Module:
    """A network whose batch statistics are not those of the start."""
    model = make_model(backbone, n, channels=channels, size=size, seed=2)
    with torch.no_grad():
        model(pixels(4, channels, size))
    return model.eval()


def saved(folder: Path, model: nn.Module, backbone: str, channels: int = 3, size: int = 32, **about: Any) -> Path:
    names = NAMES[: last_layer(model).out_features]
    facts = look_facts(Look(size, "crop", "half", channels))
    save_model(folder, model, backbone=backbone, outputs=names, look_facts=facts, about={"seed": 2, **about})
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(
        tmp_path_factory.mktemp("run") / "seed-0", made("mobilenetv3_small_050", 3, 3), "mobilenetv3_small_050"
    )


@pytest.fixture
def copied(small: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "copied"
    folder.mkdir()
    for each in small.iterdir():
        (folder / each.name).write_bytes(each.read_bytes())
    return folder


WAYS = [*((each, 1, 1) for each in BACKBONES), *((each, 3, 3) for each in BACKBONES), ("resnet18.a1_in1k", 1, 3)]
QUICK = (("resnet18.a1_in1k", 1, 3),)


@pytest.mark.parametrize(
    ("backbone", "n", "channels"),
    thinned(WAYS, QUICK),
)
def test_all_three_ways_to_load_give_the_same_bits(backbone: str, n: int, channels: int, tmp_path: Path) -> None:
    """Small batches are what a last layer with one output computes differently where its weights are not aligned."""
    model = made(backbone, n, channels)
    folder = saved(tmp_path / "seed-0", model, backbone, channels)
    ours, about = load_saved(folder)
    theirs = AutoModelForImageClassification.from_pretrained(folder)
    timms = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    assert not ours.training
    for count in (1, 2, 3):
        given = pixels(count, channels)
        with torch.no_grad():
            wanted = model(given)
            assert torch.equal(ours(given), wanted)
            assert torch.equal(theirs(given).logits, wanted)
            assert torch.equal(timms(given), wanted)
    mine, other = model.state_dict(), theirs.timm_model.state_dict()
    assert {name: each.dtype for name, each in mine.items()} == {name: each.dtype for name, each in other.items()}
    assert theirs.dtype == torch.float32
    assert theirs.config.id2label == dict(enumerate(NAMES[:n]))
    assert theirs.config.label2id == {name: at for at, name in enumerate(NAMES[:n])}
    assert theirs.config.problem_type == "multi_label_classification"
    assert theirs.config.num_labels == len(about["outputs"]) == n
    assert {each.name for each in folder.iterdir()} == {"config.json", "model.safetensors", "cxrhf.json"}


@pytest.mark.parametrize("backbone", ["vit_tiny_patch16_224", "convnext_atto", "tf_efficientnet_lite0"])
def test_weights_start_at_multiples_of_64_bytes(backbone: str, tmp_path: Path) -> None:
    model = made(backbone, 1, 3)
    path = saved(tmp_path / "seed-0", model, backbone) / "model.safetensors"
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    assert (8 + length) % 64 == 0
    assert header.pop("__metadata__") == {"format": "pt"}
    starts = {name: each["data_offsets"][0] for name, each in header.items()}
    assert starts[f"{last_layer_name(model)}.weight"] % 64 == 0
    for name, each in model.state_dict().items():
        size = each.nbytes
        assert starts[name] % min(64, size & -size) == 0
    read = load_file(path)
    with safe_open(path, "pt") as opened:
        for name, each in model.state_dict().items():
            assert torch.equal(read[name], each)
            assert torch.equal(opened.get_tensor(name), each)
            assert read[name].dtype == each.dtype
        assert set(opened.keys()) == set(read) == set(model.state_dict())


def test_every_kind_of_tensor_is_written(tmp_path: Path) -> None:
    rng = torch.Generator().manual_seed(0)
    floats = torch.randn(3, 5, generator=rng)
    kinds = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool)
    given = {str(each): (floats > 0 if each == torch.bool else floats * 50).to(each) for each in kinds}
    given |= {"turned": floats.T, "one": torch.tensor(7), "none": torch.empty(0, 4)}
    write_tensors(tmp_path / "a.safetensors", given)
    read = load_file(tmp_path / "a.safetensors")
    assert set(read) == set(given)
    assert all(torch.equal(read[name], each) and read[name].dtype == each.dtype for name, each in given.items())
    with refused(CxrhfError, "wave", got="torch.complex64"):
        write_tensors(tmp_path / "b.safetensors", {"wave": torch.zeros(2, dtype=torch.complex64)})


def test_what_is_said_of_a_network_comes_back(small: Path) -> None:
    _, about = load_saved(small)
    assert about == read_about(small)
    assert about["backbone"] == "mobilenetv3_small_050"
    assert about["look"] == look_facts(Look(32, "crop", "half", 3))
    assert about["outputs"] == NAMES
    assert about["seed"] == 2
    assert AutoConfig.from_pretrained(small).pretrained_cfg["input_size"] == [3, 32, 32]


@pytest.mark.parametrize(("pixels_are", "channels"), [("imagenet", 3), ("imagenet", 1), ("half", 1), ("xrv", 3)])
@pytest.mark.parametrize("fit", ["squash", "crop"])
def test_the_image_processor_makes_our_numbers(
    fit: str, pixels_are: str, channels: int, tmp_path: Path, faces: list[np.ndarray]
) -> None:
    """Within rounding."""
    look = Look(64, fit, pixels_are, channels)
    model = make_model("mobilenetv3_small_050", 1, channels=channels, size=64)
    save_model(
        tmp_path / "a",
        model,
        backbone="mobilenetv3_small_050",
        outputs=["edema"],
        look_facts=look_facts(look),
        about={},
    )
    processor = AutoImageProcessor.from_pretrained(tmp_path / "a")
    spread = 255 * min(look.mean_std()[1])
    for grey in faces:
        ours = to_pixels(torch.from_numpy(to_square(grey, look).copy())[None, None], look)
        theirs = processor(Image.fromarray(grey).convert("L" if channels == 1 else "RGB"))["pixel_values"]
        assert theirs.shape == ours.shape
        apart = (ours - theirs).abs() * spread  # in grey levels
        assert float(apart.max()) < 1e-3


@pytest.fixture(scope="module")
def faces() -> list[np.ndarray]:
    """Smooth pictures: a square one, a wide and a tall one."""
    rng = np.random.default_rng(0)
    found = []
    for height, width in ((200, 200), (150, 211), (257, 190)):
        rough = Image.fromarray(rng.integers(0, 256, (12, 12), dtype=np.uint8))
        found.append(np.asarray(rough.resize((width, height), Image.Resampling.BICUBIC)))
    return found


def test_a_folder_is_replaced_when_the_new_one_is_whole(tmp_path: Path) -> None:
    model = made("mobilenetv3_small_050", 2, 3)
    folder = saved(tmp_path / "models" / "seed-0", model, "mobilenetv3_small_050", epoch=1)
    (folder / "calibration.json").write_text("{}")  # of the weights that go
    with pytest.raises(ValueError, match="JSON"):
        saved(folder, model, "mobilenetv3_small_050", loss=float("nan"))
    assert load_saved(folder)[1]["epoch"] == 1
    saved(folder, model, "mobilenetv3_small_050", epoch=2)
    assert load_saved(folder)[1]["epoch"] == 2
    assert [each.name for each in folder.parent.iterdir()] == ["seed-0"]
    assert not (folder / "calibration.json").exists()


def test_what_is_in_the_way_stays(tmp_path: Path) -> None:
    model = made("mobilenetv3_small_050", 2, 3)
    (tmp_path / "theses").mkdir()
    (tmp_path / "theses" / "mine.tex").write_text("years")
    with refused(RunError, "theses", fix="move"):
        saved(tmp_path / "theses", model, "mobilenetv3_small_050")
    assert (tmp_path / "theses" / "mine.tex").read_text() == "years"
    (tmp_path / "file").write_text("")
    with refused(RunError, str(tmp_path / "file")):
        saved(tmp_path / "file" / "seed-0", model, "mobilenetv3_small_050")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"outputs": ["a"]}, "1 distinct names for 2 outputs"),
        ({"outputs": ["a", "a"]}, "1 distinct names for 2 outputs"),
        ({"look_facts": {"size": 64}}, "fit, channels, mean, std"),
        ({"about": {"backbone": "x", "look": 1}}, "cxrhf.json.*backbone, look"),
        ({"backbone": "resnet18"}, r"this resnet18 .*\d+ missing .*unexpected"),
    ],
)
def test_networks_that_cannot_be_saved(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    whole = {
        "backbone": "mobilenetv3_small_050", "outputs": ["a", "b"], "look_facts": look_facts(Look(64)), "about": {},
    }  # fmt: skip
    with pytest.raises(CxrhfError, match=said):
        save_model(tmp_path / "a", make_model("mobilenetv3_small_050", 2), **{**whole, **given})
    assert not list(tmp_path.iterdir())


def test_a_vit_is_saved_with_the_size_it_was_made_for(tmp_path: Path) -> None:
    with refused(CxrhfError, "image size", got="64"):
        saved(tmp_path / "a", made("vit_tiny_patch16_224", 1, 3), "vit_tiny_patch16_224", size=64)


def change(folder: Path, name: str, **values: Any) -> None:
    (folder / name).write_text(json.dumps({**json.loads((folder / name).read_text()), **values}))


def flip(folder: Path) -> None:
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1000] ^= 1
    (folder / "model.safetensors").write_bytes(data)


def cut(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])


@pytest.mark.parametrize(
    ("damage", "facts"),
    [
        (flip, ("model.safetensors", "copy the whole folder again", "cxrhf train BUILD")),
        (cut, ("model.safetensors", "copy the whole folder again")),
        (lambda at: (at / "model.safetensors").unlink(), ("has no model.safetensors",)),
        (lambda at: (at / "config.json").unlink(), ("has no config.json",)),
        (lambda at: (at / "cxrhf.json").unlink(), ("has no cxrhf.json", "RUN/models/seed-0")),
        (lambda at: (at / "cxrhf.json").write_text("{"), ("cxrhf.json is damaged",)),
        (lambda at: (at / "config.json").write_bytes(b"\xff\xfe"), ("config.json is damaged",)),
        (lambda at: (at / "config.json").write_text("[]"), ("config.json is damaged",)),
        (lambda at: change(at, "cxrhf.json", format=9), ("newer", "pip install --upgrade cxrhf")),
        (lambda at: change(at, "cxrhf.json", look={"size": "64"}), ("cxrhf.json is damaged", "look")),
        (lambda at: change(at, "cxrhf.json", outputs=[]), ("cxrhf.json is damaged", "outputs")),
        (lambda at: change(at, "config.json", architecture="resnet18"), ("config.json", "cxrhf.json", "resnet18")),
        (lambda at: change(at, "config.json", label_names=["a", "b", "c"]), ("config.json", "3 outputs")),
        (lambda at: change(at, "config.json", model_args=7), ("config.json", "cxrhf.json")),
    ],
)  # fmt: skip
def test_damage_is_said(damage: Any, facts: tuple[str, ...], copied: Path) -> None:
    damage(copied)
    with refused(RunError, *facts):
        load_saved(copied)


@pytest.mark.parametrize(
    ("backbone", "fact", "fix"),
    [
        ("resnet26", " unexpected (", "copy the whole folder"),
        ("mobilenetv3_huge", "huge", "pip install timm=="),
    ],
)
def test_weights_of_another_network_are_said(backbone: str, fact: str, fix: str, copied: Path) -> None:
    change(copied, "cxrhf.json", backbone=backbone)
    change(copied, "config.json", architecture=backbone)
    with refused(CxrhfError, fact, fix=fix):
        load_saved(copied)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"look": {"size": 20_000}}, "16 to 4096 pixels"),
        ({"look": {"size": 8}}, "16 to 4096 pixels"),
        ({"look": {"channels": True}}, "look"),
        ({"look": {"pixels": 3}}, "look"),
        ({"look": {"mean": "x"}}, "look"),
        ({"outputs": ["a", "a", "b"]}, "outputs"),
        ({"outputs": [1, 2, 3]}, "outputs"),
        ({"name": 5}, "name"),
        ({"seed": -1}, "seed"),
        ({"seed": True}, "seed"),
        ({"seed": 10**30}, "seed"),
        ({"tasks": "x"}, "tasks"),
        ({"tasks": [{"name": "findings", "kind": "labels", "outputs": ["other"]}]}, "tasks"),
        ({"settings": {"labels": []}}, "settings"),
        ({"trained": {"steps": "many"}}, "trained"),
        ({"credentialed": "yes"}, "credentialed"),
        ({"backbone": 3}, "backbone"),
        ({"format": True}, "format"),
    ],
)
def test_a_record_of_other_kinds_is_refused(changes: dict[str, Any], said: str, copied: Path) -> None:
    path = copied / "cxrhf.json"
    about = json.loads(path.read_text())
    for name, value in changes.items():
        about[name] = {**about[name], **value} if name == "look" else value
    path.write_text(json.dumps(about))
    with refused(RunError, "cxrhf.json is damaged", said):
        load_saved(copied)


@pytest.mark.parametrize("backbone", ["vit_giant_patch14_224", "eva02_enormous_patch14_clip_224"])
def test_a_network_is_compared_before_it_is_made(backbone: str, copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's folder names a network of gigabytes: the file of weights does not hold it."""
    from cxrhf.models import saved as module

    devices = []

    def counted(*given: Any, device: str = "cpu", **named: Any) -> nn.Module:
        devices.append(device)
        return make_model(*given, device=device, **named)

    monkeypatch.setattr(module, "make_model", counted)
    for name, key in (("cxrhf.json", "backbone"), ("config.json", "architecture")):
        values = json.loads((copied / name).read_text())
        (copied / name).write_text(json.dumps({**values, key: backbone, "model_args": {}}))
    with pytest.raises(CxrhfError, match=r"\d+ missing"):
        load_saved(copied)
    assert devices == ["meta"]


def test_what_a_card_shows_works_and_the_pipeline_only_with_three_channels(small: Path, tmp_path: Path) -> None:
    """Cards carry the tag of the pipeline where it works; should it ever take one channel, they may do so there too."""
    grey = saved(tmp_path / "grey", made("test_resnet", 3, 1), "test_resnet", 1)
    film = Image.fromarray(np.arange(48 * 60, dtype=np.uint8).reshape(48, 60))
    assert {each["label"] for each in pipeline("image-classification", model=str(small))(film)} == set(NAMES)
    with pytest.raises(RuntimeError, match="1 channels"):
        pipeline("image-classification", model=str(grey))(film)
    for folder in (small, grey):
        facts = {"weights": read_about(folder), "kind": "image classifier", "data": {}, "datasets": []}
        code = "\n".join(load_lines(facts, [], None)).partition("```python\n")[2].partition("finding = ")[0]
        code = code.replace("import evaluate\n", "").replace("from datasets import load_dataset\n", "")
        told: dict[str, Any] = {}
        exec(code.replace('"user/name"', repr(str(folder))), told)
        assert told["logits"]([film, film]).shape == (2, 3)
