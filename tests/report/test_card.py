"""Model cards: every number is a row's, every file is written again to the same bytes, nothing of single patients."""

from __future__ import annotations

import html
import json
import math
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
import yaml
from huggingface_hub import ModelCard, parse_eval_result_entries
from huggingface_hub.repocard_data import eval_results_to_model_index, model_index_to_eval_results

from cxrhf.cli import main
from cxrhf.data.fields import POLICIES, apply_policy
from cxrhf.errors import RunError
from cxrhf.report.card import (
    card_files,
    card_text,
    cards_in,
    eval_results,
    facts_of,
    find_weights,
    model_index,
    rewrite,
    slug,
    write_cards,
)
from cxrhf.report.card_facts import card_rows, command, commands, model_rows, models_of
from cxrhf.report.card_sections import escape_markdown
from cxrhf.report.card_text import label_lines
from cxrhf.report.numbers import format_number, format_percent
from cxrhf.run import open_run
from cxrhf.schema import PREDICTION, RESULT, WORD
from cxrhf.tables.checks import table_of
from cxrhf.tables.files import write_table
from tests.refusals import refused
from tests.report import made_reports, made_representations
from tests.report.made import RECORD, everything, several_runs
from tests.thinned import thinned

Row = Mapping[str, Any]
FLAGS = ("tasks", "verdict", "worst", "confirmed")  # yes or no, or a sentence
NUMBER = re.compile(r"[−-]?\d[\d,]*(?:\.\d+)?%?")


def run_of(folder: Path, rows: Sequence[Row], words: Sequence[Row] = (), verb: str = "audit", **record: Any) -> Path:
    """A run folder with these RESULT and WORD rows."""
    run = open_run(folder, verb=verb, config={**RECORD["config"], "out": "r"}, inputs=[])
    run.add("results", pa.Table.from_pylist(list(rows), schema=RESULT))
    if words:
        run.add("words", pa.Table.from_pylist(list(words), schema=WORD))
    run.finish(notes=RECORD["notes"], **record)
    return folder


def network_rows(dataset: str | None = "synthetic") -> list[dict[str, Any]]:
    """All audits of one network, with groups, slices, a shortcut and what its vectors tell."""
    rows = [*made_representations.whole().rows, *made_representations.encoding()]
    return [{**row, "dataset": dataset} for row in rows]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Row], dict[str, Any]]:
    rows = network_rows()
    return rows, facts_of(run_of(tmp_path_factory.mktemp("run") / "r", rows), "net", None)


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Row], dict[str, Any]]:
    made = made_reports.whole(dataset="synthetic")
    for row in made.rows:
        if row["metric"] == "top_template":
            row["note"] = made_reports.TEMPLATE
    return made.rows, facts_of(run_of(tmp_path_factory.mktemp("run") / "r", made.rows, made.words), "vlm", None)


# --- what every card must hold to; tests/test_model_cards.py asks the same of those in the repository ----------------


