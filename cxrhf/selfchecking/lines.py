"""What the checks gave, and versions -> lines for a terminal, and one JSON object for a script."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cxrhf.selfchecking import Outcome
from cxrhf.selfchecking.check import Check
from cxrhf.selfchecking.versions import packages

FORMAT = 1
_NAME, _LINE = 49, 110  # letters of a check's name, of a line


def outcome_lines(outcome: Outcome) -> list[str]:
    """A heading with what was planted and the seconds it took, and a line for each check."""
    if outcome.skipped is not None:
        return [f"{outcome.group}: skipped, {outcome.skipped}"]
    head = f"{outcome.group}: {outcome.planted} ({outcome.seconds:.1f} s)"
    return [head, *map(check_line, outcome.checks)]


def check_line(check: Check) -> str:
    """`ok  AUROC  expected 0.872 ± 0.019  found 0.870`."""
    verdict = "ok    " if check.ok else "FAILED"
    whole = check.tolerance is None or check.tolerance < 1e-6  # nothing of chance in it
    beside = "" if whole else f" ± {check.tolerance:.3f}"
    expected, found = (_shown(each, whole) for each in (check.expected, check.found))
    return f"  {verdict}  {check.name:<{_NAME}}  expected {expected + beside:<15}  found {found}"


def _shown(value: float | str, whole: bool) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.0f}" if whole and float(value).is_integer() else f"{value:.3f}"


def last_line(outcomes: Sequence[Outcome]) -> str:
    """`all 75 checks passed`, or which did not."""
    checks = [check for outcome in outcomes for check in outcome.checks]
    skipped = [outcome.group for outcome in outcomes if outcome.skipped is not None]
    beside = f" ({', '.join(skipped)} skipped)" if skipped else ""
    failed = [f"{outcome.group}: {check.name}" for outcome in outcomes for check in outcome.checks if not check.ok]
    if failed:
        more = f" and {len(failed) - 5} more" if len(failed) > 5 else ""
        return f"{len(failed)} of {len(checks)} checks FAILED{beside}: {'; '.join(failed[:5])}{more}"
    if not checks:
        return f"nothing was checked{beside}"
    return f"all {len(checks)} checks passed{beside}"


def version_lines(found: Mapping[str, Any]) -> list[str]:
    """What a bug report needs, to be copied as it stands."""
    torch = found["torch"] or "not installed"
    devices = found["cuda_devices"]
    cuda = "no CUDA driver" if devices is None else f"{devices} CUDA device{'' if devices == 1 else 's'}"
    commit = f" ({found['commit']})" if found["commit"] else ""
    lines = [
        f"cxrhf {found['cxrhf']}{commit}, Python {found['python']}, {found['platform']}",
        f"{found['cores']} cores, {found['numba_threads']} threads of numba "
        f"({found['numba_threading_layer']} layer), torch {torch}, {cuda}",
    ]
    there = [f"{name}=={version}" for name, version in found["packages"].items() if version]
    wanted = packages()
    missing = [f"{name} [{', '.join(each for each in wanted.get(name, []) if each != 'all')}]"
               for name, version in found["packages"].items() if version is None]  # fmt: skip
    for what, names in (("packages", there), ("not installed", missing)):
        lines += _wrapped(f"{what}: {', '.join(names)}") if names else []
    return lines


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, _LINE, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)


def as_mapping(outcomes: Sequence[Outcome], found: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """All of it as plain values; a number that is none is null. `seconds`: from start to end."""
    return {
        "format": FORMAT,
        "passed": passed(outcomes),
        "seconds": round(seconds, 2),
        "checks": [
            {
                "group": outcome.group,
                "name": check.name,
                "planted": outcome.planted,
                "expected": _finite(check.expected),
                "tolerance": _finite(check.tolerance),
                "found": _finite(check.found),
                "ok": check.ok,
            }
            for outcome in outcomes
            for check in outcome.checks
        ],
        "groups": {outcome.group: round(outcome.seconds, 2) for outcome in outcomes if outcome.skipped is None},
        "skipped": {outcome.group: outcome.skipped for outcome in outcomes if outcome.skipped is not None},
        "versions": dict(found),
    }


def passed(outcomes: Iterable[Outcome]) -> bool:
    """Every check that ran is as planted, and at least one ran."""
    several = list(outcomes)
    return any(outcome.checks for outcome in several) and all(outcome.passed for outcome in several)


def _finite(value: float | str | None) -> float | str | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value
