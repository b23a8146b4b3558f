"""The page of a metric: cells and files become inputs, results become tables, and a browser sees them."""

from __future__ import annotations

import ast
import csv
import io
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cxrhf.hub import widget
from cxrhf.hub.widget import Choice, Column, Number, Problem, Text
from cxrhf.metrics import auroc
from tests.browser import ROOT, Seen, chromium, page, serve

SCORE, LABEL = Column("predictions", False, True), Column("references", False, True)
WEIGHT, GROUP = Column("sample_weight", False, False), Column("groups", True, False)
COLUMNS = [SCORE, LABEL, WEIGHT, GROUP]
REPORTS = [Column("predictions", True, True), Column("references", True, True)]


def test_cells_become_inputs() -> None:
    rows = [["0.5", 1, None, " f "], [0.25, "", math.nan, 7.0], [" 1e-3 ", 0.0, "", "m"], ["", None, "  ", math.nan]]
    assert widget.read_cells(rows, COLUMNS) == {
        "predictions": [0.5, 0.25, 0.001],
        "references": [1.0, None, 0.0],
        "groups": [" f ", "7", "m"],
    }


def test_empty_reports_are_reports() -> None:
    rows = [["", "Clear."], ["Effusion.", None], ["", ""], ["Clear.", "Clear."], ["", ""]]
    read = widget.read_cells(rows, REPORTS)
    assert read == {"predictions": ["", "Effusion.", "", "Clear."], "references": ["Clear.", "", "", "Clear."]}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "The table is empty"),
        ([["", None, math.nan, " "]], "The table is empty"),
        ([[0.5, 1, 1, "f"], [0.5, 1, "", "f"]], "Row 2, column sample_weight is empty.*or in none"),
        ([[0.5, 1, 1, "f"], [0.5, 1, 1, ""]], "Row 2, column groups is empty"),
        ([[0.5, 1, 1, "f"], ["", 1, 1, "f"]], "Row 2, column predictions is empty. Allowed: a value in every row$"),
        ([[0.5, "", 1, "f"], [0.5, "", 1, "f"]], "Column references is empty"),
        ([["0,5", 1, 1, "f"]], "Row 1, column predictions: '0,5' is not a number"),
        ([[0.5, "yes", 1, "f"]], "Row 1, column references: 'yes' is not a number"),
        ([["inf", 1, 1, "f"]], "Row 1, column predictions: 'inf' is not a number"),
        ([[0.5, 1, 1, "f"]] * (widget.MAX_ROWS + 1), "The table has 50,001 rows, allowed on this page: 50,000"),
    ],
)
def test_cells_that_cannot_be_computed(rows: list[list[Any]], said: str) -> None:
    with pytest.raises(Problem, match=said):
        widget.read_cells(rows, COLUMNS)


def test_columns_are_found_by_name() -> None:
    assert widget.in_order(["references", "predictions"], [[1, 0.5]], [SCORE, LABEL]) == [[0.5, 1]]
    with pytest.raises(Problem, match=r"columns are references, x; allowed: predictions, references"):
        widget.in_order(["references", "x"], [[1, 0.5]], [SCORE, LABEL])


def test_a_file_is_read_by_its_header() -> None:
    data = '\ufeffid, references ,predictions,groups\r\n7,1,.5,"a, b"\r\n\r\n8,,.25,ü\r\n'.encode()
    assert widget.read_csv(data, COLUMNS) == ([[0.5, 1.0, None, "a, b"], [0.25, None, None, "ü"]], ["id"])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no column predictions, references. The header is: empty"),
        (b"predictions;references\n.5;1\n", "The header is: predictions;references"),
        (b"0.5,1\n", "no column predictions, references"),
        (b"predictions,references,references\n.5,1,1\n", "more than one column references"),
        (b"predictions,references\n.5,1\n.5\n", "Row 2 has 1 cells, allowed: 2"),
        (b"predictions,references\n.5,1\n.5,NA\n", "Row 2, column references: 'NA' is not a number"),
        (b"predictions,references\n", "The table is empty"),
        (b'predictions,references\n.5,"1\n', "not valid CSV"),
        ("predictions,references,ä\n".encode("latin-1"), "not UTF-8"),
        (b" " * (widget.MAX_BYTES + 2**20), "51 MB, allowed: 50 MB"),
    ],
)
def test_files_that_cannot_be_read(data: bytes, said: str) -> None:
    with pytest.raises(Problem, match=said):
        widget.read_csv(data, COLUMNS)


def test_pasted_lines_need_no_header() -> None:
    assert widget.read_text("0.5\t1\n0.25\t\n", COLUMNS)[0] == [[0.5, 1.0, None, None], [0.25, None, None, None]]
    assert widget.read_text("references\tpredictions\n1\t0.5", COLUMNS)[0] == [[0.5, 1.0, None, None]]
    with pytest.raises(Problem, match="Row 2 has 1 cells"):
        widget.read_text("0.5,1\n0.25\n", COLUMNS)


