"""Material and probabilities -> PREDICTION rows, with prior mentions."""

from __future__ import annotations

from typing import cast

import numpy as np
import pyarrow as pa

from cxrhf.context.join import mentioned
from cxrhf.context.material import Material
from cxrhf.context.parts import Floats, Integers
from cxrhf.context.phrases import Rule, has_phrases
from cxrhf.schema import PREDICTION, check


def mentions_of(material: Material, rule: str, *, stratum: bool) -> Floats:
    """Images x findings: 1 where a prior note mentions the finding, 0 where none does, NaN where nobody can say.

    Images without notes have no mention as a stratum of their own, and are NaN otherwise.
    """
    flags = mentioned(list(material.findings), material.links, material.notes["text"], cast(Rule, rule))
    if stratum:
        listed = np.flatnonzero([has_phrases(each) for each in material.findings])
        flags[np.ix_(np.flatnonzero(~material.noted), listed)] = 0.0
    return flags


def prediction_rows(
    material: Material, rows: Integers, finding: int, model: str, probability: Floats, mention: Floats, seed: int
) -> pa.Table:
    """PREDICTION rows of some images for one finding."""
    images = material.images.take(pa.array(rows))
    # Without a probability a row has a mention only; a label without a score is what readers refuse.
    label = np.where(np.isnan(probability), np.nan, material.y[rows, finding])
    n = len(rows)
    columns = {name: images[name] for name in images.column_names} | {
        "model": pa.repeat(pa.scalar(model), n),
        "seed": pa.repeat(pa.scalar(seed, pa.int64()), n),
        "finding": pa.repeat(pa.scalar(material.findings[finding]), n),
        "label": pa.array(np.nan_to_num(label).astype(np.int8), mask=np.isnan(label)),
        "prob": pa.array(probability, from_pandas=True),
        "mention": pa.array(mention == 1, mask=np.isnan(mention)),
    }
    return check(pa.table(columns), PREDICTION, source="context predictions")
