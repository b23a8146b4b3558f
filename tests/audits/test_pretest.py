"""The fitted pre-test probability: it knows what came before the image, is calibrated, and nothing else gets in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy.special import expit

from cxrhf.audits.pretest import (
    LEAST_PATIENTS,
    FittedPretest,
    Images,
    context_features,
    fit_pretest,
    gather,
    prior_labels,
)
from cxrhf.errors import ConfigError, TableError
from cxrhf.metrics import auroc, calibration_line
from cxrhf.schema import PREDICTION
from cxrhf.tables.predictions import load_predictions
from tests.audits.tables import block
from tests.real_data import real_data
from tests.refusals import refused

EVERYTHING = ("age", "sex", "view", "race", "prior_labels")


def hospital(n_patients: int = 600, seed: int = 0, visits: int = 5) -> tuple[pa.Table, pa.Table]:
    """Patients with `visits` images each; edema stays (a Markov chain), mass follows age and sex, hernia nothing."""
    rng = np.random.default_rng(seed)
    n = n_patients * visits
    patient, time = np.repeat(np.arange(n_patients), visits), np.tile(np.arange(visits), n_patients)
    age = rng.uniform(20, 90, n_patients)[patient]
    sex = rng.choice(["F", "M"], n_patients)[patient]
    edema = np.zeros(n)
    for at in range(n):
        chance = 0.2 if time[at] == 0 else (0.8 if edema[at - 1] else 0.05)
        edema[at] = rng.random() < chance
    mass = rng.random(n) < expit(-2 + 0.05 * (age - 50) + 0.8 * (sex == "F"))
    hernia = rng.random(n) < 0.2
    groups = {"age": age, "sex": sex, "view": rng.choice(["AP", "PA"], n), "race": rng.choice(["A", "B"], n)}
    labels = {"edema": edema, "mass": mass.astype(float), "hernia": hernia.astype(float)}
    table = pa.concat_tables([block(name, y, patient, prob=rng.random(n), **groups) for name, y in labels.items()])
    return table, times_of(table.slice(0, n), time.astype(float))


def times_of(rows: pa.Table, time: Any) -> pa.Table:
    return rows.select(["image_id", "patient_id"]).append_column("time", pa.array(time, from_pandas=True))


def changed(table: pa.Table, **columns: Any) -> pa.Table:
    for name, values in columns.items():
        at = PREDICTION.get_field_index(name)
        table = table.set_column(
            at, PREDICTION.field(at), pa.array(values, PREDICTION.field(at).type, from_pandas=True)
        )
    return table


def fit(table: pa.Table, times: pa.Table | None, *sources: str, seed: int = 0) -> FittedPretest:
    return fit_pretest(table, sources, times=times, seed=seed)


def of(fitted: FittedPretest, finding: str) -> tuple[np.ndarray, np.ndarray]:
    """Labels and pre-test probabilities of a finding."""
    rows = fitted.table.filter(pc.equal(fitted.table["finding"], finding))
    return rows["label"].to_numpy().astype(float), rows["pretest"].to_numpy()


# --- what it finds ----------------------------------------------------------------------------------------------------


def test_planted_context_is_found_and_calibrated() -> None:
    table, times = hospital()
    fitted = fit(table, times, *EVERYTHING)
    assert fitted.table.schema.equals(PREDICTION)
    y, q = of(fitted, "edema")
    last, first = np.r_[np.nan, y[:-1]], np.arange(len(y)) % 5 == 0
    for truth, rows in ((0.2, first), (0.8, ~first & (last == 1)), (0.05, ~first & (last == 0))):
        assert abs(q[rows].mean() - truth) < 0.04
    assert auroc(y, q) > 0.8
    ranked = {finding: auroc(*of(fitted, finding)) for finding in ("mass", "hernia")}
    assert ranked["mass"] > 0.7
    assert 0.45 < ranked["hernia"] < 0.55  # a null: nothing says anything
    assert np.std(of(fitted, "hernia")[1]) < 0.03
    for finding in ("edema", "mass"):
        line = calibration_line(*of(fitted, finding))
        assert 0.85 < line.slope < 1.15
        assert abs(line.in_the_large) < 0.1
    assert fitted.about["sources"] == list(EVERYTHING)
    assert (fitted.about["folds"], fitted.about["n_features"] > 10) == (5, True)
    assert fitted.about["auroc"]["edema"] == pytest.approx(auroc(y, q), abs=1e-6)
    assert "uses only age, sex, view, race and the labels of the patient's earlier images" in fitted.notes[0]


def test_few_positives_are_not_overfitted() -> None:
    slopes = []
    for seed in range(6):
        table, times = hospital(300, seed=seed, visits=3)
        rare = table.filter(pc.equal(table["finding"], "mass")).slice(0, 900)
        kept = np.random.default_rng(seed).random(900) < 0.3  # thin the positives out
        label = np.where(kept, rare["label"].to_numpy(), 0)
        rare = changed(rare, label=label)
        others = table.filter(pc.not_equal(table["finding"], "mass"))
        slopes.append(calibration_line(*of(fit(pa.concat_tables([rare, others]), times, *EVERYTHING), "mass")).slope)
    assert 0.75 < np.median(slopes) < 1.3


# --- what must not get in ---------------------------------------------------------------------------------------------


def random_images(rng: np.random.Generator, n: int = 60, k: int = 3) -> Images:
    y = rng.choice([0.0, 1.0, np.nan], (n, k))
    none = np.zeros(0, dtype=np.int64)
    return Images(
        findings=("a", "b", "c")[:k],
        patients=rng.integers(0, 8, n),
        y=y,
        weight=np.ones((n, k)),
        age=rng.uniform(20, 90, n),
        groups={name: rng.choice(["x", "y"], n) for name in ("sex", "view", "race")},
        study=rng.integers(-1, 12, n),
        time=rng.choice([0.0, 1.0, 2.5, 4.0, 7.0, np.nan], n),
        row_image=none,
        row_finding=none,
        n_contradictions=0,
    )


def may_know(images: Images, at: int) -> np.ndarray:
    """Images that are strictly earlier than image `at`, said once more in plain words."""
    same = images.patients == images.patients[at]
    with np.errstate(invalid="ignore"):
        earlier = same & (images.time < images.time[at])
    return earlier & ((images.study != images.study[at]) | (images.study[at] < 0))


@pytest.mark.parametrize("seed", range(3))
def test_no_label_of_the_same_moment_study_or_later_enters(seed: int) -> None:
    rng = np.random.default_rng(seed)
    images = random_images(rng)
    now = prior_labels(images.y, images.patients, images.time, images.study)
    for at in range(len(images.patients)):
        changed = images.y.copy()
        others = ~may_know(images, at)  # its own label and everything that is not earlier
        changed[others] = rng.choice([0.0, 1.0, np.nan], changed[others].shape)
        after = prior_labels(changed, images.patients, images.time, images.study)
        for one, two in zip(now, after, strict=True):
            np.testing.assert_array_equal(one[at], two[at])


def test_slow_twin_of_the_features() -> None:
    rng = np.random.default_rng(5)
    images = replace(random_images(rng, 80), study=np.full(80, -1))
    found = prior_labels(images.y, images.patients, images.time, images.study)
    for at in range(80):
        earlier = np.flatnonzero(may_know(images, at))
        assert found.images[at] == len(earlier)
        for k in range(3):
            known = [i for i in earlier if not np.isnan(images.y[i, k])]
            assert found.unknown[at, k] == (not known)
            if not known:
                assert found.last[at, k] == found.share[at, k] == found.any[at, k] == 0
                continue
            latest = max(images.time[i] for i in known)
            assert found.last[at, k] == np.mean([images.y[i, k] for i in known if images.time[i] == latest])
            assert found.share[at, k] == np.mean([images.y[i, k] for i in known])
            assert found.any[at, k] == max(images.y[i, k] for i in known)


def test_twins_of_a_moment_and_copies_later_on_tell_nothing_about_the_first() -> None:
    rng = np.random.default_rng(0)
    coin = rng.integers(0, 2, 400).astype(float)
    patient, y = np.repeat(np.arange(400), 3), np.repeat(coin, 3)  # all three images of a patient have one label
    table = block("edema", y, patient, prob=rng.random(1200))
    moment = np.tile([1.0, 1.0, 2.0], 400)
    q = of(fit(table, times_of(table, moment), "prior_labels"), "edema")[1]
    assert abs(auroc(y[moment == 1], q[moment == 1]) - 0.5) < 0.06
    assert auroc(y[moment == 2], q[moment == 2]) > 0.99
    together = changed(table, study_id=[f"s{each}" for each in patient])
    with refused(TableError, got="no patient has an earlier image"):  # one study: no image is earlier
        fit(together, times_of(table, moment), "prior_labels")


# --- the same numbers -------------------------------------------------------------------------------------------------


def test_row_order_and_source_order_do_not_matter() -> None:
    table, times = hospital(150)
    fitted = fit(table, times, "sex", "age", "prior_labels")
    rng = np.random.default_rng(3)
    order = rng.permutation(len(table))
    mixed = fit(table.take(order), times.take(rng.permutation(len(times))), "prior_labels", "age", "sex")
    np.testing.assert_array_equal(mixed.table["pretest"].to_numpy(), fitted.table["pretest"].to_numpy()[order])
    assert mixed.about == fitted.about
    assert fit(table, times, "sex", "age", "prior_labels").table.equals(fitted.table)
    other = fit(table, times, "sex", "age", "prior_labels", seed=1).table["pretest"].to_numpy()
    assert 0 < np.abs(other - fitted.table["pretest"].to_numpy()).max() < 0.2


def test_models_share_one_fit_and_disagreements_are_said() -> None:
    table, times = hospital(150)
    second = changed(table, model=["other"] * len(table))
    alone, both = fit(table, times, *EVERYTHING), fit(pa.concat_tables([table, second]), times, *EVERYTHING)
    expected = alone.table["pretest"].to_numpy()
    np.testing.assert_array_equal(both.table["pretest"].to_numpy(), np.r_[expected, expected])
    label = second["label"].to_numpy().copy()
    label[:2] = 1 - label[:2]
    said = fit(pa.concat_tables([table, changed(second, label=label)]), times, *EVERYTHING)
    assert any("2 labels differ between models or runs" in note for note in said.notes)
    assert said.table["pretest"].null_count == 0


def test_datasets_are_fitted_apart() -> None:
    one, two = (hospital(120, seed=each) for each in (0, 1))
    alone = fit(*one, "age", "prior_labels")
    here, there = (changed(table, dataset=[name] * len(table)) for name, (table, _) in (("a", one), ("b", two)))
    there = changed(there, image_id=[f"{each}-b" for each in there["image_id"].to_pylist()])  # the patients' ids repeat
    times = pa.concat_tables([one[1], times_of(there.slice(0, 600), two[1]["time"].to_numpy())])
    both = fit(pa.concat_tables([here, there]), times, "age", "prior_labels")
    n = len(one[0])
    np.testing.assert_array_equal(both.table["pretest"].to_numpy()[:n], alone.table["pretest"].to_numpy())
    assert {"edema in a", "edema in b"} <= set(both.about["auroc"])


def test_weights_and_missing_labels() -> None:
    table, times = hospital(150)
    blank = np.arange(len(table)) % 7 == 0
    some = changed(table, label=np.where(blank, np.nan, table["label"].to_numpy()))
    assert fit(some, times, *EVERYTHING).table["pretest"].null_count == 0
    weight = np.where(table["label"].to_numpy() == 1, 3.0, 1.0)
    q, plain = fit(changed(table, weight=weight), times, "age"), fit(table, times, "age")
    assert q.table["pretest"].to_numpy().mean() > 1.5 * plain.table["pretest"].to_numpy().mean()
    same = changed(table, weight=np.full(len(table), 2.0))
    np.testing.assert_array_equal(fit(same, times, "age").table["pretest"], plain.table["pretest"])


# --- what it says -----------------------------------------------------------------------------------------------------


def test_what_is_missing_is_said() -> None:
    table, times = hospital(60)
    bare = changed(table, view=[None] * len(table))
    with refused(TableError, "view", "age, sex, race, prior_labels", "--view COLUMN", fix="--pretest from:age"):
        fit(bare, times, "age", "view")
    with refused(TableError, "prior_labels", "age, sex, view, race", fix="--time COLUMN"):
        fit(table, None, "prior_labels")
    with refused(ConfigError, fix="'age'"):
        fit(table, times, "aeg")
    constant = changed(table, view=["AP"] * len(table))
    said = "pretest from view: it is the same for all images, so it is not used"
    assert said in fit(constant, times, "age", "view").notes
    with refused(TableError, "pretest", got="same for all images"):
        fit(constant, times, "view")
    own = changed(table, pretest=np.full(len(table), 0.5))
    assert "the pretest column of the table is replaced" in fit(own, times, "age").notes
    told: list[str] = []
    fit_pretest(table, ["age"], times=times, seed=0, progress=told.append)
    assert told[0] == "pre-test probability of edema (1 of 3)"


def test_too_few_patients_is_undefined() -> None:
    table, times = hospital(60)
    rows = table.filter(pc.equal(table["finding"], "mass"))
    n = len(rows)
    for n_positive, said in (
        (0, "0 positive patients"),
        (1, "1 positive patient,"),
        (LEAST_PATIENTS - 1, "9 positive"),
    ):
        label = np.zeros(n)
        label[: 5 * n_positive : 5] = 1
        few = changed(rows, label=label)
        fitted = fit(pa.concat_tables([few, table.filter(pc.equal(table["finding"], "edema"))]), times, "age")
        assert np.isnan(of(fitted, "mass")[1]).all()
        assert any(f"mass: no pre-test probability, {said}" in note for note in fitted.notes)
        assert "mass" not in fitted.about["auroc"]
        assert not np.isnan(of(fitted, "edema")[1]).any()
    ones = changed(rows, label=np.ones(n))
    assert any("0 negative patients" in note for note in fit(ones, times, "age").notes)
    label = np.zeros(n)
    label[: 5 * LEAST_PATIENTS : 5] = 1
    enough = fit(changed(rows, label=label), times, *EVERYTHING)
    assert enough.table["pretest"].null_count == 0


def test_odd_groups_ages_and_times() -> None:
    table, times = hospital(150)
    n = len(times)
    rng = np.random.default_rng(2)
    race = np.tile([f"group {each}" if each % 20 == 0 else None for each in range(n)], 3)  # 38 races, each rare
    age = np.tile(np.where(rng.random(n) < 0.3, np.nan, 50.0), 3)
    odd = changed(table, race=race.tolist(), age=age)
    late = times_of(times, np.where(rng.random(n) < 0.2, np.nan, times["time"].to_numpy()))
    images = gather(odd, late.slice(0, n - 10))
    names = context_features(images, EVERYTHING, []).names
    assert {"race=other", "age missing", "no time", "earlier images", "last edema"} <= set(names)
    assert not [name for name in names if name.startswith(("age above", "race=group"))]
    q = fit(odd, late, *EVERYTHING).table["pretest"].to_numpy()
    assert ((q > 0) & (q < 1)).all()


# --- real data --------------------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.slow
def test_nih() -> None:
    loaded = load_predictions(real_data("nih/predictions.csv.gz"))
    little = fit(loaded.table, loaded.times, "age", "sex").about["auroc"]
    fitted = fit(loaded.table, loaded.times, "age", "sex", "view", "prior_labels")
    more = fitted.about["auroc"]
    assert set(more) == set(little)
    assert len(more) == 14
    assert sum(more[finding] > little[finding] + 0.05 for finding in more) >= 12
    rows = fitted.table.select(["patient_id", "finding", "label"]).to_pandas()
    held = rows[rows.label == 1].groupby("finding").patient_id.nunique()
    checked = [finding for finding in more if held[finding] >= 50]
    assert len(checked) == 13
    for finding in checked:
        y, q = of(fitted, finding)
        assert 0.75 < calibration_line(y, q).slope < 1.3, finding
        assert abs(q.mean() - y.mean()) < 0.01
