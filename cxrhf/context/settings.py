"""Settings of `cxrhf context fit`, `predict` and `explain`: which texts, which encoders, which search, who is left out.

The same frozen dataclasses serve the command line, YAML recipes and Python; see cxrhf/settings.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cxrhf.encode.settings import DEVICES, EncodeConfig
from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.findings import finding_name
from cxrhf.settings import MENTION_RULES, check_one_of, check_range, either, set_field, split_list

FEATURES = ("words", "boosted", "encoder")
SEARCHES = ("default", "paper")
CHOICES = ("validation", "pooled")
NO_NOTE = ("exclude", "stratum")
ENOUGH, FEWEST = 20, 5  # patients with and without a finding
_RUN: dict[str, object] = {"metavar": "RUN", "aliases": ("-o",)}


@dataclass(frozen=True, slots=True)
class ContextFitConfig:
    """Prior notes of a build -> a calibrated pre-test probability for every image and finding."""

    build: str = field(metadata={"positional": True, "metavar": "BUILD", "help": "Folder written by cxrhf build."})
    out: str | None = field(
        default=None, metadata=_RUN | {"help": "Run folder to write. Default: runs/<build's name>-context."}
    )
    findings: tuple[str, ...] = field(
        default=(), metadata={"metavar": "FINDING,...", "help": "Findings to fit. Default: all of the build."}
    )
    features: tuple[str, ...] = field(
        default=("words", "encoder"),
        metadata={
            "metavar": "KIND,...",
            "help": "Features of the notes: words (bag of words), boosted (XGBoost on the words), encoder (embeddings "
            "of a language model). Each finding keeps the best.",
        },
    )
    seed: int = field(default=0, metadata={"help": "Seed of folds, classifiers and intervals."})
    overwrite: bool = field(default=False, metadata={"help": "Replace a run made from other inputs."})
    encoders: tuple[str, ...] = field(
        default=("minilm",),
        metadata={
            "group": "encoder",
            "metavar": "MODEL,...",
            "help": "Encoders: minilm (ships in a Python package, needs no network), the paper's mistral, pubmedbert, "
            "bert, clinicalbert, biolinkbert, roberta, a folder, or any model on the Hugging Face Hub.",
        },
    )
    recipe: str = field(
        default="plain",
        metadata={
            "metavar": "RECIPE",
            "help": "Text preprocessing: plain (lower case, keeps negations), oberst (no punctuation or stop words, as "
            "in the paper's code).",
        },
    )
    pooling: str = field(
        default="tokens",
        metadata={
            "metavar": "RULE",
            "help": "How windows become one embedding: tokens (windows weighted by tokens, notes normalised, mean, "
            "normalised), paper (windows weighted equally, notes normalised, mean), code (all notes as one text, "
            "windows normalised).",
        },
    )
    overlap: int = field(default=50, metadata={"help": "Tokens shared by neighbouring windows of a note."})
    max_length: tuple[str, ...] | None = field(
        default=None,
        metadata={
            "metavar": "ENCODER=N,...",
            "help": "Tokens per window, with special tokens: one number, or one per encoder (mistral=4096,512). "
            "Default: the encoder's limit, at most 4096.",
        },
    )
    batch_tokens: int = field(default=8192, metadata={"help": "Tokens per batch of the encoder."})
    device: str = field(default="auto", metadata={"help": f"Device of the encoder: {', '.join(DEVICES)}."})
    dtype: str = field(default="auto", metadata={"help": "auto (bfloat16 on GPUs that support it), float32, bfloat16."})
    cache: str | None = field(
        default=None,
        metadata={
            "metavar": "FOLDER",
            "help": "Cache of note embeddings, by content and encoder. Default: CXRHF_CACHE or ~/.cache/cxrhf/notes.",
        },
    )
    allow_bin: bool = field(
        default=False,
        metadata={
            "help": "Load encoders that only have .bin weights, with torch's restricted reader; the paper's encoders "
            "do not need this flag."
        },
    )
    search: str = field(
        default="default",
        metadata={
            "group": "classifier",
            "metavar": "GRID",
            "help": "Classifiers to try: default (few), paper (its grids).",
        },
    )
    iterations: int | None = field(
        default=None, metadata={"help": "Draws of XGBoost's random search. Default: 12, or 60 with --search paper."}
    )
    choose: str = field(
        default="validation",
        metadata={
            "metavar": "HOW",
            "help": "How a finding's classifier and encoder are selected: validation (parameters by cross-validation "
            "on train, selection on the validation split), pooled (both by cross-validation on both splits).",
        },
    )
    min_patients: int | None = field(
        default=None,
        metadata={
            "help": "Minimum number of patients with a finding, and of patients without it; cxrhf lists findings with "
            "fewer and excludes them. Default: 20; 5 if no finding has 20, which is enough for a trial run only."
        },
    )
    folds: int = field(default=5, metadata={"help": "Folds of patients for cross-validation and calibration."})
    workers: int | None = field(
        default=None,
        metadata={"help": "Processes that fit classifiers. Default: one per core. Results do not change."},
    )
    dask: str | None = field(
        default=None,
        metadata={"metavar": "ADDRESS", "help": "Scheduler of a Dask cluster to fit the classifiers on."},
    )
    no_note: str = field(
        default="exclude",
        metadata={
            "group": "note",
            "metavar": "HOW",
            "help": "Images without a prior note: exclude (the count is reported), stratum (a separate group whose "
            "prevalence is its pre-test probability).",
        },
    )
    mention_rule: str = field(
        default="words",
        metadata={
            "metavar": "RULE",
            "help": "What counts as a prior mention: words (whole words), substring (paper), affirmed (whole words, "
            "not negated at least once).",
        },
    )
    n_resamples: int = field(
        default=2000, metadata={"group": "interval", "help": "Bootstrap resamples of patients for the intervals."}
    )
    level: float = field(default=0.95, metadata={"help": "Level of the intervals."})

    def __post_init__(self) -> None:
        set_field(self, "findings", tuple(finding_name(each) for each in split_list(self.findings)))
        set_field(self, "features", split_list(self.features))
        set_field(self, "encoders", split_list(self.encoders))
        for each in self.features:
            check_one_of("features", each, FEATURES)
        if not self.features:
            raise ConfigError("features is empty", allowed=either(FEATURES))
        if "encoder" in self.features and not self.encoders:
            raise ConfigError("encoders is empty", next_step="--encoders minilm, or --features words")
        check_one_of("search", self.search, SEARCHES)
        check_one_of("choose", self.choose, CHOICES)
        check_one_of("no_note", self.no_note, NO_NOTE)
        check_one_of("mention_rule", self.mention_rule, MENTION_RULES)
        if self.min_patients is not None:
            check_range("min_patients", self.min_patients, FEWEST, 1_000_000)
        check_range("folds", self.folds, 3, 50)
        check_range("n_resamples", self.n_resamples, 10, 1_000_000)
        check_range("level", self.level, 0.5, 0.9999)
        check_range("seed", self.seed, 0, 2**63 - 1)
        if self.iterations is not None:
            check_range("iterations", self.iterations, 1, 10_000)
        if self.workers is not None:
            check_range("workers", self.workers, 1, 4096)
        if self.max_length is not None:
            given = (self.max_length,) if isinstance(self.max_length, (int, str)) else self.max_length
            set_field(self, "max_length", split_list(given) or None)
        self.window_lengths()  # says now what is wrong with it
        for each in self.encoders or ("minilm",):
            self.encode(each)  # its checks

    def window_lengths(self) -> dict[str, int]:
        """Tokens of a window by encoder, as given; "" stands for the encoders that are not named."""
        found: dict[str, int] = {}
        for item in self.max_length or ():
            name, _, text = (each.strip() for each in item.rpartition("="))
            if not text.isdecimal() or len(text) > 9 or name in found:
                raise ConfigError(
                    f"max_length: two numbers for {name or 'all encoders'}" if name in found else "max_length",
                    got=item,
                    allowed="one whole number, or one per encoder: mistral=4096,512",
                )
            if name and name not in self.encoders:
                raise ConfigError(
                    f"max_length names {name}, which is not in --encoders",
                    got=item,
                    allowed=either(self.encoders),
                    next_step=did_you_mean(name, self.encoders) or "remove it, or add it to --encoders",
                )
            found[name] = int(text)
        return found

    def encode(self, encoder: str) -> EncodeConfig:
        """The settings of one encoder."""
        lengths = self.window_lengths()
        return EncodeConfig(
            encoder=encoder, recipe=self.recipe, pooling=self.pooling, overlap=self.overlap,
            max_length=lengths.get(encoder, lengths.get("")), dtype=self.dtype, device=self.device,
            batch_tokens=self.batch_tokens, allow_bin=self.allow_bin,
        )  # fmt: skip

    def needed(self) -> int:
        """Patients with, and without, a finding that a fit needs."""
        return max(ENOUGH if self.min_patients is None else self.min_patients, self.folds)

    def draws(self) -> int:
        """Draws of XGBoost's random search."""
        return self.iterations or (60 if self.search == "paper" else 12)


