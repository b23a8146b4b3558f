"""Small simulations -> the figures that the documentation quotes and no test holds: `python -m benchmarks.figures`.

Name some to run only those: `python -m benchmarks.figures gaps intervals`. All take some minutes on one core.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import expit, logit

from cxrhf.metrics import (
    adaptive_calibration_error,
    att_weights,
    auroc,
    average_precision_at_prevalence,
    bootstrap,
    brier,
    count_units,
    difference_interval,
    draw,
    effective_sample_size,
    expected_ace,
    interval,
    ipw_weights,
    matched_auroc,
)
from cxrhf.twin import planted
from tests.metrics.coverage import EASY, SEPARATION, Cell, simulate, truth

Figures = Iterator[tuple[str, float]]


def calibration() -> Figures:
    """The adaptive calibration error of calibrated models: by sample size, and with half of the rows positive."""
    for n in (20_770, 1_000, 300):
        yield f"expected adaptive calibration error, {n:,} rows", expected_ace(planted.calibrated(n).prob)
    sample = planted.calibrated(200_000)
    rng = np.random.default_rng(0)
    negative = rng.permutation(np.flatnonzero(sample.y == 0))[: int(sample.y.sum())]
    half = np.r_[np.flatnonzero(sample.y == 1), negative]
    yield "adaptive calibration error, prevalence 0.2", adaptive_calibration_error(sample.y, sample.prob)
    yield "the same, half of the rows positive", adaptive_calibration_error(sample.y[half], sample.prob[half])


def weights() -> Figures:
    """Effective sample size by class, and IPW with a pre-test probability of the wrong slope."""
    rare = planted.context(200_000, pi=0.05, seed=3)
    size = effective_sample_size(ipw_weights(rare.y, rare.pretest, 0.05), rare.y)
    yield "effective sample size, prevalence 0.05: share of all rows", size.total / len(rare.y)
    yield "effective sample size, prevalence 0.05: share of the positives", size.positive / rare.y.sum()
    sample = planted.context(200_000)
    right = auroc(sample.y, sample.score, ipw_weights(sample.y, sample.pretest, 0.2))
    for slope in (0.7, 1.3):
        # A calibration slope of 0.7 means that the log odds are stretched by 1 / 0.7.
        spread = expit((logit(sample.pretest) - logit(0.2)) / slope + logit(0.2))
        changed = auroc(sample.y, sample.score, ipw_weights(sample.y, spread, 0.2))
        yield f"change of the IPW AUROC, calibration slope {slope}", changed - right


def gaps(times: int = 2_000, rows: int = 2_000, replicates: int = 300) -> Figures:
    """Equal groups: how often a plain 95% interval of the largest gap in sensitivity excludes 0."""
    for groups in (3, 5):
        found = 0
        for seed in range(times):
            rng = np.random.default_rng([groups, seed])
            group, called = rng.integers(0, groups, rows), rng.random(rows) < 0.7
            n = np.bincount(group, minlength=groups)
            rate = np.bincount(group, called, groups) / n
            high, low = int(rate.argmax()), int(rate.argmin())
            resampled = rng.binomial(n, rate, (replicates, groups)) / n
            found += int(np.quantile(resampled[:, high] - resampled[:, low], 0.025) > 0)
        yield f"largest gap of {groups} equal groups tested as if named in advance: significant", found / times


def intervals(times: int = 1_000, replicates: int = 400) -> Figures:
    """Coverage of nominal 95% intervals of other methods, on the simulations of docs/coverage.md."""
    for separation in (SEPARATION, EASY):
        cell = Cell(200, 1, 0.05, separation)
        expected = truth(cell)["auroc"]
        yield (
            f"coverage of percentile intervals, AUROC {expected:.3f}, 10 positive patients",
            _covered(cell, "auroc", expected, times, replicates, "auto"),
        )
    for images, prevalence in ((1, 0.05), (1, 0.2), (10, 0.05), (10, 0.2)):
        cell = Cell(500, images, prevalence)
        covered = _covered(cell, "brier", truth(cell)["brier"], times // 4, replicates, "positive")
        patients = f"500 patients with 1 to {images} images" if images > 1 else "500 patients"
        yield f"coverage of Brier, positive patients held fixed, prevalence {prevalence}, {patients}", covered


def _covered(cell: Cell, metric: str, expected: float, times: int, replicates: int, strata: str) -> float:
    rng = np.random.default_rng(0)
    held = done = 0
    value = {"auroc": auroc, "brier": brier}[metric]
    while done < times:
        patient, y, p, _ = simulate(cell, rng)
        if not 0 < y.sum() < len(y):
            continue
        draws = draw(patient, y=y, n_resamples=replicates, seed=done, strata=strata)
        method = "percentile" if metric == "auroc" else "auto"
        drawn = bootstrap(metric, y, p, draws=draws)
        found = interval(value(y, p), drawn, metric=metric, units=count_units(y, patient), method=method)
        held += int(found.low <= expected <= found.high)
        done += 1
    return held / times


def drops(times: int = 400, replicates: int = 400) -> Figures:
    """Coverage of the AUROCs with context held equal, and of their differences from the AUROC, at prevalence 0.2."""
    known = planted.context_truth()
    expected = {"AUROC": known.standard, "ATT": known.att, "IPW": known.ipw, "matched": known.matched}
    for rows in (1_000, 4_000):
        held = dict.fromkeys([*expected, *(f"drop to {name}" for name in expected if name != "AUROC")], 0)
        for seed in range(times):
            sample = planted.context(rows, seed=seed)
            y, p, q = sample.y, sample.score, sample.pretest
            draws = draw(sample.patient, y=y, n_resamples=replicates, seed=seed)
            weight = {"AUROC": None, "ATT": att_weights(y, q), "IPW": ipw_weights(y, q, float(y.mean()))}
            point = {name: auroc(y, p, each) for name, each in weight.items()} | {"matched": matched_auroc(y, p, q)}
            drawn = {name: bootstrap("auroc", y, p, each, draws=draws) for name, each in weight.items()}
            drawn["matched"] = bootstrap("matched_auroc", y, p, draws=draws, pretest=q)
            for name, value in expected.items():
                units = count_units(y, sample.patient, weight.get(name))
                found = interval(point[name], drawn[name], metric="auroc", units=units)
                held[name] += int(found.low <= value <= found.high)
                if name != "AUROC":
                    drop = difference_interval(point["AUROC"] - point[name], drawn["AUROC"] - drawn[name], units=units)
                    held[f"drop to {name}"] += int(drop.low <= expected["AUROC"] - value <= drop.high)
        for name, times_held in held.items():
            yield f"coverage, {rows:,} rows, prevalence 0.2: {name}", times_held / times


def prevalence(times: int = 400) -> Figures:
    """Average precision carried from 30 positives and 1,000 negatives to a prevalence of 1%."""
    rng = np.random.default_rng(0)
    y = np.r_[np.ones(30), np.zeros(1_000)]
    few = [average_precision_at_prevalence(y, rng.standard_normal(1_030) + 1.5 * y, 0.01) for _ in range(times)]
    y = np.r_[np.ones(50_000), np.zeros(500_000)]
    yield "average precision at prevalence 0.01, mean over samples of 30 positives", float(np.mean(few))
    many = average_precision_at_prevalence(y, rng.standard_normal(len(y)) + 1.5 * y, 0.01)
    yield "the same in one large sample", float(many)


FIGURES: dict[str, Callable[[], Figures]] = {
    "calibration": calibration,
    "weights": weights,
    "gaps": gaps,
    "intervals": intervals,
    "drops": drops,
    "prevalence": prevalence,
}


def main() -> None:
    chosen = sys.argv[1:] or list(FIGURES)
    unknown = [name for name in chosen if name not in FIGURES]
    if unknown:
        sys.exit(f"no figures {unknown[0]!r}; expected some of: {', '.join(FIGURES)}")
    for name in chosen:
        for text, value in FIGURES[name]():
            print(f"{value:8.3f}  {text}", flush=True)


if __name__ == "__main__":
    main()
