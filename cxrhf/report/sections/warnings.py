"""Notes of the audits -> warnings grouped by what they say, so that fourteen findings do not make a wall of text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from cxrhf.report.blocks import finding_name
from cxrhf.report.numbers import listed

_NUMBER = re.compile(r"\d[\d,.]*\d|\d")
# A grouping of patients, as `sex`, or `sex & age`; or an audit's name: what a note may start with, after the model.
_PLACE = re.compile(
    r"^(?:sex|race|age|view|context|matched|reweighted|imbalance|subgroups|features|slices|shortcut)(?: & \w+)*$"
)
_DATASET = re.compile(r" \(dataset (.+)\)$")
# Where a note belongs, by a word in it; the first that fits.
_KINDS = (
    ("Subgroups", r"\bgroups?\b|\bgaps?\b"),
    ("Patient context", r"overlap|ATT|IPW|pairs|pre-test|pretest|earlier note|prior note|mention|context|weighting"),
    ("Embeddings and slices", r"\bembeddings?\b|\bvectors?\b|\bslices?\b|\bmaps?\b|\bshortcut|\battribute"),
    ("Comparison and runs", r" against | runs \(|compared"),
    ("Scores and thresholds", r"threshold|probabilit|Brier|scores|calibrat"),
)


class Warned(NamedTuple):
    """One thing to know: whom it concerns, what it says, and each of its sentences where there are several."""

    who: str
    words: str
    each: list[str]


class _Note(NamedTuple):
    model: str
    dataset: str
    who: tuple[str, ...]
    words: str


def grouped(notes: Sequence[str], models: Sequence[str], findings: Sequence[str]) -> list[tuple[str, list[Warned]]]:
    """Warnings under the name of what they concern; notes that differ only in numbers, model or finding are one."""
    names = {each.lower(): finding_name(each) for each in findings}
    by_length = sorted((each for each in models if each), key=len, reverse=True)
    parted = [_parts(note, by_length, names) for note in notes]
    # The same sentence with an ending says more.
    whose: dict[tuple[str, str, tuple[str, ...]], list[_Note]] = {}
    for note in parted:
        whose.setdefault(note[:3], []).append(note)
    parted = [
        one
        for one in parted
        if not any(two.words.startswith(f"{one.words};") for two in whose[one[:3]] if two is not one)
    ]
    alike: dict[str, list[_Note]] = {}
    listing = _listing(names)
    for note in parted:
        words = listing.sub("…", note.words) if listing else note.words
        alike.setdefault(_NUMBER.sub("…", words), []).append(note)
    places = list(dict.fromkeys(note.dataset for note in parted if note.dataset))
    # The mean of several runs has few notes of its own: what all runs say is said of all models.
    models = [each for each in models if not any(other.startswith(f"{each} (seed ") for other in models)]
    out: dict[str, list[Warned]] = {}
    for skeleton, several in alike.items():
        out.setdefault(_kind(skeleton), []).append(_warned(skeleton, several, models, places))
    # Context first: "Subgroups" stands before it in _KINDS only because its words are the surer sign.
    order = [*(name for name, _ in _KINDS[1::-1]), *(name for name, _ in _KINDS[2:])]
    return sorted(out.items(), key=lambda each: order.index(each[0]) if each[0] in order else -1)


def _warned(skeleton: str, several: Sequence[_Note], models: Sequence[str], places: Sequence[str]) -> Warned:
    whom = list(dict.fromkeys(name for note in several for name in note.who))
    whose = list(dict.fromkeys(note.model for note in several if note.model))
    where = list(dict.fromkeys(note.dataset for note in several if note.dataset))
    who = [listed(whom)] if whom else []
    who += [listed(whose)] if not set(models) <= set(whose) and whose else []
    who += [listed(where)] if where and (len(where) < len(places) or len(places) == 1) else []
    said = list(dict.fromkeys(note.words for note in several))
    if len(said) == 1:
        return Warned(", ".join(who), _sentence(said[0]), [])
    each = []
    for note in dict.fromkeys(several):
        model = [note.model] if note.model and len(models) > 1 else []
        head = ", ".join([*note.who, *model, *([note.dataset] if note.dataset else [])])
        each.append(f"{head}: {note.words}" if head else note.words)
    return Warned(", ".join(who), _sentence(skeleton), each)


def _parts(note: str, models: Sequence[str], findings: dict[str, str]) -> _Note:
    """`model: finding: words (dataset name)` taken apart; what is not there is empty. `models`: the longest first."""
    found = _DATASET.search(note)
    dataset = found[1] if found else ""
    note = note[: found.start()] if found else note
    model = next((each for each in models if note.startswith(f"{each}: ")), "")
    words = note[len(model) + 2 :] if model else note
    head, colon, rest = words.partition(": ")
    if colon and rest:
        named = [part.strip().lower() for part in head.split(",")]
        if all(part in findings for part in named):
            return _Note(model, dataset, tuple(findings[part] for part in named), rest)
        if _PLACE.match(head):
            return _Note(model, dataset, (head[:1].upper() + head[1:],), rest)
    return _Note(model, dataset, (), words)


def _listing(findings: dict[str, str]) -> re.Pattern[str] | None:
    """A pattern of names of findings: lists of them differ from model to model and group to group."""
    if not findings:
        return None
    names = "|".join(re.escape(name) for name in sorted(findings, key=len, reverse=True))
    return re.compile(rf"\b(?:{names})\b(?:, (?:{names})\b)*")


def _kind(words: str) -> str:
    return next((name for name, pattern in _KINDS if re.search(pattern, words)), "Data")


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
