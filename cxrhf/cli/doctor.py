"""`cxrhf doctor`: a dataset's folders -> what is there, what is missing and where it comes from."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cxrhf.data.settings import DoctorConfig

ABOUT = """Check that the raw files of a dataset are complete, before a build. Takes seconds and writes nothing.

Each line names a file, its usual location and the project it comes from. `absent` files are optional; MISSING and WRONG
ones stop a build; read each note.

examples:
  cxrhf doctor mimic_cxr_context --root ~/physionet.org/files
  cxrhf doctor chexpert --root ~/CheXpert-v1.0 ~/chexpert_demo
  cxrhf doctor nih_chestxray14 --root ~/nih --json      exit code 2 if a build would stop"""


def main(args: Sequence[str]) -> int:
    """Print a line for each thing looked at; exit code 2 where a build would stop."""
    from cxrhf.cli.flags import parse

    config = parse(DoctorConfig, args, verb="doctor", about=ABOUT)
    from cxrhf.data.doctor import examine, ready

    checks = examine(config.dataset, config.root)
    stopped = [check.what for check in checks if check.verdict in ("MISSING", "WRONG")]
    if config.json:
        import json

        told = [{"what": each.what, "verdict": each.verdict, "said": each.said} for each in checks]
        print(json.dumps({"dataset": config.dataset, "ready": not stopped, "checks": told}, indent=1))
        return 2 if stopped else 0
    for check in checks:
        print(check.line())
    if stopped:
        print(
            f"error: {config.dataset} cannot be built: {', '.join(stopped)}. Get or fix the files named above, then "
            "run this again. cxrhf build synthetic requires no files",
            file=sys.stderr,
        )
        return 2
    print(f"ready: {ready(config.dataset, config.root, checks)}")
    return 0
