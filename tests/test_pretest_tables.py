"""Tables of context models: the numbers are those of the split, the layout is the paper's, nothing is invented."""

from __future__ import annotations

import copy
import csv
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cxrhf.context.sweep import KINDS
from cxrhf.context.tables import (
    PUBLISHED,
    SHORT,
    TABLES,
    best_family,
    explained_family,
    paper_table,
    pretest_results,
    published_aurocs,
    table_lines,
    word_lines,
    write_tables,
)
from cxrhf.errors import ConfigError, TableError
from cxrhf.findings import CHEXPERT
from cxrhf.metrics import adaptive_calibration_error, auroc, brier
from cxrhf.schema import CURVE, RESULT
from cxrhf.tables.checks import check
from tests.pretest_made import FAMILIES, FINDINGS, WORDS, made_choices, scored_rows
from tests.refusals import refused

WHY = "7 patients with it have prior notes, 20 are needed"


@pytest.fixture(scope="module")
def scored() -> pa.Table:
    return scored_rows()


@pytest.fixture(scope="module")
def choices() -> dict:
    return made_choices(unfitted={"pleural_other": WHY})


@pytest.fixture(scope="module")
def measured(scored, choices):
    return pretest_results(scored, choices, n_resamples=100)


def rows(measured, **where) -> list[dict]:
    where = {"slice": "all", "versus": None, **where}
    return [row for row in measured.results.to_pylist() if all(row[name] == value for name, value in where.items())]


def keyed(measured) -> dict[tuple, str]:
    """Rows by what they are, as text: NaN is equal to NaN there."""
    names = ("metric", "model", "finding", "slice", "versus")
    return {tuple(row[name] for name in names): repr(row) for row in measured.results.to_pylist()}


def one(measured, **where) -> dict:
    (found,) = rows(measured, **where)
    return found


def test_the_numbers_are_those_of_the_test_images(scored, measured) -> None:
    for model in ("context", *FAMILIES):
        for finding in FINDINGS:
            inside = scored.filter(
                (pc.field("split") == "test") & (pc.field("model") == model) & (pc.field("finding") == finding)
            )
            y, p = inside["label"].to_numpy(), inside["prob"].to_numpy()
            for metric, function in (
                ("auroc", auroc),
                ("brier", brier),
                ("adaptive_calibration_error", adaptive_calibration_error),
            ):
                row = one(measured, model=model, finding=finding, metric=metric)
                assert row["value"] == pytest.approx(function(y, p)), (model, metric)
                assert row["ci_low"] <= row["value"] <= row["ci_high"]
                assert (row["n"], row["n_pos"]) == (inside.num_rows, y.sum())
                assert row["n_patients"] == len(pc.unique(inside["patient_id"]))
    check(measured.results, RESULT)
    check(measured.curves, CURVE)
    assert set(measured.results["audit"].to_pylist()) == {"pretest"}
    assert set(measured.curves["kind"].to_pylist()) == {"roc", "reliability"}


def test_context_has_the_numbers_of_the_chosen_family(measured) -> None:
    for finding in FINDINGS:
        for metric in ("auroc", "brier_skill_score", "calibration_slope", "expected_ace", "calibration_intercept"):
            mine, theirs = (one(measured, model=m, finding=finding, metric=metric) for m in ("context", "minilm"))
            for name in ("value", "ci_low", "ci_high"):
                assert mine[name] == theirs[name]
        note = one(measured, model="context", finding=finding, metric="auroc")["note"]
        assert note.startswith("minilm: LogisticRegression(C=10), CV AUROC 0.")
    assert one(measured, model="words", finding="edema", metric="brier")["note"].startswith("LinearSVC(C=0.1), CV")


def test_labels_of_other_splits_play_no_part_and_order_does_not_matter(scored, choices, measured) -> None:
    label = scored["label"].to_numpy()
    other = pc.not_equal(scored["split"], "test").to_numpy(zero_copy_only=False)
    flipped = scored.set_column(
        scored.schema.get_field_index("label"), "label", pa.array(np.where(other, 1 - label, label), pa.int8())
    )
    assert keyed(pretest_results(flipped, choices, n_resamples=100)) == keyed(measured)
    shuffled = scored.take(np.random.default_rng(1).permutation(scored.num_rows))
    assert keyed(pretest_results(shuffled, choices, n_resamples=100, workers=2)) == keyed(measured)


