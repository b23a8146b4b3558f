"""A folder that was named -> what it is, what was probably meant, and whether anything can be written there."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from cxrhf.errors import RunError, did_you_mean

# A file or folder in it -> what the folder is; the first that is there tells.
_MARKS = {
    "build.json": "a build",
    "context.json": "a context run",
    "models": "a run with a trained network",
    "adapter": "a run with a fine-tuned model",
    "generations.parquet": "a run with generated reports",
    "predictions.parquet": "a run with predictions",
    "run.json": "a run without tables yet",
    ".build": "a build that is not finished",
}


def what_is(path: str | Path) -> str:
    """In words, for the `Got:` of a message."""
    place = Path(path)
    if not place.is_dir():
        return "a file" if place.exists() else "nothing of that name"
    for mark, what in _MARKS.items():
        if (place / mark).exists():
            return what
    return "a folder with other things" if any(place.iterdir()) else "an empty folder"


def meant(path: str | Path, mark: str) -> str | None:
    """The folder that has what is looked for, as a question: just below, or beside under a name that is much alike."""
    place = Path(path)
    around = place if place.is_dir() else place.parent
    found = [around / each.relative_to(around).parts[0] for each in sorted(around.glob(f"*/{mark}"))]
    if place.is_dir():
        return f"did you mean {str(found[0])!r}?" if found else None
    return None if place.exists() else did_you_mean(str(place), map(str, found))


def free(path: str | Path, otherwise: str) -> str:
    """The folder as it is typed if something can be made there, else another name: for the next command."""
    place = Path(path)
    taken = place.exists() and (not place.is_dir() or any(place.iterdir()))
    return otherwise if taken else shlex.quote(str(path))


def check_writable(folder: Path, what: str) -> None:
    """Refuse a folder that cannot be made or written to, before hours are spent on what cannot be kept."""
    for part in (folder, *folder.parents):
        if part.exists():
            if not part.is_dir():
                raise RunError(f"{part} is a file, not a {what}", next_step="choose another --out")
            if not os.access(part, os.W_OK | os.X_OK):
                raise RunError(
                    f"{part} may not be written to", next_step="choose another --out, or change its permissions"
                )
            return
