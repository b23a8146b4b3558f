"""`cxrhf embed`: a trained run and images -> EMBEDDING rows."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.models.settings import EmbedConfig

ABOUT = """Write the embeddings of a trained network (inputs of its last layer), one per image, as EMBEDDING rows in a
run folder.

cxrhf audit reads them. Embeddings of credentialed images are as confidential as the images.

examples:
  cxrhf embed runs/quick
  cxrhf embed runs/quick --splits train,test
  cxrhf embed runs/quick --build data/other_hospital --splits all"""


def main(args: Sequence[str]) -> int:
    """Embed, and end with the path of the run."""
    from cxrhf.cli.flags import parse

    config = parse(EmbedConfig, args, verb="embed", about=ABOUT)
    from cxrhf.audits.run import progress_line
    from cxrhf.cli import print_outcome
    from cxrhf.models.predict import embed_run

    return print_outcome(embed_run(config, progress_line()))
