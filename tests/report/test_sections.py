"""What the sections say of made-up rows: every audit has its part, sentences count right, nothing is invented."""

from __future__ import annotations

import itertools
import math
import re

import pytest

from cxrhf.report import page_html
from cxrhf.report.book import open_books, subjects
from cxrhf.report.page import make_page, pictures
from cxrhf.report.sections.imbalance import predictive
from cxrhf.report.sections.methods import LISTS, checklists, group_warnings
from tests.report.made import GROUPS, RECORD, Rows, everything, overview, several_runs
from tests.report.parsing import Page
from tests.thinned import thinned

BAD = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def whole() -> Page:
    made = everything()
    return Page(page_html(made.rows, made.curves, RECORD))


def test_every_audit_has_its_section_with_figures(whole) -> None:
    idents = ("headline", "overview", "context", "controlled", "imbalance", "subgroups")
    assert [each for each in whole.ids if str(each) in {f"m0-{ident}" for ident in idents}] == [
        f"m0-{ident}" for ident in idents
    ]
    for words in ("By pre-test probability", "By mention in prior notes", "AUROC against average precision",
                  "Decomposition by isotonic recalibration", "Gaps between subgroups", "Intersections of sex and age",
                  "AUROC with context controlled in three ways", "Balance and effective sample size"):  # fmt: skip
        assert words in whole.text
    made = everything()
    found = {name for name, _ in pictures(make_page(made.rows, made.curves, RECORD).chapters[0].sections)}
    assert found == {"waterfall", "overview", "context", "reweighted", "matched", "imbalance", "subgroups"}


def test_predictive_values_of_groups_stand_in_tables_of_their_own(whole) -> None:
    assert "Predictive values, average precision and calibration of every subgroup" in whole.text
    for kind in GROUPS:
        assert f"Predictive values and calibration by {kind}" in whole.text
    assert whole.text.count("Observed minus predicted") >= len(GROUPS)
    without = [row for row in everything().rows if row["metric"] != "observed_minus_predicted"]
    without = [row for row in without if row["audit"] != "subgroups" or row["metric"] in ("auroc", "tpr")]
    assert "Predictive values and calibration by" not in Page(page_html(without, [], RECORD)).text


@pytest.mark.parametrize(
    ("suffix", "title", "caption"),
    [
        ("_balanced_by_race", "Subgroups in the population balanced by race, finding by finding", "races balanced"),
        (
            "_balanced_by_race_and_disease",
            "Subgroups in the population of Glocker et al.: races balanced over three disease groups",
            "races balanced over disease groups",
        ),
    ],
)
def test_groups_in_a_population_balanced_by_race_have_a_fold_of_their_own(whole, suffix, title, caption) -> None:
    assert title not in whole.text
    made = everything()
    for metric in ("auroc", "tpr"):
        for value, where, versus in ((0.7071, "sex=F", None), (0.8062, "sex=M", None), (0.0991, "sex=M", "sex=F")):
            made.add("subgroups", f"{metric}{suffix}", "edema", value, slice=where, versus=versus)
    text = Page(page_html(made.rows, made.curves, RECORD)).text
    assert title in text
    assert text.count("Subgroups in the population") == 1
    assert f"By sex, {caption}" in text
    assert f"By age, {caption}" not in text
    after = text[text.index(f"By sex, {caption}") :]
    assert after.index("0.707") < after.index("0.806") < after.index("highest minus lowest") < after.index("M over F")


def test_a_threshold_that_was_given_is_named(whole) -> None:
    def source(text: str) -> str:
        return text.partition("one threshold for all subgroups")[2].partition("Balanced:")[0]

    measured = "0.20 on these images"
    assert measured in source(whole.text)
    assert "given" not in source(whole.text)
    made = everything()
    for finding in ("edema", "mass"):
        made.add("subgroups", "threshold", finding, 0.5)
    given = source(Page(page_html(made.rows, [], RECORD)).text)
    assert "given" in given
    assert measured not in given
    made.add("subgroups", "threshold_at_fpr", "hernia", 0.5)
    both = source(Page(page_html(made.rows, [], RECORD)).text)
    assert "given" in both
    assert measured in both


def test_ids_are_unique_headings_in_order_pictures_described(whole) -> None:
    assert len(whole.ids) == len(set(whole.ids))
    assert whole.levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(whole.levels))
    pictures = [attributes for tag, attributes in whole.tags if tag == "svg"]
    assert len(pictures) > 30
    assert all(each.get("role") == "img" or each.get("aria-hidden") == "true" for each in pictures)
    links = [attributes["href"] for tag, attributes in whole.tags if tag == "a"]
    assert all(str(link)[1:] in whole.ids for link in links)


