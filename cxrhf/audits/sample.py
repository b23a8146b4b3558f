"""PREDICTION -> one sample per dataset, model and training seed: its matrices, and the draws its audits share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cxrhf.metrics.draws import Draws, draw
from cxrhf.metrics.intervals import UnitCount, count_units
from cxrhf.schema import PredictionArrays, arrays

Floats = NDArray[np.float64]
Progress = Callable[[str], None]
# Between two lines of progress.
SECONDS = 3.0


class Settings(Protocol):
    """What an audit reads from its config (cxrhf.config.AuditConfig has it)."""

    @property
    def n_resamples(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def level(self) -> float: ...
    @property
    def only(self) -> Sequence[str] | None: ...
    def training_prevalence(self, finding: str) -> float | None:
        """Share of positives in the training set; None = not known."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How much data a number rests on."""

    n: int
    n_pos: int
    n_patients: int
    units: UnitCount


@dataclass(frozen=True, slots=True)
class Finding:
    """Labelled rows of one finding; `at` are their places in the sample."""

    name: str
    at: NDArray[np.intp]
    y: Floats
    p: Floats
    weight: Floats
    pretest: Floats | None
    is_probability: bool
    counts: Counts


@dataclass(frozen=True, slots=True)
class Sample:
    """One model on one dataset, with the draws that all its audits share."""

    dataset: str | None
    model: str
    data: PredictionArrays
    draws: Draws
    settings: Settings
    workers: int | None
    progress: Progress
    several_datasets: bool = False

    def finding(self, k: int, *, needs_pretest: bool = False) -> Finding:
        """The rows of finding k that have a label (and, where asked, a pre-test probability)."""
        data = self.data
        keep = ~np.isnan(data.y[:, k])
        if needs_pretest and data.pretest is not None:
            keep &= ~np.isnan(data.pretest[:, k])
        at = np.flatnonzero(keep)
        y = data.y[at, k]
        weight = np.ones(len(at)) if data.weight is None else np.nan_to_num(data.weight[at, k], nan=1.0)
        return Finding(
            name=data.findings[k],
            at=at,
            y=y,
            p=data.p[at, k],
            weight=weight,
            pretest=None if data.pretest is None else data.pretest[at, k],
            is_probability=bool(data.is_probability[k]),
            counts=Counts(
                len(y),
                int((y == 1).sum()),
                len(np.unique(data.patients[at])),
                count_units(y, data.patients[at], weight),
            ),
        )

    def ticking(self, text: str, rounds: int) -> Callable[[int], None]:
        """A function for the engine's progress: every few seconds the share of `rounds` bootstraps that is done."""
        total, done, said = rounds * self.draws.n_resamples, 0, time.monotonic()

        def tick(count: int) -> None:
            nonlocal done, said
            done += count
            if time.monotonic() - said > SECONDS:
                said = time.monotonic()
                self.progress(f"{text}: {done / total:.0%}")

        return tick

    @property
    def curve_model(self) -> str:
        """The model's name in CURVE, which has no column for the dataset."""
        return f"{self.model} on {self.dataset}" if self.several_datasets else self.model

    @property
    def weighting(self) -> str:
        """How the rows count, as RESULT.method says it."""
        return "unweighted" if self.data.weight is None else "weight column"


def samples(
    predictions: pa.Table, settings: Settings, workers: int | None, progress: Progress, notes: list[str]
) -> Iterator[Sample]:
    """Every dataset x model x training seed of the table; only the test split where there are several splits."""
    predictions = _evaluated(predictions, notes)
    seeds: dict[Any, set[Any]] = {}
    keys = predictions.select(["dataset", "model", "seed"]).group_by(["dataset", "model", "seed"], use_threads=False)
    combinations = keys.aggregate([]).to_pylist()
    for key in combinations:
        seeds.setdefault((key["dataset"], key["model"]), set()).add(key["seed"])
    several_datasets = len({key["dataset"] for key in combinations}) > 1
    if several_datasets:
        notes.append("several datasets: each is audited on its own, none is pooled with another")
    for key in combinations:
        table = predictions
        for name in ("dataset", "model", "seed"):
            column, wanted = table[name], key[name]
            table = table.filter(pc.is_null(column) if wanted is None else pc.equal(column, wanted))
        data = arrays(table)
        if data.weight is not None and np.nanmin(data.weight) == np.nanmax(data.weight):
            data = replace(data, weight=None)  # a constant weight is none
        several = len(seeds[key["dataset"], key["model"]]) > 1
        model = f"{key['model']} (seed {key['seed']})" if several else key["model"]
        draws = draw(data.patients, y=data.y, n_resamples=settings.n_resamples, seed=settings.seed)
        yield Sample(key["dataset"], model, data, draws, settings, workers, progress, several_datasets)


def _evaluated(predictions: pa.Table, notes: list[str]) -> pa.Table:
    splits = sorted(str(each) for each in pc.unique(predictions["split"]).to_pylist() if each)
    if len(splits) < 2:
        return predictions
    if "test" not in splits:
        notes.append(f"the splits {', '.join(splits)} are evaluated together: no split is called test")
        return predictions
    kept = predictions.filter(pc.equal(predictions["split"], "test"))
    others = ", ".join(each for each in splits if each != "test")
    notes.append(f"only the split test is evaluated; {predictions.num_rows - kept.num_rows:,} rows of {others} are not")
    return kept
