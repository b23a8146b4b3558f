"""Name of a CLIP-style model -> grey pictures and prompts as vectors of unit length, in one space.

Read by transformers (CLIP, SigLIP 1 and 2, and what else has image features, text features and a logit scale) or by
open_clip (BiomedCLIP and others). Pictures go through the model's own preprocessing. Weights are safetensors, or read
by torch's restricted reader, which runs nothing; code that comes with a model is never run. All is computed in float32.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cxrhf.encode.files import Files, model_files, model_hash
from cxrhf.encode.loading import choose_device, explained, quiet
from cxrhf.errors import ConfigError, CxrhfError, shorten
from cxrhf.models.clip_files import PROCESSOR, Source, locate_clip, source_folder

Vectors = NDArray[np.float32]
Grey = NDArray[np.uint8]
Tensors = dict[str, torch.Tensor]

TEXTS_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Clip:
    """A model that sees and reads. `bias` is SigLIP's; it falls out of a difference of two prompts."""

    name: str
    library: str
    scale: float  # what cosines are multiplied with before a softmax or sigmoid
    bias: float | None
    dim: int
    device: str
    context: int  # tokens of the longest prompt
    files: Files = field(repr=False)
    look: Callable[[Any], Tensors] = field(repr=False)  # an RGB picture -> what the image tower reads
    see: Callable[[Tensors], torch.Tensor] = field(repr=False)
    count: Callable[[str], int] = field(repr=False)  # tokens of a prompt, uncut
    read: Callable[[list[str]], torch.Tensor] = field(repr=False)

    def prepare(self, grey: Grey) -> Tensors:
        """One picture, rows x columns of grey levels, as the image tower reads it."""
        from PIL import Image

        if grey.dtype != np.uint8 or grey.ndim != 2 or not grey.size:
            raise CxrhfError(
                "pixels of an image",
                got=f"{grey.dtype} of shape {grey.shape}",
                allowed="grey levels as uint8, rows x columns",
            )
        return self.look(Image.fromarray(np.ascontiguousarray(grey)).convert("RGB"))

    def vectors(self, prepared: Sequence[Tensors]) -> Vectors:
        """Prepared pictures -> their vectors of unit length (n, d), in one pass."""
        if not prepared:
            return np.zeros((0, self.dim), dtype=np.float32)
        batch = {key: torch.stack([each[key] for each in prepared]).to(self.device) for key in prepared[0]}
        with torch.inference_mode(), _passing(self.name, f"{len(prepared)} pictures"):
            return _unit(self.see(batch), self.name)

    def text_features(self, texts: Sequence[str]) -> Vectors:
        """Prompts -> vectors of unit length (m, d). A prompt that would be cut is an error."""
        for text in texts:
            length = self.count(text)
            if length > self.context:
                raise ConfigError(
                    f"prompt {shorten(text, 120)!r}",
                    got=length,
                    allowed=f"at most the {self.context} tokens that {self.name} reads",
                    next_step="shorten the prompt",
                )
        made = [np.zeros((0, self.dim), dtype=np.float32)]
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            with torch.inference_mode(), _passing(self.name, "prompts"):
                made.append(_unit(self.read(list(texts[start : start + TEXTS_AT_ONCE])), self.name))
        return np.concatenate(made)

    def model_hash(self) -> str:
        """sha256 over names and contents of config, tokenizer and weights."""
        return model_hash(self.files)


def load_clip(model: str, device: str = "auto") -> Clip:
    """Find a model, fetch it if it must be, and read it. Without network the answer comes within seconds."""
    source = locate_clip(model)
    where = choose_device(device)
    if source.library == "transformers":
        return _with_transformers(source, where)
    try:
        import open_clip  # noqa: F401
    except ImportError as error:
        raise CxrhfError(
            f"the model {source.name} requires the Python package open_clip, which cannot be imported ({error})",
            next_step="pip install open_clip_torch",
        ) from None
    from cxrhf.models.clip_open import read_open_clip

    return read_open_clip(source, where)


