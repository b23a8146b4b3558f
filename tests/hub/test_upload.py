"""Pushing to the loopback Hub through the real client: all or nothing, once, and the truth about what went wrong."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, constants
from huggingface_hub.utils import _http

from cxrhf.hub.artefact import Artefact, Piece
from cxrhf.hub.connection import Hub, HubError, call_with_retries, connect, shown_endpoint, without_query
from cxrhf.hub.upload import MANIFEST, Pushed, listing, push
from tests.hub.loopback import Answer, Drop, LoopbackHub
from tests.refusals import refused
from tests.thinned import thinned

CARD = b"---\nlicense: apache-2.0\n---\n\n# A network\n"
WEIGHTS = bytes(range(256)) * 8000  # 2 MB
REPO = f"{LoopbackHub.user}/network"


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_http.time, "sleep", lambda seconds: None)


def artefact(tmp_path: Path, *, weights: bytes = WEIGHTS, **more: bytes) -> Artefact:
    file = tmp_path / "model.safetensors"
    file.write_bytes(weights)
    pieces = [Piece("README.md", CARD), Piece("model.safetensors", file)]
    pieces += [Piece(name.replace("_", "/", 1) + ".json", content) for name, content in more.items()]
    return Artefact("model", "network", tuple(pieces))


def client(hub: LoopbackHub, *, token: str | None = None, waits: tuple[float, ...] = (0, 0, 0)) -> Hub:
    return Hub(HfApi(endpoint=hub.endpoint, token=token or hub.token), hub.endpoint, waits)


def sent(hub: LoopbackHub, made: Artefact, **more: Any) -> tuple[Pushed, list[str]]:
    lines: list[str] = []
    done = push(client(hub, **more), made, REPO, private=True, said=lines.append)
    return done, lines


def test_a_push_publishes_all_of_it_privately_and_says_so(hub: LoopbackHub, tmp_path: Path) -> None:
    made = artefact(tmp_path, extra_config=b"{}")
    done, lines = sent(hub, made)
    held = hub.files("model", REPO)
    assert held["README.md"] == CARD
    assert held["model.safetensors"] == WEIGHTS
    assert held["extra/config.json"] == b"{}"
    ours = json.loads(held[MANIFEST])
    assert set(ours["sha256"]) == {"README.md", "model.safetensors", "extra/config.json"}
    assert hub.repos["model", REPO].private
    assert done.changed
    assert set(done.sent) == {*ours["sha256"], MANIFEST}
    assert done.commit == hub.commits("model", REPO)[0].id
    assert done.url == f"{hub.endpoint}/{REPO}"
    assert len(hub.commits("model", REPO)) == 2  # the one of the creation, and ours
    assert not lines


def test_the_same_push_again_changes_nothing(hub: LoopbackHub, tmp_path: Path) -> None:
    sent(hub, artefact(tmp_path))
    before, uploads = hub.commits("model", REPO), len(hub.saw("PUT"))
    done, _ = sent(hub, artefact(tmp_path))
    assert not done.changed
    assert done.sent == ()
    assert hub.commits("model", REPO) == before
    assert len(hub.saw("PUT")) == uploads


def test_only_what_changed_is_sent_and_only_ours_is_removed(hub: LoopbackHub, tmp_path: Path) -> None:
    sent(hub, artefact(tmp_path, old=b"1", kept=b"2"))
    client(hub).api.upload_file(path_or_fileobj=b"by hand", path_in_repo="notes.txt", repo_id=REPO)
    done, _ = sent(hub, artefact(tmp_path, kept=b"22"))
    assert set(done.sent) == {"kept.json", MANIFEST}
    assert done.removed == ("old.json",)
    held = hub.files("model", REPO)
    assert "old.json" not in held
    assert held["notes.txt"] == b"by hand"
    assert held["model.safetensors"] == WEIGHTS


def test_a_public_repository_stays_public_and_spaces_are_of_gradio(hub: LoopbackHub) -> None:
    card = b"---\ntitle: x\nsdk: gradio\nsdk_version: 6.31.0\napp_file: app.py\n---\n"
    made = Artefact("metric", "cad", (Piece("README.md", card), Piece("cad.py", b"x = 1\n")))
    repo = f"{hub.org}/cad"
    push(client(hub), made, repo, private=False, said=print)
    push(client(hub), made, repo, private=True, said=print)
    assert not hub.repos["space", repo].private


@pytest.mark.parametrize("method_path", thinned(
    ["GET /api/models/", "POST /api/repos/create", "POST /api/validate-yaml", "POST /preupload/", "POST /objects/batch",
     "PUT .", "POST /commit/", "GET /tree/"],
    ("POST /api/repos/create", "PUT .", "POST /commit/", "GET /tree/")))  # fmt: skip
@pytest.mark.parametrize("fault", [Answer(500), Answer(429, {"Retry-After": "0"}), Drop(after=0)])
@pytest.mark.usefixtures("no_waiting")
def test_what_passes_is_outlived_wherever_it_strikes(
    hub: LoopbackHub, tmp_path: Path, method_path: str, fault: Any
) -> None:
    method, path = method_path.split(" ")
    hub.fault(method, path, fault)
    done, _ = sent(hub, artefact(tmp_path))
    assert not hub.planned
    assert done.changed
    assert hub.files("model", REPO)["model.safetensors"] == WEIGHTS
    assert len(hub.commits("model", REPO)) == 2


@pytest.mark.usefixtures("no_waiting")
def test_a_connection_that_breaks_half_way_begins_again_and_a_broken_push_is_resumed(
    hub: LoopbackHub, tmp_path: Path
) -> None:
    second = tmp_path / "second.safetensors"
    second.write_bytes(WEIGHTS[::-1])
    made = artefact(tmp_path)
    made = Artefact("model", "network", (*made.pieces, Piece("second.safetensors", second)))
    hub.fault("PUT", ".", Drop(after=1_000_000))
    sent(hub, artefact(tmp_path))  # the one drop is outlived
    hub.fault("PUT", ".", *[Drop(after=1_000_000)] * 6)  # the client tries six times, and that is all
    with refused(HubError, "connection", "Nothing was published", fix="run the same command"):
        sent(hub, made)
    assert "second.safetensors" not in hub.files("model", REPO)
    before = len([each for each in hub.saw("PUT") if each.status == 200])
    done, _ = sent(hub, made)
    assert set(done.sent) == {"second.safetensors", MANIFEST}
    assert len([each for each in hub.saw("PUT") if each.status == 200]) == before + 1  # the first is there already


@pytest.mark.parametrize("method_path", ["PUT .", "POST /preupload/", "GET /tree/", "POST /commit/"])
@pytest.mark.usefixtures("no_waiting")
def test_a_server_that_is_down_is_asked_six_times_and_no_more(
    hub: LoopbackHub, tmp_path: Path, method_path: str
) -> None:
    """The client's attempts and ours were multiplied: 36 for each file."""
    method, path = method_path.split(" ")
    hub.fault(method, path, *[Answer(503)] * 40)
    with refused(HubError, "503"):
        sent(hub, artefact(tmp_path), waits=(0,) * 5)
    assert len(hub.planned) == 40 - 6


