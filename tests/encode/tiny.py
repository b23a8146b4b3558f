"""Small random models with tokenizers built here, and the slow twin of the encoder: one window at a time, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerFast

WORDS = (
    "no", "pleural", "effusion", "pneumothorax", "left", "right", "lung", "heart", "enlarged", "fluid", "chronic",
    "failure", "acute", "the", "of", "with", "and",
)  # fmt: skip

BIN = "pytorch_model.bin"
ONLY_BIN = ("pubmedbert", "clinicalbert", "biolinkbert")  # of the paper's encoders: their repositories hold no others


def notes(n: int, seed: int = 0, longest: int = 60) -> list[str]:
    """Made-up notes of 1 to `longest` words."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=rng.integers(1, longest + 1))) + f" {at}" for at in range(n)]


def _tokenizer(special: dict[str, str], template: str | None) -> PreTrainedTokenizerFast:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=list(special.values()), initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator(notes(50), trainer)
    if template:
        made.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[(each, made.token_to_id(each)) for each in special.values()]
        )
    return PreTrainedTokenizerFast(tokenizer_object=made, **special)


def save_tiny(kind: str, folder: Path, seed: int = 0, **settings: Any) -> Path:
    """A random model of an architecture with its tokenizer, as a folder. Positions for 64 tokens."""
    from transformers import BertConfig, MistralConfig, RobertaConfig

    small = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 320,
    }  # fmt: skip
    if kind == "roberta":
        special = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
        tokenizer = _tokenizer(special, "<s> $A </s>")
        config: Any = RobertaConfig(**small, max_position_embeddings=66, pad_token_id=1, bos_token_id=0, eos_token_id=2)
    elif kind == "mistral":  # a decoder: only a token before the text, and nothing to pad with
        tokenizer = _tokenizer({"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}, "<s> $A")
        config = MistralConfig(**small, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=None)
    else:
        special = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
        tokenizer = _tokenizer(special, "[CLS] $A [SEP]")
        config = BertConfig(**small, max_position_embeddings=64, pad_token_id=0)
    for name, value in settings.items():
        setattr(config, name, value)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        AutoModel.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_bin(folder: Path, state: Any, **settings: Any) -> Path:
    """The same folder with .bin weights only."""
    (folder / "model.safetensors").unlink(missing_ok=True)
    torch.save(state, folder / BIN, **settings)
    return folder


def save_stand_in(name: str, folder: Path, twin: Path | None = None) -> None:
    """A small random model with the files, the architecture and the names of weights that the Hub's model has."""
    from transformers import BertConfig, BertForMaskedLM, DistilBertConfig, DistilBertForMaskedLM

    if name not in ONLY_BIN:
        save_tiny({"mistral": "mistral", "roberta": "roberta"}.get(name, "bert"), folder)
        return
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *"0123456789", *(f"##{n}" for n in range(10))]
    if name == "clinicalbert":
        model: Any = DistilBertForMaskedLM(
            DistilBertConfig(vocab_size=len(vocabulary), dim=32, n_layers=1, n_heads=4, hidden_dim=64,
                             max_position_embeddings=64)
        )  # fmt: skip
    else:
        model = BertForMaskedLM(
            BertConfig(vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
                       intermediate_size=64, max_position_embeddings=64)
        )  # fmt: skip
    for each in (folder, twin) if twin else (folder,):
        model.save_pretrained(each)
        (each / "vocab.txt").write_text("\n".join(vocabulary))
        (each / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    state = model.state_dict()
    if name == "biolinkbert":  # a bare model, in today's format
        save_bin(folder, {key.removeprefix("bert."): each for key, each in state.items() if key.startswith("bert.")})
    elif name == "pubmedbert":  # with a head, the names of layers and the format of 2020
        old = {key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): each
               for key, each in state.items()}  # fmt: skip
        save_bin(folder, old, _use_new_zipfile_serialization=False)
    else:
        save_bin(folder, state)


def slow_vector(model: Any, tokenizer: Any, text: str, pooling: str, window: int, overlap: int) -> np.ndarray:
    """The vector of one text by the definition; windows are found by walking through the tokens."""
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    means, sizes = [], []
    start = 0
    while ids:
        part = ids[start : start + window]
        given = part
        if pooling == "tokens":
            whole = tokenizer("x", add_special_tokens=True)["input_ids"]
            middle = tokenizer("x", add_special_tokens=False)["input_ids"]
            at = whole.index(middle[0])
            given = whole[:at] + part + whole[at + len(middle) :]
        with torch.inference_mode():
            hidden = model(input_ids=torch.tensor([given])).last_hidden_state[0]
        means.append(hidden.float().mean(0).double().numpy())
        sizes.append(len(part))
        if start + window >= len(ids):
            break
        start += window - overlap
    if not means:
        return np.zeros(model.config.hidden_size)
    if pooling == "tokens":
        pooled = sum(mean * size for mean, size in zip(means, sizes, strict=True)) / sum(sizes)
    elif pooling == "paper":
        pooled = np.mean(means, axis=0)
    else:
        return np.mean([mean / np.linalg.norm(mean) for mean in means], axis=0)
    return pooled / np.linalg.norm(pooled)


def plain(folder: Path) -> tuple[Any, Any]:
    """Model and tokenizer, loaded as anybody would."""
    return AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
