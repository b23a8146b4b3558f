"""A folder of files <-> the same folder with a manifest that says what belongs to it, checked when it is read.

manifest.json holds the format's number, what the folder is, the versions that wrote it, and every file with its size
and sha256. A folder is written beside its place and then renamed, so it is there whole or not at all. Reading refuses
files that are missing, changed, not listed (but for names with a leading dot, which file managers leave behind), links,
or written by a newer format. Each file is read once, and what was checked is what is used.

The manifest finds damage and mix-ups. It is no signature: who can write a file can write its hash. So nothing that is
read here may run code (no pickle), and readers check what they get.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cxrhf.errors import CxrhfError, RunError
from cxrhf.tables.checks import quoted
from cxrhf.tables.folders import replace_folder

FORMAT = 1
MANIFEST = "manifest.json"
PACKAGES = ("numpy", "scikit-learn", "xgboost", "skops", "safetensors")
LARGEST_JSON = 1 << 28
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")
_HASH = re.compile(r"[0-9a-f]{64}")


class Unfit(ValueError):
    """What is wrong with a file, in words of ours: nothing in it is quoted."""


def require(holds: bool, what: str) -> None:
    """An `Unfit` that names what does not hold."""
    if not holds:
        raise Unfit(what)


@dataclass(frozen=True, slots=True)
class Sealed:
    """A folder whose manifest was read. Files are checked as they are read."""

    folder: Path
    manifest: dict[str, Any] = field(repr=False)
    again: str  # what a user can do when something is wrong
    used: set[str] = field(default_factory=set, repr=False)

    def read(self, name: str) -> bytes:
        """A file's bytes, if they are those that the manifest names."""
        about = self.manifest["files"].get(name)
        if about is None:
            raise self.wrong(f"{name} is not in the manifest")
        path = self.folder / name
        if path.is_symlink() or not path.is_file():
            raise self.wrong(f"{name} is missing" if not path.is_symlink() else f"{name} is a link")
        self.used.add(name)
        if path.stat().st_size != about["size"]:
            raise self.wrong(f"{name} has {path.stat().st_size:,} bytes instead of {about['size']:,}")
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != about["sha256"]:
            raise self.wrong(f"{name} was changed after it was written")
        return data

    def json(self, name: str) -> Any:
        """The values of a JSON file."""
        with self.reading(name):
            return plain_json(self.read(name))

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """What does not hold what it should becomes one error that says so."""
        try:
            yield
        except CxrhfError:
            raise
        except Exception as error:  # whatever a library says of bytes that are not its own
            why = error if isinstance(error, Unfit) else type(error).__name__
            raise self.wrong(f"{name} has unexpected content ({why})") from error

    def wrong(self, what: str) -> RunError:
        """An error about this folder."""
        return RunError(f"{self.folder}: {what}", next_step=self.again)

    def finish(self) -> None:
        """Every file of the manifest was of use."""
        if unused := sorted(set(self.manifest["files"]) - self.used):
            raise self.wrong(f"{unused[0]} is not used by anything")


def open_sealed(folder: Path, what: str, again: str) -> Sealed:
    """Read and check the manifest, and that the folder holds its files and no others."""
    path = folder / MANIFEST
    if not path.is_file():
        raise RunError(f"{folder} has no {MANIFEST}, so it holds no {what}", next_step=again)
    sealed = Sealed(folder, {}, again)
    with sealed.reading(MANIFEST):
        if path.is_symlink() or path.stat().st_size > LARGEST_JSON:
            raise sealed.wrong(f"{MANIFEST} is too large, or a link")
        manifest = plain_json(path.read_bytes())
        number = manifest["format"]
        if not isinstance(number, int) or number < 1:
            raise ValueError("format")
        if number > FORMAT:
            raise RunError(
                f"{folder} was written by a newer version of cxrhf",
                got=f"format {number}",
                allowed=f"format {FORMAT} or older",
                next_step="pip install --upgrade cxrhf",
            )
        if manifest["what"] != what:
            raise RunError(str(folder), allowed=what, got=str(manifest["what"]), next_step=again)
        for name, about in manifest["files"].items():
            if not _NAME.fullmatch(name) or name == MANIFEST:
                raise sealed.wrong(f"the manifest names a file outside this folder: {quoted(str(name))}")
            size = about["size"]
            if type(size) is not int or size < 0 or not _HASH.fullmatch(about["sha256"]):
                raise ValueError("files")
        dict(manifest["versions"])
    there = {each.name for each in folder.iterdir()}
    if missing := sorted(set(manifest["files"]) - there):
        raise sealed.wrong(f"{missing[0]} is missing")
    if extra := sorted(each for each in there - {*manifest["files"], MANIFEST} if not each.startswith(".")):
        raise sealed.wrong(f"{extra[0]} is not in the manifest")
    return Sealed(folder, manifest, again)


@contextlib.contextmanager
def write_sealed(folder: Path, what: str, **more: str) -> Iterator[Path]:
    """A new folder to fill with files; when that is done it gets its manifest and takes the place of `folder`."""
    with replace_folder(folder, MANIFEST, what, next_step="move it away, or choose another --out") as fresh:
        yield fresh
        files = {each.name: _print(each) for each in sorted(fresh.iterdir())}
        write_json(fresh / MANIFEST, {"format": FORMAT, "what": what, "versions": versions(), **more, "files": files})


def versions() -> dict[str, str]:
    """What wrote a folder."""
    from cxrhf import __version__

    found = {"cxrhf": __version__}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Plain values as JSON that keeps every digit; NaN has no place in it."""
    text = json.dumps(values, indent=1, allow_nan=False, default=_to_builtins)
    path.write_text(text + "\n", encoding="utf-8")


def plain_json(data: bytes) -> Any:
    """JSON without what JSON does not have: NaN, infinity, numbers too large to be one, halves of characters."""

    def finite(text: str) -> float:
        if not math.isfinite(value := float(text)):
            raise ValueError("a number is too large")
        return value

    found = json.loads(data.decode("utf-8"), parse_float=finite, parse_constant=finite)
    json.dumps(found, ensure_ascii=False).encode("utf-8")  # half a character, written as an escape, is none
    return found


def _to_builtins(value: Any) -> Any:
    """numpy's numbers and arrays as Python's."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def _print(path: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return {"sha256": digest.hexdigest(), "size": path.stat().st_size}
