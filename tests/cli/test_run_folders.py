"""Run folders that others made, hold, or left half written: refused in a line, and nothing outside is touched."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cxrhf
from cxrhf import cli
from cxrhf.report.card import slug
from cxrhf.schema import RESULT
from cxrhf.tables.checks import table_of
from cxrhf.tables.files import read_table, write_table
from cxrhf.tables.folders import one_writer

ROWS = "id,patient,truth,ai\n" + "".join(
    f"i{at},p{at // 2},{(at // 2 + at // 7) % 2},0.{(at * 37) % 90 + 10}\n" for at in range(40)
)
FLAGS = ["--label", "truth", "--score", "ai", "--n-resamples", "10", "--only", "overview"]
PLACES = ("model_cards", "figures", "labelling", "local", "models", "probes", "report.html", "results.parquet",
          "run.json", "scores.parquet")  # fmt: skip
HOSTILE: dict[str, Any] = {
    "inputs": [3, "x", ["a"], [{"sha256": []}]],
    "earlier": ["x", [1], {"train": 3}, {"train": {"config": 5}}],
    "tables": [["results"], 4],
    "notes": [5, "x", {"a": 1}],
    "config": [7, [1], {"build": 3}, {"only": 3}],
    "versions": ["x"],
    "verb": [["audit"]],
    "generated": [{"m": 3}, {"m": {"strategies": [1]}}],
    "format": ["one"],
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audited run, with the file that it was made from beside it."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "p.csv").write_text(ROWS)
    found = cxrhf.audit(folder / "p.csv", label="truth", score="ai", n_resamples=10, only="overview")
    found.save(folder / "run")
    return folder


@pytest.fixture
def place(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to work in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cxrhf.report.files.png", lambda svg: b"png")
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return tmp_path / "run"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """The one line of a command that ends with exit code 2."""
    capsys.readouterr()
    assert cli.main(list(args)) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("[")]
    assert len(said) == 1, said
    assert said[0].startswith("error: ")
    return said[0]


@pytest.mark.parametrize("name", PLACES)
def test_no_verb_writes_or_removes_through_a_link(place: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    outside = place.parent / "outside"
    (outside / "thesis").mkdir(parents=True)
    (outside / "thesis" / "results.json").write_text(json.dumps({"what": "RESULT rows of cxrhf and facts of a run"}))
    is_table = (place / name).is_file()
    if is_table:
        shutil.move(place / name, outside / name)
    else:
        shutil.rmtree(place / name, ignore_errors=True)
    (place / name).symlink_to(outside / name if is_table else outside)
    before, inside = contents(outside), contents(place)
    for args in (
        ["report", "run"],
        ["report", "--diff", "run", "run"],
        ["audit", "run", *FLAGS[4:]],
        ["audit", "p.csv", *FLAGS, "--out", "run"],
        ["audit", "p.csv", *FLAGS, "--out", "run", "--overwrite"],
        ["generate", "--from", "p.csv", "--out", "run", "--overwrite"],
        ["push", "model", "run", "--to", "user/name", "--dry-run"],
    ):
        assert f"run/{name} is a symbolic link" in refused(capsys, *args), args
    assert contents(outside) == before
    assert contents(place) == inside


def test_links_below_a_folder_of_ours_count_and_links_of_others_do_not(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = place.parent / "id_ed25519"
    secret.write_text("SECRET")
    (place / "figures" / "flow.svg").symlink_to(secret)
    assert "run/figures/flow.svg is a symbolic link" in refused(capsys, "report", "run")
    (place / "figures" / "flow.svg").unlink()
    (place / "thesis.txt").symlink_to(secret)
    Path("latest").symlink_to("run")
    assert cli.main(["report", "latest"]) == 0
    assert (place / "model_cards").is_dir()
    assert not (place / "model_cards").is_symlink()


def test_a_nested_run_behind_a_link_gives_no_card(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(place, place.parent / "theirs")
    (place / "nested").symlink_to(place.parent / "theirs")
    assert "run/nested is a symbolic link" in refused(capsys, "report", "run")


def test_cards_behind_links_are_not_written_again(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "run", "--cards", "cards"]) == 0
    shutil.move("cards/model", "elsewhere")
    Path("cards/model").symlink_to(Path("elsewhere").resolve())
    before = contents(Path("elsewhere"))
    for args in (["report", "cards"], ["report", "run", "--cards", "cards"]):
        assert "cards/model is a symbolic link" in refused(capsys, *args)
    assert contents(Path("elsewhere")) == before


def test_a_full_disk_while_the_page_is_written_leaves_an_unfinished_run(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(place)
    whole = cxrhf.report.files.write_bytes

    def full(target: Path, content: bytes) -> Path:
        if target.name in ("results.json", "report.html"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        return whole(target, content)

    with monkeypatch.context() as patched:
        patched.setattr("cxrhf.report.files.write_bytes", full)
        assert "No space left" in refused(capsys, "audit", "p.csv", *FLAGS, "--out", "run")
    assert json.loads((place / "run.json").read_text())["finished"] is None
    assert cli.main(["report", "run"]) == 0
    assert "run is not finished" in capsys.readouterr().err
    page = (place / "report.html").read_text()
    assert "Unfinished run." in page
    assert json.loads((place / "results.json").read_text())["notes"][0].startswith("the last command that wrote")
    assert not (place / "model_cards").exists()
    assert cli.main(["audit", "p.csv", *FLAGS, "--out", "run"]) == 0  # the same command again
    record = json.loads((place / "run.json").read_text())
    page = (place / "report.html").read_text()
    assert "Unfinished run." not in page
    assert record["finished"] in page
    assert json.loads((place / "results.json").read_text())["run"]["finished"] == record["finished"]


def test_a_stop_while_a_run_is_cleared_leaves_no_finished_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    other = place.parent / "other.csv"
    other.write_text(ROWS.replace("i0,", "i00,"))
    monkeypatch.setattr("cxrhf.run.shutil.rmtree", stopped)
    (place / "model_cards").mkdir()
    assert cli.main(["audit", "other.csv", *FLAGS, "--out", "run", "--overwrite"]) == 130
    assert json.loads((place / "run.json").read_text())["finished"] is None


def test_a_page_in_memory_is_not_called_unfinished() -> None:
    found = cxrhf.audit(
        {"label": [0, 1] * 20, "score": [k % 7 / 7 for k in range(40)]}, n_resamples=10, only="overview"
    )
    assert "Unfinished" not in found.html()


@pytest.mark.parametrize(
    "args",
    [
        ["audit", "p.csv", *FLAGS, "--out", "run"], ["audit", "run"], ["report", "run"],
        ["report", "--diff", "run", "run"], ["generate", "--from", "p.csv", "--out", "run"],
        ["demo", "--out", "run", "--overwrite"],
    ],
    ids=["audit", "audit itself", "report", "diff", "generate", "demo"],
)  # fmt: skip
def test_a_held_run_is_refused(place: Path, capsys: pytest.CaptureFixture[str], args: list[str]) -> None:
    before = contents(place)
    with hold(place, "train"):
        assert "cxrhf train, process" in refused(capsys, *args)
    assert contents(place) == before


def test_a_held_run_is_not_saved_to(place: Path) -> None:
    found = cxrhf.audit(place, n_resamples=10, only="overview")
    with hold(place, "train"), pytest.raises(cxrhf.errors.RunError, match="cxrhf train, process"):
        found.save(place, overwrite=True)


class hold:
    """Another process that writes to a folder."""

    def __init__(self, folder: Path, verb: str) -> None:
        code = (
            "import sys; from cxrhf.tables.folders import one_writer\nwith one_writer(*sys.argv[1:]): print(); input()"
        )
        self.command = [sys.executable, "-c", code, str(folder), verb]

    def __enter__(self) -> None:
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "\n"

    def __exit__(self, *_: object) -> None:
        self.process.communicate("\n")


def start(*args: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "cxrhf", *args], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **options)  # fmt: skip


@pytest.mark.slow
def test_of_eight_audits_into_one_new_folder_one_finishes(tmp_path: Path) -> None:
    for at in range(8):
        (tmp_path / f"{at}.csv").write_text(ROWS.replace("i0,", f"first-of-{at},"))
    running = [start("audit", f"{at}.csv", *FLAGS, "--out", "runs/new", cwd=tmp_path) for at in range(8)]
    said = [each.communicate(timeout=300)[1] for each in running]
    codes = [each.returncode for each in running]
    assert sorted(codes) == [0, *[2] * 7]
    done = codes.index(0)
    for at in set(range(8)) - {done}:
        line = said[at].splitlines()[-1]
        assert f"process {running[done].pid}" in line or "made from other inputs" in line
    run = tmp_path / "runs" / "new"
    assert [each["name"] for each in json.loads((run / "run.json").read_text())["inputs"]] == [f"{done}.csv"]
    assert f"first-of-{done}" in read_table(run / "predictions.parquet")["image_id"].to_pylist()
    assert sorted(each.name for each in run.parent.iterdir()) == ["new"]


VERBS: dict[str, Callable[[str], list[str]]] = {
    "report": lambda run: ["report", run],
    "audit": lambda run: ["audit", run],
    "audit into": lambda run: ["audit", "p.csv", *FLAGS, "--out", run],
    "diff": lambda run: ["report", "--diff", "theirs", run],
    "push": lambda run: ["push", "model", run, "--to", "user/name", "--dry-run"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_run_json_of_the_wrong_kind_is_one_line(place: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    shutil.copytree(place, "theirs")
    record = json.loads((place / "run.json").read_text())
    texts = [json.dumps(record | {name: each}) for name, several in HOSTILE.items() for each in several]
    texts += ["{" * 5000, '{"a":' * 100_000, json.dumps(record | {"seed": "\ud800"}),
              json.dumps(record | {"config": json.loads('{"a":' * 200 + "1" + "}" * 200)}),
              json.dumps(record | {"seed": "SEED"}).replace('"SEED"', "9" * 5000)]  # fmt: skip
    if verb == "push":
        make_network(place)
    for text in texts if verb == "report" else texts[::6]:
        (place / "run.json").write_text(text)
        assert "is damaged" in refused(capsys, *VERBS[verb]("run"))
    (place / "run.json").write_text(json.dumps(record | {"format": 2}))
    assert "newer version of cxrhf (format 2; this version reads up to 1)" in refused(capsys, *VERBS[verb]("run"))


def make_network(run: Path) -> None:
    """As little of one as `cxrhf push` needs to go on to the record."""
    folder = run / "models" / "seed-0"
    folder.mkdir(parents=True)
    (folder / "cxrhf.json").write_text("{}")
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_text("{}")


def test_what_the_files_beside_weights_say_is_checked(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_network(place)
    path = place / "models" / "seed-0" / "cxrhf.json"
    changes: list[dict[str, object]] = [
        {"outputs": 3}, {"outputs": [{}]}, {"images": "x"}, {"trained": {"steps": "x"}}, {"look": [1]}, {"seed": []},
    ]  # fmt: skip
    for said in changes:
        path.write_text(json.dumps({"name": "model"} | said))
        assert "is damaged" in refused(capsys, "report", "run")
    path.write_text("[" * 100_000)
    assert "is damaged" in refused(capsys, "report", "run")
    path.unlink()
    record = json.loads((place / "run.json").read_text())
    build = place / "data" / "build.json"
    build.parent.mkdir()
    builds: list[dict[str, object]] = [{"splits": 3}, {"splits": {"a": "x"}}, {"settings": [1]}, {"dataset": {}}]
    for wrong in builds:
        build.write_text(json.dumps(wrong))
        inputs = [{"name": "build.json", "sha256": hashlib.sha256(build.read_bytes()).hexdigest()}]
        (place / "run.json").write_text(json.dumps(record | {"inputs": inputs}))
        assert "is damaged" in refused(capsys, "report", "run")


def test_null_and_nan_in_run_json_are_nothing(place: Path) -> None:
    record = json.loads((place / "run.json").read_text())
    nothing = dict.fromkeys(("config", "inputs", "notes", "tables", "earlier", "versions", "reading"))
    (place / "run.json").write_text(json.dumps(record | nothing | {"fitted": {"a": float("nan")}}))
    assert cli.main(["report", "run"]) == 0


def test_a_card_with_a_hostile_results_json_is_one_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "run", "--cards", "cards"]) == 0
    path = Path("cards/model/results.json")
    held = json.loads(path.read_text())
    facts = held["facts"]
    damaged = [{"results": 3}, {"results": [3]}, {"facts": 3}, {"facts": facts | {"weights": 7}}]
    strange = [{"results": [{"audit": []}]}, {"repo": 3}, {"facts": facts | {"kind": "x"}}]
    strange += [{"facts": facts | {name: 7}} for name in facts]
    for change in damaged:
        path.write_text(json.dumps(held | change))
        assert "is damaged" in refused(capsys, "report", "cards")
    for change in strange:
        path.write_text(json.dumps(held | change))
        assert cli.main(["report", "cards"]) in (0, 2), change
    path.write_text(json.dumps(held | {"format": 2}))
    assert "newer version" in refused(capsys, "report", "cards")


def test_a_model_with_a_very_long_name_gets_a_card(place: Path) -> None:
    names = ["m" * 500, "m" * 499 + "!", "模" * 500]  # as long as a name may be
    rows = read_table(place / "results.parquet", RESULT).to_pylist()
    many = [row | {"model": name} for name in names for row in rows]
    write_table(table_of(many, RESULT), place / "results.parquet")
    assert cli.main(["report", "run"]) == 0
    made = sorted(each.name for each in (place / "model_cards").iterdir())
    assert len(made) == 3
    assert slug(names[0]) in made
    assert max(map(len, made)) < 110


def test_drafts_of_a_killed_writer_refuse_nothing_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cxrhf.report.files.png", lambda svg: b"png")
    Path("p.csv").write_text(ROWS)
    run = tmp_path / "run"
    run.mkdir()
    (run / ".run.json.4711.tmp").write_text("{")
    assert cli.main(["audit", "p.csv", *FLAGS, "--out", "run"]) == 0
    for name in (".predictions.parquet.4711.tmp", "labelling/.net-x.csv.4711.tmp", ".notes.4711.tmp"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("i1,p1")
    (run / "models" / ".context-4711-0a1b2c3d.part").mkdir(parents=True)
    (run / "models" / ".context-4711-0a1b2c3d.old").mkdir()
    assert cli.main(["report", "run"]) == 0
    left = [each.name for each in run.rglob(".*") if each.name.endswith((".tmp", ".part", ".old"))]
    assert left == [".notes.4711.tmp"]  # of another program: no file of ours has that name
    assert (run / "models" / "context").is_dir()  # set aside, and its successor never came


def test_a_lock_that_is_not_got_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                      monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    refused(capsys, "audit", "missing.csv", "--out", "deep/er/run")
    assert list(tmp_path.iterdir()) == []
    with one_writer("deep/run", "audit"):
        pass
    assert list(tmp_path.iterdir()) == []
