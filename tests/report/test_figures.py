"""Pictures: what is drawn is what was given, text is escaped, missing numbers are left out."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest

from cxrhf.report.figures import (
    KINDS,
    Axis,
    Bar,
    Dot,
    DotRow,
    Fall,
    Frame,
    Line,
    Mark,
    Point,
    along_prevalence,
    dots,
    format_number,
    mark_shape,
    nice_end,
    precision_recall,
    reliability,
    roc,
    scatter,
    stacked,
    ticks,
    waterfall,
)
from cxrhf.report.numbers import text_width
from cxrhf.report.sheet import Group, sheet

NAN = math.nan
ROWS = [
    Fall("Edema", Mark(0.9, 0.88, 0.92), Mark(0.8, 0.78, 0.82), Mark(0.75, 0.7, 0.8), "drop 0.150"),
    Fall("Mass", Mark(0.8, NAN, NAN), Mark(), Mark()),
]


def tags(picture: str, name: str, kind: str = "") -> list[ElementTree.Element]:
    found = ElementTree.fromstring(picture).iter(name)
    return [each for each in found if not kind or kind in (each.get("class") or "").split()]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1234, "0.123"), (-0.0001, "0.000"), (-0.02, "−0.020"), (NAN, "–"), (math.inf, "–"), (1, "1.000")],
)
def test_format_number(value, text) -> None:
    assert format_number(value) == text


@pytest.mark.parametrize(("low", "high"), [(0.5, 1.0), (0.3, 1.0), (0.0, 1.0), (0.0, 0.04)])
def test_ticks_are_round_and_inside(low, high) -> None:
    found = ticks(low, high)
    assert 2 <= len(found) <= 11
    assert all(low <= value <= high for value in found)
    assert found == sorted(set(found))


@pytest.mark.parametrize("width", [960, 350])
def test_waterfall_draws_every_number_once(width) -> None:
    picture = waterfall(ROWS, width=width, ident="w", title="t", about="a")
    assert len(tags(picture, "circle", "overall")) == 2
    assert len(tags(picture, "polygon", "context")) == 1
    assert len(tags(picture, "rect", "remains")) == 1
    assert len(tags(picture, "path", "span")) == 3
    assert len(tags(picture, "path", "fall")) == 1
    places = [float(each.get("cx") or "nan") for each in tags(picture, "circle", "overall")]
    assert places[0] > places[1]
    inside = [float(x) for found in re.findall(r'\b(?:x|cx)="([-\d.]+)"|M([-\d.]+) ', picture) for x in found if x]
    assert min(inside) >= 0
    assert max(inside) <= width


@pytest.mark.parametrize("name", ["Enlarged cardiomediastinum", "N" * 200, "\N{LUNGS}" * 40, "肺" * 30])
def test_a_long_name_stays_inside_the_waterfall_and_off_its_drop(name) -> None:
    row = Fall(name, Mark(0.9), Mark(0.8), Mark(0.7), "drop 0.150 (0.120 to 0.180)")
    for width in (960, 350):
        picture = waterfall([row], width=width, ident="w", title="t", about="a")
        (label,) = tags(picture, "text", "name")
        (drop,) = [each for each in tags(picture, "text") if (each.text or "").startswith("drop")]
        wide = 9 * text_width(label.text or "")
        if width == 960:
            assert float(label.get("x") or 0) - wide >= 0
        else:
            assert float(label.get("x") or 0) + wide <= width
            assert label.get("y") != drop.get("y")
    short_row = waterfall(ROWS[:1], width=350, ident="w", title="t", about="a")
    assert len({each.get("y") for each in tags(short_row, "text", "name") + tags(short_row, "text", "tight")}) == 1


def test_a_long_name_stays_inside_a_dot_plot() -> None:
    picture = dots([DotRow("N" * 200, ROW.lanes)], Axis("AUROC"), ident="d", title="t")
    (label,) = tags(picture, "text", "name")
    assert float(label.get("x") or 0) + 9 * text_width(label.text or "") <= 350


def test_waterfall_without_context_shows_one_mark_a_finding() -> None:
    picture = waterfall([Fall("A", Mark(0.4, 0.3, 0.5), Mark(), Mark())], ident="w", title="t", about="a")
    assert len(tags(picture, "circle")) == 1
    assert not tags(picture, "polygon")
    assert "0.3" in [each.text for each in tags(picture, "text")]


def test_empty_waterfall_is_still_a_picture() -> None:
    assert "<title" in waterfall([], ident="w", title="t", about="a")


def test_text_is_escaped_everywhere() -> None:
    bad = '<script>alert("1")</script>'
    pictures = [
        waterfall([Fall(bad, Mark(0.7), Mark(), Mark(), bad)], ident=bad, title=bad, about=bad),
        roc(Line([0, 1], [0, 1]), ident='"x', title=bad, about=bad),
    ]
    for picture in pictures:
        assert "<script" not in picture
        ElementTree.fromstring(picture)


def test_pictures_name_themselves() -> None:
    picture = roc(Line([0, 0.5, 1], [0, 0.8, 1]), ident="roc-1", title="ROC curve, edema", about="AUROC 0.8")
    root = ElementTree.fromstring(picture)
    assert root.get("role") == "img"
    ids = {each.get("id"): each.text for each in root.iter() if each.get("id")}
    assert [ids[name] for name in (root.get("aria-labelledby") or "").split()] == ["ROC curve, edema", "AUROC 0.8"]
    assert "http" not in picture


def test_roc_goes_through_its_points_and_marks_the_operating_point() -> None:
    frame = Frame()
    picture = roc(Line([0, 0.5, 1], [0, 0.8, 1]), ident="r", title="t", about="a", point=(0.5, 0.8))
    (curve,) = tags(picture, "path", "curve")
    assert f"L{frame.x(0.5):g} {frame.y(0.8):.1f}".rstrip("0").rstrip(".") in (curve.get("d") or "")
    (dot,) = tags(picture, "circle")
    assert float(dot.get("cx") or 0) == pytest.approx(frame.x(0.5), abs=0.06)
    assert not tags(roc(Line([0, 1], [0, 1]), ident="r", title="t", about="a", point=(NAN, 0.5)), "circle")


def test_bands_close_and_missing_points_are_left_out() -> None:
    line = Line([0, 0.5, 1], [0, 0.8, 1], [NAN, 0.7, 0.9], [NAN, 0.9, 1])
    picture = precision_recall(line, prevalence=0.1, ident="p", title="t", about="a")
    (band,) = tags(picture, "path", "band")
    assert (band.get("d") or "").endswith("Z")
    assert "nan" not in picture
    lone = precision_recall(Line([0.5], [0.5], [NAN], [NAN]), prevalence=NAN, ident="p", title="t", about="a")
    assert not tags(lone, "path", "band")


def test_reliability_zooms_to_rare_findings() -> None:
    line = Line([0.01, 0.03], [0.012, NAN], [0.0, NAN], [0.09, NAN])
    picture = reliability(line, ident="r", title="t", about="a")
    assert len(tags(picture, "circle")) == 1
    assert "0.04" in [each.text for each in tags(picture, "text")]
    assert nice_end([0.03, NAN]) == 0.04
    assert nice_end([0.95]) == 1.0
    assert nice_end([]) == 1.0


def test_marks_differ_by_shape() -> None:
    shapes = {mark_shape(kind, 0, 0).replace(kind, "") for kind in KINDS}
    assert len(shapes) == len(KINDS) == 7


ROW = DotRow("Edema", [("F", [Dot("overall", Mark(0.8, 0.7, 0.9), "as it is"), Dot("remains", Mark(0.7), "balanced")])])


def test_dots_draw_every_number_and_label() -> None:
    picture = dots([ROW], Axis("AUROC", 0.5, 1.0, reference=0.5), ident="d", title="t")
    assert len(tags(picture, "circle", "overall")) == 1
    assert len(tags(picture, "rect", "remains")) == 1
    assert len(tags(picture, "path", "span")) == 1
    assert {"Edema", "F", "AUROC"} <= {each.text for each in tags(picture, "text")}
    assert "as it is 0.800, balanced 0.700" in picture
    assert "Edema, as it is: 0.800 (0.700 to 0.900)" in picture


def test_an_interval_beyond_the_axis_is_cut_with_a_point_but_a_value_never() -> None:
    axis = Axis("AUROC", 0.5, 1.0, floor=0.4, ceiling=1.0)
    wide = dots([DotRow("A", [("", [Dot("overall", Mark(0.8, 0.0, 1.0))])])], axis, ident="d", title="t")
    assert len(re.findall(r'<path class="overall" d="M', wide)) == 1
    assert "0.4" in [each.text for each in tags(wide, "text")]
    low = dots([DotRow("A", [("", [Dot("overall", Mark(0.12))])])], axis, ident="d", title="t")
    assert "0.2" in [each.text for each in tags(low, "text")]


def test_dots_without_numbers_are_a_picture_too() -> None:
    empty = dots([DotRow("A", [("", [Dot("overall", Mark(), null=NAN)])])], Axis("x"), ident="d", title="t")
    assert not tags(empty, "circle")
    assert "nan" not in empty
    ElementTree.fromstring(dots([], Axis("x"), ident="d", title="t"))


def test_bars_are_as_long_as_their_parts() -> None:
    kinds = [("calibration", "calibration loss"), ("discrimination", "discrimination loss")]
    picture = stacked([Bar("Edema", [0.02, 0.06], 0.1)], kinds, label="Brier", ident="b", title="t")
    one, two = (float(each.get("width") or 0) for each in tags(picture, "rect", "part"))
    assert two == pytest.approx(3 * one, abs=0.3)
    assert len(tags(picture, "path", "null")) == 1
    assert "calibration loss 0.0200" in picture


def test_scatter_names_every_point_inside_the_picture() -> None:
    points = [Point(f"Finding {k}", Mark(0.8, 0.75, 0.85), Mark(0.3, 0.2, 0.4), 0.1) for k in range(6)]
    picture = scatter(
        [*points, Point("None", Mark(), Mark(), NAN)], across="a", up="u", ident="s", title="t", about="a"
    )
    assert len(tags(picture, "circle")) == 6
    labels = tags(picture, "text", "label")
    assert len(labels) == 6
    assert len({(each.get("x"), each.get("y")) for each in labels}) == 6
    assert all(0 <= float(each.get("x") or -1) <= 520 for each in labels)


def test_curves_along_prevalence_are_told_apart() -> None:
    line = Line([0.001, 0.01, 0.5], [0.1, 0.2, 0.9], [0, 0.1, 0.8], [0.2, 0.3, 1])
    picture = along_prevalence([line, line], up="PPV", here=0.01, ident="p", title="t", about="a")
    assert len(tags(picture, "path", "line-1")) == len(tags(picture, "path", "line-2")) == 1
    assert len(tags(picture, "path", "chance")) == 1


def test_curves_keep_their_shape_with_fewer_points() -> None:
    frame = Frame()
    level = frame.path([0, 0.2, 0.4, 0.6, 1], [0.5, 0.5, 0.5, 0.5, 1])
    assert level.count("L") == 2
    assert level == frame.path([0, 0.6, 1], [0.5, 0.5, 1])


def test_a_sheet_stands_alone() -> None:
    bad = "<script>&"
    panels = [(bad, dots([ROW], Axis("AUROC"), ident=f"d{k}", title="t")) for k in range(4)]
    made = sheet(bad, [Group(bad, panels, [("overall", bad), ("calibration", "c")]), Group("", panels[:1])])
    root = ElementTree.fromstring(made)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "var(" not in made
    assert "<script" not in made
    assert float(root.get("width") or 0) > 3 * 350
    assert not re.search(r"href|url\(|@import", made)
