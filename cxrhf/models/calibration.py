"""PREDICTION rows of one image model -> a calibrator per finding -> the same rows, calibrated.

Fitted on the validation split, never on the test split. A finding gets a calibrator of the method asked for; outputs
that are classes of a softmax (rows named "sex=F", "race=Black", "view=AP") get one temperature per task, whatever the
method, so that their probabilities still sum to 1. What cannot be calibrated is left as the model gave it, and a note
says so. Only `prob` changes: `logit` stays what the model said, and is what calibrators read, so that calibrating twice
is calibrating once. `logit` of a class is its raw output or its log probability (a softmax does not mind which).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import softmax

from cxrhf.calibrate import LEAST, Calibrator, calibrated, fit_calibrator, fit_temperature, method_of
from cxrhf.calibrate import Calibration as Method
from cxrhf.errors import ConfigError, CxrhfWarning, TableError, did_you_mean
from cxrhf.metrics import (
    adaptive_calibration_error,
    brier,
    calibration_line,
    expected_ace,
    expected_calibration_error,
)
from cxrhf.models.calibration_rows import Floats, Integers, Rows, floats, read_rows, task_cells, tasks_of
from cxrhf.schema import PREDICTION, check

MIN_PATIENTS = 10


@dataclass(frozen=True, slots=True)
class Fitted:
    """The calibrator of a finding, or of a softmax task (then `classes` are its outputs), and what it rests on."""

    calibrator: Calibrator
    n: int  # images with a label, a logit and a weight above 0
    n_pos: int | None  # of those, with the finding; None for a task
    n_patients: int
    classes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Calibration:
    """The calibrators of one saved model. `notes` has a sentence for everything that has none, by finding or task."""

    method: Method
    split: str
    dataset: str | None
    model: str
    seed: int | None
    fitted: Mapping[str, Fitted]
    notes: Mapping[str, str] = field(default_factory=dict)
    fingerprint: str | None = None  # sha256 of the model's weights; set when it is written


def fit_calibration(
    rows: pa.Table, method: str, *, split: str = "validate", min_positives: int = MIN_PATIENTS
) -> Calibration:
    """One calibrator per finding and one temperature per softmax task, from the rows of one model and seed.

    Rows without a label (masked), without a logit, or of weight 0 have no influence. A finding with fewer than
    `min_positives` patients of either class has no calibrator and a note (a task: without two classes that have as
    many). The unit is the patient: many images of few patients are little to learn from.
    """
    way = method_of(method)
    table = check(rows, PREDICTION, source="predictions")
    model, seed = _one_model(table)
    table = _of_split(table, split)
    given = read_rows(table)
    fitted: dict[str, Fitted] = {}
    notes: dict[str, str] = {}
    for at, name in enumerate(given.names):
        if "=" not in name:
            made = _fit_finding(given, at, way, min_positives, notes)
            if made is not None:
                fitted[name] = made
    for task, classes in tasks_of(given.names).items():
        made = _fit_task(given, task, classes, min_positives, notes)
        if made is not None:
            fitted[task] = made
    if split.lower() == "train":
        notes["split train"] = "fitted on images that the model was trained on, so probabilities will be too extreme"
    datasets = sorted(filter(None, pc.unique(table["dataset"]).to_pylist()))
    return Calibration(way, split, ", ".join(datasets) or None, model, seed, fitted, notes)


def apply_calibration(rows: pa.Table, calibration: Calibration) -> pa.Table:
    """The rows with calibrated `prob`; `logit` stays raw. What stays raw is counted in a warning each."""
    table = check(rows, PREDICTION, source="predictions")
    model, seed = _one_model(table)
    if (model, seed) != (calibration.model, calibration.seed) and table.num_rows:
        raise ConfigError(
            "the calibration belongs to another model",
            got=f"rows of {model}, seed {seed}",
            allowed=f"{calibration.model}, seed {calibration.seed}",
            next_step="use the calibration.json in the folder of the model that made these rows",
        )
    given = read_rows(table)
    prob = floats(table["prob"])
    for at, name in enumerate(given.names):
        if "=" not in name and name in calibration.fitted:
            mine = (given.finding == at) & ~np.isnan(given.logit)
            prob[mine] = calibrated(calibration.fitted[name].calibrator, given.logit[mine])
    for task, classes in tasks_of(given.names).items():
        if task in calibration.fitted:
            _calibrate_task(given, task, classes, calibration.fitted[task], prob)
    for note in _left_raw(given, calibration):
        warnings.warn(note, CxrhfWarning, stacklevel=2)
    at = table.column_names.index("prob")
    return table.set_column(at, table.schema.field(at), pa.chunked_array([pa.array(prob, from_pandas=True)]))


def _left_raw(given: Rows, calibration: Calibration) -> list[str]:
    """A sentence for each finding or task whose probabilities stay as they are."""
    names = [name.partition("=")[0] if "=" in name else name for name in given.names]
    notes = []
    for name in dict.fromkeys(names):
        mine = np.isin(given.finding, [at for at, each in enumerate(names) if each == name])
        if name not in calibration.fitted:
            why = calibration.notes.get(name, "the calibration does not include it")
            notes.append(f"{name}: {mine.sum():,} probabilities are not calibrated ({why})")
        elif missing := int(np.isnan(given.logit[mine]).sum()):
            notes.append(f"{name}: {missing:,} probabilities are not calibrated (rows without a logit)")
    return notes


def calibration_lines(before: pa.Table, after: pa.Table, *, split: str = "validate") -> list[dict[str, Any]]:
    """How far probabilities can be believed before and after, per finding and split other than `split`.

    `split` is the one that the calibration was fitted on, where the numbers would flatter it. Each row: split, finding,
    n, n_pos and, ending in _before and _after, slope (1 = calibrated), ece and ace (expected and adaptive calibration
    error), ace_null (what ace averages when calibrated: it is not 0) and brier. NaN = undefined.
    """
    first, second = (check(each, PREDICTION, source="predictions") for each in (before, after))
    keys = ("image_id", "finding", "split", "label", "weight")
    if first.num_rows != second.num_rows or any(not first[key].equals(second[key]) for key in keys):
        raise TableError(
            "the rows before and after calibration differ", next_step="pass the table that apply_calibration returned"
        )
    given = read_rows(first)
    splits = first["split"].to_numpy()
    both = {"before": floats(first["prob"]), "after": floats(second["prob"])}
    there = ~np.isnan(given.label) & ~np.isnan(both["before"]) & ~np.isnan(both["after"])
    made = []
    for part in pc.unique(first["split"]).to_pylist():
        if part == split:
            continue
        for at, name in enumerate(given.names):
            mine = there & (given.finding == at) & (splits == part)
            if mine.any():
                y, weight = given.label[mine], given.weight[mine]
                line = {"split": part, "finding": name, "n": int(mine.sum()), "n_pos": int(y.sum())}
                made.append(line | _measured(y, {when: p[mine] for when, p in both.items()}, weight))
    return made


def _measured(y: Floats, probabilities: Mapping[str, Floats], weight: Floats) -> dict[str, float]:
    numbers = {}
    for when, p in probabilities.items():
        numbers[f"slope_{when}"] = calibration_line(y, p, weight).slope
        numbers[f"ece_{when}"] = expected_calibration_error(y, p, weight)
        numbers[f"ace_{when}"] = adaptive_calibration_error(y, p, weight)
        numbers[f"ace_null_{when}"] = expected_ace(p, weight)
        numbers[f"brier_{when}"] = brier(y, p, weight)
    return numbers


def _one_model(table: pa.Table) -> tuple[str, int | None]:
    """The model and seed of all rows; calibrators of several models pooled would fit none of them."""
    for name in ("model", "seed"):
        if len(there := pc.unique(table[name]).to_pylist()) > 1:
            raise ConfigError(
                f"rows of {len(there)} {name}s cannot share one calibration",
                got=", ".join(str(each) for each in there[:10]),
                next_step=f"calibrate each {name} separately",
            )
    return (table["model"][0].as_py(), table["seed"][0].as_py()) if table.num_rows else ("", None)


def _of_split(table: pa.Table, split: str) -> pa.Table:
    if split.strip().lower().startswith("test"):
        raise ConfigError(
            "--split",
            got=split,
            allowed="the split that was used for model selection, usually validate",
            next_step="fit on validate: a calibration cannot be evaluated on the labels it was fitted on",
        )
    chosen = table.filter(pc.equal(table["split"], split))
    if chosen.num_rows == 0:
        there = [str(each) for each in pc.unique(table["split"]).to_pylist() if each is not None]
        raise ConfigError(
            f'no rows of the split "{split}" to calibrate on',
            got=f"rows of {', '.join(there) or 'no split'}",
            next_step=did_you_mean(split, there)
            or (f"also predict the images of the split {split}" if there else 'add a column "split"'),
        )
    return chosen


def _fit_finding(given: Rows, at: int, method: Method, least: int, notes: dict[str, str]) -> Fitted | None:
    name = given.names[at]
    known = (given.finding == at) & ~np.isnan(given.label) & (given.weight > 0)
    rows = known & ~np.isnan(given.logit)
    y, score, weight, patient = given.label[rows], given.logit[rows], given.weight[rows], given.patient[rows]
    patients = [len(np.unique(patient[y == each])) for each in (1, 0)]
    if min(patients) < max(least, 1):
        lost = int(known.sum() - rows.sum())
        more = f" ({lost:,} more rows have a label but no logit)" if lost else ""
        notes[name] = (
            f"{patients[0]:,} patients with and {patients[1]:,} without the finding; at least {max(least, 1)} of each "
            f"are required{more}"
        )
        return None
    try:
        made = fit_calibrator(score, y, method, weight)
    except ConfigError as error:
        notes[name] = str(error)
        return None
    if method == "temperature" and _loss(y, calibrated(made, score), weight) > _loss(
        y, y * 0 + _mean(y, weight), weight
    ):
        notes[f"{name}, fit"] = (
            "after temperature scaling, probabilities are still worse than always predicting the prevalence; "
            "platt also shifts the mean"
        )
    return Fitted(made, len(y), int(y.sum()), len(np.unique(patient)))


def _fit_task(given: Rows, task: str, classes: Integers, least: int, notes: dict[str, str]) -> Fitted | None:
    cells = task_cells(given, task, classes)
    one_class = (cells.label == 1).sum(axis=1) == 1
    rows = one_class & ~np.isnan(cells.label + cells.logit).any(axis=1) & (cells.weight > 0)
    true = np.argmax(cells.label[rows] == 1, axis=1)
    patient = given.patient[cells.place[rows, 0]] if rows.any() else np.zeros(0, dtype=np.int64)
    names = [given.names[each].partition("=")[2] for each in classes]
    patients = [len(np.unique(patient[true == each])) for each in range(len(names))]
    if sum(each >= max(least, 1) for each in patients) < 2:
        counts = ", ".join(f"{name} {each:,}" for name, each in zip(names, patients, strict=True))
        notes[task] = f"patients: {counts}; at least two classes with {max(least, 1)} patients are required"
        return None
    try:
        made = fit_temperature(cells.logit[rows], true, cells.weight[rows])
    except ConfigError as error:
        notes[task] = str(error)
        return None
    calibrator = Calibrator("temperature", np.array([1 / made]), np.zeros(1))
    return Fitted(calibrator, len(true), None, len(np.unique(patient)), tuple(names))


def _calibrate_task(given: Rows, task: str, classes: Integers, fitted: Fitted, prob: Floats) -> None:
    """Put the task's probabilities where they belong in `prob`."""
    names = {given.names[each].partition("=")[2] for each in classes}
    if names != set(fitted.classes):
        raise TableError(
            f"{task}: the classes of the rows are not those of the calibration",
            got=", ".join(sorted(names)),
            allowed=", ".join(sorted(fitted.classes)),
        )
    cells = task_cells(given, task, classes)
    if (cells.place < 0).any():
        raise TableError(
            f"{task}: rows are missing for some classes of an image", next_step="keep all rows of an image together"
        )
    whole = ~np.isnan(cells.logit).any(axis=1)
    told = softmax(cells.logit[whole] * float(fitted.calibrator.x[0]), axis=1)
    prob[cells.place[whole]] = np.clip(told, LEAST, 1 - LEAST)


def _mean(y: Floats, weight: Floats) -> float:
    return float(np.sum(y * weight) / weight.sum())


def _loss(y: Floats, p: Floats, weight: Floats) -> float:
    """Weighted mean log loss of probabilities that are never 0 or 1."""
    return _mean(-np.log(np.where(y == 1, p, 1 - p)), weight)
