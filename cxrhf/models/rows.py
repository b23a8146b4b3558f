"""Logits and vectors of a network -> PREDICTION and EMBEDDING rows of its images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax

from cxrhf.models.images import Images
from cxrhf.models.tasks import Task, columns, targets
from cxrhf.schema import EMBEDDING, PREDICTION, check

_OF_IMAGE = ("image_id", "study_id", "patient_id", "dataset", "split", "age", "sex", "race", "view")


def prediction_rows(
    images: Images, tasks: Sequence[Task], logits: NDArray[np.floating], *, model: str, seed: int | None
) -> tuple[pa.Table, pa.Table]:
    """Rows of findings, and rows of characteristics (`sex=F`), an image x output each; labels null where unknown.

    The logit of a class is the logarithm of its probability among the classes of its task: it ranks images as that
    does, and is what a temperature divides.
    """
    goal = targets(images.table, tasks)
    findings: list[pa.Table] = []
    characteristics: list[pa.Table] = []
    for task, at in columns(tasks):
        z = np.asarray(logits[:, at], dtype=np.float64)
        logit, prob = (z, expit(z)) if task.kind == "labels" else (log_softmax(z, axis=1), softmax(z, axis=1))
        for k, output in enumerate(task.outputs):
            label = goal[:, at.start + k]
            rows = _rows(images, output if task.kind == "labels" else f"{task.name}={output}", model, seed)
            rows |= {
                "label": pa.array(label, pa.int8(), mask=label < 0),
                "prob": prob[:, k],
                "logit": logit[:, k],
            }
            (findings if task.kind == "labels" else characteristics).append(pa.table(rows))
    return _joined(findings), _joined(characteristics)


def embedding_rows(
    images: Images, vectors: NDArray[np.float32], *, model: str, seed: int | None = None, finding: str | None = None
) -> pa.Table:
    """One row an image; `finding` None is the penultimate layer."""
    n, width = vectors.shape
    flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).ravel())
    starts = pa.array(np.arange(n + 1, dtype=np.int32) * width) if n * width < 2**31 else None
    if starts is None:
        vector = pa.array(list(vectors), pa.list_(pa.float32()))
    else:
        vector = pa.ListArray.from_arrays(starts, flat)
    table = pa.table(
        {
            "image_id": images.table["image_id"],
            "model": pa.repeat(pa.scalar(model), n),
            "seed": pa.repeat(pa.scalar(seed, pa.int64()), n),
            "finding": pa.repeat(pa.scalar(finding, pa.string()), n),
            "vector": vector,
        }
    )
    return check(table, EMBEDDING, source="embeddings")


def merged(new: pa.Table, old: pa.Table | None, by: Sequence[str]) -> pa.Table:
    """New rows, and the old ones that are of another `by` (model, seed, split, ...)."""
    if old is None or not old.num_rows:
        return new
    keys = [_key(table, by) for table in (old, new)]
    kept = old.filter(pc.invert(pc.is_in(keys[0], value_set=pc.unique(keys[1]))))
    return pa.concat_tables([kept, new], promote_options="default")  # other builds have other findings


def _key(table: pa.Table, by: Sequence[str]) -> pa.ChunkedArray:
    texts = [pc.fill_null(table[name].cast(pa.string()), "") for name in by]
    return pc.binary_join_element_wise(*texts, "\x1f")


def _rows(images: Images, finding: str, model: str, seed: int | None) -> dict[str, object]:
    n = len(images)
    there = images.table.column_names
    return {name: images.table[name] for name in _OF_IMAGE if name in there} | {
        "model": pa.repeat(pa.scalar(model), n),
        "seed": pa.repeat(pa.scalar(seed, pa.int64()), n),
        "finding": pa.repeat(pa.scalar(finding), n),
    }


def _joined(tables: list[pa.Table]) -> pa.Table:
    if not tables:
        return PREDICTION.empty_table()
    return check(pa.concat_tables(tables).combine_chunks(), PREDICTION, source="predictions")
