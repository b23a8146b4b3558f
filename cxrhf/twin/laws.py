"""Parameters of a finding -> chart context, label and what the picture shows, by planted truths D1, D2 and D3.

Every law is the law of ONE image row. Rows of a patient share the chart context; rows of a study share the label and
half the noise of what the picture shows. That moves no population value, only the spread of its estimates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.twin.planted_groups import AGE, CHEXPERT_DRAINS, PREVALENCE, SHARE

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# P(device) by sex, where the sexes differ: a patient has it in every image or in none. The rates are those of D4.
PACEMAKER: Mapping[str, float] = {"F": 0.02, "M": 0.08}
STERNOTOMY: Mapping[str, float] = {"F": 0.06, "M": 0.12}
CENTRAL_LINE, ET_TUBE = 0.12, 0.08  # of studies, whoever it is
DEVICES_SHOWN = 3.0  # by which support devices move what the picture shows of them
FAINT, PLAIN = 0.25, 0.65  # severities that 95% of negatives stay below, and that a typical positive has
# What counts as a support device; the wires of a sternotomy do not.
SUPPORT_DEVICES = ("drain", "ecg_wires", "pacemaker", "central_line", "et_tube")


@dataclass(frozen=True, slots=True)
class Law:
    """A finding with prevalence `pi` and context C given Y ~ N(m Y, 1): `m` is how much the notes tell."""

    finding: str
    pi: float
    m: float

    def __post_init__(self) -> None:
        if not 0 < self.pi < 1:
            raise ConfigError(f"{self.finding}: pi", got=self.pi, allowed="a prevalence between 0 and 1")
        if self.m < 0:
            raise ConfigError(f"{self.finding}: m", got=self.m, allowed="a number >= 0")

    def pretest(self, c: Floats) -> Floats:
        """P(Y=1 | C), exact."""
        return np.asarray(expit(logit(self.pi) + self.m * c - self.m**2 / 2))

    @property
    def middle(self) -> float:
        """Half-way between what the picture shows of an average negative and of an average positive."""
        return 0.0

    @property
    def classes(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Mean and spread of what the picture shows of negatives, then of positives; see `severity_of`."""
        return (-0.5, 1.0), (0.5, 1.0)