def tables(text: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """The tables of a card: titles, and cells of every row."""
    for found in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        titles, _, *rows = [re.split(r"(?<!\\) ?\| ?", line.strip())[1:-1] for line in found.strip().split("\n")]
        yield titles, rows


def shown_as(row: Row) -> set[str]:
    """Every way in which numbers of a row may be written."""
    out = set()
    for name in ("value", "ci_low", "ci_high", "p_value"):
        value = row.get(name)
        if value is None or not math.isfinite(value):
            continue
        for each in (value, -value):
            out |= {format_number(each, digits) for digits in range(5)} | {
                format_percent(each, digits) for digits in range(3)
            }
            out |= {f"{each:,.0f}", f"{each:.0f}"}
        out |= {"0.001"} if name == "p_value" and value < 0.001 else set()
        out |= {"1,000"} if abs(value) > 1000 else set()  # "over 1,000"
    return out | {f"{row[name]:,}" for name in ("n", "n_pos", "n_patients") if row.get(name) is not None}


def check_cells(text: str, rows: Sequence[Row]) -> int:
    """Every number in a cell is written from a row; names of groups, strategies and verdicts are not numbers."""
    allowed = set().union(*map(shown_as, rows))
    names = {each for row in rows for key in ("slice", "versus", "strategy", "model", "note", "method", "finding")
             for each in NUMBER.findall(str(row.get(key) or ""))}  # fmt: skip
    count = 0
    for _, body in tables(text):
        for row in body:
            for cell in row[1:]:
                for found in NUMBER.findall(html.unescape(cell)):
                    assert found in allowed or found in names, (found, row)
                    count += 1
    return count


def check_findings(text: str, rows: Sequence[Row], model: str) -> None:
    """The main table: value and interval of each finding are those of its own row."""
    first = ("reweighted", "matched", "overview")
    where = {"AUROC": "auroc", "Context alone": "auroc_context", "Context equal": "auroc_att",
             "Slope": "calibration_slope", "Sensitivity": "sensitivity_at_specificity"}  # fmt: skip
    titles, body = next((head, rows) for head, rows in tables(text) if head[1:4] == ["Images", "Positive", "AUROC"])
    own = [row for row in rows if row["model"] == model and row["slice"] == "all" and not row["versus"]]
    findings = list(
        dict.fromkeys(row["finding"] for row in own if row["finding"] != "macro" and row["audit"] == "overview")
    )
    for finding, cells in zip([*findings, "macro"], body, strict=False):
        for title, cell in zip(titles, cells, strict=True):
            if title not in where or cell == "–":
                continue
            metric = where[title]
            found = [row for audit in first for row in own
                     if (row["audit"], row["finding"], row["metric"]) == (audit, finding, metric)]  # fmt: skip
            row = found[0]
            ends = f"({format_number(row['ci_low'])} to {format_number(row['ci_high'])})"
            assert cell.replace("\u00a0", " ").startswith(f"{format_number(row['value'])}<br>{ends}")


def check_metadata(text: str, evaluated: str, rows: Sequence[Row], facts: Mapping[str, Any]) -> None:
    """huggingface_hub reads the card and the results, and their values are the rows' to the last digit."""
    card = ModelCard(text)
    values = {row["value"] for row in rows}
    index = yaml.safe_load(text.split("---\n")[1])["model-index"]
    name, results = model_index_to_eval_results(index)
    assert eval_results_to_model_index(name, results) == index
    assert card.data.eval_results == results
    assert results
    for each in results:
        assert each.metric_value in values
        ends = {(row["value"], row["ci_low"], row["ci_high"]) for row in rows}
        assert (each.metric_value, each.metric_args.get("ci_low"), each.metric_args.get("ci_high")) in ends
        assert each.source_url.endswith("/results.json")
    entries = parse_eval_result_entries(yaml.safe_load(evaluated))
    assert [entry.value for entry in entries] == [each.metric_value for each in results]
    assert len({entry.task_id for entry in entries}) == len(entries) or len(facts["datasets"]) > 1
    assert all(entry.date == facts["run"]["finished"] and "results.json" in entry.notes for entry in entries)
    assert any("95% CI " in entry.notes for entry in entries)


# --- one card --------------------------------------------------------------------------------------------------------


def test_a_card_of_a_network(network) -> None:
    rows, facts = network
    made = card_files(rows, facts)
    text = made["README.md"].decode()
    assert set(made) == {"README.md", "results.json", ".eval_results/cxrhf.yaml", "figures/waterfall.svg",
                         "figures/waterfall.png"}  # fmt: skip
    own = model_rows(rows, "net")
    assert check_cells(text, own) > 200
    check_findings(text, own, "net")
    check_metadata(text, made[".eval_results/cxrhf.yaml"].decode(), own, facts)
    for head in ("Results", "Intended use", "Limits", "Training data", "How to load", "How to reproduce", "Provenance"):
        assert f"\n## {head}\n" in text
    for part in ("Subgroups", "Slices", "Shortcuts", "What its embeddings encode about patients"):
        assert f"\n### {part}\n" in text
    assert "Not a medical device" in text
    assert "this page" not in text
    assert "random" not in text  # another network's vectors are not this model's
    assert made["figures/waterfall.png"].startswith(b"\x89PNG")


def test_a_card_of_a_writer(writer) -> None:
    rows, facts = writer
    made = card_files(rows, facts, "someone/writer")
    text = made["README.md"].decode()
    assert check_cells(text, rows) > 100
    check_metadata(text, made[".eval_results/cxrhf.yaml"].decode(), rows, facts)
    assert "figures/tradeoff.png" in made
    assert "https://huggingface.co/someone/writer/blob/main/results.json" in text
    assert "Words associated with one of two groups" in text
    assert "pacemaker" in text
    kinds = [each["type"] for each in model_index(rows, facts)[0]["results"][0]["metrics"]]
    assert {"rouge", "lexical_diversity", "cad"} <= set(kinds)  # likeness alone does not show what is left out
    whole = b"".join(made.values()).decode("utf-8", "replace")
    assert made_reports.RARE not in whole  # two patients have it
    assert made_reports.TEMPLATE not in whole
    assert made_reports.BAD_WORD not in text


def test_a_card_names_no_words_of_credentialed_reports(tmp_path: Path) -> None:
    made = made_reports.whole(dataset="rexgradient")
    facts = facts_of(run_of(tmp_path / "r", made.rows, made.words), "vlm", None)
    assert facts["words"] == {}
    files = card_files(made.rows, facts)
    text = files["README.md"].decode()
    assert "Words are not listed here" in text
    assert "Words associated with one of two groups" not in text
    assert b"pacemaker" not in b"".join(files.values())


def test_a_card_of_prior_notes(tmp_path: Path) -> None:
    rows = []
    for model, value in (("context", 0.7), ("words", 0.7)):
        made = everything(("edema", "mass"), model=model, dataset="mimic_cxr_context")
        rows += [{**row, "audit": "pretest"} for row in made.rows if row["audit"] == "overview"]
        word = {**rows[0], "model": model, "metric": "feature_weight", "slice": "word=furosemide", "value": value}
        rows.append({**word, "audit": "pretest"})
    facts = facts_of(run_of(tmp_path / "r", rows), "context", None)
    assert facts["kind"] == "context model"
    made = card_files(rows, facts)
    text = made["README.md"].decode()
    assert check_cells(text, rows)
    assert "Pre-test probability from prior notes" in text
    assert b"furosemide" not in b"".join(made.values())  # a word of credentialed notes
    assert "license: other" in text
    open_rows = [{**row, "dataset": "synthetic"} for row in rows]
    facts = facts_of(run_of(tmp_path / "open", open_rows), "context", None)
    assert b"furosemide" in card_files(open_rows, facts)["results.json"]


@pytest.mark.parametrize("every", thinned([1, 3], [3]))  # each kind of row, or each third
def test_rows_that_change_change_the_card(network, every: int) -> None:
    rows, facts = network
    before = card_text(rows, facts)
    stand = card_rows(model_rows(rows, "net"))
    picked = [row for row in stand if row["value"] is not None and row["metric"] not in FLAGS]
    by_kind = {(row["audit"], row["metric"], bool(row["versus"])): row for row in picked}
    assert len(by_kind) > 20
    for row in list(by_kind.values())[::every]:
        changed = [{**each, "value": each["value"] + 0.123} if each is row else each for each in stand]
        assert card_text(changed, facts) != before, (row["audit"], row["metric"], row["slice"], row["versus"])


@pytest.mark.parametrize("kind", ["network", "writer"])
def test_a_card_stands_on_few_rows(kind, request: pytest.FixtureRequest) -> None:
    rows, facts = request.getfixturevalue(kind)
    own = model_rows(rows, facts["model"])
    stand = card_rows(own)
    assert len(stand) < 0.7 * len(own)
    assert card_rows(stand) == stand
    assert card_text(stand, facts) == card_text(rows, facts)
    small = json.loads(card_files(rows, facts, every=False)["results.json"])
    whole = json.loads(card_files(rows, facts)["results.json"])
    assert small["rows"] == len(small["results"]) == len(stand)
    assert small["rows_left_out"] == whole["rows"] - small["rows"]
    assert whole["rows_left_out"] == 0


def test_runs_and_datasets(tmp_path: Path) -> None:
    rows = several_runs().rows
    facts = facts_of(run_of(tmp_path / "runs", rows), "net", None)
    assert models_of(rows) == ["net"]
    text = card_text(rows, facts)
    assert "3 runs (seed 0, seed 1, seed 2)" in text
    assert '(rows.model == "net") & (rows.finding == "edema") & (rows.seed == 0)]' in text
    assert "SD between them" in text
    assert check_cells(text, rows)
    assert [each["value"] for each in model_index(card_rows(rows), facts)[0]["results"][0]["metrics"]] == [0.8] * 3
    two = [*everything(("edema",), dataset="here").rows, *everything(("edema",), dataset="there", seed=1).rows]
    facts = facts_of(run_of(tmp_path / "two", two), "net", None)
    made = card_files(two, facts)
    assert {"figures/waterfall-1.png", "figures/waterfall-2.png"} <= set(made)
    assert "### Findings on there" in made["README.md"].decode()
    assert '& (rows.dataset == "here")]' in made["README.md"].decode()
    assert len(model_index(two, facts)[0]["results"]) == 2


def test_without_context(tmp_path: Path) -> None:
    rows = [row for row in everything().rows if row["audit"] == "overview"]
    text = card_text(rows, facts_of(run_of(tmp_path / "r", rows), "net", None))
    assert "no pre-test probability" in text
    assert "![AUROC by finding]" in text
    assert "Context alone" not in text


def test_undefined_numbers_have_a_reason(tmp_path: Path) -> None:
    rows = everything(("edema", "mass")).rows
    for row in rows:
        if (
            row["finding"] == "mass"
            and row["metric"] == "auroc"
            and row["audit"] in ("overview", "reweighted", "matched")
        ):
            row.update(value=float("nan"), ci_low=None, ci_high=None, note="auroc is undefined: no positives")
    facts = facts_of(run_of(tmp_path / "r", rows), "net", None)
    made = card_files(rows, facts)
    text = made["README.md"].decode()
    assert "Mass has no AUROC: no positives." in text
    assert re.search(r"- Mass \(AUROC\).*: auroc is undefined: no positives", text)
    json.loads(made["results.json"], parse_constant=pytest.fail)
    assert not any("Mass" in each["name"] and each["type"] == "roc_auc"
                   for each in model_index(rows, facts)[0]["results"][0]["metrics"])  # fmt: skip


def test_names_are_no_markup(tmp_path: Path) -> None:
    odd = "net <script>x</script> | `rm` [a](b)"
    groups = {"sex": ("F|x", "<b>M</b>"), "age": ("0-39", "40+")}
    rows = everything(("edema",), model=odd, groups=groups).rows
    facts = facts_of(run_of(tmp_path / "r", rows), odd, None)
    text = card_text(rows, facts).split("---\n", 2)[2]
    outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert "<script>" not in outside
    assert "<b>M" not in outside
    assert all(len(row) == len(titles) for titles, body in tables(text) for row in body)
    ModelCard(card_text(rows, facts))
    assert escape_markdown("p < 0.001, a & b") == "p < 0.001, a & b"


def test_the_dataset_on_the_hub(network) -> None:
    rows, facts = network
    assert eval_results(rows, facts, None)[0]["dataset"]["id"] == "user/synthetic"
    assert eval_results(rows, facts, "me/net")[0]["dataset"]["id"] == "me/synthetic"
    assert eval_results(rows, facts, "me/net", "them/films")[0]["dataset"]["id"] == "them/films"
    assert "datasets: [them/films]" in card_text(rows, {**facts, "dataset_id": "them/films"})


# --- facts -----------------------------------------------------------------------------------------------------------


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))


