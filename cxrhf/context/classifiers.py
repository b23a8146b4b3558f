"""A candidate, features and labels -> a fitted classifier; a classifier and features -> scores; what a classifier uses.

scikit-learn's classifiers with the fixed settings of the paper's Tables A.4 and A.10 (a candidate's parameters come on
top), `WordRidge` (the penalised logistic regression of bow.py) and `XGBoost`. PassiveAggressiveClassifier leaves
scikit-learn with 1.10; what its documentation names instead, SGDClassifier with learning_rate "pa1" and eta0 = C, gives
the same coefficients.

Scores rise with the odds of the finding. Where a classifier has a decision function, that; GaussianNB: the difference
of its log likelihoods, which its probabilities round to 0 and 1; else the log odds of (1 - 2e) p + e, e = .001: vote
shares are often exactly 0 or 1, and this keeps their order without ties. XGBoost: the margin. It takes what a sparse
matrix does not hold as missing, in fitting and in scoring alike; stored zeros are dropped first, so that both are one.

A fit uses one thread and its own seed, so the numbers do not depend on the machine or on how many fits run at once.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import logit

from cxrhf.context.bow import bag_of
from cxrhf.context.bow import fit as fit_words
from cxrhf.context.parts import Candidate, Features, Floats, Integers
from cxrhf.errors import ConfigError, CxrhfError, TableError, did_you_mean

EDGE = 1e-3


class Linear(NamedTuple):
    """WordRidge's model: score = features @ weight + intercept."""

    weight: Floats
    intercept: float


class Importance(NamedTuple):
    """How much each feature counts: coefficients (signed: above 0 speaks for the finding), or shares of the splits."""

    values: Floats
    signed: bool


def fit(candidate: Candidate, features: Features, rows: Integers, y: Floats, patients: Integers, seed: int) -> Any:
    """The classifier fitted to images: `features[rows]` are theirs, `y` is 1 or 0, `patients` numbers their patients.

    Images may share a row of the features, and then share a patient. One class, or a label that is neither 1 nor 0, is
    an error; what a classifier cannot solve is its own error (ValueError, LinAlgError).
    """
    if candidate.kind not in KINDS:
        raise ConfigError(
            "unknown classifier", got=candidate.kind, allowed=f"one of {', '.join(KINDS)}",
            next_step=did_you_mean(candidate.kind, KINDS),
        )  # fmt: skip
    if set(np.unique(y)) != {0.0, 1.0}:
        raise TableError(
            "images for a classifier",
            allowed="images with and without the finding",
            got=f"{np.sum(y == 1):,} with label 1 and {np.sum(y == 0):,} with label 0, of {len(y):,} in total",
        )
    with calm():
        return KINDS[candidate.kind](candidate.params, features, rows, y, patients, seed % 2**31)


def scores(model: Any, features: Features) -> Floats:
    """One score for each row of the features; higher is more likely."""
    if not features.shape[0]:
        return np.zeros(0)
    if isinstance(model, Linear):
        found = features @ model.weight + model.intercept
    else:
        with calm():
            found = _booster_scores(model, features) if _is_booster(model) else _sklearn_scores(model, features)
    return np.asarray(found, dtype=np.float64)


def importance(model: Any, n_features: int) -> Importance | None:
    """What the classifier rests on; None where it cannot say (neighbours, networks, GaussianNB).

    Linear models: coefficients in the units of the features. Trees and forests: impurity taken away, XGBoost: the gain
    of all splits on a feature; both as shares that add up to 1 (all 0 where there is no split).
    """
    if isinstance(model, Linear):
        return Importance(model.weight, True)
    if _is_booster(model):
        values = np.zeros(n_features)
        for name, gain in model.get_score(importance_type="total_gain").items():
            values[int(name.removeprefix("f"))] = gain
        return Importance(values / max(values.sum(), 1e-300), False)
    if hasattr(model, "coef_"):
        return Importance(np.asarray(model.coef_, dtype=np.float64).ravel(), True)
    if hasattr(model, "feature_importances_"):
        return Importance(np.asarray(model.feature_importances_, dtype=np.float64), False)
    return None


def settled(model: Any) -> bool:
    """False where the search for the best coefficients ended at its last allowed step."""
    taken, allowed = getattr(model, "n_iter_", None), getattr(model, "max_iter", None)
    return taken is None or allowed is None or bool(np.max(taken) < allowed)


class _Calm:
    """How many fits run in this process, how to go back to what was set before the first, and what sets it."""

    lock = threading.Lock()
    running = 0
    back = ExitStack()
    controller: Any = None
    modules = 0


@contextmanager
def calm() -> Iterator[None]:
    """One thread for BLAS and OpenMP, and no warnings on the screen: `settled` tells who did not converge.

    BLAS and warnings belong to the whole process and fits may run in its threads (Dask), so the first one in sets them
    and the last one out sets them back; OpenMP has a setting for each thread.
    """
    for name in ("scipy.linalg", "sklearn.utils"):  # their libraries must be there to be set
        import_module(name)
    with _Calm.lock:
        if len(sys.modules) != _Calm.modules:  # libraries come with modules; to look for them takes 5 ms
            _Calm.controller, _Calm.modules = import_module("threadpoolctl").ThreadpoolController(), len(sys.modules)
        controller = _Calm.controller
        if not _Calm.running:
            _Calm.back.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            limits = _aside(lambda: controller.limit(limits=1, user_api="blas"))
            _Calm.back.callback(_aside, limits.restore_original_limits)
        _Calm.running += 1
    try:
        with controller.limit(limits=1, user_api="openmp"), np.errstate(all="ignore"):
            yield
    finally:
        with _Calm.lock:
            _Calm.running -= 1
            if not _Calm.running:
                _Calm.back.close()


