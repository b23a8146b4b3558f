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


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value.tolist() if hasattr(value, "tolist") else value for key, value in params.items()}
