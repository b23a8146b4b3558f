"""`cxrhf report`: a run folder -> its report.html and its models' cards, written again from the tables."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.config_report import ReportConfig
from cxrhf.errors import ConfigError

ABOUT = """Write the page of a run again from its tables, without computing anything, and a card of each of its models
(README.md for the Hub, results.json, .eval_results, figures). Cards are written from RESULT rows, never by hand; a card
folder holds the rows it was made from, so it can be written again without the run.

examples:
  cxrhf report runs/mine                           the page, and cards in runs/mine/model_cards
  cxrhf report runs/mine --cards model_cards       cards in another folder
  cxrhf report model_cards                         every card there again, from its own results.json
  cxrhf report --diff runs/old runs/new            what changed, and whether it is more than noise
  cxrhf report --diff runs/old runs/new --json     the same for a script"""


def main(args: Sequence[str]) -> int:
    """Write the page and the cards and print the page's path; of cards alone, theirs."""
    from cxrhf.cli.flags import parse

    config = parse(ReportConfig, args, verb="report", about=ABOUT)
    if config.diff:
        from cxrhf.cli.report_diff import difference

        return difference(*config.run, out=config.out, as_json=config.json)
    import sys
    from pathlib import Path

    from cxrhf.report import write_report
    from cxrhf.report.card import cards_in, rewrite, write_cards
    from cxrhf.report.card_facts import nested_runs
    from cxrhf.run import is_finished, read_run
    from cxrhf.tables.folders import one_writer

    folder = Path(config.run[0])
    if cards_in(folder):
        if config.cards:
            raise ConfigError(f"{folder} holds cards: they are written again where they are, not into {config.cards}",
                              next_step=f"cxrhf report {folder}")  # fmt: skip
        print(*rewrite(folder), sep="\n")
        return 0
    read_run(folder).table("results")  # says what to run when there is none, before a lock is made for it
    with one_writer(folder, "report"):
        page = write_report(folder)
        cards = write_cards(folder, Path(config.cards) if config.cards else None)
        for place in nested_runs(folder):
            if not is_finished(read_run(place).record):
                said = "not finished: its page says so, and no card is written. Next: run its command again"
                print(f"warning: {place} is {said}", file=sys.stderr)
    for card in cards:
        print(f"model card: {card}", file=sys.stderr)
    print(page)
    return 0
