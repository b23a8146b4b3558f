"""Two real processes: the vectors of one, half the work each, one voice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cxrhf.encode import encode_texts, main_process
from cxrhf.encode.processes import barrier, broadcast_bytes, call_first, n_processes, one_writer_of_all, rank
from cxrhf.encode.settings import EncodeConfig
from cxrhf.tables.folders import one_writer
from tests.encode.tiny import notes

ROOT = Path(__file__).resolve().parents[2]

JOB = """
import json, os, sys, warnings
from pathlib import Path
import numpy as np
from cxrhf.encode.settings import EncodeConfig
from cxrhf.encode import encode_texts, main_process
from cxrhf.encode import notes as module
from cxrhf.errors import CxrhfError
from tests.encode.tiny import notes

out = Path(sys.argv[1])
seen = []
forward = module.forward
def counted(model, encoder, ids, *rest):
    seen.append(len(ids))
    return forward(model, encoder, ids, *rest)
module.forward = counted
texts = [*notes(30, longest=20), ""]
rank = os.environ["RANK"]
settings = EncodeConfig("minilm", batch_tokens=64)
kept = encode_texts(texts, settings, cache=out / "notes", progress=print)
counts = [sum(seen)]
again = encode_texts(texts, settings, cache=out / "notes", progress=print)
counts.append(sum(seen))
passing = encode_texts(texts[:8], settings, cache="off")
try:
    encode_texts([f"of process {rank}"], settings, cache="off")
    said = ""
except CxrhfError as error:
    said = str(error)
os.environ["HF_HUB_OFFLINE"] = "1"
try:
    encode_texts(texts, EncodeConfig("org/not-there"), cache="off")
except CxrhfError as error:
    said += str(error)
np.savez(out / f"{rank}.npz", kept=kept, again=again, passing=passing)
(out / f"{rank}.json").write_text(json.dumps([counts, main_process(), said]))
"""


@pytest.mark.parametrize(
    "launcher",
    [
        pytest.param(
            ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "0"],
            marks=pytest.mark.slow,
        ),
        pytest.param(["torch.distributed.run", "--nproc_per_node", "2", "--standalone"], marks=pytest.mark.slow),
    ],
    ids=["accelerate", "torchrun"],
)
def test_two_processes_give_the_vectors_of_one(tmp_path: Path, launcher: list[str]) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HOME": str(tmp_path)}
    env |= {"HF_ENDPOINT": "http://127.0.0.1:9"}
    (tmp_path / "tmp").mkdir()
    env |= {"TMPDIR": str(tmp_path / "tmp")}
    done = subprocess.run(
        [sys.executable, "-m", *launcher, str(job), str(tmp_path)],
        env=env, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    texts = [*notes(30, longest=20), ""]
    alone = encode_texts(texts[:-1], EncodeConfig("minilm", batch_tokens=64), cache="off")
    shares = []
    for number in (0, 1):
        found = np.load(tmp_path / f"{number}.npz")
        counts, main, said = json.loads((tmp_path / f"{number}.json").read_text())
        np.testing.assert_allclose(found["kept"][:-1], alone, atol=1e-5)
        assert not found["kept"][-1].any()
        np.testing.assert_array_equal(found["kept"], found["again"])
        np.testing.assert_allclose(found["passing"], alone[:8], atol=1e-5)
        assert main == (number == 0)
        assert "different texts" in said
        assert "org/not-there is not on this machine" in said
        assert counts[0] == counts[1]  # the second call finds all in the cache
        shares.append(counts[0])
    assert sum(shares) == 30
    assert min(shares) >= 10
    assert done.stdout.count("31 notes, 30 different") == 1  # one of them speaks
    assert done.stderr.count("1 of 31 texts hold no word") <= 2  # once a call
    assert not list((tmp_path / "tmp").glob("cxrhf-notes-*"))  # what they handed to each other is gone


def test_one_process_needs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert main_process()
    assert (n_processes(), rank()) == (1, 0)
    assert broadcast_bytes(b"x") == b"x"
    assert call_first(lambda: 3) == 3
    barrier()
    monkeypatch.setenv("WORLD_SIZE", "2")  # of a cluster, without a launcher of torch
    assert n_processes() == 1
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("RANK", "1")
    assert not main_process()


HELD = """
import os, sys
from cxrhf.encode.processes import one_writer_of_all
from cxrhf.errors import CxrhfError
try:
    with one_writer_of_all(sys.argv[1], "predict"):
        said = "written"
except CxrhfError as error:
    said = "refused" if "cxrhf train" in str(error) else str(error)
os.write(1, f"{said} {os.environ['RANK']}\\n".encode())
"""


@pytest.mark.slow
def test_a_held_folder_is_refused_to_every_process_of_a_launch(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(HELD)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def said() -> list[str]:
        done = subprocess.run([*launcher, str(job), str(tmp_path / "run")], env=env, capture_output=True, text=True,
                              check=True, timeout=120)  # fmt: skip
        return sorted(done.stdout.splitlines())

    with one_writer(tmp_path / "run", "train"):
        assert said() == ["refused 0", "refused 1"]
    assert said() == ["written 0", "written 1"]


def test_one_process_holds_a_folder_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with one_writer_of_all(tmp_path / "run", "predict", join=pytest.fail):
        assert (tmp_path / ".run.lock").is_file()
