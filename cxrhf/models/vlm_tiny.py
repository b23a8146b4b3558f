"""Texts -> the folder of a tiny Qwen3-VL with random weights: real classes, processor and tokenizer, made on a CPU.

It knows nothing until it is fine-tuned. Its embeddings are drawn wide, unlike those of a large model: they stay frozen,
and scores of words are products with them, so narrow ones would keep every word about as likely as every other.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from cxrhf.encode.loading import quiet
from cxrhf.errors import ConfigError
from cxrhf.models.seeding import drawing, number

END, START, STOP, PICTURE = "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|image_pad|>"
SPECIAL = (END, START, STOP, "<|vision_start|>", "<|vision_end|>", PICTURE, "<|video_pad|>")
SPREAD = 0.5  # of the embeddings
# Every message between marks, pictures as one mark that the processor repeats for each of its tokens.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "<|im_start|>{{ message.role }}{{ '\n' }}"
    "{%- if message.content is string -%}{{ message.content }}"
    "{%- else -%}{%- for part in message.content -%}"
    "{%- if part.type == 'image' -%}<|vision_start|><|image_pad|><|vision_end|>"
    "{%- elif part.type == 'text' -%}{{ part.text }}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}<|im_end|>{{ '\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant{{ '\n' }}{%- endif -%}"
)


def tiny_qwen3_vl(
    folder: str | Path,
    texts: Iterable[str],
    *,
    seed: int = 0,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    vision_hidden: int = 64,
    vision_layers: int = 2,
    patch: int = 8,
    vocabulary: int = 768,
) -> Path:
    """Make and save the model; `load_vlm(folder)` opens it. The same texts, seed and sizes give the same weights."""
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    if hidden % (heads * 2) or vision_hidden % (heads * 4):
        raise ConfigError(
            "hidden sizes", got=f"{hidden} and {vision_hidden} with {heads} heads", allowed="multiples of the heads"
        )
    processor = _processor(list(texts), vocabulary, patch)
    ids = processor.tokenizer.convert_tokens_to_ids
    dim = hidden // heads
    # Positions in time, height and width share the angles of a head: half a head's width in all.
    sections = [dim // 2 - 2 * (dim // 6), dim // 6, dim // 6]
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": len(processor.tokenizer), "hidden_size": hidden, "intermediate_size": 3 * hidden,
            "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": max(1, heads // 2),
            "head_dim": dim, "max_position_embeddings": 4096,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 10_000.0, "mrope_section": sections, "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": vision_layers, "hidden_size": vision_hidden, "intermediate_size": 2 * vision_hidden,
            "num_heads": heads, "patch_size": patch, "spatial_merge_size": 2, "temporal_patch_size": 2,
            "out_hidden_size": hidden, "num_position_embeddings": 64, "deepstack_visual_indexes": [0],
        },
        image_token_id=ids(PICTURE), video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"), vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=True,
    )  # fmt: skip
    with drawing(number(seed, "tiny")):
        model = Qwen3VLForConditionalGeneration(config)
        _widen(model)
    stops = [ids(STOP), ids(END)]
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = stops, ids(END)
    model.generation_config.do_sample = False
    place = Path(folder)
    with quiet():
        model.save_pretrained(place)
        processor.save_pretrained(place)
    return place


def _widen(model: torch.nn.Module) -> None:
    """Weights so large that signals neither fade nor grow on their way through the layers."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (torch.nn.Linear, torch.nn.Conv3d)):
                fan = module.weight[0].numel()
                torch.nn.init.normal_(module.weight, std=fan**-0.5)
            elif isinstance(module, torch.nn.Embedding):
                torch.nn.init.normal_(module.weight, std=SPREAD)


def _processor(texts: list[str], vocabulary: int, patch: int) -> Any:
    from transformers import Qwen2Tokenizer, Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    empty = Qwen2Tokenizer(eos_token=STOP, pad_token=END, unk_token=END, additional_special_tokens=list(SPECIAL))
    # Bytes, and the pairs of them that the texts have most often.
    tokenizer = empty.train_new_from_iterator(texts, max(vocabulary, 256 + len(SPECIAL)), show_progress=False)
    look: dict[str, Any] = {
        "patch_size": patch, "merge_size": 2, "temporal_patch_size": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
        "size": {"shortest_edge": (2 * patch) ** 2, "longest_edge": 1024**2},
    }  # fmt: skip
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(**look), tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(**look), chat_template=CHAT_TEMPLATE,
    )  # fmt: skip
