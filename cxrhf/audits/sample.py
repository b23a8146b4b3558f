"""PREDICTION -> one sample per dataset, model and training seed: its matrices, and the draws its audits share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import combinations
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cxrhf.audits.material import Material, SampleMaterial, beside
from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.metrics.balancing import age_bins, disease_groups
from cxrhf.metrics.draws import Draws, draw
from cxrhf.metrics.intervals import UnitCount, count_units
from cxrhf.metrics.resample import Option, bootstrap_many
from cxrhf.tables.cells import AGE_BANDS, age_band
from cxrhf.tables.checks import PredictionArrays, arrays

Floats = NDArray[np.float64]
Progress = Callable[[str], None]
Integers = NDArray[np.int64]


# Between two lines of progress.
SECONDS = 3.0
# What people call the split on which thresholds are chosen.
TUNING = ("validate", "validation", "valid", "val", "tune", "tuning", "dev")


class Settings(Protocol):
    """What an audit reads from its config (cxrhf.settings.AuditConfig has it)."""

    @property
    def n_resamples(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def level(self) -> float: ...
    @property
    def only(self) -> Sequence[str] | None: ...
    @property
    def correction(self) -> str: ...
    @property
    def threshold_from(self) -> str: ...
    @property
    def primary(self) -> Sequence[str]: ...
    @property
    def baseline(self) -> str | None: ...
    @property
    def slice_methods(self) -> Sequence[str]: ...
    @property
    def slice_recipe(self) -> str: ...
    @property
    def reduce(self) -> int: ...
    @property
    def shortcuts(self) -> Sequence[str]: ...
    @property
    def shortcut_test(self) -> str: ...
    def training_prevalence(self, finding: str) -> float | None:
        """Share of positives in the training set; None = not known."""

    def thresholds(self) -> Mapping[str, float]:
        """The threshold in use of each finding; that of "" is for all the others."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How much data a number rests on."""

    n: int
    n_pos: int
    n_patients: int
    units: UnitCount


@dataclass(frozen=True, slots=True)
class Finding:
    """Labelled rows of one finding; `at` are their places in the sample."""

    name: str
    at: NDArray[np.intp]
    y: Floats
    p: Floats
    weight: Floats
    pretest: Floats | None
    mention: Floats | None
    patients: NDArray[np.int64]
    is_probability: bool
    counts: Counts

    @property
    def prevalence(self) -> float:
        """Share of positives, by weight; NaN without rows."""
        total = self.weight.sum()
        return float((self.weight * self.y).sum() / total) if total > 0 else np.nan

    def only(self, inside: NDArray[np.bool_]) -> Finding:
        """The same finding in a part of its rows."""
        y, weight, patients = self.y[inside], self.weight[inside], self.patients[inside]
        return Finding(
            name=self.name,
            at=self.at[inside],
            y=y,
            p=self.p[inside],
            weight=weight,
            pretest=None if self.pretest is None else self.pretest[inside],
            mention=None if self.mention is None else self.mention[inside],
            patients=patients,
            is_probability=self.is_probability,
            counts=count(y, patients, weight),
        )


def count(y: Floats, patients: NDArray[np.int64], weight: Floats | None = None) -> Counts:
    """How much data these labelled rows are."""
    units = count_units(y, patients, weight)
    return Counts(len(y), int((y == 1).sum()), units.total, units)


