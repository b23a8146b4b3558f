"""Two real processes: the losses and predictions of one, an end without a crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cxrhf.models.backbone import make_model
from cxrhf.models.data import open_squares
from cxrhf.models.loop import read_history
from cxrhf.models.processes import clear_curves, make_accelerator, tracker_command
from cxrhf.models.step import look_at
from tests.models.tiny import LOOK, config, images, material, trained

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {
    "backbone": "test_vit", "epochs": 2, "batch_size": 23, "accumulate": 2, "clip": 0.5, "flip": 0.5, "rotation": 10.0,
    "save_every": 2,
}  # fmt: skip

# Process 1 has other batch statistics than process 0 until they are told; 31 rows do not divide by two.
JOB = """
import json, sys
from pathlib import Path
import numpy as np, torch
from cxrhf.models import train as module
from cxrhf.models.backbone import make_model
from cxrhf.models.step import look_at
from cxrhf.models.data import open_squares
from cxrhf.models.processes import make_accelerator, same_buffers
from tests.models.tiny import LOOK, config, images, material, trained

torch.set_num_threads(1)
out, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
accelerator = make_accelerator(device="cpu")
rank = accelerator.process_index
what, _ = material(80)
step = module._Loop._step
def stopping(self, now, *rest):
    if now.number == 4 and not (out / "stopped").exists():
        raise RuntimeError("the machine is gone")
    step(self, now, *rest)
module._Loop._step = stopping
try:
    trained(out, config(**settings), what)
except RuntimeError:
    pass
accelerator.wait_for_everyone()
if rank == 0:
    (out / "stopped").touch()
accelerator.wait_for_everyone()
done = trained(out, config(**settings), what)
squares, target = what.validate
seen = [look_at(done.model, squares, len(target), accelerator, batch_size=16).logits]
network = make_model("test_resnet", 2, channels=1, seed=3, size=32)
if rank == 1:
    for name, buffer in network.named_buffers():
        if "running" in name:
            buffer += 1
same_buffers(accelerator, network)
for n in (31, 1):
    squares = open_squares(images(n if n > 1 else 3), LOOK, memory=1, progress=lambda _: None)
    seen.append(look_at(network, squares, n, accelerator, batch_size=4, vectors=True).logits)
np.savez(out / f"seen-{rank}.npz", *seen)
(out / f"done-{rank}.json").write_text(json.dumps([accelerator.num_processes, done.facts]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher",
    [
        ["torch.distributed.run", "--nproc_per_node", "2", "--standalone"],
        pytest.param(
            ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "0"],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["torchrun", "accelerate"],
)
def test_two_processes_give_the_numbers_of_one(tmp_path: Path, launcher: list[str]) -> None:
    """An odd batch in pieces, clipped and augmented, killed at a step and gone on with."""
    job, two = tmp_path / "job.py", tmp_path / "two"
    two.mkdir()
    job.write_text(JOB)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *launcher, str(job), str(two), json.dumps(SETTINGS)],
        env=env, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    what, _ = material(80)
    one = trained(tmp_path / "one", config(**SETTINGS), what)
    losses = [
        [row.get("loss", row.get("validate_loss")) for row in read_history(folder / "history.jsonl")]
        for folder in (tmp_path / "one", two)
    ]
    np.testing.assert_allclose(losses[0], losses[1], rtol=2e-5)
    accelerator = make_accelerator(device="cpu")
    assert what.validate is not None
    squares, target = what.validate
    alone = [look_at(one.model, squares, len(target), accelerator, batch_size=16).logits]
    network = make_model("test_resnet", 2, channels=1, seed=3, size=32)
    for n in (31, 1):
        squares = open_squares(images(n if n > 1 else 3), LOOK, memory=1, progress=lambda _: None)
        alone.append(look_at(network, squares, n, accelerator, batch_size=4, vectors=True).logits)
    for rank in (0, 1):
        seen = np.load(two / f"seen-{rank}.npz")
        count, facts = json.loads((two / f"done-{rank}.json").read_text())
        assert count == 2
        assert facts["best_step"] == one.facts["best_step"]
        np.testing.assert_allclose(seen["arr_0"], alone[0], atol=2e-3)  # after training apart
        for at in (1, 2):
            np.testing.assert_allclose(seen[f"arr_{at}"], alone[at], atol=1e-5)  # of the same weights


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({}, False),
        ({"MASTER_ADDR": "127.0.0.1"}, False),
        ({"ACCELERATE_MIXED_PRECISION": "no"}, False),
        ({"ACCELERATE_MIXED_PRECISION": "no", "MASTER_ADDR": "127.0.0.1"}, True),
        ({"ACCELERATE_MIXED_PRECISION": "no", "MASTER_ADDR": "127.0.0.1", "LOCAL_RANK": "0"}, False),
    ],
)
def test_a_launcher_that_started_one_of_several_is_noticed(
    variables: dict[str, str], told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cxrhf.encode.processes import missing_processes

    for name in ("ACCELERATE_MIXED_PRECISION", "MASTER_ADDR", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert missing_processes() is told


@pytest.mark.slow
def test_accelerate_launch_sets_these_variables(tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    script.write_text("from cxrhf.encode.processes import missing_processes\nprint(missing_processes())\n")
    for number, told in (("1", "False"), ("2", "True")):
        command = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", number, str(script)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        assert done.stdout.split() == [told]


def test_the_command_that_shows_curves_names_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my run"
    assert tracker_command("tensorboard", folder) == f"tensorboard --logdir '{folder / 'cxrhf'}'"
    assert tracker_command("trackio", folder) == f"TRACKIO_DIR='{folder / 'trackio'}' trackio show --project cxrhf"
    (folder / "cxrhf").mkdir(parents=True)
    (folder / "trackio").symlink_to(tmp_path)
    clear_curves(folder)
    assert not (folder / "cxrhf").exists()
    assert tmp_path.is_dir()
