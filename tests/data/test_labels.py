"""Label policies, disease groups and counts against tables written out by hand."""

from __future__ import annotations

import polars as pl
import pytest

from cxrhf.data.fields import POLICIES, apply_policy, label_counts
from cxrhf.data.settings import LABEL_POLICIES
from cxrhf.errors import ConfigError, TableError
from tests.refusals import refused

FINDINGS = ("no_finding", "edema", "support_devices")


def frame(**columns: list[int | None]) -> pl.DataFrame:
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int8))


def raw() -> pl.DataFrame:
    """Every raw label once for each finding, without any No Finding."""
    return frame(no_finding=[0, None, -1, None], edema=[1, 0, -1, None], support_devices=[None, -1, 0, 1])


@pytest.mark.parametrize(
    ("policy", "edema", "devices", "no_finding"),
    [
        ("positive_only", [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]),
        ("masked", [1, 0, None, None], [None, None, 0, 1], [0, None, None, None]),
        ("ones", [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]),
        ("zeros", [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]),
    ],
)
def test_each_policy_replaces_each_raw_label(
    policy: str, edema: list[int | None], devices: list[int | None], no_finding: list[int | None]
) -> None:
    images = raw().with_columns(image_id=pl.Series(["a", "b", "c", "d"]))
    found = apply_policy(images, FINDINGS, policy)
    assert found.columns == images.columns
    assert found.select(FINDINGS).dtypes == [pl.Int8] * 3
    assert found["edema"].to_list() == edema
    assert found["support_devices"].to_list() == devices
    assert found["no_finding"].to_list() == no_finding
    assert images.equals(raw().with_columns(image_id=pl.Series(["a", "b", "c", "d"]))), "the input is not changed"


def test_masked_takes_no_finding_as_a_negative_for_the_others_but_not_for_devices() -> None:
    images = frame(no_finding=[1, 1, 1, 1, 0], edema=[None, -1, 0, 1, None], support_devices=[1, 0, -1, None, 1])
    found = apply_policy(images, FINDINGS, "masked")
    assert found["edema"].to_list() == [0, 0, 0, 0, None]
    assert found["support_devices"].to_list() == [1, 0, None, None, 1]
    assert found["no_finding"].to_list() == [1, 1, 1, 1, 0]


def test_masked_uses_no_finding_where_it_is_a_column_and_not_a_finding() -> None:
    images = frame(no_finding=[1, None], edema=[None, None])
    found = apply_policy(images, ["edema"], "masked")
    assert found["edema"].to_list() == [0, None]
    assert found["no_finding"].to_list() == [1, None]
    assert apply_policy(images.drop("no_finding"), ["edema"], "masked")["edema"].to_list() == [None, None]


@pytest.mark.parametrize("policy", ["positive_only", "ones", "zeros"])
def test_the_other_policies_leave_no_finding_apart(policy: str) -> None:
    found = apply_policy(frame(no_finding=[1], edema=[1], support_devices=[1]), FINDINGS, policy)
    assert found.row(0) == (1, 1, 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_applied_twice_is_that_policy(policy: str) -> None:
    images = frame(
        no_finding=[1, None, -1, None, 1], edema=[1, 0, -1, None, -1], support_devices=[None, -1, 0, 1, None]
    )
    once = apply_policy(images, FINDINGS, policy)
    assert apply_policy(once, FINDINGS, policy).equals(once)


def test_the_policies_are_those_of_the_settings() -> None:
    assert tuple(POLICIES) == LABEL_POLICIES


def test_an_unknown_policy_is_named_with_the_nearest() -> None:
    with refused(ConfigError, "positive_only, masked", got="maskd", fix="'masked'"):
        apply_policy(raw(), FINDINGS, "maskd")


def test_a_finding_that_is_not_there_is_named() -> None:
    with refused(TableError, '"oedema"'):
        apply_policy(raw(), ["oedema"], "ones")


def test_no_rows_and_no_findings() -> None:
    assert apply_policy(raw().clear(), FINDINGS, "masked").height == 0
    assert apply_policy(raw(), [], "masked").equals(raw())


def test_counts_say_every_raw_label() -> None:
    images = frame(edema=[1, 1, 0, -1, None, None, None], fracture=[None] * 7)
    assert label_counts(images, ["edema", "fracture"]).rows() == [("edema", 2, 1, 1, 3), ("fracture", 0, 0, 0, 7)]
    assert label_counts(images, []).columns == ["finding", "positive", "negative", "uncertain", "blank"]
