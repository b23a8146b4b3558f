"""Simulated embeddings know what is stated of them, and their nulls know nothing."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from cxrhf import metrics
from cxrhf.errors import ConfigError
from cxrhf.twin.models import ENCODED, FINDING_AXES, NULLS, default_ids, embedding_truth, embeddings, predictions
from cxrhf.twin.scores import hidden_slice, model_truth


@pytest.fixture(scope="module")
def tables(crowd, ids):
    return {model: pl.from_arrow(predictions(crowd, model=model, ids=ids)) for model in ("ideal", "no_slice")}


def rows_of(table, finding):
    part = table.filter(pl.col("finding") == finding)
    return part, *(part[name].to_numpy() for name in ("label", "logit", "pretest"))


def slice_of(crowd, ids):
    return hidden_slice(crowd, crowd.findings.index("atelectasis"))[ids["image"].to_numpy()]


def vectors_of(crowd, ids, finding, **options):
    table = pl.from_arrow(embeddings(crowd, ids=ids, **options))
    assert table["vector"].list.len().unique().to_list() == [16]
    part = table.filter(pl.col("finding").is_null() if finding is None else pl.col("finding") == finding)
    assert part["image_id"].equals(ids["image_id"])
    return part["vector"].list.to_array(16).to_numpy()


def test_slice_axis_and_its_nulls(crowd, ids, tables):
    truth = embedding_truth()["slice"]
    _, y, _, _ = rows_of(tables["ideal"], "atelectasis")
    hidden = slice_of(crowd, ids)
    vectors = vectors_of(crowd, ids, "atelectasis")
    cut = 2 + np.log(0.9 / 0.1) / 4
    found = (vectors[:, 0] > cut) & (y == 1)
    assert hidden[found].mean() == pytest.approx(truth["precision"], abs=0.04) == pytest.approx(0.9502, abs=0.04)
    assert found[hidden].mean() == pytest.approx(truth["recall"], abs=0.04)
    blind = vectors_of(crowd, ids, "atelectasis", null="blind")
    assert np.abs(blind[hidden].mean(axis=0)).max() < 5 / np.sqrt(hidden.sum())
    with pytest.raises(ConfigError, match="blind, score"):
        embeddings(crowd, ids=ids, null="deaf")


def probe(vectors, is_it, seed=0):
    """DeLong's AUROC of the best straight line through half of the rows, on the other half."""
    order = np.random.default_rng(seed).permutation(len(is_it))
    fit, rest = order[::2], order[1::2]
    one, zero = (vectors[fit][is_it[fit] == value] for value in (1, 0))
    spread = np.cov(one.T) * len(one) + np.cov(zero.T) * len(zero) + 1e-6 * np.eye(vectors.shape[1])
    return metrics.delong(is_it[rest], vectors[rest] @ np.linalg.solve(spread, one.mean(axis=0) - zero.mean(axis=0)))


@pytest.mark.parametrize("null", NULLS)
@pytest.mark.parametrize("finding", ["atelectasis", None])
def test_nulls_hide_no_slice(crowd, tables, null, finding):
    """Among positives nothing in the vectors tells who has the slice, and where no gap is the slice does not fail."""
    every = default_ids(crowd)
    vectors = vectors_of(crowd, every, finding, null=null)
    positive = crowd.y[:, crowd.findings.index("atelectasis")] == 1
    # One image a patient and class, so that rows are independent.
    rows = every.filter(pl.Series(positive)).unique("patient_id", keep="first", maintain_order=True)["image"].to_numpy()
    hidden = slice_of(crowd, every)[rows].astype(int)
    for found in (metrics.delong(hidden, vectors[rows, 0]), probe(vectors[rows], hidden)):
        assert found.value == pytest.approx(0.5, abs=3.5 * found.se)
        assert found.se < 0.02
    if finding is not None:
        assert probe(vectors_of(crowd, every, finding)[rows], hidden).value > 0.99  # without the null it is found
    truth = embedding_truth()["nulls"][NULLS[null]]
    assert (truth["brier_hidden"] == truth["brier_rest"]) == (null == "score")
    assert truth["precision"] is None


def test_null_of_the_score_goes_with_its_model(crowd, ids, tables):
    part, y, score, _ = rows_of(tables["no_slice"], "atelectasis")
    scored = vectors_of(crowd, ids, "atelectasis", null="score")
    again = np.tanh(score[:, None] * np.linspace(0.5, 2, 16) + np.linspace(-1, 1, 16))
    assert np.abs(scored - again).std() < 0.15
    hidden = slice_of(crowd, ids)
    assert score[hidden].mean() == pytest.approx(1.5, abs=5 / np.sqrt(hidden.sum()))
    # Clusters of these vectors differ in their Brier score all the same: that is what a null is for.
    loss, high = (part["prob"].to_numpy() - y) ** 2, scored[:, 0] > np.median(scored[y == 1, 0])
    assert loss[(y == 1) & ~high].mean() > 2 * loss[(y == 1) & high].mean()
    table = pl.from_arrow(embeddings(crowd, ids=ids, null="score"))
    assert table["model"].unique().to_list() == ["no_slice"]


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
    for axis, finding in FINDING_AXES.items():
        _, y, _, _ = rows_of(tables["ideal"], finding)
        found = metrics.delong(y, vectors[:, axis])
        assert found.value == pytest.approx(model_truth()[finding]["standard"], abs=4 * found.se)
