"""Maps and galleries: places and thumbnails only of whom may be shown, cells of at least five patients else."""

from __future__ import annotations

import base64
import re

import pytest

from cxrhf.report import page_html
from cxrhf.report.sections.features import LEAST, distribution, map_patients
from tests.report import made_representations as made_up_rows
from tests.report.made import RECORD, Rows, everything
from tests.report.parsing import Page

SHOWN = made_up_rows.SHOWN
BAD = "</script><script>alert(1)</script>"


def test_features_table_has_the_statistics(shown) -> None:
    page = Page(shown)
    for words in ("PCA mode 1 (31.0% of the variance)", "Output for Pleural effusion (logit)", "42 modes",
                  "No Finding and Pleural Effusion (KS 0.500 on PCA mode 1; 6 of 6 ",
                  "F and M (KS 0.090 on the output for Pleural effusion; 1 of 6 ",
                  "White and Asian 2,002"):  # fmt: skip
        assert words in page.text, words
    (section,) = [each for each in shown.split("<section ") if each.startswith('id="m0-features"')]
    strong = re.findall(r'<small class="p strong">p\xa0([^<]*)</small>', section)
    assert len(strong) == 6 + 3  # the disease on every row; the others on the fourth mode


def test_points_are_the_rows_of_whom_may_be_shown(shown, points) -> None:
    assert "secret-image" not in shown
    data = next(each for each in made_up_rows.data_of(shown) if "maps" in each)
    assert data["n"] == 400
    assert data["grid"] is False
    assert [each["name"] for each in data["attributes"]] == ["disease", "sex", "race", "age"]
    of = {each["name"]: [each["values"][code] for code in each["of"]] for each in data["attributes"]}
    rows = [row for row in points if row["map"] == "pca 1-2"]
    for axis in "xy":
        low, high = min(row[axis] for row in rows), max(row[axis] for row in rows)
        wanted = sorted(
            (round(1000 * (row[axis] - low) / (high - low)), row["sex"], row["race"] or "not known") for row in rows
        )
        assert sorted(zip(data["maps"][0][axis], of["sex"], of["race"], strict=True)) == wanted
    assert "400 patients, one image each" in Page(shown).text


def test_single_patients_and_images_are_not_in_a_page_that_may_not_show_them(closed, points) -> None:
    assert "secret-image" not in closed
    assert "shown-" not in closed
    assert "image/jpeg" not in closed
    assert Page(closed).count("img") == 0
    (data,) = made_up_rows.data_of(closed)
    assert data["grid"] is True
    assert "x" not in data["maps"][0]
    assert all("of" not in each for each in data["attributes"])
    rows = [row for row in points if row["map"] == "pca 1-2"]
    for grid in data["maps"]:
        assert len(set(grid["cells"])) == len(grid["cells"])
        for table in grid["of"]:
            totals = [sum(counts) for counts in table]
            assert min(totals) >= LEAST
            assert sum(totals) <= len(rows)
        assert all([sum(counts) for counts in table] == [sum(c) for c in grid["of"][0]] for table in grid["of"])
    assert f"at least {LEAST}" in closed
    assert "RUN/labelling" in Page(closed).text


@pytest.mark.parametrize("given", [False, None, "true", 1])
def test_only_a_true_true_shows(rows, points, given) -> None:
    text = page_html(rows.rows, rows.curves, {**RECORD, "may_show": given}, points, made_up_rows.gallery("edema"))
    assert all(each["grid"] for each in made_up_rows.data_of(text))
    assert "image/jpeg" not in text


def test_a_grid_against_counting_one_by_one() -> None:
    """Every cell of at least five patients, and no other; slow twin."""
    rows = [row for row in made_up_rows.points(700) if row["map"] == "logits"]
    found = map_patients(rows, single=False)
    assert found is not None
    (grid,), (spread,) = found.grids, found.spreads
    slow: dict[int, int] = {}
    for x, y in zip(spread.x, spread.y, strict=True):
        cell = min(grid.side - 1, int(y / 1001 * grid.side)) * grid.side + min(grid.side - 1, int(x / 1001 * grid.side))
        slow[cell] = slow.get(cell, 0) + 1
    assert dict(zip(grid.cells, grid.totals, strict=True)) == {k: n for k, n in slow.items() if n >= LEAST}
    assert {k for k, n in slow.items() if n < LEAST}


