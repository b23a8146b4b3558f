"""Name of a vision-language model -> its folder on this machine, and a fingerprint of its weights.

A name is a folder, or ORG/NAME of the Hugging Face Hub. What is on this machine is used without asking the network.
Only configuration, processor and safetensors weights are fetched, never code.

The fingerprint tells whether an adapter belongs to a model: its class, the names and shapes of its tensors, and the
content of its weight files. The same weights saved anew in other files count as others.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from cxrhf.encode.files import CONFIG, SAFE, TOKENIZER, Files, model_hash
from cxrhf.errors import ConfigError, CxrhfError
from cxrhf.models.clip_files import PROCESSOR
from cxrhf.models.hub_files import HUB_ID, Need, hub_files
from cxrhf.run import public_path
from cxrhf.tables.json_files import read_object
from cxrhf.tables.places import meant, what_is

ADAPTER_CONFIG, ADAPTER_WEIGHTS, ABOUT = "adapter_config.json", "adapter_model.safetensors", "cxrhf.json"
_BESIDE = ("chat_template.jinja", "chat_template.json", "generation_config.json", "video_preprocessor_config.json")


class Place(NamedTuple):
    """Where a model is. `source`: how others find it: an id of the Hub, or a path that may be shown."""

    name: str
    source: str
    folder: Path


def model_place(source: str) -> Place:
    """The folder of a whole model, fetched from the Hub if it must be."""
    given = source.strip()
    folder = Path(given).expanduser()
    if given and folder.is_dir():
        if not (folder / CONFIG).is_file():
            raise CxrhfError(
                f"{given} is not a vision-language model",
                got=f"a folder without {CONFIG} ({what_is(folder)})",
                allowed="a model folder, a run of cxrhf finetune, an adapter folder or ORG/NAME on the Hub",
                next_step=meant(folder, f"adapter/{ADAPTER_CONFIG}")
                or meant(folder, CONFIG)
                or "cxrhf finetune BUILD --config tiny_qwen --out runs/writer",
            )
        return Place(folder.resolve().name, public_path(given), folder.resolve())
    if folder.is_file() or not HUB_ID.fullmatch(given):
        raise ConfigError(
            "--model", got=source,
            allowed="a model folder, a run of cxrhf finetune, an adapter folder or ORG/NAME on the Hugging Face Hub",
        )  # fmt: skip
    need = Need(given, CONFIG, (PROCESSOR, TOKENIZER), (SAFE,), _BESIDE, given)
    return Place(given.split("/")[-1], given, hub_files(need))


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
        found = hub_files(Need(given, ADAPTER_CONFIG, ((ADAPTER_WEIGHTS,),), (), (), given))
    if found is None:
        raise ConfigError(
            "--adapter", got=source,
            allowed=f"a run of cxrhf finetune, a folder with {ADAPTER_CONFIG} or ORG/NAME on the Hugging Face Hub",
        )  # fmt: skip
    return found


def weight_files(place: Place) -> tuple[Path, ...]:
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


def fingerprint(place: Place) -> dict[str, str]:
    """architecture, shapes, weights of a model: what an adapter must find again."""
    files = weight_files(place)
    return {
        "architecture": architecture(place),
        "shapes": _shapes(files, place.name),
        "weights": model_hash(Files(place.folder, (), files, True)),
    }


def architecture(place: Place) -> str:
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
