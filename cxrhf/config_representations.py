"""Settings of the audits of representations: encoding, features, slices, shortcut. They are flags of `cxrhf audit`."""

from __future__ import annotations

from dataclasses import dataclass, field

# Slice discovery: the first is SLICES' own way, the others those of its Table 1.
SLICE_METHODS = (
    "mixture", "domino", "spotlight", "george", "planespot", "multiaccuracy", "failure_svm", "bias_clusters", "knn",
)  # fmt: skip
SLICE_RECIPES = ("default", "paper")
SHORTCUT_TESTS = ("bootstrap", "mann_whitney")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepresentationFields:
    """What lies beside the predictions, and how it is looked at."""

    embeddings: str | None = field(
        default=None,
        metadata={
            "metavar": "FILE",
            "help": "Vectors of the images: a Parquet file (image_id, model, vector), or a run of cxrhf embed, probe "
            "or zeroshot; those of a run folder if not given. Adds encoding, features, slices.",
        },
    )
    attributes: str | None = field(
        default=None,
        metadata={
            "metavar": "FILE",
            "help": "What lies in each picture (drains, wires): image_id, name, value, or a column for each; a build; "
            "those of a run folder if not given. Adds shortcut, and names to slices.",
        },
    )
    annotations: tuple[str, ...] = field(
        default=(),
        metadata={"metavar": "CSV", "help": "Filled labelling sheets of an earlier audit (RUN/labelling)."},
    )
    probes: tuple[str, ...] = field(
        default=(), metadata={"metavar": "RUN", "help": "Runs of cxrhf probe, whose SPLIT results encoding shows."}
    )
    pictures: str | None = field(
        default=None,
        metadata={
            "metavar": "BUILD",
            "help": "Build with the pictures, for thumbnails in the page; only of data that may be shown.",
        },
    )
    may_show: bool = field(
        default=False,
        metadata={
            "help": "Say that single points and thumbnails of these patients may stand in the page. Open datasets and "
            "made-up data need no such word; credentialed data never get it."
        },
    )
    slice_methods: tuple[str, ...] = field(
        default=("mixture",),
        metadata={"metavar": "METHOD,...", "help": f"Ways to find slices: {', '.join(SLICE_METHODS)}, or all."},
    )
    slice_recipe: str = field(
        default="default",
        metadata={"metavar": "RECIPE", "help": "default, or paper: full covariance, discovered and shown on all rows."},
    )
    reduce: int = field(
        default=128, metadata={"help": "Longer vectors are cut to so many sigmoids of a layer fitted to the labels."}
    )
    shortcuts: tuple[str, ...] = field(
        default=(), metadata={"metavar": "NAME,...", "help": "Attributes to ask about as shortcuts; all if not given."}
    )
    shortcut_test: str = field(
        default="bootstrap",
        metadata={
            "metavar": "TEST",
            "help": "How gaps by sex are tested: bootstrap (paired, over patients), or mann_whitney over runs (SLICES; "
            "its type I error is .35).",
        },
    )
