"""PREDICTION rows of one image model -> a calibrator per finding, saved beside the model -> the same rows, calibrated.

Fitted on the validation split, never on the test split. A finding gets a calibrator of the method asked for; outputs
that are classes of a softmax (rows named "sex=F", "race=Black", "view=AP") get one temperature per task, whatever the
method, so that their probabilities still sum to 1. What cannot be calibrated is left as the model gave it, and a note
says so. Only `prob` changes: `logit` stays what the model said, and is what calibrators read, so that calibrating twice
is calibrating once. `logit` of a class is its raw output or its log probability (a softmax does not mind which).

calibration.json carries the sha256 of the model's weights: a calibration of other weights is refused.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import softmax

from cxrhf.calibrate import LEAST, Calibrator, calibrated, fit_calibrator, fit_temperature
from cxrhf.calibrate import Calibration as Method
from cxrhf.errors import ConfigError, CxrhfWarning, RunError, TableError, did_you_mean
from cxrhf.metrics import (
    adaptive_calibration_error,
    brier,
    calibration_line,
    expected_ace,
    expected_calibration_error,
)
from cxrhf.run import fingerprint as fingerprint_of
from cxrhf.schema import PREDICTION, check
from cxrhf.tables.files import write_atomically

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FORMAT = 1
FILE, WEIGHTS = "calibration.json", "model.safetensors"
MIN_PATIENTS = 10
_AGAIN = "fit it again: cxrhf calibrate RUN"


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


class _Rows(NamedTuple):
    """Columns of PREDICTION as arrays; NaN = null, weight 1 where there is none."""

    names: tuple[str, ...]
    finding: Integers
    image: Integers
    patient: Integers
    label: Floats
    logit: Floats
    weight: Floats


class _Task(NamedTuple):
    """The rows of a softmax task, images x classes; `place` is where a cell stands in the table, -1 = nowhere."""

    place: Integers
    logit: Floats
    label: Floats
    weight: Floats


def fit_calibration(
    rows: pa.Table, method: str, *, split: str = "validate", min_positives: int = MIN_PATIENTS
) -> Calibration:
    """One calibrator per finding and one temperature per softmax task, from the rows of one model and seed.

    Rows without a label (masked), without a logit, or of weight 0 have no influence. A finding with fewer than
    `min_positives` patients of either class has no calibrator and a note (a task: without two classes that have as
    many). The unit is the patient: many images of few patients are little to learn from.
    """
    way = _method(method)
    table = check(rows, PREDICTION, source="predictions")
    model, seed = _one_model(table)
    table = _of_split(table, split)
    given = _read(table)
    fitted: dict[str, Fitted] = {}
    notes: dict[str, str] = {}
    for at, name in enumerate(given.names):
        if "=" not in name:
            made = _fit_finding(given, at, way, min_positives, notes)
            if made is not None:
                fitted[name] = made
    for task, classes in _tasks(given.names).items():
        made = _fit_task(given, task, classes, min_positives, notes)
        if made is not None:
            fitted[task] = made
    if split.lower() == "train":
        notes["split train"] = "fitted on images that the model learned from: probabilities will be too extreme"
    datasets = sorted(filter(None, pc.unique(table["dataset"]).to_pylist()))
    return Calibration(way, split, ", ".join(datasets) or None, model, seed, fitted, notes)


def apply_calibration(rows: pa.Table, calibration: Calibration) -> pa.Table:
    """The rows with calibrated `prob`; `logit` stays raw. What stays raw is counted in a warning (`left_raw`)."""
    table = check(rows, PREDICTION, source="predictions")
    model, seed = _one_model(table)
    if (model, seed) != (calibration.model, calibration.seed) and table.num_rows:
        raise ConfigError(
            "this calibration is of another model",
            got=f"rows of {model}, seed {seed}",
            allowed=f"{calibration.model}, seed {calibration.seed}",
            next_step="use the calibration.json that lies beside the model of these rows",
        )
    given = _read(table)
    prob = _floats(table["prob"])
    for at, name in enumerate(given.names):
        if "=" not in name and name in calibration.fitted:
            mine = (given.finding == at) & ~np.isnan(given.logit)
            prob[mine] = calibrated(calibration.fitted[name].calibrator, given.logit[mine])
    for task, classes in _tasks(given.names).items():
        if task in calibration.fitted:
            _calibrate_task(given, task, classes, calibration.fitted[task], prob)
    for note in _left_raw(given, calibration):
        warnings.warn(note, CxrhfWarning, stacklevel=2)
    at = table.column_names.index("prob")
    return table.set_column(at, table.schema.field(at), pa.chunked_array([pa.array(prob, from_pandas=True)]))


def left_raw(rows: pa.Table, calibration: Calibration) -> tuple[str, ...]:
    """A sentence for each finding or task of these rows whose probabilities `apply_calibration` leaves as they are."""
    return _left_raw(_read(check(rows, PREDICTION, source="predictions")), calibration)


def _left_raw(given: _Rows, calibration: Calibration) -> tuple[str, ...]:
    names = [name.partition("=")[0] if "=" in name else name for name in given.names]
    notes = []
    for name in dict.fromkeys(names):
        mine = np.isin(given.finding, [at for at, each in enumerate(names) if each == name])
        if name not in calibration.fitted:
            why = calibration.notes.get(name, "the calibration does not know it")
            notes.append(f"{name}: {mine.sum():,} probabilities are not calibrated ({why})")
        elif missing := int(np.isnan(given.logit[mine]).sum()):
            notes.append(f"{name}: {missing:,} probabilities are not calibrated (rows without a logit)")
    return tuple(notes)


def write_calibration(
    folder: str | os.PathLike[str], calibration: Calibration, *, fingerprint: str | None = None
) -> Path:
    """Write calibration.json beside the saved model, whole or not at all, every digit kept.

    `fingerprint` is the sha256 of the model's weights; without one, that of model.safetensors in the folder.
    """
    home = Path(folder)
    kept = asdict(replace(calibration, fingerprint=_weights_of(home, fingerprint), fitted={}))
    kept["fitted"] = {name: _plain(each) for name, each in calibration.fitted.items()}
    text = json.dumps({"format": FORMAT, **kept}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return write_atomically(home / FILE, lambda file: file.write(text.encode()))


def read_calibration(folder: str | os.PathLike[str], *, fingerprint: str | None = None) -> Calibration | None:
    """What `write_calibration` wrote; None without a calibration.json. One of other weights is an error."""
    home = Path(folder)
    path = home / FILE
    if not path.is_file():
        return None
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        number = kept["format"]
        if type(number) is int and number > FORMAT:
            raise RunError(
                f"{path} was written by a newer cxrhf",
                got=f"format {number}",
                allowed=f"up to {FORMAT}",
                next_step="pip install --upgrade cxrhf",
            )
        calibration = _unpacked(kept)
    except RunError:
        raise
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror or error})", next_step=_AGAIN) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        raise RunError(f"{path} is damaged", got=said, next_step=_AGAIN) from None
    if calibration.fingerprint != (there := _weights_of(home, fingerprint)):
        raise RunError(
            f"{path} is the calibration of other weights than these",
            got=f"sha256 {str(calibration.fingerprint)[:12]}...",
            allowed=f"{there[:12]}...",
            next_step=_AGAIN,
        )
    return calibration


def calibration_lines(before: pa.Table, after: pa.Table, *, split: str = "validate") -> list[dict[str, Any]]:
    """How far probabilities can be believed before and after, per finding and split other than `split`.

    `split` is the one that the calibration was fitted on, where the numbers would flatter it. Each row: split, finding,
    n, n_pos and, ending in _before and _after, slope (1 = calibrated), ece and ace (expected and adaptive calibration
    error), ace_null (what ace averages when calibrated: it is not 0) and brier. NaN = undefined.
    """
    first, second = (check(each, PREDICTION, source="predictions") for each in (before, after))
    keys = ("image_id", "finding", "split", "label", "weight")
    if first.num_rows != second.num_rows or any(not first[key].equals(second[key]) for key in keys):
        raise TableError("the rows before and after are not the same", next_step="pass what apply_calibration returned")
    given = _read(first)
    splits = first["split"].to_numpy()
    both = {"before": _floats(first["prob"]), "after": _floats(second["prob"])}
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


def _method(name: str) -> Method:
    known: tuple[Method, ...] = get_args(Method)
    for each in known:
        if each == name:
            return each
    raise ConfigError("no such calibration", got=name, allowed=", ".join(known), next_step=did_you_mean(name, known))


def _one_model(table: pa.Table) -> tuple[str, int | None]:
    """The model and seed of all rows; calibrators of several models pooled would fit none of them."""
    for name in ("model", "seed"):
        if len(there := pc.unique(table[name]).to_pylist()) > 1:
            raise ConfigError(
                f"rows of {len(there)} {name}s cannot share a calibration",
                got=", ".join(str(each) for each in there[:10]),
                next_step=f"calibrate each {name} alone",
            )
    return (table["model"][0].as_py(), table["seed"][0].as_py()) if table.num_rows else ("", None)


def _of_split(table: pa.Table, split: str) -> pa.Table:
    if split.strip().lower().startswith("test"):
        raise ConfigError(
            "a calibration is never fitted on the test split",
            got=split,
            allowed="the split that models were chosen on, usually validate",
            next_step="fit on validate: labels that a calibrator has seen say nothing about how good it is",
        )
    chosen = table.filter(pc.equal(table["split"], split))
    if chosen.num_rows == 0:
        there = [str(each) for each in pc.unique(table["split"]).to_pylist()]
        raise ConfigError(
            "no rows to calibrate on",
            got=f"split {split!r}; the rows have {', '.join(there) or 'none'}",
            next_step=did_you_mean(split, there) or f"predict the images of the split {split} too",
        )
    return chosen


def _fit_finding(given: _Rows, at: int, method: Method, least: int, notes: dict[str, str]) -> Fitted | None:
    name = given.names[at]
    known = (given.finding == at) & ~np.isnan(given.label) & (given.weight > 0)
    rows = known & ~np.isnan(given.logit)
    y, score, weight, patient = given.label[rows], given.logit[rows], given.weight[rows], given.patient[rows]
    patients = [len(np.unique(patient[y == each])) for each in (1, 0)]
    if min(patients) < max(least, 1):
        lost = int(known.sum() - rows.sum())
        more = f" ({lost:,} more rows have a label but no logit)" if lost else ""
        notes[name] = f"{patients[0]:,} patients with and {patients[1]:,} without it, fewer than {max(least, 1)}{more}"
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
            "a temperature alone leaves it worse than the bare prevalence; platt also moves the mean"
        )
    return Fitted(made, len(y), int(y.sum()), len(np.unique(patient)))


def _fit_task(given: _Rows, task: str, classes: Integers, least: int, notes: dict[str, str]) -> Fitted | None:
    cells = _task(given, task, classes)
    one_class = (cells.label == 1).sum(axis=1) == 1
    rows = one_class & ~np.isnan(cells.label + cells.logit).any(axis=1) & (cells.weight > 0)
    true = np.argmax(cells.label[rows] == 1, axis=1)
    patient = given.patient[cells.place[rows, 0]] if rows.any() else np.zeros(0, dtype=np.int64)
    names = [given.names[each].partition("=")[2] for each in classes]
    patients = [len(np.unique(patient[true == each])) for each in range(len(names))]
    if sum(each >= max(least, 1) for each in patients) < 2:
        counts = ", ".join(f"{name} {each:,}" for name, each in zip(names, patients, strict=True))
        notes[task] = f"patients: {counts}; fewer than two classes with {max(least, 1)}"
        return None
    try:
        made = fit_temperature(cells.logit[rows], true, cells.weight[rows])
    except ConfigError as error:
        notes[task] = str(error)
        return None
    calibrator = Calibrator("temperature", np.array([1 / made]), np.zeros(1))
    return Fitted(calibrator, len(true), None, len(np.unique(patient)), tuple(names))


def _calibrate_task(given: _Rows, task: str, classes: Integers, fitted: Fitted, prob: Floats) -> None:
    """Put the task's probabilities where they belong in `prob`."""
    names = {given.names[each].partition("=")[2] for each in classes}
    if names != set(fitted.classes):
        raise TableError(
            f"{task}: the rows have other classes than the calibration",
            got=", ".join(sorted(names)),
            allowed=", ".join(sorted(fitted.classes)),
        )
    cells = _task(given, task, classes)
    if (cells.place < 0).any():
        raise TableError(f"{task}: an image lacks some of its classes", next_step="keep all rows of an image together")
    whole = ~np.isnan(cells.logit).any(axis=1)
    told = softmax(cells.logit[whole] * float(fitted.calibrator.x[0]), axis=1)
    prob[cells.place[whole]] = np.clip(told, LEAST, 1 - LEAST)


