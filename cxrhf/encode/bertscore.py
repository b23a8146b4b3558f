"""References and generated reports -> BERTScore: how well tokens of one find a partner of like meaning in the other.

Definition (Zhang 2020): every token has the vector of a layer of the encoder (the last one, or `layer`); the likeness
of two tokens is the cosine of their vectors. Precision is the mean over the generated tokens of the largest likeness to
a token of the reference, recall the mean over the reference's tokens of the largest likeness to a generated one, F1
their harmonic mean (0 where one of them is not above 0). From -1 to 1, higher is closer, 1 for equal texts.

Special tokens take no part: they are neither counted nor partners (in the package bert-score they may be partners). No
rescaling by a baseline, so numbers of different encoders cannot be compared: unrelated reports share .5 and more. With
`idf` rare tokens weigh more: log((n + 1) / (df + 1)) over the references. Long reports are read in windows.
A generated report without a token scores 0; without a token in the reference, or any with a weight, there is no score.

Each distinct text is encoded once, each distinct pair is matched once and kept (scores.py). Known gaps: one process
does all of it; vectors of texts that are needed again stay in memory, 1.5 kB a token with minilm.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.encode.cache import Distinct, Scores, Store, as_array, best_effort, distinct_contents, open_kept, score_pairs
from cxrhf.encode.encoder import Encoder, cache_about, cache_key, load_model, open_encoder, padding_id
from cxrhf.encode.notes import Ids, explain_full_memory, finite, tokens_of
from cxrhf.encode.processes import Clock, Progress
from cxrhf.encode.settings import EncodeConfig
from cxrhf.encode.windows import batch_windows, blocks, cut, pad_batch, pool_windows, window_means, windows_of
from cxrhf.errors import ConfigError, TableError

Floats = NDArray[np.float64]


VERSION = 1  # of the definition above: part of the cache's key
_CELLS = 1 << 22  # of the table of likenesses that is held at a time


class BertScores(NamedTuple):
    """One number a pair; NaN where a reference has no token."""

    precision: Floats
    recall: Floats
    f1: Floats


def bertscore(
    references: Sequence[str],
    generated: Sequence[str],
    settings: EncodeConfig,
    *,
    layer: int | None = None,
    idf: bool = False,
    corpus: Sequence[str] | None = None,
    keep_vectors: bool = False,
    cache: str | Path | None = None,
    progress: Progress = False,
) -> BertScores:
    """BERTScore of each generated report against its reference.

    `corpus` are the texts that `idf` is counted on: the references if not given. `keep_vectors` puts the vectors of the
    texts that are read into the cache of encode_texts, which then has nothing to do. `cache` and `progress` are as
    there.
    """
    wanted, made = ([each or "" for each in as_array(texts).to_pylist()] for texts in (references, generated))
    if len(wanted) != len(made):
        raise TableError(
            "references and generated reports",
            allowed="the same number of each",
            got=f"{len(wanted):,} and {len(made):,}",
        )
    settings = replace(settings, pooling="tokens")
    encoder = open_encoder(settings)
    check_layer(encoder, layer)
    weights = _idf(encoder, wanted if corpus is None else as_array(corpus).to_pylist()) if idf else None
    last = layer == encoder.config.get_text_config().num_hidden_layers
    key = {name: value for name, value in cache_key(encoder, settings).items() if name != "pooling"}
    key |= {"score": "bertscore", "version": VERSION, "layer": None if last else layer, "idf": _hash(weights)}
    vectors = partial(open_kept, cache, cache_key(encoder, settings), cache_about(encoder), encoder.dim)
    compute = partial(
        _compute, encoder=encoder, settings=settings, layer=key["layer"], weights=weights, progress=progress,
        vectors=vectors if keep_vectors else None,
    )  # fmt: skip
    scores = score_pairs(wanted, made, compute, n_scores=3, key=key, about=cache_about(encoder), cache=cache)
    return BertScores(*scores.astype(np.float64).T)


def greedy(reference: Vectors, generated: Vectors, weight: Floats, weight_generated: Floats) -> Scores:
    """Precision, recall and F1 of two texts as tokens x dim, rows of length 1, and the weight of each token.

    >>> one, other = np.eye(3, dtype=np.float32)[[0, 1]], np.eye(3, dtype=np.float32)[[0, 2, 2]]
    >>> [round(float(each), 4) for each in greedy(one, other, np.ones(2), np.ones(3))]
    [0.3333, 0.5, 0.4]
    """
    best = np.empty(len(generated))
    best_reference = np.full(len(reference), -np.inf)
    step = max(1, _CELLS // len(reference))
    for start in range(0, len(generated), step):
        alike = generated[start : start + step] @ reference.T
        best[start : start + step] = alike.max(axis=1)
        np.maximum(best_reference, alike.max(axis=0), out=best_reference)
    precision = min(float(best @ weight_generated / weight_generated.sum()), 1.0)
    recall = min(float(best_reference @ weight / weight.sum()), 1.0)
    f1 = 2 * precision * recall / (precision + recall) if min(precision, recall) > 0 else 0.0
    return np.array([precision, recall, f1], dtype=np.float32)


def _compute(
    pairs: list[tuple[str, str]],
    encoder: Encoder,
    settings: EncodeConfig,
    layer: int | None,
    weights: Floats | None,
    progress: Progress,
    vectors: Callable[[], Store | None] | None,
) -> Iterator[tuple[list[int], Scores]]:
    """Scores of pairs, some at a time; the weights of the model are read only if a pair needs them."""
    texts = [text for pair in pairs for text in pair]
    found = distinct_contents(texts.__getitem__, len(texts))
    tokens = tokens_of(encoder, [texts[at] for at in found.at])
    each_weight = [np.ones(len(ids)) if weights is None else weights[ids] for ids in tokens]
    mass = np.array([*(weight.sum() for weight in each_weight), 0.0])  # the last one is of no text
    length = np.array([*map(len, tokens), 0])
    ends = found.content.reshape(-1, 2)  # texts of each pair; -1 = no text
    ready = (mass[ends] > 0).all(axis=1)
    for at in np.flatnonzero(~ready).tolist():
        nothing = length[ends[at, 1]] == 0 and mass[ends[at, 0]] > 0
        yield [at], np.full((1, 3), 0.0 if nothing else np.nan, dtype=np.float32)
    if not ready.any():
        return
    model = load_model(encoder)
    uses = Counter(ends[ready].ravel().tolist())
    clock = Clock(f"{encoder.name}, BERTScore", len(uses), int(found.letters[list(uses)].sum()), progress, "reports")
    live: dict[int, Vectors] = {}
    store = vectors() if vectors is not None else None
    # Tables of likenesses are small: threads would wait for each other longer than they work.
    calm = import_module("threadpoolctl").ThreadpoolController()  # scikit-learn brings it
    try:
        for block in _blocks(ends, np.flatnonzero(ready), found, settings.batch_tokens):
            new = list(dict.fromkeys(each for each in ends[block].ravel().tolist() if each not in live))
            ids = [tokens[each] for each in new]
            a_token = float(found.letters[new].sum()) / max(sum(map(len, ids)), 1)
            made = token_vectors(
                model, encoder, ids, layer=layer, batch_tokens=settings.batch_tokens,
                done=lambda n, a_token=a_token: clock.advance(n * a_token),  # type: ignore[misc]
            )  # fmt: skip
            live |= dict(zip(new, made.tokens, strict=True))
            if store is not None:
                with best_effort():
                    store.add([found.digests[each] for each in new], made.texts)
            scores = np.empty((len(block), 3), dtype=np.float32)
            with calm.limit(limits=1, user_api="blas"):
                for row, (one, other) in enumerate(ends[block].tolist()):
                    scores[row] = greedy(live[one], live[other], each_weight[one], each_weight[other])
            for each, times in Counter(ends[block].ravel().tolist()).items():
                uses[each] -= times
                if not uses[each]:  # no later pair needs it
                    live.pop(each)
            clock.advance(0.0, notes=len(new))
            yield block, scores
    finally:
        clock.close()
        if store is not None:
            with best_effort():
                store.flush()


def _blocks(ends: NDArray[np.int64], pairs: NDArray[np.int64], found: Distinct, batch_tokens: int) -> list[list[int]]:
    """Numbers of pairs, block by block: all pairs of a reference together, so that its vectors can go afterwards."""
    of: dict[int, list[int]] = {}
    for at in pairs.tolist():
        of.setdefault(int(ends[at, 0]), []).append(at)
    heads = list(of)
    letters = np.array([found.letters[head] + found.letters[ends[of[head], 1]].sum() for head in heads], dtype=np.int64)
    parts = blocks(letters, [found.digests[head] for head in heads], batch_tokens)
    return [[at for number in part for at in of[heads[number]]] for part in parts]


def _idf(encoder: Encoder, corpus: Sequence[str | None]) -> Floats:
    """The weight of each token of the vocabulary, by the number of texts that hold it."""
    times = Counter(each for each in corpus if each and not each.isspace())
    kinds = list(times)
    counts: Counter[int] = Counter()
    for text, ids in zip(kinds, tokens_of(encoder, kinds), strict=True):
        for token in set(ids.tolist()):
            counts[token] += times[text]
    held = np.zeros(max(int(encoder.config.get_text_config().vocab_size), len(encoder.tokenizer)))
    held[list(counts)] = list(counts.values())
    return np.log((times.total() + 1) / (held + 1))


def _hash(weights: Floats | None) -> str | None:
    return None if weights is None else hashlib.blake2b(weights.tobytes(), digest_size=16).hexdigest()


# Texts as tokens -> a vector of length 1 for every token, from any layer of an encoder.
#
# A text that is longer than the encoder reads is cut into windows, as everywhere here, and nothing of it is left out.
# Windows carry the model's special tokens, whose own vectors are dropped. Tokens that two windows share are taken
# from the first window in the first half of the shared stretch and from the second one after that: where more words
# stand around them.

Vectors = NDArray[np.float32]


class Encoded(NamedTuple):
    """What one reading of texts gives."""

    tokens: list[Vectors]  # for each text tokens x dim, rows of length 1, of the layer asked for
    texts: Vectors  # the vector of each text, pooled as encode_texts does


def token_vectors(
    model: Any,
    encoder: Encoder,
    tokens: Sequence[Ids],
    *,
    layer: int | None = None,
    batch_tokens: int = 8192,
    done: Callable[[int], None] = lambda tokens: None,
) -> Encoded:
    """Vectors of all tokens, and of each text. Layer 0 is the embeddings, None the last hidden state."""
    frame = encoder.frame
    found = [np.zeros((len(each), encoder.dim), dtype=np.float32) for each in tokens]
    parts = [
        dict(zip(cuts, owned(cuts), strict=True))
        for cuts in (cut(len(each), frame.window, frame.overlap) for each in tokens)
    ]
    windows = windows_of([len(each) for each in tokens], frame)
    means = [np.zeros((0, encoder.dim), dtype=np.float32)]
    for batch in batch_windows(windows, frame, batch_tokens):
        ids, mask = pad_batch(list(tokens), batch, frame, padding_id(encoder))
        hidden, mean = _hidden(model, encoder, ids, mask, layer, batch_tokens)
        means.append(finite(mean, encoder))
        for row, (text, start, end) in enumerate(batch):
            first, last = parts[text][start, end]
            shift = len(frame.before) - start
            found[text][first:last] = finite(hidden[row, first + shift : last + shift], encoder)
        done(sum(end - start - (frame.overlap if start else 0) for _, start, end in batch))
    of_text = np.array([each.text for each in windows], dtype=np.int64)
    size = np.array([each.end - each.start for each in windows], dtype=np.int64)
    return Encoded(found, pool_windows(np.concatenate(means), size, of_text, len(tokens), "tokens"))


def owned(cuts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Windows of a text -> the tokens that are taken from each: every token once.

    >>> owned([(0, 6), (4, 10), (8, 11)])
    [(0, 5), (5, 9), (9, 11)]
    """
    borders = [start + (end - start) // 2 for (_, end), (start, _) in pairwise(cuts)]
    ends = [*borders, cuts[-1][1]] if cuts else []
    return list(zip([0, *borders], ends, strict=False))


def check_layer(encoder: Encoder, layer: int | None) -> None:
    """A ConfigError if the encoder has no such layer."""
    layers = int(encoder.config.get_text_config().num_hidden_layers)
    if layer is not None and not 0 <= layer <= layers:
        raise ConfigError(
            f"encoder {encoder.name}, --layer",
            got=str(layer),
            allowed=f"0 (the embeddings) to {layers} (the last layer, which is the default)",
        )


def _hidden(
    model: Any, encoder: Encoder, ids: Ids, mask: Ids, layer: int | None, batch_tokens: int
) -> tuple[Vectors, Vectors]:
    """One pass of the model: hidden states of a layer, each of length 1, and the mean last one of each window."""
    import torch

    with explain_full_memory(encoder, batch_tokens), torch.inference_mode():
        seen = torch.from_numpy(mask).to(encoder.device)
        given = torch.from_numpy(ids).to(encoder.device)
        read = model(input_ids=given, attention_mask=seen, output_hidden_states=layer is not None)
        hidden = read.last_hidden_state if layer is None else read.hidden_states[layer]
        made: Vectors = torch.nn.functional.normalize(hidden.float(), dim=2).cpu().numpy()
        return made, window_means(read.last_hidden_state, seen)