def _aside(work: Callable[[], Any]) -> Any:
    """Done by a thread that ends at once: while the thread that set BLAS lives, threadpoolctl lets no other set it."""
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(work()))
    thread.start()
    thread.join()
    return done[0]


def _fit_sklearn(
    module: str, name: str, fixed: Mapping[str, Any],
    params: Mapping[str, Any], features: Features, rows: Integers, y: Floats, patients: Integers, seed: int,
) -> Any:  # fmt: skip
    model = getattr(import_module(f"sklearn.{module}"), name)(**{**fixed, **params})
    named = model.get_params(deep=False)
    # n_jobs: left alone it would follow the caller's joblib settings, and sums would depend on the order of threads.
    model.set_params(**{key: value for key, value in (("random_state", seed), ("n_jobs", 1)) if key in named})
    return model.fit(_taken(features, rows, np.float32 if name in SINGLE else np.float64), y.astype(np.int64))


def _fit_passive(params: Mapping[str, Any], *rest: Any) -> Any:
    fixed = {"loss": "hinge", "penalty": None, "learning_rate": "pa1", "eta0": params["C"]}
    return _fit_sklearn("linear_model", "SGDClassifier", fixed, {}, *rest)


def _fit_ridge(
    params: Mapping[str, Any], features: Features, rows: Integers, y: Floats, patients: Integers, seed: int
) -> Linear:
    """Images with the same notes are one row with counted labels."""
    sets, row = np.unique(rows, return_inverse=True)
    owner = np.zeros(len(sets), dtype=np.int64)
    owner[row] = np.unique(patients, return_inverse=True)[1]
    bag = bag_of(sparse.csr_array(_taken(features, sets, np.float64)), owner, row)
    positive, negative = (np.bincount(row, share).astype(np.float64) for share in (y, 1 - y))
    return Linear(*fit_words(bag, np.arange(len(sets)), positive, negative, **params))


def _fit_booster(
    params: Mapping[str, Any], features: Features, rows: Integers, y: Floats, patients: Integers, seed: int
) -> Any:
    xgboost = _xgboost()
    # Counts of words have few values: 32 bins take a fifth of the time of the usual 256 and rank as well on the twin.
    fixed = {
        "objective": "binary:logistic", "tree_method": "hist", "max_bin": 32, "nthread": 1, "seed": seed,
        "verbosity": 0,
    }  # fmt: skip
    drawn = {key: value for key, value in params.items() if key != "n_estimators"}
    matrix = _matrix(_taken(features, rows, np.float32), y)
    return xgboost.train({**fixed, **drawn}, matrix, num_boost_round=params["n_estimators"])


def _taken(features: Features, rows: Integers, dtype: Any) -> Features:
    """Some rows, with the short indices that scikit-learn's solvers ask for."""
    found = features[rows].astype(dtype, copy=False)
    if isinstance(found, sparse.csr_array) and found.nnz < 2**31:
        found.indices, found.indptr = found.indices.astype(np.int32), found.indptr.astype(np.int32)
    return found


def _sklearn_scores(model: Any, features: Features) -> Any:
    if hasattr(model, "decision_function"):
        return model.decision_function(features)
    if hasattr(model, "predict_joint_log_proba"):
        likelihood = model.predict_joint_log_proba(features)
        return likelihood[:, 1] - likelihood[:, 0]
    return logit(EDGE + (1 - 2 * EDGE) * model.predict_proba(features)[:, 1])


def _booster_scores(model: Any, features: Features) -> Any:
    return model.predict(_matrix(features.astype(np.float32, copy=False)), output_margin=True)


def _matrix(features: Features, y: Floats | None = None) -> Any:
    if isinstance(features, sparse.csr_array) and features.count_nonzero() < features.nnz:
        features = features.copy()
        features.eliminate_zeros()
    return _xgboost().DMatrix(features, label=y, nthread=1)


def _is_booster(model: Any) -> bool:
    return type(model).__module__.startswith("xgboost.")


def _xgboost() -> Any:
    try:
        return import_module("xgboost")
    except ImportError as error:
        raise CxrhfError(
            "XGBoost is not installed", next_step="pip install 'cxrhf[context]', or omit \"boosted\" from --features"
        ) from error


SINGLE = ("RandomForestClassifier", "DecisionTreeClassifier", "KNeighborsClassifier")
KINDS: dict[str, Callable[..., Any]] = {
    "WordRidge": _fit_ridge,
    "XGBoost": _fit_booster,
    "PassiveAggressive": _fit_passive,
    **{
        name: partial(_fit_sklearn, module, name, fixed)
        for module, name, fixed in (
            ("linear_model", "Perceptron", {"penalty": "l2"}),
            ("linear_model", "RidgeClassifierCV", {"alphas": tuple(float(f"1e{power}") for power in range(-4, 5))}),
            ("linear_model", "SGDClassifier", {"loss": "log_loss"}),
            ("linear_model", "LogisticRegression", {"max_iter": 1000}),
            ("svm", "LinearSVC", {"dual": "auto"}),
            ("naive_bayes", "GaussianNB", {}),
            ("discriminant_analysis", "LinearDiscriminantAnalysis", {}),
            ("neighbors", "KNeighborsClassifier", {}),
            ("tree", "DecisionTreeClassifier", {}),
            ("ensemble", "RandomForestClassifier", {}),
            ("neural_network", "MLPClassifier",
             {"early_stopping": True, "validation_fraction": 0.1, "max_iter": 300}),
        )
    },
}  # fmt: skip