def patients_in(code: NDArray[np.int64], patients: NDArray[np.int64], n_groups: int) -> NDArray[np.int64]:
    """Patients with a row in each group; `code`: the group of each row, -1 = none."""
    inside, width = code >= 0, int(patients.max(initial=0)) + 1
    pairs = np.unique(code[inside] * width + patients[inside])
    return np.bincount(pairs // width, minlength=n_groups).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Tuning:
    """Labelled rows of one finding in the validation split."""

    y: Floats
    p: Floats
    weight: Floats


@dataclass(frozen=True, slots=True)
class Sample:
    """One model on one dataset, with the draws that all its audits share."""

    dataset: str | None
    model: str
    data: PredictionArrays
    draws: Draws
    settings: Settings
    workers: int | None
    progress: Progress
    several_datasets: bool = False
    name: str = ""  # the model without its seed
    tuning: PredictionArrays | None = None  # its validation split
    several_models: bool = False
    keep: bool = False  # whether rows keep their replicates
    beside: SampleMaterial = field(default_factory=SampleMaterial)
    # (metric, finding) -> replicates of whole-sample numbers that an audit has computed and another may want.
    memory: dict[tuple[str, str], Floats] = field(default_factory=dict)

    def findings(self) -> list[Finding]:
        """The labelled rows of every finding."""
        return [self.finding(k) for k in range(len(self.data.findings))]

    def finding(self, k: int, *, needs_pretest: bool = False) -> Finding:
        """The rows of finding k that have a label (and, where asked, a pre-test probability)."""
        data = self.data
        keep = ~np.isnan(data.y[:, k])
        if needs_pretest and data.pretest is not None:
            keep &= ~np.isnan(data.pretest[:, k])
        at = np.flatnonzero(keep)
        y, patients = data.y[at, k], data.patients[at]
        weight = np.ones(len(at)) if data.weight is None else np.nan_to_num(data.weight[at, k], nan=1.0)
        return Finding(
            name=data.findings[k],
            at=at,
            y=y,
            p=data.p[at, k],
            weight=weight,
            pretest=None if data.pretest is None else data.pretest[at, k],
            mention=None if data.mention is None else data.mention[at, k],
            patients=patients,
            is_probability=bool(data.is_probability[k]),
            counts=count(y, patients, weight),
        )

    def tuning_of(self, finding: str) -> Tuning | None:
        """The validation rows of a finding, if there are any."""
        data = self.tuning
        if data is None or finding not in data.findings:
            return None
        k = data.findings.index(finding)
        at = np.flatnonzero(~np.isnan(data.y[:, k]))
        if len(at) == 0:
            return None
        weight = np.ones(len(at)) if data.weight is None else np.nan_to_num(data.weight[at, k], nan=1.0)
        return Tuning(data.y[at, k], data.p[at, k], weight)

    def tuning_like(self, finding: Finding) -> Tuning | None:
        """The same, unless its scores are of another kind: a threshold among logits is none among probabilities.

        None as well where the thresholds that groups share are asked of the evaluated rows.
        """
        found = self.tuning_of(finding.name)
        if found is None or self.tuning is None or self.settings.threshold_from == "sample":
            return None
        kind = bool(self.tuning.is_probability[self.tuning.findings.index(finding.name)])
        return found if kind == finding.is_probability else None

    def ticking(self, text: str, rounds: int) -> Callable[[int], None]:
        """A function for the engine's progress: every few seconds the share of `rounds` bootstraps that is done."""
        total, done, said = rounds * self.draws.n_resamples, 0, time.monotonic()

        def tick(count: int) -> None:
            nonlocal done, said
            done += count
            if time.monotonic() - said > SECONDS:
                said = time.monotonic()
                self.progress(f"{text}: {done / total:.0%}")

        return tick

    @property
    def curve_model(self) -> str:
        """The model's name in CURVE, POINT and SLICE, which have no column for the dataset."""
        return f"{self.model} on {self.dataset}" if self.several_datasets else self.model

    @property
    def weighting(self) -> str:
        """How the rows count, as RESULT.method says it."""
        return "unweighted" if self.data.weight is None else "weight column"


def samples(
    predictions: pa.Table,
    settings: Settings,
    workers: int | None,
    progress: Progress,
    notes: list[str],
    material: Material | None = None,
) -> Iterator[Sample]:
    """Every dataset x model x training seed of the table; only the test split where there are several splits.

    The model that others are compared with comes first.
    """
    predictions, tuning = _evaluated_and_tuning(predictions, notes)
    keys = predictions.select(["dataset", "model", "seed"]).group_by(["dataset", "model", "seed"], use_threads=False)
    combinations = keys.aggregate([]).to_pylist()
    if settings.baseline is not None:
        there = list(dict.fromkeys(key["model"] for key in combinations))
        if settings.baseline not in there:
            raise ConfigError(
                "baseline: no such model",
                got=settings.baseline,
                allowed=", ".join(there),
                next_step=did_you_mean(settings.baseline, there),
            )
        combinations.sort(key=lambda key: key["model"] != settings.baseline)
    seeds: dict[Any, set[Any]] = {}
    for key in combinations:
        seeds.setdefault((key["dataset"], key["model"]), set()).add(key["seed"])
    several_datasets = len({key["dataset"] for key in combinations}) > 1
    several_models = len({key["model"] for key in combinations}) > 1
    if several_datasets:
        notes.append("several datasets: each is audited separately; they are not pooled")
    for key in combinations:
        data = arrays(_rows_of_sample(predictions, key))
        if data.weight is not None:
            weights = np.nan_to_num(data.weight[~np.isnan(data.y)], nan=1.0)  # a row without one counts once
            if len(weights) == 0 or weights.min() == weights.max() > 0:
                data = replace(data, weight=None)  # a constant weight is none
            elif (nothing := (data.weight == 0) & ~np.isnan(data.y)).any():
                data = replace(data, y=np.where(nothing, np.nan, data.y))  # no data, so not to be counted as such
                notes.append(f"{key['model']}: {int(nothing.sum()):,} labels of weight 0 are excluded")
        several = len(seeds[key["dataset"], key["model"]]) > 1
        held = _rows_of_sample(tuning, key) if tuning is not None else None
        yield Sample(
            key["dataset"],
            f"{key['model']} (seed {key['seed']})" if several else key["model"],
            data,
            draw(data.patients, y=data.y, n_resamples=settings.n_resamples, seed=settings.seed),
            settings,
            workers,
            progress,
            several_datasets,
            name=key["model"],
            tuning=arrays(held) if held is not None and held.num_rows else None,
            several_models=several_models,
            keep=several_models or settings.correction == "max_t",
            beside=SampleMaterial() if material is None else beside(material, data, key["model"], key["seed"], notes),
        )


def _rows_of_sample(table: pa.Table, key: dict[str, Any]) -> pa.Table:
    """The rows of one dataset, model and seed."""
    for name in ("dataset", "model", "seed"):
        column, wanted = table[name], key[name]
        kept = pc.is_null(column) if wanted is None else pc.fill_null(pc.equal(column, wanted), False)
        if not pc.all(kept).as_py():  # a copy of millions of rows takes its room
            table = table.filter(kept)
    return table


def _evaluated_and_tuning(predictions: pa.Table, notes: list[str]) -> tuple[pa.Table, pa.Table | None]:
    """What is evaluated, and the validation split; a model that has no splits at all is evaluated whole."""
    split = pc.fill_null(predictions["split"], "")
    blank = pc.equal(split, "")
    with_splits = pc.unique(predictions.filter(pc.invert(blank))["model"])
    whole = pc.invert(pc.is_in(predictions["model"], value_set=with_splits))
    splits = sorted(each for each in pc.unique(split).to_pylist() if each)
    if pc.any(pc.and_not(blank, whole)).as_py():
        splits.append("no split")
    if len(splits) < 2:
        return predictions, None
    if "test" not in splits:
        notes.append(f"the splits {', '.join(splits)} are evaluated together, because no split is named test")
        return predictions, None
    kept = predictions.filter(pc.or_(pc.equal(split, "test"), whole))
    tuning = [each for each in splits if each.lower() in TUNING]
    others = ", ".join(each for each in splits if each != "test")
    used = f"; thresholds come from {tuning[0]} where an audit states it" if tuning else ""
    notes.append(
        f"only the split test is evaluated; {predictions.num_rows - kept.num_rows:,} rows of {others} are not{used}"
    )
    unsplit = pc.unique(predictions.filter(whole)["model"]).to_pylist()
    notes.extend(f"{model}: its rows have no split, so all of them are evaluated" for model in unsplit)
    return kept, predictions.filter(pc.equal(split, tuning[0])) if tuning else None


# Rows of findings -> the matrices the engine takes: one row an image of the sample, one column a finding.


def column_matrix(
    sample: Sample, findings: Sequence[Finding], values: Sequence[Floats], missing: float = np.nan
) -> Floats:
    """Values of each finding's rows at their places in the sample."""
    out = np.full((len(sample.data.image_ids), len(findings)), missing)
    for k, (finding, own) in enumerate(zip(findings, values, strict=True)):
        out[finding.at, k] = own
    return out


def label_matrix(sample: Sample, findings: Sequence[Finding]) -> Floats:
    """Their labels, NaN where a finding has none."""
    return column_matrix(sample, findings, [finding.y for finding in findings])


def bootstrap_findings(
    sample: Sample,
    findings: Sequence[Finding],
    metrics: Mapping[str, Mapping[str, Option]],
    weights: Sequence[Floats] | None = None,
    scores: Sequence[Floats] | None = None,
    text: str = "resamples",
) -> list[dict[str, Floats]]:
    """Replicates of the metrics of every finding; with weights or scores of its rows other than its own.

    `text` says what is going on while the replicates are made.
    """
    if not findings:
        return []
    if weights is None and sample.data.weight is not None:
        weights = [finding.weight for finding in findings]
    found = bootstrap_many(
        metrics,
        label_matrix(sample, findings),
        column_matrix(sample, findings, [finding.p for finding in findings] if scores is None else scores),
        None if weights is None else column_matrix(sample, findings, weights, 0.0),
        draws=sample.draws,
        workers=sample.workers,
        progress=sample.ticking(f"{sample.model}: {text}", 1),
    )
    return [{name: values[:, k] for name, values in found.items()} for k in range(len(findings))]


# A block of linear algebra -> the same block on one thread.
#
# Sums then do not depend on the number of cores, and threads that wait for each other do not stall where cores are
# shared (t-SNE of 5,000 rows: 48 s on one thread, 83 s on two of a busy machine).


def one_thread() -> AbstractContextManager[Any]:
    """Holds BLAS and OpenMP at one thread; their libraries must be loaded before, or they are not seen."""
    for name in ("scipy.linalg", "sklearn.utils"):
        import_module(name)
    limits: AbstractContextManager[Any] = import_module("threadpoolctl").threadpool_limits(1)  # scikit-learn brings it
    return limits


# Sex, race, age and view of a sample -> groupings: which image is in which group, one by one and crossed in pairs.
#
# Values are taken as they stand in the table, compared as text, in the order of the alphabet. Ages are put into
# bands. An image without a value is in no group of that grouping.

ATTRIBUTES = ("sex", "race", "age", "view")
# The two findings that ENCODING evaluates; in its disease groups the second overrides the first.
DISEASES = ("no_finding", "pleural_effusion")
# Values of one attribute, and crossings of two, that are audited: those with most patients.
MOST, MOST_CROSSED = 12, 30
# Patients, with and without the finding together, below which a value or a crossing is left out: such numbers say
# nothing of a group and too much of its few patients.
LEAST, LEAST_CROSSED = 10, 20


class People(Protocol):
    """What is known of the people in the images, one entry an image: `groups` as text, "" = not known."""

    @property
    def patients(self) -> Integers: ...
    @property
    def age(self) -> NDArray[np.float64] | None: ...
    @property
    def groups(self) -> Mapping[str, NDArray[np.str_]]: ...


@dataclass(frozen=True, slots=True)
class Groups:
    """`group` of each image: a place in `slices` (the names as RESULT has them), -1 = none."""

    name: str
    slices: tuple[str, ...]
    group: Integers

    @property
    def crossed(self) -> bool:
        return " & " in self.name

    @property
    def by_age(self) -> bool:
        return "age" in self.name.split(" & ")


def bins_of(data: PredictionArrays) -> Integers | None:
    """The bin of each age for balancing, -1 = unknown; None without ages."""
    return None if data.age is None or np.isnan(data.age).all() else age_bins(data.age)


def disease_of(data: PredictionArrays) -> NDArray[np.float64] | None:
    """The disease group of each image (`disease_groups`); None without labels of both findings."""
    if any(name not in data.findings for name in DISEASES):
        return None
    return disease_groups(*(data.y[:, data.findings.index(name)] for name in DISEASES))


def groupings(data: People, notes: list[str], attributes: Sequence[str] = ATTRIBUTES) -> list[Groups]:
    """The attributes that the table has, then their pairs; what is left out is said in `notes`."""
    single = [found for name in attributes if (found := _single(data, name, notes)) is not None]
    crossed = [found for pair in combinations(single, 2) if (found := _crossed(data, *pair, notes)) is not None]
    return [*single, *crossed]


def missing(data: PredictionArrays) -> list[str]:
    """The attributes that the table does not have."""
    return [name for name in ATTRIBUTES if (data.age is None if name == "age" else name not in data.groups)]


def _single(data: People, name: str, notes: list[str]) -> Groups | None:
    if name == "age" and data.age is not None:
        code = age_band(data.age)
        values: Sequence[str] = AGE_BANDS
    elif name in data.groups:
        text = data.groups[name].astype(str)
        values = sorted(set(text.tolist()) - {""})
        place = {value: k for k, value in enumerate(values)}
        code = np.array([place.get(each, -1) for each in text.tolist()], dtype=np.int64)
    else:
        return None
    unknown, n = int((code < 0).sum()), len(code)
    if unknown:
        notes.append(f"{name}: {unknown:,} of {n:,} images have no {name} and are in no group")
    patients = patients_in(code, data.patients, len(values))
    kept = _largest(patients, MOST, least=LEAST)
    there = int((patients > 0).sum())
    if there > len(kept):
        left = int((code >= 0).sum() - np.isin(code, kept).sum())
        why = f"fewer than {LEAST} patients" if len(kept) < MOST else f"only the {MOST} with most patients are audited"
        images = f"{left:,} image{'s' * (left != 1)}"
        notes.append(f"{name}: {there - len(kept)} of {there} values ({images}) are in no group: {why}")
    if len(kept) < 2:
        if kept:
            notes.append(f"{name}: only one value, {values[kept[0]]}, so there is nothing to compare")
        return None
    return _keep_groups(name, [f"{name}={value}" for value in values], code, kept)


def _crossed(data: People, one: Groups, other: Groups, notes: list[str]) -> Groups | None:
    name, width = f"{one.name} & {other.name}", len(other.slices)
    code = np.where((one.group >= 0) & (other.group >= 0), one.group * width + other.group, -1)
    slices = [f"{a} & {b}" for a in one.slices for b in other.slices]
    patients = patients_in(code, data.patients, len(slices))
    kept = _largest(patients, MOST_CROSSED, least=LEAST_CROSSED)
    there = int((patients > 0).sum())
    if there > len(kept):
        why = f"fewer than {LEAST_CROSSED} patients" if len(kept) < MOST_CROSSED else "fewer patients than the others"
        notes.append(f"{name}: {there - len(kept)} of {there} groups are excluded: {why}")
    return _keep_groups(name, slices, code, kept) if len(kept) > 1 else None


def _largest(patients: Integers, most: int, least: int) -> list[int]:
    """The groups with most patients, in their own order; of equals the first."""
    order = np.argsort(-patients, kind="stable")[:most]
    return sorted(int(k) for k in order if patients[k] >= least)


def _keep_groups(name: str, slices: Sequence[str], code: Integers, kept: Sequence[int]) -> Groups:
    place = np.full(len(slices) + 1, -1, dtype=np.int64)  # the last is where -1 points to
    place[list(kept)] = np.arange(len(kept))
    return Groups(name, tuple(slices[k] for k in kept), place[code])
