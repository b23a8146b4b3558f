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
    'interrupted. To resume, run: cxrhf train data/twin'
    >>> said_of(["audit", "my file.csv"])
    "interrupted. To start again, run: cxrhf audit 'my file.csv'"
    """
    resumes = any(" ".join(args[: name.count(" ") + 1]) == name for name in RESUMES)
    # Under accelerate launch or torchrun the command that was typed is another one.
    typed = "the same command" if "LOCAL_RANK" in os.environ else shlex.join(["cxrhf", *args])
    return f"interrupted. To {'resume' if resumes else 'start again'}, run: {typed}"