def test_leads_count_what_is_beyond_chance(whole) -> None:
    assert "for 4 of 4 findings after correction. It is lower" in whole.text
    assert "After correction, the AUROC drops significantly for 4 of 4 findings" in whole.text
    assert "by sex for 4 of 4 findings (0 of 4 with prevalence and age balanced)" in whole.text
    assert "4 of 4 findings have enough data" in whole.text


def test_nothing_is_called_beyond_chance_when_nothing_is() -> None:
    made = everything()
    for row in made.rows:
        if row["p_value"] is not None:
            row["p_value"] = 0.5
    text = Page(page_html(made.rows, made.curves, RECORD)).text
    assert "for any of 4 findings after correction" in text
    assert "drops significantly for 0 of 4 findings." in text
    assert "by sex for 0 of 4 findings (0 of 4" in text
    assert "part goes with context" not in text


@pytest.mark.parametrize(
    "audit",
    thinned(
        ["overview", "context", "reweighted", "matched", "imbalance", "subgroups"], ["overview", "context", "matched"]
    ),
)
def test_any_audit_may_be_missing_or_alone(audit) -> None:
    made = everything(("edema", "mass"))
    for rows in (
        [row for row in made.rows if row["audit"] != audit],
        [row for row in made.rows if row["audit"] == audit],
    ):
        for curves in (made.curves, []):
            page = Page(page_html(rows, curves, RECORD))
            assert len(page.ids) == len(set(page.ids))
    assert (
        f"requires {'' if audit in ('overview', 'imbalance') else 'a'}"
        in Page(page_html([row for row in made.rows if row["audit"] != audit], [], {})).text
    )


@pytest.mark.parametrize(
    ("rule", "said", "not_said"),
    [("bonferroni", "after correction for all tests on this page", "without correction"),
     ("bh", "after correction within its audit", "for all tests on this page"),
     ("none", "for 4 of 4 findings without correction", "after correction")],
)  # fmt: skip
def test_a_page_says_how_far_its_p_values_are_corrected(rule, said, not_said) -> None:
    made = everything(second="other")
    for row in made.rows:
        if row["metric"] == "auroc_drop":
            row["p_value"] = 0.2  # although the interval excludes 0
    text = Page(page_html(made.rows, made.curves, {**RECORD, "config": {"correction": rule}})).text
    assert said in text
    assert not_said not in text
    assert ("p values are." in text) == (rule != "none")


def test_the_headline_says_that_a_drop_does_not_survive_correction() -> None:
    made = everything()
    assert "the drop is not significant" not in Page(page_html(made.rows, made.curves, RECORD)).text
    for row in made.rows:
        if row["metric"] == "auroc_drop" and row["finding"] == "macro":
            row["p_value"] = 0.3
    text = Page(page_html(made.rows, made.curves, RECORD)).text
    headline = text.split("The drop is 0.10 (0.07 to 0.13).")[1][:160]
    assert "after correction for all tests on this page (p = 0.30)." in headline


def test_maps_and_slices_are_corrected_apart() -> None:
    made = everything(("edema",))
    assert "Benjamini-Hochberg for slices" not in Page(page_html(made.rows, made.curves, RECORD)).text
    made.add("slices", "n_slices", "edema", 4, slice="mixture:positive")
    assert "Benjamini-Hochberg for slices" in Page(page_html(made.rows, made.curves, RECORD)).text


def test_parts_of_a_comparison_have_the_names_of_the_page() -> None:
    made = everything(second="other")
    text = Page(page_html(made.rows, made.curves, RECORD)).text
    assert "pretest=" not in text
    assert "sex=F" not in text


def test_all_undefined_is_a_page() -> None:
    made = everything()
    for row in made.rows:
        row |= {"value": math.nan, "ci_low": math.nan, "ci_high": None, "p_value": None, "note": "undefined: one class"}
    page = Page(page_html(made.rows, [], RECORD))
    assert "No AUROC could be computed" in page.text
    everywhere = [page.text, *(value or "" for _, attributes in page.tags for value in attributes.values())]
    assert not any(re.search(r"\bnan\b", each, re.IGNORECASE) for each in everywhere)


