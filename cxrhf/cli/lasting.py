"""A standard output whose reader may leave (`cxrhf audit ... | head`) -> the work goes on, only nobody hears of it.

What a command makes is in a folder; to lose it because a line was not read would be absurd.
"""

from __future__ import annotations

import os
from typing import Any, TextIO


class Lasting:
    """A stream that throws away what is written once its reader has left."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except BrokenPipeError:
            self._leave()
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._leave()

    def _leave(self) -> None:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
