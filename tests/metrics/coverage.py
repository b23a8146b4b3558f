"""Simulated hospitals -> how often a nominal 95% interval holds the truth, cell by cell.

Patients have 1 to `images` images; labels and scores are correlated within a patient, and a second model sees much
of what the first sees. All truths are closed forms of the marginal distributions: scores are N(d y, 1), the
probability is the exact posterior. Run as a module to print a table that docs/coverage.md holds; with `--calibration`
that of groups whose probabilities are calibrated, or not, in a way that is known:

    python -m tests.metrics.coverage --simulations 2000
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv, expit, logit, ndtr, ndtri

from cxrhf.metrics import bootstrap_many, count_units, difference_interval, draw, interval
from cxrhf.metrics.calibration import brier, expected_calibration_error, expected_ece, observed_minus_predicted
from cxrhf.metrics.draws import threads
from cxrhf.metrics.operating import sensitivity_at_specificity
from cxrhf.metrics.ranking import auroc

# Correlation within a patient: of the scores, of the (latent) labels; between the two models' noise.
SCORE_CORRELATION, LABEL_CORRELATION, MODEL_CORRELATION = 0.5, 0.6, 0.7
PATIENTS = (200, 500, 1000, 5000)
IMAGES = (1, 3, 10)
PREVALENCE = (0.05, 0.2)
SEPARATION = 1.5  # AUROC .856
EASY = 2.8  # AUROC .976: the hard case for intervals
QUANTITIES = ("auroc", "brier", "sensitivity_at_specificity", "auroc difference", "brier difference")


class Cell(NamedTuple):
    patients: int
    images: int
    prevalence: float
    separation: float = SEPARATION


class Coverage(NamedTuple):
    cell: Cell
    quantity: str
    covered: float
    too_high: float
    too_low: float
    positive_patients: float
    rows: float
    simulations: int
    methods: str


def simulate(cell: Cell, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Patients, labels and the probabilities of two models."""
    sizes = rng.integers(1, cell.images + 1, cell.patients)
    patient = np.repeat(np.arange(cell.patients), sizes)

    def shared(correlation: float, noise: np.ndarray, own: np.ndarray) -> np.ndarray:
        return np.sqrt(correlation) * noise[patient] + np.sqrt(1 - correlation) * own

    latent = shared(LABEL_CORRELATION, rng.standard_normal(cell.patients), rng.standard_normal(len(patient)))
    y = (latent > ndtri(1 - cell.prevalence)).astype(float)
    common = shared(SCORE_CORRELATION, rng.standard_normal(cell.patients), rng.standard_normal(len(patient)))
    apart = shared(SCORE_CORRELATION, rng.standard_normal(cell.patients), rng.standard_normal(len(patient)))
    other = MODEL_CORRELATION * common + np.sqrt(1 - MODEL_CORRELATION**2) * apart
    d, e = cell.separation, cell.separation - 0.3
    return patient, y, posterior(cell, d, d * y + common), posterior(cell, e, e * y + other)


def posterior(cell: Cell, d: float, score: np.ndarray) -> np.ndarray:
    return np.asarray(expit(logit(cell.prevalence) + d * score - d**2 / 2))


def truth(cell: Cell) -> dict[str, float]:
    x = np.linspace(-9, 13, 400_001)
    step, density = x[1] - x[0], lambda z: np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)

    def brier_of(d: float) -> float:
        p = posterior(cell, d, x)
        error = cell.prevalence * density(x - d) * (1 - p) ** 2 + (1 - cell.prevalence) * density(x) * p**2
        return float(error.sum() * step)

    d, e = cell.separation, cell.separation - 0.3
    return {
        "auroc": float(ndtr(d / np.sqrt(2))),
        "brier": brier_of(d),
        "sensitivity_at_specificity": float(ndtr(d - ndtri(0.95))),
        "auroc difference": float(ndtr(d / np.sqrt(2)) - ndtr(e / np.sqrt(2))),
        "brier difference": brier_of(d) - brier_of(e),
    }


