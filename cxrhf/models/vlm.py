"""A name -> a vision-language model that writes reports: any image-text-to-text model of transformers, with an adapter.

A name is a model folder, ORG/NAME of the Hugging Face Hub, a run of `cxrhf finetune`, or the folder of an adapter, that
says itself which model it belongs to. Weights are safetensors; code that comes with a model is never run. An adapter is
put only onto the model that it was trained on: on another one its numbers would mean nothing, and nobody would notice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import string
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.encode.encoder import explain_errors, silence_transformers
from cxrhf.encode.files import CONFIG, SAFE, TOKENIZER, Files, model_hash
from cxrhf.errors import ConfigError, CxrhfError, TableError, did_you_mean, shorten
from cxrhf.models.clip import PROCESSOR
from cxrhf.models.data import Look, to_square
from cxrhf.models.hub_files import HUB_ID, NeededFiles, hub_files
from cxrhf.run import public_path, wrong_field
from cxrhf.tables.files import read_object
from cxrhf.tables.folders import describe_path, suggest_folder

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
    with require_vlm_packages():
        import torch  # noqa: F401
        from transformers import AutoProcessor
    own = adapter_place(source) if adapter is None else fetched_adapter(adapter)
    said = adapter_facts(own) if own is not None else {}
    place = find_base(own, said) if own is not None and adapter is None else model_place(source)
    facts = fingerprint(place)
    if own is not None:
        same_base(said, facts, own, place)
    merged = checked_facts(place.folder / ABOUT) if own is None and (place.folder / ABOUT).is_file() else {}
    known = said or merged
    side = size or int(known.get("size") or SIZE)
    model = _model(place, device=device, precision=precision, four_bit=four_bit)
    with silence_transformers(), explain_errors(place.name, "model"):
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


def find_base(folder: Path, said: Mapping[str, Any]) -> ModelPlace:
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


def same_base(said: Mapping[str, Any], facts: Mapping[str, str], folder: Path, place: ModelPlace) -> None:
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
    with require_vlm_packages():
        from peft import PeftModel, get_peft_model_state_dict

        from cxrhf.models.saved import read_shapes

    wrong = CxrhfError(
        f"the adapter {folder.name} does not match the model: its layers have other names or shapes",
        next_step="use the model that its adapter_config.json names",
    )  # fmt: skip
    there = read_shapes(folder / ADAPTER_WEIGHTS, _AGAIN)
    _check_rank(folder, there)
    with silence_transformers(), explain_errors(folder.name, "adapter"), warnings.catch_warnings():
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


def _model(place: ModelPlace, *, device: str, precision: str, four_bit: bool) -> Any:
    with require_vlm_packages():
        import torch
        from transformers import AutoConfig, AutoModelForImageTextToText

    weight_files(place)
    safely: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with silence_transformers(), explain_errors(place.name, "model"):
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
    with silence_transformers(), explain_errors(place.name, "model"), warnings.catch_warnings():
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
def require_vlm_packages() -> Iterator[None]:
    """A missing package as an error that says how to get it."""
    try:
        yield
    except ImportError as error:
        raise CxrhfError(
            f"vision-language models require the Python package {error.name or 'transformers'}, which cannot be "
            f"imported ({shorten(str(error), 160)})",
            next_step=_INSTALL,
        ) from None


# Name of a vision-language model -> its folder on this machine, and a fingerprint of its weights.
#
# A name is a folder, or ORG/NAME of the Hugging Face Hub. What is on this machine is used without asking the network.
# Only configuration, processor and safetensors weights are fetched, never code.
#
# The fingerprint tells whether an adapter belongs to a model: its class, the names and shapes of its tensors, and the
# content of its weight files. The same weights saved anew in other files count as others.

ADAPTER_CONFIG, ADAPTER_WEIGHTS, ABOUT = "adapter_config.json", "adapter_model.safetensors", "cxrhf.json"
_BESIDE = ("chat_template.jinja", "chat_template.json", "generation_config.json", "video_preprocessor_config.json")


class ModelPlace(NamedTuple):
    """Where a model is. `source`: how others find it: an id of the Hub, or a path that may be shown."""

    name: str
    source: str
    folder: Path


def model_place(source: str) -> ModelPlace:
    """The folder of a whole model, fetched from the Hub if it must be."""
    given = source.strip()
    folder = Path(given).expanduser()
    if given and folder.is_dir():
        if not (folder / CONFIG).is_file():
            raise CxrhfError(
                f"{given} is not a vision-language model",
                got=f"a folder without {CONFIG} ({describe_path(folder)})",
                allowed="a model folder, a run of cxrhf finetune, an adapter folder or ORG/NAME on the Hub",
                next_step=suggest_folder(folder, f"adapter/{ADAPTER_CONFIG}")
                or suggest_folder(folder, CONFIG)
                or "cxrhf finetune BUILD --config tiny_qwen --out runs/writer",
            )
        return ModelPlace(folder.resolve().name, public_path(given), folder.resolve())
    if folder.is_file() or not HUB_ID.fullmatch(given):
        raise ConfigError(
            "--model", got=source,
            allowed="a model folder, a run of cxrhf finetune, an adapter folder or ORG/NAME on the Hugging Face Hub",
        )  # fmt: skip
    need = NeededFiles(given, CONFIG, (PROCESSOR, TOKENIZER), (SAFE,), _BESIDE, given)
    return ModelPlace(given.split("/")[-1], given, hub_files(need))


def adapter_place(source: str | Path) -> Path | None:
    """The folder of an adapter: the folder itself or a run's; None where there is none."""
    folder = Path(source).expanduser()
    for place in (folder, folder / "adapter"):
        if (place / ADAPTER_CONFIG).is_file():
            return place.resolve()
    return None


