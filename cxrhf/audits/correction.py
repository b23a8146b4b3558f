"""RESULT rows with raw p values -> the same, corrected for everything one page tests.

A page tests hundreds of differences. With the default (Bonferroni) the chance that the page calls any of them
significant when nothing is going on is at most 5%: all differences of an audit of one model are one family, and the
families of the page share the 5% evenly, so that a long list of subgroups does not drown the headline. `bh` and `by`
hold the share of false ones among what is called significant within each family instead. Intervals are not corrected.

What the user asks for before the audit (`primary`, else the named `shortcuts`) does not compete with what the page
explores on its own: all differences asked for, of all models, are one family with a 5% of its own, and the rest is
corrected as above. So a page with both kinds holds two levels of 5%, not one.

`features` and `slices` look for what nobody asked about beforehand: they come with a rule of their own, which their
rows name, and take no part in this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cxrhf.audits.rows import KEPT, Row
from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.findings import finding_name
from cxrhf.metrics.multiplicity import benjamini_hochberg, benjamini_yekutieli, bonferroni, holm, max_t

_RULES: Mapping[str, Callable[..., Any]] = {
    "bonferroni": bonferroni,
    "holm": holm,
    "bh": benjamini_hochberg,
    "by": benjamini_yekutieli,
}
OWN_RULE = ("features", "slices")
_NAMES = {"bonferroni": "Bonferroni", "holm": "Holm", "bh": "Benjamini-Hochberg", "by": "Benjamini-Yekutieli"}


def correct(rows: Sequence[Row], how: str, primary: Sequence[str] = (), shortcuts: Sequence[str] = ()) -> list[str]:
    """Replace the raw p values of these rows in place; `method` then names the rule, the family and its size.

    `primary`: what was asked for, as `AuditConfig.primary` has it; without it, whatever tests one of the named
    `shortcuts`. Returns notes: what was asked for and is not tested.
    """
    tested = [row for row in rows if _is_tested(row)]
    # With names in `shortcuts` the shortcut audit looks at no other attribute.
    questions = [question.split(":") for question in primary] or ([["shortcut"]] if shortcuts else [])
    notes = _untested(rows, tested, primary)
    asked, families = list[Row](), dict[tuple[Any, ...], list[Row]]()
    for row in tested:
        if any(_matches(row, question) for question in questions):
            asked.append(row)
            continue
        other = row["versus"] if row["audit"] == "compare" else None
        families.setdefault((row["dataset"], row["model"], row["audit"], other), []).append(row)
    if how == "none":
        return notes
    if asked:
        _correct(asked, how, 1, "primary ")
    for family in families.values():
        _correct(family, how, len(families), "exploratory " if asked else "")
    return notes


def _is_tested(row: Row) -> bool:
    return row["p_value"] is not None and not np.isnan(row["p_value"]) and row["audit"] not in OWN_RULE


def _matches(row: Row, question: Sequence[str]) -> bool:
    """Whether every word of a question describes this difference."""
    words = _words(row)
    return all(word.casefold() in words or finding_name(word) == row["finding"] for word in question)


def _words(row: Row) -> set[str]:
    """What a difference can be asked for by: audit, metric, finding, group or attribute (`sex`, `sex=F`, `drain`)."""
    parts = [each for name in ("slice", "versus") for each in (row[name] or "").split(" & ")]
    words = {row["audit"], row["finding"] or "", *row["metric"].split(" vs "), *parts}
    words |= {part.partition("=")[0].removesuffix(" known") for part in parts}
    return {word.casefold() for word in words if word}


def _untested(rows: Sequence[Row], tested: Sequence[Row], primary: Sequence[str]) -> list[str]:
    """A note for each question whose differences are shown but not tested; an error where there is no such difference.

    Without the error a misspelt question would silently be corrected as if nobody had asked it.
    """
    notes = []
    for question in primary:
        words = question.split(":")
        if any(_matches(row, words) for row in tested):
            continue
        if any(row["versus"] is not None and _matches(row, words) for row in rows):
            notes.append(f"primary: {question} is shown but not tested; its rows state why")
            continue
        known = sorted(set[str]().union(*map(_words, tested)))
        unknown = [word for word in words if word.casefold() not in known and finding_name(word) not in known]
        audits = ", ".join(sorted({row["audit"] for row in tested}))
        raise ConfigError(
            "primary: no difference matches all of these words",
            got=question,
            allowed=f"an audit with tests ({audits or 'there is none'}) and a metric, finding, group or attribute of "
            "its rows, joined by colons",
            next_step=(did_you_mean(unknown[0], known) or f"check {unknown[0]!r}") if unknown else "remove a word",
        )
    return notes


def _correct(family: Sequence[Row], how: str, families: int, kind: str) -> None:
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
    said = f"; p corrected for {len(family)} {kind}difference{'s' * (len(family) != 1)}{beside} ({name})"
    for row, p_value in zip(family, corrected, strict=True):
        row["p_value"] = float(min(1.0, p_value * shared))
        row["method"] += said
