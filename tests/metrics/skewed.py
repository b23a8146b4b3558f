"""Skewed errors and rare attributes -> how often p values are below 5%, and how often 95% intervals hold the truth.

Squared errors are skewed where a good model rarely misses: most are near 0, a few near 1. Worlds:

* `misses`: 1,000 patients with 1 to 3 images, a tenth of the rows positive; 1% of rows are misses, more than by chance
  of the same patients;
* `rare`: the same with 2% positives and calibrated probabilities (tests/metrics/coverage.py);
* `nih <finding>`: real errors (Wang et al. 2017, predictions of reproduce-chexnet), where they are at hand.

Attributes are dealt to patients at random, so no gap is one, and the truth of a cell is that of its class. Run as a
module to print the tables that docs/coverage.md holds:

    python -m tests.metrics.skewed --simulations 500
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.special import ndtri

from cxrhf.metrics import (
    bootstrap_many,
    count_units,
    difference_interval,
    draw,
    enrichment,
    groups_permutation_test,
    interval,
    mean_gap,
    models_permutation_test,
)
from cxrhf.metrics.calibration import balanced_brier, brier, brier_negative, brier_positive, brier_skill_score
from cxrhf.metrics.draws import threads
from cxrhf.metrics.two_groups import permuted_gap
from tests.metrics import coverage
from tests.real_data import real_data

Floats = np.ndarray
SHARES = (0.005, 0.01, 0.02, 0.05, 0.2)  # of the patients, who have an attribute
SIZES = (100, 300, 1000)  # patients of a whole sample
MISS, WITHIN = 0.01, 0.3  # share of misses; (latent) correlation of the misses of a patient
RIGHT, WRONG = (0.5, 30.0), (8.0, 2.0)  # Beta laws of the distance of a probability from its label
NIH = ("Effusion", "Hernia")
COVERED, LEVEL = 0.9, 0.075  # what must hold of a 95% interval, and of p values below .05 where nothing is going on
PREVALENCE = {"misses": 0.1, "rare": 0.02}
WHOLE = {"brier": brier, "brier_positive": brier_positive, "brier_negative": brier_negative,
         "balanced_brier": balanced_brier, "brier_skill_score": brier_skill_score}  # fmt: skip


class Sample(NamedTuple):
    """Patients, labels, probabilities of two models that are as good as each other."""

    patient: Floats
    y: Floats
    p: Floats
    other: Floats


class Measured(NamedTuple):
    """Of a quantity in a world: the share of p values below .05, or of intervals that hold the truth.

    `size` is the share of patients with the attribute, or the patients of a whole sample; `undefined` of `asked` gave
    no p value and no interval, mostly because fewer than two patients were in the cell.
    """

    quantity: str
    world: str
    size: float
    share: float
    asked: int
    undefined: int

    @property
    def is_p(self) -> bool:
        return self.quantity.endswith(" p")


def simulate(world: str, n_patients: int, rng: np.random.Generator) -> Sample:
    """A new sample of a simulated world."""
    if world == "rare":
        cell = coverage.Cell(n_patients, 3, PREVALENCE[world])
        patient, y, p, _ = coverage.simulate(cell, rng)
        return Sample(patient, y, p, p)
    patient = np.repeat(np.arange(n_patients), rng.integers(1, 4, n_patients))

    def latent(correlation: float) -> Floats:
        shared = rng.standard_normal(n_patients)[patient]
        return np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * rng.standard_normal(len(patient))

    y = (latent(coverage.LABEL_CORRELATION) > ndtri(1 - PREVALENCE[world])).astype(float)

    def probabilities() -> Floats:
        missed = latent(WITHIN) > ndtri(1 - MISS)
        off = np.where(missed, rng.beta(*WRONG, len(y)), rng.beta(*RIGHT, len(y)))
        return np.abs(y - off)

    return Sample(patient, y, probabilities(), probabilities())


def _square(a: float, b: float) -> float:
    return a * (a + 1) / ((a + b) * (a + b + 1))


def _mean(a: float, b: float) -> float:
    return a / (a + b)


def truth(world: str) -> dict[str, float]:
    """Expected squared errors and probabilities of a simulated world, by class and together."""
    pi = PREVALENCE[world]
    if world == "misses":
        error = MISS * _square(*WRONG) + (1 - MISS) * _square(*RIGHT)
        off = MISS * _mean(*WRONG) + (1 - MISS) * _mean(*RIGHT)
        negative = positive = error
        said = (off, 1 - off)
    else:
        x = np.linspace(-9, 13, 400_001)
        p = coverage.posterior(coverage.Cell(1, 1, pi), coverage.SEPARATION, x)
        laws = [np.exp(-((x - d) ** 2) / 2) / np.sqrt(2 * np.pi) * (x[1] - x[0]) for d in (0, coverage.SEPARATION)]
        negative, positive = float(laws[0] @ p**2), float(laws[1] @ (1 - p) ** 2)
        said = (float(laws[0] @ p), float(laws[1] @ p))
    both = pi * positive + (1 - pi) * negative
    return {
        "brier": both, "brier_negative": negative, "brier_positive": positive, "balanced_brier": negative + positive,
        "brier_skill_score": 1 - both / (pi * (1 - pi)), "confidence 0": said[0], "confidence 1": said[1],
        "observed minus predicted": pi * (1 - said[1]) - (1 - pi) * said[0],
    }  # fmt: skip


def nih(finding: str) -> Sample:
    """The real table, patients numbered."""
    real = pl.read_csv(real_data("nih/predictions.csv.gz"))
    patient = np.unique(real["patient_id"].to_numpy(), return_inverse=True)[1]
    y, p = real[finding].to_numpy().astype(float), real[f"prob_{finding}"].to_numpy().astype(float)
    return Sample(patient, y, p, p)


class _Counts:
    """Hits of each quantity."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}
        self.held: dict[str, int] = {}
        self.undefined: dict[str, int] = {}

    def _add(self, name: str, undefined: bool, held: bool) -> None:
        for counts, hit in ((self.asked, True), (self.undefined, undefined), (self.held, held)):
            counts[name] = counts.get(name, 0) + bool(hit)

    def p(self, name: str, p_value: float) -> None:
        self._add(f"{name} p", bool(np.isnan(p_value)), p_value < 0.05)

    def interval(self, name: str, low: float, high: float, truth: float) -> None:
        self._add(name, bool(np.isnan(low)), low <= truth <= high)

    def measured(self, world: str, size: float) -> list[Measured]:
        return [
            Measured(name, world, size, self.held[name] / max(n - self.undefined[name], 1), n, self.undefined[name])
            for name, n in self.asked.items()
        ]