@dataclass(frozen=True, slots=True)
class ContextPredictConfig:
    """A fitted context run -> pre-test probabilities for another build, or onto an image model's predictions."""

    run: str = field(metadata={"positional": True, "metavar": "CONTEXT", "help": "Run folder of cxrhf context fit."})
    build: str | None = field(
        default=None, metadata={"metavar": "BUILD", "help": "Build whose images get pre-test probabilities."}
    )
    onto: str | None = field(
        default=None,
        metadata={
            "metavar": "PREDICTIONS",
            "help": "Predictions file or run; its rows get the columns pretest and mention, by image id.",
        },
    )
    out: str | None = field(
        default=None,
        metadata={
            "metavar": "OUT",
            "aliases": ("-o",),
            "help": "Run folder (--build alone), or file (--onto). Default: a name next to the input.",
        },
    )
    device: str = field(default="auto", metadata={"help": f"Device of the encoder: {', '.join(DEVICES)}."})
    cache: str | None = field(default=None, metadata={"metavar": "FOLDER", "help": "Cache of note embeddings."})
    allow_bin: bool = field(
        default=False,
        metadata={"help": "Load an encoder that only has .bin weights, with torch's restricted reader."},
    )
    fetch: bool = field(
        default=False,
        metadata={"help": "Download the run's encoder from the Hugging Face Hub if it is not on this machine."},
    )
    overwrite: bool = field(default=False, metadata={"help": "Replace existing output."})

    def __post_init__(self) -> None:
        if self.build is None and self.onto is None:
            raise ConfigError(
                "no images or predictions were given",
                allowed="--build BUILD, --onto PREDICTIONS or both",
                next_step=f"cxrhf context predict {self.run} --onto predictions.parquet",
            )
        check_one_of("device", self.device, DEVICES)


@dataclass(frozen=True, slots=True)
class ContextExplainConfig:
    """A fitted context run -> what its probabilities rest on: words, examples, tables."""

    run: str = field(metadata={"positional": True, "metavar": "CONTEXT", "help": "Run folder of cxrhf context fit."})
    findings: tuple[str, ...] = field(
        default=(), metadata={"metavar": "FINDING,...", "help": "Findings to explain. Default: all."}
    )
    top: int = field(default=10, metadata={"help": "Words per finding, at most 50."})
    examples: int = field(
        default=5, metadata={"help": "With --build: images with the highest, and with the lowest, probability."}
    )
    build: str | None = field(
        default=None,
        metadata={
            "metavar": "BUILD",
            "help": "Build the run was fitted on: adds the texts of the examples to the local file. Texts are never "
            "printed and never appear in the page.",
        },
    )

    def __post_init__(self) -> None:
        set_field(self, "findings", tuple(finding_name(each) for each in split_list(self.findings)))
        check_range("top", self.top, 1, 50)  # a fit keeps no more
        check_range("examples", self.examples, 0, 1000)
