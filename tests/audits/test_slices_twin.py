"""The twin: its hidden slice is found, confirmed and named; its models without one confirm nothing of the kind."""

from __future__ import annotations

from typing import Any

import pytest

from cxrhf.audits.material import Material
from cxrhf.audits.plan import run_audits
from cxrhf.twin.models import attributes, embeddings, predictions
from cxrhf.twin.people import People, people
from tests.audits.tables import settings

HIDDEN = ("ecg_wires", "hazy")


@pytest.fixture(scope="module")
def hospital() -> People:
    return people(900, 5)


def confirmed(made: People, model: str, null: str | None = None) -> list[dict[str, Any]]:
    table = predictions(made, model=model)
    table = table.filter([each == "atelectasis" for each in table["finding"].to_pylist()])
    beside = Material(embeddings=embeddings(made, null=null), attributes=attributes(made))
    found = run_audits(table, settings(50, only=("slices",)), material=beside)
    return [row for row in found.results.to_pylist() if row["metric"] == "confirmed" and row["value"] == 1]


def test_the_hidden_slice_is_named(hospital: People) -> None:
    rows = confirmed(hospital, "ideal")
    names = {row["slice"].partition(" & ")[2] for row in rows if "positive" in row["slice"]}
    assert {f"{each}=1" for each in HIDDEN} <= names
    assert all(row["p_value"] < 0.01 for row in rows if row["slice"].endswith(tuple(f"{each}=1" for each in HIDDEN)))


@pytest.mark.slow  # test_slices.py has a null that is drawn in a second
@pytest.mark.parametrize(("model", "null"), [("blind", "blind"), ("no_slice", "score")])
def test_where_nothing_can_be_found_nothing_is(hospital: People, model: str, null: str) -> None:
    assert not [row for row in confirmed(hospital, model, null) if any(each in row["slice"] for each in HIDDEN)]
