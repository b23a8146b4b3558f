"""Rare misses, rare attributes: p values keep their level, 95% intervals hold. The whole study: `make test-slow`."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from cxrhf.metrics import bootstrap, brier_positive, count_units, draw, enrichment, interval
from tests.metrics.skewed import COVERED, LEVEL, SHARES, SIZES, Measured, as_table, cells, study, whole


def undercovered(rows: list[Measured], covered: float = COVERED) -> list[Measured]:
    """Intervals that would hold the truth so rarely in one of a thousand studies only, if they covered as asked."""
    defined = [(row, row.asked - row.undefined) for row in rows if not row.is_p]
    return [row for row, n in defined if n >= 20 and row.share * n < binom.ppf(0.001, n, covered)]


def test_intervals_hold_in_cells_of_twenty_patients() -> None:
    """Before, 22% of the intervals of a cell's Brier score and 33% of those of a gap held the truth."""
    assert not undercovered(cells("misses", 0.02, 120, n_resamples=100, p_values=False))


def test_intervals_of_brier_scores_hold_where_misses_are_rare() -> None:
    """Before, 19% of the intervals of `brier_positive` held the truth, and 78% of those of `brier_negative`."""
    assert not undercovered(whole("misses", 100, 120, n_resamples=100))


def test_odds_ratios_hold_where_some_patients_have_many_rows() -> None:
    """Before, 77% did: where hardly a row inside has the attribute, patients with many rows outside were not seen."""
    rng, n, held = np.random.default_rng(0), 300, 0
    for _ in range(n):
        patient = np.repeat(np.arange(1000), np.ceil(rng.pareto(0.9, 1000) * 2).clip(1, 150).astype(int))
        inside, has = (rng.random(1000) < 0.1)[patient], (rng.permutation(1000) < 20)[patient]
        found = enrichment(inside, has, patient)
        held += found.low <= 1 <= found.high
    assert held >= binom.ppf(0.001, n, COVERED)


def test_an_interval_reaches_to_one_more_patient_who_was_missed() -> None:
    """Thirty patients with next to no error; with errors spread as usual nothing changes."""
    rng, n = np.random.default_rng(0), 30
    y = np.r_[np.ones(n), np.zeros(n)]
    draws, units, ends, values = draw(np.arange(2 * n), y=y, n_resamples=400), count_units(y), {}, {}
    for name, own in (("sure", rng.uniform(0.96, 0.99, n)), ("usual", rng.beta(3, 2, n))):
        p = np.r_[own, rng.beta(2, 3, n)]
        values[name] = brier_positive(y, p)
        replicates = bootstrap("brier_positive", y, p, draws=draws)
        ends[name] = interval(values[name], replicates, metric="brier_positive", units=units)
    assert ends["sure"].high == pytest.approx(values["sure"] + (1 - values["sure"]) / (n + 1))
    assert ends["sure"].method == "logit-t, one more patient"
    assert ends["usual"].method == "logit-t"


@pytest.mark.slow
@pytest.mark.real
def test_the_study_of_skewed_errors() -> None:
    """The tables of docs/coverage.md."""
    by_share, by_size = study(500)
    print("\n" + as_table(by_share, SHARES) + "\n\n" + as_table(by_size, SIZES))
    rows = [row for row in (*by_share, *by_size) if row.undefined <= row.asked / 2]
    assert not undercovered(rows)
    called = [row for row in rows if row.is_p]
    assert not [row for row in called if row.share * row.asked > binom.ppf(0.9999, row.asked, LEVEL)]
    assert np.mean([row.share for row in called]) < 0.05
