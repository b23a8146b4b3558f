"""Arrays -> EMBEDDING rows and the material beside a table, for the tests of audits of representations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from cxrhf.schema import EMBEDDING
from cxrhf.tables.checks import check


def vectors(
    table: pa.Table, matrix: Any, *, model: str = "net", seed: int | None = None, finding: str | None = None
) -> pa.Table:
    """One vector for each image of a one-finding table, in its order."""
    n, width = np.shape(matrix)
    flat = pa.array(np.asarray(matrix, dtype=np.float32).ravel())
    made = {
        "image_id": table["image_id"],
        "model": [model] * n,
        "seed": pa.array([seed] * n, pa.int64()),
        "finding": pa.array([finding] * n, pa.string()),
        "vector": pa.ListArray.from_arrays(pa.array(np.arange(n + 1, dtype=np.int32) * width), flat),
    }
    return check(pa.table(made), EMBEDDING)
