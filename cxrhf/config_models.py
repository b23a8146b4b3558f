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
        metadata={"positional": True, "metavar": "RUN", "help": "Run of cxrhf train, or folder of a saved model."}
    )
    build: str | None = field(
        default=None,
        metadata={"metavar": "BUILD", "help": "Build with the images. Default: the build it was trained on."},
    )
    splits: tuple[str, ...] = field(
        default=("validate", "test"),
        metadata={"metavar": "SPLIT,...", "help": "Splits, or all. Splits that another build lacks are skipped."},
    )
    out: str | None = field(
        default=None,
        metadata=RUN | {"help": "Run folder to add to. Default: the run itself; for another build, <run>-on-<build>."},
    )
    seeds: str | None = field(default=None, metadata={"metavar": "0-9", "help": "Seeds of the run. Default: all."})
    labels: str | None = field(default=None, metadata=LABELS)
    batch_size: int = field(default=64, metadata={"help": "Images per batch, in each process."})
    precision: str = field(default="float32", metadata={"metavar": "KIND", "help": "float32, bf16, fp16, auto."})
    workers: int | None = field(default=None, metadata=WORKERS)
    device: str = field(default="auto", metadata=DEVICE)
    overwrite: bool = field(default=False, metadata=OVERWRITE)

    def __post_init__(self) -> None:
        set_field(self, "splits", listed(self.splits))
        if not self.splits:
            raise ConfigError("splits is empty", allowed="names of splits or all")
        one_of("precision", self.precision, PRECISIONS)
        one_of("device", self.device, DEVICES)
        within("batch_size", self.batch_size, 1, 1_000_000)
        if self.workers is not None:
            within("workers", self.workers, 0, 1024)
        if self.seeds is not None:
            seed_list(self.seeds)


@dataclass(frozen=True, slots=True)
class PredictConfig(LookConfig):
    """A trained run or saved model, and images -> PREDICTION rows with logits."""

    raw: bool = field(
        default=False, metadata={"help": "Ignore a saved calibrator: probabilities as the network outputs them."}
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
        default="temperature",
        metadata={"metavar": "HOW", "help": "Calibration method: temperature (one parameter), platt, isotonic."},
    )
    split: str = field(default="validate", metadata={"metavar": "SPLIT", "help": "Split to fit on; never test."})
    build: str | None = field(
        default=None,
        metadata={"metavar": "BUILD", "help": "Build the run was trained on, if it has moved."},
    )
    device: str = field(default="auto", metadata=DEVICE)

    def __post_init__(self) -> None:
        one_of("method", self.method, METHODS)
        one_of("device", self.device, DEVICES)
        if self.split == "test":
            raise ConfigError(
                "split: calibrators cannot be fitted on test; the results there would be too good",
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
            "sets a name.",
        },
    )
    targets: tuple[str, ...] = field(
        default=("sex", "race", "view"),
        metadata={"metavar": "TARGET,...", "help": f"What to predict: {', '.join(TASKS)}."},
    )
    findings: tuple[str, ...] = field(
        default=(), metadata={"metavar": "FINDING,...", "help": "Findings of the target findings. Default: all."}
    )
    out: str | None = field(default=None, metadata=RUN | {"help": "Run folder. Default: runs/<build>-probe."})
    seed: int = field(default=0, metadata={"help": "Seed of the new layers, random weights and folds."})
    overwrite: bool = field(default=False, metadata=OVERWRITE)
    labels: str | None = field(default=None, metadata={"group": "data"} | LABELS)
    folds: int | None = field(
        default=None,
        metadata={
            "help": "Cross-fit in this many folds of patients instead of training on train; for small datasets without "
            "splits.",
        },
    )
    n_resamples: int = field(default=2000, metadata={"help": "Bootstrap resamples of patients for the intervals."})
    architecture: str = field(
        default="tf_efficientnet_lite0",
        metadata={"group": "network", "metavar": "NAME", "help": "Network of the backbones imagenet and random."},
    )
    size: int = field(default=224, metadata={"help": "Side of the input images of imagenet and random, in pixels."})
    reduce: int | None = field(
        default=None,
        metadata={
            "metavar": "DIM",
            "help": "Also fit a layer of DIM sigmoid units before the last one (SLICES uses 128, for findings), and "
            "write its outputs as embeddings.",
        },
    )
    epochs: int = field(
        default=50, metadata={"help": "Maximum number of epochs of the new layers, with early stopping."}
    )
    learning_rate: float = field(default=1e-3, metadata={"help": "Learning rate of the new layers."})
    batch_size: int = field(default=150, metadata={"help": "Images per step of the new layers."})
    device: str = field(default="auto", metadata={"group": "hardware"} | DEVICE)
    workers: int | None = field(default=None, metadata=WORKERS)

    def __post_init__(self) -> None:
        set_field(self, "backbones", listed(self.backbones))
        set_field(self, "targets", tuple(dict.fromkeys(listed(self.targets))))
        set_field(self, "findings", tuple(finding_name(each) for each in listed(self.findings)))
        for each in self.targets:
            one_of("targets", each, TASKS)
        if not self.targets or not self.backbones:
            raise ConfigError("targets and backbones: at least one of each is required")
        one_of("device", self.device, DEVICES)
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
            "help": "biomedclip; a CLIP or SigLIP model from the Hugging Face Hub or a folder; hf-hub:ORG/NAME for "
            "open_clip.",
        },
    )
    out: str | None = field(default=None, metadata=RUN | {"help": "Run folder. Default: runs/<build>-zeroshot."})
    prompts: str | None = field(
        default=None,
        metadata={
            "metavar": "YAML",
            "help": "Your prompts, as finding: {positive: ..., negative: ...}. Default: ours.",
        },
    )
    findings: tuple[str, ...] = field(
        default=(), metadata={"metavar": "FINDING,...", "help": "Findings to predict. Default: all of the build."}
    )
    splits: tuple[str, ...] = field(
        default=("validate", "test"), metadata={"metavar": "SPLIT,...", "help": "Splits, or all."}
    )
    embed: bool = field(default=False, metadata={"help": "Also write image embeddings."})
    labels: str | None = field(default=None, metadata=LABELS)
    batch_size: int = field(default=32, metadata={"help": "Images per batch."})
    device: str = field(default="auto", metadata=DEVICE)
    overwrite: bool = field(default=False, metadata=OVERWRITE)

    def __post_init__(self) -> None:
        set_field(self, "findings", tuple(finding_name(each) for each in listed(self.findings)))
        set_field(self, "splits", listed(self.splits))
        if not self.splits:
            raise ConfigError("splits is empty", allowed="names of splits or all")
        one_of("device", self.device, DEVICES)
        within("batch_size", self.batch_size, 1, 1_000_000)
