"""Size and seed -> made-up patients, admissions, studies and images, with what is true of each planted and known."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit, logit

from cxrhf.errors import ConfigError
from cxrhf.findings import CHEXPERT
from cxrhf.twin.laws import (
    CENTRAL_LINE,
    DEFAULT,
    DEVICES_SHOWN,
    ET_TUBE,
    PACEMAKER,
    STERNOTOMY,
    SUPPORT_DEVICES,
    Law,
    Rows,
    ShortcutLaw,
    SliceLaw,
    SubgroupLaw,
    draw,
    severity_of,
    subgroup_patients,
    support_pretest,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


RACES = ("white", "black", "asian")
ETHNICITIES = ("non_hispanic", "hispanic", "unknown")
# First and last year of age in each of D3's bands. Their edges are edges of ENCODING's ten-year bins as well, so a
# test set balanced on those bins is balanced on the bands.
AGE_BANDS = ((18, 40), (41, 60), (61, 89))


@dataclass(frozen=True, slots=True)
class People:
    """The twin before it is written in anybody's layout. Rows of `images` run with axis 0 of every array.

    patients:   patient (0..), sex, race, ethnicity, birth_year, anchor_year, anchor_age
    admissions: patient, admission (0..), admitted, discharged, noted (a discharge note exists), charted, stored
    studies:    patient, study (0..), time
    images:     patient, study, image (0..), view, age, age_band, drain, ecg_wires, and other devices as booleans
    y label, c chart context, q = P(y=1 | c) exact, s what the picture shows: one column a finding.
    laws: the parameters behind them (laws.py, truth.py).

    Also there: patients `context_<finding>` (the chart context of everybody, imaged or not); studies `labelled`
    (False: the study is in the metadata and in no label file); images `pacemaker`, `central_line`, `et_tube`,
    `sternotomy`, `hazy` (the same images as `ecg_wires`, whatever the label). Values: sex F, M; race of RACES,
    ethnicity of ETHNICITIES; view PA, AP, LATERAL; age whole years = year of the study - birth_year. Many patients
    have no image: join on `images`.
    """

    patients: pl.DataFrame
    admissions: pl.DataFrame
    studies: pl.DataFrame
    images: pl.DataFrame
    findings: tuple[str, ...]
    y: Integers
    c: Floats
    q: Floats
    s: Floats
    laws: tuple[Law, ...] = DEFAULT


def people(
    n_patients: int = 300, seed: int = 0, *, sizes: Sizes | None = None, findings: tuple[Law, ...] = DEFAULT
) -> People:
    """A twin with `n_patients` patients who have images, and some who have none; `sizes` sets every total instead.

    The law of one image row is exact for every finding (see laws.py). pleural_effusion, whose law ties the age to the
    label, has ONE label a patient, the same in all studies: an age belongs to a patient. All other labels belong to a
    study and differ between the studies of a patient. no_finding is 1 where no other finding is, support devices
    aside; support_devices is 1 where any device lies in the picture; their context is the logit of their exact
    P(y=1 | the contexts of all findings), which makes q = expit(c).
    """
    laws = _checked(findings)
    size = sizes_for(n_patients) if sizes is None else sizes
    when, who, *rest = np.random.default_rng(seed).spawn(2 + len(CHEXPERT))
    times = timeline(size, when)
    race, label, band = subgroup_patients(size.patients, who)
    male = (who.random(size.patients) < 0.5).astype(np.int64)
    patients = _patients(times, race, band, male, who)
    patient, study = times.studies.get_column("patient").to_numpy(), times.images.get_column("study").to_numpy()
    rows = Rows(patient, study, male, race, band)
    streams = dict(zip(CHEXPERT, rest, strict=True))  # one stream a finding: changing one law leaves the others alone
    drawn = {name: draw(law, rows, label, streams[name]) for name, law in laws.items()}

    flags = _devices(laws, {name: each.flag for name, each in drawn.items()}, male, patient, streams["support_devices"])
    age = times.studies.get_column("time").dt.year().to_numpy() - patients.get_column("birth_year").to_numpy()[patient]
    images = times.images.with_columns(
        pl.Series("age", age[study].astype(np.float64)),
        pl.Series("age_band", band[patient][study]),
        *(pl.Series(name, values[study]) for name, values in flags.items()),
    )
    y = {name: each.y[study] for name, each in drawn.items()}
    c = {name: each.context[patient][study] for name, each in drawn.items()}
    s = {name: each.s for name, each in drawn.items()}
    q = {name: law.pretest(c[name]) for name, law in laws.items()}
    # Findings are independent given the contexts, so nothing is found with the product of their complements.
    q["no_finding"] = np.prod([1 - q[name] for name in laws], axis=0)
    q["support_devices"] = support_pretest(laws, q)
    y["no_finding"] = 1 - np.max([y[name] for name in laws], axis=0)
    y["support_devices"] = np.max([flags[name][study] for name in SUPPORT_DEVICES], axis=0).astype(np.int64)
    noise = streams["no_finding"].standard_normal(len(study))
    s["no_finding"] = -np.max([s[name] - law.middle for name, law in laws.items()], axis=0)
    s["support_devices"] = DEVICES_SHOWN * y["support_devices"] + noise
    for name in ("no_finding", "support_devices"):
        c[name] = np.asarray(logit(q[name]))
    names = tuple(name for name in CHEXPERT if name in y)
    context = [pl.Series(f"context_{name}", drawn[name].context) for name in laws]
    return People(
        patients.with_columns(context),
        times.admissions,
        times.studies,
        images,
        names,
        y=np.column_stack([y[name] for name in names]),
        c=np.column_stack([c[name] for name in names]),
        q=np.column_stack([q[name] for name in names]),
        s=np.column_stack([s[name] for name in names]),
        laws=tuple(laws.values()),
    )


def severity(made: People) -> Floats:
    """How strongly each finding is drawn, 0..1, by image and finding: rises with `s`, so a reader can recover it.

    `severity_of` of each law; no label goes in. The drain is drawn for itself, so its share of `s` is taken off.
    no_finding (which no picture is drawn from) is expit(s), support_devices is 0 or 1.
    """
    laws = {law.finding: law for law in made.laws}
    shown = np.empty_like(made.s)
    drain = made.images.get_column("drain").to_numpy()
    for at, name in enumerate(made.findings):
        law, s = laws.get(name), made.s[:, at]
        if name == "support_devices":
            shown[:, at] = made.y[:, at]
        elif law is None:
            shown[:, at] = expit(s)
        else:
            shown[:, at] = severity_of(law, s - law.effect * drain if isinstance(law, ShortcutLaw) else s)
    return shown


def _checked(findings: tuple[Law, ...]) -> dict[str, Law]:
    """The laws by finding in CheXpert's order; a picture has one drain, one haze, one age."""
    pathologies = [name for name in CHEXPERT if name not in ("no_finding", "support_devices")]
    names = [law.finding for law in findings]
    wrong = [name for name in names if name not in pathologies or names.count(name) > 1]
    if wrong or not names:
        raise ConfigError(
            "findings of the twin",
            got=", ".join(wrong) or "none",
            allowed=f"each at most once, from {', '.join(pathologies)}",
        )
    for kind in (ShortcutLaw, SliceLaw, SubgroupLaw):
        same = [law.finding for law in findings if isinstance(law, kind)]
        if len(same) > 1:
            raise ConfigError(f"only one finding can have a {kind.__name__}", got=", ".join(same))
    by_name = {law.finding: law for law in findings}
    return {name: by_name[name] for name in pathologies if name in by_name}


