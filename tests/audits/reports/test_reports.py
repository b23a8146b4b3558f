"""Audits of generated reports: planted words are found, nothing is found where nothing is, and bad input is told."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from cxrhf import metrics
from cxrhf.audits.reports.audit import audit_reports
from cxrhf.audits.reports.written import Tables
from cxrhf.errors import ConfigError, TableError
from cxrhf.metrics.words import split_half
from cxrhf.schema import REPORT_VECTOR, SCORE
from cxrhf.tables.checks import check
from cxrhf.twin.planted_groups import word_reports, words
from tests.audits.reports.made import TEMPLATE, Settings, audited, category, rows_of, table, value
from tests.refusals import refused

PAIR = {"slice": "sex=F", "versus": "sex=M"}
FAST = {"n_resamples": 100, "word_groups": ("sex",)}


@pytest.fixture(scope="module")
def planted():
    """D4 by a faithful, a collapsed and a planted writer, as three strategies of one model."""
    made = {kind: word_reports(1200, kind=kind, seed=3) for kind in ("planted", "collapsed", "faithful")}
    first = made["planted"]
    tables = [
        table(first.reference, each.generated, strategy=kind, patients=first.patient, sex=first.group)
        for kind, each in made.items()
    ]
    return audited(*tables, n_resamples=200)


def test_d4_words_stand_in_their_categories(planted) -> None:
    truth = words().truth
    found = category(planted, "planted")
    for word, kind in truth.category.items():
        assert found[word] == ("stable" if word in truth.raw_level_only else kind), word
    assert sum(each not in ("stable", "preserved") for each in found.values()) == 4
    counts = {"new": 2, "flip": 1, "omitted": 1, "erasure": 1}
    assert {name: value(planted, name, strategy="planted", **PAIR) for name in counts} == counts


def test_d4_numbers_are_those_of_the_closed_forms(planted) -> None:
    truth = words().truth
    where = {"strategy": "planted", **PAIR}
    assert value(planted, "wae_prediction", **where) == pytest.approx(truth.wae_pred, abs=1e-9)
    assert value(planted, "wae_reference", **where) == pytest.approx(truth.wae_ref, abs=1e-9)
    own = {"strategy": "planted"}
    assert value(planted, "wae_reference.group", **own, slice="sex=F") == pytest.approx(truth.wae_f, abs=1e-9)
    assert value(planted, "wae_reference.group", **own, slice="sex=M") == pytest.approx(truth.wae_m, abs=1e-9)
    assert value(planted, "delta_wae_reference", **where) == pytest.approx(truth.wae_f - truth.wae_m, abs=1e-9)
    row = next(
        each for each in planted.words.to_pylist() if each["word"] == "mastectomy" and each["strategy"] == "planted"
    )
    assert (row["n_ref_group"], row["n_ref_other"], row["n_pred_group"], row["n_pred_other"]) == (60, 2, 0, 0)
    assert row["z_disp"] == pytest.approx(truth.z_disp["mastectomy"])


def test_the_printed_rule_is_blind_and_both_counts_stand_side_by_side(planted) -> None:
    """Total collapse: the printed rule sees no erasure, ours sees every word that goes with a sex."""
    where = {"strategy": "collapsed", **PAIR}
    assert value(planted, "erasure.paper", **where) == 0
    assert value(planted, "erasure", **where) == value(planted, "n_associated", **where) == 4
    assert value(planted, "cad", **where) == 1
    assert category(planted, "collapsed", "category_paper")["mastectomy"] == "stable"
    assert category(planted, "collapsed")["mastectomy"] == "omitted"
    # WAE calls the collapse harmless; the words left out tell.
    assert value(planted, "wae_reference", **where) < value(planted, "wae_reference.null", **where)
    assert value(planted, "omitted_mass", strategy="collapsed") > 0.9
    assert value(planted, "omitted_mass", strategy="faithful") == 0


def test_faithful_reports_move_nothing(planted) -> None:
    where = {"strategy": "faithful", **PAIR}
    for name in ("erasure", "new", "flip", "amplified", "weakened"):
        assert value(planted, name, **where) == 0, name
    assert value(planted, "preserved", **where) >= 3


def test_tests_are_named_and_intervals_hold_the_value(planted) -> None:
    for row in planted.results.to_pylist():
        if row["ci_low"] is not None and not math.isnan(row["ci_low"]) and ".chance" not in row["metric"]:
            assert row["ci_low"] <= row["value"] + 1e-12, row
            assert row["value"] <= row["ci_high"] + 1e-12, row
    by = {(row["metric"], row["strategy"]): row for row in rows_of(planted, audit="reports", **PAIR)}
    assert "no displacement" in by["wae_prediction", "planted"]["method"]
    assert "no association" in by["wae_prediction.association", "planted"]["method"]
    assert by["erasure", "planted"]["p_value"] < 0.05 < by["erasure", "faithful"]["p_value"]
    assert by["erasure", "collapsed"]["p_value"] < 0.01  # all four of four, and never by chance


def test_chance_is_what_shuffled_patients_give(planted) -> None:
    rows = {row["metric"]: row for row in rows_of(planted, strategy="planted", **PAIR)}
    assert rows["erasure.chance"]["value"] < 0.2
    assert rows["new.paper.chance"]["value"] > rows["new.chance"]["value"]


def test_null_of_wae_is_that_of_the_metric(planted) -> None:
    made = word_reports(1200, kind="planted", seed=3)
    texts = metrics.corpora(made.reference, made.generated, made.group, made.patient)
    halves = split_half(texts, n_resamples=200, seed=0)["wae_reference"]
    assert value(planted, "wae_reference.null", strategy="planted", **PAIR) == pytest.approx(halves.mean(), rel=0.05)


def test_identical_corpora_have_wae_zero() -> None:
    made = word_reports(300, kind="faithful", seed=1)
    out = audited(table(made.reference, made.reference, sex=made.group), **FAST)
    for name in ("wae_prediction", "wae_reference", "delta_dir", "erasure", "new", "flip"):
        assert value(out, name, **PAIR) == 0
    assert value(out, "rougeL") == value(out, "bleu") == value(out, "corpus_bleu") == 1
    assert value(out, "omitted_mass") == value(out, "lost_mass") == 0
    assert rows_of(out, metric="wae_prediction", **PAIR)[0]["p_value"] == 1


def test_strategies_are_compared_on_the_same_images(planted) -> None:
    rows = rows_of(planted, audit="decoding")
    assert {row["versus"] for row in rows} == {"strategy=planted"}  # no greedy: the first
    assert {row["strategy"] for row in rows} == {"collapsed", "faithful"}
    apart = {row["strategy"]: row for row in rows if row["metric"] == "self_bleu_diversity"}
    assert apart["collapsed"]["value"] < -0.5
    assert apart["collapsed"]["ci_high"] < 0
    for strategy in ("collapsed", "faithful"):
        overall = value(planted, "rouge1", strategy=strategy) - value(planted, "rouge1", strategy="planted")
        assert next(r for r in rows if r["metric"] == "rouge1" and r["strategy"] == strategy)["value"] == pytest.approx(
            overall
        )
        wae = value(planted, "wae_reference", strategy=strategy, **PAIR) - value(
            planted, "wae_reference", strategy="planted", **PAIR
        )
        found = next(r for r in rows if r["metric"] == "wae_reference" and r["strategy"] == strategy)
        assert found["value"] == pytest.approx(wae)
        assert found["slice"] == "sex=F"


def test_ablation_over_p_star(planted) -> None:
    rows = [row for row in planted.curves.to_pylist() if row["strategy"] == "planted"]
    kinds = {row["kind"] for row in rows}
    assert kinds == {f"p_star.{each}{rule}" for each in ("erasure", "emergent") for rule in ("", ".paper")}
    emergent = [row["y"] for row in sorted(rows, key=lambda row: row["x"]) if row["kind"] == "p_star.emergent.paper"]
    assert emergent == sorted(emergent)
    assert next(r["y"] for r in rows if r["kind"] == "p_star.emergent" and r["x"] == 0.05) == 3


def test_diversity_is_that_of_the_metrics(planted) -> None:
    made = word_reports(1200, kind="planted", seed=3)
    own = metrics.lexical_diversity(made.generated)
    assert value(planted, "template_diversity", strategy="planted") == own.template_diversity
    assert value(planted, "type_token_ratio", strategy="planted") == own.type_token_ratio
    assert value(planted, "self_bleu_diversity", strategy="planted") == pytest.approx(1 - own.self_bleu)
    assert value(planted, "template_diversity", strategy="reference") == metrics.template_diversity(made.reference)
    shift = metrics.vocabulary_shift(made.reference, made.generated)
    assert value(planted, "vocabulary_lost", strategy="planted") == len(shift.lost) == 1
    assert value(planted, "vocabulary_kept", strategy="planted") == len(shift.kept)
    assert len(rows_of(planted, metric="vocabulary", strategy="reference")) == 1  # told once, not with every strategy


@pytest.mark.slow
def test_row_order_does_not_matter() -> None:
    made = word_reports(200, seed=2)
    age = np.linspace(1, 99, 200).round().tolist()
    whole = table(made.reference, made.generated, patients=made.patient, sex=made.group, age=age)
    mixed = whole.take(pa.array(np.random.default_rng(0).permutation(200)))
    one, other = (audited(each, n_resamples=50, word_groups=("sex", "age")) for each in (whole, mixed))
    for name in ("results", "words", "curves"):  # as text: NaN is never equal to itself
        assert str(getattr(one, name).to_pylist()) == str(getattr(other, name).to_pylist()), name


def test_groups_beyond_two_stand_against_the_rest() -> None:
    rng = np.random.default_rng(0)
    race = rng.choice(["Asian", "Black", "White"], 900).tolist()
    keloid = [" Keloid." if each == "Black" and rng.random() < 0.5 else "" for each in race]
    common = [f"{rng.choice(['Clear', 'Hazy'])} lungs, {rng.choice(['small', 'large'])} heart." for _ in race]
    out = audited(
        table([a + b for a, b in zip(common, keloid, strict=True)], common, race=race, sex=["F", "M"] * 450),
        n_resamples=50,
    )
    groups = {(row["group"], row["versus"]) for row in out.words.to_pylist()}
    assert ("race=Black", "race=not Black") in groups
    assert rows_of(out, metric="wae_prediction", slice="sex=F & race=Asian", versus="not sex=F & race=Asian")
    assert category(out, group="race=Black", column="category_exact")["keloid"] == "omitted"
    assert value(out, "erasure.exact", slice="race=Black", versus="race=not Black") == 1
    assert value(out, "erasure.exact", slice="sex=F", versus="sex=M") == 0
    quality = rows_of(out, metric="rouge1", slice="race=Black", versus="race=not Black")[0]
    assert quality["value"] < 0
    assert quality["p_value"] < 0.05
    # All others are there to be compared with: they have no numbers of their own.
    slices = {row["slice"] for row in out.results.to_pylist()}
    assert "sex=F & race=Black" in slices
    assert not [each for each in slices if "not " in each]


def test_scores_and_vectors_of_encoders_are_read() -> None:
    made = word_reports(60, seed=0)
    whole = table(made.reference, made.generated, sex=made.group)
    ids = whole["image_id"].to_pylist()
    rng = np.random.default_rng(1)
    marks = rng.random(60)
    scores = check(
        pa.table({"image_id": ids[::-1], "model": ["writer"] * 60, "strategy": ["greedy"] * 60,
                  "metric": ["bertscore_f1"] * 60, "value": marks[::-1], "encoder": ["tiny"] * 60}),
        SCORE,
    )  # fmt: skip
    vectors = rng.normal(size=(60, 4)).astype(np.float32)
    both = pa.concat_tables(
        check(pa.table({"image_id": ids, "model": [model] * 60, "strategy": [strategy] * 60, "encoder": ["tiny"] * 60,
                        "vector": each.tolist()}), REPORT_VECTOR)
        for model, strategy, each in (("writer", "greedy", vectors), ("", "reference", vectors[::-1].copy()))
    )  # fmt: skip
    out = audited(whole, scores=scores, vectors=both, **FAST)
    assert value(out, "bertscore_f1") == pytest.approx(marks.mean())
    women = np.array(made.group) == "F"
    gap = rows_of(out, metric="bertscore_f1", **PAIR)[0]
    assert gap["value"] == pytest.approx(marks[women].mean() - marks[~women].mean())
    assert value(out, "semantic_diversity") == pytest.approx(metrics.semantic_diversity(vectors))
    assert value(out, "semantic_diversity", strategy="reference") == pytest.approx(metrics.semantic_diversity(vectors))
    assert "tiny" in rows_of(out, metric="semantic_diversity", strategy="greedy")[0]["method"]


def test_empty_and_endless_reports_unicode_and_missing_sex() -> None:
    made = word_reports(120, seed=4)
    generated = ["", "   ", "word " * 50_000, "Größe normal. Sin derrame. 心影正常。", *made.generated[4:]]
    sex = [None, "Unknown", *made.group[2:]]
    out = audited(table(made.reference, generated, sex=sex), **FAST)
    assert value(out, "n_empty") == 2
    assert any("2 of 120 generated reports are empty" in note for note in out.notes)
    assert any("2 of 120 images have no sex" in note for note in out.notes)
    assert {"größe", "心影正常"} <= set(category(out))
    assert rows_of(out, metric="erasure", **PAIR)[0]["n"] == 118


def test_one_group_only_is_told_and_the_rest_is_audited() -> None:
    made = word_reports(80, seed=5)
    out = audited(table(made.reference, made.generated, sex=["F"] * 80), **FAST)
    assert any("only one value, F" in note for note in out.notes)
    assert not rows_of(out, metric="erasure")
    assert value(out, "rougeL") > 0
    assert value(out, "omitted_mass") >= 0
    assert out.words.num_rows == 0


def test_a_group_without_a_word_is_undefined_with_the_reason() -> None:
    made = word_reports(80, seed=5)
    generated = ["" if sex == "F" else text for sex, text in zip(made.group, made.generated, strict=True)]
    out = audited(table(made.reference, generated, sex=made.group), **FAST)
    row = rows_of(out, metric="wae_prediction", **PAIR)[0]
    assert math.isnan(row["value"])
    assert "no words in the generated reports of sex=F" in row["note"]


def test_a_patient_in_two_age_bands_is_not_permuted() -> None:
    made = word_reports(200, seed=6)
    ages = [30.0 if at % 4 < 2 else 70.0 for at in range(200)]
    patients = [f"p{at // 4}" for at in range(200)]
    out = audited(table(made.reference, made.generated, patients=patients, age=ages), n_resamples=50)
    row = rows_of(out, metric="wae_prediction.association", slice="age=20-39")[0]
    assert row["p_value"] is None
    assert "50 patients have reports in both groups" in row["note"]
    assert any("200 reports of 50 patients" in note for note in out.notes)


def test_templates_are_quoted_only_where_they_may_be() -> None:
    texts = [TEMPLATE] * 30 + [f"Effusion number {'x' * at}y." for at in range(10)]
    given = table(texts, texts, sex=["F", "M"] * 20)
    for may_show, note in ((False, None), (True, TEMPLATE)):
        out = audited(given, may_show=may_show, **FAST)
        row = rows_of(out, metric="top_template", strategy="greedy")[0]
        assert row["value"] == 0.75
        assert row["note"] == note


@pytest.mark.slow
def test_weat_names_its_words_and_takes_the_users(tmp_path) -> None:
    made = word_reports(400, seed=7)
    given = table(made.reference, made.generated, sex=made.group)
    out = audited(given, **FAST)
    row = rows_of(out, metric="weat", strategy="reference")[0]
    assert math.isnan(row["value"])  # D4 has none of the words of normal findings
    assert "targets_first" in row["note"]
    sets = tmp_path / "sets.yaml"
    sets.write_text("targets_first: [boboda, bobofe, bobogu]\ntargets_second: [effusion, pneumothorax, boboki]\n")
    out = audited(given, weat_words=str(sets), **FAST)
    row = rows_of(out, metric="weat_effect_size", strategy="reference")[0]
    assert -2 <= row["value"] <= 2
    assert "boboda" in row["note"]
    assert "mastectomy" in row["note"]  # the references' own words of women
    sets.write_text("targets: [a]\n")
    with refused(ConfigError, "weat_words", str(sets)):
        audited(given, weat_words=str(sets), **FAST)


def test_bad_tables_are_refused() -> None:
    made = word_reports(20, seed=0)
    one = table(made.reference, made.generated, sex=made.group)
    with refused(TableError, "generations", "20 images", fix="one row"):
        audited(one, one)
    with refused(TableError, fix="cxrhf generate"):
        audited(one.slice(0, 0))
    with refused(ConfigError, "baseline_strategy", got="ritch"):
        audited(one, table(made.reference, made.generated, strategy="rich", sex=made.group), baseline_strategy="ritch",
                **FAST)  # fmt: skip


@pytest.mark.slow
def test_datasets_of_one_model_stay_apart() -> None:
    made = word_reports(60, seed=0)
    both = [table(made.reference, made.generated, sex=made.group, dataset=[name] * 60) for name in ("a", "b")]
    out = audited(*both, **FAST)
    assert set(out.words["model"].to_pylist()) == {"writer on a", "writer on b"}
    assert {row["model"] for row in out.curves.to_pylist()} == {"writer on a", "writer on b"}
    assert {(row["dataset"], row["model"]) for row in out.results.to_pylist()} == {("a", "writer"), ("b", "writer")}


def test_a_word_that_only_one_group_has_is_seen() -> None:
    """43 women, no man, never written: z_ref is 1.9, so neither the printed rule nor the score alone can see it."""
    rng = np.random.default_rng(0)
    sex = ["F", "M"] * 300
    common = [" ".join(rng.choice(["clear", "lungs", "heart", "large", "small", "base"], 6)) for _ in sex]
    chosen = set(rng.permutation(range(0, 600, 2))[:43].tolist())
    reference = [f"{text} mastectomy" if at in chosen else text for at, text in enumerate(common)]
    out = audited(table(reference, common, sex=sex), **FAST)
    assert category(out)["mastectomy"] == "omitted"
    assert category(out, column="category_paper")["mastectomy"] == "stable"
    row = next(each for each in out.words.to_pylist() if each["word"] == "mastectomy")
    assert abs(row["z_ref"]) < 2
    assert value(out, "erasure", **PAIR) == value(out, "n_associated", **PAIR) == 1


def test_progress_is_a_line_a_strategy_however_many_groups_cross() -> None:
    told: list[str] = []
    text = ["the heart is large", "no heart seen"] * 60
    more = {"sex": ["F", "M", "M", "F"] * 30, "race": ["Asian", "Black", "White"] * 40}
    tables = pa.concat_tables([table(text, text, strategy=each, **more) for each in ("greedy", "rich")])
    settings = Settings(n_resamples=20, word_groups=("sex", "race", "sex&race"))
    audit_reports(Tables(tables), settings, told.append)
    lines = [line for line in told if "reports of" in line]
    assert [line.partition(":")[0] for line in lines] == ["writer, greedy (1 of 2)", "writer, rich (2 of 2)"]
    assert len(told) == 4
