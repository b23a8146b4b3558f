"""A standard output whose reader may leave (`cxrhf audit ... | head`), or cannot read every letter -> the work goes on.

What a command makes is in a folder; to lose it because a line was not read would be absurd. Where the output is not
UTF-8 (a file or pipe on Windows), letters that its encoding lacks are written in others.
"""

from __future__ import annotations

import os
from typing import Any, TextIO

# Signs of our own sentences, in ASCII; other letters, of names and files, are written as \\xe9 or \\u5b57.
_SIGNS = {"–": "-", "−": "-", "…": "...", "·": ".", "Δ": "delta ", "“": '"', "”": '"', "’": "'", "×": "x", "±": "+-"}
_SIGNS |= {"≥": ">=", "≤": "<=", "→": "->", "←": "<-", "\N{REPLACEMENT CHARACTER}": "?"}
_ASCII = str.maketrans(_SIGNS)


class Lasting:
    """A stream that throws away what is written once its reader has left, and never fails over a letter."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                encoding = self._stream.encoding
                self._stream.write(text.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding))
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
