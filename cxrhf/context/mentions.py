"""Texts of notes -> which findings each mentions.

A mention is a mention: "no effusion" mentions an effusion, and so does "father had heart failure". Somebody thought of
the finding, which is what the strata of prior mentions ask; what the note says about it is the pre-test probability's
business. Every text is looked at once for each finding by a linear-time expression (RE2, in Arrow): 11,456 notes of
10 kB and 13 findings take 2.4 s on one core.

The rule `affirmed` asks for more: one place at least where the finding is not negated (`negation` says what that is; a
possible effusion, a past one and a father's heart failure all count). Only texts that mention a finding are looked at
again, up to the first such place: 10,000 notes of 10 kB and 13 findings take 4 s on one core, 9 s where they are
full of radiology reports.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cxrhf.context.words import clean
from cxrhf.errors import ConfigError
from cxrhf.findings import finding_name

# Texts lower-cased at a time: a second copy of all the notes is never in memory.
BATCH = 2_000


def mentions(texts: pa.ChunkedArray | pa.Array, findings: Sequence[str], *, rule: Rule = "words") -> NDArray[np.bool_]:
    """One row a text, one column a finding: True where the text mentions it. A missing text mentions nothing.

    Each finding must have a list of phrases (`phrases.has_phrases`). `rule`: see `phrases.pattern`.

    >>> mentions(pa.array(["No pleural effusions.", "platelets, tuberculosis"]), ["Effusion", "Support Devices"])
    array([[ True, False],
           [False, False]])
    """
    patterns = [pattern(finding, rule) for finding in findings]
    if rule == "substring":  # the public code searches the texts that it cleaned, where lines do not break
        texts = clean(texts, "oberst")
    found = np.zeros((len(texts), len(patterns)), dtype=bool)
    for start in range(0, len(texts), BATCH):
        lowered = pc.utf8_lower(texts.slice(start, BATCH))
        for at, each in enumerate(patterns):
            hit = pc.match_substring_regex(lowered, each)
            found[start : start + BATCH, at] = np.asarray(hit.fill_null(False))
        if rule == "affirmed":
            part = found[start : start + BATCH]
            for row in np.flatnonzero(part.any(axis=1)):
                text = lowered[row].as_py()
                stops = line_room(text)
                part[row] = [
                    hit and _is_affirmed(text, each, stops) for hit, each in zip(part[row], findings, strict=True)
                ]
    return found


def _is_affirmed(text: str, finding: str, stops: int) -> bool:
    """Whether a lower-cased text that mentions a finding does so in a place that is not negated."""
    place = None
    for place in places(text, finding):
        if not negated(text, place.start, place.end, part=place.part, stops=stops):
            return True
    return place is None  # mentioned, and no place is found: nothing says that it is negated


# Finding -> the phrases by which a clinical note mentions it, and the regular expression that looks for them.
#
# The lists are CONTEXT's Table A.15: the phrases by which CheXpert's labeler finds a mention in a radiology report,
# less those that in a discharge note mean something else (REMOVED), underscores dropped. There are 13: CheXpert's
# findings but No Finding. NIH's findings share a list where they are the same finding (atelectasis, cardiomegaly,
# consolidation, edema, effusion, pneumonia, pneumothorax; `cxrhf.findings` knows the spellings); its others have
# none.

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


class PhrasePlace(NamedTuple):
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


def places(text: str, finding: str) -> Iterator[PhrasePlace]:
    """Where a lower-cased text mentions the finding by whole words: the places of `pattern`, phrase by phrase."""
    for first, rest, part in _finders(finding_name(finding)):
        at = text.find(first)
        while at >= 0:
            if (at == 0 or not text[at - 1].isalnum()) and (found := rest.match(text, at)):
                yield PhrasePlace(at, found.end(), part)
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


# Words of clinical English -> the expressions by which `negation` tells what a note denies.
#
# Own lists, for lower-cased text; with one space between words but for ANY, STOP, GOES_ON and HEADING, which see the
# text as it stands.

_BE = "is|are|was|were"
_SEEN = (
    "seen|present|identified|evident|visuali[sz]ed|noted|found|demonstrated|detected|appreciated|observed|suspected|"
    "apparent|shown|diagnosed|required|needed|placed|inserted|indicated"
)
_SHOWED = "shows|showed|reveals|revealed|demonstrates"
_CHANGE = (
    "changes?|increase|decrease|improvement|worsening|progression|reduction|difference|growth|expansion|resolution|"
    "clearing|re-?accumulation|recurrences?|complications?"
)

# A word that any rule needs: most mentions have none near, and nothing more is asked about them.
ANY = re.compile(
    r"\b(?:no|not|without|w/o|den(?:y|ies|ied|ying)|neg|negative|absen(?:t|ce)|lack(?:s|ed|ing)?|free|clear|r/o|"
    r"ruled?|rules|ruling|exclud(?:e|es|ed)|neither|nor|none|nothing|never|cannot|rather|unremarkable|normal|wnl|"
    r"fail(?:s|ed)?|nil)\b|n['\u2019]t\b|\(-\)|[:=?-]\s*n\b"
)

# Where a sentence or an item ends, looked for at MARKS. A dot ends none after one letter (q.d., J. Smith) or a title,
# nor inside a number.
MARKS = re.compile(r"[\n;!?|+\u2022*#>\u2013\u2014.)-]")
STOP = re.compile(
    r"\n[ \t\r]*\n|[;!?|+\u2022]|(?<!\S)[-*#>\u2013\u2014]+(?=[\s\w]|$)|(?<=\d)[.)](?=\s)|\.(?=\.)"
    r"|(?<!\b[a-z])(?<!\b(?:dr|mr|ms|st|vs|pt|hx|wt|rt|lt))(?<!\b(?:mrs|neg|pos|ext|abd))(?<!\b(?:temp|poss|prob))"
    r"(?<!\bapprox)\.(?=[\s\"')\]_]|$)|(?<=[a-z]{3})\.(?=[a-z]{2})"
)
DASHES = ("-", "\u2013", "\u2014", "?")  # stops that may lead to an answer: "effusion - none"
# A line that ends in one of these goes on in the next, however short it is.
GOES_ON = re.compile(r"(?:[,/]|\b(?:no|not|nor|or|and|of|for|with|without|denies|any|the|a|an|to|in|is|are|was))$")
HEADING = re.compile(r"[ \t]*(?:[^\s:.;,]{1,30}[ \t]+){0,3}?[^\s:.;,]{0,30}:")

# A colon ends a heading, unless a negation leads over it ("negative for: ").
COLON = re.compile(r":(?!\d)")
LED = re.compile(
    r"\b(no|not|without|den(?:y|ies|ied|ying)|for|of|out|r/o|excludes?|excluded|neg|negative|show|reveal|have) ?:"
)
FOLLOWING = re.compile(r"\b(?:any of )?(?:the )?(?:following|including)(?: \w+)? ?:")

# Detours that stay inside a clause, with what stands for them.
DETOURS = (
    (
        re.compile(
            rf"(?: (?:{_BE}))?(?: (?:{_SEEN}))? (?:to|that|which)(?: \w+)? "
            r"(?:suggest|indicate|represent|explain)s?\b"
        ),
        " of",
    ),
    (
        re.compile(
            r"\b(?:think|thought|believed?|feel|felt)(?: that)?(?: (?:this|it|s?he|there|these|patient|pt))?"
            r" (?:is|was|were|had|to be|to have)\b"
        ),
        "felt",
    ),
    (re.compile(rf"\b(nor|none of)(?: [\w-]+){{1,3}} (?:{_SHOWED}|demonstrated)\b"), r"\1"),
)

# After a comma or "and", the beginning of another statement; not where an "or" shows that the list goes on.
_OTHER_CLAUSE = (
    "the|there|he|she|it|they|we|this|these|his|her|patient|pt|a|an|now|is|are|was|also|again|some|mild|mildly|minimal|"
    "moderate|small|trace|tiny|slight|stable|unchanged|persistent|persisting|known|residual|improving|improved|"
    "worsening|worsened|resolving|chronic|old|prior|previous|positive"
)
# What ends the reach of a negation on its way to the mention.
END = re.compile(
    r"\b(?:but|however|except(?:ing)?|although|though|yet|whereas|while|despite|nevertheless|still|only|instead|then|"
    r"until|because|since|given|after|before|besides|apart from|aside from|other than|in spite of|"
    r"in (?:the )?setting of|s/p|status post|prior to|which|who|where|when|if|so|therefore|"
    r"likely|probabl[ey]|possibl[ey]|presumed|presumably|"
    rf"{_SHOWED}|developed|remains?|remained|presents|presented|presenting|admitted|treated|received|underwent|"
    r"started|suggests|suggested|represents|indicates|confirmed|knew|allerg(?:y|ies)|candidate|positive for)\b"
    r"|(?<!not )\b(?:found|showing|revealing|demonstrating|due to|secondary to)\b"
    r"|(?<!free )(?<!away )\bfrom\b|(?<!the )\bfollowing\b|\bon(?: the| her| his)?(?: \w+)?$"
    r"|(?<!consistent )(?<!compatible )(?<!associated )(?<!diagnosed )(?<!not )\bwith\b"
    r"|(?<!nor )(?<!neither )(?<!not )\b(?:is|are|was|were|will|would|should|may|might|could)\b"
    r"|(?<!never )(?<!not )(?<!ever )(?<!to )(?<!nor )(?<!she )(?<!\bhe )(?<!they )\b(?:has|had|have)\b(?! been)"
    # a remedy for it: "no lasix for edema"; not "no evidence for edema"
    r"|\b(?!(?:evidence|neg|negative|concern|concerning|suspicion|suspicious|out|remarkable|unremarkable|need|signs?|"
    r"indication|criteria|findings|specific|worrisome|work-?up)\b)[\w.]+ for(?: (?:her|his|the|known|acute|chronic))*$"
    rf"|\b(?:{_SEEN})(?=,| and\b| in\b| on\b)"
    rf"|(?:,| and)(?: and)? (?:{_OTHER_CLAUSE})\b(?!.*\b(?:or|nor)\b)"
    # looks like a negation and is none
    rf"|\b(?:no|not|without)(?: [\w-]+){{0,3}} (?:{_CHANGE})(?: in| of| to| from)?\b"
    r"|\b(?:not only|not just|not necessarily|no longer|no more|no doubt|no question|no contraindications? to)\b"
    r"|\bwithout (?:difficult(?:y|ies)|incident|issues?|events?|problems?|trouble)\b"
    r"|\b(?:cannot|not|no evidence to|unable to|difficult to|hard to|impossible to|without)(?: \w+){0,2}"
    r" (?:r/o|rule[sd]?[ -]out|ruling out|exclud(?:e|ed|ing))\b"
)
# Negations of what comes after them.
BEFORE = re.compile(
    r"\b(?:no|without|w/o|den(?:y|ies|ied|ying)|neg(?:ative|\.)?(?: \w+)? for|absence of|absent|"
    r"lack(?:s|ed|ing)?(?: of)?|(?:free|clear) (?:of|from)|r/o|rules?[ -]out|ruling out|ruled out for|excludes?|"
    r"neither|nor|none of|rather than|unremarkable for|nothing (?:of|suggestive|concerning|consistent)|"
    r"fail(?:s|ed)? to (?:show|reveal|demonstrate|identify|find))(?!\w)"
    r"|\(-\)"
    r"|(?<!was )(?<!were )(?<!been )\b(?:ruled out|excluded)\b(?!,| and\b| by\b| on\b| via\b)"
    # "not" and a verb of finding reach as far as "no"; "not" alone only the next words: "did not tolerate chest tube"
    r"|\b(?:not|never)(?: \w+){0,2}? (?:have|had|having|has|show|showed|shown|showing|reveal|demonstrate|see|suggest|"
    r"suggestive|develop|developed|represent|identify|visuali[sz]e|find|indicate|indicative|consistent|compatible|"
    r"concerning|suspicious|remarkable|evidence|due|secondary|appear|diagnosed|experience|report|endorse|detect|need|"
    r"require|place|insert|implant|any)\b"
    r"|\b(?:not|never)(?: (?:a|an|any|in|with|been|be|of|yet|to|acute|acutely|overt|frank|decompensated|active|grossly|"
    r"currently|really|truly|clear|clearly|definite|definitely|obvious|obviously|significant|felt|thought))*$"
)
CLOSED = re.compile(r"\([^()]*\)")
# "No fever, pneumonia was treated": after a comma, with a verb of its own, a mention begins a clause of its own.
LAST_ITEM = re.compile(r",(?!.*\b(?:or|nor|and)\b)[^,]*$")
OWN_CLAUSE = re.compile(
    rf"^(?: \w+){{0,2}} (?:{_BE}|has|had|have|remains?|remained|felt|thought|treated|improved|worsened|persists?|"
    rf"persisted)\b(?! (?:not )?(?:{_SEEN}))"
)

# Negations of what comes before them, over the rest of its list (`gap`) if GAP_STOP is not in it.
_GAP = r"(?P<gap>(?:[ ,/()]+[\w'-]+){0,8}?)"
GAP_STOP = re.compile(
    rf"\b(?:{_BE}|be|been|not|no|nor|cannot|can|could|may|might|has|have|had|to|without|with|but|however|although|"
    r"though|except|which|that|who|did|does|do|due|after|since|while|because|showed?|shows|likely|possibly|probably)\b"
)
AFTER = re.compile(
    rf"^{_GAP}(?:,? (?:which|that))?,? \(?(?:(?:{_BE}|has been|have been|had been) )?(?:"
    r"(?:(?:now|also|then|subsequently|later|since|effectively|definitively|already) )*(?:ruled out|excluded)"
    r"|(?:not|never) (?:(?:been|be|currently|definitely|readily|grossly|otherwise|felt to be|thought to be) )*"
    rf"(?:{_SEEN})(?! (?:on|in) (?:the |her |his )?(?:prior|previous|earlier|last|past)| before| previously)"
    r"|(?:did|do|does|has|have|had) not (?:develop|occur|appear)(?:ed|red)?"
    r"|absent|(?:(?<=is )|(?<=are )|(?<=was )|(?<=were )|(?<=been ))negative)\b"
)
ANSWER = re.compile(
    r"^[\w ]{0,20} ?(?:[:=?-]|\.\.+) ?(?:none|no|nil|absent|neg(?:ative)?|denie[sd]|not (?:seen|present)|n)(?=$|[.,;)])"
    r"|^ ?\(-\)|^-free\b"
)

# What negates the name of a part.
NORMAL_BEFORE = re.compile(r"(?<!not )(?<!than )\b(?:normal|unremarkable)(?: [\w/-]+){0,5}$")
NORMAL_AFTER = re.compile(
    rf"^{_GAP},? ?(?:(?:{_BE}|appears?|remains?|looks?|measures?|has|have) )?(?:(?:to be|in|on|of|size|contour|shape|"
    r"and|stable|configuration|grossly|within|at|near|a|the|top|otherwise|also|all|both|again|still|now|overall|"
    r"relatively|essentially|upper limits?)[ ,]+)*"
    r"(?:normal|unremarkable|wnl|not (?:\w+ly )?(?:enlarged|widened|increased|abnormal))\b"
)
LARGE = re.compile(
    r"\b(?:enlarged|enlargement|increased|large|larger|greater|prominent|widened|wide|borderline|abnormal)\b"
)
OWN_VERB = re.compile(rf"^(?: \w+)? (?:{_BE}|appears?|remains?)\b")


# A mention and the text around it -> whether the note says that the finding is not there.
#
# Rules over words, own lists, no parser. A mention is negated by words before it ("no", "denies", "negative for";
# they reach through a list: "no edema, effusion, or pneumothorax") or after it ("was ruled out", "not seen", ":
# none"), inside its clause. A clause ends with the sentence, at the next item of a list, at a heading's colon, at a
# line that stops short, at "but", "although", "with", "due to" and their like, at a verb of its own ("no fever, film
# showed pneumonia"), and at what only looks like a negation ("no change in effusion", "cannot exclude", "not only").
# Names of a part ("heart size", "mediastinum") are also negated by "normal".
#
# Not negated, on purpose: the uncertain ("possible", "?", "unlikely", "cannot exclude"), the past ("resolved",
# "removed", "no longer", "no recurrence of"), what might come ("call if edema"), others' illnesses ("father had heart
# failure"). Negated: the question ("rule out pneumonia"), the new ("no new opacity"), the qualified ("no large
# effusion").
#
# Known gaps: a list without "or" is read as one list, so "no PE, pneumonia in the right base" negates the pneumonia;
# items with a dash each under "Negative for:" count as affirmed; English only.

REACH = 400  # characters looked at on either side of a mention
WIDTH = 60  # notes are wrapped at this width or a wider one, unless all lines of a note are shorter
SLACK = 10  # by how much a wrapped line may stop short: blanked names, long words


def line_room(text: str) -> int:
    """How long a line of this note may be and still have stopped on purpose, not because the line was full."""
    return min(WIDTH, max(map(len, text.split("\n")))) - SLACK


def negated(text: str, start: int, end: int, *, part: bool = False, stops: int | None = None) -> bool:
    """Whether the lower-cased text says that what it mentions at [start, end) is not there.

    `part`: the words there name a part of the body, which "normal" negates. `stops`: `room(text)`, if known.

    >>> text = "no edema, but a small effusion"
    >>> negated(text, 3, 8), negated(text, 22, 30)
    (True, False)
    """
    first, last = max(0, start - REACH), min(len(text), end + REACH)
    if not ANY.search(text, first, start) and not ANY.search(text, end, last):
        return False
    stops = line_room(text) if stops is None else stops
    reach = _negation_reach(text[_clause_start(text, first, start, end, stops) : start])
    after = _normalize_piece(text[end : _clause_end(text, end, last, stops)], front=True)
    return _denied_before(reach, after) or _denied_after(after) or (part and _is_normal(reach, after))


def _clause_start(text: str, first: int, start: int, end: int, stops: int) -> int:
    """Where the sentence, item or line of a mention begins, at most REACH before it."""
    at = max((found.end() for found in _stops(text, first, start)), default=first)
    heading = HEADING.match(text, end) is not None
    newline = text.rfind("\n", at, start)
    while newline >= 0:
        if _line_stops(text, newline, stops) or (heading and not GOES_ON.search(text[at:newline].rstrip())):
            return newline + 1
        heading = False
        newline = text.rfind("\n", at, newline)
    return at


def _clause_end(text: str, end: int, last: int, stops: int) -> int:
    # What stands behind a dash or a question mark may be the answer: "effusion - none".
    found = (found.start() for found in _stops(text, end, last) if found.group() not in DASHES)
    at = next(found, last)
    newline = text.find("\n", end, at)
    while newline >= 0:
        if _line_stops(text, newline, stops):
            return newline
        newline = text.find("\n", newline + 1, at)
    return at


def _stops(text: str, first: int, last: int) -> Iterator[re.Match[str]]:
    for mark in MARKS.finditer(text, first, last):
        if found := STOP.match(text, mark.start(), last):
            yield found


def _line_stops(text: str, newline: int, stops: int) -> bool:
    """Whether a line ends on purpose: the next word would have fitted, and nothing says that the line goes on."""
    line = text[text.rfind("\n", 0, newline) + 1 : newline].rstrip()
    word = text[newline + 1 : newline + 80].split(maxsplit=1)
    return len(line) + 1 + len(word[0] if word else "") <= stops and not GOES_ON.search(line)


def _normalize_piece(piece: str, *, front: bool = False) -> str:
    """One space between words, blanks (___) dropped, n't spelled out; a space in front if there was one."""
    if "'" in piece or "\u2019" in piece:
        piece = piece.replace("\u2019", "'").replace("can't", "cannot").replace("n't", " not")
    joined = " ".join(piece.replace("_", " ").split()).replace("can not", "cannot")
    return " " + joined if front and piece[:1].isspace() else joined


