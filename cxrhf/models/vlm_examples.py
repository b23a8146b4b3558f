"""Pictures, prompts and reports -> examples that a vision-language model learns from, batch after batch.

Every process works out all batches for itself and reads its own share (see loader.py). Lengths are known before the
first picture is read: so batches can hold reports of like lengths, and each process knows how many tokens the whole
batch teaches.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrhf.errors import CxrhfError, TableError
from cxrhf.models.images import Images, Pictures
from cxrhf.models.loader import Plan
from cxrhf.models.seeding import number
from cxrhf.models.vlm_batches import AnswerBatch, answer_batch, answer_tokens, kept_tokens, question_lengths
from cxrhf.models.vlm_pictures import rgb

Integers = NDArray[np.int64]
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