def fetched_adapter(source: str | Path) -> Path:
    """The folder of an adapter that was named as one, from the Hub if it must be."""
    found = adapter_place(source)
    given = str(source).strip()
    if found is None and not Path(given).expanduser().exists() and HUB_ID.fullmatch(given):
        found = hub_files(NeededFiles(given, ADAPTER_CONFIG, ((ADAPTER_WEIGHTS,),), (), (), given))
    if found is None:
        raise ConfigError(
            "--adapter", got=source,
            allowed=f"a run of cxrhf finetune, a folder with {ADAPTER_CONFIG} or ORG/NAME on the Hugging Face Hub",
        )  # fmt: skip
    return found


def weight_files(place: ModelPlace) -> tuple[Path, ...]:
    """The safetensors files of a model; other kinds of weights are refused, for they can hold programs."""
    single, index = (place.folder / each for each in SAFE)
    if single.is_file():
        return (single,)
    if not index.is_file():
        raise CxrhfError(
            f"the model {place.name} has no safetensors weights, the only kind that cxrhf reads",
            allowed=" or ".join(SAFE), next_step="download or copy it again",
        )  # fmt: skip
    try:
        parts = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError):
        raise CxrhfError(f"{index.name} of the model {place.name} is damaged", next_step="copy it again") from None
    missing = [each for each in parts if not (place.folder / each).is_file()]
    if missing:
        raise CxrhfError(
            f"the model {place.name}: {len(missing)} of {len(parts)} weight files are missing "
            f"(for example {missing[0]})", next_step="download or copy it again",
        )  # fmt: skip
    return tuple(place.folder / each for each in parts)


def fingerprint(place: ModelPlace) -> dict[str, str]:
    """architecture, shapes, weights of a model: what an adapter must find again."""
    files = weight_files(place)
    return {
        "architecture": architecture(place),
        "shapes": _shapes(files, place.name),
        "weights": model_hash(Files(place.folder, (), files, True)),
    }


def architecture(place: ModelPlace) -> str:
    """The class that its config names, else the kind of model."""
    said = read_json(place.folder / CONFIG)
    named = said.get("architectures")
    return str(named[0] if isinstance(named, list) and named else said.get("model_type", "unknown"))


