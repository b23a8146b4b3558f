"""PREDICTION rows of one image model -> a calibrator per finding -> the same rows, calibrated.

Fitted on the validation split, never on the test split. A finding gets a calibrator of the method asked for; outputs
that are classes of a softmax (rows named "sex=F", "race=Black", "view=AP") get one temperature per task, whatever the
method, so that their probabilities still sum to 1. What cannot be calibrated is left as the model gave it, and a note
says so. Only `prob` changes: `logit` stays what the model said, and is what calibrators read, so that calibrating twice
is calibrating once. `logit` of a class is its raw output or its log probability (a softmax does not mind which).
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import softmax

from cxrhf.errors import ConfigError, CxrhfWarning, RunError, TableError, did_you_mean
from cxrhf.learn import LEAST, Calibrator, apply_calibrator, fit_calibrator, fit_temperature, method_of
from cxrhf.learn import Calibration as Method
from cxrhf.metrics import adaptive_calibration_error, brier, calibration_line, expected_ace, expected_calibration_error
from cxrhf.models.predict import (
    KEY_COLUMNS,
    PredictionPlace,
    RunUpdate,
    add_tables,
    find_prediction_place,
    looked,
    saved_models,
)
from cxrhf.models.settings import CalibrateConfig, PredictConfig
from cxrhf.models.train_run import check_packages
from cxrhf.run import fingerprint as fingerprint_of
from cxrhf.schema import PREDICTION
from cxrhf.tables.checks import check
from cxrhf.tables.files import write_atomically

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Progress = Callable[[str], None]


MIN_PATIENTS = 10


@dataclass(frozen=True, slots=True)
class FittedCalibrator:
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
    fitted: Mapping[str, FittedCalibrator]
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
    fitted: dict[str, FittedCalibrator] = {}
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
            prob[mine] = apply_calibrator(calibration.fitted[name].calibrator, given.logit[mine])
    for task, classes in tasks_of(given.names).items():
        if task in calibration.fitted:
            _calibrate_task(given, task, classes, calibration.fitted[task], prob)
    for note in _uncalibrated_notes(given, calibration):
        warnings.warn(note, CxrhfWarning, stacklevel=2)
    at = table.column_names.index("prob")
    return table.set_column(at, table.schema.field(at), pa.chunked_array([pa.array(prob, from_pandas=True)]))


def _uncalibrated_notes(given: Rows, calibration: Calibration) -> list[str]:
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
                made.append(line | _measure_calibration(y, {when: p[mine] for when, p in both.items()}, weight))
    return made


def _measure_calibration(y: Floats, probabilities: Mapping[str, Floats], weight: Floats) -> dict[str, float]:
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


def _fit_finding(given: Rows, at: int, method: Method, least: int, notes: dict[str, str]) -> FittedCalibrator | None:
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
    if method == "temperature" and _loss(y, apply_calibrator(made, score), weight) > _loss(
        y, y * 0 + _mean(y, weight), weight
    ):
        notes[f"{name}, fit"] = (
            "after temperature scaling, probabilities are still worse than always predicting the prevalence; "
            "platt also shifts the mean"
        )
    return FittedCalibrator(made, len(y), int(y.sum()), len(np.unique(patient)))


def _fit_task(given: Rows, task: str, classes: Integers, least: int, notes: dict[str, str]) -> FittedCalibrator | None:
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
    return FittedCalibrator(calibrator, len(true), None, len(np.unique(patient)), tuple(names))


def _calibrate_task(given: Rows, task: str, classes: Integers, fitted: FittedCalibrator, prob: Floats) -> None:
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


# The calibrators of a saved model <-> calibration.json beside it, bound to the weights that they were fitted for.
#
# It carries the sha256 of the model's weights: a calibration of other weights is refused.

FORMAT = 1
FILE, WEIGHTS = "calibration.json", "model.safetensors"
_AGAIN = "cxrhf calibrate RUN"


def write_calibration(
    folder: str | os.PathLike[str], calibration: Calibration, *, fingerprint: str | None = None
) -> Path:
    """Write calibration.json beside the saved model, whole or not at all, every digit kept.

    `fingerprint` is the sha256 of the model's weights; without one, that of model.safetensors in the folder.
    """
    home = Path(folder)
    kept = asdict(replace(calibration, fingerprint=_weights_of(home, fingerprint), fitted={}))
    kept["fitted"] = {name: _to_record(each) for name, each in calibration.fitted.items()}
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
                allowed=f"format {FORMAT} or older",
                next_step="pip install --upgrade cxrhf",
            )
        calibration = _unpacked(kept)
    except RunError:
        raise
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror or error})", next_step=_AGAIN) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        raise RunError(f"{path} is damaged ({said})", next_step=_AGAIN) from None
    if calibration.fingerprint != (there := _weights_of(home, fingerprint)):
        raise RunError(
            f"{path} was fitted for other weights",
            got=f"sha256 {str(calibration.fingerprint)[:12]}...",
            allowed=f"sha256 {there[:12]}...",
            next_step=_AGAIN,
        )
    return calibration


def _weights_of(folder: Path, fingerprint: str | None) -> str:
    if fingerprint is not None:
        return fingerprint
    if not (folder / WEIGHTS).is_file():
        raise RunError(f"{folder} has no {WEIGHTS}", next_step="name the folder of a saved model")
    return fingerprint_of(folder / WEIGHTS).sha256


def _to_record(fitted: FittedCalibrator) -> dict[str, Any]:
    """What JSON keeps; its floats are written with every digit."""
    made = fitted.calibrator
    kept = {"method": made.method, "x": made.x.tolist(), "y": made.y.tolist(), "n": fitted.n, "n_pos": fitted.n_pos}
    return kept | {"n_patients": fitted.n_patients, "classes": list(fitted.classes)}


def _unpacked(kept: Mapping[str, Any]) -> Calibration:
    """What JSON kept, or an error that says which part is not what it should be."""
    for name in ("split", "model", "fingerprint"):
        if not isinstance(kept[name], str):
            raise ValueError(f"{name} is not text")
    if (
        kept["format"] != FORMAT
        or not isinstance(kept["dataset"], str | None)
        or type(kept["seed"]) not in (int, type(None))
    ):
        raise ValueError("a bad format, dataset or seed")
    method = method_of(kept["method"])
    fitted = {str(name): _parse_fitted(name, about) for name, about in kept["fitted"].items()}
    notes = {str(name): str(note) for name, note in kept["notes"].items()}
    return Calibration(
        method, kept["split"], kept["dataset"], kept["model"], kept["seed"], fitted, notes, kept["fingerprint"]
    )


def _parse_fitted(name: str, about: Mapping[str, Any]) -> FittedCalibrator:
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
        raise ValueError(f"{name} is not a calibrator")
    return FittedCalibrator(Calibrator(method, x, y), n, n_pos, n_patients, tuple(map(str, about["classes"])))


# PREDICTION rows -> arrays to calibrate with: findings one by one, the classes of a softmax task side by side.


class Rows(NamedTuple):
    """Columns of PREDICTION as arrays; NaN = null, weight 1 where there is none."""

    names: tuple[str, ...]
    finding: Integers
    image: Integers
    patient: Integers
    label: Floats
    logit: Floats
    weight: Floats


class TaskCells(NamedTuple):
    """The rows of a softmax task, images x classes; `place` is where a cell stands in the table, -1 = nowhere."""

    place: Integers
    logit: Floats
    label: Floats
    weight: Floats


def task_cells(given: Rows, task: str, classes: Integers) -> TaskCells:
    """Images x classes."""
    rows = np.flatnonzero(np.isin(given.finding, classes))
    column = np.searchsorted(classes, given.finding[rows])
    images, row = np.unique(given.image[rows], return_inverse=True)
    shape = (len(images), len(classes))
    place = np.full(shape, -1, dtype=np.int64)
    place[row, column] = rows
    if (place >= 0).sum() < len(rows):
        raise TableError(
            f"{task}: several rows have the same image and class", next_step="keep one row per image and class"
        )
    there = place >= 0
    weight = np.where(there, given.weight[place], np.nan)
    low, high = np.nanmin(weight, axis=1), np.nanmax(weight, axis=1)
    if (low != high).any():
        raise TableError(
            f"{task}: the rows of an image have different weights",
            next_step="give every row of an image the same weight",
        )
    logit, label = (np.where(there, each[place], np.nan) for each in (given.logit, given.label))
    return TaskCells(place, logit, label, low)


def tasks_of(names: tuple[str, ...]) -> dict[str, Integers]:
    """Softmax task -> the numbers of its outputs."""
    found: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        if "=" in name:
            found.setdefault(name.partition("=")[0], []).append(at)
    return {task: np.array(numbers, dtype=np.int64) for task, numbers in found.items()}


def read_rows(table: pa.Table) -> Rows:
    findings, finding = _codes(table["finding"])
    weight = floats(table["weight"])
    return Rows(
        names=findings,
        finding=finding,
        image=_codes(table["image_id"])[1],
        patient=_codes(table["patient_id"])[1],
        label=floats(table["label"]),
        logit=floats(table["logit"]),
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


def floats(column: pa.ChunkedArray) -> Floats:
    return np.array(column.cast(pa.float64()).to_numpy(), dtype=np.float64)


# A trained run -> calibrators fitted on validation images, saved with each model, and its predictions with them.


def calibrate_run(config: CalibrateConfig, show: Progress) -> RunUpdate | None:
    """Fit on one split; what the run has predicted before is written again with the new probabilities.

    The calibrators are written first and the tables after them. Stopped in between, the same command writes all of it
    again from the logits, and until then a card compares both and is refused (report/card_facts.py).
    """
    from cxrhf.encode.processes import main_process, one_writer_of_all
    from cxrhf.tables.folders import one_writer

    folder = Path(config.run)
    if not (folder / "models").is_dir() and (folder / "predictions.parquet").is_file():
        if not main_process():
            return None
        with one_writer(folder, "calibrate"):
            return _calibrate_rows(config, folder)
    check_packages()
    saved_models(folder)
    asked = PredictConfig(config.run, build=config.build, splits=(config.split,), device=config.device)
    place = find_prediction_place(asked, "calibrate")
    from cxrhf.models.processes import make_accelerator

    make_accelerator(device=asked.device, precision=asked.precision)  # through which processes talk
    of_models = folder.parent.parent if folder.parent.name == "models" else folder  # RUN/models/seed-0 belongs to RUN
    with one_writer_of_all(of_models, "calibrate"), one_writer_of_all(place.out, "calibrate"):
        return _calibrate_models(config, asked, place, show)


def _calibrate_models(
    config: CalibrateConfig, asked: PredictConfig, place: PredictionPlace, show: Progress
) -> RunUpdate | None:
    """All calibrators and tables are made before the first is written; this process holds their folders."""
    import pyarrow as pa

    from cxrhf.models.predict import merge_rows, prediction_rows
    from cxrhf.schema import PREDICTION
    from cxrhf.tables.files import read_table

    lines, notes, fresh = [], [], []
    folders: dict[tuple[str, int], Path] = {}
    calibrations: dict[tuple[str, int], Any] = {}
    for model, about, tasks, images, seen, main in looked(asked, place, show, vectors=False):
        if not main:
            continue
        rows = pa.concat_tables(prediction_rows(images, tasks, seen.logits, model=about["name"], seed=about["seed"]))
        made = fit_calibration(rows, config.method, split=config.split)
        folders[about["name"], about["seed"]], calibrations[about["name"], about["seed"]] = model, made
        fresh.append(rows)
        lines.append(f"{about['name']}, seed {about['seed']}: {len(made.fitted)} of {_n_calibrators(tasks)} calibrated")
        notes += [f"{name}: {why}" for name, why in made.notes.items()]
    if not calibrations:
        return None
    before: dict[str, pa.Table] = {}
    for name in ("predictions", "characteristics"):
        path = place.out / f"{name}.parquet"
        there = read_table(path, PREDICTION) if path.is_file() else None
        new = _select_kind(pa.concat_tables(fresh), characteristics=name == "characteristics")
        if new.num_rows or there is not None:
            before[name] = _uncalibrate(merge_rows(new, there, KEY_COLUMNS), calibrations)
    after = {name: _apply_by_model(table, calibrations, apply_calibration) for name, table in before.items()}
    lines += _gain_lines(before, after, config.split)
    for which, made in calibrations.items():
        write_calibration(folders[which], made)
    add_tables(asked, place, {name: (table, KEY_COLUMNS) for name, table in after.items()})
    return RunUpdate(place.out, lines, [*dict.fromkeys(notes), *_stale_results_note(place.out)])


def _stale_results_note(run: Path) -> list[str]:
    """Results that were made before the probabilities changed."""
    there = (run / "results.parquet").is_file()
    return ["the results in this run were computed before calibration: audit it again"] if there else []


def _calibrate_rows(config: CalibrateConfig, folder: Path) -> RunUpdate:
    """A run that has predictions and no network of ours (zero-shot): calibrators beside the table."""
    from cxrhf.run import reopen_run

    run = reopen_run(folder)
    rows = run.table("predictions")
    whose = rows.group_by(["model", "seed"]).aggregate([]).to_pylist()
    if len(whose) != 1:
        raise RunError(
            f"{folder} has no saved model, and its predictions cannot be calibrated",
            got=f"predictions of {len(whose)} models",
            allowed="predictions of one model",
        )
    model, seed = whose[0]["model"], whose[0]["seed"]
    made = fit_calibration(rows, config.method, split=config.split)
    rows = _uncalibrate(rows, {(model, seed): made})
    calibrated = _apply_by_model(rows, {(model, seed): made}, apply_calibration)
    lines = [f"{model}: {len(made.fitted)} of {len(rows['finding'].unique())} calibrated"]
    lines += _gain_lines({"predictions": rows}, {"predictions": calibrated}, config.split)
    # There is no file of weights to bind it to: the name of the model stands for them.
    write_calibration(folder, made, fingerprint=hashlib.sha256(str(model).encode()).hexdigest())
    run.add("predictions", calibrated)
    run.finish()
    return RunUpdate(
        folder, lines, [*(f"{name}: {why}" for name, why in made.notes.items()), *_stale_results_note(folder)]
    )


def _apply_by_model(table: Any, calibrations: dict[tuple[str, int], Any], apply: Callable[..., Any]) -> Any:
    """Each model's rows by its own calibrators; rows of others stay as they are."""
    import warnings

    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    parts, left = [], np.ones(table.num_rows, dtype=bool)
    places = []
    for (model, seed), made in calibrations.items():
        same = pc.is_null(table["seed"]) if seed is None else pc.equal(table["seed"], seed)
        mine = np.asarray(pc.fill_null(pc.and_(pc.equal(table["model"], model), same), False))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what stays raw is in the notes of the fit
            parts.append(apply(table.filter(pa.array(mine)), made))
        places.append(np.flatnonzero(mine))
        left &= ~mine
    order = np.argsort(np.concatenate([*places, np.flatnonzero(left)]), kind="stable")
    return pa.concat_tables([*parts, table.filter(pa.array(left))]).take(pa.array(order))