def _negation_reach(piece: str) -> str:
    """The words before a mention from which a negation reaches it."""
    if not ANY.search(piece):
        return ""
    before = LED.sub(r"\1", FOLLOWING.sub(" ", _normalize_piece(piece)))
    *_, before = COLON.split(before)
    for detour, shorter in DETOURS:
        before = detour.sub(shorter, before)
    return before[max((found.end() for found in END.finditer(before)), default=0) :]


def _denied_before(reach: str, after: str) -> bool:
    for cue in BEFORE.finditer(reach):
        between = CLOSED.sub("", reach[cue.end() :])
        own = LAST_ITEM.search(between) and OWN_CLAUSE.match(after)
        if ")" not in between and not own:  # a negation in brackets stays in them
            return True
    return False


def _denied_after(after: str) -> bool:
    if ANSWER.match(after):
        return True
    found = AFTER.match(after)
    return found is not None and _one_list(found["gap"])


def _one_list(gap: str) -> bool:
    """Whether the words between a mention and what is said after it are others of the same list."""
    return not GAP_STOP.search(gap) and ("," not in gap or re.search(r"\b(?:or|and)\b", gap) is not None)


def _is_normal(reach: str, after: str) -> bool:
    found = NORMAL_AFTER.match(after)
    if found and not GAP_STOP.search(found["gap"]) and not LARGE.search(found["gap"]):
        return True
    return NORMAL_BEFORE.search(reach) is not None and not OWN_VERB.match(after)
