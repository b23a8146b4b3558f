"""Pictures, prompts and answers -> tensors for any vision-language model of transformers that has a chat template.

A question is what the model's own template makes of one picture and one text, up to where the answer begins. An answer
is put behind it token by token, so a model that learns sees exactly the question that it sees when it writes.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cxrhf.errors import ConfigError, CxrhfError, TableError
from cxrhf.models.data import Images, Pictures, Plan
from cxrhf.models.seeding import number
from cxrhf.models.vlm import Picture, all_rgb, blank_picture, rgb

Integers = NDArray[np.int64]


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
        add_special_tokens=not _has_begin_token(vlm, texts[0]),
    )
    # PaliGemma's processor makes labels too, which are not the answer's.
    return {key: each for key, each in made.items() if isinstance(each, torch.Tensor) and key != "labels"}


def _has_begin_token(vlm: Any, text: str) -> bool:
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
        inputs[key] = _fill_rows(key, rows, tails, width, vlm.tokenizer.pad_token_id, _answer_type(vlm))
    labels = torch.full((len(answers), width), IGNORED, dtype=torch.long)
    for row, (mask, tail) in enumerate(zip(held, tails, strict=True)):
        at = int(mask.sum())
        labels[row, at : at + len(tail)] = tail
    inputs["labels"] = labels
    return AnswerBatch(inputs, n_cut)


def _answer_type(vlm: Any) -> int:
    """The type of an answer's tokens: 0 is text, but in PaliGemma the part that all its tokens may look at."""
    return 1 if vlm.model.config.model_type == "paligemma" else 0


def _fill_rows(
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
    lead, end = _answer_frame(vlm)
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
    with_picture = question_batch(vlm, [blank_picture(vlm.about["size"])], [some])["input_ids"].shape[1]
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


def _answer_frame(vlm: Any) -> tuple[str, int]:
    """What the template puts before an answer, and the token that ends one."""
    return _find_answer_frame(vlm.processor, vlm.tokenizer, tuple(stop_tokens(vlm)))


@lru_cache(maxsize=16)
def _find_answer_frame(processor: Any, tokenizer: Any, stops: tuple[int, ...]) -> tuple[str, int]:
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


# Pictures, prompts and reports -> examples that a vision-language model learns from, batch after batch.
#
# Every process works out all batches for itself and reads its own share (see data.py). Lengths are known before the
# first picture is read: so batches can hold reports of like lengths, and each process knows how many tokens the whole
# batch teaches.

STRETCH = 32  # batches whose rows are sorted by length together
AHEAD = 2  # batches made while the model works on another
_ONE = threading.Lock()  # a tokenizer cannot be shared, and training reads ahead while it validates


@dataclass(frozen=True, slots=True)
class Examples:
    """What is learned from, by row. `lengths`: tokens of a row; `learned`: those of them that are learned."""

    ids: list[str]
    pictures: Pictures
    prompts: list[str]
    answers: list[str]
    lengths: Integers
    learned: Integers
    n_cut: int
    max_length: int
    longest: int  # tokens of the longest row if nothing were cut

    def __len__(self) -> int:
        return len(self.ids)


def make_examples(
    vlm: Any, images: Images, prompts: Sequence[str], answers: Sequence[str], max_length: int
) -> Examples:
    """Examples of images that all have an answer."""
    if not len(images) == len(prompts) == len(answers) or not all(answers):
        raise TableError(
            "training examples",
            got=f"{len(images):,} images, {len(prompts):,} prompts and {sum(map(bool, answers)):,} reports",
            allowed="a prompt and a report for each image",
        )
    questions = question_lengths(vlm, prompts)
    counts = [len(each) for each in answer_tokens(vlm, answers)]
    kept = [kept_tokens(asked, said, max_length) for asked, said in zip(questions, counts, strict=True)]
    return Examples(
        images.ids, images.pictures, list(prompts), list(answers),
        np.array([a + b for a, b in zip(questions, kept, strict=True)], dtype=np.int64),
        np.array(kept, dtype=np.int64), sum(a < b for a, b in zip(kept, counts, strict=True)), max_length,
        max(a + b for a, b in zip(questions, counts, strict=True)),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class LengthPlan(Plan):
    """The order in which examples are seen, with rows of like lengths in one batch, where `lengths` are given."""

    lengths: Integers | None = None

    def order(self, epoch: int) -> Integers:
        """Sorted by length within stretches of a random order; batches then change places at random.

        Whole batches change places, and rows that fill no batch stay at the end, where an epoch leaves them out.
        """
        drawn = Plan.order(self, epoch)
        if self.lengths is None or len(drawn) < 2 * self.batch_size:
            return drawn
        size, whole = self.batch_size, len(drawn) // self.batch_size * self.batch_size
        stretches = [drawn[at : min(at + STRETCH * size, whole)] for at in range(0, whole, STRETCH * size)]
        batches: list[Integers] = []
        for stretch in stretches:
            by_length = stretch[np.argsort(self.lengths[stretch], kind="stable")]
            batches += [by_length[at : at + size] for at in range(0, len(by_length), size)]
        places = np.argsort([number(self.seed, "batch", epoch, at) for at in range(len(batches))], kind="stable")
        return np.concatenate([*(batches[at] for at in places), drawn[whole:]])


def read_examples(
    vlm: Any, examples: Examples, asks: Iterable[Integers], *, workers: int
) -> Generator[AnswerBatch, None, None]:
    """The batch of each ask, in order; made ahead by a thread, whose pictures `workers` threads decode."""
    if workers == 0:
        for rows in asks:
            yield _batch(vlm, examples, rows, None)
        return
    with ThreadPoolExecutor(1) as maker, ThreadPoolExecutor(workers) as readers:
        waiting: list[Any] = []
        try:
            for rows in asks:
                waiting.append(maker.submit(_batch, vlm, examples, rows, readers))
                if len(waiting) > AHEAD:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            for each in waiting:
                each.cancel()


def _batch(vlm: Any, examples: Examples, rows: Integers, readers: ThreadPoolExecutor | None) -> AnswerBatch:
    size = vlm.about["size"]

    def picture(row: int) -> Any:
        try:
            return rgb(examples.pictures[row], size)
        except CxrhfError as error:
            raise TableError(
                f"the image in row {row + 1:,} cannot be read: {str(error).rstrip('.')}",
                next_step="build the dataset again: cxrhf build excludes damaged images",
            ) from None

    numbers = [int(row) for row in rows]
    pictures = list(map(picture, numbers) if readers is None else readers.map(picture, numbers))
    prompts, answers = ([texts[row] for row in numbers] for texts in (examples.prompts, examples.answers))
    with _ONE:
        return answer_batch(vlm, pictures, prompts, answers, examples.max_length)
