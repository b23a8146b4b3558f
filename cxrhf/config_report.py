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
            "help": "Run folder made by cxrhf audit; or a card's folder, or a folder of such, to write them again. Two "
            "run folders with --diff.",
        }
    )
    diff: bool = field(default=False, metadata={"help": "Compare two runs: lines, and diff.html."})
    out: str | None = field(
        default=None,
        metadata={"metavar": "DIR", "aliases": ("-o",), "help": "With --diff: where diff.html goes; the second run."},
    )
    json: bool = field(default=False, metadata={"help": "With --diff: print one JSON object instead of lines."})
    cards: str | None = field(
        default=None,
        metadata={"metavar": "FOLDER", "help": "Where the cards of the models go, a folder each (RUN/model_cards)."},
    )

    def __post_init__(self) -> None:
        given = (self.run,) if isinstance(self.run, (str, Path)) else tuple(self.run)
        set_field(self, "run", tuple(str(each) for each in given))
        if len(self.run) != 1 + self.diff:
            raise ConfigError(
                "--diff compares two runs" if self.diff else "report takes one RUN", got=" ".join(self.run) or "none",
                next_step="cxrhf report --diff RUN1 RUN2" if self.diff or len(self.run) > 1 else "cxrhf report RUN",
            )  # fmt: skip
        if not self.diff and (self.out or self.json):
            raise ConfigError("--out and --json go with --diff", next_step="cxrhf report --diff RUN1 RUN2")
        if self.diff and self.cards:
            raise ConfigError("--diff writes no cards", next_step=f"cxrhf report {self.run[1]} --cards {self.cards}")
