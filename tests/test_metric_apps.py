"""Every metrics/*/app.py starts and, in a browser, computes the example of its card."""

from __future__ import annotations

import doctest
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from cxrhf.hub import widget as widget_result
from tests.browser import ROOT, browser, host, page

FOLDERS = sorted(path.parent for path in (ROOT / "metrics").glob("*/app.py"))


def card_example(folder: Path) -> dict[str, Any]:
    """The result of the first example of the card, run here."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    block = re.search(r"^## Examples\n.*?```(?:python|py)\n(.*?)```", card, re.DOTALL | re.MULTILINE)
    assert block, f"{folder.name}: no example under ## Examples"
    test = doctest.DocTestParser().get_doctest(block[1], {}, folder.name, None, 0)
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test, clear_globs=False)
    assert runner.summarize(verbose=False).failed == 0
    result: dict[str, Any] = test.globs["result"]
    return result


def words(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], tuple[str, dict[str, str]]]]:
    with host(hf_home=tmp_path_factory.mktemp("hf")) as start:
        yield start


@pytest.fixture(scope="module")
def started() -> Iterator[Callable[[], Any]]:
    """One Chromium for all pages, not before the first of them asks for it: without one, the rest is tested."""
    with ExitStack() as stack:
        made: list[Any] = []

        def start_once() -> Any:
            made[:] = made or [stack.enter_context(browser())]
            return made[0]

        yield start_once


# A page takes seconds to start; tests/hub/test_widget.py computes with one at once.
@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=[folder.name for folder in FOLDERS])
def test_page_computes_the_example_of_the_card(
    folder: Path, start: Callable[[Path], tuple[str, dict[str, str]]], started: Callable[[], Any]
) -> None:
    result = card_example(folder)
    assert (folder / "app.py").read_text(encoding="utf-8").endswith('if __name__ == "__main__":\n    app.launch()\n')
    address, pressed = start(folder / "app.py")
    assert pressed["problem"] == ""
    assert pressed["title"] != ""
    assert folder.name in pressed["top"], pressed["top"]
    assert '"value">undefined' not in pressed["top"], "an example should have a number"
    assert any(key.startswith(folder.name) for key in json.loads(pressed["result"]))
    assert f'cxrhf.metric_path("{folder.name}")' in pressed["code"]
    with page(within=started()) as seen:
        seen.page.goto(address)
        seen.page.locator("#compute").click()
        number = words(widget_result.headline(folder.name, result, 0.95))
        seen.page.wait_for_function(
            "text => document.querySelector('#headline').innerText.split(/\\s+/).join('') === text",
            arg=re.sub(r"\s+", "", number),
            timeout=60_000,
        )
        shown = seen.page.locator("#result").inner_text()
        for key, value in widget_result.plain(result).items():
            if isinstance(value, (int, float)):
                assert re.search(rf"{key}\s+{re.escape(widget_result.shown(value))}(\s|$)", shown), f"{key}: {shown}"
        assert seen.page.locator("#problem").inner_text().strip() == ""
        assert seen.errors == []
        assert seen.outside == []
