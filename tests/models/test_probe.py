"""New layers on frozen networks: planted truths, nulls, a twin, and nobody on both sides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from cxrhf.errors import ConfigError, CxrhfError, LeakageError, RunError
from cxrhf.metrics.operating import youden_threshold
from cxrhf.metrics.ranking import auroc
from cxrhf.models.data import Images, Task, open_squares, targets
from cxrhf.models.probe import (
    Part,
    Probed,
    deal,
    fit_layer,
    fit_probe,
    fold_parts,
    keep_learnable_tasks,
    load_probe,
    new_backbone,
    probabilities,
    save_probe,
    scale_of,
    split_parts,
)
from cxrhf.models.probe_run import measure_outputs
from cxrhf.models.processes import make_accelerator
from cxrhf.models.settings import ProbeConfig
from cxrhf.models.step import look_at
from tests.refusals import refused

SEX = Task("sex", "classes", ("F", "M"))
RACE = Task("race", "classes", ("Asian", "Black", "White"))
EDEMA = Task("findings", "labels", ("edema",))
CONFIG = ProbeConfig("made-up", batch_size=50, learning_rate=0.01)


def people(n: int = 120, images: int = 2, seed: int = 0) -> pa.Table:
    """Patients with two images each; sex and race at random; 60/10/30."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(n), images)
    sex, race = rng.integers(0, 2, n)[who], rng.integers(0, 3, n)[who]
    split = np.where(who < 0.6 * n, "train", np.where(who < 0.7 * n, "validate", "test"))
    edema = rng.integers(0, 2, len(who)).astype(object)
    edema[rng.random(len(who)) < 0.1] = None
    return pa.table(
        {
            "image_id": [f"i{at}" for at in range(len(who))],
            "patient_id": [f"p{each}" for each in who],
            "dataset": ["made-up"] * len(who),
            "split": split,
            "sex": np.array(["F", "M"])[sex],
            "race": np.array(RACE.outputs)[race],
            "edema": pa.array(edema.tolist(), pa.int8()),
        }
    )


def vectors_of(table: pa.Table, column: str, strength: float, d: int = 20, seed: int = 1) -> np.ndarray:
    """Noise, with one axis a class that is higher for its images; axes of very different size, one constant."""
    rng = np.random.default_rng(seed)
    out = rng.normal(size=(table.num_rows, d))
    values = np.array(table[column].to_pylist())
    for at, each in enumerate(sorted(set(values))):
        out[:, at] += strength * (values == each)
    out = out * np.geomspace(1e-3, 1e3, d) + 5
    out[:, -1] = 7
    return out.astype(np.float32)


def asked(table: pa.Table, tasks: list[Task], vectors: np.ndarray, config: ProbeConfig = CONFIG, **more) -> Probed:
    goal = targets(table, tasks)
    parts = fold_parts(table, goal, config.folds, config.seed) if config.folds else split_parts(table, goal, 0)[0]
    ids = table["image_id"].to_pylist()
    return fit_probe(vectors, ids, goal, tasks, parts, config, **more)


def value(table: pa.Table, probed: Probed, output: int = 0) -> float:
    at = np.array(table["split"].to_pylist()) == "test"
    y = targets(table, list(probed.tasks))[at, output].astype(float)
    return auroc(y, probabilities(probed.logits[at], probed.tasks)[:, output])


class Drawn:
    """Grey noise; the upper left corner is brighter in pictures of women."""

    def __init__(self, bright: np.ndarray) -> None:
        self.bright = bright

    def __len__(self) -> int:
        return len(self.bright)

    def __getitem__(self, row: int) -> np.ndarray:
        grey = np.random.default_rng(row).integers(60, 120, (32, 32))
        grey[:12, :12] += 60 * int(self.bright[row])
        return grey.astype(np.uint8)


def test_planted_sex_is_read_from_pictures_and_the_network_stays_as_it_is() -> None:
    table = people()
    images = Images(table, Drawn(np.array(table["sex"].to_pylist()) == "F"))
    frozen = new_backbone("random", "test_resnet", size=32, seed=3)
    assert not frozen.model.training
    assert not any(each.requires_grad for each in frozen.model.parameters())
    before = {name: each.clone() for name, each in frozen.model.state_dict().items()}
    assert any("running_mean" in name for name in before)
    squares = open_squares(images, frozen.look, memory=1, progress=lambda _: None)
    seen = look_at(frozen.model, squares, len(images), make_accelerator(device="cpu"), batch_size=64, vectors=True)
    found = asked(table, [SEX], seen.vectors)
    after = frozen.model.state_dict()
    assert before.keys() == after.keys()
    for name, each in before.items():
        assert torch.equal(each, after[name]), name
    assert value(table, found) > 0.97

    # The same layers, learned again from the same vectors, bit for bit; and another seed's are others.
    again = asked(table, [SEX], seen.vectors)
    np.testing.assert_array_equal(again.logits, found.logits)
    assert not np.array_equal(asked(table, [SEX], seen.vectors, replace(CONFIG, seed=1)).logits, found.logits)


