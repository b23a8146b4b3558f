"""Models of the Hub: not there without network, fetched from a loopback Hub with the real client."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cxrhf.encode.download import explain_no_hub, reachable
from cxrhf.encode.encoder import open_encoder
from cxrhf.encode.settings import EncodeConfig
from cxrhf.errors import CxrhfError

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"

OFFLINE = "/offline-from-here"
# Each case: an encoder and settings -> what comes of it, as a line of JSON; one process for all, imports are slow. From
# a case that says so on, the client is told to stay offline, and the Hub hears where that began.
ASK = f"""
import contextlib, json, os, sys, time, urllib.request
from cxrhf.encode.settings import EncodeConfig
from cxrhf.encode import encode_texts, identity
from cxrhf.errors import CxrhfError
from huggingface_hub import constants
import transformers
for given in json.loads(sys.argv[1]):
    if given.pop("offline", False) and not constants.HF_HUB_OFFLINE:
        constants.HF_HUB_OFFLINE = True
        with contextlib.suppress(OSError):
            urllib.request.urlopen(os.environ["HF_ENDPOINT"] + "{OFFLINE}")
    start = time.monotonic()
    try:
        settings = EncodeConfig(**given)
        encode_texts(["no effusion"], settings, cache="off")
        said = identity(settings)["model_hash"]
    except CxrhfError as error:
        said = str(error)
    print(json.dumps([said, time.monotonic() - start]))
