"""`cxrhf probe`: from a build and networks to a run, and what is said when it cannot be done."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from cxrhf import cli
from cxrhf.data.load import load_images
from cxrhf.errors import ConfigError, CxrhfError, RunError
from cxrhf.models.backbone import make_model
from cxrhf.models.data import Look, look_facts, open_squares
from cxrhf.models.probe import load_probe, saved_backbone
from cxrhf.models.probe_run import find_sources, probe_run
from cxrhf.models.processes import make_accelerator
from cxrhf.models.saved import save_model
from cxrhf.models.settings import ProbeConfig
from cxrhf.models.step import look_at
from cxrhf.models.train_run import open_images
from cxrhf.schema import EMBEDDING, PREDICTION, RESULT
from cxrhf.tables.files import read_table
from tests.refusals import refused

LOOK = Look(size=32, fit="squash", pixels="half", channels=1)
SMALL = {"architecture": "test_resnet", "size": 32, "n_resamples": 100, "device": "cpu", "workers": 0}


def save(folder: Path, seed: int, name: str = "net") -> None:
    model = make_model("test_resnet", 2, channels=1, seed=seed, size=32)
    about = {"name": name, "seed": seed}
    save_model(folder, model, backbone="test_resnet", outputs=["a", "b"], look_facts=look_facts(LOOK), about=about)


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with the networks of two seeds."""
    folder = tmp_path_factory.mktemp("networks") / "run"
    for seed in (3, 7):
        save(folder / "models" / f"seed-{seed}", seed)
    return folder


