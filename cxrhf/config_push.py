"""Settings of `cxrhf push metric|model|dataset`: what is published, under which name, and what the user vouches for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from cxrhf.config import listed, set_field
from cxrhf.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?")
_TO: dict[str, Any] = {
    "metavar": "USER/NAME",
    "required": True,
    "help": "Repository on the Hub: USER/NAME or ORGANISATION/NAME.",
}
_DRY: dict[str, Any] = {"help": "Show every file with its size and run all checks; nothing is sent, no token needed."}
_JSON: dict[str, Any] = {"help": "One JSON list on stdout for a script: repositories, files, commits."}
_PUBLIC: dict[str, Any] = {"help": "Everybody may see it. Without this a new repository is private."}


def check_owner(to: str | None) -> None:
    """A user or organisation."""
    if not to or not _NAME.fullmatch(to) or "--" in to or ".." in to:
        raise ConfigError("--to is no user or organisation of the Hub", got=to, allowed="USER",
                          next_step="cxrhf push metric --all --to USER")  # fmt: skip


def check_repo(to: str | None, verb: str) -> None:
    """USER/NAME, as the Hub takes it."""
    parts = (to or "").split("/")
    if len(parts) != 2 or any(not _NAME.fullmatch(part) or "--" in part or ".." in part for part in parts):
        raise ConfigError("--to is no repository of the Hub", got=to, allowed="USER/NAME: letters, digits, - _ .",
                          next_step=f"cxrhf push {verb} --to USER/NAME")  # fmt: skip


@dataclass(frozen=True, slots=True)
class PushMetricConfig:
    """evaluate modules -> Spaces."""

    names: tuple[str, ...] = field(
        default=(), metadata={"positional": True, "metavar": "NAME", "help": "Metrics by name, or their folders."}
    )
    all: bool = field(default=False, metadata={"help": "Every metric of this package."})
    to: str | None = field(
        default=None,
        metadata={"metavar": "USER", "required": True, "help": "User or organisation: each becomes USER/NAME."},
    )
    private: bool = field(
        default=False, metadata={"help": "Only you can load them. Without this a new Space is public."}
    )
    dry_run: bool = field(default=False, metadata=_DRY)
    json: bool = field(default=False, metadata=_JSON)

    def __post_init__(self) -> None:
        set_field(self, "names", listed(self.names))
        check_owner(self.to)


@dataclass(frozen=True, slots=True)
class PushModelConfig:
    """A run with weights -> a model repository with a card."""

    run: str = field(
        metadata={"positional": True, "metavar": "RUN", "help": "Run of cxrhf train, finetune or context fit."}
    )
    to: str | None = field(default=None, metadata=_TO)
    results: str | None = field(
        default=None,
        metadata={"metavar": "RUN", "help": "Run with the audit's results; if not given, RUN or a folder above it."},
    )
    model: str | None = field(
        default=None, metadata={"metavar": "NAME", "help": "The model's name in the results, where it differs."}
    )
    public: bool = field(default=False, metadata=_PUBLIC)
    data_agreement_allows: bool = field(
        default=False,
        metadata={
            "help": "You have read the agreement of the data that the network learned from, and it lets you share "
            "weights. Needed for credentialed data and where nobody knows whose data they are."
        },
    )
    data_agreement_allows_words: bool = field(
        default=False,
        metadata={
            "help": "The same for models that can give back what was written about patients: adapters that write "
            "reports, vocabularies and vectors of notes. They are refused without it."
        },
    )
    dry_run: bool = field(default=False, metadata=_DRY)
    json: bool = field(default=False, metadata=_JSON)

    def __post_init__(self) -> None:
        check_repo(self.to, f"model {self.run}")


@dataclass(frozen=True, slots=True)
class PushDatasetConfig:
    """A build -> a dataset repository."""

    folder: str = field(metadata={"positional": True, "metavar": "BUILD", "help": "Folder of cxrhf build."})
    to: str | None = field(default=None, metadata=_TO)
    recipe: bool = field(
        default=False,
        metadata={
            "help": "Only what others with their own access need to build the same: settings, ids and splits. No text, "
            "no pictures, no labels."
        },
    )
    public: bool = field(default=False, metadata=_PUBLIC)
    dry_run: bool = field(default=False, metadata=_DRY)
    json: bool = field(default=False, metadata=_JSON)

    def __post_init__(self) -> None:
        check_repo(self.to, f"dataset {self.folder}")
