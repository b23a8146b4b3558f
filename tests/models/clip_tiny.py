"""Small random CLIP-style models with their tokenizers, as folders that the real loaders read; pictures for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pyarrow as pa
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPProcessor,
    CLIPTokenizer,
    PreTrainedTokenizerFast,
    Siglip2Config,
    Siglip2ImageProcessor,
    Siglip2Model,
    Siglip2Processor,
    Siglip2Tokenizer,
    SiglipConfig,
    SiglipImageProcessor,
    SiglipModel,
    SiglipProcessor,
)

from cxrhf.models.clip import Clip, load_clip
from cxrhf.models.data import Images
from cxrhf.models.zeroshot import PROMPTED, shipped_pair

SIDE = 32
DIM = 32
CONTEXT = 120
SMALL = {"hidden_size": DIM, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}
SIDES = [getattr(shipped_pair(name, ensemble=True), side) for name in PROMPTED for side in ("positive", "negative")]
TEXTS = [text for side in SIDES for text in side]


def some(pictures: Sequence[NDArray[np.uint8]]) -> Images:
    return Images(pa.table({"image_id": [f"i{at}" for at in range(len(pictures))]}), pictures)


def seen_by(clip: Clip, pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
    """The vectors of pictures, in one pass."""
    return clip.vectors([clip.prepare(each) for each in pictures])


def films(n: int, seed: int = 0) -> list[NDArray[np.uint8]]:
    """Noise of several sizes."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, size=rng.integers(20, 60, size=2), dtype=np.uint8) for _ in range(n)]


def bright_and_dark(n: int, seed: int = 0) -> tuple[list[NDArray[np.uint8]], NDArray[np.int64]]:
    """Noisy pictures, every second one bright."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    level = np.where(y == 1, 190, 60)
    return [np.clip(rng.normal(each, 25, size=(40, 48)), 0, 255).astype(np.uint8) for each in level], y


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def _clip_tokenizer() -> CLIPTokenizer:
    """One token a letter: a trained one would differ from run to run."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{each}</w>" for each in letters)]
    return CLIPTokenizer({each: at for at, each in enumerate(tokens)}, [], model_max_length=CONTEXT)


def _words_tokenizer(**special: str) -> PreTrainedTokenizerFast:
    """One token a word; the first and the last special token stand around the text."""
    words = sorted({word for text in TEXTS for word in text.replace(",", " ,").replace(":", " :").split()})
    vocab = {word: at for at, word in enumerate([*special.values(), *words])}
    made = Tokenizer(models.WordLevel(vocab, unk_token=special["unk_token"]))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if "sep_token" in special:
        around = [special["cls_token"], special["sep_token"]]
        made.post_processor = processors.TemplateProcessing(
            single=f"{around[0]} $A {around[1]}", special_tokens=[(each, vocab[each]) for each in around]
        )
    return PreTrainedTokenizerFast(tokenizer_object=made, **special)


def save_clip(folder: Path, seed: int = 0) -> Path:
    tokenizer = _clip_tokenizer()
    text = {**SMALL, "vocab_size": len(tokenizer), "max_position_embeddings": CONTEXT, "projection_dim": DIM}
    text |= {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": tokenizer.bos_token_id, "pad_token_id": 1}
    vision = {**SMALL, "image_size": SIDE, "patch_size": 8, "projection_dim": DIM}
    with seeded(seed):
        model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=DIM))
        _louder(model)
    model.save_pretrained(folder)
    pictures = CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    CLIPProcessor(pictures, tokenizer).save_pretrained(folder)
    return folder


