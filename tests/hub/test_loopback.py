"""The loopback Hub, asked by the real client: what it keeps, what it hides, what it refuses, what it drops."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import (
    BadRequestError,
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import disable_progress_bars, enable_progress_bars

from tests.hub.loopback import Answer, Drop, LoopbackHub, Slow

CARD = "---\nlicense: mit\ntags: [test]\n---\n\n# A card\n"
LARGE = bytes(range(256)) * 1200  # 300 kB, no text


@pytest.fixture
def api(hub: LoopbackHub) -> Iterator[Any]:
    disable_progress_bars()
    yield HfApi(endpoint=hub.endpoint, token=hub.token)
    enable_progress_bars()


def add(path: str, content: bytes) -> CommitOperationAdd:
    return CommitOperationAdd(path, content)


def put(api: Any, name: str, files: dict[str, bytes], **more: str) -> str:
    operations = [add(path, content) for path, content in files.items()]
    return api.create_commit(name, operations, commit_message="files", **more).oid


@pytest.mark.parametrize("kind", ["model", "dataset", "space"])
def test_a_folder_goes_up_and_comes_back(hub: LoopbackHub, api: Any, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "folder"
    (folder / "deep" / "er").mkdir(parents=True)
    card = CARD.replace("---\n\n", "sdk: gradio\n---\n\n") if kind == "space" else CARD
    held = {
        "README.md": card.encode(),
        "deep/er/weights.safetensors": LARGE,
        "deep/ü %.txt": "ä\n".encode(),
        "empty": b"",
    }
    for path, content in held.items():
        (folder / path).write_bytes(content)
    name = f"{hub.user}/thing"
    more = {"space_sdk": "gradio"} if kind == "space" else {}
    made = api.create_repo(name, repo_type=kind, **more)
    assert (made.repo_id, made.repo_type) == (name, kind)
    assert api.create_repo(name, repo_type=kind, exist_ok=True, **more) == made
    first = api.upload_folder(repo_id=name, repo_type=kind, folder_path=folder)
    assert hub.files(kind, name) == {".gitattributes": hub.files(kind, name)[".gitattributes"], **held}

    # What the tree says of them is what git and sha256 say.
    found = {each.path: each for each in api.list_repo_tree(name, recursive=True, repo_type=kind)}
    assert set(found) == {".gitattributes", *held, "deep", "deep/er"}
    assert [each.path for each in api.list_repo_tree(name, "deep", repo_type=kind)] == ["deep/er", "deep/ü %.txt"]
    assert found["empty"].blob_id == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    assert found["empty"].lfs is None
    large = found["deep/er/weights.safetensors"]
    assert (large.lfs.sha256, large.lfs.size) == (hashlib.sha256(LARGE).hexdigest(), len(LARGE))
    asked = api.get_paths_info(name, ["deep", "empty", "none"], repo_type=kind)
    assert [(each.path, type(each).__name__) for each in asked] == [("deep", "RepoFolder"), ("empty", "RepoFile")]
    about = api.repo_info(name, repo_type=kind, files_metadata=True)
    assert (about.sha, about.private, about.card_data.license) == (first.oid, False, "mit")
    assert {each.rfilename: each.size for each in about.siblings}["empty"] == 0

    # Down again: one file, all of them, an older state.
    down = api.hf_hub_download(name, "deep/ü %.txt", repo_type=kind, cache_dir=tmp_path / "cache")
    assert Path(down).read_text() == "ä\n"
    whole = Path(api.snapshot_download(name, repo_type=kind, cache_dir=tmp_path / "cache"))
    assert {path: (whole / path).read_bytes() for path in held} == held
    assert whole.name == first.oid
    old = hub.commits(kind, name)[-1]
    before = Path(api.snapshot_download(name, repo_type=kind, revision=old.id, cache_dir=tmp_path / "cache"))
    assert sorted(each.name for each in before.iterdir()) == sorted(old.files)

    # The same again makes no commit, and sends no large file; a change makes one.
    hub.requests.clear()
    assert api.upload_folder(repo_id=name, repo_type=kind, folder_path=folder).oid == first.oid
    assert not hub.saw("PUT|/commit/")
    (folder / "empty").write_bytes(b"full")
    second = api.upload_folder(repo_id=name, repo_type=kind, folder_path=folder, delete_patterns="deep/*")
    assert [each.commit_id for each in api.list_repo_commits(name, repo_type=kind)] == [second.oid, first.oid, old.id]
    assert api.list_repo_refs(name, repo_type=kind).branches[0].target_commit == second.oid
    assert hub.files(kind, name)["empty"] == b"full"
    api.delete_repo(name, repo_type=kind)
    assert not api.repo_exists(name, repo_type=kind)
    assert not hub.repos


def test_large_files_come_in_parts_from_an_address_of_their_own(api: Any, hub: LoopbackHub, tmp_path: Path) -> None:
    hub.storage.part_size = 100_000
    name = api.create_repo("parts").repo_id
    (tmp_path / "weights.bin").write_bytes(LARGE)
    file = CommitOperationAdd("weights.bin", tmp_path / "weights.bin")
    api.create_commit(name, [file, add("small.bin", b"\0small")], commit_message="files")
    assert [each.bytes for each in hub.saw(r"PUT /upload/\w+/\d+$")] == [
        100_000,
        100_000,
        100_000,
        len(LARGE) - 300_000,
    ]
    assert [each.bytes for each in hub.saw(r"PUT /upload/\w+$")] == [6]
    assert hub.files("model", name)["weights.bin"] == LARGE
    down = api.hf_hub_download(name, "weights.bin", cache_dir=tmp_path / "cache")
    assert Path(down).read_bytes() == LARGE
    assert Path(down).resolve().name == hashlib.sha256(LARGE).hexdigest()
    # The storage has another address, and never sees a token; the Hub sees whose it is.
    assert {each.user for each in hub.saw(" /upload/| /object/")} == {""}
    assert {each.user for each in hub.saw("/api/models|/resolve/|/objects/batch")} == {hub.user}
    # The same content under another name is not sent again.
    hub.requests.clear()
    put(api, name, {"copy.bin": LARGE})
    assert not hub.saw("PUT")
    assert hub.files("model", name)["copy.bin"] == LARGE


def test_parts_of_files(api: Any, hub: LoopbackHub) -> None:
    import httpx2

    name = api.create_repo("ranges").repo_id
    put(api, name, {"text": b"0123456789", "x.bin": LARGE})
    for path, content in (("text", b"0123456789"), ("x.bin", LARGE)):
        url = f"{hub.endpoint}/{name}/resolve/main/{path}"
        for asked, part in (("0-3", content[:4]), ("5-", content[5:]), ("-3", content[-3:])):
            found = httpx2.get(url, headers={"Range": f"bytes={asked}"}, follow_redirects=True)
            assert (found.status_code, found.content) == (206, part)
        assert httpx2.get(url, headers={"Range": "bytes=999999-"}, follow_redirects=True).status_code == 416
        assert httpx2.head(url).headers["X-Repo-Commit"] == hub.commits("model", name)[0].id
    assert httpx2.get(hub.storage.link(hashlib.sha256(LARGE).hexdigest()).partition("?")[0]).status_code == 403


def test_long_lists_come_in_pages(api: Any, hub: LoopbackHub) -> None:
    name = api.create_repo("pages").repo_id
    put(api, name, {f"f{number}": b"x" for number in range(9)})
    hub.page_size = 4
    assert len(list(api.list_repo_tree(name, recursive=True, expand=True))) == 10
    assert len(hub.saw("GET .*/tree/main")) == 3


def test_who_sees_and_who_may_write(api: Any, hub: LoopbackHub) -> None:
    name = api.create_repo("hidden", private=True).repo_id
    put(api, name, {"README.md": CARD.encode()})
    assert api.model_info(name).private is True
    anonymous, wrong = (HfApi(endpoint=hub.endpoint, token=token) for token in (False, hub.token[:-1]))
    other = HfApi(endpoint=hub.endpoint, token=hub.add_user("other"))
    reader = HfApi(endpoint=hub.endpoint, token=hub.add_user(hub.user, write=False))

    def status(call: Callable[[], object], kind: type[HfHubHTTPError] = HfHubHTTPError) -> int:
        with pytest.raises(kind) as caught:
            call()
        return caught.value.response.status_code

    assert status(lambda: anonymous.model_info(name), RepositoryNotFoundError) == 401
    assert status(lambda: other.model_info(name), RepositoryNotFoundError) == 404
    assert status(lambda: api.model_info(name, revision="none"), RevisionNotFoundError) == 404
    assert status(lambda: api.hf_hub_download(name, "none"), RemoteEntryNotFoundError) == 404
    with pytest.raises(HfHubHTTPError, match="Invalid credentials in Authorization header") as caught:
        wrong.model_info(name)
    assert not isinstance(caught.value, RepositoryNotFoundError)
    with pytest.raises(HfHubHTTPError, match="Invalid user token"):
        wrong.whoami()
    assert api.whoami()["name"] == hub.user
    assert [each["name"] for each in api.whoami()["orgs"]] == [hub.org]

    assert reader.model_info(name).id == name
    assert status(lambda: put(reader, name, {"a": b"b"})) == 403
    assert status(lambda: api.create_repo("other/theirs")) == 403
    assert api.create_repo(f"{hub.org}/ours").repo_id == f"{hub.org}/ours"
    assert status(lambda: api.create_repo("hidden")) == 409
    api.update_repo_settings(name, private=False, gated="auto")
    assert anonymous.model_info(name).gated == "auto"
    assert status(lambda: other.hf_hub_download(name, "README.md"), GatedRepoError) == 403
    assert {each.user for each in hub.requests} == {"", "?", "other", hub.user}
    assert hub.token not in repr(hub.requests)


def test_a_commit_is_whole_or_nothing(api: Any, hub: LoopbackHub, tmp_path: Path) -> None:
    name = api.create_repo("commits").repo_id
    head = put(api, name, {"a/b": b"1", "a/c": b"2", "d": b"3"})
    with pytest.raises(HfHubHTTPError, match="A commit has happened since") as caught:
        put(api, name, {"e": b"4"}, parent_commit=hub.commits("model", name)[-1].id)
    assert caught.value.response.status_code == 412
    for operation, said in (
        (CommitOperationDelete("none"), "doesn't exist"),
        (CommitOperationDelete("none/"), "doesn't exist"),
    ):
        with pytest.raises(RemoteEntryNotFoundError, match=said):
            api.create_commit(name, [add("e", b"4"), operation], commit_message="no")
    lost = add("weights.bin", LARGE)
    lost._upload_mode, lost._is_uploaded = "lfs", True  # a client that believes it has sent it
    with pytest.raises(BadRequestError, match="points to an object that does not exist"):
        api.create_commit(name, [add("e", b"4"), lost], commit_message="no")
    assert hub.commits("model", name)[0].id == head
    api.create_commit(name, [CommitOperationDelete("a/"), add("d", b"5")], commit_message="yes", parent_commit=head)
    assert {path: held for path, held in hub.files("model", name).items() if path[0] != "."} == {"d": b"5"}

    # Somebody else commits, also where the tester may not write.
    theirs = hub.put("model", name, {"d": b"6", "x.bin": LARGE})
    assert api.model_info(name).sha == theirs.id
    assert hub.files("model", name)["d"] == b"6"
    hub.put("model", "other/open", {"x.bin": LARGE, "config.json": b"{}"})
    other = api.snapshot_download("other/open", cache_dir=tmp_path, ignore_patterns=".*")
    assert {each.name: each.read_bytes() for each in Path(other).iterdir()} == {"x.bin": LARGE, "config.json": b"{}"}


@pytest.mark.parametrize(
    ("kind", "front", "said"),
    [
        ("model", "- a\n- b", "not a mapping"),
        ("model", "a: [b", "syntax in the YAML"),
        ("model", "license: mine", '"license" must be one of'),
        ("model", "tags: one", '"tags" must be an array'),
        ("model", "model-index: []", '"model-index" must be an array'),
        ("model", "model-index: [{name: a, results: [{task: {type: b}, metrics: [{type: c}]}]}]", "metrics.0..value"),
        ("space", "title: a", '"sdk" must be one of'),
        ("space", "{sdk: gradio, sdk_version: 6.3}", '"sdk_version" must be a string'),
        ("space", "{sdk: gradio, colorFrom: mauve}", '"colorFrom" must be one of'),
        ("space", f"{{sdk: gradio, short_description: {'a' * 61}}}", "60 characters"),
        ("dataset", "size_categories: [few]", "size_categories"),
        ("dataset", "configs: [{data_files: a}]", "config_name"),
    ],
)
def test_cards_are_read(api: Any, hub: LoopbackHub, kind: str, front: str, said: str) -> None:
    """The client asks before it sends anything; a card that nobody asked about is refused with its commit."""
    name = api.create_repo("card", repo_type=kind, **({"space_sdk": "gradio"} if kind == "space" else {})).repo_id
    with pytest.raises(ValueError, match=said):
        api.upload_file(
            path_or_fileobj=f"---\n{front}\n---\n".encode(), path_in_repo="README.md", repo_id=name, repo_type=kind
        )
    assert not hub.saw("preupload|/commit/")
    assert len(hub.commits(kind, name)) == 1


def test_results_of_a_model_are_shown(api: Any, hub: LoopbackHub) -> None:
    name = api.create_repo("results").repo_id
    good = b"- {dataset: {id: a/b, task_id: c}, value: 0.5, notes: d}\n"
    put(api, name, {".eval_results/a.yaml": good, ".eval_results/b.yaml": b"- {value: 1}\n"})
    found = api.model_info(name, expand=["evalResults", "sha"])
    assert [(each.dataset_id, each.value, each.notes) for each in found.eval_results] == [("a/b", 0.5, "d")]
    assert found.private is None


# Faults.


@pytest.mark.slow
def test_faults_that_the_client_outlives(api: Any, hub: LoopbackHub, tmp_path: Path) -> None:
    """A connection that is cut half-way through an LFS upload, and half an answer: one second of waiting each."""
    name = api.create_repo("faults").repo_id
    hub.fault("PUT", "/upload/", Drop(after=150_000))
    hub.fault("POST", "/objects/batch", Slow(0), Answer(500))
    hub.fault("GET", "/object/", Drop(after=1000, of="response"))
    start = time.monotonic()
    put(api, name, {"x.bin": LARGE})
    first, second = hub.saw("PUT /upload/")
    assert (first.status, second.status, second.bytes) == (0, 200, len(LARGE))
    assert first.bytes == 150_000
    assert first.path == second.path
    assert Path(api.hf_hub_download(name, "x.bin", cache_dir=tmp_path)).read_bytes() == LARGE
    assert [each.status for each in hub.saw("GET /object/")] == [0, 200]  # it came in one block, so none was kept
    assert time.monotonic() - start < 5
    assert hub.planned == [Answer(500)]


def test_faults_that_the_client_tells(api: Any, hub: LoopbackHub) -> None:
    name = api.create_repo("faults").repo_id
    head = hub.commits("model", name)[0].id
    for status in (401, 403, 409, 412, 429, 500):
        hub.fault("POST", "/commit/main$", Answer(status, {"Retry-After": "0"}, {"error": f"said {status}"}))
        with pytest.raises(HfHubHTTPError, match=f"said {status}") as caught:
            put(api, name, {"a": b"b"})
        assert caught.value.response.status_code == status
    assert hub.commits("model", name)[0].id == head
    # A commit that is done although the answer is an error, or never comes: the next push finds it.
    hub.fault("POST", "/commit/main$", Answer(500, done=True), Drop(of="response"))
    with pytest.raises(HfHubHTTPError):
        put(api, name, {"a": b"b"})
    assert hub.commits("model", name)[0].parent == head
    with pytest.raises(Exception, match="disconnected"):
        put(api, name, {"a": b"c"})
    assert put(api, name, {"a": b"c"}) == hub.commits("model", name)[0].id
    assert len(hub.commits("model", name)) == 3
    assert hub.planned == []


def test_an_object_that_arrives_changed_is_not_kept(api: Any, hub: LoopbackHub) -> None:
    name = api.create_repo("changed").repo_id
    operation = add("x.bin", LARGE)
    operation.upload_info.sha256 = hashlib.sha256(b"another").digest()
    with pytest.raises(RuntimeError, match=r"x\.bin") as caught:
        api.create_commit(name, [operation], commit_message="no")
    assert "not the one that was announced" in str(caught.value.__cause__)
    assert hub.repos["model", name].objects == {}


def test_a_process_knows_this_hub_only(hub: LoopbackHub, tmp_path: Path) -> None:
    """The environment is enough for a process of its own; it can be ended while it waits."""
    hub.fault("GET", "/api/whoami-v2", Slow(0), Slow(60))
    asked = "import huggingface_hub as hub; print(hub.whoami()['name']); hub.whoami()"
    env = hub.env(tmp_path / "home", HF_HUB_OFFLINE="0")
    running = subprocess.Popen([sys.executable, "-c", asked], env=env, stdout=subprocess.PIPE, text=True)
    assert hub.wait("whoami", 20)
    assert running.stdout is not None
    assert running.stdout.readline().strip() == hub.user
    while hub.arrived.count("GET /api/whoami-v2") < 2:
        time.sleep(0.01)
    running.kill()
    running.wait()
    assert hub.env(token="").get("HF_TOKEN") is None
