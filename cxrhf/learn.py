"""Scores and labels -> a calibrator; a calibrator and scores -> probabilities between 0 and 1, never 0 or 1.

Context models and image models share this file. A new method is a function that returns knots or a line, and an entry
of `METHODS`.

`platt`: a straight line in the log odds. Labels are smoothed as Platt does, by one made-up label of each class, so that
scores which separate the classes do not become certainties. A line that would fall says that the scores rank backwards:
then they count for nothing, and every score gets the prevalence.

`isotonic`: neighbouring scores are pooled until the share of positives rises (pool adjacent violators). One made-up
positive at the lowest score and one made-up negative at the highest keep the ends from 0 and 1 and shrink ends that
rest on a few rows. The knots are the pools' mean scores, with straight lines in the log odds between them and level
ends. Chosen by simulation (four shapes, 200 to 8,000 rows, 3% to 30% positives, fresh data). Against the usual level
pools with lines in the gaps: log loss above that of the truth lower by four to six tenths, slope nearer 1 (.91 to 1.03,
level pools .70 to .96), AUROC lost to ties .000 (level pools .001 to .05; both lose .01 or more where 6 of 200 rows are
positive), adaptive calibration error the same within .002. Against lines in the probability: the same but for the mean,
which those lift where positives are rare.

`temperature`: log odds divided by one number T > 0, the least log loss; for the classes of a softmax one T for all. Two
made-up images, one of each class, stand at the margin that a tenth of the images stay under, so that classes which the
scores tell apart still have a finite T. Chosen by simulation (100 to 4,000 rows, 3% and 30% positives, weak to nearly
perfect models, fresh data; log loss above that of the truth): none made up .0002 at 4,000 rows, but up to 3.6 at 100;
Platt's smoothed labels up to .0008 and .033; the two images .0002 and .010. Only the sharpness moves, never the mean.
Where no T > 0 does better than calling all classes equally likely (scores that rank backwards, or lie on the wrong side
of 0), that is an error: a T without end would make every probability .5, and `platt` can move such scores.

Known gaps: isotonic probabilities of a few hundred rows are a little too bold (slope about .92) and, with fewer than
ten positives, too high on average by the made-up positive. A model trained with weighted classes gives log odds with a
shift, which a temperature keeps. T of nearly perfect models is too large where few images are near 0 (by 60% with 12
positives of 400 images and log odds that spread by 12, by 9% with ten times as many).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.metrics.checks import InputError, as_scores, as_weights, binary_input

Floats = NDArray[np.float64]
Calibration = Literal["platt", "isotonic", "temperature"]

# Scores far outside those that were learned from must not become certainties either.
LEAST = 1e-9
# Squares of larger scores are no numbers; a model that gives them has failed.
LARGEST = 1e100
# Steps of the search for the least loss: how many it remembers and takes, and the share of the loss that one more may
# still win.
MEMORY, MOST_STEPS, CLOSE, EXACT = 10, 300, 1e-6, 1e-15
# The share of images whose margin lies under that of the made-up ones (temperature).
NARROW = 0.1


@dataclass(frozen=True, slots=True)
class Calibrator:
    """Scores -> probabilities.

    `platt`: x = [slope], y = [shift] of the log odds. `temperature`: x = [1/T], y = [0]. `isotonic`: x = rising
    scores, y = probabilities there, straight lines in the log odds between.
    """

    method: Calibration
    x: Floats
    y: Floats


def fit_calibrator(score: ArrayLike, y: ArrayLike, method: Calibration, weight: ArrayLike | None = None) -> Calibrator:
    """The calibrator of scores whose labels are known; a weight of 2 is a row that stands there twice.

    Labels of one class, numbers that are not finite, labels other than 0 and 1, and log odds that no temperature helps
    are errors: the caller decides what no calibration means.

    >>> made = fit_calibrator([-2, -1, 0, 1, 2, 3], [0, 0, 1, 0, 1, 1], "platt")
    >>> [round(float(p), 3) for p in apply_calibrator(made, [-2, 0, 3])]
    [0.208, 0.433, 0.792]
    """
    method_of(method)
    labels, scores, weights = binary_input(y, score, weight)
    if np.abs(scores).max(initial=0) > LARGEST:
        raise ConfigError("a score is too large to calibrate", allowed=f"scores from -{LARGEST:g} to {LARGEST:g}")
    positive, negative = weights * labels, weights * (1 - labels)
    if not (positive.sum() > 0 and negative.sum() > 0):
        raise ConfigError(
            "calibration",
            got=f"{int((positive > 0).sum()):,} rows with label 1 and {int((negative > 0).sum()):,} with label 0",
            allowed="both classes with a weight above 0",
        )
    x, at = METHODS[method](scores, positive, negative)
    return Calibrator(method, np.atleast_1d(np.float64(x)), np.atleast_1d(np.float64(at)))


def method_of(name: str) -> Calibration:
    """The method of this name; an error with the nearest one if there is none."""
    known: tuple[Calibration, ...] = get_args(Calibration)
    for each in known:
        if each == name:
            return each
    raise ConfigError(
        "calibration method", got=name, allowed=", ".join(known), next_step=did_you_mean(str(name), known)
    )


def apply_calibrator(calibrator: Calibrator, score: ArrayLike) -> Floats:
    """The probability of each score; NaN is an error, not a probability."""
    scores = as_scores(score, "score")
    if calibrator.method == "isotonic":
        odds = np.interp(scores, calibrator.x, logit(calibrator.y))
    else:
        slope, shift = float(calibrator.x[0]), float(calibrator.y[0])
        with np.errstate(over="ignore"):  # a score of 1e300 is far out on any line
            odds = slope * scores + shift
    return np.asarray(np.clip(expit(odds), LEAST, 1 - LEAST), dtype=np.float64)


def rescale_calibrator(calibrator: Calibrator, times: float, plus: float) -> Calibrator:
    """The calibrator that says of `times * score + plus` what this one says of `score`."""
    if calibrator.method == "isotonic":
        return Calibrator("isotonic", calibrator.x * times + plus, calibrator.y)
    slope = calibrator.x / times
    shift = calibrator.y - slope * plus
    return Calibrator("platt" if shift.any() else calibrator.method, slope, shift)  # a temperature has no shift


def platt(score: Floats, positive: Floats, negative: Floats, close: float = CLOSE) -> tuple[float, float]:
    """Slope and shift of the log odds. `positive` and `negative` count the labels of each row; both classes are there.

    A score that ranks backwards, or is the same everywhere: slope 0. The search ends where one more step would win less
    than `close` of the loss; at 1e-6 probabilities are within .0005 of those at the end.
    """
    n_positive, n_negative = positive.sum(), negative.sum()
    level = 0.0, float(logit(n_positive / (n_positive + n_negative)))
    middle, width = float(score.mean()), float(score.std())
    if width <= 1e-12 * np.abs(score).max():
        return level
    high, low = (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2)
    total = positive + negative
    hits = positive * high + negative * low
    x = (score - middle) / width

    def loss(line: Floats) -> tuple[float, Floats]:
        odds = line[1] * x + line[0]
        value = np.sum(hits * np.logaddexp(0, -odds) + (total - hits) * np.logaddexp(0, odds))
        slope = total * expit(odds) - hits
        return float(value), np.array([np.sum(slope), np.sum(slope * x)])

    shift, slope = minimise(loss, np.array([logit(hits.sum() / total.sum()), 0.0]), close)
    if slope <= 0:
        return level
    return float(slope / width), float(shift) - float(slope / width * middle)


def isotonic(score: Floats, positive: Floats, negative: Floats) -> tuple[Floats, Floats]:
    """Knots of the rising curve: the pools' mean scores, and their shares of positives with both ends smoothed."""
    from scipy.optimize import isotonic_regression

    there = positive + negative > 0
    score, positive, negative = score[there], positive[there], negative[there]
    at, place = np.unique(score, return_inverse=True)
    mass = np.bincount(place, positive + negative)
    made_up = np.zeros(len(at))
    made_up[0] = 1.0
    rows = mass + made_up + made_up[::-1]
    pools = isotonic_regression((np.bincount(place, positive) + made_up) / rows, weights=rows)
    starts = np.asarray(pools.blocks[:-1], dtype=np.int64)
    if len(starts) == 1:
        return np.array([at.mean()]), np.array([positive.sum() / mass.sum()])
    # Means relative to the first score of a pool: a sum of large scores would round, or overflow.
    first = np.repeat(at[starts], np.diff(np.r_[starts, len(at)]))
    held = np.add.reduceat(mass, starts)
    return at[starts] + np.add.reduceat(mass * (at - first), starts) / held, np.asarray(pools.x)[starts]


