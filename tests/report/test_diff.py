"""Two runs: what changed is found, sized beside its noise and told; what did not is not; nothing odd stops the page."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cxrhf
from cxrhf import cli
from cxrhf.cli.report import print_difference
from cxrhf.errors import RunError
from cxrhf.report.diff import (
    BEYOND_NOISE,
    NO_INTERVAL,
    SAME,
    UNDEFINED,
    WITHIN_NOISE,
    ComparedRuns,
    as_mapping,
    counts,
    diff_html,
    diff_lines,
    diff_records,
    diff_rows,
    only_in,
    parts,
    same_inputs,
    sentences,
)
from cxrhf.schema import RESULT
from cxrhf.tables.files import read_table
from cxrhf.twin.planted import context
from tests.report.made import RECORD, everything
from tests.report.parsing import Page


def row(metric: str = "auroc", value: float | None = 0.8, width: float | None = 0.05, **more: Any) -> dict[str, Any]:
    ends = {"ci_low": None, "ci_high": None}
    if width is not None and value is not None:
        ends = {"ci_low": value - width, "ci_high": value + width}
    return {
        "audit": "overview", "metric": metric, "dataset": None, "model": "net", "strategy": None, "finding": "edema",
        "slice": "all", "versus": None, "value": value, **ends, "p_value": None, "n": 1000, "n_pos": 100,
        "n_patients": 400, "note": None, **more,
    }  # fmt: skip


def both(first: list[dict[str, Any]], second: list[dict[str, Any]], **record: Any) -> ComparedRuns:
    records = ({"tables": {"predictions": 3}, **RECORD}, {"tables": {"predictions": 3}, **RECORD, **record})
    return ComparedRuns(("runs/one", "runs/two"), records, diff_rows(first, second))


# ---------------------------------------------------------------- rows


def test_the_same_rows_have_no_changes() -> None:
    rows = everything(second="other").rows
    found = diff_rows(rows, [dict(each) for each in reversed(rows)])
    assert len(found.changes) == len(rows)
    assert {each.verdict for each in found.changes} == {SAME}
    assert not found.only_first
    assert not found.only_second
    assert parts(found) == []
    said = sentences(both(rows, rows))
    assert said == [f"All {len(rows):,} numbers in both runs are the same."]


def test_a_change_is_judged_beside_its_noise() -> None:
    first = [row(), row("brier", 0.1), row("tpr", 0.4), row("threshold", 0.2, None), row("n_pairs", 10, None)]
    second = [
        row(value=0.9),
        row("brier", 0.13),
        row("tpr", 0.4),
        row("threshold", 0.3, None),
        row("n_pairs", 11, None),
    ]
    found = diff_rows(first, second)
    assert [(each.metric, each.verdict) for each in found.changes] == [
        ("auroc", BEYOND_NOISE),
        ("brier", WITHIN_NOISE),
        ("threshold", NO_INTERVAL),
        ("n_pairs", NO_INTERVAL),
        ("tpr", SAME),
    ]
    moved = found.changes[0]
    half = 0.05 * math.sqrt(2)
    assert moved.difference.value == pytest.approx(0.1)
    assert (moved.difference.low, moved.difference.high) == pytest.approx((0.1 - half, 0.1 + half))
    assert moved.size == pytest.approx(0.1 / half)


def test_intervals_of_differences_hold_the_truth() -> None:
    """Of two independent means, skewed and of different size, the interval holds the true difference in 95%."""
    rng = np.random.default_rng(0)
    held, times = 0, 2000
    for _ in range(times):
        cells = []
        for n, mean in ((60, 1.0), (200, 1.5)):
            sample = rng.gamma(2, mean / 2, n)
            error = sample.std(ddof=1) / math.sqrt(n)
            cells.append(
                row(value=sample.mean(), ci_low=sample.mean() - 1.96 * error, ci_high=sample.mean() + 1.96 * error)
            )
        (change,) = diff_rows(cells[:1], cells[1:]).changes
        held += change.difference.low <= 0.5 <= change.difference.high
    assert 0.93 <= held / times <= 0.965


def test_undefined_says_why() -> None:
    nothing = row(value=math.nan, ci_low=math.nan, ci_high=math.nan, note="no positives among 12 rows")
    found = both([row(), row("brier", math.nan)], [nothing, row("brier", math.nan)])
    assert [each.verdict for each in found.diff.changes] == [UNDEFINED, SAME]
    (changed,) = as_mapping(found)["changes"]
    assert changed["second"]["value"] is None
    assert changed["note"] == "second run: no positives among 12 rows"
    assert "no positives among 12 rows" in "\n".join(diff_lines(found))
    assert "no positives among 12 rows" in Page(diff_html(found)).text


def test_one_model_each_is_matched_whatever_its_name() -> None:
    found = diff_rows([row(model="old"), row(model="old (seed 3)")], [row(model="new"), row(model="new (seed 3)")])
    assert found.models == {"old": "new"}
    assert len(found.changes) == 2
    # One left over on either side, beside a name that both have; compared with the same third model.
    names = [row(model="net"), row(model="old", versus="model=net"), row(model="net", versus="model=old")]
    other = [row(model="net"), row(model="new", versus="model=net"), row(model="net", versus="model=new")]
    found = diff_rows(names, other)
    assert found.models == {"old": "new"}
    assert len(found.changes) == 3
    assert "The model old of the first run is compared with new of the second." in sentences(both(names, other))
    # Two left over: nobody can know.
    found = diff_rows([row(model="a"), row(model="b")], [row(model="c"), row(model="d")])
    assert (found.models, len(found.changes), len(found.only_first), len(found.only_second)) == ({}, 0, 2, 2)
    assert "no number in common" in sentences(both([row(model="a"), row(model="b")], []))[0]
    assert diff_rows([row(dataset="x")], [row(dataset="y")]).datasets == {"x": "y"}


def test_gaps_that_point_the_other_way_are_turned_and_numbered_slices_left_out() -> None:
    first = [row("tpr", 0.06, 0.02, slice="sex=F", versus="sex=M"), row("brier", 0.1, slice="mixture:positive:1")]
    second = [row("tpr", 0.04, 0.02, slice="sex=M", versus="sex=F"), row("seconds", 3.0, None)]
    found = diff_rows(first, second)
    (gap,) = found.changes
    assert (gap.slice, gap.versus) == ("sex=F", "sex=M")
    assert gap.second.value == pytest.approx(-0.04)
    assert (gap.second.low, gap.second.high) == pytest.approx((-0.06, -0.02))
    assert gap.verdict == BEYOND_NOISE
    assert found.left_out == 2


def test_what_stands_in_one_only_is_counted() -> None:
    first, second = [row(), row("tpr"), row("tpr", audit="subgroups")], [row(), row("f1")]
    found = diff_rows(first, second)
    assert only_in(found.only_first) == {"overview, net": 1, "subgroups, net": 1}
    assert only_in(found.only_second) == {"overview, net": 1}
    assert counts(found)["only in the second"] == 1
    assert "Only in the first run: overview, net (1); subgroups, net (1)" in diff_lines(both(first, second))


# ---------------------------------------------------------------- records, words


def test_settings_versions_and_inputs_that_differ() -> None:
    other = {
        **RECORD, "config": {**RECORD["config"], "n_resamples": 500, "out": "elsewhere"}, "seed": 7,
        "versions": {"cxrhf": "0.1.0", "numpy": "3.0"}, "inputs": [{"name": "b.csv", "sha256": "cd" * 32, "size": 5}],
    }  # fmt: skip
    found = {(each.kind, each.name): (each.first, each.second) for each in diff_records(RECORD, other)}
    assert found == {
        ("setting", "n_resamples"): ("200", "500"),
        ("version", "numpy"): ("2.4.6", "3.0"),
        ("setting", "seed"): ("0", "7"),
        ("input", "files"): ("predictions.csv (abababab)", "b.csv (cdcdcdcd)"),
    }
    assert same_inputs(RECORD, RECORD)
    assert not same_inputs({}, {})
    assert diff_records({"inputs": "damaged", "config": 3}, {"inputs": "damaged", "config": 3})[0].kind == "input"


def test_what_the_cases_allow_to_say() -> None:
    moved = [row(value=0.9)]
    said = sentences(both([row()], moved))[-1]
    assert "the same files and share their patients" in said
    elsewhere = {"inputs": [{"name": "b.csv", "sha256": "cd" * 32, "size": 5}]}
    alike = sentences(both([row()], moved, **elsewhere))[-1]
    assert "If they share their cases" in alike
    assert 'cxrhf.audit({"first": "runs/one", "second": "runs/two"}, only="overview,compare")' in alike
    others = sentences(both([row()], [row(value=0.9, n=900)], **elsewhere))[-1]
    assert "a difference may come from the patients" in others
    assert "no test" in others
    renamed = sentences(both([row()], [row(value=0.9, model="new")], **elsewhere))[-1]
    assert "cxrhf audit runs/one/predictions.parquet runs/two/predictions.parquet --only" in renamed


# ---------------------------------------------------------------- page, command


def test_the_page_holds_a_whole_audit_and_escapes_everything() -> None:
    evil = "<script>alert(1)</script>"
    first = everything(model=evil, second="other").rows
    rng = np.random.default_rng(0)
    second = [dict(each, value=each["value"] + rng.normal(0, 0.05), model="new") for each in first]
    second[3]["slice"] = evil
    page = diff_html(both(first, second))
    read = Page(page)
    assert evil in read.text
    assert "<script>alert" not in page
    assert page.count("<script") == 1
    assert read.count("table") >= 3
    assert read.levels[:2] == [1, 2]
    assert len(read.ids) == len(set(read.ids))
    assert "http" not in page.replace("http-equiv", "")
    assert "How to read this" in read.text
    assert json.loads(json.dumps(as_mapping(both(first, second)), allow_nan=False))["models"] == {evil: "new"}


def audited(folder: Path, shift: float) -> Path:
    made = context(300, seed=1)
    table = {
        "image_id": range(300),
        "patient_id": range(300),
        "label": made.y,
        "prob": np.clip(made.prob + shift, 0, 1),
    }
    cxrhf.audit(table, only="overview", n_resamples=50).save(folder)
    return folder


def test_two_runs_from_end_to_end(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    one, two = audited(Path("runs/one"), 0.0), audited(Path("runs/two"), 0.2)
    assert print_difference(str(one), str(two)) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "runs/two/diff.html"
    assert "overview  brier" in out
    assert "beyond noise" in out
    assert (two / "diff.html").is_file()
    assert print_difference(str(one), str(two), out="diffs", as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["page"] == "diffs/diff.html"
    assert found["counts"]["same"] > 0
    brier = next(each for each in found["changes"] if each["metric"] == "brier" and each["finding"] != "macro")
    assert brier["difference"]["value"] == pytest.approx(brier["second"]["value"] - brier["first"]["value"])
    assert print_difference(str(one), str(one), out="diffs") == 0
    assert "are the same." in capsys.readouterr().out
    with pytest.raises(RunError, match="not a folder"):
        print_difference("nowhere", str(one))


# ---------------------------------------------------------------- the command that goes on


def _command(said: str) -> list[str]:
    lines = [line.strip() for line in said.splitlines()]
    (typed,) = [line for line in lines if line.startswith(("cxrhf ", "python "))]
    return shlex.split(typed)


def _predictions(path: Path, model: str, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    label = np.arange(80) % 3 == 0
    score = np.clip(rng.normal(0.3 + 0.2 * label, 0.2), 0, 1)
    rows = [f"{at},{at},{model},{int(label[at])},{score[at]}" for at in range(80)]
    path.write_text("\n".join(["image,patient,model,label,score", *rows]))
    return path


@pytest.mark.parametrize("models", [("old", "new"), ("net", "net")])
def test_the_command_of_a_paired_comparison_works(
    models: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of runs in another folder, with a blank in its name, and of models that are called the same."""
    monkeypatch.chdir(tmp_path)
    flags = ["--n-resamples", "20", "--only", "overview"]
    for at, model in enumerate(models):
        made = _predictions(tmp_path / f"p{at}.csv", model, at)
        assert cli.main(["audit", str(made), "--out", f"my runs/{at}", *flags]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    capsys.readouterr()
    assert cli.main(["report", "--diff", str(tmp_path / "my runs" / "0"), "../my runs/1"]) == 0
    words = _command(capsys.readouterr().out)
    if words[0] == "cxrhf":
        assert cli.main([*words[1:], "--n-resamples", "20"]) == 0
    else:
        code = words[2].replace('only="', 'n_resamples=20, only="')
        exec(code)
    rows = read_table("runs/compared/results.parquet", RESULT).to_pylist()
    assert any(each["audit"] == "compare" for each in rows)


def test_of_generated_reports_no_command_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, words in (("one", "the heart is large"), ("two", "no heart seen at all")):
        rows = [f"{at},{at},{words} {at % 3},the heart is big today {at % 4}" for at in range(20)]
        Path(f"{name}.csv").write_text("\n".join(["image,patient,generated,reference", *rows]))
        assert cli.main(["audit", f"{name}.csv", "--out", f"runs/{name}", "--n-resamples", "20"]) == 0
    capsys.readouterr()
    assert cli.main(["report", "--diff", "runs/one", "runs/two"]) == 0
    said = capsys.readouterr().out
    assert "If they share their cases" in said
    assert "predictions.parquet" not in said
    assert "cxrhf audit" not in said