def measure(cell: Cell, simulations: int, n_resamples: int, seed: int) -> list[Coverage]:
    """Coverage of every quantity in one cell. Samples without a positive patient are drawn again."""
    rng = np.random.default_rng(
        [seed, cell.patients, cell.images, round(cell.prevalence * 100), round(cell.separation * 10)]
    )
    expected = truth(cell)
    above, below = dict.fromkeys(QUANTITIES, 0), dict.fromkeys(QUANTITIES, 0)
    methods: dict[str, dict[str, int]] = {name: {} for name in QUANTITIES}
    positive = rows = 0.0
    done = 0
    while done < simulations:
        patient, y, first, second = simulate(cell, rng)
        if not 0 < y.sum() < len(y):
            continue
        draws = draw(patient, y=y, n_resamples=n_resamples, seed=done)
        both = bootstrap_many(["auroc", "brier"], np.c_[y, y], np.c_[first, second], draws=draws, workers=1)
        sensitivity = bootstrap_many(["sensitivity_at_specificity"], y, first, draws=draws, workers=1)
        units = count_units(y, patient)
        points = {
            "auroc": (auroc(y, first), auroc(y, second)),
            "brier": (brier(y, first), brier(y, second)),
        }
        made: dict[str, tuple[float, float, str]] = {}
        for name in ("auroc", "brier"):
            got = interval(points[name][0], both[name][:, 0], metric=name, units=units)
            made[name] = (got.low, got.high, got.method)
            change = difference_interval(
                points[name][0] - points[name][1], both[name][:, 0] - both[name][:, 1], units=units
            )
            made[f"{name} difference"] = (change.low, change.high, change.method)
        name = "sensitivity_at_specificity"
        got = interval(sensitivity_at_specificity(y, first).sensitivity, sensitivity[name], metric=name, units=units)
        made[name] = (got.low, got.high, got.method)
        for quantity, (low, high, method) in made.items():
            # An interval that could not be made covers nothing.
            above[quantity] += not low <= expected[quantity]
            below[quantity] += high < expected[quantity]
            methods[quantity][method] = methods[quantity].get(method, 0) + 1
        positive += units.positive
        rows += len(y)
        done += 1
    return [
        Coverage(
            cell,
            quantity,
            1 - (above[quantity] + below[quantity]) / done,
            above[quantity] / done,
            below[quantity] / done,
            positive / done,
            rows / done,
            done,
            max(methods[quantity], key=lambda m: methods[quantity][m]),
        )
        for quantity in QUANTITIES
    ]


def grid() -> list[Cell]:
    usual = [Cell(n, k, pi) for n, k, pi in itertools.product(PATIENTS, IMAGES, PREVALENCE)]
    return usual + [Cell(n, 3, pi, EASY) for n, pi in itertools.product(PATIENTS, PREVALENCE)]


def study(cells: list[Cell], simulations: int, n_resamples: int, seed: int = 0) -> list[Coverage]:
    """Measure all cells, the largest first, on all cores, with progress on stderr."""
    order = sorted(cells, key=lambda cell: -cell.patients * (1 + cell.images))
    results: dict[Cell, list[Coverage]] = {}
    start = time.time()
    with ProcessPoolExecutor(threads()) as pool:
        jobs = [pool.submit(measure, cell, simulations, n_resamples, seed) for cell in order]
        for cell, job in zip(order, jobs, strict=True):
            results[cell] = job.result()
            print(f"{len(results)}/{len(order)} cells, {time.time() - start:.0f} s", file=sys.stderr, flush=True)
    return [row for cell in cells for row in results[cell]]


