"""Settings of `cxrhf train`: which images and labels, which network, how it learns.

The same frozen dataclasses serve the command line, YAML recipes and Python; see config.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from cxrhf.config import either, listed, one_of, set_field, within
from cxrhf.config_build import LABEL_POLICIES
from cxrhf.errors import ConfigError
from cxrhf.findings import finding_name

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
        set_field(self, "findings", tuple(finding_name(each) for each in listed(self.findings)))
        set_field(self, "tasks", tuple(dict.fromkeys(listed(self.tasks))))
        set_field(self, "only", listed(self.only))
        for each in self.tasks:
            one_of("tasks", each, TASKS)
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
            one_of(name, value, allowed)
        if self.plateau_by is not None:
            one_of("plateau_by", self.plateau_by, PLATEAU)
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
            within(name, number, low, high)
        for name, maybe, low, high in (
            ("max_steps", self.max_steps, 1, 100_000_000), ("max_images", self.max_images, 2, 1_000_000_000),
            ("clip", self.clip, 1e-6, 1e9), ("early_stop", self.early_stop, 1, 100_000),
            ("workers", self.workers, 0, 1024),
        ):  # fmt: skip
            if maybe is not None:
                within(name, maybe, low, high)
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
    for part in listed(text):
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
    one_of("only", name, CONDITIONS)
    if name != "age":
        return name, tuple(each.strip() for each in values.split("|"))
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*-\s*(\d+(?:\.\d+)?)\s*", values)
    if match is None or float(match[1]) > float(match[2]):
        raise ConfigError("only is not an age range", got=text, allowed="age=18-65 (inclusive)")
    return name, (match[1], match[2])
