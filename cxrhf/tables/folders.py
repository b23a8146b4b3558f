"""A folder of files -> the same folder with other files: the old one or the new one, never a part of either."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from cxrhf.errors import RunError

_STALE = 3600  # seconds after which a folder that was never finished is rubbish


@contextlib.contextmanager
def replacing(folder: Path, mark: str, what: str, next_step: str = "move it away") -> Iterator[Path]:
    """A new folder to fill; when that is done it takes the place of `folder`.

    A folder with files but none of the name `mark` holds something else than a `what`, and stays.
    """
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / mark).is_file())):
        raise RunError(f"{folder} is in the way: it holds no {what}", next_step=next_step)
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
        raise RunError(f"{folder} cannot be written ({error.strerror or error})") from error
    finally:
        if old.exists() and not folder.exists():
            old.rename(folder)
        for each in (fresh, old):
            shutil.rmtree(each, ignore_errors=True)
