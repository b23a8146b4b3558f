"""`cxrhf score`: generated reports of a run -> BERTScore and vectors of each, for the audit to read."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.models.report_settings import ScoreConfig

ABOUT = """Compute scores of generated reports that require an encoder: BERTScore, and one embedding per report and
reference, from which the audit measures diversity. ROUGE, BLEU and words require no encoder: `cxrhf audit` computes
them.

Reads RUN/generations.parquet and adds scores.parquet and report_vectors.parquet to the run. Each distinct text is
encoded once and scores are cached by content: if interrupted, run the same command to resume. Another encoder adds
rows; the same one replaces its rows. Nothing is sent anywhere, and no text is stored.

examples:
  cxrhf score runs/rex
  cxrhf score runs/rex --encoder pubmedbert --layer 9
  cxrhf score runs/rex --encoder chexbert=chexbert.pth --tokenizer models/bert-base-uncased
  cxrhf score runs/rex --metrics ratescore,radgraph
  PYTHONPATH=. cxrhf score runs/rex --metrics my_scores:entity_f1"""


def main(args: Sequence[str]) -> int:
    """Score, and end with the path of the run."""
    from cxrhf.cli.flags import parse

    config = parse(ScoreConfig, args, verb="score", about=ABOUT)
    from cxrhf.audits.run import progress_line
    from cxrhf.cli import print_outcome
    from cxrhf.models.scoring import score_run

    return print_outcome(score_run(config, progress_line()), "audit")
