"""What a verb added to a run folder -> its last words on the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cxrhf.imaging.predicting import Written
    from cxrhf.imaging.training import TrainedRun
    from cxrhf.writing.finetuning import FinetunedRun


def told(done: Written | None, verb: str | None = None) -> int:
    """The last words of a verb, with the verb that comes next; none in a process that only helped."""
    if done is not None:
        following = None if verb is None else f"cxrhf {verb} {shlex.quote(str(done.path))}"
        last_words(done.path, done.lines, done.notes, following)
    return 0


def last_words(path: Path, lines: Sequence[str], notes: Sequence[str], following: str | None) -> None:
    """Print lines, notes, the next command, and the path."""
    from cxrhf.report.notes import printable

    print("\n".join(["", *map(printable, lines)]))
    for note in notes:
        print(printable(f"note: {note}"))
    if following is not None:
        print(f"next: {following}")
    print(path)


def where_curves_are(done: TrainedRun | FinetunedRun) -> list[str]:
    """Where the curves of a training are, and how to plot them; nothing where a tracker's command is shown already."""
    if done.curves is not None:
        return []
    files = [shlex.quote(str(path)) for path in sorted(done.path.glob("history-*.jsonl"))]
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return [f"curves: {files[0]}{more}; train with --tracker tensorboard to plot them"] if files else []
