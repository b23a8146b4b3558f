"""A fitted classifier's weights -> the words that move its probability most.

Words are ranked by weight times the standard deviation of the word's feature over the learning images: a large weight
on a word that hardly anybody has moves hardly any probability. `by_spread=False` ranks by the weight alone, as the
paper's Table A.12 does. On the twin (1,500 patients, 12 findings, short and full notes) more of the first ten words
were planted ones with the spread, for each of five linear classifiers, a random forest and boosted trees: .71 against
.61 for a linear SVM with C = .1, .48 against .13 for logistic regression, .85 against .73 for the forest.
Words of fewer than five patients are never shown: a rare word may be a name.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import sparse

from cxrhf.context.families import Families
from cxrhf.context.material import Family, Features, Fitted, Floats, Integers, Labelled, Material
from cxrhf.context.sealed import require
from cxrhf.context.settings import ContextFitConfig
from cxrhf.context.words import MIN_PATIENTS
from cxrhf.errors import TableError, did_you_mean, shorten


def top_features(
    values: NDArray[Any],
    words: Sequence[str],
    n_patients: Integers,
    features: Features,
    *,
    top: int,
    by_spread: bool = True,
) -> list[dict[str, Any]]:
    """The words that move the probability most, first first: word, value, rank, effect.

    `value` is the model's weight or importance, `effect` what it is ranked by (value times spread, or value alone).
    `features` are the rows of the learning images, `n_patients` how many patients have each word. Words of weight 0 are
    left out; among equals the alphabet decides.
    """
    weight = np.asarray(values, dtype=np.float64).ravel()
    if not len(weight) == len(words) == len(n_patients) == features.shape[1]:
        raise ValueError(
            f"{len(weight)} values, {len(words)} words, {len(n_patients)} counts, {features.shape[1]} features"
        )
    effect = weight * spread(features) if by_spread else weight
    size = np.where(np.isfinite(effect), np.abs(effect), 0.0)
    shown = np.flatnonzero((size > 0) & (np.asarray(n_patients) >= MIN_PATIENTS))
    # Only ties at the edge need more than `top` words looked at by name.
    if len(shown) > top > 0:
        edge = np.partition(size[shown], len(shown) - top)[len(shown) - top]
        shown = shown[size[shown] >= edge]
    order = sorted(shown.tolist(), key=lambda at: (-size[at], words[at]))[: max(top, 0)]
    return [
        {"word": str(words[at]), "value": float(weight[at]), "rank": rank, "effect": float(effect[at])}
        for rank, at in enumerate(order, start=1)
    ]


def spread(features: Features) -> Floats:
    """Standard deviation of each feature over the rows."""
    if features.shape[0] == 0:
        return np.zeros(features.shape[1])
    if sparse.issparse(features):
        # A column at a time would be slow and the whole as dense too large: two sums suffice.
        values = features.tocsr().astype(np.float64)
        values.sum_duplicates()
        n, width = values.shape
        mean = np.bincount(values.indices, values.data, minlength=width) / n
        stored = np.bincount(values.indices, minlength=width)
        away = np.bincount(values.indices, (values.data - mean[values.indices]) ** 2, minlength=width)
        return np.asarray(np.sqrt((away + (n - stored) * mean**2) / n), dtype=np.float64)
    return np.asarray(np.std(np.asarray(features, dtype=np.float64), axis=0))


# A finding's fitted family -> what context.json says of it: classifier, parameters, everything tried, top words.

KEPT_WORDS = 50  # words of each finding


def describe_family(
    fitted: Fitted, family: Family, made: Families, data: Labelled, config: ContextFitConfig
) -> dict[str, Any]:
    """What context.json keeps of a finding's family."""
    from cxrhf.context.sweep import importance

    found = importance(fitted.model, family.features.shape[1]) if family.feature_names else None
    learned = data.rows[data.learn & ~np.isnan(data.y)]
    words = (
        top_features(
            found.values, family.feature_names, made.n_patients[family.name], family.features[learned],
            top=KEPT_WORDS, by_spread=config.search != "paper",
        )
        if found is not None
        else []
    )  # fmt: skip
    sd = next((each.auroc_sd for each in fitted.tried if each.candidate == fitted.candidate), math.nan)
    return {
        "kind": family.kind,
        "classifier": fitted.candidate.kind,
        "parameters": _to_builtins(fitted.candidate.params),
        "calibration": fitted.calibrator.method,
        "cv_auroc": _number(fitted.cv_auroc),
        "cv_auroc_sd": _number(sd),
        "validation_auroc": _number(fitted.validation_auroc),
        "tried": [
            {
                "classifier": each.candidate.kind,
                "parameters": _to_builtins(each.candidate.params),
                "cv_auroc": _number(each.auroc),
                "seconds": round(each.seconds, 3),
                "failed": each.failed,
                "unsettled": each.unsettled,  # fits that ended at their last allowed step
            }
            for each in fitted.tried
        ],
        "reasons": list(fitted.reasons),
        "features": words,
        "signed": None if found is None else found.signed,
    }


