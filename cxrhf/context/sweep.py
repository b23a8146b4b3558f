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
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy import sparse

from cxrhf.context.classifiers import fit, scores, settled
from cxrhf.context.parts import Candidate, Family, Features, Floats, Integers, Labelled, Progress, Tried
from cxrhf.errors import ConfigError, CxrhfError, LeakageError, TableError, shorten
from cxrhf.metrics import auroc
from cxrhf.tables.workers import end_with_parent

T = TypeVar("T")

# Values that all fits together read, below which starting processes takes longer than the fits.
QUICK = 3e7


class Scored(NamedTuple):
    """A fitted classifier and its scores of the images that were asked for; neither where it failed."""

    model: Any
    scores: Floats
    failed: str | None


class _Held(NamedTuple):
    """What a candidate says of the fold it was not fitted to."""

    scores: Floats
    seconds: float
    settled: bool
    failed: str | None


def sweep(
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
    got: dict[int, list[_Held | None]] = {at: [None] * len(folds) for at in range(len(family.candidates))}
    done: list[tuple[int, Tried]] = []
    for at, held in spread(_hold, tasks, workers=workers, quick=size < QUICK):
        mine = got[at // len(folds)]
        mine[at % len(folds)] = held
        if all(each is not None for each in mine):
            candidate = family.candidates[at // len(folds)]
            done.append((at // len(folds), _tried(candidate, mine, y, fold, folds, there, len(data.y))))
            progress(_said(family, done))
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
        yield from pool(delayed(_numbered)(at, own, function, *task) for at, task in enumerate(tasks))
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


def _numbered(at: int, parent: int, function: Callable[..., T], *task: Any) -> tuple[int, T]:
    if os.getppid() == parent:  # not a thread of it, nor a machine of a cluster
        end_with_parent(parent)
    return at, function(*task)


def _hold(
    candidate: Candidate, held: int, seed: int,
    rows: Integers, y: Floats, patients: Integers, fold: Integers, width: int, *arrays: Any,
) -> _Held:  # fmt: skip
    """Fit to all folds but one and score that one."""
    features = unpack(width, *arrays)
    start = time.perf_counter()
    seen, asked = np.flatnonzero((fold != held) & ~np.isnan(y)), np.flatnonzero(fold == held)
    made = fit_and_score(candidate, features, rows, y, patients, seed, seen, asked)
    return _Held(made.scores, time.perf_counter() - start, settled(made.model), made.failed)


def _tried(
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


def _said(family: Family, done: list[tuple[int, Tried]]) -> str:
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
