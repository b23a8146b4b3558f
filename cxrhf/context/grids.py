"""A way to read the notes and the name of a search -> the classifiers and parameters that are tried.

paper: Tables A.5 (encoder, 62 cells) and A.11 (words, 64 cells); what is fixed of each classifier (A.4, A.10) stands in
classifiers.KINDS. The paper's random_state is 42, here the run's seed. RidgeClassifierCV is one cell: it chooses among
its nine alphas itself. All seven classifiers of the words take sparse features.

default, words: only WordRidge, in nine cells. Real notes spread a finding over many words, the twin plants a few among
filler, so the choice that matters is how sharply words that go with the label are favoured. Mean AUROC in nested folds
of patients (cells chosen inside), on the twin (2,000 patients, 12 findings) and on real IU indications: these nine .696
and .619; l1 logistic regression .687 and .609; SGD .686 and .610; all of them together .693 and .614. Both data took
part in setting up the grid. On a twin of 3,000 patients that did not (planted .729): .714, .710, .702, .710. A forest
is behind too (.680 where WordRidge has .721, six findings); only on plain counts, as in the paper, it is ahead of
linear classifiers: .673 and .60 to .62.
default, encoder: on the same data (all-MiniLM) logistic regression and discriminant analysis were best, and no choice
among their cells was above another by more than chance; forests, neighbours, networks, GaussianNB and boosted trees
were behind by .02 to .1.
Cost of a fit, 20,000 images, one core: 8,192 words 1 to 3 s, 384 dimensions 1 s; 100 trees of XGBoost on words 10 s.

XGBoost: the paper makes 60 draws and does not publish the space. Here, each draw on its own:
    n_estimators      50, 100, 200; paper also 400       trees
    learning_rate     .02 to .15; paper .01 to .3        log scale, as all ranges
    max_depth         1, 2, 3, 4; paper also 6
    min_child_weight  1 to 30
    subsample         .5 to 1
    colsample_bytree  .1 to .6; paper to 1
    reg_lambda        .3 to 30
Deep and fast trees did worse on both data; the default leaves them out.
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
    ("words", "default"): (
        ("WordRidge", {"sharpness": (0.0,), "penalty": (3.0,)}),
        ("WordRidge", {"sharpness": (0.5,), "penalty": (1.0, 3.0, 10.0)}),
        ("WordRidge", {"sharpness": (1.0,), "penalty": (3.0, 10.0, 30.0)}),
        ("WordRidge", {"sharpness": (1.5,), "penalty": (10.0, 30.0)}),
    ),
    ("encoder", "default"): (
        ("LogisticRegression", {"C": (1.0, 3.0, 10.0)}),
        ("LinearDiscriminantAnalysis", {"solver": ("lsqr",), "shrinkage": (0.1, 0.5)}),
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
}


def candidates(kind: Kind, search: Search, *, draws: int, seed: int) -> tuple[Candidate, ...]:
    """All cells of a grid; for `boosted`, `draws` draws of XGBoost's space (more draws begin with the same ones)."""
    if kind not in FEATURES or search not in SEARCHES:
        raise ConfigError(
            "unknown search",
            got=f"{search} of {kind}",
            allowed=f"{' or '.join(SEARCHES)} of one of {', '.join(FEATURES)}",
        )
    if kind == "boosted":
        return tuple(_drawn(np.random.default_rng([seed, at]), wide=search == "paper") for at in range(draws))
    return tuple(
        Candidate(name, dict(zip(axes, cell, strict=True)))
        for name, axes in GRIDS[kind, search]
        for cell in product(*axes.values())
    )


def _drawn(rng: np.random.Generator, *, wide: bool) -> Candidate:
    def between(low: float, high: float) -> float:
        return float(f"{np.exp(rng.uniform(np.log(low), np.log(high))):.2g}")

    return Candidate(
        "XGBoost",
        {
            "n_estimators": int(rng.choice([50, 100, 200, 400][: 3 + wide])),
            "learning_rate": between(0.01, 0.3) if wide else between(0.02, 0.15),
            "max_depth": int(rng.choice([1, 2, 3, 4, 6][: 4 + wide])),
            "min_child_weight": between(1, 30),
            "subsample": between(0.5, 1),
            "colsample_bytree": between(0.1, 1 if wide else 0.6),
            "reg_lambda": between(0.3, 30),
        },
    )