def _patients(
    times: Timeline, race: Integers, band: Integers, male: Integers, rng: np.random.Generator
) -> pl.DataFrame:
    """Birth years such that the age stays within its band from the first to the last year of the patient's window."""
    low, high = np.array(AGE_BANDS)[band].T
    width = high - low - (times.last_year - times.first_year)
    age = low + (rng.random(len(band)) * (width + 1)).astype(np.int64)
    birth = times.first_year - age
    anchor = times.first_year + (rng.random(len(band)) * (times.last_year - times.first_year + 1)).astype(np.int64)
    return pl.DataFrame(
        {
            "patient": np.arange(len(band)),
            "sex": np.where(male == 1, "M", "F"),
            "race": np.array(RACES)[race],
            "ethnicity": rng.choice(ETHNICITIES, size=len(band), p=(0.88, 0.08, 0.04)),
            "birth_year": birth,
            "anchor_year": anchor,
            "anchor_age": anchor - birth,
        }
    )


def _devices(
    laws: dict[str, Law],
    flags: dict[str, NDArray[np.bool_]],
    male: Integers,
    patient: Integers,
    rng: np.random.Generator,
) -> dict[str, NDArray[np.bool_]]:
    """What else lies in the pictures of each study. Haze and ECG wires go together: the slice's flag."""
    none = np.zeros(len(patient), dtype=bool)
    drain = next((flags[name] for name, law in laws.items() if isinstance(law, ShortcutLaw)), none)
    hard = next((flags[name] for name, law in laws.items() if isinstance(law, SliceLaw)), none)
    of_sex = {
        name: rng.random(len(male)) < np.array([rate["F"], rate["M"]])[male]
        for name, rate in (("pacemaker", PACEMAKER), ("sternotomy", STERNOTOMY))
    }
    return {
        "drain": drain,
        "ecg_wires": hard,
        "pacemaker": of_sex["pacemaker"][patient],
        "central_line": rng.random(len(patient)) < CENTRAL_LINE,
        "et_tube": rng.random(len(patient)) < ET_TUBE,
        "sternotomy": of_sex["sternotomy"][patient],
        "hazy": hard,
    }


