"""results.json and figures/: what a run leaves beside its page."""

from __future__ import annotations

import io
import json
import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from cxrhf.report import summary_html, write_report
from cxrhf.report.files import figures, png, results_json, write_figures
from cxrhf.report.page import make_page
from cxrhf.report.sheet import figure_style, palette
from cxrhf.run import fingerprint_settings, open_run
from cxrhf.schema import CURVE, RESULT
from cxrhf.tables.checks import table_of
from tests.report.made import RECORD, everything, several_runs
from tests.report.parsing import Page

BAD = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    made = everything(("edema", BAD), second="other")
    made.rows[0]["value"] = math.nan
    opened = open_run(
        tmp_path_factory.mktemp("files") / "run", verb="audit", config={"seed": 3}, inputs=[fingerprint_settings("x")]
    )
    opened.add("results", table_of(made.rows, RESULT))
    opened.add("curves", table_of(made.curves, CURVE))
    opened.finish(notes=["a note"])
    folder = opened.path / "figures"
    folder.mkdir()
    for name in ("flow.svg", "old.svg", "old.png"):
        (folder / name).write_text("<svg/>")
    write_report(opened.path)
    return opened.path


def test_results_json_has_every_row_and_no_nan(run) -> None:
    text = (run / "results.json").read_text(encoding="utf-8")
    made = json.loads(text, parse_constant=pytest.fail)
    assert made["format"] == 1
    assert made["run"]["seed"] == 3
    assert made["run"]["inputs"][0]["sha256"]
    assert made["notes"] == ["a note"]
    rows = everything(("edema", BAD), second="other").rows
    assert len(made["results"]) == len(rows)
    assert made["results"][0]["value"] is None
    assert [row["metric"] for row in made["results"]] == [row["metric"] for row in rows]
    assert list(made["results"][0]) == RESULT.names
    assert results_json(rows, RECORD) == results_json(rows, RECORD)


def test_every_figure_is_there_as_svg_and_png_and_old_ones_are_gone(run) -> None:
    names = {path.name for path in (run / "figures").iterdir()}
    kinds = ("waterfall", "overview", "context", "matched", "reweighted", "imbalance", "subgroups", "compare")
    assert names == {f"{kind}.{ending}" for kind in kinds for ending in ("svg", "png")} | {"flow.svg"}
    for kind in kinds:
        svg = (run / "figures" / f"{kind}.svg").read_text(encoding="utf-8")
        root = ElementTree.fromstring(svg)
        assert root.tag.endswith("}svg")
        assert "<script" not in svg
        assert "var(" not in svg
        assert not re.search(r"(?:href|src)=|url\(", svg)
        assert (run / "figures" / f"{kind}.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_the_same_run_gives_the_same_files(run) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    write_report(run)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_png_shows_its_text_without_fonts_of_the_machine() -> None:
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 200 40" width="200" height="40">'
    words = f'{head}<style>{figure_style()}</style><text x="10" y="25" class="name">Edema −0.12 – …</text></svg>'
    found = np.asarray(Image.open(io.BytesIO(png(words))).convert("L"))
    assert found.shape == (60, 300)
    dark = (found < 100).sum()
    assert 300 < dark < 3000
    empty = np.asarray(Image.open(io.BytesIO(png(f"{head}</svg>"))).convert("L"))
    assert (empty == 255).all()


def test_names_in_other_scripts_do_not_stop_a_figure() -> None:
    made = everything(("浮腫", "отёк"), model="モデル")
    page = make_page(made.rows, made.curves, RECORD)
    assert png(figures(page)["waterfall"]).startswith(b"\x89PNG")


def test_names_that_no_xml_may_hold_and_hundreds_of_findings() -> None:
    made = everything(("a\x00b\x1f", "\ufffe"), model="\x0b")
    svg = figures(make_page(made.rows, made.curves, RECORD))["waterfall"]
    ElementTree.fromstring(svg)
    assert png(svg).startswith(b"\x89PNG")
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 100000" width="1000" height="100000"></svg>'
    width, height = Image.open(io.BytesIO(png(head))).size
    assert width * height <= 12.1e6


def test_several_models_have_figures_of_their_own(tmp_path) -> None:
    one, two = everything(("edema",), model="a/../b", second="two"), everything(("edema",), model="two")
    page = make_page([*one.rows, *two.rows], [*one.curves, *two.curves], RECORD)
    names = set(figures(page))
    assert {"waterfall-1", "waterfall-2", "context-1", "compare"} <= names
    write_figures(tmp_path / "figures", make_page([], [], {}))
    assert list((tmp_path / "figures").iterdir()) == []
    assert "runs" in figures(make_page(several_runs().rows, several_runs().curves, RECORD))


def test_the_palette_of_standalone_pictures_is_that_of_the_page() -> None:
    assert set(palette()) == set(palette(dark=True))
    assert palette()["overall"] in figure_style()


def test_summary_is_small_and_harmless() -> None:
    made = everything((BAD, "edema"))
    text = summary_html(made.rows, RECORD)
    page = Page(text)
    assert "<script" not in text
    assert "<style" not in text
    assert page.count("img") == 1
    assert page.count("table") == 1
    assert BAD in page.text
    assert "0.86 (95% CI 0.84 to 0.88)" in page.text
    assert len(text) < 60_000
    plain = [row for row in made.rows if row["audit"] == "overview"]
    assert "Sensitivity at 95% specificity" in Page(summary_html(plain, RECORD)).text
    assert "No results" in summary_html([], {})
    several = [row for k in range(6) for row in everything(("edema",), model=f"model {k}").rows]
    assert "2 more models" in Page(summary_html(several, RECORD)).text
