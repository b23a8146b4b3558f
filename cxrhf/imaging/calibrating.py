"""A trained run -> calibrators fitted on validation images, saved with each model, and its predictions with them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cxrhf.config_models import CalibrateConfig, PredictConfig
from cxrhf.errors import RunError
from cxrhf.imaging.opened import check_packages
from cxrhf.imaging.predicting import SAME, Place, Written, add, find, looked, saved_models

Progress = Callable[[str], None]


def calibrate_run(config: CalibrateConfig, show: Progress) -> Written | None:
    """Fit on one split; what the run has predicted before is written again with the new probabilities.

    The calibrators are written first and the tables after them. Stopped in between, the same command writes all of it
    again from the logits, and until then a card compares both and is refused (report/card_calibration.py).
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
    place = find(asked, "calibrate")
    from cxrhf.models.processes import make_accelerator

    make_accelerator(device=asked.device, precision=asked.precision)  # through which processes talk
    of_models = folder.parent.parent if folder.parent.name == "models" else folder  # RUN/models/seed-0 belongs to RUN
    with one_writer_of_all(of_models, "calibrate"), one_writer_of_all(place.out, "calibrate"):
        return _calibrate_models(config, asked, place, show)


def _calibrate_models(config: CalibrateConfig, asked: PredictConfig, place: Place, show: Progress) -> Written | None:
    """All calibrators and tables are made before the first is written; this process holds their folders."""
    import pyarrow as pa

    from cxrhf.models.calibration import apply_calibration, fit_calibration
    from cxrhf.models.calibration_files import write_calibration
    from cxrhf.models.rows import merged, prediction_rows
    from cxrhf.schema import PREDICTION, read_table

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
        new = _of_kind(pa.concat_tables(fresh), characteristics=name == "characteristics")
        if new.num_rows or there is not None:
            before[name] = _raw(merged(new, there, SAME), calibrations)
    after = {name: _applied(table, calibrations, apply_calibration) for name, table in before.items()}
    lines += _gains(before, after, config.split)
    for which, made in calibrations.items():
        write_calibration(folders[which], made)
    add(asked, place, {name: (table, SAME) for name, table in after.items()})
    return Written(place.out, lines, [*dict.fromkeys(notes), *_stale(place.out)])


def _stale(run: Path) -> list[str]:
    """Results that were made before the probabilities changed."""
    there = (run / "results.parquet").is_file()
    return ["the results in this run were computed before calibration: audit it again"] if there else []


def _calibrate_rows(config: CalibrateConfig, folder: Path) -> Written:
    """A run that has predictions and no network of ours (zero-shot): calibrators beside the table."""
    from cxrhf.models.calibration import apply_calibration, fit_calibration
    from cxrhf.models.calibration_files import write_calibration
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
    rows = _raw(rows, {(model, seed): made})
    calibrated = _applied(rows, {(model, seed): made}, apply_calibration)
    lines = [f"{model}: {len(made.fitted)} of {len(rows['finding'].unique())} calibrated"]
    lines += _gains({"predictions": rows}, {"predictions": calibrated}, config.split)
    # There is no file of weights to bind it to: the name of the model stands for them.
    write_calibration(folder, made, fingerprint=hashlib.sha256(str(model).encode()).hexdigest())
    run.add("predictions", calibrated)
    run.finish()
    return Written(folder, lines, [*(f"{name}: {why}" for name, why in made.notes.items()), *_stale(folder)])


def _applied(table: Any, calibrations: dict[tuple[str, int], Any], apply: Callable[..., Any]) -> Any:
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


def _raw(table: Any, calibrations: dict[tuple[str, int], Any]) -> Any:
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


def _of_kind(rows: Any, *, characteristics: bool) -> Any:
    import pyarrow.compute as pc

    other = pc.match_substring(rows["finding"], "=")
    return rows.filter(other if characteristics else pc.invert(other))


def _n_calibrators(tasks: Any) -> int:
    return sum(len(task.outputs) if task.kind == "labels" else 1 for task in tasks)


def _gains(before: dict[str, Any], after: dict[str, Any], split: str) -> list[str]:
    """Brier score and calibration slope before and after, on splits that were not fitted on; findings' mean."""
    import math

    from cxrhf.models.calibration import calibration_lines

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
