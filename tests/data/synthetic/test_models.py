"""The simulated models have the truths that are stated of them, measured by cxrhf.metrics on large samples."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import polars as pl
import pytest

from cxrhf import metrics
from cxrhf.errors import ConfigError
from cxrhf.schema import ATTRIBUTE, EMBEDDING, PREDICTION
from cxrhf.tables.checks import check
from cxrhf.tables.files import read_table
from cxrhf.twin import LAYOUTS, layout_ids
from cxrhf.twin import models as models_module
from cxrhf.twin.__main__ import main
from cxrhf.twin.generations import generations
from cxrhf.twin.laws import DEFAULT, changed
from cxrhf.twin.models import attributes, embeddings, predictions, write_models
from cxrhf.twin.people import RACES, people
from cxrhf.twin.scores import KINDS, STEP, by_finding, hidden_slice, log_odds
from cxrhf.twin.scores import model_truth as compute_truth
from tests.refusals import refused

FINDINGS = tuple(by_finding(DEFAULT))
CONTEXT = ("cardiomegaly", "edema", "lung_lesion", "consolidation")


model_truth = cache(compute_truth)


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
    with refused(ConfigError, got="ideel", fix="'ideal'"):
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
                rows = inside.fill_null(False).to_numpy()
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
    hidden = slice_of(crowd, ids)
    loss = (part["prob"].to_numpy() - y) ** 2
    for rows, name in (
        (hidden, "brier_hidden"),
        (~hidden & (y == 1), "brier_rest"),
        (y == 1, "brier_positive"),
        (y == 0, "brier_negative"),
    ):
        assert loss[rows].mean() == pytest.approx(true[name], abs=4 * loss[rows].std() / np.sqrt(rows.sum()))


def slice_of(crowd, ids):
    return hidden_slice(crowd, crowd.findings.index("atelectasis"))[ids["image"].to_numpy()]


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


def test_thresholds_are_those_of_the_output(tables):
    for model in KINDS:
        for finding, true in model_truth(model=model).items():
            part, y, odds, _ = rows_of(tables[model], finding)
            spared = [
                (part["prob"].to_numpy() < true["threshold_prob"])[y == 0],
                odds[y == 0] < true["threshold_logit"],
            ]
            for each in spared:
                assert each.mean() == pytest.approx(true["threshold_specificity"], abs=0.012), (model, finding)
    law = by_finding(DEFAULT)["edema"]
    true = model_truth()["edema"]
    assert true["threshold_logit"] == pytest.approx(float(log_odds(np.array(true["threshold"]), law, "ideal")))


def test_mention_is_unknown_without_notes(crowd, ids, tables):
    noted = crowd.admissions.filter("noted")["patient"].unique()
    patient = crowd.images["patient"].gather(ids["image"])
    for finding in ("edema", "pleural_effusion"):
        part, *_ = rows_of(tables["ideal"], finding)
        assert (part["mention"].is_not_null() == patient.is_in(noted.implode())).all()
        assert 0 < part["mention"].null_count() < part.height
    assert rows_of(tables["ideal"], "support_devices")[0]["mention"].is_null().all()


def test_tables_can_have_the_ids_of_a_layout():
    small = people(12, seed=6)
    for layout in LAYOUTS:
        names = layout_ids(layout, small, 3)
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
    vectors = read_table(tmp_path / "one" / "embeddings.parquet", EMBEDDING)
    assert vectors.num_rows == 3 * 2 * small.images.height
    assert (
        set(vectors.column("model").to_pylist())
        == {"ideal", "blind", "no_slice"}
        == {"ideal", *truth["embeddings"]["nulls"]}
    )


@pytest.fixture
def truth_once(monkeypatch):
    """All layouts show people of the same laws: their models have one truth, which takes most of the time."""
    monkeypatch.setattr(models_module, "model_truth", lambda laws, model: model_truth(model=model))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_models_from_the_command(layout, tmp_path, capsys, truth_once):
    out = tmp_path / "twin"
    arguments = [layout, str(out), "--patients", "6", "--seed", "3", "--no-pixels", "--models"]
    assert main(arguments) == 0
    assert "models_truth.json" in capsys.readouterr().out
    made = sorted(path.name for path in (out / "models").iterdir())
    assert made == [
        "attributes.parquet",
        "embeddings.parquet",
        "generations.parquet",
        "models_truth.json",
        "predictions.parquet",
    ]
    ids = set(pl.read_parquet(out / "planted.parquet")["image_id"])
    for name in made:
        if name.endswith(".parquet"):
            found = set(pl.read_parquet(out / "models" / name)["image_id"])
            assert found <= ids
            assert found == ids or name.startswith("generations")
    assert (out / "models" / "attributes.parquet").read_bytes() == (out / "attributes.parquet").read_bytes()
