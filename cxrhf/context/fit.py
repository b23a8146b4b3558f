"""Material -> a calibrated pre-test probability for every image with prior notes, and the models that give it.

For each finding and each way to read the notes (a family: words, boosted trees on the words, an encoder): candidates
are cross-validated on patients (sweep), the best is fitted and calibrated (crossfit), and the best family of the
finding is what `model="context"` says. No label of the test split is looked at. A finding and family that is done is
kept in the checkpoint folder, so a fit that was stopped goes on there.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.context.bow import too_few
from cxrhf.context.explain import describe_family
from cxrhf.context.families import Families, make_families
from cxrhf.context.join import mentions_of, prediction_rows
from cxrhf.context.material import (
    Calibrator,
    Candidate,
    Family,
    Fitted,
    Flags,
    Floats,
    Integers,
    Labelled,
    Material,
    Progress,
    Tried,
    one_split_each,
)
from cxrhf.context.settings import ENOUGH, FEWEST, ContextFitConfig
from cxrhf.context.store import Bundle, StoredModel, file_stem, load_one, save_one
from cxrhf.context.sweep import QUICK, best_of_each_kind, deal, fit_and_score, pack, spread, unpack
from cxrhf.errors import LeakageError, TableError
from cxrhf.learn import apply_calibrator, fit_calibrator, rescale_calibrator
from cxrhf.metrics import auroc
from cxrhf.settings import to_mapping

MODEL = "context"
FORMAT = 1
TRAIN, VALIDATE, TEST = "train", "validate", "test"


@dataclass(frozen=True, slots=True)
class Context:
    """PREDICTION rows (`scored`: every family, and "context"), what was chosen and why, and the models to keep."""

    scored: pa.Table = field(repr=False)
    choices: dict[str, Any] = field(repr=False)
    bundle: Bundle = field(repr=False)
    notes: list[str]

    @property
    def predictions(self) -> pa.Table:
        """The rows of the chosen families: model = "context"."""
        return self.scored.filter(pc.equal(self.scored["model"], MODEL))


def fit_context(
    material: Material,
    config: ContextFitConfig,
    *,
    checkpoint: Path | None = None,
    cache: str | Path | None = None,
    inputs: str = "",
    progress: Progress = lambda _: None,
) -> Context | None:
    """Fit every finding of the material; None in processes that only helped to encode.

    `inputs` is a fingerprint of the data: what a checkpoint was made from besides the config.
    """
    learn, validate = roles(one_split_each(material), config.choose)
    said = [_notes_sentence(material)]
    described = {name: _count_finding(material, at, learn, config) for at, name in enumerate(material.findings)}
    if config.min_patients is None and not _any(described):
        config = replace(config, min_patients=FEWEST)
        said.append(
            f"no finding has {ENOUGH} patients with and without it: the fit requires only {FEWEST}, which is enough to "
            "try it out but not to report results"
        )
        described = {name: _count_finding(material, at, learn, config) for at, name in enumerate(material.findings)}
    _refuse_none(described, config)  # before hours are spent on encoding
    made = make_families(material, learn, config, cache=cache, progress=progress)
    if made is None:
        return None
    fitted: dict[str, dict[str, Fitted]] = {}
    without: dict[str, float] = {}
    more = np.full(material.y.shape, np.nan)
    for at, finding in enumerate(material.findings):
        if why := described[finding]["reason"]:
            said.append(f"{finding}: no pre-test probability: {why}")
            continue
        progress(f"{finding} ({at + 1} of {len(material.findings)})")
        data = _label_images(material, material.y[:, at], learn, validate, config)
        marks = {each.name: _fingerprint_fit(each, made, finding, config, inputs) for each in made.all}
        done, failed = _fit_families(made, data, finding, marks, config, checkpoint, progress)
        said += [f"{finding}: {why}" for why in failed]
        if not done:
            described[finding]["reason"] = failed[0]
            continue
        fitted[finding] = done
        best = choose(list(done.values()))
        described[finding] |= {
            "chosen": best.family,
            "families": {
                each.name: describe_family(done[each.name], each, made, data, config)
                for each in made.all
                if each.name in done
            },
        }
        said += [f"{finding}: {reason}" for reason in best.reasons]
        if config.no_note == "stratum":
            more[:, at], share, reason = without_notes(material, at, learn, config)
            if reason:
                said.append(f"{finding}: no pre-test probability for images without notes: {reason}")
            else:
                without[finding] = share
    _refuse_none(described, config)
    choices = {
        "format": FORMAT,
        "findings": described,
        "without_notes": _describe_without_notes(material, config),
        "mention_rule": config.mention_rule,
        "choose": config.choose,
        "splits": {"learned": [TRAIN, VALIDATE] if config.choose == "pooled" else [TRAIN]},
    }
    scored = _scored_rows(material, fitted, described, more, config)
    return Context(scored, choices, _bundle(fitted, described, made, without, config), said)


def _count_finding(material: Material, finding: int, learn: Flags, config: ContextFitConfig) -> dict[str, Any]:
    """Counts of a finding's images with notes, and why it cannot be fitted, if so."""
    y, usable = material.y[:, finding], material.noted & learn
    few = too_few(y[usable], material.patients[usable], config.needed())
    return {
        "chosen": None,
        "reason": few and few.replace("prior notes exist", "training images with prior notes exist"),
        **_counts(y, material.patients, material.noted),
        "learned": _counts(y, material.patients, usable),
        "families": {},
    }