def test_options() -> None:
    assert Choice("weighting", ("att", None), "att").read("None") is None
    assert Choice("k", (1, 2), 1).read("2") == 2
    assert Number("n", 0, whole=True).read(3.0) == 3
    assert isinstance(Number("n", 0, whole=True).read(3.0), int)
    assert Number("n", None).read(None) is None
    assert (Text("group").read("  "), Text("group").read(" F ")) == (None, "F")
    for option, field, said in (
        (Number("n", 0, whole=True, least=0, most=10), 2.5, "n is 2.5, allowed: a whole number >= 0 and <= 10"),
        (Number("n", 0, whole=True, most=10_000), 1_000_000, "n is 1000000, allowed: a whole number <= 10000"),
        (Number("n", 0.5, least=0), -1, "n is -1, allowed: a number >= 0"),
        (Number("n", 0.5), None, "n is empty, allowed: a number$"),
        (Number("n", 0.5), math.inf, "n is inf"),
        (Choice("k", ("a", "b"), "a"), "c", "k is 'c', allowed: a, b"),
    ):
        with pytest.raises(Problem, match=said):
            option.read(field)


def test_kinds_of_columns() -> None:
    features = [
        {"predictions": SimpleNamespace(dtype="float64"), "clusters": SimpleNamespace(dtype="string")},
        {"predictions": SimpleNamespace(feature=None)},
    ]
    module = SimpleNamespace(features=features, _compute=lambda predictions, note=None, **more: {})
    found = widget.columns_of(module, {"predictions": [0.5], "clusters": [None], "note": ["a"]})
    assert found == [Column("predictions", False, True), Column("clusters", True, False), Column("note", True, False)]
    module.required = ("predictions", "clusters")
    assert [column.required for column in widget.columns_of(module, {"predictions": [], "clusters": []})] == [
        True,
        True,
    ]


def test_a_number_that_may_stay_empty() -> None:
    option = Number("caliper", None, least=0)
    assert option.read("") is None
    assert option.read(" ") is None
    assert option.read(None) is None
    assert option.read(" 0.25 ") == 0.25
    with pytest.raises(Problem, match="caliper is 'wide', allowed: a number >= 0"):
        option.read("wide")


def test_results_as_text() -> None:
    result = widget.plain(
        {
            "m": np.float64("nan"),
            "m_ci_low": np.float32(0.5),
            "m_note": "undefined: no <positives>",
            "m_groups": {"f": {"n": np.int64(2), "rate": 2 / 3}, "m": {"n": 1, "note": "few"}},
            "m_words": [{"word": "a", "z": 1.0}],
            "m_list": np.array([0.25, np.inf]),
            "m_none": [],
        }
    )
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    top = widget.headline("m", result)
    assert "undefined</div>" in top
    assert "no &lt;positives&gt;" in top
    assert "interval" not in top
    shown = widget.tables(result)
    assert "<td>0.666667</td>" in shown
    assert "<td>few</td>" in shown
    assert '<th scope="row">a</th><td>1</td>' in shown
    assert "no &lt;positives&gt;" in shown
    assert shown.count("<table") == 4
    many = widget.tables({"m": list(range(widget.SHOWN_ROWS + 3))})
    assert "3 more rows are in the JSON" in many


def test_headline_of_a_table_is_its_first_number() -> None:
    assert "m_gap" in widget.headline("m", {"m": {"f": {"rate": 1.0}}, "m_source": "given", "m_gap": 0.25})
    assert "95% interval 0.1 to 0.2" in widget.headline("m", {"m": 0.15, "m_ci_low": 0.1, "m_ci_high": 0.2}, 0.95)
    assert "Done" in widget.headline("m", {"m": {}})


def test_positions_become_rows() -> None:
    assert widget.explain(ValueError("references[2] is 2.0"), COLUMNS).endswith("references[2] is row 3 of the table.")
    assert widget.explain(ValueError("weight is bad"), COLUMNS) == "weight is bad"
    assert widget.explain(ZeroDivisionError("x"), COLUMNS) == "The metric could not be computed (ZeroDivisionError): x"


def test_cards() -> None:
    card = '---\ntitle: "A: b"\ntags: [x]\n---\n\n# Heading\n\nWords.\n\n---\n\nMore.\n'
    assert widget.read_card(card) == ("A: b", "Words.\n\n---\n\nMore.")
    assert widget.read_card("# Only a heading\nWords") == ("Only a heading", "Words")
    assert widget.read_card("Words") == ("", "Words")


