"""Sections of generated reports: the rows' numbers in words, tables and pictures, and no word that may not be shown."""

from __future__ import annotations

import itertools
import math
import re

import pyarrow as pa
import pytest

from cxrhf.report import page_html, summary_html, write_report
from cxrhf.report.book import REPORTS, open_books, open_lines, subjects
from cxrhf.report.lines import summary_lines
from cxrhf.report.sections.reports_table import Pair, writers
from cxrhf.report.sections.reports_words import MOST, choose_words
from cxrhf.run import fingerprint_settings, open_run
from cxrhf.schema import CURVE, RESULT, WORD
from cxrhf.tables.checks import table_of
from tests.report import made_reports
from tests.report.made import RECORD, everything
from tests.report.made_reports import BAD_WORD, ODD, RARE, SEX, SHOWN, TEMPLATE, Written
from tests.report.made_representations import data_of
from tests.report.parsing import Page


@pytest.fixture(scope="module")
def rows() -> Written:
    return made_reports.whole()


@pytest.fixture(scope="module")
def closed(rows: Written) -> str:
    return page_html(
        rows.rows, rows.curves, {**RECORD, "config": {**RECORD["config"], "p_star": 0.05}}, words=rows.words
    )


@pytest.fixture(scope="module")
def shown(rows: Written) -> str:
    return page_html(rows.rows, rows.curves, SHOWN, words=rows.words)


def test_a_page_of_reports_alone(closed) -> None:
    page = Page(closed)
    assert len(page.ids) == len(set(page.ids))
    assert all(after - before <= 1 for before, after in itertools.pairwise(page.levels))
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert all(str(link)[1:] in page.ids for link in links)
    assert [each for each in page.ids if each in ("reports", "reports-words", "reports-groups", "decoding")] == [
        "reports", "reports-words", "reports-groups", "decoding"
    ]  # fmt: skip
    for words in ("Words associated with a patient group", "Every strategy against greedy", "The published rule.",
                  "greedy decoding", "Images 400", "Patients 350"):  # fmt: skip
        assert words in page.text, words
    assert "Not on this page" not in page.text


def test_the_lead_says_what_is_lost_and_what_is_added(closed) -> None:
    text = Page(closed).text
    lead = text.split("With greedy decoding, vlm")[1][:420]
    for fact in ("3 different reports for 400 images (0.8%, against 82.0%", "BERTScore F1 is 0.740",
                 "highest of the 5 strategies", "Of the 10 words", "women or men", "10 are erased (10 rarely",
                 "0.3 expected by chance", "no new or flipped"):  # fmt: skip
        assert fact in lead, fact
    assert "none is erased (0.3 expected by chance); 3 associations are new and 1 flipped (0.1 expected" in text
    assert "patients with age 60-80 or with all others: 10 of 10 erased with greedy decoding." in text
    assert "Erased: breast, mastectomy, pacemaker" in text
    assert "New: pneumothorax" in text
    assert "better" not in text.split("Strategies side by side")[0]


def test_every_model_is_in_the_lead_the_least_varied_first(rows) -> None:
    """The worst of three stood below the lead."""
    models = {"a": 0.5, "b": 0.4, "worst": 0.01}
    several = [
        {**row, "model": name, "value": share if row["metric"] == "template_diversity" else row["value"]}
        for name, share in models.items()
        for row in rows.rows
        if row["strategy"] in ("greedy", "reference")
    ]
    text = Page(page_html(several, [], RECORD)).text
    order = [text.index(f"With greedy decoding, {name} writes") for name in ("worst", "b", "a")]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"n_associated": 0, "erasure": 0}, "no loss can be shown ("),
     ({"erasure": math.nan}, "women or men are undefined: too <few>."),
     ({"n_templates": 1}, "writes the same report for 400 images"),
     ({"n_templates": math.nan}, "writes 400 reports, 0.8% of them different"),
     ({"new": 1, "flip": 0}, "1 association is new and 0 flipped")],
)  # fmt: skip
def test_words_follow_the_rows(rows, changes, words) -> None:
    changed = [dict(row) for row in rows.rows]
    for row in changed:
        if row["metric"] in changes and row["strategy"] == "greedy":
            row["value"] = changes[row["metric"]]
            row["note"] = "too <few>" if math.isnan(row["value"]) else None
    assert words in Page(page_html(changed, [], RECORD)).text


