"""Texts of a block -> their vectors: tokens, windows, batches, the model, pooling."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cxrhf.encode.batches import batched, padded, windows_of
from cxrhf.encode.loading import Encoder, padding_id, token_ids
from cxrhf.encode.pooling import pool_windows, window_means
from cxrhf.errors import CxrhfError

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]
Each = TypeVar("Each")
Made = TypeVar("Made")


def tokens_of(encoder: Encoder, texts: list[str]) -> list[Ids]:
    """Token ids of texts, without special tokens."""
    return [np.array(ids, dtype=np.int64) for ids in token_ids(encoder.tokenizer, texts)]


def vectors_of(
    model: Any,
    encoder: Encoder,
    tokens: list[Ids],
    *,
    pooling: str,
    batch_tokens: int,
    done: Callable[[int], None] = lambda tokens: None,
) -> Vectors:
    """Texts as tokens -> a vector for each; zeros for a text without tokens. `done` hears how many a batch held."""
    windows = windows_of([len(each) for each in tokens], encoder.frame)
    means = np.zeros((len(windows), encoder.dim), dtype=np.float32)
    filling = padding_id(encoder)
    at = 0
    for batch in batched(windows, encoder.frame, batch_tokens):
        ids, mask = padded(tokens, batch, encoder.frame, filling)
        means[at : at + len(batch)] = forward(model, encoder, ids, mask, batch_tokens)
        at += len(batch)
        done(sum(each.end - each.start - (encoder.frame.overlap if each.start else 0) for each in batch))
    note = np.array([each.text for each in windows], dtype=np.int64)
    size = np.array([each.end - each.start for each in windows], dtype=np.int64)
    return pool_windows(means, size, note, len(tokens), pooling)


def forward(model: Any, encoder: Encoder, ids: Ids, mask: Ids, batch_tokens: int) -> Vectors:
    """One pass of the model: the mean last hidden state of each window."""
    import torch

    with guarded(encoder, batch_tokens), torch.inference_mode():
        seen = torch.from_numpy(mask).to(encoder.device)
        read = model(input_ids=torch.from_numpy(ids).to(encoder.device), attention_mask=seen)
        means = window_means(read.last_hidden_state, seen)
    return finite(means, encoder)


@contextlib.contextmanager
def guarded(encoder: Encoder, batch_tokens: int) -> Iterator[None]:
    """A full memory as an error that says what to do."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError:
        raise CxrhfError(
            f"--batch-tokens {batch_tokens}: {encoder.device} ran out of memory",
            next_step=f"--batch-tokens {max(16, batch_tokens // 2)}; encoded notes are kept",
        ) from None


def finite(values: Vectors, encoder: Encoder) -> Vectors:
    """The values themselves, or an error if some are not finite."""
    if not np.isfinite(values).all():
        raise CxrhfError(
            f"encoder {encoder.name} gives values that are not finite in {encoder.dtype}",
            next_step="--dtype float32",
        )
    return values


def ahead(make: Callable[[Each], Made], items: Iterable[Each]) -> Iterator[Made]:
    """`make` of each item, the next one already in the making: texts are tokenized while the model reads."""
    with ThreadPoolExecutor(1) as maker:
        coming = None
        for item in items:
            made, coming = coming, maker.submit(make, item)
            if made is not None:
                yield made.result()
        if coming is not None:
            yield coming.result()
