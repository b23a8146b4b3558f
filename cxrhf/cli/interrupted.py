"""The words of a command that was interrupted -> how to go on with it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

# What they have done stays on the disk and is taken over by the same command. The others begin again: they are short,
# and what they write is there whole or not at all.
RESUMES = ("build", "context fit", "context predict", "train", "finetune", "generate", "score", "demo")


def said_of(args: Sequence[str]) -> str:
    """What to print after Ctrl-C.

    >>> said_of(["train", "data/twin"])
    'interrupted. Next: the same command goes on where it was: cxrhf train data/twin'
    >>> said_of(["audit", "my file.csv"])
    "interrupted. Next: the same command begins again: cxrhf audit 'my file.csv'"
    """
    resumes = any(" ".join(args[: name.count(" ") + 1]) == name for name in RESUMES)
    how = "goes on where it was" if resumes else "begins again"
    # Under accelerate launch or torchrun the command that was typed is another one.
    typed = "" if "LOCAL_RANK" in os.environ else f": {shlex.join(['cxrhf', *args])}"
    return f"interrupted. Next: the same command {how}{typed}"
