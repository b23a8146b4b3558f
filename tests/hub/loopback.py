"""A Hub on 127.0.0.1 that the real clients take for the real one: repositories, LFS, private ones, errors on demand.

    with LoopbackHub() as hub:
        api = HfApi(endpoint=hub.endpoint, token=hub.token)
        hub.fault("POST", r"/commit/main", Answer(500), Slow(0))
        subprocess.run([...], env=hub.env())
        assert hub.files("space", f"{hub.user}/wae")["README.md"]

Not here: Xet (the clients are told so by HF_HUB_DISABLE_XET), new branches and tags, pull requests, buckets, lists
of repositories, the dataset viewer, limits of rate and space other than those a test asks for.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.hub.loopback_http import Answer, Call, Drop, Fault, Refusal, Request, Server, Slow
from tests.hub.loopback_repos import Blob, Commit, Repository, first_files, is_large
from tests.hub.loopback_routes import route
from tests.hub.loopback_storage import Storage

__all__ = ["Answer", "Commit", "Drop", "LoopbackHub", "Repository", "Request", "Slow"]


class LoopbackHub:
    """One Hub and the storage behind it, each on a port of its own; `part_size`: larger LFS files come in parts."""

    user = "tester"
    org = "clinic"

    def __init__(self, *, part_size: int = 4 << 20, page_size: int = 1000) -> None:
        self.page_size = page_size
        self.repos: dict[tuple[str, str], Repository] = {}  # (kind, "user/name")
        self.requests: list[Request] = []  # those that are answered, or were cut
        self.arrived: list[str] = []  # "METHOD path" of all that came
        self.broken: list[str] = []  # faults of this server itself
        self.users: dict[str, tuple[str, ...]] = {}  # a name -> where it may write
        self._tokens: dict[str, tuple[str, bool]] = {}
        self._faults: list[tuple[str, re.Pattern[str], list[Fault]]] = []
        self._lock = threading.RLock()
        self._home = tempfile.TemporaryDirectory(prefix="loopback-hub-")
        self._hub, self._bucket = Server(self, storage=False), Server(self, storage=True)
        self.endpoint = self._hub.address
        self.storage = Storage(self._bucket.address, part_size)
        self.token = self.add_user(self.user, orgs=(self.org,))

    def __enter__(self) -> LoopbackHub:
        for server in (self._hub, self._bucket):
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for server in (self._hub, self._bucket):
            server.shutdown()
            server.server_close()
        self._home.cleanup()
        if self.broken and error is None:
            raise AssertionError("the loopback Hub itself failed:\n" + "\n".join(self.broken))

    # What a test asks of it.

    def add_user(self, name: str, *, orgs: tuple[str, ...] = (), write: bool = True) -> str:
        """A token of a user, who is made if new; made up of pieces, so that no file holds what looks like one."""
        token = "_".join(("hf", secrets.token_hex(17)))
        self.users[name] = (name, *orgs, *self.users.get(name, ())[1:])
        self._tokens[token] = (name, write)
        return token

    def env(self, home: Path | None = None, *, token: str | None = None, **more: str) -> dict[str, str]:
        """The environment of a process that knows this Hub only; `home` is its cache, `token=""` sends none."""
        # A proxy would be asked for the loopback address too, and what the machine set for the real Hub must not count.
        ours = {
            key: value
            for key, value in os.environ.items()
            if not key.lower().endswith("_proxy") and not key.startswith(("HF_", "HUGGING", "TRANSFORMERS_"))
        }
        given = self.token if token is None else token
        return {
            **ours,
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(home or self._home.name),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_UPDATE_DOWNLOAD_COUNTS": "0",  # datasets and evaluate count at an address of their own
            **({"HF_TOKEN": given} if given else {}),
            **more,
        }

    def files(self, kind: str, repo_id: str, revision: str = "main") -> dict[str, bytes]:
        """Path -> content of what is published; `kind` as the clients say it: model, dataset, space."""
        commit = self.repos[kind, repo_id].at(revision)
        assert commit is not None, f"{repo_id} has no {revision}"
        return {path: blob.content for path, blob in sorted(commit.files.items())}

    def commits(self, kind: str, repo_id: str, revision: str = "main") -> list[Commit]:
        """The newest first; the last is the one that creation makes."""
        return self.repos[kind, repo_id].history(revision)

    def put(self, kind: str, repo_id: str, files: Mapping[str, bytes], *, private: bool = False) -> Commit:
        """Somebody else's commit, without any client: these files on top of what is there, if anything."""
        with self._lock:
            new = Repository(kind, repo_id, private=private, sdk="gradio" if kind == "space" else None)
            repository = self.repos.setdefault((kind, repo_id), new)
            if not repository.commits:
                first = first_files(kind, repo_id.partition("/")[2], repository.sdk)
                repository.commit("main", first, "initial commit", "", "somebody")
            head = repository.history("main")[0]
            blobs = {path: Blob(each, is_large(head, path, each[:512], len(each))) for path, each in files.items()}
            repository.objects |= {blob.sha256: blob.content for blob in blobs.values() if blob.lfs}
            return repository.commit("main", {**head.files, **blobs}, "by somebody else", "", "somebody")

    def fault(self, method: str, path: str, *answers: Fault) -> None:
        """The next requests of this method ("*": any) to a path with this pattern get these, one each."""
        with self._lock:
            self._faults.append((method, re.compile(path), list(answers)))

    @property
    def planned(self) -> list[Fault]:
        """Faults that nobody ran into so far."""
        return [each for _, _, answers in self._faults for each in answers]

    def saw(self, pattern: str) -> list[Request]:
        """Requests whose "METHOD path" holds the pattern."""
        return [each for each in list(self.requests) if re.search(pattern, f"{each.method} {each.path}")]

    def wait(self, pattern: str, seconds: float = 10) -> bool:
        """Whether such a request arrives within this time; it may still be unanswered."""
        end = time.monotonic() + seconds
        while not any(re.search(pattern, each) for each in list(self.arrived)):
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True

    # What the servers ask of it.

    def next_fault(self, method: str, path: str) -> Fault | None:
        with self._lock:
            for wanted, pattern, answers in self._faults:
                if answers and wanted in (method, "*") and pattern.search(path):
                    return answers.pop(0)
        return None

    def whose(self, authorization: str | None) -> tuple[str | None, bool]:
        """Whose token this is, and whether it may write; the header is compared and forgotten."""
        return self._tokens.get((authorization or "").removeprefix("Bearer "), (None, False))

    def owns(self, user: str | None, name: str) -> bool:
        return user is not None and name.partition("/")[0] in self.users[user]

    def answer(self, call: Call, storage: bool) -> Answer:
        with self._lock:
            try:
                if storage:
                    objects = {oid: held for each in self.repos.values() for oid, held in each.objects.items()}
                    return self.storage.answer(call, objects)
                return route(self, call)
            except Refusal as refusal:
                return refusal.answer
            except Exception:
                self.broken.append(f"{call.method} {call.path}\n{traceback.format_exc()}")
                return Answer(500, {}, {"error": "the loopback Hub failed"})
