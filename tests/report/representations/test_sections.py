"""Sections of encoding, features, slices and shortcut: the rows' numbers, and nothing that is not in them."""

from __future__ import annotations

import itertools
import math

import pytest

from cxrhf.report import page_html, write_report
from cxrhf.report.book import open_books, subjects
from cxrhf.report.files import figures
from cxrhf.report.page import make_page, pictures
from cxrhf.report.sections.slices import cuts, trait_name
from cxrhf.run import fingerprint_settings, open_run
from cxrhf.schema import CURVE, GALLERY, POINT, RESULT
from cxrhf.tables.checks import table_of
from tests.report import made_representations as made_up_rows
from tests.report.made import RECORD, Rows, everything
from tests.report.parsing import Page
from tests.thinned import thinned

SHOWN = made_up_rows.SHOWN


def test_every_audit_has_its_section_in_order(shown) -> None:
    page = Page(shown)
    wanted = ["m0-subgroups", "encoding", "m0-features", "m0-slices", "m0-shortcut"]
    assert [each for each in page.ids if each in wanted] == wanted
    assert len(page.ids) == len(set(page.ids))
    assert all(after - before <= 1 for before, after in itertools.pairwise(page.levels))
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert all(str(link)[1:] in page.ids for link in links)
    assert "absent" not in page.ids or "cxrhf probe" not in page.text.split("Not on this page")[-1]


def test_networks_open_no_books_of_their_own(rows) -> None:
    (subject,) = subjects(open_books(rows.rows))
    assert subject.model == "net"
    assert subject.book.findings == ["pneumothorax", "edema"]
    page = make_page(rows.rows, rows.curves, RECORD)
    assert [each.model for each in page.encoding] == [*made_up_rows.NETWORKS, ""]
    assert len(page.chapters) == 1


def test_encoding_shows_the_numbers_of_every_network(shown) -> None:
    text = Page(shown).text
    for words in ("net, SPLIT", "random, SPLIT", "multi, own output", "Sex (F)", "Race, mean of its classes",
                  "0.930 (0.920 to 0.940)", "0.590", "net minus random", "multi minus sexes", "−0.001 to 0.011",
                  "It can be read: B or C.", "multi minus sexes: 0.005", "A: nothing shared",
                  "logistic regression on frozen vectors"):  # fmt: skip
        assert words in text, words
    assert "Sex (F) 0.930 (random: 0.710)" in text


@pytest.mark.parametrize(
    ("value", "difference", "words"),
    [(0.5, None, "not found"), (0.8, 0.1, "0.100 (0.080 to 0.120) higher"), (0.8, 0.0, "no more than random"),
     (0.8, -0.1, "0.100 (0.080 to 0.120) lower"), (0.8, None, "B or C.")],
)  # fmt: skip
def test_what_split_says_in_words(value, difference, words) -> None:
    made = Rows("net")
    made.add("encoding", "split_auroc", "view=AP", value, width=0.02)
    if difference is not None:
        made.add("encoding", "split_auroc", "view=AP", difference, width=0.02, versus="model=random")
    other = Rows("random")
    other.add("encoding", "split_auroc", "view=AP", 0.7, width=0.02)
    page = Page(page_html([*made.rows, *other.rows], [], RECORD))
    assert words in page.text
    assert "encoding" in page.ids


def test_rows_of_a_probe_alone_have_a_page() -> None:
    made = Rows("imagenet")
    made.add("split", "auroc", "sex=F", 0.91, width=0.01)
    text = Page(page_html(made.rows, [], {"verb": "probe"})).text
    assert "0.910" in text
    assert "Sex (F)" in text


def test_slices_say_what_is_confirmed(shown, closed) -> None:
    text = Page(shown).text
    for page in (text, Page(closed).text):
        lead = page.split("Confirmed.")[1][:400]
        for fact in ("Pneumothorax", "drain", "slice 1 of 4, the worst", "mixture", "72% against 40%",
                     "odds ratio 3.9 (2.6 to 5.8)", "0.120 (0.080 to 0.160) higher"):  # fmt: skip
            assert fact in lead, fact
    assert text.count("Confirmed.") == 1
    for words in ("Not confirmed: 1 of 2 findings", "0.400 (0.370 to 0.430)", "90 patients",
                  "BIC over 4 to 16 components", "3 clusters"):  # fmt: skip
        assert words in text, words


