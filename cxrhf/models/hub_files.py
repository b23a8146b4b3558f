"""Files of a model of the Hugging Face Hub -> the folder of the Hub's cache that holds them, fetched if it must be.

What is on this machine is used without asking the network. Only what is named is fetched, never code, and without
network the answer comes at once.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from cxrhf.encode.download import explain_no_hub
from cxrhf.errors import CxrhfError

HUB_ID = re.compile(r"[A-Za-z0-9][\w.\-]*/[\w.\-]+")


class NeededFiles(NamedTuple):
    """What is read of a model of the Hub: `first`, one or more of each of the `groups`, weights of the best kind."""

    hub_id: str
    first: str
    groups: tuple[tuple[str, ...], ...] = ()
    weights: tuple[tuple[str, ...], ...] = ()  # kinds, the best first
    others: tuple[str, ...] = ()  # read if they are there
    name: str = ""
    also: str = ""  # what else must be downloaded by hand: an id and a file
    absent: str = "check the id"  # what to do where the Hub has no `first`
    instead: str = ""  # what does as well


def hub_files(need: NeededFiles) -> Path:
    """The folder of the Hub's cache that holds what is needed."""
    from transformers.utils.hub import cached_files

    here = _cached_folder(need)
    if here is not None and _missing_names(here, need) is None:
        return here
    if why := explain_no_hub():
        raise _not_here(need, here is not None, why)
    said: dict[str, Any] = {"_raise_exceptions_for_missing_entries": False}
    try:
        cached_files(need.hub_id, [need.first, *need.others, *sum(need.groups, ())], **said)
        for kind in need.weights:
            # A list of one would be asked for by another route, which takes a missing file for an error.
            found = {Path(each).name for each in cached_files(need.hub_id, [*kind, need.first], **said) or []}
            here = _cached_folder(need)
            for index in sorted(name for name in found & set(kind) if name.endswith(".index.json")):
                cached_files(need.hub_id, [*_parts(Path(str(here)) / index), need.first], **said)
            if found & set(kind):
                break
    except Exception as error:  # of the Hub's client, of its web client, of the disk
        raise _refused(need, error) from None
    here = _cached_folder(need)
    if here is None:
        raise CxrhfError(f"the Hub repository {need.hub_id} has no {need.first}", next_step=need.absent)
    lacking = _missing_names(here, need)
    if lacking:
        raise CxrhfError(f"the Hub repository {need.hub_id} is incomplete", got=f"no {' or '.join(lacking)}")
    return here


def _cached_folder(need: NeededFiles) -> Path | None:
    """The folder of the Hub's cache, if the first file is there."""
    from transformers.utils.hub import cached_file

    try:
        found = cached_file(need.hub_id, need.first, local_files_only=True)
    except OSError:
        return None
    return None if found is None else Path(found).parent


def _missing_names(folder: Path, need: NeededFiles) -> tuple[str, ...] | None:
    """File names of which one or more must be there and none is."""
    for group in (*need.groups, *((sum(need.weights, ()),) if need.weights else ())):
        found = next((folder / name for name in group if (folder / name).is_file()), None)
        if found is None:
            return group
        if found.name.endswith(".index.json"):
            missing = tuple(part for part in _parts(found) if not (folder / part).is_file())
            if missing:
                return missing
    return None


def _parts(index: Path) -> list[str]:
    return sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))


def _display_name(need: NeededFiles) -> str:
    return need.hub_id if need.name in ("", need.hub_id) else f"{need.name} ({need.hub_id})"


def _fetch(need: NeededFiles) -> str:
    """The commands that bring it."""
    command = f"`hf download {need.hub_id}" + ("`" if need.weights else f" {need.first}`")
    return f"{command} and `hf download {need.also}`" if need.also else command


def _not_here(need: NeededFiles, partly: bool, why: str) -> CxrhfError:
    instead = f"; or {need.instead}" if need.instead else ""
    return CxrhfError(
        f"the model {_display_name(need)} is {'incomplete' if partly else 'not'} on this machine, and {why}",
        next_step=f"run {_fetch(need)} on a machine with network access, then copy its Hub cache (HF_HOME) or name the "
        f"folder{instead}",
    )


def _refused(need: NeededFiles, error: Exception) -> CxrhfError:
    cause = type(error.__cause__).__name__ if error.__cause__ is not None else ""
    if cause == "GatedRepoError" or "gated" in str(error):
        return CxrhfError(
            f"the model {_display_name(need)} is gated",
            next_step=f"accept its conditions at huggingface.co/{need.hub_id}, then run `hf auth login`",
        )
    if cause == "RepositoryNotFoundError":
        return CxrhfError(
            f"the Hub has no model {need.hub_id}",
            next_step="check the id; a private model requires `hf auth login`",
        )
    first = str(error).strip().splitlines() or [type(error).__name__]
    return CxrhfError(
        f"the model {_display_name(need)} could not be downloaded from the Hub ({first[0]})",
        next_step=f"try again, or run {_fetch(need)}" + (f", or {need.instead}" if need.instead else ""),
    )
