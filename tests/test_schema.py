"""The declared tables, and the names fetched from elsewhere."""

from __future__ import annotations

import pytest

from cxrhf import schema


def test_every_table_of_the_house_is_declared() -> None:
    assert set(schema.TABLES) == {
        "images", "attributes", "notes", "predictions", "characteristics", "embeddings", "generations", "scores",
        "report_vectors", "results", "curves", "words", "slices", "points", "gallery", "attrition",
    }  # fmt: skip
    assert schema.PREDICTION.names == [
        "image_id", "study_id", "patient_id", "dataset", "split", "model", "seed", "finding", "label", "prob", "logit",
        "pretest", "mention", "weight", "age", "sex", "race", "view",
    ]  # fmt: skip
    assert schema.RESULT.names == [
        "audit", "metric", "dataset", "model", "strategy", "finding", "slice", "versus", "value", "ci_low", "ci_high",
        "p_value", "n", "n_pos", "n_patients", "method", "seed", "higher_is_better", "note",
    ]  # fmt: skip


def test_names_from_elsewhere() -> None:
    for name in schema.__all__:
        assert getattr(schema, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = schema.nothing  # type: ignore[attr-defined]
