"""People -> PREDICTION rows of simulated models whose every flaw is planted, ATTRIBUTE rows, and files of all tables.

What is true of each model is in scores.py; generations.py has the reports.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import ndtr

from cxrhf.errors import ConfigError
from cxrhf.schema import ATTRIBUTE, EMBEDDING, PREDICTION
from cxrhf.tables.checks import check
from cxrhf.tables.files import write_table
from cxrhf.twin.laws import DEFAULT, Law, SliceLaw
from cxrhf.twin.people import People
from cxrhf.twin.scores import (
    KINDS,
    by_finding,
    check_kind,
    hidden_slice,
    log_odds,
    model_truth,
    probability,
    scores,
    slice_truth,
)
from cxrhf.twin.signs import DEVICES
from cxrhf.twin.texts import EDGES, HISTORIES, MENTIONED_FROM

__all__ = ["attributes", "predictions", "write_models"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def predictions(
    people: People,
    *,
    model: str = "ideal",
    seed: int = 0,
    split: str = "test",
    ids: pl.DataFrame | None = None,
    dataset: str = "synthetic",
) -> pa.Table:
    """One row an image and finding, No Finding aside.

    `ids` names the images (columns image, image_id, study_id, patient_id, as the writers of the layouts return them)
    and chooses which are there. `pretest` is the exact P(y=1 | chart), `mention` whether notes of the patient name the
    finding (null for devices, of which notes tell nothing, and for patients without any note). A simulated model has
    no noise of its own beyond that of the pictures: `seed` is only written down.
    """
    check_kind(model)
    names = default_ids(people) if ids is None else ids
    rows = names.get_column("image").to_numpy()
    named = by_finding(people.laws)
    base = {
        **{name: names.get_column(name).to_arrow() for name in ("image_id", "study_id", "patient_id")},
        **{
            name: _repeat_text(text, len(rows))
            for name, text in (("dataset", dataset), ("split", split), ("model", model))
        },
        "seed": np.full(len(rows), seed, dtype=np.int64),
        "weight": np.ones(len(rows)),
        **_groups(people, rows),
        "view": people.images.get_column("view").gather(rows).to_arrow(),
    }
    noted = people.admissions.filter("noted").get_column("patient").unique()
    silent = ~people.images.get_column("patient").gather(rows).is_in(noted.implode()).to_numpy()
    tables = []
    for at, finding in enumerate(people.findings):
        if finding == "no_finding":
            continue
        law, context = named[finding], people.c[rows, at]
        pretest = people.q[rows, at]
        if model == "context":
            odds = np.log(pretest) - np.log1p(-pretest)
        else:
            odds = log_odds(scores(people, at, law, model), law, model)[rows]
        mentioned = context >= EDGES[MENTIONED_FROM - 1]
        columns = base | {
            "finding": _repeat_text(finding, len(rows)),
            "label": people.y[rows, at].astype(np.int8),
            "prob": pretest if model == "context" else probability(odds),
            "logit": odds,
            "pretest": pretest,
            "mention": pa.array(mentioned, pa.bool_(), mask=silent if finding in HISTORIES else np.ones_like(silent)),
        }
        tables.append(pa.table({name: columns[name] for name in PREDICTION.names}))
    return check(pa.concat_tables(tables).combine_chunks(), PREDICTION, source=f"simulated model {model}")


def write_models(
    people: People,
    folder: str | Path,
    seed: int = 0,
    *,
    models: Iterable[str] = tuple(KINDS),
    ids: pl.DataFrame | None = None,
    split: str = "test",
) -> None:
    """predictions, embeddings, attributes and generations of these models as Parquet, and models_truth.json.

    The embeddings are those of ideal, and of the models of the nulls, blind and no_slice, where these are asked for.
    """
    from cxrhf.twin.generations import KINDS as WRITERS
    from cxrhf.twin.generations import generation_truth, generations
    from cxrhf.twin.texts import report_sections

    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    kinds = [check_kind(model) for model in models]
    reports = report_sections(people, seed)
    parts = {
        "predictions": [predictions(people, model=kind, seed=seed, split=split, ids=ids) for kind in kinds],
        "embeddings": [
            embeddings(people, seed=seed, ids=ids),
            *(embeddings(people, null=null, seed=seed, ids=ids) for null, kind in NULLS.items() if kind in kinds),
        ],
        "attributes": [attributes(people, ids=ids)],
        "generations": [generations(people, reports, kind=kind, seed=seed, ids=ids) for kind in WRITERS],
    }
    for name, tables in parts.items():
        write_table(pa.concat_tables(tables), root / f"{name}.parquet")
    truth = {
        "models": {kind: {"what": KINDS[kind], "findings": model_truth(people.laws, kind)} for kind in kinds},
        "embeddings": embedding_truth(people.laws),
        "generations": {kind: {"what": what, "words": generation_truth(kind)} for kind, what in WRITERS.items()},
    }
    (root / "models_truth.json").write_text(json.dumps(_plain(truth), indent=1) + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    """Numbers as JSON has them: NaN, which is not JSON, becomes null."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else None
    return value


