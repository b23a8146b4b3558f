"""Operations of a commit -> files, trees and histories of a repository, with the ids that git and LFS give them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatch
from functools import cached_property
from typing import Any

KINDS = {"models": "model", "datasets": "dataset", "spaces": "space"}
PREFIXES = {"model": "", "dataset": "datasets/", "space": "spaces/"}
# What the Hub writes into every new repository; binary content and large files become LFS files anyway.
_LARGE = (
    "*.7z *.arrow *.bin *.bz2 *.ckpt *.ftz *.gz *.h5 *.joblib *.lfs.* *.mlmodel *.model *.msgpack *.npy *.npz *.onnx "
    "*.ot *.parquet *.pb *.pickle *.pkl *.pt *.pth *.rar *.safetensors saved_model/**/* *.tar.* *.tar *.tflite *.tgz "
    "*.wasm *.xz *.zip *.zst *tfevents*"
)
_MEDIA = "*.pcm *.sam *.raw *.aac *.flac *.mp3 *.ogg *.wav *.bmp *.gif *.png *.tiff *.jpg *.jpeg *.webp *.mp4 *.webm"
_ATTRIBUTES = " filter=lfs diff=lfs merge=lfs -text"
LARGEST_REGULAR = 10 << 20


@dataclass(frozen=True)
class Blob:
    """The content of a file; an LFS file is a pointer in git."""

    content: bytes
    lfs: bool = False

    @property
    def size(self) -> int:
        return len(self.content)

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def pointer(self) -> bytes:
        return f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {self.size}\n".encode()

    @cached_property
    def oid(self) -> str:
        """The id of the file in git."""
        held = self.pointer if self.lfs else self.content
        return hashlib.sha1(b"blob %d\0" % len(held) + held, usedforsecurity=False).hexdigest()

    @property
    def etag(self) -> str:
        """How the Hub names the content: what a client compares with its own file."""
        return self.sha256 if self.lfs else self.oid


@dataclass(frozen=True)
class Commit:
    """All files at one time, and who put them there."""

    id: str
    parent: str | None
    title: str
    description: str
    author: str
    date: str
    files: Mapping[str, Blob]


@dataclass
class Repository:
    """One repository: its commits, the oldest first, its branches, its stored LFS objects."""

    kind: str
    id: str
    private: bool = False
    gated: bool | str = False
    sdk: str | None = None
    commits: list[Commit] = field(default_factory=list)
    branches: dict[str, str] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        return PREFIXES[self.kind]

    def at(self, revision: str) -> Commit | None:
        """The commit of a branch or an id."""
        wanted = self.branches.get(revision, revision)
        return next((commit for commit in self.commits if commit.id == wanted), None)

    def history(self, revision: str) -> list[Commit]:
        """The commit and those before it, the newest first."""
        found, commit = [], self.at(revision)
        while commit is not None:
            found.append(commit)
            commit = self.at(commit.parent) if commit.parent else None
        return found

    def commit(self, branch: str, files: Mapping[str, Blob], title: str, description: str, author: str) -> Commit:
        """Put all files of `files`, and only them, at the head of the branch."""
        parent = self.branches.get(branch)
        # Two commits of one second would be indistinguishable to a client that sorts by date.
        date = datetime.now(UTC) + timedelta(milliseconds=len(self.commits))
        held = {path: files[path].oid for path in sorted(files)}
        said = [parent, title, description, author, len(self.commits), held]
        made = Commit(
            id=hashlib.sha1(json.dumps(said).encode(), usedforsecurity=False).hexdigest(),
            parent=parent,
            title=title,
            description=description,
            author=author,
            date=date.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z",
            files=dict(files),
        )
        self.commits.append(made)
        self.branches[branch] = made.id
        return made


def first_files(kind: str, name: str, sdk: str | None) -> dict[str, Blob]:
    """What a repository holds when it is created."""
    patterns = (_LARGE + (" " + _MEDIA if kind == "dataset" else "")).split()
    files = {".gitattributes": Blob("".join(f"{each}{_ATTRIBUTES}\n" for each in patterns).encode())}
    if kind == "space":
        card = f"---\ntitle: {name}\nemoji: 🐢\ncolorFrom: blue\ncolorTo: pink\nsdk: {sdk}\npinned: false\n---\n"
        files["README.md"] = Blob(card.encode())
    return files


def is_large(commit: Commit, path: str, sample: bytes, size: int) -> bool:
    """Whether a file goes into LFS: by the repository's .gitattributes, its size, or because it is no text."""
    attributes = commit.files.get(".gitattributes")
    lines = attributes.content.decode().splitlines() if attributes else []
    patterns = [line.split()[0] for line in lines if "filter=lfs" in line]
    if any(fnmatch(path if "/" in pattern else path.rsplit("/", 1)[-1], pattern) for pattern in patterns):
        return True
    return size > LARGEST_REGULAR or is_binary(sample)


def is_binary(sample: bytes) -> bool:
    """Whether these first bytes are no UTF-8 text; the last character may be cut."""
    if b"\0" in sample:
        return True
    try:
        sample.decode()
    except UnicodeDecodeError as error:
        return error.end < len(sample) or error.reason != "unexpected end of data"
    return False


def entry(path: str, blob: Blob, commit: Commit | None = None) -> dict[str, Any]:
    """A file as the tree shows it."""
    found: dict[str, Any] = {"type": "file", "oid": blob.oid, "size": blob.size, "path": path}
    if blob.lfs:
        found["lfs"] = {"oid": blob.sha256, "size": blob.size, "pointerSize": len(blob.pointer)}
    return found | _last(commit)


def tree(commit: Commit, folder: str, recursive: bool, expand: bool) -> list[dict[str, Any]] | None:
    """Files and folders below a folder, sorted by path; None if there is no such folder."""
    start = folder.strip("/") + "/" if folder.strip("/") else ""
    found: dict[str, dict[str, Any]] = {}
    below = {path: blob for path, blob in commit.files.items() if path.startswith(start)}
    for path, blob in below.items():
        parts = path[len(start) :].split("/")
        for depth in range(1, len(parts) if recursive else min(len(parts), 2)):
            name = start + "/".join(parts[:depth])
            found[name] = folder_entry(name, below, commit if expand else None)
        if recursive or len(parts) == 1:
            found[path] = entry(path, blob, commit if expand else None)
    if start and not below:
        return None
    return [found[path] for path in sorted(found)]


def folder_entry(path: str, files: Mapping[str, Blob], commit: Commit | None) -> dict[str, Any]:
    """A folder as the tree shows it."""
    held = {name: blob.oid for name, blob in sorted(files.items()) if name.startswith(path + "/")}
    oid = hashlib.sha1(json.dumps(held).encode(), usedforsecurity=False).hexdigest()
    return {"type": "directory", "oid": oid, "size": 0, "path": path} | _last(commit)


def _last(commit: Commit | None) -> dict[str, Any]:
    if commit is None:
        return {}
    return {"lastCommit": {"id": commit.id, "title": commit.title, "date": commit.date}}
