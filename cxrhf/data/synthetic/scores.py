"""Laws of the findings and a kind of model -> its scores and probabilities, and the exact law of each score.

Given the label every score is a mixture of normals; so its AUROC and operating points are sums over pairs of parts.
What a model says always rises with its score, whatever the parameters, so these values hold for its output as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, logsumexp, ndtr

from cxrhf.data.planted_subgroups import AGE, PREVALENCE, SHARE
from cxrhf.data.synthetic.laws import (
    DEVICES_SHOWN,
    ContextLaw,
    Law,
    ShortcutLaw,
    SliceLaw,
    SubgroupLaw,
    support_pretest,
)
from cxrhf.data.synthetic.people import RACES, People
from cxrhf.errors import ConfigError, did_you_mean

Floats = NDArray[np.float64]

KINDS: dict[str, str] = {
    "ideal": "the score is what the picture shows, with the share of the chart that pictures carry",
    "image_only": "the same without the chart's share and without the drain's",
    "context": "the pre-test probability itself: no picture at all",
    "shortcut": "as ideal, but leaning twice as much on chest drains",
    "biased": "as ideal, but positives of the third race score half a unit lower for the finding with subgroups",
    "miscalibrated": "ranks as ideal; its probabilities, exact as far as these rise, are one step up in log odds",
    "blind": "as ideal; its embedding knows nothing, so that the hidden slice fails and cannot be found",
    "no_slice": "as ideal, but the hidden slice scores as the other positives; its embedding knows that score only",
}
LEAST_RISE = 0.05  # of the log odds with each unit of the score
STEP = 1.0  # of log odds, by which the miscalibrated model is too sure of disease
BIAS = 0.5  # of the score, by which the biased model puts positives of the third race lower


@dataclass(frozen=True, slots=True)
class DevicesLaw(Law):
    """Support devices: S = 3 Y + N(0, 1) where any device lies in the picture."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """Shares, means and standard deviations of normals."""

    share: Floats
    mean: Floats
    sd: Floats

    def moments(self) -> tuple[float, float]:
        """Mean and variance of the whole."""
        mean = float(self.share @ self.mean)
        return mean, float(self.share @ (self.sd**2 + (self.mean - mean) ** 2))

    def log_density(self, x: Floats) -> Floats:
        """Of each x, but for the constant that all normals share."""
        z = (np.asarray(x)[..., None] - self.mean) / self.sd
        return np.asarray(logsumexp(-z * z / 2 - np.log(self.sd), axis=-1, b=self.share))

    def above(self, x: float) -> float:
        """P(> x)."""
        return float(self.share @ ndtr((self.mean - x) / self.sd))


@dataclass(frozen=True, slots=True)
class ScoreLaw:
    """A model's score of one finding: its prevalence, and the law of the score in negatives and in positives."""

    pi: float
    negative: Mixture
    positive: Mixture

    def line(self) -> tuple[float, float]:
        """Slope and intercept of log odds that rise with the score, near calibrated: the linear discriminant.

        Where positives score no higher than negatives the line rises all the same: a model that has it the wrong way
        round does not know it, and its AUROC below .5 is what its output has.
        """
        (mean0, var0), (mean1, var1) = self.negative.moments(), self.positive.moments()
        slope = max(LEAST_RISE, (mean1 - mean0) / (self.pi * var1 + (1 - self.pi) * var0))
        return slope, float(logit(self.pi)) - slope * (mean0 + mean1) / 2

    def posterior(self, score: Floats) -> Floats:
        """Log odds of P(Y=1 | score), exact."""
        return float(logit(self.pi)) + self.positive.log_density(score) - self.negative.log_density(score)

    def rising(self, score: Floats) -> Floats:
        """The posterior from half-way between the classes on to where it turns down, and a least rise from there.

        Off the posterior by less than 1e-5 where that rises: it is interpolated.
        """
        mean = np.r_[self.negative.mean, self.positive.mean]
        reach = 12 * np.r_[self.negative.sd, self.positive.sd]
        grid = np.linspace((mean - reach).min(), (mean + reach).max(), 12_001)
        exact = self.posterior(grid)
        steps = np.maximum(np.diff(exact), LEAST_RISE * (grid[1] - grid[0]))
        bent = np.r_[0.0, np.cumsum(steps)]
        middle = np.array((self.negative.moments()[0] + self.positive.moments()[0]) / 2)
        bent += float(self.posterior(middle)) - float(np.interp(middle, grid, bent))
        inside = np.clip(score, grid[0], grid[-1])
        return np.asarray(np.interp(inside, grid, bent) + LEAST_RISE * (np.asarray(score) - inside))


def check_kind(model: str) -> str:
    """The name of a simulated model, or an error with the nearest one."""
    if model not in KINDS:
        raise ConfigError(
            "unknown simulated model",
            got=f'"{model}"',
            allowed=f"one of {', '.join(KINDS)}",
            next_step=did_you_mean(model, KINDS),
        )
    return model


