"""Tables of a build -> material: links once and in time, patients in one split."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from cxrhf.context.material import Material, material, one_split_each
from cxrhf.errors import LeakageError, TableError
from tests.refusals import refused

DAY = datetime(2020, 1, 1)


def notes(owners: str = "aab") -> pa.Table:
    return pa.table({
        "note_id": [f"n{at}" for at in range(len(owners))],
        "patient_id": list(owners),
        "available_at": pa.array([DAY + timedelta(days=at) for at in range(len(owners))], pa.timestamp("us")),
        "text": [f"word{at}" for at in range(len(owners))],
    })  # fmt: skip


def made(links: list[list[str]], owners: str = "aab", split: list[str | None] | None = None) -> Material:
    n = len(links)
    images = pa.table({
        "image_id": [f"i{at}" for at in range(n)],
        "patient_id": list(owners)[:n],
        "split": pa.array(split or ["train"] * n, pa.string()),
        "study_time": pa.array([DAY + timedelta(days=30)] * n, pa.timestamp("us")),
        "prior_note_ids": pa.array(links, pa.list_(pa.string())),
        "edema": pa.array([1, 0, 1][:n], pa.int8()),
    })  # fmt: skip
    return material(images, notes(), ["edema"])


def test_links_are_once_and_in_the_order_of_time():
    """A note that a build names twice, or in another order, changes no number."""
    plain = made([["n0", "n1"], ["n0"], ["n2"]])
    odd = made([["n1", "n0", "n1"], ["n0", "n0"], ["n2"]])
    assert (plain.links.toarray() == odd.links.toarray()).all()
    assert set(odd.links.data) == {1.0}
    assert odd.links.indices.tolist() == [0, 1, 0, 2]
    assert plain.fingerprint() == odd.fingerprint()
    assert np.array_equal(plain.set_of, odd.set_of)


def test_a_note_of_another_patient_is_refused():
    with pytest.raises(TableError, match="another patient"):
        made([["n2"], ["n0"], ["n2"]])


@pytest.mark.parametrize("second", ["test", "validate", None])
def test_a_patient_in_two_splits_is_refused(second):
    links = [["n0", "n1"], ["n0"], ["n2"]]
    kept = made(links, split=["train", "train", "test"])
    assert one_split_each(kept) is kept
    with refused(LeakageError, "more than one split", fix="--split"):
        one_split_each(made(links, split=["train", second, "test"]))
