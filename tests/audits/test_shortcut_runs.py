"""Several runs of the shortcut audit: means and spreads, and SLICES' Mann-Whitney test beside the page's p values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit
from scipy.stats import mannwhitneyu

from cxrhf import metrics
from cxrhf.audits.material import Material
from cxrhf.audits.plan import AuditOutput, run_audits
from cxrhf.twin.planted_groups import shortcut as planted
from tests.audits.tables import block, settings
from tests.audits.test_shortcut import F, M, attribute

SEEDS = (0, 1, 2, 3)
POOL = planted(3_000, seed=0)


def runs_of(seeds: Any = SEEDS, share: float = 0.3) -> pa.Table:
    """Splits: every run has its own test images out of one pool."""
    made = []
    for seed in seeds:
        test = np.flatnonzero(np.random.default_rng([seed, 5]).random(len(POOL.y)) < share)
        whole = block("x", POOL.y, POOL.patient, prob=expit(POOL.score - 2), sex=POOL.sex, seed=[seed] * len(POOL.y))
        made.append(whole.take(test))
    return pa.concat_tables(made)


def audited(table: pa.Table, drain: Any = POOL.drain, **options: Any) -> AuditOutput:
    config = settings(50, only=("shortcut",), **options)
    return run_audits(table, config, material=Material(attributes=attribute(drain)))


def rows_of(output: AuditOutput, model: str, metric: str, where: str = F, versus: str | None = None) -> Any:
    (row,) = [
        row
        for row in output.results.to_pylist()
        if (row["model"], row["metric"], row["slice"], row["versus"]) == (model, metric, where, versus)
    ]
    return row


def values(output: AuditOutput, metric: str, where: str) -> list[float]:
    return [rows_of(output, f"net (seed {seed})", metric, where)["value"] for seed in SEEDS]


@pytest.fixture(scope="module")
def output() -> AuditOutput:
    return audited(runs_of(), shortcut_test="mann_whitney")


@pytest.mark.parametrize(
    ("metric", "where"),
    [("auroc", F), ("auroc", "drain known"), ("auroc_equalised", M), ("brier", "sex=F & label=1 & drain=0")],
)
def test_mean_and_standard_deviation(output, metric, where) -> None:
    single = values(output, metric, where)
    mean, spread = (rows_of(output, "net", f"{metric}{end}", where) for end in ("", ".sd"))
    assert mean["value"] == pytest.approx(np.mean(single))
    assert spread["value"] == pytest.approx(np.std(single, ddof=1))
    assert (mean["audit"], mean["ci_low"], mean["p_value"], mean["n"]) == ("shortcut", None, None, None)
    assert (mean["method"], spread["method"]) == ("mean of 4 runs", "standard deviation over 4 runs")
    assert mean["note"].startswith(f"4 runs; {min(single):.4g} to {max(single):.4g}")
    assert "not a standard error" in spread["note"]
    assert (mean["higher_is_better"], spread["higher_is_better"]) == (metric != "brier", None)


def test_only_what_figures_show_is_averaged(output) -> None:
    found = {(row["metric"], row["versus"]) for row in output.results.to_pylist() if row["model"] == "net"}
    means = {f"{metric}{end}" for metric in ("auroc", "auroc_equalised", "brier") for end in ("", ".sd")}
    assert {metric for metric, versus in found if versus is None} == means
    assert {metric for metric, versus in found if versus} == {"mann_whitney", "mann_whitney_equalised"}


@pytest.mark.parametrize("metric", ["auroc", "auroc_equalised"])
def test_the_papers_test_is_told_apart(output, metric) -> None:
    ours, theirs = values(output, metric, F), values(output, metric, M)
    row = rows_of(output, "net", metric.replace("auroc", "mann_whitney"), F, M)
    assert row["value"] == pytest.approx(np.mean(np.subtract.outer(ours, theirs) > 0))
    assert f"p = {mannwhitneyu(ours, theirs).pvalue:.2g} over 4 and 4 runs, not corrected" in row["note"]
    assert row["p_value"] is None
    assert "type I error 0.35" in row["method"]
    assert any("overlap" in note and note.startswith("net: Mann-Whitney") for note in output.notes)


def test_without_it_the_pages_p_values_are_the_same(output) -> None:
    plain = audited(runs_of())
    kept = [row for row in output.results.to_pylist() if not row["metric"].startswith("mann_whitney")]
    assert plain.results.to_pylist() == kept
    assert not any("Mann-Whitney" in note for note in plain.notes)


def test_the_papers_test_says_too_much() -> None:
    """What the note says: with scores that owe nothing to sex, splits of 30% of one pool. 34 of 100 is expected."""
    said = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        y, sex = (rng.random(1_200) < 0.3).astype(float), rng.random(1_200) < 0.5
        score, found = y + rng.normal(size=1_200), []
        for _ in range(10):
            test = rng.random(1_200) < 0.3
            found.append([metrics.auroc(y[test & own], score[test & own]) for own in (sex, ~sex)])
        said += mannwhitneyu(*np.transpose(found)).pvalue < 0.05
    assert said >= 12


def test_runs_in_which_a_number_is_undefined() -> None:
    """Nobody with the finding of one sex has a drain, but for the images of the first run."""
    table = runs_of()
    first = set(table["image_id"].to_pylist()[: len(runs_of((0,)))])
    own = np.array([f"secret-image-{i:05d}" in first for i in range(len(POOL.y))])
    drain = np.where((POOL.sex == "F") & (POOL.y == 1) & ~own, 0, POOL.drain)
    others = np.array([seed == 0 or image not in first for seed, image in zip(*_columns(table), strict=True)])
    output = audited(table.filter(pa.array(others)), drain, shortcuts=("drain",), shortcut_test="mann_whitney")
    mean, spread = (rows_of(output, "net", f"auroc_equalised{end}") for end in ("", ".sd"))
    assert mean["value"] == pytest.approx(rows_of(output, "net (seed 0)", "auroc_equalised")["value"])
    assert mean["note"].startswith("1 of 4 runs, undefined in the others")
    assert np.isnan(spread["value"])
    assert spread["note"] == "auroc_equalised.sd is undefined: auroc_equalised is defined in 1 of 4 runs"
    row = rows_of(output, "net", "mann_whitney_equalised", F, M)
    assert np.isnan(row["value"])
    assert "defined in 1 and 1 runs" in row["note"]
    assert np.isfinite(rows_of(output, "net", "mann_whitney", F, M)["value"])


def _columns(table: pa.Table) -> tuple[list[int], list[str]]:
    return table["seed"].to_pylist(), table["image_id"].to_pylist()


def test_one_run_has_no_mean() -> None:
    output = audited(runs_of((0,)), shortcut_test="mann_whitney")
    assert set(output.results["model"].to_pylist()) == {"net"}
    assert not [row for row in output.results.to_pylist() if row["metric"].endswith(".sd")]
