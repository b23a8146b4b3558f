"""What new layers say of test images -> RESULT rows with intervals by patient, and the lines that are printed of them.

Audit `split`. A class is measured against the rest (`race=Black`), two classes once (`sex=F`: `sex=M` is its mirror);
the mean over the classes of a target stands under the target's name (`race`), that over findings under `macro`. `tpr`,
`fpr` and `j` are at the threshold with the largest J on the images that stopped the layer, and hold it fixed. To read a
characteristic is neither good nor bad, so `higher_is_better` is null for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cxrhf.metrics.catalogue import METRICS
from cxrhf.metrics.draws import Draws, draw
from cxrhf.metrics.estimates import mean_over
from cxrhf.metrics.intervals import UnitCount, count_units, interval
from cxrhf.metrics.operating import rates_at
from cxrhf.metrics.ranking import auroc
from cxrhf.metrics.resample import bootstrap_many
from cxrhf.models.probe import Probed, probabilities
from cxrhf.models.probe_parts import is_test, patients_of
from cxrhf.models.tasks import Targets, Task, columns

Floats = NDArray[np.float64]
AUDIT = "split"
RATES = ("tpr", "fpr", "j")
_AT = "at the threshold with the largest TPR - FPR on the early-stopping images"


class Measured(NamedTuple):
    """RESULT rows as mappings, and a line for each output."""

    rows: list[dict[str, Any]]
    lines: list[str]


class _Output(NamedTuple):
    """One output: labels (NaN = unknown), metrics, their replicates, and the patients behind them."""

    name: str
    y: Floats
    values: dict[str, float]
    drawn: dict[str, Floats]
    units: UnitCount


def measure(
    table: pa.Table, probed: Probed, goal: Targets, *, model: str, n_resamples: int, seed: int, how: str
) -> Measured:
    """Every output on the rows of the split test. `how` says how the layers were learned."""
    at = np.flatnonzero(is_test(table) & ~np.isnan(probed.logits).any(axis=1))
    patients = patients_of(table)[at]
    datasets = table["dataset"].unique().to_pylist() if "dataset" in table.column_names else []
    prob = probabilities(probed.logits[at], probed.tasks)
    calls = np.where(np.isnan(probed.thresholds[at]), np.nan, prob >= probed.thresholds[at])
    y = np.where(goal[at] < 0, np.nan, goal[at].astype(np.float64))
    shared = {
        "audit": AUDIT, "dataset": datasets[0] if len(datasets) == 1 else None, "model": model, "slice": "all",
        "seed": seed,
    }  # fmt: skip
    rows, lines = [], []
    for task, place in columns(probed.tasks):
        outputs = _outputs(task, y[:, place], prob[:, place], calls[:, place], patients, n_resamples, seed)
        for each in outputs:
            made = [_row(task, each, name, patients, how) for name in ("auroc", *RATES)]
            rows += [shared | row for row in made]
            lines.append(f"{model}: {_line(made)}")
        if len(outputs) > 1:
            mean = _mean(task, outputs, patients, how)
            rows.append(shared | mean)
            lines.append(f"{model}: {mean['finding']}, {mean['note']}: AUROC {_shown(mean)}")
    return Measured(rows, lines)


def _outputs(
    task: Task, y: Floats, prob: Floats, calls: Floats, patients: NDArray[np.str_], n_resamples: int, seed: int
) -> list[_Output]:
    measured = range(1 if task.kind == "classes" and len(task.outputs) == 2 else len(task.outputs))
    # One draw of patients for all outputs of a task, and the same for every backbone: differences are paired.
    draws = draw(patients, y=y[:, : len(measured)], n_resamples=n_resamples, seed=seed)
    return [
        _output(
            task.outputs[k] if task.kind == "labels" else f"{task.name}={task.outputs[k]}",
            y[:, k], prob[:, k], calls[:, k], patients, draws,
        )
        for k in measured
    ]  # fmt: skip


def _output(name: str, y: Floats, p: Floats, calls: Floats, patients: NDArray[np.str_], draws: Draws) -> _Output:
    there = ~np.isnan(y)
    values = {"auroc": auroc(y[there], p[there])}
    drawn = bootstrap_many({"auroc": {}}, y, p, draws=draws)
    if np.isnan(calls[there]).any() or not there.any():
        values |= dict.fromkeys(RATES, np.nan)
    else:
        reached = rates_at(y[there], calls[there], 0.5)
        values |= {rate: getattr(reached, rate) for rate in RATES}
        drawn |= bootstrap_many({rate: {"threshold": 0.5} for rate in RATES}, y, np.nan_to_num(calls), draws=draws)
    return _Output(name, y, values, drawn, count_units(y, patients))


def _row(task: Task, output: _Output, metric: str, patients: NDArray[np.str_], how: str) -> dict[str, Any]:
    value = output.values[metric]
    row = _common(task, metric, output.name, value, output.drawn.get(metric), output.units, how)
    there = ~np.isnan(output.y)
    row |= {"n": int(there.sum()), "n_pos": int((output.y == 1).sum()), "n_patients": len(np.unique(patients[there]))}
    if np.isnan(value):
        lacking = [side for side, label in (("with it", 1), ("without it", 0)) if not (output.y == label).any()]
        why = f"no test image {lacking[0]}" if lacking else "the early-stopping images lack a class"
        return row | {"note": f"{metric} is undefined: {why}"}
    return row | {"note": _AT if metric in RATES else None}


def _mean(task: Task, outputs: list[_Output], patients: NDArray[np.str_], how: str) -> dict[str, Any]:
    """The unweighted mean AUROC over outputs that have one."""
    defined = [each for each in outputs if np.isfinite(each.values["auroc"])]
    what = "findings" if task.kind == "labels" else "classes, one against the rest"
    name = "macro" if task.kind == "labels" else task.name
    there = ~np.isnan(np.stack([each.y for each in outputs])).all(axis=0)
    counts = {"n": int(there.sum()), "n_pos": None, "n_patients": len(np.unique(patients[there]))}
    if not defined:
        row = _common(task, "auroc", name, np.nan, None, None, how)
        return row | counts | {"note": f"undefined for all {len(outputs)} {what}"}
    mean = mean_over([each.drawn["auroc"] for each in defined], [each.units for each in defined])
    value = float(np.mean([each.values["auroc"] for each in defined]))
    row = _common(task, "auroc", name, value, mean.replicates, mean.units, how)
    of = f"{len(defined)} of {len(outputs)}" if len(defined) < len(outputs) else f"{len(outputs)}"
    return row | counts | {"note": f"mean of {of} {what}"}


def _common(
    task: Task, metric: str, finding: str, value: float, drawn: Floats | None, units: UnitCount | None, how: str
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "metric": metric, "finding": finding, "value": value, "ci_low": np.nan, "ci_high": np.nan, "method": how,
        "higher_is_better": METRICS[metric].higher_is_better if task.kind == "labels" else None,
    }  # fmt: skip
    if drawn is None or np.isnan(value):
        return row
    found = interval(value, drawn, units=units, metric=metric)
    return row | {
        "ci_low": found.low, "ci_high": found.high, "method": f"{how}; 0.95 {found.method}, patients resampled",
    }  # fmt: skip


def _line(rows: list[dict[str, Any]]) -> str:
    """One output in a line."""
    first = rows[0]
    by = {row["metric"]: row["value"] for row in rows}
    counted = f"{first['n']:,} images, {first['n_patients']:,} patients"
    if np.isnan(first["value"]):
        return f"{first['finding']}: {first['note']} ({counted})"
    rates = f"; sensitivity {by['tpr']:.3f}, specificity {1 - by['fpr']:.3f}" if np.isfinite(by["j"]) else ""
    return f"{first['finding']}: AUROC {_shown(first)}{rates} ({counted})"


def _shown(row: dict[str, Any]) -> str:
    if np.isnan(row["value"]):
        return "undefined"
    ends = f" ({row['ci_low']:.3f} to {row['ci_high']:.3f})" if np.isfinite(row["ci_low"]) else " (no interval)"
    return f"{row['value']:.3f}{ends}"
