"""Planted truths -> whether the installed metrics and audits find them: what `cxrhf selfcheck` runs.

Each group makes data whose answers are known in closed form, sends them through the real audits, and compares. What
chance may add is four standard errors, from formulas that share no code with what is checked (`spread`). Beside every
planted truth stands a case without one, where nothing may be found. No torch; a group that needs an extra says so.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from cxrhf.config_selfcheck import GROUPS
from cxrhf.selfchecking.check import Check


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
    "metrics": Group("examples.check", "the examples of every metric"),
    "patients": Group("patients.check", "each image three times: intervals must not shrink"),
    "slices": Group("representations.check_slices", "a hidden tenth of the positives that fails"),
    "words": Group("words.check", "reports that lose, flip and invent words of one sex"),
    "notes": Group("notes.check", "earlier notes with some information, later ones with all of it"),
    "hospital": Group("hospital.check", "a synthetic hospital: raw files, linked notes, their information",
                      ("skops", "safetensors", "joblib"), "words"),
    "encoding": Group("representations.check_encoding", "embeddings with sex on one axis and view on none"),
    "context": Group("context.check", "a score that uses context (AUROC 0.872, 0.127 of it from context)"),
    "calibration": Group("calibration.check", "probabilities too high by 0.4 of log odds, and calibrated ones"),
    "subgroups": Group("subgroups.check", "a race whose positives score 0.5 lower, and races that differ in age only"),
    "compare": Group("compare.check", "a weaker model, and an equal one"),
    "shortcut": Group("representations.check_shortcut", "a score that uses drains, more frequent in men"),
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