def test_what_was_chosen_and_by_what_is_in_the_rows(choices, measured) -> None:
    for finding in FINDINGS:
        for family, fitted in choices["findings"][finding]["families"].items():
            row = one(measured, model=family, finding=finding, metric="chosen")
            assert row["value"] == (family == "minilm")
            assert row["note"].startswith(fitted["classifier"] + "(")
            cv = one(measured, model=family, finding=finding, metric="cv_auroc")
            assert cv["value"] == fitted["cv_auroc"]
            assert cv["ci_low"] is None
            assert cv["note"] == "SD between folds 0.012"
            valid = one(measured, model=family, finding=finding, metric="validation_auroc")
            assert valid["value"] == fitted["validation_auroc"]
    assert "isotonic" in one(measured, model="boosted", finding="edema", metric="chosen")["note"]
    without = one(measured, metric="images_without_notes")
    assert (without["value"], without["n_patients"], without["note"]) == (1234.0, 310, "excluded from all results")


def test_counts_of_learning_images_where_they_are_known(scored, choices) -> None:
    told = copy.deepcopy(choices)
    told["findings"]["edema"]["learned"] = {"n": 77, "n_pos": 11, "n_patients": 44}
    found = pretest_results(scored, told, n_resamples=20)
    row = one(found, model="words", finding="edema", metric="cv_auroc")
    assert (row["n"], row["n_pos"], row["n_patients"]) == (77, 11, 44)
    assert one(found, model="words", finding="fracture", metric="cv_auroc")["n"] == 560


def test_words_are_rows_with_rank_and_sign(choices, measured) -> None:
    words = choices["findings"]["edema"]["families"]["words"]["features"]
    for each in words:
        row = one(measured, model="words", finding="edema", slice=f"word={each['word']}", metric="feature_weight")
        assert row["value"] == each["value"]
        assert row["note"] == f"rank {each['rank']}, Table A.12"
        effect = one(measured, model="words", finding="edema", slice=f"word={each['word']}", metric="feature_effect")
        assert effect["value"] == each["effect"]
    assert any(row["value"] < 0 for row in measured.results.to_pylist() if row["metric"] == "feature_weight")
    trees = {
        row["metric"] for row in measured.results.to_pylist() if row["model"] == "boosted" and row["slice"] != "all"
    }
    assert trees == {"feature_importance", "feature_effect"}
    assert not [r for r in measured.results.to_pylist() if r["model"] == "minilm" and r["slice"] != "all"]


def test_a_finding_without_a_model_has_one_row_with_the_reason(measured) -> None:
    found = [row for row in measured.results.to_pylist() if row["finding"] == "pleural_other"]
    (row,) = found
    assert (row["model"], row["metric"], row["note"], row["n_pos"]) == ("context", "auroc", WHY, 3)
    assert math.isnan(row["value"])


def test_families_are_compared_in_pairs(measured) -> None:
    found = [row for row in measured.results.to_pylist() if row["versus"]]
    assert {(row["model"], row["versus"]) for row in found} == {("words", "model=boosted"), ("words", "model=minilm")}
    assert {row["metric"] for row in found} == {"auroc", "brier"}
    (edema,) = [r for r in found if r["finding"] == "edema" and r["metric"] == "auroc" and "minilm" in r["versus"]]
    values = [one(measured, model=m, finding="edema", metric="auroc")["value"] for m in ("words", "minilm")]
    assert edema["value"] == pytest.approx(values[0] - values[1])
    assert 0 <= edema["p_value"] <= 1


def test_what_is_said(scored, choices, measured) -> None:
    assert measured.notes[0].startswith("only the split test is evaluated; ")
    assert not any("nothing to compare" in note for note in measured.notes)
    few = scored.filter(pc.is_in(scored["patient_id"], pa.array([f"p{k:04d}" for k in range(80)])))
    notes = pretest_results(few, choices, n_resamples=20).notes
    said = [note for note in notes if "few positives" in note]
    assert said  # each once, not once a family
    assert all(note.startswith("context: ") for note in said)


