"""calibration.json beside weights, and the predictions that were audited -> what a card may say of both.

`cxrhf calibrate` writes calibrators and tables one after the other, and `cxrhf predict --raw` leaves calibrators aside.
So a calibration.json says nothing of the numbers of a card: the probabilities themselves are compared with what the
calibrators make of their logits.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cxrhf.errors import RunError
from cxrhf.tables.json_files import read_object

CALIBRATION, ABOUT = "calibration.json", "cxrhf.json"
CLOSE = 1e-4  # probabilities may have been rounded on their way


def calibration_facts(weights: Path, run: Path) -> dict[str, Any] | None:
    """Method, split and outputs of a network's calibration; None where nothing could be fitted.

    `applied`: whether the predictions in `run` are calibrated by it; None where they have no logits to tell. Some that
    are and some that are not are an error: the table is from before, or was written in part.
    """
    said = _read(weights)
    fitted = said.get("fitted")
    if not isinstance(fitted, dict) or not fitted:
        return None
    return {"method": said.get("method"), "split": said.get("split"), "fitted": len(fitted),
            "outputs": sorted(fitted), "applied": _is_applied(weights, run, fitted)}  # fmt: skip


def _read(folder: Path) -> dict[str, Any]:
    path = folder / CALIBRATION
    return read_object(path, next_step="cxrhf calibrate RUN") if path.is_file() else {}


def _is_applied(weights: Path, run: Path, fitted: Mapping[str, Any]) -> bool | None:
    """Compare the rows of every seed that lies beside these weights."""
    import numpy as np
    import pyarrow.compute as pc
    from scipy.special import expit

    from cxrhf.schema import PREDICTION, read_table

    path = run / "predictions.parquet"
    if not path.is_file():
        return None
    table = read_table(path, PREDICTION)
    found: set[str] = set()  # of "calibrated", "raw", "neither"
    for folder in sorted(each.parent for each in weights.parent.glob(f"*/{ABOUT}")):
        about = read_object(folder / ABOUT, next_step="copy the whole folder again, or train again")
        seed = about.get("seed")
        rows = table.filter(pc.equal(table["model"], str(about.get("name"))))
        rows = rows.filter(pc.is_null(rows["seed"]) if seed is None else pc.equal(rows["seed"], seed))
        # A seed without calibrators beside one that has them is of before, or a calibration was stopped.
        calibrators = _read(folder).get("fitted") if (folder / CALIBRATION).is_file() else dict.fromkeys(fitted)
        for finding, calibrator in (calibrators or {}).items():
            mine = rows.filter(pc.equal(rows["finding"], finding))
            logit = np.asarray(mine["logit"].to_numpy(), dtype=np.float64)
            prob = np.asarray(mine["prob"].to_numpy(), dtype=np.float64)
            there = np.isfinite(logit) & np.isfinite(prob)
            if not there.any():
                continue
            ways = {"raw": expit(logit[there])}
            if calibrator is not None:
                ways = {"calibrated": _calibrated(calibrator, logit[there], folder), **ways}
            near = [name for name, made in ways.items() if np.abs(made - prob[there]).max() <= CLOSE]
            found.add(near[0] if near else "neither")
    if not found:
        return None
    if len(found) > 1 or "neither" in found:
        raise RunError(
            f"the probabilities in {run} do not match {CALIBRATION} of the weights: calibration was repeated or "
            "interrupted",
            next_step=f"cxrhf calibrate {shlex.quote(str(weights.parent.parent))}, then audit the run again",
        )
    return found == {"calibrated"}


def _calibrated(calibrator: Any, logit: Any, folder: Path) -> Any:
    import numpy as np

    from cxrhf.calibrate import Calibrator, calibrated, method_of

    try:
        x, y = (np.asarray(calibrator[each], dtype=np.float64) for each in ("x", "y"))
        return calibrated(Calibrator(method_of(calibrator["method"]), x, y), logit)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise RunError(
            f"{folder / CALIBRATION} is damaged ({type(error).__name__})", next_step="cxrhf calibrate RUN"
        ) from None


def calibrated_outputs(made: Mapping[str, Any]) -> Mapping[str, Any]:
    """The calibration that the numbers of a card rest on, as its facts have it; empty without one."""
    found = made.get("calibration")
    return found if isinstance(found, Mapping) and found.get("applied", True) is not False else {}
