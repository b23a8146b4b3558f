"""Sizes -> when everybody was admitted, discharged, noted and imaged, in shifted years from 2110 on.

Each patient has a window of at most 16 years, so that nobody leaves an age band between two images. Admissions of a
patient never overlap. Two in five studies of an admitted patient fall into an admission, the others anywhere in the
window, so some images have no prior note and some have many. Nothing here depends on any finding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cxrhf.data.synthetic.sizes import MOST_ADMISSIONS, MOST_STUDIES, Sizes

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FIRST_YEAR = 2110
_ORIGIN = np.datetime64(f"{FIRST_YEAR}-01-01", "us")
_DAY = 86_400_000_000  # microseconds
_MINUTE = 60_000_000
_LONGEST_STAY = 40.0
_INSIDE = 0.4  # share of an admitted patient's studies that fall into an admission


@dataclass(frozen=True, slots=True)
class Timeline:
    """Rows in order of patient and time; `first_year` and `last_year` bound everything that happens to a patient."""

    admissions: pl.DataFrame
    studies: pl.DataFrame
    images: pl.DataFrame
    first_year: Integers
    last_year: Integers


def counts(n: int, total: int, most: int, weight: Floats, rng: np.random.Generator) -> Integers:
    """`n` counts from 1 to `most` with exactly this total, larger where the weight is larger."""
    found = np.ones(n, dtype=np.int64)
    left = total - n
    while left > 0:
        room = np.where(found < most, weight, 0.0)
        found += rng.multinomial(left, room / room.sum())
        left = int(np.maximum(found - most, 0).sum())
        found = np.minimum(found, most)
    return found


def timeline(sizes: Sizes, rng: np.random.Generator) -> Timeline:
    """Patients 0.. are imaged, first those with admissions; patients without images follow."""
    stays, window_start, window_days = _admissions(sizes, rng)
    studies = _studies(sizes, stays, window_start, window_days, rng)
    images = _images(sizes, studies, rng)
    last = window_start + window_days
    return Timeline(stays, studies, images, _year(window_start), _year(last))


def _admissions(sizes: Sizes, rng: np.random.Generator) -> tuple[pl.DataFrame, Floats, Floats]:
    own, others = sizes.imaged_admitted, sizes.admitted - sizes.imaged_admitted
    people = np.r_[np.arange(own), np.arange(sizes.imaged, sizes.patients)]
    number = np.r_[
        counts(own, sizes.imaged_admissions, MOST_ADMISSIONS, rng.gamma(0.7, size=own), rng),
        counts(others, sizes.admissions - sizes.imaged_admissions, MOST_ADMISSIONS, rng.gamma(0.5, size=others), rng),
    ].astype(np.int64)
    start = np.floor(rng.uniform(0, 80 * 365.25, size=sizes.patients))
    free = 30 + 365.25 * np.minimum(11, rng.exponential(3.5, size=sizes.patients))
    at = np.repeat(np.arange(len(people)), number)  # row of `people`
    patient = people[at]
    stay = np.clip(rng.lognormal(1.2, 0.9, size=len(at)), 0.2, _LONGEST_STAY)
    # The free days are cut by exponential gaps: one before each admission and one after the last.
    gap, after = rng.exponential(size=len(at)), rng.exponential(size=len(people))
    unit = free[people] / (np.bincount(at, gap, len(people)) + after)
    began = _before(gap * unit[at], at) + gap * unit[at] + _before(stay, at)
    admitted = start[patient] + began
    days = free.copy()
    np.add.at(days, patient, stay)
    into = ((admitted * 1440).astype(np.int64), ((admitted + stay) * 1440).astype(np.int64))
    noted = _noted(sizes, at, number, own, rng)
    frame = pl.DataFrame(
        {
            "patient": patient,
            "admission": np.arange(len(at)),
            "admitted": _ORIGIN + into[0] * np.timedelta64(_MINUTE, "us"),
            "discharged": _ORIGIN + into[1] * np.timedelta64(_MINUTE, "us"),
            "noted": noted,
        }
    )
    # Most notes are charted at a bare date: the midnight before the discharge. They are stored days later.
    exact = rng.random(len(at)) < 0.1
    midnight = pl.col("discharged").dt.truncate("1d")
    minutes = pl.Series(rng.integers(600, 4 * 1440, size=len(at))) * _MINUTE
    frame = frame.with_columns(
        charted=pl.when(pl.Series(exact)).then(pl.col("discharged") + pl.duration(minutes=30)).otherwise(midnight)
    ).with_columns(stored=midnight + minutes.cast(pl.Duration("us")))
    late = pl.max_horizontal("stored", pl.col("charted") + pl.duration(minutes=5))
    noted_only = [pl.when("noted").then(column) for column in (pl.col("charted"), late.alias("stored"))]
    return frame.with_columns(noted_only), start, days


def _noted(sizes: Sizes, at: Integers, number: Integers, own: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which admissions have a note: one of every noted patient, the rest anywhere among theirs."""
    noted = np.zeros(len(at), dtype=bool)
    first = np.r_[0, np.cumsum(number)[:-1]].astype(np.int64)
    parts = (
        (0, own, sizes.imaged_noted, sizes.imaged_notes),
        (own, len(number), sizes.noted - sizes.imaged_noted, sizes.notes - sizes.imaged_notes),
    )
    for low, high, people, notes in parts:
        if not people:
            continue
        chosen = low + rng.permutation(high - low)[:people]
        if number[chosen].sum() < notes:  # too few admissions among them: take those with most
            chosen = low + np.argsort(-number[low:high], kind="stable")[:people]
        sure = first[chosen] + rng.integers(0, number[chosen])
        theirs = np.flatnonzero(np.isin(at, chosen) & ~np.isin(np.arange(len(at)), sure))
        noted[sure] = True
        noted[rng.permutation(theirs)[: notes - people]] = True
    return noted


