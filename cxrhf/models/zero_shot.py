"""Pictures, a CLIP-style model and a pair of prompts per finding -> logits of the findings; no label was ever seen.

    logit = scale * (cos(picture, positive) - cos(picture, negative)),   probability = sigmoid(logit)

which is the softmax over the two prompts at the model's own temperature. Several prompts of a side: their unit vectors
are averaged and made unit length again, so a pair stays a pair however many prompts it has. SigLIP's bias is the same
for both prompts and falls out.

The probabilities are not calibrated: the scale was learned to tell a caption from thousands of others, not to say how
common a finding is. The order of pictures within a finding is what there is to read.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cxrhf.encode.reading import ahead
from cxrhf.errors import ConfigError, CxrhfError, CxrhfWarning, TableError
from cxrhf.models.clip import Clip, Grey, Tensors, Vectors
from cxrhf.models.prompts import Pair

PAIRS = ("softmax", "difference")
EVERY = 3.0  # seconds between lines of progress
SAME = 1e-6  # directions closer than this tell nothing apart in float32

Floats = NDArray[np.float64]


class Pictures(Protocol):
    """Grey levels by row."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> Grey: ...


class Images(Protocol):
    """Rows and the picture of each."""

    @property
    def table(self) -> pa.Table: ...

    @property
    def pictures(self) -> Pictures: ...


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
    pairs: str = "softmax",
    progress: Callable[[str], None] | None = None,
) -> ZeroShot:
    """A logit for each picture and finding.

    `pairs="difference"` leaves the scale out: the plain difference of cosines, in -2..2, in the same order.
    Only one batch of prepared pictures is held, and the next one in the making. `progress` hears a line now and then.
    """
    n = len(images.pictures)
    if n != images.table.num_rows:
        raise TableError("rows and pictures differ", got=f"{images.table.num_rows:,} rows, {n:,} pictures")
    if batch_size < 1:
        raise ConfigError("batch_size is out of range", got=batch_size, allowed="1 or more")
    if pairs not in PAIRS:
        raise ConfigError("pairs: not known", got=pairs, allowed=", ".join(PAIRS))
    contrast = (clip.scale if pairs == "softmax" else 1.0) * directions(clip, prompts)
    logits = np.zeros((n, len(prompts)), dtype=np.float64)
    embeddings = np.zeros((n, clip.dim), dtype=np.float32)

    def prepared(start: int) -> list[Tensors]:
        return [_prepare(images, clip, row) for row in range(start, min(start + batch_size, n))]

    say = _Lines(clip.name, n, progress)
    done = 0
    for batch in ahead(prepared, range(0, n, batch_size)):
        rows = slice(done, done + len(batch))
        embeddings[rows] = clip.vectors(batch)
        logits[rows] = embeddings[rows].astype(np.float64) @ contrast.T
        done += len(batch)
        say(done)
    return ZeroShot(logits, embeddings)


def directions(clip: Clip, prompts: Mapping[str, Pair]) -> Floats:
    """Positive minus negative direction of each finding (k, d); a warning names findings whose two are the same."""
    if not prompts:
        raise ConfigError("there are no prompts", next_step="name one finding or more")
    texts = list(dict.fromkeys(text for pair in prompts.values() for text in (*pair.positive, *pair.negative)))
    vectors = dict(zip(texts, clip.text_features(texts).astype(np.float64), strict=True))
    sides = [tuple(_mean(name, side, vectors) for side in (p.positive, p.negative)) for name, p in prompts.items()]
    made = np.array([positive - negative for positive, negative in sides])
    alike = [name for name, each in zip(prompts, made, strict=True) if np.linalg.norm(each) < SAME]
    if alike:
        warnings.warn(
            f"{clip.name} cannot tell the two prompts apart for {', '.join(alike)}: every picture gets a logit near 0. "
            "Other prompts may help.",
            CxrhfWarning,
            stacklevel=3,
        )
    return made


def _mean(finding: str, texts: tuple[str, ...], vectors: dict[str, Floats]) -> Floats:
    if not texts:
        raise ConfigError(f"{finding} has no prompt on one side", allowed="one or more")
    mean = np.mean([vectors[text] for text in texts], axis=0)
    length = float(np.linalg.norm(mean))
    if length < SAME:
        raise ConfigError(f"the prompts of {finding} cancel each other", got="; ".join(texts))
    unit: Floats = mean / length
    return unit


def _prepare(images: Images, clip: Clip, row: int) -> Tensors:
    try:
        return clip.prepare(images.pictures[row])
    except CxrhfError as error:  # the row, never the image's id: messages end up in logs
        raise CxrhfError(f"the picture of row {row + 1:,}: {error}") from None


class _Lines:
    """Pictures done -> a line every few seconds, and a last one."""

    def __init__(self, name: str, n: int, tell: Callable[[str], None] | None) -> None:
        self.name, self.n, self.tell = name, n, tell
        self.start = self.told = time.monotonic()

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if self.tell is None or (done < self.n and now - self.told < EVERY):
            return
        self.told = now
        seconds = max(now - self.start, 1e-9)
        speed = f"{done / seconds:.3g} pictures/s"
        left = f", {seconds * (self.n - done) / done:.0f} s left" if done < self.n else f", {seconds:.0f} s"
        self.tell(f"{self.name}: {done:,} of {self.n:,} pictures, {speed}{left}")