def _with_transformers(source: Source, device: str) -> Clip:
    from transformers import AutoModel, AutoProcessor

    folder = source_folder(source)
    files = model_files(folder, source.name, allow_bin=True)
    scaling = tuple(folder / each for each in PROCESSOR if (folder / each).is_file())
    files = files._replace(described=(*files.described, *scaling))  # how pictures are scaled is a part of the model
    safely: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with quiet(), explained(source.name, "model"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, found = AutoModel.from_pretrained(
            folder,
            **safely,
            use_safetensors=files.safe,
            weights_only=True,
            dtype=torch.float32,
            output_loading_info=True,
        )
        _check_clip(model, source.name)
        processor = AutoProcessor.from_pretrained(folder, **safely)
        pictures, tokenizer = processor.image_processor, processor.tokenizer
    absent = sorted(key for key in found["missing_keys"] if "position_ids" not in key)
    if absent:
        raise CxrhfError(
            f"{source.name}: its weights lack {len(absent)} of the model's tensors (for example {absent[0]})",
            next_step="name a folder or id that holds the whole model",
        )
    model.eval().requires_grad_(False).to(device)
    text_config = model.config.get_text_config()
    context = int(getattr(text_config, "max_position_embeddings", 0) or tokenizer.model_max_length)
    # SigLIP was trained on prompts filled up to one length and without a mask: what fills up is read too.
    sigmoid = model.config.model_type.startswith("siglip")

    def look(picture: Any) -> Tensors:
        return {key: value[0] for key, value in pictures(images=[picture], return_tensors="pt").items()}

    def read(texts: list[str]) -> torch.Tensor:
        padding = "max_length" if sigmoid else True
        tokens = tokenizer(texts, padding=padding, max_length=context, truncation=True, return_tensors="pt")
        kept = {"input_ids"} if sigmoid else {"input_ids", "attention_mask"}
        return _pooled(model.get_text_features(**{key: tokens[key].to(device) for key in kept & tokens.keys()}))

    return Clip(
        name=source.name,
        library="transformers",
        scale=number_of(model.logit_scale.exp()),
        bias=number_of(model.logit_bias) if getattr(model, "logit_bias", None) is not None else None,
        dim=dim_of(read, source.name),
        device=device,
        context=context,
        files=files,
        look=look,
        see=lambda batch: _pooled(model.get_image_features(**batch)),
        count=lambda text: len(tokenizer(text, verbose=False)["input_ids"]),
        read=read,
    )


def _check_clip(model: Any, name: str) -> None:
    lacking = [each for each in ("get_image_features", "get_text_features", "logit_scale") if not hasattr(model, each)]
    if lacking:
        raise CxrhfError(
            f"the model {name}",
            got=f"{model.config.model_type}, which has no {lacking[0]}",
            allowed="a CLIP-style model with an image tower, a text tower and a logit scale (CLIP, SigLIP, ...)",
        )


def _pooled(made: Any) -> torch.Tensor:
    features: torch.Tensor = made if isinstance(made, torch.Tensor) else made.pooler_output
    return features


def number_of(value: torch.Tensor) -> float:
    """A number that may stand in a list of one."""
    return float(value.detach().float().reshape(-1)[0])


def dim_of(read: Callable[[list[str]], torch.Tensor], name: str) -> int:
    """Length of the vectors, seen by reading something: configs name it in many ways."""
    with torch.inference_mode(), explained(name, "model"):
        return int(read(["chest x-ray"]).shape[-1])


def _unit(features: torch.Tensor, name: str) -> Vectors:
    """Vectors of length one. Divided in float64, so that the length does not depend on the batch."""
    made = features.detach().to("cpu", torch.float32).numpy().astype(np.float64)
    length = np.linalg.norm(made, axis=1, keepdims=True)
    if not np.isfinite(length).all() or not (length > 0).all():
        raise CxrhfError(
            f"{name} returned embeddings that are zero or not finite, so its weights are probably damaged",
            next_step="download or copy the model again",
        )
    return (made / length).astype(np.float32)


@contextmanager
def _passing(name: str, what: str) -> Iterator[None]:
    """Not enough memory, as an error that says what to do."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError):
        raise CxrhfError(
            f"{name} runs out of memory with {what} at once", next_step="use a smaller --batch-size"
        ) from None


def files_of(folder: Path, described: Sequence[str], weights: Path) -> Files:
    """Files of a model whose weights are one file."""
    there = tuple(folder / each for each in described if (folder / each).is_file())
    return Files(folder, there, (weights,), weights.suffix == ".safetensors")