def _groups(people: People, rows: NDArray[np.int64]) -> dict[str, pa.Array]:
    images = people.images[rows]
    patients = people.patients[images.get_column("patient").to_numpy()]
    return {
        "age": images.get_column("age").to_arrow(),
        "sex": patients.get_column("sex").to_arrow(),
        "race": patients.get_column("race").to_arrow(),
    }


def _repeat_text(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


# People -> EMBEDDING rows of simulated models: a hidden slice, and axes that know who is in the picture.

DIMENSIONS = 16
SHIFT = 4.0  # of the first axis, where the hidden slice is
# Axis of the penultimate layer -> what moves it, and how far; all axes are unit normal otherwise.
ENCODED = {
    1: ("sex", "M", 1.5),
    2: ("race", "black", 1.0),
    3: ("race", "asian", 1.0),
    4: ("view", "AP", 2.0),
    5: ("age_band", "2", 1.0),
}
NULLS = {"blind": "blind", "score": "no_slice"}  # of the embeddings -> the model whose predictions go with it
FINDING_AXES = {
    6: "pleural_effusion",
    7: "pneumothorax",
    8: "atelectasis",
}  # axes that are what the picture shows of it


def embeddings(
    people: People,
    *,
    model: str = "ideal",
    seed: int = 0,
    null: str | None = None,
    ids: pl.DataFrame | None = None,
) -> pa.Table:
    """Two vectors an image: that of the finding with the hidden slice (D2), and the penultimate layer (finding null).

    D2: unit normal, the first axis moved by 4 where the slice is (hazy positives; haze of negatives moves nothing).
    Penultimate layer: ENCODED axes are moved by who is in the picture, SHOWN axes are what the picture shows.

    Nulls, where an audit must find nothing; each has a model of its own, whose predictions go with it: "blind" (no
    axis is moved by anything; model blind, whose slice fails unseen) and "score" (tanh of straight lines in the score,
    with a little noise; model no_slice, whose score has no gap: clusters differ in their Brier score although nobody
    is hidden in them). `model` names the rows where there is no null.
    """
    if null is not None and null not in NULLS:
        raise ConfigError("unknown null of embeddings", got=f'"{null}"', allowed=f"{', '.join(NULLS)} or None")
    name = check_kind(model) if null is None else NULLS[null]
    names = default_ids(people) if ids is None else ids
    rows = names.get_column("image").to_numpy()
    rng = np.random.default_rng([seed, 53])
    noise = rng.standard_normal((2, people.images.height, DIMENSIONS))[:, rows]
    sliced = next((law for law in people.laws if isinstance(law, SliceLaw)), None)
    tables = []
    if sliced is not None:
        at = people.findings.index(sliced.finding)
        vectors = noise[0]
        if null is None:
            vectors[:, 0] += SHIFT * hidden_slice(people, at)[rows]
        elif null == "score":
            vectors = _vectors_of_score(scores(people, at, sliced, name)[rows], vectors)
        tables.append(_vectors(names, name, sliced.finding, vectors))
    vectors = noise[1]
    if null is None:
        for axis, (column, value, far) in ENCODED.items():
            vectors[:, axis] += far * (_column(people, column, rows) == value)
        for axis, finding in FINDING_AXES.items():
            if finding in people.findings:
                vectors[:, axis] = people.s[rows, people.findings.index(finding)]
    elif null == "score" and sliced is not None:
        vectors = _vectors_of_score(scores(people, people.findings.index(sliced.finding), sliced, name)[rows], vectors)
    tables.append(_vectors(names, name, None, vectors))
    return check(pa.concat_tables(tables).combine_chunks(), EMBEDDING, source="simulated embeddings")


def embedding_truth(laws: tuple[Law, ...] = DEFAULT, model: str = "ideal") -> dict[str, Any]:
    """The hidden slice, and for each moved axis of the penultimate layer its AUROC for what moves it, against the rest.

    The AUROC is that of the axis alone; a probe of all axes finds at least as much. `nulls`: the models in whose
    vectors an audit must find no hidden slice, and what its Brier scores are.
    """
    sliced = next((law for law in laws if isinstance(law, SliceLaw)), None)
    truth = model_truth(laws, model)
    found: dict[str, Any] = {
        "penultimate": {
            f"axis {axis}": {"attribute": column, "value": value, "auroc": float(ndtr(far / np.sqrt(2)))}
            for axis, (column, value, far) in ENCODED.items()
        }
    }
    if sliced is not None:
        best = slice_truth(sliced, model, SHIFT)
        found["slice"] = {
            "finding": sliced.finding,
            "attributes": ["ecg_wires", "hazy"],
            "share_of_positives": sliced.share,
            "only_in": "positives",
            "precision": best["precision"],
            "recall": best["recall"],
            **{name: truth[sliced.finding].get(name) for name in ("brier_positive", "slices")},
        }
        found["nulls"] = {
            name: {"null": null, "hidden_slice_auroc": 0.5, **slice_truth(sliced, name)} for null, name in NULLS.items()
        }
    return found


def _column(people: People, name: str, rows: NDArray[np.int64]) -> NDArray[np.str_]:
    """A column of the images or of their patients, as text."""
    images = people.images[rows]
    of = images if name in images.columns else people.patients[images.get_column("patient").to_numpy()]
    return of.get_column(name).cast(pl.String).to_numpy().astype(str)


def _vectors_of_score(score: Floats, noise: Floats) -> Floats:
    slope, offset = np.linspace(0.5, 2.0, DIMENSIONS), np.linspace(-1.0, 1.0, DIMENSIONS)
    return np.asarray(np.tanh(score[:, None] * slope + offset) + 0.1 * noise)


def _vectors(names: pl.DataFrame, model: str, finding: str | None, vectors: Floats) -> pa.Table:
    flat = pa.array(vectors.astype(np.float32).ravel())
    ends = pa.array(np.arange(0, vectors.size + 1, vectors.shape[1], dtype=np.int32))
    return pa.table(
        {
            "image_id": names.get_column("image_id").to_arrow(),
            "model": pa.repeat(pa.scalar(model, pa.string()), len(vectors)),
            "finding": pa.repeat(pa.scalar(finding, pa.string()), len(vectors)),
            "vector": pa.ListArray.from_arrays(ends, flat),
        }
    )


# People and the names their images have in a layout -> planted.parquet, attributes.parquet and defects.json.
#
# What the writers of all layouts share. `names` is a frame with a row per image that the layout holds: image (the row
# of `people.images`), image_id, study_id, patient_id, as a reader of that layout would form them.

ATTRIBUTES = (*DEVICES, "hazy")
PLANTED = ("image_id", "study_id", "patient_id", "finding", "y", "context", "pretest", "shown")


@dataclass(frozen=True, slots=True)
class Planted:
    """One finding of a layout: arrays over the rows of `people.images`.

    `of`: the twin's own findings that it is made of; for no_finding those that must be absent. `share` of its cases,
    by lot, have this label.
    """

    finding: str
    y: Integers
    context: Floats
    pretest: Floats
    shown: Floats
    of: tuple[str, ...] = ()
    share: float = 1.0


def ordered_images(people: People) -> pl.DataFrame:
    """Images by patient and time: image, patient, number (patients with images, from 1), study, view, time, frontal.

    `nth_study` counts the studies of a patient and `nth_view` the images of a study, both from 1.
    """
    return (
        people.images.select("patient", "study", "view", image=pl.int_range(pl.len()))
        .join(people.studies.select("study", "time"), on="study", how="left", maintain_order="left")
        .sort("patient", "time", "study", "image")
        .with_columns(
            number=pl.col("patient").rank("dense").cast(pl.Int64),
            frontal=pl.col("view").is_in(["PA", "AP"]),
            nth_study=pl.struct("time", "study").rank("dense").over("patient").cast(pl.Int64),
            nth_view=pl.int_range(1, pl.len() + 1).over("study"),
        )
    )


def default_ids(people: People) -> pl.DataFrame:
    """image, image_id, study_id, patient_id of everybody, for tables that belong to no layout."""
    return people.images.select(
        pl.int_range(pl.len()).alias("image"),
        pl.format("image{}", pl.col("image").cast(pl.String).str.zfill(6)).alias("image_id"),
        pl.format("study{}", pl.col("study").cast(pl.String).str.zfill(6)).alias("study_id"),
        pl.format("patient{}", pl.col("patient").cast(pl.String).str.zfill(5)).alias("patient_id"),
    )


def of_patients(people: People, column: str, names: pl.DataFrame) -> pl.Series:
    """A column of `people.patients` for every row of `names`."""
    return people.patients.get_column(column).gather(names.get_column("patient"))


def planted_findings(people: People) -> list[Planted]:
    """The twin's own findings, for layouts that use them as they are."""
    laws = tuple(law.finding for law in people.laws)
    made_of = {"no_finding": laws, "support_devices": ()}
    return [
        Planted(name, people.y[:, at], people.c[:, at], people.q[:, at], people.s[:, at], made_of.get(name, (name,)))
        for at, name in enumerate(people.findings)
    ]


def attributes(people: People, *, ids: pl.DataFrame | None = None) -> pa.Table:
    """What lies in each picture: ATTRIBUTE rows with 1 and 0, as annotators write them."""
    names = default_ids(people) if ids is None else ids
    there = [name for name in ATTRIBUTES if name in people.images.columns]
    wide = people.images.select(there).select(pl.all().cast(pl.Int8).cast(pl.String))[names["image"].to_numpy()]
    long = wide.with_columns(names.get_column("image_id")).unpivot(
        there, index="image_id", variable_name="name", value_name="value"
    )
    return check(long.to_arrow(), ATTRIBUTE, source="simulated attributes")


def write_attributes(people: People, folder: Path, names: pl.DataFrame) -> None:
    """attributes.parquet: where drains, wires, haze and the other devices are, which no published table says."""
    write_table(attributes(people, ids=names), folder / "attributes.parquet")


def write_planted(folder: Path, names: pl.DataFrame, findings: Iterable[Planted]) -> None:
    """What is true of every image of the layout, for the tests of readers and audits; builds do not read it."""
    rows = names.get_column("image").to_numpy()
    parts = [
        names.select(
            "image_id",
            "study_id",
            "patient_id",
            finding=pl.lit(each.finding),
            y=pl.Series(each.y[rows].astype(np.int8)),
            context=pl.Series(each.context[rows]),
            pretest=pl.Series(each.pretest[rows]),
            shown=pl.Series(each.shown[rows]),
        )
        for each in findings
    ]
    pl.concat(parts).select(PLANTED).write_parquet(folder / "planted.parquet", statistics=False)


def write_defects(folder: Path, defects: Mapping[str, Sequence[str]]) -> None:
    """kind -> the ids that have it, sorted."""
    listed = {kind: sorted(ids) for kind, ids in sorted(defects.items())}
    (folder / "defects.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")


def splits_of(n: int, shares: Mapping[str, float], rng: np.random.Generator) -> NDArray[np.str_]:
    """A split for each of `n` patients; the shares are kept as exactly as `n` allows."""
    names, ends = list(shares), np.cumsum(list(shares.values()))
    place = (np.arange(n) + 0.5) / max(n, 1) * ends[-1]
    split = np.array(names)[np.minimum(np.searchsorted(ends, place), len(names) - 1)]
    return split[rng.permutation(n)]


def pick(ids: Sequence[str], share: float, rng: np.random.Generator) -> list[str]:
    """A random share of distinct ids, at least one where there is any, sorted."""
    distinct = sorted(set(ids))
    count = min(len(distinct), max(1, round(share * len(distinct))))
    return sorted(distinct[at] for at in rng.permutation(len(distinct))[:count].tolist())