def save_siglip(folder: Path, seed: int = 0, second: bool = False) -> Path:
    context = CONTEXT if second else 32
    if second:  # one token a letter
        tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁", *sorted({*"".join(TEXTS)} - {" "})]
        tokenizer: Any = Siglip2Tokenizer({each: at for at, each in enumerate(tokens)}, [], padding_side="right")
    else:
        tokenizer = _words_tokenizer(pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    text = {**SMALL, "vocab_size": len(tokenizer), "max_position_embeddings": context, "projection_size": DIM}
    text |= {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
    vision = {**SMALL, "patch_size": 8} | ({"num_patches": 16} if second else {"image_size": SIDE})
    config, model_class = (Siglip2Config, Siglip2Model) if second else (SiglipConfig, SiglipModel)
    with seeded(seed):
        model = model_class(config(text_config=text, vision_config=vision))
        model.logit_scale.data.fill_(2.0)
        model.logit_bias.data.fill_(-7.5)
    model.save_pretrained(folder)
    if second:
        Siglip2Processor(Siglip2ImageProcessor(patch_size=8, max_num_patches=16), tokenizer).save_pretrained(folder)
    else:
        side = {"height": SIDE, "width": SIDE}
        SiglipProcessor(SiglipImageProcessor(size=side), tokenizer).save_pretrained(folder)
    return folder


def save_open_clip(folder: Path, seed: int = 0) -> Path:
    """With open_clip's own towers and tokenizer."""
    config = {
        "embed_dim": DIM,
        "vision_cfg": {"layers": 1, "width": DIM, "head_width": 16, "patch_size": 8, "image_size": SIDE},
        "text_cfg": {"context_length": 40, "vocab_size": 49408, "width": DIM, "heads": 2, "layers": 1},
    }
    with seeded(seed):
        model = open_clip.CLIP(**config)
    # Other than open_clip's defaults, to see that the folder's own are taken.
    return _save_open(folder, model, config, {"mean": [0.5] * 3, "std": [0.25] * 3, "resize_mode": "squash"})


def save_biomed_like(folder: Path, tower: Path, seed: int = 0, name: str | None = None) -> Path:
    """As BiomedCLIP: an image tower of timm, a BERT whose config lies in another folder, tokenizer and .bin weights."""
    tokenizer = _words_tokenizer(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]")
    bert = BertConfig(**SMALL, vocab_size=len(tokenizer), max_position_embeddings=64, pad_token_id=0)
    bert.save_pretrained(tower)
    config = {
        "embed_dim": DIM,
        "vision_cfg": {"timm_model_name": "test_vit", "timm_pool": "", "timm_proj": "linear", "image_size": 160},
        "text_cfg": {
            "hf_model_name": str(tower),
            "hf_tokenizer_name": str(tower),
            "hf_proj_type": "mlp",
            "hf_pooler_type": "cls_last_hidden_state_pooler",
            "context_length": 32,
        },
    }
    made = json.loads(json.dumps(config))
    made["text_cfg"]["hf_model_pretrained"] = False
    with seeded(seed):
        model = open_clip.CustomTextCLIP(**made)
        _louder(model.text)
    if name is not None:
        config["text_cfg"] |= {"hf_model_name": name, "hf_tokenizer_name": name}
    _save_open(folder, model, config, {})
    tokenizer.save_pretrained(folder)
    weights = load_file(folder / "open_clip_model.safetensors")
    # Written by an older transformers, which kept the positions.
    weights["text.transformer.embeddings.position_ids"] = torch.arange(64)[None]
    torch.save(weights, folder / "open_clip_pytorch_model.bin")
    (folder / "open_clip_model.safetensors").unlink()
    return folder


def _louder(model: Any) -> None:
    """CLIP's and BERT's random weights give nearly the same vector for all texts: make them differ."""
    for name, weight in model.named_parameters():
        if weight.ndim > 1 and "position" not in name:
            weight.data.mul_(3)


def _save_open(folder: Path, model: Any, config: dict[str, Any], pictures: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    said = {"model_cfg": config, "preprocess_cfg": pictures}
    (folder / "open_clip_config.json").write_text(json.dumps(said))
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, folder / "open_clip_model.safetensors")
    return folder


def plant(folder: Path, weights: str, key: str, transposed: bool, positive: str, negative: str) -> Clip:
    """Sets the image tower's last projection so that bright pictures point to one prompt and dark ones to the other."""
    stored = load_file(folder / weights)
    stored[key] = torch.eye(DIM)
    save_file(stored, folder / weights, metadata={"format": "pt"})
    plain = load_clip(str(folder), "cpu")
    pictures, y = bright_and_dark(40, seed=9)
    seen = seen_by(plain, pictures).astype(np.float64)
    wanted = plain.text_features([negative, positive]).astype(np.float64)[y]
    fitted = np.linalg.solve(seen.T @ seen + 1e-3 * np.eye(DIM), seen.T @ wanted)  # in x out
    turned = fitted if transposed else fitted.T
    stored[key] = torch.from_numpy(np.ascontiguousarray(turned)).float()
    save_file(stored, folder / weights, metadata={"format": "pt"})
    return load_clip(str(folder), "cpu")


SAVED: dict[str, Callable[[Path], Path]] = {
    "clip": save_clip,
    "siglip": save_siglip,
    "siglip2": lambda folder: save_siglip(folder, second=True),
    "open_clip": save_open_clip,
    "biomed": lambda folder: save_biomed_like(folder, folder.parent / "tower"),
}
