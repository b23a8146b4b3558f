"""`cxrhf push model` of the small demo: what is published loads with the libraries' own loaders, and gives the same."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi

from cxrhf import cli
from cxrhf.errors import ConfigError
from cxrhf.hub.artefact import Artefact
from cxrhf.hub.connection import Hub, HubError
from cxrhf.hub.model import TrainingSources, check_allowed, find_weights, model_artefact, seen
from cxrhf.hub.scan import check, scan
from cxrhf.hub.settings import PushDatasetConfig, PushMetricConfig, PushModelConfig
from cxrhf.hub.upload import push
from tests.hub.loopback import LoopbackHub
from tests.refusals import refused
from tests.thinned import thinned

NETWORK, WRITER, CONTEXT = "tester/demo-network", "tester/demo-writer", "tester/demo-context"


@pytest.fixture(scope="module")
def demo(small_demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the demo's folder to work in."""
    folder = tmp_path_factory.mktemp("demo")
    shutil.copytree(small_demo / "runs", folder / "runs")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        yield Path("runs/demo")


@pytest.fixture(scope="module")
def made(demo: Path) -> dict[str, Artefact]:
    parts = {NETWORK: "network", WRITER: "writer/model", CONTEXT: "context"}
    return {to: model_artefact(PushModelConfig(str(demo / part), to=to)) for to, part in parts.items()}


@pytest.fixture(scope="module")
def published(made: dict[str, Artefact]) -> Iterator[LoopbackHub]:
    with pytest.MonkeyPatch.context() as patched, LoopbackHub() as hub:
        patched.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
        client = Hub(HfApi(endpoint=hub.endpoint, token=hub.token), hub.endpoint, ())
        for repo, artefact in made.items():
            check(artefact)
            push(client, artefact, repo, private=True, said=print)
        yield hub


def paths(artefact: Artefact) -> set[str]:
    return {piece.path for piece in artefact.pieces}


def test_what_is_published(made: dict[str, Artefact]) -> None:
    card = {"README.md", "results.json", ".eval_results/cxrhf.yaml", "figures/waterfall.png"}
    network, writer, context = (paths(made[each]) for each in (NETWORK, WRITER, CONTEXT))
    assert network >= card | {"config.json", "model.safetensors", "cxrhf.json"}
    assert writer >= {"README.md", "results.json", "adapter_config.json", "adapter_model.safetensors",
                      "base/model.safetensors", "tokenizer.json", "processor_config.json"}  # fmt: skip
    assert context >= {"README.md", "results.json", "run.json", "context.json", "models/context/manifest.json"}
    for each in made.values():
        assert not [path for path in paths(each) if path.endswith((".parquet", ".jsonl", ".csv"))]
        assert "checkpoints" not in " ".join(paths(each))
        assert not each.may_hold
        assert each.known.ids
        assert each.known.texts