def with_weights(run: Path) -> Path:
    """What `cxrhf train` and `cxrhf finetune` leave beside weights, in runs inside a run."""
    for seed in (0, 1, 10):
        about = {"name": "net", "seed": seed, "backbone": "resnet10t", "outputs": ["pneumothorax", "edema"],
                 "look": {"size": 48, "channels": 1, "fit": "squash"}, "sha256": "ab" * 32, "dataset": "chexpert",
                 "images": 900, "trained": {"steps": 50, "epochs": 3, "best_step": 40}, "start": "Random."}  # fmt: skip
        write_json(run / f"network/models/seed-{seed}/cxrhf.json", about)
    fitted = {"method": "platt", "split": "validate", "fitted": {"edema": {}, "pneumothorax": {}}}
    write_json(run / "network/models/seed-0/calibration.json", fitted)
    config = {"build": "data", "out": "network", "name": "net", "max_steps": 50, "seed": 0}
    write_json(run / "network/run.json", {"verb": "train", "config": config, "started": "2026-01-01", "inputs": []})
    about = {"name": "model", "prompt": "Write.", "size": 64, "dataset": "synthetic", "credentialed": False,
             "base": {"source": "Qwen/Qwen3-VL-2B-Instruct", "architecture": "Qwen3VL"},
             "examples": {"images": 9, "patients": 5}}  # fmt: skip
    write_json(run / "writer/model/adapter/cxrhf.json", about)
    write_json(run / "writer/model/adapter/adapter_config.json", {"r": 8})
    write_json(run / "writer/reports/run.json", {"verb": "generate", "config": {"source": "model", "model": "vlm"}})
    return run


