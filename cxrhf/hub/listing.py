"""An artefact -> the lines that show what would leave: every file with its size, where to, who can see it."""

from __future__ import annotations

from typing import Any

from cxrhf.hub.artefact import Artefact
from cxrhf.hub.upload import manifest

_CALLED = {"space": "Space", "model": "model", "dataset": "dataset"}


def listing(artefact: Artefact, repo: str, *, private: bool) -> list[str]:
    """What a person reads before saying yes."""
    pieces = sorted((*artefact.pieces, manifest(artefact)), key=lambda piece: piece.path)
    sizes = [shown_size(piece.size) for piece in pieces]
    wide = max(len(piece.path) for piece in pieces)
    seen = "private" if private else "public"
    lines = [f"{repo} ({_CALLED[artefact.repo_type]}, {seen} if new): {len(pieces)} files, "
             f"{shown_size(sum(piece.size for piece in pieces))}"]  # fmt: skip
    lines += [f"  {piece.path:<{wide}}  {size:>10}" for piece, size in zip(pieces, sizes, strict=True)]
    return [*lines, *(f"  note: {each}" for each in artefact.notes)]


def as_mapping(artefact: Artefact, repo: str, *, private: bool) -> dict[str, Any]:
    """The same for a script."""
    files = {piece.path: piece.size for piece in (*artefact.pieces, manifest(artefact))}
    return {"repo": repo, "type": artefact.repo_type, "private": private, "files": dict(sorted(files.items())),
            "notes": list(artefact.notes)}  # fmt: skip


def shown_size(size: int) -> str:
    """
    >>> shown_size(999), shown_size(1_234_567)
    ('999 B', '1.2 MB')
    """
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
