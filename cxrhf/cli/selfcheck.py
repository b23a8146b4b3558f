"""`cxrhf selfcheck`: the installed package -> whether its audits find what was planted, and its versions."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cxrhf.settings import SelfcheckConfig

ABOUT = """Check that metrics and audits on this machine recover known answers, and find no effect where there is none.

Synthetic data with known answers run through the real audits. Each number is compared with its closed form and must lie
within four standard errors. Takes less than a minute, also the first time. Needs no data, network or torch, and writes
nothing. Ends with the versions that a bug report needs, without names or paths. Exit code 0: all checks passed; 1: a
check failed.

examples:
  cxrhf selfcheck
  cxrhf selfcheck --only context,slices
  cxrhf selfcheck --json > selfcheck.json"""


def main(args: Sequence[str]) -> int:
    """Run the checks, print a line for each, the versions, and the sum."""
    from cxrhf.cli.flags import parse

    config = parse(SelfcheckConfig, args, verb="selfcheck", about=ABOUT)
    import json
    import time

    from joblib import cpu_count

    from cxrhf.audits.run import progress_line
    from cxrhf.report.lines import printable
    from cxrhf.selfchecking import all_passed, as_mapping, last_line, outcome_lines, run_checks, version_lines
    from cxrhf.selfchecking.verdicts import versions

    start, show, outcomes = time.monotonic(), progress_line(), []
    # A process takes seconds to start: more than four gain nothing, and a few groups alone are as fast without.
    processes = 1 if config.only else min(cpu_count(), 4)
    for outcome in run_checks(config.only, show, processes):
        outcomes.append(outcome)
        if not config.json:
            if sys.stderr.isatty():
                print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
            print("\n".join(map(printable, outcome_lines(outcome))), flush=True)
    if config.json:
        found = as_mapping(outcomes, versions(), time.monotonic() - start)
        print(json.dumps(found, allow_nan=False, indent=2))
    else:
        print("\n".join(["", *version_lines(versions()), "", printable(last_line(outcomes))]))
    return 0 if all_passed(outcomes) else 1
