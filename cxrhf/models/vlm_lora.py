"""A vision-language model -> the same with low-rank adapters (LoRA, by peft) on its language model; and their files.

Only linear layers of attention and of the perceptrons of the language model get adapters; vision tower and projector
stay as they are. The layers are found by where they lie in the model, whatever the architecture calls them. What is
written is what `PeftModel.from_pretrained(base, folder)` reads, with cxrhf.json beside it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from cxrhf.encode.loading import quiet
from cxrhf.errors import CxrhfError
from cxrhf.models.seeding import number
from cxrhf.models.vlm import Vlm, load_vlm, needed
from cxrhf.models.vlm_files import ABOUT, ADAPTER_CONFIG, ADAPTER_WEIGHTS
from cxrhf.tables.folders import replacing

Tensors = dict[str, torch.Tensor]


def language_layers(model: Any) -> list[str]:
    """Names of the linear layers of the language model, without the one that scores words."""
    path, decoder = _decoder(model)
    seeing = _inside(vision_tower(model))
    head = model.get_output_embeddings()
    found = [
        f"{path}.{name}"
        for name, module in decoder.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head and id(module) not in seeing
    ]
    if not found:
        raise CxrhfError(
            f"the language model of {type(model).__name__} has no linear layers to adapt",
            next_step="use another model, such as Qwen/Qwen3-VL-8B-Instruct",
        )  # fmt: skip
    return found


def vision_tower(model: Any) -> torch.nn.Module | None:
    """The part that looks at pictures, where the model names one."""
    found = model.get_encoder(modality="image")
    return None if found is model or found is model.base_model else found


def _inside(module: torch.nn.Module | None) -> set[int]:
    return set() if module is None else {id(each) for each in module.modules()}


def _decoder(model: Any) -> tuple[str, torch.nn.Module]:
    decoder = model.get_decoder()
    for path, module in model.named_modules():
        if module is decoder and path and not _inside(vision_tower(model)) & {id(decoder)}:
            return path, module
    raise CxrhfError(
        f"{type(model).__name__} does not separate its language model from its vision tower",
        next_step="use another model, such as Qwen/Qwen3-VL-8B-Instruct",
    )  # fmt: skip


def layer_pattern(model: Any) -> str:
    """One regular expression that means exactly these layers: peft keeps it in the adapter's config."""
    layers = language_layers(model)
    path, _ = _decoder(model)
    kinds = sorted({each.rsplit(".", 1)[-1] for each in layers})
    pattern = rf"{re.escape(path)}\..*\.({'|'.join(map(re.escape, kinds))})"
    meant = [name for name, _ in model.named_modules() if re.fullmatch(pattern, name)]
    # Where a name means more than linear layers, every one is listed.
    return pattern if meant == layers else "|".join(map(re.escape, layers))


def add_lora(vlm: Vlm, *, rank: int, alpha: float, dropout: float, embeddings: bool, four_bit: bool, seed: int) -> Any:
    """The model with new adapters that learn; all else is frozen. The same seed gives the same first adapters."""
    with needed():
        from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    model = vlm.model
    if four_bit:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    tied = bool(getattr(model.config, "tie_word_embeddings", False))
    settings = LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=layer_pattern(model), task_type="CAUSAL_LM",
        modules_to_save=_embeddings(model) if embeddings else None, ensure_weight_tying=embeddings and tied,
    )  # fmt: skip
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with quiet(), torch.random.fork_rng(devices=devices):
        torch.manual_seed(number(seed, "lora") % 2**63)
        made = get_peft_model(model, settings)
    seeing = _inside(vision_tower(made.get_base_model()))
    wrong = [name for name, each in made.named_modules() if id(each) in seeing and "lora_" in name]
    if wrong:
        raise CxrhfError("adapters in the vision tower", got=f"{len(wrong)} layers", allowed="none")
    return made


def _embeddings(model: Any) -> list[str]:
    """The layers that turn tokens into vectors and back; the second one follows the first where they are one."""
    wanted = [model.get_input_embeddings(), model.get_output_embeddings()]
    tied = bool(getattr(model.config, "tie_word_embeddings", False))
    names = [name for each in wanted[: 1 if tied else 2] for name, module in model.named_modules() if module is each]
    return [name.rsplit(".", 1)[-1] for name in names]


def adapter_weights(model: Any) -> Tensors:
    """What was learned, under the names that peft gives it in a file."""
    from peft import get_peft_model_state_dict

    found = get_peft_model_state_dict(model, save_embedding_layers=False)
    return {name: found[name].detach().to("cpu", copy=True).contiguous() for name in sorted(found)}


def set_adapter_weights(model: Any, tensors: Tensors) -> None:
    """Put back what `adapter_weights` gave; every tensor must be there."""
    from peft import set_peft_model_state_dict

    there = adapter_weights(model)
    if there.keys() != tensors.keys() or any(there[name].shape != tensors[name].shape for name in there):
        raise CxrhfError(
            "the checkpoint holds adapters of other layers or another rank", next_step="pass --overwrite to start again"
        )
    set_peft_model_state_dict(model, dict(tensors))


def save_adapter(folder: Path, model: Any, tensors: Tensors, processor: Any, about: dict[str, Any], base: str) -> None:
    """Write an adapter's folder, there whole or not at all. `base`: how the model is found, for others than us."""
    with replacing(folder, ADAPTER_CONFIG, "adapter", "choose another --out") as fresh:
        save_file(dict(tensors), fresh / ADAPTER_WEIGHTS, metadata={"format": "pt"})
        settings = model.peft_config["default"].to_dict()
        settings |= {"base_model_name_or_path": base, "inference_mode": True}
        text = json.dumps(settings, indent=1, sort_keys=True, default=_listed) + "\n"
        (fresh / ADAPTER_CONFIG).write_text(text, encoding="utf-8")
        with quiet():
            processor.save_pretrained(fresh)
        _write_about(fresh, about)


def save_merged(folder: Path, base: str, adapter: Path, about: dict[str, Any], *, precision: str, size: int) -> None:
    """Write the model with the adapter added into its weights: a folder that needs neither peft nor the base.

    `precision`: torch's name of the kind of numbers that it was trained in.
    """
    kind = {"bfloat16": "bf16", "float16": "fp16"}.get(precision, "float32")
    vlm = load_vlm(base, adapter=adapter, precision=kind, size=size)
    with replacing(folder, ABOUT, "merged model", "choose another --out") as fresh, quiet():
        vlm.model.merge_and_unload(safe_merge=True).save_pretrained(fresh)
        vlm.processor.save_pretrained(fresh)
        _write_about(fresh, {**about, "merged": True})


def _write_about(folder: Path, about: dict[str, Any]) -> None:
    text = json.dumps(about, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    (folder / ABOUT).write_text(text, encoding="utf-8")


def _listed(value: Any) -> Any:
    return sorted(value) if isinstance(value, (set, frozenset)) else str(getattr(value, "value", value))