def _uncalibrate(table: Any, calibrations: dict[tuple[str, int], Any]) -> Any:
    """Findings as the network gives them, whatever calibrated them before."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    from scipy.special import expit

    whose = np.array(
        [pair in calibrations for pair in zip(table["model"].to_pylist(), table["seed"].to_pylist(), strict=True)]
    )
    single = ~np.asarray(pc.match_substring(table["finding"], "="), dtype=bool)
    logit = np.asarray(pc.fill_null(table["logit"], float("nan")), dtype=np.float64)
    prob = np.asarray(pc.fill_null(table["prob"], float("nan")), dtype=np.float64)
    prob = np.where(whose & single & np.isfinite(logit), expit(logit), prob)
    at = table.column_names.index("prob")
    return table.set_column(at, table.schema.field("prob"), pa.array(prob, mask=np.isnan(prob)))


def _select_kind(rows: Any, *, characteristics: bool) -> Any:
    import pyarrow.compute as pc

    other = pc.match_substring(rows["finding"], "=")
    return rows.filter(other if characteristics else pc.invert(other))


def _n_calibrators(tasks: Any) -> int:
    return sum(len(task.outputs) if task.kind == "labels" else 1 for task in tasks)


def _gain_lines(before: dict[str, Any], after: dict[str, Any], split: str) -> list[str]:
    """Brier score and calibration slope before and after, on splits that were not fitted on; findings' mean."""
    import math

    if "predictions" not in before:
        return []
    rows = calibration_lines(before["predictions"], after["predictions"], split=split)
    said = []
    for name in dict.fromkeys(row["split"] for row in rows):
        there = [row for row in rows if row["split"] == name]

        def mean(what: str, there: list[dict[str, Any]] = there) -> str:
            values = [row[what] for row in there if row[what] is not None and math.isfinite(row[what])]
            return f"{sum(values) / len(values):.4f}" if values else "undefined"

        said.append(
            f"{name}, mean of {len(there)} findings: Brier {mean('brier_before')} -> {mean('brier_after')}, adaptive "
            f"calibration error {mean('ace_before')} -> {mean('ace_after')}"
        )
    return said or [f"only the split {split} has predictions: run cxrhf predict to see the effect on test"]
