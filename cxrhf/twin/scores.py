"""Laws of the findings and a kind of model -> its scores and probabilities, and the exact law of each score.

Given the label every score is a mixture of normals; so its AUROC and operating points are sums over pairs of parts.
What a model says always rises with its score, whatever the parameters, so these values hold for its output as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, logsumexp, ndtr

from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.twin.laws import DEFAULT, DEVICES_SHOWN, ContextLaw, Law, ShortcutLaw, SliceLaw, SubgroupLaw, support_pretest
from cxrhf.twin.people import RACES, People
from cxrhf.twin.planted import ContextTruth, context_truth
from cxrhf.twin.planted_groups import AGE, PREVALENCE, SHARE, shortcut_truth, slices_truth, subgroups_truth
from cxrhf.twin.texts import EDGES, MENTIONED_FROM

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
        return s + (drain_effect(law, model) - law.effect) * drain
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


def drain_effect(law: ShortcutLaw, model: str) -> float:
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
        effect = drain_effect(law, model)
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


# Laws of the findings and a kind of model -> every value that is true of it, in closed form or by integration.
#
# Where the score depends on the chart (D1) `context_truth` gives the values with context controlled. Everywhere else
# score and chart are independent given the label: controlling for context changes nothing, which is a truth as well.

_REACH = 9.0
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(200)
_Z = _REACH * _NODES
_MASS = _REACH * _NODE_WEIGHTS * np.exp(-_Z * _Z / 2) / np.sqrt(2 * np.pi)


def model_truth(laws: tuple[Law, ...] = DEFAULT, model: str = "ideal") -> dict[str, dict[str, Any]]:
    """finding -> what is true of the model there, by name of the value.

    `standard`, `att`, `ipw`, `matched` AUROC, `strata` (lowest quarter, middle half, highest quarter of the pre-test
    probability), `by_mention` (of patients with a note), `sensitivity` at 95% specificity, `brier`,
    `brier_skill_score`, `prevalence`. `threshold` is the score at `threshold_specificity` (.95; .8 where by_race is,
    whose rates are those at it); `threshold_logit` and `threshold_prob` are the same in the model's own output. Some
    have more: `by_sex` and `drains_equalised`, `slices`, `by_race`, `calibration`. All are values of the law of one
    image row, and of the output itself, which rises with the score.
    """
    check_kind(model)
    named = by_finding(laws)
    if model == "context":
        return {
            name: pretest_truth(*(_pretest_of_devices(named) if isinstance(law, DevicesLaw) else _pretest_of(law)))
            for name, law in named.items()
        }
    return {name: _finding_truth(law, model) for name, law in named.items()}


def _finding_truth(law: Law, model: str) -> dict[str, Any]:
    scored = score_law(law, model)
    if isinstance(law, ContextLaw):
        found = _with_chart(law, 0.0 if model == "image_only" else law.g)
    else:
        found = _independent(scored)
    found |= brier_truth(law, model) | {"threshold_specificity": 0.95}
    if isinstance(law, ShortcutLaw):
        by_sex = shortcut_truth(effect=drain_effect(law, model), drains=law.drains)
        found |= {"by_sex": dict(by_sex.auroc), "drains_equalised": by_sex.auroc_equalised}
    if isinstance(law, SliceLaw) and model != "miscalibrated":
        found["slices"] = slice_truth(law, model)
    if isinstance(law, SubgroupLaw):
        by_race = asdict(subgroups_truth(shift=law.shift + (BIAS if model == "biased" else 0.0)))
        found |= {"threshold": by_race.pop("threshold"), "threshold_specificity": 0.8}
        found["by_race"] = {
            race: {name: float(values[at]) for name, values in by_race.items()} for at, race in enumerate(RACES)
        }
    if model == "miscalibrated":
        found["calibration"] = _calibration(scored)
    at = float(log_odds(np.array(found["threshold"]), law, model))
    return found | {"threshold_logit": at, "threshold_prob": float(expit(at))}


def _with_chart(law: ContextLaw, g: float) -> dict[str, Any]:
    truth, by_mention = _integrated(law, g)
    return asdict(truth) | {"by_mention": dict(by_mention)}


@cache
def _integrated(law: ContextLaw, g: float) -> tuple[ContextTruth, dict[str, float]]:
    """Most kinds of models share it, and it takes most of the time."""
    return context_truth(pi=law.pi, m=law.m, g=g, eta=law.eta, d0=law.d0), _by_mention(law, g)


def slice_truth(law: SliceLaw, model: str = "ideal", shift: float = 4.0) -> dict[str, float | None]:
    """slices_truth with None for what is not there: a slice without images, a slice the embedding does not know."""
    knows = model not in ("blind", "no_slice")
    found = asdict(slices_truth(share=law.share, gap=gap_of(law, model), shift=shift if knows else 0.0))
    if law.share == 0:
        found["brier_hidden"] = np.nan
    return {name: float(value) if np.isfinite(value) else None for name, value in found.items()}


def _independent(scored: ScoreLaw) -> dict[str, Any]:
    """Score and chart independent given the label: one AUROC, whatever is done about context."""
    one, zero = scored.positive, scored.negative
    wins = ndtr((one.mean[:, None] - zero.mean) / np.sqrt(one.sd[:, None] ** 2 + zero.sd**2))
    auroc = float(one.share @ wins @ zero.share)
    low, high = float(zero.mean.min()) - 40.0, float(zero.mean.max()) + 40.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if zero.above(middle) > 0.05 else (low, middle)
    same = dict.fromkeys(("standard", "att", "ipw", "matched"), auroc)
    same_parts = {"strata": (auroc,) * 3, "by_mention": {"mentioned": auroc, "not_mentioned": auroc}}
    return {"prevalence": scored.pi, **same, **same_parts, "threshold": high, "sensitivity": one.above(high)}


def _by_mention(law: ContextLaw, g: float) -> dict[str, float]:
    """AUROC among images whose patient's notes name the finding, and among the others."""
    edge, out = EDGES[MENTIONED_FROM - 1], {}
    for name, low, high in (("mentioned", edge, _REACH + law.m), ("not_mentioned", -_REACH, edge)):
        c, width = (low + high) / 2 + (high - low) / 2 * _NODES, (high - low) / 2 * _NODE_WEIGHTS
        positive, negative = (width * np.exp(-((c - law.m * label) ** 2) / 2) for label in (1, 0))
        wins = ndtr((law.d0 + (g - law.eta) * c[:, None] - g * c) / np.sqrt(2))
        out[name] = float(positive @ wins @ negative / (positive.sum() * negative.sum()))
    return out