# What readers of context.json rely on: a type, several types, a list of one kind, an object of one kind (`...`) or with
# these entries at least.
_NUMBER = (int, float, type(None))
_FAMILY = {
    "kind": str, "classifier": str, "cv_auroc": _NUMBER, "validation_auroc": _NUMBER, "signed": (bool, type(None)),
    "features": [{"word": str, "value": (int, float), "rank": int}],
}  # fmt: skip
_CHOICES = {
    "format": int,
    "findings": {...: {"chosen": (str, type(None)), "reason": (str, type(None)), "n": int, "n_pos": int,
                       "families": {...: _FAMILY}}},
    "splits": {"learned": [str]},
}  # fmt: skip


def check_choices(choices: Any) -> dict[str, Any]:
    """What context.json holds, if every reader can use it; else an `Unfit` that names the entry."""
    _check(choices, _CHOICES, "it")
    for name, each in choices["findings"].items():
        require(
            bool(each["reason"]) or each["chosen"] in each["families"], f'finding "{shorten(name, 60)}" has no model'
        )
    return dict(choices)


def _check(value: Any, kind: Any, where: str) -> None:
    if isinstance(kind, list):
        require(isinstance(value, list), f"{where} is not a list")
        for each in value:
            _check(each, kind[0], f"an entry of {where}")
    elif isinstance(kind, dict):
        require(isinstance(value, dict), f"{where} is not an object")
        for name, inner in kind.items():
            for key in value if name is ... else [name]:
                require(key in value, f"{name} is missing")
                _check(value[key], inner, shorten(key, 60))
    else:
        right = isinstance(value, kind) and (not isinstance(value, bool) or bool in np.atleast_1d(kind))
        require(right, f"{where} has the wrong type")


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _to_builtins(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value.tolist() if hasattr(value, "tolist") else value for key, value in params.items()}


# Pre-test probabilities and prior notes -> the images that show them at their best and worst, in a file of this disk.
#
# Examples name images and notes, so they go to one local folder that only the user can read: never to results, page
# or log. They are what the paper's Table A.8 shows (high for a positive, low for a negative), and the opposite:
# positives that the notes did not announce, negatives that they did.

