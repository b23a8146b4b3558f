"""A folder of pages -> its address on this machine, and a page of it in a browser that must complain of nothing."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.browser import Seen


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder and remembers what was asked for."""

    asked: list[str]

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The address of a folder with pages, and what was asked of it."""
    asked: list[str] = []
    handler = functools.partial(type("Handler", (_Quiet,), {"asked": asked}), directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", asked
    server.shutdown()
    server.server_close()


@contextmanager
def opened(
    browser: Seen, served: tuple[str, list[str]], name: str, *, width: int = 1440, dark: bool = False
) -> Iterator[Any]:
    """The page, opened anew; it must complain of nothing and ask for nothing but itself."""
    address, asked = served
    for each in (browser.errors, browser.outside, asked):
        each.clear()
    browser.page.set_viewport_size({"width": width, "height": 900})
    browser.page.emulate_media(color_scheme="dark" if dark else "light", media="screen")
    browser.page.goto(address + name)
    yield browser.page
    assert browser.errors == []
    assert browser.outside == []
    assert asked == [f"/{name}"]
