"""A vision-language model -> the same with low-rank adapters (LoRA, by peft) on its language model; and their files.

Only linear layers of attention and of the perceptrons of the language model get adapters; vision tower and projector
stay as they are. The layers are found by where they lie in the model, whatever the architecture calls them. What is
written is what `PeftModel.from_pretrained(base, folder)` reads, with cxrhf.json beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from cxrhf.encode.encoder import silence_transformers
from cxrhf.errors import ConfigError, CxrhfError
from cxrhf.models.seeding import number, seeded_torch
from cxrhf.models.vlm import ABOUT, ADAPTER_CONFIG, ADAPTER_WEIGHTS, Vlm, load_vlm, require_vlm_packages
from cxrhf.tables.folders import replace_folder

Tensors = dict[str, torch.Tensor]


def language_layers(model: Any) -> list[str]:
    """Names of the linear layers of the language model, without the one that scores words."""
    path, decoder = _decoder(model)
    seeing = _module_ids(vision_tower(model))
    head = model.get_output_embeddings()
    found = [
        f"{path}.{name}"
        for name, module in decoder.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head and id(module) not in seeing
    ]
    if not found:
        raise CxrhfError(
            f"the language model of {type(model).__name__} has no linear layers to adapt",
            next_step="use another model, such as Qwen/Qwen3-VL-8B-Instruct",
        )  # fmt: skip
    return found


def vision_tower(model: Any) -> torch.nn.Module | None:
    """The part that looks at pictures, where the model names one."""
    found = model.get_encoder(modality="image")
    return None if found is model or found is model.base_model else found


def _module_ids(module: torch.nn.Module | None) -> set[int]:
    return set() if module is None else {id(each) for each in module.modules()}


def _decoder(model: Any) -> tuple[str, torch.nn.Module]:
    decoder = model.get_decoder()
    for path, module in model.named_modules():
        if module is decoder and path and not _module_ids(vision_tower(model)) & {id(decoder)}:
            return path, module
    raise CxrhfError(
        f"{type(model).__name__} does not separate its language model from its vision tower",
        next_step="use another model, such as Qwen/Qwen3-VL-8B-Instruct",
    )  # fmt: skip


def layer_pattern(model: Any) -> str:
    """One regular expression that means exactly these layers: peft keeps it in the adapter's config."""
    layers = language_layers(model)
    path, _ = _decoder(model)
    kinds = sorted({each.rsplit(".", 1)[-1] for each in layers})
    pattern = rf"{re.escape(path)}\..*\.({'|'.join(map(re.escape, kinds))})"
    meant = [name for name, _ in model.named_modules() if re.fullmatch(pattern, name)]
    # Where a name means more than linear layers, every one is listed.
    return pattern if meant == layers else "|".join(map(re.escape, layers))


def add_lora(vlm: Vlm, *, rank: int, alpha: float, dropout: float, embeddings: bool, four_bit: bool, seed: int) -> Any:
    """The model with new adapters that learn; all else is frozen. The same seed gives the same first adapters."""
    with require_vlm_packages():
        from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    model = vlm.model
    if four_bit:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    tied = bool(getattr(model.config, "tie_word_embeddings", False))
    settings = LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=layer_pattern(model), task_type="CAUSAL_LM",
        modules_to_save=_embeddings(model) if embeddings else None, ensure_weight_tying=embeddings and tied,
    )  # fmt: skip
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with silence_transformers(), torch.random.fork_rng(devices=devices):
        torch.manual_seed(number(seed, "lora") % 2**63)
        made = get_peft_model(model, settings)
    seeing = _module_ids(vision_tower(made.get_base_model()))
    wrong = [name for name, each in made.named_modules() if id(each) in seeing and "lora_" in name]
    if wrong:
        raise CxrhfError("adapters in the vision tower", got=f"{len(wrong)} layers", allowed="none")
    return made