def _task(given: _Rows, task: str, classes: Integers) -> _Task:
    """Images x classes."""
    rows = np.flatnonzero(np.isin(given.finding, classes))
    column = np.searchsorted(classes, given.finding[rows])
    images, row = np.unique(given.image[rows], return_inverse=True)
    shape = (len(images), len(classes))
    place = np.full(shape, -1, dtype=np.int64)
    place[row, column] = rows
    if (place >= 0).sum() < len(rows):
        raise TableError(f"{task}: an image and class appear twice", next_step="keep one row of each")
    there = place >= 0
    weight = np.where(there, given.weight[place], np.nan)
    low, high = np.nanmin(weight, axis=1), np.nanmax(weight, axis=1)
    if (low != high).any():
        raise TableError(f"{task}: an image has different weights for its classes", next_step="give it one weight")
    logit, label = (np.where(there, each[place], np.nan) for each in (given.logit, given.label))
    return _Task(place, logit, label, low)


def _tasks(names: tuple[str, ...]) -> dict[str, Integers]:
    """Softmax task -> the numbers of its outputs."""
    found: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        if "=" in name:
            found.setdefault(name.partition("=")[0], []).append(at)
    return {task: np.array(numbers, dtype=np.int64) for task, numbers in found.items()}


def _read(table: pa.Table) -> _Rows:
    findings, finding = _codes(table["finding"])
    weight = _floats(table["weight"])
    return _Rows(
        names=findings,
        finding=finding,
        image=_codes(table["image_id"])[1],
        patient=_codes(table["patient_id"])[1],
        label=_floats(table["label"]),
        logit=_floats(table["logit"]),
        weight=np.where(np.isnan(weight), 1.0, weight),
    )