@pytest.mark.slow
def test_networks_adapters_and_processors_load_from_the_hub(published: LoopbackHub, demo: Path, tmp_path: Path) -> None:
    """In a process that knows this Hub only, with the libraries alone: no cxrhf."""
    program = f"""
import json, sys
sys.modules["cxrhf"] = None
import torch, timm
from huggingface_hub import snapshot_download
from peft import PeftModel
from transformers import AutoImageProcessor, AutoModelForImageClassification, AutoProcessor, AutoModelForImageTextToText
torch.manual_seed(0)
network = AutoModelForImageClassification.from_pretrained("{NETWORK}").eval()
size, channels = network.config.pretrained_cfg["input_size"][-1], network.config.pretrained_cfg["input_size"][0]
x = torch.randn(2, channels, size, size)
processor = AutoImageProcessor.from_pretrained("{NETWORK}")
bare = timm.create_model("hf-hub:{NETWORK}", pretrained=True).eval()
base = AutoModelForImageTextToText.from_pretrained(snapshot_download("{WRITER}") + "/base")
writer = PeftModel.from_pretrained(base, "{WRITER}").eval()
words = AutoProcessor.from_pretrained("{WRITER}").tokenizer("no effusion", return_tensors="pt")
with torch.inference_mode():
    logits = network(x).logits
    same = torch.equal(logits, bare(x))
    after = writer(**words).logits[0, -1, :5]
torch.save({{"x": x, "logits": logits, "words": dict(words), "after": after}}, sys.argv[1])
print(json.dumps({{"same": same, "labels": network.config.id2label, "processor": processor.data_config["input_size"]}}))
"""
    out = tmp_path / "seen.pt"
    done = subprocess.run([sys.executable, "-c", program, str(out)], env=published.env(tmp_path / "home"), text=True,
                          capture_output=True, cwd=tmp_path, check=False, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["same"]
    import torch

    from cxrhf.models.saved import load_saved
    from cxrhf.models.vlm import load_vlm

    model, about = load_saved(demo / "network" / "models" / "seed-0")
    assert list(said["labels"].values()) == about["outputs"]
    assert said["processor"][-1] == about["look"]["size"]
    held = torch.load(out, weights_only=True)
    with torch.inference_mode():
        assert torch.equal(model(held["x"]), held["logits"])
        folder = demo / "writer" / "model"
        ours = load_vlm(str(folder / "base"), adapter=folder / "adapter", size=64).model.eval()
        assert torch.allclose(ours(**held["words"]).logits[0, -1, :5], held["after"], atol=1e-5)


def test_a_model_of_notes_is_a_run_again(published: LoopbackHub, demo: Path, tmp_path: Path) -> None:
    for path, content in published.files("model", CONTEXT).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    from cxrhf.context.run import load_context

    theirs = load_context(tmp_path).predict(demo / "data")
    ours = load_context(demo / "context")
    assert any("unknown" in note for note in theirs.notes)
    tested = {row["image_id"] for row in ours.predictions.to_pylist() if row["split"] == "test"}
    mine = {(row["image_id"], row["finding"]): row["prob"] for row in ours.predictions.to_pylist()}
    got = [row for row in theirs.table.to_pylist() if row["image_id"] in tested]
    assert got
    assert all(row["prob"] == pytest.approx(mine[row["image_id"], row["finding"]], abs=1e-12) for row in got)


def test_the_second_push_changes_nothing(published: LoopbackHub, demo: Path) -> None:
    client = Hub(HfApi(endpoint=published.endpoint, token=published.token), published.endpoint, ())
    again = model_artefact(PushModelConfig(str(demo / "network"), to=NETWORK))
    assert not push(client, again, NETWORK, private=True, said=print).changed
    assert published.repos["model", NETWORK].private


def test_the_whole_results_go_along(made: dict[str, Artefact], demo: Path) -> None:
    from cxrhf.schema import RESULT
    from cxrhf.tables.files import read_table

    whole = next(piece for piece in made[NETWORK].pieces if piece.path == "results.json").read()
    rows = read_table(demo / "results.parquet", RESULT).to_pylist()
    assert len(json.loads(whole)["results"]) >= sum(row["model"] == "network" for row in rows)


def test_the_card_speaks_of_its_repository(made: dict[str, Artefact]) -> None:
    card = next(piece for piece in made[NETWORK].pieces if piece.path == "README.md").read().decode()
    assert f'name = "{NETWORK}"' in card
    assert f'"hf-hub:{NETWORK}"' in card
    assert "evaluate.load(" in card


# --- whose data ----------------------------------------------------------------------------------------------------


def closed(demo: Path, tmp_path: Path, part: str, **about: Any) -> Path:
    """The demo's run as if it had learned from credentialed data."""
    shutil.copytree(demo, tmp_path / "demo", ignore=shutil.ignore_patterns("source", "checkpoints"))
    folder = tmp_path / "demo" / part
    for path in folder.rglob("cxrhf.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), **about}))
    return folder


@pytest.mark.parametrize("about", thinned(
    [{"dataset": "mimic_cxr_context", "credentialed": True}, {"dataset": "chexpert"}, {"dataset": "our hospital"}],
    [{"dataset": "mimic_cxr_context", "credentialed": True}]))  # fmt: skip
def test_networks_from_data_that_are_not_open_need_a_word(
    demo: Path, tmp_path: Path, about: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run = closed(demo, tmp_path, "network", **about)
    assert cli.main(["push", "model", str(run), "--to", "tester/x", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "--data-agreement-allows" in said
    assert about["dataset"] in said
    assert cli.main(["push", "model", str(run), "--to", "tester/x", "--dry-run", "--data-agreement-allows"]) == 0


def test_adapters_from_credentialed_data_are_refused(
    demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = closed(demo, tmp_path, "writer/model", dataset="rexgradient", credentialed=True)
    words = ["push", "model", str(run), "--to", "tester/x", "--dry-run"]
    for more in ([], ["--data-agreement-allows"]):
        assert cli.main([*words, *more]) == 2
        assert "--data-agreement-allows-words" in capsys.readouterr().err
    assert cli.main([*words, "--data-agreement-allows-words"]) == 0


def test_vocabularies_from_credentialed_notes_are_refused(demo: Path, tmp_path: Path) -> None:
    run = closed(demo, tmp_path, "context")
    path = run / "context.json"
    fitted = json.loads(path.read_text())
    assert (fitted["dataset"], fitted["credentialed"]) == ("synthetic", False)
    path.write_text(json.dumps({**fitted, "dataset": "mimic_cxr_context", "credentialed": True}))
    with refused(HubError, "can reproduce text", fix="--data-agreement-allows-words"):
        model_artefact(PushModelConfig(str(run), to="tester/x"))


def test_what_is_said_nowhere_is_looked_for_around_a_run(demo: Path, tmp_path: Path) -> None:
    assert seen(demo / "network", {}) == TrainingSources(("synthetic",), "open")
    assert seen(tmp_path, {}) == TrainingSources((), "unknown")
    (tmp_path / "run.json").write_text(json.dumps({"config": {"build": "data/mimic"}}))
    assert seen(tmp_path, {}).standing == "credentialed"
    assert seen(tmp_path, {"dataset": "nih"}).standing == "open"
    (tmp_path / "run.json").write_text("{")  # it may have named MIMIC
    with pytest.raises(HubError, match=r"run\.json is damaged"):
        seen(tmp_path, {})
    with refused(HubError, "not recorded", fix="--data-agreement-allows"):
        check_allowed(TrainingSources((), "unknown"), words=False, allows=False, allows_words=False)


# --- wrong input ---------------------------------------------------------------------------------------------------


def test_runs_that_cannot_be_published(demo: Path, tmp_path: Path) -> None:
    with refused(HubError, "has no weights", fix="runs/demo/network"):
        find_weights(demo)
    with pytest.raises(HubError, match="is not a folder"):
        find_weights(tmp_path / "none")
    alone = tmp_path / "alone"
    shutil.copytree(demo / "network", alone)
    with refused(HubError, "has no results", fix="--results"):
        model_artefact(PushModelConfig(str(alone), to="tester/x"))
    with refused(HubError, '"other"', got="network", fix="--model"):
        model_artefact(PushModelConfig(str(demo / "network"), to="tester/x", model="other"))


def test_names_on_the_hub() -> None:
    for wrong in (None, "", "name", "a/b/c", "a/ b", "-a/b", "a/b--c"):
        with pytest.raises(ConfigError, match="--to"):
            PushModelConfig("runs/x", to=wrong)
        with pytest.raises(ConfigError, match="--to"):
            PushDatasetConfig("data/x", to=wrong)
    for wrong in (None, "a/b", ""):
        with pytest.raises(ConfigError, match="--to"):
            PushMetricConfig(("cad",), to=wrong)


# --- planted -------------------------------------------------------------------------------------------------------


def planted(artefact: Artefact, path: str, change: Any) -> Artefact:
    """The file alone, changed: the others were looked through before."""
    from dataclasses import replace

    (piece,) = (each for each in artefact.pieces if each.path == path)
    return replace(artefact, pieces=(replace(piece, content=change(piece.read())),))


@pytest.mark.parametrize("repo", [NETWORK, WRITER, CONTEXT])
def test_what_is_planted_in_a_model_is_found(made: dict[str, Artefact], repo: str) -> None:
    clean = made[repo]
    assert scan(clean) == []
    secret = "_".join(("hf", "aB3" * 11 + "z"))
    note = max(clean.known.texts, key=len)[:400]
    someone = next(each for each in sorted(clean.known.ids) if len(each) >= 8)

    def in_text(what: str) -> Any:
        return lambda content: content + f"\n{what}\n".encode()

    def in_json(what: str) -> Any:
        return lambda content: json.dumps({**json.loads(content), "comment": what}).encode()

    for what in (secret, note, someone):
        assert scan(planted(clean, "README.md", in_text(what))), what[:4]
        assert scan(planted(clean, "results.json", in_json(what))), what[:4]
    weights = next(path for path in paths(clean) if path.endswith(".safetensors"))

    def in_tensors(what: str) -> Any:
        from safetensors.torch import load, save

        return lambda content: save(load(content), metadata={"comment": what})

    for what in (secret, note, someone):
        assert scan(planted(clean, weights, in_tensors(what))), what[:4]
