"""The section on context models: alone, beside audits of image models, at every width, without texts or ids."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest

from cxrhf.context.tables import pretest_results
from cxrhf.report import page_html, summary_html, write_report
from cxrhf.report.book import open_books
from cxrhf.report.figures.dots import Word, words
from cxrhf.report.files import figures
from cxrhf.report.page import make_page
from cxrhf.report.sections.pretest import words_of
from cxrhf.report.sheet import palette
from cxrhf.run import fingerprint_settings, open_run
from cxrhf.schema import CURVE, RESULT
from cxrhf.tables.checks import table_of
from tests.browser import page
from tests.pretest_made import FAMILIES, FINDINGS, WORDS, made_choices, scored_rows
from tests.report.made import RECORD, everything
from tests.report.parsing import Page
from tests.report.serving import opened, serving
from tests.thinned import thinned

WHY = "7 patients with it have prior notes, 20 are needed"
BAD = "<script>alert(1)</script>"
SENTENCE = "Prior notes alone, without the image, reach an AUROC of "


def made(**options: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    choices = options.pop("choices", None) or made_choices(unfitted={"pleural_other": WHY})
    found = pretest_results(scored_rows(**options), choices, n_resamples=20)
    return found.results.to_pylist(), found.curves.to_pylist()


@pytest.fixture(scope="module")
def rows() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    return made()


@pytest.fixture(scope="module")
def alone(rows) -> Page:
    return Page(page_html(*rows, RECORD))


def well_formed(page: Page) -> None:
    assert len(page.ids) == len(set(page.ids))
    assert all(after - before <= 1 for before, after in itertools.pairwise(page.levels))
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert all(str(link)[1:] in page.ids for link in links)


def test_a_page_of_context_models_alone(alone) -> None:
    well_formed(alone)
    text = alone.text
    assert SENTENCE in text
    assert "over 3 findings" in text
    assert "1,234 images of 310 patients have no prior note" in text
    assert f"Pleural other ({WHY})." in text
    assert "3 of 4 fitted" in text
    for said in ("Calibration slope", "AUROC by finding, and the chosen note model",
                  "Words that move the pre-test probability", "Reliability of the pre-test probability",
                  "AUROC of every note model", "words minus minilm"):  # fmt: skip
        assert said in text
    assert "pretest" in alone.ids
    assert "m0-headline" not in alone.ids  # a text model is not taken for an image model
    assert "checklist" not in alone.ids
    assert "Audit of" not in text
    for word in WORDS:
        assert word in text


def test_the_first_sentence_says_the_range(rows) -> None:
    found = {
        row["finding"]: row["value"]
        for row in rows[0]
        if row["metric"] == "auroc" and row["model"] == "context" and row["finding"] in FINDINGS
    }
    low, high = f"{min(found.values()):.2f}", f"{max(found.values()):.2f}"
    text = Page(page_html(*rows, RECORD)).text
    assert text.split(SENTENCE)[1].startswith(f"{low} (")
    assert f" to {high} (" in text.split(SENTENCE)[1][:120]


@pytest.mark.parametrize("models", thinned([1, 2], [2]))
def test_beside_audits_of_image_models(rows, models) -> None:
    audits = [everything(model=f"net {k}", seed=k) for k in range(models)]
    before = [row for each in audits for row in each.rows]
    lines = [row for each in audits for row in each.curves]
    for order in ([*before, *rows[0]], [*rows[0], *before]):
        both = Page(page_html(order, [*lines, *rows[1]], RECORD))
        well_formed(both)
        assert SENTENCE in both.text
        assert "Audit of net 0" in both.text
        assert {"m0-headline", "pretest", "checklist"} <= set(both.ids)
        assert f"m{models}-headline" not in both.ids
    plain = page_html(before, lines, RECORD)
    assert "pretest" not in Page(plain).ids
    assert SENTENCE not in plain
    assert [book.model for book in open_books([*before, *rows[0]])] == [f"net {k}" for k in range(models)]


def test_no_ids_reach_the_page_and_names_are_escaped() -> None:
    choices = made_choices(("edema", BAD), families={"words": FAMILIES["words"], BAD: FAMILIES["minilm"]}, chosen=BAD)
    choices["findings"]["edema"]["families"]["words"]["features"][0]["word"] = BAD
    choices["findings"][BAD]["families"]["words"]["reasons"] = [BAD]
    families = {"words": FAMILIES["words"], BAD: FAMILIES["minilm"]}
    found = made(choices=choices, findings=("edema", BAD), families=families, chosen=BAD, dataset=BAD)
    text = page_html(*found, dict(RECORD) | {"fitted": {"context": choices}})
    assert text.count("<script") == 1
    page = Page(text)
    well_formed(page)
    assert BAD in page.text
    assert not any(f"{letter}{number}" in text for letter, number in (("i0", "0012"), ("p0", "012")))
    assert "cv_auroc_sd" not in text  # the choices have their own table: no dump of them


def test_undefined_numbers_and_nothing_fitted(rows) -> None:
    nothing = [
        row | {"value": math.nan, "ci_low": None, "ci_high": None, "note": "undefined: one class"} for row in rows[0]
    ]
    page = Page(page_html(nothing, [], RECORD))
    well_formed(page)
    assert "could not be measured" in page.text
    assert " nan" not in page.text.lower()
    only = [row for row in rows[0] if row["finding"] == "pleural_other"]
    page = Page(page_html(only, [], {}))
    well_formed(page)
    assert WHY in page.text
    assert "0 of 1 fitted" in page.text


def test_one_finding_one_family() -> None:
    families = {"words": FAMILIES["words"]}
    choices = made_choices(("edema",), families=families, chosen="words")
    page = Page(page_html(*made(choices=choices, findings=("edema",), families=families, chosen="words"), RECORD))
    well_formed(page)
    assert " for Edema." in page.text
    assert "1 = calibrated" in page.text
    assert "of every note model" not in page.text
    assert "chosen: words" not in page.text
    assert "Embeddings of a language model" not in page.text


@pytest.mark.slow
def test_more_families_than_marks_keep_the_chosen_one() -> None:
    families = {f"encoder {k}": ("encoder", "LinearSVC", {}, 0.2 + 0.2 * k) for k in range(7)}
    choices = made_choices(families=families, chosen="encoder 6")
    found = made(choices=choices, families=families, chosen="encoder 6")
    text = Page(page_html(*found, RECORD)).text
    assert "Only in the table: encoder 4 and encoder 5." in text
    assert "Words that move the pre-test probability" not in text


def test_stratum_of_images_without_notes() -> None:
    choices = made_choices()
    choices["without_notes"] = {"images": 55, "patients": 20, "how": "stratum"}
    text = Page(page_html(*made(choices=choices), RECORD)).text
    assert "55 images of 20 patients have no prior note" in text
    choices["without_notes"] = {"images": 0, "patients": 0, "how": "exclude"}
    assert "have no prior note" not in Page(page_html(*made(choices=choices), RECORD)).text


@pytest.mark.slow
def test_several_datasets() -> None:
    one, two = made(dataset="north"), made(dataset="south", seed=1)
    page = Page(page_html([*one[0], *two[0]], [*one[1], *two[1]], RECORD))
    well_formed(page)
    assert {"pretest", "pretest1"} <= set(page.ids)
    assert "Pre-test probability from prior notes on south" in page.text


def test_figures_and_files(rows, tmp_path) -> None:
    assert set(figures(make_page(*rows, RECORD))) == {"pretest", "pretest-words"}
    run = open_run(tmp_path / "run", verb="context fit", config={"seed": 0}, inputs=[fingerprint_settings("x")])
    run.add("results", table_of(rows[0], RESULT))
    run.add("curves", table_of(rows[1], CURVE))
    run.finish(notes=["only the split test is evaluated; 9 rows of train are not"])
    text = write_report(run.path).read_text(encoding="utf-8")
    assert SENTENCE in text
    assert {path.name for path in (run.path / "figures").iterdir()} == {
        "pretest.svg", "pretest.png", "pretest-words.svg", "pretest-words.png"
    }  # fmt: skip


def test_summary_for_a_notebook(rows) -> None:
    text = summary_html(rows[0], RECORD)
    assert "<script" not in text
    page = Page(text)
    assert SENTENCE in page.text
    assert page.count("table") == 1
    both = Page(summary_html([*everything().rows, *rows[0]], RECORD))
    assert SENTENCE not in both.text


def test_bars_of_words() -> None:
    found = [Word("bumetanide", 2.0), Word("stairs", -1.0), Word(BAD, 0.5), Word("lost", math.nan)]
    svg = str(words(found, signed=True, finding="Edema", ident="x", title="t"))
    assert svg.count('class="part more"') == 2
    assert svg.count('class="part less"') == 1
    assert "bumetanide: for; stairs: against" in svg
    assert "<script" not in svg
    assert "lost" not in svg
    assert 'data-finding="edema"' in svg
    trees = str(words(found[:1], signed=False, finding="Edema", ident="x", title="t"))
    assert 'class="part some"' in trees
    assert "for" not in trees.partition("<desc")[2].partition("</desc>")[0]
    assert str(words([], signed=True, finding="Edema", ident="x", title="t")).startswith("<svg")


def test_words_stand_in_the_order_of_their_rank(rows) -> None:
    book = next(book for book in open_books(rows[0], apart="pretest") if book.model == "words")
    features = made_choices()["findings"]["edema"]["families"]["words"]["features"]
    assert [each.word for each in words_of(book, "edema")] == [each["word"] for each in features]
    assert [each.effect for each in words_of(book, "edema")] == [each["effect"] for each in features]


@pytest.fixture(scope="module")
def served(rows, tmp_path_factory) -> Iterator[tuple[str, list[str]]]:
    folder = tmp_path_factory.mktemp("pages")
    (folder / "alone.html").write_text(page_html(*rows, RECORD), encoding="utf-8")
    audit = everything()
    both = page_html([*audit.rows, *rows[0]], [*audit.curves, *rows[1]], RECORD)
    (folder / "both.html").write_text(both, encoding="utf-8")
    with serving(folder) as found:
        yield found


LOOKS = [(name, width, dark) for name in ("alone.html", "both.html") for width in (375, 1440) for dark in (False, True)]


@pytest.mark.parametrize(
    "looks", [[LOOKS[3], LOOKS[4]], pytest.param(LOOKS, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_in_a_browser_at_every_width_and_scheme(served, looks) -> None:
    with page() as browser:
        for name, width, dark in looks:
            with opened(browser, served, name, width=width, dark=dark) as look:
                for _ in ("closed", "open"):
                    assert look.evaluate("document.documentElement.scrollWidth") == width
                    look.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
                bar = look.locator("#pretest rect.more").first
                wanted = palette(dark)["overall"]
                colour = f"rgb({', '.join(str(int(wanted[k : k + 2], 16)) for k in (1, 3, 5))})"
                assert bar.evaluate("each => getComputedStyle(each).fill") == colour
                sizes = look.eval_on_selector_all(
                    "#pretest svg[role=img]", "all => all.map((each) => each.getBoundingClientRect().width)"
                )
                assert len(sizes) >= 9
                assert min(sizes) > 130
        with opened(browser, served, "both.html") as look:
            look.locator("#pick").fill("edema")
            assert look.locator("#pretest table").first.locator("tbody tr:not([hidden])").count() == 1


def test_long_words_have_room() -> None:
    """Letters are up to 13 units wide (m), most of them 8: a label that starts left of the picture would be cut."""
    for word in ("pneumothorax", "hemidiaphragm", "bumetanide", "mammogram"):
        svg = str(words([Word(word, 1.0)], signed=True, finding="Edema", ident="x", title="t"))
        ends = float(re.search(r'<text[^>]*x="([\d.]+)"[^>]*>' + word, svg).group(1))  # type: ignore[union-attr]
        assert ends >= sum(12.7 if each in "mw" else 7.9 for each in word)


def test_the_mean_says_what_it_is_a_mean_of(rows) -> None:
    """Findings with too few patients are in the mean, and not in the sentence before it."""
    results, curves = rows
    finding = next(row["finding"] for row in results if row["metric"] == "verdict" and row["model"] == "context")
    few = [
        row | {"value": 0.0, "note": "too few positives: 2 patients"}
        if row["metric"] == "verdict" and row["finding"] == finding
        else row
        for row in results
    ]
    text = Page(page_html(few, curves, RECORD)).text
    assert "over 2 findings" in text
    assert "on average over all 3." in text
    assert "on average over all" not in Page(page_html(results, curves, RECORD)).text
