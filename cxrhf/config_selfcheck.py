"""Settings of `cxrhf selfcheck` and `cxrhf completion`."""

from __future__ import annotations

from dataclasses import dataclass, field

from cxrhf.config import listed, one_of, set_field

# What is checked, in the order it runs.
GROUPS = (
    "metrics", "patients", "context", "calibration", "subgroups", "compare", "shortcut", "slices", "encoding", "words",
    "notes", "hospital",
)  # fmt: skip
SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True, slots=True)
class SelfcheckConfig:
    """The installed package -> whether its audits find what was planted, and what is installed."""

    only: tuple[str, ...] = field(
        default=(), metadata={"metavar": "GROUP,...", "help": f"Groups to run: {', '.join(GROUPS)}. All if not given."}
    )
    json: bool = field(default=False, metadata={"help": "Print one JSON object instead of lines."})

    def __post_init__(self) -> None:
        set_field(self, "only", listed(self.only))
        for name in self.only:
            one_of("only: no such group", name, GROUPS)


@dataclass(frozen=True, slots=True)
class CompletionConfig:
    """A shell -> the script that completes cxrhf's verbs and flags in it."""

    shell: str = field(metadata={"positional": True, "metavar": "|".join(SHELLS), "help": "Your shell."})

    def __post_init__(self) -> None:
        one_of("no completion for this shell", self.shell, SHELLS)
