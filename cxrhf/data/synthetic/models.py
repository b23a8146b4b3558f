"""People -> PREDICTION, EMBEDDING and ATTRIBUTE rows of simulated models whose every flaw is planted.

What is true of each is in model_truths.py and `embedding_truth`; the generated reports are in generations.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import ndtr

from cxrhf.data.planted_slices import slices_truth
from cxrhf.data.synthetic.histories import EDGES, HISTORIES, MENTIONED_FROM
from cxrhf.data.synthetic.laws import DEFAULT, Law, SliceLaw
from cxrhf.data.synthetic.model_truths import model_truth
from cxrhf.data.synthetic.people import People
from cxrhf.data.synthetic.scores import KINDS, by_finding, check_kind, log_odds, probability, scores
from cxrhf.errors import ConfigError
from cxrhf.schema import ATTRIBUTE, EMBEDDING, PREDICTION, check, write_table

Floats = NDArray[np.float64]

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
SHOWN = {6: "pleural_effusion", 7: "pneumothorax", 8: "atelectasis"}  # axes that are what the picture shows of it
_ATTRIBUTES = ("drain", "ecg_wires", "pacemaker", "central_line", "et_tube", "sternotomy", "hazy")


def default_ids(people: People) -> pl.DataFrame:
    """image, image_id, study_id, patient_id of everybody, for tables that belong to no layout."""
    return people.images.select(
        pl.int_range(pl.len()).alias("image"),
        pl.format("image{}", pl.col("image").cast(pl.String).str.zfill(6)).alias("image_id"),
        pl.format("study{}", pl.col("study").cast(pl.String).str.zfill(6)).alias("study_id"),
        pl.format("patient{}", pl.col("patient").cast(pl.String).str.zfill(5)).alias("patient_id"),
    )


def predictions(
    people: People,
    *,
    model: str = "ideal",
    seed: int = 0,
    split: str = "test",
    ids: pl.DataFrame | None = None,
    laws: tuple[Law, ...] = DEFAULT,
    dataset: str = "synthetic",
) -> pa.Table:
    """One row an image and finding, No Finding aside.

    `ids` names the images (columns image, image_id, study_id, patient_id, as the writers of the layouts return them)
    and chooses which are there; `laws` must be those that `people` were made with. `pretest` is the exact P(y=1 |
    chart), `mention` whether the patient's notes name the finding (null for devices, of which notes tell nothing). A
    simulated model has no noise of its own: `seed` is only written down.
    """
    check_kind(model)
    names = default_ids(people) if ids is None else ids
    rows = names.get_column("image").to_numpy()
    named = by_finding(laws)
    base = {
        **{name: names.get_column(name).to_arrow() for name in ("image_id", "study_id", "patient_id")},
        **{name: _all(text, len(rows)) for name, text in (("dataset", dataset), ("split", split), ("model", model))},
        "seed": np.full(len(rows), seed, dtype=np.int64),
        "weight": np.ones(len(rows)),
        **_groups(people, rows),
        "view": people.images.get_column("view").gather(rows).to_arrow(),
    }
    tables = []
    for at, finding in enumerate(people.findings):
        if finding == "no_finding":
            continue
        if finding not in named:
            raise ConfigError(
                f"no law for {finding!r}", got=", ".join(named), next_step="pass laws= as people() was given them"
            )
        law, context = named[finding], people.c[rows, at]
        pretest = people.q[rows, at]
        if model == "context":
            odds = np.log(pretest) - np.log1p(-pretest)
        else:
            odds = log_odds(scores(people, at, law, model), law, model)[rows]
        told = finding in HISTORIES
        columns = base | {
            "finding": _all(finding, len(rows)),
            "label": people.y[rows, at].astype(np.int8),
            "prob": pretest if model == "context" else probability(odds),
            "logit": odds,
            "pretest": pretest,
            "mention": context >= EDGES[MENTIONED_FROM - 1] if told else pa.nulls(len(rows), pa.bool_()),
        }
        tables.append(pa.table({name: columns[name] for name in PREDICTION.names}))
    return check(pa.concat_tables(tables).combine_chunks(), PREDICTION, source=f"simulated model {model}")


def embeddings(
    people: People,
    *,
    model: str = "ideal",
    seed: int = 0,
    null: str | None = None,
    ids: pl.DataFrame | None = None,
    laws: tuple[Law, ...] = DEFAULT,
) -> pa.Table:
    """Two vectors an image: that of the finding with the hidden slice (D2), and the penultimate layer (finding null).

    D2: unit normal, the first axis moved by 4 where the slice is. Penultimate layer: ENCODED axes are moved by who is
    in the picture, SHOWN axes are what the picture shows. Nulls, where an audit must find nothing: "blind" (no axis is
    moved by anything), "score" (tanh of straight lines in the score, with a little noise: clusters differ in their
    Brier score although nobody is hidden in them; whoever has the slice still scores lower).
    """
    check_kind(model)
    if null not in (None, "blind", "score"):
        raise ConfigError("no such null of embeddings", got=null, allowed="blind, score, or None")
    names = default_ids(people) if ids is None else ids
    rows = names.get_column("image").to_numpy()
    rng = np.random.default_rng([seed, 53])
    noise = rng.standard_normal((2, people.images.height, DIMENSIONS))[:, rows]
    sliced = next((law for law in laws if isinstance(law, SliceLaw)), None)
    tables = []
    if sliced is not None:
        at = people.findings.index(sliced.finding)
        hidden = people.images.get_column("hazy").to_numpy()[rows]
        vectors = noise[0]
        if null is None:
            vectors[:, 0] += SHIFT * hidden
        elif null == "score":
            vectors = _of_score(scores(people, at, sliced, model)[rows], vectors)
        tables.append(_vectors(names, model, sliced.finding, vectors))
    vectors = noise[1]
    if null is None:
        for axis, (column, value, far) in ENCODED.items():
            vectors[:, axis] += far * (_column(people, column, rows) == value)
        for axis, finding in SHOWN.items():
            if finding in people.findings:
                vectors[:, axis] = people.s[rows, people.findings.index(finding)]
    elif null == "score" and sliced is not None:
        vectors = _of_score(scores(people, people.findings.index(sliced.finding), sliced, model)[rows], vectors)
    tables.append(_vectors(names, model, None, vectors))
    return check(pa.concat_tables(tables).combine_chunks(), EMBEDDING, source="simulated embeddings")


def embedding_truth(laws: tuple[Law, ...] = DEFAULT, model: str = "ideal") -> dict[str, Any]:
    """The hidden slice, and for each moved axis of the penultimate layer its AUROC for what moves it, against the rest.

    The AUROC is that of the axis alone; a probe of all axes finds at least as much.
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
        best = slices_truth(share=sliced.share, gap=sliced.gap, shift=SHIFT)
        found["slice"] = {
            "finding": sliced.finding,
            "attributes": ["ecg_wires", "hazy"],
            "share_of_positives": sliced.share,
            "precision": best.precision,
            "recall": best.recall,
            **{name: truth[sliced.finding].get(name) for name in ("brier_positive", "slices")},
        }
    return found


