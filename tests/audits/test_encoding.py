"""The encoding audit: planted axes are read with their AUROC, blind vectors give nothing, and the words fit both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy.special import expit, ndtr

from cxrhf import metrics
from cxrhf.audits import split as encoding_sides
from cxrhf.audits import split as linear_probe
from cxrhf.audits.encoding import encoding, verdict_rows
from cxrhf.audits.material import Material
from cxrhf.audits.plan import run_audits
from cxrhf.audits.rows import AuditPart
from cxrhf.audits.split import fold_patients, learn_layer, to_principal_axes
from cxrhf.errors import TableError
from cxrhf.schema import IMAGE, RESULT
from cxrhf.tables.checks import check, table_of
from cxrhf.twin.models import embedding_truth, embeddings, predictions
from cxrhf.twin.people import people
from tests.audits.embedded import vectors
from tests.audits.tables import block, settings
from tests.refusals import refused


class Found:
    """Rows of the audit by metric, finding, model and versus."""

    def __init__(self, part: AuditPart) -> None:
        self.rows, self.notes = part.rows, "\n".join(part.notes)
        table_of([{k: v for k, v in row.items() if k != "kept"} for row in part.rows], RESULT)

    def __call__(self, metric: str, finding: str | None, model: str | None = "net", versus: str | None = None) -> Any:
        key = (metric, finding, model, versus)
        (row,) = [row for row in self.rows if (row["metric"], row["finding"], row["model"], row["versus"]) == key]
        return row

    def having(self, **wanted: Any) -> list[Any]:
        return [row for row in self.rows if all(row[name] == value for name, value in wanted.items())]


def found_in(table: pa.Table, n_resamples: int = 200, seed: int = 0, **material: Any) -> Found:
    return Found(encoding(Material(**material), table, settings(n_resamples, seed=seed), 1, lambda _: None))


def crowd(n: int = 1500, seed: int = 0, **given: Any) -> tuple[pa.Table, dict[str, Any], np.ndarray]:
    """Predictions of one finding, who is there, and noise of 12 dimensions; images of one patient look alike."""
    rng = np.random.default_rng(seed)
    n_patients = n * 2 // 3
    patient = rng.integers(0, n_patients, n)
    who: dict[str, Any] = {
        "sex": rng.choice(["F", "M"], n_patients)[patient],
        "race": rng.choice(["Asian", "Black", "White"], n_patients, p=[0.25, 0.25, 0.5])[patient],
        "view": rng.choice(["AP", "PA"], n),
        "age": rng.uniform(20, 80, n_patients)[patient],
    } | given
    noise = (rng.standard_normal((n_patients, 12))[patient] + rng.standard_normal((n, 12))) / np.sqrt(2)
    y = (rng.random(n) < 0.3).astype(float)
    columns = {name: value for name, value in who.items() if value is not None}
    return block("edema", y, patient, prob=expit(y + rng.standard_normal(n)), **columns), who, noise


def seen(who: dict[str, Any], noise: np.ndarray, far: float = 1.5) -> np.ndarray:
    """Axis 1 moved by the sex, axis 2 by one race, axis 4 by the view."""
    out = noise.copy()
    out[:, 1] += far * (who["sex"] == "M")
    out[:, 2] += far * (who["race"] == "Black")
    out[:, 4] += far * (who["view"] == "AP")
    return out


# ---------------------------------------------------------------- planted truth and null


@pytest.mark.parametrize("parted", ["halves", "splits"])
def test_a_moved_axis_is_read_with_its_auroc(parted) -> None:
    table, who, noise = crowd(6000)
    if parted == "splits":
        number = np.array([int(each[-5:]) for each in table["patient_id"].to_pylist()])
        split = pa.array(np.where(number % 2, "train", np.where(number % 4, "validate", "test")))
        table = table.set_column(table.schema.get_field_index("split"), table.schema.field("split"), split)
    found = found_in(table, embeddings=vectors(table, seen(who, noise)))
    truth = float(ndtr(1.5 / np.sqrt(2)))
    for name in ("sex=F", "view=AP", "race=Black"):
        row = found("split_auroc", name)
        assert row["ci_low"] - 0.01 < truth < row["ci_high"] + 0.015, name  # a layer of 12 axes loses a little
        assert row["ci_high"] - row["ci_low"] < 0.1
        assert (row["higher_is_better"], row["p_value"], row["slice"]) == (None, None, "all")
        at_best = 2 * float(ndtr(0.75)) - 1  # half way between the means
        assert found("split_j", name)["value"] == pytest.approx(at_best, abs=0.07)
        assert found("split_tpr", name)["value"] - found("split_fpr", name)["value"] == pytest.approx(
            found("split_j", name)["value"], abs=1e-12
        )
    assert found("split_auroc", "age_band")["ci_low"] < 0.5 < found("split_auroc", "age_band")["ci_high"]
    said = "the split train, evaluated on the split test" if parted == "splits" else "one half, evaluated on the other"
    assert said in row["method"]
    assert not [row for row in found.rows if row["finding"] in ("sex", "sex=M") and row["metric"] != "verdict"]
    mean = np.mean([found("split_auroc", f"race={name}")["value"] for name in ("Asian", "Black", "White")])
    assert found("split_auroc", "race")["value"] == pytest.approx(mean, abs=1e-12)
    assert found("split_auroc", "race")["note"] == "mean of 3 classes, each against the rest"


def test_the_twin_is_read_and_its_blind_model_is_not() -> None:
    twin = people(700, seed=2)
    truth = embedding_truth()["penultimate"]
    found = found_in(predictions(twin), embeddings=embeddings(twin))
    for axis, name in (("axis 1", "sex=F"), ("axis 2", "race=black"), ("axis 4", "view=AP")):
        row = found("split_auroc", name, "ideal")
        assert row["value"] > truth[axis]["auroc"] - 0.05, name
        assert row["ci_low"] > 0.6
    assert found("split_auroc", "age_band", "ideal")["ci_low"] > 0.6
    for target in ("sex", "race", "view", "age_band"):
        assert "scenario B" in found("verdict", target, None)["note"]
    blind = found_in(predictions(twin, model="blind"), embeddings=embeddings(twin, null="blind"))
    for target, name in (("sex", "sex=F"), ("race", "race"), ("view", "view"), ("age_band", "age_band")):
        row = blind("split_auroc", name, "blind")
        assert row["ci_low"] < 0.5 < row["ci_high"]
        assert "scenario A" in blind("verdict", target, None)["note"]


def missed(seeds: range) -> tuple[int, int]:
    """Null intervals that leave out .5, and all of them."""
    rows = []
    for seed in seeds:
        table, _, noise = crowd(300, seed, age=None)
        part = found_in(table, 150, seed, embeddings=vectors(table, noise))
        rows += [row for row in part.having(metric="split_auroc") if row["finding"] in ("sex=F", "view=AP", "race")]
    return sum(not row["ci_low"] <= 0.5 <= row["ci_high"] for row in rows), len(rows)


def test_intervals_of_nothing_hold_one_half() -> None:
    out, n = missed(range(20))
    assert n == 60
    assert out <= 8  # more in 1 of 400 such tests


@pytest.mark.slow
def test_intervals_of_nothing_hold_one_half_in_many() -> None:
    """Of 400 samples 11 (sex), 14 (view) and 24 (mean of three races) intervals left out .5; 20 are allowed."""
    out, n = missed(range(100, 500))
    assert 0.02 < out / n < 0.07


def test_no_patient_is_on_both_sides() -> None:
    """A name tag is the best there is where patients are on both sides, and nothing where they are not."""
    rng = np.random.default_rng(0)
    patient = np.repeat(np.arange(300), 4)
    tag = rng.standard_normal((300, 40))[patient]
    table = block(
        "edema", np.arange(1200) % 2, patient, prob=rng.random(1200), sex=rng.choice(["F", "M"], 300)[patient]
    )
    found = found_in(table, embeddings=vectors(table, tag))
    row = found("split_auroc", "sex=F")
    assert row["ci_low"] < 0.5 < row["ci_high"]
    assert (row["n"], row["n_patients"]) == (600, 150)
    fold = fold_patients(rng.integers(0, 3, 1200), patient, 0)
    assert all(len(set(fold[patient == each])) == 1 for each in range(300))


# ---------------------------------------------------------------- the layer


@pytest.mark.parametrize(("n", "classes"), [(400, 2), (400, 3), (60, 3)])
def test_the_layer_is_scikit_learns(n, classes, monkeypatch) -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(n)
    x = (rng.standard_normal((n, 80)) * rng.uniform(0.1, 9, 80) + 3).astype(np.float32)  # 60 rows: more axes than rows
    x[:, 7] = 2.0  # a constant
    code = np.digitize(
        x[:, 0] / x[:, 0].std() + x[:, 1] / x[:, 1].std() + rng.standard_normal(n), [3, 5][: classes - 1]
    )
    monkeypatch.setattr(linear_probe, "PENALTIES", (30.0,))
    layer = learn_layer(to_principal_axes(x), code, np.arange(n), classes, 0)
    scaled = np.delete(x, 7, axis=1).astype(float)
    scaled = (scaled - scaled.mean(axis=0)) / scaled.std(axis=0)
    # Of two classes ours has two opposite outputs: their squares count twice, their difference is the log odds.
    theirs = LogisticRegression(C=(2 if classes == 2 else 1) / 30, tol=1e-9, max_iter=5000).fit(scaled, code)
    np.testing.assert_allclose(layer.probability(x), theirs.predict_proba(scaled), atol=2e-3)
    assert layer.penalty == 30.0
    assert (layer.weight[7] == 0).all()


def test_the_penalty_grows_where_there_is_nothing_to_learn() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((600, 30)).astype(np.float32)
    blind = learn_layer(to_principal_axes(x), rng.integers(0, 2, 600), np.arange(600), 2, 0)
    clear = learn_layer(to_principal_axes(x), (x[:, 0] > 0).astype(np.int64), np.arange(600), 2, 0)
    assert blind.penalty > clear.penalty
    again = np.tile(x[:3], (500, 1))  # equal vectors, equal numbers
    assert len(np.unique(clear.probability(again)[:, 0])) == 3


# ---------------------------------------------------------------- several networks


def test_differences_to_the_reference_are_paired() -> None:
    table, who, noise = crowd(1200, 2)
    rng = np.random.default_rng(0)
    good = seen(who, noise)
    tables = [
        vectors(table, good),
        vectors(table, good + rng.standard_normal(good.shape) / 4, model="twin-net"),
        vectors(table, noise, model="random"),
    ]
    found = found_in(table, embeddings=pa.concat_tables(tables))
    for name in ("sex=F", "race=Black", "race"):
        row = found("split_auroc", name, "net", "model=random")
        alone = [found("split_auroc", name, model)["value"] for model in ("net", "random")]
        assert row["value"] == pytest.approx(alone[0] - alone[1], abs=1e-12)
        assert row["ci_low"] < row["value"] < row["ci_high"]
        assert row["p_value"] is None
    assert found("split_auroc", "sex=F", "net", "model=random")["ci_low"] > 0
    assert not found.having(model="random", versus="model=random")
    # Without one called random or imagenet the first in the alphabet is the reference.
    pair = found_in(table, embeddings=pa.concat_tables(tables[:2]))
    row = pair("split_auroc", "sex=F", "twin-net", "model=net")
    own = pair("split_auroc", "sex=F", "net")
    assert row["ci_high"] - row["ci_low"] < 0.7 * (own["ci_high"] - own["ci_low"])  # alike, so paired is narrower
    same = found_in(table, embeddings=pa.concat_tables([tables[0], vectors(table, good, model="zwei")]))
    assert same("split_auroc", "sex=F", "zwei", "model=net")["value"] == 0


def test_networks_with_other_images_are_compared_on_those_they_share() -> None:
    table, who, noise = crowd(1200, 3)
    other = vectors(table, noise, model="imagenet").slice(0, 800)
    found = found_in(table, embeddings=pa.concat_tables([vectors(table, seen(who, noise)), other]))
    assert found("split_auroc", "sex=F")["n"] > found("split_auroc", "sex=F", "imagenet")["n"]
    row = found("split_auroc", "sex=F", "net", "model=imagenet")
    assert row["n"] == found("split_auroc", "sex=F", "imagenet")["n"]
    assert "compared on the" in found.notes


def test_seeds_of_one_network_are_told_apart_and_order_does_not_matter() -> None:
    table, who, noise = crowd(600, 4)
    both = pa.concat_tables([vectors(table, seen(who, noise), seed=k) for k in (1, 0)])
    found = found_in(table, 60, embeddings=both)
    assert found("split_auroc", "sex=F", "net (seed 1)", "model=net (seed 0)")["value"] == 0
    runs = table.set_column(table.schema.get_field_index("seed"), "seed", pa.array([1] * 600))
    runs = pa.concat_tables([runs, runs.set_column(table.schema.get_field_index("seed"), "seed", pa.array([0] * 600))])
    one = found_in(runs, 60, embeddings=vectors(table, seen(who, noise), seed=1))  # named as the predictions are
    assert one("split_auroc", "sex=F", "net (seed 1)")["value"] > 0.5
    assert one("tasks", None, "net (seed 0)")["note"] == "single task: findings"
    order = np.random.default_rng(0).permutation(1200)
    moved = found_in(table.take(pa.array(np.arange(600)[::-1])), 60, embeddings=both.take(pa.array(order)))
    assert len(moved.rows) == len(found.rows)
    for one, other in zip(found.rows, moved.rows, strict=True):
        for name in ("metric", "model", "finding", "versus", "note", "n"):
            assert one[name] == other[name]
        for name in ("value", "ci_low", "ci_high"):
            assert other[name] is None if one[name] is None else other[name] == pytest.approx(one[name], abs=1e-9)


# ---------------------------------------------------------------- own outputs, multitask, probes


def outputs(table: pa.Table, who: dict[str, Any], model: str, far: float, seed: int = 0) -> pa.Table:
    """Characteristics rows of sex (two classes) and race (three) with scores that are `far` apart."""
    rng = np.random.default_rng(seed)
    columns = {
        name: np.array(table[name].to_pylist()) for name in ("sex", "race", "view", "split") if table[name][0].is_valid
    }
    patient = [int(each[-5:]) for each in table["patient_id"].to_pylist()]
    made = []
    for name in ("sex=F", "sex=M", "race=Asian", "race=Black", "race=White"):
        target, _, value = name.partition("=")
        y = (who[target] == value).astype(float)
        prob = expit(far * y + rng.standard_normal(len(y)))
        made.append(block(name, y, patient, model=model, prob=prob, **columns))
    return pa.concat_tables(made)


def test_own_outputs_and_multitask_less_single_task() -> None:
    table, who, _ = crowd(1500, 5)
    shared = outputs(table, who, "net", 1.0)
    alone = outputs(table, who, "sexer", 2.0, 1)
    alone = alone.filter(pc.starts_with(alone["finding"], "sex"))
    found = found_in(table, characteristics=pa.concat_tables([shared, alone]))
    one = shared.filter(pc.equal(shared["finding"], "sex=F"))
    y, p = (np.array(one[name].to_pylist(), dtype=float) for name in ("label", "prob"))
    row = found("auroc", "sex=F")
    assert row["value"] == pytest.approx(metrics.auroc(y, p), abs=1e-12)
    assert row["ci_low"] < float(ndtr(1 / np.sqrt(2))) < row["ci_high"]
    rates = metrics.rates_at(y, p, metrics.youden_threshold(y, p))
    for name in ("tpr", "fpr", "j"):
        assert found(name, "sex=F")["value"] == pytest.approx(getattr(rates, name), abs=1e-12)
        assert "optimistic" in found(name, "sex=F")["note"]
        assert found(name, "sex=F")["higher_is_better"] is None
    assert found("auroc", "race")["note"] == "mean of 3 classes, each against the rest"
    less = found("auroc", "sex=F", "net", "model=sexer")
    assert less["value"] == pytest.approx(row["value"] - found("auroc", "sex=F", "sexer")["value"], abs=1e-12)
    assert less["ci_high"] < 0
    assert less["p_value"] < 0.05
    assert not found.having(finding="race", versus="model=sexer")
    assert found("tasks", None)["note"] == "multitask: findings, race, sex"
    assert found("tasks", None)["value"] == 3
    assert found("tasks", None, "sexer")["note"] == "single task: sex"
    assert "see compare" in found.notes
    assert not found.having(metric="verdict")


def test_weights_of_findings_do_not_weigh_characteristics() -> None:
    table, who, _ = crowd(600, 5)
    own = outputs(table, who, "net", 1.0)
    weight = pa.array(np.random.default_rng(0).choice([1.0, 9.0], len(own)))
    weighted = own.set_column(own.schema.get_field_index("weight"), own.schema.field("weight"), weight)
    one, two = (found_in(table, 60, characteristics=each)("auroc", "sex=F") for each in (own, weighted))
    for name in ("value", "ci_low", "ci_high", "method"):
        assert one[name] == two[name]


def test_thresholds_come_from_the_validation_split() -> None:
    table, who, _ = crowd(1500, 6)
    number = np.array([int(each[-5:]) for each in table["patient_id"].to_pylist()])
    split = np.where(number % 3 == 0, "validate", "test")
    table = table.set_column(table.schema.get_field_index("split"), table.schema.field("split"), pa.array(split))
    own = outputs(table, who, "net", 1.0)
    found = found_in(table, characteristics=own)
    one = own.filter(pc.equal(own["finding"], "sex=F"))
    y, p = (np.array(one[name].to_pylist(), dtype=float) for name in ("label", "prob"))
    held, test = split == "validate", split == "test"
    at = metrics.youden_threshold(y[held], p[held])
    row = found("tpr", "sex=F")
    assert row["value"] == pytest.approx(metrics.rates_at(y[test], p[test], at).tpr, abs=1e-12)
    assert (row["n"], row["note"]) == (test.sum(), None)
    assert "in the validation split" in row["method"]


def test_probes_are_taken_over_unless_measured_here() -> None:
    table, who, noise = crowd(600, 7)
    probe = dict.fromkeys(RESULT.names) | {
        "audit": "split", "metric": "auroc", "model": "random", "finding": "sex=F", "slice": "all", "value": 0.7,
        "ci_low": 0.65, "ci_high": 0.75, "method": "one linear layer, Adam", "dataset": None,
    }  # fmt: skip
    twice = probe | {"model": "net", "value": 0.1}
    found = found_in(table, 60, embeddings=vectors(table, seen(who, noise)), probes=[probe, twice])
    row = found("split_auroc", "sex=F", "random")
    assert (row["audit"], row["value"], row["method"]) == ("encoding", 0.7, "one linear layer, Adam")
    assert found("split_auroc", "sex=F")["value"] > 0.5
    assert "encoding: net: SPLIT from cxrhf probe and from embeddings" in found.notes
    assert found("tasks", None, "random")["note"] == "frozen: embeddings only"
    note = found("verdict", "sex", None)["note"]
    assert "random (AUROC 0.70, 0.65 to 0.75) reaches less" in note
    alone = found_in(table, probes=[probe])
    note = alone("verdict", "sex", None)["note"]
    assert "never trained on X-rays" in note
    assert "scenario" not in note


# ---------------------------------------------------------------- words


def value(model: str, auroc: float, low: float, high: float, finding: str = "sex=F") -> dict[str, Any]:
    return dict.fromkeys(RESULT.names) | {
        "metric": "split_auroc", "model": model, "finding": finding, "value": auroc, "ci_low": low, "ci_high": high,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "said", "unsaid"),
    [
        ([value("net", 0.9, 0.88, 0.92)], ["scenario B", "C (", "none is available here"], ["scenario A"]),
        (
            [value("net", 0.9, 0.88, 0.92), value("imagenet", 0.9, 0.87, 0.93)],
            ["imagenet (AUROC 0.90, 0.87 to 0.93) reaches about as much", "hint"],
            ["reaches less"],
        ),
        ([value("net", 0.51, 0.48, 0.54)], ["scenario A"], ["scenario B", "hint"]),
        ([value("net", 0.55, 0.4, 0.7)], ["too few patients"], ["scenario"]),
        (
            [value("net", 0.5, 0.48, 0.52), value("other", 0.7, 0.6, 0.8)],
            ["from net (AUROC 0.50, 0.48 to 0.52). This is scenario A", "can be read from other"],
            [],
        ),
        ([value(f"net{k}", 0.7 + k / 100, 0.6, 0.8) for k in range(6)], ["6 networks (AUROC 0.70 to 0.75)"], ["net3"]),
        ([value("net", 0.8, 0.7, 0.9, "race"), value("net", 0.9, 0.8, 1.0, "race=Black")], ["AUROC 0.80"], ["0.90 ("]),
        ([value("net", 0.8, 0.7, 0.9, "edema")], [], []),
        ([value("net", np.nan, np.nan, np.nan)], [], []),
    ],
)
def test_verdicts_say_what_split_can_and_cannot_say(rows, said, unsaid) -> None:
    found = verdict_rows(rows, 0)
    assert len(found) == bool(said)
    for row in found:
        assert all(text in row["note"] for text in said), row["note"]
        assert not any(text in row["note"] for text in unsaid), row["note"]
        assert row["model"] is None
        assert np.isfinite(row["value"])


# ---------------------------------------------------------------- gaps in the tables


def test_what_is_missing_is_said() -> None:
    sex = np.full(600, "F")
    race = np.where(np.arange(600) % 2, "Black", "Unknown")
    age = np.where(np.arange(600) < 580, 50.0, 10.0)
    table, _, noise = crowd(600, 8, sex=sex, race=race, age=age, view=None)
    found = found_in(table, 60, embeddings=vectors(table, noise))
    for target in ("sex", "race", "age_band"):
        assert f"no SPLIT for {target}: fewer than two classes have 10 patients" in found.notes
    assert "no SPLIT for view: no image" in found.notes
    assert [row["metric"] for row in found.rows] == ["tasks"]
    assert "secret" not in found.notes


def test_images_of_the_build_tell_who_teaches() -> None:
    """Predictions of the split test alone; the training images have vectors, and the build says who they are."""
    table, who, noise = crowd(1500, 9)
    number = np.array([int(each[-5:]) for each in table["patient_id"].to_pylist()])
    split = np.where(number % 2, "train", "test")
    (twice,) = np.flatnonzero(np.bincount(number[split == "test"]) > 1)[:1]
    split[np.flatnonzero(number == twice)[0]] = "train"  # an image of a patient who is in the split test
    images = check(
        pa.table({name: table[name] for name in ("image_id", "patient_id", "sex", "race", "view", "age")} | {
            "split": pa.array(split), "dataset": ["hospital"] * 1500}), IMAGE,
    )  # fmt: skip
    asked = table.filter(pa.array(split == "test"))
    found = found_in(asked, embeddings=vectors(table, seen(who, noise)), images=images)
    row = found("split_auroc", "sex=F")
    assert row["n"] == (split == "test").sum()
    assert row["dataset"] is None
    assert "the split train, evaluated on the split test" in row["method"]
    assert "1 training images" in found.notes
    alone = found_in(asked, embeddings=vectors(table, seen(who, noise)))
    assert "images with embeddings are in no table" in alone.notes
    assert "one half, evaluated on the other" in alone("split_auroc", "sex=F")["method"]


def test_many_training_images_are_cut(monkeypatch) -> None:
    table, who, noise = crowd(1500, 10)
    number = np.array([int(each[-5:]) for each in table["patient_id"].to_pylist()])
    split = pa.array(np.where(number % 2, "train", "test"))
    table = table.set_column(table.schema.get_field_index("split"), table.schema.field("split"), split)
    monkeypatch.setattr(encoding_sides, "MOST_IMAGES", 300)
    row = found_in(table, embeddings=vectors(table, seen(who, noise)))("split_auroc", "sex=F")
    assert "fitted on 300 images of" in row["method"]
    assert row["ci_low"] > 0.75


def test_datasets_are_looked_at_one_by_one() -> None:
    parts = []
    for name, seed in (("here", 0), ("there", 1)):
        table, who, noise = crowd(500, seed)
        renamed = pa.array([f"{name}-{each}" for each in table["image_id"].to_pylist()])
        table = table.set_column(0, "image_id", renamed)
        column = pa.array([name] * 500)
        table = table.set_column(table.schema.get_field_index("dataset"), table.schema.field("dataset"), column)
        parts.append((check(table, table.schema), vectors(table, seen(who, noise) if name == "here" else noise)))
    tables, made = (pa.concat_tables(each) for each in zip(*parts, strict=True))
    found = found_in(tables, 60, embeddings=made)
    rows = {row["dataset"]: row for row in found.having(metric="split_auroc", finding="sex=F")}
    assert set(rows) == {"here", "there"}
    assert rows["here"]["ci_low"] > 0.7
    assert rows["there"]["ci_low"] < 0.6
    assert len(found.having(metric="verdict", finding="sex")) == 2


def test_tables_that_contradict_each_other_are_errors() -> None:
    table, _, noise = crowd(300, 11)
    made = vectors(table, noise)
    with refused(TableError, "embeddings", "net", fix="one row"):
        found_in(table, embeddings=pa.concat_tables([made, made.slice(0, 1)]))
    wrong = table.set_column(
        table.schema.get_field_index("patient_id"), table.schema.field("patient_id"), pa.array(["somebody"] * 300)
    )
    with refused(TableError, "encoding", "two patients", fix="image ids"):
        found_in(table, embeddings=made, characteristics=wrong)
    none = vectors(table, noise, finding="edema")
    assert "none is of the penultimate layer" in found_in(table, embeddings=none).notes


def test_the_audit_runs_with_the_others() -> None:
    table, who, noise = crowd(600, 12)
    said: list[str] = []
    config = settings(60, only=("overview", "encoding"))
    out = run_audits(table, config, said.append, material=Material(embeddings=vectors(table, seen(who, noise))))
    rows = [row for row in out.results.to_pylist() if row["audit"] == "encoding"]
    assert {row["metric"] for row in rows} == {"split_auroc", "split_tpr", "split_fpr", "split_j", "tasks", "verdict"}
    assert all(np.isfinite(row["value"]) for row in rows)
    assert "net: encoding, a new layer for sex" in said
    assert not any(row["audit"] == "encoding" for row in run_audits(table, config).results.to_pylist())
