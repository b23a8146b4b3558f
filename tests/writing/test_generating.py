"""A build and a tiny model -> a run with reports: whatever the processes, the kills and the order of calls."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from cxrhf.cli import main
from cxrhf.data.build import build
from cxrhf.data.load import load_images
from cxrhf.data.settings import BuildConfig
from cxrhf.errors import ConfigError, RunError, TableError
from cxrhf.models.lora import tiny_qwen3_vl
from cxrhf.models.report_data import sample_images
from cxrhf.models.report_run import generate_run
from cxrhf.models.report_settings import GenerateConfig
from cxrhf.models.vlm import report_of
from cxrhf.schema import GENERATION
from tests.refusals import refused

PROMPT = "Write the report. Indication: {indication}"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("twin") / "built"
    build(BuildConfig("synthetic", out=str(folder), n_patients=24, seed=3, size=64, configuration="images"))
    return folder


@pytest.fixture(scope="module")
def tiny(twin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = load_images(twin, labels="raw", columns=["findings", "impression"]).to_pylist()
    return tiny_qwen3_vl(
        tmp_path_factory.mktemp("vlm") / "tiny", [report_of(row) for row in rows], hidden=32, heads=2,
        vision_hidden=32, vision_layers=1, vocabulary=300,
    )  # fmt: skip


def words(tiny: Path, twin: Path, out: Path, *more: str) -> list[str]:
    return [
        str(tiny), "--build", str(twin), "--split", "all", "--n-images", "10", "--max-new-tokens", "12", "--size", "32",
        "--prompt", PROMPT, "--out", str(out), "--device", "cpu", *more,
    ]  # fmt: skip


def config(tiny: Path, twin: Path, out: Path, **changes: Any) -> GenerateConfig:
    base = {
        "build": str(twin), "split": "all", "n_images": 10, "max_new_tokens": 12, "size": 32, "prompt": PROMPT,
        "out": str(out), "device": "cpu",
    }  # fmt: skip
    return GenerateConfig(str(tiny), **(base | changes))


@pytest.fixture(scope="module")
def whole(tiny: Path, twin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All six strategies in one process."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert generate_run(config(tiny, twin, out), lambda _: None) is not None
    return out


def same_table(one: Path, other: Path) -> bool:
    return bool(pq.read_table(one / "generations.parquet").equals(pq.read_table(other / "generations.parquet")))


def test_the_run_holds_six_reports_an_image(whole: Path, twin: Path) -> None:
    table = pq.read_table(whole / "generations.parquet")
    assert table.schema.equals(GENERATION)
    rows = table.to_pylist()
    assert len(rows) == 60
    assert len({(row["image_id"], row["strategy"]) for row in rows}) == 60
    images = {row["image_id"]: row for row in load_images(twin, labels="raw").to_pylist()}
    for row in rows:
        assert row["reference"] == report_of(images[row["image_id"]])
        assert row["sex"] == images[row["image_id"]]["sex"]
        assert images[row["image_id"]]["view"] in ("AP", "PA")
    assert sorted(row["sex"] for row in rows) == ["F"] * 30 + ["M"] * 30
    record = json.loads((whole / "run.json").read_text())
    said = record["generated"]["tiny"]
    assert said["prompt"] == PROMPT
    assert [each["reports"] for each in said["strategies"].values()] == [10] * 6
    assert all(each["cut"] + each["different"] > 0 for each in said["strategies"].values())
    text = json.dumps(record)
    assert not any(row[name] in text for row in rows for name in ("image_id", "patient_id", "reference"))
    assert record["finished"]


@pytest.mark.slow
def test_other_batches_in_pieces_by_calls(whole: Path, tiny: Path, twin: Path, tmp_path: Path) -> None:
    for strategies in (("rich", "greedy"), ("beam",), ("conservative", "top_k", "top_p")):
        generate_run(config(tiny, twin, tmp_path, strategies=strategies, batch_size=3), lambda _: None)
    keys = ["strategy", "image_id"]
    one, other = (pq.read_table(each / "generations.parquet").sort_by([(key, "ascending") for key in keys])
                  for each in (whole, tmp_path))  # fmt: skip
    assert one.equals(other)
    assert len(json.loads((tmp_path / "run.json").read_text())["generated"]["tiny"]["strategies"]) == 6
    lines: list[str] = []
    generate_run(config(tiny, twin, tmp_path, strategies=("beam",)), lines.append)
    assert any("10 of 10 reports are already" in line for line in lines)


@pytest.mark.slow
def test_two_processes_write_the_same(whole: Path, tiny: Path, twin: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone",
               "-m", "cxrhf.models.generate", *words(tiny, twin, tmp_path / "two", "--batch-size", "2")]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert same_table(whole, tmp_path / "two")
    parts = sorted((tmp_path / "two" / "local" / "generating").iterdir())
    assert [each.name for each in parts] == ["part-0.jsonl", "part-1.jsonl"]
    assert all(each.stat().st_size for each in parts)


@pytest.mark.slow
def test_kill_9_and_the_same_command_goes_on(whole: Path, tiny: Path, twin: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "cxrhf", "generate", *words(tiny, twin, out, "--batch-size", "1")]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    journal = out / "local" / "generating" / "part-0.jsonl"
    until = time.monotonic() + 200
    while time.monotonic() < until and process.poll() is None:
        if journal.is_file() and journal.read_bytes().count(b"\n") >= 7:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    before = journal.read_bytes()
    assert 7 <= before.count(b"\n") < 60
    assert not (out / "generations.parquet").exists()
    assert json.loads((out / "run.json").read_text())["finished"] is None
    lines: list[str] = []
    generate_run(config(tiny, twin, out, batch_size=1), lines.append)
    assert same_table(whole, out)
    assert any("reports are already in the journal" in line for line in lines)
    assert journal.read_bytes().startswith(before)
    assert len([line for line in journal.read_bytes().split(b"\n") if line]) in (60, 61)  # one may have been cut


def test_what_differs_is_not_mixed(whole: Path, tiny: Path, twin: Path, tmp_path: Path) -> None:
    out = shutil.copytree(whole, tmp_path / "run")
    greedy: dict[str, Any] = {"strategies": ("greedy",)}
    for change, said in (
        ({"prompt": "Another."}, "settings .*prompt"), ({"n_images": 4}, "settings .*images"),
        ({"seed": 5}, "seed"), ({"max_new_tokens": 5}, "strategy greedy"),
    ):  # fmt: skip
        with pytest.raises(RunError, match=said):
            generate_run(config(tiny, twin, out, **(greedy | change)), lambda _: None)
    assert same_table(whole, out)
    generate_run(config(tiny, twin, out, **greedy, prompt="Another.", model="second"), lambda _: None)
    table = pq.read_table(out / "generations.parquet")
    assert table.num_rows == 70
    assert set(table["model"].to_pylist()) == {"tiny", "second"}
    generate_run(config(tiny, twin, out, **greedy, prompt="Another.", overwrite=True), lambda _: None)
    assert pq.read_table(out / "generations.parquet").num_rows == 10
    other = shutil.copytree(twin, tmp_path / "other")
    record = json.loads((other / "build.json").read_text())
    (other / "build.json").write_text(json.dumps(record | {"seed": 4}))
    with refused(RunError, "other inputs", fix="--overwrite"):
        generate_run(config(tiny, other, out, **greedy), lambda _: None)


def test_the_sample(twin: Path) -> None:
    alone = sample_images(twin, split="all", n=0)
    whose = alone.images.table["patient_id"].to_pylist()
    assert len(set(whose)) == len(whose)
    full = sample_images(twin, split="all", n=0, per="study")
    sexes = full.images.table["sex"].to_pylist()
    assert sexes.count("F") == sexes.count("M") == len(sexes) // 2
    studies = list(zip(*(full.images.table[name].to_pylist() for name in ("patient_id", "study_id")), strict=True))
    assert len(set(studies)) == len(studies)
    assert len(full.images) > len(alone.images)
    some = sample_images(twin, split="all", n=10, per="study")
    assert set(some.images.ids) < set(full.images.ids)
    assert len(some.images) == 10
    assert sample_images(twin, split="all", n=10, seed=1, per="study").images.ids != some.images.ids
    many = sample_images(twin, split="all", n=100_000, per="study")
    assert many.images.ids == full.images.ids
    assert any("100,000 images were requested" in note for note in many.notes)
    all_of = sample_images(twin, split="all", n=0, balance="none")
    exactly = sample_images(twin, split="all", n=len(all_of.images), balance="none")
    assert (exactly.images.ids, exactly.notes) == (all_of.images.ids, all_of.notes)
    every = sample_images(twin, split="all", n=0, balance="none", views="all", per="image")
    assert len(every.images) == load_images(twin, labels="raw").num_rows
    with refused(ConfigError, "--n-images", got="1"):
        sample_images(twin, split="all", n=1)
    with refused(RunError, '"tset"', fix="did you mean 'test'"):
        sample_images(twin, split="tset")


def test_images_without_a_reference_or_a_sex_are_counted(twin: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(twin, tmp_path / "gaps")
    for path in (folder / "images").glob("*.parquet"):
        table = pq.read_table(path)
        blank = [None if at % 3 == 0 else each for at, each in enumerate(table["findings"].to_pylist())]
        also = [None if at % 3 == 0 else each for at, each in enumerate(table["impression"].to_pylist())]
        sexes = [None if at % 5 == 1 else each for at, each in enumerate(table["sex"].to_pylist())]
        for name, values in (("findings", blank), ("impression", also), ("sex", sexes)):
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, pa.array(values, pa.string()))
        pq.write_table(table, path)
    sample = sample_images(folder, split="all", n=0)
    assert all(sample.references)
    assert any("without a reference report are excluded" in note for note in sample.notes)
    assert any("sex is not F or M" in note for note in sample.notes)


def fails(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(["generate", *args]) == 2
    return capsys.readouterr().err


def test_what_is_wrong_is_said_in_one_line(
    tiny: Path, twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert "Did you mean 'greedy'" in fails(capsys, *words(tiny, twin, out, "--strategies", "greddy"))
    assert "{patient_id}" in fails(capsys, *words(tiny, twin, out), "--prompt", "{patient_id}")
    assert "--model" in fails(capsys, *words(tmp_path / "nothing", twin, out))
    assert "nowhere: expected a finished build" in fails(capsys, *words(tiny, tmp_path / "nowhere", out))
    assert "cxrhf generate --from" in fails(capsys)
    assert "--build BUILD" in fails(capsys, str(tiny))
    assert "names a column" in fails(capsys, *words(tiny, twin, out), "--sex", "gender")
    assert not out.exists()
    held = tmp_path / "held"
    shutil.copytree(tiny, held / "adapter")
    (held / "run.json").write_text('{"verb": "finetune"}')
    for model, more in ((held / "adapter", ()), (tiny, ("--adapter", str(held / "adapter")))):
        assert "which --overwrite would delete" in fails(capsys, *words(model, twin, held, "--overwrite", *more))
    assert (held / "adapter" / "config.json").is_file()


def test_an_adapter_for_another_model(
    tiny: Path, twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForImageTextToText

    other = tiny_qwen3_vl(tmp_path / "other", ["clear lungs"], hidden=48, heads=2, vision_hidden=32, vision_layers=1)
    model = AutoModelForImageTextToText.from_pretrained(other)
    get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(tmp_path / "adapter")
    said = fails(capsys, *words(tiny, twin, tmp_path / "run", "--adapter", str(tmp_path / "adapter")))
    assert "adapter" in said
    assert not (tmp_path / "run" / "generations.parquet").exists()


def test_an_adapter_for_this_model(whole: Path, tiny: Path, twin: Path, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(tiny)
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    get_peft_model(model, lora).save_pretrained(tmp_path / "adapter")
    out = shutil.copytree(whole, tmp_path / "run")
    settings = {"strategies": ("greedy",), "adapter": str(tmp_path / "adapter")}
    generate_run(config(tiny, twin, out, **settings, model="with adapter"), lambda _: None)
    table = pq.read_table(out / "generations.parquet").to_pylist()
    both = [[row["generated"] for row in table if (row["model"], row["strategy"]) == (name, "greedy")]
            for name in ("tiny", "with adapter")]  # fmt: skip
    assert len(both[0]) == len(both[1]) == 10
    assert both[0] != both[1]
    with pytest.raises(RunError, match="adapter"):
        generate_run(config(tiny, twin, out, **settings, model="tiny"), lambda _: None)


def test_reports_from_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "llava.csv"
    path.write_text("pid,gender,ref,hyp\n1,F,Clear.,Normal.\n2,M,Edema.,\n3,,,Normal.\n")
    flags = ("--generated", "hyp", "--reference", "ref", "--patient", "pid", "--sex", "gender")
    out = tmp_path / "theirs"
    assert main(["generate", "--from", str(path), *flags, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "1 of 3 rows without a reference report" in printed
    assert printed.splitlines()[-2:] == [f"next: cxrhf audit {out}", str(out)]
    table = pq.read_table(out / "generations.parquet")
    assert table["generated"].to_pylist() == ["Normal.", ""]
    (tmp_path / "qwen.jsonl").write_text('{"id": 1, "generated": "A.", "reference": "B."}\n')
    assert main(["generate", "--from", str(tmp_path / "qwen.jsonl"), "--strategy", "rich", "--out", str(out)]) == 0
    assert main(["generate", "--from", str(path), *flags, "--out", str(out)]) == 0
    table = pq.read_table(out / "generations.parquet")
    assert sorted(set(zip(table["model"].to_pylist(), table["strategy"].to_pylist(), strict=True))) == [
        ("llava", "as given"), ("qwen", "rich"),
    ]  # fmt: skip
    assert table.num_rows == 3
    record = json.loads((out / "run.json").read_text())
    assert len(record["inputs"]) == 2
    assert record["generated"]["llava"]["strategies"]["as given"] == {"reports": 2, "different": 2, "empty": 1}
    assert "nope" in fails(capsys, "--from", str(path), "--generated", "nope", "--out", str(out))
    assert "--build, --adapter and --prompt" in fails(capsys, "--from", str(path), "--build", "x")
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "run.json").write_text('{"verb": "audit"}')
    assert "a run of cxrhf audit" in fails(capsys, "--from", str(path), *flags, "--out", str(tmp_path / "audit"))
    with pytest.raises(TableError):
        generate_run(GenerateConfig(reports=(str(tmp_path / "no.csv"),), out=str(out)), lambda _: None)