def temperature(score: Floats, positive: Floats, negative: Floats) -> tuple[float, float]:
    """1/T, and no shift: the two classes of a softmax whose other score is 0."""
    return _sharpness(np.stack([np.zeros(len(score)), score], 1), np.stack([negative, positive], 1)), 0.0


def fit_temperature(logits: ArrayLike, classes: ArrayLike, weight: ArrayLike | None = None) -> float:
    """T > 0 of softmax(logits / T), logits (n, K), classes (n,) from 0 to K - 1: the least log loss.

    What is added to all logits of a row does not matter: log probabilities do as well. An error with one class, and
    where no T > 0 helps.

    >>> logits = [[4, 0, 0], [0, 4, 0], [0, 0, 4], [4, 0, 0], [0, 4, 0], [0, 0, 4]]
    >>> round(fit_temperature(logits, [0, 1, 2, 0, 1, 0]), 2)
    2.44
    """
    scores, given = np.asarray(logits, dtype=np.float64), np.asarray(classes)
    if scores.ndim != 2 or given.shape != (len(scores),):
        raise InputError(f"logits and classes: expected shapes (n, K) and (n,), got {scores.shape} and {given.shape}")
    if not (np.isfinite(scores).all() and np.abs(scores).max(initial=0) <= LARGEST):
        raise InputError(f"logits must be numbers between -{LARGEST:g} and {LARGEST:g}")
    places = np.arange(scores.shape[1])
    if not np.isin(given, places).all():
        raise InputError(f"classes must be integers from 0 to {scores.shape[1] - 1}")
    counts = (given[:, None] == places) * as_weights(weight, len(scores))[:, None]
    if (counts.sum(axis=0) > 0).sum() < 2:
        raise ConfigError("temperature scaling", got="one class", allowed="two classes with a weight above 0")
    return 1 / _sharpness(scores, counts)