def _codes(column: pa.ChunkedArray) -> tuple[tuple[str, ...], Integers]:
    """Distinct values, sorted, and the number of each row's: nothing depends on the order of the rows."""
    coded = column.dictionary_encode().combine_chunks()
    values = np.array(coded.dictionary.to_pylist(), dtype=object)
    order = np.argsort(values)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return tuple(values[order]), rank[coded.indices.to_numpy(zero_copy_only=False)]


def _floats(column: pa.ChunkedArray) -> Floats:
    return np.array(column.cast(pa.float64()).to_numpy(), dtype=np.float64)


def _mean(y: Floats, weight: Floats) -> float:
    return float(np.sum(y * weight) / weight.sum())


def _loss(y: Floats, p: Floats, weight: Floats) -> float:
    """Weighted mean log loss of probabilities that are never 0 or 1."""
    return _mean(-np.log(np.where(y == 1, p, 1 - p)), weight)


def _weights_of(folder: Path, fingerprint: str | None) -> str:
    if fingerprint is not None:
        return fingerprint
    if not (folder / WEIGHTS).is_file():
        raise RunError(f"{folder} has no {WEIGHTS} that a calibration could belong to", next_step="name a saved model")
    return fingerprint_of(folder / WEIGHTS).sha256


def _plain(fitted: Fitted) -> dict[str, Any]:
    """What JSON keeps; its floats are written with every digit."""
    made = fitted.calibrator
    kept = {"method": made.method, "x": made.x.tolist(), "y": made.y.tolist(), "n": fitted.n, "n_pos": fitted.n_pos}
    return kept | {"n_patients": fitted.n_patients, "classes": list(fitted.classes)}


