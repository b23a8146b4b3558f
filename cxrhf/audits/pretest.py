"""PREDICTION -> PREDICTION with `pretest`: the probability of each finding before the image is seen, from the table.

`--pretest from:age,sex,view,race,prior_labels` fits one small ridge logistic regression per finding and dataset, with
five folds of patients: a row's probability comes from models that never saw its patient. Images of all splits and all
models are used, each once. Known limits: it knows only what the table holds, so context beyond that (the notes) is not
controlled; a finding with fewer than ten positive or negative patients gets none.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray
from scipy.special import expit

from cxrhf.audits.sample import patients_in
from cxrhf.errors import TableError
from cxrhf.metrics.ranking import auroc
from cxrhf.metrics.reliability import calibration_line
from cxrhf.tables.columns import PRETEST_SOURCES, pretest_sources

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FittedPretest:
    """The table with `pretest` filled, sentences for the reader, and the facts for run.json."""

    table: pa.Table
    notes: tuple[str, ...]
    about: dict[str, Any]


def fit_pretest(
    predictions: pa.Table,
    sources: Sequence[str],
    *,
    times: pa.Table | None,
    seed: int,
    progress: Callable[[str], None] | None = None,
) -> FittedPretest:
    """Fill `pretest` from `sources` (of age, sex, view, race, prior_labels); `times` is `Loaded.times`.

    The numbers depend on the table and the seed, not on the order of the rows.
    """
    wanted = _check_sources(predictions, sources, times)
    said = (
        [] if predictions["pretest"].null_count == len(predictions) else ["the pretest column of the table is replaced"]
    )
    values = np.full(len(predictions), np.nan)
    datasets = sorted(pc.unique(predictions["dataset"]).to_pylist(), key=lambda name: name or "")
    ranking, slope, n_features = dict[str, float | None](), dict[str, float | None](), 0
    for dataset in datasets:
        column = predictions["dataset"]
        rows = np.flatnonzero(pc.is_null(column) if dataset is None else pc.equal(column, dataset).fill_null(False))
        images = gather(predictions.take(pa.array(rows)) if len(datasets) > 1 else predictions, times)
        where = f" in {dataset}" if len(datasets) > 1 else ""
        features = context_features(images, wanted, said, where)
        filled = np.full(images.y.shape, np.nan)
        for k, finding in enumerate(images.findings):
            if progress is not None:
                progress(f"pre-test probability of {finding}{where} ({k + 1} of {len(images.findings)})")
            design = np.column_stack([features.shared, features.own[k]])
            n_features = max(n_features, design.shape[1])
            fitted = _one_finding(images, k, design, seed)
            if isinstance(fitted, str):
                said.append(f"{finding}{where}: no pre-test probability, {fitted}")
                continue
            filled[:, k] = fitted
            known = ~np.isnan(images.y[:, k])
            y, q, weight = images.y[known, k], fitted[known], images.weight[known, k]
            ranking[finding + where] = _number(auroc(y, q, weight))
            slope[finding + where] = _number(calibration_line(y, q, weight).slope)
        values[rows] = filled[images.row_image, images.row_finding]
        if images.n_contradictions:
            said.append(
                f"{images.n_contradictions:,} labels{where} differ between models or runs and are not used for fitting"
            )
    named = _sources_text(wanted)
    if weak := [name for name, value in ranking.items() if value is not None and value <= 0.5]:
        said.append(f"{', '.join(weak)}: {named} rank no better than chance (AUROC at most 0.5)")
    limit = f"the pre-test probability uses only {named}; other context, such as prior notes, is not controlled"
    at = predictions.schema.get_field_index("pretest")
    table = predictions.set_column(at, predictions.schema.field(at), pa.array(values, from_pandas=True))
    about = {
        "sources": list(wanted), "n_features": n_features, "folds": FOLDS, "auroc": ranking, "calibration_slope": slope,
    }  # fmt: skip
    return FittedPretest(table, (limit, *dict.fromkeys(said)), about)


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 6)


def _sources_text(sources: Sequence[str]) -> str:
    words = ["the labels of the patient's earlier images" if each == "prior_labels" else each for each in sources]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _check_sources(predictions: pa.Table, sources: Sequence[str], times: pa.Table | None) -> tuple[str, ...]:
    wanted = pretest_sources("from:" + ",".join(sources)) or ()
    there = [name for name in PRETEST_SOURCES[:-1] if predictions[name].null_count < len(predictions)]
    timed = times is not None and times["time"].null_count < len(times)
    usable = [*there, *(["prior_labels"] if timed else [])]
    allowed = ", ".join(usable) or "none: the table has neither groups nor times"
    for name in wanted:
        if name == "prior_labels" and not timed:
            raise TableError(
                "pretest from prior_labels: no time column, so earlier images cannot be identified",
                allowed=allowed,
                next_step="name it with --time COLUMN",
            )
        if name not in usable:
            keep = ",".join([each for each in wanted if each in usable] or usable)
            other = f", or omit it: --pretest from:{keep}" if keep else ""
            raise TableError(
                f"pretest from {name}: the column {name} is missing or blank",
                allowed=allowed,
                next_step=f"name it with --{name} COLUMN{other}",
            )
    return wanted


def _one_finding(images: Images, k: int, design: Floats, seed: int) -> Floats | str:
    """Probabilities of all images, or why there are none."""
    y, patients = images.y[:, k], images.patients
    counts = [len(np.unique(patients[y == value])) for value in (1, 0)]
    for count, word in zip(counts, ("positive", "negative"), strict=True):
        if count < LEAST_PATIENTS:
            return f"{count} {word} patient{'s' * (count != 1)}, at least {LEAST_PATIENTS} are needed"
    fold = deal_patients(y, patients, seed)
    fitted = cross_fit(design, y, images.weight[:, k], fold, min(counts))
    if fitted is None:
        return "positive and negative patients cannot be spread over the folds"
    # Equal features must give equal numbers to the last digit: ties are shared, never broken by rounding.
    return np.asarray(np.round(np.clip(fitted, 1e-6, 1 - 1e-6), 12), dtype=np.float64)


# PREDICTION rows -> their distinct images -> the features a pre-test probability is fitted from.

# Groups of fewer patients are put together.
RARE = 10


@dataclass(frozen=True, slots=True)
class Images:
    """The distinct images of one dataset, sorted by id; n images, k findings sorted by name."""

    findings: tuple[str, ...]
    patients: Integers  # (n,)
    y: Floats  # (n, k), NaN = no label, or models disagree about it
    weight: Floats  # (n, k)
    age: Floats  # (n,), NaN = missing
    groups: dict[str, NDArray[np.str_]]  # sex, view, race: (n,), "" = missing
    study: Integers  # (n,), -1 = none
    time: Floats  # (n,), NaN = unknown
    row_image: Integers  # (rows,) which image a row of the table is about
    row_finding: Integers  # (rows,)
    n_contradictions: int


class Features(NamedTuple):
    """Columns that all findings share, and those of a finding itself."""

    names: tuple[str, ...]
    shared: Floats  # (n, d)
    own: tuple[Floats, ...]  # for each finding (n, 0 or 2)


def gather(table: pa.Table, times: pa.Table | None) -> Images:
    """What the rows of one dataset say about its images. Where they disagree the smallest value stands."""
    image, finding, patient = (_rank_values(table[name]) for name in ("image_id", "finding", "patient_id"))
    n, k = len(image.values), len(finding.values)
    cell = image.codes * k + finding.codes
    label = _floats(table["label"])
    positive, negative = (np.bincount(cell[label == value], minlength=n * k) > 0 for value in (1, 0))
    both = positive & negative
    y = np.where(positive, 1.0, np.where(negative, 0.0, np.nan))
    y[both] = np.nan
    weight = np.ones(n * k)
    if table["weight"].null_count < len(table):
        given = np.nan_to_num(_floats(table["weight"]), nan=1.0)
        rows = np.maximum(np.bincount(cell, minlength=n * k), 1)
        weight = np.bincount(cell, given, minlength=n * k) / rows
        weight = weight / weight[weight > 0].mean() if (weight > 0).any() else weight
    age = np.full(n, np.inf)
    np.fmin.at(age, image.codes, _floats(table["age"]))
    time = np.full(n, np.nan)
    if times is not None:
        found = pc.index_in(image.values, value_set=times["image_id"].combine_chunks())
        time = _floats(times["time"].take(found))
    return Images(
        findings=tuple(finding.values.to_pylist()),
        patients=_smallest(patient.codes, image.codes, n),
        y=y.reshape(n, k),
        weight=weight.reshape(n, k),
        age=np.where(np.isinf(age), np.nan, age),
        groups={name: _group(table[name], image.codes, n) for name in ("sex", "view", "race")},
        study=_study(table["study_id"], image.codes, n),
        time=time,
        row_image=image.codes,
        row_finding=finding.codes,
        n_contradictions=int(both.sum()),
    )


class _RankedValues(NamedTuple):
    codes: Integers  # -1 = null
    values: pa.Array  # sorted


def _rank_values(column: pa.ChunkedArray) -> _RankedValues:
    coded = column.combine_chunks().dictionary_encode()
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    order = pc.sort_indices(coded.dictionary).to_numpy()
    rank = np.full(len(order) + 1, -1, dtype=np.int64)  # the last place is that of nulls
    rank[order] = np.arange(len(order))
    codes = coded.indices.cast(pa.int64()).fill_null(len(order)).to_numpy(zero_copy_only=False)
    return _RankedValues(rank[codes], coded.dictionary.take(pa.array(order)))


def _floats(column: pa.ChunkedArray) -> Floats:
    return np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)


def _smallest(codes: Integers, image: Integers, n: int) -> Integers:
    """The smallest code of each image that is not null; -1 where all are."""
    top = np.iinfo(np.int64).max
    out = np.full(n, top)
    np.minimum.at(out, image, np.where(codes < 0, top, codes))
    return np.where(out == top, -1, out)


def _group(column: pa.ChunkedArray, image: Integers, n: int) -> NDArray[np.str_]:
    ranked = _rank_values(column)
    names = np.array([*ranked.values.to_pylist(), ""], dtype=np.str_)
    return names[_smallest(ranked.codes, image, n)]


def _study(column: pa.ChunkedArray, image: Integers, n: int) -> Integers:
    return _smallest(_rank_values(column).codes, image, n)


def context_features(images: Images, sources: Sequence[str], said: list[str], where: str = "") -> Features:
    """The columns of the sources; what is the same for all images is left out and said, nothing left is an error."""
    columns: dict[str, Floats] = {}
    own = tuple(np.empty((len(images.patients), 0)) for _ in images.findings)
    for source in sources:
        if source == "age":
            made = _age(images.age)
        elif source == "prior_labels":
            prior = prior_labels(images.y, images.patients, images.time, images.study)
            made = _prior(prior, images)
            if prior.images.any():
                own = tuple(np.column_stack([prior.share[:, k], prior.any[:, k]]) for k in range(len(images.findings)))
        else:
            made = _levels(source, images.groups[source], images.patients)
        made = {name: values for name, values in made.items() if np.ptp(values) > 0}
        if not made:
            why = "no patient has an earlier image" if source == "prior_labels" else "it is the same for all images"
            said.append(f"pretest from {source}{where}: {why}, so it is not used")
        columns |= made
    if not columns:
        raise TableError(
            f"pretest{where}: no usable source",
            got=f"from:{','.join(sources)}; {'; '.join(said[-len(sources) :])}",
            allowed="a source that differs between images",
            next_step="add one of " + ", ".join(PRETEST_SOURCES),
        )
    different: dict[bytes, str] = {}  # where all labels are known, so are all of the earlier ones: one column says it
    for name, values in columns.items():
        different.setdefault(values.tobytes(), name)
    names = tuple(different.values())
    return Features(names, np.column_stack([columns[name] for name in names]), own)


def _age(age: Floats) -> dict[str, Floats]:
    """Piecewise linear between the fifths of the ages, in standard deviations."""
    known = ~np.isnan(age)
    if not known.any():
        return {}
    mean, spread = float(age[known].mean()), float(age[known].std()) or 1.0
    filled = np.where(known, age, mean)
    columns = {"age": (filled - mean) / spread, "age missing": (~known).astype(np.float64)}
    for knot in np.unique(np.quantile(age[known], (0.2, 0.4, 0.6, 0.8))):
        columns[f"age above {knot:g}"] = np.maximum(filled - knot, 0) / spread
    return columns


def _levels(source: str, values: NDArray[np.str_], patients: Integers) -> dict[str, Floats]:
    """An indicator for each group but the commonest; missing is a group, rare ones are put together."""
    levels, codes = np.unique(values, return_inverse=True)
    rare = (patients_in(codes, patients, len(levels)) < RARE) & (levels != "")
    names = np.where(rare, "other", np.where(levels == "", "missing", levels))[codes]
    groups, counts = np.unique(names, return_counts=True)
    commonest = groups[np.argmax(counts)]
    return {f"{source}={each}": (names == each).astype(np.float64) for each in groups if each != commonest}


def _prior(prior: PriorLabels, images: Images) -> dict[str, Floats]:
    columns = {"earlier images": np.log1p(prior.images), "no time": np.isnan(images.time).astype(np.float64)}
    for k, finding in enumerate(images.findings):
        columns[f"last {finding}"] = prior.last[:, k]
        columns[f"unknown {finding}"] = prior.unknown[:, k]
    return columns if prior.images.any() else {}


# Labels and times of images -> what the same patient's strictly earlier images say about each of them.
#
# Earlier means taken before the first image of the study at hand: neither the image's own label nor one of the same
# moment, of the same study or of later can enter. An image without a time has no earlier images and is none for
# others.


class PriorLabels(NamedTuple):
    """For n images and k findings; where no earlier label is known, `unknown` is 1 and the others 0."""

    last: Floats  # (n, k) the latest known label; the mean of several of one moment
    unknown: Floats  # (n, k) 1 = no earlier image has a label
    share: Floats  # (n, k) positive share of the known earlier labels
    any: Floats  # (n, k) 1 = some earlier label is positive
    images: Floats  # (n,) how many earlier images there are


def prior_labels(y: Floats, patients: Integers, time: Floats, study: Integers) -> PriorLabels:
    """`y` (n, k) has NaN where there is no label, `time` (n,) NaN where unknown; `study` < 0 = a study of its own."""
    n, k = y.shape
    timed = ~np.isnan(time)
    _, rank = np.unique(time[timed], return_inverse=True)  # times as whole numbers, so that a moment is one key
    width = len(rank) + 1
    moment = np.full(n, -1, dtype=np.int64)
    moment[timed] = patients[timed] * width + rank
    keys, place = np.unique(moment[timed], return_inverse=True)  # all moments of all patients, in time order
    labels = y[timed]
    known = ~np.isnan(labels)
    counted, positive = np.zeros((len(keys), k)), np.zeros((len(keys), k))
    np.add.at(counted, place, known.astype(np.float64))
    np.add.at(positive, place, np.where(known, labels, 0.0))
    taken = np.bincount(place, minlength=len(keys)).astype(np.float64)
    # For each image the moments [begin, end) are its patient's before its study starts.
    start = _study_start(moment, patients, study)
    begin = np.searchsorted(keys, patients * width)
    end = np.where(timed, np.searchsorted(keys, start), begin)
    n_known, n_positive, images = (
        _sums_between(_sums(each), begin, end) for each in (counted, positive, taken[:, None])
    )
    latest = np.maximum.accumulate(np.where(counted > 0, np.arange(len(keys))[:, None], -1), axis=0)
    latest = np.vstack([np.full((1, k), -1), latest])[end]
    there = latest >= begin[:, None]
    mean = np.vstack([positive / np.maximum(counted, 1), np.zeros((1, k))])  # the added row: where there is none
    last = np.take_along_axis(mean, np.where(there, latest, len(keys)), axis=0)
    return PriorLabels(
        last=last,
        unknown=(~there).astype(np.float64),
        share=n_positive / np.maximum(n_known, 1),
        any=(n_positive > 0).astype(np.float64),
        images=images[:, 0],
    )


def _study_start(moment: Integers, patients: Integers, study: Integers) -> Integers:
    """The first known moment of each image's study (of this patient); its own where it has no study."""
    start = moment.copy()
    member = np.flatnonzero((study >= 0) & (moment >= 0))
    _, group = np.unique(np.column_stack([patients[member], study[member]]), axis=0, return_inverse=True)
    group = group.reshape(-1)
    first = np.full(int(group.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, group, moment[member])
    start[member] = first[group]
    return start


def _sums(values: Floats) -> Floats:
    return np.vstack([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])


def _sums_between(sums: Floats, begin: Integers, end: Integers) -> Floats:
    return np.asarray(sums[end] - sums[begin], dtype=np.float64)


# Features and labels of images -> probabilities from models that never saw the image's patient.
#
# Ridge logistic regression. Its penalty is chosen for each held-out fold on the other folds alone (a model without
# folds u and v serves both, so five folds need ten of them), which keeps the probabilities calibrated: with few
# positives a fixed mild penalty overfits, a strong one flattens. Written out as Newton steps over the features that
# are not 0, each fit starting from the one with the neighbouring penalty: there are 55 fits a finding. And not with
# BLAS, whose threads give other last digits on other machines and stall where cores are shared.

FOLDS = 5
# Patients with and without the finding that a fit needs.
LEAST_PATIENTS = 10
# Strong to weak; features are indicators, shares or standardised, so a penalty of 3 expects log odds ratios within 1.
PENALTIES = (3000.0, 300.0, 30.0, 3.0, 0.3)
# So many patients of each class per feature leave nothing to shrink: the weakest penalty is taken without a search.
PLENTY_PER_FEATURE = 100


def deal_patients(y: Floats, patients: Integers, seed: int) -> Integers:
    """The fold of each row: patients whole, positives and negatives spread as evenly as that allows.

    Patients with most positives first, each into the fold that has fewest so far. Even folds matter: where a fold has
    more positives the models for it saw fewer, and a context without any information would seem to rank backwards.
    (scikit-learn's StratifiedGroupKFold does likewise, in a second a finding at 20,000 images.) NaN in y = no label.
    """
    n_patients = int(patients.max(initial=-1)) + 1
    labelled = ~np.isnan(y)
    positive = np.bincount(patients[labelled], y[labelled], minlength=n_patients)
    negative = np.bincount(patients[labelled], 1 - y[labelled], minlength=n_patients)
    chance = np.random.default_rng(seed).permutation(n_patients)
    fold = np.zeros(n_patients, dtype=np.int64)
    order = np.lexsort((chance, -negative, -positive))
    n_holders = int((positive > 0).sum())
    heap = [(0.0, 0.0, at) for at in range(FOLDS)]
    for patient in order[:n_holders]:
        held, free, at = heap[0]
        fold[patient] = at
        heapq.heapreplace(heap, (held + positive[patient], free + negative[patient], at))
    rest = [(free, at) for _, free, at in heap]
    heapq.heapify(rest)
    for patient in order[n_holders:]:
        free, at = rest[0]
        fold[patient] = at
        heapq.heapreplace(rest, (free + negative[patient], at))
    return fold[patients]


def cross_fit(features: Floats, y: Floats, weight: Floats, fold: Integers, n_units: int) -> Floats | None:
    """Probabilities of all rows, each from the folds without it; None where a fold's models saw one class only.

    Rows without a label (NaN) are predicted and not learned from. `n_units` = patients of the rarer class.
    """
    design = np.column_stack([np.ones(len(y)), features])
    n_folds = int(fold.max(initial=-1)) + 1
    used = ~np.isnan(y) & (weight > 0)
    parts = [np.flatnonzero(used & (fold == each)) for each in range(n_folds)]
    pairs = list(combinations(range(n_folds), 2))
    if any(len(np.unique(y[_rows_outside_folds(parts, *pair)])) < 2 for pair in pairs):
        return None
    penalties = [PENALTIES[-1]] * n_folds
    starts: list[Floats | None] = [None] * n_folds
    if n_units < PLENTY_PER_FEATURE * design.shape[1]:
        penalties, starts = _search(design, y, weight, parts, pairs)
    probability = np.empty(len(y))
    for held in range(n_folds):
        found = fit_ridge(design, y, weight, penalties[held], starts[held], rows=_rows_outside_folds(parts, held))
        away = np.flatnonzero(fold == held)
        probability[away] = expit(_scores(design, away, found))
    return probability


def _rows_outside_folds(parts: list[Integers], *held: int) -> Integers:
    return np.concatenate([part for at, part in enumerate(parts) if at not in held])


def _search(
    design: Floats, y: Floats, weight: Floats, parts: list[Integers], pairs: list[tuple[int, int]]
) -> tuple[list[float], list[Floats | None]]:
    """For each fold the penalty with the least loss on the other folds, and coefficients to start from."""
    n_folds = len(parts)
    chosen, best = [PENALTIES[0]] * n_folds, np.full(n_folds, np.inf)
    starts: list[Floats | None] = [None] * n_folds
    path: dict[tuple[int, int], Floats | None] = dict.fromkeys(pairs)
    learned = {pair: _rows_outside_folds(parts, *pair) for pair in pairs}
    for penalty in PENALTIES:
        loss = np.zeros(n_folds)
        for u, v in pairs:
            found = path[u, v] = fit_ridge(design, y, weight, penalty, path[u, v], rows=learned[u, v])
            for held, judged in ((v, u), (u, v)):  # fold `held` is out of everything, fold `judged` is predicted
                rows = parts[judged]
                score = _scores(design, rows, found)
                loss[held] += (weight[rows] * (np.logaddexp(0, score) - y[rows] * score)).sum()
        for held in range(n_folds):
            if loss[held] < best[held]:
                chosen[held], best[held] = penalty, loss[held]
                starts[held] = path[next(pair for pair in pairs if held in pair)]
        if (loss > best).all():
            break  # weaker penalties fit the other folds worse still
    return chosen, starts


def fit_ridge(
    design: Floats, y: Floats, weight: Floats, penalty: float, start: Floats | None = None, *, rows: Integers
) -> Floats:
    """Coefficients that minimise the rows' weighted log loss + penalty / 2 * their squares.

    The first column is the intercept and not penalised.
    """
    ridge = np.full(design.shape[1], penalty)
    ridge[0] = 1e-9
    if start is None:
        share = (weight[rows] * y[rows]).sum() / weight[rows].sum()
        start = np.zeros(design.shape[1])
        start[0] = np.log(share / (1 - share))
    found = start
    value, gradient, hessian = _newton_sums(design, y, weight, rows, found, ridge)
    for _ in range(100):
        step = np.linalg.solve(hessian, gradient)
        if (gradient * step).sum() < 1e-9:
            break
        for _ in range(30):  # a full step is nearly always right
            new = found - step
            new_value, new_gradient, new_hessian = _newton_sums(design, y, weight, rows, new, ridge)
            if new_value <= value:
                break
            step = step / 2
        else:
            break
        found, value, gradient, hessian = new, new_value, new_gradient, new_hessian
    return found


@njit(cache=True, nogil=True)
def _newton_sums(design: Any, y: Any, weight: Any, rows: Any, found: Any, ridge: Any) -> Any:
    """Objective, gradient and Hessian at the coefficients `found`."""
    width = design.shape[1]
    value = 0.0
    gradient, hessian = np.zeros(width), np.zeros((width, width))
    filled = np.empty(width, np.int64)
    for j in range(width):
        value += ridge[j] * found[j] * found[j] / 2
        gradient[j] = ridge[j] * found[j]
        hessian[j, j] = ridge[j]
    for row in rows:
        n_filled = 0
        score = 0.0
        for j in range(width):
            if design[row, j] != 0:
                filled[n_filled] = j
                n_filled += 1
                score += design[row, j] * found[j]
        small = np.exp(-abs(score))
        p = 1 / (1 + small) if score > 0 else small / (1 + small)
        value += weight[row] * (max(score, 0.0) + np.log1p(small) - y[row] * score)
        slope = weight[row] * (p - y[row])
        bend = weight[row] * p * (1 - p)
        for a in range(n_filled):
            j = filled[a]
            gradient[j] += slope * design[row, j]
            part = bend * design[row, j]
            for b in range(a + 1):
                hessian[j, filled[b]] += part * design[row, filled[b]]
    for j in range(width):
        for i in range(j):
            hessian[i, j] = hessian[j, i]
    return value, gradient, hessian


@njit(cache=True, nogil=True)
def _scores(design: Any, rows: Any, found: Any) -> Any:
    """The linear predictor; equal rows give equal numbers, wherever they stand."""
    out = np.zeros(rows.shape[0])
    for at in range(rows.shape[0]):
        for j in range(design.shape[1]):
            out[at] += design[rows[at], j] * found[j]
    return out
