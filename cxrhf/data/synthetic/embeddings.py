"""People -> EMBEDDING rows of simulated models: a hidden slice, and axes that know who is in the picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import ndtr

from cxrhf.data.synthetic.laws import DEFAULT, Law, SliceLaw
from cxrhf.data.synthetic.model_truths import model_truth, slice_truth
from cxrhf.data.synthetic.people import People
from cxrhf.data.synthetic.scores import check_kind, hidden_slice, scores
from cxrhf.data.synthetic.writing import default_ids
from cxrhf.errors import ConfigError
from cxrhf.schema import EMBEDDING, check

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
NULLS = {"blind": "blind", "score": "no_slice"}  # of the embeddings -> the model whose predictions go with it
SHOWN = {6: "pleural_effusion", 7: "pneumothorax", 8: "atelectasis"}  # axes that are what the picture shows of it


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
            vectors = _of_score(scores(people, at, sliced, name)[rows], vectors)
        tables.append(_vectors(names, name, sliced.finding, vectors))
    vectors = noise[1]
    if null is None:
        for axis, (column, value, far) in ENCODED.items():
            vectors[:, axis] += far * (_column(people, column, rows) == value)
        for axis, finding in SHOWN.items():
            if finding in people.findings:
                vectors[:, axis] = people.s[rows, people.findings.index(finding)]
    elif null == "score" and sliced is not None:
        vectors = _of_score(scores(people, people.findings.index(sliced.finding), sliced, name)[rows], vectors)
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


def _of_score(score: Floats, noise: Floats) -> Floats:
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
