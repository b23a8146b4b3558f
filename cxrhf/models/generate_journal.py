"""Finished reports <-> a journal on disk that survives a kill at any moment.

    RUN/local/generating/part-0.jsonl        one line a report, one file a process, only ever added to

A line is a checksum and an object: the key of everything that makes the text, the text, its tokens, whether it ended
by itself. A line that was cut, or is damaged, does not count, and its report is written again. Lines hold no ids: the
key is a hash. Texts are confidential, so the folder is for its owner alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cxrhf.errors import RunError

FOLDER = "local/generating"


@dataclass(frozen=True, slots=True)
class Report:
    """A finished report. `ended`: by itself, not by the limit of its length."""

    key: str
    text: str
    tokens: int
    ended: bool


def report_key(**made_of: Any) -> str:
    """The name of a report in the journal, by all that makes its text.

    >>> report_key(image="a", seed=0) == report_key(seed=0, image="a") != report_key(image="a", seed=1)
    True
    """
    text = json.dumps(made_of, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def read_journal(folder: Path) -> tuple[dict[str, Report], int]:
    """Every whole line of every process by its key, and how many lines were damaged."""
    found: dict[str, Report] = {}
    damaged = 0
    for path in sorted(folder.glob("part-*.jsonl")):
        for line in path.read_bytes().split(b"\n"):
            if not line:
                continue
            entry = _entry(line)
            if entry is None:
                damaged += 1
            else:
                found.setdefault(entry.key, entry)
    return found, damaged


def _entry(line: bytes) -> Report | None:
    said, _, body = line.partition(b" ")
    if said.decode("ascii", "replace") != _checksum(body):
        return None
    values: Mapping[str, Any] = json.loads(body)
    return Report(str(values["key"]), str(values["text"]), int(values["tokens"]), bool(values["ended"]))


def _checksum(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=8).hexdigest()


class Journal:
    """The file of one process, open to add to."""

    def __init__(self, folder: Path, process: int) -> None:
        self.path = folder / f"part-{process}.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            size = os.fstat(self.file).st_size
            if size and os.pread(self.file, 1, size - 1) != b"\n":
                os.write(self.file, b"\n")  # a line that was cut ends here, and stays damaged
        except OSError as error:
            raise self._unusable(error) from None

    def add(self, entries: Iterable[Report]) -> None:
        """Write reports and wait until they are on the disk."""
        lines = []
        for each in entries:
            body = json.dumps(asdict(each), ensure_ascii=True).encode()  # one line, whatever the text holds
            lines.append(_checksum(body).encode() + b" " + body + b"\n")
        data = b"".join(lines)
        try:
            while data:
                data = data[os.write(self.file, data) :]
            os.fsync(self.file)
        except OSError as error:
            raise self._unusable(error) from None

    def close(self) -> None:
        os.close(self.file)

    def _unusable(self, error: OSError) -> RunError:
        return RunError(
            f"{self.path} cannot be written ({error.strerror or error})",
            next_step="free disk space or choose another --out; finished reports are kept",
        )
