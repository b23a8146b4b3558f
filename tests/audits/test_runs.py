"""Several runs of one model: mean and standard deviation of every number, mean curves, runs that lack something."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from cxrhf import metrics
from cxrhf.metrics import bands
from tests.audits.tables import audited, block

SEEDS = (0, 1, 2)


def made(seed: int, n: int = 500) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.25).astype(float)
    return y, 1 / (1 + np.exp(1 - y - rng.normal(size=n)))


def run(seed: int, y, p, finding: str = "x", start: int = 0, **columns) -> pa.Table:
    """One run; its images are those from `start` on."""
    table = block(finding, y, start + np.arange(len(y)), prob=p, seed=np.full(len(y), seed), **columns)
    ids = pa.array([f"image-{start + i:05d}" for i in range(len(y))])
    return table.set_column(table.schema.get_field_index("image_id"), table.schema.field("image_id"), ids)


def mean_rows(output, model: str = "net"):
    rows = [row for row in output.results.to_pylist() if row["model"] == model]
    found = {(row["finding"], row["metric"]): row for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.fixture(scope="module")
def samples():
    return [made(seed) for seed in SEEDS]


@pytest.fixture(scope="module")
def output(samples):
    """Split seeds: every run has its own test images, some of them shared."""
    runs = [run(seed, *sample, start=100 * seed) for seed, sample in zip(SEEDS, samples, strict=True)]
    return audited(*runs, n_resamples=30, only=("overview", "imbalance"))


@pytest.mark.parametrize("name", ["auroc", "average_precision", "brier", "balanced_brier", "expected_ace"])
def test_mean_and_standard_deviation(output, samples, name) -> None:
    found = mean_rows(output)
    if name == "expected_ace":
        single = [metrics.expected_ace(p) for _, p in samples]
    else:
        single = [getattr(metrics, name)(y, p) for y, p in samples]
    mean, spread = found["x", name], found["x", f"{name}.sd"]
    assert mean["value"] == pytest.approx(sum(single) / 3)
    assert spread["value"] == pytest.approx((sum((each - sum(single) / 3) ** 2 for each in single) / 2) ** 0.5)
    assert mean["method"] == "mean of 3 runs"
    assert (mean["audit"], mean["slice"], mean["ci_low"], mean["ci_high"]) == ("imbalance", "all", None, None)
    assert f"3 runs; {min(single):.4g} to {max(single):.4g}" in mean["note"]
    assert "not a standard error" in spread["note"]
    assert spread["higher_is_better"] is None
    assert mean["n"] == 500
    assert found["macro", name]["value"] == pytest.approx(mean["value"])  # one finding


def test_single_runs_stay_beside_the_mean(output) -> None:
    models = set(output.results["model"].to_pylist())
    assert models == {"net", "net (seed 0)", "net (seed 1)", "net (seed 2)"}
    assert any("3 runs (seeds 0, 1, 2)" in note for note in output.notes)


def test_rates_are_those_at_the_max_f1_threshold(output) -> None:
    """The overview has a precision at another threshold."""
    rows = output.results.to_pylist()
    single = [
        row["value"]
        for row in rows
        if (row["audit"], row["metric"], row["slice"], row["finding"]) == ("imbalance", "precision", "all", "x")
        and row["model"] != "net"
    ]
    row = mean_rows(output)["x", "precision"]
    assert row["value"] == pytest.approx(np.mean(single))
    assert "optimistic" in row["note"]
    assert "from the audit overview" in mean_rows(output)["x", "sensitivity_at_specificity"]["note"]
    assert ("x", "verdict") not in mean_rows(output)


def test_mean_curves(output, samples) -> None:
    curves = [row for row in output.curves.to_pylist() if row["model"] == "net"]
    assert {row["kind"] for row in curves} == {"roc_mean", "pr_mean"}
    for kind, band in (("roc_mean", bands.roc_band), ("pr_mean", bands.pr_band)):
        single = np.stack([band(y, p, draws=metrics.draw(n=len(y), n_resamples=2)).y for y, p in samples])
        curve = [row for row in curves if row["kind"] == kind]
        assert [row["y"] for row in curve] == pytest.approx(single.mean(axis=0))
        low = np.clip(single.mean(axis=0) - single.std(axis=0, ddof=1), 0, 1)
        assert [row["low"] for row in curve] == pytest.approx(low)
        assert all(row["low"] <= row["y"] <= row["high"] for row in curve)


def test_undefined_in_a_run() -> None:
    (y, p), (other, scores) = made(1), made(2)
    output = audited(
        run(0, y, p),
        run(1, np.zeros(300), p[:300]),
        run(2, other, scores),
        run(0, np.zeros(500), p, "never"),
        run(1, np.zeros(300), p[:300], "never"),
        run(2, y, p, "never"),
        n_resamples=20,
        only=("overview", "imbalance"),
    )
    found = mean_rows(output)
    both = [metrics.auroc(y, p), metrics.auroc(other, scores)]
    assert found["x", "auroc"]["value"] == pytest.approx(np.mean(both))
    assert found["x", "auroc"]["method"] == "mean of 2 runs"
    assert found["x", "auroc"]["note"].startswith("2 of 3 runs, undefined in the others")
    assert found["x", "auroc.sd"]["value"] == pytest.approx(np.std(both, ddof=1))
    assert found["x", "auroc"]["n"] is None  # runs differ
    assert "300 to 500 images" in found["x", "auroc"]["note"]
    once = found["never", "auroc.sd"]
    assert np.isnan(once["value"])
    assert once["note"] == "auroc.sd is undefined: auroc is defined in 1 of 3 runs"
    assert found["never", "auroc"]["method"] == "mean of 1 run"
    assert found["x", "brier"]["method"] == "mean of 3 runs"
    curve = [row for row in output.curves.to_pylist() if (row["model"], row["finding"]) == ("net", "never")]
    assert len(curve) == 201
    assert all(np.isnan(row["low"]) for row in curve)


def test_undefined_in_every_run() -> None:
    _, p = made(1)
    output = audited(*(run(seed, np.zeros(500), p) for seed in (0, 1)), n_resamples=20, only=("overview", "imbalance"))
    row = mean_rows(output)["x", "auroc"]
    assert np.isnan(row["value"])
    assert row["note"] == "auroc is undefined in all 2 runs"
    assert not [each for each in output.curves.to_pylist() if each["model"] == "net"]


def test_context_controlled_numbers_too() -> None:
    rng = np.random.default_rng(3)
    y, p = made(1)
    runs = [run(seed, y, np.clip(p + rng.normal(0, 0.02, 500), 0, 1), pretest=rng.random(500)) for seed in (0, 1)]
    output = audited(*runs, n_resamples=20, only=("matched", "reweighted", "imbalance"))
    found = mean_rows(output)
    for name in ("auroc_att", "auroc_ipw", "matched_auroc", "auroc_context"):
        single = {
            row["model"]: row["value"]
            for row in output.results.to_pylist()
            if (row["metric"], row["finding"], row["slice"], row["versus"]) == (name, "x", "all", None)
            and row["model"] != "net"
        }
        assert len(single) == 2
        assert found["x", name]["value"] == pytest.approx(np.mean(list(single.values())))
        assert found["x", f"{name}.sd"]["value"] == pytest.approx(np.std(list(single.values()), ddof=1))
    assert not any(metric.startswith(("balance.", "balance_", "verdict")) for _, metric in found)


def test_datasets_apart_and_row_order(samples) -> None:
    blocks = [
        run(seed, *samples[seed], dataset=dataset) for dataset in ("a", "b") for seed in (0, 1)
    ]  # the same numbers under two names
    output = audited(*blocks, n_resamples=20, only=("imbalance",), workers=1)
    assert {row["model"] for row in output.curves.to_pylist() if row["kind"] == "roc_mean"} == {"net on a", "net on b"}
    rows = [row for row in output.results.to_pylist() if (row["model"], row["metric"]) == ("net", "auroc.sd")]
    assert {row["dataset"] for row in rows} == {"a", "b"}
    assert len({row["value"] for row in rows}) == 1
    table = pa.concat_tables(blocks[:2])
    again = audited(table.take(pa.array(np.random.default_rng(0).permutation(1000))), n_resamples=20, workers=2)
    for key, row in mean_rows(audited(table, n_resamples=20, workers=1)).items():
        assert mean_rows(again)[key]["value"] == pytest.approx(row["value"], nan_ok=True)
