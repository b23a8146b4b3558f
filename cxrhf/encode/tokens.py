"""Texts as tokens -> a vector of length 1 for every token, from any layer of an encoder.

A text that is longer than the encoder reads is cut into windows, as everywhere here, and nothing of it is left out.
Windows carry the model's special tokens, whose own vectors are dropped. Tokens that two windows share are taken from
the first window in the first half of the shared stretch and from the second one after that: where more words stand
around them.

>>> owned([(0, 6), (4, 10), (8, 11)])
[(0, 5), (5, 9), (9, 11)]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.encode.batches import batched, padded, windows_of
from cxrhf.encode.loading import Encoder, padding_id
from cxrhf.encode.pooling import pool_windows, window_means
from cxrhf.encode.reading import Ids, finite, guarded
from cxrhf.encode.windows import cut
from cxrhf.errors import ConfigError

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
    for batch in batched(windows, frame, batch_tokens):
        ids, mask = padded(list(tokens), batch, frame, padding_id(encoder))
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
    """Windows of a text -> the tokens that are taken from each: every token once."""
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

    with guarded(encoder, batch_tokens), torch.inference_mode():
        seen = torch.from_numpy(mask).to(encoder.device)
        given = torch.from_numpy(ids).to(encoder.device)
        read = model(input_ids=given, attention_mask=seen, output_hidden_states=layer is not None)
        hidden = read.last_hidden_state if layer is None else read.hidden_states[layer]
        made: Vectors = torch.nn.functional.normalize(hidden.float(), dim=2).cpu().numpy()
        return made, window_means(read.last_hidden_state, seen)
