"""What was planted and what an audit found of it -> one verdict, with the tolerance it rests on."""

from __future__ import annotations

import ctypes
import doctest
import importlib
import math
import os
import pkgutil
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


# An estimate may lie so many standard errors off: an honest one does so once in some 16,000 times.
ERRORS = 4.0
# The same seed gives the same draws, but a new version of numpy may draw others: chance must not fail a good install.
CHANCE = 0.001
# A closed form that involves no chance.
EXACT = 1e-9
# How far the width of a bootstrapped interval may be from the one that theory gives.
WIDTH = 0.25


@dataclass(frozen=True, slots=True)
class Check:
    """One number or statement: what must come out, how far it may be off (None: not at all), what did come out."""

    name: str
    expected: float | str
    found: float | str
    ok: bool
    tolerance: float | None = None


def check_near(name: str, expected: float, found: float, error: float) -> Check:
    """A number that chance moves by `error`, its standard error."""
    return _within(name, expected, found, ERRORS * error)


def check_exact(name: str, expected: float, found: float) -> Check:
    """A number that has nothing of chance."""
    return _within(name, expected, found, EXACT * max(1.0, abs(expected)))


def check_learned(name: str, expected: float, found: float, error: float, lost: float) -> Check:
    """A number that a fitted model reaches: at most what is planted, less by what few patients may cost it."""
    tolerance = ERRORS * error
    ok = expected - lost - tolerance <= found <= expected + tolerance
    return Check(name, float(expected), float(found), bool(ok), float(tolerance + lost))


def _within(name: str, expected: float, found: float, tolerance: float) -> Check:
    """Plain numbers, not numpy's: they go into JSON. NaN is within nothing."""
    return Check(name, float(expected), float(found), bool(abs(found - expected) <= tolerance), float(tolerance))


def check_same(name: str, expected: str, found: str) -> Check:
    """Words that must be these."""
    return Check(name, expected, found, found == expected)


def check_width(name: str, row: Mapping[str, Any], error: float) -> Check:
    """The width of a 95% interval beside that of the normal law."""
    expected = 2 * 1.959964 * error
    return _within(name, expected, row["ci_high"] - row["ci_low"], WIDTH * expected)


def check_significant(name: str, row: Mapping[str, Any]) -> Check:
    """A difference that is there: its corrected p value is small."""
    p_value = _p_value(row)
    return Check(name, f"p < {CHANCE:g}", f"p = {p_value:.2g}", p_value < CHANCE)


def check_not_significant(name: str, row: Mapping[str, Any]) -> Check:
    """A difference that is not there: its corrected p value is what chance gives."""
    p_value = _p_value(row)
    return Check(name, f"p >= {CHANCE:g}", f"p = {p_value:.2g}", p_value >= CHANCE)


def _p_value(row: Mapping[str, Any]) -> float:
    return math.nan if row["p_value"] is None else float(row["p_value"])


class Rows:
    """RESULT rows by what they are of; `found(metric, slice=..., versus=...)` is the one row."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.rows = rows

    def __call__(self, metric: str, **where: Any) -> Mapping[str, Any]:
        wanted = {"slice": "all", "versus": None, **where, "metric": metric}
        found = [row for row in self.rows if all(row[name] == value for name, value in wanted.items())]
        if len(found) != 1:
            said = ", ".join(f"{name}={value}" for name, value in wanted.items())
            raise LookupError(f"{len(found)} rows of {said}")
        return found[0]

    def value(self, metric: str, **where: Any) -> float:
        """The number of the one row."""
        return float(self(metric, **where)["value"])

    def those(self, **where: Any) -> list[Mapping[str, Any]]:
        """All rows with these values."""
        return [row for row in self.rows if all(row[name] == value for name, value in where.items())]


# This machine -> what a bug report needs: versions, cores, threads, torch and CUDA. No names, no paths.

CORE = ""  # no extra
_PACKAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")


def versions() -> dict[str, Any]:
    """Everything that may explain why numbers or speed differ from those of somebody else."""
    import numba

    from cxrhf.run import new_record

    record = new_record("selfcheck", {}, [])
    return {
        "cxrhf": record["versions"]["cxrhf"],
        "commit": record["commit"],
        "python": record["python"],
        "platform": record["platform"],
        "cores": cores(),
        "numba_threads": numba.get_num_threads(),
        "numba_threading_layer": str(getattr(numba.config, "THREADING_LAYER", "unknown")),
        "torch": version_of("torch"),
        "cuda_devices": cuda_devices(),
        "packages": {name: version_of(name) for name in packages()},
    }


def version_of(name: str) -> str | None:
    """The installed version of a distribution; None where it is not there."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def packages() -> dict[str, list[str]]:
    """Every distribution that the package may ask for -> the extras that do, as it says itself; those of none first."""
    found: dict[str, list[str]] = {}
    for line in _requirements():
        name, extra = _PACKAGE_NAME.match(line), _EXTRA.search(line)
        if name and name[0] != "cxrhf":  # an extra may be made of others
            found.setdefault(name[0].lower().replace("_", "-"), []).append(extra[1] if extra else CORE)
    return dict(sorted(found.items(), key=lambda each: (CORE not in each[1], each[0])))