@pytest.mark.usefixtures("no_waiting")
def test_large_files_that_have_arrived_are_not_sent_again(hub: LoopbackHub, tmp_path: Path) -> None:
    hub.fault("POST", "/commit/", *[Answer(503)] * 4)
    with refused(HubError, "503"):
        sent(hub, artefact(tmp_path))
    assert len(hub.saw("PUT")) == 1
    sent(hub, artefact(tmp_path))
    assert len(hub.saw("PUT")) == 1


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Answer(401, {"X-Error-Message": "Invalid credentials in Authorization header"}), "does not accept this token"),
        (Answer(403), "write to tester/network"),
        (Answer(400, {}, {"error": "bad file"}), "tester/network.*400.*bad file"),
        (Answer(507), "507"),
    ],
)
@pytest.mark.parametrize("where", ["/api/repos/create", "/preupload/", "/objects/batch", "/commit/"])
def test_what_does_not_pass_is_one_sentence_and_nothing_is_published(
    hub: LoopbackHub, tmp_path: Path, where: str, fault: Answer, said: str
) -> None:
    hub.fault("POST", where, fault)
    with pytest.raises(HubError, match=said) as caught:
        sent(hub, artefact(tmp_path))
    text = str(caught.value)
    assert "Nothing was published" in text
    assert hub.token not in text
    assert "\n" not in text
    if ("model", REPO) in hub.repos:
        assert set(hub.files("model", REPO)) <= {".gitattributes"}


