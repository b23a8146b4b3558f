"""GENERATION, SCORE and REPORT_VECTOR tables -> Written: reports of one model and strategy, with who they are of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cxrhf.audits.rows import Row
from cxrhf.audits.sample import Groups, groupings
from cxrhf.metrics.draws import Draws, draw
from cxrhf.metrics.intervals import benjamini_hochberg
from cxrhf.tables.cells import NO_VALUE

Floats = NDArray[np.float64]
Progress = Callable[[str], None]


REFERENCE = "reference"  # the strategy of what concerns the references themselves


class WordSettings(Protocol):
    """What the audits of reports read from the config (cxrhf.settings.AuditConfig has it)."""

    @property
    def n_resamples(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def level(self) -> float: ...
    @property
    def alpha(self) -> float: ...
    @property
    def p_star(self) -> float: ...
    @property
    def word_groups(self) -> Sequence[str]: ...
    @property
    def baseline_strategy(self) -> str | None: ...
    @property
    def weat_words(self) -> str | None: ...


class Vectors(NamedTuple):
    """Vectors of one encoder: `at` are the places of reports that have one."""

    encoder: str
    at: NDArray[np.intp]
    matrix: NDArray[np.float32]


class ReportPatients(NamedTuple):
    """What groups are made of, as `groupings` reads it."""

    patients: NDArray[np.int64]
    age: Floats | None
    groups: Mapping[str, NDArray[np.str_]]


@dataclass(frozen=True, slots=True)
class GeneratedReports:
    """Reports of one model and strategy beside their references, in the order of image ids, so of no file.

    `label` is the model's name in tables without a dataset (WORD, CURVE): with several of them, `model on dataset`.
    `patients` are numbers in the order of patient ids. `scores`: metric -> value of each report, NaN where there is
    none, and the encoder's name. `vectors`, `reference_vectors`: by encoder.
    """

    dataset: str | None
    model: str
    label: str
    strategy: str
    images: list[str]
    patient_ids: list[str]
    patients: NDArray[np.int64]
    reference: list[str]
    generated: list[str]
    who: ReportPatients
    scores: Mapping[str, tuple[Floats, str]] = field(default_factory=dict)
    vectors: Sequence[Vectors] = ()
    reference_vectors: Sequence[Vectors] = ()

    @property
    def n_patients(self) -> int:
        return int(self.patients.max(initial=-1)) + 1

    def draws(self, settings: WordSettings) -> Draws:
        """Who is drawn: the same people in the same replicates for every strategy with the same patients."""
        return draw(self.patient_ids, n_resamples=settings.n_resamples, seed=settings.seed)

    def groups(self, settings: WordSettings, notes: list[str]) -> list[Groups]:
        """The groupings asked for; what is left out is said."""
        wanted = {frozenset(each.split("&")) for each in settings.word_groups}
        found = groupings(self.who, notes, attributes=("sex", "race", "age"))
        return [each for each in found if frozenset(each.name.split(" & ")) in wanted]


class Tables(NamedTuple):
    """The tables that the audits of reports read; scores and vectors where `cxrhf score` made them."""

    generations: pa.Table
    scores: pa.Table | None = None
    vectors: pa.Table | None = None


def generated_reports(tables: Tables) -> Iterator[GeneratedReports]:
    """One after the other, by dataset, model and strategy in the order in which they first appear."""
    table = tables.generations
    keys = list(
        dict.fromkeys(zip(*(table[name].to_pylist() for name in ("dataset", "model", "strategy")), strict=True))
    )
    # Strategies of one model stand together, whatever the order of the rows.
    order = {key: at for at, key in enumerate(dict.fromkeys(each[:2] for each in keys))}
    several = len({dataset for dataset, _, _ in keys}) > 1
    for dataset, model, strategy in sorted(keys, key=lambda each: order[each[:2]]):
        same = pc.and_(pc.equal(table["model"], model), pc.equal(table["strategy"], strategy))
        where = pc.is_null(table["dataset"]) if dataset is None else pc.equal(table["dataset"], dataset)
        rows = table.filter(pc.fill_null(pc.and_(same, where), False)).sort_by("image_id")
        label = f"{model} on {dataset}" if several and dataset else model
        yield _read_reports(rows, dataset, model, label, strategy, tables)


def _read_reports(
    rows: pa.Table, dataset: str | None, model: str, label: str, strategy: str, tables: Tables
) -> GeneratedReports:
    images, owners = rows["image_id"].to_pylist(), rows["patient_id"].to_pylist()
    number = {name: at for at, name in enumerate(sorted(set(owners)))}
    patients = np.array([number[name] for name in owners], dtype=np.int64)
    place = {name: at for at, name in enumerate(images)}
    age = rows["age"].to_numpy(zero_copy_only=False).astype(np.float64)
    text = {name: _values(rows[name].to_pylist()) for name in ("sex", "race")}
    return GeneratedReports(
        dataset=dataset,
        model=model,
        label=label,
        strategy=strategy,
        images=images,
        patient_ids=owners,
        patients=patients,
        reference=rows["reference"].to_pylist(),
        generated=rows["generated"].to_pylist(),
        who=ReportPatients(
            patients,
            None if np.isnan(age).all() else age,
            {name: each for name, each in text.items() if (each != "").any()},
        ),
        scores=_scores(tables.scores, model, strategy, place),
        vectors=_vectors(tables.vectors, model, strategy, place),
        reference_vectors=_vectors(tables.vectors, "", REFERENCE, place),
    )


def _values(raw: Sequence[str | None]) -> NDArray[np.str_]:
    return np.array(["" if each is None or each.lower() in NO_VALUE else each for each in raw], dtype=str)


def _rows_of_strategy(table: pa.Table, model: str, strategy: str) -> pa.Table:
    return table.filter(pc.and_(pc.equal(table["model"], model), pc.equal(table["strategy"], strategy)))


def _scores(
    table: pa.Table | None, model: str, strategy: str, place: Mapping[str, int]
) -> dict[str, tuple[Floats, str]]:
    if table is None:
        return {}
    rows = _rows_of_strategy(table, model, strategy)
    kinds = list(dict.fromkeys(zip(rows["metric"].to_pylist(), rows["encoder"].to_pylist(), strict=True)))
    several = {metric for metric, _ in kinds if sum(each == metric for each, _ in kinds) > 1}
    out = {}
    for metric, encoder in kinds:
        part = rows.filter(pc.and_(pc.equal(rows["metric"], metric), pc.equal(rows["encoder"], encoder)))
        values = np.full(len(place), np.nan)
        for image, value in zip(part["image_id"].to_pylist(), part["value"].to_pylist(), strict=True):
            if image in place and value is not None:
                values[place[image]] = value
        out[f"{metric}.{encoder}" if metric in several else metric] = (values, encoder)
    return out


def _vectors(table: pa.Table | None, model: str, strategy: str, place: Mapping[str, int]) -> list[Vectors]:
    if table is None:
        return []
    rows, out = _rows_of_strategy(table, model, strategy), []
    for encoder in pc.unique(rows["encoder"]).to_pylist():
        part = rows.filter(pc.equal(rows["encoder"], encoder))
        ids = part["image_id"].to_pylist()
        kept = sorted((place[image], row) for row, image in enumerate(ids) if image in place)
        if kept:
            at, which = (np.array(each, dtype=np.intp) for each in zip(*kept, strict=True))
            out.append(Vectors(encoder, at, _matrix(part)[which]))
    return out


def _matrix(rows: pa.Table) -> NDArray[np.float32]:
    column = rows["vector"].combine_chunks()
    return np.asarray(column.flatten(), dtype=np.float32).reshape(len(column), -1)


# A grouping -> pairs of groups that are compared: two with each other, of more each with all others.


class Pair(NamedTuple):
    """Two groups by their names in RESULT; `code` of each report: 0 the first, 1 the second, -1 neither."""

    first: str
    second: str
    code: NDArray[np.int64]
    crossed: bool
    several: bool  # one of several groups, against the others

    @property
    def own(self) -> tuple[str, ...]:
        """The groups that have numbers of their own: "all others" are there to be compared with."""
        return (self.first,) if self.several else (self.first, self.second)

    @property
    def by_sex(self) -> bool:
        """The comparison of the paper."""
        return not self.crossed and not self.several and self.first.startswith("sex=")


def pairs_of(groups: Groups) -> list[Pair]:
    """The comparisons of a grouping; reports without a value are in none."""
    if len(groups.slices) == 2:
        return [Pair(groups.slices[0], groups.slices[1], groups.group, groups.crossed, False)]
    known = groups.group >= 0
    return [
        Pair(name, rest_of(name), np.where(known, np.where(groups.group == at, 0, 1), -1), groups.crossed, True)
        for at, name in enumerate(groups.slices)
    ]


def rest_of(name: str) -> str:
    """`age=60-79` -> `age=not 60-79`; of a crossing `not sex=F & age=60-79`."""
    attribute, equals, value = name.partition("=")
    return f"not {name}" if " & " in name else f"{attribute}{equals}not {value}"


# A number of generated reports -> its RESULT row; p values of one audit of one model corrected together.
#
# How rows are keyed. `strategy` is the way of decoding, or "reference" for what concerns the references alone.
# `slice` is "all" or a group ("sex=F", "sex=F & age=60-79"). Differences fill `versus` as everywhere: the other
# group, "reference", or "strategy=greedy". What compares the words of two groups (counts of words by category, WAE,
# delta WAE, delta DIR, WEAT) has the first group in `slice` and the second in `versus`. A suffix says more: `.paper`
# and `.exact` another rule, `.chance` the same number with groups shuffled between patients (its interval: quantiles
# of the shuffles), `.null` that of two halves of the references, `.association` the test "no association" of the same
# number, `.group` the part of WAE that belongs to the words of one group.

NAN = float("nan")


class ReportInterval(NamedTuple):
    """An interval and how it was made."""

    low: float
    high: float
    method: str


class RowMaker(NamedTuple):
    """Makes the RESULT rows of one audit of the reports of one model and strategy."""

    audit: str
    of: GeneratedReports
    settings: WordSettings

    def row(
        self,
        metric: str,
        value: float,
        *,
        ends: ReportInterval | None = None,
        p_value: float | None = None,
        slice: str = "all",
        versus: str | None = None,
        strategy: str | None = None,
        n: int | None = None,
        n_patients: int | None = None,
        method: str = "",
        higher: bool | None = None,
        note: str | None = None,
    ) -> Row:
        """One row; without `n` it rests on all reports."""
        level = f"{self.settings.level:.4g} " if ends is not None else ""
        said = [method, f"{level}{ends.method}" if ends is not None else ""]
        return {
            "audit": self.audit,
            "metric": metric,
            "dataset": self.of.dataset,
            "model": self.of.model,
            "strategy": strategy or self.of.strategy,
            "finding": None,
            "slice": slice,
            "versus": versus,
            "value": float(value),
            "ci_low": None if ends is None else float(ends.low),
            "ci_high": None if ends is None else float(ends.high),
            "p_value": p_value,
            "n": len(self.of.images) if n is None else n,
            "n_pos": None,
            "n_patients": self.of.n_patients if n_patients is None else n_patients,
            "method": "; ".join(filter(None, said)) or None,
            "seed": self.settings.seed,
            "higher_is_better": higher,
            "note": note,
        }


def correct_together(rows: Sequence[Row]) -> None:
    """Benjamini-Hochberg over the p values of each audit of each model, in place; `method` says so.

    Reports are searched for whatever moved, so the share of false ones among what is called beyond chance is held, as
    it is for single words. Women against men, the question of the paper, and all other groups are two families: dozens
    of crossings must not drown it. Where nothing is going on, the chance that a family calls anything is 5%.
    """
    families: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["p_value"] is not None and not np.isnan(row["p_value"]):
            slice = row["slice"]
            first = slice == "all" or (slice.startswith("sex=") and " & " not in slice)
            families.setdefault((row["audit"], row["dataset"], row["model"], first), []).append(row)
    for (*_, first), family in families.items():
        corrected = benjamini_hochberg(np.array([row["p_value"] for row in family]))
        for row, p_value in zip(family, corrected, strict=True):
            row["p_value"] = float(p_value)
            whose = "the whole sample and the sexes" if first else "the other groups"
            said = f"p corrected for {len(family)} tests of {whose} (Benjamini-Hochberg)"
            row["method"] = f"{row['method']}; {said}" if row["method"] else said
