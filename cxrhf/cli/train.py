"""`cxrhf train`: a build -> trained networks, one a seed. `accelerate launch -m cxrhf.models.train` is the same."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from cxrhf.models.settings import TrainConfig

ABOUT = """Train a timm network on the images of a build and write a run.

Unknown labels never count. Validation images select the weights to keep; test images are not used. If training is
interrupted, run the same command to resume from the last checkpoint; finished seeds are kept. Recipes for --config:
quick (minutes on a CPU), context_densenet, context_resnet, slices_resnet, imbalance_densenet, encoding_densenet,
encoding_resnet (as in the papers).

examples:
  cxrhf train data/twin --config quick --out runs/quick
  cxrhf train data/mimic --config context_densenet --seeds 0-4
  cxrhf train data/chexpert --config encoding_densenet --tasks findings,sex,race
  cxrhf train data/chexpert --config encoding_densenet --only race=White --out runs/white-only
  accelerate launch -m cxrhf.models.train data/mimic --config context_densenet     all GPUs of this machine
  torchrun --nproc_per_node 2 -m cxrhf.models.train data/twin --config quick       two processes, no GPU required"""


def main(args: Sequence[str]) -> int:
    """Train, and end with the path of the run."""
    from cxrhf.cli.flags import parse

    config = parse(TrainConfig, args, verb="train", about=ABOUT)
    from cxrhf.audits.run import progress_line
    from cxrhf.cli import print_summary, where_curves_are
    from cxrhf.models.train_run import train_run
    from cxrhf.run import public_path

    done = train_run(config, progress_line())
    if done is None:  # a process that only helped
        return 0
    # Runs do not record paths outside the working folder: what they cannot find again is named.
    build = "" if public_path(config.build) == str(Path(config.build)) else f" --build {shlex.quote(config.build)}"
    following = f"cxrhf predict {shlex.quote(str(done.path))}{build}"
    print_summary(done.path, [*done.lines(), *where_curves_are(done)], done.notes, following)
    return 0
