"""Tiny vision-language models of five architectures, with processors and chat templates, made without a download."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from cxrhf.models.lora import tiny_qwen3_vl

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz.,:?-ĠĊ"
TEXTS = ["The lungs are clear. No acute cardiopulmonary process.", "There is cardiomegaly. No pleural effusion."]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ 'USER: ' if m.role == 'user' else 'ASSISTANT: ' }}"
    "{% for c in m.content %}{{ 'PICTURE' if c.type == 'image' else c.text }}{% endfor %}"
    "{{ ' ' if m.role == 'user' else '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
VISION = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
          "image_size": 28, "patch_size": 14}  # fmt: skip


def tokenizer(picture: str, *special: str, **options: Any) -> Any:
    """Letters, and the tokens that a processor asks for; it writes <s> before every text, as Llama's does."""
    words = {"<pad>": 0, "</s>": 1, "<s>": 2}
    for token in (picture, *special, *ALPHABET):
        words.setdefault(token, len(words))
    made = transformers.Qwen2Tokenizer(
        vocab=words, merges=[], bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<pad>",
        additional_special_tokens=[picture, *special], **options,
    )  # fmt: skip
    from tokenizers.processors import TemplateProcessing

    made.backend_tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 2)])
    return made


def text_config(kind: Any, size: int, **options: Any) -> Any:
    """A language model of one layer."""
    return kind(
        vocab_size=size, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, pad_token_id=0, bos_token_id=2, eos_token_id=1, **options,
    )  # fmt: skip


def llava(folder: Path) -> Path:
    """CLIP and Llama."""
    words = tokenizer("<image>")
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**VISION),
        text_config=text_config(transformers.LlamaConfig, len(words)),
        image_token_index=words.convert_tokens_to_ids("<image>"), vision_feature_layer=-1,
    )  # fmt: skip
    look = transformers.CLIPImageProcessor(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    processor = transformers.LlavaProcessor(
        image_processor=look, tokenizer=words, patch_size=14, vision_feature_select_strategy="default",
        num_additional_image_tokens=1, chat_template=TEMPLATE.replace("PICTURE", "<image> "),
    )  # fmt: skip
    return _saved(folder, transformers.LlavaForConditionalGeneration, config, processor)


def paligemma(folder: Path) -> Path:
    """SigLIP and Gemma: everything before the answer sees everything before the answer."""
    words = tokenizer("<image>")
    look = transformers.SiglipImageProcessor(size={"height": 28, "width": 28})
    look.image_seq_length = 4
    template = TEMPLATE.replace("{{ bos_token }}", "").replace("PICTURE", "<image>")
    processor = transformers.PaliGemmaProcessor(image_processor=look, tokenizer=words, chat_template=template)
    config = transformers.PaliGemmaConfig(
        vision_config=transformers.SiglipVisionConfig(**VISION, vision_use_head=False),
        text_config=text_config(transformers.GemmaConfig, len(words), head_dim=8),
        image_token_index=words.convert_tokens_to_ids("<image>"), projection_dim=16,
    )  # fmt: skip
    return _saved(folder, transformers.PaliGemmaForConditionalGeneration, config, processor)


def gemma3(folder: Path) -> Path:
    """SigLIP and Gemma 3: tokens of a picture see one another, text sees what comes before."""
    words = tokenizer("<soft>", "<boi>", "<eoi>", extra_special_tokens={
        "image_token": "<soft>", "boi_token": "<boi>", "eoi_token": "<eoi>"})  # fmt: skip
    look = transformers.Gemma3ImageProcessor(size={"height": 28, "width": 28}, image_seq_length=4)
    processor = transformers.Gemma3Processor(
        image_processor=look, tokenizer=words, image_seq_length=4, chat_template=TEMPLATE.replace("PICTURE", "<boi>")
    )
    ids = words.convert_tokens_to_ids
    config = transformers.Gemma3Config(
        vision_config=transformers.SiglipVisionConfig(**VISION, vision_use_head=False),
        text_config=text_config(transformers.Gemma3TextConfig, len(words), head_dim=8, sliding_window=64),
        mm_tokens_per_image=4, boi_token_index=ids("<boi>"), eoi_token_index=ids("<eoi>"),
        image_token_index=ids("<soft>"),
    )  # fmt: skip
    return _saved(folder, transformers.Gemma3ForConditionalGeneration, config, processor)


def idefics3(folder: Path) -> Path:
    """SigLIP and Llama with pictures in pieces."""
    special = ("<fake_token_around_image>", "<global-img>", "<end_of_utterance>", "<row_1_col_1>")
    words = tokenizer("<image>", *special)
    look = transformers.Idefics3ImageProcessor(
        size={"longest_edge": 28}, max_image_size={"longest_edge": 28}, do_image_splitting=False
    )
    processor = transformers.Idefics3Processor(
        image_processor=look, tokenizer=words, image_seq_len=1, chat_template=TEMPLATE.replace("PICTURE", "<image>")
    )
    config = transformers.Idefics3Config(
        vision_config=transformers.models.idefics3.Idefics3VisionConfig(**VISION),
        text_config=text_config(transformers.LlamaConfig, len(words)),
        image_token_id=words.convert_tokens_to_ids("<image>"), scale_factor=2,
    )  # fmt: skip
    return _saved(folder, transformers.Idefics3ForConditionalGeneration, config, processor)


def qwen3(folder: Path) -> Path:
    """Ours."""
    return tiny_qwen3_vl(folder, TEXTS, hidden=32, vision_hidden=32)


KINDS = {"qwen3": qwen3, "llava": llava, "paligemma": paligemma, "gemma3": gemma3, "idefics3": idefics3}


def _saved(folder: Path, kind: Any, config: Any, processor: Any) -> Path:
    torch.manual_seed(0)
    kind(config).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
