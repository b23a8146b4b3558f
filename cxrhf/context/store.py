"""Fitted context models <-> a folder without pickle, with a manifest that is checked when the models are read.

`save_models` and `load_models`: what a run keeps, to read other notes with. `save_one` and `load_one`: a finding and
family as soon as it is done, so that a fit that was stopped goes on where it was.
"""

from __future__ import annotations

import hashlib
import math
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cxrhf.context.material import Calibrator, Candidate, Fitted, Tried
from cxrhf.context.model_files import load_arrays, load_calibrator, load_model, save_arrays, save_calibrator, save_model
from cxrhf.context.sealed import Sealed, Unfit, open_sealed, require, versions, write_json, write_sealed
from cxrhf.context.settings import NO_NOTE
from cxrhf.encode.settings import EncodeConfig
from cxrhf.errors import ConfigError, CxrhfWarning, RunError
from cxrhf.settings import MENTION_RULES, from_mapping

MODELS, CHECKPOINT_KIND = "context models", "part of a context fit"
CONTENTS = "contents.json"
AGAIN = "copy the whole folder again, or fit again: cxrhf context fit BUILD --overwrite"


@dataclass(frozen=True, slots=True)
class StoredModel:
    """The classifier of a finding and its calibrator."""

    finding: str
    family: str
    kind: str  # "words", "boosted", "encoder"
    candidate: Candidate
    model: Any = field(repr=False)
    calibrator: Calibrator = field(repr=False)


@dataclass(frozen=True, slots=True)
class Bundle:
    """All that is needed to read other notes: models by finding, and by the name of their family how notes are read."""

    models: dict[str, StoredModel]
    vocabularies: dict[str, dict[str, Any]] = field(repr=False)
    encoders: dict[str, dict[str, Any]] = field(repr=False)  # {"settings": EncodeConfig's, "identity": ...}
    without_notes: dict[str, float]
    config: dict[str, Any] = field(repr=False)


def save_models(folder: Path, bundle: Bundle) -> None:
    """Write the models; the folder is there whole or not at all, and replaces models that were there."""
    with write_sealed(Path(folder), MODELS) as fresh:
        models = []
        for each in bundle.models.values():
            stem = file_stem(each.finding)
            about = {"finding": each.finding, "family": each.family, "kind": each.kind}
            models.append(about | _write_fitted(each, fresh, stem))
        vocabularies = {name: f"words-{file_stem(name)}.json" for name in bundle.vocabularies}
        for name, file in vocabularies.items():
            write_json(fresh / file, bundle.vocabularies[name])
        contents = {
            "models": models, "vocabularies": vocabularies, "encoders": bundle.encoders,
            "without_notes": bundle.without_notes, "config": bundle.config,
        }  # fmt: skip
        write_json(fresh / CONTENTS, contents)


def load_models(folder: Path) -> Bundle:
    """Read models; a RunError says what is wrong with the folder and what to do.

    Models of another minor version of scikit-learn are read with a CxrhfWarning.
    """
    sealed = open_sealed(Path(folder), MODELS, AGAIN)
    contents = sealed.json(CONTENTS)
    with sealed.reading(CONTENTS):
        vocabularies = {_text(name): _dict(sealed.json(_text(file))) for name, file in contents["vocabularies"].items()}
        encoders = {_text(name): _encoder(about) for name, about in contents["encoders"].items()}
        models: dict[str, StoredModel] = {}
        for each in contents["models"]:
            finding, family, kind = (_text(each[name]) for name in ("finding", "family", "kind"))
            if finding in models or family not in (encoders if kind == "encoder" else vocabularies):
                raise ValueError("models")
            width = encoders[family]["identity"]["dim"] if kind == "encoder" else len(vocabularies[family]["words"])
            candidate, model, calibrator = _read_fitted(each, sealed, width)
            models[finding] = StoredModel(finding, family, kind, candidate, model, calibrator)
        without = {_text(name): _share(value) for name, value in contents["without_notes"].items()}
        config = _config(contents["config"])
    sealed.finish()
    _same_versions(sealed, models)
    return Bundle(models, vocabularies, encoders, without, config)


def save_one(folder: Path, fingerprint: str, fitted: Fitted) -> None:
    """Keep a finding and family that is done. `fingerprint` says what it was made from."""
    with write_sealed(Path(folder), CHECKPOINT_KIND, fingerprint=fingerprint) as fresh:
        save_arrays(fresh / "probability.safetensors", {"probability": fitted.probability})
        about = {
            "family": fitted.family,
            "cv_auroc": _number(fitted.cv_auroc),
            "validation_auroc": _number(fitted.validation_auroc),
            "tried": [
                {
                    "candidate": _candidate(each.candidate), "auroc": _number(each.auroc),
                    "auroc_sd": _number(each.auroc_sd), "seconds": each.seconds, "failed": each.failed,
                    "unsettled": each.unsettled,
                }
                for each in fitted.tried
            ],
            "reasons": list(fitted.reasons),
        }  # fmt: skip
        write_json(fresh / CONTENTS, about | _write_fitted(fitted, fresh, "model"))


