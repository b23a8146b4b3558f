"""Texts of notes -> vectors; notes of each set -> one vector. Every distinct text is encoded once, and kept."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cxrhf.encode.cache import (
    Distinct,
    Store,
    Texts,
    as_array,
    cache_folder,
    distinct_contents,
    join_texts,
    open_store,
    reader,
    to_members,
)
from cxrhf.encode.encoder import Encoder, cache_about, cache_key, load_model, open_encoder, padding_id, token_ids
from cxrhf.encode.processes import (
    Clock,
    Progress,
    all_agree,
    barrier,
    broadcast_bytes,
    main_process,
    n_processes,
    rank,
    remark,
)
from cxrhf.encode.settings import EncodeConfig
from cxrhf.encode.windows import batch_windows, blocks, pad_batch, pool_notes, pool_windows, window_means, windows_of
from cxrhf.errors import CxrhfError, TableError
from cxrhf.tables.folders import temporary_folder

Integers = NDArray[np.int64]
Ids = NDArray[np.int64]


Vectors = NDArray[np.float32]
Read = Callable[[int], str]

_SEEN_BY_ALL = 60.0  # seconds that a network folder may need to show a file to another machine


def encode_texts(
    texts: Texts, settings: EncodeConfig, *, cache: str | Path | None = None, progress: Progress = False
) -> Vectors:
    """One vector a text, in the order of the texts: n x dim. A text without a word has the zero vector.

    `cache` is a folder, or "off"; CXRHF_CACHE or ~/.cache/cxrhf/notes if not given. `progress` is True for a bar on
    stderr, or a function that takes a line now and then. Several processes call it with the same texts.
    """
    column = as_array(texts)
    return _encode(reader(column), len(column), settings, cache, progress)


def encode_sets(
    texts: Texts,
    sets: sparse.csr_array,
    settings: EncodeConfig,
    *,
    cache: str | Path | None = None,
    progress: Progress = False,
) -> Vectors:
    """One vector a set of notes: sets x dim. `sets` holds something where a text (column) is in a set (row).

    Texts in no set are not encoded. With pooling "code" the texts of a set are read as one, in the order of columns.
    """
    column = as_array(texts)
    if sets.shape[1] != len(column):
        raise TableError("sets", allowed=f"{len(column):,} columns, as many as texts", got=f"{sets.shape[1]:,}")
    belongs = to_members(sets)
    if settings.pooling == "code":
        return _encode(join_texts(reader(column), belongs), belongs.shape[0], settings, cache, progress)
    used = np.unique(belongs.indices)
    read = reader(column)
    vectors = _encode(lambda at: read(int(used[at])), len(used), settings, cache, progress)
    return pool_notes(vectors, belongs[:, used], settings.pooling)


def _encode(read: Read, n: int, settings: EncodeConfig, cache: str | Path | None, progress: Progress) -> Vectors:
    encoder = open_encoder(settings, together=True)
    found = distinct_contents(read, n)
    _same_everywhere(found)
    vectors = np.zeros((len(found.digests) + 1, encoder.dim), dtype=np.float32)  # the last one is of no text
    with _store(cache, encoder, settings) as store:
        there = np.zeros(len(found.digests), dtype=bool)
        if store is not None and found.digests:
            store.refresh()
            there = store.load(found.digests, vectors)
        # The first process decides, so that all share out the same work whatever other jobs are writing.
        missing = np.frombuffer(broadcast_bytes(np.flatnonzero(~there).astype(np.int64).tobytes()), dtype=np.int64)
        if len(missing):
            if callable(progress) and main_process():
                kept = len(found.digests) - len(missing)
                known = f", {kept:,} of them in the cache" if kept else ""
                progress(f"{encoder.name}: {n:,} notes, {len(found.digests):,} different{known}")
            _encode_missing(read, found, missing, vectors, encoder, settings, store, progress)
            barrier()
        if n_processes() > 1 and store is not None:
            _collect(store, found, vectors, there)
    encoded = vectors[found.content]
    empty = int((~encoded.any(axis=1)).sum())
    if empty:
        remark(f"{empty:,} of {n:,} texts contain no word; their embeddings are zero")
    return encoded


def _encode_missing(
    read: Read,
    found: Distinct,
    missing: Integers,
    vectors: Vectors,
    encoder: Encoder,
    settings: EncodeConfig,
    store: Store | None,
    progress: Progress,
) -> None:
    """This process's part of the missing contents: into `vectors`, and into the store."""
    letters = found.letters[missing]
    digests = [found.digests[at] for at in missing]
    mine = [missing[each] for each in blocks(letters, digests, settings.batch_tokens)][rank() :: n_processes()]
    work = int(sum(found.letters[block].sum() for block in mine))
    model = load_model(encoder) if mine else None
    clock = Clock(encoder.name, sum(len(block) for block in mine), work, progress)

    def tokenized(block: Integers) -> tuple[Integers, list[Ids]]:
        return block, tokens_of(encoder, [read(int(found.at[at])) for at in block])

    try:
        for block, tokens in prepare_ahead(tokenized, mine):
            a_token = float(found.letters[block].sum()) / max(sum(map(len, tokens)), 1)

            def done(tokens: int, a_token: float = a_token) -> None:
                clock.advance(tokens * a_token)

            vectors[block] = vectors_of(
                model, encoder, tokens, pooling=settings.pooling, batch_tokens=settings.batch_tokens, done=done
            )
            clock.advance(0.0, notes=len(block))
            if store is not None:
                with _best_effort():
                    store.add([found.digests[at] for at in block], vectors[block])
        if store is not None:
            with _best_effort():
                store.flush()
    except BaseException:
        if store is not None:
            with contextlib.suppress(Exception):  # the first error is the one to be told
                store.flush()
        raise
    finally:
        clock.close()


