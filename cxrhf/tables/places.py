"""A folder that was named -> what it is, what was probably meant, and whether anything can be written there."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
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
    "run.json": "a run without tables",
    ".build": "an unfinished build",
}
# What verbs write into a run folder, or remove from it.
RUN_PLACES = (
    "run.json", "report.html", "diff.html", "results.json", "push.txt", "example.csv", "context.json",
    "calibration.json", "*.parquet", "history-*.jsonl", "adapter", "base", "checkpoints", "cxrhf", "figures",
    "labelling", "local", "merged", "model_cards", "models", "probes", "search", "tables", "trackio",
)  # fmt: skip
# A card of a model, wherever it lies.
CARD_PLACES = ("readme.md", "results.json", ".eval_results", "figures")
_DRAFT = re.compile(r"\.(?P<target>.+)(?:\.\d+\.tmp|-\d+-[0-9a-f]{8}\.(?P<part>part|old))", re.DOTALL)
_NAME_BYTES = 100  # of a file name made from somebody's words; file systems allow 255, and drafts have longer names


def what_is(path: str | Path) -> str:
    """In words, for the `Got:` of a message."""
    place = Path(path)
    if not place.is_dir():
        return "a file" if place.exists() else "no such file or folder"
    for mark, what in _MARKS.items():
        if (place / mark).exists():
            return what
    return "a folder with other files" if any(place.iterdir()) else "an empty folder"


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
                raise RunError(f"{part} is not writable", next_step="choose another --out, or change its permissions")
            return


def check_links(folder: Path, places: Iterable[str] = RUN_PLACES) -> None:
    """Refuse a folder with a symbolic link where files of ours belong: they would be written, or removed, elsewhere.

    The folder itself may be a link; whoever names it has chosen it.
    """
    for entry in run_entries(folder, places):
        if entry.is_symlink():
            raise RunError(
                f"{entry.path} is a symbolic link in a place where cxrhf writes its own files",
                next_step="remove the link, or replace it with a copy of its target",
            )


def run_entries(folder: Path, places: Iterable[str] = RUN_PLACES) -> Iterator[os.DirEntry[str]]:
    """What lies in a folder at these places, drafts included, and all below it; links are not followed."""
    if not folder.is_dir():
        return
    patterns = tuple(places)

    def is_ours(name: str) -> bool:
        draft = draft_of(name)  # names are compared as file systems do that know no capitals
        return any(fnmatchcase((draft[0] if draft else name).lower(), each) for each in patterns)

    with os.scandir(folder) as entries:
        waiting = [each for each in entries if is_ours(each.name)]
    while waiting:
        entry = waiting.pop()
        yield entry
        if not draft_of(entry.name) and entry.is_dir(follow_symlinks=False):
            with os.scandir(entry.path) as entries:
                waiting += entries


def check_inside(folder: Path, paths: Iterable[Path]) -> None:
    """Refuse files of a folder that are reached through a link: what it points to may be anybody's."""
    for path in paths:
        steps = path.relative_to(folder).parts
        for depth in range(1, len(steps) + 1):
            link = folder.joinpath(*steps[:depth])
            if link.is_symlink():
                raise RunError(
                    f"{link} is a symbolic link, and cxrhf does not follow links out of {folder}",
                    next_step="remove the link, or replace it with a copy of its target",
                )


def draft_of(name: str) -> tuple[str, bool] | None:
    """The file that a draft was to become, and whether the draft is the earlier one, set aside; None for other names.

    >>> draft_of(".run.json.4711.tmp"), draft_of(".base-4711-0a1b2c3d.old"), draft_of(".profile")
    (('run.json', False), ('base', True), None)
    """
    found = _DRAFT.fullmatch(name)
    return None if found is None else (found["target"], found["part"] == "old")


def is_empty(folder: Path) -> bool:
    """Whether nothing but drafts and locks of ours lies in a folder."""
    return all(draft_of(each.name) or each.name == f".{folder.resolve().name}.lock" for each in folder.iterdir())


def file_name(words: str) -> str:
    """Words that are already a name, short enough for every file system: a long one ends in its digest.

    >>> file_name("net"), len(file_name("net" * 999))
    ('net', 100)
    """
    data = words.encode(errors="replace")
    if len(data) <= _NAME_BYTES:
        return data.decode()
    digest = hashlib.sha256(data).hexdigest()[:12]
    return f"{data[: _NAME_BYTES - 13].decode(errors='ignore')}-{digest}"