def test_the_table_of_strategies_has_every_number(closed) -> None:
    table = closed.split('<table class="numbers')[1].split("</table>")[0]
    page = Page(f"<table>{table}</table>")
    for words in ("Reference", "greedy", ODD, "Similarity to the references", "ROUGE-L", "0.340 (0.330 to 0.350)",
                  "my_score", "Template diversity", "82.0%", "0.75%", "Erased", "chance 0.3 (0 to 2)",
                  "Erased, published rule",
                  "chance 8.3 (4 to 13)", "Erased, exact rule", "null 0.95 (0.85 to 1.05)", "displaced p = 0.002",
                  "associated p < 0.001", "ΔWAE", "WEAT effect size", "ΔDIR", "no direction"):  # fmt: skip
        assert words in page.text.replace("\xa0", " "), words
    assert page.count("td", title="undefined: <no> text") == len(made_reports.STRATEGIES)
    assert page.count("th", scope="rowgroup") == 5
    assert "lower is better" not in closed
    wae = next(
        attributes for tag, attributes in page.tags if tag == "th" and "Mean squared" in (attributes.get("title") or "")
    )
    assert "low again" in str(wae["title"])


def test_a_word_of_few_patients_is_on_no_page_unless_it_may_be(closed, shown, rows) -> None:
    assert RARE not in closed
    assert "fewer than 5 patients are excluded" in Page(closed).text
    assert "single words of reports, each of at least five patients" in closed
    assert "This page holds no image, no whole report and no id of any patient" in closed
    assert RARE in shown
    assert "fewer than 5 patients" not in Page(shown).text
    assert "may be shown" in shown
    unknown = [{**row, "n_patients": None} for row in rows.words]
    assert "osteopenia" in closed
    assert "osteopenia" not in page_html(rows.rows, rows.curves, RECORD, words=unknown)


def test_the_text_of_a_report_is_shown_only_where_it_may_be(closed, shown) -> None:
    assert "acute" not in closed  # although the rows have it
    assert f"for 71.0% of the images: “{TEMPLATE}”" in Page(shown).text


def test_everything_from_the_data_is_escaped(closed) -> None:
    page = Page(closed)
    assert page.count("img") == 0
    assert page.count("b") == 0
    assert page.count("script") == 2  # the page's own, and its data
    assert BAD_WORD in page.text
    assert BAD_WORD in data_of(closed)[0]["words"]


def test_what_the_plot_holds(closed, rows) -> None:
    (data,) = data_of(closed)
    assert len(data["plots"]) == len(made_reports.STRATEGIES) * len(made_reports.PAIRS)
    first = data["plots"][0]
    assert first["at"] == [0, 0, 0]
    assert first["hidden"] == 1
    names = [[name for name, _ in rule] for rule in data["rules"]]
    by_word = {data["words"][row[0]]: row for row in first["rows"]}
    assert by_word["mastectomy"][1:5] == [90, 6, 0, 0]
    assert names[0][by_word["mastectomy"][10]] == "omitted"
    assert names[1][by_word["mastectomy"][11]] == "stable"  # what the published rule does not see
    assert all(plot["end"] >= max(abs(z) for row in plot["rows"] for z in row[5:7]) for plot in data["plots"])
    ends = {plot["end"] for plot in data["plots"] if plot["at"][1] == 0}
    assert len(ends) == 1  # strategies compare


def test_large_vocabularies_are_cut_to_what_moved_and_is_frequent() -> None:
    made = made_reports.whole(("greedy",), pairs=(SEX,))
    plain = next(row for row in made.words if row["category"] == "stable")
    many = [{**plain, "word": f"more{k}", "n_ref_group": k} for k in range(2000)]
    (model,) = writers(open_books(made.rows, apart=REPORTS), [], [*many, *made.words])
    (found,) = choose_words([model], False)
    assert len(found.rows) == MOST
    kept = {row["word"] for row in found.rows}
    moved = {row["word"] for row in made.words if row["category"] != "stable"}
    assert len(moved) == 10
    assert moved <= kept
    assert "more1999" in kept
    assert "more3" not in kept
    assert found.n == 2000 + len(made.words)


def test_tables_of_words_by_category(closed) -> None:
    text = Page(closed).text
    assert "Omitted: associated with a group in the references" in text
    assert "mastectomy greedy 90 6 0 0 6.4 0.0 < 0.001 stable" in text
    assert "Words that changed between other groups" in text
    assert "Age: 60-80 and all others" in text
    assert "Flip: associated with the other group" in text


def test_groups_and_paired_differences(closed) -> None:
    text = Page(closed).text.replace("\xa0", " ")
    for words in ("ROUGE-L by patient group", "sex F minus sex M −0.010 (−0.030 to 0.010) p = 0.040", "race Black",
                  "Erased / new / flipped words of every pair of groups", "10 / 0 / 0 by chance 0.3 / 0.1 / 0.0",
                  "WAE over words of this group, generated weights", "beam minus greedy",
                  "20.0% (19.0% to 21.0%) p = 0.001", "Words lost against words added, other groups"):  # fmt: skip
        assert words in text, words


