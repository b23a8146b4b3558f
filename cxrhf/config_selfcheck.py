"""Settings of `cxrhf selfcheck` and `cxrhf completion`."""

from __future__ import annotations

from dataclasses import dataclass, field

from cxrhf.config import listed, one_of, set_field

# What is checked, in the order it runs. Two processes share it: what needs no kernels of the bootstrap comes second, so
# that they are there, and are not compiled twice, when the rest begins.
GROUPS = (
    "metrics", "patients", "slices", "words", "notes", "hospital", "encoding", "context", "calibration", "subgroups",
    "compare", "shortcut",
)  # fmt: skip
SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True, slots=True)
class SelfcheckConfig:
    """The installed package -> whether its audits find what was planted, and what is installed."""

    only: tuple[str, ...] = field(
        default=(), metadata={"metavar": "GROUP,...", "help": f"Groups of checks: {', '.join(GROUPS)}. Default: all."}
    )
    json: bool = field(default=False, metadata={"help": "Print one JSON object instead of lines."})

    def __post_init__(self) -> None:
        set_field(self, "only", listed(self.only))
        for name in self.only:
            one_of("only", name, GROUPS)


@dataclass(frozen=True, slots=True)
class CompletionConfig:
    """A shell -> the script that completes cxrhf's verbs and flags in it."""

    shell: str = field(metadata={"positional": True, "metavar": "|".join(SHELLS), "help": "Your shell."})

    def __post_init__(self) -> None:
        one_of("SHELL", self.shell, SHELLS)