def test_weights_are_found_by_name(tmp_path: Path) -> None:
    run = with_weights(run_of(tmp_path / "r", network_rows(None)))
    assert find_weights(run, "net") == run / "network/models/seed-0"
    assert find_weights(run, "vlm") == run / "writer/model/adapter"
    assert find_weights(run, "model") is None  # generated reports call it by another name
    assert find_weights(run, "context") is None
    facts = facts_of(run, "net", find_weights(run, "net"))
    assert facts["kind"] == "image classifier"
    assert facts["weights"]["seeds"] == [0, 1, 10]
    assert facts["data"]["credentialed"] is True  # by its name
    assert facts["commands"] == [
        "cxrhf train data --out network --name net --max-steps 50",
        "cxrhf calibrate network --method platt",
        "cxrhf predict network",
        "cxrhf audit --out r --n-resamples 200",
    ]
    text = card_text(network_rows(None), facts, "me/net")
    front = yaml.safe_load(text.split("---\n")[1])
    assert (front["library_name"], front["license"]) == ("timm", "other")
    assert "pipeline_tag" not in front  # one channel: transformers' pipeline fails
    assert "transformers" not in front["tags"]
    assert 'image.convert("L")' in text
    facts["weights"]["look"]["channels"] = 3
    front = yaml.safe_load(card_text(network_rows(None), facts, "me/net").split("---\n")[1])
    assert front["pipeline_tag"] == "image-classification"
    assert "transformers" in front["tags"]
    assert "these data are credentialed" in text
    assert "AutoModelForImageClassification.from_pretrained(name)" in text
    assert 'name = "me/net"' in text
    assert 'evaluate.load("me/weighted_auroc")' in text
    assert 'timm.create_model("hf-hub:me/net"' in text
    assert 'fitted["x"][0]' in text
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        compile(code, "card", "exec")


