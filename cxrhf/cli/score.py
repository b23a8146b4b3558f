"""`cxrhf score`: generated reports of a run -> BERTScore and vectors of each, for the audit to read."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.config_score import ScoreConfig

ABOUT = """Scores of single reports that need an encoder: BERTScore, and one vector a report (references too), by which
the audit tells how varied the reports are. ROUGE, BLEU and words need no encoder: `cxrhf audit` counts them itself.

Reads RUN/generations.parquet, adds scores.parquet and report_vectors.parquet to the run. Each distinct text is encoded
once and each score is kept by content, so the same command goes on after a kill, and a second one takes seconds.
Another encoder adds its rows; the same one replaces them. Nothing is sent anywhere, and no text is kept.

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
    from cxrhf.auditing import progress_line
    from cxrhf.cli.written import told
    from cxrhf.writing.scoring import score_run

    return told(score_run(config, progress_line()), "audit")
