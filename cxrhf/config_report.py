"""Settings of `cxrhf report`: which run is written again, or which two are compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cxrhf.config import set_field
from cxrhf.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ReportConfig:
    """A run -> its page and its models' cards, written again; cards -> the same cards; two runs -> what changed."""

    run: tuple[str, ...] = field(
        metadata={
            "positional": True,
            "metavar": "RUN",
            "help": "Run folder of cxrhf audit; or the folder of a model card, or of several, to write them again. "
            "With --diff: two run folders.",
        }
    )
    diff: bool = field(default=False, metadata={"help": "Compare two runs: print the changes and write diff.html."})
    out: str | None = field(
        default=None,
        metadata={
            "metavar": "DIR",
            "aliases": ("-o",),
            "help": "With --diff: folder of diff.html. Default: the second run.",
        },
    )
    json: bool = field(default=False, metadata={"help": "With --diff: print one JSON object instead of lines."})
    cards: str | None = field(
        default=None,
        metadata={
            "metavar": "FOLDER",
            "help": "Folder of the model cards, with one folder per model. Default: RUN/model_cards.",
        },
    )

    def __post_init__(self) -> None:
        given = (self.run,) if isinstance(self.run, (str, Path)) else tuple(self.run)
        set_field(self, "run", tuple(str(each) for each in given))
        if len(self.run) != 1 + self.diff:
            raise ConfigError(
                "RUN", got=" ".join(self.run) or "none", allowed="two run folders" if self.diff else "one run folder",
                next_step="cxrhf report --diff RUN1 RUN2" if self.diff or len(self.run) > 1 else "cxrhf report RUN",
            )  # fmt: skip
        if not self.diff and (self.out or self.json):
            raise ConfigError("--out and --json require --diff", next_step="cxrhf report --diff RUN1 RUN2")
        if self.diff and self.cards:
            raise ConfigError("--diff writes no cards", next_step=f"cxrhf report {self.run[1]} --cards {self.cards}")