def test_needs_neither_cxrhf_nor_gradio(tmp_path: Path) -> None:
    """A staged copy ships the file alone."""
    copy = tmp_path / "widget.py"
    copy.write_bytes(Path(widget.__file__).read_bytes())
    said = "import sys, widget; print(sorted({'cxrhf', 'gradio', 'numpy', 'evaluate'} & set(sys.modules)))"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", said], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


MODULE = """
import datasets
import evaluate

from cxrhf.metrics import auroc
from cxrhf.metrics.checks import as_labels
from cxrhf.metrics.checks import undefined


class TinyAuroc(evaluate.Metric):
    def _info(self):
        inputs = {"predictions": datasets.Value("float64"), "references": datasets.Value("float64")}
        return evaluate.MetricInfo(
            description="The area under the ROC curve. More words.",
            citation="",
            inputs_description="",
            features=datasets.Features(inputs),
        )

    def _compute(self, predictions, references, sample_weight=None, groups=None, factor=1):
        y = as_labels(references, "references")
        out = {"tiny_auroc": factor * auroc(y, predictions, sample_weight), "tiny_auroc_n": len(y)}
        if note := undefined("auroc", y):
            out["tiny_auroc_note"] = note
        if groups:
            out["tiny_auroc_groups"] = {each: {"n": groups.count(each)} for each in sorted(set(groups))}
        return out
"""
APP = '''
"""The page of the test."""

from pathlib import Path

import evaluate

from cxrhf.hub.widget import Number, metric_app

HERE = Path(__file__).parent
app = metric_app(
    evaluate.load(str(HERE / "tiny_auroc.py")),
    columns={
        "predictions": [0.1, 0.4, 0.35, 0.8],
        "references": [0, 0, 1, 1],
        "sample_weight": [None] * 4,
        "groups": ["f", "m", "f", "m"],
    },
    options=[Number("factor", 1, least=0, most=2)],
    card=HERE / "README.md",
)
if __name__ == "__main__":
    app.launch()
'''
CARD = """---
title: Tiny AUROC
---

# Tiny AUROC

| a column | a_name_that_is_too_long_for_a_telephone | another_name_that_is_too_long |
|---|---|---|
| 1 | 2 | 3 |
"""
# As in a Space of ours, there is no transformers; evaluate imports it if it can, which takes longer than all the rest.
WITHOUT = (ROOT / "tests" / "without_transformers.py").read_text(encoding="utf-8")
# Kept by the server itself: every address that its Python asks for.
WATCH = """
import os
import sys


def watch(event, args):
    if event in ("socket.getaddrinfo", "socket.connect"):
        with open(os.environ["WATCHED"], "a") as file:
            print(args[0] if event == "socket.getaddrinfo" else args[1], file=file)


sys.addaudithook(watch)
"""


def test_no_browser_is_a_failure_only_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHROMIUM", "no-such-browser")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no Chromium at CHROMIUM=no-such-browser"):
        chromium()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no Chromium"):
        chromium()