class _Ends:
    """Intervals of means over some rows of a sample, as the audits of cells and groups make them."""

    def __init__(self, sample: Sample, n_patients: int, n_resamples: int, seed: int) -> None:
        draws = draw(sample.patient, y=sample.y, n_resamples=n_resamples, seed=seed)
        self.drawn = draws.counts(0, n_resamples, conditional=False).astype(np.float64)
        self.sample, self.n_patients = sample, n_patients

    def of(self, rows: Floats, values: Floats, metric: str) -> tuple[float, float]:
        """NaN without rows."""
        if not rows.any():
            return np.nan, np.nan
        who = self.sample.patient[rows]
        total, n = (np.bincount(who, each, self.n_patients) for each in (values[rows], np.ones(len(who))))
        with np.errstate(invalid="ignore"):
            replicates = (total @ self.drawn) / (n @ self.drawn)
        units = count_units(self.sample.y[rows], who)
        bounds = (-1.0, 1.0) if metric == "observed_minus_predicted" else None
        return interval(float(values[rows].mean()), replicates, metric=metric, units=units, bounds=bounds)[:2]


def cells(
    world: str, share: float, simulations: int, *, seed: int = 0, n_resamples: int = 400, p_values: bool = True
) -> list[Measured]:
    """Everything that is said of the rows with a random attribute of a share of the patients."""
    rng = np.random.default_rng([seed, round(share * 1000), sum(map(ord, world))])
    real = nih(world.removeprefix("nih ")) if world.startswith("nih") else None
    counts = _Counts()
    for at in range(simulations):
        sample = real or simulate(world, 1000, rng)
        y, p, patient = sample.y, sample.p, sample.patient
        n_patients = int(patient.max()) + 1
        chosen = np.zeros(n_patients, dtype=bool)
        chosen[rng.choice(n_patients, round(share * n_patients), replace=False)] = True
        has = chosen[patient]
        known = truth(world) if real is None else {}
        ends = _Ends(sample, n_patients, n_resamples, at)
        error = (y - p) ** 2
        for label, side in ((0, "negative"), (1, "positive")):
            rows = y == label
            e, there, who = error[rows], has[rows], patient[rows]
            gap = mean_gap(e, there, who)
            counts.interval(f"mean_gap, {side}s", gap.low, gap.high, 0.0)
            if p_values:
                test = permuted_gap(e, there, who, n_permutations=99, seed=at)
                counts.p(f"slices' gap, {side}s", min(1.0, 2 * min(test.p_more, test.p_less)))
            for name, values, key in (
                ("Brier score", error, f"brier_{side}"), ("confidence", p, f"confidence {label}"),
            ):  # fmt: skip
                expected = known.get(key, float(values[rows].mean()))
                counts.interval(f"{name} of a cell, {side}s", *ends.of(rows & has, values, f"brier_{side}"), expected)
        name = "observed minus predicted"
        counts.interval(
            f"{name} of a group",
            *ends.of(has, y - p, "observed_minus_predicted"),
            known.get(name, float((y - p).mean())),
        )
        ratio = enrichment((rng.random(n_patients) < 0.1)[patient], has, patient)
        counts.interval("enrichment", ratio.low, ratio.high, 1.0)
        counts.p("enrichment", ratio.p_value)
        if p_values:
            found = groups_permutation_test(y, p, has, clusters=patient, metric="brier", n_permutations=199, seed=at)
            counts.p("groups_permutation_test, Brier", found.p_value)
    return counts.measured(world, share)


