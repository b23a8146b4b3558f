"""The page of a metric, as a browser sees it: it computes, it says what is wrong, it asks nobody else for anything."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cxrhf.hub import widget
from cxrhf.hub.metric import widget_imports
from cxrhf.metrics import auroc
from tests.browser import ROOT, Seen, chromium, page, serve


def test_needs_neither_cxrhf_nor_gradio(tmp_path: Path) -> None:
    """A Space holds its files alone."""
    for path in Path(widget.__file__).parent.glob("widget*.py"):
        (tmp_path / path.name).write_text(widget_imports(path.read_text(), path.name)[0])
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


@pytest.mark.slow
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
        assert "references[2]" in said
        assert "got 2.0" in said
        assert "row 3 of the table" in said
        assert "Traceback" not in seen.page.content()
        assert text_of(seen, "#headline") == text_of(seen, "#result") == ""
        type_into(seen, 2, 1, "1")
        seen.page.fill("#option-factor input", "3")
        refusal = compute(seen)
        assert refusal.startswith("factor")
        assert "got 3" in refusal
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
        problem = text_of(seen, "#problem")
        assert all(fact in problem for fact in ("sheet.csv", "Row 2", "references", "'no'")), problem
        assert "0.8" in text_of(seen, "#inputs")

        assert seen.errors == []
        assert seen.outside == []
    asked = set((folder / "watched.txt").read_text().split("\n")) - {""}
    assert asked
    assert all("127.0.0.1" in each or "localhost" in each for each in asked), asked


@pytest.mark.slow
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