def test_nothing_is_read_from_nothing() -> None:
    # Patients have a face of their own: images of one patient are all but equal, and labels are dealt by patient. Who
    # recognises patients reads everything; who never saw them reads nothing.
    found = []
    for seed in range(8):
        table = people(150, images=3, seed=seed)
        rng = np.random.default_rng(seed)
        _, who = np.unique(table["patient_id"].to_pylist(), return_inverse=True)
        faces = (rng.normal(size=(150, 80))[who] + 0.01 * rng.normal(size=(450, 80))).astype(np.float32)
        everybody = table.set_column(3, "split", pa.repeat("test", 450))
        blind = asked(everybody, [SEX], faces, replace(CONFIG, folds=3, seed=seed))
        assert not np.isnan(blind.logits).any()
        found.append(value(everybody, blind))
    assert np.mean(found) == pytest.approx(0.5, abs=0.03)
    assert np.abs(np.array(found) - 0.5).max() < 0.15
    half = np.arange(450) % 2 == 0
    leaky = Part(np.flatnonzero(half), np.flatnonzero(half), np.flatnonzero(~half))
    goal = targets(table, [SEX])
    seen = fit_probe(faces, table["image_id"].to_pylist(), goal, [SEX], [leaky], CONFIG)
    assert auroc(goal[~half, 0].astype(float), seen.logits[~half, 0] - seen.logits[~half, 1]) > 0.9


def test_the_layer_is_as_good_as_a_logistic_regression() -> None:
    from sklearn.linear_model import LogisticRegression

    table = people(300)
    vectors = vectors_of(table, "race", 1.5)
    goal = targets(table, [RACE])
    part = split_parts(table, goal, 0)[0][0]
    found = asked(table, [RACE], vectors)
    mean, inverse = scale_of(vectors, part.learn)
    scaled = (vectors - mean) * inverse
    twin = LogisticRegression(max_iter=1000).fit(scaled[part.learn], goal[part.learn].argmax(axis=1))
    test = np.array(table["split"].to_pylist()) == "test"
    slow = twin.predict_proba(scaled[test])
    for k in range(3):
        y = goal[test, k].astype(float)
        ours, theirs = value(table, found, k), auroc(y, slow[:, k])
        assert theirs > 0.8
        assert ours == pytest.approx(theirs, abs=0.02)
    # Vectors a thousand times as large, or moved, are the same vectors to the layer.
    moved = asked(table, [RACE], (vectors.astype(np.float64) * 1024).astype(np.float32))
    np.testing.assert_allclose(moved.logits[test], found.logits[test], atol=2e-3)


def test_the_order_of_rows_plays_no_part() -> None:
    table = people(60)
    vectors = vectors_of(table, "sex", 1.0)
    turned = np.random.default_rng(0).permutation(table.num_rows)
    found = asked(table, [SEX], vectors)
    other = asked(table.take(turned), [SEX], vectors[turned])
    np.testing.assert_allclose(other.logits, found.logits[turned], rtol=1e-3, atol=1e-3)


def test_best_weights_are_restored_and_unknown_labels_teach_nothing() -> None:
    table = people(80)
    vectors = vectors_of(table, "sex", 0.0, d=60)  # nothing to learn: every epoch more is worse
    goal = targets(table, [SEX])
    part = split_parts(table, goal, 0)[0][0]
    ids = table["image_id"].to_pylist()
    layer = fit_layer(vectors, ids, goal, SEX, part, CONFIG)
    assert layer.facts["best_epoch"] < layer.facts["epochs"] < CONFIG.epochs
    same = fit_layer(vectors, ids, goal, SEX, part, replace(CONFIG, epochs=layer.facts["best_epoch"]))
    np.testing.assert_array_equal(same.weight, layer.weight)

    goal = targets(table, [EDEMA])
    unknown = np.flatnonzero(goal[:, 0] < 0)
    spoiled = vectors.copy()
    spoiled[unknown] *= 3  # of no consequence, as long as the scale is that of before
    first = fit_layer(vectors, ids, goal, EDEMA, part, CONFIG, scale=scale_of(vectors, part.learn))
    second = fit_layer(spoiled, ids, goal, EDEMA, part, CONFIG, scale=scale_of(vectors, part.learn))
    np.testing.assert_array_equal(first.weight, second.weight)