def test_no_test_images_is_said_and_not_a_number(scored, choices) -> None:
    train = scored.filter(pc.equal(scored["split"], "train"))
    found = pretest_results(train, choices, n_resamples=20)
    assert "no image of the split test" in found.notes[0]
    aurocs = [row for row in found.results.to_pylist() if row["metric"] == "auroc"]
    assert {row["finding"] for row in aurocs} == {*FINDINGS, "pleural_other"}
    assert all(math.isnan(row["value"]) and row["note"] for row in aurocs)
    assert found.curves.num_rows == 0
    assert rows(found, metric="cv_auroc", model="words", finding="edema")
    with refused(TableError, fix="cxrhf context fit BUILD"):
        pretest_results(scored.slice(0, 0), {"findings": {}}, n_resamples=20)


def test_a_finding_with_one_class_in_test_has_a_reason(scored, choices) -> None:
    label = pc.if_else(pc.equal(scored["finding"], "edema"), pa.scalar(0, pa.int8()), scored["label"])
    none = scored.set_column(scored.schema.get_field_index("label"), "label", label)
    row = one(pretest_results(none, choices, n_resamples=20), model="context", finding="edema", metric="auroc")
    assert math.isnan(row["value"])
    assert "undefined" in row["note"]


@pytest.mark.parametrize("name", TABLES)
def test_tables_have_the_papers_layout(measured, choices, name) -> None:
    header, body = paper_table(measured.results, choices, name)
    paper = {
        "1": ["Label", "AUROC"], "A.6": ["Label"], "A.7": ["Label", "Language Model", "Classifier", "ACE",
        "Brier Score", "Brier Skill Score"], "A.9": ["Label", "Classifier", "ACE", "Brier Score", "Brier Skill Score"],
        "A.12": ["Feature", "Rank", "Label Name", "Classifier Name"], "A.13": ["Label", "Classifier", "AUROC"],
        "A.14": ["Label", "Classifier", "AUROC"],
    }[name]  # fmt: skip
    ours = {"Interval", "Weight", "ACE if calibrated", "minilm"}
    assert [title for title in header if title not in ours] == paper
    assert all(len(row) == len(header) for row in body)
    assert all(isinstance(cell, str) and "nan" not in cell.lower() for row in body for cell in row)
    assert len(body) == (30 if name == "A.12" else 3)
    assert (header, body) == paper_table(measured.results.to_pylist(), choices, name)


def test_tables_show_the_numbers_of_the_rows(measured, choices) -> None:
    header, body = paper_table(measured.results, choices, "A.6")
    assert header == ["Label", "minilm"]
    row = one(measured, model="minilm", finding="edema", metric="auroc")
    assert body[0] == ["Edema", f"{row['value']:.3f} ({row['ci_low']:.3f} to {row['ci_high']:.3f}) LogReg"]
    _, body = paper_table(measured.results, choices, "A.13")
    values = [float(line[2]) for line in body]
    assert values == sorted(values, reverse=True)
    _, body = paper_table(measured.results, choices, "A.9")
    ace = one(measured, model="words", finding="edema", metric="adaptive_calibration_error")["value"]
    null = one(measured, model="words", finding="edema", metric="expected_ace")["value"]
    assert body[0][:4] == ["Edema", "LinearSVC", f"{ace:.3f}", f"{null:.3f}"]
    _, body = paper_table(measured.results, choices, "A.12")
    assert [line[1:4] for line in body[:2]] == [["1", "Edema", "LinearSVC"], ["2", "Edema", "LinearSVC"]]
    with refused(ConfigError, "A.12", got="A.5"):
        paper_table(measured.results, choices, "A.5")


def test_short_names_are_of_classifiers_that_there_are() -> None:
    """A name that no classifier has would leave the long one in Table A.6."""
    assert set(SHORT) <= set(KINDS)


def test_several_encoders_the_best_of_a_row_is_marked_and_validation_chooses() -> None:
    families = {"bert": ("encoder", "LinearSVC", {}, 1.5), "mistral": ("encoder", "MLPClassifier", {}, 0.2)}
    scored = scored_rows(families=families, chosen="bert", n_patients=600)
    choices = made_choices(families=families, chosen="bert")
    found = pretest_results(scored, choices, n_resamples=20)
    _, body = paper_table(found.results, choices, "A.6")
    assert all("*" in row[2] and row[2].endswith("MLP") and "*" not in row[1] for row in body)
    _, body = paper_table(found.results, choices, "A.7")
    assert [row[1] for row in body] == ["bert"] * 3  # which validation chose, however worse in test
    choice = choices["findings"]["edema"]
    choice["families"]["bert"] |= {"validation_auroc": None, "cv_auroc": 0.5}
    choice["families"]["mistral"] |= {"cv_auroc": 0.6}
    assert best_family(choice, "encoder")[0] == "mistral"
    assert best_family(choice, "words") is None
    assert paper_table(found.results, choices, "A.13") == (["Label", "Classifier", "AUROC", "Interval"], [])


