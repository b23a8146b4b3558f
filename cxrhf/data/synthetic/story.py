"""People -> the discharge notes of their admissions, which tell the chart context in words and nothing else.

A note of a patient tells the level of C for every finding (histories.py) among sections of filler (filler.py), laid out
as discharge summaries are: names and dates blanked as ___, lines broken at some 75 characters, within
phrases too. All notes of a patient tell the same levels.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cxrhf.data.synthetic.filler import pools
from cxrhf.data.synthetic.histories import HISTORIES, level_of
from cxrhf.data.synthetic.people import People
from cxrhf.errors import ConfigError

Integers = NDArray[np.int64]
Length = Literal["short", "full"]

_BATCH = 2000  # notes made at a time
_WIDTH = 75  # characters of a line, as MIMIC-IV-Note breaks its notes
_MEAN, _SPREAD = 10_650, 0.45  # characters of a full note aimed at (10,500 reached), and the SD of their logarithm
_SERVICES = ("MEDICINE", "SURGERY", "CARDIOTHORACIC", "NEUROLOGY", "ORTHOPAEDICS", "UROLOGY", "OBSTETRICS/GYNECOLOGY")
_COMPLAINTS = (
    "weakness",
    "fall, dizziness",
    "abdominal pain",
    "fever",
    "confusion",
    '"not feeling right"',
    "weight loss",
)
_ALLERGIES = ("No Known Allergies / Adverse Drug Reactions", "Penicillins", "latex, shellfish", "Sulfa (Sulfonamides)")
# Heading, pool, share of a full note's filler. Headings in the order of the note; the histories follow the second.
_SECTIONS = (
    ("History of Present Illness:", "illness", 0.17),
    ("Past Medical History:", "", 0.0),
    ("Social History:", "social", 0.03),
    ("Physical Exam:", "exam", 0.13),
    ("Pertinent Results:", "labs", 0.27),
    ("Brief Hospital Course:", "stay", 0.22),
    ("Discharge Medications:", "medicines", 0.13),
    ("Discharge Instructions:", "instructions", 0.05),
)
_SHORT = {"illness", "stay"}  # one piece each in a short note
_HEAD = (
    " \nName:  ___                    Unit No:   ___\n \nAdmission Date:  ___              Discharge Date:   ___\n"
    " \nDate of Birth:  ___             Sex:   {sex}\n \nService: {service}\n \nAllergies: \n{allergy}\n \n"
    "Attending: ___.\n \nChief Complaint:\n{complaint}\n \n"
)
_SHORT_HEAD = (
    "Name: ___ Unit No: ___\nAdmission Date: ___\nSex: {sex}\nService: {service}\nChief Complaint:\n{complaint}\n"
)


def notes(
    people: People, *, length: Length = "short", seed: int = 0, order: pl.Series | None = None
) -> Iterator[tuple[pl.DataFrame, list[str]]]:
    """Batches of (rows of `people.admissions` that have a note, their texts), in `order` of admissions if given."""
    if length not in ("short", "full"):
        raise ConfigError("length of the notes", got=f'"{length}"', allowed="short or full")
    rng = np.random.default_rng([seed, 41])
    made = pools(seed, 1.0 if length == "full" else 0.05)
    noted = people.admissions.filter("noted") if order is None else people.admissions[order]
    history = _histories(people)
    sex = people.patients.get_column("sex").to_list()
    for start in range(0, noted.height, _BATCH):
        rows = noted.slice(start, _BATCH)
        patients = rows.get_column("patient").to_list()
        told = [history[patient] for patient in patients]
        heads = _heads([sex[patient] for patient in patients], length, rng)
        yield rows, _texts(heads, told, made, length, rng)


def _histories(people: People) -> dict[int, str]:
    """patient -> the sentences that tell the levels, for everybody with a note."""
    those = people.admissions.filter("noted").get_column("patient").unique().sort()
    names = [name for name in HISTORIES if f"context_{name}" in people.patients.columns]
    rows = those.to_numpy()
    levels = [level_of(people.patients.get_column(f"context_{name}").to_numpy()[rows]).tolist() for name in names]
    sentences = [[HISTORIES[name][level] for level in each] for name, each in zip(names, levels, strict=True)]
    return {patient: " ".join(told) for patient, told in zip(rows.tolist(), zip(*sentences, strict=True), strict=True)}


def _heads(sexes: list[str], length: Length, rng: np.random.Generator) -> list[str]:
    drawn = [rng.choice(np.array(words), size=len(sexes)).tolist() for words in (_SERVICES, _ALLERGIES, _COMPLAINTS)]
    form = _HEAD if length == "full" else _SHORT_HEAD
    return [
        form.format(sex=sex, service=service, allergy=allergy, complaint=complaint)
        for sex, service, allergy, complaint in zip(sexes, *drawn, strict=True)
    ]


def _texts(
    heads: list[str], told: list[str], made: dict[str, list[str]], length: Length, rng: np.random.Generator
) -> list[str]:
    """Head, sections and foot of each note. The pieces of all notes are drawn at once, section by section."""
    if length == "full":
        fixed = len(heads[0]) + len(told[0]) + 250
        wanted = np.exp(rng.normal(np.log(_MEAN) - _SPREAD**2 / 2, _SPREAD, size=len(heads))) - fixed
    parts: list[list[str]] = [[head] for head in heads]
    for heading, pool, share in _SECTIONS:
        if not pool:
            for note, history in zip(parts, told, strict=True):
                note.append(f"{heading}\n{history}\n \n")
            continue
        pieces = made[pool]
        if length == "full":
            size = sum(map(len, pieces)) / len(pieces)
            number = np.maximum(1, np.rint(wanted * share / size)).astype(np.int64)
        elif pool in _SHORT:
            number = np.ones(len(heads), dtype=np.int64)
        else:
            continue
        chosen = [pieces[at] for at in rng.integers(0, len(pieces), size=int(number.sum())).tolist()]
        ends = list(accumulate(number.tolist()))
        for note, start, end in zip(parts, [0, *ends[:-1]], ends, strict=True):
            note.append(heading + "\n")
            note.extend(chosen[start:end])
            note.append("\n \n")
    return [_wrapped("".join(note)) + "Followup Instructions:\n___\n" for note in parts]


def _wrapped(text: str) -> str:
    """Lines broken at their last blank before the width; a word that is longer stays whole."""
    lines = []
    for whole in text.split("\n"):
        line = whole
        while len(line) > _WIDTH:
            cut = line.rfind(" ", 1, _WIDTH + 1)
            cut = cut if cut > 0 else line.find(" ", _WIDTH)
            if cut < 0 or not line[cut:].strip():
                break
            lines.append(line[:cut])
            line = line[cut + 1 :]
        lines.append(line)
    return "\n".join(lines)
