"""Settings of `cxrhf predict`, `embed`, `calibrate`, `probe`, `zeroshot`: which model, which images, what is written.

The same frozen dataclasses serve the command line, YAML recipes and Python; see config.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cxrhf.config import listed, one_of, set_field, within
from cxrhf.config_train import BUILD, DEVICE, DEVICES, LABELS, OVERWRITE, PRECISIONS, RUN, TASKS, WORKERS, seed_list
from cxrhf.errors import ConfigError
from cxrhf.findings import finding_name

METHODS = ("temperature", "platt", "isotonic")


@dataclass(frozen=True, slots=True)
class LookConfig:
    """A trained run or saved model, and the images it looks at; `predict` and `embed` differ in what they write."""

    run: str = field(
        metadata={"positional": True, "metavar": "RUN", "help": "Run of cxrhf train, or the folder of a saved model."}
    )
    build: str | None = field(
        default=None,
        metadata={"metavar": "BUILD", "help": "Images to look at; those of the build it was trained on if not given."},
    )
    splits: tuple[str, ...] = field(
        default=("validate", "test"),
        metadata={"metavar": "SPLIT,...", "help": "Splits, or all. Of another build: all it has of these."},
    )
    out: str | None = field(
        default=None,
        metadata=RUN | {"help": "Run folder to add to; the run itself, or for another build <run>-on-<build>."},
    )
    seeds: str | None = field(default=None, metadata={"metavar": "0-9", "help": "Seeds of the run; all if not given."})
    labels: str | None = field(default=None, metadata=LABELS)
    batch_size: int = field(default=64, metadata={"help": "Images at a time, in each process."})
    precision: str = field(default="float32", metadata={"metavar": "KIND", "help": "float32, bf16, fp16, auto."})
    workers: int | None = field(default=None, metadata=WORKERS)
    device: str = field(default="auto", metadata=DEVICE)
    overwrite: bool = field(default=False, metadata=OVERWRITE)

    def __post_init__(self) -> None:
        set_field(self, "splits", listed(self.splits))
        if not self.splits:
            raise ConfigError("splits is empty", allowed="names of splits, or all")
        one_of("precision: not known", self.precision, PRECISIONS)
        one_of("device: not known", self.device, DEVICES)
        within("batch_size", self.batch_size, 1, 1_000_000)
        if self.workers is not None:
            within("workers", self.workers, 0, 1024)
        if self.seeds is not None:
            seed_list(self.seeds)


@dataclass(frozen=True, slots=True)
class PredictConfig(LookConfig):
    """A trained run or saved model, and images -> PREDICTION rows with logits."""

    raw: bool = field(
        default=False, metadata={"help": "Leave a saved calibration aside: probabilities as the network gives them."}
    )


@dataclass(frozen=True, slots=True)
class EmbedConfig(LookConfig):
    """A trained run or saved model, and images -> EMBEDDING rows: what the network hands to its last layer."""

    splits: tuple[str, ...] = field(default=("test",), metadata={"metavar": "SPLIT,...", "help": "Splits, or all."})


@dataclass(frozen=True, slots=True)
class CalibrateConfig:
    """A trained run -> calibrators fitted on validation images, saved with the model; its predictions written again."""

    run: str = field(metadata={"positional": True, "metavar": "RUN", "help": "Run of cxrhf train, or of zeroshot."})
    method: str = field(
        default="temperature", metadata={"metavar": "HOW", "help": "temperature (one number), platt, isotonic."}
    )
    split: str = field(default="validate", metadata={"metavar": "SPLIT", "help": "Split to fit on; never test."})
    build: str | None = field(
        default=None,
        metadata={"metavar": "BUILD", "help": "Build the run was trained on, where it lies elsewhere now."},
    )
    device: str = field(default="auto", metadata=DEVICE)

    def __post_init__(self) -> None:
        one_of("method: not known", self.method, METHODS)
        one_of("device: not known", self.device, DEVICES)
        if self.split == "test":
            raise ConfigError(
                "split: calibrators are never fitted on test: what is measured there would flatter the model",
                next_step="--split validate",
            )


@dataclass(frozen=True, slots=True)
class ProbeConfig:
    """A frozen network and images -> what a new linear layer can read from it: sex, race, view, age band, findings."""

    build: str = field(metadata=BUILD)
    backbones: tuple[str, ...] = field(
        default=("imagenet", "random"),
        metadata={
            "metavar": "SOURCE,...",
            "help": "Frozen networks to compare: imagenet, random, runs of cxrhf train, model folders; NAME=SOURCE "
            "names one.",
        },
    )
    out: str | None = field(default=None, metadata=RUN | {"help": "Run folder; runs/<build>-probe if not given."})
    targets: tuple[str, ...] = field(
        default=("sex", "race", "view"),
        metadata={"metavar": "TARGET,...", "help": f"What is read: {', '.join(TASKS)}."},
    )
    findings: tuple[str, ...] = field(
        default=(), metadata={"metavar": "FINDING,...", "help": "With target findings: which. All if not given."}
    )
    reduce: int | None = field(
        default=None,
        metadata={
            "metavar": "DIM",
            "help": "Also fit a layer of DIM sigmoids before the last one (SLICES takes 128, for findings), and write "
            "its outputs as embeddings.",
        },
    )
    folds: int | None = field(
        default=None,
        metadata={
            "help": "Cross-fit in so many folds of patients instead of learning on train: for small sets without "
            "splits.",
        },
    )
    architecture: str = field(
        default="tf_efficientnet_lite0",
        metadata={"metavar": "NAME", "help": "Network of the backbones imagenet and random."},
    )
    size: int = field(default=224, metadata={"help": "Side of the pictures for imagenet and random."})
    epochs: int = field(default=50, metadata={"help": "Most epochs of the new layers; they stop early."})
    learning_rate: float = field(default=1e-3, metadata={"help": "Learning rate of the new layers."})
    batch_size: int = field(default=150, metadata={"help": "Images of one step of the new layers."})
    n_resamples: int = field(default=2000, metadata={"help": "Bootstrap resamples of patients for the intervals."})
    seed: int = field(default=0, metadata={"help": "Seed of the new layers, random weights and folds."})
    labels: str | None = field(default=None, metadata=LABELS)
    workers: int | None = field(default=None, metadata=WORKERS)
    device: str = field(default="auto", metadata=DEVICE)
    overwrite: bool = field(default=False, metadata=OVERWRITE)

    def __post_init__(self) -> None:
        set_field(self, "backbones", listed(self.backbones))
        set_field(self, "targets", tuple(dict.fromkeys(listed(self.targets))))
        set_field(self, "findings", tuple(finding_name(each) for each in listed(self.findings)))
        for each in self.targets:
            one_of("targets: not known", each, TASKS)
        if not self.targets or not self.backbones:
            raise ConfigError("targets and backbones: at least one of each is needed")
        one_of("device: not known", self.device, DEVICES)
        within("size", self.size, 16, 4096)
        within("epochs", self.epochs, 1, 100_000)
        within("learning_rate", self.learning_rate, 1e-12, 100)
        within("batch_size", self.batch_size, 1, 1_000_000)
        within("n_resamples", self.n_resamples, 10, 1_000_000)
        within("seed", self.seed, 0, 2**63 - 1)
        if self.folds is not None:
            within("folds", self.folds, 2, 50)
        if self.reduce is not None:
            within("reduce", self.reduce, 1, 100_000)
        if self.workers is not None:
            within("workers", self.workers, 0, 1024)


@dataclass(frozen=True, slots=True)
class ZeroshotConfig:
    """Images and pairs of prompts -> PREDICTION rows of a CLIP-style model that was never trained on the labels."""

    build: str = field(metadata=BUILD)
    model: str = field(
        default="biomedclip",
        metadata={
            "metavar": "MODEL",
            "help": "biomedclip, a CLIP or SigLIP of the Hugging Face Hub or in a folder, hf-hub:ORG/NAME of "
            "open_clip.",
        },
    )
    out: str | None = field(default=None, metadata=RUN | {"help": "Run folder; runs/<build>-zeroshot if not given."})
    prompts: str | None = field(
        default=None,
        metadata={"metavar": "YAML", "help": "Own prompts: finding: {positive: ..., negative: ...}; ours otherwise."},
    )
    findings: tuple[str, ...] = field(
        default=(), metadata={"metavar": "FINDING,...", "help": "Findings to predict. All of the build if not given."}
    )
    splits: tuple[str, ...] = field(
        default=("validate", "test"), metadata={"metavar": "SPLIT,...", "help": "Splits, or all."}
    )
    embed: bool = field(default=False, metadata={"help": "Also write the pictures' vectors."})
    labels: str | None = field(default=None, metadata=LABELS)
    batch_size: int = field(default=32, metadata={"help": "Images at a time."})
    device: str = field(default="auto", metadata=DEVICE)
    overwrite: bool = field(default=False, metadata=OVERWRITE)

    def __post_init__(self) -> None:
        set_field(self, "findings", tuple(finding_name(each) for each in listed(self.findings)))
        set_field(self, "splits", listed(self.splits))
        if not self.splits:
            raise ConfigError("splits is empty", allowed="names of splits, or all")
        one_of("device: not known", self.device, DEVICES)
        within("batch_size", self.batch_size, 1, 1_000_000)