def calibrated_run(folder: Path, fitted: Mapping[str, Any], slope: float) -> Path:
    """A run with weights, and predictions whose probabilities are of logits times `slope`."""
    run = with_weights(run_of(folder, network_rows(None)))
    write_json(run / "network/models/seed-0/calibration.json", {"method": "platt", "split": "val", "fitted": fitted})
    for seed in (1, 10):
        shutil.rmtree(run / f"network/models/seed-{seed}")
    one = {"patient_id": "p", "model": "net", "seed": 0, "finding": "pneumothorax"}
    rows = [{**one, "image_id": str(x), "logit": x, "prob": 1 / (1 + math.exp(-slope * x))} for x in (-1.0, 2.0)]
    write_table(table_of(rows, PREDICTION), run / "predictions.parquet")
    return run


def test_a_calibration_is_claimed_where_the_predictions_have_it(tmp_path: Path) -> None:
    fitted = {"pneumothorax": {"method": "platt", "x": [3.0], "y": [0.0]}}
    weights = "network/models/seed-0"
    run = calibrated_run(tmp_path / "done", fitted, 3.0)
    facts = facts_of(run, "net", run / weights)
    assert facts["weights"]["calibration"]["applied"] is True
    assert "cxrhf calibrate network --method platt" in facts["commands"]
    assert "Probabilities are calibrated (platt)" in card_text(network_rows(None), facts)
    run = calibrated_run(tmp_path / "raw", fitted, 1.0)  # stopped, or predicted with --raw
    facts = facts_of(run, "net", run / weights)
    assert facts["weights"]["calibration"]["applied"] is False
    assert "cxrhf calibrate network --method platt" not in facts["commands"]
    text = card_text(network_rows(None), facts)
    assert "Probabilities are calibrated" not in text
    assert "not applied: the numbers rest on raw probabilities" in text
    run = calibrated_run(tmp_path / "nothing", {}, 1.0)  # no output had enough positives
    facts = facts_of(run, "net", run / weights)
    assert facts["weights"]["calibration"] is None
    assert "the network was not calibrated after training" in card_text(network_rows(None), facts)
    run = calibrated_run(tmp_path / "other", fitted, 2.0)  # by another calibration
    with pytest.raises(RunError, match=r"cxrhf calibrate .*network"):
        facts_of(run, "net", run / weights)
    run = calibrated_run(tmp_path / "damaged", {"pneumothorax": {"x": [1]}}, 1.0)
    with pytest.raises(RunError, match="damaged"):
        facts_of(run, "net", run / weights)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("finding", ["edema", "support_devices", "no_finding"])