def whole(world: str, n_patients: int, simulations: int, *, seed: int = 0, n_resamples: int = 800) -> list[Measured]:
    """Brier scores of a whole sample, and of two models on it."""
    rng = np.random.default_rng([seed, n_patients, sum(map(ord, world))])
    known, counts = truth(world), _Counts()
    for at in range(simulations):
        sample = simulate(world, n_patients, rng)
        while not 0 < sample.y.sum() < len(sample.y):
            sample = simulate(world, n_patients, rng)
        draws = draw(sample.patient, y=sample.y, n_resamples=n_resamples, seed=at)
        units = count_units(sample.y, sample.patient)
        scores = np.c_[sample.p, sample.other]
        drawn = bootstrap_many(list(WHOLE), np.c_[sample.y, sample.y], scores, draws=draws, workers=1)
        for name, function in WHOLE.items():
            value = function(sample.y, sample.p)
            ends = interval(value, drawn[name][:, 0], metric=name, units=units)
            counts.interval(name, ends.low, ends.high, known[name])
            if world != "misses":
                continue
            gap = value - function(sample.y, sample.other)
            differ = difference_interval(gap, drawn[name][:, 0] - drawn[name][:, 1], units=units, metric=name)
            counts.interval(f"{name}, difference", differ.low, differ.high, 0.0)
            counts.p(f"{name}, difference", differ.p_value)
        if world == "misses":
            test = models_permutation_test(*sample[1:], clusters=sample.patient, metric="brier", n_permutations=199,
                                           seed=at)  # fmt: skip
            counts.p("models_permutation_test, Brier", test.p_value)
    return counts.measured(world, n_patients)


def study(simulations: int) -> tuple[list[Measured], list[Measured]]:
    """All cells and all whole samples, on all cores, with progress on stderr."""
    real_data("nih/predictions.csv.gz")  # skips where it is not at hand; polars is not opened before processes fork
    worlds = ["misses", "rare", *(f"nih {name}" for name in NIH)]
    start = time.time()
    with ProcessPoolExecutor(threads()) as pool:
        first = [pool.submit(cells, world, share, simulations) for share in SHARES for world in worlds]
        second = [pool.submit(whole, world, size, 4 * simulations) for size in SIZES for world in ("misses", "rare")]
        out: list[list[Measured]] = []
        for k, job in enumerate([*first, *second]):
            out.append(job.result())
            print(f"{k + 1}/{len(first) + len(second)}, {time.time() - start:.0f} s", file=sys.stderr, flush=True)
    return [row for each in out[: len(first)] for row in each], [row for each in out[len(first) :] for row in each]


def as_table(rows: Sequence[Measured], sizes: Sequence[float]) -> str:
    """Markdown: quantities down, sizes across, of each the worst of all worlds; what does not hold is marked.

    A world in which a quantity is undefined in most simulations says nothing of it.
    """
    shown = [f"{size:.1%}" if size < 1 else f"{size:,.0f}" for size in sizes]
    lines = [f"| quantity | {' | '.join(shown)} |", "|---|" + "---|" * len(sizes)]
    for is_p in (True, False):
        for quantity in dict.fromkeys(row.quantity for row in rows if row.is_p == is_p):
            cells_ = [_worst([row for row in rows if (row.quantity, row.size) == (quantity, size)]) for size in sizes]
            lines.append(f"| {quantity if is_p else f'{quantity}, interval'} | {' | '.join(cells_)} |")
    return "\n".join(lines)


def _worst(rows: Sequence[Measured]) -> str:
    said = [row for row in rows if row.undefined <= row.asked / 2]
    if not said:
        return "–"
    is_p = said[0].is_p
    share = (max if is_p else min)(row.share for row in said)
    return f"**{share:.3f}**" if (share > LEVEL if is_p else share < COVERED) else f"{share:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--simulations", type=int, default=500)
    chosen = parser.parse_args()
    by_share, by_size = study(chosen.simulations)
    print(as_table(by_share, SHARES), as_table(by_size, SIZES), sep="\n\n")


if __name__ == "__main__":
    main()
