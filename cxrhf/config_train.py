"""Settings of `cxrhf train`: which images and labels, which network, how it learns.

The same frozen dataclasses serve the command line, YAML recipes and Python; see config.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from cxrhf.config import listed, one_of, set_field, within
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
BUILD: dict[str, Any] = {"positional": True, "metavar": "BUILD", "help": "Folder made by cxrhf build."}
DEVICE: dict[str, Any] = {"help": f"Where the network runs: {', '.join(DEVICES)}."}
WORKERS: dict[str, Any] = {
    "help": "Processes that read pictures beside the network; chosen if not given. The numbers do not depend on it."
}
MEMORY: dict[str, Any] = {
    "metavar": "GB",
    "help": "Memory of each process for pictures that were read once; a set that does not fit is read in every epoch.",
}
LABELS: dict[str, Any] = {
    "metavar": "POLICY",
    "help": f"Uncertain and blank labels: {', '.join(LABEL_POLICIES)}; as the build says if not given.",
}
OVERWRITE: dict[str, Any] = {"help": "Replace a run that was made from other inputs."}


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """Images and labels of a build -> a network, its checkpoints and its history."""

    build: str = field(metadata=BUILD)
    out: str | None = field(default=None, metadata=RUN | {"help": "Run folder; runs/<build>-<backbone> if not given."})
    name: str | None = field(
        default=None, metadata={"metavar": "MODEL", "help": "Name of the model in tables and pages; the run's name."}
    )
    findings: tuple[str, ...] = field(
        default=(), metadata={"metavar": "FINDING,...", "help": "Findings to learn. All of the build if not given."}
    )
    tasks: tuple[str, ...] = field(
        default=("findings",),
        metadata={
            "metavar": "TASK,...",
            "help": f"What is learned from one shared network: {', '.join(TASKS)}. Losses of the tasks are added.",
        },
    )
    only: tuple[str, ...] = field(
        default=(),
        metadata={
            "metavar": "GROUP=VALUE,...",
            "help": "Train and validate on a part: sex=F, race=White, view=AP|PA, age=18-65. Several must all hold.",
        },
    )
    labels: str | None = field(default=None, metadata=LABELS)
    train_split: str = field(default="train", metadata={"metavar": "SPLIT", "help": "Split to learn from."})
    validate_split: str = field(
        default="validate", metadata={"metavar": "SPLIT", "help": "Split that chooses the best epoch."}
    )
    max_images: int | None = field(
        default=None, metadata={"help": "Learn from at most so many images, whole patients, drawn by the seed."}
    )
    shuffle_labels: bool = field(
        default=False,
        metadata={
            "help": "Deal labels to other patients, in training and validation: a check that nothing leaks (AUROC .5)."
        },
    )
    backbone: str = field(
        default="densenet121", metadata={"metavar": "NAME", "help": "Any network of timm: densenet121, resnet50, ..."}
    )
    weights: str = field(
        default="imagenet",
        metadata={
            "metavar": "SOURCE",
            "help": "Start from: imagenet (timm's; for tf_efficientnet_lite0 a Python package, no network), random, a "
            "run, a model folder, a .safetensors file.",
        },
    )
    channels: int = field(default=3, metadata={"help": "Colour channels of the network's input: 3, or 1."})
    kaiming: bool = field(default=False, metadata={"help": "Random weights as He et al. draw them."})
    freeze: bool = field(
        default=False, metadata={"help": "Learn the last layer only; the rest stays, its batch statistics too."}
    )
    drop_rate: float = field(default=0.0, metadata={"help": "Dropout before the last layer."})
    drop_path: float = field(default=0.0, metadata={"help": "Share of residual branches left out while learning."})
    size: int = field(default=224, metadata={"help": "Side of the pictures that the network sees."})
    fit: str = field(
        default="crop",
        metadata={"metavar": "HOW", "help": "Picture to square: crop (shorter side, then the middle), squash."},
    )
    pixels: str = field(
        default="auto",
        metadata={
            "metavar": "SCALE",
            "help": "Grey levels as numbers: imagenet (its mean and spread), unit (0..1), half (-1..1), xrv "
            "(-1024..1024), auto (what the weights know; imagenet if none do).",
        },
    )
    flip: float = field(default=0.0, metadata={"help": "Probability of a left-right flip of a training picture."})
    rotation: float = field(default=0.0, metadata={"help": "Largest rotation in degrees."})
    translate: float = field(default=0.0, metadata={"help": "Largest shift as a share of the side."})
    scale: float = field(default=0.0, metadata={"help": "Largest change of size: .1 is .9 to 1.1."})
    augment_p: float = field(
        default=1.0,
        metadata={"help": "Probability of rotation, shift and scale, each on its own; 1 does all three in one step."},
    )
    optimizer: str = field(default="adam", metadata={"metavar": "NAME", "help": f"{', '.join(OPTIMIZERS)}."})
    learning_rate: float = field(default=1e-4, metadata={"help": "Learning rate at its highest."})
    weight_decay: float = field(default=0.0, metadata={"help": "Weight decay."})
    batch_size: int = field(
        default=64, metadata={"help": "Images of one step, over all processes and pieces together."}
    )
    accumulate: int = field(
        default=1, metadata={"help": "Pieces a batch is cut into, one after the other, to need less memory."}
    )
    epochs: int = field(default=10, metadata={"help": "Times that every training image is seen."})
    max_steps: int | None = field(default=None, metadata={"help": "Stop after so many steps, whatever the epoch."})
    schedule: str = field(
        default="constant",
        metadata={
            "metavar": "HOW",
            "help": "Learning rate: constant, cosine (to 0), plateau (times --factor after --patience epochs without "
            "gain), step (times --factor every --step-every epochs).",
        },
    )
    warmup: int = field(default=0, metadata={"help": "Steps over which the learning rate rises from 0."})
    factor: float = field(default=0.1, metadata={"help": "What plateau and step multiply the learning rate by."})
    patience: int = field(default=3, metadata={"help": "Validations without gain that plateau waits for."})
    plateau_by: str | None = field(
        default=None,
        metadata={
            "metavar": "WHAT",
            "help": "What plateau watches on validation: loss, auroc or accuracy (share of known labels that are right "
            "at probability .5; a gain is one of at least 0.01% of it). What chooses the best epoch if not given.",
        },
    )
    step_every: int = field(default=40, metadata={"help": "Epochs between two falls of schedule step."})
    clip: float | None = field(default=None, metadata={"help": "Largest length of the gradient; longer ones are cut."})
    class_weights: str = field(
        default="none",
        metadata={
            "metavar": "HOW",
            "help": "none, or balanced: positives of a rare finding weigh as much as its negatives. Probabilities are "
            "then too high until they are calibrated.",
        },
    )
    precision: str = field(
        default="auto", metadata={"metavar": "KIND", "help": "auto (bf16 on a GPU that has it), float32, bf16, fp16."}
    )
    checkpointing: bool = field(
        default=False, metadata={"help": "Gradient checkpointing: less memory, some 30% more time."}
    )
    best_by: str = field(
        default="loss", metadata={"metavar": "WHAT", "help": "Best epoch by validation loss or auroc."}
    )
    early_stop: int | None = field(
        default=None, metadata={"help": "Stop after so many validations without gain; the best is kept in any case."}
    )
    validate_every: int = field(default=1, metadata={"help": "Epochs between two validations."})
    save_every: int = field(
        default=500, metadata={"help": "Steps between checkpoints, besides one at the end of every epoch."}
    )
    seed: int = field(default=0, metadata={"help": "Seed of weights, order, augmentation and dropout."})
    seeds: str | None = field(
        default=None, metadata={"metavar": "0-9", "help": "Train one network a seed: 0-9, or 0,3,5."}
    )
    workers: int | None = field(default=None, metadata=WORKERS)
    memory: float = field(default=4.0, metadata=MEMORY)
    device: str = field(default="auto", metadata=DEVICE)
    tracker: str = field(
        default="none",
        metadata={"metavar": "NAME", "help": "Curves also for tensorboard or trackio, on this disk, never online."},
    )
    overwrite: bool = field(default=False, metadata=OVERWRITE)

    def __post_init__(self) -> None:
        set_field(self, "findings", tuple(finding_name(each) for each in listed(self.findings)))
        set_field(self, "tasks", tuple(dict.fromkeys(listed(self.tasks))))
        set_field(self, "only", listed(self.only))
        for each in self.tasks:
            one_of("tasks: not known", each, TASKS)
        if not self.tasks:
            raise ConfigError("tasks is empty", allowed=", ".join(TASKS))
        for each in self.only:
            condition(each)
        for name, value, allowed in (
            ("fit", self.fit, FITS), ("pixels", self.pixels, PIXELS), ("optimizer", self.optimizer, OPTIMIZERS),
            ("schedule", self.schedule, SCHEDULES), ("class_weights", self.class_weights, CLASS_WEIGHTS),
            ("precision", self.precision, PRECISIONS), ("best_by", self.best_by, BEST),
            ("device", self.device, DEVICES), ("tracker", self.tracker, TRACKERS),
        ):  # fmt: skip
            one_of(f"{name}: not known", value, allowed)
        if self.plateau_by is not None:
            one_of("plateau_by: not known", self.plateau_by, PLATEAU)
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
            raise ConfigError("seeds: not a list of seeds", got=text, allowed="0-9, or 0,3,5")
        seeds += range(first, last + 1)
    if not seeds:
        raise ConfigError("seeds: not a list of seeds", got=text, allowed="0-9, or 0,3,5")
    return tuple(dict.fromkeys(seeds))


def condition(text: str) -> tuple[str, tuple[str, ...]]:
    """`view=AP|PA` -> ("view", ("AP", "PA")).

    >>> condition("age=18-65")
    ('age', ('18', '65'))
    """
    name, equals, values = text.partition("=")
    name = name.strip()
    if not equals or not values.strip():
        raise ConfigError("only: not a condition", got=text, allowed="sex=F, race=White|Asian, view=AP, age=18-65")
    one_of("only: no such column", name, CONDITIONS)
    if name != "age":
        return name, tuple(each.strip() for each in values.split("|"))
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*-\s*(\d+(?:\.\d+)?)\s*", values)
    if match is None or float(match[1]) > float(match[2]):
        raise ConfigError("only: not a range of ages", got=text, allowed="age=18-65 (both included)")
    return name, (match[1], match[2])
