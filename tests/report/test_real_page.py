"""The page of the real NIH predictions: 14 findings, a waterfall from a context model made of what the table has."""

from __future__ import annotations

import pytest

from cxrhf import cli
from tests.browser import page
from tests.real_data import real_data
from tests.report.parsing import Page


@pytest.mark.real
def test_fourteen_findings(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = str(real_data("nih/predictions.csv.gz"))
    flags = ["--pretest", "from:age,sex,view,prior_labels", "--n-resamples", "50", "--out", "run"]
    assert cli.main(["audit", source, *flags]) == 0
    path = tmp_path / "run" / "report.html"
    text = path.read_text(encoding="utf-8")
    assert 300_000 < len(text.encode()) < 3_000_000
    assert "00000071" not in text  # the first image and patient of the file
    found = Page(text)
    for words in ("On average over 14 findings", "Context alone, without the image", "when context is held equal",
                  "Gaps between groups", "Every group by view: AP and PA", "Prevalence simulator"):  # fmt: skip
        assert words in found.text
    names = {each.name for each in (tmp_path / "run" / "figures").iterdir()}
    kinds = ("waterfall", "overview", "context", "matched", "reweighted", "imbalance", "subgroups")
    assert names == {f"{kind}.{ending}" for kind in kinds for ending in ("svg", "png")}
    with page(width=375, dark=True) as seen:
        seen.page.set_content(text)
        assert seen.errors == []
        assert seen.outside == []
        assert seen.page.locator("#m0-headline tbody tr").count() == 14
        assert seen.page.evaluate("document.documentElement.scrollWidth") == 375
