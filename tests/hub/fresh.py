"""Names of distributions -> a virtual environment that holds them, what they need, and nothing else.

`linked` takes the files from the environment of the tests, which takes a second; `installed` asks pip, which takes
minutes. What is in it is the same: the requirements that pip would follow, without anybody's optional extras.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement


def closure(wanted: Iterable[str]) -> dict[str, metadata.Distribution]:
    """Requirements -> all distributions that pip would install for them; one that is absent or too old is an error."""
    found: dict[str, metadata.Distribution] = {}
    waiting = [Requirement(each) for each in wanted]
    done = set()
    while waiting:
        need = waiting.pop()
        name = need.name.lower().replace("_", "-").replace(".", "-")
        if (name, frozenset(need.extras)) in done:
            continue
        done.add((name, frozenset(need.extras)))
        here = found[name] = metadata.distribution(need.name)
        assert need.specifier.contains(here.version, prereleases=True), f"{need} is wanted, {here.version} is here"
        for line in here.requires or []:
            more = Requirement(line)
            if more.marker is None or any(more.marker.evaluate({"extra": extra}) for extra in ("", *need.extras)):
                waiting.append(more)
    return found


def linked(folder: Path, wanted: Iterable[str]) -> Path:
    """The Python of an environment whose files are links into this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    for distribution in closure(wanted).values():
        for file in distribution.files or []:
            if ".." in file.parts:  # commands and headers: nothing is imported from there
                continue
            place = packages / file
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                place.symlink_to(Path(str(distribution.locate_file(file))))
    return folder / "bin" / "python"


def installed(folder: Path, wanted: Iterable[str]) -> Path:
    """The Python of an environment that pip has made."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *wanted], check=True)
    return python
