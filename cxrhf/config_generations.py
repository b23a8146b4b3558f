"""Settings of the audits of generated reports: reports, decoding. They are flags of `cxrhf audit`."""

from __future__ import annotations

from dataclasses import dataclass, field

from cxrhf.config_representations import RepresentationFields

# What groups are made of; crossings are named with &.
WORD_GROUPS = ("sex", "age", "race", "sex&age", "sex&race", "race&age")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFields(RepresentationFields):
    """Where the reports stand, and how their words are looked at."""

    generated: tuple[str, ...] = field(
        default=(),
        metadata={
            "group": "generated report",
            "metavar": "COLUMN",
            "help": "Generated reports: one column, or one per strategy (greedy=hyp_greedy,rich=hyp_rich).",
        },
    )
    reference: str | None = field(
        default=None, metadata={"metavar": "COLUMN", "help": "Reference reports, written by radiologists."}
    )
    strategy: str | None = field(
        default=None, metadata={"metavar": "COLUMN", "help": "Decoding strategy, or the name of the only one."}
    )
    baseline_strategy: str | None = field(
        default=None,
        metadata={
            "metavar": "NAME",
            "help": "Strategy that the others are compared with. Default: greedy, or the first.",
        },
    )
    word_groups: tuple[str, ...] = field(
        default=WORD_GROUPS,
        metadata={
            "metavar": "GROUP,...",
            "help": f"Groups whose words are compared: {', '.join(WORD_GROUPS)}; two groups with each other, each of "
            "more with all others.",
        },
    )
    p_star: float = field(default=0.05, metadata={"help": "Significance level of the word categories."})
    alpha: float = field(default=0.1, metadata={"help": "Smoothing of word counts."})
    weat_words: str | None = field(
        default=None,
        metadata={
            "metavar": "YAML",
            "help": "Word sets of WEAT: targets_first, targets_second, attributes_first, attributes_second (lists). "
            "Default: words of normal and of abnormal findings, and the words typical of each group in the references.",
        },
    )
