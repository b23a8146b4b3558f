"""A call -> the Hub's answer, and who may have it. Paths and fields are those that huggingface_hub 2.4 asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import yaml  # type: ignore[import-untyped]

from tests.hub import loopback_files as files
from tests.hub.loopback_cards import complaints, evaluation_complaint, front_matter
from tests.hub.loopback_files import commit_of
from tests.hub.loopback_http import Answer, Call, Refusal
from tests.hub.loopback_repos import KINDS, Blob, Commit, Repository, first_files

if TYPE_CHECKING:
    from tests.hub.loopback import LoopbackHub

_API = re.compile(r"/api/(models|datasets|spaces)/([^/]+/[^/]+)(?:/([\w-]+))?(?:/([^/]+))?(?:/(.+))?")
_FILE = re.compile(r"/(?:(datasets|spaces)/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_LFS = re.compile(r"/(?:(datasets|spaces)/)?([^/]+/[^/]+)\.git/info/lfs/(objects/batch|verify)")


def route(hub: LoopbackHub, call: Call) -> Answer:
    """Find who answers; what nobody answers is a 404 that no client takes for a missing repository."""
    if call.user is None and "Authorization" in call.headers:
        raise Refusal(401, "Invalid credentials in Authorization header")
    method, path = call.method, call.path
    if plain := _PLAIN.get((method, path)):
        return plain(hub, call)
    if method == "POST" and (done := re.fullmatch(r"/api/complete_multipart/(\w+)", path)):
        return hub.storage.complete(done[1], call)
    if method == "POST" and (large := _LFS.fullmatch(path)):
        repository = writable(hub, call, KINDS[large[1] or "models"], unquote(large[2]))
        if large[3] == "verify":
            return hub.storage.verify(repository, call)
        return hub.storage.batch(repository, call, hub.endpoint)
    if method in ("GET", "HEAD") and (file := _FILE.fullmatch(path)):
        repository = readable(hub, call, KINDS[file[1] or "models"], unquote(file[2]))
        return files.resolve(hub, call, repository, unquote(file[3]), unquote(file[4]))
    if (api := _API.fullmatch(path)) and (found := _VERBS.get((method, api[3]))):
        writes, verb = found
        ask = writable if writes else readable
        repository = ask(hub, call, KINDS[api[1]], unquote(api[2]))
        return verb(hub, call, repository, unquote(api[4] or "main"), unquote(api[5] or ""))
    return Answer(404, {}, {"error": f"the loopback Hub does not know {method} {path}"})


# Who may.


def readable(hub: LoopbackHub, call: Call, kind: str, name: str) -> Repository:
    """The repository; one that a caller may not see is one that is not there."""
    repository = hub.repos.get((kind, name))
    if repository is None or (repository.private and not hub.owns(call.user, name)):
        # The real Hub does not tell strangers whether there is something: 401 for all it does not show.
        raise Refusal(404 if call.user else 401, "Repository not found", "RepoNotFound")
    return repository


def writable(hub: LoopbackHub, call: Call, kind: str, name: str) -> Repository:
    """The repository, if the caller may write into it."""
    repository = readable(hub, call, kind, name)
    may_write(hub, call, name)
    return repository


def may_write(hub: LoopbackHub, call: Call, name: str) -> None:
    if call.user is None:
        raise Refusal(401, "Invalid username or password.")
    if not call.may_write or not hub.owns(call.user, name):
        raise Refusal(403, f"You don't have the required permissions to write to {name}")


# Accounts and repositories.


def whoami(hub: LoopbackHub, call: Call) -> Answer:
    if call.user is None:
        raise Refusal(401, "Invalid username or password.")
    orgs = [{"type": "org", "name": name, "roleInOrg": "write"} for name in hub.users[call.user] if name != call.user]
    token = {"displayName": "loopback", "role": "write" if call.may_write else "read"}
    auth = {"type": "access_token", "accessToken": token}
    return Answer(200, {}, {"type": "user", "name": call.user, "fullname": call.user, "orgs": orgs, "auth": auth})


def create(hub: LoopbackHub, call: Call) -> Answer:
    said = call.json()
    kind = said.get("type") or "model"
    name = f"{said.get('organization') or call.user}/{said['name']}"
    may_write(hub, call, name)
    url = f"{hub.endpoint}/{Repository(kind, name).prefix}{name}"
    if (kind, name) in hub.repos:
        message = f"You already created this {kind} repo"
        return Answer(409, {"X-Error-Message": message}, {"error": message, "url": url})
    private = said.get("visibility") == "private" or bool(said.get("private"))
    repository = Repository(kind, name, private=private, sdk=said.get("sdk"))
    first = first_files(kind, said["name"], repository.sdk)
    repository.commit("main", first, "initial commit", "", call.user or "")
    hub.repos[kind, name] = repository
    return Answer(200, {}, {"url": url, "name": name, "id": name})


def delete(hub: LoopbackHub, call: Call) -> Answer:
    said = call.json()
    kind, name = said.get("type") or "model", f"{said.get('organization') or call.user}/{said['name']}"
    writable(hub, call, kind, name)
    del hub.repos[kind, name]
    return Answer(200, {}, "OK")


def settings(hub: LoopbackHub, call: Call, repository: Repository, *_: str) -> Answer:
    said = call.json()
    if "visibility" in said:
        repository.private = said["visibility"] == "private"
    repository.gated = said.get("gated", repository.gated)
    return Answer(200, {}, {"private": repository.private, "gated": repository.gated})


def validate_yaml(hub: LoopbackHub, call: Call) -> Answer:
    said = call.json()
    errors, warnings = complaints(said["content"], said.get("repoType") or "model")
    body = {key: [{"message": each} for each in found] for key, found in (("errors", errors), ("warnings", warnings))}
    return Answer(400 if errors else 200, {}, body)


def info(hub: LoopbackHub, call: Call, repository: Repository, revision: str = "main", *_: str) -> Answer:
    """All that is known of a repository at a revision, or only what `expand` names."""
    commit = commit_of(repository, revision)
    card = commit.files.get("README.md")
    said = (front_matter(card.content.decode()) if card else None) or {}
    found: dict[str, Any] = {
        "id": repository.id,
        "author": repository.id.split("/")[0],
        "sha": commit.id,
        "lastModified": commit.date,
        "createdAt": repository.commits[0].date,
        "private": repository.private,
        "gated": repository.gated,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": [*said.get("tags", []), *([f"license:{said['license']}"] if "license" in said else [])],
        "cardData": json.loads(json.dumps(said, default=str)),
        "siblings": [_sibling(path, blob, call.flag("blobs")) for path, blob in sorted(commit.files.items())],
        "usedStorage": sum(blob.size for blob in commit.files.values()),
    }
    if repository.kind == "space":
        found["sdk"] = said.get("sdk", repository.sdk)
    if repository.kind == "model":
        found |= {key: said[key] for key in ("library_name", "pipeline_tag", "model-index") if key in said}
        found["evalResults"] = _eval_results(commit)
    if wanted := call.query.get("expand"):
        return Answer(200, {}, {key: value for key, value in found.items() if key in ("id", *wanted)})
    found.pop("evalResults", None)
    return Answer(200, {}, found)


def _sibling(path: str, blob: Blob, whole: bool) -> dict[str, Any]:
    if not whole:
        return {"rfilename": path}
    found: dict[str, Any] = {"rfilename": path, "size": blob.size, "blobId": blob.oid}
    if blob.lfs:
        found["lfs"] = {"sha256": blob.sha256, "size": blob.size, "pointerSize": len(blob.pointer)}
    return found


def _eval_results(commit: Commit) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path, blob in sorted(commit.files.items()):
        if not re.fullmatch(r"\.eval_results/[^/]+\.yaml", path):
            continue
        if problem := evaluation_complaint(blob.content.decode()):
            found.append({"filename": path, "error": problem})
        else:
            found += [{"filename": path, "data": each} for each in yaml.safe_load(blob.content)]
    return json.loads(json.dumps(found, default=str))


def refs(hub: LoopbackHub, call: Call, repository: Repository, *_: str) -> Answer:
    held = repository.branches.items()
    heads = [{"name": name, "ref": f"refs/heads/{name}", "targetCommit": commit} for name, commit in held]
    return Answer(200, {}, {"branches": heads, "tags": [], "converts": [], "pullRequests": []})


Verb = Callable[["LoopbackHub", Call, Repository, str, str], Answer]
_PLAIN: dict[tuple[str, str], Callable[[LoopbackHub, Call], Answer]] = {
    ("GET", "/api/whoami-v2"): whoami,
    ("POST", "/api/repos/create"): create,
    ("DELETE", "/api/repos/delete"): delete,
    ("POST", "/api/validate-yaml"): validate_yaml,
}
# Method and verb -> whether it writes, and who answers.
_VERBS: dict[tuple[str, str | None], tuple[bool, Verb]] = {
    ("GET", None): (False, info),
    ("GET", "revision"): (False, info),
    ("GET", "tree"): (False, files.listed),
    ("GET", "refs"): (False, refs),
    ("GET", "commits"): (False, files.commits),
    ("POST", "paths-info"): (False, files.paths_info),
    ("POST", "preupload"): (True, files.preupload),
    ("POST", "commit"): (True, files.commit),
    ("PUT", "settings"): (True, settings),
}
