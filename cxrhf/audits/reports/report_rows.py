"""A number of generated reports -> its RESULT row; p values of one audit of one model corrected together.

How rows are keyed. `strategy` is the way of decoding, or "reference" for what concerns the references alone. `slice` is
"all" or a group ("sex=F", "sex=F & age=60-79"). Differences fill `versus` as everywhere: the other group, "reference",
or "strategy=greedy". What compares the words of two groups (counts of words by category, WAE, delta WAE, delta DIR,
WEAT) has the first group in `slice` and the second in `versus`. A suffix says more: `.paper` and `.exact` another rule,
`.chance` the same number with groups shuffled between patients (its interval: quantiles of the shuffles), `.null` that
of two halves of the references, `.association` the test "no association" of the same number, `.group` the part of WAE
that belongs to the words of one group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cxrhf.audits.reports.written import WordSettings, Written
from cxrhf.audits.rows import Row
from cxrhf.metrics.multiplicity import benjamini_hochberg

NAN = float("nan")


class Ends(NamedTuple):
    """An interval and how it was made."""

    low: float
    high: float
    method: str


class RowMaker(NamedTuple):
    """Makes the RESULT rows of one audit of the reports of one model and strategy."""

    audit: str
    of: Written
    settings: WordSettings

    def row(
        self,
        metric: str,
        value: float,
        *,
        ends: Ends | None = None,
        p_value: float | None = None,
        slice: str = "all",
        versus: str | None = None,
        strategy: str | None = None,
        n: int | None = None,
        n_patients: int | None = None,
        method: str = "",
        higher: bool | None = None,
        note: str | None = None,
    ) -> Row:
        """One row; without `n` it rests on all reports."""
        level = f"{self.settings.level:.4g} " if ends is not None else ""
        said = [method, f"{level}{ends.method}" if ends is not None else ""]
        return {
            "audit": self.audit,
            "metric": metric,
            "dataset": self.of.dataset,
            "model": self.of.model,
            "strategy": strategy or self.of.strategy,
            "finding": None,
            "slice": slice,
            "versus": versus,
            "value": float(value),
            "ci_low": None if ends is None else float(ends.low),
            "ci_high": None if ends is None else float(ends.high),
            "p_value": p_value,
            "n": len(self.of.images) if n is None else n,
            "n_pos": None,
            "n_patients": self.of.n_patients if n_patients is None else n_patients,
            "method": "; ".join(filter(None, said)) or None,
            "seed": self.settings.seed,
            "higher_is_better": higher,
            "note": note,
        }


def correct_together(rows: Sequence[Row]) -> None:
    """Benjamini-Hochberg over the p values of each audit of each model, in place; `method` says so.

    Reports are searched for whatever moved, so the share of false ones among what is called beyond chance is held, as
    it is for single words. Women against men, the question of the paper, and all other groups are two families: dozens
    of crossings must not drown it. Where nothing is going on, the chance that a family calls anything is 5%.
    """
    families: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["p_value"] is not None and not np.isnan(row["p_value"]):
            slice = row["slice"]
            first = slice == "all" or (slice.startswith("sex=") and " & " not in slice)
            families.setdefault((row["audit"], row["dataset"], row["model"], first), []).append(row)
    for (*_, first), family in families.items():
        corrected = benjamini_hochberg(np.array([row["p_value"] for row in family]))
        for row, p_value in zip(family, corrected, strict=True):
            row["p_value"] = float(p_value)
            whose = "the whole sample and the sexes" if first else "the other groups"
            said = f"p corrected for {len(family)} tests of {whose} (Benjamini-Hochberg)"
            row["method"] = f"{row['method']}; {said}" if row["method"] else said
