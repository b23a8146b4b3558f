"""Whatever the parameters of a law, a simulated model has the truth that is promised of it, or they are refused."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from cxrhf import metrics
from cxrhf.errors import ConfigError
from cxrhf.twin.laws import DEFAULT, changed
from cxrhf.twin.models import default_ids, embedding_truth, predictions
from cxrhf.twin.people import people
from cxrhf.twin.scores import KINDS, by_finding, model_truth, score_law
from tests.refusals import refused
from tests.thinned import thinned

# Kinds that differ from ideal in one finding only.
ONLY_IN = {"shortcut": "pneumothorax", "biased": "pleural_effusion", "no_slice": "atelectasis", "blind": ""}


def rows_of(table, finding):
    part = table.filter(pl.col("finding") == finding)
    return part, *(part[name].to_numpy() for name in ("label", "logit", "pretest"))


def test_exact_probabilities_turn_only_in_far_tails():
    grid = np.linspace(-8, 10, 5001)
    for law in by_finding(DEFAULT).values():
        scored = score_law(law, "ideal")
        exact = scored.posterior(grid)
        falling = grid[1:][np.diff(exact) < 0]
        assert not len(falling) or scored.positive.above(falling[0]) < 1e-4
        until = grid < (falling[0] - 0.5 if len(falling) else np.inf)
        assert scored.rising(grid)[until] == pytest.approx(exact[until], abs=1e-4)
        assert (np.diff(scored.rising(np.linspace(-1000, 1000, 9001))) > 0).all()


ODD = [
    ("cardiomegaly", {"g": 2.0, "eta": 2.0}),  # without the chart positives score lower than negatives
    ("cardiomegaly", {"eta": 1.5}),  # and here the same
    ("cardiomegaly", {"d0": -1.0, "m": 0.3}),
    ("edema", {"pi": 0.7, "g": 0.0, "d0": 3.0}),
    ("atelectasis", {"gap": 4.0}),
    ("atelectasis", {"gap": -3.0, "share": 0.4}),
    ("atelectasis", {"share": 0.0}),
    ("atelectasis", {"share": 0.95}),
    ("pneumothorax", {"effect": 4.0}),
    ("pneumothorax", {"effect": -4.0}),
    ("pneumothorax", {"drains": {("F", 0): 0.0, ("F", 1): 1.0, ("M", 0): 0.6, ("M", 1): 0.2}}),
    ("pleural_effusion", {"shift": 3.0}),
]


@pytest.mark.parametrize(("finding", "parameters"), thinned(ODD, ODD[::2]), ids=str)
def test_truth_of_odd_parameters(finding, parameters):
    laws = tuple(law for law in changed(finding, **parameters) if law.finding == finding)
    made = people(24_000, seed=11, findings=laws)
    ids = default_ids(made).unique("patient_id", keep="first", maintain_order=True)
    at = made.findings.index(finding)
    for model in KINDS:
        if ONLY_IN.get(model, finding) != finding:
            continue
        true = model_truth(laws, model)[finding]
        part, y, odds, _ = rows_of(pl.from_arrow(predictions(made, model=model, ids=ids)), finding)
        assert len(y) > 20_000
        for said in (odds, part["prob"].to_numpy()):
            found = metrics.delong(y, said)
            assert found.value == pytest.approx(true["standard"], abs=4 * found.se + 1e-4), model
        loss = (part["prob"].to_numpy() - y) ** 2
        assert loss.mean() == pytest.approx(true["brier"], abs=4 * loss.std() / np.sqrt(len(y)) + 1e-5), model
        reached = metrics.sensitivity_at_specificity(y, odds).sensitivity
        assert reached == pytest.approx(true["sensitivity"], abs=0.04), model
        false_alarms = (part["prob"].to_numpy()[y == 0] >= true["threshold_prob"]).mean()
        assert 1 - false_alarms == pytest.approx(true["threshold_specificity"], abs=0.015), model
        if model == "ideal":
            shown = made.s[ids["image"].to_numpy(), at]
            assert (np.diff(odds[np.argsort(shown)]) > 0).all()
        for sex, value in true.get("by_sex", {}).items():
            rows = (part["sex"] == sex).to_numpy()
            assert metrics.auroc(y[rows], odds[rows]) == pytest.approx(value, abs=0.03), model
        if "calibration" in true:
            line = metrics.calibration_line(y, part["prob"])
            assert (line.slope, line.in_the_large) == pytest.approx(
                (true["calibration"]["slope"], true["calibration"]["in_the_large"]), abs=0.15
            )
            error = true["calibration"]["adaptive_calibration_error"]
            assert error is None or metrics.adaptive_calibration_error(y, part["prob"]) == pytest.approx(
                error, abs=0.02
            )
    json.dumps(embedding_truth(laws), allow_nan=False)


@pytest.mark.parametrize(
    ("finding", "parameters", "named"),
    [
        ("atelectasis", {"share": 1.0}, "share"),
        ("atelectasis", {"share": -0.1}, "share"),
        ("atelectasis", {"gap": np.nan}, "gap"),
        ("edema", {"g": np.inf}, "edema: g"),
        ("pneumothorax", {"drains": {("F", 0): 1.5}}, "drains"),
    ],
)
def test_parameters_without_a_truth_are_refused(finding, parameters, named):
    with refused(ConfigError, named):
        model_truth(changed(finding, **parameters))
