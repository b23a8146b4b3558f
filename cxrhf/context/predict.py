"""Saved models and other material -> pre-test probabilities; pre-test probabilities -> onto an image model's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.context.families import features_again
from cxrhf.context.fit import MODEL
from cxrhf.context.join import JoinedContext, mentions_of, prediction_rows
from cxrhf.context.material import Features, Floats, Material, Progress
from cxrhf.context.store import Bundle
from cxrhf.encode.settings import EncodeConfig
from cxrhf.errors import TableError
from cxrhf.learn import apply_calibrator


def predict_context(
    bundle: Bundle,
    material: Material,
    *,
    device: str = "auto",
    cache: str | Path | None = None,
    allow_bin: bool = False,
    fetch: bool = False,
    progress: Progress = lambda _: None,
) -> pa.Table:
    """PREDICTION rows of `model="context"` for every image with prior notes; labels are carried along, never used.

    Without labels of a finding in the material its rows have none. Images without notes get the share of positives
    among such images where the fit made them a stratum of their own.
    """
    from cxrhf.context.sweep import scores

    stratum = bundle.config.get("no_note") == "stratum"
    mention = mentions_of(material, str(bundle.config.get("mention_rule", "words")), stratum=stratum)
    seed = int(bundle.config.get("seed", 0))
    encoders = open_encoders(bundle, material.findings, device=device, allow_bin=allow_bin, fetch=fetch)
    made: dict[str, Features] = {}
    parts = []
    for at, finding in enumerate(material.findings):
        stored = bundle.models.get(finding)
        if stored is None:
            continue
        if stored.family not in made:
            progress(f"reading the notes of {int(material.noted.sum()):,} images: {stored.family}")
            made[stored.family] = features_again(
                material,
                bundle.vocabularies.get(stored.family),
                encoders.get(stored.family),
                cache=cache,
                progress=progress,
            )
        of_set = apply_calibrator(stored.calibrator, scores(stored.model, made[stored.family]))
        probability: Floats = np.full(len(material.noted), bundle.without_notes.get(finding, np.nan))
        probability[material.noted] = of_set[material.set_of[material.noted]]
        rows = np.flatnonzero(~np.isnan(probability))
        parts.append(prediction_rows(material, rows, at, MODEL, probability[rows], mention[rows, at], seed))
    if not parts:
        raise TableError(
            "findings of the images",
            got=", ".join(material.findings),
            allowed=f"at least one that the models were fitted for ({', '.join(bundle.models)})",
        )
    return pa.concat_tables(parts)


def open_encoders(
    bundle: Bundle, findings: Sequence[str], *, device: str, allow_bin: bool, fetch: bool
) -> dict[str, EncodeConfig]:
    """The encoders that read the notes for these findings, checked before the first note is read.

    Somebody else may have made the models. So what they ask of this machine counts for nothing: .bin weights and a
    fetch from the Hub are for the user to allow.
    """
    from cxrhf.encode import same_encoder, saved_settings
    from cxrhf.encode.download import check_kept

    used = {bundle.models[each].family for each in findings if each in bundle.models}
    found = {}
    for name, about in bundle.encoders.items():
        if name not in used:
            continue
        saved = saved_settings(about)
        size = min(saved.batch_tokens, EncodeConfig().batch_tokens)
        found[name] = replace(saved, device=device, allow_bin=allow_bin, batch_tokens=size)
        if not fetch:
            check_kept(found[name])
        same_encoder(about["identity"], found[name])
    return found


def check_same_images(fresh: pa.Table, stored: pa.Table) -> list[str]:
    """What ids alone cannot settle between rows of a build and rows of the fit.

    An image of the fit with another patient is an error, in one dataset; in another it says nothing.
    """
    at = pc.index_in(fresh["image_id"], value_set=stored["image_id"].combine_chunks())
    one_dataset = pc.equal(stored["dataset"].take(at).fill_null(""), fresh["dataset"].fill_null(""))
    one_patient = pc.equal(stored["patient_id"].take(at), fresh["patient_id"])
    wrong = pc.unique(fresh.filter(pc.and_(one_dataset, pc.invert(one_patient)).fill_null(False))["image_id"])
    if len(wrong):
        raise TableError(
            f"{len(wrong):,} images of the fit have a different patient in this build, so the ids do not match",
            next_step="predict for the build of the fit, or fit again: cxrhf context fit BUILD",
        )
    twins = pc.unique(fresh.filter(pc.and_(one_patient, pc.invert(one_dataset)).fill_null(False))["image_id"])
    if not len(twins):
        return []
    return [
        f"{len(twins):,} images share image and patient ids with images of the fit, but have another dataset name: "
        "they count as other patients; if they are the same, the models have seen their labels"
    ]


def join_context(predictions: pa.Table, context: pa.Table) -> JoinedContext:
    """Rows of `model="context"` -> the columns `pretest` and `mention` of an image model's rows, by image and finding.

    What the predictions have in these columns is replaced, so that strata are never made of two sources; a column that
    the run has not at all is kept. An image whose patient is another one in the two tables is an error: then the ids
    mean different things.
    """
    known = context.filter(pc.equal(context["model"], MODEL))
    key = _image_finding_key(known)
    if len(pc.unique(key)) < len(key):
        raise TableError(
            "the context run has two rows for one image and finding",
            next_step="pass the run folder of a single cxrhf context fit",
        )
    at = pc.index_in(_image_finding_key(predictions), value_set=key)
    if at.null_count == len(at):
        raise TableError(
            "the context run and the predictions share no image and finding",
            got=f"{_common(known, predictions, 'image_id')} images and {_common(known, predictions, 'finding')} "
            f"findings in both (context: {_first_values(known, 'finding')}; "
            f"predictions: {_first_values(predictions, 'finding')})",
            allowed="the same image ids and findings in both, written in the same way",
            next_step="name the image column: cxrhf audit PREDICTIONS --context RUN --image COLUMN",
        )
    theirs, ours = known["patient_id"].take(at), predictions["patient_id"]
    wrong = pc.sum(pc.not_equal(theirs, ours)).as_py() or 0
    named = pc.sum(pc.not_equal(predictions["patient_id"], predictions["image_id"])).as_py() or 0
    if wrong and named:  # without a patient column every image is a patient of its own, which contradicts nothing
        raise TableError(
            f"{wrong:,} rows have different patients in the context run and in the predictions",
            next_step="use the context run of this dataset; or name the columns: cxrhf audit PREDICTIONS --context "
            "RUN --image COLUMN --patient COLUMN",
        )
    said: list[str] = []
    table = predictions
    about: dict[str, Any] = {"rows": predictions.num_rows, "rows_with_context": len(at) - at.null_count}
    for name, column in (("pretest", "prob"), ("mention", "mention")):
        place = table.schema.get_field_index(name)
        values = known[column].take(at)
        if values.null_count == len(values):
            continue
        if own := table.num_rows - table[name].null_count:
            said.append(
                f"the predictions have their own {name} in {own:,} rows: the context run's replaces it; omit --context "
                "to use theirs"
            )
        table = table.set_column(place, table.schema.field(place), values)
    about["train_prevalence"] = _train_prevalence(known)
    said += _missing_pretest_notes(predictions, known, at, about)
    return JoinedContext(table, said, about)


def _train_prevalence(context: pa.Table) -> dict[str, float]:
    """The share of positives among the training rows of each finding, where they are among the context rows."""
    train = context.filter(pc.and_(pc.equal(context["split"], "train"), pc.is_valid(context["label"])).fill_null(False))
    shares = train.group_by("finding").aggregate([("label", "mean")]).to_pylist()
    return {row["finding"]: row["label_mean"] for row in shares if 0 < row["label_mean"] < 1}


def _missing_pretest_notes(
    predictions: pa.Table, known: pa.Table, at: pa.ChunkedArray, about: dict[str, Any]
) -> list[str]:
    """Who gets no pre-test probability: findings that were not fitted, and images without prior notes."""
    fitted = pc.unique(known.filter(pc.is_valid(known["prob"]))["finding"])
    other = [each for each in pc.unique(predictions["finding"]).to_pylist() if each not in fitted.to_pylist()]
    said = [f"the context run has no pre-test probability for {', '.join(other)}"] if other else []
    rest = predictions.filter(pc.and_(pc.is_null(at), pc.is_in(predictions["finding"], value_set=fitted)))
    about["images_without_context"] = len(pc.unique(rest["image_id"]))
    if rest.num_rows:
        said.append(
            f"{about['images_without_context']:,} of {len(pc.unique(predictions['image_id'])):,} images have no "
            "pre-test probability (no prior note, or not in the context run): the audits of context exclude them"
        )
    return said


def _image_finding_key(table: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(table["image_id"], table["finding"], "\x1f")


def _common(one: pa.Table, other: pa.Table, name: str) -> int:
    return int(pc.sum(pc.is_in(pc.unique(one[name]), value_set=pc.unique(other[name]))).as_py() or 0)


def _first_values(table: pa.Table, name: str) -> str:
    values = pc.unique(table[name]).to_pylist()
    return ", ".join(map(str, values[:5])) + (", ..." if len(values) > 5 else "")
