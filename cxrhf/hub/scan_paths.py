"""Text -> the absolute paths in it: of home folders, mounts and shares, and names of this user and this computer.

A path begins where no letter, dot, colon or slash stands before it, so addresses (`https://host/home/x`), `and/or`,
fractions and the inside of relative paths are none. `/usr/bin/env` and its like are the same on every computer, and
`~/.cache` names no one; a path of three parts and more that begins otherwise is taken for one of this computer, unless
it begins like an address without its host (`/api/models/x`, `/resolve/main/x`).
"""

from __future__ import annotations

import functools
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from cxrhf.hub.scan_secrets import Found

WHAT = "an absolute path"
_WHY = "it reveals details of this computer"
# What stands before a path: the pattern begins with the slash itself, which is quick to find.
_FRESH = rb"(?<![\w.:/~<>)\]}&%@+*\\-]/)"
_PART = rb"[\w.@+~%#=-]+"
# Folders that a person has, and those that many computers have.
_PERSONAL = rb"home|Users|root|mnt|media|Volumes|scratch\d*|nethome|nfs\d*|gpfs\d*|lustre\d*"
_USUAL = (
    rb"data\d*|tmp|work\d*|storage\d*|projects?|export|cluster|shared?|workspace|content|kaggle|dbfs|efs|srv|opt|var|"
    rb"private|net|physionet|archive|local|raid\d*"
)
_UNIX = re.compile(
    rb"/(?:(?<![\w./~]/)(?:" + _PERSONAL + rb")/" + _PART + rb"|(?<![\w./~]/)root\b|"
    rb"(?<![\w./~<)\]}&%@+*\\-]/)(?:" + _USUAL + rb")/" + _PART + rb")(?:/" + _PART + rb")*"
)
_DEEP = re.compile(rb"/" + _FRESH + rb"(?P<first>[A-Za-z_][\w.-]+)(?:/" + _PART + rb"){2,}")
# First parts of addresses, of paths that every Unix has, and of paths to fill in (/path/to/file).
_ELSEWHERE = frozenset(
    b"usr bin sbin lib lib64 dev etc sys api resolve raw blob tree spaces models datasets docs papers user org orgs "
    b"issues pull pulls wiki assets static v1 v2 v3 download gradio_api queue proc path your".split()
)
_USER = re.compile(rb"~(?<![\w~/.)\]]~)[A-Za-z][\w-]{2,}/[\w.-]+")
_WINDOWS = re.compile(
    rb":(?<=(?<![\w\\])[A-Za-z]:)(?:(?:\\{1,2}[\w.$ -]{2,}){2,}|\\{1,2}(?:Users|Documents and Settings)\b"
    rb"|/(?:Users|Documents|home|data)/[\w.-]+)"
)
_SHARE = re.compile(
    rb"\\\\(?<![\\\w)\]}+*?.^$|]\\\\)(?:[A-Za-z][\w.-]{2,}\\[\w$.-]{2,}|\\\\[A-Za-z][\w.-]{2,}\\\\[\w$.-]{2,})"
)
_FILE_ADDRESS = re.compile(rb"file:/{1,3}\w[^\s\"'<>)]*", re.IGNORECASE)
_COMMON_NAMES = {
    "root", "user", "users", "ubuntu", "runner", "admin", "home", "work", "demo", "data", "test", "tests", "tester",
    "jovyan", "docker", "debian", "centos", "azureuser", "localhost", "local", "server", "host", "node", "worker",
    "build", "model", "models", "dataset",
}  # fmt: skip


def paths(data: bytes, bare: bool = False) -> Iterator[Found]:
    """Every absolute path in a text; `bare`: in bytes that are no text, where short forms occur by chance."""
    if b"/" in data:
        for match in _UNIX.finditer(data):
            yield _found(match)
    if bare:
        return
    if b"/" in data:
        for match in _DEEP.finditer(data):
            if match["first"] not in _ELSEWHERE:
                yield _found(match)
        if b"file:/" in data or b"FILE:/" in data:
            yield from map(_found, _FILE_ADDRESS.finditer(data))
    if b"~" in data:
        yield from map(_found, _USER.finditer(data))
    if b":\\" in data or b":/" in data:
        yield from map(_found, _WINDOWS.finditer(data))
    if b"\\\\" in data:
        yield from map(_found, _SHARE.finditer(data))
    for pattern in own_names():
        for match in pattern.finditer(data):
            yield Found(*match.span(), "the name of this computer or its user", _WHY)


def _found(match: re.Match[bytes]) -> Found:
    return Found(*match.span(), WHAT, _WHY)


@functools.cache
def own_names() -> tuple[re.Pattern[bytes], ...]:
    """This user as a part of a path, and this computer's name as a word, when they are names that tell something."""
    found = []
    user, host = Path.home().name, socket.gethostname().split(".")[0]
    if len(user) > 3 and user.lower() not in _COMMON_NAMES:
        found.append(re.compile(rb"(?<=[/\\])" + re.escape(user.encode()) + rb"(?=[/\\])"))
    if len(host) > 4 and host.lower() not in _COMMON_NAMES:
        found.append(re.compile(rb"(?<![\w.-])" + re.escape(host.encode()) + rb"(?![\w-])"))
    return tuple(found)