def test_sigmoids_before_the_last_layer() -> None:
    table = people(150)
    sex = np.array(table["sex"].to_pylist()) == "F"
    table = table.set_column(6, "edema", pa.array(sex.astype(np.int8)))
    vectors = vectors_of(table, "sex", 3.0)
    found = asked(table, [EDEMA], vectors, reduce=8)
    rows = np.array(table["split"].to_pylist()) != "train"
    inside = found.activations
    assert inside.shape == (table.num_rows, 8)
    assert np.isnan(inside[~rows]).all()
    assert ((inside[rows] >= 0) & (inside[rows] <= 1)).all()
    assert inside[rows].std() > 0.01
    layer = found.layers[0][0]
    np.testing.assert_allclose(found.logits[rows], inside[rows] @ layer.weight.T + layer.bias, atol=1e-5)
    assert value(table, found) > 0.95


def test_saved_layers_say_the_same_of_raw_vectors(tmp_path: Path) -> None:
    table = people(80)
    vectors = vectors_of(table, "sex", 1.0)
    found = asked(table, [SEX, RACE], vectors, replace(CONFIG, folds=3))
    save_probe(tmp_path / "a", found, {"name": "a"})
    layers, about = load_probe(tmp_path / "a")
    assert about["name"] == "a"
    assert len(layers) == 3
    from safetensors.torch import load_file

    tensors = load_file(tmp_path / "a" / "layers.safetensors")
    goal = targets(table, [SEX, RACE])
    for at, part in enumerate(fold_parts(table, goal, 3, 0)):
        weight, bias = tensors[f"fold-{at}.race.weight"].double(), tensors[f"fold-{at}.race.bias"].double()
        plain = torch.from_numpy(vectors[part.asked]).double() @ weight.T + bias
        np.testing.assert_allclose(plain.numpy(), found.logits[part.asked, 2:], atol=1e-4)
        np.testing.assert_array_equal(layers[at]["sex"].logits(vectors[part.asked]), found.logits[part.asked, :2])

    reduced = asked(table, [EDEMA], vectors, reduce=4)
    save_probe(tmp_path / "b", reduced, {})
    layer = load_probe(tmp_path / "b")[0][0]["findings"]
    rows = ~np.isnan(reduced.logits[:, 0])
    np.testing.assert_array_equal(layer.activations(vectors[rows]), reduced.activations[rows])
    np.testing.assert_array_equal(layer.logits(vectors[rows]), reduced.logits[rows])
    (tmp_path / "b" / "layers.safetensors").write_bytes(b"nothing")
    with refused(CxrhfError, "layers.safetensors", fix="cxrhf probe"):
        load_probe(tmp_path / "b")
    with refused(RunError, "probe.json", fix="cxrhf probe"):
        load_probe(tmp_path)


def test_folds_are_of_whole_patients_and_alike() -> None:
    table = people(101, images=3)
    goal = targets(table, [SEX, RACE])
    patients = np.array(table["patient_id"].to_pylist())
    parts = fold_parts(table, goal, 5, 0)
    assert sorted(np.concatenate([part.asked for part in parts])) == list(range(table.num_rows))
    sizes, women = [], []
    for part in parts:
        groups = [set(patients[rows]) for rows in (part.learn, part.held, part.asked)]
        assert len(set.union(*groups)) == sum(map(len, groups)) == 101
        sizes.append(len(groups[2]))
        women.append(len(set(patients[part.asked][goal[part.asked, 0] == 1])))
        assert 10 <= len(groups[1]) <= 11
    assert max(sizes) - min(sizes) <= 1
    assert max(women) - min(women) <= 1
    turned = table.take(np.random.default_rng(0).permutation(table.num_rows))
    again = fold_parts(turned, targets(turned, [SEX, RACE]), 5, 0)
    names = np.array(turned["patient_id"].to_pylist())
    for part, other in zip(parts, again, strict=True):
        assert set(patients[part.asked]) == set(names[other.asked])
    assert set(patients[fold_parts(table, goal, 5, 1)[0].asked]) != set(patients[parts[0].asked])
    with refused(ConfigError, "--folds", got="2"):
        fold_parts(table.slice(0, 9), goal[:9], 2, 0)
    assert deal(["a", "b"], np.zeros((2, 0), np.int8), 2, 0, "fold").tolist() in ([0, 1], [1, 0])


