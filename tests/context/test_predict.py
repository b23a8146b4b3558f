"""Rows of another build against rows of the fit: what ids can tell, and what they cannot."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cxrhf.context.predict import doubtful
from cxrhf.errors import TableError


def rows(images: str, patients: str, dataset: str | None = "one") -> pa.Table:
    name = pa.array([dataset] * len(images), pa.string())
    return pa.table({"image_id": list(images), "patient_id": list(patients), "dataset": name})


def test_the_same_images_and_new_ones_raise_no_doubt():
    assert doubtful(rows("abz", "pqr"), rows("aabb", "ppqq")) == []
    assert doubtful(rows("abz", "pqr", None), rows("ab", "pq", None)) == []
    assert doubtful(rows("ab", "xy", "two"), rows("ab", "pq")) == []  # other people with like image ids


def test_an_image_of_the_fit_with_another_patient_is_refused():
    with pytest.raises(TableError, match="1 images of the fit have another patient"):
        doubtful(rows("abz", "pxr"), rows("ab", "pq"))


def test_the_same_ids_under_another_name_are_told():
    said = doubtful(rows("abz", "pqr", "two"), rows("ab", "pq"))
    assert len(said) == 1
    assert "2 images" in said[0]
    assert "have seen their labels" in said[0]
