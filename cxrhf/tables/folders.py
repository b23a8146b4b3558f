"""A folder -> one writer at a time, and other files in it: the old ones or the new ones, never a part of either."""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import os
import re
import secrets
import shlex
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from cxrhf.errors import RunError, did_you_mean

RUN = "run folder"
_STALE = 3600  # seconds after which a folder that was never finished is rubbish
_HELD: dict[Path, int] = {}  # folders this process writes to -> the thread that holds them


@contextlib.contextmanager
def one_writer(folder: str | Path, verb: str, what: str = RUN) -> Iterator[None]:
    """Hold `folder` for `cxrhf VERB` until the block ends; an error if another process or thread holds it.

    The lock is a file beside the folder (`.NAME.lock`). The kernel releases it when the process ends, killed or not, so
    a lock file that was left behind blocks nobody. A thread may hold a folder it holds already. A run folder with links
    where files of ours belong is refused, and drafts of killed writers are removed.
    """
    from filelock import FileLock, Timeout

    check_writable(Path(folder), what)
    path, thread = Path(folder).resolve(), threading.get_ident()
    if _HELD.get(path) == thread:
        yield
        return
    place = path.parent
    if path.is_dir() and not os.access(place, os.W_OK):
        place = path
    file = place / f".{path.name}.lock"
    made = [each for each in (place, *place.parents) if not each.exists()]
    place.mkdir(parents=True, exist_ok=True)
    lock = FileLock(file, blocking=False)
    try:
        lock.acquire()
    except Timeout:
        raise RunError(
            f"{folder} is being written by another process ({_holder(file)})",
            next_step="wait until that process ends, or choose another --out",
        ) from None
    except OSError as error:
        raise RunError(
            f"cannot lock {file} ({error.strerror or error})", next_step="remove that file, or choose another --out"
        ) from None
    try:
        _HELD[path] = thread
        file.write_text(f"cxrhf {verb}, process {os.getpid()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
        # A folder with other things is for `check_folder` to refuse: it is not looked into.
        if what == RUN and path.is_dir() and ((path / "run.json").is_file() or is_empty(path)):
            check_links(Path(folder))
            remove_drafts(path)
        yield
    finally:
        del _HELD[path]
        # Removed while held: whoever opened it meanwhile finds that it has no name any more and tries again.
        with contextlib.suppress(OSError):
            file.unlink()
        lock.release()
        with contextlib.suppress(OSError):  # of a verb that was refused nothing is left behind
            for each in made:
                each.rmdir()


def _holder(file: Path) -> str | None:
    for _ in range(20):  # it writes its name right after it has taken the lock
        with contextlib.suppress(OSError, ValueError):
            if said := file.read_text(encoding="utf-8").strip():
                return said
        time.sleep(0.02)
    return None


def remove_drafts(folder: Path) -> None:
    """Remove what killed writers left in a run folder that is held, and beside it: drafts may hold ids and texts.

    An earlier file or folder that was set aside, and whose successor never came, gets its name back. Nested runs are
    left to whoever holds them, and drafts that other programs may have written stay.
    """

    found = [Path(each.path) for each in run_entries(folder) if draft_of(each.name)]
    beside = (each for each in folder.parent.glob(f".{glob.escape(folder.name)}-*"))
    found += [each for each in beside if (draft := draft_of(each.name)) and draft[0] == folder.name]
    for path in found:
        target, earlier = draft_of(path.name) or ("", False)
        with contextlib.suppress(OSError):
            if earlier and not (path.parent / target).exists():
                path.rename(path.parent / target)
            elif path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


@contextlib.contextmanager
def replace_folder(folder: Path, mark: str, what: str, next_step: str = "move it away") -> Iterator[Path]:
    """A new folder to fill; when that is done it takes the place of `folder`.

    A folder with files but none of the name `mark` holds something else than a `what`, and stays.
    """
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / mark).is_file())):
        raise RunError(f"{folder} exists and holds no {what}", next_step=next_step)
    own = f"{os.getpid()}-{secrets.token_hex(4)}"
    fresh, old = (folder.parent / f".{folder.name}-{own}.{end}" for end in ("part", "old"))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for each in folder.parent.glob(f".{folder.name}-*.part"):
            if time.time() - each.stat().st_mtime > _STALE:
                shutil.rmtree(each, ignore_errors=True)
        fresh.mkdir()
        yield fresh
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)
    except OSError as error:
        raise RunError(
            f"cannot write {folder} ({error.strerror or error})",
            next_step="check its permissions and the free disk space",
        ) from error
    finally:
        if old.exists() and not folder.exists():
            old.rename(folder)
        for each in (fresh, old):
            shutil.rmtree(each, ignore_errors=True)


