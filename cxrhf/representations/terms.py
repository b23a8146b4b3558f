"""Datasets of the predictions, a build, the user's word -> whether single patients of them may stand in a page.

Open datasets and made-up ones may; credentialed ones never, whatever the user says; of all others the user must say it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cxrhf.errors import ConfigError
from cxrhf.terms import OPEN, credentialed, plain_name


class Terms(NamedTuple):
    """Whether points and pictures of single patients may be shown, and why."""

    may_show: bool
    why: str


def terms(datasets: Iterable[str | None], build: Mapping[str, Any] | None, asked: bool) -> Terms:
    """The terms of these datasets; `build` is what build.json says, `asked` the user's --may-show."""
    names = {plain_name(each) for each in datasets if each}
    closed = credentialed(names)
    if build is not None and build.get("credentialed") and str(build.get("dataset")) not in closed:
        closed.append(str(build.get("dataset")))
    # The twin is made up and says so, in whatever layout it was written.
    if build is not None and build.get("dataset") == "synthetic":
        return Terms(True, "synthetic data")
    if closed:
        if asked:
            raise ConfigError(
                "may_show: credentialed data cannot be shown for single patients",
                got=", ".join(closed), next_step="omit --may-show; maps then show counts",
            )  # fmt: skip
        return Terms(False, f"{', '.join(closed)}: credentialed data")
    if build is not None and build.get("credentialed") is False:
        return Terms(True, f"{build.get('dataset')}: an open dataset")
    if names and names <= set(OPEN):
        return Terms(True, f"{', '.join(sorted(names))}: open or synthetic data")
    if asked:
        return Terms(True, "the user passed --may-show")
    return Terms(False, "--may-show was not passed")
