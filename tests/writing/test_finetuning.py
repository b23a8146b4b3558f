"""`cxrhf finetune` on the twin's films and reports: the whole way, killed, in two processes, and wrong input."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from cxrhf.cli import main
from cxrhf.data.build import build
from cxrhf.data.settings import BuildConfig
from cxrhf.errors import ConfigError, CxrhfError, RunError
from cxrhf.models.report_data import open_reports
from cxrhf.models.report_run import finetune_run
from cxrhf.models.report_settings import FinetuneConfig
from cxrhf.settings import from_mapping, load_mapping
from tests.locked import held
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--model", "tiny", "--prompt", "Write.", "--size", "32", "--tiny-hidden", "32", "--lora-rank", "8",
         "--max-length", "256", "--max-steps", "12", "--batch-size", "8", "--learning-rate", "0.02", "--epochs", "9",
         "--train-embeddings",
         "--max-validate", "12", "--validate-every", "6", "--save-every", "3", "--device", "cpu"]  # fmt: skip


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Films of 40 patients, 32 pixels, with reports, in three splits."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("reported") / "built"
    build(BuildConfig("synthetic", out=str(folder), n_patients=40, seed=5, size=32, configuration="images"))
    return folder


@pytest.fixture(scope="module")
def done(twin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert main(["finetune", str(twin), *SMALL, "--out", str(out), "--merge"]) == 0
    return out


def losses(run: Path, name: str = "loss") -> list[float]:
    lines = [json.loads(line) for line in (run / "history-0.jsonl").read_text().splitlines()]
    return [line[name] for line in lines if name in line]


def config(twin: Path, **more: object) -> FinetuneConfig:
    return FinetuneConfig(str(twin), model="tiny", **more)  # type: ignore[arg-type]


def test_a_run(twin: Path, done: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForImageTextToText, AutoProcessor

    from cxrhf.models.vlm import load_vlm
    from cxrhf.models.vlm_data import question_batch

    found = losses(done)
    assert len(found) == 12
    assert np.mean(found[-3:]) < 0.75 * found[0]
    assert len(losses(done, "validate_loss")) == 2
    about = json.loads((done / "adapter/cxrhf.json").read_text())
    assert about["dataset"] == "synthetic"
    assert "confidential" in about
    assert about["base"]["source"] == "../base"
    record = json.loads((done / "run.json").read_text())
    assert record["finished"]
    text = json.dumps([record, about])
    ids = pq.read_table(next((twin / "images").glob("train-*.parquet")), columns=["image_id", "patient_id"])
    assert not any(each in text for column in ids.columns for each in column.to_pylist())
    assert str(twin.parent) not in text

    mine, base = load_vlm(str(done)), load_vlm(str(done / "base"), size=32)
    film = np.arange(48 * 48, dtype=np.uint32).reshape(48, 48).astype(np.uint8)
    asked = question_batch(mine, [film], [mine.about["prompt"]])
    theirs = PeftModel.from_pretrained(AutoModelForImageTextToText.from_pretrained(done / "base"), done / "adapter")
    merged = load_vlm(str(done / "merged"))
    with torch.no_grad():
        logits = mine.model(**asked).logits
        assert torch.equal(theirs.eval()(**asked).logits, logits)
        torch.testing.assert_close(merged.model(**asked).logits, logits, atol=1e-5, rtol=1e-5)
        greedy = [each.model.generate(**asked, max_new_tokens=8, do_sample=False)[0].tolist() for each in (mine, base)]
    assert greedy[0] != greedy[1], "it writes otherwise than its base"
    assert AutoProcessor.from_pretrained(done / "adapter").chat_template == mine.processor.chat_template
    moved = shutil.copytree(done, done.parent / "moved")
    assert load_vlm(str(moved)).about["size"] == 32, "a run that was moved finds its base"


def test_a_run_that_is_being_written_is_refused(twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with held(tmp_path / "run"):
        assert main(["finetune", str(twin), *SMALL, "--out", str(tmp_path / "run")]) == 2
    assert "is being written by another process" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_killed_and_gone_on_with(twin: Path, done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """kill -9 while it learns; the same command then ends with the bytes of a run that was never stopped."""
    out = tmp_path / "killed"
    words = [str(twin), *SMALL, "--out", str(out)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-m", "cxrhf.models.finetune", *words], env=env,
                               stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)  # fmt: skip
    end = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < end and not list(out.glob("checkpoints/step-0000000[3-9]")):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / "adapter").exists()
    assert main(["finetune", *words]) == 0
    assert "resuming after step" in capsys.readouterr().err
    for name in ("adapter/adapter_model.safetensors", "base/model.safetensors", "history-0.jsonl"):
        assert (out / name).read_bytes() == (done / name).read_bytes(), name
    stamp = (out / "adapter/adapter_model.safetensors").stat().st_mtime_ns
    assert main(["finetune", *words]) == 0
    assert "already trained" in capsys.readouterr().err
    assert (out / "adapter/adapter_model.safetensors").stat().st_mtime_ns == stamp
    other = [*words, "--lora-rank", "4", "--max-steps", "2", "--merge"]
    assert main(["finetune", *other]) == 2
    assert "lora_rank was 8, is 4" in capsys.readouterr().err
    assert main(["finetune", *other, "--overwrite"]) == 0
    assert len(losses(out)) == 2
    assert (out / "merged/model.safetensors").is_file()
    assert main(["finetune", *words, "--overwrite"]) == 0
    assert not (out / "merged").exists()
    assert (out / "adapter/adapter_model.safetensors").read_bytes() == (
        done / "adapter/adapter_model.safetensors"
    ).read_bytes()


@pytest.mark.slow
def test_two_processes_learn_what_one_learns(twin: Path, done: Path, tmp_path: Path) -> None:
    out = tmp_path / "two"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = ["torch.distributed.run", "--nproc_per_node", "2", "--standalone", "-m", "cxrhf.models.finetune"]
    ran = subprocess.run([sys.executable, "-m", *words, str(twin), *SMALL, "--accumulate", "2", "--out", str(out)],
                         env=env, capture_output=True, text=True, check=False, timeout=240)  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert (out / "base/model.safetensors").read_bytes() == (done / "base/model.safetensors").read_bytes()
    np.testing.assert_allclose(losses(out), losses(done), atol=1e-4)
    np.testing.assert_allclose(losses(out, "validate_loss"), losses(done, "validate_loss"), atol=1e-4)
    assert json.loads((out / "adapter/cxrhf.json").read_text())["trained"]["processes"] == 2


@pytest.mark.parametrize("share", [0.33, 0.5, 0.67])
def test_mixes_have_the_share_asked_for(twin: Path, share: float) -> None:
    train, validate, notes = open_reports(config(twin, female=share, max_examples=40), "train")
    sexes = Counter(train.images.table["sex"].to_pylist())
    assert sum(sexes.values()) == len(train) <= 40
    assert abs(sexes["F"] / len(train) - share) <= 0.5 / len(train) + 1e-9
    assert any("examples are used for training" in note for note in notes)
    again, _, _ = open_reports(config(twin, female=share, max_examples=40), "train")
    assert again.images.ids == train.images.ids
    other, _, _ = open_reports(config(twin, female=share, max_examples=40, seed=1), "train")
    assert other.images.ids != train.images.ids
    whole = Counter(train.images.table["patient_id"].to_pylist())
    everybody, _, _ = open_reports(config(twin), "train")
    all_of = Counter(everybody.images.table["patient_id"].to_pylist())
    assert sum(whole[each] < all_of[each] for each in whole) <= 2, "patients come whole but for the last of each sex"
    assert validate is not None
    assert set(validate.images.table["view"].to_pylist()) <= {"AP", "PA"}


def test_the_recipes(twin: Path) -> None:
    made = {
        name: from_mapping(FinetuneConfig, {"build": str(twin), **load_mapping(name)})
        for name in ("rex_qwen", "rex_qwen_male", "rex_qwen_female", "tiny_qwen")
    }
    base = made["rex_qwen"]
    assert (base.model, base.lora_rank, base.lora_alpha, base.size) == ("Qwen/Qwen3-VL-8B-Instruct", 16, 32, 512)
    assert (base.female, base.max_examples, base.views, base.prompt) == (0.5, 60_000, "frontal", None)
    assert replace(made["rex_qwen_male"], female=0.5) == base == replace(made["rex_qwen_female"], female=0.5)
    assert (made["rex_qwen_male"].female, made["rex_qwen_female"].female) == (0.33, 0.67)
    assert made["tiny_qwen"].model == "tiny"


def without(twin: Path, folder: Path, change: object) -> Path:
    """A copy of the build with other reports."""
    copy = Path(shutil.copytree(twin, folder))
    for path in (copy / "images").glob("*.parquet"):
        table = pq.read_table(path)
        for name in ("findings", "impression"):
            values = change(table[name].to_pylist())  # type: ignore[operator]
            column = pa.array(values, table.schema.field(name).type)
            table = table.set_column(table.column_names.index(name), table.schema.field(name), column)
        pq.write_table(table, path)
    return copy


def test_images_without_a_report_are_counted(twin: Path, tmp_path: Path) -> None:
    some = without(twin, tmp_path / "some", lambda texts: [None if at % 3 else text for at, text in enumerate(texts)])
    whole, _, _ = open_reports(config(twin), "train")
    train, _, notes = open_reports(config(some), "train")
    left = len(whole) - len(train)
    assert 0 < left < len(whole)
    assert f"split train: {left:,} images without a report were excluded" in notes
    none = without(twin, tmp_path / "none", lambda texts: [None for _ in texts])
    with refused(RunError, '"train"', fix="rexgradient"):
        open_reports(config(none), "train")
    every, _, _ = open_reports(config(twin, views="all"), "train")
    assert len(every) > len(whole)


def test_prompts_may_ask_for_what_is_known(twin: Path) -> None:
    train, _, _ = open_reports(config(twin, prompt="{sex} {age} {view}: {indication} {comparison}"), "train")
    assert len(set(train.prompts)) > 10
    assert all("year old" in each and "not given" not in each for each in train.prompts)


@pytest.mark.parametrize(
    ("more", "kind", "said"),
    [
        ({"prompt": "{indicaton}"}, ConfigError, "--prompt: .*indicaton"),
        ({"model": "no such model!"}, ConfigError, "--model: .*no such model!"),
        ({"model": "nobody/none"}, CxrhfError, "nobody/none is not on this machine"),
        ({"train_split": "trian"}, RunError, 'no split "trian"'),
        ({"max_length": 20}, ConfigError, "--max-length"),
        ({"build": "nowhere"}, RunError, r"nowhere: .*build\.json"),
        ({"four_bit": True}, CxrhfError, "bitsandbytes"),
    ],
)
def test_wrong_input(
    more: dict[str, object], kind: type[Exception], said: str, twin: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("transformers.utils.hub.is_offline_mode", lambda: True)
    settings = {"build": str(twin), "model": "tiny", "size": 32, "tiny_hidden": 32, "device": "cpu", **more}
    with pytest.raises(kind, match=said):
        finetune_run(FinetuneConfig(out=str(tmp_path / "run"), **settings), lambda _: None)  # type: ignore[arg-type]


def test_an_adapter_is_no_base(done: Path, twin: Path, tmp_path: Path) -> None:
    with refused(ConfigError, "--model", got="adapter"):
        finetune_run(FinetuneConfig(str(twin), model=str(done), out=str(tmp_path / "run")), lambda _: None)


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["finetune", "--help"]) == 0
    said = capsys.readouterr().out
    assert "accelerate launch -m cxrhf.models.finetune" in said
    assert "--lora-rank" in said
