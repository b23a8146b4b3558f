"""A dataset of a builder -> `push_to_hub` refuses it where `cxrhf push` would.

`datasets` has no place for such a rule, so `push_to_hub` of its four classes is wrapped, in processes that made one of
our builders. What goes by the rule is `info.license`, which `datasets` carries through map, filter, select, slices,
formats, shuffles, splits into parts, concatenation and save_to_disk.

Known gaps: `to_parquet`, `to_pandas` and the like, whose result has no info; a build folder or a saved dataset that is
loaded in a process that made no builder; `save_to_disk` and `to_parquet` with an hf:// address.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from cxrhf.data.card import TERMS
from cxrhf.errors import CxrhfError, CxrhfWarning

REFUSED = "Not for the Hub: push_to_hub is refused, `cxrhf push dataset BUILD --recipe` publishes what may be shared."
UNCHECKED = "push_to_hub checks no terms: `cxrhf push dataset BUILD` publishes what they allow."


def licence(dataset: str, *, made_up: bool) -> str:
    """The terms of a dataset as `info.license` says them. `made_up`: the builder itself invented the raw files."""
    if made_up:
        return TERMS[dataset].licence
    # Raw files that somebody gave to `synthetic` may be real: nothing here proves that they are not.
    rule = REFUSED if TERMS[dataset].credentialed or dataset == "synthetic" else UNCHECKED
    return f"{TERMS[dataset].said} {rule}"


def guard_pushes() -> None:
    """Have every `push_to_hub` of `datasets` look at the licence first; again it changes nothing."""
    import datasets

    for kind in (datasets.Dataset, datasets.DatasetDict, datasets.IterableDataset, datasets.IterableDatasetDict):
        if not hasattr(kind.push_to_hub, "looks_at_licence"):
            kind.push_to_hub = _looking(kind.push_to_hub)
    if not hasattr(datasets.Dataset.to_iterable_dataset, "keeps_licence"):
        datasets.Dataset.to_iterable_dataset = _keeping(datasets.Dataset.to_iterable_dataset)


def _keeping(make: Callable[..., Any]) -> Callable[..., Any]:
    """The one way to another dataset on which `datasets` drops all of the info but the features."""

    @functools.wraps(make)
    def keeping(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = make(self, *args, **kwargs)
        made.info.license = made.info.license or self.info.license
        return made

    keeping.keeps_licence = True  # type: ignore[attr-defined]
    return keeping


def _looking(push: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(push)
    def looking(self: Any, *args: Any, **kwargs: Any) -> Any:
        check_push(self)
        return push(self, *args, **kwargs)

    looking.looks_at_licence = True  # type: ignore[attr-defined]
    return looking


def check_push(data: Any) -> None:
    """Refuse a dataset, or a dictionary of them, that holds credentialed data; warn where terms are not checked."""
    parts = data.values() if isinstance(data, dict) else [data]
    said = " ".join(str(part.info.license or "") for part in parts)
    if REFUSED in said:
        raise CxrhfError(
            "this dataset holds, or may hold, credentialed data, which push_to_hub would publish; nothing was sent",
            next_step="if your agreement lets you share ids, publish the recipe (settings, ids and splits): "
            "cxrhf build DATASET --root FOLDER --out BUILD, then cxrhf push dataset BUILD --to USER/NAME "
            "--recipe --dry-run",
        )
    if UNCHECKED in said:
        warnings.warn(
            "push_to_hub publishes every row and does not check the terms; cxrhf push dataset publishes only what they "
            "allow",
            CxrhfWarning,
            stacklevel=3,
        )