def brier_truth(law: Law, model: str = "ideal") -> dict[str, float]:
    """Brier scores of what the model says; not for the context model."""
    scored = score_law(law, model)

    def error(part: Mixture, label: int) -> float:
        score = part.mean[:, None] + part.sd[:, None] * _Z
        return float(part.share @ ((expit(log_odds(score, law, model)) - label) ** 2 @ _MASS))

    positive, negative = error(scored.positive, 1), error(scored.negative, 0)
    brier = scored.pi * positive + (1 - scored.pi) * negative
    return {
        "brier": brier,
        "brier_positive": positive,
        "brier_negative": negative,
        "brier_skill_score": 1 - brier / (scored.pi * (1 - scored.pi)),
    }


def _calibration(scored: ScoreLaw) -> dict[str, float | None]:
    """Too high by one step everywhere, so nothing cancels within a bin: the mean distance, whatever the bins.

    Where the exact log odds turn down and the model's do not, it may be too low there: then the error depends on the
    bins and is None. Slope and intercepts are those of the logistic line through everybody.
    """
    parts = ((scored.positive, scored.pi, 1.0), (scored.negative, 1 - scored.pi, 0.0))
    score = np.concatenate([(part.mean[:, None] + part.sd[:, None] * _Z).ravel() for part, _, _ in parts])
    mass = np.concatenate([(share * part.share[:, None] * _MASS).ravel() for part, share, _ in parts])
    label = np.concatenate([np.full(part.mean.size * _Z.size, value) for part, _, value in parts])
    said, true = scored.rising(score) + STEP, scored.posterior(score)
    too_high = expit(said) - expit(true)
    error = float(mass @ too_high)
    same_side = float(mass @ np.abs(too_high)) - abs(error) < 1e-4
    _, slope = _logistic(said, label, mass)
    in_the_large, _ = _logistic(said, label, mass, fit_slope=False)
    return {
        "adaptive_calibration_error": abs(error) if same_side else None,
        "slope": slope,
        "in_the_large": in_the_large,
    }


