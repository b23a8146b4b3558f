"""The first bytes of a file -> whether it is what its name says; if not, what it is and how to put it right.

A spreadsheet renamed to .csv, a log-in page saved as .csv, a pointer of git LFS: each would otherwise be said to lack
some column.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from cxrhf.errors import TableError

_HEAD = 512
_SHEET = "open it with a spreadsheet program and save the sheet as CSV"
# First bytes -> what such a file is, and what to do with it; None: it only has the wrong name.
_STARTS: tuple[tuple[bytes, str, str | None], ...] = (
    (b"PK\x03\x04", "a spreadsheet or a zip archive", f"{_SHEET}, or unzip it"),
    (b"\xd0\xcf\x11\xe0", "an old spreadsheet (.xls)", _SHEET),
    (b"\x1f\x8b", "gzipped", None),
    (b"PAR1", "a Parquet file", None),
    (b"version https://git-lfs", "a git LFS pointer", "run `git lfs pull`"),
    (b"<!doctype", "a web page", "download it again; the site may require a login"),
    (b"<html", "a web page", "download it again; the site may require a login"),
    (b"\x80\x04", "a Python pickle", "write the table as Parquet with pandas.DataFrame.to_parquet"),
    (b"\x80\x05", "a Python pickle", "write the table as Parquet with pandas.DataFrame.to_parquet"),
)
_KINDS = {"parquet": "a readable Parquet file", "csv": "a CSV file", "jsonl": "JSON lines"}


def check_kind(path: Path, form: str) -> Path:
    """The path itself, unless the file is plainly of another kind than its name says."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        said = error.strerror or error
        raise TableError(f"{path} cannot be read ({said})", next_step="check the path and its permissions") from None
    name = path.name.lower()
    expected = b"\x1f\x8b" if name.endswith(".gz") else b"PAR1" if form == "parquet" else b""
    if not head or (expected and head.startswith(expected)):
        return path  # whether it is whole, the reader says
    low = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    found = next((each for each in _STARTS if head.startswith(each[0]) or low.startswith(each[0])), None)
    if found is None and not expected:
        return path
    what, remedy = found[1:] if found else ("text", None) if _is_text(head) else ("something else", "make it again")
    if remedy is None:
        remedy = f"rename the file with `mv {shlex.quote(str(path))} {shlex.quote(str(_named(path, what, form)))}`"
    wanted = "gzipped" if expected == b"\x1f\x8b" else _KINDS[form]
    raise TableError(f"{path.name} is {what}, not {wanted}", next_step=remedy)


def _is_text(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4  # a letter cut in two
    return b"\0" not in head


def _named(path: Path, what: str, form: str) -> Path:
    """The name that a file of this kind should have."""
    if what == "gzipped":
        return path.with_suffix(".csv.gz") if form == "parquet" else path.with_name(path.name + ".gz")
    plain = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    if what == "a Parquet file":
        return plain.with_suffix(".parquet")
    return plain.with_suffix(".csv") if form == "parquet" else plain