def _embeddings(model: Any) -> list[str]:
    """The layers that turn tokens into vectors and back; the second one follows the first where they are one."""
    wanted = [model.get_input_embeddings(), model.get_output_embeddings()]
    tied = bool(getattr(model.config, "tie_word_embeddings", False))
    names = [name for each in wanted[: 1 if tied else 2] for name, module in model.named_modules() if module is each]
    return [name.rsplit(".", 1)[-1] for name in names]


def adapter_weights(model: Any) -> Tensors:
    """What was learned, under the names that peft gives it in a file."""
    from peft import get_peft_model_state_dict

    found = get_peft_model_state_dict(model, save_embedding_layers=False)
    return {name: found[name].detach().to("cpu", copy=True).contiguous() for name in sorted(found)}


def set_adapter_weights(model: Any, tensors: Tensors) -> None:
    """Put back what `adapter_weights` gave; every tensor must be there."""
    from peft import set_peft_model_state_dict

    there = adapter_weights(model)
    if there.keys() != tensors.keys() or any(there[name].shape != tensors[name].shape for name in there):
        raise CxrhfError(
            "the checkpoint holds adapters of other layers or another rank", next_step="pass --overwrite to start again"
        )
    set_peft_model_state_dict(model, dict(tensors))


def save_adapter(folder: Path, model: Any, tensors: Tensors, processor: Any, about: dict[str, Any], base: str) -> None:
    """Write an adapter's folder, there whole or not at all. `base`: how the model is found, for others than us."""
    with replace_folder(folder, ADAPTER_CONFIG, "adapter", "choose another --out") as fresh:
        save_file(dict(tensors), fresh / ADAPTER_WEIGHTS, metadata={"format": "pt"})
        settings = model.peft_config["default"].to_dict()
        settings |= {"base_model_name_or_path": base, "inference_mode": True}
        text = json.dumps(settings, indent=1, sort_keys=True, default=_to_json_value) + "\n"
        (fresh / ADAPTER_CONFIG).write_text(text, encoding="utf-8")
        with silence_transformers():
            processor.save_pretrained(fresh)
        _write_about(fresh, about)


def save_merged(folder: Path, base: str, adapter: Path, about: dict[str, Any], *, precision: str, size: int) -> None:
    """Write the model with the adapter added into its weights: a folder that needs neither peft nor the base.

    `precision`: torch's name of the kind of numbers that it was trained in.
    """
    kind = {"bfloat16": "bf16", "float16": "fp16"}.get(precision, "float32")
    vlm = load_vlm(base, adapter=adapter, precision=kind, size=size)
    with replace_folder(folder, ABOUT, "merged model", "choose another --out") as fresh, silence_transformers():
        vlm.model.merge_and_unload(safe_merge=True).save_pretrained(fresh)
        vlm.processor.save_pretrained(fresh)
        _write_about(fresh, {**about, "merged": True})


def _write_about(folder: Path, about: dict[str, Any]) -> None:
    text = json.dumps(about, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    (folder / ABOUT).write_text(text, encoding="utf-8")


def _to_json_value(value: Any) -> Any:
    return sorted(value) if isinstance(value, (set, frozenset)) else str(getattr(value, "value", value))


# Texts -> the folder of a tiny Qwen3-VL with random weights: real classes, processor and tokenizer, made on a CPU.
#
# It knows nothing until it is fine-tuned. Its embeddings are drawn wide, unlike those of a large model: they stay
# frozen, and scores of words are products with them, so narrow ones would keep every word about as likely as every
# other.

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
    with seeded_torch(number(seed, "tiny")):
        model = Qwen3VLForConditionalGeneration(config)
        _widen_weights(model)
    stops = [ids(STOP), ids(END)]
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = stops, ids(END)
    model.generation_config.do_sample = False
    place = Path(folder)
    with silence_transformers():
        model.save_pretrained(place)
        processor.save_pretrained(place)
    return place


def _widen_weights(model: torch.nn.Module) -> None:
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
