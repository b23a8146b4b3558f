"""An app.py -> a running server, and a headless Chromium that looks at it, for tests of pages.

Drives the system's Chromium (`CHROMIUM` names another) through playwright, which brings none of its own. What the page
asks of any machine but this one, and what it complains of, is kept for the test to see.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOOPBACK = ("127.0.0.1", "localhost", "::1")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium() -> str:
    """The browser's path. Without one the test is skipped, but fails where CI is set: there nobody reads of skips."""
    named = os.environ.get("CHROMIUM")
    found = shutil.which(named) if named else shutil.which("chromium") or shutil.which("chromium-browser")
    if found:
        return found
    said = f"no Chromium{f' at CHROMIUM={named}' if named else ''}; install it (apt-get install chromium)"
    if os.environ.get("CI"):
        pytest.fail(said)
    pytest.skip(said)


@dataclass
class Seen:
    """A page, and what it did meanwhile: console errors and uncaught exceptions, requests that leave loopback."""

    page: Any
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)


@contextmanager
def browser() -> Iterator[Any]:
    """A Chromium for several pages of `page(..., within=it)`, which share nothing else."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield started
        finally:
            started.close()


@contextmanager
def page(width: int = 1440, height: int = 900, dark: bool = False, within: Any = None) -> Iterator[Seen]:
    """A blank page in a new browser, or in the given one. Requests that leave loopback are recorded and refused."""
    with nullcontext(within) if within else browser() as started:
        scheme = "dark" if dark else "light"
        context = started.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        try:
            seen = Seen(context.new_page())

            def judge(route: Any) -> None:
                parts = urlsplit(route.request.url)
                if parts.scheme in ("data", "blob") or parts.hostname in LOOPBACK:
                    route.continue_()
                else:
                    seen.outside.append(route.request.url)
                    route.abort()

            context.route("**/*", judge)
            seen.page.on("console", lambda said: seen.errors.append(said.text) if said.type == "error" else None)
            seen.page.on("pageerror", lambda error: seen.errors.append(str(error)))
            yield seen
        finally:
            context.close()


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


@contextmanager
def serve(
    app: Path,
    *,
    hf_home: Path,
    pythonpath: Path | str = ROOT,
    environment: Mapping[str, str] | None = None,
    timeout: float = 180,
) -> Iterator[str]:
    """The address at which `python app.py` answers. It and all it started are gone afterwards."""
    port = free_port()
    own = {"GRADIO_SERVER_NAME": "127.0.0.1", "GRADIO_SERVER_PORT": str(port), **(environment or {})}
    env = _environment(hf_home, pythonpath, own)
    address = f"http://127.0.0.1:{port}/"
    with TemporaryFile() as said:
        # A session of its own, so that one signal reaches every process of it.
        server = subprocess.Popen(
            [sys.executable, str(app)], cwd=app.parent, env=env, stdout=said, stderr=said, start_new_session=True
        )
        try:
            _wait(server, address, timeout, said)
            yield address
        finally:
            _end(server)


@contextmanager
def host(*, hf_home: Path) -> Iterator[Callable[[Path], tuple[str, dict[str, str]]]]:
    """A process that serves every app.py it is given; each call returns one more address, and what its button gives."""
    env = _environment(hf_home, ROOT, {})
    with TemporaryFile() as said:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.app_host"], cwd=ROOT, env=env, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said,
        )  # fmt: skip

        def start(app: Path) -> tuple[str, dict[str, str]]:
            assert server.stdin is not None
            assert server.stdout is not None
            print(app, file=server.stdin, flush=True)
            for line in server.stdout:
                if line.startswith("serving "):
                    port, pressed = json.loads(line.removeprefix("serving "))
                    return f"http://127.0.0.1:{port}/", pressed
            said.seek(0)
            raise RuntimeError(f"{app} was not served:\n{said.read().decode(errors='replace')[-5000:]}")

        try:
            yield start
        finally:
            _end(server)


def _environment(hf_home: Path, pythonpath: Path | str, own: Mapping[str, str]) -> dict[str, str]:
    return {
        **os.environ,
        "GRADIO_TEMP_DIR": str(hf_home / "gradio"),
        "PYTHONPATH": str(pythonpath),
        "HF_HOME": str(hf_home),
        "HF_HUB_OFFLINE": "1",
        "NO_PROXY": ",".join(LOOPBACK),
        "no_proxy": ",".join(LOOPBACK),
        **own,
    }


def _end(server: subprocess.Popen[Any]) -> None:
    """It and all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, number)
            server.wait(timeout=5)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    server.wait()


def _wait(server: subprocess.Popen[bytes], address: str, timeout: float, said: Any) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        ended = server.poll()
        if ended is not None:
            break
        try:
            with direct.open(address, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    said.seek(0)
    why = f"ended with {ended}" if ended is not None else f"did not answer within {timeout:g} s"
    raise RuntimeError(f"the server {why}. It said:\n{said.read().decode(errors='replace')[-5000:]}")