def test_printed_values_stand_beside_mimic_only(choices) -> None:
    for values in PUBLISHED.values():
        assert set(values) == set(CHEXPERT) - {"no_finding"}
        assert all(0.5 < value < 0.81 for value in values.values())
    assert published_aurocs("1", "mimic_cxr_context")["edema"] == 0.751
    assert published_aurocs("A.14", "MIMIC")["lung_lesion"] == 0.8
    assert not published_aurocs("1", "synthetic")
    assert not published_aurocs("1", None)
    assert not published_aurocs("A.6", "mimic")
    found = pretest_results(scored_rows(dataset="mimic_cxr_context"), choices, n_resamples=20)
    header, body = paper_table(found.results, choices, "1")
    assert header[-1] == "Paper"
    assert {row[0]: row[-1] for row in body} == {"Edema": "0.751", "Fracture": "0.676", "Lung lesion": "0.765"}


def test_files_are_written_and_old_ones_go(measured, choices, tmp_path) -> None:
    folder = write_tables(tmp_path / "tables", measured.results, choices)
    names = {f"table_{name.replace('.', '').lower()}.csv" for name in TABLES}
    assert {path.name for path in folder.iterdir()} == names
    with (folder / "table_a12.csv").open(newline="") as file:
        header, *body = csv.reader(file)
    assert (header, body) == paper_table(measured.results, choices, "A.12")
    only = copy.deepcopy(choices)
    for choice in only["findings"].values():
        choice["families"] = {name: each for name, each in choice["families"].items() if name == "words"}
    write_tables(folder, measured.results, only)
    assert {path.name for path in folder.iterdir()} == {"table_a9.csv", "table_a12.csv", "table_a13.csv"}


def test_lines_for_the_terminal(measured, choices) -> None:
    lines = table_lines(measured.results, choices)
    assert " ".join(lines[0].split()) == "Finding Read by Classifier CV AUROC AUROC Slope ACE ACE if calibrated"
    assert lines[1].startswith("Edema        minilm   LogisticRegression")
    assert lines[-1] == f"Pleural other: no pre-test probability, {WHY}"
    assert len(lines) == 5
    assert len(table_lines(measured.results, choices, ["fracture"])) == 2
    words = word_lines(choices, ["edema"], top=4)
    first = choices["findings"]["edema"]["families"]["words"]["features"]
    assert words[0].startswith(f"Edema (words, LinearSVC): {first[0]['word']} +, ")
    assert words[0].count(",") == 4
    assert "−" in words[0]
    assert set(" ".join(word_lines(choices)).replace(",", " ").split()) >= set(WORDS)


def test_whose_words_explain_a_finding(choices) -> None:
    choice = copy.deepcopy(choices["findings"]["edema"])
    assert explained_family(choice)[0] == "words"  # an encoder has none
    choice["chosen"] = "boosted"
    assert explained_family(choice)[0] == "boosted"
    assert "+" not in word_lines({"findings": {"edema": choice}})[0]
    choice["families"] = {"minilm": choice["families"]["minilm"]}
    assert explained_family(choice) is None
    assert word_lines({"findings": {"edema": choice, "mass": {"chosen": None, "reason": "few"}}}) == []


def test_names_cannot_steer_the_terminal(measured, choices) -> None:
    bad = copy.deepcopy(choices)
    bad["findings"] = {"\x1b[31mred": bad["findings"]["edema"]}
    bad["findings"]["\x1b[31mred"]["families"]["words"]["features"][0]["word"] = "\x1b]0;x\x07"
    said = [*table_lines(measured.results, bad), *word_lines(bad)]
    assert all(line.isprintable() for line in said)


def test_choices_survive_json(scored, choices) -> None:
    again = json.loads(json.dumps(choices))
    assert keyed(pretest_results(scored, again, n_resamples=20)) == keyed(
        pretest_results(scored, choices, n_resamples=20)
    )