def load_one(folder: Path, fingerprint: str, width: int) -> Fitted | None:
    """What `save_one` kept; None where nothing is, or it was made from something else or by other versions.

    `width`: the number of features that its classifier must take.

    One that is damaged is None too, with a CxrhfWarning: it is fitted again.
    """
    place = Path(folder)
    if not place.exists():
        return None
    try:
        sealed = open_sealed(place, CHECKPOINT_KIND, "delete it; cxrhf fits it again")
        if sealed.manifest.get("fingerprint") != fingerprint or sealed.manifest["versions"] != versions():
            return None
        about = sealed.json(CONTENTS)
        with sealed.reading(CONTENTS):
            candidate, model, calibrator = _read_fitted(about, sealed, width)
            data = sealed.read("probability.safetensors")
            probability = load_arrays(data, ("probability",), missing=True)["probability"]
            tried = tuple(
                Tried(
                    _read_candidate(each["candidate"]), _float(each["auroc"]), _float(each["auroc_sd"]), np.zeros(0),
                    _float(each["seconds"]), None if each["failed"] is None else _text(each["failed"]),
                    int(each["unsettled"]),
                )
                for each in about["tried"]
            )  # fmt: skip
            found = Fitted(
                _text(about["family"]), candidate, model, calibrator, _float(about["cv_auroc"]),
                _float(about["validation_auroc"]), probability, tried, tuple(_text(each) for each in about["reasons"]),
            )  # fmt: skip
        sealed.finish()
    except RunError as error:
        warnings.warn(f"an earlier fit cannot be used and is repeated. {error}", CxrhfWarning, stacklevel=2)
        shutil.rmtree(place, ignore_errors=True)  # a part of it, when its removal was stopped, would be in the way
        return None
    return found


def _write_fitted(one: StoredModel | Fitted, folder: Path, stem: str) -> dict[str, Any]:
    return {
        "candidate": _candidate(one.candidate),
        "model": save_model(one.model, one.candidate, folder, stem),
        "calibrator": save_calibrator(one.calibrator, folder, stem),
    }


def _read_fitted(about: Mapping[str, Any], sealed: Sealed, width: Any) -> tuple[Candidate, Any, Calibrator]:
    if type(width) is not int or not 0 < width <= 1 << 20:  # no encoder and no vocabulary is wider
        raise ValueError("number of features")
    candidate = _read_candidate(about["candidate"])
    model = load_model(sealed, _text(about["model"]), candidate, width)
    return candidate, model, load_calibrator(sealed, about["calibrator"])


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {"kind": candidate.kind, "params": dict(candidate.params)}


def _read_candidate(about: Mapping[str, Any]) -> Candidate:
    """JSON has no tuples, parameters have no lists."""
    params = {_text(key): tuple(each) if isinstance(each, list) else each for key, each in about["params"].items()}
    return Candidate(_text(about["kind"]), params)


def file_stem(name: str) -> str:
    """A name as part of a file's name; what cannot be part of one (encoders may be paths) is told apart by its hash."""
    kept = "".join(each if each.isascii() and (each.isalnum() or each in "_-") else "_" for each in name)[:60]
    return kept if kept == name and kept[:1].isalnum() else f"x{kept}-{hashlib.sha256(name.encode()).hexdigest()[:10]}"


def _same_versions(sealed: Sealed, models: Mapping[str, StoredModel]) -> None:
    was, now = (str(each.get("scikit-learn", "")) for each in (sealed.manifest["versions"], versions()))
    ours = any(type(each.model).__module__.startswith("sklearn.") for each in models.values())
    if ours and was.split(".")[:2] != now.split(".")[:2]:
        warnings.warn(
            f"the models were fitted with scikit-learn {was} and run with {now}: their probabilities may differ. "
            "Fit again to be sure.",
            CxrhfWarning,
            stacklevel=3,
        )


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _float(value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("not a number")
    return float(value)


def _share(value: Any) -> float:
    if not 0 < _float(value) < 1:
        raise ValueError("not a probability")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


def _encoder(about: Any) -> dict[str, Any]:
    """Settings that EncodeConfig takes, and an identity of short values."""
    try:
        from_mapping(EncodeConfig, _dict(_dict(about)["settings"]))
    except ConfigError:
        raise Unfit("settings of an encoder") from None
    require(all(len(str(each)) < 1000 for each in _dict(about["identity"]).values()), "identity of an encoder")
    return _dict(about)


def _config(value: Any) -> dict[str, Any]:
    """Settings of the fit, of which those that reading notes needs are what they may be."""
    seed, no_note, rule = (_dict(value).get(name) for name in ("seed", "no_note", "mention_rule"))
    require(seed is None or (type(seed) is int and 0 <= seed < 2**63), "seed")
    require(no_note in (None, *NO_NOTE) and rule in (None, *MENTION_RULES), "settings of the fit")
    return _dict(value)


def _dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value
