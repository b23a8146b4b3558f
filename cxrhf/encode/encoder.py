"""Settings -> an encoder: its tokenizer at once, its weights when something must be encoded.

Files are read from a folder of this machine (the Hub's cache is one). Weights are safetensors; .bin only if allowed, or
of a preset, and as download.py reads them. Code that comes with a model is never run. Weights that leave a part of
the model random are refused; only heads that the last hidden state does not pass may be missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from cxrhf.encode.download import hub_folder, read_bin
from cxrhf.encode.files import Files, locate, may_read_bin, model_files, model_hash
from cxrhf.encode.processes import call_first, device_of_process
from cxrhf.encode.settings import EncodeConfig
from cxrhf.encode.windows import CODE_ROOM, Frame, frame
from cxrhf.errors import ConfigError, CxrhfError, CxrhfWarning, RunError, shorten

_UNUSED = ("pooler", "lm_head", "position_ids", "cls.predictions", "cls.seq_relationship")
# Tokenized when an encoder is opened: a library that cuts texts otherwise must not share vectors with this one.
_PROBE = "Pt w/ h/o CHF (EF 35%), no pleural effusion; SpO₂ 93% -> 97% on 2L.\nDr. Ångström's note: ___"


@dataclass(frozen=True, slots=True)
class Encoder:
    """An encoder without its weights."""

    name: str
    files: Files = field(repr=False)
    config: Any = field(repr=False)
    tokenizer: Any = field(repr=False)
    frame: Frame
    model_hash: str
    tokenizer_hash: str
    dim: int
    device: str
    dtype: str


def open_encoder(settings: EncodeConfig, *, together: bool = False) -> Encoder:
    """Find an encoder, fetch it if it must be, and read all but its weights.

    `together` when all processes call it: the first one fetches for all.
    """
    with require_packages():
        import torch  # noqa: F401
        from transformers import AutoConfig, AutoTokenizer
    place = locate(settings.encoder)
    folder, allow_bin = place.folder, may_read_bin(place, settings)
    if folder is None:
        call = partial(hub_folder, place, allow_bin=allow_bin)
        folder = call_first(call) if together else call()
    files = model_files(folder, place.name, allow_bin=allow_bin)
    safely: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with silence_transformers(), explain_errors(place.name):
        config = AutoConfig.from_pretrained(folder, **safely)
        tokenizer = AutoTokenizer.from_pretrained(folder, **safely)
        dim = int(config.get_text_config().hidden_size)
    probe = hashlib.blake2b(repr(token_ids(tokenizer, [_PROBE])[0]).encode(), digest_size=8)
    device = choose_device(settings.device)
    return Encoder(
        name=place.name,
        files=files,
        config=config,
        tokenizer=tokenizer,
        frame=frame(config, tokenizer, folder, settings),
        model_hash=model_hash(files),
        tokenizer_hash=probe.hexdigest(),
        dim=dim,
        device=device,
        dtype=choose_dtype(settings.dtype, device),
    )


def load_model(encoder: Encoder) -> Any:
    """The model with its weights, on its device, ready to read."""
    model = _with_weights(encoder)
    if getattr(encoder.config, "is_encoder_decoder", False):
        model = model.get_encoder()
    if hasattr(model.config, "use_cache"):
        model.config.use_cache = False  # nothing is generated
    return model.eval().requires_grad_(False).to(encoder.device)


def check_weights(encoder: Encoder) -> None:
    """Refuse weights that `load_model` could not read, before hours are spent on what comes before them.

    Names and shapes are compared with the model; of safetensors only the heads of the files are read (a model of 7
    billion numbers takes no memory), .bin files as a whole.
    """
    _with_weights(encoder, device_map="meta")


def _with_weights(encoder: Encoder, **more: Any) -> Any:
    """The model as transformers reads it; a CxrhfError if a part of it would be random."""
    with require_packages():
        import torch
        from transformers import AutoModel
    with silence_transformers(), explain_errors(encoder.name), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source: tuple[Any, Any, Any] = (AutoModel, encoder.files.folder, None)
        if not encoder.files.safe:  # transformers takes tensors without a folder, and then only for one architecture
            with torch.device("meta"):
                shapes = AutoModel.from_config(encoder.config)
            source = (type(shapes), None, read_bin(encoder.files, shapes, encoder.name))
        kind, folder, state = source
        model, found = kind.from_pretrained(
            folder,
            state_dict=state,
            config=encoder.config,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=getattr(torch, encoder.dtype),
            output_loading_info=True,
            **more,
        )
    absent = sorted(key for key in found["missing_keys"] if not any(word in key for word in _UNUSED))
    if absent:
        raise CxrhfError(
            f"encoder {encoder.name}: the weights lack {len(absent)} parts of the model, which would be random, for "
            f"example {absent[0]}",
            next_step="name a folder or an id with the whole model",
        )
    return model


def token_ids(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    """Tokens of texts without special tokens, however long."""
    made: list[list[int]] = tokenizer(
        texts, add_special_tokens=False, padding=False, truncation=False, return_attention_mask=False, verbose=False
    )["input_ids"]
    return made


def padding_id(encoder: Encoder) -> int:
    """What fills up short windows. The mask hides it; models that count positions by it need their own."""
    text = encoder.config.get_text_config()
    for number in (getattr(text, "pad_token_id", None), encoder.tokenizer.pad_token_id):
        if isinstance(number, int) and 0 <= number < text.vocab_size:
            return number
    return 0


def choose_device(device: str) -> str:
    """cuda, mps or cpu: the one asked for, or the best there is."""
    with require_packages():
        import torch
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    kind = next(name for name, usable in there.items() if usable) if device == "auto" else device
    if not there[kind]:
        raise ConfigError(
            f"--device: this machine has no {kind} device, or this installation of torch cannot use it",
            got=device,
            allowed="one of auto, " + ", ".join(name for name, usable in there.items() if usable),
        )
    return device_of_process(kind)


def choose_dtype(dtype: str, device: str) -> str:
    """bfloat16 where a CUDA device has it, float32 elsewhere, unless one is asked for."""
    import torch

    if dtype != "auto":
        return dtype
    fast = device.startswith("cuda") and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if fast else "float32"


@contextlib.contextmanager
def require_packages() -> Iterator[None]:
    """A missing package as an error that says how to get it."""
    try:
        yield
    except ImportError as error:
        raise CxrhfError(
            f"encoders require the Python package {error.name or 'torch'}, which cannot be imported ({error})",
            next_step="pip install 'cxrhf[context]', or pass --features words, which requires no encoder",
        ) from None


@contextlib.contextmanager
def explain_errors(name: str, noun: str = "encoder") -> Iterator[None]:
    """What the libraries say of a model they cannot read, as one sentence."""
    try:
        yield
    except CxrhfError:
        raise
    except Exception as error:  # of many kinds: damaged files, unknown architectures, missing tokenizer packages
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        if "trust_remote_code" in str(error):
            what = f"{noun} {name} comes with its own code, which cxrhf never runs"
            raise CxrhfError(what, next_step=f"use another {noun}, one that transformers supports") from None
        if "weights_only" in str(error):  # torch recommends to load it all the same
            what = f"{noun} {name}: the weights are damaged, or hold something other than weights"
            raise CxrhfError(what, next_step=f"download or copy its folder again, or use another {noun}") from None
        raise CxrhfError(
            f"{noun} {name} cannot be read ({type(error).__name__}: {shorten(said, 200)})",
            next_step=f"download or copy its folder again, or use another {noun}",
        ) from None


@contextlib.contextmanager
def silence_transformers() -> Iterator[None]:
    """transformers without its bars and remarks, for the time of a call."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


# Settings -> what a saved run keeps of its encoder, and whether an encoder is still the one a run was made with.

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
