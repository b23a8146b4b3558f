"""An artefact -> a repository of the Hub, in one commit: all of it is there, or nothing has changed.

Large files go first into the Hub's storage, where nobody sees them; what has arrived there is not sent again by a later
attempt. Then one commit names all files, on top of the state that was compared. Afterwards the repository is read back
and compared: only then it is published. `.cxrhf.json` in it lists our files, so that a later push can remove what it no
longer has, and nothing of anybody else's.

Known gap: a Space is published when its files are there; whether its page has started is not waited for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from cxrhf import __version__
from cxrhf.hub.artefact import Artefact, Piece
from cxrhf.hub.connection import CHANGED, Hub, HubError, Notify, call_with_retries, explain_hub_errors, status_of

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoFile


MANIFEST = ".cxrhf.json"
FORMAT = 1
ATTEMPTS = 3  # when others write to the same repository


class Pushed(NamedTuple):
    """What came of a push."""

    repo: str
    url: str
    changed: bool
    commit: str
    sent: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(slots=True)
class _State:
    """How far a push is, for the sentence after an error."""

    made: bool = False
    committed: bool = False

    def kept(self) -> str:
        if self.committed:
            return "The commit was created but could not be verified; do not rely on it yet."
        return "Nothing was published" + ("; the repository was created and is empty." if self.made else ".")


@dataclass(frozen=True, slots=True)
class _Marks:
    """Hashes of pieces, each computed once: weights and shards are read for minutes."""

    sha256: dict[str, str] = field(default_factory=dict)
    blob: dict[str, str] = field(default_factory=dict)

    def of(self, piece: Piece, *, large: bool) -> str:
        known, make = (self.sha256, piece.sha256) if large else (self.blob, piece.blob_id)
        if piece.path not in known:
            known[piece.path] = make()
        return known[piece.path]


def push(hub: Hub, artefact: Artefact, repo: str, *, private: bool, said: Notify) -> Pushed:
    """Publish, and read back what was published. A repository that is there keeps its visibility."""
    state, marks = _State(), _Marks()
    pieces = {piece.path: piece for piece in (*artefact.pieces, manifest(artefact, marks))}
    with explain_hub_errors(hub, repo, state.kept):
        head = _open(hub, artefact, repo, private, state, said)
        for attempt in range(1, ATTEMPTS + 1):
            there = _files(hub, artefact, repo, head, said)
            sent = [path for path, piece in pieces.items() if not _is_unchanged(piece, there.get(path), marks)]
            removed = _stale_files(hub, artefact, repo, head, there, pieces, said)
            if not sent and not removed:
                return Pushed(repo, _url(hub, artefact, repo), attempt > 1, head)
            try:
                commit = _commit(hub, artefact, repo, head, [pieces[path] for path in sent], removed, marks, said)
                break
            except Exception as error:
                if status_of(error) not in CHANGED or attempt == ATTEMPTS:
                    raise
                said(f"someone else changed {repo} during the upload; comparing again")
                head = _head(hub, artefact, repo, said) or head
        state.committed = True
        _check(repo, pieces, _files(hub, artefact, repo, commit, said), removed, marks)
        return Pushed(repo, _url(hub, artefact, repo), True, commit, tuple(sent), tuple(removed))


def manifest(artefact: Artefact, marks: _Marks | None = None) -> Piece:
    """The list of our files with their hashes: what a later push may replace or remove, and others can check.

    Without `marks` nothing is read: zeros stand for the hashes, and the size is right.
    """
    made = {
        "format": FORMAT,
        "cxrhf": __version__,
        "kind": artefact.kind,
        "sha256": {piece.path: marks.of(piece, large=True) if marks else "0" * 64 for piece in artefact.pieces},
    }
    return Piece(MANIFEST, (json.dumps(made, indent=1, sort_keys=True) + "\n").encode())


def _open(hub: Hub, artefact: Artefact, repo: str, private: bool, state: _State, said: Notify) -> str:
    """The commit that the repository stands at; it is made where there is none."""
    head = _head(hub, artefact, repo, said)
    if head is None:
        sdk = "gradio" if artefact.repo_type == "space" else None
        call_with_retries(hub, repo, lambda: hub.api.create_repo(
            repo, repo_type=artefact.repo_type, private=private, space_sdk=sdk, exist_ok=True), said)  # fmt: skip
        state.made = True
        head = _head(hub, artefact, repo, said)
    if head is None:
        raise HubError(
            f"{repo} was created at {hub.endpoint} but cannot be found there", next_step="run the same command again"
        )
    return head


def _head(hub: Hub, artefact: Artefact, repo: str, said: Notify) -> str | None:
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        info = call_with_retries(hub, repo, lambda: hub.api.repo_info(repo, repo_type=artefact.repo_type), said)
    except RepositoryNotFoundError as error:
        # The Hub says 401 for "no such repository" too, but not with these words.
        if "Invalid credentials" in str(error):
            raise
        return None
    return str(info.sha)


def _files(hub: Hub, artefact: Artefact, repo: str, commit: str, said: Notify) -> dict[str, RepoFile]:
    from huggingface_hub.hf_api import RepoFile

    def listed() -> list[Any]:
        return list(hub.api.list_repo_tree(repo, recursive=True, revision=commit, repo_type=artefact.repo_type))

    return {each.path: each for each in call_with_retries(hub, repo, listed, said) if isinstance(each, RepoFile)}


def _is_unchanged(piece: Piece, there: RepoFile | None, marks: _Marks) -> bool:
    if there is None or there.size != piece.size:
        return False
    if there.lfs is not None:
        return bool(there.lfs.sha256 == marks.of(piece, large=True))
    return there.blob_id == marks.of(piece, large=False)


def _stale_files(hub: Hub, artefact: Artefact, repo: str, head: str, there: Mapping[str, RepoFile],
           pieces: Mapping[str, Piece], said: Notify) -> list[str]:  # fmt: skip
    """Files that an earlier push put there and that are no longer part of it."""
    if MANIFEST not in there:
        return []
    import tempfile
    from pathlib import Path

    # A folder of its own: nothing of a push stays in the cache of the client.
    with tempfile.TemporaryDirectory() as work:
        path = call_with_retries(hub, repo, lambda: hub.api.hf_hub_download(
            repo, MANIFEST, repo_type=artefact.repo_type, revision=head, local_dir=work), said)  # fmt: skip
        try:
            ours = json.loads(Path(path).read_text(encoding="utf-8"))["sha256"]
        except (ValueError, KeyError, TypeError):
            return []  # not ours any more: leave everything
    return sorted(path for path in ours if path in there and path not in pieces)


def _commit(hub: Hub, artefact: Artefact, repo: str, head: str, sent: list[Piece], removed: list[str],
            marks: _Marks, said: Notify) -> str:  # fmt: skip
    """One commit on top of `head`, tried again where that may help; the client sends no file twice."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    summary = f"cxrhf {__version__}: {artefact.name}"

    def send() -> str:
        # Made anew each time: an operation remembers what the server said the time before.
        operations: list[Any] = [
            CommitOperationAdd(piece.path, piece.content if isinstance(piece.content, bytes) else str(piece.content))
            for piece in sent
        ]
        operations += [CommitOperationDelete(path) for path in removed]
        made = hub.api.create_commit(
            repo, operations, commit_message=summary, repo_type=artefact.repo_type, parent_commit=head
        )
        return str(made.oid)

    def send_once() -> str:
        try:
            return send()
        except Exception as error:
            # An answer that got lost: the commit may be there, and a second one would stand on a state that is gone.
            if status_of(error) is None and (now := _head(hub, artefact, repo, said)) not in (head, None):
                found = _files(hub, artefact, repo, str(now), said)
                if all(_is_unchanged(piece, found.get(piece.path), marks) for piece in sent) and not set(removed) & set(
                    found
                ):
                    return str(now)
            raise

    return call_with_retries(hub, repo, send_once, said)


