"""A name -> a vision-language model that writes reports: any image-text-to-text model of transformers, with an adapter.

A name is a model folder, ORG/NAME of the Hugging Face Hub, a run of `cxrhf finetune`, or the folder of an adapter, that
says itself which model it belongs to. Weights are safetensors; code that comes with a model is never run. An adapter is
put only onto the model that it was trained on: on another one its numbers would mean nothing, and nobody would notice.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrhf.encode.loading import explained, quiet
from cxrhf.errors import ConfigError, CxrhfError, shorten
from cxrhf.models.vlm_files import (
    ABOUT,
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    Place,
    adapter_place,
    fetched_adapter,
    fingerprint,
    model_place,
    read_json,
    weight_files,
)
from cxrhf.models.vlm_pictures import bound_tokens
from cxrhf.models.vlm_prompts import DEFAULT_PROMPT
from cxrhf.tables.weights_record import wrong_field

SIZE = 512
SMALLEST, LARGEST = 16, 4096  # sides of a picture, as config_finetune has them
_AGAIN = "copy the whole folder again from where it was made"
_INSTALL = "pip install 'cxrhf[vlm]'"


@dataclass(slots=True)
class Vlm:
    """A model that is ready to write, its processor and tokenizer.

    `about`: name, source, base (source and fingerprint), adapter (None or what it says of itself), prompt, size,
    precision, four_bit.
    """

    model: Any
    processor: Any
    tokenizer: Any
    about: dict[str, Any]


def load_vlm(
    source: str,
    *,
    adapter: str | Path | None = None,
    device: str = "cpu",
    precision: str = "auto",
    four_bit: bool = False,
    size: int | None = None,
) -> Vlm:
    """Open a model that writes. `size` is the side of its pictures: 512, or what its adapter was trained on.

    Prompt and size that `cxrhf finetune` recorded stand in `about`.
    """
    with needed():
        import torch  # noqa: F401
        from transformers import AutoProcessor
    own = adapter_place(source) if adapter is None else fetched_adapter(adapter)
    said = adapter_facts(own) if own is not None else {}
    place = base_of(own, said) if own is not None and adapter is None else model_place(source)
    facts = fingerprint(place)
    if own is not None:
        same_base(said, facts, own, place)
    merged = checked_facts(place.folder / ABOUT) if own is None and (place.folder / ABOUT).is_file() else {}
    known = said or merged
    side = size or int(known.get("size") or SIZE)
    model = _model(place, device=device, precision=precision, four_bit=four_bit)
    with quiet(), explained(place.name, "model"):
        processor = AutoProcessor.from_pretrained(place.folder, local_files_only=True, trust_remote_code=False)
    tokenizer = getattr(processor, "tokenizer", None)
    if tokenizer is None or not getattr(processor, "chat_template", None):
        raise CxrhfError(
            f"the model {place.name} has no chat template, so cxrhf cannot pass it an image and a prompt",
            next_step="use an image-text-to-text model that follows instructions, such as Qwen/Qwen3-VL-8B-Instruct",
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token  # hidden by the mask
    bound_tokens(processor, side)
    if own is not None:
        model = with_adapter(model, own)
    about = {
        "name": str(known.get("name") or place.name), "source": place.source, "base": {"source": place.source, **facts},
        "adapter": said or None, "prompt": str(known.get("prompt") or DEFAULT_PROMPT), "size": side,
        "precision": str(model.dtype).removeprefix("torch."), "four_bit": four_bit,
    }  # fmt: skip
    return Vlm(model.eval(), processor, tokenizer, about)


def adapter_facts(folder: Path) -> dict[str, Any]:
    """What an adapter says of itself; one made by others than cxrhf names its base model, and no more."""
    config = read_json(folder / ADAPTER_CONFIG)
    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise CxrhfError(
            f"the adapter {folder.name} has no {ADAPTER_WEIGHTS}, the only weights that cxrhf reads",
            next_step="copy the folder again",
        )  # fmt: skip
    if (folder / ABOUT).is_file():
        return checked_facts(folder / ABOUT)
    source = config.get("base_model_name_or_path")
    return {"name": folder.name, "base": {"source": source if isinstance(source, str) else None}}


def checked_facts(path: Path) -> dict[str, Any]:
    """What cxrhf.json says of an adapter or a merged model, if it has the kinds that `cxrhf finetune` writes."""
    said = read_json(path)
    size, wrong = said.get("size", SIZE), wrong_field(said)
    if wrong is not None or not SMALLEST <= size <= LARGEST:
        raise CxrhfError(
            f"{path} is damaged: bad {wrong or f'size {size} (images have {SMALLEST} to {LARGEST} pixels a side)'}",
            next_step=_AGAIN,
        )  # fmt: skip
    return said


def base_of(folder: Path, said: Mapping[str, Any]) -> Place:
    """The model an adapter was trained on: near the adapter or its run, below the working folder, or on the Hub.

    Records hold no path outside the working folder, so a model that lies elsewhere must be named.
    """
    source = str(said.get("base", {}).get("source") or "")
    for near in (folder, *folder.parents[:2]):
        if source and (near / source / "config.json").is_file():
            return model_place(str(near / source))
    try:
        return model_place(source)
    except ConfigError:
        raise CxrhfError(
            f"the base model of the adapter {said.get('name') or folder.name} was not found",
            got=source or "no name in the adapter's record",
            next_step="pass the base model's folder or id as --model and this folder as --adapter",
        ) from None


def same_base(said: Mapping[str, Any], facts: Mapping[str, str], folder: Path, place: Place) -> None:
    """An error if an adapter was trained on another model than this one."""
    trained = said.get("base", {})
    words = {
        "architecture": "another architecture", "shapes": "a model with other shapes",
        "weights": "a model with other weights",
    }  # fmt: skip
    for key, what in words.items():
        if trained.get(key) is not None and trained[key] != facts[key]:
            shown = f" ({trained[key]}, not {facts[key]})" if key == "architecture" else ""
            raise CxrhfError(
                f"the adapter {said.get('name') or folder.name} was not trained on {place.name} but on {what}{shown}",
                next_step=f"use its base model: {trained.get('source') or 'see its adapter_config.json'}",
            )


def with_adapter(model: Any, folder: Path) -> Any:
    """The model with an adapter on it, frozen; every tensor of the adapter must find its place."""
    with needed():
        from peft import PeftModel, get_peft_model_state_dict

        from cxrhf.models.tensor_files import read_shapes

    wrong = CxrhfError(
        f"the adapter {folder.name} does not match the model: its layers have other names or shapes",
        next_step="use the model that its adapter_config.json names",
    )  # fmt: skip
    there = read_shapes(folder / ADAPTER_WEIGHTS, _AGAIN)
    _check_rank(folder, there)
    with quiet(), explained(folder.name, "adapter"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = PeftModel.from_pretrained(model, str(folder), is_trainable=False)
        except (ValueError, RuntimeError, KeyError):
            raise wrong from None
    if there.keys() - set(get_peft_model_state_dict(made, save_embedding_layers=False)):
        raise wrong
    return made


def _check_rank(folder: Path, there: Mapping[str, Any]) -> None:
    """The ranks that the settings name must stand in the weights: peft allocates them before it compares."""
    settings = read_json(folder / ADAPTER_CONFIG)
    if settings.get("peft_type", "LORA") != "LORA":
        return
    patterns = settings.get("rank_pattern") or {}
    ranks = [settings.get("r"), *(patterns.values() if isinstance(patterns, dict) else [patterns])]
    most = max((each.shape[0] for name, each in there.items() if "lora_" in name and "_A" in name), default=0)
    if not all(type(each) is int and 1 <= each <= most for each in ranks):
        raise CxrhfError(
            f"{ADAPTER_CONFIG} of the adapter {folder.name} does not match its weights",
            got=f"rank {', '.join(map(str, ranks))}", allowed=f"a rank from 1 to {most}", next_step=_AGAIN,
        )  # fmt: skip


def _model(place: Place, *, device: str, precision: str, four_bit: bool) -> Any:
    with needed():
        import torch
        from transformers import AutoConfig, AutoModelForImageTextToText

    weight_files(place)
    safely: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with quiet(), explained(place.name, "model"):
        config = AutoConfig.from_pretrained(place.folder, **safely)
        if type(config) not in AutoModelForImageTextToText._model_mapping:
            raise CxrhfError(
                f"the model {place.name}", got=config.model_type,
                allowed="an image-text-to-text model of transformers, such as Qwen/Qwen3-VL-8B-Instruct",
            )  # fmt: skip
    kind = dtype_of(precision, device)
    more: dict[str, Any] = {"quantization_config": _four_bits(kind)} if four_bit else {}
    if four_bit or device.startswith("cuda"):
        more["device_map"] = {"": device}  # straight to where it runs, without a copy in the memory of the machine
    with quiet(), explained(place.name, "model"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, found = AutoModelForImageTextToText.from_pretrained(
            place.folder, config=config, use_safetensors=True, dtype=kind, output_loading_info=True, **safely, **more
        )
    if found["missing_keys"]:
        raise CxrhfError(
            f"{place.name}: its weights lack {len(found['missing_keys'])} of the model's tensors "
            f"(for example {sorted(found['missing_keys'])[0]})",
            next_step="name a folder or id that holds the whole model",
        )
    model.requires_grad_(False)
    return model if "device_map" in more else model.to(torch.device(device))


def dtype_of(precision: str, device: str) -> Any:
    """bf16 on a GPU that has it, float32 elsewhere, unless one is asked for."""
    import torch

    kinds = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    if precision == "auto":
        fast = device.startswith("cuda") and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if fast else torch.float32
    if precision not in kinds:
        raise ConfigError("--precision", got=precision, allowed=", ".join(("auto", *kinds)))
    return kinds[precision]


def _four_bits(kind: Any) -> Any:
    import importlib.util

    if importlib.util.find_spec("bitsandbytes") is None:
        raise CxrhfError(
            "--four-bit requires the Python package bitsandbytes, which is not installed",
            next_step="pip install bitsandbytes",
        )
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=kind
    )


@contextlib.contextmanager
def needed() -> Iterator[None]:
    """A missing package as an error that says how to get it."""
    try:
        yield
    except ImportError as error:
        raise CxrhfError(
            f"vision-language models require the Python package {error.name or 'transformers'}, which cannot be "
            f"imported ({shorten(str(error), 160)})",
            next_step=_INSTALL,
        ) from None
