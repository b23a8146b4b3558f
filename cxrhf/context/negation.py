"""A mention and the text around it -> whether the note says that the finding is not there.

Rules over words, own lists, no parser. A mention is negated by words before it ("no", "denies", "negative for"; they
reach through a list: "no edema, effusion, or pneumothorax") or after it ("was ruled out", "not seen", ": none"), inside
its clause. A clause ends with the sentence, at the next item of a list, at a heading's colon, at a line that stops
short, at "but", "although", "with", "due to" and their like, at a verb of its own ("no fever, film showed pneumonia"),
and at what only looks like a negation ("no change in effusion", "cannot exclude", "not only"). Names of a part ("heart
size", "mediastinum") are also negated by "normal".

Not negated, on purpose: the uncertain ("possible", "?", "unlikely", "cannot exclude"), the past ("resolved", "removed",
"no longer", "no recurrence of"), what might come ("call if edema"), others' illnesses ("father had heart failure").
Negated: the question ("rule out pneumonia"), the new ("no new opacity"), the qualified ("no large effusion").

Known gaps: a list without "or" is read as one list, so "no PE, pneumonia in the right base" negates the pneumonia;
items with a dash each under "Negative for:" count as affirmed; English only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cxrhf.context import cues

REACH = 400  # characters looked at on either side of a mention
WIDTH = 60  # notes are wrapped at this width or a wider one, unless all lines of a note are shorter
SLACK = 10  # by how much a wrapped line may stop short: blanked names, long words


def room(text: str) -> int:
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
    if not cues.ANY.search(text, first, start) and not cues.ANY.search(text, end, last):
        return False
    stops = room(text) if stops is None else stops
    reach = _reach(text[_clause_start(text, first, start, end, stops) : start])
    after = _plain(text[end : _clause_end(text, end, last, stops)], front=True)
    return _denied_before(reach, after) or _denied_after(after) or (part and _is_normal(reach, after))


def _clause_start(text: str, first: int, start: int, end: int, stops: int) -> int:
    """Where the sentence, item or line of a mention begins, at most REACH before it."""
    at = max((found.end() for found in _stops(text, first, start)), default=first)
    heading = cues.HEADING.match(text, end) is not None
    newline = text.rfind("\n", at, start)
    while newline >= 0:
        if _line_stops(text, newline, stops) or (heading and not cues.GOES_ON.search(text[at:newline].rstrip())):
            return newline + 1
        heading = False
        newline = text.rfind("\n", at, newline)
    return at


def _clause_end(text: str, end: int, last: int, stops: int) -> int:
    # What stands behind a dash or a question mark may be the answer: "effusion - none".
    found = (found.start() for found in _stops(text, end, last) if found.group() not in cues.DASHES)
    at = next(found, last)
    newline = text.find("\n", end, at)
    while newline >= 0:
        if _line_stops(text, newline, stops):
            return newline
        newline = text.find("\n", newline + 1, at)
    return at


def _stops(text: str, first: int, last: int) -> Iterator[re.Match[str]]:
    for mark in cues.MARKS.finditer(text, first, last):
        if found := cues.STOP.match(text, mark.start(), last):
            yield found


def _line_stops(text: str, newline: int, stops: int) -> bool:
    """Whether a line ends on purpose: the next word would have fitted, and nothing says that the line goes on."""
    line = text[text.rfind("\n", 0, newline) + 1 : newline].rstrip()
    word = text[newline + 1 : newline + 80].split(maxsplit=1)
    return len(line) + 1 + len(word[0] if word else "") <= stops and not cues.GOES_ON.search(line)


def _plain(piece: str, *, front: bool = False) -> str:
    """One space between words, blanks (___) dropped, n't spelled out; a space in front if there was one."""
    if "'" in piece or "\u2019" in piece:
        piece = piece.replace("\u2019", "'").replace("can't", "cannot").replace("n't", " not")
    joined = " ".join(piece.replace("_", " ").split()).replace("can not", "cannot")
    return " " + joined if front and piece[:1].isspace() else joined


def _reach(piece: str) -> str:
    """The words before a mention from which a negation reaches it."""
    if not cues.ANY.search(piece):
        return ""
    before = cues.LED.sub(r"\1", cues.FOLLOWING.sub(" ", _plain(piece)))
    *_, before = cues.COLON.split(before)
    for detour, shorter in cues.DETOURS:
        before = detour.sub(shorter, before)
    return before[max((found.end() for found in cues.END.finditer(before)), default=0) :]


def _denied_before(reach: str, after: str) -> bool:
    for cue in cues.BEFORE.finditer(reach):
        between = cues.CLOSED.sub("", reach[cue.end() :])
        own = cues.LAST_ITEM.search(between) and cues.OWN_CLAUSE.match(after)
        if ")" not in between and not own:  # a negation in brackets stays in them
            return True
    return False


def _denied_after(after: str) -> bool:
    if cues.ANSWER.match(after):
        return True
    found = cues.AFTER.match(after)
    return found is not None and _one_list(found["gap"])


def _one_list(gap: str) -> bool:
    """Whether the words between a mention and what is said after it are others of the same list."""
    return not cues.GAP_STOP.search(gap) and ("," not in gap or re.search(r"\b(?:or|and)\b", gap) is not None)


def _is_normal(reach: str, after: str) -> bool:
    found = cues.NORMAL_AFTER.match(after)
    if found and not cues.GAP_STOP.search(found["gap"]) and not cues.LARGE.search(found["gap"]):
        return True
    return cues.NORMAL_BEFORE.search(reach) is not None and not cues.OWN_VERB.match(after)