def test_nothing_confirmed_is_said() -> None:
    made = everything(("edema",))
    made_up_rows.slices(made, "edema")
    text = Page(page_html(made.rows, made.curves, RECORD)).text
    assert "Nothing was confirmed: of 10 pairs" in text
    untried = [row for row in made.rows if row["metric"] != "confirmed"]
    text = Page(page_html(untried, made.curves, RECORD)).text
    assert "Nothing was tested" in text
    assert "Confirmed." not in text


def test_ways_to_find_slices_are_compared_where_there_are_several() -> None:
    made = Rows()
    made_up_rows.slices(made, "edema", confirmed="drain=1", methods=("mixture", "domino"))
    text = Page(page_html(made.rows, made.curves, RECORD)).text
    assert "Slice discovery methods compared" in text
    assert "(found by mixture and domino)" in text
    assert text.count("Confirmed.") == 1
    found = cuts(open_books(made.rows)[0])
    assert [(cut.method, cut.side, len(cut.slices)) for cut in found] == [
        ("mixture", "positive", 4), ("domino", "positive", 5), ("mixture", "negative", 4), ("domino", "negative", 5),
    ]  # fmt: skip
    assert all(cut.worst is cut.slices[0] and cut.best is cut.slices[-1] for cut in found)


@pytest.mark.parametrize(
    ("name", "words"),
    [("drain=1", "drain"), ("ecg_wires=0", "no ecg wires"), ("sex=F", "sex F"), ("prior mention of edema=1",
     "prior mention of edema"), ("a=b=c", "a=b c"), ("odd", "odd")],
)  # fmt: skip
def test_traits_as_people_read_them(name, words) -> None:
    assert trait_name(name) == words


def test_shortcut_in_words_and_numbers(shown) -> None:
    text = Page(shown).text
    lead = text.split("Pneumothorax: the gap of 0.024 in AUROC between F and M is 0.000")[1]
    assert "drain explains it." in lead[:100]
    for words in ("0.024 (0.014 to 0.034), and 0.022 (0.012 to 0.032)", "not explained", "54.7%", "14.7%",
                  "Edema absent"):  # fmt: skip
        assert words in text, words
    assert "M, drain: median 0.750, middle half 0.650 to 0.850" in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"auroc": (0.024, 0.5)}, "no clear gap"),
     ({"auroc_equalised": (0.01, 0.01)}, "drain explains part of it."),
     ({"auroc": (0.024, None)}, "not tested"),
     ({"auroc": (math.nan, None)}, "no conclusion: few.")],
)  # fmt: skip
def test_what_a_shortcut_explains(changes, words) -> None:
    made = Rows()
    made_up_rows.shortcut(made, "edema")
    for row in made.rows:
        if row["versus"] and row["metric"] in changes:
            row["value"], row["p_value"] = changes[row["metric"]]
            row["note"] = "few" if math.isnan(row["value"]) else None
    text = Page(page_html(made.rows, made.curves, RECORD)).text
    assert words in text
    assert "drain explains it." not in text


def test_runs_are_dots_and_their_test_is_no_p_value_of_the_page() -> None:
    whole = Rows("net")
    for seed in range(3):
        run = Rows(f"net (seed {seed})", seed=seed)
        made_up_rows.shortcut(run, "edema")
        whole.rows += run.rows
        whole.curves += run.curves
    how = {"ci_low": None, "ci_high": None}
    for part in ("drain known & sex=F", "drain known & sex=M"):
        for metric in ("auroc", "auroc_equalised"):
            whole.add("shortcut", metric, "edema", 0.81, slice=part, **how)
            whole.add("shortcut", f"{metric}.sd", "edema", 0.01, slice=part, **how)
    pair = {"slice": "drain known & sex=F", "versus": "drain known & sex=M"}
    whole.add("shortcut", "mann_whitney", "edema", 0.875, note="p = 0.004 over 3 and 3 runs; too small", **pair, **how)
    text = page_html(whole.rows, whole.curves, RECORD)
    for words in ("F, as observed, seed 2: 0.817", "F, as observed, mean of runs: 0.810 (0.800 to 0.820)", "0.875",
                  "p = 0.004 over 3 and 3 runs", "first run (seed 0)"):  # fmt: skip
        assert words in text, words


