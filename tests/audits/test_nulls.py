"""Where nothing is planted the whole page finds nothing, but for the 5% it promises."""

from __future__ import annotations

import pytest

from cxrhf.audits.plan import run_audits
from tests.audits.nulls import null_table
from tests.audits.tables import settings


def significant(seed: int, n_resamples: int = 500) -> list[str]:
    """What the page of either model calls significant, or of their comparison."""
    output = run_audits(null_table(seed), settings(n_resamples))
    return [
        f"{row['audit']} {row['model']} {row['finding']} {row['metric']} {row['slice']} {row['versus']}"
        for row in output.results.to_pylist()
        if row["versus"] is not None and row["p_value"] is not None and row["p_value"] < 0.05
    ]


def test_a_null_page_tests_much_and_finds_nothing() -> None:
    output = run_audits(null_table(1), settings(200))
    rows = [row for row in output.results.to_pylist() if row["p_value"] is not None]
    assert {"context", "matched", "reweighted", "subgroups", "compare"} == {row["audit"] for row in rows}
    assert len(rows) > 100
    assert not [row for row in rows if row["p_value"] < 0.05]


@pytest.mark.slow
def test_at_most_six_of_fifty_null_pages_find_anything() -> None:
    found = {seed: names for seed in range(50) if (names := significant(seed))}
    for seed, names in found.items():
        print(f"seed {seed}: {len(names)} significant, first: {names[0]}")
    print(f"{len(found)} of 50 null pages (two models and their comparison each) call anything significant")
    assert len(found) <= 6
