"""Pictures, prompts and answers -> tensors for any vision-language model of transformers that has a chat template.

A question is what the model's own template makes of one picture and one text, up to where the answer begins. An answer
is put behind it token by token, so a model that learns sees exactly the question that it sees when it writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from cxrhf.errors import ConfigError, CxrhfError
from cxrhf.models.vlm_pictures import Picture, all_rgb, blank

IGNORED = -100  # torch's mark of a token that no loss is asked for
_MARK = "ANSWER-BEGINS-HERE"


@dataclass(frozen=True, slots=True)
class AnswerBatch:
    """`inputs` for the model with `labels`, and how many answers did not fit."""

    inputs: dict[str, torch.Tensor]
    n_cut: int


def question_text(vlm: Any, prompt: str) -> str:
    """One picture and one text in the model's own form, up to where the answer begins."""
    parts = [{"type": "image"}, {"type": "text", "text": prompt}]
    return _rendered(vlm, [{"role": "user", "content": parts}], ask=True)


def question_batch(vlm: Any, pictures: Sequence[Picture], prompts: Sequence[str]) -> dict[str, torch.Tensor]:
    """Questions filled up on the left, ready for `generate`; on the CPU."""
    if len(pictures) != len(prompts) or not prompts:
        raise CxrhfError(
            "batch", got=f"{len(pictures)} images and {len(prompts)} prompts", allowed="one prompt per image"
        )
    texts = [question_text(vlm, each) for each in prompts]
    made = vlm.processor(
        text=texts,
        images=[[each] for each in all_rgb(pictures, vlm.about["size"])],
        padding=True,
        padding_side="left",
        return_tensors="pt",
        add_special_tokens=not _begins(vlm, texts[0]),
    )
    # PaliGemma's processor makes labels too, which are not the answer's.
    return {key: each for key, each in made.items() if isinstance(each, torch.Tensor) and key != "labels"}


def _begins(vlm: Any, text: str) -> bool:
    """Whether the template wrote the token that begins a text: the tokenizer must not write it once more."""
    begin = vlm.tokenizer.bos_token
    return begin is not None and text.startswith(begin)


def answer_batch(
    vlm: Any, pictures: Sequence[Picture], prompts: Sequence[str], answers: Sequence[str], max_length: int
) -> AnswerBatch:
    """Questions with their answers, filled up on the right. A loss is asked for on answers and their end only.

    An answer that makes its row longer than `max_length` is cut and loses its end: it must not teach to stop there.
    """
    asked = question_batch(vlm, pictures, prompts)
    held = [asked["attention_mask"][row].bool() for row in range(len(answers))]
    tails, n_cut = [], 0
    for row, tokens in enumerate(answer_tokens(vlm, answers)):
        room = max_length - int(held[row].sum())
        _fits(room, max_length)
        n_cut += len(tokens) > room
        tails.append(torch.tensor(tokens[:room], dtype=asked["input_ids"].dtype))
    width = max(int(mask.sum()) + len(tail) for mask, tail in zip(held, tails, strict=True))
    whole = asked["input_ids"].shape
    inputs: dict[str, torch.Tensor] = {}
    for key, values in asked.items():
        if values.shape[:2] != whole:
            inputs[key] = values  # of pictures, not of tokens
            continue
        rows = [values[row][mask] for row, mask in enumerate(held)]
        inputs[key] = _filled(key, rows, tails, width, vlm.tokenizer.pad_token_id, _answer_type(vlm))
    labels = torch.full((len(answers), width), IGNORED, dtype=torch.long)
    for row, (mask, tail) in enumerate(zip(held, tails, strict=True)):
        at = int(mask.sum())
        labels[row, at : at + len(tail)] = tail
    inputs["labels"] = labels
    return AnswerBatch(inputs, n_cut)


def _answer_type(vlm: Any) -> int:
    """The type of an answer's tokens: 0 is text, but in PaliGemma the part that all its tokens may look at."""
    return 1 if vlm.model.config.model_type == "paligemma" else 0


