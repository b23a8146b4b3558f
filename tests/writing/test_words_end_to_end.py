"""From films to the page: a tiny Qwen3-VL learns the twin's reports and writes them; the audit sees the collapse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cxrhf import cli
from cxrhf.data.build import build
from cxrhf.data.settings import BuildConfig
from cxrhf.schema import RESULT
from cxrhf.tables.files import read_table

pytestmark = pytest.mark.slow


def test_greedy_collapses_and_sampling_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some five minutes on two cores: the recipe tiny_qwen as it is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXRHF_CACHE", str(tmp_path / "cache"))
    build(BuildConfig("synthetic", out="data", n_patients=500, seed=4, size=64, configuration="images",
                      ratios="60/10/30"))  # fmt: skip
    assert cli.main(["finetune", "data", "--config", "tiny_qwen", "--out", "writer"]) == 0
    losses = [json.loads(line) for line in (tmp_path / "writer" / "history-0.jsonl").read_text().splitlines()]
    learned = [row["loss"] for row in losses if "loss" in row]
    assert learned[-1] < learned[0] / 5
    assert cli.main(["generate", "writer", "--build", "data", "--out", "words"]) == 0
    assert cli.main(["score", "words"]) == 0
    assert cli.main(["audit", "words", "--n-resamples", "100"]) == 0
    rows = read_table(tmp_path / "words" / "results.parquet", RESULT).to_pylist()
    found = {
        (row["metric"], row["strategy"]): row["value"]
        for row in rows
        if row["audit"] == "reports" and row["slice"] == "all" and row["versus"] is None
    }
    assert {strategy for _, strategy in found} == {
        "reference",
        "greedy",
        "beam",
        "conservative",
        "rich",
        "top_k",
        "top_p",
    }
    assert found["template_diversity", "greedy"] < 0.2
    assert found["template_diversity", "top_p"] > 0.6
    assert found["semantic_diversity", "greedy"] < found["semantic_diversity", "rich"]
    # What the paper warns of: the collapsed strategy is the one most like the references.
    assert found["rougeL", "greedy"] > found["rougeL", "top_k"]
    assert found["omitted_mass", "greedy"] > found["omitted_mass", "top_p"]
    less = [row for row in rows if row["audit"] == "decoding" and row["metric"] == "template_diversity"]
    assert all(row["versus"] == "strategy=greedy" for row in less)
    assert next(row for row in less if row["strategy"] == "top_p")["ci_low"] > 0.4
