"""A folder -> one writer at a time, and other files in it: the old ones or the new ones, never a part of either."""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from cxrhf.errors import RunError

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

    from cxrhf.tables.places import check_links, check_writable, is_empty

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
    from cxrhf.tables.places import draft_of, run_entries

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
def replacing(folder: Path, mark: str, what: str, next_step: str = "move it away") -> Iterator[Path]:
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
