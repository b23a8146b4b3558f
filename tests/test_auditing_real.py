"""The real NIH predictions end to end: a page of 14 findings, a waterfall from a fitted context, views and sexes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cxrhf import cli
from cxrhf.schema import RESULT
from cxrhf.tables.files import read_table
from tests.browser import page
from tests.real_data import real_data
from tests.report.parsing import Page

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nih") / "run"
    flags = ["--pretest", "from:age,sex,view,prior_labels", "--n-resamples", "50", "--out", str(folder)]
    assert cli.main(["audit", str(real_data("nih/predictions.csv.gz")), *flags]) == 0
    return folder


def test_the_page_has_all_findings_and_the_waterfall(run: Path) -> None:
    rows = read_table(run / "results.parquet", RESULT).to_pylist()
    findings = {row["finding"] for row in rows if row["metric"] == "auroc" and row["slice"] == "all"} - {"macro"}
    assert len(findings) == 14
    text = (run / "report.html").read_text()
    for name in ("Atelectasis", "Pleural effusion", "Hernia", "with context held equal"):
        assert name in text
    found = {(row["metric"], row["finding"]): row["value"] for row in rows if row["slice"] == "all"}
    # What age, sex, view and earlier labels know is worth much of the AUROC on these data.
    assert found["auroc_context", "macro"] > 0.7
    assert found["auroc", "macro"] - found["auroc_att", "macro"] > 0.05
    assert (run / "figures" / "waterfall.svg").is_file()
    assert (run / "figures" / "waterfall.png").read_bytes().startswith(b"\x89PNG")


def test_no_image_or_patient_is_named(run: Path) -> None:
    for path in (run / "report.html", run / "results.json", run / "run.json", *(run / "figures").glob("*.svg")):
        text = path.read_text()
        assert "00000071_000" not in text, path.name
        assert ".png" not in text.replace("waterfall.png", ""), path.name


@pytest.mark.slow
def test_fourteen_findings_in_a_browser(run: Path) -> None:
    text = (run / "report.html").read_text(encoding="utf-8")
    assert 300_000 < len(text.encode()) < 3_000_000
    assert "00000071" not in text  # the first image and patient of the file
    found = Page(text)
    for words in ("Averaged over 14 findings", "earlier labels alone, without the image", "with context held equal",
                  "Gaps between subgroups", "Every subgroup by view: AP and PA", "Prevalence simulator"):  # fmt: skip
        assert words in found.text
    names = {each.name for each in (run / "figures").iterdir()}
    kinds = ("waterfall", "overview", "context", "matched", "reweighted", "imbalance", "subgroups")
    assert names == {f"{kind}.{ending}" for kind in kinds for ending in ("svg", "png")}
    with page(width=375, dark=True) as seen:
        seen.page.set_content(text)
        assert seen.errors == []
        assert seen.outside == []
        assert seen.page.locator("#m0-headline tbody tr").count() == 14
        assert seen.page.evaluate("document.documentElement.scrollWidth") == 375


def test_views_differ_more_than_sexes(run: Path) -> None:
    gaps: dict[str, dict[str, float]] = {}
    for row in read_table(run / "results.parquet", RESULT).to_pylist():
        single = row["audit"] == "subgroups" and row["versus"] and " & " not in row["slice"]
        if single and row["metric"] == "auroc" and row["finding"] != "macro":
            gaps.setdefault(row["finding"], {})[row["slice"].partition("=")[0]] = row["value"]
    assert sum(each.get("view", 0) > each.get("sex", 1) for each in gaps.values()) >= 10
