"""GENERATION, SCORE and REPORT_VECTOR tables -> Written: reports of one model and strategy, with who they are of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cxrhf.audits.groupings import Groups, groupings
from cxrhf.metrics.draws import Draws, draw
from cxrhf.tables.groups import NO_VALUE

Floats = NDArray[np.float64]
Progress = Callable[[str], None]
REFERENCE = "reference"  # the strategy of what concerns the references themselves


class WordSettings(Protocol):
    """What the audits of reports read from the config (cxrhf.config.AuditConfig has it)."""

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


class Who(NamedTuple):
    """What groups are made of, as `groupings` reads it."""

    patients: NDArray[np.int64]
    age: Floats | None
    groups: Mapping[str, NDArray[np.str_]]


@dataclass(frozen=True, slots=True)
class Written:
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
    who: Who
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


def written(tables: Tables) -> Iterator[Written]:
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
        yield _written(rows, dataset, model, label, strategy, tables)


def _written(rows: pa.Table, dataset: str | None, model: str, label: str, strategy: str, tables: Tables) -> Written:
    images, owners = rows["image_id"].to_pylist(), rows["patient_id"].to_pylist()
    number = {name: at for at, name in enumerate(sorted(set(owners)))}
    patients = np.array([number[name] for name in owners], dtype=np.int64)
    place = {name: at for at, name in enumerate(images)}
    age = rows["age"].to_numpy(zero_copy_only=False).astype(np.float64)
    text = {name: _values(rows[name].to_pylist()) for name in ("sex", "race")}
    return Written(
        dataset=dataset,
        model=model,
        label=label,
        strategy=strategy,
        images=images,
        patient_ids=owners,
        patients=patients,
        reference=rows["reference"].to_pylist(),
        generated=rows["generated"].to_pylist(),
        who=Who(
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


def _of(table: pa.Table, model: str, strategy: str) -> pa.Table:
    return table.filter(pc.and_(pc.equal(table["model"], model), pc.equal(table["strategy"], strategy)))


def _scores(
    table: pa.Table | None, model: str, strategy: str, place: Mapping[str, int]
) -> dict[str, tuple[Floats, str]]:
    if table is None:
        return {}
    rows = _of(table, model, strategy)
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
    rows, out = _of(table, model, strategy), []
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
