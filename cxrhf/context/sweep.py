"""Candidates and one finding's images -> how well each does on patients it was not fitted to, best first.

Every candidate is fitted once for each fold to all other folds, and scores the fold that was left out. Its AUROC is the
mean over folds, each on its own scores (folds without one of the classes have none). Images without a label are scored
with their fold, not learned from. Images that nobody may learn from are left out before anything starts: their features
and labels do not even travel.

Work is spread by joblib, a fit at a time. Without `workers`: as the caller's `joblib.parallel_config` says (a Dask
cluster, for instance), else over all cores, else in this process where that is quicker. The numbers are the same.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy import sparse
from scipy.special import logit

from cxrhf.context.bow import bag_of
from cxrhf.context.bow import fit as fit_words
from cxrhf.context.material import Candidate, Family, Features, Flags, Floats, Integers, Labelled, Progress, Tried
from cxrhf.errors import ConfigError, CxrhfError, LeakageError, TableError, did_you_mean, shorten
from cxrhf.metrics import auroc
from cxrhf.tables.folders import end_with_parent

T = TypeVar("T")

# Values that all fits together read, below which starting processes takes longer than the fits.
QUICK = 3e7


class Scored(NamedTuple):
    """A fitted classifier and its scores of the images that were asked for; neither where it failed."""

    model: Any
    scores: Floats
    failed: str | None


class _HeldFold(NamedTuple):
    """What a candidate says of the fold it was not fitted to."""

    scores: Floats
    seconds: float
    settled: bool
    failed: str | None


def sweep_candidates(
    family: Family,
    data: Labelled,
    *,
    seed: int,
    workers: int | None = None,
    progress: Progress = lambda _: None,
) -> list[Tried]:
    """Cross-validate every candidate of a family; best first, those that failed last, ties in the order of the grid."""
    there = np.flatnonzero(data.learn & ((data.fold >= 0) | ~np.isnan(data.y)))
    y, patients, fold = data.y[there], data.patients[there], data.fold[there]
    folds = np.unique(fold[~np.isnan(y)])
    _checked(patients, fold, folds)
    sets, rows = np.unique(data.rows[there], return_inverse=True)
    packed = pack(family.features[sets])
    why = [_one_class(y[fold != each]) for each in folds]
    if any(why):
        reason = next(each for each in why if each)
        return [Tried(each, np.nan, np.nan, np.zeros(0), 0.0, reason) for each in family.candidates]

    tasks = [(each, held, seed, rows, y, patients, fold, *packed) for each in family.candidates for held in folds]
    size = packed[1].size / len(sets) * len(rows) * len(tasks)
    got: dict[int, list[_HeldFold | None]] = {at: [None] * len(folds) for at in range(len(family.candidates))}
    done: list[tuple[int, Tried]] = []
    for at, held in spread(_score_held_fold, tasks, workers=workers, quick=size < QUICK):
        mine = got[at // len(folds)]
        mine[at % len(folds)] = held
        if all(each is not None for each in mine):
            candidate = family.candidates[at // len(folds)]
            done.append((at // len(folds), _summarize_candidate(candidate, mine, y, fold, folds, there, len(data.y))))
            progress(_progress_text(family, done))
    return [each for _, each in sorted(done, key=_rank)]


def best_of_each_kind(tried: Sequence[Tried]) -> list[Tried]:
    """The best candidate of each kind of classifier, best first; those that failed are left out."""
    best: dict[str, Tried] = {}
    for each in sorted((each for each in tried if each.failed is None), key=lambda each: -each.auroc):
        best.setdefault(each.candidate.kind, each)
    return list(best.values())


def spread(
    function: Callable[..., T], tasks: Sequence[tuple[Any, ...]], *, workers: int | None, quick: bool = False
) -> Iterator[tuple[int, T]]:
    """The number and result of each task, as they come in. `quick`: not worth starting processes, unless asked for.

    Large arrays must be arguments of their own: then joblib hands them to each process once.
    """
    from joblib import Parallel, cpu_count, delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError
    from joblib.parallel import get_active_backend

    backend, n_jobs = get_active_backend()
    chosen = type(backend).__name__ != "LokyBackend" or n_jobs not in {None, 1}  # by joblib.parallel_config
    if workers is None and not chosen:
        workers = 1 if quick else cpu_count()
    if workers == 1 or len(tasks) < 2:
        yield from ((at, function(*task)) for at, task in enumerate(tasks))
        return
    streams = getattr(backend, "supports_return_generator", False)
    pool = Parallel(n_jobs=workers, return_as="generator_unordered" if streams else "list")
    own = os.getpid()
    try:
        yield from pool(delayed(_run_numbered)(at, own, function, *task) for at, task in enumerate(tasks))
    except TerminatedWorkerError as error:
        raise CxrhfError(
            "a process that fitted classifiers was killed, most likely because memory ran out",
            next_step="--workers 1, or use fewer words or encoders",
        ) from error


def pack(features: Features) -> tuple[Any, ...]:
    """Features as plain arrays, the only thing that joblib's backends all share instead of copying: width, arrays."""
    if isinstance(features, sparse.csr_array):
        if not features.has_canonical_format:
            features = features.copy()
            features.sum_duplicates()
        return features.shape[1], features.data, features.indices, features.indptr
    return features.shape[1], features