def _logistic(x: Floats, label: Floats, mass: Floats, fit_slope: bool = True) -> tuple[float, float]:
    """Intercept and slope of the likeliest line of log odds in x, by Newton's method."""
    line = np.array([0.0, 1.0])
    free = slice(None) if fit_slope else slice(0, 1)
    design = np.stack([np.ones_like(x), x])
    for _ in range(100):
        p = expit(line @ design)
        pull = design[free] @ (mass * (label - p))
        step = np.linalg.solve((design[free] * (mass * p * (1 - p))) @ design[free].T, pull)
        line[free] += np.clip(step, -1, 1)
        if np.abs(step).max() < 1e-10:
            break
    return float(line[0]), float(line[1])


def _pretest_of(law: Law) -> tuple[Floats, Floats]:
    """A fine grid over the chart context: pre-test probabilities and their mass."""
    c, mass = _context_grid(law, 30_000)
    return law.pretest(c), mass


def _context_grid(law: Law, points: int) -> tuple[Floats, Floats]:
    c = np.linspace(-_REACH, _REACH + law.m, points)
    mass = law.pi * np.exp(-((c - law.m) ** 2) / 2) + (1 - law.pi) * np.exp(-(c**2) / 2)
    return c, mass / mass.sum()


def pretest_truth(q: Floats, mass: Floats) -> dict[str, Any]:
    """A model whose score is the pre-test probability, from the law of q: once context is controlled nothing is left.

    Matching leaves a little: positives beyond the supply of negatives with the same q take lower ones (see
    planted_context). Only for positives in the minority.
    """
    order = np.argsort(q)
    q, mass = q[order], mass[order]
    positive, negative = q * mass, (1 - q) * mass
    pi = float(positive.sum())
    # From the top down all negatives are taken, until as many were taken as there are positives.
    excess = np.cumsum((positive - negative)[::-1])[::-1]
    all_taken = np.flatnonzero(excess > 0)
    cut = int(all_taken[0]) if len(all_taken) and pi < 0.5 else len(q)
    chosen = np.r_[positive[:cut], negative[cut:]]
    edges = np.searchsorted(np.cumsum(mass), [0.25, 0.75])
    parts = [slice(None, edges[0]), slice(edges[0], edges[1]), slice(edges[1], None)]
    below = np.cumsum(negative[::-1])[::-1]
    threshold = int(np.searchsorted(-below, -0.05 * (1 - pi)))
    at = q[threshold] if threshold < len(q) else np.nan  # one q for everybody: no threshold spares 95% of negatives
    brier = float(mass @ (q * (1 - q)))
    return {
        "prevalence": pi,
        "standard": _ordered_auroc(positive, negative),
        "att": 0.5,
        "ipw": 0.5,
        "matched": _ordered_auroc(positive, chosen) if pi < 0.5 else None,
        "strata": tuple(_ordered_auroc(positive[part], negative[part]) for part in parts),
        "threshold_specificity": 0.95,
        "threshold_logit": float(logit(at)),
        "threshold_prob": float(at),
        "sensitivity": float(positive[threshold:].sum() / pi),
        "brier": brier,
        "brier_skill_score": 1 - brier / (pi * (1 - pi)),
    }


def _ordered_auroc(positive: Floats, negative: Floats) -> float:
    """AUROC of two masses along one rising score; within a point they tie. NaN where nobody is."""
    if not len(positive):
        return float("nan")
    beaten = np.cumsum(negative) - negative / 2
    return float(positive @ beaten / (positive.sum() * negative.sum()))


def _pretest_of_devices(laws: Mapping[str, Law]) -> tuple[Floats, Floats]:
    """The pre-test probability of support devices is a function of one context, the drain's: no other is in it."""
    for name, law in laws.items():
        if isinstance(law, ShortcutLaw):
            q, mass = _pretest_of(law)
            return support_pretest(laws, {name: q}), mass
    return support_pretest(laws, {"": np.zeros(1)}), np.ones(1)
