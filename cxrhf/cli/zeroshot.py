"""`cxrhf zeroshot`: images and prompts -> PREDICTION rows of a CLIP-style model."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.models.settings import ZeroshotConfig

ABOUT = """Predict with a CLIP-style model that was never trained on the labels: is the image closer to the prompt for a
finding, or to the prompt for its absence?

BioMedCLIP through open_clip, or any CLIP or SigLIP model of transformers. Probabilities are not calibrated until you
run cxrhf calibrate --method platt; only their order counts. Requirements, offline use, your own prompts:
docs/tasks/zeroshot.md.

examples:
  cxrhf zeroshot data/mimic
  cxrhf zeroshot data/nih --model openai/clip-vit-base-patch32 --splits test
  cxrhf zeroshot data/nih --model ./my_clip --prompts prompts.yaml --embed"""


def main(args: Sequence[str]) -> int:
    """Predict, and end with the path of the run."""
    from cxrhf.cli.flags import parse

    config = parse(ZeroshotConfig, args, verb="zeroshot", about=ABOUT)
    from cxrhf.audits.run import progress_line
    from cxrhf.cli import print_outcome
    from cxrhf.models.zeroshot import zeroshot_run

    return print_outcome(zeroshot_run(config, progress_line()), "audit")