def unpack(width: int, *arrays: Any) -> Features:
    """What `pack` took apart."""
    if len(arrays) == 1:
        return arrays[0]
    found = sparse.csr_array(arrays, shape=(len(arrays[2]) - 1, width), copy=False)
    found.has_canonical_format = True  # else each task looks through all values to see
    return found


def fit_and_score(
    candidate: Candidate, features: Features, rows: Integers, y: Floats, patients: Integers, seed: int,
    seen: Integers, asked: Integers,
) -> Scored:  # fmt: skip
    """Fit to the images `seen` and score those `asked`; each distinct set of notes is scored once.

    What cannot be solved, one class alone and scores that are no numbers are a failure with its reason, not an error.
    """
    try:
        model = fit(candidate, features, rows[seen], y[seen], patients[seen], seed)
        sets, place = np.unique(rows[asked], return_inverse=True)
        found = scores(model, features[sets])[place]
    except ConfigError:
        raise
    except (ValueError, ArithmeticError) as error:
        said = str(error).strip() or type(error).__name__
        return Scored(None, np.zeros(0), shorten(said.splitlines()[0], 200))
    if not np.isfinite(found).all():
        return Scored(None, np.zeros(0), "its scores are not all numbers")
    return Scored(model, found, None)


def _run_numbered(at: int, parent: int, function: Callable[..., T], *task: Any) -> tuple[int, T]:
    if os.getppid() == parent:  # not a thread of it, nor a machine of a cluster
        end_with_parent(parent)
    return at, function(*task)


def _score_held_fold(
    candidate: Candidate, held: int, seed: int,
    rows: Integers, y: Floats, patients: Integers, fold: Integers, width: int, *arrays: Any,
) -> _HeldFold:  # fmt: skip
    """Fit to all folds but one and score that one."""
    features = unpack(width, *arrays)
    start = time.perf_counter()
    seen, asked = np.flatnonzero((fold != held) & ~np.isnan(y)), np.flatnonzero(fold == held)
    made = fit_and_score(candidate, features, rows, y, patients, seed, seen, asked)
    return _HeldFold(made.scores, time.perf_counter() - start, settled(made.model), made.failed)


def _summarize_candidate(
    candidate: Candidate, parts: Sequence[Any], y: Floats, fold: Integers, folds: Integers, there: Integers, n: int
) -> Tried:
    seconds = float(sum(each.seconds for each in parts))
    failed = next((each.failed for each in parts if each.failed), None)
    if failed:
        return Tried(candidate, np.nan, np.nan, np.zeros(0), seconds, failed)
    found = np.full(n, np.nan)
    areas = []
    for held, part in zip(folds, parts, strict=True):
        mine = fold == held
        found[there[mine]] = part.scores
        known = ~np.isnan(y[mine])
        areas.append(auroc(y[mine][known], part.scores[known]))
    defined = np.array(areas)[~np.isnan(areas)]
    if not defined.size:
        return Tried(candidate, np.nan, np.nan, np.zeros(0), seconds, "no fold has images with and without the finding")
    sd = float(defined.std(ddof=1)) if defined.size > 1 else np.nan
    unsettled = sum(not each.settled for each in parts)
    return Tried(candidate, float(defined.mean()), sd, found, seconds, None, unsettled)