def _check(repo: str, pieces: Mapping[str, Piece], found: Mapping[str, RepoFile], removed: list[str],
           marks: _Marks) -> None:  # fmt: skip
    wrong = [path for path, piece in pieces.items() if not _is_unchanged(piece, found.get(path), marks)]
    wrong += [path for path in removed if path in found]
    if wrong:
        raise HubError(
            f"{len(wrong)} of {len(pieces)} files in {repo} differ from what was uploaded "
            f"({', '.join(sorted(wrong)[:5])})",
            next_step="run the same command again; if it fails again, someone else is writing to this repository",
        )


def _url(hub: Hub, artefact: Artefact, repo: str) -> str:
    part = {"space": "spaces/", "dataset": "datasets/"}.get(artefact.repo_type, "")
    return f"{hub.endpoint}/{part}{repo}"


# An artefact -> the lines that show what would leave: every file with its size, where to, who can see it.

_CALLED = {"space": "Space", "model": "model", "dataset": "dataset"}


def listing(artefact: Artefact, repo: str, *, private: bool) -> list[str]:
    """What a person reads before saying yes."""
    pieces = sorted((*artefact.pieces, manifest(artefact)), key=lambda piece: piece.path)
    sizes = [shown_size(piece.size) for piece in pieces]
    wide = max(len(piece.path) for piece in pieces)
    seen = "private" if private else "public"
    lines = [f"{repo} ({_CALLED[artefact.repo_type]}, {seen} if new): {len(pieces)} files, "
             f"{shown_size(sum(piece.size for piece in pieces))}"]  # fmt: skip
    lines += [f"  {piece.path:<{wide}}  {size:>10}" for piece, size in zip(pieces, sizes, strict=True)]
    return [*lines, *(f"  note: {each}" for each in artefact.notes)]


def as_mapping(artefact: Artefact, repo: str, *, private: bool) -> dict[str, Any]:
    """The same for a script."""
    files = {piece.path: piece.size for piece in (*artefact.pieces, manifest(artefact))}
    return {"repo": repo, "type": artefact.repo_type, "private": private, "files": dict(sorted(files.items())),
            "notes": list(artefact.notes)}  # fmt: skip


def shown_size(size: int) -> str:
    """
    >>> shown_size(999), shown_size(1_234_567)
    ('999 B', '1.2 MB')
    """
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