def _unpacked(kept: Mapping[str, Any]) -> Calibration:
    """What JSON kept, or an error that says which part is not what it should be."""
    for name in ("split", "model", "fingerprint"):
        if not isinstance(kept[name], str):
            raise ValueError(f"{name} is no text")
    if (
        kept["format"] != FORMAT
        or not isinstance(kept["dataset"], str | None)
        or type(kept["seed"]) not in (int, type(None))
    ):
        raise ValueError("format, dataset or seed")
    method = _method(kept["method"])
    fitted = {str(name): _fitted(name, about) for name, about in kept["fitted"].items()}
    notes = {str(name): str(note) for name, note in kept["notes"].items()}
    return Calibration(
        method, kept["split"], kept["dataset"], kept["model"], kept["seed"], fitted, notes, kept["fingerprint"]
    )


def _fitted(name: str, about: Mapping[str, Any]) -> Fitted:
    method, x, y = about["method"], *(np.array(about[each], dtype=np.float64) for each in ("x", "y"))
    good = x.ndim == 1 and x.shape == y.shape and len(x) > 0 and bool(np.isfinite(x).all() and np.isfinite(y).all())
    if method == "isotonic":
        good = good and bool((np.diff(x) >= 0).all() and (np.diff(y) >= 0).all() and y[0] > 0 and y[-1] < 1)
    elif method == "platt":
        good = good and len(x) == 1 and x[0] >= 0
    else:
        good = good and method == "temperature" and len(x) == 1 and x[0] > 0 and y[0] == 0
    n, n_pos, n_patients = about["n"], about["n_pos"], about["n_patients"]
    counts = [n, n_patients] if n_pos is None else [n, n_patients, n_pos]
    if not good or not all(type(each) is int and each >= 0 for each in counts):
        raise ValueError(f"{name} is no calibrator")
    return Fitted(Calibrator(method, x, y), n, n_pos, n_patients, tuple(map(str, about["classes"])))
