"""`cxrhf report`: a run folder -> its report.html and its models' cards, written again from the tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cxrhf.errors import ConfigError
from cxrhf.settings import ReportConfig

ABOUT = """Write the page of a run again from its tables, without computing anything, and the card of each of its models
(README.md for the Hub, results.json, .eval_results, figures). Cards are written from RESULT rows. A card folder
contains these rows, so that the card can be written again without the run.

examples:
  cxrhf report runs/mine                           the page, and cards in runs/mine/model_cards
  cxrhf report runs/mine --cards model_cards       cards in another folder
  cxrhf report model_cards                         all cards in the folder, from their results.json
  cxrhf report --diff runs/old runs/new            what changed, and whether it exceeds noise
  cxrhf report --diff runs/old runs/new --json     the same as JSON"""


def main(args: Sequence[str]) -> int:
    """Write the page and the cards and print the page's path; of cards alone, theirs."""
    from cxrhf.cli.flags import parse

    config = parse(ReportConfig, args, verb="report", about=ABOUT)
    if config.diff:
        return print_difference(*config.run, out=config.out, as_json=config.json)
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
            raise ConfigError(f"{folder} contains cards, which are rewritten in place: --cards does not apply",
                              next_step=f"cxrhf report {folder}")  # fmt: skip
        print(*rewrite(folder), sep="\n")
        return 0
    read_run(folder).table("results")  # says what to run when there is none, before a lock is made for it
    with one_writer(folder, "report"):
        page = write_report(folder)
        cards = write_cards(folder, Path(config.cards) if config.cards else None)
        for place in nested_runs(folder):
            if not is_finished(read_run(place).record):
                said = "is not finished, so it gets no model card. Run its command again to finish it."
                print(f"warning: {place} {said}", file=sys.stderr)
    for card in cards:
        print(f"model card: {card}", file=sys.stderr)
    print(page)
    return 0


# `cxrhf report --diff`: two run folders -> what changed between them: lines, one JSON object, and diff.html.


def print_difference(first: str, second: str, *, out: str | None = None, as_json: bool = False) -> int:
    """Compare, print, write the page into `out` (the second run if not given), and end with its path."""
    import json

    from cxrhf.report.diff import as_mapping, compare_runs, diff_lines, write_diff

    both = compare_runs(first, second)
    page = write_diff(both, Path(out) if out else Path(second))
    if as_json:
        print(json.dumps(as_mapping(both) | {"page": str(page)}, allow_nan=False, indent=1))
    else:
        print("\n".join([*diff_lines(both), "", str(page)]))
    return 0
