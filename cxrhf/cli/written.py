"""What a verb added to a run folder -> its last words on the terminal."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cxrhf.imaging.predicting import Written


def told(done: Written | None, following: str | None = None) -> int:
    """Print lines, notes, the next command and the path; nothing in a process that only helped."""
    if done is None:
        return 0
    from cxrhf.report.notes import printable

    print("\n".join(["", *map(printable, done.lines)]))
    for note in done.notes:
        print(printable(f"note: {note}"))
    if following is not None:
        print(f"next: {following.format(shlex.quote(str(done.path)))}")
    print(done.path)
    return 0
