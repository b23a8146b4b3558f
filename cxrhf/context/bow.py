"""Words of prior notes and labels -> a pre-test probability for each image, from models that never saw its patient.

Features: the counts of all prior notes of an image added up, log(1 + count), words of few patients weighing more
(inverse patient frequency), rows of length 1. Each distinct set of notes is one row, whatever the number of its images.
Model: logistic regression with an L2 penalty that is milder for words that go with the label in the training folds
(features times the square root of |z|, patients as units). Most words of a chart have nothing to do with a finding, and
one penalty for all lets their chance associations drown a few real ones. Scaling and penalty were chosen by hand among
some thirty pairs, by the mean AUROC on the twin (2,000 patients, two seeds) and on real indications for chest films
(IU). Scaled, and with one penalty for all: twin .675 and .659 (the planted probability itself .714), IU .612 and .615.
The choice was made on these same data, so they flatter it; on a larger twin that had no part in it, .694 of .713.

Folds: five, by patient, stratified by label. A model without folds u and v scores both, so ten models serve all. What
fold u gets is the mean of its four models' probabilities, by Platt's line fitted on the scores of the other four folds
from models that saw neither them nor u: no label of a fold plays any part in its own probabilities. Which words are
counted is decided without any label.
Known gaps: a mean of four models is a little too timid (calibration slope on the twin mostly 1.0 to 1.2 with 500
patients, 1.0 to 1.1 with 3,500); few patients give a pre-test probability that knows less than the notes do (mean AUROC
.06 below the planted one with 500 patients, .02 with 3,500), so some context stays in what is called controlled for it.

Cost: 20,000 images with 10,000 notes of 10 kB and 13 findings, 8,192 words: about a minute of one core, 1 GB.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, logit

from cxrhf.context.settings import ENOUGH
from cxrhf.context.words import count_words, rarity, weigh_counts
from cxrhf.learn import minimise, platt

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Progress = Callable[[str], None]


FOLDS = 5
PENALTY, SHARPNESS = 3.0, 0.5
# Words whose |z| is no larger are left out of a fit, for speed: by chance alone four in ten.
FAINT = 0.5


class NotesPretest(NamedTuple):
    """Pre-test probabilities, images x findings, NaN where there is none, and why a finding has none."""

    pretest: Floats
    reasons: dict[str, str]
    n_words: int


def notes_pretest(
    y: Floats,
    links: sparse.csr_array,
    texts: pa.ChunkedArray | pa.Array,
    patients: Integers,
    *,
    findings: Sequence[str],
    seed: int,
    progress: Progress = lambda _: None,
) -> NotesPretest:
    """P(finding | prior notes) for every image that has prior notes, labelled or not.

    `y`: images x findings, NaN = no label, learned from where there are prior notes. `links`: images x notes, non-zero
    where the note is prior. `patients`: a number for the patient of each image; images that share a note must share it.
    The same numbers whatever the order of the notes; images must come in a fixed order, such as that of their ids.
    """
    pretest = np.full(y.shape, np.nan)
    reasons: dict[str, str] = {}
    noted = np.flatnonzero(np.diff(links.indptr) > 0)
    if not noted.size:
        return NotesPretest(pretest, dict.fromkeys(findings, "no image has a prior note"), 0)
    progress(f"words of {links.shape[1]:,} prior notes")
    who = np.unique(patients[noted], return_inverse=True)[1].astype(np.int64)
    row, first = distinct_rows(links[noted])
    owners = np.zeros(links.shape[1], dtype=np.int64)
    owners[links[noted].indices] = np.repeat(who, np.diff(links[noted].indptr))
    words = count_words(texts, owners, progress=progress)
    bag = make_bag(links[noted][first] @ words.counts, words.n_patients, who[first], row)

    for at, finding in enumerate(findings):
        progress(f"pre-test probability from notes: {finding} ({at + 1} of {len(findings)})")
        labels = y[noted, at]
        if why := too_few(labels, who):
            reasons[finding] = why
        else:
            pretest[noted, at] = cross_fit(bag, labels, deal(labels, who, seed))
    return NotesPretest(pretest, reasons, len(words.words))


class Bag(NamedTuple):
    """Features of the distinct sets of prior notes, their means and mean squares by patient, and who is who."""

    features: sparse.csr_array  # sets x words
    mean: sparse.csr_array  # patients x words: a patient's sets averaged
    square: sparse.csr_array  # the same, squared
    patient: Integers  # of each set
    row: Integers  # the set of each image


def distinct_rows(links: sparse.csr_array) -> tuple[Integers, Integers]:
    """The number of each image's set of notes, in the order in which sets appear, and the first image of each set."""
    links.sort_indices()
    seen: dict[bytes, int] = {}
    keys = (links.indices[start:end].tobytes() for start, end in pairwise(links.indptr))
    row = np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=np.int64)
    return row, np.unique(row, return_index=True)[1].astype(np.int64)


def make_bag(counts: sparse.csr_array, n_patients: Integers, patient: Integers, row: Integers) -> Bag:
    """Counts of the distinct sets -> log(1 + count) times inverse patient frequency, rows of length 1."""
    return bag_of(weigh_counts(counts, rarity(n_patients, len(np.bincount(patient)))), patient, row)


def bag_of(features: sparse.csr_array, patient: Integers, row: Integers) -> Bag:
    """Features of the distinct sets, the patient of each set, and the set of each image -> a bag."""
    average = sparse.csr_array((1 / np.bincount(patient)[patient], (patient, np.arange(len(patient)))))
    mean = sparse.csr_array(average @ features)
    return Bag(features, mean, mean.power(2), patient, row)