def test_rare_values_stand_together_where_single_patients_may_not_be_shown() -> None:
    rows = made_up_rows.points(300)
    for row in rows:
        if row["image_id"] in ("secret-image-00001", "secret-image-00002"):
            row["race"] = "Rare"
    open_map, closed_map = (map_patients(rows, single=single) for single in (True, False))
    assert open_map is not None
    assert closed_map is not None
    assert "Rare" in next(each for each in open_map.attributes if each.name == "race").values
    race = next(each for each in closed_map.attributes if each.name == "race")
    assert race.values[-1] == "other or not known"
    assert "Rare" not in race.values


def test_the_order_of_points_hangs_neither_on_rows_nor_on_ids() -> None:
    rows = made_up_rows.points(200)
    renamed = [{**row, "image_id": f"z{10**6 - int(row['image_id'][-5:])}"} for row in rows]
    turned = [row for name in made_up_rows.MAPS for row in rows[::-1] if row["map"] == name]
    assert map_patients(rows, single=True) == map_patients(renamed, single=True) == map_patients(turned, single=True)


def test_a_distribution_has_area_one_and_keeps_its_side() -> None:
    found = distribution([(0.1, 3.0), (0.15, 1.0)], 10)
    assert sum(found) / 10 == pytest.approx(1)
    assert sum(found[:4]) > sum(found[4:])
    assert distribution([], 4) == [0.0] * 4


def test_hostile_names_end_no_block_and_run_nowhere() -> None:
    made = everything((BAD,))
    made_up_rows.features(made, ("White", BAD, "Black"))
    made_up_rows.slices(made, BAD, confirmed="drain=1")
    made_up_rows.shortcut(made, BAD, BAD)
    made.rows += made_up_rows.encoding(sex=f"sex={BAD}")
    shown = made_up_rows.gallery(BAD)
    shown[0]["image_id"] = BAD
    text = page_html(made.rows, made.curves, SHOWN, made_up_rows.points(races=("White", BAD)), shown)
    assert text.count("<script") == 1 + 2
    assert text.count("</script>") == 1 + 2
    page = Page(text)
    assert BAD in page.text
    maps, gallery = made_up_rows.data_of(text)
    assert BAD in next(each for each in maps["attributes"] if each["name"] == "race")["values"]
    assert gallery["ids"][0] == BAD


def test_thumbnails_and_ids_are_those_of_the_gallery(shown) -> None:
    rows = made_up_rows.gallery("pneumothorax")
    data = next(each for each in made_up_rows.data_of(shown) if "sources" in each)
    assert data["ids"] == [row["image_id"] for row in rows]
    assert [base64.b64decode(each) for each in data["sources"]] == [row["thumbnail"] for row in rows]
    (positive, negative) = data["groups"]
    assert positive["key"] == "pneumothorax"
    assert [part["role"] for part in positive["parts"]] == ["worst", "best"]
    assert [part["images"] for part in negative["parts"]] == [list(range(12, 18)), list(range(18, 24))]
    assert positive["parts"][0]["about"].startswith("slice 1 of 4; Brier 0.400; over-represented: drain")
    assert "24 thumbnails of images with their ids" in shown
    assert "This page holds no text of any patient; it holds" in shown
    assert "no image" not in shown.split("<footer>")[1]


@pytest.mark.parametrize("record", [RECORD, SHOWN])
def test_maps_of_three_thousand_patients_weigh_little(record) -> None:
    made = Rows()
    made_up_rows.features(made)
    with_map = page_html(made.rows, [], record, made_up_rows.points(3000))
    assert len(with_map.encode()) - len(page_html(made.rows, [], record).encode()) < 400_000
