"""A purpose -> a folder for what a command needs while it works; what killed commands left behind is removed."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cxrhf.errors import RunError
from cxrhf.tables.folders import one_writer

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
