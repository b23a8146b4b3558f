"""Modules to load -> what the first example of each card gives, as JSON: `python FILE ASKED`.

Asked for the whole, every example of the cards is run, and seeded rows are computed with intervals besides.

Run as a program, in the repository's environment and in one without cxrhf: needs evaluate and numpy only. A float that
goes through JSON keeps every bit.
"""

from __future__ import annotations

import doctest
import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    import evaluate  # type: ignore[import-untyped]
    from huggingface_hub import hf_hub_download

    here = [name for name in asked["absent"] if imports(name)]
    found: dict[str, Any] = {}
    for name, given in asked["modules"].items():
        card = given["card"] or hf_hub_download(given["load"], "README.md", repo_type="space")
        module = evaluate.load(given["load"])
        found[name] = {
            "example": example(Path(card).read_text(encoding="utf-8"), name, asked["whole"]),
            "rows": module.compute(**given["rows"], n_resamples=50, seed=3) if asked["whole"] else None,
            "from": type(module).__module__,
        }
    print(json.dumps({"here": here, "prefix": sys.prefix, "values": found}, default=plain))


def imports(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return False
    return True


def example(card: str, name: str, every: bool) -> Any:
    """The `result` of the first example under "Examples"; with `every`, all examples of the card are run in order."""
    names: dict[str, Any] = {}
    result = None
    for block in re.finditer(r"```(?:python|py)\n(.*?)```", card, re.DOTALL):
        if ">>>" not in block[1] or not (every or "## Examples" in card[: block.start()]):
            continue
        test = doctest.DocTestParser().get_doctest(block[1], names, name, None, 0)
        runner = doctest.DocTestRunner(verbose=False)
        runner.run(test, out=sys.stderr.write, clear_globs=False)
        if runner.summarize(verbose=False).failed:
            raise SystemExit(f"{name}: an example of the card gives something else")
        names = test.globs
        if result is None and "## Examples" in card[: block.start()]:
            result = names["result"]
            if not every:
                break
    return result


def plain(value: Any) -> Any:
    """numpy's numbers as Python's own: the same bits."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is no number")


if __name__ == "__main__":
    main()
