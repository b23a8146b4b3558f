"""Paths of app.py files, one a line -> what each page's button gives and where it is served: one process for all.

Gradio and evaluate take ten seconds to import; a process for every page would pay that ten times.
"""

from __future__ import annotations

import json
import runpy
import sys
from typing import Any

import tests.without_transformers  # noqa: F401  as in a Space of ours, and before any page imports evaluate
from tests.browser import free_port


def pressed(page: Any) -> dict[str, str]:
    """What the button gives for the rows and options that the page starts with, without a browser."""
    import pandas

    step = next(each for each in page.fns.values() if each.name == "compute")
    table, *fields = step.inputs
    frame = pandas.DataFrame(table.value["data"], columns=table.value["headers"])
    problem, top, _, text, code = step.fn(frame, None, *[field.value for field in fields])
    return {"title": page.title, "problem": problem, "top": top, "result": text, "code": code}


def main() -> None:
    for line in sys.stdin:
        port = free_port()
        page = runpy.run_path(line.strip())["app"]
        found = pressed(page)
        page.launch(server_name="127.0.0.1", server_port=port, prevent_thread_lock=True, quiet=True)
        print(f"serving {json.dumps([port, found])}", flush=True)


if __name__ == "__main__":
    main()