# Sizes -> when everybody was admitted, discharged, noted and imaged, in shifted years from 2110 on.
#
# Each patient has a window of at most 16 years, so that nobody leaves an age band between two images. Admissions of a
# patient never overlap. Two in five studies of an admitted patient fall into an admission, the others anywhere in the
# window, so some images have no prior note and some have many. Nothing here depends on any finding.

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
    noted = _has_note(sizes, at, number, own, rng)
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


def _has_note(sizes: Sizes, at: Integers, number: Integers, own: int, rng: np.random.Generator) -> NDArray[np.bool_]:
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


# A share, or a number of patients -> how many patients, admissions, notes, studies and images there are, exactly.

MOST_ADMISSIONS, MOST_STUDIES = 40, 170  # of one patient
_GROUPED = ("admitted", "admissions", "noted", "notes")  # counted for imaged patients and for the others


@dataclass(frozen=True, slots=True)
class Sizes:
    """Totals of a twin; the defaults are those of MIMIC-CXR-JPG 2.0.0, MIMIC-IV 3.0 and MIMIC-IV-Note 2.2.

    `imaged_*` count only what belongs to patients with labelled images. `studies` are those of the metadata file, of
    which `unlabelled` are in no label file; `admitted_studies` are labelled studies of patients with an admission.
    """

    imaged: int = 65_379
    imaged_admitted: int = 51_851
    admitted: int = 223_452
    admissions: int = 546_028
    imaged_admissions: int = 219_727
    noted: int = 145_914
    imaged_noted: int = 45_921
    notes: int = 331_793
    imaged_notes: int = 162_996
    studies: int = 227_835
    unlabelled: int = 8
    admitted_studies: int = 204_036
    images: int = 377_110

    def __post_init__(self) -> None:
        """Say which totals contradict each other, before any patient is drawn."""
        labelled, not_admitted = self.studies - self.unlabelled, self.imaged - self.imaged_admitted
        others = {name: getattr(self, name) - getattr(self, f"imaged_{name}") for name in _GROUPED}
        rules = {
            "1 <= imaged, 0 <= imaged_admitted <= imaged": self.imaged >= 1
            and 0 <= self.imaged_admitted <= self.imaged,
            "labelled studies of imaged_admitted: 1 to 170 a patient": (
                self.imaged_admitted <= self.admitted_studies <= MOST_STUDIES * self.imaged_admitted
            ),
            "labelled studies of the other imaged: 1 to 170 a patient": (
                not_admitted <= labelled - self.admitted_studies <= MOST_STUDIES * not_admitted
            ),
            "0 <= unlabelled, studies <= images <= 3 * studies": (
                self.unlabelled >= 0 and self.studies <= self.images <= 3 * self.studies
            ),
        }
        for who, group in {
            "imaged": {name: getattr(self, f"imaged_{name}") for name in _GROUPED},
            "others": others,
        }.items():
            people, stays, noted, notes = (group[name] for name in _GROUPED)
            rules[f"{who}: 1 to 40 admissions an admitted patient"] = 0 <= people <= stays <= MOST_ADMISSIONS * people
            rules[f"{who}: noted <= admitted, noted <= notes"] = 0 <= noted <= min(people, notes)
            rules[f"{who}: notes <= admissions of the noted"] = notes <= (stays - people + noted if noted else 0)
        for rule, holds in rules.items():
            if not holds:
                raise ConfigError("sizes of the twin contradict each other", got=str(self), allowed=rule)

    @property
    def patients(self) -> int:
        """Everybody: admitted, imaged or both."""
        return self.admitted + self.imaged - self.imaged_admitted

    def scaled(self, share: float) -> Sizes:
        """The same shape at a share of the size: every total rounded, then moved by a few where rounding disagrees."""
        if not 0 < share <= 1:
            raise ConfigError("share of the size", got=share, allowed="a number above 0 and at most 1")
        return _repaired({each.name: round(getattr(self, each.name) * share) for each in fields(self)})