@contextlib.contextmanager
def _best_effort() -> Iterator[None]:
    """A full disk ends the keeping, not the encoding, where no other process waits for what is kept."""
    try:
        yield
    except CxrhfError as error:
        if n_processes() > 1:
            raise
        remark(f"{error} The encoding continues; embeddings are not cached.")


def _collect(store: Store, found: Distinct, vectors: Vectors, there: NDArray[np.bool_]) -> None:
    """Read what the other processes wrote."""
    end = time.monotonic() + _SEEN_BY_ALL
    while not there.all():
        store.refresh()
        wanted = np.flatnonzero(~there)
        got = np.zeros((len(wanted), vectors.shape[1]), dtype=np.float32)
        seen = store.load([found.digests[at] for at in wanted], got)
        vectors[wanted[seen]] = got[seen]
        there[wanted[seen]] = True
        if not there.all() and time.monotonic() > end:
            raise CxrhfError(
                f"{int((~there).sum()):,} embeddings of other processes are not in {store.folder}",
                next_step="pass --cache FOLDER with a folder on a disk that all machines share",
            )
        time.sleep(0.0 if there.all() else 0.5)


@contextlib.contextmanager
def _store(cache: str | Path | None, encoder: Encoder, settings: EncodeConfig) -> Iterator[Store | None]:
    """Where vectors are kept: the cache; for several processes without one, a folder that is gone afterwards."""
    root = cache_folder(cache)
    chosen: Store | None = None
    if root is not None and main_process():
        try:
            chosen = open_store(root, cache_key(encoder, settings), cache_about(encoder), encoder.dim)
            if not chosen.writable:
                remark(f"the cache folder {chosen.folder} is read-only: new embeddings are not cached")
        except CxrhfError as error:
            remark(f"{error} Notes are encoded without a cache.")
    if n_processes() == 1:
        yield chosen
        return
    with contextlib.ExitStack() as stack:
        temporary = ""
        if main_process() and (chosen is None or not chosen.writable):
            temporary = str(stack.enter_context(temporary_folder("notes")))
        kept = str(chosen.folder) if chosen is not None else None
        told = json.loads(broadcast_bytes(json.dumps([temporary or kept, kept if temporary else None]).encode()))
        yield Store(Path(told[0]), encoder.dim, also=Path(told[1]) if told[1] else None)
        barrier()  # nobody reads any more


def _same_everywhere(found: Distinct) -> None:
    if not all_agree(hashlib.sha256(b"".join(found.digests)).digest()):
        raise CxrhfError("the processes have different texts", next_step="start all of them with the same command")


# Texts of a block -> their vectors: tokens, windows, batches, the model, pooling.

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
    for batch in batch_windows(windows, encoder.frame, batch_tokens):
        ids, mask = pad_batch(tokens, batch, encoder.frame, filling)
        means[at : at + len(batch)] = forward(model, encoder, ids, mask, batch_tokens)
        at += len(batch)
        done(sum(each.end - each.start - (encoder.frame.overlap if each.start else 0) for each in batch))
    note = np.array([each.text for each in windows], dtype=np.int64)
    size = np.array([each.end - each.start for each in windows], dtype=np.int64)
    return pool_windows(means, size, note, len(tokens), pooling)


def forward(model: Any, encoder: Encoder, ids: Ids, mask: Ids, batch_tokens: int) -> Vectors:
    """One pass of the model: the mean last hidden state of each window."""
    import torch

    with explain_full_memory(encoder, batch_tokens), torch.inference_mode():
        seen = torch.from_numpy(mask).to(encoder.device)
        read = model(input_ids=torch.from_numpy(ids).to(encoder.device), attention_mask=seen)
        means = window_means(read.last_hidden_state, seen)
    return finite(means, encoder)


@contextlib.contextmanager
def explain_full_memory(encoder: Encoder, batch_tokens: int) -> Iterator[None]:
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


def prepare_ahead(make: Callable[[Each], Made], items: Iterable[Each]) -> Iterator[Made]:
    """`make` of each item, the next one already in the making: texts are tokenized while the model reads."""
    with ThreadPoolExecutor(1) as maker:
        coming = None
        for item in items:
            made, coming = coming, maker.submit(make, item)
            if made is not None:
                yield made.result()
        if coming is not None:
            yield coming.result()
