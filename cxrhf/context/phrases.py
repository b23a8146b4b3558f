"""Finding -> the phrases by which a clinical note mentions it, and the regular expression that looks for them.

The lists are CONTEXT's Table A.15: the phrases by which CheXpert's labeler finds a mention in a radiology report, less
those that in a discharge note mean something else (REMOVED), underscores dropped. There are 13: CheXpert's findings
but No Finding. NIH's findings share a list where they are the same finding (atelectasis, cardiomegaly, consolidation,
edema, effusion, pneumonia, pneumothorax; `cxrhf.findings` knows the spellings); its others have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Literal, NamedTuple

from cxrhf.errors import ConfigError
from cxrhf.findings import finding_name

Rule = Literal["words", "substring", "affirmed"]
RULES: tuple[Rule, ...] = ("words", "substring", "affirmed")

PHRASES: Mapping[str, tuple[str, ...]] = {
    "enlarged_cardiomediastinum": (
        "mediastinum", "cardiomediastinum", "mediastinal configuration", "mediastinal silhouette",
        "pericardial silhouette", "cardiac silhouette and vascularity",
    ),
    "cardiomegaly": (
        "cardiomegaly", "heart size", "cardiac enlargement", "cardiac size", "cardiac shadow", "cardiac contour",
        "cardiac silhouette", "enlarged heart",
    ),
    "lung_opacity": (
        "opaci", "decreased translucency", "airspace disease", "air-space disease", "air space disease", "infiltrate",
        "infiltration", "interstitial marking", "interstitial pattern", "interstitial lung", "reticular pattern",
        "reticular marking", "reticulation", "parenchymal scarring", "peribronchial thickening", "scar",
    ),
    "lung_lesion": (
        "nodular density", "nodular densities", "nodular opacity", "nodular opacities", "nodular opacification",
        "nodule", "cavitary lesion", "carcinoma", "neoplasm", "tumor",
    ),
    "edema": (
        "edema", "heart failure", "chf", "vascular congestion", "pulmonary congestion", "vascular prominence",
    ),
    "consolidation": ("consolidat",),
    "pneumonia": ("pneumonia",),
    "atelectasis": ("atelecta",),
    "pneumothorax": ("pneumothorax", "pneumothoraces"),
    "pleural_effusion": ("pleural fluid", "effusion"),
    "pleural_other": (
        "pleural thickening", "fibrothorax", "pleural scar", "pleural parenchymal scar", "pleuro-parenchymal scar",
        "pleuro-pericardial scar",
    ),
    "fracture": ("fracture",),
    "support_devices": (
        "pacer", "picc", "tube", "valve", "catheter", "pacemaker", "hardware", "arthroplast", "marker", "icd", "defib",
        "device", "drain", "plate", "screw", "cannula", "apparatus", "coil", "equipment", "mediport",
    ),
}  # fmt: skip

# What the paper struck out of the labeler's lists: kept here so that a reader, and a test, can tell it from a slip.
REMOVED: Mapping[str, tuple[str, ...]] = {
    "enlarged_cardiomediastinum": ("contour",),
    "cardiomegaly": ("the heart",),
    "lung_opacity": ("increased density", "wall thickening"),
    "lung_lesion": ("mass", "lump"),
    "edema": ("indistinctness",),
    "pneumonia": ("infection", "infectious process", "infectious"),
    "atelectasis": ("collapse",),
    "pleural_other": ("fibrosis",),
    "support_devices": ("line", "lines", "support"),
}

# Beginnings of words. As beginnings, other phrases would find much else: plate platelets, tube tuberculosis.
STEMS = frozenset({"atelecta", "consolidat", "opaci", "arthroplast", "defib"})

# Names of a part or its measure, not of a finding: "normal" says that the finding is not there.
PARTS = frozenset({
    "mediastinum", "cardiomediastinum", "mediastinal configuration", "mediastinal silhouette", "pericardial silhouette",
    "cardiac silhouette and vascularity", "heart size", "cardiac size", "cardiac shadow", "cardiac contour",
    "cardiac silhouette", "interstitial marking", "interstitial pattern",
})  # fmt: skip

_EDGE = r"[^\pL\pN]"  # letters and digits of any script make a word; an underscore (___ blanks a name) does not


class Place(NamedTuple):
    """Where a text mentions a finding, and whether by the name of a part (PARTS)."""

    start: int
    end: int
    part: bool


def has_phrases(finding: str) -> bool:
    """Whether there is a list for this finding, in any of its spellings."""
    return finding_name(finding) in PHRASES


def pattern(finding: str, rule: Rule = "words") -> str:
    """An RE2 expression for lower-cased text that is found where the text mentions the finding.

    `words` (ours): whole words, with a plural or without, any white space between the words of a phrase because notes
    break their lines; STEMS as beginnings of words. `substring` (paper and public code): the letters of a phrase,
    anywhere in the text cleaned by the recipe oberst, so that "air-space disease" is found as airspace disease, and a
    phrase with a stop word or punctuation never.
    `affirmed` looks for the same as `words`; `mentions` then looks at each place that `places` finds.
    """
    name = finding_name(finding)
    if name not in PHRASES:
        raise ConfigError(f'there are no phrases for "{finding}"', allowed=f"one of {', '.join(PHRASES)}")
    if rule == "substring":
        return "|".join(re.escape(phrase) for phrase in PHRASES[name])
    if rule not in RULES:
        raise ConfigError("unknown rule for mentions", got=rule, allowed=f"one of {', '.join(RULES)}")
    spaced = {phrase: r"\s+".join(re.escape(word) for word in phrase.split()) for phrase in PHRASES[name]}
    whole = [_plural(spaced[phrase]) for phrase in PHRASES[name] if phrase not in STEMS]
    stems = [spaced[phrase] for phrase in PHRASES[name] if phrase in STEMS]
    ends = [rf"(?:{'|'.join(whole)})(?:{_EDGE}|$)"] if whole else []
    return rf"(?:^|{_EDGE})(?:{'|'.join([*ends, *stems])})"


def places(text: str, finding: str) -> Iterator[Place]:
    """Where a lower-cased text mentions the finding by whole words: the places of `pattern`, phrase by phrase."""
    for first, rest, part in _finders(finding_name(finding)):
        at = text.find(first)
        while at >= 0:
            if (at == 0 or not text[at - 1].isalnum()) and (found := rest.match(text, at)):
                yield Place(at, found.end(), part)
            at = text.find(first, at + 1)


@cache
def _finders(name: str) -> tuple[tuple[str, re.Pattern[str], bool], ...]:
    """First word, the phrase from there on, whether it names a part: a plain search is quicker than an expression."""
    made = []
    for phrase in PHRASES[name]:
        spaced = r"[\t\n\f\r ]+".join(re.escape(word) for word in phrase.split())
        whole = rf"{spaced}[^\W_]*" if phrase in STEMS else rf"{_plural(spaced)}(?![^\W_])"
        made.append((phrase.split()[0], re.compile(whole), phrase in PARTS))
    return tuple(made)


def _plural(word: str) -> str:
    """-es after s and x only: elsewhere it makes other words (scares)."""
    return f"{word}(?:es)?" if word.endswith(("s", "x")) else f"{word}s?"
