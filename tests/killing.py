"""A command -> the same command killed (kill -9) before one of its writes, and run again.

`python -m tests.killing FOLDER` reads FOLDER/commands.json: the words of a command for cxrhf, which writes below
FOLDER/work; modules to import; a folder that is copied to FOLDER/work first (`start`, or none); and before which writes
it is killed: one in `every`, `most` times at most; then at so many random moments (`moments`, or none), each time
without a start anew. Each time is a fork of this process, so that imports count once. A write is a file that is opened
for it, renamed or removed, or a folder that is made.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_WRITES = {"os.rename": (0, 1), "os.remove": (0,), "os.mkdir": (0,), "os.rmdir": (0,), "shutil.rmtree": (0,)}


def count_writes(root: Path, before: Callable[[int], None]) -> list[int]:
    """Call `before` with the number of each write below a folder, from now on."""
    seen = [0]
    inside = os.fspath(root)

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
            paths = [path]
        elif event in _WRITES:
            paths = [args[at] for at in _WRITES[event]]
        else:
            return
        if any(isinstance(each, (str, Path)) and os.fspath(each).startswith(inside) for each in paths):
            seen[0] += 1
            before(seen[0])

    sys.addaudithook(watch)
    return seen


def forked(work: Callable[[], int], seconds: float | None = None) -> int:
    """The exit code of some work in a process of its own, -9 if it was killed, after some `seconds` or by itself."""
    child = os.fork()
    if child:
        if seconds is not None:
            time.sleep(seconds)
            os.kill(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 70
    try:
        code = work()
    finally:
        os._exit(code)


def main(folder: Path) -> int:
    """Run a command whole, then killed before each of some writes and again; print what differs."""
    from cxrhf import cli

    given = json.loads((folder / "commands.json").read_text())
    words, place = given["words"], folder / "work"
    for module in given["imports"]:
        __import__(module)

    def run(kill_at: int | None) -> Callable[[], int]:
        def work() -> int:
            log = io.StringIO()
            seen = [0]
            if kill_at is not None:

                def before(n: int) -> None:
                    if n == kill_at:
                        os.kill(os.getpid(), signal.SIGKILL)

                seen = count_writes(place, before)
            with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
                code = cli.main(words)
            (folder / "log").write_text(log.getvalue())
            (folder / "count").write_text(str(seen[0]))
            return code

        return work

    def fresh() -> None:
        shutil.rmtree(place, ignore_errors=True)
        if given.get("start"):
            shutil.copytree(given["start"], place)
        else:
            place.mkdir()

    fresh()
    begun = time.monotonic()
    assert forked(run(0)) == 0, (folder / "log").read_text()
    whole_time = time.monotonic() - begun
    writes = int((folder / "count").read_text())
    whole = contents(place)
    print(f"{writes} writes")
    wrong = 0
    for at in range(1, writes + 1, given["every"])[: given["most"]]:
        fresh()
        code = forked(run(at))
        if code != -signal.SIGKILL:
            print(f"{at}: not killed ({code}): {(folder / 'log').read_text()[-500:]}")
            wrong += 1
            continue
        code = forked(run(None))
        again = contents(place) if code == 0 else {}
        other = [name for name in {*again, *whole} if again.get(name) != whole.get(name)]
        if code or other:
            print(f"{at}: ends with {code}, {sorted(other)[:5]} differ: {(folder / 'log').read_text()[-500:]}")
            wrong += 1
    chance = random.Random(0)
    if given.get("moments"):
        fresh()
        for _ in range(given["moments"]):
            forked(run(None), chance.uniform(0, whole_time))
        code = forked(run(None))
        again = contents(place) if code == 0 else {}
        if other := [name for name in {*again, *whole} if again.get(name) != whole.get(name)]:
            print(f"at random: ends with {code}, {sorted(other)[:5]} differ: {(folder / 'log').read_text()[-500:]}")
            wrong += 1
    return 1 if wrong else 0


def contents(folder: Path) -> dict[str, bytes]:
    """Names of all files but locks; bytes of those that hold no time of day and no seconds."""
    return {
        str(each.relative_to(folder)): each.read_bytes() if each.suffix in _SAME else b""
        for each in folder.rglob("*")
        if each.is_file() and not (each.name.startswith(".") and each.name.endswith(".lock"))
    }


_SAME = (".parquet", ".csv", ".safetensors", ".svg", ".png", ".ubj")

if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
