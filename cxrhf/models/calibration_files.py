"""The calibrators of a saved model <-> calibration.json beside it, bound to the weights that they were fitted for.

It carries the sha256 of the model's weights: a calibration of other weights is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from cxrhf.calibrate import Calibrator, method_of
from cxrhf.errors import RunError
from cxrhf.models.calibration import Calibration, Fitted
from cxrhf.run import fingerprint as fingerprint_of
from cxrhf.tables.files import write_atomically

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


def _plain(fitted: Fitted) -> dict[str, Any]:
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
        raise ValueError(f"{name} is not a calibrator")
    return Fitted(Calibrator(method, x, y), n, n_pos, n_patients, tuple(map(str, about["classes"])))