@pytest.fixture(scope="module")
def probed(twin: Path, networks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("probed") / "run"
    words = [
        "--backbones", f"full={networks},random", "--targets", "sex,view,race,findings",
        "--findings", "edema,support_devices",
        "--reduce", "6", "--architecture", "test_resnet", "--size", "32", "--n-resamples", "100", "--device", "cpu",
        "--epochs", "20",
    ]  # fmt: skip
    assert cli.main(["probe", str(twin), "--out", str(folder), *words]) == 0
    return folder


def vectors_of(twin: Path, folder: Path) -> tuple[list[str], np.ndarray]:
    images = open_images(twin, ["validate", "test"])
    frozen = saved_backbone(folder)
    squares = open_squares(images, frozen.look, memory=1, progress=lambda _: None)
    seen = look_at(frozen.model, squares, len(images), make_accelerator(device="cpu"), batch_size=64, vectors=True)
    return images.ids, seen.vectors


def logits_of(rows: pa.Table, model: str, finding: str) -> dict[str, float]:
    mine = rows.filter(pc.and_(pc.equal(rows["model"], model), pc.equal(rows["finding"], finding)))
    return dict(zip(mine["image_id"].to_pylist(), mine["logit"].to_pylist(), strict=True))


def test_rows_are_complete(twin: Path, probed: Path) -> None:
    images = pa.concat_tables([load_images(twin, split=split) for split in ("validate", "test")])
    rows = read_table(probed / "characteristics.parquet", PREDICTION)
    outputs = set(rows["finding"].to_pylist())
    assert {"sex=F", "sex=M", "view=AP", "view=PA"} <= outputs
    assert not any("edema" in each for each in outputs)
    keys = rows.group_by(["image_id", "finding", "model", "seed"]).aggregate([([], "count_all")])
    assert keys.num_rows == rows.num_rows == images.num_rows * len(outputs) * 2
    assert set(rows["model"].to_pylist()) == {"full", "random"}
    assert set(rows["split"].to_pylist()) == {
        "validate",
        "test",
    }
    truth = dict(zip(images["image_id"].to_pylist(), images["sex"].to_pylist(), strict=True))
    women = rows.filter(pc.equal(rows["finding"], "sex=F"))
    assert [int(truth[each] == "F") for each in women["image_id"].to_pylist()] == women["label"].to_pylist()
    sums = rows.filter(pc.match_substring_regex(rows["finding"], "^sex")).group_by(["image_id", "model"])
    np.testing.assert_allclose(sums.aggregate([("prob", "sum")])["prob_sum"], 1)

    found = read_table(probed / "predictions.parquet", PREDICTION)
    assert set(found["finding"].to_pylist()) == {"edema", "support_devices"}
    assert set(found["model"].to_pylist()) == {"full", "random", "full-reduce6", "random-reduce6"}
    assert found.num_rows == images.num_rows * 2 * 4


def test_the_saved_layers_give_the_written_logits_from_the_networks_vectors(
    twin: Path, networks: Path, probed: Path
) -> None:
    ids, vectors = vectors_of(twin, networks / "models/seed-3")
    layers, about = load_probe(probed / "probes/full")
    assert about["seed"] == 3
    assert about["look"]["channels"] == 1
    assert about["vectors"] == vectors.shape[1]
    characteristics = read_table(probed / "characteristics.parquet", PREDICTION)
    raw = layers[0]["sex"].logits(vectors)
    wanted = raw[:, 0] - np.logaddexp(raw[:, 0], raw[:, 1])
    written = logits_of(characteristics, "full", "sex=F")
    np.testing.assert_allclose([written[each] for each in ids], wanted, atol=1e-4)

    reduced = load_probe(probed / "probes/full-reduce6")[0][0]["findings"]
    rows = read_table(probed / "embeddings.parquet", EMBEDDING)
    assert set(rows["model"].to_pylist()) == {"full-reduce6", "random-reduce6"}
    assert rows["finding"].null_count == len(rows)
    mine = rows.filter(pc.equal(rows["model"], "full-reduce6"))
    assert mine["image_id"].to_pylist() == ids
    inside = np.array(mine["vector"].to_pylist())
    assert inside.shape == (len(ids), 6)
    assert inside.min() >= 0
    assert inside.max() <= 1
    np.testing.assert_allclose(inside, reduced.activations(vectors), atol=1e-5)
    written = logits_of(read_table(probed / "predictions.parquet", PREDICTION), "full-reduce6", "support_devices")
    follows = inside @ reduced.weight[1] + reduced.bias[1]
    np.testing.assert_allclose([written[each] for each in ids], follows, atol=1e-5)


def test_results_and_the_record(probed: Path, networks: Path, twin: Path) -> None:
    results = read_table(probed / "results.parquet", RESULT).to_pylist()
    assert {row["audit"] for row in results} == {"split"}
    assert {row["slice"] for row in results} == {"all"}
    by = {(row["model"], row["metric"], row["finding"]): row for row in results}
    # The twin's pictures show how they were taken, so any network can tell.
    for model in ("full", "random"):
        row = by[model, "auroc", "view=PA"]
        assert row["value"] > 0.75
        assert row["ci_low"] <= row["value"] <= row["ci_high"]
        assert row["n"] == load_images(twin, split="test").num_rows
        assert (model, "tpr", "sex=F") in by
        assert (model, "auroc", "macro") in by
        assert (model, "auroc", "sex=M") not in by
    record = json.loads((probed / "run.json").read_text())
    assert record["verb"] == "probe"
    assert record["finished"]
    assert len(record["inputs"]) == 2
    assert record["tables"]["results"] == len(results)
    text = "".join(path.read_text() for path in probed.rglob("*.json"))
    assert str(networks.parent) not in text
    assert str(twin.parent) not in text
    assert sorted(path.name for path in (probed / "probes").iterdir()) == sorted(record["probes"])


@pytest.mark.slow
def test_folds_score_everybody_once(twin: Path, tmp_path: Path) -> None:
    config = ProbeConfig(str(twin), ("random",), ("sex", "view"), out=str(tmp_path / "run"), folds=3, **SMALL)
    said: list[str] = []
    done = probe_run(config, said.append)
    assert any("too narrow" in note for note in done.notes)
    assert any("fold 3 of 3" in each for each in said)
    rows = read_table(tmp_path / "run/characteristics.parquet", PREDICTION)
    ids = [
        each
        for split in ("train", "validate", "test")
        for each in load_images(twin, split=split)["image_id"].to_pylist()
    ]
    women = rows.filter(pc.equal(rows["finding"], "sex=F"))
    assert sorted(women["image_id"].to_pylist()) == sorted(ids)
    assert set(rows["split"].to_pylist()) == {"test"}
    first = read_table(tmp_path / "run/results.parquet", RESULT)
    assert all("3 folds of patients" in each for each in first["method"].to_pylist())

    # The same again gives the same; other settings are refused, and said.
    probe_run(config, lambda _: None)
    assert read_table(tmp_path / "run/results.parquet", RESULT).equals(first)
    other = ProbeConfig(str(twin), ("random",), ("sex",), out=str(tmp_path / "run"), folds=3, **SMALL)
    with refused(RunError, "other settings", "targets was"):
        probe_run(other, lambda _: None)
    replaced = ProbeConfig(
        str(twin), ("random",), ("findings",), ("edema",), out=other.out, folds=3, overwrite=True, **SMALL
    )
    probe_run(replaced, lambda _: None)
    assert not (tmp_path / "run/characteristics.parquet").exists()
    assert (tmp_path / "run/predictions.parquet").is_file()


def test_a_build_without_splits_needs_folds(twin: Path, tmp_path: Path) -> None:
    shutil.copytree(twin, tmp_path / "built")
    for path in (tmp_path / "built/images").glob("*test*"):
        path.unlink()
    config = ProbeConfig(str(tmp_path / "built"), ("random",), ("sex",), out=str(tmp_path / "run"), **SMALL)
    with pytest.raises(CxrhfError, match="--folds"):
        probe_run(config, lambda _: None)
    assert not (tmp_path / "run").exists()


def test_one_finding_is_named_in_its_embeddings(twin: Path, tmp_path: Path) -> None:
    config = ProbeConfig(
        str(twin), ("random",), ("findings",), ("edema",), out=str(tmp_path / "run"), reduce=4, epochs=2, **SMALL
    )
    done = probe_run(config, lambda _: None)
    rows = read_table(tmp_path / "run/embeddings.parquet", EMBEDDING)
    assert set(rows["finding"].to_pylist()) == {"edema"}
    assert len(rows["vector"][0].as_py()) == 4
    assert any("--epochs" in note for note in done.notes)


def test_names_of_backbones(networks: Path, tmp_path: Path) -> None:
    def names(*backbones: str) -> list[tuple[str, str | None]]:
        found = find_sources(ProbeConfig("b", backbones))
        return [(each.name, each.folder and each.folder.name) for each in found]

    one = str(networks / "models/seed-7")
    assert names("imagenet", f"all={networks}", str(networks), one) == [
        ("imagenet", None), ("all", "seed-3"), ("net", "seed-3"), ("net-seed-7", "seed-7"),
    ]  # fmt: skip
    assert names("old=random", "random") == [("old", None), ("random", None)]
    odd = tmp_path / "a=b"
    save(odd, 1, "odd")
    assert names(str(odd)) == [("odd-seed-1", "a=b")]


@pytest.mark.parametrize(
    ("backbones", "facts"),
    [
        (("random", "random"), ["random", "--backbones other=random"]),
        (("a b=imagenet", "A-b=random"), ["a-b"]),
        (("imagnet",), ["imagnet", "did you mean 'imagenet'?"]),
        (("=random",), ["NAME=SOURCE"]),
        (("x=",), ["NAME=SOURCE"]),
        (("!!=random",), ["!!", "a name with a letter or digit"]),
        (("no/such/folder",), ["no/such/folder", "cxrhf train"]),
    ],
)
def test_backbones_that_cannot_be(backbones: tuple[str, ...], facts: list[str]) -> None:
    with refused(ConfigError, *facts):
        find_sources(ProbeConfig("b", backbones))


def test_a_folder_that_is_nearly_right(networks: Path, tmp_path: Path) -> None:
    (tmp_path / "white-only").mkdir()
    with pytest.raises(ConfigError, match=r"Did you mean '.*white-only'"):
        find_sources(ProbeConfig("b", (str(tmp_path / "white_onli"),)))
    with pytest.raises(RunError, match="holds no trained model"):
        find_sources(ProbeConfig("b", (str(tmp_path / "white-only"),)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reduce": 8}, "--reduce .*--targets findings"),
        ({"reduce": 8, "targets": ("findings",), "folds": 3}, "--reduce .*--folds"),
        ({"targets": ("findings",), "findings": ("edemma",)}, "edemma.*[Dd]id you mean 'edema'"),
        ({"build": "nowhere"}, "nowhere"),
        ({"architecture": "tst_resnet"}, "Did you mean 'test_resnet"),
    ],
)
def test_settings_that_cannot_be(twin: Path, tmp_path: Path, changes: dict, said: str) -> None:
    base = {"build": str(twin), "backbones": ("random",), "out": str(tmp_path / "run"), "targets": ("sex",), **SMALL}
    with pytest.raises(CxrhfError, match=said):
        probe_run(ProbeConfig(**(base | changes)), lambda _: None)
    assert not (tmp_path / "run").exists()


def test_another_runs_folder_is_left_alone(twin: Path, tmp_path: Path) -> None:
    from cxrhf.run import fingerprint, open_run

    open_run(tmp_path / "run", verb="train", config={}, inputs=[fingerprint(twin / "build.json")]).finish()
    before = (tmp_path / "run/run.json").read_bytes()
    with pytest.raises(RunError, match="a run of cxrhf train"):
        probe_run(ProbeConfig(str(twin), ("random",), ("sex",), out=str(tmp_path / "run"), **SMALL), lambda _: None)
    assert (tmp_path / "run/run.json").read_bytes() == before


def test_networks_are_never_changed(twin: Path, networks: Path, tmp_path: Path) -> None:
    before = (networks / "models/seed-3/model.safetensors").read_bytes()
    state = torch.get_rng_state()
    probe_run(ProbeConfig(str(twin), (str(networks),), ("sex",), out=str(tmp_path / "run"), **SMALL), lambda _: None)
    assert (networks / "models/seed-3/model.safetensors").read_bytes() == before
    assert torch.equal(torch.get_rng_state(), state)  # chance of others is left as it was
