"""Settings -> what a saved run keeps of its encoder, and whether an encoder is still the one a run was made with."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from cxrhf.config_context import EncodeConfig
from cxrhf.encode.loading import Encoder, open_encoder
from cxrhf.encode.presets import locate
from cxrhf.encode.windows import CODE_ROOM
from cxrhf.errors import CxrhfWarning, RunError

_LIBRARIES = ("cxrhf", "torch", "transformers", "tokenizers")
# What must be equal for vectors to mean the same, and how people call it.
_MATTERS = {
    "model_hash": "weights, tokenizer or config",
    "tokenizer_hash": "tokenizer",
    "dim": "length of the embeddings",
    "window": "tokens per window",
    "overlap": "shared tokens",
    "pooling": "pooling",
    "special_tokens": "special tokens",
    "recipe": "text recipe",
}


def identity(settings: EncodeConfig) -> dict[str, Any]:
    """What manifest.json keeps of an encoder: plain values, no path of this machine."""
    encoder = open_encoder(settings)
    return {
        "encoder": locate(settings.encoder).hub_id or encoder.name,
        **cache_key(encoder, settings),
        "dim": encoder.dim,
        "recipe": settings.recipe,
        "versions": _versions(),
    }


def same_encoder(saved: Mapping[str, Any], settings: EncodeConfig) -> None:
    """A RunError if the encoder of the settings is not the one of a saved identity. Paths and names may differ."""
    now = identity(settings)
    other = [name for name in _MATTERS if name in saved and saved[name] != now[name]]
    if other:
        shown = ", ".join(
            _MATTERS[name] if name.endswith("hash") else f"{_MATTERS[name]} {now[name]} instead of {saved[name]}"
            for name in other
        )
        raise RunError(
            f"encoder {settings.encoder} differs from the encoder of the fit ({saved.get('encoder')})",
            got=f"different {shown}",
            next_step="use the same encoder, or fit again: cxrhf context fit BUILD",
        )
    if "dtype" in saved and saved["dtype"] != now["dtype"]:
        warnings.warn(
            f"the encoder runs in {now['dtype']} and the run was fitted in {saved['dtype']}: embeddings differ "
            f"slightly; pass --dtype {saved['dtype']} to match them",
            CxrhfWarning,
            stacklevel=2,
        )


def saved_settings(about: Mapping[str, Any]) -> EncodeConfig:
    """The settings of a saved run's encoder, with windows as long as they were then.

    A run that names no length took what its version of cxrhf gave the encoder: at first no window was above 512.
    """
    settings = EncodeConfig(**about["settings"])
    window, special = about["identity"].get("window"), about["identity"].get("special_tokens")
    if settings.max_length is not None or type(window) is not int:
        return settings
    room = CODE_ROOM
    if settings.pooling == "tokens":
        room = sum(len(each) for each in special) if isinstance(special, list) else 0
    return replace(settings, max_length=window + room)


def cache_key(encoder: Encoder, settings: EncodeConfig) -> dict[str, Any]:
    """All that a vector depends on, beside the text."""
    return {
        "model_hash": encoder.model_hash,
        "tokenizer_hash": encoder.tokenizer_hash,
        "window": encoder.frame.window,
        "overlap": encoder.frame.overlap,
        "pooling": settings.pooling,
        "special_tokens": [list(encoder.frame.before), list(encoder.frame.after)],
        "dtype": encoder.dtype,
    }


def cache_about(encoder: Encoder) -> dict[str, Any]:
    """What helps a person to know a folder of the cache; nothing here must be equal."""
    return {"encoder": encoder.name, "dim": encoder.dim, "versions": _versions()}


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found
