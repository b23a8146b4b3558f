"""Checkpoints: whole or not at all, damaged ones noticed, older ones kept."""

from __future__ import annotations

import errno
import os
import resource
import signal
from pathlib import Path

import pytest
import torch

from cxrhf.errors import CxrhfError
from cxrhf.models import loop as module
from cxrhf.models.loop import (
    Checkpoint,
    DamagedCheckpoint,
    checkpoints,
    flatten_state,
    nest_state,
    newest_checkpoint,
    prune_checkpoints,
    read_checkpoint,
    write_checkpoint,
)
from tests.refusals import refused


def made(step: int, **state: object) -> Checkpoint:
    torch.manual_seed(step)
    tensors = {"model": {"w": torch.randn(3, 4), "n": torch.tensor(step)}, "optimizer": {"0/exp": torch.randn(2)}}
    return Checkpoint(step, tensors, {"best": 0.1 + step / 3, "best_step": None, **state})


def test_round_trip_to_the_last_bit(tmp_path: Path) -> None:
    given = made(7, scaler={"scale": 65536.0})
    got = read_checkpoint(write_checkpoint(tmp_path, "step", given))
    assert got.step == 7
    assert got.state == given.state
    for name, tensors in given.tensors.items():
        assert all(torch.equal(got.tensors[name][key], each) for key, each in tensors.items())
    assert sorted(path.name for path in (tmp_path / "step-00000007").iterdir()) == [
        "model.safetensors", "optimizer.safetensors", "state.json",
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["cut", "bit", "missing", "json", "no json"])
def test_a_damaged_one_is_noticed_and_the_one_before_is_taken(tmp_path: Path, how: str) -> None:
    write_checkpoint(tmp_path, "step", made(5))
    path = write_checkpoint(tmp_path, "step", made(10))
    file = path / ("state.json" if "json" in how else "model.safetensors")
    data = bytearray(file.read_bytes())
    if how in ("missing", "no json"):
        file.unlink()
    elif how == "cut":
        file.write_bytes(data[:-3])
    else:
        data[len(data) // 2] ^= 1 if how == "bit" else 0xFF
        file.write_bytes(data)
    with pytest.raises(DamagedCheckpoint):
        read_checkpoint(path)
    found, said = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 5
    assert len(said) == 1
    assert "step-00000010" in said[0]


def test_none_intact_is_an_error_and_none_at_all_is_a_start(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) == (None, [])
    (write_checkpoint(tmp_path, "step", made(5)) / "model.safetensors").write_bytes(b"")
    with refused(CxrhfError, str(tmp_path), "step-00000005", fix="--overwrite"):
        newest_checkpoint(tmp_path)


def test_the_best_weights_must_be_there_too(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "best", made(5))
    write_checkpoint(tmp_path, "step", made(5, best_step=5))
    write_checkpoint(tmp_path, "step", made(10, best_step=10))  # its best one was never written
    found, said = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 5
    assert said


def test_prune_keeps_what_is_needed(tmp_path: Path) -> None:
    for step, best in ((5, 5), (10, 5), (15, 15)):
        if best == step:
            write_checkpoint(tmp_path, "best", made(step))
        write_checkpoint(tmp_path, "step", made(step, best_step=best))
    (tmp_path / ".step-00000020.1.tmp").mkdir()
    prune_checkpoints(tmp_path)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-00000015", "step-00000010"]
    assert [path.name for path in checkpoints(tmp_path, "best")] == ["best-00000015", "best-00000005"]
    assert not list(tmp_path.glob(".*"))
    write_checkpoint(tmp_path, "step", made(20, best_step=15))
    prune_checkpoints(tmp_path)
    assert [path.name for path in checkpoints(tmp_path, "best")] == ["best-00000015"]


def test_a_full_disk_leaves_the_earlier_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path, "step", made(5))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "save_file", full)
    with refused(CxrhfError, "step 10", "No space left", fix="earlier checkpoints are intact"):
        write_checkpoint(tmp_path, "step", made(10))
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000005"]
    assert read_checkpoint(tmp_path / "step-00000005").step == 5


def test_the_system_refuses_to_write_more(tmp_path: Path) -> None:
    """As a full disk does it: in the middle of a file. Here by a limit on the size of files."""
    write_checkpoint(tmp_path, "step", made(1))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, before[1]))
    try:
        with refused(CxrhfError, "step 2"):
            write_checkpoint(tmp_path, "step", Checkpoint(2, {"model": {"w": torch.zeros(100_000)}}, {}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert read_checkpoint(tmp_path / "step-00000001").step == 1


def test_states_of_optimizers_come_back() -> None:
    state = {
        0: {"step": torch.tensor(3.0), "exp_avg": torch.ones(2), "flag": True, "none": None},
        1: {"step": torch.tensor(1.0)},
    }
    tensors, plain = flatten_state(state)
    assert sorted(tensors) == ["0/exp_avg", "0/step", "1/step"]
    back = nest_state(tensors, plain, numbered=True)
    assert back[0]["flag"] is True
    assert torch.equal(back[0]["exp_avg"], torch.ones(2))
    named = nest_state({"layer.weight/step": torch.tensor(1.0)}, {}, numbered=False)
    assert list(named) == ["layer.weight"]
