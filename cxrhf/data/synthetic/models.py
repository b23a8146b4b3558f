"""People -> PREDICTION rows of simulated models whose every flaw is planted, ATTRIBUTE rows, and files of all tables.

What is true of each model is in model_truths.py; embeddings.py and generations.py have the other tables.
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

from cxrhf.data.synthetic.embeddings import NULLS, embedding_truth, embeddings
from cxrhf.data.synthetic.histories import EDGES, HISTORIES, MENTIONED_FROM
from cxrhf.data.synthetic.model_truths import model_truth
from cxrhf.data.synthetic.people import People
from cxrhf.data.synthetic.scores import KINDS, by_finding, check_kind, log_odds, probability, scores
from cxrhf.data.synthetic.writing import attributes, default_ids
from cxrhf.schema import PREDICTION, check, write_table

__all__ = ["attributes", "predictions", "write_models"]


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
        **{name: _all(text, len(rows)) for name, text in (("dataset", dataset), ("split", split), ("model", model))},
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
            "finding": _all(finding, len(rows)),
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
    from cxrhf.data.synthetic.generations import KINDS as WRITERS
    from cxrhf.data.synthetic.generations import generation_truth, generations
    from cxrhf.data.synthetic.reports import report_sections

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


def _all(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)
