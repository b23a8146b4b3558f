"""Names of datasets -> under which terms they stand: credentialed, open or made up, or nobody knows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

Standing = Literal["credentialed", "open", "unknown"]
# What names of credentialed sources have in them, and names of open and made-up ones.
CREDENTIALED = ("mimic", "chexpert", "rexgradient", "padchest")
OPEN = ("nih", "nih_chestxray14", "covid_chestxray", "covid", "synthetic", "demo", "iu", "openi")


def plain_name(dataset: str) -> str:
    """As the lists above write it."""
    return str(dataset).strip().lower().replace("-", "_")


def credentialed(datasets: Iterable[str | None]) -> list[str]:
    """Those whose name says that they are credentialed.

    >>> credentialed(["MIMIC-CXR-JPG", "nih", None])
    ['mimic_cxr_jpg']
    """
    names = {plain_name(each) for each in datasets if each}
    return sorted(name for name in names if any(word in name for word in CREDENTIALED))


def standing(datasets: Iterable[str | None]) -> Standing:
    """The strictest of them: one credentialed name is enough, one unknown name too unless there is a credentialed one.

    >>> standing(["nih", "our hospital"]), standing(["synthetic"]), standing([])
    ('unknown', 'open', 'unknown')
    """
    names = {plain_name(each) for each in datasets if each}
    if credentialed(names):
        return "credentialed"
    return "open" if names and names <= set(OPEN) else "unknown"