@pytest.mark.usefixtures("no_waiting")
def test_errors_that_stay_are_told_after_the_last_attempt(hub: LoopbackHub, tmp_path: Path) -> None:
    for status in (500, 429):
        hub.fault("POST", "/commit/", *[Answer(status)] * 4)
        with refused(HubError, str(status), "Nothing was published"):
            sent(hub, artefact(tmp_path))
        assert not hub.planned
        assert set(hub.files("model", REPO)) <= {".gitattributes"}


def test_a_wrong_token_is_one_sentence(hub: LoopbackHub, tmp_path: Path) -> None:
    wrong = hub.token[::-1]
    with pytest.raises(HubError) as caught:
        sent(hub, artefact(tmp_path), token=wrong)
    text = str(caught.value)
    assert text.startswith(f"{hub.endpoint} does not accept this token. Nothing was published. Create one with write")
    assert wrong not in text
    assert not hub.repos
    reader = hub.add_user("reader", write=False)
    with refused(HubError, REPO, fix="write access"):
        sent(hub, artefact(tmp_path), token=reader)


@pytest.mark.parametrize("status", [409, 412])
def test_somebody_else_writes_at_the_same_time(hub: LoopbackHub, tmp_path: Path, status: int) -> None:
    hub.fault("POST", "/commit/", Answer(status))
    done, lines = sent(hub, artefact(tmp_path))
    assert done.changed
    assert any(f"someone else changed {REPO}" in line for line in lines)
    hub.fault("POST", "/commit/", *[Answer(status)] * 3)
    with refused(HubError, REPO, fix="run the same command"):
        sent(hub, artefact(tmp_path, more=b"1"))
    assert "more.json" not in hub.files("model", REPO)


