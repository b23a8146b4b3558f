"""Pictures: what is drawn is what was given, text is escaped, missing numbers are left out."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest

from cxrhf.report.figures import (
    Fall,
    Frame,
    Line,
    Mark,
    mark_shape,
    nice_end,
    number,
    precision_recall,
    reliability,
    roc,
    ticks,
    waterfall,
)

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
def test_number(value, text) -> None:
    assert number(value) == text


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
    assert len(tags(picture, "line", "span")) == 3
    assert len(tags(picture, "path", "fall")) == 1
    places = [float(each.get("cx") or "nan") for each in tags(picture, "circle", "overall")]
    assert places[0] > places[1]
    inside = [float(x) for x in re.findall(r'\b(?:x|x1|x2|cx)="([-\d.]+)"', picture)]
    assert min(inside) >= 0
    assert max(inside) <= width


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
    assert len({mark_shape(kind, 0, 0).split()[0] for kind in ("overall", "context", "remains")}) == 3
