"""A way to read the notes and the name of a search -> the classifiers and parameters that are tried.

paper: Tables A.5 (encoder, 62 cells) and A.11 (words, 64 cells); what is fixed of each classifier (A.4, A.10) stands in
classifiers.KINDS. The paper's random_state is 42, here the run's seed. RidgeClassifierCV is one cell: it chooses among
its nine alphas itself. All seven classifiers of the words take sparse features.

XGBoost's 60 draws: the paper does not publish its space. TODO
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Literal

import numpy as np

from cxrhf.config_context import FEATURES, SEARCHES
from cxrhf.context.parts import Candidate
from cxrhf.errors import ConfigError

Kind = Literal["words", "boosted", "encoder"]
Search = Literal["default", "paper"]
Grid = Sequence[tuple[str, Mapping[str, Sequence[Any]]]]

FOREST = {"n_estimators": (50, 100, 150), "max_depth": (None, 5, 10), "min_samples_leaf": (1, 5, 10)}

GRIDS: dict[tuple[str, str], Grid] = {
    ("encoder", "paper"): (
        ("Perceptron", {"alpha": (1e-5, 1e-4, 1e-3)}),
        ("RidgeClassifierCV", {}),
        ("PassiveAggressive", {"C": (0.01, 0.1, 0.5, 1.0)}),
        ("GaussianNB", {}),
        ("LinearDiscriminantAnalysis", {"solver": ("lsqr", "eigen"), "shrinkage": (None, "auto")}),
        ("RandomForestClassifier", FOREST),
        ("KNeighborsClassifier", {"n_neighbors": (3, 5, 7, 9)}),
        ("MLPClassifier", {"alpha": (1e-5, 1e-4, 1e-3), "hidden_layer_sizes": ((64,), (128,), (64, 32))}),
        ("LinearSVC", {"C": (0.1, 1.0, 10.0)}),
        ("SGDClassifier", {"alpha": (1e-5, 1e-4, 1e-3), "penalty": ("l1", "l2")}),
    ),
    ("words", "paper"): (
        ("Perceptron", {"alpha": (1e-6, 1e-5, 1e-4)}),
        ("RidgeClassifierCV", {}),
        ("PassiveAggressive", {"C": (0.001, 0.01, 0.1, 1.0)}),
        ("RandomForestClassifier", FOREST | {"n_estimators": (50, 100, 200), "max_depth": (10, 20, None)}),
        ("LinearSVC", {"C": (0.01, 0.1, 1.0, 10.0), "max_iter": (2000,)}),
        ("SGDClassifier", {"alpha": (1e-6, 1e-5, 1e-4), "penalty": ("l1", "l2", "elasticnet")}),
        ("DecisionTreeClassifier", {"max_depth": (5, 10, 20, None), "min_samples_leaf": (1, 5, 10, 20)}),
    ),
    ("words", "default"): (
        ("WordRidge", {"penalty": (1.0, 3.0, 10.0)}),
        ("LogisticRegression", {"C": (0.1, 0.3, 1.0)}),
    ),
    ("encoder", "default"): (
        ("LogisticRegression", {"C": (0.1, 1.0, 10.0, 100.0)}),
        ("LinearDiscriminantAnalysis", {"solver": ("lsqr",), "shrinkage": ("auto",)}),
    ),
}


def candidates(kind: Kind, search: Search, *, draws: int, seed: int) -> tuple[Candidate, ...]:
    """All cells of a grid; for `boosted`, `draws` draws of XGBoost's space (more draws begin with the same ones)."""
    if kind not in FEATURES or search not in SEARCHES:
        raise ConfigError(
            "no such search", got=f"{search} of {kind}",
            allowed=f"{' or '.join(SEARCHES)} of {', '.join(FEATURES)}",
        )  # fmt: skip
    if kind == "boosted":
        return tuple(_drawn(np.random.default_rng([seed, at])) for at in range(draws))
    return tuple(
        Candidate(name, dict(zip(axes, cell, strict=True)))
        for name, axes in GRIDS[kind, search]
        for cell in product(*axes.values())
    )


def _drawn(rng: np.random.Generator) -> Candidate:
    def between(low: float, high: float) -> float:
        return float(f"{np.exp(rng.uniform(np.log(low), np.log(high))):.2g}")

    return Candidate(
        "XGBoost",
        {
            "n_estimators": int(rng.choice([50, 100, 200, 400])),
            "learning_rate": between(0.02, 0.3),
            "max_depth": int(rng.choice([1, 2, 3, 4, 6])),
            "min_child_weight": between(1, 30),
            "subsample": between(0.5, 1),
            "colsample_bytree": between(0.1, 1),
            "reg_lambda": between(0.3, 30),
        },
    )
