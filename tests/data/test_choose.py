"""Which rows are kept: against rows written out by hand, and stitched labels against a slow twin and pandas."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from cxrhf.data.prepare import first_of_study, frontal, one_per_patient, without_devices
from cxrhf.errors import ConfigError, TableError
from tests.refusals import refused

FINDINGS = ("no_finding", "edema", "support_devices")
LABELS = dict.fromkeys(FINDINGS, pl.Int8)


def images() -> pl.DataFrame:
    rows: list[tuple[Any, ...]] = [
        ("i0", "s1", "b", "PA", None, None, 1),
        ("i1", "s1", "b", "LATERAL", 1, 0, None),
        ("i2", "s2", "a", "AP", None, -1, -1),
        ("i3", "s3", "b", "AP", None, 1, 0),
        ("i4", "s4", "a", None, None, 1, 1),
        ("i5", "s1", "c", "LL", None, None, None),
    ]
    schema = dict.fromkeys(("image_id", "study_id", "patient_id", "view"), pl.String)
    return pl.DataFrame(rows, schema={**schema, **LABELS}, orient="row")


def ids(frame: pl.DataFrame) -> list[str]:
    return frame["image_id"].to_list()


def test_frontal_is_pa_and_ap() -> None:
    assert ids(frontal(images())) == ["i0", "i2", "i3"]
    with refused(TableError, "frontal views", '"view"', got="image_id"):
        frontal(images().drop("view"))


def test_uncertain_and_blank_devices_stay() -> None:
    assert ids(without_devices(images())) == ["i1", "i2", "i3", "i5"]
    with refused(TableError, '"support_devices"'):
        without_devices(images().drop("support_devices"))


def test_first_of_study_keeps_studies_of_two_patients_apart() -> None:
    assert ids(first_of_study(images())) == ["i0", "i2", "i3", "i4", "i5"]


def test_all_keeps_all() -> None:
    assert one_per_patient(images(), FINDINGS, "all").equals(images())


def test_first_keeps_patients_in_the_order_they_appear() -> None:
    kept = one_per_patient(images(), FINDINGS, "first")
    assert ids(kept) == ["i0", "i2", "i5"]
    assert kept.equals(images()[[0, 2, 5]])


def test_positive_first_takes_the_first_positive_else_the_first() -> None:
    kept = one_per_patient(images(), FINDINGS, "positive_first", "edema")
    assert ids(kept) == ["i3", "i4", "i5"], "patients in the order they appear, an uncertain label is not positive"
    assert ids(one_per_patient(images(), FINDINGS, "positive_first", "no_finding")) == ["i1", "i2", "i5"]


def test_of_equals_positive_first_takes_what_is_preferred() -> None:
    twice = images().with_columns(edema=pl.Series([None, 1, -1, 1, 0, None], dtype=pl.Int8))
    cases = (([], ["i1", "i2", "i5"]), (["i3", "i4"], ["i3", "i4", "i5"]), (["i0", "i2"], ["i1", "i2", "i5"]))
    for prefer, kept in cases:
        preferred = pl.Series(prefer, dtype=pl.String)
        found = one_per_patient(twice, FINDINGS, "positive_first", "edema", prefer=preferred)
        assert ids(found) == kept, prefer


def test_stitched_takes_the_first_label_that_is_not_blank_from_any_image() -> None:
    kept = one_per_patient(images(), FINDINGS, "stitched")
    assert ids(kept) == ["i0", "i2", "i5"]
    assert kept.columns == images().columns
    assert kept.select(FINDINGS).rows() == [(1, 0, 1), (None, -1, -1), (None, None, None)]
    assert kept.select(FINDINGS).dtypes == [pl.Int8] * 3
    assert kept.drop(FINDINGS).equals(one_per_patient(images(), FINDINGS, "first").drop(FINDINGS))


def random_images(seed: int, rows: int = 300) -> pl.DataFrame:
    draw = np.random.default_rng(seed)
    labels = {name: [None if value == 2 else int(value) for value in draw.integers(-1, 3, rows)] for name in FINDINGS}
    return pl.DataFrame(
        {
            "image_id": [f"i{at}" for at in range(rows)],
            "patient_id": [f"p{at}" for at in draw.integers(0, 90, rows)],
            **{name: pl.Series(values, dtype=pl.Int8) for name, values in labels.items()},
        }
    )


def slow_choice(frame: pl.DataFrame, choice: str, finding: str) -> list[dict[str, Any]]:
    """The same, patient by patient."""
    by_patient: dict[str, list[dict[str, Any]]] = {}
    for row in frame.to_dicts():
        by_patient.setdefault(row["patient_id"], []).append(row)
    kept = []
    for rows in by_patient.values():
        chosen = dict(rows[0])
        if choice == "positive_first":
            chosen = next((row for row in rows if row[finding] == 1), rows[0])
        if choice == "stitched":
            for name in FINDINGS:
                chosen[name] = next((row[name] for row in rows if row[name] is not None), None)
        kept.append(chosen)
    return kept


@pytest.mark.parametrize("choice", ["first", "positive_first", "stitched"])
@pytest.mark.parametrize("seed", range(5))
def test_the_slow_twin_agrees(choice: str, seed: int) -> None:
    frame = random_images(seed)
    assert one_per_patient(frame, FINDINGS, choice, "edema").to_dicts() == slow_choice(frame, choice, "edema")


def test_stitched_is_what_pandas_first_gives() -> None:
    import pandas

    frame = random_images(7)
    grouped = pandas.DataFrame(frame.to_dict(as_series=False)).groupby("patient_id", sort=False).first().reset_index()
    ours = one_per_patient(frame, FINDINGS, "stitched").select(grouped.columns.to_list())
    theirs = [[None if pandas.isna(value) else value for value in row] for row in grouped.to_numpy().tolist()]
    assert [list(row) for row in ours.rows()] == theirs


def test_a_patient_with_one_image_is_never_changed() -> None:
    frame = random_images(3).unique("patient_id", keep="any", maintain_order=True)
    for choice in ("first", "positive_first", "stitched"):
        assert one_per_patient(frame, FINDINGS, choice, "edema").equals(frame)


def test_a_wrong_choice_or_finding_says_what_is_allowed() -> None:
    with refused(ConfigError, got='"stiched"', fix="'stitched'"):
        one_per_patient(images(), FINDINGS, "stiched")
    with refused(ConfigError, "no_finding, edema", got="oedema", fix="'edema'"):
        one_per_patient(images(), FINDINGS, "positive_first", "oedema")
    with refused(ConfigError, "positive_first", fix="--finding"):
        one_per_patient(images(), FINDINGS, "positive_first")


def test_no_rows_and_no_findings() -> None:
    for choice in ("first", "positive_first", "stitched"):
        assert one_per_patient(images().clear(), FINDINGS, choice, "edema").height == 0
    assert ids(one_per_patient(images(), (), "stitched")) == ["i0", "i2", "i5"]
