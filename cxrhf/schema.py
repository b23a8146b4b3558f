"""The tables between the stages: every column declared once.

A column that is not nullable must be there and full. A nullable column may be absent; `check` adds it, empty. `range`
and `values` in a column's metadata are checked too. Labels are 1, 0 or null (masked). Readers, writers and the check
are in `cxrhf.tables`.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

__all__ = [
    "ATTRIBUTE", "ATTRITION", "CURVE", "EMBEDDING", "GALLERY", "GENERATION", "IMAGE", "NOTE", "POINT", "PREDICTION",
    "REPORT_VECTOR", "RESULT", "SCORE", "SLICE", "TABLES", "WORD", "image_schema",
]  # fmt: skip


_TEXT, _NUMBER, _COUNT = pa.string(), pa.float64(), pa.int64()


def _need(name: str, kind: pa.DataType, **rules: str) -> pa.Field:
    return pa.field(name, kind, nullable=False, metadata=rules or None)


def _may(name: str, kind: pa.DataType, **rules: str) -> pa.Field:
    return pa.field(name, kind, nullable=True, metadata=rules or None)


_AGE, _SEX, _RACE = _may("age", _NUMBER, range="0 150"), _may("sex", _TEXT), _may("race", _TEXT)
_GROUPS = [_AGE, _SEX, _RACE]

# One more int8 column per finding follows: image_schema(findings). Raw labels: 1, 0, -1 (uncertain), null.
IMAGE = pa.schema(
    [
        _may("image", pa.struct([pa.field("bytes", pa.binary()), pa.field("path", _TEXT)])),
        _need("image_id", _TEXT),
        _may("study_id", _TEXT),
        _need("patient_id", _TEXT),
        _may("dataset", _TEXT),
        _may("split", _TEXT),
        _may("view", _TEXT),
        _may("study_time", pa.timestamp("us")),
        *_GROUPS,
        _may("prior_note_ids", pa.list_(_TEXT)),
        _may("indication", _TEXT),
        _may("comparison", _TEXT),
        _may("findings", _TEXT),
        _may("impression", _TEXT),
    ],
    metadata={"table": "IMAGE", "extra": "int8"},
)
ATTRIBUTE = pa.schema(
    [_need("image_id", _TEXT), _need("name", _TEXT), _may("value", _TEXT)], metadata={"table": "ATTRIBUTE"}
)
NOTE = pa.schema(
    [
        _need("note_id", _TEXT),
        _need("patient_id", _TEXT),
        _may("available_at", pa.timestamp("us")),
        _may("kind", _TEXT),
        _need("text", _TEXT),
    ],
    metadata={"table": "NOTE"},
)
PREDICTION = pa.schema(
    [
        _need("image_id", _TEXT),
        _may("study_id", _TEXT),
        _need("patient_id", _TEXT),
        _may("dataset", _TEXT),
        _may("split", _TEXT),
        _need("model", _TEXT),
        _may("seed", _COUNT),
        _need("finding", _TEXT),
        _may("label", pa.int8(), values="0 1"),
        _may("prob", _NUMBER, range="0 1"),
        _may("logit", _NUMBER, range="-inf inf"),  # any score that is not a probability: ranking metrics only
        _may("pretest", _NUMBER, range="0 1"),
        _may("mention", pa.bool_()),
        _may("weight", _NUMBER, range="0 inf"),
        *_GROUPS,
        _may("view", _TEXT),
    ],
    metadata={"table": "PREDICTION"},
)
EMBEDDING = pa.schema(
    [
        _need("image_id", _TEXT),
        _need("model", _TEXT),
        _may("seed", _COUNT),
        _may("finding", _TEXT),  # null = the penultimate layer
        _need("vector", pa.list_(pa.float32())),
    ],
    metadata={"table": "EMBEDDING"},
)
# Reports beside their references, one row for each image, model and way of decoding.
GENERATION = pa.schema(
    [
        _need("image_id", _TEXT),
        _need("patient_id", _TEXT),
        _may("dataset", _TEXT),
        _need("model", _TEXT),
        _need("strategy", _TEXT),
        _need("reference", _TEXT),
        _need("generated", _TEXT),
        _SEX,
        _AGE,
        _RACE,
    ],
    metadata={"table": "GENERATION"},
)
# What `cxrhf score` says of single reports (null: not defined for this one), and their vectors.
SCORE = pa.schema(
    [
        _need("image_id", _TEXT),
        _need("model", _TEXT),
        _need("strategy", _TEXT),
        _need("metric", _TEXT),
        _may("value", _NUMBER),
        _need("encoder", _TEXT),
    ],
    metadata={"table": "SCORE"},
)
REPORT_VECTOR = pa.schema(
    [
        _need("image_id", _TEXT),
        _need("model", _TEXT),  # "" for references: they are nobody's
        _need("strategy", _TEXT),  # "reference" for references
        _need("encoder", _TEXT),
        _need("vector", pa.list_(pa.float32())),
    ],
    metadata={"table": "REPORT_VECTOR"},
)
RESULT = pa.schema(
    [
        _need("audit", _TEXT),
        _need("metric", _TEXT),
        _may("dataset", _TEXT),
        _may("model", _TEXT),
        _may("strategy", _TEXT),  # of reports: how they were decoded; "reference" = the references themselves
        _may("finding", _TEXT),
        _need("slice", _TEXT),  # "all" = the whole sample
        _may("versus", _TEXT),
        _may("value", _NUMBER),  # NaN = undefined, with the reason in note
        _may("ci_low", _NUMBER),
        _may("ci_high", _NUMBER),
        _may("p_value", _NUMBER),
        _may("n", _COUNT),
        _may("n_pos", _COUNT),
        _may("n_patients", _COUNT),
        _may("method", _TEXT),
        _may("seed", _COUNT),
        _may("higher_is_better", pa.bool_()),  # null = neither
        _may("note", _TEXT),
    ],
    metadata={"table": "RESULT"},
)
CURVE = pa.schema(
    [
        _may("model", _TEXT),
        _may("strategy", _TEXT),
        _may("finding", _TEXT),
        _need("kind", _TEXT),
        _need("slice", _TEXT),
        _may("x", _NUMBER),
        _may("y", _NUMBER),
        _may("low", _NUMBER),
        _may("high", _NUMBER),
    ],
    metadata={"table": "CURVE"},
)
# Words of reports by group: tokens in references and generated reports, scores, and the category by each rule.
WORD = pa.schema(
    [
        _may("model", _TEXT),
        _may("strategy", _TEXT),
        _need("word", _TEXT),
        _need("group", _TEXT),  # "sex=F"
        _may("versus", _TEXT),  # "sex=M", or "sex=not F" for all others
        _need("n_ref_group", _COUNT),
        _need("n_ref_other", _COUNT),
        _need("n_pred_group", _COUNT),
        _need("n_pred_other", _COUNT),
        _may("n_patients", _COUNT),  # with the word in a reference or a generated report
        _may("z_ref", _NUMBER),
        _may("z_pred", _NUMBER),
        _may("z_disp", _NUMBER),
        _may("rate_ratio", _NUMBER),  # share of the generated tokens over share of the reference tokens
        _may("q_value", _NUMBER),  # of the displacement
        _may("q_reference", _NUMBER),
        _may("q_omission", _NUMBER),
        _may("category", _TEXT),
        _may("category_exact", _TEXT),
        _may("category_paper", _TEXT),
    ],
    metadata={"table": "WORD"},
)
SLICE = pa.schema(
    [
        _need("image_id", _TEXT),
        _may("model", _TEXT),  # as CURVE names it
        _need("method", _TEXT),
        _may("finding", _TEXT),
        _need("slice", _TEXT),
        _may("half", _TEXT),  # "discover" or "confirm"
        _may("weight", _NUMBER, range="0 1"),  # how much the image belongs to the slice
    ],
    metadata={"table": "SLICE"},
)
# Places of images in maps of a network's vectors, with what colours them. Rows of patients: never shared, and drawn one
# by one only where the data may be shown.
POINT = pa.schema(
    [
        _need("image_id", _TEXT),
        _need("model", _TEXT),
        _need("map", _TEXT),  # "pca 1-2", "pca 3-4", "t-sne", "logits"
        _need("x", _NUMBER),
        _need("y", _NUMBER),
        _may("disease", _TEXT),
        _may("sex", _TEXT),
        _may("race", _TEXT),
        _may("age", _TEXT),  # a band
    ],
    metadata={"table": "POINT"},
)
# Thumbnails of images in the best and worst slices; only of data that may be shown.
GALLERY = pa.schema(
    [
        _need("image_id", _TEXT),
        _need("model", _TEXT),
        _need("finding", _TEXT),
        _need("slice", _TEXT),
        _need("role", _TEXT),  # "worst" or "best"
        _need("thumbnail", pa.binary()),  # JPEG
    ],
    metadata={"table": "GALLERY"},
)
# What every step of a build left; expected_* are the published counts, where there are any.
_COUNTED = ("images", "studies", "patients", "admissions", "notes")
ATTRITION = pa.schema(
    [
        _need("step", _TEXT),
        *(_may(name, _COUNT) for name in _COUNTED),
        *(_may(f"expected_{name}", _COUNT) for name in _COUNTED),
        _may("note", _TEXT),
    ],
    metadata={"table": "ATTRITION"},
)

# The name of a table in a run folder -> what it holds.
TABLES: dict[str, pa.Schema] = {
    "images": IMAGE,
    "attributes": ATTRIBUTE,
    "notes": NOTE,
    "predictions": PREDICTION,
    "characteristics": PREDICTION,  # of sex=F, race=Black, view=AP: outputs of image models that are no findings
    "embeddings": EMBEDDING,
    "generations": GENERATION,
    "scores": SCORE,
    "report_vectors": REPORT_VECTOR,
    "results": RESULT,
    "curves": CURVE,
    "words": WORD,
    "slices": SLICE,
    "points": POINT,
    "gallery": GALLERY,
    "attrition": ATTRITION,
}


def image_schema(findings: Iterable[str]) -> pa.Schema:
    """IMAGE with one int8 column per finding, as the table of one dataset has it."""
    return pa.schema([*IMAGE, *(_may(name, pa.int8(), values="-1 0 1") for name in findings)], metadata=IMAGE.metadata)
