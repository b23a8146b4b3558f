"""A call about files -> lists of them, their contents, a new commit: the part of the loopback Hub below a revision."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode

from tests.hub.loopback_cards import complaints
from tests.hub.loopback_http import Answer, Call, Refusal, ranged
from tests.hub.loopback_repos import (
    LARGEST_REGULAR,
    Blob,
    Commit,
    Repository,
    entry,
    folder_entry,
    is_binary,
    is_large,
    tree,
)

if TYPE_CHECKING:
    from tests.hub.loopback import LoopbackHub


def commit_of(repository: Repository, revision: str) -> Commit:
    commit = repository.at(revision)
    if commit is None:
        raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
    return commit


def commits(hub: LoopbackHub, call: Call, repository: Repository, revision: str, *_: str) -> Answer:
    commit_of(repository, revision)
    found = [
        {"id": each.id, "title": each.title, "message": each.description, "date": each.date,
         "authors": [{"user": each.author}]}
        for each in repository.history(revision)
    ]  # fmt: skip
    return page(hub, call, found)


def listed(hub: LoopbackHub, call: Call, repository: Repository, revision: str, folder: str) -> Answer:
    found = tree(commit_of(repository, revision), folder, call.flag("recursive"), call.flag("expand"))
    if found is None:
        raise Refusal(404, f"{folder} does not exist on {revision!r}", "EntryNotFound")
    return page(hub, call, found)


def page(hub: LoopbackHub, call: Call, found: list[dict[str, Any]]) -> Answer:
    """A part of a long list, and where the next one is."""
    start = int(call.query.get("cursor", ["0"])[0])
    end = start + hub.page_size
    headers = {}
    if end < len(found):
        query = urlencode({**{key: each[-1] for key, each in call.query.items()}, "cursor": end})
        headers["Link"] = f'<{hub.endpoint}{call.path}?{query}>; rel="next"'
    return Answer(200, headers, found[start:end])


def paths_info(hub: LoopbackHub, call: Call, repository: Repository, revision: str, *_: str) -> Answer:
    commit = commit_of(repository, revision)
    given = call.json() if "json" in call.headers.get("Content-Type", "") else parse_qs(call.body.decode())
    expanded = commit if given.get("expand") in (True, ["true"], ["True"]) else None
    found = []
    for path in given.get("paths", []):
        if blob := commit.files.get(path):
            found.append(entry(path, blob, expanded))
        elif any(each.startswith(path + "/") for each in commit.files):
            found.append(folder_entry(path, commit.files, expanded))
    return Answer(200, {}, found)


def resolve(hub: LoopbackHub, call: Call, repository: Repository, revision: str, path: str) -> Answer:
    """A file: small ones from here, large ones by a link to the storage, which has an address of its own."""
    if repository.gated and not hub.owns(call.user, repository.id):
        raise Refusal(403 if call.user else 401, f"Access to {repository.id} is restricted", "GatedRepo")
    commit = commit_of(repository, revision)
    blob = commit.files.get(path)
    if blob is None:
        raise Refusal(404, "Entry not found", "EntryNotFound", **{"X-Repo-Commit": commit.id})
    headers = {"X-Repo-Commit": commit.id, "ETag": f'"{blob.etag}"'}
    if not blob.lfs:
        return ranged(blob.content, call.headers.get("Range"), headers)
    linked = {"X-Linked-Etag": f'"{blob.sha256}"', "X-Linked-Size": str(blob.size)}
    return Answer(302, {**headers, **linked, "Location": hub.storage.link(blob.sha256)}, "Found. Redirecting")


# Writing.


def preupload(hub: LoopbackHub, call: Call, repository: Repository, revision: str, *_: str) -> Answer:
    """How each file is to be sent, and the id of what is there."""
    commit = commit_of(repository, revision)
    found = []
    for given in call.json()["files"]:
        path, sample = given["path"], base64.b64decode(given.get("sample", ""))
        large = is_large(commit, path, sample, given["size"])
        said = {"path": path, "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}
        if there := commit.files.get(path):
            said["oid"] = there.etag
        found.append(said)
    return Answer(200, {}, {"files": found})


def commit(hub: LoopbackHub, call: Call, repository: Repository, revision: str, *_: str) -> Answer:
    """All operations of a commit, or none."""
    if call.flag("create_pr"):
        raise Refusal(501, "the loopback Hub has no pull requests")
    if revision not in repository.branches:
        raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
    lines = [json.loads(line) for line in call.body.splitlines() if line]
    header = next(line["value"] for line in lines if line["key"] == "header")
    head = repository.branches[revision]
    if header.get("parentCommit") not in (None, head):
        raise Refusal(412, "A commit has happened since. Please refresh and try again.")
    files = dict(commit_of(repository, revision).files)
    for line in lines:
        if line["key"] != "header":
            apply(repository, files, line["key"], line["value"])
    if readme := files.get("README.md"):
        errors, _warnings = complaints(readme.content.decode(), repository.kind)
        if errors:
            raise Refusal(400, "Invalid metadata in README.md: " + "; ".join(errors))
    made = repository.commit(revision, files, header["summary"], header.get("description", ""), call.user or "")
    url = f"{hub.endpoint}/{repository.prefix}{repository.id}/commit/{made.id}"
    return Answer(200, {}, {"success": True, "commitOid": made.id, "commitUrl": url, "hookOutput": ""})


def apply(repository: Repository, files: dict[str, Blob], key: str, value: dict[str, Any]) -> None:
    """One operation on the files."""
    path = value["path"]
    if key == "file":
        content = base64.b64decode(value["content"])
        if len(content) > LARGEST_REGULAR or is_binary(content):
            raise Refusal(400, f"{path} is binary or too large, and must be sent with LFS")
        files[path] = Blob(content)
    elif key == "lfsFile":
        if value["oid"] not in repository.objects:
            raise Refusal(400, f"LFS pointer of {path} points to an object that does not exist")
        files[path] = Blob(repository.objects[value["oid"]], lfs=True)
    elif key == "deletedFile":
        if files.pop(path, None) is None:
            raise Refusal(404, f"A file with this name doesn't exist: {path}", "EntryNotFound")
    elif key == "deletedFolder":
        gone = [each for each in files if each.startswith(path.rstrip("/") + "/")]
        if not gone:
            raise Refusal(404, f"A folder with this name doesn't exist: {path}", "EntryNotFound")
        for each in gone:
            del files[each]
    else:
        raise Refusal(400, f"unknown operation {key}")