"""


def ask(cases: list[dict[str, Any]], home: Path, **env: str) -> list[tuple[str, float]]:
    plain = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    whole = {**plain, "PYTHONPATH": str(ROOT), "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", **env}
    done = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps(cases)], env=whole, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def mark(file: Path) -> str:
    """How the Hub names a content: large files by their sha256, small ones by a shorter hash."""
    whole = sha256(file.read_bytes()).hexdigest()
    return whole if file.suffix == ".safetensors" else whole[:40]


class Hub(BaseHTTPRequestHandler):
    folders: dict[str, Path]
    asked: list[str]

    def log_message(self, *given: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(False)

    def do_GET(self) -> None:
        self.answer(True)

    def answer(self, whole: bool) -> None:
        path = self.path.split("?")[0]
        self.asked.append(path)
        if "gated" in path:
            return self.reply(403, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"}, whole)
        for name, folder in self.folders.items():
            if path.startswith(f"/api/models/{name}/tree/"):
                tree = [
                    {"type": "file", "path": each.name, "size": each.stat().st_size, "oid": mark(each)}
                    for each in sorted(folder.iterdir())
                ]
                return self.reply(200, json.dumps(tree).encode(), {"Content-Type": "application/json"}, whole)
            if path.startswith(f"/api/models/{name}"):
                files = [{"rfilename": each.name} for each in sorted(folder.iterdir())]
                body = json.dumps({"id": name, "sha": COMMIT, "siblings": files}).encode()
                return self.reply(200, body, {"Content-Type": "application/json"}, whole)
            if path.startswith(f"/{name}/resolve/"):
                file = folder / path.rsplit("/", 1)[1]
                if not file.is_file():
                    return self.reply(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, whole)
                data = file.read_bytes()
                return self.reply(200, data, {"ETag": f'"{mark(file)}"', "X-Repo-Commit": COMMIT}, whole)
        return self.reply(404, b"", {"X-Error-Code": "RepoNotFound"}, whole)

    def reply(self, code: int, body: bytes, headers: dict[str, str], whole: bool) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if whole:
            self.wfile.write(body)


@pytest.fixture
def hub(tiny: dict[str, Path], tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    import shutil

    import torch
    from safetensors.torch import load_file

    both = Path(shutil.copytree(tiny["bert"], tmp_path / "both"))
    torch.save(load_file(both / "model.safetensors"), both / "pytorch_model.bin")
    (both / "modeling_own.py").write_text("raise SystemExit")
    old = Path(shutil.copytree(both, tmp_path / "old"))
    (old / "model.safetensors").unlink()
    asked: list[str] = []
    kind = type("Asked", (Hub,), {"folders": {"org/both": both, "org/old": old}, "asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def test_without_network_the_answer_comes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens at the address; a preset, an id, a misspelt preset; minilm works all the same."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("transformers.utils.hub.is_offline_mode", lambda: False)
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")

    def said(encoder: str) -> str:
        start = time.monotonic()
        with pytest.raises(CxrhfError) as error:
            open_encoder(EncodeConfig(encoder))
        assert time.monotonic() - start < 10
        return str(error.value)

    hub_id = "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract-fulltext"
    preset = said("pubmedbert")
    assert preset.startswith(f"encoder pubmedbert ({hub_id}) is not on this machine, and the Hub cannot be")
    assert all(fact in preset for fact in (f"`hf download {hub_id}`", "--encoders minilm"))
    assert "encoder org/model is not on this machine" in said("org/model")
    assert "id you mean 'roberta'? Otherwise, run `hf download robert`" in said("robert")
    assert len(open_encoder(EncodeConfig("minilm")).model_hash) == 64


@pytest.mark.slow
def test_models_are_fetched_without_code_and_bin_then_kept(
    hub: tuple[str, list[str]], tmp_path: Path, tiny: dict[str, Path]
) -> None:
    address, asked = hub
    cases = [
        {"encoder": "org/both"}, {"encoder": "org/both"}, {"encoder": "org/old"},
        {"encoder": "org/old", "allow_bin": True}, {"encoder": "org/gated"}, {"encoder": "org/none"},
        {"encoder": "org/both", "offline": True}, {"encoder": "org/old"}, {"encoder": "bert"},
    ]  # fmt: skip
    *online, again, offline, never = ask(cases, tmp_path, HF_ENDPOINT=address)
    fetched, kept, refused, allowed, gated, absent = (each for each, _ in online)
    from cxrhf.encode.files import model_files, model_hash

    assert fetched == kept == model_hash(model_files(tiny["bert"], "bert"))
    resolved = [path for path in asked if "/resolve/" in path]
    assert any(path.endswith("both/resolve/" + COMMIT + "/model.safetensors") for path in resolved)
    assert not any("org/both" in path and path.endswith((".bin", ".py")) for path in resolved)
    assert "no safetensors weights on the Hub" in refused
    assert "--allow-bin" in refused
    assert len(allowed) == 64
    assert "only to those who accept its conditions" in gated
    assert "hf auth login" in gated
    assert "the Hub has no model org/none" in absent
    # What was fetched serves without network, and the address is not asked.
    assert again[0] == fetched
    assert "only .bin weights" in offline[0]
    assert "not on this machine, and HF_HUB_OFFLINE is set" in never[0]
    assert never[1] < 5
    assert asked[-1] == OFFLINE


@pytest.mark.slow
def test_the_paper_s_six_encoders_are_fetched_from_a_hub(tmp_path: Path) -> None:
    """Under the ids of the recipe, with the files that their repositories hold: weights in other formats stay there."""
    from cxrhf.encode.files import HUB_IDS
    from cxrhf.settings import load_mapping
    from tests.encode.tiny import BIN, ONLY_BIN, save_stand_in

    others = ("flax_model.msgpack", "tf_model.h5", "rust_model.ot", "README.md", "modeling_own.py")
    folders = {hub_id: tmp_path / "at" / name for name, hub_id in HUB_IDS.items()}
    for name, hub_id in HUB_IDS.items():
        save_stand_in(name, folders[hub_id])
        for each in others:
            (folders[hub_id] / each).write_text("raise SystemExit")
    (folders[HUB_IDS["roberta"]] / BIN).write_bytes(b"older weights")  # beside safetensors, as on the Hub
    asked: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Six", (Hub,), {"folders": folders, "asked": asked}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    names = load_mapping("pretest_paper")["encoders"]
    assert set(names) == set(HUB_IDS)
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        found = ask([{"encoder": name} for name in [*names, "pubmedbrt"]], tmp_path / "home", HF_ENDPOINT=address)
    finally:
        server.shutdown()
        server.server_close()
    assert [len(said) for said, _ in found[:-1]] == [64] * 6, found
    assert "did you mean 'pubmedbert'" in found[-1][0]
    fetched = {path for path in asked if "/resolve/" in path}
    assert not [path for path in fetched if path.endswith(others)]
    assert {path.split("/resolve/")[0].strip("/") for path in fetched if path.endswith(BIN)} == {
        HUB_IDS[name] for name in ONLY_BIN
    }


def test_a_proxy_is_asked_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "http_proxy", "HTTP_PROXY"):
            monkeypatch.delenv(name, raising=False)
        assert reachable(f"http://127.0.0.1:{port}/hub")
        start = time.monotonic()
        assert not reachable("https://no-such-host.invalid")
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        assert reachable("https://no-such-host.invalid")
        assert time.monotonic() - start < 12
    assert not reachable("https://no-such-host.invalid")


def test_a_wrong_endpoint_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.utils.hub.is_offline_mode", lambda: False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert explain_no_hub() == "the Hub cannot be reached at http://127.0.0.1:9 (set by HF_ENDPOINT)"
    monkeypatch.setattr("transformers.utils.hub.is_offline_mode", lambda: True)
    assert explain_no_hub() == "HF_HUB_OFFLINE is set"
