"""Name of a CLIP-style model -> its folder on this machine, fetched from the Hub if it must be.

`biomedclip` is a preset; `ORG/NAME` a model of the Hub that transformers reads; `hf-hub:ORG/NAME` one that open_clip
reads; a folder of either; `open_clip:FOLDER` where a folder holds both; `open_clip:ARCH@WEIGHTS` an architecture that
open_clip knows with weights in a file or folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from cxrhf.encode.files import BIN, CONFIG, SAFE, TOKENIZER
from cxrhf.errors import ConfigError, CxrhfError, did_you_mean
from cxrhf.models.hub_files import HUB_ID, Need, hub_files

PRESETS = {"biomedclip": "microsoft/BiomedCLIP-PubMedBERT_256-vit_base_patch16_224"}
# Of its text tower open_clip reads the shape from another model of the Hub; the weights come with BiomedCLIP.
_TOWERS = {PRESETS["biomedclip"]: "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract"}
OPEN_CONFIG = "open_clip_config.json"
OPEN_SAFE = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors")
OPEN_BIN = ("open_clip_pytorch_model.bin",)
PROCESSOR = ("processor_config.json", "preprocessor_config.json")
# Only what safetensors or torch's restricted reader can read.
_READABLE = (".safetensors", ".bin", ".pt", ".pth")

_ALLOWED = (
    "biomedclip, ORG/NAME on the Hugging Face Hub, hf-hub:ORG/NAME (open_clip), a folder or open_clip:ARCH@WEIGHTS_FILE"
)


class Source(NamedTuple):
    """Where a model is: `folder`, or `hub_id`, or `arch` with a bare `weights` file."""

    name: str
    library: str  # transformers or open_clip
    folder: Path | None = None
    hub_id: str | None = None
    arch: str | None = None
    weights: Path | None = None


def locate_clip(model: str) -> Source:
    """A name -> where the model is. Nothing is fetched or read.

    >>> locate_clip("google/siglip-base-patch16-224").library, locate_clip("biomedclip").library
    ('transformers', 'open_clip')
    """
    given = model.strip()
    if given in PRESETS:
        return Source(given, "open_clip", hub_id=PRESETS[given])
    if given.startswith("hf-hub:"):
        hub_id = given.removeprefix("hf-hub:").strip("/")
        if not HUB_ID.fullmatch(hub_id):
            raise ConfigError("--model", got=model, allowed="hf-hub:ORG/NAME")
        return Source(hub_id, "open_clip", hub_id=hub_id)
    if given.startswith("open_clip:"):
        return _open_clip(given.removeprefix("open_clip:"))
    folder = Path(given).expanduser()
    if given and folder.is_dir():
        folder = folder.resolve()
        return Source(folder.name, "open_clip" if _is_open_clip(folder) else "transformers", folder=folder)
    if folder.is_file():
        raise ConfigError(
            "--model",
            got=f"the file {given}",
            allowed="a folder or open_clip:ARCH@WEIGHTS_FILE",
        )
    if not HUB_ID.fullmatch(given):
        raise ConfigError("--model", got=model, allowed=_ALLOWED, next_step=did_you_mean(given, PRESETS))
    return Source(given, "transformers", hub_id=given)


def _open_clip(rest: str) -> Source:
    folder = Path(rest).expanduser()
    if rest and folder.is_dir():
        return Source(folder.resolve().name, "open_clip", folder=folder.resolve())
    arch, at, place = rest.partition("@")
    if not at or not arch or not place:
        raise ConfigError(
            "--model",
            got=f"open_clip:{rest}",
            allowed="open_clip:FOLDER or open_clip:ARCH@WEIGHTS (such as open_clip:ViT-B-32@weights.safetensors)",
            next_step="for a model on the Hub, pass hf-hub:ORG/NAME",
        )
    weights = Path(place).expanduser()
    if not weights.exists():
        raise ConfigError(f"{place} does not exist", next_step="check the path of the weights")
    if weights.is_dir():
        weights = checkpoint(weights)
    if weights.suffix not in _READABLE:
        raise ConfigError("weights of open_clip", got=weights.name, allowed=f"a file in {', '.join(_READABLE)}")
    return Source(f"{arch}@{weights.stem}", "open_clip", arch=arch, weights=weights.resolve())


def _is_open_clip(folder: Path) -> bool:
    """Models are often published in both forms; what decides is whose weights are there."""
    named = any((folder / each).is_file() for each in (*OPEN_SAFE, *OPEN_BIN))
    return (folder / OPEN_CONFIG).is_file() and (named or not (folder / CONFIG).is_file())


def checkpoint(folder: Path) -> Path:
    """The weights that open_clip is to read in a folder: its own names first, safetensors first."""
    for name in (*OPEN_SAFE, *OPEN_BIN, SAFE[0], BIN[0]):
        if (folder / name).is_file():
            return folder / name
    there = [each for end in _READABLE for each in sorted(folder.glob(f"*{end}"))]
    if len(there) != 1:
        raise CxrhfError(
            f"the folder {folder.name}",
            got=", ".join(each.name for each in there) or "no weights",
            allowed=f"one weight file ({' or '.join((*OPEN_SAFE, *OPEN_BIN))})",
            next_step="download or copy it again" if not there else "name one with open_clip:ARCH@WEIGHTS_FILE",
        )
    return there[0]


def source_folder(source: Source) -> Path:
    """The folder of a model: given, kept by the Hub's client, or fetched now."""
    if source.folder is not None:
        return source.folder
    hub_id, other = str(source.hub_id), "if it was saved by the other library"
    if source.library == "open_clip":
        tower = _TOWERS.get(hub_id)
        # Without a tokenizer of its own it takes the one its config names, see tokenizer_folder.
        need = Need(
            hub_id, OPEN_CONFIG, (), (OPEN_SAFE, OPEN_BIN), TOKENIZER, source.name,
            also=f"{tower} {CONFIG}" if tower else "", absent=f"--model {hub_id}, {other}",
        )  # fmt: skip
    else:
        need = Need(hub_id, CONFIG, (PROCESSOR, TOKENIZER), (SAFE, BIN), (), source.name,
                    absent=f"--model hf-hub:{hub_id}, {other}")  # fmt: skip
    return hub_files(need)


def tower_folder(name: str, folder: Path | None) -> Path:
    """Where the config of a text tower is: a path, the model's own folder, or a model of the Hub."""
    for place in (Path(name).expanduser(), *((folder / name, folder) if folder is not None else ())):
        if _model_type(place) is not None and (place != folder or _is_tower(place)):
            return place
    return hub_files(Need(name, CONFIG))


def tokenizer_folder(name: str, folder: Path | None) -> Path:
    """Where the tokenizer of a text tower is: the model's own folder, a path, or a model of the Hub."""
    for place in (*((folder,) if folder is not None else ()), Path(name).expanduser()):
        if any((place / each).is_file() for each in TOKENIZER):
            return place
    return hub_files(Need(name, "tokenizer_config.json", others=(CONFIG, *TOKENIZER)))


def _model_type(folder: Path) -> str | None:
    try:
        said = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("model_type")
    except (OSError, ValueError, AttributeError):
        return None
    return said if isinstance(said, str) else None


def _is_tower(folder: Path) -> bool:
    """Not the config of a whole CLIP that lies beside open_clip's."""
    from open_clip.hf_configs import arch_dict

    return _model_type(folder) in arch_dict
