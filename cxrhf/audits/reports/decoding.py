"""Written reports of one model by several strategies -> each strategy less the baseline, on the same images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cxrhf.audits.reports.diversity import measure_rows, study
from cxrhf.audits.reports.pairs import Pair
from cxrhf.audits.reports.report_rows import NAN, Ends, RowMaker
from cxrhf.audits.reports.similarity import Measured
from cxrhf.audits.reports.words import STATISTICS
from cxrhf.audits.reports.written import Floats, WordSettings, Written
from cxrhf.audits.rows import Row, beyond_resamples
from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.metrics.diversity_compared import Compared
from cxrhf.metrics.drawn_means import mean_replicates, patients_behind
from cxrhf.metrics.draws import draw
from cxrhf.metrics.intervals import difference_interval
from cxrhf.metrics.words_resample import WordBootstrap

USUAL = "greedy"
_UNDEFINED = "undefined: no value for both strategies"


class Decoded(NamedTuple):
    """One strategy of a model: its reports, their scores, how varied they are, and the bootstrap of pairs of groups."""

    written: Written
    measured: Measured
    study: Compared
    drawn: Mapping[str, tuple[Pair, WordBootstrap]]


def check_baseline(wanted: str | None, strategies: Sequence[str]) -> None:
    """Refuse a baseline that no model has, before minutes are spent."""
    if wanted is not None and wanted not in strategies:
        raise ConfigError("baseline_strategy: no such strategy", got=wanted, allowed=", ".join(strategies),
                          next_step=did_you_mean(wanted, strategies))  # fmt: skip


def decoding(several: Sequence[Decoded], settings: WordSettings, notes: list[str]) -> list[Row]:
    """Differences of all strategies to the baseline."""
    names = [each.written.strategy for each in several]
    first = next((names.index(name) for name in (settings.baseline_strategy, USUAL) if name in names), 0)
    base = several[first]
    return [row for at, each in enumerate(several) if at != first for row in _against(each, base, settings, notes)]


def _against(one: Decoded, base: Decoded, settings: WordSettings, notes: list[str]) -> list[Row]:
    mine, theirs = _common(one.written, base.written)
    who, versus = f"{one.written.model}: {one.written.strategy}", f"strategy={base.written.strategy}"
    if not len(mine):
        notes.append(f"{who} is not compared with {base.written.strategy}: no image in common")
        return []
    if len(mine) < max(len(one.written.images), len(base.written.images)):
        notes.append(f"{who} is compared with {base.written.strategy} on the {len(mine):,} images they share")
    make = RowMaker("decoding", one.written, settings)
    n_patients = len(set(one.written.patients[mine].tolist()))
    here: dict[str, Any] = {"versus": versus, "n": len(mine), "n_patients": n_patients}
    rows = _means(one, base, mine, theirs, make, here)
    rows += _varied(one, base, mine, theirs, make, here)
    same = len(mine) == len(one.written.images) == len(base.written.images)
    return rows + (_moved(one, base, make, here) if same else [])


def _common(one: Written, base: Written) -> tuple[np.ndarray, np.ndarray]:
    place = {image: at for at, image in enumerate(base.images)}
    both = [(at, place[image]) for at, image in enumerate(one.images) if image in place]
    mine, theirs = zip(*both, strict=True) if both else ((), ())
    return np.array(mine, dtype=np.intp), np.array(theirs, dtype=np.intp)


def _means(
    one: Decoded, base: Decoded, mine: np.ndarray, theirs: np.ndarray, make: RowMaker, here: Mapping[str, Any]
) -> list[Row]:
    names = [name for name in one.measured.values if name in base.measured.values]
    changes = np.stack([one.measured.values[name][mine] - base.measured.values[name][theirs] for name in names], axis=1)
    owners = [one.written.patient_ids[at] for at in mine]
    draws = draw(owners, n_resamples=make.settings.n_resamples, seed=make.settings.seed)
    replicates = mean_replicates(changes, draws)
    rows = []
    for at, name in enumerate(names):
        change = changes[:, at]
        if np.isnan(change).all():
            rows.append(make.row(name, NAN, method=one.measured.methods[name], note=_UNDEFINED, **here))
            continue
        value = float(np.nanmean(change))
        units = patients_behind(change, draws)
        found = difference_interval(value, replicates[:, at], level=make.settings.level, units=units,
                                    bounds=(-np.inf, np.inf))  # fmt: skip
        ends = Ends(found.low, found.high, f"{found.method}, patients resampled, paired")
        p_value = beyond_resamples(found, value, replicates[:, at], units)
        rows.append(make.row(name, value, ends=ends, p_value=p_value, method=one.measured.methods[name], **here))
    return rows


def _varied(
    one: Decoded, base: Decoded, mine: np.ndarray, theirs: np.ndarray, make: RowMaker, here: Mapping[str, Any]
) -> list[Row]:
    name, other = one.written.strategy, base.written.strategy
    together = one.study
    if together is not base.study:
        corpora = {
            name: [one.written.generated[at] for at in mine],
            other: [base.written.generated[at] for at in theirs],
        }
        together = study(corpora, one.written.patients[mine], make.settings)
    return measure_rows(make, together.less(name, other), **here)


def _moved(one: Decoded, base: Decoded, make: RowMaker, here: Mapping[str, Any]) -> list[Row]:
    """WAE and its companions: the same patients were drawn for both strategies, so replicates are paired."""
    rows = []
    for name, (pair, drawn) in one.drawn.items():
        if name not in base.drawn or not pair.by_sex:
            continue
        other = base.drawn[name][1]
        for statistic in STATISTICS:
            value = drawn.observed[statistic] - other.observed[statistic]
            apart: Floats = drawn.replicates[statistic] - other.replicates[statistic]
            apart = apart[~np.isnan(apart)]
            if np.isnan(value) or not len(apart):
                rows.append(make.row(statistic, NAN, slice=pair.first, note=_UNDEFINED, **here))
                continue
            # Replicates lie above what is observed (each adds noise): they are moved back, as in the interval of one.
            apart = apart - apart.mean() + value
            tail = (1 - make.settings.level) / 2
            low, high = np.quantile(apart, [tail, 1 - tail])
            ends = Ends(float(low), float(high), "centred percentile, patients resampled, paired")
            beyond = min(int((apart <= 0).sum()), int((apart >= 0).sum()))
            p_value = min(1.0, 2 * (beyond + 1) / (len(apart) + 1))
            rows.append(make.row(statistic, value, ends=ends, p_value=p_value, slice=pair.first, **here))
    return rows
