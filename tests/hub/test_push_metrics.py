"""Every metric, pushed with the real command: `evaluate.load` gives the repository's bits where cxrhf is not installed.

The Hub is the loopback one, all else is real: the command, the client, evaluate, gradio, the environments.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cxrhf.hub.metric import contents
from cxrhf.hub.widget import plain
from cxrhf.paths import metric_path, shipped
from tests.browser import serve
from tests.hub import metric_values
from tests.hub.fresh import installed, linked
from tests.hub.loopback import LoopbackHub
from tests.metric_cases import case, same, subprocess_environment

ROOT = Path(__file__).resolve().parents[2]
NAMES = shipped("metrics")
SOME = ("cad", "weighted_auroc")
# What the README promises to be enough.
ENOUGH = ("evaluate", "numpy", "scipy", "scikit-learn", "numba")
WITHOUT_TRANSFORMERS = (ROOT / "tests" / "without_transformers.py").read_text(encoding="utf-8")


def pushed(hub: LoopbackHub, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cxrhf", "push", "metric", *words, "--to", hub.user]
    env = hub.env(PYTHONPATH=str(ROOT))
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def published() -> Iterator[LoopbackHub]:
    """A Hub with a few metrics."""
    with LoopbackHub() as hub:
        fill(hub, SOME, *SOME)
        yield hub


@pytest.fixture(scope="module")
def complete() -> Iterator[LoopbackHub]:
    """A Hub with all metrics."""
    with LoopbackHub() as hub:
        fill(hub, NAMES, "--all")
        yield hub


def fill(hub: LoopbackHub, names: Sequence[str], *words: str) -> None:
    done = pushed(hub, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": published, ") == len(names)
    assert hub.token not in done.stdout + done.stderr


def asked(base: Path, sources: Mapping[str, tuple[str, str | None]], whole: bool, absent: tuple[str, ...] = ()) -> Path:
    """Name -> what to load, and its card if it is not to be fetched: the question for metric_values.py."""
    modules = {
        name: {"load": load, "card": card, "rows": {key: np.asarray(each).tolist() for key, each in case(name).items()}}
        for name, (load, card) in sources.items()
    }
    path = base / "asked.json"
    path.write_text(json.dumps({"whole": whole, "absent": absent, "modules": modules}), encoding="utf-8")
    return path


def of_the_repository(base: Path, whole: bool, names: Sequence[str] = NAMES) -> dict[str, Any]:
    """What the modules of the repository give."""
    base.mkdir()
    paths = {name: metric_path(name) for name in names}
    question = asked(base, {name: (path, f"{path}/README.md") for name, path in paths.items()}, whole)
    program = f"{WITHOUT_TRANSFORMERS}\nfrom tests.hub.metric_values import main\nmain()\n"
    return answered([sys.executable, "-c", program, str(question)], subprocess_environment(base, path=str(ROOT)), ROOT)


def of_the_hub(python: Path, hub: LoopbackHub, base: Path, whole: bool, names: Sequence[str] = NAMES) -> dict[str, Any]:
    """What the published modules give in another environment, loaded by their names on the Hub without a token."""
    base.mkdir()
    sources = {name: (f"{hub.user}/{name}", None) for name in names}
    question = asked(base, sources, whole, absent=("cxrhf", "torch", "transformers", "gradio", "pytest"))
    program = base / "values.py"
    program.write_bytes(Path(metric_values.__file__).read_bytes())
    # -I: neither the folder that the tests run in, nor PYTHONPATH, nor what the user has installed.
    command = [str(python), "-I", str(program), str(question)]
    found = answered(command, hub.env(base / "home", token="", TQDM_DISABLE="1"), base)
    assert found["here"] == [], "these must not be importable"
    assert Path(found["prefix"]) == python.parents[1]
    return found


def answered(command: list[str], env: dict[str, str], cwd: Path) -> dict[str, Any]:
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def results_of(base: Path, names: Sequence[str]) -> dict[str, Any]:
    """The result of the first example of each card, in the repository."""
    found = of_the_repository(base / "values", whole=False, names=names)["values"]
    return {name: found[name]["example"] for name in names}


def test_loaded_from_the_hub_they_give_the_same_bits(
    published: LoopbackHub, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In one process of an environment that has evaluate, numpy, scipy, scikit-learn, numba and what they need.

    One with kernels and one without, since every copy compiles its own; the slow test below has them all.
    """
    python = linked(tmp_path / "environment", ENOUGH)
    found = of_the_hub(python, published, tmp_path / "values", whole=False, names=SOME)["values"]
    results = results_of(tmp_path_factory.mktemp("repository"), SOME)
    for name in SOME:
        assert any(key.startswith(name) for key in results[name])
        assert same(results[name], found[name]["example"]), f"{name}: {results[name]}, from the Hub {found[name]}"
        assert f"{published.user}--{name}" in found[name]["from"], "it must have come from the Hub"


