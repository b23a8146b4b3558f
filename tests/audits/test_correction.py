"""p values of one page: what is multiplied by what, and that the page as a whole keeps its promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit

from cxrhf.audits.material import Material
from cxrhf.audits.plan import correct, run_audits
from cxrhf.audits.rows import INTERVAL_SOURCE, IntervalSource
from cxrhf.audits.sample import count
from cxrhf.errors import ConfigError
from cxrhf.findings import CHEXPERT
from cxrhf.metrics.intervals import benjamini_hochberg, holm
from cxrhf.report.book import Book, Cell
from cxrhf.report.sections.methods import methods
from cxrhf.report.sections.view import corrected, correction_of
from cxrhf.twin.planted_groups import shortcut as planted
from tests.audits.tables import block, settings
from tests.audits.test_shortcut import attribute
from tests.refusals import refused


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
    kept = IntervalSource(replicates, counts, counts.units, "auroc", None)
    rows = [row("context", 0.0124, **{INTERVAL_SOURCE: kept}) for _ in range(10)]
    correct(rows, "max_t")
    assert rows[0]["p_value"] == pytest.approx(0.0124, abs=0.006)  # Bonferroni would say .124


def test_max_t_knows_that_a_pair_was_picked() -> None:
    rng = np.random.default_rng(0)
    counts = count(np.array([0.0, 1.0]), np.array([0, 1]))
    kept = IntervalSource(0.1 + 0.04 * rng.standard_normal(4000), counts, counts.units, "auroc", None, 6)
    rows = [row("subgroups", 6 * 0.0124, **{INTERVAL_SOURCE: kept}) for _ in range(10)]
    correct(rows, "max_t")
    assert rows[0]["p_value"] == pytest.approx(6 * 0.0124, abs=0.036)


# ---------------------------------------------------------------- what the user asks for


def difference(
    audit: str, p_value: float | None, finding: str, model: str = "net", **more: object
) -> dict[str, object]:
    made = {"metric": "auroc", "finding": finding, "slice": "drain known & sex=F", "versus": "drain known & sex=M"}
    return row(audit, p_value, model, **(made | more))


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("shortcut", [0, 1]),
        ("Pneumothorax", [0, 2]),
        ("shortcut:drain:pneumothorax", [0]),
        ("pneumothorax:shortcut", [0]),
        ("drain", [0, 1]),
        ("auroc_drop:edema", [3]),
        ("auroc_att:edema", [3]),
        ("sex=f:subgroups", [2]),
        ("shortcut:edema,auroc_drop", [1, 3]),
        ("auroc", [0, 1, 2, 4]),
    ],
)
def test_a_question_is_words_that_describe_the_difference(question: str, asked: list[int]) -> None:
    rows = [
        difference("shortcut", 0.01, "pneumothorax"),
        difference("shortcut", 0.01, "edema"),
        difference("subgroups", 0.01, "pneumothorax", slice="sex=F", versus="sex=M"),
        difference("reweighted", 0.01, "edema", metric="auroc_drop", slice="all", versus="auroc_att"),
        difference("compare", 0.01, "edema", slice="all", versus="model=other"),
    ]
    assert correct(rows, "bonferroni", question.split(",")) == []
    found = [at for at, each in enumerate(rows) if "primary" in str(each["method"])]
    assert found == asked
    assert {rows[at]["p_value"] for at in asked} == {0.01 * len(asked)}


def test_what_is_asked_for_is_one_family_and_the_rest_shares_its_own_level() -> None:
    rows = [difference("shortcut", 0.01, f"finding {at}", model) for at in range(3) for model in ("net", "other")]
    rows += [difference("context", 0.004, "edema"), difference("context", 0.2, "edema"), row("matched", 0.004)]
    rows[-1] |= {"metric": "auroc_drop", "finding": "edema", "slice": "all"}
    correct(rows, "bonferroni", shortcuts=("drain",))
    assert [each["p_value"] for each in rows] == pytest.approx([0.06] * 6 + [0.016, 0.8, 0.008])
    assert rows[0]["method"] == "t; p corrected for 6 primary differences (Bonferroni)"
    assert rows[6]["method"] == "t; p corrected for 2 exploratory differences in each of 2 families (Bonferroni)"


def test_primary_takes_the_place_of_named_shortcuts() -> None:
    rows = [difference("shortcut", 0.01, "edema"), difference("shortcut", 0.01, "pneumothorax")]
    correct(rows, "bonferroni", ("pneumothorax",), ("drain",))
    assert rows[1]["method"] == "t; p corrected for 1 primary difference (Bonferroni)"
    assert rows[0]["method"] == "t; p corrected for 1 exploratory difference (Bonferroni)"


@pytest.mark.parametrize(("how", "rule"), [("holm", holm), ("bh", benjamini_hochberg)])
def test_other_rules_work_within_what_is_asked_for(how: str, rule: Callable[..., Any]) -> None:
    raw = [0.001, 0.2, 0.03]
    rows = [*(difference("shortcut", each, "edema") for each in raw), difference("context", 0.5, "edema")]
    correct(rows, how, ("shortcut",))
    assert [each["p_value"] for each in rows] == pytest.approx([*rule(raw), 0.5])


def test_a_question_that_nothing_answers_is_an_error_and_an_untested_one_a_note() -> None:
    rows = [difference("shortcut", 0.01, "edema"), difference("shortcut", None, "pneumothorax")]
    with refused(ConfigError, "primary", "(shortcut)", got="shortcut:pneumothorx", fix="pneumothorx"):
        correct(rows, "bonferroni", ("shortcut:pneumothorx",))
    assert rows[0]["p_value"] == 0.01
    (note,) = correct(rows, "bonferroni", ("shortcut:pneumothorax",))
    assert note.startswith("primary: shortcut:pneumothorax")
    assert rows[0]["method"] == "t; p corrected for 1 difference (Bonferroni)"


@pytest.mark.parametrize(
    "options",
    [{"primary": "slices"}, {"primary": "auroc_drop::edema"}, {"primary": "shortcut", "only": "overview"}],
)
def test_what_cannot_be_asked_for_is_an_error_before_the_audit(options: dict[str, str]) -> None:
    with refused(ConfigError, "primary", got=options["primary"]):
        settings(**options)


FINDINGS = (*CHEXPERT[1:9], *CHEXPERT[10:13])


def ward(n: int = 2_000, seed: int = 7, others: Sequence[str] = FINDINGS, **planting: Any) -> tuple[pa.Table, Material]:
    """The planted drain among findings of the same patients in which there is nothing, and two more groups."""
    made, rng = planted(n, seed=seed, **planting), np.random.default_rng([seed, 7])
    groups = {"sex": made.sex, "race": rng.choice(["A", "B"], n), "view": rng.choice(["AP", "PA"], n)}
    blocks = [block("pneumothorax", made.y, made.patient, prob=expit(made.score - 2), **groups)]
    for finding in others:
        y = (rng.random(n) < 0.3).astype(float)
        blocks.append(block(finding, y, made.patient, prob=expit(y + rng.normal(size=n)), **groups))
    return pa.concat_tables(blocks), Material(attributes=attribute(made.drain))


def of_ward(table: pa.Table, material: Material, n_resamples: int = 100, **options: Any) -> list[dict[str, Any]]:
    config = settings(n_resamples, only=("subgroups", "shortcut"), **options)
    return [each for each in run_audits(table, config, material=material).results.to_pylist() if each["p_value"]]


@pytest.fixture(scope="module")
def planted_ward() -> tuple[pa.Table, Material]:
    return ward()


def test_a_planted_shortcut_is_found_where_it_is_asked_for(planted_ward: tuple[pa.Table, Material]) -> None:
    """What it explains has a raw p of about 0.002: nothing among all that the page explores."""

    def gap(**options: Any) -> dict[str, Any]:
        rows = of_ward(*planted_ward, n_resamples=200, **options)
        wanted = ("shortcut", "pneumothorax", "auroc_gap_explained")
        (found,) = [each for each in rows if (each["audit"], each["finding"], each["metric"]) == wanted]
        return found

    raw, explored = gap(correction="none")["p_value"], gap()
    assert 0.001 < raw < 0.004
    assert explored["p_value"] > 0.1
    for how in ("bonferroni", "max_t"):
        asked = gap(correction=how, primary="shortcut:drain:pneumothorax")
        assert asked["p_value"] < 0.01
        assert "p corrected for 3 primary differences" in asked["method"]


def test_without_anything_asked_for_numbers_are_as_before(planted_ward: tuple[pa.Table, Material]) -> None:
    """Each raw p times the size of its family and the number of families."""
    raw, found = of_ward(*planted_ward, correction="none"), of_ward(*planted_ward)
    size = Counter(each["audit"] for each in raw)
    for one, other in zip(raw, found, strict=True):
        audit = one["audit"]
        assert other["p_value"] == min(1.0, min(1.0, one["p_value"] * size[audit]) * 2)
        said = f"; p corrected for {size[audit]} differences in each of 2 families (Bonferroni)"
        assert other["method"] == one["method"] + said


@pytest.mark.parametrize(
    ("config", "said", "scope"),
    [
        ({}, "at most 5%.", "all tests on this page"),
        ({"shortcuts": ["drain"]}, "at most 5%.", "all tests on this page"),  # a record from before
        ({"primary": [], "shortcuts": ["drain"]}, "5% among exploratory ones.", "within each family"),
        ({"primary": ["auroc_drop"]}, "5% among exploratory ones.", "within each family"),
        ({"primary": ["auroc_drop"], "correction": "by"}, "exploratory audit (Benjamini-Yekutieli).", "each family"),
        ({"primary": ["auroc_drop"], "correction": "none"}, "about five look significant.", "without correction"),
    ],
)
def test_the_page_names_both_families(config: dict[str, Any], said: str, scope: str) -> None:
    rule = correction_of({"config": config})
    told = dict(methods([Book("", "net", cells={("context", "edema", "auroc", "all", ""): Cell(p_value=0.2)})], rule))
    assert told["Many comparisons"].endswith(said)
    assert ("--primary" in told["Many comparisons"]) == ("exploratory" in said)
    assert ("p values are." in told["Limits"]) == (config.get("correction") != "none")
    assert scope in corrected(rule, scope=True)


@pytest.mark.slow
def test_a_shortcut_that_is_none_is_called_at_most_at_its_level() -> None:
    """Drains as frequent in both sexes: pages that ask about them, or explore them, call them in about 5%."""
    called = {"primary": 0, "exploratory": 0}
    for seed in range(400):
        rows = of_ward(*ward(800, seed, ("edema",), equalised=True), 1000, primary="shortcut:pneumothorax", seed=seed)
        for kind in called:
            called[kind] += any(each["p_value"] < 0.05 for each in rows if kind in each["method"])
    print(f"of 400 null pages: {called}")
    assert max(called.values()) <= 30  # 5% are 20; more than 30 come with a chance of 1%