def _any(described: Mapping[str, Mapping[str, Any]]) -> bool:
    return any(each["reason"] is None for each in described.values())


def _refuse_none(described: Mapping[str, Mapping[str, Any]], config: ContextFitConfig) -> None:
    if _any(described):
        return
    first = next(iter(described.values()), {"reason": "the images have no labels"})
    raise TableError(
        f"no finding can be fitted ({first['reason']})",
        allowed=f"at least {config.needed()} patients with and without the finding among images with notes",
        next_step=f"build a larger dataset, or lower --min-patients (it must be {FEWEST} or more)",
    )


def roles(material: Material, choose: str) -> tuple[Flags, Flags]:
    """Images that are learned from, and images that choose. A build without a training split cannot be learned from."""
    train, validate = material.split(TRAIN), material.split(VALIDATE)
    if not train.any():
        there = sorted({str(each) for each in material.images["split"].unique().to_pylist()})
        raise TableError(
            "the build",
            allowed="training images, to learn from their notes",
            got=f"splits {', '.join(there)}",
            next_step="use cxrhf context predict, or build with a split: cxrhf build ... --split ratio",
        )
    nobody = np.zeros(len(train), dtype=bool)
    return (train | validate, nobody) if choose == "pooled" else (train, validate)


def choose(fitted: Sequence[Fitted]) -> Fitted:
    """The best family of a finding: by validation where it could say something of all, else by cross-validation."""
    validated = all(not math.isnan(each.validation_auroc) for each in fitted)
    return max(fitted, key=lambda each: (each.validation_auroc if validated else each.cv_auroc, each.cv_auroc))


def _label_images(material: Material, y: Floats, learn: Flags, validate: Flags, config: ContextFitConfig) -> Labelled:
    noted = material.noted
    patients = material.patients[noted]
    labels, learned = y[noted], learn[noted]
    fold = deal(labels, patients, learned, config.folds, config.seed)
    return Labelled(material.set_of[noted], labels, patients, learned, validate[noted], fold)


def _fit_families(
    made: Families,
    data: Labelled,
    finding: str,
    marks: Mapping[str, str],
    config: ContextFitConfig,
    checkpoint: Path | None,
    progress: Progress,
) -> tuple[dict[str, Fitted], list[str]]:
    """Every family of one finding; one that cannot be fitted is told and does not stop the others."""
    done: dict[str, Fitted] = {}
    failed = []
    for each in made.all:
        try:
            done[each.name] = _fit_one_family(each, data, finding, marks[each.name], config, checkpoint, progress)
        except TableError as error:
            failed.append(str(error))
    return done, failed


def _fit_one_family(
    family: Family,
    data: Labelled,
    finding: str,
    mark: str,
    config: ContextFitConfig,
    checkpoint: Path | None,
    progress: Progress,
) -> Fitted:
    """One finding and family, from the checkpoint if it was done before."""
    from cxrhf.context.sweep import sweep_candidates

    place = None if checkpoint is None else checkpoint / f"{finding}--{file_stem(family.name)}"
    if place is not None and (kept := load_one(place, mark, family.features.shape[1])) is not None:
        progress(f"{finding}: {family.name} was fitted before")
        return kept

    def say(text: str) -> None:
        progress(f"{finding}: {text}")

    tried = sweep_candidates(family, data, seed=config.seed, workers=config.workers, progress=say)
    done = fit_family(family, data, tried, seed=config.seed, workers=config.workers, choose=config.choose, progress=say)
    if place is not None:
        save_one(place, mark, done)
    return done


