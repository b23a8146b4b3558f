"""Settings of `cxrhf finetune`: which reports, which vision-language model, how its adapters learn.

The same frozen dataclasses serve the command line, YAML recipes and Python; see config.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cxrhf.config import one_of, within
from cxrhf.config_train import BUILD, DEVICE, DEVICES, OVERWRITE, PRECISIONS, RUN, TRACKERS, WORKERS
from cxrhf.errors import ConfigError

TINY = "tiny"
VIEWS = ("frontal", "all")
SCHEDULES = ("constant", "cosine")
KEEP = ("best", "last")


@dataclass(frozen=True, slots=True)
class FinetuneConfig:
    """Images and reports of a build -> LoRA adapters of a vision-language model, its checkpoints and its history."""

    build: str = field(metadata=BUILD)
    model: str = field(
        default="Qwen/Qwen3-VL-8B-Instruct",
        metadata={
            "metavar": "MODEL",
            "help": "Any image-text-to-text model of transformers: a folder, or ORG/NAME of the Hugging Face Hub. "
            f"{TINY}: a small Qwen3-VL with random weights, made in RUN/base from the reports, for a CPU.",
        },
    )
    out: str | None = field(default=None, metadata=RUN | {"help": "Run folder; runs/<build>-<model> if not given."})
    name: str | None = field(
        default=None, metadata={"metavar": "NAME", "help": "Name of the model in tables and pages; the run's name."}
    )
    prompt: str | None = field(
        default=None,
        metadata={
            "metavar": "TEXT",
            "help": "What the model is asked; may hold {indication}, {age}, {sex}, {view}, {comparison}. Our own words "
            "without any of them if not given: the image only.",
        },
    )
    size: int = field(default=512, metadata={"help": "Side of the pictures that the model sees."})
    max_length: int = field(
        default=1024, metadata={"help": "Tokens of a question with its picture and its answer; longer ones are cut."}
    )
    views: str = field(default="frontal", metadata={"metavar": "WHICH", "help": "frontal (PA, AP), or all."})
    female: float | None = field(
        default=None,
        metadata={
            "metavar": "SHARE",
            "help": "Share of images of women to learn from: .5 balanced, .33, .67; drawn by patient. As the build is "
            "if not given.",
        },
    )
    max_examples: int | None = field(
        default=None, metadata={"help": "Learn from at most so many images, drawn by patient and seed."}
    )
    max_validate: int | None = field(
        default=500, metadata={"help": "Validate on at most so many images, drawn by patient and seed."}
    )
    train_split: str = field(default="train", metadata={"metavar": "SPLIT", "help": "Split to learn from."})
    validate_split: str = field(
        default="validate", metadata={"metavar": "SPLIT", "help": "Split that chooses the adapter that is kept."}
    )
    lora_rank: int = field(default=16, metadata={"help": "Rank of the adapters."})
    lora_alpha: float = field(default=32.0, metadata={"help": "Adapters are scaled by alpha / rank."})
    lora_dropout: float = field(default=0.0, metadata={"help": "Dropout before the adapters."})
    train_embeddings: bool = field(
        default=False, metadata={"help": "Learn the embeddings of words too: large files; for models from nothing."}
    )
    epochs: int = field(default=1, metadata={"help": "Times that every example is seen."})
    max_steps: int | None = field(default=None, metadata={"help": "Stop after so many steps, whatever the epoch."})
    batch_size: int = field(
        default=16, metadata={"help": "Examples of one step, over all processes and pieces together."}
    )
    accumulate: int = field(
        default=1, metadata={"help": "Pieces a batch is cut into, one after the other, to need less memory."}
    )
    learning_rate: float = field(default=1e-4, metadata={"help": "Learning rate at its highest."})
    weight_decay: float = field(default=0.0, metadata={"help": "Weight decay."})
    schedule: str = field(
        default="cosine", metadata={"metavar": "HOW", "help": "Learning rate: cosine (to 0), constant."}
    )
    warmup: int = field(default=0, metadata={"help": "Steps over which the learning rate rises from 0."})
    clip: float | None = field(default=1.0, metadata={"help": "Largest length of the gradient; longer ones are cut."})
    gradient_checkpointing: bool = field(
        default=False, metadata={"help": "Compute activations twice: much less memory, some 30% more time."}
    )
    group_by_length: bool = field(
        default=True, metadata={"help": "Like lengths go into one batch: less computing. --no-group-by-length: any do."}
    )
    precision: str = field(
        default="auto", metadata={"metavar": "KIND", "help": "auto (bf16 on a GPU that has it), float32, bf16, fp16."}
    )
    four_bit: bool = field(
        default=False, metadata={"help": "Keep the frozen weights in 4 bits; needs a GPU and bitsandbytes."}
    )
    keep: str = field(
        default="best",
        metadata={"metavar": "WHICH", "help": "Adapter that is kept: best by validation loss, or last."},
    )
    validate_every: int | None = field(
        default=None, metadata={"help": "Steps between two validations; at the end of every epoch if not given."}
    )
    save_every: int = field(
        default=200, metadata={"help": "Steps between checkpoints, besides one at every validation."}
    )
    merge: bool = field(
        default=False, metadata={"help": "Also write RUN/merged: the whole model with the adapter in its weights."}
    )
    tiny_hidden: int = field(default=128, metadata={"help": "Width of the model `tiny`."})
    tiny_layers: int = field(default=2, metadata={"help": "Layers of the language model of `tiny`."})
    seed: int = field(default=0, metadata={"help": "Seed of adapters, order, dropout, mix, and of `tiny`."})
    workers: int | None = field(default=None, metadata=WORKERS)
    device: str = field(default="auto", metadata=DEVICE)
    tracker: str = field(
        default="none",
        metadata={"metavar": "NAME", "help": "Curves also for tensorboard or trackio, on this disk, never online."},
    )
    overwrite: bool = field(default=False, metadata=OVERWRITE)

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("views", self.views, VIEWS), ("schedule", self.schedule, SCHEDULES), ("keep", self.keep, KEEP),
            ("precision", self.precision, PRECISIONS), ("device", self.device, DEVICES),
            ("tracker", self.tracker, TRACKERS),
        ):  # fmt: skip
            one_of(f"{name}: not known", value, allowed)
        for name, number, low, high in (
            ("size", self.size, 16, 4096), ("max_length", self.max_length, 16, 1_000_000),
            ("lora_rank", self.lora_rank, 1, 4096), ("lora_alpha", self.lora_alpha, 1e-6, 1e6),
            ("lora_dropout", self.lora_dropout, 0, 0.95), ("epochs", self.epochs, 1, 100_000),
            ("batch_size", self.batch_size, 1, 1_000_000), ("accumulate", self.accumulate, 1, self.batch_size),
            ("learning_rate", self.learning_rate, 1e-12, 100), ("weight_decay", self.weight_decay, 0, 100),
            ("warmup", self.warmup, 0, 100_000_000), ("save_every", self.save_every, 1, 100_000_000),
            ("tiny_hidden", self.tiny_hidden, 16, 4096), ("tiny_layers", self.tiny_layers, 1, 64),
            ("seed", self.seed, 0, 2**63 - 1),
        ):  # fmt: skip
            within(name, number, low, high)
        for name, maybe, low, high in (
            ("female", self.female, 0, 1), ("max_examples", self.max_examples, 2, 1_000_000_000),
            ("max_validate", self.max_validate, 1, 1_000_000_000), ("max_steps", self.max_steps, 1, 100_000_000),
            ("clip", self.clip, 1e-6, 1e9), ("validate_every", self.validate_every, 1, 100_000_000),
            ("workers", self.workers, 0, 1024),
        ):  # fmt: skip
            if maybe is not None:
                within(name, maybe, low, high)
        if not self.model.strip():
            raise ConfigError("model is empty", allowed=f"a folder, ORG/NAME of the Hugging Face Hub, {TINY}")
        if self.train_split == self.validate_split:
            raise ConfigError("train_split and validate_split are the same", got=self.train_split)