def test_without_them_the_foot_is_as_ever_and_the_script_short(rows) -> None:
    made = everything(("edema",))
    text = page_html(made.rows, made.curves, RECORD)
    assert "This page holds no image, no text and no id of any patient." in text
    assert "canvas" not in text.split("<script>")[1]
    missing = Page(text).text.split("Not on this page")[-1]
    for words in ("cxrhf embed RUN", "--attributes FILE", "cxrhf probe", "Shortcuts"):
        assert words in missing
    alone = page_html(rows.rows, rows.curves, RECORD)  # no places: the tables stand
    assert "Separation of groups along each direction" in alone
    assert "<canvas" not in alone


@pytest.mark.parametrize("audit", thinned(["encoding", "features", "slices", "shortcut"], ["encoding", "slices"]))
def test_any_audit_may_be_missing_or_alone(rows, points, audit) -> None:
    for kept in (
        [row for row in rows.rows if row["audit"] != audit],
        [row for row in rows.rows if row["audit"] == audit],
    ):
        for record in (RECORD, SHOWN):
            page = Page(page_html(kept, rows.curves, record, points, made_up_rows.gallery("edema")))
            assert len(page.ids) == len(set(page.ids))


def test_two_models_have_a_map_each_and_only_the_first_all_slices() -> None:
    one, two = made_up_rows.whole(), made_up_rows.whole(model="other")
    two.rows = [row for row in two.rows if row["audit"] != "encoding"]
    points = [*made_up_rows.points(), *made_up_rows.points(model="other", seed=1)]
    text = page_html([*one.rows, *two.rows], [*one.curves, *two.curves], RECORD, points)
    page = Page(text)
    assert page.ids.count("encoding") == 1
    assert len(made_up_rows.data_of(text)) == 2
    assert "Every slice of this model is in results.parquet." in page.text
    assert len(page.ids) == len(set(page.ids))


def test_figures_and_files_of_a_run(tmp_path, rows, points) -> None:
    opened = open_run(tmp_path / "run", verb="audit", config={"seed": 0}, inputs=[fingerprint_settings("x")])
    seen = ("encoding", "features", "slices", "shortcut")
    opened.add("results", table_of([row for row in rows.rows if row["audit"] in seen], RESULT))
    opened.add("curves", table_of(rows.curves, CURVE))
    opened.add("points", table_of(points, POINT))
    opened.add("gallery", table_of(made_up_rows.gallery("edema"), GALLERY))
    opened.record["may_show"] = True
    opened.finish(notes=[])
    text = write_report(opened.path).read_text(encoding="utf-8")
    assert "image/jpeg" not in text.split('<script type="application/json">')[0]
    assert len(made_up_rows.data_of(text)) == 2
    names = {path.stem for path in (opened.path / "figures").iterdir()}
    assert set(seen) == names
    page = make_page(rows.rows, rows.curves, RECORD, points)
    drawn = figures(page)["features"]
    assert drawn.count('class="dots') == 0
    assert 'class="overall" d="M' in drawn
    assert len([name for name, _ in pictures(page.chapters[0].sections) if name == "features"]) == 4


def test_one_attribute_is_told_once_and_what_is_rarer_in_a_slice_is_not_called_frequent() -> None:
    made = Rows()
    made_up_rows.slices(made, "edema", confirmed="view=AP")
    mirrored = [dict(row) for row in made.rows if row["slice"] == "mixture:positive:1 & view=AP"]
    gaps = [dict(row) for row in made.rows if row["slice"] == "positive & view=AP"]
    for row in mirrored:  # the other way round in the best slice
        row["slice"] = "mixture:positive:4 & view=PA"
    for row in gaps:
        row |= {"slice": "positive & view=PA", "versus": "positive & not view=PA", "value": -row["value"]}
    for row in made.rows:
        if row["metric"] == "odds_ratio" and row["slice"] == "mixture:positive:1 & drain=1":
            row["value"] = 0.9
    text = Page(page_html([*made.rows, *mirrored, *gaps], made.curves, RECORD)).text
    assert text.count("Confirmed.") == 1
    assert "Edema: among images with the finding, view AP is over-represented in slice 1 of 4, the worst" in text
    assert "view PA: 62% against 30%" in text  # in the table
    assert "odds ratio 0.9" not in text


def test_the_only_slice_is_worst_and_best_in_one_row() -> None:
    made = Rows()
    made_up_rows.slices(made, "edema", n_slices=1)
    text = Page(page_html(made.rows, made.curves, RECORD)).text
    assert "worst and best, 1" in text