def _rank(one: tuple[int, Tried]) -> tuple[bool, float, int]:
    at, tried = one
    return tried.failed is not None, -np.nan_to_num(tried.auroc), at


def _progress_text(family: Family, done: list[tuple[int, Tried]]) -> str:
    """`words 7 of 11 candidates, best so far LinearSVC(C=0.1) .712`."""
    best = min(done, key=_rank)[1]
    text = f"{family.name} {len(done)} of {len(family.candidates)} candidates"
    if best.failed is None:
        text += f", best so far {best.candidate.label} " + f"{best.auroc:.3f}"
    return text


def _one_class(y: Floats) -> str | None:
    if (y == 1).any() and (y == 0).any():
        return None
    return f"without one fold, no image {'without' if (y == 1).any() else 'with'} the finding remains to learn from"


def _checked(patients: Integers, fold: Integers, folds: Integers) -> None:
    if len(folds) < 2 or fold.min() < 0:
        raise TableError(
            "folds of the training images",
            allowed="two or more, with each image in one of them",
            got=f"{len(folds)}, with {int((fold < 0).sum()):,} images in none",
        )
    pairs = len(np.unique(np.column_stack([patients, fold]), axis=0))
    twice = pairs - len(np.unique(patients))
    if twice:
        raise LeakageError(
            f"{twice:,} patients are in two folds", counts={"patients in two folds": twice},
            next_step="assign the folds by patient",
        )  # fmt: skip


# Labels and patients -> folds for cross-validation: patients whole, labels spread evenly.


def deal(y: Floats, patients: Integers, learn: Flags, folds: int, seed: int) -> Integers:
    """The fold of each learning image, -1 elsewhere: patients whole, labels spread evenly, both classes in every fold.

    Patients without any label go round in turn. Numbers of patients count, the order of rows does not. Fewer patients
    with or without the finding than folds is an error (`too_few` says so beforehand).
    """
    from sklearn.model_selection import StratifiedGroupKFold

    who, of = np.unique(patients[learn], return_inverse=True)
    labels = y[learn]
    known = np.flatnonzero(~np.isnan(labels))
    known = known[np.lexsort((labels[known], of[known]))]
    has = np.zeros((len(who), 2), dtype=bool)  # patients x (without, with)
    has[of[known], labels[known].astype(np.int64)] = True
    if (has.sum(axis=0) < folds).any():
        raise ConfigError(
            "--folds",
            got=f"{folds} folds for {has[:, 1].sum():,} patients with the finding and {has[:, 0].sum():,} without",
            allowed="no more folds than patients with the finding and patients without it",
            next_step="use fewer folds",
        )
    place = np.full(len(who), -1)
    cuts = StratifiedGroupKFold(folds, shuffle=True, random_state=seed % 2**32)
    for at, (_, held) in enumerate(cuts.split(known, labels[known], of[known])):
        place[of[known[held]]] = at
    _mend(place, has, np.bincount(of, minlength=len(who)), folds)
    rest = np.flatnonzero(place < 0)
    place[rest] = np.arange(len(rest)) % folds
    fold = np.full(len(y), -1, dtype=np.int64)
    fold[learn] = place[of]
    return fold


def _mend(place: Integers, has: Flags, size: Integers, folds: int) -> None:
    """Give a class to folds that lack it: the smallest patient that its own fold can spare, from the fold with most."""
    for _ in range(4 * folds):
        count = np.array([np.bincount(place[one & (place >= 0)], minlength=folds) for one in has.T])
        lacking = np.argwhere(count == 0)
        if not len(lacking):
            return
        label, fold = lacking[0]
        spare = has[:, label] & (place >= 0) & (count[:, place] > has.T).all(axis=0)
        if not spare.any():
            return
        found = np.flatnonzero(spare)
        place[found[np.lexsort((found, size[found], -count[label, place[found]]))[0]]] = fold


