"""Parameters of planted truth D2 -> embeddings with a hidden failing slice, or scores that lean on a chest drain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Null = Literal["none", "blind", "harmless", "score"]

# Share of images with a chest drain in CheXpert, by (sex, pneumothorax).
CHEXPERT_DRAINS: Mapping[tuple[str, int], float] = {
    ("M", 0): 0.230,
    ("M", 1): 0.505,
    ("F", 0): 0.147,
    ("F", 1): 0.502,
}

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(200)
_REACH = 9.0


@dataclass(frozen=True, slots=True)
class SlicesTruth:
    """Brier of the positives (hidden slice, rest, all) and of the negatives; the best slice any method can find."""

    brier_hidden: float
    brier_rest: float
    brier_positive: float
    brier_negative: float
    precision: float
    recall: float


@dataclass(frozen=True, slots=True)
class PlantedSlices:
    """One row per patient. `hidden` marks the slice, which only positives have."""

    y: Integers
    logit: Floats
    prob: Floats
    embedding: Floats
    hidden: Integers
    patient: Integers
    truth: SlicesTruth


@dataclass(frozen=True, slots=True)
class ShortcutTruth:
    """AUROC by sex as drains really lie, and when both sexes have the drains of their average."""

    auroc: Mapping[str, float]
    auroc_equalised: float


@dataclass(frozen=True, slots=True)
class PlantedShortcut:
    """One row per patient; `drain` is the shortcut, `sex` holds "M" and "F"."""

    y: Integers
    score: Floats
    drain: Integers
    sex: NDArray[np.str_]
    patient: Integers
    truth: ShortcutTruth


def slices(
    n: int,
    *,
    prevalence: float = 0.5,
    share: float = 0.1,
    gap: float = 2.0,
    shift: float = 4.0,
    dimensions: int = 16,
    null: Null = "none",
    seed: int = 0,
) -> PlantedSlices:
    """`n` rows of D2.

    Positives: U ~ Bernoulli(share), logit N(1.5 - gap U, 1); negatives: logit N(-1.5, 1) and no U. The embedding is
    unit Gaussian, its first axis moved by `shift` where U. Nulls, where an audit must find nothing:
    "blind" (shift 0: the slice fails but the embedding does not know it), "harmless" (gap 0: the embedding shows
    the group but it does not fail), "score" (no U at all; the embedding is tanh of straight lines in the logit with a
    little noise, so that clusters differ in Brier score although nothing is hidden).
    """
    if null not in ("none", "blind", "harmless", "score"):
        raise ValueError(f"null is {null!r}, allowed: 'none', 'blind', 'harmless', 'score'")
    gap = 0.0 if null == "harmless" else gap
    shift = 0.0 if null == "blind" else shift
    share = 0.0 if null == "score" else share
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < prevalence).astype(np.int64)
    hidden = ((rng.random(n) < share) & (y == 1)).astype(np.int64)
    logits = np.where(y == 1, 1.5 - gap * hidden, -1.5) + rng.standard_normal(n)
    embedding = rng.standard_normal((n, dimensions))
    if null == "score":
        slope, offset = np.linspace(0.5, 2.0, dimensions), np.linspace(-1.0, 1.0, dimensions)
        embedding = np.tanh(logits[:, None] * slope + offset) + 0.1 * embedding
    else:
        embedding[:, 0] += shift * hidden
    truth = slices_truth(share=share, gap=gap, shift=shift)
    return PlantedSlices(y, logits, expit(logits), embedding, hidden, np.arange(n), truth)


def rare_misses(
    prob: Floats, *, shares: Sequence[float] = (0.005, 0.01, 0.03, 0.1, 0.2), seed: int = 0
) -> tuple[Floats, dict[str, Integers]]:
    """Vectors of patients with these scores, and random attributes that the vectors show: a null for any errors.

    Errors of real models are skewed: most are near 0, a few near 1. An attribute that few patients have, and that
    vectors show, has by chance no large error or several; an audit must find nothing in either.
    """
    rng = np.random.default_rng([seed, 11])
    shown = rng.standard_normal((len(prob), len(shares) + 3))
    traits = {f"random {share:.1%}": (rng.random(len(prob)) < share).astype(np.int64) for share in shares}
    for axis, has in enumerate(traits.values()):
        shown[:, axis] += 4.0 * has
    shown[:, -1] += 3.0 * prob
    return shown, traits


def slices_truth(*, share: float = 0.1, gap: float = 2.0, shift: float = 4.0) -> SlicesTruth:
    """Population values of D2; the best slice calls a positive hidden where that is likelier than not."""
    z = _REACH * _NODES
    mass = _REACH * _NODE_WEIGHTS * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)

    def brier(centre: float) -> float:
        return float(mass @ (1 - expit(centre + z)) ** 2)

    hidden, rest = brier(1.5 - gap), brier(1.5)
    if share == 0 or shift == 0:  # no cut is better than taking nobody
        precision = recall = np.nan
    else:
        cut = shift / 2 + np.log((1 - share) / share) / shift
        recall = float(ndtr(shift - cut))
        precision = share * recall / (share * recall + (1 - share) * float(ndtr(-cut)))
    return SlicesTruth(hidden, rest, share * hidden + (1 - share) * rest, brier(1.5), precision, recall)


def shortcut(
    n: int,
    *,
    prevalence: float = 0.3,
    effect: float = 1.5,
    drains: Mapping[tuple[str, int], float] = CHEXPERT_DRAINS,
    equalised: bool = False,
    seed: int = 0,
) -> PlantedShortcut:
    """`n` patients, half of each sex, with score S = Y + effect * drain + N(0, 1).

    With `equalised` both sexes draw drains with the mean share of their class, which removes the gap by sex while
    the model and its lean on drains stay as they are.
    """
    if equalised:
        mean = {label: (drains["M", label] + drains["F", label]) / 2 for label in (0, 1)}
        drains = {(sex, label): mean[label] for sex in "MF" for label in (0, 1)}
    rng = np.random.default_rng(seed)
    sex = np.where(rng.random(n) < 0.5, "M", "F")
    y = (rng.random(n) < prevalence).astype(np.int64)
    chance = np.select([(sex == s) & (y == label) for s, label in drains], list(drains.values()))
    drain = (rng.random(n) < chance).astype(np.int64)
    score = y + effect * drain + rng.standard_normal(n)
    return PlantedShortcut(y, score, drain, sex, np.arange(n), shortcut_truth(effect=effect, drains=drains))


def shortcut_truth(*, effect: float = 1.5, drains: Mapping[tuple[str, int], float] = CHEXPERT_DRAINS) -> ShortcutTruth:
    """AUROC by sex: four cases of drain or none in the positive and in the negative."""

    def auroc(positive: float, negative: float) -> float:
        cases = (
            chance_pos * chance_neg * ndtr((1 + effect * (i - j)) / np.sqrt(2))
            for i, chance_pos in enumerate((1 - positive, positive))
            for j, chance_neg in enumerate((1 - negative, negative))
        )
        return float(sum(cases))

    by_sex = {sex: auroc(drains[sex, 1], drains[sex, 0]) for sex in "MF"}
    both = auroc((drains["M", 1] + drains["F", 1]) / 2, (drains["M", 0] + drains["F", 0]) / 2)
    return ShortcutTruth(by_sex, both)