MIMIC_SIZE = Sizes()


def sizes_for(n_patients: int) -> Sizes:
    """A small twin: `n_patients` with images in MIMIC's proportions, and a quarter as many without any image."""
    if n_patients < 1:
        raise ConfigError("number of patients of the twin", got=n_patients, allowed="at least 1")
    part = n_patients / MIMIC_SIZE.imaged
    whole = {each.name: round(getattr(MIMIC_SIZE, each.name) * part) for each in fields(Sizes)}
    others = 0.25 * n_patients / (MIMIC_SIZE.admitted - MIMIC_SIZE.imaged_admitted)
    for name in _GROUPED:
        rest = getattr(MIMIC_SIZE, name) - getattr(MIMIC_SIZE, f"imaged_{name}")
        whole[name] = whole[f"imaged_{name}"] + round(rest * others)
    whole["studies"] -= whole["unlabelled"]
    whole["unlabelled"] = 0
    return _repaired(whole)


def _repaired(counts: dict[str, int]) -> Sizes:
    """Rounded totals with the smallest changes that make them agree; totals that agree already stay as they are."""

    def between(low: int, value: int, high: int) -> int:
        return max(low, min(value, high))

    at = dict(counts)
    at["imaged"] = max(1, at["imaged"])
    at["imaged_admitted"] = between(0, at["imaged_admitted"], at["imaged"])
    rest = {name: max(0, at[name] - at[f"imaged_{name}"]) for name in _GROUPED}
    own = {name: at[f"imaged_{name}"] for name in _GROUPED}
    for group in (own, rest):
        people = group["admitted"]
        group["admissions"] = between(people, group["admissions"], MOST_ADMISSIONS * people)
        group["noted"] = between(0, group["noted"], people)
        most = group["admissions"] - (people - group["noted"]) if group["noted"] else 0
        group["notes"] = between(group["noted"], group["notes"], most)
    for name in _GROUPED:
        at[f"imaged_{name}"] = own[name]
        at[name] = own[name] + rest[name]
    at["admitted_studies"] = between(own["admitted"], at["admitted_studies"], MOST_STUDIES * own["admitted"])
    others = at["imaged"] - own["admitted"]
    labelled = between(others, at["studies"] - at["unlabelled"] - at["admitted_studies"], MOST_STUDIES * others)
    at["studies"] = at["admitted_studies"] + labelled + at["unlabelled"]
    at["images"] = between(at["studies"], at["images"], 3 * at["studies"])
    return replace(MIMIC_SIZE, **at)