# A candidate, features and labels -> a fitted classifier; a classifier and features -> scores; what a classifier
# uses.
#
# scikit-learn's classifiers with the fixed settings of the paper's Tables A.4 and A.10 (a candidate's parameters come
# on top), `WordRidge` (the penalised logistic regression of bow.py) and `XGBoost`. PassiveAggressiveClassifier leaves
# scikit-learn with 1.10; what its documentation names instead, SGDClassifier with learning_rate "pa1" and eta0 = C,
# gives the same coefficients.
#
# Scores rise with the odds of the finding. Where a classifier has a decision function, that; GaussianNB: the
# difference of its log likelihoods, which its probabilities round to 0 and 1; else the log odds of (1 - 2e) p + e, e
# = .001: vote shares are often exactly 0 or 1, and this keeps their order without ties. XGBoost: the margin. It takes
# what a sparse matrix does not hold as missing, in fitting and in scoring alike; stored zeros are dropped first, so
# that both are one.
#
# A fit uses one thread and its own seed, so the numbers do not depend on the machine or on how many fits run at once.

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
    with limit_threads():
        return KINDS[candidate.kind](candidate.params, features, rows, y, patients, seed % 2**31)


def scores(model: Any, features: Features) -> Floats:
    """One score for each row of the features; higher is more likely."""
    if not features.shape[0]:
        return np.zeros(0)
    if isinstance(model, Linear):
        found = features @ model.weight + model.intercept
    else:
        with limit_threads():
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


class _ThreadLimits:
    """How many fits run in this process, how to go back to what was set before the first, and what sets it."""

    lock = threading.Lock()
    running = 0
    back = ExitStack()
    controller: Any = None
    modules = 0


@contextmanager
def limit_threads() -> Iterator[None]:
    """One thread for BLAS and OpenMP, and no warnings on the screen: `settled` tells who did not converge.

    BLAS and warnings belong to the whole process and fits may run in its threads (Dask), so the first one in sets them
    and the last one out sets them back; OpenMP has a setting for each thread.
    """
    for name in ("scipy.linalg", "sklearn.utils"):  # their libraries must be there to be set
        import_module(name)
    with _ThreadLimits.lock:
        if len(sys.modules) != _ThreadLimits.modules:  # libraries come with modules; to look for them takes 5 ms
            _ThreadLimits.controller, _ThreadLimits.modules = (
                import_module("threadpoolctl").ThreadpoolController(),
                len(sys.modules),
            )
        controller = _ThreadLimits.controller
        if not _ThreadLimits.running:
            _ThreadLimits.back.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            limits = _run_in_thread(lambda: controller.limit(limits=1, user_api="blas"))
            _ThreadLimits.back.callback(_run_in_thread, limits.restore_original_limits)
        _ThreadLimits.running += 1
    try:
        with controller.limit(limits=1, user_api="openmp"), np.errstate(all="ignore"):
            yield
    finally:
        with _ThreadLimits.lock:
            _ThreadLimits.running -= 1
            if not _ThreadLimits.running:
                _ThreadLimits.back.close()


def _run_in_thread(work: Callable[[], Any]) -> Any:
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
    return model.fit(_select_rows(features, rows, np.float32 if name in SINGLE else np.float64), y.astype(np.int64))


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
    bag = bag_of(sparse.csr_array(_select_rows(features, sets, np.float64)), owner, row)
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
    matrix = _matrix(_select_rows(features, rows, np.float32), y)
    return xgboost.train({**fixed, **drawn}, matrix, num_boost_round=params["n_estimators"])


def _select_rows(features: Features, rows: Integers, dtype: Any) -> Features:
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


# The address of a Dask scheduler -> joblib fits classifiers there.

PATIENCE = 20  # seconds


@contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """Within it joblib's work goes to the cluster; without an address to whatever the caller has set."""
    if address is None:
        yield
        return
    try:
        from distributed import Client
        from joblib import parallel_config
    except ImportError:
        raise ConfigError(
            "--dask requires the packages dask and distributed", next_step="pip install 'cxrhf[cluster]'"
        ) from None
    try:
        client = Client(address, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--dask: no scheduler answers at {address} ({type(error).__name__})",
            next_step="start one with `dask scheduler`, then `dask worker ADDRESS` on each machine",
        ) from None
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError:
        client.close()
        raise ConfigError(
            f"--dask: the scheduler at {address} has no workers", next_step=f"start some with `dask worker {address}`"
        ) from None
    with client, parallel_config(backend="dask"):
        yield
