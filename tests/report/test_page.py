"""The page in a browser: no errors, no requests, sections and plots there, sorting, filters and simulator work."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from cxrhf.report import page_html
from cxrhf.report.sheet import palette
from tests.browser import Seen, page
from tests.report.made import RECORD, everything
from tests.report.serving import opened, serving
from tests.thinned import thinned

BAD = "<script>alert(1)</script>"
FINDINGS = ("edema", "mass", "pneumonia", BAD)
GROUPS = {"sex": ("F", '"><img src=x onerror=alert(2)>'), "age": ("0-39", "40-59", "60+")}


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[tuple[str, list[str]]]:
    """The address of a folder with pages, and what was asked of it."""
    folder = tmp_path_factory.mktemp("pages")
    one = everything(FINDINGS, model="net", second="other", groups=GROUPS)
    two = everything(FINDINGS, model="other", groups=GROUPS, seed=1)
    (folder / "one.html").write_text(page_html(one.rows, one.curves, RECORD), encoding="utf-8")
    both = page_html([*one.rows, *two.rows], [*one.curves, *two.curves], RECORD)
    (folder / "both.html").write_text(both, encoding="utf-8")
    groups = {"sex": "FM", "race": ("White", "Black", "Asian"), "age": ("0-39", "40-59", "60+"), "view": ("AP", "PA")}
    large = everything([f"finding number {k}" for k in range(14)], groups=groups)
    (folder / "large.html").write_text(page_html(large.rows, large.curves, RECORD), encoding="utf-8")
    with serving(folder) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Seen]:
    """One browser for all tests of this file: starting one takes longer than most of them."""
    with page() as seen:
        yield seen


@pytest.mark.parametrize(
    ("name", "width", "dark"),
    thinned(
        [("one.html", 375, False), ("one.html", 1440, True), ("both.html", 375, True), ("both.html", 1440, False)],
        [("one.html", 1440, True), ("both.html", 375, True)],
    ),
)
def test_opens_at_every_width_and_scheme_without_sideways_scrolling(browser, served, name, width, dark) -> None:
    with opened(browser, served, name, width=width, dark=dark) as look:
        for state in ("closed", "open"):
            assert look.evaluate("document.documentElement.scrollWidth") == width, state
            look.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
        paper = look.evaluate("getComputedStyle(document.body).backgroundColor")
        wanted = palette(dark)["paper"]
        assert paper == f"rgb({', '.join(str(int(wanted[k : k + 2], 16)) for k in (1, 3, 5))})"
        hidden = look.locator(".wide" if width < 640 else ".narrow").first
        assert not hidden.is_visible()
        sizes = look.eval_on_selector_all(
            "svg[role=img]",
            "all => all.filter((s) => s.checkVisibility()).map((s) => s.getBoundingClientRect().height)",
        )
        assert len(sizes) > 50
        assert min(sizes) > 60
        assert look.locator("script").count() == 1
        assert look.locator("img").count() == 0


def test_sections_plots_headings_and_names(browser, served) -> None:
    with opened(browser, served, "one.html") as look:
        for ident in ("headline", "overview", "context", "controlled", "imbalance", "subgroups", "compare"):
            assert look.locator(f"#m0-{ident} svg[role=img]").count() >= 1, ident
        for ident in ("warnings", "methods", "checklist", "provenance"):
            assert look.locator(f"#{ident}").count() == 1
        levels = look.eval_on_selector_all("h1,h2,h3,h4,h5", "all => all.map((h) => Number(h.tagName[1]))")
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
        unnamed = look.eval_on_selector_all(
            "svg[role=img]",
            "all => all.filter((s) => !s.getAttribute('aria-labelledby').split(' ').every("
            "(id) => (document.getElementById(id) || {}).textContent)).length",
        )
        assert unnamed == 0
        broken = look.eval_on_selector_all(
            "nav a", "all => all.filter((a) => !document.getElementById(a.hash.slice(1))).map((a) => a.hash)"
        )
        assert broken == []
        unlabelled = look.eval_on_selector_all(
            "input", "all => all.filter((i) => !i.labels.length && !i.ariaLabel).length"
        )
        assert unlabelled == 0
        assert BAD in look.locator("#m0-headline").inner_text()
        assert GROUPS["sex"][1] in look.locator("#m0-subgroups").text_content()


def column(look, table: str, at: int) -> list[str]:
    return look.eval_on_selector_all(
        f"{table} tbody tr", f"all => all.filter((r) => !r.hidden).map((r) => r.cells[{at}].firstChild.textContent)"
    )


def test_sorting_by_mouse_and_keyboard(browser, served) -> None:
    with opened(browser, served, "one.html") as look:
        table = "#m0-headline table"
        button = look.locator(f"{table} thead th button").nth(1)
        button.click()
        up = [float(each) for each in column(look, table, 1)]
        assert up == sorted(up)
        assert look.locator(f"{table} thead th").nth(1).get_attribute("aria-sort") == "ascending"
        button.focus()
        look.keyboard.press("Enter")
        assert [float(each) for each in column(look, table, 1)] == up[::-1]
        look.locator(f"{table} thead th button").nth(0).click()
        names = column(look, table, 0)
        assert names == sorted(names, key=str.lower)
        assert look.locator(f"{table} tfoot tr").count() == 1


@pytest.mark.slow
def test_every_table_can_be_filtered(browser, served) -> None:
    with opened(browser, served, "one.html") as look:
        filters = look.eval_on_selector_all(
            "table.sortable", "all => all.map((t) => [t.tBodies[0].rows.length, t.dataset.filter])"
        )
        assert len(filters) > 20
        assert all(name for count, name in filters if count > 1)
        box = look.locator("#m0-headline .filter")
        box.locator("input").fill("eDe")
        assert column(look, "#m0-headline table", 0) == ["Edema"]
        assert box.locator(".count").inner_text() == "1 of 4 rows"
        box.locator("input").fill("<script")
        assert column(look, "#m0-headline table", 0) == [BAD]
        box.locator("input").fill("(")
        assert column(look, "#m0-headline table", 0) == [BAD]
        box.locator("input").fill("")
        assert len(column(look, "#m0-headline table", 0)) == 4


def test_one_filter_for_the_whole_page(browser, served) -> None:
    with opened(browser, served, "one.html") as look:
        look.locator("#pick").fill("mass")
        assert column(look, "#m0-headline table", 0) == ["Mass"]
        assert set(column(look, "#m0-overview table", 0)) == {"Mass"}
        shown = look.eval_on_selector_all(".findings li", "all => all.filter((e) => !e.hidden).length")
        assert shown == 1
        assert (
            look.eval_on_selector_all("#m0-overview .multiples > figure", "all => all.filter((e) => !e.hidden).length")
            < 4
        )
        faded = look.locator("#m0-headline g.dim").count()
        assert faded == 2 * 4  # three findings and the mean, in the wide and the narrow picture
        assert len(column(look, "#checklist table", 0)) > 20
        look.locator("#pick").fill("")
        assert look.locator(".dim").count() == 0
        assert len(column(look, "#m0-headline table", 0)) == 4


def test_simulator(browser, served) -> None:
    with opened(browser, served, "one.html") as look:
        box, table = look.locator("#m0-simulator"), "#m0-simulator table"
        before = column(look, table, 4)
        assert before == ["0.471"] * 4  # .8 and .9 at 10%
        box.locator(".number").fill("1")
        assert column(look, table, 3) == ["1.00%"] * 4
        assert column(look, table, 4) == ["0.075"] * 4
        assert column(look, table, 5) == ["0.998"] * 4
        assert column(look, table, 7) == ["0.1000"] * 4  # read off the curve, sqrt(.01)
        slider = box.locator(".range")
        slider.focus()
        look.keyboard.press("End")
        assert column(look, table, 3) == ["50.00%"] * 4
        assert column(look, table, 4) == ["0.889"] * 4
        look.keyboard.press("Home")
        assert column(look, table, 3) == ["0.10%"] * 4
        assert column(look, table, 7) == ["–"] * 4  # beyond the curve
        assert slider.get_attribute("aria-valuetext") == "0.10%"
        look.keyboard.press("ArrowRight")
        assert column(look, table, 3) == ["0.11%"] * 4
        box.locator(".number").fill("400")  # no prevalence: nothing moves
        assert column(look, table, 3) == ["0.11%"] * 4
        box.locator(".reset").click()
        assert column(look, table, 4) == before
        assert box.locator("output").inner_text() == "as in this sample"


def test_works_without_a_script(browser, served) -> None:
    context = browser.page.context.browser.new_context(java_script_enabled=False)
    look = context.new_page()
    look.goto(served[0] + "one.html")
    assert look.locator("#m0-simulator tbody tr").count() == 4
    assert not look.locator("#m0-simulator .move").is_visible()
    assert not look.locator(".filter").first.is_visible()
    assert "0.471" in look.locator("#m0-simulator table").inner_text()
    context.close()


@pytest.mark.slow
def test_a_link_into_a_fold_opens_it(browser, served) -> None:
    with opened(browser, served, "both.html") as look:
        assert not look.locator("#m1-context").is_visible()
        look.locator("nav a[href='#m1-context']").click()
        assert look.locator("#m1-context").is_visible()


@pytest.mark.slow
def test_paper_shows_what_is_folded(browser, served) -> None:
    with opened(browser, served, "one.html", dark=True) as look:
        look.emulate_media(media="print")
        look.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert look.locator("details:not([open])").count() == 0
        assert not look.locator("nav").is_visible()
        # White ink would not show on paper.
        assert look.evaluate("getComputedStyle(document.body).color") == "rgb(26, 29, 33)"


def luminance(colour: tuple[float, ...]) -> float:
    parts = [value / 255 for value in colour]
    red, green, blue = (each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: tuple[float, ...], two: tuple[float, ...]) -> float:
    light, dark = sorted((luminance(one), luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def colour(text: str) -> tuple[float, ...]:
    return tuple(float(each) for each in re.findall(r"[\d.]+", text)[:3])


@pytest.mark.parametrize("dark", [False, True])
def test_contrast(browser, served, dark) -> None:
    """Text 4.5:1 on what lies behind it, marks of the plots 3:1 on the paper."""
    texts = (
        "p", "h1", "h2", "h3", "th", "td", "td small", "small.p.strong", "a", "summary", "label", "figcaption", ".lead",
        ".muted", ".tag", ".tag.strong", ".facts dt", ".facts dd", ".warnings li", "footer", ".count", "button.plain",
    )  # fmt: skip
    drawn = dict.fromkeys(("svg text", "svg .tick", "svg .name", "svg .label"), 4.5)
    drawn |= {f"svg .mark.{kind}": 3 for kind in ("overall", "context", "remains", "fourth")}
    style = """(names) => names.map((name) => {
        const part = document.querySelector(name), own = getComputedStyle(part);
        for (let each = part; each; each = each.parentElement) {
            const behind = getComputedStyle(each).backgroundColor;
            if (!/, 0\\)$/.test(behind)) return [own.color, own.fill, behind];
        }
    })"""
    with opened(browser, served, "one.html", dark=dark) as look:
        for each, (front, _, back) in zip(texts, look.evaluate(style, texts), strict=True):
            assert contrast(colour(front), colour(back)) >= 4.5, (each, front, back)
        for (each, least), (_, fill, paper) in zip(drawn.items(), look.evaluate(style, list(drawn)), strict=True):
            assert contrast(colour(fill), colour(paper)) >= least, (each, fill, paper)


@pytest.mark.slow
def test_a_page_of_fourteen_findings_is_small_and_opens(browser, served) -> None:
    with opened(browser, served, "large.html") as look:
        assert look.evaluate("new TextEncoder().encode(document.documentElement.outerHTML).length") < 3_000_000
        assert look.locator("tbody tr").count() > 300
