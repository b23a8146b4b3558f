"""The evaluate modules on real inputs: NIH predictions of a public DenseNet-121, and generated reports of Indiana."""

from __future__ import annotations

import csv
import gzip
from typing import Any

import numpy as np
import pytest

from cxrhf import metrics as core
from tests.metric_cases import loaded, same
from tests.real_data import real_data

pytestmark = pytest.mark.real


def _rows(name: str) -> list[dict[str, str]]:
    with gzip.open(real_data(name), "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def nih() -> dict[str, Any]:
    rows = _rows("nih/predictions.csv.gz")
    names = [key.removeprefix("prob_") for key in rows[0] if key.startswith("prob_")]
    assert len(names) == 14
    return {
        "names": names,
        "references": np.array([[float(row[name]) for name in names] for row in rows]),
        "predictions": np.array([[float(row[f"prob_{name}"]) for name in names] for row in rows]),
        "clusters": [row["patient_id"] for row in rows],
        "groups": [row["sex"] for row in rows],
    }


def _pick(data: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: data[key] for key in ("predictions", "references", *keys)}


def test_nih_auroc(nih: dict[str, Any]) -> None:
    out = loaded("weighted_auroc").compute(**_pick(nih, "clusters"), n_resamples=500, label_names=nih["names"])
    y, p = nih["references"], nih["predictions"]
    draws = core.draw(np.array(nih["clusters"]), y=y, n_resamples=500, seed=0)
    replicates = core.bootstrap("auroc", y, p, draws=draws)
    for k, name in enumerate(nih["names"]):
        value = core.auroc(y[:, k], p[:, k])
        assert same(out["weighted_auroc_per_label"][name], value)
        ends = core.interval(
            value, replicates[:, k], units=core.count_units(y[:, k], np.array(nih["clusters"])), metric="auroc"
        )
        assert same(out["weighted_auroc_per_label_ci_low"][name], ends.low)
        assert same(out["weighted_auroc_per_label_ci_high"][name], ends.high)
    assert 0.75 < out["weighted_auroc"] < 0.9
    assert out["weighted_auroc_ci_low"] < out["weighted_auroc"] < out["weighted_auroc_ci_high"]


def test_nih_patients_as_text_or_numbers(nih: dict[str, Any]) -> None:
    data = _pick(nih) | {"n_resamples": 50}
    text = loaded("balanced_brier").compute(**data, clusters=nih["clusters"])
    assert same(text, loaded("balanced_brier").compute(**data, clusters=[int(each) for each in nih["clusters"]]))


def test_nih_probabilities(nih: dict[str, Any]) -> None:
    """IMBALANCE's warning on real scores: a small Brier score beside a balanced one near 1 for rare findings."""
    out = loaded("balanced_brier").compute(**_pick(nih), label_names=nih["names"])
    y, p = nih["references"], nih["predictions"]
    for k, name in enumerate(nih["names"]):
        assert same(out["balanced_brier_per_label"][name], core.balanced_brier(y[:, k], p[:, k]))
    assert out["balanced_brier"] > 3 * out["balanced_brier_plain"]
    skill = loaded("brier_skill_score").compute(**_pick(nih, "clusters"), n_resamples=200)
    assert skill["brier_skill_score_ci_low"] < skill["brier_skill_score"] < skill["brier_skill_score_ci_high"]
    error = loaded("adaptive_calibration_error").compute(**_pick(nih, "clusters"), n_resamples=200)
    assert 0 < error["adaptive_calibration_error_expected"] < error["adaptive_calibration_error"] < 0.2


def test_nih_operating_point_and_subgroups(nih: dict[str, Any]) -> None:
    out = loaded("sensitivity_at_specificity").compute(**_pick(nih, "clusters"), n_resamples=200)
    assert all(value >= 0.95 for value in out["sensitivity_at_specificity_specificity_per_label"])
    # The corners of a rare finding's ROC curve are far apart: only all its points come near the asked rate.
    settings = {"rule": "nearest_all", "label_names": nih["names"]}
    groups = loaded("subgroup_rates").compute(**_pick(nih, "groups", "clusters"), **settings)
    assert set(groups["subgroup_rates"]) == set(nih["groups"])
    for k, name in enumerate(nih["names"]):
        found = groups["subgroup_rates_per_label"][name]
        assert abs(found["overall"]["fpr"] - 0.2) < 0.001
        inside = np.array(nih["groups"]) == "F"
        expected = core.auroc(nih["references"][inside, k], nih["predictions"][inside, k])
        assert same(found["groups"]["F"]["auroc"], expected)


def test_nih_matched_on_another_finding(nih: dict[str, Any]) -> None:
    """Any probability can stand for context: the model's own score for effusion takes ranking from the others."""
    at = nih["names"].index("Effusion")
    context = nih["predictions"][:, at]
    rest = [k for k in range(14) if k != at]
    data = {key: nih[key][:, rest] for key in ("predictions", "references")}
    out = loaded("matched_auroc").compute(**data, context=context, clusters=nih["clusters"], n_resamples=100)
    assert out["matched_auroc_drop"] > 0
    assert out["matched_auroc_drop_ci_low"] > 0
    assert len(out["matched_auroc_pairs_per_label"]) == 13


def test_iu_reports() -> None:
    rows = _rows("iu/generated.csv.gz")
    assert len(rows) == 1334
    made, written = ([row[key] for row in rows] for key in ("generated", "reference"))
    # Groups by a coin: what the metrics say of a real system when there is nothing to find between the groups.
    coin = np.where(np.random.default_rng(0).random(len(made)) < 0.5, "F", "M")
    data = {"predictions": made, "references": written, "groups": coin, "clusters": [row["uid"] for row in rows]}
    out = loaded("cad").compute(**data, n_resamples=50)
    assert out["cad_erased"] == 0
    assert same(out["cad_omitted_mass"], core.omitted_mass(core.cad_texts(written, made, coin)))
    assert out["cad_omitted_mass"] > 0.1  # a real system leaves out much of what radiologists write
    moved = loaded("wae").compute(**data, n_resamples=50, n_null=50)
    assert same(moved["wae"], core.wae(core.cad_texts(written, made, coin)))
    assert moved["wae_ci_low"] <= moved["wae"] <= moved["wae_ci_high"]
    varied = loaded("lexical_diversity").compute(predictions=made, references=written)
    assert same(varied["lexical_diversity_self_bleu"], core.self_bleu(made))
    assert varied["lexical_diversity_template_diversity"] < 1


def test_iu_reports_by_sex() -> None:
    rows = [row for row in _rows("iu/generated.csv.gz") if row["sex_from_indication"]]
    assert len(rows) > 100
    data = {
        "predictions": [row["generated"] for row in rows],
        "references": [row["reference"] for row in rows],
        "groups": [row["sex_from_indication"] for row in rows],
        "clusters": [row["uid"] for row in rows],
    }
    out = loaded("wae").compute(**data, n_resamples=100)
    assert out["wae_groups"] == sorted(set(data["groups"]))
    assert out["wae_null_low"] < out["wae_null"] < out["wae_null_high"]
    assert 0 < out["wae_p_value"] <= 1
