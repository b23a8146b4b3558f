"""The page: says what the results say, loads nothing, shows no ids, lets nothing of the data run."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from cxrhf.errors import RunError
from cxrhf.report import write_report
from cxrhf.report.book import Cell
from cxrhf.report.html import render
from cxrhf.report.sections.view import drop_judgement
from cxrhf.run import fingerprint_settings, open_run
from cxrhf.settings import to_mapping
from cxrhf.twin.planted import context
from tests.audits.tables import Found, audited, block, settings
from tests.report.parsing import Page

BAD = "<script>alert(1)</script>"


def written(folder: Path, *blocks, n_resamples: int = 60, **options) -> Path:
    output = audited(*blocks, n_resamples=n_resamples, **options)
    config = settings(n_resamples, **options)
    run = open_run(
        folder, verb="audit", config=to_mapping(config), inputs=[fingerprint_settings("<b>made</b>", seed=0)]
    )
    run.add("results", output.results)
    run.add("curves", output.curves)
    run.finish(notes=output.notes, reading=[f"findings: {BAD}"])
    return write_report(run.path)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Two findings with context, one of them hostile, one undefined, one with two positives, two models."""
    one, two = context(700, images_per_patient=(1, 3), seed=1), context(700, seed=2)
    few = np.zeros(700)
    few[[3, 400]] = 1
    blocks = []
    for model in ("net", '"><img src=x onerror=alert(2)>'):
        for name, y, planted in ((BAD, one.y, one), ("edema", two.y, two), ("mass", 0 * two.y, two), ("few", few, two)):
            blocks.append(
                block(
                    name, y, one.patient, model=model, prob=planted.prob, pretest=planted.pretest, dataset="<i>site</i>"
                )
            )
    folder = tmp_path_factory.mktemp("page") / "run"
    written(folder, *blocks)
    return folder


@pytest.fixture(scope="module")
def source(run) -> str:
    return (run / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(source) -> Page:
    return Page(source)


def test_nothing_is_loaded(source, page) -> None:
    assert "http://" not in source
    assert "https://" not in source
    assert not re.search(r"@import|url\(|\bfetch\(|XMLHttpRequest|EventSource|WebSocket", source)
    for tag, attributes in page.tags:
        assert tag not in ("img", "iframe", "object", "embed", "video", "audio", "source", "base", "form"), tag
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes), attributes
        href = attributes.get("href")
        assert href is None or href.startswith("#") or href == "data:,"


def test_only_the_pages_own_script_may_run(source, page) -> None:
    assert page.count("script") == 1
    (script,) = re.findall(r"<script>(.*?)</script>", source, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}'" in policy


def test_hostile_names_are_shown_and_harmless(source, page) -> None:
    assert source.count("<script") == 1
    assert BAD in page.text
    assert '"><img src=x onerror=alert(2)>' in page.text
    assert "<i>site</i>" in page.text
    assert "<b>made</b>" in page.text


def test_no_ids_of_rows_or_patients(source) -> None:
    assert "secret-image" not in source
    assert "secret-patient" not in source


def test_headings_captions_and_pictures_are_named(page) -> None:
    assert page.count("h1") == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(page.levels))
    assert page.count("table") == page.count("caption") > 10
    pictures = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert all(each.get("role") == "img" or each.get("aria-hidden") == "true" for each in pictures)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    labels = [name for each in pictures for name in (each.get("aria-labelledby") or "").split()]
    assert set(labels) <= set(ids)
    assert page.count("html", lang="en") == 1
    assert page.count("th", scope="col") > 10


def test_sections_of_the_page(page) -> None:
    for words in ("Warnings", "Methods and limits", "Provenance", "ROC curves", "Reliability", "Context controlled"):
        assert words in page.text
    for words in (
        "Reporting checklists",
        "CLAIM",
        "TRIPOD+AI",
        "Prevalence simulator",
        "Models audited",
    ):
        assert words in page.text
    assert set(page.ids) >= {"headline", "m0", "m1", "m0-compare", "m0-overview", "methods", "provenance", "checklist"}


def test_sentences_state_the_numbers_of_the_results(tmp_path) -> None:
    planted = context(1500, images_per_patient=(1, 3), seed=5)
    made = block("edema", planted.y, planted.patient, prob=planted.prob, pretest=planted.pretest)
    path = written(tmp_path / "run", made, n_resamples=100)
    found, text = Found(audited(made, n_resamples=100)), Page(path.read_text(encoding="utf-8")).text
    overall, rest = found("auroc", "edema", "reweighted"), found("auroc_att", "edema", "reweighted")
    drop = found("auroc_drop", "edema", "reweighted", "auroc_att")

    def said(row) -> str:
        return f"{row['ci_low']:.3f} to {row['ci_high']:.3f}"

    assert f"AUROC {overall['value']:.3f} (95% CI {said(overall)}) overall" in text
    assert f"{rest['value']:.3f} ({said(rest)}) with context held equal" in text
    assert f"drop of {drop['value']:.3f} ({said(drop)})" in text
    assert f"reaches an AUROC of {overall['value']:.2f} (95% CI {overall['ci_low']:.2f} to" in text
    assert f"{rest['value']:.2f} ({rest['ci_low']:.2f} to {rest['ci_high']:.2f}) remains" in text
    assert "part goes with context" in text
    assert "Averaged over" not in text  # one finding has no mean
    assert path.stat().st_size < 250_000