def test_several_runs_mean_first_and_one_in_detail() -> None:
    made = several_runs()
    (subject,) = subjects(open_books(made.rows))
    assert subject.model == "net"
    assert [run.model for run in subject.runs] == ["net (seed 0)", "net (seed 1)", "net (seed 2)"]
    page = Page(page_html(made.rows, made.curves, RECORD))
    assert "Mean of 3 training runs: AUROC 0.80 (SD between runs 0.013" in page.text
    assert "the first run (seed 0)" in page.text
    assert "ROC curves averaged over runs" in page.text
    places = [page.ids.index(f"m0-{each}") for each in ("headline", "runs", "overview")]
    assert places == sorted(places)
    # A model that happens to be called so, without a mean, is a model like any other.
    alone = Rows("net (seed 0)")
    overview(alone, "edema")
    assert [each.model for each in subjects(open_books(alone.rows))] == ["net (seed 0)"]


def test_several_models_and_datasets() -> None:
    one, two = everything(model="one", second="two", dataset="north"), everything(model="two", dataset="north", seed=1)
    three = everything(model="one", dataset="south", seed=2)
    rows = [*one.rows, *two.rows, *three.rows]
    page = Page(page_html(rows, one.curves, RECORD))
    assert "one minus two" in page.text
    assert "Significant after correction: one ranks better for Edema" in page.text
    assert "Across datasets" in page.text
    assert "one: AUROC gaps between subgroups on every dataset" in page.text
    assert "north: AUROC gap" in page.text
    assert "Models audited 2" in page.text
    assert all(after - before <= 1 for before, after in itertools.pairwise(page.levels))
    assert len(page.ids) == len(set(page.ids))


def test_hostile_names_everywhere() -> None:
    groups = {"sex": (BAD, 'x" onload="alert(2)'), "age": ("]]>", "&amp;", "'")}
    bad_model, bad_data = '"><img src=x onerror=alert(3)>', "</title></svg><script>alert(4)</script>"
    made = everything((BAD, "a & b", "</svg>"), model=bad_model, second=BAD, dataset=bad_data, groups=groups)
    record = dict(RECORD) | {"notes": [f"{bad_model}: {BAD}: few positives: 3", BAD], "reading": [BAD], "verb": BAD,
                             "fitted": {BAD: BAD}, "inputs": [{"name": BAD, "sha256": BAD, "size": 1}]}  # fmt: skip
    text = page_html(made.rows, made.curves, record)
    assert text.count("<script") == 1
    page = Page(text)
    assert page.count("img") == 0
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    for words in (BAD, bad_model, bad_data):
        assert words in page.text


def test_warnings_are_grouped() -> None:
    notes = [
        "net: mass: few positives: 12 patients with positive images; read the interval",
        "net: edema: few positives: 30 patients with positive images; read the interval",
        "net: edema: poor overlap (ATT): 100 negatives count like 9 (9%) after weighting",
        "net: edema: poor overlap (ATT): 100 negatives count like 9 (9%) after weighting; numbers are uncertain",
        "net: sex: no gaps for mass, edema: fewer than two groups",
        "net: age: no gaps for edema: fewer than two groups",
        "something else",
    ]
    found = dict(group_warnings(notes, ["net"], ["mass", "edema"]))
    assert set(found) == {"Data", "Patient context", "Subgroups"}
    few, other = found["Data"]
    assert few.who == "Mass and Edema"
    assert few.words == "Few positives: … patients with positive images; read the interval"
    assert few.each[0].startswith("Mass: few positives: 12")
    assert other == ("", "Something else", [])
    (overlap,) = found["Patient context"]
    assert overlap.words.endswith("; numbers are uncertain")
    (gaps,) = found["Subgroups"]
    assert gaps.who == "Sex and Age"
    assert len(gaps.each) == 2
    assert group_warnings([], [], []) == []


def test_a_checklist_item_is_answered_only_by_an_audit_that_was_run() -> None:
    made = everything()
    full = checklists(open_books(made.rows))
    without = checklists(open_books([row for row in made.rows if row["audit"] != "subgroups"]))
    for table, other, (_, items) in zip(full, without, LISTS, strict=True):
        assert len(table.rows) == len(items)
        answered = [sum(row[2].strong for row in each.rows) for each in (table, other)]
        assert answered[0] >= answered[1]
        assert any(row[2].text == "Up to you" for row in table.rows)
    fairness = next(row for row in without[1].rows if row[0].text == "14")
    assert fairness[2].text == "Up to you"
    assert "not run" in fairness[3].text


def test_predictive_values() -> None:
    ppv, npv, alarms = predictive(0.8, 0.1, 0.1)
    assert ppv == pytest.approx(0.08 / 0.17)
    assert npv == pytest.approx(0.81 / 0.83)
    assert alarms == pytest.approx(0.09 / 0.08)
    assert all(math.isnan(value) for value in predictive(0, 0, 0.1)[::2])


def test_groups_of_the_made_up_rows_are_those_of_the_page(whole) -> None:
    for names in GROUPS.values():
        for name in names:
            assert name in whole.text