def attributes(people: People, *, ids: pl.DataFrame | None = None) -> pa.Table:
    """What lies in each picture: ATTRIBUTE rows with 1 and 0, as annotators write them."""
    names = default_ids(people) if ids is None else ids
    there = [name for name in _ATTRIBUTES if name in people.images.columns]
    wide = people.images.select(there).select(pl.all().cast(pl.Int8).cast(pl.String))[names["image"].to_numpy()]
    long = wide.with_columns(names.get_column("image_id")).unpivot(
        there, index="image_id", variable_name="name", value_name="value"
    )
    return check(long.to_arrow(), ATTRIBUTE, source="simulated attributes")


def write_models(
    people: People,
    folder: str | Path,
    seed: int = 0,
    *,
    models: Iterable[str] = tuple(KINDS),
    ids: pl.DataFrame | None = None,
    split: str = "test",
    laws: tuple[Law, ...] = DEFAULT,
) -> None:
    """predictions, embeddings, attributes and generations of these models as Parquet, and models_truth.json."""
    from cxrhf.data.synthetic.generations import generation_truth, generations
    from cxrhf.data.synthetic.reports import report_sections

    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    kinds = [check_kind(model) for model in models]
    tables = [predictions(people, model=kind, seed=seed, split=split, ids=ids, laws=laws) for kind in kinds]
    write_table(pa.concat_tables(tables), root / "predictions.parquet", PREDICTION)