@pytest.mark.slow
def test_so_they_do_where_pip_has_installed_it(complete: LoopbackHub, tmp_path: Path) -> None:
    """Every example of the cards, and seeded rows with intervals."""
    python = installed(tmp_path / "environment", ENOUGH)
    here = of_the_repository(tmp_path / "repository", whole=True)["values"]
    there = of_the_hub(python, complete, tmp_path / "hub", whole=True)["values"]
    for name in NAMES:
        for what in ("example", "rows"):
            assert same(here[name][what], there[name][what]), (
                f"{name}, {what}: {here[name]}, from the Hub {there[name]}"
            )


def test_what_is_published_is_the_staged_copy(published: LoopbackHub) -> None:
    assert sorted(name for _, name in published.repos) == sorted(f"{published.user}/{name}" for name in SOME)
    for name in SOME:
        held = published.files("space", f"{published.user}/{name}")
        staged = contents(Path(metric_path(name)), owner=published.user)
        assert {path: held[path] for path in staged} == staged
        assert set(held) - set(staged) == {".gitattributes", ".cxrhf.json"}
        repository = published.repos["space", f"{published.user}/{name}"]
        assert (repository.private, repository.sdk) == (False, "gradio")
        assert len(repository.commits) == 2  # made, and filled in one
        assert published.token.encode() not in b"".join(held.values())


@pytest.mark.slow
def test_the_same_push_again_changes_nothing(published: LoopbackHub) -> None:
    published.requests.clear()
    done = pushed(published, *SOME)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("nothing was sent") == len(SOME)
    assert {each.method for each in published.requests} <= {"GET", "HEAD"}


# The Spaces.


def downloaded(hub: LoopbackHub, name: str, place: Path) -> Path:
    """A Space as the Hub's builders get it."""
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(
            f"{hub.user}/{name}", repo_type="space", endpoint=hub.endpoint, token=False, local_dir=place / name
        )
    )


def requirements(space: Path) -> list[str]:
    """What a Space installs: its requirements.txt, and gradio in the version of its card."""
    lines = (space / "requirements.txt").read_text(encoding="utf-8").splitlines()
    card = (space / "README.md").read_text(encoding="utf-8")
    version = next(line.split()[1] for line in card.splitlines() if line.startswith("sdk_version:"))
    return [*(line for line in lines if not line.startswith("#")), f"gradio=={version}"]


def press(address: str) -> dict[str, Any]:
    """What the button of a page gives for the rows it starts with, asked as the page itself asks."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"{address}config", timeout=30) as answer:
        config = json.load(answer)
    parts = {part["id"]: part["props"] for part in config["components"]}
    names = {key: props.get("elem_id") for key, props in parts.items()}
    step = next(
        each
        for each in config["dependencies"]
        if [names[part] for part in each["inputs"][:1]] == ["inputs"] and names[each["outputs"][0]] == "problem"
    )
    session = secrets.token_hex(5)
    data = [parts[each].get("value") for each in step["inputs"]]
    body = json.dumps({"data": data, "fn_index": step["id"], "session_hash": session}).encode()
    asked = urllib.request.Request(
        f"{address}gradio_api/queue/join", data=body, headers={"Content-Type": "application/json"}
    )
    direct.open(asked, timeout=30).close()
    with direct.open(f"{address}gradio_api/queue/data?session_hash={session}", timeout=120) as stream:
        for line in stream:
            said = json.loads(line[6:]) if line.startswith(b"data: ") else {}
            if said.get("msg") == "process_completed":
                assert said["success"], said
                return dict(zip((names[each] for each in step["outputs"]), said["output"]["data"], strict=True))
    raise AssertionError("the page gave no answer")


def check_page(python: Path, space: Path, base: Path, result: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """`app.py`, started there with this Python, computes the example of the card."""
    nothing = base / "nothing"
    nothing.mkdir(exist_ok=True)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(python))
        own = {"SPACE_ID": f"tester/{space.name}"}
        running = serve(space / "app.py", hf_home=base / "home", pythonpath=nothing, environment=own)
        address = running.__enter__()
    try:
        shown = press(address)
    finally:
        running.__exit__(None, None, None)
    assert shown["problem"] == ""
    given = json.loads(shown["json"])
    for key, value in plain(result).items():
        assert same(given[key], value), f"{space.name}: {key} is {given[key]} on the page, {value} on the card"
    assert f'evaluate.load("tester/{space.name}")' in shown["code"]


@pytest.mark.slow
def test_a_space_starts_and_computes_the_example_of_its_card(
    published: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = downloaded(published, "weighted_auroc", tmp_path)
    python = linked(tmp_path / "environment", requirements(space))
    results = results_of(tmp_path, ("weighted_auroc",))
    check_page(python, space, tmp_path, results["weighted_auroc"], monkeypatch)


@pytest.mark.slow
def test_all_spaces_do_where_pip_has_installed_what_they_ask_for(
    complete: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = results_of(tmp_path, NAMES)
    environments: dict[tuple[str, ...], Path] = {}
    for name in NAMES:
        space = downloaded(complete, name, tmp_path)
        wanted = tuple(requirements(space))
        if wanted not in environments:
            environments[wanted] = installed(tmp_path / f"environment{len(environments)}", wanted)
        check_page(environments[wanted], space, tmp_path, results[name], monkeypatch)