# Kind of example -> what it shows, label, whether the highest probabilities come first.
KINDS: Mapping[str, tuple[str, int, bool]] = {
    "expected_positive": ("the finding was present, and the notes gave it a high probability", 1, True),
    "expected_negative": ("the finding was absent, and the notes gave it a low probability", 0, False),
    "surprising_positive": ("the finding was present, but the notes gave it a low probability", 1, False),
    "surprising_negative": ("the finding was absent, but the notes gave it a high probability", 0, True),
}
EXAMPLE = pa.schema(
    [
        pa.field("finding", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("image_id", pa.string()),
        pa.field("patient_id", pa.string()),
        pa.field("note_ids", pa.list_(pa.string())),
        pa.field("prob", pa.float64()),
        pa.field("label", pa.int8()),
    ]
)
_README = """These files name images and notes of patients, and may contain the notes' text.
Keep them on this machine: do not share, publish or commit them, and do not send them to any service.

examples.csv  images with the highest and lowest pre-test probability of each finding, at most one per patient
examples.txt  the prior notes of the same images, if the build is given
"""


def write_examples(
    folder: str | Path,
    predictions: pa.Table,
    material: Material | None,
    *,
    number: int = 5,
    findings: Sequence[str] | None = None,
    split: str | None = "test",
    texts: bool = False,
) -> Path:
    """PREDICTION rows -> FOLDER/examples.csv and, with texts, examples.txt; returns the folder.

    It and its files are for the user alone, no repository takes them up, and a README says so.
    """
    found = examples(predictions, material, number=number, findings=findings, split=split).to_pylist()
    local = Path(folder)
    local.mkdir(parents=True, exist_ok=True)
    local.chmod(0o700)
    _write(local / "README.txt", _README)
    _write(local / ".gitignore", "*\n")
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    writer.writerow(EXAMPLE.names)
    for row in found:
        writer.writerow([";".join(row[name]) if name == "note_ids" else row[name] for name in EXAMPLE.names])
    _write(local / "examples.csv", sheet.getvalue())
    if texts and material is not None:
        wanted = pa.array(sorted({name for row in found for name in row["note_ids"]}), pa.string())
        kept = material.notes.filter(pc.is_in(material.notes["note_id"], value_set=wanted))
        known = dict(zip(kept["note_id"].to_pylist(), kept["text"].to_pylist(), strict=True))
        _write(local / "examples.txt", "\n".join(_told(row, known) for row in found))
    else:
        (local / "examples.txt").unlink(missing_ok=True)  # texts of other examples would mislead
    return local


def examples(
    predictions: pa.Table,
    material: Material | None = None,
    *,
    number: int = 5,
    findings: Sequence[str] | None = None,
    model: str = "context",
    split: str | None = "test",
) -> pa.Table:
    """PREDICTION rows -> EXAMPLE rows: `number` images of each kind and finding, at most one a patient and kind.

    With the material the notes of each image are named, and images without notes left out. An image stands in one kind
    only, the expected before the surprising. Among equal probabilities the image id decides.
    """
    there = pc.unique(predictions["model"]).to_pylist()
    if model not in there:
        raise TableError(
            "unknown model", got=model, allowed=f"one of {', '.join(there)}", next_step=did_you_mean(model, there)
        )
    rows = predictions.filter(pc.equal(predictions["model"], model))
    rows = rows.filter(pc.and_(pc.is_valid(rows["label"]), pc.is_valid(rows["prob"])))
    if split is not None:
        rows = rows.filter(pc.equal(rows["split"], split))
    if material is not None:
        noted = material.images["image_id"].filter(pa.array(material.noted))
        rows = rows.filter(pc.is_in(rows["image_id"], value_set=noted.combine_chunks()))
    made: list[dict[str, Any]] = []
    for finding in pc.unique(rows["finding"]).to_pylist():
        if findings is None or finding in findings:
            made += _of_finding(rows.filter(pc.equal(rows["finding"], finding)), number)
    if material is not None:
        _name_notes(made, material)
    return pa.Table.from_pylist(made, schema=EXAMPLE)


def _of_finding(rows: pa.Table, number: int) -> list[dict[str, Any]]:
    rows = rows.take(pc.sort_indices(rows["image_id"]))
    prob, label = rows["prob"].to_numpy(), rows["label"].to_numpy()
    patient = rows["patient_id"].to_pylist()
    taken: set[int] = set()
    chosen = []
    for kind, (_, wanted, highest) in KINDS.items():
        seen: set[str] = set()
        for at in np.argsort(-prob if highest else prob, kind="stable").tolist():
            if len(seen) >= number:
                break
            if label[at] == wanted and at not in taken and patient[at] not in seen:
                seen.add(patient[at])
                taken.add(at)
                chosen.append((kind, at))
    names = ("finding", "image_id", "patient_id", "prob", "label")
    found = rows.select(names).take(pa.array([at for _, at in chosen], pa.int64())).to_pylist()
    return [row | {"kind": kind, "note_ids": []} for (kind, _), row in zip(chosen, found, strict=True)]


def _name_notes(rows: Sequence[dict[str, Any]], material: Material) -> None:
    """Fill in the prior notes of the chosen images, in the order of the notes table."""
    names = material.notes["note_id"]
    wanted = pa.array([row["image_id"] for row in rows], pa.string())
    at = pc.index_in(wanted, value_set=material.images["image_id"].combine_chunks()).to_pylist()
    for row, image in zip(rows, at, strict=True):
        own = np.sort(material.links.indices[material.links.indptr[image] : material.links.indptr[image + 1]])
        row["note_ids"] = names.take(pa.array(own)).to_pylist()


def _told(row: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    about = KINDS[row["kind"]][0]
    head = (
        f"{'=' * 100}\n{row['finding']}: {about}\n"
        f"image {row['image_id']}, patient {row['patient_id']}: probability {row['prob']:.4f}, label {row['label']}\n"
    )
    notes = [f"{'-' * 40} note {name}\n{texts.get(name, '(its text is not given)')}\n" for name in row["note_ids"]]
    return head + "".join(notes)


def _write(target: Path, text: str) -> Path:
    """Write a file that nobody else can read, not even while it is being written."""
    draft = target.parent / f".{target.name}.{os.getpid()}.tmp"
    try:
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return target