def test_the_code_of_a_card_counts_labels_as_the_build_does(policy, finding) -> None:
    images = pl.DataFrame({"edema": [1, 0, -1, None, None, 1], "support_devices": [1, 0, -1, None, None, 1],
                           "no_finding": [0, None, 0, 1, None, 1]})  # fmt: skip

    class Test(dict[str, list[int | None]]):
        column_names = images.columns

    said: dict[str, Any] = {"test": Test(images.to_dict(as_series=False)), "finding": finding}
    exec("\n".join(label_lines(policy, finding)), said)
    assert said["labels"] == apply_policy(images, [finding], policy)[finding].to_list()


def test_an_adapter_names_its_base(tmp_path: Path, writer) -> None:
    rows, _ = writer
    run = with_weights(run_of(tmp_path / "r", rows))
    text = card_text(rows, facts_of(run, "vlm", find_weights(run, "vlm")))
    front = yaml.safe_load(text.split("---\n")[1])
    assert front["base_model"] == "Qwen/Qwen3-VL-2B-Instruct"
    assert (front["library_name"], front["base_model_relation"]) == ("peft", "adapter")
    assert 'from_pretrained("Qwen/Qwen3-VL-2B-Instruct")' in text
    assert "Training set: 9 images of 5 patients" in text
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        compile(code, "card", "exec")


def test_commands() -> None:
    demo = {"verb": "demo", "config": {"out": "elsewhere", "seed": 3}, "started": "2"}
    train = {"verb": "train", "config": {"build": "data", "out": "x"}, "started": "1"}
    assert commands([demo, train], {"dataset": "nih"}) == ["cxrhf demo --out elsewhere --seed 3"]
    build = {"dataset": "nih_chestxray14", "settings": {"dataset": "nih_chestxray14", "labels": "masked", "size": 512}}
    made = commands([{**demo, "verb": "audit", "config": {}, "earlier": {"train": train}}], build)
    assert made[0].startswith("cxrhf build nih_chestxray14 --out data")
    assert made[0].endswith("--root FOLDER")
    assert made[1] == "cxrhf train data --out x"
    assert command("not a verb", {}) == ""
    assert command("audit", {"predictions": ["a file.csv"], "level": 0.9}) == "cxrhf audit 'a file.csv' --level 0.9"