@dataclass(frozen=True, slots=True)
class ContextLaw(Law):
    """D1: S = (d0 - eta C) Y + g C + N(0, 1); `g` is how much of what the picture shows is the chart."""

    g: float
    eta: float
    d0: float

    @property
    def middle(self) -> float:
        """See Law."""
        return (self.d0 + (self.g - self.eta) * self.m) / 2

    @property
    def classes(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """See Law."""
        chart = self.g - self.eta
        return (0.0, float(np.hypot(1, self.g))), (self.d0 + chart * self.m, float(np.hypot(1, chart)))


@dataclass(frozen=True, slots=True)
class ShortcutLaw(Law):
    """D2: S = Y + effect * drain + N(0, 1), drains lying by sex and label."""

    effect: float = 1.5
    drains: Mapping[tuple[str, int], float] = field(default_factory=lambda: dict(CHEXPERT_DRAINS))

    @property
    def middle(self) -> float:
        """See Law; of S without the drain."""
        return 0.5

    @property
    def classes(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """See Law; of S without the drain."""
        return (0.0, 1.0), (1.0, 1.0)


@dataclass(frozen=True, slots=True)
class SliceLaw(Law):
    """D2: S ~ N(1.5, 1) in positives, N(1.5 - gap, 1) in the hidden `share` of them, N(-1.5, 1) in negatives.

    The flag marks the same share of negatives, whose S stays as it is: were it in positives only, a reader would see
    the label in it, and the slice would be the easiest of all.
    """

    share: float = 0.1
    gap: float = 2.0

    @property
    def classes(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """See Law; of positives outside the hidden slice."""
        return (-1.5, 1.0), (1.5, 1.0)


@dataclass(frozen=True, slots=True)
class SubgroupLaw(Law):
    """D3: one label a patient with a prevalence by race, age band by race and label, S ~ N(1.4 Y + .4 band, 1).

    Positives of the third race score `shift` lower. `pi` is the prevalence over all races and is not a choice.
    """

    pi: float = field(default=float(SHARE @ PREVALENCE), init=False)
    shift: float = 0.0

    @property
    def middle(self) -> float:
        """See Law."""
        return 1.2

    @property
    def classes(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """See Law; over races and age bands."""
        out = []
        for label, weight in enumerate((SHARE * (1 - PREVALENCE), SHARE * PREVALENCE)):
            centre = 1.4 * label + 0.4 * np.arange(3) - self.shift * label * (np.arange(3) == 2)[:, None]
            joint = weight[:, None] * AGE[label] / weight.sum()
            mean = float((joint * centre).sum())
            out.append((mean, float(np.sqrt(1 + (joint * (centre - mean) ** 2).sum()))))
        return out[0], out[1]


DEFAULT: tuple[Law, ...] = (
    ContextLaw("enlarged_cardiomediastinum", 0.04, 0.7, 0.4, 0.2, 1.2),
    ContextLaw("cardiomegaly", 0.20, 1.0, 0.8, 0.4, 1.5),
    ContextLaw("lung_opacity", 0.22, 0.8, 0.5, 0.2, 1.2),
    ContextLaw("lung_lesion", 0.04, 0.6, 0.0, 0.0, 1.6),
    ContextLaw("edema", 0.12, 1.6, 1.2, 0.0, 0.3),
    ContextLaw("consolidation", 0.10, 1.0, 0.6, 0.3, 1.3),
    ContextLaw("pneumonia", 0.08, 0.8, 0.5, 0.2, 1.2),
    SliceLaw("atelectasis", 0.20, 0.8),
    ShortcutLaw("pneumothorax", 0.12, 0.8),
    SubgroupLaw("pleural_effusion", m=0.9),
    ContextLaw("pleural_other", 0.02, 0.6, 0.3, 0.1, 1.3),
    ContextLaw("fracture", 0.02, 0.7, 0.4, 0.2, 1.5),
)


def changed(finding: str, findings: tuple[Law, ...] = DEFAULT, **parameters: Any) -> tuple[Law, ...]:
    """The laws with other parameters for one finding.

    >>> [law.m for law in changed("edema", m=0.5) if law.finding == "edema"]
    [0.5]
    """
    names = [law.finding for law in findings]
    if finding not in names:
        raise ConfigError(
            "unknown finding of the twin",
            got=f'"{finding}"',
            allowed=f"one of {', '.join(names)}",
            next_step=did_you_mean(finding, names),
        )
    try:
        return tuple(replace(law, **parameters) if law.finding == finding else law for law in findings)
    except (TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{finding}: unknown parameter ({error})", got=", ".join(parameters)) from None


@dataclass(frozen=True, slots=True)
class Rows:
    """Who is in which row: `patient` of each study, `study` of each image; codes of sex (0 F, 1 M), race, age band."""

    patient: Integers
    study: Integers
    sex: Integers
    race: Integers
    band: Integers


@dataclass(frozen=True, slots=True)
class DrawnFinding:
    """One finding: context of each patient, label of each study, what each image shows, a flag of each study."""

    context: Floats
    y: Integers
    s: Floats
    flag: NDArray[np.bool_]


def subgroup_patients(n: int, rng: np.random.Generator) -> tuple[Integers, Integers, Integers]:
    """Race, label and age band of `n` patients by D3."""
    race = rng.choice(3, size=n, p=SHARE)
    label = (rng.random(n) < PREVALENCE[race]).astype(np.int64)
    band = (rng.random(n)[:, None] > np.cumsum(AGE[label, race], axis=1)[:, :2]).sum(axis=1)
    return race.astype(np.int64), label, band.astype(np.int64)


def draw(law: Law, rows: Rows, label: Integers, rng: np.random.Generator) -> DrawnFinding:
    """One finding of everybody. `label` is each patient's D3 label, used by the subgroup law only."""
    patients, studies = len(rows.sex), len(rows.patient)
    given = label if isinstance(law, SubgroupLaw) else (rng.random(patients) < law.pi).astype(np.int64)
    context = law.m * given + rng.standard_normal(patients)
    if isinstance(law, SubgroupLaw):
        y = label[rows.patient]
    else:
        y = (rng.random(studies) < law.pretest(context)[rows.patient]).astype(np.int64)
    flag = np.zeros(studies, dtype=bool)
    if isinstance(law, ContextLaw):
        c = context[rows.patient]
        centre = (law.d0 - law.eta * c) * y + law.g * c
    elif isinstance(law, ShortcutLaw):
        chance = np.array([[law.drains[sex, value] for value in (0, 1)] for sex in "FM"])
        flag = rng.random(studies) < chance[rows.sex[rows.patient], y]
        centre = y + law.effect * flag
    elif isinstance(law, SliceLaw):
        flag = rng.random(studies) < law.share
        centre = np.where(y == 1, 1.5 - law.gap * flag, -1.5)
    elif isinstance(law, SubgroupLaw):
        low = (rows.race[rows.patient] == 2) & (y == 1)
        centre = 1.4 * y + 0.4 * rows.band[rows.patient] - law.shift * low
    else:
        raise ConfigError(f"{law.finding}: unknown kind of law", got=type(law).__name__)
    noise = np.sqrt(0.5) * (rng.standard_normal(studies)[rows.study] + rng.standard_normal(len(rows.study)))
    return DrawnFinding(context, y.astype(np.int64), centre[rows.study] + noise, flag)


def severity_of(law: Law, s: Floats) -> Floats:
    """How strongly the finding is drawn, 0..1: strictly rising in `s`, so that a reader of the picture can rank by it.

    Convex over the negatives, so that they look nearly normal: the 95th percentile of negatives is drawn near FAINT and
    half of them below .05; from there it climbs faster, to PLAIN at the median of positives. Where the classes overlap
    so much that this median is no rarer among negatives, PLAIN is some way above the 95th percentile: such
    positives look as the law says, like negatives.
    """
    (mean, spread), (positive, _) = law.classes
    faint = mean + 1.645 * spread
    plain = max(positive, faint + 0.65 * spread)
    low, high = float(logit(FAINT)), float(logit(PLAIN))
    steep = (high - low) / (plain - faint)
    gentle = min(steep, 1.4 / spread)
    beyond = s - faint
    bend = 0.1 * spread  # two lines in the log odds that meet at `faint`, with a rounded corner
    return np.asarray(expit(low + gentle * beyond + (steep - gentle) * bend * np.logaddexp(0, beyond / bend)))


def support_pretest(laws: Mapping[str, Law], q: Mapping[str, Floats]) -> Floats:
    """P(any support device | context), exact: drains follow the shortcut's label, a pacemaker sex, the rest nothing."""
    shape = np.ones_like(next(iter(q.values())))
    without = []
    for sex in "FM":
        none = (1 - PACEMAKER[sex]) * (1 - CENTRAL_LINE) * (1 - ET_TUBE) * shape
        for name, law in laws.items():
            if isinstance(law, ShortcutLaw):
                none = none * (1 - q[name] * law.drains[sex, 1] - (1 - q[name]) * law.drains[sex, 0])
            elif isinstance(law, SliceLaw):
                none = none * (1 - law.share)
        without.append(none)
    return np.asarray(1 - (without[0] + without[1]) / 2)
