"""Adapters sit on the language model only, whatever its architecture, and their files are peft's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from cxrhf.errors import CxrhfError
from cxrhf.models.lora import (
    adapter_weights,
    add_lora,
    language_layers,
    layer_pattern,
    save_adapter,
    save_merged,
    set_adapter_weights,
    tiny_qwen3_vl,
    vision_tower,
)
from cxrhf.models.vlm import load_vlm
from cxrhf.models.vlm_data import question_batch
from tests.models.test_vlm import SIDE, TEXTS, film
from tests.models.tiny_vlms import llava
from tests.refusals import refused

SETTINGS: dict[str, Any] = {
    "rank": 4, "alpha": 8, "dropout": 0.0, "embeddings": False, "four_bit": False, "seed": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3_vl(tmp_path_factory.mktemp("lora") / "tiny", TEXTS, hidden=32, vision_hidden=32)


def shaken(model: Any) -> dict[str, torch.Tensor]:
    """Adapters that do something, as after a training."""
    generator = torch.Generator().manual_seed(1)
    tensors = adapter_weights(model)
    moved = {name: each + 0.1 * torch.randn(each.shape, generator=generator) for name, each in tensors.items()}
    set_adapter_weights(model, moved)
    return moved


def written(folder: Path, frozen: Path) -> Path:
    """The folder of an adapter that was made with the functions of the product."""
    vlm = load_vlm(str(frozen), size=SIDE)
    vlm.model = add_lora(vlm, **SETTINGS)
    about = {"name": "mine", "base": vlm.about["base"], "prompt": "Write.", "size": SIDE}
    save_adapter(folder, vlm.model, shaken(vlm.model), vlm.processor, about, str(frozen))
    return folder


@pytest.mark.parametrize("kind", ["qwen", "llava"])
def test_adapters_sit_on_the_language_model_only(kind: str, tiny: Path, tmp_path: Path) -> None:
    vlm = load_vlm(str(tiny if kind == "qwen" else llava(tmp_path / "llava")), size=SIDE)
    layers = language_layers(vlm.model)
    kinds = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert {each.rsplit(".", 1)[-1] for each in layers} == kinds
    assert len(layers) == 2 * len(kinds)
    assert len(layer_pattern(vlm.model)) < 200
    tower = vision_tower(vlm.model)
    assert tower is not None
    model = add_lora(vlm, **SETTINGS)
    learns = [name for name, each in model.named_parameters() if each.requires_grad]
    assert len(learns) == 2 * len(layers)
    assert all("lora_" in name and "language_model" in name for name in learns)
    assert not any("lora" in name for name, _ in tower.named_modules())


def test_the_seed_draws_the_adapters(tiny: Path) -> None:
    def first(seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed + 100)
        return adapter_weights(add_lora(load_vlm(str(tiny), size=SIDE), **{**SETTINGS, "seed": seed}))

    one, again, other = first(0), first(0), first(1)
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("embeddings", [False, True])
def test_peft_reads_the_folder_and_gives_the_same_logits(embeddings: bool, tiny: Path, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForImageTextToText

    vlm = load_vlm(str(tiny), size=SIDE)
    asked = question_batch(vlm, [film(1), film(2)], ["Write."] * 2)
    with torch.no_grad():
        before = vlm.model(**asked).logits
    vlm.model = add_lora(vlm, **{**SETTINGS, "embeddings": embeddings})
    about = {"name": "mine", "base": {**vlm.about["base"], "source": str(tiny)}, "prompt": "Write.", "size": SIDE}
    save_adapter(tmp_path / "adapter", vlm.model, shaken(vlm.model), vlm.processor, about, str(tiny))
    with torch.no_grad():
        mine = vlm.model.eval()(**asked).logits
    assert not torch.allclose(mine, before)
    base = AutoModelForImageTextToText.from_pretrained(tiny)
    theirs = PeftModel.from_pretrained(base, str(tmp_path / "adapter")).eval()
    opened = load_vlm(str(tmp_path / "adapter"))
    assert opened.about["name"] == "mine"
    assert (opened.about["size"], opened.about["prompt"]) == (SIDE, "Write.")
    with torch.no_grad():
        assert torch.equal(theirs(**asked).logits, mine)
        assert torch.equal(opened.model(**asked).logits, mine)
    assert not any(each.requires_grad for each in opened.model.parameters())
    shown = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert shown["peft_type"] == "LORA"
    save_merged(tmp_path / "merged", str(tiny), tmp_path / "adapter", about, precision="float32", size=SIDE)
    merged = load_vlm(str(tmp_path / "merged"))
    assert (merged.about["name"], merged.about["size"], merged.about["adapter"]) == ("mine", SIDE, None)
    with torch.no_grad():
        torch.testing.assert_close(merged.model(**asked).logits, mine, atol=1e-5, rtol=1e-5)


def test_an_adapter_for_another_base_is_refused(tiny: Path, tmp_path: Path) -> None:
    adapter = written(tmp_path / "adapter", tiny)
    assert load_vlm(str(tiny), adapter=adapter).about["adapter"]["name"] == "mine"
    other = tiny_qwen3_vl(tmp_path / "other", TEXTS, hidden=32, vision_hidden=32, seed=1)
    wide = tiny_qwen3_vl(tmp_path / "wide", TEXTS, hidden=64, vision_hidden=32)
    for base, what in (
        (other, "other weights"),
        (wide, "other shapes"),
        (llava(tmp_path / "llava"), "LlavaForConditionalGeneration"),
    ):
        with refused(CxrhfError, "mine", base.name, what):
            load_vlm(str(base), adapter=adapter)


def test_an_adapter_of_others_is_tried_for_shape(tiny: Path, tmp_path: Path) -> None:
    adapter = written(tmp_path / "adapter", tiny)
    (adapter / "cxrhf.json").unlink()
    assert load_vlm(str(adapter), size=SIDE).about["name"] == "adapter"  # its own config names the base
    wide = tiny_qwen3_vl(tmp_path / "wide", TEXTS, hidden=64, vision_hidden=32)
    deep = tiny_qwen3_vl(tmp_path / "short", TEXTS, hidden=32, vision_hidden=32, layers=1)
    for base in (wide, deep, llava(tmp_path / "llava")):
        with refused(CxrhfError, "does not match the model"):
            load_vlm(str(base), adapter=adapter)


def test_damaged_adapters(tiny: Path, tmp_path: Path) -> None:
    adapter = written(tmp_path / "run" / "adapter", tiny)
    assert str(tiny) not in (adapter / "cxrhf.json").read_text(), "no path outside the working folder"
    with refused(CxrhfError, "mine", got="tiny", fix="--adapter"):
        load_vlm(str(tmp_path / "run"))
    (tmp_path / "tiny").symlink_to(tiny)
    assert load_vlm(str(tmp_path / "run")).about["name"] == "mine"  # its base lies near the run
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    with refused(CxrhfError, "adapter_model.safetensors", fix="copy"):
        load_vlm(str(tiny), adapter=adapter)
    (adapter / "adapter_config.json").write_text("{")
    with pytest.raises(CxrhfError, match="damaged"):
        load_vlm(str(tiny), adapter=adapter)


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("adapter_config.json", {"r": 10**9}),
        ("adapter_config.json", {"r": "x"}),
        ("adapter_config.json", {"rank_pattern": {".*": 10**9}}),
        ("adapter_config.json", {"lora_alpha": []}),
        ("cxrhf.json", {"base": 3}),
        ("cxrhf.json", {"size": 20_000}),
        ("cxrhf.json", {"prompt": []}),
    ],
)
def test_a_strangers_adapter_is_refused_in_a_sentence(
    file: str, changes: dict[str, Any], tiny: Path, tmp_path: Path
) -> None:
    adapter = written(tmp_path / "adapter", tiny)
    values = json.loads((adapter / file).read_text())
    (adapter / file).write_text(json.dumps({**values, **changes}))
    with pytest.raises(CxrhfError):
        load_vlm(str(tiny), adapter=adapter)


def test_checkpoints_of_another_rank_are_refused(tiny: Path) -> None:
    one = add_lora(load_vlm(str(tiny), size=SIDE), **SETTINGS)
    other = add_lora(load_vlm(str(tiny), size=SIDE), **{**SETTINGS, "rank": 8})
    with pytest.raises(CxrhfError, match="another rank"):
        set_adapter_weights(other, adapter_weights(one))