def test_notes_of_others_stay_away(tmp_path: Path) -> None:
    rows = [*everything(("edema",), model="net").rows, *everything(("edema",), model="net: b").rows]
    run = open_run(tmp_path / "r", verb="audit", config={}, inputs=[])
    run.add("results", pa.Table.from_pylist(rows, schema=RESULT))
    run.finish(notes=["net: few", "net: b: many", "for all", "12 thumbnails are left out"])
    assert facts_of(run.path, "net", None)["notes"] == ["net: few", "for all"]
    assert facts_of(run.path, "net: b", None)["notes"] == ["net: b: many", "for all"]


# --- folders ---------------------------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_command_writes_cards(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [*everything(("edema",), model="Net A").rows, *everything(("edema",), model="net-a", seed=1).rows]
    run_of(tmp_path / "r", rows)
    assert main(["report", "r"]) == 0
    out = capsys.readouterr()
    assert out.out == "r/report.html\n"
    assert out.err.splitlines() == ["model card: r/model_cards/net-a", "model card: r/model_cards/net-a-2"]
    assert main(["report", "r", "--cards", "cards"]) == 0
    assert contents(tmp_path / "cards") == contents(tmp_path / "r/model_cards")
    before = contents(tmp_path / "cards")
    (tmp_path / "cards/net-a/README.md").write_text("by hand")
    (tmp_path / "cards/net-a/model.safetensors").write_text("weights")
    (tmp_path / "cards/net-a/figures/waterfall-9.png").write_text("old")
    capsys.readouterr()
    assert main(["report", "cards"]) == 0
    assert capsys.readouterr().out == "cards/net-a\ncards/net-a-2\n"
    assert contents(tmp_path / "cards") == {**before, "net-a/model.safetensors": b"weights"}
    assert main(["report", "cards/net-a-2"]) == 0


def test_cards_of_models_that_are_gone(tmp_path: Path) -> None:
    run = run_of(tmp_path / "r", everything(("edema",), model="old").rows)
    nested = run_of(run / "inside", everything(("edema",), model="inner").rows)
    assert [each.name for each in write_cards(run)] == ["old", "inner"]
    assert cards_in(run) == []  # a run is no card
    assert cards_in(nested) == []
    opened = open_run(run, verb="audit", config={}, inputs=None)
    opened.add("results", pa.Table.from_pylist(everything(("edema",), model="new").rows, schema=RESULT))
    opened.finish()
    write_cards(run)
    assert sorted(each.name for each in (run / "model_cards").iterdir()) == ["inner", "new"]


def test_what_is_no_card_stays(tmp_path: Path) -> None:
    run = run_of(tmp_path / "r", everything(("edema",), model="net").rows)
    (tmp_path / "cards/net").mkdir(parents=True)
    (tmp_path / "cards/net/README.md").write_text("somebody's own")
    with refused(RunError, "net", fix="--cards"):
        write_cards(run, tmp_path / "cards")
    assert (tmp_path / "cards/net/README.md").read_text() == "somebody's own"
    assert rewrite(tmp_path / "cards") == []
    (card,) = write_cards(run)
    held = (card / "results.json").read_text()
    (card / "results.json").write_text(held[:-200])
    with pytest.raises(RunError, match=r"results\.json is damaged"):
        rewrite(card)
    with pytest.raises(RunError, match="no results of the model 'other'"):
        card_text(everything().rows, {"model": "other", "datasets": [], "data": {}})


def test_slugs() -> None:
    assert [slug(each) for each in ("picture + chart", "../../etc", "A/B", "模型", "v1.2")] == [
        "picture-chart", "etc", "a-b", "model", "v1.2",
    ]  # fmt: skip
