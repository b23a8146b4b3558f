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
            "group": "embedding, slice and shortcut",
            "metavar": "FILE",
            "help": "Image embeddings: a Parquet file (image_id, model, vector), or a run of cxrhf embed, probe or "
            "zeroshot. Default: those of the run folder. Adds encoding, features, slices.",
        },
    )
    attributes: str | None = field(
        default=None,
        metadata={
            "metavar": "FILE",
            "help": "Attributes of each image (drains, wires): a file with image_id, name, value or one column per "
            "attribute, or a build. Default: those of the run folder. Adds shortcut, and describes slices.",
        },
    )
    annotations: tuple[str, ...] = field(
        default=(),
        metadata={"metavar": "CSV", "help": "Completed labelling sheets of an earlier audit (RUN/labelling)."},
    )
    probes: tuple[str, ...] = field(
        default=(), metadata={"metavar": "RUN", "help": "Runs of cxrhf probe; encoding shows their SPLIT results."}
    )
    pictures: str | None = field(
        default=None,
        metadata={
            "metavar": "BUILD",
            "help": "Build with the images, for thumbnails in the page; only for data that may be shown.",
        },
    )
    may_show: bool = field(
        default=False,
        metadata={
            "help": "Confirm that points and thumbnails of single patients may be shown in the page. Not needed for "
            "open and synthetic data; never possible for credentialed data."
        },
    )
    slice_methods: tuple[str, ...] = field(
        default=("mixture",),
        metadata={"metavar": "METHOD,...", "help": f"Slice discovery methods: {', '.join(SLICE_METHODS)}, or all."},
    )
    slice_recipe: str = field(
        default="default",
        metadata={
            "metavar": "RECIPE",
            "help": "default, or paper: full covariance, discovered and evaluated on all rows.",
        },
    )
    reduce: int = field(
        default=128,
        metadata={"help": "Reduce longer embeddings to this many sigmoid units of a layer fitted to the labels."},
    )
    shortcuts: tuple[str, ...] = field(
        default=(), metadata={"metavar": "NAME,...", "help": "Attributes to test as shortcuts. Default: all."}
    )
    shortcut_test: str = field(
        default="bootstrap",
        metadata={
            "metavar": "TEST",
            "help": "Test of gaps by sex: bootstrap (paired, over patients), or mann_whitney over runs (as SLICES; its "
            "type I error is 0.35).",
        },
    )
