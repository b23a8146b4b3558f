"""`cxrhf probe`: frozen networks and images -> what a new linear layer reads from them."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.models.settings import ProbeConfig

ABOUT = """Measure what a network encodes about sex, race and view: freeze it and fit one new linear layer (SPLIT).

Backbones are compared on the same images: runs of cxrhf train, ImageNet weights, random weights. The networks stay in
eval mode, so their weights and statistics do not change. What a layer can read is not always what a model uses:
docs/tasks/train.md.

examples:
  cxrhf probe data/chexpert --backbones all=runs/all,white=runs/white-only,imagenet,random
  cxrhf probe data/nih --backbones imagenet --targets sex,view --folds 5
  cxrhf probe data/chexpert --backbones runs/slices --targets findings --findings pneumothorax --reduce 128"""


def main(args: Sequence[str]) -> int:
    """Probe, and end with the path of the run."""
    from cxrhf.cli.flags import parse

    config = parse(ProbeConfig, args, verb="probe", about=ABOUT)
    from cxrhf.audits.run import progress_line
    from cxrhf.cli import print_outcome
    from cxrhf.models.probe_run import probe_run

    return print_outcome(probe_run(config, progress_line()))
