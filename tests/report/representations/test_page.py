"""Maps and gallery in a browser: hover, filter, choice of map and colour, cells, labelling by keyboard, the sheet."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cxrhf.audits.representations import read_sheet
from cxrhf.report import page_html
from tests.browser import Seen, page
from tests.report import made_representations as made_up_rows
from tests.report.made import RECORD, Rows
from tests.report.serving import opened, serving
from tests.thinned import thinned

# The first map of four patients whose places are known, among many in its lower left.
CORNERS = {(1.0, 1.0): ("F", "White"), (1.0, 0.0): ("M", "Black"), (0.0, 1.0): ("M", None)}


def corner_points() -> list[dict[str, Any]]:
    """Three patients alone in corners; forty men in a heap."""
    places = [(*place, *who) for place, who in CORNERS.items()]
    places += [(0.1 + 0.01 * (k % 8), 0.1 + 0.01 * (k // 8), "M", "Asian") for k in range(40)]
    return [
        {"image_id": f"secret-{k}", "model": "net", "map": name, "x": x, "y": y if name == "pca 1-2" else 1 - y,
         "disease": "Other", "sex": sex, "race": race, "age": "40-59"}
        for name in ("pca 1-2", "t-sne")
        for k, (x, y, sex, race) in enumerate(places)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = Rows()
    made_up_rows.features(made)
    for finding in ("pneumothorax", "edema"):
        made_up_rows.slices(made, finding, confirmed="drain=1")
        made_up_rows.shortcut(made, finding)
    made.rows += made_up_rows.encoding()
    gallery = [*made_up_rows.gallery("pneumothorax"), *made_up_rows.gallery("edema", start=3000)]
    target = tmp_path_factory.mktemp("pages")
    for name, record, points in (
        ("corners", made_up_rows.SHOWN, corner_points()),
        ("show", made_up_rows.SHOWN, made_up_rows.points(1500)),
        ("grid", RECORD, made_up_rows.points(1500)),
    ):
        text = page_html(made.rows, made.curves, record, points, gallery)
        (target / f"{name}.html").write_text(text, encoding="utf-8")
    return target


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[tuple[str, list[str]]]:
    with serving(folder) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Seen]:
    with page() as seen:
        yield seen


def point_at(look: Any, x: float, y: float) -> str:
    """What is said when the pointer rests on a place of the map (0..1, up is large); "" if nothing."""
    canvas = look.locator("#m0-map canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    strip = round(box["width"] * 0.14)
    field = box["width"] - 22 - strip
    look.mouse.move(box["x"] + 22 + 5 + x * (field - 10), box["y"] + strip + 5 + (1 - y) * (field - 10))
    tip = look.locator("#m0-map .tip")
    return str(tip.inner_text()) if tip.is_visible() else ""


def drawn(look: Any, part: str) -> str:
    """The pixels of the strip above the field, of that at its right, or of the field."""
    return str(look.evaluate(
        """(part) => {
            const canvas = document.querySelector("#m0-map canvas"), strip = Math.round(canvas.clientWidth * 0.14);
            const field = canvas.clientWidth - 22 - strip;
            const [x, y, w, h] = {top: [22, 0, field, strip - 1], right: [23 + field, strip, strip - 1, field],
                                  field: [22, strip, field, field]}[part];
            return canvas.getContext("2d").getImageData(x, y, w, h).data.join("");
        }""", part,
    ))  # fmt: skip


def shown(look: Any) -> str:
    return str(look.locator("#m0-map .count").inner_text())


def box_of(look: Any, attribute: str, value: str) -> Any:
    named = look.locator("#m0-map fieldset", has=look.locator(f"legend:text-is('Show by {attribute}')"))
    return named.locator("label", has_text=value).locator("input")


def test_hover_says_what_is_known_of_the_nearest_patient(browser, served) -> None:
    with opened(browser, served, "corners.html") as look:
        assert point_at(look, 1, 1) == "disease Other, sex F, race White, age 40-59"
        assert point_at(look, 1, 0) == "disease Other, sex M, race Black, age 40-59"
        assert point_at(look, 0, 1) == "disease Other, sex M, race not known, age 40-59"
        assert point_at(look, 0.5, 0.6) == ""
        look.locator("#m0-map .which").select_option(label="t-SNE")
        assert point_at(look, 1, 0) == "disease Other, sex F, race White, age 40-59"
        assert "secret" not in look.content()


@pytest.mark.slow
def test_a_filter_hides_patients_and_redraws_the_distributions(browser, served) -> None:
    with opened(browser, served, "corners.html") as look:
        assert shown(look) == "43 of 43 patients shown"
        before = {part: drawn(look, part) for part in ("top", "right", "field")}
        box_of(look, "race", "Asian").uncheck()
        assert shown(look) == "3 of 43 patients shown"
        assert all(drawn(look, part) != pixels for part, pixels in before.items())
        box_of(look, "sex", "F").uncheck()  # two attributes at once
        assert shown(look) == "2 of 43 patients shown"
        assert point_at(look, 1, 1) == ""
        assert point_at(look, 1, 0).startswith("disease Other, sex M")
        look.locator("#m0-map .reset").click()
        assert shown(look) == "43 of 43 patients shown"
        look.mouse.move(0, 0)
        assert {part: drawn(look, part) for part in before} == before


@pytest.mark.slow
def test_colour_and_map_can_be_chosen_and_all_reached_by_keyboard(browser, served) -> None:
    with opened(browser, served, "show.html") as look:
        seen = [drawn(look, "field")]
        chosen = ((".colour", "sex"), (".colour", "age"), (".which", "t-SNE"), (".which", "Outputs (logits)"))
        for selector, label in chosen:
            look.locator(f"#m0-map {selector}").select_option(label=label)
            seen.append(drawn(look, "field"))
        assert len(set(seen)) == len(seen)
        said = look.locator("#m0-map canvas").get_attribute("aria-label")
        assert said.startswith("Map: Outputs (logits), by age; 1,500 of 1,500 patients shown")
        look.locator("#m0-map .which").focus()
        order = []
        for _ in range(18):
            order.append(look.evaluate("document.activeElement.tagName + (document.activeElement.type || '')"))
            look.keyboard.press("Tab")
        assert order.count("INPUTcheckbox") == 3 + 2 + 4 + 5
        assert {"SELECTselect-one", "BUTTONbutton"} <= set(order)
        look.locator("#m0-map canvas").focus()
        look.keyboard.press("ArrowRight")
        assert look.locator("#m0-map .tip").inner_text().startswith("disease ")
        look.keyboard.press("Escape")
        assert not look.locator("#m0-map .tip").is_visible()


@pytest.mark.slow
def test_a_grid_tells_numbers_of_patients_of_one_attribute(browser, served, folder) -> None:
    text = (folder / "grid.html").read_text(encoding="utf-8")
    data = json.loads(text.split('<script type="application/json">')[1].split("</script>")[0])
    first, sexes = data["maps"][0], [each["name"] for each in data["attributes"]].index("sex")
    place = max(range(len(first["cells"])), key=lambda k: sum(first["of"][0][k]))
    x, y = (first["cells"][place] % first["side"] + 0.5, first["cells"][place] // first["side"] + 0.5)
    total = sum(sum(counts) for counts in first["of"][0])
    with opened(browser, served, "grid.html") as look:
        assert shown(look) == f"{total:,} of 1,500 patients shown; cells with fewer than 5 are excluded"
        look.locator("#m0-map .colour").select_option(label="sex")
        women, men = first["of"][sexes][place]
        said = point_at(look, x / first["side"], y / first["side"])
        assert said.startswith(f"{women + men} patients: ")
        assert f"{int(100 * women / (women + men) + 0.5)}% F" in said
        legends = look.locator("#m0-map fieldset:visible legend").all_inner_texts()
        assert legends == ["Show by sex"]
        look.mouse.move(0, 0)
        before = drawn(look, "top")
        box_of(look, "sex", "M").uncheck()
        kept = sum(counts[0] for counts in first["of"][sexes])
        assert shown(look).startswith(f"{kept:,} of 1,500")
        assert drawn(look, "top") != before
        assert look.locator("#m0-slices img").count() == 0


@pytest.mark.slow
def test_the_gallery_can_be_filtered(browser, served) -> None:
    with opened(browser, served, "show.html") as look:
        box = look.locator("#m0-gallery")
        assert box.locator("img").count() == 12
        assert box.locator(".caption").all_inner_texts()[0].startswith("Worst slice: slice 1 of 4; Brier 0.400")
        first = box.locator("img").first
        assert first.get_attribute("loading") == "lazy"
        assert first.get_attribute("decoding") == "async"
        assert first.get_attribute("alt") == "Chest X-ray 1 of 6, worst slice"
        first.scroll_into_view_if_needed()
        assert first.evaluate("async (image) => { await image.decode(); return image.naturalWidth; }") == 64
        box.locator(".role").select_option("best")
        assert box.locator("img").count() == 6
        sources = box.locator("img").evaluate_all("all => all.map((i) => i.src)")
        box.locator(".part").select_option(label="finding absent (mixture)")
        assert box.locator("img").evaluate_all("all => all.map((i) => i.src)") != sources
        box.locator(".finding").select_option("Edema")
        assert box.locator(".part option").count() == 2


@pytest.mark.slow
def test_labels_by_keyboard_go_into_a_sheet(browser, served, tmp_path) -> None:
    with opened(browser, served, "show.html") as look:
        box = look.locator("#m0-gallery")
        box.locator(".label").check()
        assert box.locator(".blind").is_checked()
        assert box.locator("figure").count() == 12
        assert box.locator(".caption").all_inner_texts() == ["Both slices, mixed"]
        assert not any("slice" in alt for alt in box.locator("img").evaluate_all("all => all.map((i) => i.alt)"))
        assert box.locator(".save").is_disabled()
        box.locator(".name").fill("image_id")
        assert box.locator(".save").is_disabled()
        box.locator(".name").fill("ECG wires")
        assert "cxrhf audit RUN --annotations ecg_wires.csv" in box.locator(".said").inner_text()
        box.locator("figure").first.focus()
        for key in ("y", "n", "y", "Backspace"):
            look.keyboard.press(key)
        assert box.locator(".count").inner_text() == "3 of 12 images labelled: 2 yes, 1 no"
        box.locator("figure").nth(1).locator("input[value='']").check()
        assert box.locator(".count").inner_text() == "2 of 12 images labelled: 2 yes, 0 no"
        box.locator("figure").nth(4).locator("input[value='0']").check()
        order = box.locator("figure").evaluate_all("all => all.map((f) => Number(f.dataset.image))")
        assert order != sorted(order)
        box.locator(".state").select_option("1")
        assert box.locator("figure").count() == 2
        box.locator(".state").select_option("")
        box.locator(".blind").uncheck()
        assert box.locator(".caption").count() == 2
        box.locator(".blind").check()
        assert box.locator("figure").evaluate_all("all => all.map((f) => Number(f.dataset.image))") == order
        with look.expect_download() as waiting:
            box.locator(".save").click()
        assert waiting.value.suggested_filename == "ecg_wires.csv"
        waiting.value.save_as(tmp_path / "ecg_wires.csv")
        rows = list(csv.DictReader((tmp_path / "ecg_wires.csv").open(encoding="utf-8", newline="")))
        ids = [row["image_id"] for row in made_up_rows.gallery("pneumothorax")]
        assert list(rows[0]) == ["image_id", "finding", "ecg_wires"]
        assert sorted(row["image_id"] for row in rows) == sorted(ids)  # both classes of the finding, no other finding
        assert {row["finding"] for row in rows} == {"pneumothorax"}
        assert 'shown, "1"' in ids
        wanted = {ids[order[0]]: "1", ids[order[2]]: "1", ids[order[4]]: "0"}
        assert {row["image_id"]: row["ecg_wires"] for row in rows if row["ecg_wires"]} == wanted
        taken = read_sheet(tmp_path / "ecg_wires.csv", ids).to_pylist()
        assert {row["image_id"]: row["value"] for row in taken} == wanted
        assert {row["name"] for row in taken} == {"ecg_wires"}


@pytest.mark.parametrize(
    ("name", "width", "dark"),
    thinned(
        [("show.html", 375, True), ("grid.html", 375, False), ("show.html", 1440, True)],
        [("show.html", 375, True), ("grid.html", 375, False)],
    ),
)
def test_every_width_and_scheme_without_sideways_scrolling(browser, served, name, width, dark) -> None:
    with opened(browser, served, name, width=width, dark=dark) as look:
        light = drawn(look, "field")
        if name == "show.html":
            look.locator("#m0-gallery .label").check()
        look.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
        assert look.evaluate("document.documentElement.scrollWidth") == width
        size = look.locator("#m0-map canvas").bounding_box()
        assert 300 < size["width"] <= width
        unlabelled = look.eval_on_selector_all(
            "#content input, #content select", "all => all.filter((i) => !i.labels.length && !i.ariaLabel).length"
        )
        assert unlabelled == 0
        look.emulate_media(color_scheme="light" if dark else "dark")
        look.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert drawn(look, "field") != light  # the other scheme's colours


def test_without_a_script_a_picture_stands_there(browser, served) -> None:
    context = browser.page.context.browser.new_context(java_script_enabled=False)
    look = context.new_page()
    look.goto(served[0] + "grid.html")
    assert look.locator("#m0-map .still svg").is_visible()
    assert not look.locator("#m0-map canvas").is_visible()
    context.close()
