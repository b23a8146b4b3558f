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
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.config import to_mapping
from cxrhf.config_context import ENOUGH, FEWEST, ContextFitConfig
from cxrhf.context.bow import too_few
from cxrhf.context.choices import describe
from cxrhf.context.crossfit import fit_family
from cxrhf.context.families import Families, make_families
from cxrhf.context.folds import deal
from cxrhf.context.material import Material, one_split_each
from cxrhf.context.parts import Family, Fitted, Flags, Floats, Labelled, Progress
from cxrhf.context.rows import mentions_of, prediction_rows
from cxrhf.context.store import Bundle, StoredModel, file_stem, load_one, save_one
from cxrhf.context.stratum import without_notes
from cxrhf.errors import TableError

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
    said = [_counted(material)]
    described = {name: _asked(material, at, learn, config) for at, name in enumerate(material.findings)}
    if config.min_patients is None and not _any(described):
        config = replace(config, min_patients=FEWEST)
        said.append(
            f"no finding has {ENOUGH} patients with and without it: the fit requires only {FEWEST}, which is enough to "
            "try it out but not to report results"
        )
        described = {name: _asked(material, at, learn, config) for at, name in enumerate(material.findings)}
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
        data = _labelled(material, material.y[:, at], learn, validate, config)
        marks = {each.name: _mark(each, made, finding, config, inputs) for each in made.all}
        done, failed = _every(made, data, finding, marks, config, checkpoint, progress)
        said += [f"{finding}: {why}" for why in failed]
        if not done:
            described[finding]["reason"] = failed[0]
            continue
        fitted[finding] = done
        best = choose(list(done.values()))
        described[finding] |= {
            "chosen": best.family,
            "families": {
                each.name: describe(done[each.name], each, made, data, config) for each in made.all if each.name in done
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
        "without_notes": _without(material, config),
        "mention_rule": config.mention_rule,
        "choose": config.choose,
        "splits": {"learned": [TRAIN, VALIDATE] if config.choose == "pooled" else [TRAIN]},
    }
    scored = _scored(material, fitted, described, more, config)
    return Context(scored, choices, _bundle(fitted, described, made, without, config), said)


def _asked(material: Material, finding: int, learn: Flags, config: ContextFitConfig) -> dict[str, Any]:
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


def _labelled(material: Material, y: Floats, learn: Flags, validate: Flags, config: ContextFitConfig) -> Labelled:
    noted = material.noted
    patients = material.patients[noted]
    labels, learned = y[noted], learn[noted]
    fold = deal(labels, patients, learned, config.folds, config.seed)
    return Labelled(material.set_of[noted], labels, patients, learned, validate[noted], fold)


def _every(
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
            done[each.name] = _one(each, data, finding, marks[each.name], config, checkpoint, progress)
        except TableError as error:
            failed.append(str(error))
    return done, failed


def _one(
    family: Family,
    data: Labelled,
    finding: str,
    mark: str,
    config: ContextFitConfig,
    checkpoint: Path | None,
    progress: Progress,
) -> Fitted:
    """One finding and family, from the checkpoint if it was done before."""
    from cxrhf.context.sweep import sweep

    place = None if checkpoint is None else checkpoint / f"{finding}--{file_stem(family.name)}"
    if place is not None and (kept := load_one(place, mark, family.features.shape[1])) is not None:
        progress(f"{finding}: {family.name} was fitted before")
        return kept

    def say(text: str) -> None:
        progress(f"{finding}: {text}")

    tried = sweep(family, data, seed=config.seed, workers=config.workers, progress=say)
    done = fit_family(family, data, tried, seed=config.seed, workers=config.workers, choose=config.choose, progress=say)
    if place is not None:
        save_one(place, mark, done)
    return done


# Settings that change no number of a fit.
_ASIDE = ("out", "build", "findings", "features", "encoders", "workers", "dask", "device", "batch_tokens", "cache",
          "overwrite", "n_resamples", "level", "no_note", "mention_rule")  # fmt: skip


def _mark(family: Family, made: Families, finding: str, config: ContextFitConfig, inputs: str) -> str:
    """What a finished finding and family was made from: data, settings, candidates, features."""
    settings = {key: value for key, value in to_mapping(config).items() if key not in _ASIDE}
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


def _counted(material: Material) -> str:
    there, patients = material.noted, material.patients
    said = (
        f"{int(there.sum()):,} of {len(there):,} images have prior notes "
        f"({material.notes.num_rows:,} notes of {len(np.unique(patients[there])):,} patients)"
    )
    rest = len(there) - int(there.sum())
    return said if not rest else f"{said}; {rest:,} images of {len(np.unique(patients[~there])):,} patients have none"


def _without(material: Material, config: ContextFitConfig) -> dict[str, Any]:
    alone = ~material.noted
    return {
        "images": int(alone.sum()),
        "patients": len(np.unique(material.patients[alone])),
        "how": config.no_note,
    }


def _scored(
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
