"""PREDICTION -> PREDICTION with `pretest`: the probability of each finding before the image is seen, from the table.

`--pretest from:age,sex,view,race,prior_labels` fits one small ridge logistic regression per finding and dataset, with
five folds of patients: a row's probability comes from models that never saw its patient. Images of all splits and all
models are used, each once. Known limits: it knows only what the table holds, so context beyond that (the notes) is not
controlled; a finding with fewer than ten positive or negative patients gets none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cxrhf.audits.crossfit import ENOUGH, FOLDS, cross_fit, deal_patients
from cxrhf.audits.pretest_features import Images, context_features, gather
from cxrhf.errors import TableError
from cxrhf.metrics.ranking import auroc
from cxrhf.metrics.reliability import calibration_line
from cxrhf.tables.columns import PRETEST_SOURCES, pretest_sources

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FittedPretest:
    """The table with `pretest` filled, sentences for the reader, and the facts for run.json."""

    table: pa.Table
    notes: tuple[str, ...]
    about: dict[str, Any]


def fit_pretest(
    predictions: pa.Table,
    sources: Sequence[str],
    *,
    times: pa.Table | None,
    seed: int,
    progress: Callable[[str], None] | None = None,
) -> FittedPretest:
    """Fill `pretest` from `sources` (of age, sex, view, race, prior_labels); `times` is `Loaded.times`.

    The numbers depend on the table and the seed, not on the order of the rows.
    """
    wanted = _checked(predictions, sources, times)
    said = (
        [] if predictions["pretest"].null_count == len(predictions) else ["the pretest column of the table is replaced"]
    )
    values = np.full(len(predictions), np.nan)
    datasets = sorted(pc.unique(predictions["dataset"]).to_pylist(), key=lambda name: name or "")
    ranking, slope, n_features = dict[str, float | None](), dict[str, float | None](), 0
    for dataset in datasets:
        column = predictions["dataset"]
        rows = np.flatnonzero(pc.is_null(column) if dataset is None else pc.equal(column, dataset).fill_null(False))
        images = gather(predictions.take(pa.array(rows)) if len(datasets) > 1 else predictions, times)
        where = f" in {dataset}" if len(datasets) > 1 else ""
        features = context_features(images, wanted, said, where)
        filled = np.full(images.y.shape, np.nan)
        for k, finding in enumerate(images.findings):
            if progress is not None:
                progress(f"pre-test probability of {finding}{where} ({k + 1} of {len(images.findings)})")
            design = np.column_stack([features.shared, features.own[k]])
            n_features = max(n_features, design.shape[1])
            fitted = _one_finding(images, k, design, seed)
            if isinstance(fitted, str):
                said.append(f"{finding}{where}: no pre-test probability, {fitted}")
                continue
            filled[:, k] = fitted
            known = ~np.isnan(images.y[:, k])
            y, q, weight = images.y[known, k], fitted[known], images.weight[known, k]
            ranking[finding + where] = _number(auroc(y, q, weight))
            slope[finding + where] = _number(calibration_line(y, q, weight).slope)
        values[rows] = filled[images.row_image, images.row_finding]
        if images.n_contradictions:
            said.append(
                f"{images.n_contradictions:,} labels{where} differ between models or runs and are not used for fitting"
            )
    named = _spoken(wanted)
    if weak := [name for name, value in ranking.items() if value is not None and value <= 0.5]:
        said.append(f"{', '.join(weak)}: {named} rank no better than chance (AUROC at most 0.5)")
    limit = f"the pre-test probability uses only {named}; other context, such as prior notes, is not controlled"
    at = predictions.schema.get_field_index("pretest")
    table = predictions.set_column(at, predictions.schema.field(at), pa.array(values, from_pandas=True))
    about = {
        "sources": list(wanted), "n_features": n_features, "folds": FOLDS, "auroc": ranking, "calibration_slope": slope,
    }  # fmt: skip
    return FittedPretest(table, (limit, *dict.fromkeys(said)), about)


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 6)


def _spoken(sources: Sequence[str]) -> str:
    words = ["the labels of the patient's earlier images" if each == "prior_labels" else each for each in sources]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _checked(predictions: pa.Table, sources: Sequence[str], times: pa.Table | None) -> tuple[str, ...]:
    wanted = pretest_sources("from:" + ",".join(sources)) or ()
    there = [name for name in PRETEST_SOURCES[:-1] if predictions[name].null_count < len(predictions)]
    timed = times is not None and times["time"].null_count < len(times)
    usable = [*there, *(["prior_labels"] if timed else [])]
    allowed = ", ".join(usable) or "none: the table has neither groups nor times"
    for name in wanted:
        if name == "prior_labels" and not timed:
            raise TableError(
                "pretest from prior_labels: no time column, so earlier images cannot be identified",
                allowed=allowed,
                next_step="name it with --time COLUMN",
            )
        if name not in usable:
            keep = ",".join([each for each in wanted if each in usable] or usable)
            other = f", or omit it: --pretest from:{keep}" if keep else ""
            raise TableError(
                f"pretest from {name}: the column {name} is missing or blank",
                allowed=allowed,
                next_step=f"name it with --{name} COLUMN{other}",
            )
    return wanted


def _one_finding(images: Images, k: int, design: Floats, seed: int) -> Floats | str:
    """Probabilities of all images, or why there are none."""
    y, patients = images.y[:, k], images.patients
    counts = [len(np.unique(patients[y == value])) for value in (1, 0)]
    for count, word in zip(counts, ("positive", "negative"), strict=True):
        if count < ENOUGH:
            return f"{count} {word} patient{'s' * (count != 1)}, at least {ENOUGH} are needed"
    fold = deal_patients(y, patients, seed)
    fitted = cross_fit(design, y, images.weight[:, k], fold, min(counts))
    if fitted is None:
        return "positive and negative patients cannot be spread over the folds"
    # Equal features must give equal numbers to the last digit: ties are shared, never broken by rounding.
    return np.asarray(np.round(np.clip(fitted, 1e-6, 1 - 1e-6), 12), dtype=np.float64)
