"""Settings of `cxrhf predict`, `embed`, `calibrate`, `probe`, `zeroshot`: which model, which images, what is written.

The same frozen dataclasses serve the command line, YAML recipes and Python; see cxrhf/settings.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from cxrhf.data.settings import LABEL_POLICIES
from cxrhf.errors import ConfigError
from cxrhf.findings import finding_name
from cxrhf.settings import check_one_of, check_range, either, set_field, split_list

# Settings of `cxrhf train`: which images and labels, which network, how it learns.

TASKS = ("findings", "sex", "race", "view", "age_band")
FITS = ("crop", "squash")
PIXELS = ("auto", "imagenet", "unit", "half", "xrv")
OPTIMIZERS = ("adam", "adamw", "sgd")
SCHEDULES = ("constant", "cosine", "plateau", "step")
PRECISIONS = ("auto", "float32", "bf16", "fp16")
CLASS_WEIGHTS = ("none", "balanced")
TRACKERS = ("none", "tensorboard", "trackio")
DEVICES = ("auto", "cpu", "cuda", "mps")
BEST = ("loss", "auroc")
PLATEAU = (*BEST, "accuracy")
CONDITIONS = ("sex", "race", "view", "age", "dataset")
RUN: dict[str, Any] = {"metavar": "RUN", "aliases": ("-o",)}
BUILD: dict[str, Any] = {"positional": True, "metavar": "BUILD", "help": "Folder written by cxrhf build."}
DEVICE: dict[str, Any] = {"help": f"Device to run on: {', '.join(DEVICES)}."}
WORKERS: dict[str, Any] = {
    "help": "Processes that read images; chosen automatically if omitted. Results do not change."
}
MEMORY: dict[str, Any] = {
    "metavar": "GB",
    "help": "Memory per process for caching images; a dataset that does not fit is read again in every epoch.",
}
LABELS: dict[str, Any] = {
    "metavar": "POLICY",
    "help": f"How uncertain and blank labels count: {', '.join(LABEL_POLICIES)}. Default: the build's policy.",
}
OVERWRITE: dict[str, Any] = {"help": "Replace a run made from other inputs."}


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """Images and labels of a build -> a network, its checkpoints and its history."""

    build: str = field(metadata=BUILD)
    out: str | None = field(default=None, metadata=RUN | {"help": "Run folder. Default: runs/<build>-<backbone>."})
    name: str | None = field(
        default=None, metadata={"metavar": "MODEL", "help": "Model name in tables and pages. Default: the run's name."}
    )
    seed: int = field(default=0, metadata={"help": "Seed of weights, order, augmentation and dropout."})
    seeds: str | None = field(
        default=None, metadata={"metavar": "0-9", "help": "Train one network per seed: 0-9, or 0,3,5."}
    )
    tracker: str = field(
        default="none",
        metadata={"metavar": "NAME", "help": "Also log curves to tensorboard or trackio; both stay on this disk."},
    )
    overwrite: bool = field(default=False, metadata=OVERWRITE)
    findings: tuple[str, ...] = field(
        default=(),
        metadata={"group": "data", "metavar": "FINDING,...", "help": "Findings to learn. Default: all of the build."},
    )
    tasks: tuple[str, ...] = field(
        default=("findings",),
        metadata={
            "metavar": "TASK,...",
            "help": f"What one shared network learns: {', '.join(TASKS)}. The losses of the tasks are added.",
        },
    )
    only: tuple[str, ...] = field(
        default=(),
        metadata={
            "metavar": "GROUP=VALUE,...",
            "help": "Train and validate on a subgroup: sex=F, race=White, view=AP|PA, age=18-65. All conditions must "
            "hold.",
        },
    )
    labels: str | None = field(default=None, metadata=LABELS)
    max_images: int | None = field(
        default=None, metadata={"help": "Maximum number of training images; whole patients, sampled with the seed."}
    )
    train_split: str = field(default="train", metadata={"metavar": "SPLIT", "help": "Split to train on."})
    validate_split: str = field(
        default="validate", metadata={"metavar": "SPLIT", "help": "Split that selects the best epoch."}
    )
    shuffle_labels: bool = field(
        default=False,
        metadata={
            "help": "Permute labels between patients in training and validation, to check for leakage: expect AUROC "
            "0.5."
        },
    )
    backbone: str = field(
        default="densenet121",
        metadata={"group": "network", "metavar": "NAME", "help": "Any timm network: densenet121, resnet50, ..."},
    )
    weights: str = field(
        default="imagenet",
        metadata={
            "metavar": "SOURCE",
            "help": "Initial weights: imagenet (from timm; tf_efficientnet_lite0 needs no network connection), random, "
            "a run, a model folder or a .safetensors file.",
        },
    )
    freeze: bool = field(
        default=False, metadata={"help": "Train only the last layer; keep all others, with their batch statistics."}
    )
    channels: int = field(default=3, metadata={"help": "Input channels: 3, or 1."})
    kaiming: bool = field(default=False, metadata={"help": "Kaiming (He) initialisation of random weights."})
    drop_rate: float = field(default=0.0, metadata={"help": "Dropout before the last layer."})
    drop_path: float = field(default=0.0, metadata={"help": "Stochastic depth: share of residual branches dropped."})
    size: int = field(
        default=224,
        metadata={"group": "image and augmentation", "help": "Side of the network's input images, in pixels."},
    )
    fit: str = field(
        default="crop",
        metadata={
            "metavar": "HOW",
            "help": "How an image becomes square: crop (resize the shorter side, then crop the centre), or squash.",
        },
    )
    pixels: str = field(
        default="auto",
        metadata={
            "metavar": "SCALE",
            "help": "Pixel scale: imagenet (its mean and standard deviation), unit (0 to 1), half (-1 to 1), xrv "
            "(-1024 to 1024), auto (as recorded with the weights, otherwise imagenet).",
        },
    )
    flip: float = field(default=0.0, metadata={"help": "Probability of a horizontal flip."})
    rotation: float = field(default=0.0, metadata={"help": "Maximum rotation in degrees."})
    translate: float = field(default=0.0, metadata={"help": "Maximum shift, as a share of the side."})
    scale: float = field(default=0.0, metadata={"help": "Maximum change of scale: 0.1 is 0.9 to 1.1."})
    augment_p: float = field(
        default=1.0,
        metadata={"help": "Probability of rotation, shift and scale, drawn separately; 1 applies all in one step."},
    )
    learning_rate: float = field(default=1e-4, metadata={"group": "optimisation", "help": "Peak learning rate."})
    batch_size: int = field(
        default=64, metadata={"help": "Images per step, summed over all processes and accumulation steps."}
    )
    epochs: int = field(default=10, metadata={"help": "Passes over the training images."})
    max_steps: int | None = field(default=None, metadata={"help": "Maximum number of steps, whatever the epoch."})
    optimizer: str = field(default="adam", metadata={"metavar": "NAME", "help": f"{', '.join(OPTIMIZERS)}."})
    weight_decay: float = field(default=0.0, metadata={"help": "Weight decay."})
    schedule: str = field(
        default="constant",
        metadata={
            "metavar": "HOW",
            "help": "Learning rate schedule: constant, cosine (to 0), plateau (multiply by --factor after --patience "
            "validations without improvement), step (multiply by --factor every --step-every epochs).",
        },
    )
    warmup: int = field(default=0, metadata={"help": "Steps of linear warm-up from 0."})
    factor: float = field(default=0.1, metadata={"help": "Factor of the schedules plateau and step."})
    patience: int = field(default=3, metadata={"help": "Validations without improvement before plateau reduces."})
    plateau_by: str | None = field(
        default=None,
        metadata={
            "metavar": "WHAT",
            "help": "Validation metric that plateau watches: loss, auroc or accuracy (share of known labels that are "
            "correct at probability 0.5; an improvement is at least 0.01% of it). Defaults to --best-by.",
        },
    )
    step_every: int = field(default=40, metadata={"help": "Epochs between reductions of the schedule step."})
    clip: float | None = field(default=None, metadata={"help": "Maximum gradient norm."})
    class_weights: str = field(
        default="none",
        metadata={
            "metavar": "HOW",
            "help": "none, or balanced: the positives of a rare finding weigh as much as its negatives. Probabilities "
            "are then too high until calibrated.",
        },
    )
    best_by: str = field(
        default="loss",
        metadata={
            "group": "validation and checkpoint",
            "metavar": "WHAT",
            "help": "Select the best epoch by validation loss or auroc.",
        },
    )
    early_stop: int | None = field(
        default=None, metadata={"help": "Stop after this many validations without improvement; the best is kept."}
    )
    validate_every: int = field(default=1, metadata={"help": "Epochs between validations."})
    save_every: int = field(
        default=500, metadata={"help": "Steps between checkpoints; one is also saved after every epoch."}
    )
    device: str = field(default="auto", metadata={"group": "hardware"} | DEVICE)
    precision: str = field(
        default="auto",
        metadata={"metavar": "KIND", "help": "auto (bf16 on GPUs that support it), float32, bf16, fp16."},
    )
    accumulate: int = field(
        default=1, metadata={"help": "Accumulation steps: split each batch into this many parts to save memory."}
    )
    checkpointing: bool = field(
        default=False, metadata={"help": "Gradient checkpointing: less memory, about 30% more time."}
    )
    workers: int | None = field(default=None, metadata=WORKERS)
    memory: float = field(default=4.0, metadata=MEMORY)

    def __post_init__(self) -> None:
        set_field(self, "findings", tuple(finding_name(each) for each in split_list(self.findings)))
        set_field(self, "tasks", tuple(dict.fromkeys(split_list(self.tasks))))
        set_field(self, "only", split_list(self.only))
        for each in self.tasks:
            check_one_of("tasks", each, TASKS)
        if not self.tasks:
            raise ConfigError("tasks is empty", allowed=either(TASKS))
        for each in self.only:
            condition(each)
        for name, value, allowed in (
            ("fit", self.fit, FITS), ("pixels", self.pixels, PIXELS), ("optimizer", self.optimizer, OPTIMIZERS),
            ("schedule", self.schedule, SCHEDULES), ("class_weights", self.class_weights, CLASS_WEIGHTS),
            ("precision", self.precision, PRECISIONS), ("best_by", self.best_by, BEST),
            ("device", self.device, DEVICES), ("tracker", self.tracker, TRACKERS),
        ):  # fmt: skip
            check_one_of(name, value, allowed)
        if self.plateau_by is not None:
            check_one_of("plateau_by", self.plateau_by, PLATEAU)
        for name, number, low, high in (
            ("size", self.size, 16, 4096), ("flip", self.flip, 0, 1), ("rotation", self.rotation, 0, 180),
            ("translate", self.translate, 0, 0.9), ("scale", self.scale, 0, 0.9), ("augment_p", self.augment_p, 0, 1),
            ("learning_rate", self.learning_rate, 1e-12, 100), ("weight_decay", self.weight_decay, 0, 100),
            ("batch_size", self.batch_size, 1, 1_000_000), ("accumulate", self.accumulate, 1, self.batch_size),
            ("epochs", self.epochs, 1, 100_000), ("warmup", self.warmup, 0, 100_000_000),
            ("factor", self.factor, 1e-6, 1), ("patience", self.patience, 0, 100_000),
            ("step_every", self.step_every, 1, 100_000), ("drop_rate", self.drop_rate, 0, 0.95),
            ("drop_path", self.drop_path, 0, 0.95), ("validate_every", self.validate_every, 1, 100_000),
            ("save_every", self.save_every, 1, 100_000_000), ("seed", self.seed, 0, 2**63 - 1),
            ("memory", self.memory, 0, 100_000),
        ):  # fmt: skip
            check_range(name, number, low, high)
        for name, maybe, low, high in (
            ("max_steps", self.max_steps, 1, 100_000_000), ("max_images", self.max_images, 2, 1_000_000_000),
            ("clip", self.clip, 1e-6, 1e9), ("early_stop", self.early_stop, 1, 100_000),
            ("workers", self.workers, 0, 1024),
        ):  # fmt: skip
            if maybe is not None:
                check_range(name, maybe, low, high)
        if self.channels not in (1, 3):
            raise ConfigError("channels is out of range", got=self.channels, allowed="1 or 3")
        self.all_seeds()  # says now what is wrong with them

    def all_seeds(self) -> tuple[int, ...]:
        """Every seed that is trained, in order."""
        return (self.seed,) if self.seeds is None else seed_list(self.seeds)


def seed_list(text: str) -> tuple[int, ...]:
    """`0-9` or `0,3,5` -> seeds, each once.

    >>> seed_list("0-2,7")
    (0, 1, 2, 7)
    """
    seeds: list[int] = []
    for part in split_list(text):
        match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last or last - first > 10_000:
            raise ConfigError("seeds is not a list of seeds", got=text, allowed="0-9 or 0,3,5")
        seeds += range(first, last + 1)
    if not seeds:
        raise ConfigError("seeds is not a list of seeds", got=text, allowed="0-9 or 0,3,5")
    return tuple(dict.fromkeys(seeds))


def condition(text: str) -> tuple[str, tuple[str, ...]]:
    """`view=AP|PA` -> ("view", ("AP", "PA")).

    >>> condition("age=18-65")
    ('age', ('18', '65'))
    """
    name, equals, values = text.partition("=")
    name = name.strip()
    if not equals or not values.strip():
        raise ConfigError("only is not a condition", got=text, allowed="sex=F, race=White|Asian, view=AP or age=18-65")
    check_one_of("only", name, CONDITIONS)
    if name != "age":
        return name, tuple(each.strip() for each in values.split("|"))
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*-\s*(\d+(?:\.\d+)?)\s*", values)
    if match is None or float(match[1]) > float(match[2]):
        raise ConfigError("only is not an age range", got=text, allowed="age=18-65 (inclusive)")
    return name, (match[1], match[2])


# The main part.

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
        set_field(self, "splits", split_list(self.splits))
        if not self.splits:
            raise ConfigError("splits is empty", allowed="names of splits or all")
        check_one_of("precision", self.precision, PRECISIONS)
        check_one_of("device", self.device, DEVICES)
        check_range("batch_size", self.batch_size, 1, 1_000_000)
        if self.workers is not None:
            check_range("workers", self.workers, 0, 1024)
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
        check_one_of("method", self.method, METHODS)
        check_one_of("device", self.device, DEVICES)
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
        set_field(self, "backbones", split_list(self.backbones))
        set_field(self, "targets", tuple(dict.fromkeys(split_list(self.targets))))
        set_field(self, "findings", tuple(finding_name(each) for each in split_list(self.findings)))
        for each in self.targets:
            check_one_of("targets", each, TASKS)
        if not self.targets or not self.backbones:
            raise ConfigError("targets and backbones: at least one of each is required")
        check_one_of("device", self.device, DEVICES)
        check_range("size", self.size, 16, 4096)
        check_range("epochs", self.epochs, 1, 100_000)
        check_range("learning_rate", self.learning_rate, 1e-12, 100)
        check_range("batch_size", self.batch_size, 1, 1_000_000)
        check_range("n_resamples", self.n_resamples, 10, 1_000_000)
        check_range("seed", self.seed, 0, 2**63 - 1)
        if self.folds is not None:
            check_range("folds", self.folds, 2, 50)
        if self.reduce is not None:
            check_range("reduce", self.reduce, 1, 100_000)
        if self.workers is not None:
            check_range("workers", self.workers, 0, 1024)


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
        set_field(self, "findings", tuple(finding_name(each) for each in split_list(self.findings)))
        set_field(self, "splits", split_list(self.splits))
        if not self.splits:
            raise ConfigError("splits is empty", allowed="names of splits or all")
        check_one_of("device", self.device, DEVICES)
        check_range("batch_size", self.batch_size, 1, 1_000_000)
