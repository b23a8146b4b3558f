"""The steps of the demo -> what a newcomer sees of them: a number, what happens, why it matters, how long it took."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from textwrap import wrap

WIDTH = 110
# Step -> what happens, and why it matters.
STEPS = {
    "data": (
        "Generate a hospital and link its data",
        "Images, prior notes and labels in MIMIC's layout. Nothing recorded after an image enters its context. The "
        "table counts what every step excludes: what is missing from a test set limits what it can show.",
    ),
    "notes": (
        "Estimate pre-test probabilities from the notes",
        "How likely is each finding before the image is seen? What a model scores above this comes from the image; "
        "the rest may come from the context.",
    ),
    "network": (
        "Train a small network on the images",
        "A real training run, small enough for two cores. The network predicts all images it was not trained on; its "
        "embeddings show what else it learned.",
    ),
    "simulated": (
        "Add three simulated models with known flaws",
        "One uses image and context, one the image alone, one is overconfident. A useful audit must distinguish them.",
    ),
    "writer": (
        "Train a tiny vision-language model to write reports",
        "Six decoding strategies of one model: what do the reports omit, and for whom? A simulated report model with "
        "planted omissions is audited next to it.",
    ),
    "audit": (
        "Audit all models",
        "AUROC overall, from context alone, and with context held equal; calibration, rare findings, subgroups, what "
        "is encoded, slices that fail, shortcuts, words of reports. Intervals resample patients.",
    ),
    "publish": (
        "Write model cards and check what could be published",
        "Nothing is sent. Every file is searched for notes, images, patients, tokens and paths; push.txt in the run "
        "folder lists all files.",
    ),
}


class Steps:
    """Numbered headings on stdout; `show` tells on stderr what is being done, in one changing line on a terminal."""

    def __init__(self, total: int, show: Callable[[str], None]) -> None:
        self.total, self.number, self.began = total, 0, time.monotonic()
        self.show, self._live, self._step = show, sys.stderr.isatty(), self.began

    def begin(self, step: str) -> None:
        """The heading of the next step."""
        title, why = STEPS[step]
        self.end()
        self.number += 1
        self._step = time.monotonic()
        bold, plain = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() else ("", "")
        print(f"\n{bold}{self.number}/{self.total}  {title}{plain}")
        print("\n".join(wrap(why, WIDTH, initial_indent="     ", subsequent_indent="     ")), flush=True)

    def say(self, lines: Sequence[str]) -> None:
        """What came of it, indented below the heading."""
        from cxrhf.report.notes import printable

        self._clear()
        print("\n".join(["", *(printable(f"     {line}").rstrip() for line in lines)]), flush=True)

    def end(self) -> None:
        """How long the step took."""
        if self.number:
            self._clear()
            print(f"     ({time.monotonic() - self._step:.0f} s)", flush=True)

    def finish(self) -> None:
        """The same of the last one, and of all."""
        self.end()
        print(f"\nDone in {shown_time(time.monotonic() - self.began)}.", flush=True)

    def _clear(self) -> None:
        if self._live:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def shown_time(seconds: float) -> str:
    """
    >>> shown_time(59.6), shown_time(125)
    ('1 min 0 s', '2 min 5 s')
    """
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"