@pytest.mark.slow
def test_beside_predictions_and_with_two_models(rows) -> None:
    pred = everything(("edema", "mass"))
    both = Page(page_html([*pred.rows, *rows.rows], [*pred.curves, *rows.curves], RECORD, words=rows.words))
    assert len(both.ids) == len(set(both.ids))
    assert "m0-overview" in both.ids
    assert "reports" in both.ids
    assert "Audit of net" in both.text
    assert [each.model for each in subjects(open_books([*pred.rows, *rows.rows]))] == ["net"]
    assert open_lines(rows.curves) == {}  # curves of strategies are no curves of findings
    other = made_reports.whole(model="other", seed=1)
    two = Page(
        page_html([*rows.rows, *other.rows], [*rows.curves, *other.curves], RECORD, words=[*rows.words, *other.words])
    )
    assert len(two.ids) == len(set(two.ids))
    for words in ("With greedy decoding, vlm writes", "With greedy decoding, other writes",
                  "Strategies side by side: other",
                  "Erased and added words at other significance levels (p*): other"):  # fmt: skip
        assert words in two.text, words
    apart = [made_reports.whole(("greedy",), "vlm", name, pairs=(SEX,)) for name in ("iu", "mimic")]
    text = Page(page_html([row for each in apart for row in each.rows], [], RECORD))
    assert {"reports", "reports1"} <= set(text.ids)
    assert "Similarity, variety and lost words on mimic" in text.text


def test_without_a_table_of_words_or_groups_or_references(rows) -> None:
    plain = made_reports.whole(("as given",), None, pairs=())
    kept = [row for row in plain.rows if row["strategy"] != "reference" and row["slice"] == "all"]
    page = Page(page_html(kept, [], {"verb": "audit"}))
    assert "As given, the model writes" in page.text
    assert "reports-words" not in page.ids
    assert "decoding" not in page.ids
    undefined = [{**row, "value": math.nan, "ci_low": None, "ci_high": None, "note": "few"} for row in rows.rows]
    text = Page(page_html(undefined, rows.curves, RECORD, words=rows.words)).text.lower()
    assert not re.search(r"\bnan\b", text)
    assert "undefined: few." in text


def test_predictions_alone_are_told_what_reports_need() -> None:
    made = everything(("edema",))
    text = page_html(made.rows, made.curves, RECORD)
    assert "cxrhf generate RUN" in Page(text).text
    assert "Words associated with a patient group" not in text
    assert "words-plot" not in text.split("<script>")[1]


@pytest.mark.parametrize(
    ("pair", "name", "people"),
    [(Pair("sex=F", "sex=M"), "Sex: F and M", "women or men"),
     (Pair("age=60-80", "age=not 60-80"), "Age: 60-80 and all others", "patients with age 60-80 or with all others"),
     (Pair("sex=F & age=60-80", "not sex=F & age=60-80"), "sex=F & age=60-80 and all others",
      "patients with sex F & age 60-80 or with all others"),
     (Pair("race=A", "race=B"), "Race: A and B", "patients with race A or patients with race B")],
)  # fmt: skip
def test_groups_as_people_read_them(pair, name, people) -> None:
    assert (pair.name, pair.people) == (name, people)


def test_a_run_with_words_has_its_figures(tmp_path) -> None:
    rows = made_reports.whole(("greedy", "rich"), pairs=(SEX,))
    opened = open_run(
        tmp_path / "run", verb="audit", config={"seed": 0, "level": 0.95}, inputs=[fingerprint_settings("x")]
    )
    opened.add("results", table_of(rows.rows, RESULT))
    opened.add("curves", table_of(rows.curves, CURVE))
    opened.add("words", table_of(rows.words, WORD))
    opened.finish(notes=[])
    text = write_report(opened.path).read_text(encoding="utf-8")
    assert "mastectomy" in text
    names = {path.stem for path in (opened.path / "figures").glob("*.svg")}
    assert names == {"tradeoff", "diversity", "vocabulary", "displacement", "p_star", "report_groups"}
    drawn = (opened.path / "figures" / "displacement.svg").read_text(encoding="utf-8")
    assert "mastectomy" in drawn
    assert RARE not in drawn
    assert len(list((opened.path / "figures").glob("*.png"))) == len(names)


def test_a_terminal_and_a_notebook_get_the_short_table(rows) -> None:
    table = table_of(rows.rows, RESULT)
    lines = summary_lines(table, 0.95)
    assert lines[0] == "Generated reports; words associated with women or men:"
    assert lines[1].split() == [
        "strategy",
        "reports",
        "different",
        "bertscore_f1",
        "rougeL",
        "bleu",
        "erased",
        "new",
        "flipped",
    ]
    assert lines[2].split() == ["greedy", "400", "3", "(0.8%)", "0.740", "0.340", "0.240", "10", "of", "10", "0", "0"]
    pred = table_of(everything(("edema",)).rows, RESULT)
    both = summary_lines(pa.concat_tables([pred, table]), 0.95)
    assert both[0].startswith("Whole sample")
    assert any(line.startswith("Generated reports") for line in both)
    assert not any("Generated" in line for line in summary_lines(pred, 0.95))
    html = summary_html(rows.rows, RECORD)
    assert "vlm writes 3 different reports" in html
    assert "Template diversity" in html
    assert "<b>T=1.3" not in html
