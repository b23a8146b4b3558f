"""Planted truths -> whether the installed metrics and audits find them: what `cxrhf selfcheck` runs.

Each group makes data whose answers are known in closed form, sends them through the real audits, and compares. What
chance may add is four standard errors, from formulas that share no code with what is checked (`spread`). Beside every
planted truth stands a case without one, where nothing may be found. No torch; a group that needs an extra says so.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cxrhf.selfchecking.verdicts import Check, packages
from cxrhf.settings import GROUPS


class Group(NamedTuple):
    """Where the checks of a group are, what is planted, and the packages it needs beyond the light core."""

    place: str
    planted: str
    needs: tuple[str, ...] = ()
    extra: str = ""


class Outcome(NamedTuple):
    """What a group gave; `skipped` says why it could not run and what would help."""

    group: str
    planted: str
    checks: list[Check]
    seconds: float
    skipped: str | None = None

    @property
    def passed(self) -> bool:
        return all(check.ok for check in self.checks)


_GROUPS = {
    "metrics": Group("verdicts.check_examples", "the examples of every metric"),
    "patients": Group("truths.check_patients", "each image three times: intervals must not shrink"),
    "slices": Group("truths.check_slices", "a hidden tenth of the positives that fails"),
    "words": Group("truths.check_words", "reports that lose, flip and invent words of one sex"),
    "notes": Group("truths.check_notes", "earlier notes with some information, later ones with all of it"),
    "hospital": Group("truths.check_hospital", "a synthetic hospital: raw files, linked notes, their information",
                      ("skops", "safetensors", "joblib"), "words"),
    "encoding": Group("truths.check_encoding", "embeddings with sex on one axis and view on none"),
    "context": Group("truths.check_context", "a score that uses context (AUROC 0.872, 0.127 of it from context)"),
    "calibration": Group("truths.check_calibration", "probabilities too high by 0.4 of log odds, and calibrated ones"),
    "subgroups": Group(
        "truths.check_subgroups", "a race whose positives score 0.5 lower, and races that differ in age only"
    ),
    "compare": Group("truths.check_compare", "a weaker model, and an equal one"),
    "shortcut": Group("truths.check_shortcut", "a score that uses drains, more frequent in men"),
}  # fmt: skip
assert tuple(_GROUPS) == GROUPS


def run_checks(
    only: Sequence[str] = (), say: Callable[[str], None] = lambda _: None, processes: int = 1
) -> Iterator[Outcome]:
    """Group after group, in their order, as each is done; what breaks is a check that failed, and the others still run.

    Most of a first run is spent on compiling kernels, which threads cannot share: several processes can.
    """
    names = [name for name in GROUPS if not only or name in only]
    outcomes = map(_outcome, names)
    if processes > 1:
        from joblib import Parallel, delayed

        # None waits in loky's queue: Ctrl-C would make it print a trace of its own.
        pool = Parallel(n_jobs=processes, batch_size=1, pre_dispatch=processes, return_as="generator")
        outcomes = pool(delayed(_outcome)(name) for name in names)
    for name in names:
        say(f"{name}: {_GROUPS[name].planted}")
        yield next(outcomes)


def _outcome(name: str) -> Outcome:
    """One group, run here."""
    group = _GROUPS[name]
    if missing := [each for each in group.needs if importlib.util.find_spec(each) is None]:
        why = f"requires {', '.join(missing)}. Run: pip install 'cxrhf[{group.extra}]'"
        return Outcome(name, group.planted, [], 0.0, why)
    start = time.monotonic()
    module, _, function = group.place.rpartition(".")
    try:
        checks = getattr(importlib.import_module(f"cxrhf.selfchecking.{module}"), function)()
    except Exception as error:  # shown as what it is: a check that failed
        said = " ".join(f"{type(error).__name__}: {error}".split())
        checks = [Check("completes", "no error", said, False)]
    return Outcome(name, group.planted, checks, time.monotonic() - start)


# What the checks gave, and versions -> lines for a terminal, and one JSON object for a script.

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
    expected, found = (_value_text(each, whole) for each in (check.expected, check.found))
    return f"  {verdict}  {check.name:<{_NAME}}  expected {expected + beside:<15}  found {found}"


def _value_text(value: float | str, whole: bool) -> str:
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
        lines += _wrap_line(f"{what}: {', '.join(names)}") if names else []
    return lines


def _wrap_line(line: str) -> list[str]:
    return textwrap.wrap(line, _LINE, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)


def as_mapping(outcomes: Sequence[Outcome], found: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """All of it as plain values; a number that is none is null. `seconds`: from start to end."""
    return {
        "format": FORMAT,
        "passed": all_passed(outcomes),
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


def all_passed(outcomes: Iterable[Outcome]) -> bool:
    """Every check that ran is as planted, and at least one ran."""
    several = list(outcomes)
    return any(outcome.checks for outcome in several) and all(outcome.passed for outcome in several)


def _finite(value: float | str | None) -> float | str | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value
