"""Source of an open_clip model -> Clip: its config, its towers, its weights, its preprocessing, its tokenizer.

open_clip itself would ask the Hub for the config and tokenizer of a text tower even when a model lies in a folder, and
keeps going with random weights when it finds none. So everything is found first, then handed over, and weights must fit
exactly. A bare weights file does not say how pictures were scaled in training: taken is what open_clip notes for all
published weights of that architecture, with a warning where these differ.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import open_clip
import torch
from open_clip.pretrained import get_pretrained_cfg, list_pretrained_tags_by_model
from open_clip.tokenizer import HFTokenizer, SimpleTokenizer
from open_clip.transform import PreprocessCfg, image_transform_v2

from cxrhf.encode.files import TOKENIZER
from cxrhf.encode.loading import explained, quiet
from cxrhf.errors import ConfigError, CxrhfError, CxrhfWarning, did_you_mean
from cxrhf.models.clip import Clip, Tensors, dim_of, files_of, number_of
from cxrhf.models.clip_files import OPEN_CONFIG, Source, checkpoint, source_folder, tokenizer_folder, tower_folder

_PICTURES = ("mean", "std", "interpolation", "resize_mode")


def read_open_clip(source: Source, device: str) -> Clip:
    """A model of open_clip, ready to see and read."""
    folder = None if source.arch else source_folder(source)
    weights = source.weights if source.weights is not None else checkpoint(Path(str(folder)))
    config, pictures = _config(source, folder)
    towers = _towers(source.name, config, folder)
    # With a folder the model's shape comes from its config, with a bare weights file from open_clip's own list.
    named = str(source.arch) if folder is None else f"local-dir:{folder}"
    with _silent(), explained(source.name, "model"):
        tokenizer = _tokenizer(towers["text_cfg"], folder)
        model = open_clip.create_model(
            named,
            load_weights=False,
            pretrained_text=False,
            precision="fp32",
            force_preprocess_cfg=pictures,
            **towers,
        )
        open_clip.load_checkpoint(model, str(weights), strict=True, weights_only=True)
        transform = image_transform_v2(PreprocessCfg(**model.visual.preprocess_cfg), is_train=False)
    model.eval().requires_grad_(False).to(device)

    def read(texts: list[str]) -> torch.Tensor:
        made: torch.Tensor = model.encode_text(_shorter(tokenizer(texts), model).to(device))
        return made

    def look(picture: Any) -> Tensors:
        return {"image": transform(picture)}

    return Clip(
        name=source.name,
        library="open_clip",
        scale=number_of(model.logit_scale.exp()),
        bias=number_of(model.logit_bias) if getattr(model, "logit_bias", None) is not None else None,
        dim=dim_of(read, source.name),
        device=device,
        context=int(tokenizer.context_length),
        files=files_of(folder, (OPEN_CONFIG, *TOKENIZER), weights) if folder else files_of(weights.parent, (), weights),
        look=look,
        see=lambda batch: model.encode_image(batch["image"]),
        count=lambda text: _count(tokenizer, text),
        read=read,
    )


def _config(source: Source, folder: Path | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The model's config, and how its pictures are scaled where the folder does not say it."""
    if folder is None:
        arch = str(source.arch)
        known = open_clip.get_model_config(arch)
        if known is None:
            raise ConfigError(
                "architecture",
                got=arch,
                allowed="one of open_clip's",
                next_step=did_you_mean(arch, open_clip.list_models())
                or "python -c 'import open_clip; print(open_clip.list_models())'",
            )
        return known, _published(arch)
    try:
        made = json.loads((folder / OPEN_CONFIG).read_text(encoding="utf-8"))["model_cfg"]
        if isinstance(made["text_cfg"], dict) and isinstance(made["vision_cfg"], dict):
            return made, {}
    except FileNotFoundError:
        raise CxrhfError(
            f"the model {source.name} has no {OPEN_CONFIG}",
            next_step="name the folder that holds this file, or open_clip:ARCH@WEIGHTS_FILE",
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise CxrhfError(
        f"{OPEN_CONFIG} of the model {source.name} is damaged",
        allowed="JSON with model_cfg: {embed_dim, vision_cfg, text_cfg}",
        next_step="download or copy it again",
    )


def _published(arch: str) -> dict[str, Any]:
    """How pictures are scaled for the published weights of an architecture."""
    tags = list_pretrained_tags_by_model(arch)
    made = [{key: get_pretrained_cfg(arch, tag)[key] for key in _PICTURES} for tag in tags]
    if len({repr(each) for each in made}) > 1:
        warnings.warn(
            f"the published weights of {arch} were trained with different image preprocessing; cxrhf uses that of "
            f"{tags[0]!r}. To be certain, name a folder with {OPEN_CONFIG}.",
            CxrhfWarning,
            stacklevel=5,
        )
    return made[0] if made else {}


def _towers(name: str, config: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    """The configs of both towers as open_clip is to read them: without the network, without base weights."""
    vision, text = dict(config["vision_cfg"]), dict(config["text_cfg"])
    if ":" in str(vision.get("timm_model_name") or ""):
        raise CxrhfError(
            f"image tower of {name}",
            got=f"{vision['timm_model_name']}, a remote configuration that cxrhf does not download",
            allowed="the name of a timm architecture",
        )
    if vision.get("timm_model_name"):
        vision["timm_model_pretrained"] = False
    if text.get("hf_model_name"):
        from transformers import AutoConfig

        tower = tower_folder(text["hf_model_name"], folder)
        with quiet(), explained(name, "model"):  # open_clip does not say that code must not be run; this one refuses
            AutoConfig.from_pretrained(tower, local_files_only=True, trust_remote_code=False)
        text |= {"hf_model_name": str(tower), "hf_model_pretrained": False}
    return {"vision_cfg": vision, "text_cfg": text}


def _tokenizer(text: dict[str, Any], folder: Path | None) -> Any:
    context = text.get("context_length", 77)
    settings = dict(text.get("tokenizer_kwargs") or {})
    if not text.get("hf_tokenizer_name"):
        return SimpleTokenizer(context_length=context, **settings)
    return HFTokenizer(
        str(tokenizer_folder(text["hf_tokenizer_name"], folder)),
        context_length=context,
        tokenizer_mode=text.get("tokenizer_mode"),
        **settings | {"local_files_only": True, "trust_remote_code": False},
    )


def _shorter(tokens: torch.Tensor, model: Any) -> torch.Tensor:
    """Without what fills up all prompts of a batch, where the tower does not look at it: 256 tokens are mostly that."""
    tower = getattr(getattr(model, "text", None), "config", None)
    filling = getattr(tower, "pad_token_id", None)
    if filling is None:
        return tokens
    longest = int((tokens != filling).sum(dim=1).max())
    return tokens[:, :longest] if bool((tokens[:, longest:] == filling).all()) else tokens


def _count(tokenizer: Any, text: str) -> int:
    if isinstance(tokenizer, SimpleTokenizer):
        return len(tokenizer.encode(text)) + 2  # start and end
    return len(tokenizer.tokenizer(tokenizer.clean_fn(text), verbose=False)["input_ids"])


@contextmanager
def _silent() -> Iterator[None]:
    """open_clip tells its steps through the root logger, which would set it up for the whole process."""
    root, nothing = logging.getLogger(), logging.NullHandler()
    root.addHandler(nothing)
    level = root.level
    root.setLevel(logging.CRITICAL)
    try:
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.setLevel(level)
        root.removeHandler(nothing)
