"""RESULT rows with raw p values -> the same, corrected for everything one page tests.

A page tests hundreds of differences. With the default (Bonferroni) the chance that the page calls any of them
significant when nothing is going on is at most 5%: all differences of an audit of one model are one family, and the
families of the page share the 5% evenly, so that a long list of subgroups does not drown the headline. `bh` and `by`
hold the share of false ones among what is called significant within each family instead. Intervals are not corrected.
`features` and `slices` look for what nobody asked about beforehand: they come with a rule of their own, which their
rows name, and take no part in this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cxrhf.audits.rows import KEPT, Row
from cxrhf.metrics.multiplicity import benjamini_hochberg, benjamini_yekutieli, bonferroni, holm, max_t

_RULES: Mapping[str, Callable[..., Any]] = {
    "bonferroni": bonferroni,
    "holm": holm,
    "bh": benjamini_hochberg,
    "by": benjamini_yekutieli,
}
OWN_RULE = ("features", "slices")
_NAMES = {"bonferroni": "Bonferroni", "holm": "Holm", "bh": "Benjamini-Hochberg", "by": "Benjamini-Yekutieli"}


def correct(rows: Sequence[Row], how: str) -> None:
    """Replace the raw p values of these rows in place; `method` then says how and for how many."""
    families: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["p_value"] is not None and not np.isnan(row["p_value"]) and row["audit"] not in OWN_RULE:
            other = row["versus"] if row["audit"] == "compare" else None
            families.setdefault((row["dataset"], row["model"], row["audit"], other), []).append(row)
    for family in families.values() if how != "none" else ():
        _correct(family, how, len(families))


def _correct(family: Sequence[Row], how: str, families: int) -> None:
    raw = np.array([row["p_value"] for row in family])
    shared = 1 if how in ("bh", "by") else families
    if how == "max_t":
        together = max_t([row["value"] for row in family], np.stack([row[KEPT].replicates for row in family], axis=1))
        # It sees the replicates of a picked pair, not of those it was picked from.
        picked = max(row[KEPT].picked for row in family)
        # What max-T cannot resolve (no replicate is as extreme) is not called smaller than Bonferroni would.
        corrected, name = np.minimum(together.p_value * picked, bonferroni(raw)), "max-T"
    else:
        corrected, name = _RULES[how](raw), _NAMES[how]
    beside = f" in each of {shared} families" if shared > 1 else ""
    said = f"; p corrected for {len(family)} difference{'s' * (len(family) != 1)}{beside} ({name})"
    for row, p_value in zip(family, corrected, strict=True):
        row["p_value"] = float(min(1.0, p_value * shared))
        row["method"] += said
