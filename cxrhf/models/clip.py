"""Name of a CLIP-style model -> grey pictures and prompts as vectors of unit length, in one space.

Read by transformers (CLIP, SigLIP 1 and 2, and what else has image features, text features and a logit scale) or by
open_clip (BiomedCLIP and others). Pictures go through the model's own preprocessing. Weights are safetensors, or read
by torch's restricted reader, which runs nothing; code that comes with a model is never run. All is computed in float32.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import open_clip
import torch
from numpy.typing import NDArray
from open_clip.pretrained import get_pretrained_cfg, list_pretrained_tags_by_model
from open_clip.tokenizer import HFTokenizer, SimpleTokenizer
from open_clip.transform import PreprocessCfg, image_transform_v2

from cxrhf.encode.encoder import choose_device, explain_errors, silence_transformers
from cxrhf.encode.files import BIN, CONFIG, SAFE, TOKENIZER, Files, model_files, model_hash
from cxrhf.errors import ConfigError, CxrhfError, CxrhfWarning, did_you_mean, shorten
from cxrhf.models.hub_files import HUB_ID, NeededFiles, hub_files

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
        with torch.inference_mode(), _explain_full_memory(self.name, f"{len(prepared)} pictures"):
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
            with torch.inference_mode(), _explain_full_memory(self.name, "prompts"):
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

    return read_open_clip(source, where)


def _with_transformers(source: Source, device: str) -> Clip:
    from transformers import AutoModel, AutoProcessor

    folder = source_folder(source)
    files = model_files(folder, source.name, allow_bin=True)
    scaling = tuple(folder / each for each in PROCESSOR if (folder / each).is_file())
    files = files._replace(described=(*files.described, *scaling))  # how pictures are scaled is a part of the model
    safely: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with silence_transformers(), explain_errors(source.name, "model"), warnings.catch_warnings():
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
        scale=to_number(model.logit_scale.exp()),
        bias=to_number(model.logit_bias) if getattr(model, "logit_bias", None) is not None else None,
        dim=vector_size(read, source.name),
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


def to_number(value: torch.Tensor) -> float:
    """A number that may stand in a list of one."""
    return float(value.detach().float().reshape(-1)[0])


def vector_size(read: Callable[[list[str]], torch.Tensor], name: str) -> int:
    """Length of the vectors, seen by reading something: configs name it in many ways."""
    with torch.inference_mode(), explain_errors(name, "model"):
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
def _explain_full_memory(name: str, what: str) -> Iterator[None]:
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


# Name of a CLIP-style model -> its folder on this machine, fetched from the Hub if it must be.
#
# `biomedclip` is a preset; `ORG/NAME` a model of the Hub that transformers reads; `hf-hub:ORG/NAME` one that
# open_clip reads; a folder of either; `open_clip:FOLDER` where a folder holds both; `open_clip:ARCH@WEIGHTS` an
# architecture that open_clip knows with weights in a file or folder.

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
        need = NeededFiles(
            hub_id, OPEN_CONFIG, (), (OPEN_SAFE, OPEN_BIN), TOKENIZER, source.name,
            also=f"{tower} {CONFIG}" if tower else "", absent=f"--model {hub_id}, {other}",
        )  # fmt: skip
    else:
        need = NeededFiles(hub_id, CONFIG, (PROCESSOR, TOKENIZER), (SAFE, BIN), (), source.name,
                    absent=f"--model hf-hub:{hub_id}, {other}")  # fmt: skip
    return hub_files(need)


def tower_folder(name: str, folder: Path | None) -> Path:
    """Where the config of a text tower is: a path, the model's own folder, or a model of the Hub."""
    for place in (Path(name).expanduser(), *((folder / name, folder) if folder is not None else ())):
        if _model_type(place) is not None and (place != folder or _is_tower(place)):
            return place
    return hub_files(NeededFiles(name, CONFIG))


def tokenizer_folder(name: str, folder: Path | None) -> Path:
    """Where the tokenizer of a text tower is: the model's own folder, a path, or a model of the Hub."""
    for place in (*((folder,) if folder is not None else ()), Path(name).expanduser()):
        if any((place / each).is_file() for each in TOKENIZER):
            return place
    return hub_files(NeededFiles(name, "tokenizer_config.json", others=(CONFIG, *TOKENIZER)))


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


# Source of an open_clip model -> Clip: its config, its towers, its weights, its preprocessing, its tokenizer.
#
# open_clip itself would ask the Hub for the config and tokenizer of a text tower even when a model lies in a folder,
# and keeps going with random weights when it finds none. So everything is found first, then handed over, and weights
# must fit exactly. A bare weights file does not say how pictures were scaled in training: taken is what open_clip
# notes for all published weights of that architecture, with a warning where these differ.

_PICTURES = ("mean", "std", "interpolation", "resize_mode")


def read_open_clip(source: Source, device: str) -> Clip:
    """A model of open_clip, ready to see and read."""
    folder = None if source.arch else source_folder(source)
    weights = source.weights if source.weights is not None else checkpoint(Path(str(folder)))
    config, pictures = _config(source, folder)
    towers = _towers(source.name, config, folder)
    # With a folder the model's shape comes from its config, with a bare weights file from open_clip's own list.
    named = str(source.arch) if folder is None else f"local-dir:{folder}"
    with _silence_logging(), explain_errors(source.name, "model"):
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
        made: torch.Tensor = model.encode_text(_trim_padding(tokenizer(texts), model).to(device))
        return made

    def look(picture: Any) -> Tensors:
        return {"image": transform(picture)}

    return Clip(
        name=source.name,
        library="open_clip",
        scale=to_number(model.logit_scale.exp()),
        bias=to_number(model.logit_bias) if getattr(model, "logit_bias", None) is not None else None,
        dim=vector_size(read, source.name),
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
        with (
            silence_transformers(),
            explain_errors(name, "model"),
        ):  # open_clip does not say that code must not be run; this one refuses
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


def _trim_padding(tokens: torch.Tensor, model: Any) -> torch.Tensor:
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
def _silence_logging() -> Iterator[None]:
    """open_clip tells its steps through the root logger, which would set it up for the whole process."""
    root, nothing = logging.getLogger(), logging.NullHandler()
    root.addHandler(nothing)
    level = root.level
    root.setLevel(logging.CRITICAL)
    try:
        with silence_transformers(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.setLevel(level)
        root.removeHandler(nothing)
