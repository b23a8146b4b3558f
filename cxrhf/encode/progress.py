"""Notes done -> a bar, or a line every few seconds: notes per second and time left."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

from cxrhf.encode.processes import main_process, n_processes
from cxrhf.errors import CxrhfWarning

Progress = bool | Callable[[str], None]

EVERY = 3.0  # seconds between lines


class Clock:
    """Counts notes and work (characters); time left goes by work, for the longest notes come first."""

    def __init__(self, name: str, notes: int, work: int, progress: Progress, what: str = "notes") -> None:
        self.name, self.notes, self.work, self.what = name, notes, max(work, 1), what
        self.say = progress if callable(progress) and main_process() else None
        self.done_notes = 0
        self.done_work = 0.0
        self.start = self.told = time.monotonic()
        self.bar: Any = None
        if progress is True and main_process():
            from tqdm import tqdm

            form = f"{{desc}}: {{percentage:3.0f}}%|{{bar}}| {{n_fmt}} of {{total_fmt}} {what}{{postfix}}"
            self.bar = tqdm(total=notes, desc=name, bar_format=form)

    def advance(self, work: float, notes: int = 0) -> None:
        """Some characters were read, some notes finished."""
        self.done_work += work
        self.done_notes += notes
        now = time.monotonic()
        if self.bar is not None:
            self.bar.set_postfix_str(self._speed(now), refresh=False)
            self.bar.update(notes)
        if self.say is not None and now - self.told >= EVERY:
            self.told = now
            share = min(self.done_work / self.work, 1.0)
            self.say(f"{self.name}: {share:.0%} of {self.notes:,} {self.what}{_shared()}, {self._speed(now)}")

    def close(self) -> None:
        """The last line: what it took."""
        if self.bar is not None:
            self.bar.close()
        if self.say is not None and self.notes:
            seconds = time.monotonic() - self.start
            speed = self.done_notes / max(seconds, 1e-9)
            took = f"in {_time(seconds)}, {speed:.3g} {self.what}/s"
            self.say(f"{self.name}: {self.done_notes:,} {self.what}{_shared()} {took}")

    def _speed(self, now: float) -> str:
        seconds = max(now - self.start, 1e-9)
        left = seconds * (self.work - self.done_work) / max(self.done_work, 1e-9)
        notes = self.notes * self.done_work / self.work  # finished ones come in blocks
        return f"{notes / seconds:.3g} {self.what}/s, {_time(max(left, 0.0))} left"


def remark(text: str) -> None:
    """What a reader should know and a line of progress would wipe away: a warning, from one process."""
    if main_process():
        warnings.warn(text, CxrhfWarning, stacklevel=3)


def _shared() -> str:
    return f" (process 1 of {n_processes()})" if n_processes() > 1 else ""


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