def check_laws(laws: Iterable[Law]) -> None:
    """Parameters that have no truth are errors: what is no number, and shares that are none."""
    for law in laws:
        for name in (each.name for each in fields(law) if each.name not in ("finding", "drains")):
            if not np.isfinite(getattr(law, name)):
                raise ConfigError(f"{law.finding}: {name}", got=getattr(law, name), allowed="a finite number")
        if isinstance(law, SliceLaw) and not 0 <= law.share < 1:
            # At 1 every film has wires, and support devices have no negatives.
            raise ConfigError(f"{law.finding}: share", got=law.share, allowed="a number from 0 to below 1")
        if isinstance(law, ShortcutLaw):
            for (sex, label), share in law.drains.items():
                if not 0 <= share <= 1:
                    raise ConfigError(
                        f"{law.finding}: drains[{sex}, {label}]", got=share, allowed="a number from 0 to 1"
                    )


def by_finding(laws: tuple[Law, ...]) -> dict[str, Law]:
    """finding -> its law, and that of support devices, whose prevalence follows from the others."""
    check_laws(laws)
    found = {law.finding: law for law in laws}
    # P(none) is linear in each finding's pre-test probability and these are independent: put in their means.
    means = {law.finding: np.array([law.pi]) for law in laws}
    return found | {"support_devices": DevicesLaw("support_devices", float(support_pretest(found, means)[0]), 0.0)}


def scores(people: People, at: int, law: Law, model: str) -> Floats:
    """The score of every image for the finding in column `at`."""
    s = people.s[:, at]
    drain = people.images.get_column("drain").to_numpy()
    if model == "context":
        return people.c[:, at]
    if isinstance(law, ContextLaw) and model == "image_only":
        return s - law.g * people.c[:, at]
    if isinstance(law, ShortcutLaw):
        return s + (lean(law, model) - law.effect) * drain
    if isinstance(law, SliceLaw) and model == "no_slice":
        return s + law.gap * hidden_slice(people, at)
    if isinstance(law, SubgroupLaw) and model == "biased":
        race = people.patients.get_column("race").gather(people.images.get_column("patient"))
        return s - BIAS * ((race == RACES[2]).to_numpy() & (people.y[:, at] == 1))
    return s


def hidden_slice(people: People, at: int) -> NDArray[np.bool_]:
    """Images of the slice that fails: hazy and positive. Haze alone fails nobody."""
    return np.asarray(people.images.get_column("hazy").to_numpy() & (people.y[:, at] == 1))


def log_odds(score: Floats, law: Law, model: str) -> Floats:
    """What the model says its probability is, as log odds; rises with the score, always.

    The hidden slice's finding has the score itself, as planted truth D2 has it. A biased model does not know that it
    is, so its line is that of the unbiased one.
    """
    if model == "miscalibrated":
        return score_law(law, "ideal").rising(score) + STEP
    if isinstance(law, SliceLaw):
        return score
    slope, intercept = score_law(law, "ideal" if model == "biased" else model).line()
    return intercept + slope * score


def probability(log_odds: Floats) -> Floats:
    """Log odds -> probability, never exactly 0 or 1."""
    return np.asarray(np.clip(expit(log_odds), 1e-12, 1 - 1e-12))


def lean(law: ShortcutLaw, model: str) -> float:
    """How far a drain moves the score."""
    return law.effect * {"image_only": 0.0, "shortcut": 2.0}.get(model, 1.0)


def gap_of(law: SliceLaw, model: str) -> float:
    """How much lower the hidden slice scores."""
    return 0.0 if model == "no_slice" else law.gap


def score_law(law: Law, model: str) -> ScoreLaw:
    """The law of `scores` in one image row; not for the context model, whose score is no mixture."""
    if isinstance(law, DevicesLaw):
        return ScoreLaw(law.pi, _normals([1.0], [0.0]), _normals([1.0], [DEVICES_SHOWN]))
    if isinstance(law, ContextLaw):
        g = 0.0 if model == "image_only" else law.g
        positive = _normals([1.0], [law.d0 + (g - law.eta) * law.m], np.sqrt(1 + (g - law.eta) ** 2))
        return ScoreLaw(law.pi, _normals([1.0], [0.0], np.sqrt(1 + g * g)), positive)
    if isinstance(law, ShortcutLaw):
        effect = lean(law, model)
        parts = []
        for value in (0, 1):
            drained = (law.drains["F", value] + law.drains["M", value]) / 2  # half of the patients are women
            parts.append(_normals([1 - drained, drained], [value, value + effect]))
        return ScoreLaw(law.pi, *parts)
    if isinstance(law, SliceLaw):
        positive = _normals([1 - law.share, law.share], [1.5, 1.5 - gap_of(law, model)])
        return ScoreLaw(law.pi, _normals([1.0], [-1.5]), positive)
    if isinstance(law, SubgroupLaw):
        shift = law.shift + (BIAS if model == "biased" else 0.0)
        joint = np.stack([SHARE * (1 - PREVALENCE), SHARE * PREVALENCE])[:, :, None] * AGE
        joint /= joint.sum(axis=(1, 2), keepdims=True)
        centre = np.broadcast_to(0.4 * np.arange(3), (3, 3))
        low = shift * (np.arange(3) == 2)[:, None]
        return ScoreLaw(law.pi, _normals(joint[0], centre), _normals(joint[1], 1.4 + centre - low))
    raise ConfigError(f"{law.finding}: unknown kind of law", got=type(law).__name__)


def _normals(share: Sequence[float] | Floats, mean: Sequence[float] | Floats, sd: float = 1.0) -> Mixture:
    shares, means = np.ravel(np.asarray(share, float)), np.ravel(np.asarray(mean, float))
    return Mixture(shares, means, np.full(len(means), float(sd)))
