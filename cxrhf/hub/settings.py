"""Settings of `cxrhf push metric|model|dataset`: what is published, under which name, and what the user vouches for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from cxrhf.errors import ConfigError
from cxrhf.settings import set_field, split_list

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?")
_TO: dict[str, Any] = {
    "metavar": "USER/NAME",
    "required": True,
    "help": "Repository on the Hub: USER/NAME or ORGANISATION/NAME.",
}
_DRY: dict[str, Any] = {"help": "List every file with its size and run all checks; send nothing. No token is needed."}
_JSON: dict[str, Any] = {"help": "Print one JSON list on stdout: repositories, files, commits."}
_PUBLIC: dict[str, Any] = {"help": "Make the repository public. By default a new repository is private."}


def check_owner(to: str | None) -> None:
    """A user or organisation."""
    if not to or not _NAME.fullmatch(to) or "--" in to or ".." in to:
        raise ConfigError("--to", got=to, allowed="a user or organisation of the Hub",
                          next_step="cxrhf push metric --all --to USER")  # fmt: skip


def check_repo(to: str | None, verb: str) -> None:
    """USER/NAME, as the Hub takes it."""
    parts = (to or "").split("/")
    if len(parts) != 2 or any(not _NAME.fullmatch(part) or "--" in part or ".." in part for part in parts):
        raise ConfigError("--to", got=to, allowed="USER/NAME (letters, digits, -, _ and .)",
                          next_step=f"cxrhf push {verb} --to USER/NAME")  # fmt: skip


@dataclass(frozen=True, slots=True)
class PushMetricConfig:
    """evaluate modules -> Spaces."""

    names: tuple[str, ...] = field(
        default=(), metadata={"positional": True, "metavar": "NAME", "help": "Names of metrics, or their folders."}
    )
    all: bool = field(default=False, metadata={"help": "Every metric of this package."})
    to: str | None = field(
        default=None,
        metadata={"metavar": "USER", "required": True, "help": "User or organisation: each becomes USER/NAME."},
    )
    private: bool = field(
        default=False, metadata={"help": "Make the Spaces private. By default a new Space is public."}
    )
    dry_run: bool = field(default=False, metadata=_DRY)
    json: bool = field(default=False, metadata=_JSON)

    def __post_init__(self) -> None:
        set_field(self, "names", split_list(self.names))
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
        metadata={"metavar": "RUN", "help": "Run with the audit results. Default: RUN or a folder above it."},
    )
    model: str | None = field(
        default=None, metadata={"metavar": "NAME", "help": "Name of the model in the results, if it differs."}
    )
    public: bool = field(default=False, metadata=_PUBLIC)
    data_agreement_allows: bool = field(
        default=False,
        metadata={
            "help": "Confirm that you have read the data use agreement of the training data and that it lets you share "
            "weights. Required for credentialed data and for data of unknown origin."
        },
    )
    data_agreement_allows_words: bool = field(
        default=False,
        metadata={
            "help": "Confirm the same for models that can reproduce text about patients: report adapters, vocabularies "
            "and embeddings of notes. Required to publish them."
        },
    )
    dry_run: bool = field(default=False, metadata=_DRY)
    json: bool = field(default=False, metadata=_JSON)

    def __post_init__(self) -> None:
        check_repo(self.to, f"model {self.run}")


@dataclass(frozen=True, slots=True)
class PushDatasetConfig:
    """A build -> a dataset repository."""

    folder: str = field(metadata={"positional": True, "metavar": "BUILD", "help": "Folder written by cxrhf build."})
    to: str | None = field(default=None, metadata=_TO)
    recipe: bool = field(
        default=False,
        metadata={
            "help": "Publish only what others with their own access need to rebuild the data: settings, ids and "
            "splits. No text, images or labels."
        },
    )
    public: bool = field(default=False, metadata=_PUBLIC)
    dry_run: bool = field(default=False, metadata=_DRY)
    json: bool = field(default=False, metadata=_JSON)

    def __post_init__(self) -> None:
        check_repo(self.to, f"dataset {self.folder}")