def as_table(rows: list[Coverage]) -> str:
    """Markdown, one line per cell and quantity; misses of the target 93-97% are marked."""
    lines = [
        "| AUROC | prevalence | patients | images each | rows | positive patients | quantity | interval | "
        "covered | interval too high | too low | |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        mark = "" if 0.93 <= row.covered <= 0.97 else ("**under**" if row.covered < 0.93 else "over")
        images = "1" if row.cell.images == 1 else f"1-{row.cell.images}"
        lines.append(
            f"| {truth(row.cell)['auroc']:.3f} | {row.cell.prevalence:.2f} | {row.cell.patients} | "
            f"{images} | {row.rows:.0f} | {row.positive_patients:.0f} | "
            f"{row.quantity} | {row.methods} | {row.covered:.3f} | {row.too_high:.3f} | {row.too_low:.3f} | {mark} |"
        )
    return "\n".join(lines)


# ---------------------------------------------------------------- calibration of a group


class Group(NamedTuple):
    """P(y | p) = expit(slope logit p - shift), and p of a Beta distribution with mean .2."""

    shift: float
    slope: float
    rows: int
    images: int


ERROR_WAYS = ("percentile", "centred", "basic", "moved twice")
# The distribution of the probabilities, in equally frequent steps.
PROBABILITIES = betaincinv(0.8, 3.2, (np.arange(20_000) + 0.5) / 20_000)


def groups() -> list[Group]:
    laws = ((0.0, 1.0), (0.4, 1.0), (1.0, 1.0), (0.0, 0.6))
    return [Group(*law, rows, images) for law, rows, images in itertools.product(laws, (100, 300, 1000), (1, 3))]


def calibration_truth(group: Group) -> tuple[float, float]:
    """Mean label less mean probability, and the error in ten bins of equal width."""
    p = PROBABILITIES
    excess = np.asarray(expit(group.slope * logit(p) - group.shift) - p)
    bins = np.bincount(np.minimum((10 * p).astype(int), 9), excess, 10) / len(p)
    return float(bins.sum()), float(np.abs(bins).sum())


class Calibration(NamedTuple):
    """The true error, the mean of the measured one and of what it would be if calibrated; how often intervals hold."""

    group: Group
    error: float
    measured: float
    chance: float
    held: dict[str, float]


def measure_calibration(group: Group, simulations: int, n_resamples: int) -> Calibration:
    """Shares of simulations in which each interval holds the truth."""
    difference, error = calibration_truth(group)
    held = dict.fromkeys(("difference", *ERROR_WAYS), 0)
    values, chance = [], []
    for seed in range(simulations):
        rng = np.random.default_rng([seed, group.rows, group.images, round(10 * group.shift), round(10 * group.slope)])
        patient = np.repeat(np.arange(group.rows // group.images), group.images)
        own = 1.0 if group.images == 1 else 0.5

        def shared(rng: np.random.Generator = rng, patient: np.ndarray = patient, own: float = own) -> np.ndarray:
            common = rng.standard_normal(patient[-1] + 1)[patient]
            return ndtr(np.sqrt(1 - own) * common + np.sqrt(own) * rng.standard_normal(len(patient)))

        p = PROBABILITIES[(shared() * len(PROBABILITIES)).astype(int)]
        y = (shared() < expit(group.slope * logit(p) - group.shift)).astype(float)
        draws = draw(patient, y=y, n_resamples=n_resamples, seed=seed)
        names = ("observed_minus_predicted", "expected_calibration_error")
        drawn = bootstrap_many(list(names), y, p, draws=draws, workers=1)
        ends = interval(observed_minus_predicted(y, p), drawn[names[0]], units=count_units(y, patient), metric=names[0])
        held["difference"] += ends.low <= difference <= ends.high
        value, replicates = expected_calibration_error(y, p), drawn[names[1]]
        low, high = np.quantile(replicates, [0.025, 0.975])
        bias = replicates.mean() - value
        ways = ((low, high), (low - bias, high - bias), (2 * value - high, 2 * value - low),
                (low - 2 * bias, high - 2 * bias))  # fmt: skip
        for way, (a, b) in zip(ERROR_WAYS, ways, strict=True):
            held[way] += max(a, 0.0) <= error <= b
        values.append(value)
        chance.append(expected_ece(p, seed=seed, n_simulations=50))
    shares = {name: count / simulations for name, count in held.items()}
    return Calibration(group, error, float(np.mean(values)), float(np.mean(chance)), shares)


def calibration_table(simulations: int, n_resamples: int) -> str:
    """Markdown, one line a group."""
    lines = [
        "| probabilities | images | images a patient | true error | mean error | if calibrated | "
        f"observed minus predicted | {' | '.join(f'error, {each}' for each in ERROR_WAYS)} |",
        "|---" * 11 + "|",
    ]
    with ProcessPoolExecutor(threads()) as pool:
        options = (itertools.repeat(simulations), itertools.repeat(n_resamples))
        for group, *numbers, held in pool.map(measure_calibration, groups(), *options):
            law = f"shift {group.shift:g}, slope {group.slope:g}"
            cells = [
                "calibrated" if law == "shift 0, slope 1" else law,
                f"{group.rows:,}",
                f"{group.images}",
                *(f"{each:.3f}" for each in (*numbers, *held.values())),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--simulations", type=int, default=2000)
    parser.add_argument("--resamples", type=int, default=600)
    parser.add_argument("--calibration", action="store_true")
    chosen = parser.parse_args()
    if chosen.calibration:
        print(calibration_table(chosen.simulations, chosen.resamples))
        return
    print(as_table(study(grid(), chosen.simulations, chosen.resamples)))


if __name__ == "__main__":
    main()