def test_another_commit_meanwhile_is_kept(hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent(hub, artefact(tmp_path))
    mine = client(hub)
    real, other = mine.api.create_commit, HfApi(endpoint=hub.endpoint, token=hub.token)
    calls: list[int] = []

    def late(*args: Any, **more: Any) -> Any:
        if not calls:
            other.upload_file(path_or_fileobj=b"theirs", path_in_repo="theirs.txt", repo_id=REPO)
        calls.append(1)
        return real(*args, **more)

    monkeypatch.setattr(mine.api, "create_commit", late)
    push(mine, artefact(tmp_path, more=b"1"), REPO, private=True, said=lambda line: None)
    held = hub.files("model", REPO)
    assert held["theirs.txt"] == b"theirs"
    assert held["more.json"] == b"1"
    assert len(calls) == 2


def test_a_commit_whose_answer_was_lost_is_not_made_twice(hub: LoopbackHub, tmp_path: Path) -> None:
    class Lost(Exception):
        pass

    Lost.__name__ = "TransportError"
    mine = client(hub)
    real = mine.api.create_commit
    calls: list[int] = []

    def silent(*args: Any, **more: Any) -> Any:
        calls.append(1)
        done = real(*args, **more)
        if len(calls) == 1:
            raise Lost("the line is dead")
        return done

    mine.api.create_commit = silent  # type: ignore[method-assign]
    done = push(mine, artefact(tmp_path), REPO, private=True, said=lambda line: None)
    assert len(calls) == 1
    assert len(hub.commits("model", REPO)) == 2
    assert done.commit == hub.commits("model", REPO)[0].id


def test_what_came_back_otherwise_is_no_success(hub: LoopbackHub, tmp_path: Path) -> None:
    """A server that answers 200 and keeps something else."""
    mine = client(hub)
    real = mine.api.create_commit

    def loses(repo: str, operations: list[Any], **more: Any) -> Any:
        return real(repo, [each for each in operations if each.path_in_repo != "README.md"], **more)

    mine.api.create_commit = loses  # type: ignore[method-assign]
    with refused(HubError, "1 of 3 files", "README.md"):
        push(mine, artefact(tmp_path), REPO, private=True, said=lambda line: None)


def test_a_card_that_the_hub_refuses(hub: LoopbackHub) -> None:
    made = Artefact("model", "x", (Piece("README.md", b"---\nlicense: [1\n---\n"),))
    with pytest.raises(HubError, match="Nothing was published"):
        push(client(hub), made, REPO, private=True, said=print)


def test_names_that_cannot_be(hub: LoopbackHub, tmp_path: Path) -> None:
    with refused(HubError, "--to", got="a/b/c"):
        push(client(hub), artefact(tmp_path), "a/b/c", private=True, said=print)


def test_nothing_of_a_token_or_a_signature_is_logged(
    hub: LoopbackHub, tmp_path: Path, caplog: pytest.LogCaptureFixture, no_waiting: None
) -> None:
    logger = logging.getLogger("huggingface_hub")
    logger.propagate, before = True, logger.propagate
    hub.fault("PUT", ".", Answer(500))
    with caplog.at_level(logging.DEBUG, logger="huggingface_hub"):
        sent(hub, artefact(tmp_path))
    logger.propagate = before
    assert "HTTP Error 500" in caplog.text
    assert hub.token not in caplog.text
    assert "?" not in "".join(line for line in caplog.text.splitlines() if "HTTP Error" in line)


def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "https://me:pass@hub.example.org")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", "/nowhere/token")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with refused(HubError, "https://hub.example.org", fix="HF_TOKEN"):
        connect()
    monkeypatch.setenv("HF_TOKEN", "x" * 20)
    assert connect().endpoint == "https://hub.example.org"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with refused(HubError, "HF_HUB_OFFLINE", fix="--dry-run"):
        connect()
    assert shown_endpoint("http://127.0.0.1:80/") == "http://127.0.0.1:80"
    assert without_query("to https://a/b?sig=1 and") == "to https://a/b and"


def test_waits_grow_and_end() -> None:
    waited: list[float] = []

    class Down(Exception):
        response = type("R", (), {"status_code": 503, "headers": {}})()

    def call() -> None:
        raise Down

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cxrhf.hub.connection.time.sleep", waited.append)
        api: Any = None
        with pytest.raises(Down):
            call_with_retries(Hub(api, "x", (1, 2, 4)), "x", call, lambda line: None)
    assert waited == [1, 2, 4]


def test_the_listing_shows_every_file_with_its_size(tmp_path: Path) -> None:
    lines = listing(artefact(tmp_path), REPO, private=True)
    assert lines[0].startswith("tester/network (model, private if new): 3 files, 2.0 MB")
    assert any(line.split() == ["model.safetensors", "2.0", "MB"] for line in lines)
    assert any(MANIFEST in line for line in lines)


@pytest.mark.slow
def test_the_command_in_a_process_of_its_own(hub: LoopbackHub, tmp_path: Path) -> None:
    """HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE as a user sets them."""
    words = [sys.executable, "-m", "cxrhf", "push", "metric", "balanced_brier", "--to", hub.user]

    def run(*more: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*words, *more], env=hub.env(**env), capture_output=True, text=True, timeout=120,
                              check=False)  # fmt: skip

    dry = run("--dry-run", "--json", token="", HF_HUB_OFFLINE="1")
    assert dry.returncode == 0, dry.stderr
    (told,) = json.loads(dry.stdout)
    assert told["repo"] == f"{hub.user}/balanced_brier"
    assert told["files"]["balanced_brier.py"] > 1000
    assert not hub.requests
    sent = run()
    assert sent.returncode == 0, sent.stderr
    assert "published" in sent.stdout
    assert hub.token not in sent.stdout + sent.stderr
    wrong = run(token=hub.token[::-1])
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1
    assert "does not accept this token" in wrong.stderr
