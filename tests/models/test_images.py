"""Which images are learned from: parts by group, fewer by patient."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from cxrhf.errors import ConfigError, TableError
from cxrhf.models.data import Images, filter_images, limit_images, unique_ids
from tests.models.tiny import Drawn, images
from tests.refusals import refused


def test_parts_keep_rows_and_pictures_together() -> None:
    whole = images(60)
    part = filter_images(whole, ["sex=F", "view=AP|PA", "age=30-60"])
    rows = [k for k in range(60) if whole.table["sex"][k].as_py() == "F" and 30 <= whole.table["age"][k].as_py() <= 60]
    assert part.ids == [whole.ids[k] for k in rows]
    assert filter_images(whole, ["sex=f", "view=ap|pa", "age=30-60"]).ids == part.ids
    for at, row in enumerate(rows):
        np.testing.assert_array_equal(part.pictures[at], whole.pictures[row])
    again = part.take(np.array([2, 0]))
    assert again.ids == [part.ids[2], part.ids[0]]
    np.testing.assert_array_equal(again.pictures[0], part.pictures[2])


def test_unknown_values_never_hold() -> None:
    whole = images(9)
    table = whole.table.set_column(whole.table.column_names.index("sex"), "sex", pa.array(["F", None, "M"] * 3))
    assert len(filter_images(Images(table, whole.pictures), ["sex=F"])) == 3


@pytest.mark.parametrize(
    ("only", "facts"),
    [
        ("sex=X", ("--only sex=X", "F, M")),
        ("age=100-120", ("--only age=100-120",)),
        ("race=whit", ("did you mean 'White'?",)),
    ],
)
def test_conditions_that_nobody_meets(only: str, facts: tuple[str, ...]) -> None:
    with refused(ConfigError, *facts):
        filter_images(images(30), [only])


def test_fewer_takes_whole_patients() -> None:
    whole = images(90)
    some = limit_images(whole, 20, seed=1)
    assert len(some) == 18
    counts = some.table.group_by("patient_id").aggregate([("image_id", "count")])["image_id_count"].to_pylist()
    assert set(counts) == {3}
    assert limit_images(whole, 20, seed=1).ids == some.ids
    assert limit_images(whole, 20, seed=2).ids != some.ids
    assert limit_images(whole, 500, seed=1) is whole
    with refused(ConfigError, "--max-images", got="2"):
        limit_images(whole, 2, seed=1)


def test_ids_must_be_unique() -> None:
    whole = images(6)
    unique_ids(whole)
    with refused(TableError, "1 images"):
        unique_ids(whole.take(np.array([0, 1, 1])))
    with refused(TableError, got="6 and 2"):
        Images(whole.table, Drawn(np.zeros((2, 4, 4), dtype=np.uint8)))
