"""p values of one page: what is multiplied by what, and that the page as a whole keeps its promise."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf.audits.correction import correct
from cxrhf.audits.rows import KEPT, Kept
from cxrhf.audits.sample import count
from cxrhf.metrics.multiplicity import benjamini_hochberg, holm


def row(audit: str, p_value: float | None, model: str = "net", **more: object) -> dict[str, object]:
    made = {
        "audit": audit,
        "dataset": None,
        "model": model,
        "versus": "x",
        "value": 0.1,
        "p_value": p_value,
        "method": "t",
    }
    return made | more


def test_families_are_audits_and_share_the_level() -> None:
    rows = [row("context", 0.001), row("context", 0.2), row("context", 0.03), row("matched", 0.004)]
    correct(rows, "bonferroni")
    assert [each["p_value"] for each in rows] == pytest.approx([0.006, 1.0, 0.18, 0.008])
    assert rows[0]["method"] == "t; p corrected for 3 differences in each of 2 families (Bonferroni)"


def test_models_share_the_page_and_untested_rows_do_not_count() -> None:
    rows = [row("context", 0.01), row("context", None), row("context", np.nan), row("context", 0.01, model="other")]
    correct(rows, "bonferroni")
    assert rows[0]["p_value"] == rows[3]["p_value"] == 0.02
    assert rows[1]["p_value"] is None
    assert np.isnan(rows[2]["p_value"])


@pytest.mark.parametrize(("how", "rule", "shared"), [("holm", holm, 2), ("bh", benjamini_hochberg, 1)])
def test_other_rules(how: str, rule: object, shared: int) -> None:
    raw = [0.001, 0.2, 0.03]
    rows = [*(row("context", each) for each in raw), row("matched", 0.5)]
    correct(rows, how)
    expected = np.minimum(rule(raw) * shared, 1)
    assert [each["p_value"] for each in rows[:3]] == pytest.approx(expected.tolist())


def test_none_leaves_them() -> None:
    rows = [row("context", 0.001), row("context", 0.2)]
    correct(rows, "none")
    assert [each["p_value"] for each in rows] == [0.001, 0.2]
    assert rows[0]["method"] == "t"


def test_max_t_knows_that_equal_tests_are_one() -> None:
    rng = np.random.default_rng(0)
    replicates = 0.1 + 0.04 * rng.standard_normal(4000)
    counts = count(np.array([0.0, 1.0]), np.array([0, 1]))
    kept = Kept(replicates, counts, counts.units, "auroc", None)
    rows = [row("context", 0.0124, **{KEPT: kept}) for _ in range(10)]
    correct(rows, "max_t")
    assert rows[0]["p_value"] == pytest.approx(0.0124, abs=0.006)  # Bonferroni would say .124


def test_max_t_knows_that_a_pair_was_picked() -> None:
    rng = np.random.default_rng(0)
    counts = count(np.array([0.0, 1.0]), np.array([0, 1]))
    kept = Kept(0.1 + 0.04 * rng.standard_normal(4000), counts, counts.units, "auroc", None, 6)
    rows = [row("subgroups", 6 * 0.0124, **{KEPT: kept}) for _ in range(10)]
    correct(rows, "max_t")
    assert rows[0]["p_value"] == pytest.approx(6 * 0.0124, abs=0.036)