# A folder that was named -> what it is, what was probably meant, and whether anything can be written there.

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


def describe_path(path: str | Path) -> str:
    """In words, for the `Got:` of a message."""
    place = Path(path)
    if not place.is_dir():
        return "a file" if place.exists() else "no such file or folder"
    for mark, what in _MARKS.items():
        if (place / mark).exists():
            return what
    return "a folder with other files" if any(place.iterdir()) else "an empty folder"


def suggest_folder(path: str | Path, mark: str) -> str | None:
    """The folder that has what is looked for, as a question: just below, or beside under a name that is much alike."""
    place = Path(path)
    around = place if place.is_dir() else place.parent
    found = [around / each.relative_to(around).parts[0] for each in sorted(around.glob(f"*/{mark}"))]
    if place.is_dir():
        return f"did you mean {str(found[0])!r}?" if found else None
    return None if place.exists() else did_you_mean(str(place), map(str, found))


def free_folder_name(path: str | Path, otherwise: str) -> str:
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


# A purpose -> a folder for what a command needs while it works; what killed commands left behind is removed.

ATTEMPTS = 3


@contextlib.contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """A new folder `cxrhf-PURPOSE-...` that only this user can read, removed with all it holds when the block ends.

    It may hold rows of patients, and a killed process removes nothing. So each folder is locked by its process, and
    the next command with the same purpose removes those that nobody holds any more.
    """
    place = Path(tempfile.gettempdir())
    _remove_abandoned(place, f"cxrhf-{purpose}-")
    with contextlib.ExitStack() as stack:
        for attempt in range(1, ATTEMPTS + 1):
            folder = place / f"cxrhf-{purpose}-{secrets.token_hex(6)}"
            try:
                stack.enter_context(one_writer(folder, purpose, "temporary folder"))
                break
            except RunError:  # another process, cleaning up, had it for a moment
                if attempt == ATTEMPTS:
                    raise
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(place: Path, prefix: str) -> None:
    folders = {path.name for path in place.glob(f"{prefix}*")}
    folders |= {path.name[1:].removesuffix(".lock") for path in place.glob(f".{prefix}*.lock")}
    for name in sorted(folders):
        # Held by a command that is at work, or of another user.
        with contextlib.suppress(RunError, OSError), one_writer(place / name, "cleaning up", "temporary folder"):
            shutil.rmtree(place / name, ignore_errors=True)


# A worker process -> one that ends when the process that started it is gone, killed or not.
#
# Pools of joblib and `datasets` notice an orderly end only: after `kill -9` of the parent their workers wait for ever
# and keep on writing; forked ones also hold the locks of the parent.
#
# Known gap: of workers that are not forked, one that never got any work, and the manager beside them, stay. They hold
# no data and no locks.

_EVERY = 0.5  # seconds between two looks
_watching: set[int] = set()  # processes with a watcher; a forked one starts its own
_forks_for = 0  # the process whose forks end with it


def end_with_parent(started_by: int) -> None:
    """End this process soon after its parent has ended; nothing in `started_by` itself, where no worker was needed.

    `started_by` is `os.getpid()` of the process that made the pool. It polls, for prctl(PR_SET_PDEATHSIG) is Linux's
    alone and goes by the thread that started the worker.
    """
    if os.getpid() in {started_by, *_watching}:
        return
    _watching.add(os.getpid())
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


@contextlib.contextmanager
def forks_end_with_me() -> Iterator[None]:
    """Processes that are forked within the block, by whomever, end soon after this one."""
    global _forks_for  # noqa: PLW0603
    if hasattr(os, "register_at_fork"):
        _register()
    before, _forks_for = _forks_for, os.getpid()
    try:
        yield
    finally:
        _forks_for = before


@functools.cache
def _register() -> None:
    os.register_at_fork(after_in_child=lambda: end_with_parent(_forks_for) if _forks_for else None)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_EVERY)
    os._exit(1)
