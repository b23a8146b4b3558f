"""Candidates that were tried -> the best one fitted and calibrated, and its probability of every image.

Choice: the best parameters of each kind of classifier by cross-validation; between kinds by the AUROC on the validation
split, each fitted to all learning images; by cross-validation where there is no validation split or it is too small.
Images that were not learned from get the winner's score, through a calibrator that was fitted to the scores which
learning images got out of fold.

Learning images of fold u get the score of the winner fitted without fold u, through a calibrator fitted to the scores
that every other fold v got from the winner fitted without u and v. So no label of a fold plays a part in its own
probabilities, and a learning image gets what a new image would get, from four fifths of the patients: one model's score
and a calibrator for scores of one model. Five folds take ten fits more than cross-validation, fifty would take 1,225.

Models that learn from more say more: under a penalty scores spread wider (WordRidge: by a fifth from three folds to
four), and only part of it is knowledge. How far is seen without labels, between the scores that fold u gets with and
without another fold; the calibrator is stretched by the square root of it, and for the model of all images as if one
step further. Without that, probabilities of WordRidge and logistic regression are too bold.

Measured on planted words (250 or 1,000 patients to learn from, four images each; 16 to 30 draws; others: 1,500 new
patients), calibration slope and adaptive calibration error above what chance gives:
  learning images   LinearSVC 1.03 to 1.09, WordRidge .98 to 1.05, logistic 1.01 to 1.02; error -.003 to .001. In a few
                    draws: boosted trees .99 to 1.03, discriminant analysis 1.11 to 1.14
  new patients      LinearSVC 1.06 to 1.20, WordRidge 1.01 to 1.10, logistic 1.01 to 1.11; error .002 to .012; single
                    draws scatter by .05 (1,000 patients, clear signs) to .3. Boosted trees 1.01 to 1.05, error .003 to
                    .006, with 250 patients .028
  not stretched     WordRidge .90 to .95, error of new patients .0054 instead of .0022 (1,000 patients, clear signs)
  mean of four      1.10 to 1.26 for all: the mean over the models without u and one more fold, which bow.py takes. Four
                    models know more than one, and the calibrator is that of one. AUROC as here within .002, boosted
                    trees .005 better.
On the twin, which had no part in this (3,500 patients, half of them new, six findings, WordRidge, means): learning
images .96, not stretched .90; new patients .99, not stretched .94; error .007 and .016.

Known gaps: which classifier and which parameters are best was decided with the labels of all folds. Where notes say
next to nothing (AUROC under .55) slopes scatter around a half: a calibrator of few patients then rests on chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from cxrhf.calibrate import calibrated, fit_calibrator, stretched
from cxrhf.context.bow import too_few
from cxrhf.context.parts import (
    Calibrator,
    Candidate,
    Family,
    Fitted,
    Floats,
    Integers,
    Labelled,
    Progress,
    Tried,
)
from cxrhf.context.sweep import QUICK, best_of_each_kind, fit_and_score, pack, spread, unpack
from cxrhf.errors import LeakageError, TableError
from cxrhf.metrics import auroc

# Patients with and without the finding that validation needs to choose between classifiers.
VALIDATES = 10
# The power of the growth of scores that is no knowledge: of 0, .5 and 1 this gave slopes nearest 1, the least error.
KNOWS_NOT = 0.5
Left = tuple[int, ...]  # folds that a fit leaves out


class Made(NamedTuple):
    """A fit that left out some folds: its scores of these; that left out none: the model and its scores of all."""

    scores: Floats  # of every image, NaN where not asked for
    model: Any
    failed: str | None


def fit_family(
    family: Family,
    data: Labelled,
    tried: Sequence[Tried],
    *,
    seed: int,
    workers: int | None = None,
    choose: str = "validation",
    progress: Progress = lambda _: None,
) -> Fitted:
    """The best of the candidates that were tried, fitted and calibrated, and its probability of every image.

    `choose`: "validation", or "pooled" where the validation split is learned from too and cross-validation chooses.
    """
    _checked(data)

    def fits(asked: Sequence[tuple[Candidate, Left]]) -> list[Made]:
        return _fits(asked, family, data, seed, workers)

    best = best_of_each_kind(tried)
    reasons: list[str] = []
    small = too_few(data.y[data.validate], data.patients[data.validate], VALIDATES) if choose == "validation" else ""
    if small:
        reasons.append(f"cross-validation chose the classifier because the validation split is too small: {small}")
    made: dict[str, Made] = {}
    for batch in [best] if small is None else [[each] for each in best]:
        progress("fitting " + ", ".join(each.candidate.label for each in batch))
        for each, one in zip(batch, fits([(each.candidate, ()) for each in batch]), strict=True):
            if one.failed is None:
                made[each.candidate.kind] = one
            else:
                reasons.append(f"{each.candidate.label} cannot be fitted to all images: {one.failed}")
        if made:
            break
    if not made:
        said = next((each.failed for each in tried if each.failed), "no candidates")
        raise TableError(
            f"no classifier can be fitted to {family.name} ({reasons[-1] if best else said})",
            next_step="omit it from --features or --encoders, or omit the finding",
        )
    there = [each for each in best if each.candidate.kind in made]
    judge = data.validate & ~np.isnan(data.y)
    areas = [auroc(data.y[judge], made[each.candidate.kind].scores[judge]) for each in there] if small is None else []
    at = int(np.argmax(areas)) if areas else 0
    winner = there[at]

    folds = [int(each) for each in np.unique(data.fold[data.learn])]
    whole = len(winner.scores) == len(data.y) and not np.isnan(winner.scores[data.learn]).any()
    alone: list[Left] = [] if whole else [(each,) for each in folds]  # images without a label have no score yet
    left = [*alone, *combinations(folds, 2)]
    progress(f"cross-fitting {winner.candidate.label}: {len(left)} models")
    scored = dict(zip(left, fits([(winner.candidate, each) for each in left]), strict=True))
    own = winner.scores if whole else _own(data, folds, scored)
    grown = {each: _growth(own[data.fold == each], [one.scores[data.fold == each] for left, one in scored.items()
                                                    if len(left) == 2 and each in left])
             for each in folds}  # fmt: skip
    calibrator = _calibrator(own, data, family, _ahead(own, list(grown.values())))
    if calibrator is None:
        failed = next((one.failed for one in scored.values() if one.failed), None)
        why = "" if failed is None else f" ({failed})"
        raise TableError(f"{winner.candidate.label} cannot be calibrated to {family.name}{why}")
    final = made[winner.candidate.kind]
    probability = calibrated(calibrator, final.scores)
    probability[data.learn] = _cross_fitted(family, data, own, scored, grown)[data.learn]
    if lost := int(np.isnan(probability).sum()):
        failed = next((one.failed for one in scored.values() if one.failed), "one class")
        reasons.append(f"{lost:,} images have no probability because fits without their fold fail: {failed}")
    others = [each for each in tried if all(each is not one for one in best)]
    return Fitted(
        family.name, winner.candidate, final.model, calibrator, float(winner.auroc),
        float(areas[at]) if areas else np.nan, probability,
        tuple(each._replace(scores=np.zeros(0)) for each in (*best, *others)), tuple(reasons),
    )  # fmt: skip


def _checked(data: Labelled) -> None:
    """No patient in two folds, nor among the images that are learned from and those that choose."""
    learned = data.patients[data.learn]
    folds = len(np.unique(np.column_stack([learned, data.fold[data.learn]]), axis=0)) - len(np.unique(learned))
    both = len(np.intersect1d(learned, data.patients[data.validate]))
    if folds or both:
        raise LeakageError(
            f"{folds:,} patients are in two folds, and {both:,} are in both training and validation",
            counts={"patients in two folds": folds, "patients in training and validation": both},
            next_step="split the dataset by patient",
        )


def _own(data: Labelled, folds: Sequence[int], scored: dict[Left, Made]) -> Floats:
    """The score of each learning image from the model without its fold."""
    own = np.full(len(data.y), np.nan)
    for each in folds:
        mine = data.fold == each
        own[mine] = scored[each,].scores[mine]
    return own


class Growth(NamedTuple):
    """How scores of the same images change when models learn from one fold more."""

    times: float
    centre: float  # mean before
    step: float  # of the mean


def _growth(own: Floats, pairs: Sequence[Floats]) -> Growth:
    """From the models that left out one more fold to the one that did not; no label is looked at."""
    before = [each for each in pairs if not np.isnan(each).any()]
    if not before or not own.size or np.isnan(own).any():
        return Growth(1.0, 0.0, 0.0)
    centre, spread = float(np.mean(before)), float(np.mean([each.std() for each in before]))
    times = np.clip(own.std() / spread, 0.5, 2.0) ** KNOWS_NOT if spread > 0 and own.std() > 0 else 1.0
    return Growth(float(times), centre, float(own.mean()) - centre)


def _ahead(own: Floats, grown: Sequence[Growth]) -> Growth:
    """One fold further, to the model that learns from all: growth as a power of the number of folds."""
    k = len(grown)
    power = np.log(k / (k - 1)) / np.log((k - 1) / (k - 2))
    times = np.exp(power * np.mean([np.log(each.times) for each in grown]))
    return Growth(float(times), float(np.nanmean(own)), float(power * np.mean([each.step for each in grown])))


def _cross_fitted(
    family: Family, data: Labelled, own: Floats, scored: dict[Left, Made], grown: dict[int, Growth]
) -> Floats:
    """Probabilities of the learning images, NaN where the fits that they need have failed."""
    probability = np.full(len(data.y), np.nan)
    for held, growth in grown.items():
        away = np.full(len(data.y), np.nan)  # scores from models that saw neither the image's fold nor this one
        for other in grown:
            if other != held:
                theirs = data.fold == other
                away[theirs] = scored[min(held, other), max(held, other)].scores[theirs]
        mine = (data.fold == held) & ~np.isnan(own)
        calibrator = _calibrator(away, data, family, growth)
        if calibrator is not None:
            probability[mine] = calibrated(calibrator, own[mine])
    return probability


def _calibrator(score: Floats, data: Labelled, family: Family, growth: Growth) -> Calibrator | None:
    """Fitted to the learning images that have a score and a label, for scores of models that learned from more.

    None where the labels are not of both classes.
    """
    rows = data.learn & ~np.isnan(data.y) & ~np.isnan(score)
    if len(np.unique(data.y[rows])) < 2:
        return None
    made = fit_calibrator(score[rows], data.y[rows], family.calibration)
    return stretched(made, growth.times, growth.centre + growth.step - growth.times * growth.centre)


def _fits(
    asked: Sequence[tuple[Candidate, Left]], family: Family, data: Labelled, seed: int, workers: int | None
) -> list[Made]:
    sets, rows = np.unique(data.rows, return_inverse=True)
    packed = pack(family.features if len(sets) == family.features.shape[0] else family.features[sets])
    y = np.where(data.learn, data.y, np.nan)  # other labels do not even travel
    shared = (rows, y, data.patients, data.fold, *packed)
    tasks = [(candidate, left, seed, *shared) for candidate, left in asked]
    size = packed[1].size / max(len(sets), 1) * len(rows) * len(tasks)
    got = dict(spread(_fit_one, tasks, workers=workers, quick=size < QUICK))
    return [got[at] for at in range(len(tasks))]


def _fit_one(
    candidate: Candidate, left: Left, seed: int,
    rows: Integers, y: Floats, patients: Integers, fold: Integers, width: int, *arrays: Any,
) -> Made:  # fmt: skip
    """Fit to the images that have a label, but for some folds, and score these; all where none is left out."""
    out = np.isin(fold, left)
    seen, asked = np.flatnonzero(~out & ~np.isnan(y)), np.flatnonzero(out | (not left))
    made = fit_and_score(candidate, unpack(width, *arrays), rows, y, patients, seed, seen, asked)
    found = np.full(len(y), np.nan)
    if made.failed is None:
        found[asked] = made.scores
    return Made(found, None if left else made.model, made.failed)
