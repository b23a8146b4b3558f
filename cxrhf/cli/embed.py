"""`cxrhf embed`: a trained run and images -> EMBEDDING rows."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.config_models import EmbedConfig

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
    from cxrhf.auditing import progress_line
    from cxrhf.cli.written import told
    from cxrhf.imaging.predicting import embed_run

    return told(embed_run(config, progress_line()))