def too_few(y: Floats, patients: Integers, minimum: int = ENOUGH) -> str | None:
    """Why nothing can be learned from these labels, if so: with fewer patients a fold may hold one or none."""
    counts = {name: len(np.unique(patients[y == value])) for name, value in (("with", 1), ("without", 0))}
    for name, count in counts.items():
        if count < minimum:
            several = "s" * (count != 1)
            return f"prior notes exist for {count} patient{several} {name} the finding; at least {minimum} are required"
    return None


def deal(y: Floats, patients: Integers, seed: int) -> Integers:
    """The fold of each image: patients whole, labels spread evenly. Patients without any label go round in turn."""
    from sklearn.model_selection import StratifiedGroupKFold

    known = np.flatnonzero(~np.isnan(y))
    fold = np.arange(int(patients.max(initial=-1)) + 1) % FOLDS
    cuts = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed % 2**32)
    for at, (_, held) in enumerate(cuts.split(known, y[known], patients[known])):
        fold[patients[known[held]]] = at
    return fold[patients]


def cross_fit(bag: Bag, y: Floats, fold: Integers) -> Floats:
    """Probabilities of all images, each from labels of other folds alone. NaN in `y` is predicted, not learned from."""
    n_rows = bag.features.shape[0]
    known = ~np.isnan(y)
    positive = np.asarray(np.bincount(bag.row[known], y[known], minlength=n_rows), dtype=np.float64)
    negative = np.asarray(np.bincount(bag.row[known], 1 - y[known], minlength=n_rows), dtype=np.float64)
    of_row = np.zeros(n_rows, dtype=np.int64)
    of_row[bag.row] = fold
    at = [np.flatnonzero(of_row == each) for each in range(FOLDS)]
    scores: dict[tuple[int, int], Floats] = {}  # (fold scored, other fold left out)
    for u, v in combinations(range(FOLDS), 2):
        learn = np.flatnonzero((of_row != u) & (of_row != v) & (positive + negative > 0))
        weight, intercept = fit(bag, learn, positive[learn], negative[learn])
        for scored, other in ((u, v), (v, u)):
            scores[scored, other] = bag.features[at[scored]] @ weight + intercept
    probability = np.empty(n_rows)
    for held in range(FOLDS):
        others = [each for each in range(FOLDS) if each != held]
        rows = np.concatenate([at[each] for each in others])
        slope, shift = platt(np.concatenate([scores[each, held] for each in others]), positive[rows], negative[rows])
        probability[at[held]] = np.mean([expit(slope * scores[held, each] + shift) for each in others], axis=0)
    return probability[bag.row]


def fit(
    bag: Bag,
    rows: Integers,
    positive: Floats,
    negative: Floats,
    penalty: float = PENALTY,
    sharpness: float = SHARPNESS,
) -> tuple[Floats, float]:
    """Weights of the words and intercept of the penalised logistic regression on these rows of the bag.

    Features are scaled by |z| to the power of `sharpness`: at 0 all words meet the same penalty, the higher the nearer
    to leaving out all but the few that go with the label.
    """
    strength = np.abs(association(bag, rows, positive, negative))
    kept = np.flatnonzero(strength > FAINT)
    weight = np.zeros(len(strength))
    if not kept.size:
        return weight, float(logit(positive.sum() / (positive + negative).sum()))
    scale = strength[kept] ** sharpness
    scale /= np.sqrt(np.mean(scale**2))
    design = bag.features[rows][:, kept]
    design.data *= scale[design.indices]
    found, intercept = fit_ridge(design, positive, negative, penalty)
    weight[kept] = scale * found
    return weight, intercept


def association(bag: Bag, rows: Integers, positive: Floats, negative: Floats) -> Floats:
    """z of each word: how the patients' mean feature goes with the excess of their positives, patients as units."""
    total = positive + negative
    n = bag.mean.shape[0]
    excess = np.bincount(bag.patient[rows], positive - total * positive.sum() / total.sum(), minlength=n)
    there = np.bincount(bag.patient[rows], minlength=n) > 0
    centre = bag.mean.T @ (there / there.sum())
    spread = bag.square.T @ excess**2 - 2 * centre * (bag.mean.T @ excess**2) + centre**2 * np.sum(excess**2)
    summed = bag.mean.T @ excess - centre * excess.sum()
    return np.asarray(np.divide(summed, np.sqrt(np.maximum(spread, 1e-12)), where=spread > 1e-12, out=0 * summed))


# Sparse features and label counts -> logistic regression with an L2 penalty.

# The share of the loss that a further step may still win. On the twin a thousandth of it moved no probability by more
# than .0011.
CLOSE = 1e-6


def fit_ridge(design: sparse.csr_array, positive: Floats, negative: Floats, penalty: float) -> tuple[Floats, float]:
    """Coefficients and intercept (not penalised) of least log loss + penalty / 2 * squared coefficients.

    `positive` and `negative` count the labels of each row; both classes must be there.
    """
    turned = sparse.csr_array(design.T)
    total = positive + negative

    def loss(found: Floats) -> tuple[float, Floats]:
        score = design @ found[1:] + found[0]
        value = np.sum(positive * np.logaddexp(0, -score) + negative * np.logaddexp(0, score))
        slope = total * expit(score) - positive
        steep = np.concatenate([[slope.sum()], turned @ slope + penalty * found[1:]])
        return float(value + penalty / 2 * np.sum(found[1:] ** 2)), steep

    start = np.zeros(design.shape[1] + 1)
    start[0] = logit(positive.sum() / total.sum())
    found = minimise(loss, start, CLOSE)
    return found[1:], float(found[0])
