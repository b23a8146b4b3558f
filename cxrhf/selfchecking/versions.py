"""This machine -> what a bug report needs: versions, cores, threads, torch and CUDA. No names, no paths."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

CORE = ""  # no extra
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")


def versions() -> dict[str, Any]:
    """Everything that may explain why numbers or speed differ from those of somebody else."""
    import numba

    from cxrhf.run import new_record

    record = new_record("selfcheck", {}, [])
    return {
        "cxrhf": record["versions"]["cxrhf"],
        "commit": record["commit"],
        "python": record["python"],
        "platform": record["platform"],
        "cores": cores(),
        "numba_threads": numba.get_num_threads(),
        "numba_threading_layer": str(getattr(numba.config, "THREADING_LAYER", "unknown")),
        "torch": version_of("torch"),
        "cuda_devices": cuda_devices(),
        "packages": {name: version_of(name) for name in packages()},
    }


def version_of(name: str) -> str | None:
    """The installed version of a distribution; None where it is not there."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def packages() -> dict[str, list[str]]:
    """Every distribution that the package may ask for -> the extras that do, as it says itself; those of none first."""
    found: dict[str, list[str]] = {}
    for line in _requirements():
        name, extra = _NAME.match(line), _EXTRA.search(line)
        if name and name[0] != "cxrhf":  # an extra may be made of others
            found.setdefault(name[0].lower().replace("_", "-"), []).append(extra[1] if extra else CORE)
    return dict(sorted(found.items(), key=lambda each: (CORE not in each[1], each[0])))


def _requirements() -> list[str]:
    """Of sources in their own folder from pyproject.toml, which may be newer than what was installed."""
    import tomllib

    path = Path(__file__).parents[2] / "pyproject.toml"
    project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {}) if path.is_file() else {}
    if project.get("name") != "cxrhf":
        return metadata.requires("cxrhf") or [] if version_of("cxrhf") else []
    more = project["optional-dependencies"]
    return [*project["dependencies"], *(f'{each}; extra == "{name}"' for name, lines in more.items() for each in lines)]


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cuda_devices() -> int | None:
    """How many GPUs the driver shows; None without a driver. Asked of the driver: loading torch takes seconds."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int(0)
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0
