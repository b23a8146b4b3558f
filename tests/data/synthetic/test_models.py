"""The simulated models have the truths that are stated of them, measured by cxrhf.metrics on large samples."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import polars as pl
import pytest

from cxrhf import metrics
from cxrhf.data.synthetic.chexpert_files import chexpert_names
from cxrhf.data.synthetic.covid_files import covid_names
from cxrhf.data.synthetic.embeddings import ENCODED, SHOWN, embedding_truth, embeddings
from cxrhf.data.synthetic.generations import EDITS, generation_truth, generations
from cxrhf.data.synthetic.laws import DEFAULT, changed
from cxrhf.data.synthetic.model_truths import model_truth as compute_truth
from cxrhf.data.synthetic.models import attributes, predictions, write_models
from cxrhf.data.synthetic.nih_files import nih_names
from cxrhf.data.synthetic.people import RACES, people
from cxrhf.data.synthetic.reports import report_sections
from cxrhf.data.synthetic.rexgradient_files import rexgradient_names
from cxrhf.data.synthetic.scores import KINDS, STEP, by_finding, score_law
from cxrhf.data.synthetic.writing import default_ids
from cxrhf.errors import ConfigError
from cxrhf.schema import ATTRIBUTE, EMBEDDING, GENERATION, PREDICTION, check, read_table

FINDINGS = tuple(by_finding(DEFAULT))
CONTEXT = ("cardiomegaly", "edema", "lung_lesion", "consolidation")


model_truth = cache(compute_truth)


@pytest.fixture(scope="module")
def crowd():
    return people(20_000, seed=5)


@pytest.fixture(scope="module")
def ids(crowd):
    """One image a patient, so that rows are independent and textbook standard errors hold."""
    return default_ids(crowd).unique("patient_id", keep="first", maintain_order=True)


@pytest.fixture(scope="module")
def tables(crowd, ids):
    return {model: pl.from_arrow(predictions(crowd, model=model, ids=ids)) for model in KINDS}


def rows_of(table, finding):
    part = table.filter(pl.col("finding") == finding)
    return part, *(part[name].to_numpy() for name in ("label", "logit", "pretest"))


def close(value, truth, y, weight=None, errors=3.5):
    """Within `errors` standard errors, by the bound A(1-A) / (effective size of the smaller class)."""
    size = metrics.effective_sample_size(np.ones(len(y)) if weight is None else weight, y)
    limit = errors * np.sqrt(max(truth * (1 - truth), 0.01) / min(size.positive, size.negative))
    assert value == pytest.approx(truth, abs=limit)


def test_tables_keep_to_the_schema(crowd, ids, tables):
    small = ids.head(50)
    for model, table in tables.items():
        assert table.height == ids.height * len(FINDINGS)
        assert set(table["finding"]) == set(FINDINGS)
        assert table["model"].unique().to_list() == [model]
    assert check(predictions(crowd, ids=small), PREDICTION).num_rows == 50 * len(FINDINGS)
    assert check(embeddings(crowd, ids=small), EMBEDDING).num_rows == 100
    assert check(attributes(crowd, ids=small), ATTRIBUTE).num_rows == 7 * 50
    everybody = people(20, seed=3)
    table = predictions(everybody, split="validate")
    assert table.num_rows == everybody.images.height * len(FINDINGS)
    assert table.column("split").unique().to_pylist() == ["validate"]
    assert table.equals(predictions(people(20, seed=3), split="validate"))
    with pytest.raises(ConfigError, match="did you mean 'ideal'"):
        predictions(everybody, model="ideel")


@pytest.mark.parametrize("model", KINDS)
def test_standard_values(tables, model):
    truth = model_truth(model=model)
    for finding in FINDINGS:
        part, y, score, _ = rows_of(tables[model], finding)
        assert y.mean() == pytest.approx(truth[finding]["prevalence"], abs=4 * np.sqrt(0.25 / len(y)))
        found = metrics.delong(y, score)
        assert found.value == pytest.approx(truth[finding]["standard"], abs=4 * found.se)
        loss = (part["prob"].to_numpy() - y) ** 2
        assert metrics.brier(y, part["prob"]) == pytest.approx(loss.mean())
        assert loss.mean() == pytest.approx(truth[finding]["brier"], abs=4 * loss.std() / np.sqrt(len(y)))
        reached = metrics.sensitivity_at_specificity(y, score).sensitivity
        assert reached == pytest.approx(truth[finding]["sensitivity"], abs=5 * np.sqrt(0.25 / y.sum()))
        if model != "miscalibrated":  # exact probabilities turn down again in a far tail
            assert (np.diff(part["prob"].to_numpy()[np.argsort(score)]) >= 0).all()


@pytest.mark.parametrize("model", KINDS)
def test_context_controlled(tables, model):
    truth = model_truth(model=model)
    for finding in (*CONTEXT, "pneumothorax", "pleural_effusion", "support_devices"):
        part, y, score, q = rows_of(tables[model], finding)
        true = truth[finding]
        for name, weight in (
            ("att", metrics.att_weights(y, q)),
            ("ipw", metrics.ipw_weights(y, q, true["prevalence"])),
        ):
            close(metrics.auroc(y, score, weight), true[name], y, weight)
        close(metrics.matched_auroc(y, score, q), true["matched"], y)
        for at, inside in enumerate(metrics.quantile_groups(q)[:3]):
            close(metrics.auroc(y[inside], score[inside]), true["strata"][at], y[inside])
        if "by_mention" in true and finding != "support_devices":
            for name, inside in (("mentioned", part["mention"]), ("not_mentioned", ~part["mention"])):
                rows = inside.to_numpy()
                close(metrics.auroc(y[rows], score[rows]), true["by_mention"][name], y[rows])


def test_what_is_left_without_the_chart():
    """The order of the truths: what the chart gives away is gone once it is controlled."""
    ideal, image, chart = (model_truth(model=model) for model in ("ideal", "image_only", "context"))
    for finding in ("cardiomegaly", "edema"):
        assert ideal[finding]["standard"] > ideal[finding]["matched"] >= ideal[finding]["att"]
        assert image[finding]["standard"] == pytest.approx(image[finding]["att"]) == image[finding]["matched"]
        assert chart[finding]["att"] == chart[finding]["ipw"] == 0.5 < chart[finding]["matched"]
    assert ideal["cardiomegaly"]["standard"] == pytest.approx(0.871910, abs=1e-6)
    assert ideal["lung_lesion"]["standard"] == pytest.approx(ideal["lung_lesion"]["att"])  # the null of D1


def test_changed_laws_change_the_truth():
    laws = changed("edema", pi=0.3, g=0.0)
    assert compute_truth(laws)["edema"]["prevalence"] == 0.3
    assert compute_truth(laws)["edema"]["standard"] == pytest.approx(compute_truth(laws)["edema"]["att"])
    flat = compute_truth(changed("edema", m=0.0))["edema"]
    assert flat["standard"] == pytest.approx(flat["att"])


def test_pretest_is_exact(tables):
    for finding in FINDINGS:
        _, y, _, q = rows_of(tables["ideal"], finding)
        for inside in metrics.quantile_groups(q)[:3]:
            error = np.sqrt((q[inside] * (1 - q[inside])).sum()) / inside.sum()
            assert y[inside].mean() == pytest.approx(q[inside].mean(), abs=4 * error)


@pytest.mark.parametrize("model", ["ideal", "image_only", "shortcut"])
def test_shortcut_by_sex(tables, model):
    true = model_truth(model=model)["pneumothorax"]
    part, y, score, _ = rows_of(tables[model], "pneumothorax")
    for sex in "FM":
        rows = (part["sex"] == sex).to_numpy()
        found = metrics.delong(y[rows], score[rows])
        assert found.value == pytest.approx(true["by_sex"][sex], abs=3.5 * found.se)
    gap = true["by_sex"]["F"] - true["by_sex"]["M"]
    assert gap == pytest.approx({"ideal": 0.0241, "image_only": 0.0, "shortcut": 0.0370}[model], abs=1e-4)


@pytest.mark.parametrize("model", ["ideal", "biased"])
def test_subgroups(tables, model):
    true = model_truth(model=model)["pleural_effusion"]["by_race"]
    part, y, score, _ = rows_of(tables[model], "pleural_effusion")
    race, age = part["race"].to_numpy(), part["age"].to_numpy()
    found = metrics.subgroup_rates(y, score, race)
    band = (age > 40).astype(int) + (age > 60)
    cell = band + 3 * y
    share = np.bincount(cell, minlength=6) / len(y)
    weight = np.zeros(len(y))
    for name in RACES:  # each race gets everybody's ages and prevalence
        rows = race == name
        weight[rows] = (share / (np.bincount(cell[rows], minlength=6) / rows.sum()))[cell[rows]]
    balanced = metrics.subgroup_rates(y, score, race, weight=weight, threshold=found.threshold)
    for name in RACES:
        positives = (y[race == name] == 1).sum()
        for rates, prefix in ((found.rates[name], ""), (balanced.rates[name], "balanced_")):
            assert rates.tpr == pytest.approx(true[name][prefix + "tpr"], abs=4 * 0.5 / np.sqrt(positives))
            assert rates.fpr == pytest.approx(true[name][prefix + "fpr"], abs=4 * 0.4 / np.sqrt(positives))
            assert rates.auroc == pytest.approx(true[name][prefix + "auroc"], abs=4 * 0.4 / np.sqrt(positives))
    third = true[RACES[2]]["balanced_tpr"]
    assert third == pytest.approx(0.7252 if model == "ideal" else 0.5469, abs=1e-4)


def test_hidden_slice(crowd, ids, tables):
    true = model_truth()["atelectasis"]["slices"]
    part, y, _, _ = rows_of(tables["ideal"], "atelectasis")
    hidden = crowd.images["hazy"].to_numpy()[ids["image"].to_numpy()]
    assert not hidden[y == 0].any()
    loss = (part["prob"].to_numpy() - y) ** 2
    for rows, name in (
        (hidden, "brier_hidden"),
        (~hidden & (y == 1), "brier_rest"),
        (y == 1, "brier_positive"),
        (y == 0, "brier_negative"),
    ):
        assert loss[rows].mean() == pytest.approx(true[name], abs=4 * loss[rows].std() / np.sqrt(rows.sum()))


def vectors_of(crowd, ids, finding, **options):
    table = pl.from_arrow(embeddings(crowd, ids=ids, **options))
    assert table["vector"].list.len().unique().to_list() == [16]
    part = table.filter(pl.col("finding").is_null() if finding is None else pl.col("finding") == finding)
    assert part["image_id"].equals(ids["image_id"])
    return np.array(part["vector"].to_list())


def test_slice_axis_and_its_nulls(crowd, ids, tables):
    truth = embedding_truth()["slice"]
    _, y, score, _ = rows_of(tables["ideal"], "atelectasis")
    hidden = crowd.images["hazy"].to_numpy()[ids["image"].to_numpy()]
    vectors = vectors_of(crowd, ids, "atelectasis")
    cut = 2 + np.log(0.9 / 0.1) / 4
    found = (vectors[:, 0] > cut) & (y == 1)
    assert hidden[found].mean() == pytest.approx(truth["precision"], abs=0.04) == pytest.approx(0.9502, abs=0.04)
    assert found[hidden].mean() == pytest.approx(truth["recall"], abs=0.04)
    blind = vectors_of(crowd, ids, "atelectasis", null="blind")
    assert np.abs(blind[hidden].mean(axis=0)).max() < 5 / np.sqrt(hidden.sum())
    scored = vectors_of(crowd, ids, "atelectasis", null="score")
    assert np.corrcoef(scored[:, 0], score)[0, 1] > 0.8
    again = np.tanh(score[:, None] * np.linspace(0.5, 2, 16) + np.linspace(-1, 1, 16))
    residual = (scored - again)[hidden].mean(axis=0)  # once the score is known, nothing tells the slice
    assert np.abs(residual).max() < 0.1 * 5 / np.sqrt(hidden.sum())
    with pytest.raises(ConfigError, match="blind, score"):
        embeddings(crowd, ids=ids, null="deaf")


def test_penultimate_layer_encodes_as_stated(crowd, ids, tables):
    vectors = vectors_of(crowd, ids, None)
    part, *_ = rows_of(tables["ideal"], "edema")
    part = part.with_columns(age_band=((pl.col("age") > 40).cast(pl.Int8) + (pl.col("age") > 60)).cast(pl.String))
    truth = embedding_truth()["penultimate"]
    blind = vectors_of(crowd, ids, None, null="blind")
    for axis, (column, value, _) in ENCODED.items():
        is_it = (part[column] == value).to_numpy().astype(int)
        found = metrics.delong(is_it, vectors[:, axis])
        assert found.value == pytest.approx(truth[f"axis {axis}"]["auroc"], abs=4 * found.se)
        nothing = metrics.delong(is_it, blind[:, axis])
        assert nothing.value == pytest.approx(0.5, abs=4 * nothing.se)
    for axis, finding in SHOWN.items():
        _, y, _, _ = rows_of(tables["ideal"], finding)
        found = metrics.delong(y, vectors[:, axis])
        assert found.value == pytest.approx(model_truth()[finding]["standard"], abs=4 * found.se)


def test_attributes(crowd, ids):
    table = pl.from_arrow(attributes(crowd, ids=ids))
    assert set(table["value"]) == {"0", "1"}
    drains = table.filter(pl.col("name") == "drain")
    assert drains["image_id"].equals(ids["image_id"])
    assert ((drains["value"] == "1").to_numpy() == crowd.images["drain"].to_numpy()[ids["image"].to_numpy()]).all()


def test_miscalibrated(tables):
    truth = model_truth(model="miscalibrated")
    for finding in ("cardiomegaly", "pneumothorax", "atelectasis", "pleural_effusion"):
        part, y, score, _ = rows_of(tables["miscalibrated"], finding)
        error = metrics.adaptive_calibration_error(y, part["prob"])
        true = truth[finding]["calibration"]
        assert error == pytest.approx(true["adaptive_calibration_error"], abs=0.012)
        line = metrics.calibration_line(y, part["prob"])
        assert line.slope == pytest.approx(true["slope"], abs=0.1)
        assert line.in_the_large == pytest.approx(-STEP, abs=0.1)
        assert metrics.auroc(y, score) == pytest.approx(
            metrics.auroc(*rows_of(tables["ideal"], finding)[1:3]), abs=1e-4
        )


def test_exact_probabilities_turn_only_in_far_tails():
    grid = np.linspace(-8, 10, 5001)
    for law in by_finding(DEFAULT).values():
        scored = score_law(law, "ideal")
        falling = grid[1:][np.diff(scored.posterior(grid)) < 0]
        assert not len(falling) or scored.positive.above(falling[0]) < 1e-4


def words_of(table):
    columns = (table.column(name).to_pylist() for name in ("reference", "generated", "sex", "patient_id"))
    found = metrics.cad_texts(*columns)
    return dict(zip(found.words, found.category.tolist(), strict=True)), found


@pytest.fixture(scope="module")
def writers(crowd):
    some = default_ids(crowd).filter(pl.col("image") < 46_000)
    reports = report_sections(crowd)
    return {
        kind: generations(crowd, reports, kind=kind, ids=some, seed=2) for kind in ("faithful", "collapsed", "planted")
    }


def test_generations_keep_to_the_schema(crowd, writers):
    for kind, table in writers.items():
        check(table, GENERATION)
        assert table.column("model").unique().to_pylist() == [kind]
        assert len(set(table.column("patient_id").to_pylist())) == table.num_rows > 5000
    with pytest.raises(ConfigError, match="did you mean 'faithful'"):
        generations(crowd, kind="faithfull")
    small = people(30, seed=4)
    every = generations(small, one_per_patient=False)
    assert every.num_rows > len(set(every.column("patient_id").to_pylist()))
    assert every.equals(generations(small, one_per_patient=False))


def test_planted_words_are_found(writers):
    category, found = words_of(writers["planted"])
    at = {word: place for place, word in enumerate(found.words)}
    for word, true in generation_truth("planted").items():
        if true["category"] == "new":  # a sample's reference may have a little association by chance
            sign = 1 if word == "effusion" else -1
            assert sign * found.z_disp[at[word]] > 5
            assert category[word] in ("new", "amplified", "flip")
        else:
            assert category[word] == true["category"], word
    known = {*EDITS, *(word for edit in EDITS.values() for word in edit.moves_with)}
    moved = {word for word, each in category.items() if each not in ("stable", "preserved")}
    assert moved <= known


def test_faithful_words_are_left_alone(writers):
    category, _ = words_of(writers["faithful"])
    assert set(category.values()) <= {"preserved", "stable"}
    assert category["mastectomy"] == category["breast"] == "preserved"
    assert writers["faithful"].column("generated") != writers["faithful"].column("reference")


def test_collapsed_words_are_omitted(writers):
    category, _ = words_of(writers["collapsed"])
    for word, true in generation_truth("collapsed").items():
        assert category[word] == true["category"] == "omitted"


def test_tables_can_have_the_ids_of_a_layout():
    small = people(12, seed=6)
    for names in (chexpert_names(small), nih_names(small), rexgradient_names(small), covid_names(small)):
        table = predictions(small, ids=names)
        assert table.column("image_id").to_pylist()[: names.height] == names["image_id"].to_list()
        at = names["image"].to_numpy()
        edema = pl.from_arrow(table).filter(pl.col("finding") == "edema")
        assert (edema["label"].to_numpy() == small.y[at, small.findings.index("edema")]).all()
        assert set(generations(small, ids=names).column("image_id").to_pylist()) <= set(names["image_id"])


def test_write_models(tmp_path):
    small = people(15, seed=1)
    for folder in ("one", "two"):
        write_models(small, tmp_path / folder, seed=3)
    made = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert made == [
        "attributes.parquet",
        "embeddings.parquet",
        "generations.parquet",
        "models_truth.json",
        "predictions.parquet",
    ]
    for name in made:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    truth = json.loads((tmp_path / "one" / "models_truth.json").read_text())
    assert set(truth["models"]) == set(KINDS)
    assert set(truth["models"]["ideal"]["findings"]) == set(FINDINGS)
    table = read_table(tmp_path / "one" / "predictions.parquet", PREDICTION)
    assert table.num_rows == len(KINDS) * small.images.height * len(FINDINGS)