def test_what_cannot_be_said_is_said(page) -> None:
    assert "no positives among 700 rows" in page.text
    assert "Too few patients to draw a conclusion" in page.text
    assert "Not shown: Mass (undefined), Few (too few patients)" in page.text


def test_no_clear_drop(tmp_path) -> None:
    planted = context(1500, g=0.0, eta=0.0, seed=6)
    made = block("edema", planted.y, planted.patient, prob=planted.prob, pretest=planted.pretest)
    text = Page(written(tmp_path / "run", made).read_text(encoding="utf-8")).text
    assert "no clear drop" in text
    assert "part goes with context" not in text


def test_an_interval_that_does_not_survive_correction_is_called_unclear() -> None:
    drop = Cell(value=0.02, low=0.001, high=0.04, p_value=0.2)
    assert drop_judgement(drop, False, "holm")[0] == "unclear"
    assert "p = 0.20" in drop_judgement(drop, False, "holm")[2]
    assert drop_judgement(drop._replace(p_value=0.01), False, "holm")[0] == "part goes with context"
    assert drop_judgement(drop._replace(value=-0.02, p_value=0.01), False, "holm")[0] == "higher with context equal"


def test_without_context_the_page_says_how_to_get_it(tmp_path) -> None:
    planted = context(500, seed=7)
    path = written(tmp_path / "run", block("edema", planted.y, planted.patient, prob=planted.prob))
    text = Page(path.read_text(encoding="utf-8")).text
    assert "--pretest COLUMN" in text
    assert "At 95% specificity" in text
    assert "Context controlled" not in text


def test_scores_without_probabilities_have_no_calibration_tables(tmp_path) -> None:
    planted = context(500, seed=8)
    path = written(tmp_path / "run", block("edema", planted.y, planted.patient, logit=2.8 * planted.prob))
    text = Page(path.read_text(encoding="utf-8")).text
    assert "ranking metrics only" in text
    assert "Reliability" not in text
    assert "Calibration of the probabilities" not in text


def test_level_of_the_intervals_is_named(tmp_path) -> None:
    planted = context(500, seed=9)
    path = written(tmp_path / "run", block("edema", planted.y, planted.patient, prob=planted.prob), level=0.9)
    text = Page(path.read_text(encoding="utf-8")).text
    assert "(90% CI " in text
    assert "(95% CI " not in text


def test_matched_alone_and_nothing_at_all(tmp_path) -> None:
    planted = context(500, seed=10)
    made = block("edema", planted.y, planted.patient, prob=planted.prob, pretest=planted.pretest)
    text = Page(written(tmp_path / "run", made, only=("matched",)).read_text(encoding="utf-8")).text
    assert "in pairs matched on context" in text
    assert "--only does not include subgroups" in text
    Page(render([], [], {}))


def test_a_run_without_results_is_an_error(tmp_path) -> None:
    with pytest.raises(RunError):
        write_report(tmp_path)
    run = open_run(tmp_path / "run", verb="audit", config={}, inputs=[])
    with pytest.raises(RunError, match=r"results\.parquet"):
        write_report(run.path)


def test_curves_may_be_missing_and_the_page_is_the_same_again(run) -> None:
    first = (run / "report.html").read_bytes()
    assert write_report(run).read_bytes() == first
    (run / "curves.parquet").rename(run / "curves.away")
    try:
        assert "ROC curves" not in Page(write_report(run).read_text(encoding="utf-8")).text
    finally:
        (run / "curves.away").rename(run / "curves.parquet")
        write_report(run)


def test_attrition_and_its_picture_are_in_the_page():
    steps = [
        {
            "step": "notes <b>", "images": 5, "studies": None, "patients": 2, "admissions": None, "notes": None,
            "expected_images": 1234, "expected_studies": None, "expected_patients": None, "expected_admissions": None,
            "expected_notes": None, "note": "why & how",
        }
    ]  # fmt: skip
    page = render([], [], {}, steps, b"<svg xmlns='http://www.w3.org/2000/svg'/>")
    assert "notes &lt;b&gt;" in page
    assert "published 1,234" in page
    assert "data:image/svg+xml;base64," in page
    assert 'id="data"' not in render([], [], {})