def _shapes(files: tuple[Path, ...], name: str) -> str:
    from safetensors import SafetensorError, safe_open

    lines = []
    try:
        for path in files:
            with safe_open(path, framework="pt") as file:
                lines += [f"{key} {list(file.get_slice(key).get_shape())}" for key in file.keys()]  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise CxrhfError(
            f"the weights of the model {name} cannot be read as safetensors ({str(error).splitlines()[0]})",
            next_step="download or copy it again",
        ) from None  # fmt: skip
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """A file of settings that came with a model."""
    return read_object(path, next_step="copy the folder again", error=CxrhfError)


# Pictures of a build -> what a vision-language model looks at: RGB, size x size, the whole film.

Picture = NDArray[np.uint8] | Any  # grey levels, or an image of Pillow


def rgb(picture: Picture, size: int) -> Any:
    """One picture as Pillow's RGB image; it is squeezed to the square, so that nothing of the film is cut off."""
    from PIL import Image

    grey = np.asarray(picture.convert("L") if isinstance(picture, Image.Image) else picture, dtype=np.uint8)
    if grey.ndim != 2 or not grey.size:
        raise TableError("pixels of an image", got=f"shape {grey.shape}", allowed="rows and columns of grey levels")
    return Image.fromarray(np.ascontiguousarray(to_square(grey, Look(size, "squash")))).convert("RGB")


def bound_tokens(processor: Any, size: int) -> None:
    """Processors that keep the size of a picture (Qwen's) may make no more tokens of it than size x size pixels need.

    Those that bring every picture to a size of their own are left alone.
    """
    look: Any = getattr(processor, "image_processor", None)
    limits: Any = getattr(look, "size", None)
    if limits is None or getattr(look, "merge_size", None) is None:
        return
    if limits["longest_edge"] and limits["shortest_edge"]:
        most = size * size
        least = min(int(limits["shortest_edge"]), most)
        look.size = type(limits)(shortest_edge=least, longest_edge=most)


def blank_picture(size: int) -> Any:
    """A black picture, to count the tokens of one."""
    return rgb(np.zeros((size, size), dtype=np.uint8), size)


def all_rgb(pictures: Sequence[Picture], size: int) -> list[Any]:
    """Several, in order."""
    return [rgb(each, size) for each in pictures]


# What is known of an image -> the question that a vision-language model is asked, and the report it should give.

DEFAULT_PROMPT = (
    "You are an experienced radiologist. Write the report of this frontal chest X-ray: first the findings, then the "
    "impression. Describe only what the image shows."
)
FIELDS = ("indication", "age", "sex", "view", "comparison")
NOT_GIVEN = "not given"


def check_template(template: str) -> None:
    """A prompt whose fields are not known is an error before anything is read."""
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise ConfigError(
            f"--prompt is not a valid template ({error})",
            allowed="text with fields such as {indication}",
            next_step="write {{ for a brace",
        ) from None
    if not template.strip():
        raise ConfigError("--prompt", got="nothing", allowed="text")
    for name in names:
        if name not in FIELDS:
            raise ConfigError(
                "--prompt", got=f"{{{name}}}", allowed=" or ".join(f"{{{each}}}" for each in FIELDS),
                next_step=did_you_mean(name, FIELDS),
            )  # fmt: skip


def prompt_for(template: str, row: Mapping[str, Any]) -> str:
    """A prompt with what is known of an image put in.

    >>> prompt_for("Age {age}, {sex}. Indication: {indication}", {"age": 61.0, "sex": "F"})
    'Age 61, F. Indication: not given'
    """
    check_template(template)
    return template.format(**{name: _format_field(row.get(name)) for name in FIELDS})


def _format_field(value: Any) -> str:
    if isinstance(value, float):
        value = None if math.isnan(value) else round(value)
    text = "" if value is None else " ".join(str(value).split())
    return text or NOT_GIVEN


def report_of(row: Mapping[str, Any]) -> str:
    """The reference: findings and impression, whichever are there, white space as single blanks.

    >>> report_of({"findings": "Clear  lungs.", "impression": None})
    'Clear lungs.'
    """
    parts = (row.get("findings"), row.get("impression"))
    return re.sub(r"\s+", " ", " ".join(str(each) for each in parts if each)).strip()
