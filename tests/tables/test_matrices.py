"""The long table as matrices: aligned, order-free, masked where nothing is known."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from cxrhf.errors import TableError
from cxrhf.schema import PREDICTION
from cxrhf.tables.checks import arrays, check
from cxrhf.tables.predictions import load_predictions, read_predictions
from tests.refusals import refused

WIDE = {
    "image_id": ["c", "a", "b"],
    "patient_id": ["p2", "p1", "p1"],
    "Mass": [1, 0, None],
    "prob_Mass": [0.9, 0.2, 0.3],
    "Edema": [0, 1, 1],
    "prob_Edema": [2.5, -1.0, 0.5],
    "pretest_Mass": [0.1, 0.2, None],
    "mention_Mass": [True, None, False],
    "weight": [1.0, 2.0, 0.5],
    "sex": ["M", None, "F"],
    "age": [60, 61, None],
}


@pytest.fixture
def table() -> pa.Table:
    return load_predictions(WIDE).table


def test_matrices(table: pa.Table) -> None:
    got = arrays(table)
    nan = np.nan
    assert got.findings == ("mass", "edema")
    assert got.image_ids.tolist() == ["a", "b", "c"]
    assert got.patient_ids.tolist() == ["p1", "p2"]
    assert got.patients.tolist() == [0, 0, 1]
    np.testing.assert_array_equal(got.y, [[0, 1], [nan, 1], [1, 0]])
    np.testing.assert_array_equal(got.p, [[0.2, -1.0], [0.3, 0.5], [0.9, 2.5]])
    assert got.is_probability.tolist() == [True, False]
    np.testing.assert_array_equal(got.pretest, [[0.2, nan], [nan, nan], [0.1, nan]])
    np.testing.assert_array_equal(got.mention, [[nan, nan], [0, nan], [1, nan]])
    np.testing.assert_array_equal(got.weight, [[2, 2], [0.5, 0.5], [1, 1]])
    np.testing.assert_array_equal(got.age, [61, nan, 60])
    assert got.groups["sex"].tolist() == ["", "F", "M"]
    assert set(got.groups) == {"sex"}
    assert (got.model, got.seed) == ("model", None)


def test_row_order_does_not_matter(table: pa.Table) -> None:
    plain = arrays(table)
    shuffled = table.take(pa.array([4, 1, 5, 0, 3, 2]))
    other = arrays(shuffled)
    order = [other.findings.index(name) for name in plain.findings]
    np.testing.assert_array_equal(plain.y, other.y[:, order])
    np.testing.assert_array_equal(plain.p, other.p[:, order])
    np.testing.assert_array_equal(plain.patients, other.patients)
    np.testing.assert_array_equal(plain.image_ids, other.image_ids)


def test_a_missing_pair_is_masked(table: pa.Table) -> None:
    got = arrays(table.slice(0, 4))  # image c has both findings, a and b only mass
    np.testing.assert_array_equal(got.y[:, 1], [np.nan, np.nan, 0])
    assert np.isnan(got.p[:2, 1]).all()


def test_models_and_seeds_must_be_chosen(table: pa.Table) -> None:
    other = check(table.set_column(5, "model", pa.array(["other"] * 6)), PREDICTION)
    both = pa.concat_tables([table, other])
    with refused(TableError, "one model", got="2", fix="model='model'"):
        arrays(both)
    assert arrays(both, "other").model == "other"
    with refused(TableError, '"third"', "other"):
        arrays(both, "third")
    seeded = pa.concat_tables([table.set_column(6, "seed", pa.array([seed] * 6)) for seed in (1, 2)])
    with refused(TableError, "one seed", got="2", fix="seed=1"):
        arrays(seeded)
    assert arrays(seeded, seed=2).seed == 2


def test_bad_tables(table: pa.Table) -> None:
    with refused(TableError, "no rows"):
        arrays(table.slice(0, 0))
    with refused(TableError, "two rows", fix="read_predictions"):
        arrays(pa.concat_tables([table, table]))


def test_absent_columns_are_none() -> None:
    got = arrays(read_predictions({"id": ["a"], "patient": ["p"], "label": [1], "score": [0.5]}))
    assert got.pretest is None
    assert got.mention is None
    assert got.weight is None
    assert got.age is None
    assert got.groups == {}


def test_one_long_id_does_not_make_room_for_all() -> None:
    n = 2000
    ids = [f"{at}" for at in range(n - 1)] + ["x" * 1000]
    rows = {"image_id": ids, "patient_id": ids, "model": ["m"] * n, "finding": ["f"] * n, "label": [0] * n}
    found = arrays(check(pa.table(rows | {"prob": [0.5] * n}), PREDICTION))
    assert found.image_ids.nbytes + found.patient_ids.nbytes < 200 * n
    assert found.image_ids.tolist() == sorted(ids)