# Settings that change no number of a fit.
_IGNORED_SETTINGS = ("out", "build", "findings", "features", "encoders", "workers", "dask", "device", "batch_tokens",
                     "cache", "overwrite", "n_resamples", "level", "no_note", "mention_rule")  # fmt: skip


def _fingerprint_fit(family: Family, made: Families, finding: str, config: ContextFitConfig, inputs: str) -> str:
    """What a finished finding and family was made from: data, settings, candidates, features."""
    settings = {key: value for key, value in to_mapping(config).items() if key not in _IGNORED_SETTINGS}
    candidates = [[each.kind, dict(each.params)] for each in family.candidates]
    parts = [inputs, finding, family.name, settings, candidates, made.prints[family.name]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _counts(y: Floats, patients: Any, noted: Flags) -> dict[str, int]:
    known = noted & ~np.isnan(y)
    return {
        "n": int(known.sum()),
        "n_pos": int((y[known] == 1).sum()),
        "n_patients": len(np.unique(patients[known])),
    }


def _notes_sentence(material: Material) -> str:
    there, patients = material.noted, material.patients
    said = (
        f"{int(there.sum()):,} of {len(there):,} images have prior notes "
        f"({material.notes.num_rows:,} notes of {len(np.unique(patients[there])):,} patients)"
    )
    rest = len(there) - int(there.sum())
    return said if not rest else f"{said}; {rest:,} images of {len(np.unique(patients[~there])):,} patients have none"


def _describe_without_notes(material: Material, config: ContextFitConfig) -> dict[str, Any]:
    alone = ~material.noted
    return {
        "images": int(alone.sum()),
        "patients": len(np.unique(material.patients[alone])),
        "how": config.no_note,
    }


def _scored_rows(
    material: Material,
    fitted: Mapping[str, Mapping[str, Fitted]],
    described: Mapping[str, Mapping[str, Any]],
    more: Floats,
    config: ContextFitConfig,
) -> pa.Table:
    """PREDICTION rows of every family and of the chosen one, for all images with notes (and, as a stratum, without)."""
    said = mentions_of(material, config.mention_rule, stratum=config.no_note == "stratum")
    parts = []
    for at, finding in enumerate(material.findings):
        if finding not in fitted:  # a prior mention is known all the same
            rows = np.flatnonzero(~np.isnan(said[:, at]))
            nothing = np.full(len(rows), np.nan)
            parts.append(prediction_rows(material, rows, at, MODEL, nothing, said[rows, at], config.seed))
            continue
        families = dict(fitted[finding])
        for name, each in [(MODEL, families[described[finding]["chosen"]]), *families.items()]:
            probability = more[:, at].copy()
            probability[material.noted] = each.probability
            rows = np.flatnonzero(~np.isnan(probability))
            parts.append(prediction_rows(material, rows, at, name, probability[rows], said[rows, at], config.seed))
    return pa.concat_tables(parts)


def _bundle(
    fitted: Mapping[str, Mapping[str, Fitted]],
    described: Mapping[str, Mapping[str, Any]],
    made: Families,
    without: Mapping[str, float],
    config: ContextFitConfig,
) -> Bundle:
    """The chosen models and what is needed to read new notes with them."""
    kinds = {each.name: each.kind for each in made.all}
    chosen = {finding: fitted[finding][described[finding]["chosen"]] for finding in fitted}
    used = {each.family for each in chosen.values()}
    models = {
        finding: StoredModel(finding, each.family, kinds[each.family], each.candidate, each.model, each.calibrator)
        for finding, each in chosen.items()
    }
    kept = to_mapping(replace(config, build="", out=None, cache=None, dask=None))
    return Bundle(
        models=models,
        vocabularies={name: each for name, each in made.vocabularies.items() if name in used},
        encoders={name: each for name, each in made.encoders.items() if name in used},
        without_notes=dict(without),
        config=kept,
    )


# Candidates that were tried -> the best one fitted and calibrated, and its probability of every image.
#
# Choice: the best parameters of each kind of classifier by cross-validation; between kinds by the AUROC on the
# validation split, each fitted to all learning images; by cross-validation where there is no validation split or it
# is too small. Images that were not learned from get the winner's score, through a calibrator that was fitted to the
# scores which learning images got out of fold.
#
# Learning images of fold u get the score of the winner fitted without fold u, through a calibrator fitted to the
# scores that every other fold v got from the winner fitted without u and v. So no label of a fold plays a part in its
# own probabilities, and a learning image gets what a new image would get, from four fifths of the patients: one
# model's score and a calibrator for scores of one model. Five folds take ten fits more than cross-validation, fifty
# would take 1,225.
#
# Models that learn from more say more: under a penalty scores spread wider (WordRidge: by a fifth from three folds to
# four), and only part of it is knowledge. How far is seen without labels, between the scores that fold u gets with
# and without another fold; the calibrator is stretched by the square root of it, and for the model of all images as
# if one step further. Without that, probabilities of WordRidge and logistic regression are too bold.
#
# Measured on planted words (250 or 1,000 patients to learn from, four images each; 16 to 30 draws; others: 1,500 new
# patients), calibration slope and adaptive calibration error above what chance gives:
#   learning images   LinearSVC 1.03 to 1.09, WordRidge .98 to 1.05, logistic 1.01 to 1.02; error -.003 to .001. In a
#                     few draws: boosted trees .99 to 1.03, discriminant analysis 1.11 to 1.14
#   new patients      LinearSVC 1.06 to 1.20, WordRidge 1.01 to 1.10, logistic 1.01 to 1.11; error .002 to .012;
#                     single draws scatter by .05 (1,000 patients, clear signs) to .3. Boosted trees 1.01 to 1.05,
#                     error .003 to .006, with 250 patients .028
#   not stretched     WordRidge .90 to .95, error of new patients .0054 instead of .0022 (1,000 patients, clear signs)
#   mean of four      1.10 to 1.26 for all: the mean over the models without u and one more fold, which bow.py takes.
#                     Four models know more than one, and the calibrator is that of one. AUROC as here within .002,
#                     boosted trees .005 better.
# On the twin, which had no part in this (3,500 patients, half of them new, six findings, WordRidge, means): learning
# images .96, not stretched .90; new patients .99, not stretched .94; error .007 and .016.
#
# Known gaps: which classifier and which parameters are best was decided with the labels of all folds. Where notes say
# next to nothing (AUROC under .55) slopes scatter around a half: a calibrator of few patients then rests on chance.

# Patients with and without the finding that validation needs to choose between classifiers.
VALIDATES = 10
# The power of the growth of scores that is no knowledge: of 0, .5 and 1 this gave slopes nearest 1, the least error.
KNOWS_NOT = 0.5
LeftFolds = tuple[int, ...]  # folds that a fit leaves out


class FoldFit(NamedTuple):
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

    def fits(asked: Sequence[tuple[Candidate, LeftFolds]]) -> list[FoldFit]:
        return _fits(asked, family, data, seed, workers)

    best = best_of_each_kind(tried)
    reasons: list[str] = []
    small = too_few(data.y[data.validate], data.patients[data.validate], VALIDATES) if choose == "validation" else ""
    if small:
        reasons.append(f"cross-validation chose the classifier because the validation split is too small: {small}")
    made: dict[str, FoldFit] = {}
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
    alone: list[LeftFolds] = [] if whole else [(each,) for each in folds]  # images without a label have no score yet
    left = [*alone, *combinations(folds, 2)]
    progress(f"cross-fitting {winner.candidate.label}: {len(left)} models")
    scored = dict(zip(left, fits([(winner.candidate, each) for each in left]), strict=True))
    own = winner.scores if whole else _out_of_fold_scores(data, folds, scored)
    grown = {each: _growth(own[data.fold == each], [one.scores[data.fold == each] for left, one in scored.items()
                                                    if len(left) == 2 and each in left])
             for each in folds}  # fmt: skip
    calibrator = _calibrator(own, data, family, _extrapolate_growth(own, list(grown.values())))
    if calibrator is None:
        failed = next((one.failed for one in scored.values() if one.failed), None)
        why = "" if failed is None else f" ({failed})"
        raise TableError(f"{winner.candidate.label} cannot be calibrated to {family.name}{why}")
    final = made[winner.candidate.kind]
    probability = apply_calibrator(calibrator, final.scores)
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


def _out_of_fold_scores(data: Labelled, folds: Sequence[int], scored: dict[LeftFolds, FoldFit]) -> Floats:
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


def _extrapolate_growth(own: Floats, grown: Sequence[Growth]) -> Growth:
    """One fold further, to the model that learns from all: growth as a power of the number of folds."""
    k = len(grown)
    power = np.log(k / (k - 1)) / np.log((k - 1) / (k - 2))
    times = np.exp(power * np.mean([np.log(each.times) for each in grown]))
    return Growth(float(times), float(np.nanmean(own)), float(power * np.mean([each.step for each in grown])))


def _cross_fitted(
    family: Family, data: Labelled, own: Floats, scored: dict[LeftFolds, FoldFit], grown: dict[int, Growth]
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
            probability[mine] = apply_calibrator(calibrator, own[mine])
    return probability


def _calibrator(score: Floats, data: Labelled, family: Family, growth: Growth) -> Calibrator | None:
    """Fitted to the learning images that have a score and a label, for scores of models that learned from more.

    None where the labels are not of both classes.
    """
    rows = data.learn & ~np.isnan(data.y) & ~np.isnan(score)
    if len(np.unique(data.y[rows])) < 2:
        return None
    made = fit_calibrator(score[rows], data.y[rows], family.calibration)
    return rescale_calibrator(made, growth.times, growth.centre + growth.step - growth.times * growth.centre)


def _fits(
    asked: Sequence[tuple[Candidate, LeftFolds]], family: Family, data: Labelled, seed: int, workers: int | None
) -> list[FoldFit]:
    sets, rows = np.unique(data.rows, return_inverse=True)
    packed = pack(family.features if len(sets) == family.features.shape[0] else family.features[sets])
    y = np.where(data.learn, data.y, np.nan)  # other labels do not even travel
    shared = (rows, y, data.patients, data.fold, *packed)
    tasks = [(candidate, left, seed, *shared) for candidate, left in asked]
    size = packed[1].size / max(len(sets), 1) * len(rows) * len(tasks)
    got = dict(spread(_fit_one, tasks, workers=workers, quick=size < QUICK))
    return [got[at] for at in range(len(tasks))]


def _fit_one(
    candidate: Candidate, left: LeftFolds, seed: int,
    rows: Integers, y: Floats, patients: Integers, fold: Integers, width: int, *arrays: Any,
) -> FoldFit:  # fmt: skip
    """Fit to the images that have a label, but for some folds, and score these; all where none is left out."""
    out = np.isin(fold, left)
    seen, asked = np.flatnonzero(~out & ~np.isnan(y)), np.flatnonzero(out | (not left))
    made = fit_and_score(candidate, unpack(width, *arrays), rows, y, patients, seed, seen, asked)
    found = np.full(len(y), np.nan)
    if made.failed is None:
        found[asked] = made.scores
    return FoldFit(found, None if left else made.model, made.failed)


# Images without prior notes -> a pre-test probability all the same: the share of positives among such images.
#
# Known gap: learning images get the share of the other folds, which is a little lower where their own fold has more
# positives; folds are dealt so that this is next to nothing.


def without_notes(
    material: Material, finding: int, learn: Flags, config: ContextFitConfig
) -> tuple[Floats, float, str | None]:
    """Pre-test probability of images without prior notes, a stratum of its own: its share of positives in training.

    Half a made-up image of each class keeps it from 0 and 1. Learning images get the share of the other folds (whole
    patients, positives spread evenly), so none is told its own label. Returns the probability of every image (NaN where
    there are notes), the share for images that were not learned from, and why there is none, if so.
    """
    probability = np.full(len(material.noted), np.nan)
    y, alone = material.y[:, finding], ~material.noted
    learned = alone & learn
    known = learned & ~np.isnan(y)
    count = len(np.unique(material.patients[known]))
    if count < config.needed():
        several = "s" * (count != 1)
        reason = f"{count} patient{several} with a label and no prior note; at least {config.needed()} are required"
        return probability, np.nan, reason
    who, of = np.unique(material.patients[learned], return_inverse=True)
    positive = np.bincount(of, np.nan_to_num(y[learned]), minlength=len(who)) > 0
    chance = np.random.default_rng(config.seed).random(len(who))
    place = np.empty(len(who), dtype=np.int64)
    place[np.lexsort((chance, positive))] = np.arange(len(who)) % config.folds
    fold = np.full(len(y), -1)
    fold[learned] = place[of]

    def share(rows: Flags) -> float:
        return float((np.sum(y[rows] == 1) + 0.5) / (rows.sum() + 1))

    probability[alone] = share(known)
    for each in range(config.folds):
        probability[fold == each] = share(known & (fold != each))
    return probability, share(known), None
