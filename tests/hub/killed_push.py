"""Lines of JSON on stdin -> each a `cxrhf` command in a process of its own, killed at the moment that was asked for.

`{"words": [...], "kind": "request" | "write" | "time" | "", "at": N, "folder": ..., "temporary": ...}` kills before
the Nth request, before the Nth write, or after `at` seconds; with "" nothing. The answer is a line with the exit
code, what was printed, and how many requests and writes there were. Processes are forked from one that has imported
everything: a second each, times a hundred moments, is saved.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WRITES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
MEANT = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def child(asked: dict[str, Any], said: Path) -> int:
    """Run the command; the counts are printed last."""
    seen = {"request": 0, "write": 0}

    def count(what: str) -> None:
        seen[what] += 1
        if what == asked["kind"] and seen[what] == asked["at"]:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in WRITES or (event == "open" and isinstance(args[2], int) and args[2] & MEANT):
            count("write")

    from huggingface_hub.utils._http import default_client_factory

    from cxrhf import cli

    client: Any = type(default_client_factory())  # of the package it speaks HTTP with, which has changed before
    send = client.send

    def counted(self: Any, *args: Any, **named: Any) -> Any:
        count("request")
        return send(self, *args, **named)

    client.send = counted
    with said.open("w", encoding="utf-8", buffering=1) as out:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            sys.addaudithook(hook)
            code = cli.main(asked["words"])
            counts = dict(seen)
        out.write(f"\n{json.dumps(counts)}\n")
    return code


def run(asked: dict[str, Any]) -> dict[str, Any]:
    said = Path(asked["folder"]).parent / "said.txt"
    process = os.fork()
    if process == 0:
        os.chdir(asked["folder"])
        tempfile.tempdir = asked["temporary"]
        code = 1
        try:
            code = child(asked, said)
        finally:
            os._exit(code)
    if asked["kind"] == "time":
        time.sleep(asked["at"])
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    text = said.read_text(encoding="utf-8") if said.exists() else ""
    return {"code": os.waitstatus_to_exitcode(status), "said": text}


def main() -> None:
    sys.dont_write_bytecode = True
    import pyarrow.parquet  # noqa: F401

    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
