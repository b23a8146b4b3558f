"""Files that are about to be published, as one thing: where each goes, what it holds, what the data behind it allow."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

Kind = Literal["metric", "model", "dataset"]
# Kind -> what the Hub calls a repository of it. A metric is a Space.
REPO_TYPES: dict[Kind, str] = {"metric": "space", "model": "model", "dataset": "dataset"}
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """One file: its path in the repository, and its content or the file that holds it."""

    path: str
    content: bytes | Path
    drawn: bool = False  # a picture of numbers, drawn by this very command

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size

    def read(self) -> bytes:
        """All of it."""
        return self.content if isinstance(self.content, bytes) else self.content.read_bytes()

    def blocks(self) -> Iterator[bytes]:
        """All of it, a megabyte at a time: weights need not fit into memory."""
        if isinstance(self.content, bytes):
            yield self.content
            return
        with self.content.open("rb") as file:
            while block := file.read(_BLOCK):
                yield block

    def sha256(self) -> str:
        """The name of a large file in the Hub's storage."""
        digest = hashlib.sha256()
        for block in self.blocks():
            digest.update(block)
        return digest.hexdigest()

    def blob_id(self) -> str:
        """The name of a small file in git."""
        digest = hashlib.sha1(f"blob {self.size}\0".encode(), usedforsecurity=False)
        for block in self.blocks():
            digest.update(block)
        return digest.hexdigest()


class Known(NamedTuple):
    """What is known of the patients behind an artefact, to look for in it: ids, and texts about them."""

    ids: frozenset[str] = frozenset()
    texts: Sequence[str] = ()


NOTHING_KNOWN = Known()


@dataclass(frozen=True, slots=True)
class Artefact:
    """What is published under one name.

    `may_hold`: what of single patients the data's terms let it hold, of "ids", "text", "pixels", "labels", "rows";
    nothing unless it is a dataset that is open or made up, or a recipe ("ids" and "rows").
    """

    kind: Kind
    name: str
    pieces: tuple[Piece, ...]
    may_hold: frozenset[str] = frozenset()
    known: Known = NOTHING_KNOWN
    notes: tuple[str, ...] = field(default=())  # what the user should read before it leaves

    @property
    def repo_type(self) -> str:
        """What the Hub calls it."""
        return REPO_TYPES[self.kind]
