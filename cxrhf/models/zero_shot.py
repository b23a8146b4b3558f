"""Pictures, a CLIP-style model and a pair of prompts per finding -> logits of the findings; no label was ever seen.

    logit = scale * (cos(picture, positive) - cos(picture, negative)),   probability = sigmoid(logit)

which is the softmax over the two prompts at the model's own temperature. Several prompts of a side: their unit vectors
are averaged and made unit length again, so a pair stays a pair however many prompts it has. SigLIP's bias is the same
for both prompts and falls out.

The probabilities are not calibrated: the scale was learned to tell a caption from thousands of others, not to say how
common a finding is. The order of pictures within a finding is what there is to read.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.encode.reading import ahead
from cxrhf.errors import ConfigError, CxrhfError, CxrhfWarning
from cxrhf.models.clip import Clip, Tensors, Vectors
from cxrhf.models.images import Images
from cxrhf.models.meter import Meter, Progress
from cxrhf.models.prompts import Pair

SAME = 1e-6  # directions closer than this tell nothing apart in float32

Floats = NDArray[np.float64]


class ZeroShot(NamedTuple):
    """Logits (n, k) in the order of the prompts, and the pictures' unit vectors (n, d)."""

    logits: Floats
    embeddings: Vectors


def zero_shot(
    images: Images,
    clip: Clip,
    prompts: Mapping[str, Pair],
    *,
    batch_size: int = 32,
    progress: Progress = lambda _: None,
) -> ZeroShot:
    """A logit for each picture and finding.

    Only one batch of prepared pictures is held, and the next one in the making. `progress` hears a line now and then.
    """
    n = len(images)
    if batch_size < 1:
        raise ConfigError("batch_size", got=batch_size, allowed="1 or more")
    contrast = clip.scale * directions(clip, prompts)
    logits = np.zeros((n, len(prompts)), dtype=np.float64)
    embeddings = np.zeros((n, clip.dim), dtype=np.float32)

    def prepared(start: int) -> list[Tensors]:
        return [_prepare(images, clip, row) for row in range(start, min(start + batch_size, n))]

    meter = Meter(n, progress, "pictures")
    for batch in ahead(prepared, range(0, n, batch_size)):
        rows = slice(meter.done, meter.done + len(batch))
        embeddings[rows] = clip.vectors(batch)
        logits[rows] = embeddings[rows].astype(np.float64) @ contrast.T
        meter.add(len(batch), lambda: f"{clip.name}: {meter.done:,} of {n:,}")
    return ZeroShot(logits, embeddings)


def directions(clip: Clip, prompts: Mapping[str, Pair]) -> Floats:
    """Positive minus negative direction of each finding (k, d); a warning names findings whose two are the same."""
    if not prompts:
        raise ConfigError("there are no prompts", next_step="name at least one finding")
    texts = list(dict.fromkeys(text for pair in prompts.values() for text in (*pair.positive, *pair.negative)))
    vectors = dict(zip(texts, clip.text_features(texts).astype(np.float64), strict=True))
    sides = [tuple(_mean(name, side, vectors) for side in (p.positive, p.negative)) for name, p in prompts.items()]
    made = np.array([positive - negative for positive, negative in sides])
    alike = [name for name, each in zip(prompts, made, strict=True) if np.linalg.norm(each) < SAME]
    if alike:
        warnings.warn(
            f"{clip.name} gives the positive and negative prompts for {', '.join(alike)} the same embedding, so every "
            "image gets a logit near 0. Try other prompts.",
            CxrhfWarning,
            stacklevel=3,
        )
    return made


def _mean(finding: str, texts: tuple[str, ...], vectors: dict[str, Floats]) -> Floats:
    if not texts:
        raise ConfigError(f"prompts for {finding}", got="none on one side", allowed="at least one on each side")
    mean = np.mean([vectors[text] for text in texts], axis=0)
    length = float(np.linalg.norm(mean))
    if length < SAME:
        raise ConfigError(f"the prompts for {finding} cancel each other", got="; ".join(texts))
    unit: Floats = mean / length
    return unit


def _prepare(images: Images, clip: Clip, row: int) -> Tensors:
    try:
        return clip.prepare(images.pictures[row])
    except CxrhfError as error:  # the row, never the image's id: messages end up in logs
        raise CxrhfError(f"the image in row {row + 1:,}: {error}") from None
