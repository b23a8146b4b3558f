"""The twin's people have the planted laws, the exact sizes and a possible life."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict

import numpy as np
import polars as pl
import pytest

from cxrhf import metrics
from cxrhf.errors import ConfigError
from cxrhf.findings import CHEXPERT
from cxrhf.twin.laws import DEFAULT, SUPPORT_DEVICES, ContextLaw, changed
from cxrhf.twin.people import AGE_BANDS, MIMIC_SIZE, RACES, Sizes, people, sizes_for
from cxrhf.twin.planted import context_truth
from cxrhf.twin.planted_groups import (
    AGE,
    CHEXPERT_DRAINS,
    PREVALENCE,
    SHARE,
    shortcut_truth,
    slices_truth,
    subgroups_truth,
)
from cxrhf.twin.truth import auroc_of, truth
from tests.refusals import refused

CONTEXT = [law for law in DEFAULT if isinstance(law, ContextLaw)]


@pytest.fixture(scope="module")
def single(town):
    """One image a patient: independent rows, so that textbook standard errors hold."""
    images = town.images.with_row_index("row")
    return images.sample(fraction=1, shuffle=True, seed=1).unique("patient", maintain_order=True)["row"].to_numpy()


def column(values, town, finding, rows):
    return values[rows, town.findings.index(finding)]


def share_error(p, n, errors=3.5):
    return errors * np.sqrt(p * (1 - p) / n)


def near_auroc(y, score, expected, weight=None):
    size = metrics.effective_sample_size(np.ones(len(y)) if weight is None else weight, y)
    limit = 3.5 * np.sqrt(expected * (1 - expected) / min(size.positive, size.negative))
    assert metrics.auroc(y, score, weight=weight) == pytest.approx(expected, abs=limit)


@pytest.mark.parametrize("law", CONTEXT, ids=lambda law: law.finding)
def test_context_law(town, single, law):
    y, c, q, s = (column(values, town, law.finding, single) for values in (town.y, town.c, town.q, town.s))
    known = context_truth(pi=law.pi, m=law.m, g=law.g, eta=law.eta, d0=law.d0)
    assert y.mean() == pytest.approx(law.pi, abs=share_error(law.pi, len(y)))
    np.testing.assert_allclose(q, law.pretest(c))
    for label in (0, 1):
        n = (y == label).sum()
        assert c[y == label].mean() == pytest.approx(law.m * label, abs=3.5 / np.sqrt(n))
        assert c[y == label].std() == pytest.approx(1, abs=3.5 / np.sqrt(2 * n))
        noise = s - (law.d0 - law.eta * c) * y - law.g * c
        assert noise[y == label].mean() == pytest.approx(0, abs=3.5 / np.sqrt(n))
        assert noise[y == label].std() == pytest.approx(1, abs=3.5 / np.sqrt(2 * n))
    near_auroc(y, s, known.standard)
    near_auroc(y, s, known.att, weight=np.where(y == 1, 1.0, q / (1 - q)))
    near_auroc(y, c, truth(DEFAULT)["findings"][law.finding]["text"]["auroc_context"])


def test_pretest_is_exact_for_every_finding(town):
    """Also for no_finding and support_devices, whose q comes from all contexts; rows of a patient are alike."""
    patient = town.images["patient"].to_numpy()
    for at, _ in enumerate(town.findings):
        q, y = town.q[:, at], town.y[:, at]
        edges = np.quantile(q, [0, 0.25, 0.5, 0.75, 1])
        for low, high in itertools.pairwise(edges):
            rows = (q >= low) & (q <= high)
            gaps = np.bincount(patient[rows], (y - q)[rows])
            assert abs(gaps.sum()) < 3.7 * np.sqrt((gaps**2).sum())


def test_shortcut_law(town, single):
    y, s = column(town.y, town, "pneumothorax", single), column(town.s, town, "pneumothorax", single)
    drain = town.images["drain"].to_numpy()[single]
    sex = town.patients["sex"].to_numpy()[town.images["patient"].to_numpy()[single]]
    assert (sex == "F").mean() == pytest.approx(0.5, abs=share_error(0.5, len(sex)))
    for (who, label), expected in CHEXPERT_DRAINS.items():
        rows = (sex == who) & (y == label)
        assert drain[rows].mean() == pytest.approx(expected, abs=share_error(expected, rows.sum()))
    for who, expected in shortcut_truth().auroc.items():
        near_auroc(y[sex == who], s[sex == who], expected)
    near_auroc(y, s, shortcut_truth().auroc_equalised)


def test_slice_law(town, single):
    y, s = column(town.y, town, "atelectasis", single), column(town.s, town, "atelectasis", single)
    hazy, wires = (town.images[name].to_numpy()[single] for name in ("hazy", "ecg_wires"))
    assert (hazy == wires).all()
    for label in (0, 1):  # the film must not give the label away
        n = (y == label).sum()
        assert hazy[y == label].mean() == pytest.approx(0.1, abs=share_error(0.1, n))
    assert s[hazy & (y == 0)].mean() == pytest.approx(-1.5, abs=3.5 / np.sqrt((hazy & (y == 0)).sum()))
    known = slices_truth()
    prob = 1 / (1 + np.exp(-s))
    for rows, expected in (
        ((y == 1) & hazy, known.brier_hidden),
        ((y == 1) & ~hazy, known.brier_rest),
        (y == 1, known.brier_positive),
        (y == 0, known.brier_negative),
    ):
        squared = (prob - y)[rows] ** 2
        assert squared.mean() == pytest.approx(expected, abs=3.5 * squared.std() / np.sqrt(len(squared)))
    near_auroc(y, s, auroc_of(next(law for law in DEFAULT if law.finding == "atelectasis")))


def test_subgroup_law(town, single):
    y, s = column(town.y, town, "pleural_effusion", single), column(town.s, town, "pleural_effusion", single)
    patient = town.images["patient"].to_numpy()[single]
    race = np.array([RACES.index(each) for each in town.patients["race"].to_list()])[patient]
    band = town.images["age_band"].to_numpy()[single]
    known = subgroups_truth()
    for which in range(3):
        here = race == which
        assert here.mean() == pytest.approx(SHARE[which], abs=share_error(SHARE[which], len(race)))
        assert y[here].mean() == pytest.approx(PREVALENCE[which], abs=share_error(PREVALENCE[which], here.sum()))
        for label, rates in ((0, known.fpr), (1, known.tpr)):
            rows = here & (y == label)
            called = (s[rows] >= known.threshold).mean()
            assert called == pytest.approx(rates[which], abs=share_error(rates[which], rows.sum()))
            for age, expected in enumerate(AGE[label, which]):
                assert (band[rows] == age).mean() == pytest.approx(expected, abs=share_error(expected, rows.sum()))
    near_auroc(y, s, auroc_of(next(law for law in DEFAULT if law.finding == "pleural_effusion")))
    # One label a patient, whatever the study.
    labels = pl.DataFrame({"patient": town.images["patient"], "y": town.y[:, town.findings.index("pleural_effusion")]})
    assert labels.group_by("patient").agg(pl.col("y").n_unique())["y"].max() == 1


def test_nobody_leaves_the_age_band(town):
    images = town.images.join(town.studies, on="study").join(
        town.patients.select("patient", "birth_year"), on="patient"
    )
    assert (images["age"] == images["time"].dt.year() - images["birth_year"]).all()
    for band, (low, high) in enumerate(AGE_BANDS):
        ages = images.filter(pl.col("age_band") == band)["age"]
        assert low <= ages.min() <= ages.max() <= high
    assert (town.patients["anchor_age"] == town.patients["anchor_year"] - town.patients["birth_year"]).all()
    assert {low % 10 for low, _ in AGE_BANDS[1:]} == {1}  # ENCODING's bins end at 20, 30, ...


def test_labels_that_follow_from_others(town):
    assert town.findings == CHEXPERT
    y = dict(zip(town.findings, town.y.T, strict=True))
    others = [name for name in CHEXPERT if name not in ("no_finding", "support_devices")]
    assert (y["no_finding"] == (np.max([y[name] for name in others], axis=0) == 0)).all()
    worn = town.images.select(pl.any_horizontal(*SUPPORT_DEVICES)).to_series().to_numpy()
    assert (y["support_devices"] == worn).all()
    assert 0.1 < y["no_finding"].mean() < 0.3
    assert np.isfinite(town.c).all()
    assert np.isfinite(town.s).all()
    assert ((town.q > 0) & (town.q < 1)).all()


def test_a_life_is_possible(town):
    stays = town.admissions.with_columns(following=pl.col("admitted").shift(-1).over("patient"))
    assert (stays["admitted"] < stays["discharged"]).all()
    assert stays.filter(pl.col("following") < pl.col("discharged")).is_empty()
    number = stays.group_by("patient").len()["len"]
    assert number.min() == 1
    assert number.max() <= 40
    assert number.median() <= 2 < number.mean()  # skewed
    noted = stays.filter("noted")
    assert noted["charted"].null_count() == noted["stored"].null_count() == 0
    assert stays.filter(~pl.col("noted"))["charted"].null_count() == stays.height - noted.height
    assert (noted["stored"] > noted["charted"]).all()
    midnight = noted.select((pl.col("charted") == pl.col("charted").dt.truncate("1d")).mean()).item()
    assert 0.8 < midnight < 0.97
    years = town.studies["time"].dt.year()
    assert years.min() >= 2110
    assert years.max() <= 2207
    views = town.images.group_by("study").agg("view")["view"].to_list()
    assert {tuple(each) for each in views} >= {("AP",), ("PA", "LATERAL")}
    assert max(map(len, views)) == 3


def test_prior_notes_vary(town):
    known = town.admissions.filter("noted").select("patient", at=pl.max_horizontal("discharged", "charted"))
    prior = (
        town.images.select("patient", "study", "image")
        .join(town.studies.select("study", "time"), on="study")
        .join(known, on="patient", how="left")
        .group_by("image")
        .agg((pl.col("at") < pl.col("time")).sum().alias("prior"))["prior"]
    )
    assert 0.4 < (prior > 0).mean() < 0.7
    assert prior.max() > 8
    imaged = town.images["patient"].unique()
    admitted = town.admissions["patient"].unique()
    assert 0.15 < (~imaged.is_in(admitted.implode())).mean() < 0.25
    assert town.patients.height > len(imaged)


@pytest.mark.parametrize("share", [0.001, 0.013, 0.1])
def test_sizes_are_exact_at_a_share(share):
    size = MIMIC_SIZE.scaled(share)
    made = people(sizes=size, seed=1)
    imaged = made.images["patient"].unique().implode()
    own = made.admissions.filter(pl.col("patient").is_in(imaged))
    labelled = made.studies.filter("labelled")
    found = Sizes(
        imaged=labelled["patient"].n_unique(),
        imaged_admitted=own["patient"].n_unique(),
        admitted=made.admissions["patient"].n_unique(),
        admissions=made.admissions.height,
        imaged_admissions=own.height,
        noted=made.admissions.filter("noted")["patient"].n_unique(),
        imaged_noted=own.filter("noted")["patient"].n_unique(),
        notes=int(made.admissions["noted"].sum()),
        imaged_notes=int(own["noted"].sum()),
        studies=made.studies.height,
        unlabelled=made.studies.height - labelled.height,
        admitted_studies=labelled.filter(pl.col("patient").is_in(made.admissions["patient"].implode())).height,
        images=made.images.height,
    )
    assert found == size
    assert made.patients.height == size.patients
    for name, value in asdict(size).items():
        assert value == pytest.approx(getattr(MIMIC_SIZE, name) * share, abs=2)


def test_sizes_of_mimic_and_of_the_smallest_twins():
    assert MIMIC_SIZE.scaled(1) == MIMIC_SIZE
    assert (MIMIC_SIZE.images, MIMIC_SIZE.studies, MIMIC_SIZE.studies - MIMIC_SIZE.unlabelled) == (
        377_110,
        227_835,
        227_827,
    )
    for n in (1, 2, 3, 5, 8, 13, 40):
        made = people(n, seed=2)
        assert made.images["patient"].n_unique() == n == sizes_for(n).imaged
    for share in (1e-5, 1e-4, 3e-4):
        assert people(sizes=MIMIC_SIZE.scaled(share)).images.height >= 1
    with refused(ConfigError, "studies <= images", got="images=10"):
        Sizes(images=10)
    with refused(ConfigError, "notes", got="notes=546028"):
        Sizes(notes=546_028)
    with refused(ConfigError, "at least 1", got="0"):
        people(0)
    with refused(ConfigError, "above 0", got="1.5"):
        MIMIC_SIZE.scaled(1.5)


def test_seeds_and_changed_laws():
    first, again, other = people(40, seed=1), people(40, seed=1), people(40, seed=2)
    for name in ("y", "c", "q", "s"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    assert first.images.equals(again.images)
    assert first.admissions.equals(again.admissions)
    assert not first.studies.equals(other.studies)
    # A stronger note changes its own finding, and neither the others nor anybody's life.
    louder = people(40, seed=1, findings=changed("edema", m=3.0))
    assert louder.studies.equals(first.studies)
    same = [at for at, name in enumerate(CHEXPERT) if name not in ("edema", "no_finding")]
    np.testing.assert_array_equal(louder.y[:, same], first.y[:, same])
    np.testing.assert_array_equal(louder.s[:, same], first.s[:, same])
    assert truth(louder.laws)["findings"]["edema"]["text"]["auroc"] > 0.96
    with refused(ConfigError, got="edma", fix="'edema'"):
        changed("edma", m=1)
    with refused(ConfigError, "edema", got="shift"):
        changed("edema", shift=1)
    with refused(ConfigError, "prevalence", got="1.2"):
        changed("edema", pi=1.2)
    with refused(ConfigError, "at most once"):
        people(5, findings=(*DEFAULT, DEFAULT[0]))
    few = people(30, findings=DEFAULT[:3])
    assert few.findings == (
        "no_finding",
        "enlarged_cardiomediastinum",
        "cardiomegaly",
        "lung_opacity",
        "support_devices",
    )
    assert not few.images["drain"].any()


def test_truth_is_json_and_holds_the_known_answers():
    known = json.loads(json.dumps(truth(DEFAULT), allow_nan=False))
    assert set(known["findings"]) == set(CHEXPERT) - {"no_finding", "support_devices"}
    heart = known["findings"]["cardiomegaly"]["image"]
    assert (heart["standard"], heart["att"], heart["ipw"]) == pytest.approx((0.871910, 0.744530, 0.796822), abs=1e-6)
    assert known["shortcut"]["auroc"] == pytest.approx({"M": 0.7931, "F": 0.8172}, abs=1e-4)
    assert known["slices"]["brier_hidden"] == pytest.approx(0.403041, abs=1e-6)
    assert known["subgroups"]["threshold"] == pytest.approx(1.3597, abs=1e-4)
    assert list(known["subgroups"]["balanced_tpr"].values()) == pytest.approx([0.7252] * 3, abs=1e-4)
    for name, each in known["findings"].items():
        assert each["text"]["auroc"] < each["text"]["auroc_context"]
        # Given the label these pictures know nothing of the chart: nothing changes when it is taken out.
        if each["role"] != "context" or name == "lung_lesion":
            assert each["image"]["standard"] == pytest.approx(each["image"]["att"])
    assert known["findings"]["pleural_effusion"]["image"]["standard"] == pytest.approx(0.8457, abs=1e-4)
    json.dumps(truth(changed("edema", m=0.0)), allow_nan=False)
