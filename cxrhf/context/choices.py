"""A finding's fitted family -> what context.json says of it: classifier, parameters, everything tried, top words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from cxrhf.config_context import ContextFitConfig
from cxrhf.context.explain import top_features
from cxrhf.context.families import Families
from cxrhf.context.parts import Family, Fitted, Labelled
from cxrhf.context.sealed import must
from cxrhf.errors import shorten

KEPT = 50  # words of each finding


def describe(
    fitted: Fitted, family: Family, made: Families, data: Labelled, config: ContextFitConfig
) -> dict[str, Any]:
    """What context.json keeps of a finding's family."""
    from cxrhf.context.classifiers import importance

    found = importance(fitted.model, family.features.shape[1]) if family.feature_names else None
    learned = data.rows[data.learn & ~np.isnan(data.y)]
    words = (
        top_features(
            found.values, family.feature_names, made.n_patients[family.name], family.features[learned],
            top=KEPT, by_spread=config.search != "paper",
        )
        if found is not None
        else []
    )  # fmt: skip
    sd = next((each.auroc_sd for each in fitted.tried if each.candidate == fitted.candidate), math.nan)
    return {
        "kind": family.kind,
        "classifier": fitted.candidate.kind,
        "parameters": _plain(fitted.candidate.params),
        "calibration": fitted.calibrator.method,
        "cv_auroc": _number(fitted.cv_auroc),
        "cv_auroc_sd": _number(sd),
        "validation_auroc": _number(fitted.validation_auroc),
        "tried": [
            {
                "classifier": each.candidate.kind,
                "parameters": _plain(each.candidate.params),
                "cv_auroc": _number(each.auroc),
                "seconds": round(each.seconds, 3),
                "failed": each.failed,
                "unsettled": each.unsettled,  # fits that ended at their last allowed step
            }
            for each in fitted.tried
        ],
        "reasons": list(fitted.reasons),
        "features": words,
        "signed": None if found is None else found.signed,
    }


# What readers of context.json rely on: a type, several types, a list of one kind, an object of one kind (`...`) or with
# these entries at least.
_NUMBER = (int, float, type(None))
_FAMILY = {
    "kind": str, "classifier": str, "cv_auroc": _NUMBER, "validation_auroc": _NUMBER, "signed": (bool, type(None)),
    "features": [{"word": str, "value": (int, float), "rank": int}],
}  # fmt: skip
_CHOICES = {
    "format": int,
    "findings": {...: {"chosen": (str, type(None)), "reason": (str, type(None)), "n": int, "n_pos": int,
                       "families": {...: _FAMILY}}},
    "splits": {"learned": [str]},
}  # fmt: skip


def check_choices(choices: Any) -> dict[str, Any]:
    """What context.json holds, if every reader can use it; else an `Unfit` that names the entry."""
    _check(choices, _CHOICES, "it")
    for name, each in choices["findings"].items():
        must(bool(each["reason"]) or each["chosen"] in each["families"], f'finding "{shorten(name, 60)}" has no model')
    return dict(choices)


def _check(value: Any, kind: Any, where: str) -> None:
    if isinstance(kind, list):
        must(isinstance(value, list), f"{where} is not a list")
        for each in value:
            _check(each, kind[0], f"an entry of {where}")
    elif isinstance(kind, dict):
        must(isinstance(value, dict), f"{where} is not an object")
        for name, inner in kind.items():
            for key in value if name is ... else [name]:
                must(key in value, f"{name} is missing")
                _check(value[key], inner, shorten(key, 60))
    else:
        right = isinstance(value, kind) and (not isinstance(value, bool) or bool in np.atleast_1d(kind))
        must(right, f"{where} has the wrong type")


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value.tolist() if hasattr(value, "tolist") else value for key, value in params.items()}
