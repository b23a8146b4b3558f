"""Tasks, their outputs on one layer, and targets with unknowns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cxrhf.errors import ConfigError
from cxrhf.models.data import (
    Task,
    check_findings,
    from_json,
    make_tasks,
    names,
    shuffled,
    targets,
    task_columns,
    to_json,
)
from tests.refusals import refused

TABLE = pa.table(
    {
        "patient_id": ["a", "a", "b", "c"],
        "edema": pa.array([1, 0, None, 1], pa.int8()),
        "hernia": pa.array([0, 0, None, 0], pa.int8()),
        "mass": pa.array([None] * 4, pa.int8()),
        "sex": ["F", "F", "M", None],
        "race": ["White", "White", "Unknown", "Black"],
        "view": ["AP"] * 4,
        "age": [19.0, 85.0, None, 40.0],
    }
)


def test_tasks_and_targets() -> None:
    tasks, notes = make_tasks(TABLE, ("findings", "sex", "race", "view", "age_band"), ("edema", "hernia", "mass"))
    assert names(tasks) == [
        "edema", "sex=F", "sex=M", "race=Black", "race=White", "age_band=0-19", "age_band=40-59", "age_band=80+",
    ]  # fmt: skip
    assert notes == [
        "hernia is excluded: none of 3 labelled training images is positive",
        "mass is excluded: no training image is labelled for it",
        "view is excluded: training images have 1 value of it",
    ]
    assert targets(TABLE, tasks).tolist() == [
        [1, 1, 0, 0, 1, 1, 0, 0],
        [0, 1, 0, 0, 1, 0, 0, 1],
        [-1, 0, 1, -1, -1, -1, -1, -1],
        [1, -1, -1, 1, 0, 0, 1, 0],
    ]
    assert [at for _, at in task_columns(tasks)] == [slice(0, 1), slice(1, 3), slice(3, 5), slice(5, 8)]
    assert from_json(to_json(tasks)) == tasks


def test_other_tables_may_lack_columns_and_have_other_classes() -> None:
    tasks = [Task("findings", "labels", ("edema", "hernia")), Task("race", "classes", ("Black", "White"))]
    other = pa.table({"edema": pa.array([1], pa.int8()), "race": ["Asian"]})
    assert targets(other, tasks).tolist() == [[1, -1, -1, -1]]
    assert targets(pa.table({"race": ["White"]}), tasks).tolist() == [[-1, -1, 0, 1]]


def test_nothing_to_learn_is_an_error() -> None:
    with refused(ConfigError, "hernia", fix="--findings"):
        make_tasks(TABLE, ("findings",), ("hernia",))
    with refused(ConfigError, fix="did you mean 'edema'"):
        check_findings(["edma"], ["edema", "mass"])


def test_shuffled_labels_come_from_other_patients() -> None:
    rng = np.random.default_rng(0)
    patients = [f"p{k}" for k in np.repeat(np.arange(300), rng.integers(1, 5, 300))]
    code = np.array([int(each[1:]) for each in patients])
    # Each patient's labels spell the patient's number, so that the giver can be read off.
    target = ((code[:, None] >> np.arange(9)) & 1).astype(np.int8)
    out = shuffled(target, patients, seed=1)
    giver = (out.astype(int) << np.arange(9)).sum(axis=1)
    assert not (giver == code).any()
    assert all(len(set(giver[code == each])) == 1 for each in range(300))
    assert len(set(giver)) == 300
    np.testing.assert_array_equal(out, shuffled(target, patients, seed=1))
    assert (out != shuffled(target, patients, seed=2)).any()