def test_a_server_that_ends_says_why(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text("raise SystemExit('no such metric')")
    with pytest.raises(RuntimeError, match=r"ended with 1\. It said:\nno such metric"), serve(app, hf_home=tmp_path):
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tiny_auroc")
    for name, text in (("tiny_auroc.py", MODULE), ("app.py", APP), ("README.md", CARD)):
        (place / name).write_text(text.lstrip(), encoding="utf-8")
    (place / "watch").mkdir()
    (place / "watch" / "sitecustomize.py").write_text(WITHOUT + WATCH)
    return place


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    chromium()
    paths = os.pathsep.join((str(ROOT), str(folder / "watch")))
    watched = {"WATCHED": str(folder / "watched.txt")}
    with serve(folder / "app.py", hf_home=folder / "hf", pythonpath=paths, environment=watched) as url:
        yield url


def text_of(seen: Seen, selector: str) -> str:
    return str(seen.page.inner_text(selector)).strip()


def compute(seen: Seen) -> str:
    """Press the button; what the page complains of."""
    seen.page.click("#compute")
    seen.page.wait_for_selector("#headline .value, #problem [role=alert]")
    return text_of(seen, "#problem")


def type_into(seen: Seen, row: int, column: int, text: str) -> None:
    """A cell's text, as a person would type it: a table that is just drawn again can swallow a double click."""
    cell = seen.page.locator(f"#inputs [data-testid=cell-{row}-{column}]")
    editor = cell.locator("textarea")
    for _ in range(10):
        cell.dblclick()
        with suppress(Exception):
            editor.wait_for(timeout=3_000)
            break
    editor.fill(text)
    editor.press("Enter")
    seen.page.wait_for_function("document.querySelector('#headline').innerText.includes('changed')")


def give_file(seen: Seen, path: Path) -> None:
    with seen.page.expect_file_chooser() as chooser:
        seen.page.click("#upload")
    chooser.value.set_files(path)


def test_the_page_computes(folder: Path, address: str) -> None:
    y, p = [0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]
    with page() as seen:
        seen.page.goto(address)
        seen.page.wait_for_selector("#compute")
        assert seen.page.title() == "Tiny AUROC"
        assert "patient data" in text_of(seen, "#privacy")
        assert compute(seen) == ""
        assert text_of(seen, "#headline .value") == f"{auroc(y, p):.6g}" == "0.75"
        assert "tiny_auroc_groups" in text_of(seen, "#result")

        # A bad label is a sentence, and takes the old number away; so does a bad option.
        type_into(seen, 2, 1, "2")
        said = compute(seen)
        assert "references[2] is 2.0" in said
        assert "row 3 of the table" in said
        assert "Traceback" not in seen.page.content()
        assert text_of(seen, "#headline") == text_of(seen, "#result") == ""
        type_into(seen, 2, 1, "1")
        seen.page.fill("#option-factor input", "3")
        assert compute(seen) == "factor is 3, allowed: a number >= 0 and <= 2"
        seen.page.fill("#option-factor input", "1")

        # A file fills the table: other order, a column of its own, a weight.
        sheet = folder / "sheet.csv"
        sheet.write_text("id,sample_weight,references,predictions\n" + "a,3,0,0.4\nb,1,1,0.35\nc,1,1,0.8\nd,1,0,0.1\n")
        give_file(seen, sheet)
        seen.page.wait_for_function("document.querySelector('#uploaded').innerText.includes('4 rows')")
        assert text_of(seen, "#uploaded") == "sheet.csv: 4 rows read. Not used: id."
        assert compute(seen) == ""
        assert text_of(seen, "#headline .value") == f"{auroc([0, 1, 1, 0], [0.4, 0.35, 0.8, 0.1], [3, 1, 1, 1]):.6g}"
        assert not [path for path in (folder / "hf" / "gradio").rglob("*") if path.is_file() and path.stat().st_size]

        # A bad one says where, and leaves the table as it is.
        sheet.write_text("references,predictions\n0,0.4\nno,0.35\n")
        give_file(seen, sheet)
        seen.page.wait_for_selector("#problem [role=alert]")
        assert "sheet.csv: Row 2, column references: 'no' is not a number" in text_of(seen, "#problem")
        assert "0.8" in text_of(seen, "#inputs")

        assert seen.errors == []
        assert seen.outside == []
    asked = set((folder / "watched.txt").read_text().split("\n")) - {""}
    assert asked
    assert all("127.0.0.1" in each or "localhost" in each for each in asked), asked


def test_the_page_fits_a_telephone(address: str) -> None:
    with page(375, 800, dark=True) as seen:
        seen.page.goto(address)
        seen.page.wait_for_selector("#compute")

        # Rows pasted from a spreadsheet, and no positives among them.
        seen.page.click("button:has-text('Paste rows')")
        seen.page.fill("#paste textarea", "0.2\t0\n0.3\t0\n")
        seen.page.click("#use-paste")
        seen.page.wait_for_function("document.querySelector('#uploaded').innerText.includes('2 rows')")
        seen.page.click("#add-row")
        seen.page.wait_for_selector("#inputs [data-testid=cell-2-0]")
        assert compute(seen) == ""
        assert text_of(seen, "#headline .value") == "undefined"
        assert "auroc is undefined: no positives among 2 rows" in text_of(seen, "#headline")
        assert seen.page.evaluate("document.documentElement.scrollWidth") == 375
        assert (seen.errors, seen.outside) == ([], [])


@pytest.mark.slow
def test_the_code_gives_the_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page shows as Python runs, with the lists written out and with the table from a file."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    columns = [SCORE, LABEL, WEIGHT, Column("clusters", True, False)]
    for rows in (4, widget.CODE_ROWS + 2):
        labels = [0.0, 1.0, None, *rng.integers(0, 2, rows - 3).astype(float).tolist()]
        patients = ["it's", 'a "b", c'] * (rows // 2)
        inputs = {"predictions": rng.random(rows).tolist(), "references": labels, "clusters": patients}
        with open("table.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([inputs, *zip(*inputs.values(), strict=True)])
        program = widget.code('cxrhf.metric_path("weighted_auroc")', columns, inputs, {"weighting": "att", "seed": 3})
        assert ("table.csv" in program) == (rows > widget.CODE_ROWS)
        said = io.StringIO()
        with redirect_stdout(said):
            exec(program, {})
        known = [at for at, label in enumerate(labels) if label is not None]
        wanted = auroc([labels[at] for at in known], [inputs["predictions"][at] for at in known])
        assert ast.literal_eval(said.getvalue()) == {"weighted_auroc": wanted}
