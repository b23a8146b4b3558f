"""Size and seed -> made-up patients, admissions, studies and images, with what is true of each planted and known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit, logit

from cxrhf.data.synthetic.laws import (
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
from cxrhf.data.synthetic.sizes import Sizes, sizes_for
from cxrhf.data.synthetic.timeline import Timeline, timeline
from cxrhf.errors import ConfigError
from cxrhf.findings import CHEXPERT

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