def _studies(sizes: Sizes, stays: pl.DataFrame, start: Floats, days: Floats, rng: np.random.Generator) -> pl.DataFrame:
    own, others = sizes.imaged_admitted, sizes.imaged - sizes.imaged_admitted
    labelled = sizes.studies - sizes.unlabelled
    admissions = np.bincount(stays.get_column("patient").to_numpy(), minlength=sizes.patients)
    busy = rng.gamma(1.0, size=own) * np.sqrt(admissions[:own])
    number = np.r_[
        counts(own, sizes.admitted_studies, MOST_STUDIES, busy, rng),
        counts(others, labelled - sizes.admitted_studies, MOST_STUDIES, rng.gamma(1.0, size=others), rng),
    ].astype(np.int64)
    patient = np.repeat(np.arange(sizes.imaged), number)
    # A study without labels is one more of somebody who has labelled ones.
    patient = np.r_[patient, rng.choice(sizes.imaged, size=sizes.unlabelled)]
    day = start[patient] + rng.random(len(patient)) * days[patient]
    inside = (rng.random(len(patient)) < _INSIDE) & (admissions[patient] > 0)
    first = np.r_[0, np.cumsum(admissions)[:-1]]
    which = first[patient] + (rng.random(len(patient)) * admissions[patient]).astype(np.int64)
    which = np.where(inside, which, 0)
    if stays.height:
        days_of = {
            name: (stays.get_column(name).to_numpy() - _ORIGIN).astype(np.int64)[which] / _DAY
            for name in ("admitted", "discharged")
        }
        within = days_of["admitted"] + rng.random(len(patient)) * (days_of["discharged"] - days_of["admitted"])
        day = np.where(inside, within, day)
    day = np.maximum(day, start[patient])
    frame = pl.DataFrame(
        {
            "patient": patient,
            "time": _ORIGIN + (day * 86_400_000).astype(np.int64) * np.timedelta64(1000, "us"),
            "labelled": np.arange(len(patient)) < labelled,
        }
    ).sort("patient", "time", maintain_order=True)
    return frame.select("patient", pl.int_range(pl.len()).cast(pl.Int64).alias("study"), "time", "labelled")


def _images(sizes: Sizes, studies: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """One to three images a study with the exact total: mostly AP alone, PA with a lateral, and a second lateral."""
    extra = sizes.images - sizes.studies
    three = max(extra - sizes.studies, min(round(0.1 * sizes.studies), extra // 2))
    number = np.ones(sizes.studies, dtype=np.int64)
    order = rng.permutation(sizes.studies)
    number[order[: extra - three]] = 2
    number[order[:three]] = 3
    study = np.repeat(np.arange(sizes.studies), number)
    place = np.arange(len(study)) - np.repeat(np.cumsum(number) - number, number)
    portable = np.where(number == 1, rng.random(sizes.studies) < 0.85, rng.random(sizes.studies) < 0.1)
    lateral = (place > 0) & ~(portable & (number == 3))[study]
    view = np.where(lateral, "LATERAL", np.where(portable[study], "AP", "PA"))
    patient = studies.get_column("patient").to_numpy()[study]
    return pl.DataFrame({"patient": patient, "study": study, "image": np.arange(len(study)), "view": view})


def _before(values: Floats, group: Integers) -> Floats:
    """Sum of the earlier values of the same group, groups lying together."""
    total = np.r_[0.0, np.cumsum(values)[:-1]]
    if not len(values):
        return total[:0]
    opens = np.r_[True, group[1:] != group[:-1]]
    return np.asarray(total - total[np.flatnonzero(opens)][np.cumsum(opens) - 1])


def _year(days: Floats) -> Integers:
    when = _ORIGIN + (days * _DAY).astype(np.int64).astype("timedelta64[us]")
    return when.astype("datetime64[Y]").astype(np.int64) + 1970
