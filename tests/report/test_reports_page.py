"""Generated reports in a browser: hover, keyboard, choice of strategy, groups and rule, filters, phone and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cxrhf.report import page_html
from tests.browser import Seen, page
from tests.report import made_reports
from tests.report.made import RECORD, everything
from tests.report.made_reports import BAD_WORD, ODD, RARE
from tests.report.serving import opened, serving
from tests.thinned import thinned

PLOT = "#reports-words-plot"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("pages")
    one, two, pred = made_reports.whole(), made_reports.whole(model="other", seed=1), everything(("edema", "mass"))
    text = page_html(one.rows, one.curves, RECORD, words=one.words)
    (target / "one.html").write_text(text, encoding="utf-8")
    rows, curves = [*pred.rows, *one.rows, *two.rows], [*pred.curves, *one.curves, *two.curves]
    text = page_html(rows, curves, made_reports.SHOWN, words=[*one.words, *two.words])
    (target / "both.html").write_text(text, encoding="utf-8")
    return target


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[tuple[str, list[str]]]:
    with serving(folder) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Seen]:
    with page() as seen:
        yield seen


def find(look: Any, word: str) -> str:
    """What is said of a word that is looked for."""
    look.locator(f"{PLOT} .find").fill(word)
    tip = look.locator(f"{PLOT} .tip")
    return str(tip.inner_text()) if tip.is_visible() else ""


def place(look: Any) -> tuple[float, float]:
    """Where the word that is told of stands on the screen."""
    box = look.locator(f"{PLOT} .ring").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def names(look: Any) -> list[str]:
    return list(look.locator(f"{PLOT} svg.field .label").all_text_contents())


def choose(look: Any, what: str, name: str) -> None:
    look.locator(f"{PLOT} .{what}").select_option(label=name)


def test_hover_and_keys_tell_a_word_in_full(browser, served) -> None:
    with opened(browser, served, "one.html") as look:
        look.locator(PLOT).scroll_into_view_if_needed()
        said = find(look, "mastectomy")
        assert said.splitlines()[:3] == [
            "mastectomy", "omitted; published rule: stable", "References: 90 (F), 6 (M)"
        ]  # fmt: skip
        assert "Generated: 0 (F), 0 (M)" in said
        assert "48 patients" in said
        assert "omission q < 0.001" in said
        x, y = place(look)
        assert find(look, "") == ""
        look.mouse.move(x + 2, y + 2)
        tip = look.locator(f"{PLOT} .tip")
        assert tip.inner_text() == said
        look.mouse.move(5, 5)
        assert not tip.is_visible()
        look.locator(f"{PLOT} svg.field").focus()
        look.keyboard.press("ArrowRight")
        first = tip.inner_text().splitlines()[0]
        look.keyboard.press("ArrowRight")
        assert tip.inner_text().splitlines()[0] != first
        look.keyboard.press("ArrowLeft")
        assert tip.inner_text().splitlines()[0] == first
        look.keyboard.press("Escape")
        assert not tip.is_visible()
        assert find(look, RARE) == ""


@pytest.mark.slow
def test_choices_change_the_plot(browser, served) -> None:
    with opened(browser, served, "one.html") as look:
        greedy = names(look)
        assert "mastectomy" in greedy
        assert "pneumothorax" not in greedy
        choose(look, "strategy", "top_p")
        drawn = names(look)
        assert {"pneumothorax", "pacemaker"} <= set(drawn)
        assert find(look, BAD_WORD).splitlines()[:2] == [BAD_WORD, "new; published rule: new"]
        choose(look, "strategy", ODD)
        assert look.locator(f"{PLOT} svg.field").get_attribute("aria-label").startswith(f"Words of {ODD}")
        choose(look, "strategy", "greedy")
        choose(look, "rule", "published rule")
        assert "mastectomy" not in names(look)  # what the published rule does not see
        assert look.locator(f"{PLOT} fieldset:visible legend").inner_text() == "Show (published rule)"
        choose(look, "rule", "tested")
        choose(look, "pair", "Age: 60-80 and all others")
        assert "others" in look.locator(f"{PLOT} svg.field").inner_html()


@pytest.mark.slow
def test_a_filter_hides_a_category(browser, served) -> None:
    with opened(browser, served, "one.html") as look:
        said, field = look.locator(f"{PLOT} .count"), look.locator(f"{PLOT} svg.field")
        assert said.inner_text() == "316 of 317 words shown; 1 excluded (fewer than 5 patients)"
        assert field.locator(".mark.remains").count() == 10
        look.locator(f"{PLOT} fieldset:visible label", has_text="omitted").locator("input").uncheck()
        assert field.locator(".mark.remains").count() == 0
        assert said.inner_text().startswith("306 of 317")
        assert find(look, "mastectomy") == ""


@pytest.mark.slow
def test_two_models_and_predictions(browser, served) -> None:
    with opened(browser, served, "both.html") as look:
        choose(look, "strategy", "rich")
        before = look.locator(f"{PLOT} svg.field").inner_html()
        choose(look, "model", "other")
        assert look.locator(f"{PLOT} svg.field").inner_html() != before
        assert look.locator("#m0-overview").count() == 1


@pytest.mark.parametrize(
    ("name", "width", "dark"),
    thinned(
        [("one.html", 375, False), ("both.html", 375, True), ("one.html", 1440, True)],
        [("one.html", 375, False), ("both.html", 375, True)],
    ),
)
def test_every_width_and_scheme_without_sideways_scrolling(browser, served, name, width, dark) -> None:
    with opened(browser, served, name, width=width, dark=dark) as look:
        choose(look, "strategy", "top_p")
        assert find(look, "pneumothorax").startswith("pneumothorax")
        box, stage = (look.locator(f"{PLOT} {part}").bounding_box() for part in (".tip", ".stage"))
        assert box["x"] >= stage["x"] - 1
        assert box["x"] + box["width"] <= min(width, stage["x"] + stage["width"] + 1)
        labels = look.eval_on_selector_all(
            f"{PLOT} svg.field .label",
            "all => all.map((l) => l.getBBox()).map((b) => [b.x, b.y + 2, b.x + b.width, b.y + b.height - 2])",
        )  # fmt: skip
        apart = [
            (a, b) for k, a in enumerate(labels) for b in labels[:k]
            if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
        ]  # fmt: skip
        assert len(labels) > 4
        assert apart == []
        for _ in ("closed", "open"):
            assert look.evaluate("document.documentElement.scrollWidth") == width
            look.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
        unlabelled = look.eval_on_selector_all(
            "#content input, #content select", "all => all.filter((i) => !i.labels.length && !i.ariaLabel).length"
        )
        assert unlabelled == 0


@pytest.mark.slow
def test_a_touch_tells_the_word(browser, served) -> None:
    context = browser.page.context.browser.new_context(viewport={"width": 375, "height": 800}, has_touch=True)
    look = context.new_page()
    look.goto(served[0] + "one.html")
    look.locator(PLOT).scroll_into_view_if_needed()
    assert find(look, "mastectomy")
    look.locator(f"{PLOT} svg.field").scroll_into_view_if_needed()
    x, y = place(look)
    assert find(look, "") == ""
    look.touchscreen.tap(x, y)
    assert look.locator(f"{PLOT} .tip").inner_text().startswith("mastectomy")
    context.close()


def test_without_a_script_a_picture_stands_there(browser, served) -> None:
    context = browser.page.context.browser.new_context(java_script_enabled=False)
    look = context.new_page()
    look.goto(served[0] + "one.html")
    assert look.locator(f"{PLOT} .still svg[role=img]").is_visible()
    assert not look.locator(f"{PLOT} svg.field").is_visible()
    assert "mastectomy" in look.locator(f"{PLOT} .still").inner_text()
    context.close()
