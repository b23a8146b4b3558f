"""`cxrhf report`: a run folder -> its report.html, written again from the tables."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.config import ReportConfig

ABOUT = """Write the page of a run again from its tables, without computing anything.

examples:
  cxrhf report runs/mine"""


def main(args: Sequence[str]) -> int:
    """Write the page and print its path."""
    from cxrhf.cli.flags import parse

    config = parse(ReportConfig, args, verb="report", about=ABOUT)
    from cxrhf.report import write_report
    from cxrhf.run import read_run

    run = read_run(config.run)
    run.table("results")  # says what to run when there is none
    print(write_report(run.path))
    return 0
