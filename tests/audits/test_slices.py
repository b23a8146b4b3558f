"""Slices: D2's is found, confirmed and described by its attribute; its nulls confirm nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from cxrhf.audits.material import Material, confirmation_half
from cxrhf.audits.plan import AuditOutput, run_audits
from cxrhf.schema import ATTRIBUTE, EMBEDDING
from cxrhf.tables.checks import arrays, check
from cxrhf.twin.planted_groups import Null, PlantedSlices, rare_misses, slices
from tests.audits.tables import block, settings
from tests.real_data import real_data
from tests.thinned import thinned


def material(
    made: PlantedSlices, *, extra: dict[str, Any] | None = None, rows: Any = None
) -> tuple[pa.Table, Material]:
    """D2 as tables: predictions with a random sex and view, vectors, and the hidden attribute."""
    n = len(made.y)
    rng = np.random.default_rng([n, 5])
    table = block(
        "atelectasis", made.y, made.patient, prob=made.prob, sex=rng.choice(["F", "M"], n),
        view=rng.choice(["AP", "PA"], n),
    )  # fmt: skip
    ids = table["image_id"].to_pylist()
    flat = pa.array(made.embedding.astype(np.float32).ravel())
    ends = pa.array(np.arange(0, made.embedding.size + 1, made.embedding.shape[1], dtype=np.int32))
    vectors = pa.table({"image_id": ids, "model": ["net"] * n, "vector": pa.ListArray.from_arrays(ends, flat)})
    values = {"hidden": made.hidden, "coin": rng.integers(0, 2, n), **(extra or {})}
    attributes = pa.concat_tables(
        [
            pa.table({"image_id": ids, "name": [name] * n, "value": np.asarray(each).astype(int).astype(str)})
            for name, each in values.items()
        ]
    )
    embeddings = check(vectors, EMBEDDING)
    if rows is not None:
        table, embeddings = table.take(rows), embeddings.take(rows[::-1])
    return table, Material(embeddings=embeddings, attributes=check(attributes, ATTRIBUTE))


def audited(made: PlantedSlices, *, seed: int = 0, rows: Any = None, **options: Any) -> AuditOutput:
    table, beside = material(made, rows=rows)
    options = {"only": ("slices",), "n_resamples": 100, "seed": seed} | options
    return run_audits(table, settings(**options), material=beside)


def confirmed(output: AuditOutput) -> list[dict[str, Any]]:
    return [row for row in output.results.to_pylist() if row["metric"] == "confirmed" and row["value"] == 1]


@pytest.fixture(scope="module")
def planted() -> PlantedSlices:
    return slices(3000, seed=1)


@pytest.fixture(scope="module")
def found(planted: PlantedSlices) -> AuditOutput:
    return audited(planted)


def test_the_planted_slice_is_found_confirmed_and_described(found: AuditOutput, planted: PlantedSlices) -> None:
    rows = found.results.to_pylist()
    (worst,) = [row for row in rows if row["metric"] == "worst" and "positive" in row["slice"]]
    stands = confirmed(found)
    assert {row["slice"].partition(" & ")[2] for row in stands} <= {"hidden=1", "hidden=0"}
    assert f"{worst['slice']} & hidden=1" in {row["slice"] for row in stands}
    assert worst["slice"] == "mixture:positive:1"  # numbered by error
    row = next(row for row in stands if row["slice"] == f"{worst['slice']} & hidden=1")
    assert row["p_value"] < 0.001
    assert "traits of classes" in row["method"]
    assert "hidden=1" in row["note"]
    (ratio,) = [each for each in rows if each["metric"] == "odds_ratio" and each["slice"] == row["slice"]]
    assert ratio["ci_low"] > 20
    (gap,) = [each for each in rows if each["metric"] == "brier_gap" and each["slice"] == "positive & hidden=1"]
    truth = planted.truth
    assert gap["ci_low"] < truth.brier_hidden - truth.brier_rest < gap["ci_high"]
    assert gap["versus"] == "positive & hidden=0"
    (brier,) = [each for each in rows if each["metric"] == "brier" and each["slice"] == worst["slice"]]
    assert brier["ci_low"] > truth.brier_positive
    # Precision and recall of the slice on the half that had no part in finding it, near the best there is.
    data = arrays(material(planted)[0])
    hidden = planted.hidden.astype(bool)  # images are sorted by id, as the rows are
    members = {each["image_id"] for each in found.slices.to_pylist() if each["slice"] == worst["slice"]}
    inside = np.isin(data.image_ids, sorted(members))
    held = confirmation_half(data, 0)
    assert (inside & hidden & held).sum() / (inside & held).sum() > truth.precision - 0.08
    assert (inside & hidden & held).sum() / (hidden & held).sum() > truth.recall - 0.08


@pytest.mark.parametrize("null", thinned(["blind", "score", "harmless"], ["score"]))
def test_the_nulls_confirm_nothing(null: Null) -> None:
    for seed in range(3):
        assert not confirmed(audited(slices(1500, null=null, seed=seed), n_resamples=50))


@pytest.mark.slow
@pytest.mark.parametrize("null", ["blind", "score", "harmless"])
def test_at_most_six_of_fifty_nulls_confirm_anything(null: Null) -> None:
    false = sum(bool(confirmed(audited(slices(3000, null=null, seed=seed), n_resamples=50))) for seed in range(50))
    print(f"\n{null}: {false} of 50 confirm something")
    assert false <= 6


def audited_nulls(y: Any, prob: Any, patient: Any, seed: int) -> list[dict[str, Any]]:
    """What is confirmed of random attributes of `patient`s that vectors show."""
    number = np.unique(patient, return_inverse=True)[1]
    _, first = np.unique(number, return_index=True)
    shown, traits = rare_misses(np.asarray(prob)[first], seed=seed)
    truth = PlantedSlices(y, np.zeros(len(y)), prob, shown[number], traits["random 0.5%"][number], patient, None)  # type: ignore[arg-type]
    table, beside = material(truth, extra={name: has[number] for name, has in traits.items()})
    output = run_audits(table, settings(only=("slices",), n_resamples=50, seed=seed), material=beside)
    return confirmed(output)


def skewed_errors(n: int, seed: int) -> tuple[Any, Any]:
    """Labels and probabilities of which 1% are far off."""
    rng = np.random.default_rng([seed, 12])
    y = (rng.random(n) < 0.3).astype(int)
    error = np.where(rng.random(n) < 0.01, 0.95, 0.05) * rng.random(n)
    return y, np.where(y == 1, 1 - error, error)


def test_random_attributes_confirm_nothing_where_misses_are_rare() -> None:
    for seed in range(3):
        y, prob = skewed_errors(2000, seed)
        assert not audited_nulls(y, prob, np.arange(2000), seed)


@pytest.mark.slow
def test_at_most_six_of_fifty_confirm_random_attributes_where_misses_are_rare() -> None:
    false = 0
    for seed in range(50):
        y, prob = skewed_errors(3000, seed)
        false += bool(audited_nulls(y, prob, np.arange(3000), seed))
    print(f"\nrare misses: {false} of 50 confirm something")
    assert false <= 6


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("label", ["Pneumothorax", "Effusion", "Cardiomegaly"])
def test_at_most_six_of_fifty_confirm_random_attributes_of_real_errors(label: str) -> None:
    real = pl.read_csv(real_data("nih/predictions.csv.gz"))
    y, prob, patient = (real[name].to_numpy() for name in (label, f"prob_{label}", "patient_id"))
    false = sum(bool(audited_nulls(y, prob, patient, seed)) for seed in range(50))
    print(f"\n{label}: {false} of 50 confirm something")
    assert false <= 6


def test_numbers_are_those_of_the_held_out_patients(found: AuditOutput, planted: PlantedSlices) -> None:
    data = arrays(material(planted)[0])
    held = dict(zip(data.image_ids.tolist(), confirmation_half(data, 0).tolist(), strict=True))
    members = found.slices.to_pylist()
    assert all((each["half"] == "confirm") == held[each["image_id"]] for each in members)
    error = dict(zip(data.image_ids.tolist(), ((data.y - data.p) ** 2)[:, 0].tolist(), strict=True))
    for row in found.results.to_pylist():
        if row["metric"] == "brier":
            own = [error[m["image_id"]] for m in members if m["slice"] == row["slice"] and m["half"] == "confirm"]
            assert row["value"] == pytest.approx(np.mean(own))
            assert row["n"] == len(own)
            assert row["ci_low"] < row["value"] < row["ci_high"]
    shares = [
        row["value"] for row in found.results.to_pylist() if row["metric"] == "share" and "positive" in row["slice"]
    ]
    assert sum(shares) <= 1 + 1e-9


@pytest.mark.slow
def test_weights_are_not_used_and_one_of_three_values_stands_against_both_others() -> None:
    """`size=1` against `size=0` would be another comparison than `size=1` against all others."""
    made = slices(800, seed=1)
    table, beside = material(made, extra={"size": np.where(made.hidden == 1, 1, 2 * (np.arange(800) % 2))})
    weight = pa.array(np.random.default_rng(0).choice([1.0, 3.0], len(table)))
    weighted = table.set_column(table.schema.get_field_index("weight"), table.schema.field("weight"), weight)
    one, two = (run_audits(each, settings(50, only=("slices",)), material=beside) for each in (table, weighted))
    rows = [[row for row in each.results.to_pylist() if row["metric"] != "seconds"] for each in (one, two)]
    assert rows[0] == rows[1]
    assert any("ignore the weight column" in note for note in two.notes)
    gaps = {row["slice"]: row["versus"] for row in rows[0] if row["metric"] == "brier_gap"}
    assert gaps["positive & size=1"] == "positive & not size=1"
    assert gaps["positive & hidden=1"] == "positive & hidden=0"


@pytest.mark.slow
def test_rows_do_not_depend_on_their_order(found: AuditOutput, planted: PlantedSlices) -> None:
    other = audited(planted, rows=np.random.default_rng(3).permutation(len(planted.y)))
    timed = lambda rows: [row for row in rows if row["metric"] != "seconds"]  # noqa: E731
    assert timed(found.results.to_pylist()) == timed(other.results.to_pylist())


def test_no_image_is_named_outside_the_tables_of_images(found: AuditOutput) -> None:
    text = str(found.results.to_pylist()) + str(found.notes) + str(found.curves.to_pylist())
    assert "secret" not in text


@pytest.mark.slow
def test_the_recipe_paper_confirms_nothing() -> None:
    output = audited(slices(1200, seed=1), slice_recipe="paper")
    assert not [row for row in output.results.to_pylist() if row["metric"] == "confirmed"]
    assert any("nothing is confirmed" in note for note in output.notes)
    assert [row for row in output.results.to_pylist() if row["metric"] == "odds_ratio" and "hidden=1" in row["slice"]]


@pytest.mark.slow
def test_long_vectors_are_reduced_and_still_show_the_slice() -> None:
    made = slices(3000, seed=4)
    rng = np.random.default_rng(0)
    # What the network hands over: label, slice and much else, turned into 200 numbers.
    wide = np.concatenate([made.embedding, made.logit[:, None], rng.standard_normal((3000, 23))], axis=1)
    vectors = np.tanh(wide @ rng.standard_normal((wide.shape[1], 200)) / 6)
    long = PlantedSlices(made.y, made.logit, made.prob, vectors, made.hidden, made.patient, made.truth)
    output = audited(long, reduce=32)
    assert any("hidden=" in row["slice"] for row in confirmed(output))


def test_few_images_and_scores_that_are_no_probabilities_are_said() -> None:
    few = slices(80, seed=0)
    output = audited(few)
    assert not [row for row in output.results.to_pylist() if row["metric"] == "brier"]
    assert any("too few" in note or "are needed" in note for note in output.notes)
    table, beside = material(slices(300, seed=0))
    scored = table.drop_columns(["prob"]).append_column("prob", pa.nulls(len(table), pa.float64()))
    scored = scored.set_column(
        scored.schema.get_field_index("logit"), "logit", pa.array(np.linspace(-3, 3, len(table)))
    )
    output = run_audits(scored.select(table.column_names), settings(only=("slices",)), material=beside)
    assert any("not probabilities" in note for note in output.notes)


@pytest.mark.slow
def test_all_methods_go_through_the_same_door() -> None:
    output = audited(slices(800, seed=2), slice_methods=("all",), n_resamples=50)
    rows = output.results.to_pylist()
    methods = {row["slice"].partition(":")[0] for row in rows if row["metric"] == "n_slices"}
    assert len(methods) == 9
    said = [row["note"] for row in rows if row["metric"] == "n_slices"]
    assert all(said)
