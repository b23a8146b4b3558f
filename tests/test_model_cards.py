"""The cards in model_cards/: written from their own rows, to the same bytes, as huggingface_hub reads them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

import cxrhf
from cxrhf.report.card import README, RESULTS, card_files, facts_of, find_weights
from cxrhf.run import read_run
from cxrhf.schema import RESULT
from tests.report.test_card import check_cells, check_findings, check_metadata, contents

CARDS = Path(__file__).resolve().parents[1] / "model_cards"
FOLDERS = sorted(each.parent.name for each in CARDS.glob(f"*/{RESULTS}"))


def held(name: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows and facts of a card."""
    found = json.loads((CARDS / name / RESULTS).read_text(encoding="utf-8"))
    assert found["rows"] == len(found["results"])
    return [{column: row.get(column) for column in RESULT.names} for row in found["results"]], found["facts"]


def test_the_demo_has_cards() -> None:
    kinds = [(held(name)[1]["kind"], held(name)[1]["simulated"]) for name in FOLDERS]
    assert {"image classifier", "report writer", "context model"} <= {
        kind for kind, simulated in kinds if not simulated
    }
    assert sum(kind == "image classifier" and simulated for kind, simulated in kinds) == 3


@pytest.mark.parametrize("name", FOLDERS)
def test_a_card_is_what_its_rows_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cxrhf.report.files.ZOOM", 1.5)  # as large as users get them
    rows, facts = held(name)
    assert card_files(rows, facts) == contents(CARDS / name)


@pytest.mark.parametrize("name", FOLDERS)
def test_numbers_and_metadata(name: str) -> None:
    rows, facts = held(name)
    text = (CARDS / name / README).read_text(encoding="utf-8")
    assert ModelCard.load(CARDS / name / README).data.license == "apache-2.0"
    assert check_cells(text, rows) > 20
    if facts["kind"] == "image classifier":
        check_findings(text, rows, facts["model"])
    check_metadata(text, (CARDS / name / ".eval_results/cxrhf.yaml").read_text(encoding="utf-8"), rows, facts)
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", text):
        assert (CARDS / name / picture).is_file()


@pytest.mark.parametrize("name", FOLDERS)
def test_a_card_is_small_and_public(name: str) -> None:
    files = contents(CARDS / name)
    assert len(files[RESULTS]) < 300_000
    for path, content in files.items():
        if not path.endswith(".png"):
            assert not re.search(rb"(?<![\w.:/])/(?:home|tmp|root|work|Users|mnt)/", content), path


@pytest.mark.slow
def test_the_code_of_a_card_runs(small_demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Weights of a small demo beside its card: what the card tells people to run gives a number of its table."""
    run = small_demo / "runs" / "demo"
    weights = find_weights(run, "network")
    assert weights is not None
    rows = read_run(run).table("results").to_pylist()
    files = card_files(rows, facts_of(run, "network", weights))
    repository = tmp_path / "network"
    shutil.copytree(weights, repository)
    (first, *_) = re.findall(r"```python\n(.*?)```", files[README].decode().split("## How to load")[1], re.DOTALL)
    films = {"test": str(run / "data" / "images" / "test-*.parquet")}
    code = first.replace('"user/name"', repr(str(repository)))
    code = code.replace('load_dataset("user/synthetic",', f'load_dataset("parquet", data_files={films!r},')
    code = code.replace('"user/weighted_auroc"', repr(str(cxrhf.metric_path("weighted_auroc"))))
    capsys.readouterr()
    exec(compile(code, "card", "exec"), {})
    told = re.search(r"# ([\d.]+) in the table", first)
    assert told is not None
    assert float(capsys.readouterr().out.split()[-1]) == pytest.approx(float(told[1]), abs=0.02)
