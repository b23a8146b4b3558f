"""Paths of app.py files, one a line -> their pages served on loopback, one port a line: one process for all of them.

Gradio and evaluate take ten seconds to import; a process for every page would pay that ten times.
"""

from __future__ import annotations

import runpy
import sys

from tests.browser import free_port


def main() -> None:
    for line in sys.stdin:
        port = free_port()
        page = runpy.run_path(line.strip())["app"]
        page.launch(server_name="127.0.0.1", server_port=port, prevent_thread_lock=True, quiet=True)
        print(f"serving at {port}", flush=True)


if __name__ == "__main__":
    main()