def _filled(
    key: str, rows: list[torch.Tensor], tails: list[torch.Tensor], width: int, padding: int, answer_type: int
) -> torch.Tensor:
    """Values of the question's tokens, then those of the answer's, then those of what fills up."""
    made = []
    for row, tail in zip(rows, tails, strict=True):
        after, rest = len(tail), width - len(row) - len(tail)
        if key == "input_ids":
            more = [tail, tail.new_full((rest,), padding)]
        elif key == "attention_mask":
            more = [row.new_ones(after), row.new_zeros(rest)]
        elif key.endswith("type_ids"):
            more = [row.new_full((after + rest,), answer_type)]
        else:  # which pictures a token may look at: as the last token of the question
            more = [row[-1:].expand(after + rest, *row.shape[1:])]
        made.append(torch.cat([row, *more]))
    return torch.stack(made)


def answer_tokens(vlm: Any, answers: Sequence[str]) -> list[list[int]]:
    """The tokens of each answer and its end."""
    lead, end = _around(vlm)
    texts = [lead + each for each in answers]
    found: list[list[int]] = vlm.tokenizer(texts, add_special_tokens=False, padding=False, truncation=False)[
        "input_ids"
    ]
    return [[*each, end] for each in found]


def question_lengths(vlm: Any, prompts: Sequence[str]) -> list[int]:
    """Tokens of each question, its picture counted as the one of a black square: all pictures have one size."""
    texts = {each: question_text(vlm, each) for each in set(prompts)}
    plain = {each: len(vlm.tokenizer(text, add_special_tokens=False)["input_ids"]) for each, text in texts.items()}
    some = prompts[0]
    with_picture = question_batch(vlm, [blank(vlm.about["size"])], [some])["input_ids"].shape[1]
    return [plain[each] - plain[some] + with_picture for each in prompts]


def kept_tokens(question: int, answer: int, max_length: int) -> int:
    """Of an answer's tokens, those that a row has room for."""
    _fits(max_length - question, max_length)
    return min(answer, max_length - question)


def _fits(room: int, max_length: int) -> None:
    if room < 1:
        raise ConfigError(
            "--max-length leaves no room for a report", got=f"{max_length}; the prompt has {max_length - room} tokens",
            next_step=f"--max-length {max_length - room + 256}, a smaller --size or a shorter --prompt",
        )  # fmt: skip


def _around(vlm: Any) -> tuple[str, int]:
    """What the template puts before an answer, and the token that ends one."""
    return _found_around(vlm.processor, vlm.tokenizer, tuple(stop_tokens(vlm)))


@lru_cache(maxsize=16)
def _found_around(processor: Any, tokenizer: Any, stops: tuple[int, ...]) -> tuple[str, int]:
    user = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "?"}]}
    said = {"role": "assistant", "content": [{"type": "text", "text": _MARK}]}
    question = processor.apply_chat_template([user], tokenize=False, add_generation_prompt=True)
    whole = processor.apply_chat_template([user, said], tokenize=False)
    before, found, after = whole.partition(_MARK)
    lead = before.removeprefix(question) if found and before.startswith(question) else ""
    tail = tokenizer(after, add_special_tokens=False)["input_ids"] if found else []
    return lead, next((each for each in tail if each in stops), stops[0])


def stop_tokens(vlm: Any) -> list[int]:
    """Tokens that end a text: the tokenizer's own first, then the model's."""
    settings = getattr(vlm.model, "generation_config", None)
    said = getattr(settings, "eos_token_id", None)
    named = list(said) if isinstance(said, (list, tuple)) else [said]
    found = [each for each in (vlm.tokenizer.eos_token_id, *named) if isinstance(each, int)]
    if not found:
        raise CxrhfError("the model has no end-of-text token", next_step="use a model that follows instructions")
    return list(dict.fromkeys(found))


def _rendered(vlm: Any, messages: list[dict[str, Any]], *, ask: bool) -> str:
    text: str = vlm.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=ask)
    return text