def test_splits_that_cannot_be_used() -> None:
    table = people(40)
    goal = targets(table, [SEX])
    part = split_parts(table, goal, 0)[0][0]
    split = np.array(table["split"].to_pylist())
    assert set(split[part.learn]) == {"train"}
    assert set(split[part.held]) == {"validate"}
    assert set(split[part.asked]) == {"validate", "test"}
    rest = table.filter(pa.array(split != "validate"))
    (part,), notes = split_parts(rest, targets(rest, [SEX]), 0)
    patients = np.array(rest["patient_id"].to_pylist())
    assert "no split validate" in notes[0]
    assert len(part.held)
    assert not set(patients[part.learn]) & set(patients[part.held])
    assert len(part.learn) + len(part.held) == (split == "train").sum()
    for name in ("train", "test"):
        rest = table.filter(pa.array(split != name))
        with refused(RunError, fix="--folds"):
            split_parts(rest, targets(rest, [SEX]), 0)
    split[0] = "test"
    with pytest.raises(LeakageError, match="1 in train and test") as error:
        split_parts(table.set_column(3, "split", pa.array(split)), goal, 0)
    assert error.value.counts["train and test"] == 1


def test_scarce_classes_are_left_out() -> None:
    table = people(100)
    race = np.array(table["race"].to_pylist())
    who = np.array([int(each[1:]) for each in table["patient_id"].to_pylist()])
    race[(race == "Asian") & (who > 5)] = "White"
    edema = pa.array(np.r_[np.ones(4, np.int8), np.zeros(196, np.int8)])
    table = table.set_column(5, "race", pa.array(race)).set_column(6, "edema", edema)
    tasks = [SEX, RACE, EDEMA]
    kept, notes = keep_learnable_tasks(table, tasks, targets(table, tasks), np.arange(200))
    assert [each.name for each in kept] == ["sex", "race"]
    assert kept[1].outputs == ("Black", "White")
    assert any(note.startswith("race=Asian is excluded") for note in notes)
    assert any(note.startswith("edema is excluded: 2 training patients with it") for note in notes)
    with refused(ConfigError, "edema", fix="--targets"):
        keep_learnable_tasks(table, [EDEMA], targets(table, [EDEMA]), np.arange(200))


def test_results_are_those_of_the_test_images() -> None:
    table = people(150)
    vectors = vectors_of(table, "sex", 1.0)
    tasks = [SEX, RACE, EDEMA]
    goal = targets(table, tasks)
    found = asked(table, tasks, vectors)
    done = measure_outputs(table, found, goal, model="m", n_resamples=200, seed=0, how="linear layer")
    rows = {(row["metric"], row["finding"]): row for row in done.rows}
    split = np.array(table["split"].to_pylist())
    test = split == "test"
    assert ("auroc", "sex=M") not in rows
    assert ("auroc", "race=White") in rows
    row = rows["auroc", "sex=F"]
    assert row["value"] == value(table, found)
    assert row["ci_low"] < row["value"] < row["ci_high"]
    assert row["n"] == test.sum()
    assert row["n_pos"] == (goal[test, 0] == 1).sum()
    assert row["n_patients"] == 45
    assert row["higher_is_better"] is None
    assert rows["auroc", "edema"]["higher_is_better"] is True
    assert rows["auroc", "edema"]["n"] == (goal[test, 5] >= 0).sum()
    assert "patients resampled" in row["method"]
    mean = np.mean([rows["auroc", f"race={each}"]["value"] for each in RACE.outputs])
    assert rows["auroc", "race"]["value"] == pytest.approx(mean)
    # The threshold is that of the validation images.
    prob = probabilities(found.logits, tasks)[:, 0]
    cut = youden_threshold(goal[split == "validate", 0].astype(float), prob[split == "validate"])
    women = test & (goal[:, 0] == 1)
    assert rows["tpr", "sex=F"]["value"] == pytest.approx((prob[women] >= cut).mean())
    assert rows["fpr", "sex=F"]["value"] == pytest.approx((prob[test & (goal[:, 0] == 0)] >= cut).mean())
    assert rows["j", "sex=F"]["value"] == pytest.approx(rows["tpr", "sex=F"]["value"] - rows["fpr", "sex=F"]["value"])
    assert len(done.lines) == 1 + 3 + 1 + 1
    assert done.lines[0].startswith("m: sex=F: AUROC 0.")

    # Nobody of a class in test: said, not guessed.
    sex = np.where(test, "M", np.array(table["sex"].to_pylist()))
    table = table.set_column(4, "sex", pa.array(sex))
    done = measure_outputs(table, found, targets(table, tasks), model="m", n_resamples=200, seed=0, how="x")
    row = next(row for row in done.rows if row["finding"] == "sex=F" and row["metric"] == "auroc")
    assert np.isnan(row["value"])
    assert row["note"] == "auroc is undefined: no test image with it"


def test_what_cannot_be_learned_from_is_said() -> None:
    table = people(40)
    vectors = vectors_of(table, "sex", 1.0)
    vectors[3, 2] = np.nan
    with refused(CxrhfError, "not finite"):
        asked(table, [SEX], vectors)
    assert scale_of(np.full((5, 2), 3.3, np.float32), np.arange(5))[1].tolist() == [0, 0]