def _requirements() -> list[str]:
    """Of sources in their own folder from pyproject.toml, which may be newer than what was installed."""
    import tomllib

    path = Path(__file__).parents[2] / "pyproject.toml"
    project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {}) if path.is_file() else {}
    if project.get("name") != "cxrhf":
        return metadata.requires("cxrhf") or [] if version_of("cxrhf") else []
    more = project["optional-dependencies"]
    return [*project["dependencies"], *(f'{each}; extra == "{name}"' for name, lines in more.items() for each in lines)]


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cuda_devices() -> int | None:
    """How many GPUs the driver shows; None without a driver. Asked of the driver: loading torch takes seconds."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int(0)
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


# Labels, scores and weights -> standard errors, written out from the textbook: nothing of what is checked is used.
#
# The standard error of an AUROC comes from placements (DeLong): a positive's is the share of negatives below it, a
# negative's the share of positives above. What a row adds to the error is its placement less the mean, over the
# number of its class; the squares of these sum to the variance.


def auroc_parts(y: NDArray[np.int64], score: Floats, weight: Floats | None = None) -> Floats:
    """What each row adds to the error of the (weighted) AUROC; ties count half."""
    weight = np.ones(len(y)) if weight is None else weight
    parts = np.zeros(len(y))
    for label in (0, 1):
        own, other = y == label, y != label
        order = np.argsort(score[other])
        below = np.r_[0.0, np.cumsum(weight[other][order])] / weight[other].sum()
        ends = [below[np.searchsorted(score[other][order], score[own], side)] for side in ("left", "right")]
        placed = (ends[0] + ends[1]) / 2
        parts[own] = weight[own] * (placed - np.average(placed, weights=weight[own])) / weight[own].sum()
    return np.where(y == 1, parts, -parts)


def error(parts: Floats, patients: NDArray[np.int64] | None = None) -> float:
    """The standard error that the parts sum to; rows of one patient are not independent."""
    return float(np.sqrt(((parts if patients is None else np.bincount(patients, parts)) ** 2).sum()))


def auroc_error(y: NDArray[np.int64], score: Floats, weight: Floats | None = None) -> float:
    """The standard error of the (weighted) AUROC."""
    return error(auroc_parts(y, score, weight))


def mean_error(values: Floats) -> float:
    """The standard error of a mean."""
    return float(np.std(values) / np.sqrt(len(values)))


def share_error(share: float, n: float) -> float:
    """The standard error of a share of `n`, or of as many as weights leave."""
    return float(np.sqrt(share * (1 - share) / n))


def effective_rows(weight: Floats) -> float:
    """How many rows weighted ones count like (Kish)."""
    return float(weight.sum() ** 2 / (weight**2).sum())


def rate_error(rate: float, n: float, fixed: float, n_fixed: float, slope: float) -> float:
    """The standard error of a rate at a threshold that fixes another class's rate.

    `slope`: how much the rate changes when the fixed one does, the ratio of the two densities at the threshold.
    """
    return float(np.hypot(share_error(rate, n), slope * share_error(fixed, n_fixed)))


# The functions of cxrhf.metrics -> whether every example in their docstrings gives what is written there.


def check_examples(seed: int = 0) -> list[Check]:
    """Worked examples travel with the package, their answers beside them."""
    from cxrhf import metrics

    wrong, tried = list[str](), 0
    for each in pkgutil.iter_modules(metrics.__path__):
        module = importlib.import_module(f"cxrhf.metrics.{each.name}")
        for test in doctest.DocTestFinder(exclude_empty=True).find(module):
            runner = doctest.DocTestRunner(verbose=False)
            runner.run(test, out=lambda _: None)
            tried += runner.tries
            wrong += [test.name.removeprefix("cxrhf.metrics.")] * bool(runner.failures)
    if not tried:  # python -OO
        return [Check("examples in docstrings", "as written", "no docstrings (python -OO)", False)]
    said = f"differs in {', '.join(wrong[:5])}" if wrong else "as written"
    return [Check(f"{tried} examples in docstrings", "as written", said, not wrong)]