def _sharpness(logits: Floats, counts: Floats) -> float:
    """1/T of the least log loss; `counts` (n, K) says how often each row is of each class.

    The loss is convex in 1/T, so its slope has one root, which is found to the last digits.
    """
    from scipy.optimize import brentq

    there = counts.sum(axis=1) > 0
    logits, counts = logits[there], counts[there]
    x = logits - logits.max(axis=1, keepdims=True)
    scale = float(-x.min(initial=0.0))
    x = x / scale if scale > 0 else x
    total, got = counts.sum(axis=1), float((counts * x).sum())
    margin = _narrow(x, total)

    def rise(sharp: float) -> float:
        odds = np.exp(sharp * x)
        told = float(np.sum(total * (odds * x).sum(axis=1) / odds.sum(axis=1)))
        return told - got + margin * float(np.tanh(sharp * margin / 2))

    high = 1.0
    if scale > 0 and rise(0.0) < 0:
        while rise(high) <= 0 and high < 1e100:
            high *= 2
        sharp = float(brentq(rise, 0.0, high, xtol=1e-300, rtol=1e-15, maxiter=1000)) / scale
        if 0 < sharp < np.inf and 1 / sharp < np.inf:
            return sharp
    raise ConfigError(
        "no temperature improves on always predicting the prevalence, because the scores rank backwards or are on the "
        "wrong side of 0",
        next_step="calibrate with platt, which also shifts the mean",
    )


def _narrow(x: Floats, weight: Floats) -> float:
    """The margin between the two best classes that a tenth of the weight of the rows with a margin stays under."""
    margin = -np.partition(x, -2, axis=1)[:, -2]
    order = np.argsort(margin)
    margin, weight = margin[order], weight[order]
    margin, filled = margin[margin > 0], np.cumsum(weight[margin > 0])
    if not len(margin):
        return 0.0
    return float(margin[np.searchsorted(filled, NARROW * filled[-1] * (1 - 1e-12))])


def minimise(loss: Callable[[Floats], tuple[float, Floats]], start: Floats, close: float) -> Floats:
    """The least point of a smooth convex function that gives its value and gradient: L-BFGS with halved steps.

    Written out because scipy's wakes the threads of BLAS for thousands of tiny products: with other programs on the
    same two cores, 3,000 coefficients took 8.4 s that one thread does in .3 s. Nothing here is large enough for one.
    """
    found = start
    value, steep = loss(found)
    past: deque[tuple[Floats, Floats, float]] = deque(maxlen=MEMORY)
    for _ in range(MOST_STEPS):
        way = -_lbfgs_direction(steep, past)
        fall = np.sum(way * steep)
        if fall >= -close * max(abs(value), 1.0):  # what a whole step could still win
            break
        length = 1.0 if past else min(1.0, 1 / np.sqrt(np.sum(steep**2)))
        for _ in range(40):
            at = found + length * way
            new_value, new_steep = loss(at)
            if new_value <= value + 1e-4 * length * fall:
                break
            length /= 2
        else:
            break  # as low as rounding lets it be seen
        moved, bent = at - found, new_steep - steep
        curve = np.sum(moved * bent)
        if curve > 0:
            past.append((moved, bent, curve))
        found, value, steep = at, new_value, new_steep
    return found


def _lbfgs_direction(steep: Floats, past: deque[tuple[Floats, Floats, float]]) -> Floats:
    """The gradient times the inverse curvature that the last steps have shown."""
    way = steep.copy()
    shares = []
    for moved, bent, curve in reversed(past):
        share = np.sum(moved * way) / curve
        way -= share * bent
        shares.append(share)
    if past:
        _, bent, curve = past[-1]
        way *= curve / np.sum(bent**2)
    for (moved, bent, curve), share in zip(past, reversed(shares), strict=True):
        way += (share - np.sum(bent * way) / curve) * moved
    return way


Method = Callable[[Floats, Floats, Floats], tuple[float | Floats, float | Floats]]
METHODS: dict[str, Method] = {"platt": partial(platt, close=EXACT), "isotonic": isotonic, "temperature": temperature}
