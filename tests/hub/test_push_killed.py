"""`cxrhf push` killed at any moment: the same command again succeeds, and nothing is left behind."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from cxrhf.cli import main
from cxrhf.errors import RunError
from cxrhf.tables.folders import one_writer, temporary_folder
from tests.hub.loopback import LoopbackHub

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("killed_push.py")


class Done(NamedTuple):
    code: int
    said: str
    requests: int
    writes: int


@dataclass(slots=True)
class Place:
    """A Hub, a folder to work in, a folder for temporary files that is watched, and what starts commands."""

    hub: LoopbackHub
    folder: Path
    temporary: Path
    starter: subprocess.Popen[str]

    def push(self, words: list[str], kind: str = "", at: float = 0) -> Done:
        """`cxrhf push WORDS`, killed at a moment."""
        asked = {"words": ["push", *words], "kind": kind, "at": at, "folder": str(self.folder),
                 "temporary": str(self.temporary)}  # fmt: skip
        assert self.starter.stdin is not None
        assert self.starter.stdout is not None
        self.starter.stdin.write(json.dumps(asked) + "\n")
        self.starter.stdin.flush()
        answer = json.loads(self.starter.stdout.readline())
        last = answer["said"].rstrip().rpartition("\n")[2]
        counts = json.loads(last) if last.startswith('{"request"') else {"request": 0, "write": 0}
        return Done(answer["code"], answer["said"], counts["request"], counts["write"])

    def left(self) -> list[str]:
        """What is in the place of temporary files."""
        return sorted(str(path.relative_to(self.temporary)) for path in self.temporary.rglob("*"))


@pytest.fixture
def place(hub: LoopbackHub, tmp_path: Path) -> Iterator[Place]:
    for name in ("work", "temporary"):
        (tmp_path / name).mkdir()
    env = hub.env(tmp_path / "home", PYTHONPATH=str(ROOT), TMPDIR=str(tmp_path / "temporary"))
    with subprocess.Popen([sys.executable, str(PROGRAM)], env=env, text=True, cwd=tmp_path, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as starter:  # fmt: skip
        assert starter.stdout is not None
        assert starter.stdout.readline() == "ready\n"
        yield Place(hub, tmp_path / "work", tmp_path / "temporary", starter)


def _again(place: Place, words: list[str], kind: str, repo: str, expected: set[str], before: set[str]) -> None:
    """What is published after a kill is nothing or all of it; the same command then publishes all of it."""
    where = (kind, f"{place.hub.user}/{repo}")
    held = set(place.hub.files(*where)) if where in place.hub.repos else set()
    assert held <= {".gitattributes", "README.md"} or held >= expected
    done = place.push(words)
    assert done.code == 0, done.said
    assert set(place.hub.files(*where)) >= expected
    assert len(place.hub.commits(*where)) == 2  # that of the creation, and one of ours
    assert place.left() == []
    assert {str(path.relative_to(place.folder)) for path in place.folder.rglob("*")} == before


METRIC = ["metric", "wae", "--to", LoopbackHub.user]


def test_a_metric_killed_before_its_commit(place: Place) -> None:
    """Two requests before the end: the repository is made, and empty."""
    done = place.push(METRIC, "request", 3)
    assert done.code == -signal.SIGKILL
    assert place.left()  # a killed process removes nothing
    _again(place, METRIC, "space", "wae", {"wae.py", "README.md", ".cxrhf.json"}, set())


def test_what_a_killed_process_left_is_removed_and_what_others_hold_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "cxrhf-push-killed").mkdir()
    (tmp_path / "cxrhf-push-killed" / "rows.parquet").write_text("rows")
    (tmp_path / ".cxrhf-push-early.lock").write_text("")
    (tmp_path / "cxrhf-selfcheck-other").mkdir()
    held = subprocess.Popen(
        [sys.executable, "-c", "import sys, time\nfrom cxrhf.tables.folders import temporary_folder\n"
         "with temporary_folder('push') as folder:\n print(folder, flush=True)\n time.sleep(60)"],
        env={"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert held.stdout is not None
    theirs = Path(held.stdout.readline().strip())
    with temporary_folder("push") as folder:
        assert folder.stat().st_mode & 0o077 == 0
        names = {path.name for path in tmp_path.iterdir()}
        assert names == {
            folder.name,
            f".{folder.name}.lock",
            theirs.name,
            f".{theirs.name}.lock",
            "cxrhf-selfcheck-other",
        }
        with pytest.raises(RunError, match="another process"), one_writer(theirs, "push"):
            pass
    held.kill()
    held.wait()
    held.stdout.close()
    with temporary_folder("push") as folder:
        assert {path.name for path in tmp_path.iterdir()} == {
            folder.name, f".{folder.name}.lock", "cxrhf-selfcheck-other"}  # fmt: skip


def test_a_refused_push_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["push", "metric", "nonsense", "--to", "tester", "--dry-run"]) == 2
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- every moment of it


def _everywhere(place: Place, words: list[str], kind: str, repo: str) -> None:
    hub = place.hub
    where = (kind, f"{hub.user}/{repo}")
    before = {str(path.relative_to(place.folder)) for path in place.folder.rglob("*")}
    start = time.monotonic()
    whole = place.push(words)
    took = time.monotonic() - start
    assert whole.code == 0, whole.said
    expected = set(hub.files(*where))
    assert whole.requests > 3
    moments = [("request", at) for at in range(1, whole.requests + 1)]
    every = max(1, whole.writes // 12)
    moments += [("write", at) for at in range(1, whole.writes + 1, every)]
    for what, at in moments:
        hub.repos.pop(where, None)
        done = place.push(words, what, at)
        assert done.code == -signal.SIGKILL, (what, at, done.said)
        _again(place, words, kind, repo, expected, before)
    draw = random.Random(0)
    for _ in range(6):
        hub.repos.pop(where, None)
        place.push(words, "time", draw.uniform(0.02, took))
        _again(place, words, kind, repo, expected, before)


@pytest.mark.slow
def test_metrics_at_every_moment(place: Place) -> None:
    _everywhere(place, METRIC, "space", "wae")


@pytest.mark.slow
def test_a_dataset_at_every_moment(place: Place) -> None:
    assert main(["build", "synthetic", "--out", str(place.folder / "twin"), "--n-patients", "8", "--size", "64"]) == 0
    _everywhere(place, ["dataset", "twin", "--to", f"{place.hub.user}/twin"], "dataset", "twin")


@pytest.fixture
def with_demo(place: Place, small_demo: Path) -> Place:
    shutil.copytree(small_demo / "runs" / "demo" / "context", place.folder / "context")
    shutil.copytree(small_demo / "runs" / "demo" / "data", place.folder / "data")
    return place


@pytest.mark.slow
def test_a_model_at_every_moment(with_demo: Place) -> None:
    _everywhere(with_demo, ["model", "context", "--to", f"{with_demo.hub.user}/context"], "model", "context")
