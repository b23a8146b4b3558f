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
    out: str | None = field(default=None, metadata=RUN | {"help": "Run folder. Default: runs/<build>-<model>."})
    name: str | None = field(
        default=None, metadata={"metavar": "NAME", "help": "Model name in tables and pages. Default: the run's name."}
    )
    seed: int = field(default=0, metadata={"help": "Seed of adapters, order, dropout, sampling, and of `tiny`."})
    tracker: str = field(
        default="none",
        metadata={"metavar": "NAME", "help": "Also log curves to tensorboard or trackio; both stay on this disk."},
    )
    overwrite: bool = field(default=False, metadata=OVERWRITE)
    prompt: str | None = field(
        default=None,
        metadata={
            "group": "data",
            "metavar": "TEXT",
            "help": "Prompt of the model; may contain {indication}, {age}, {sex}, {view}, {comparison}. Default: a "
            "prompt without any of them, so that the model sees the image only.",
        },
    )
    size: int = field(default=512, metadata={"help": "Side of the model's input images, in pixels."})
    max_length: int = field(
        default=1024, metadata={"help": "Maximum tokens of prompt, image and report together; longer ones are cut."}
    )
    views: str = field(default="frontal", metadata={"metavar": "WHICH", "help": "frontal (PA, AP), or all."})
    female: float | None = field(
        default=None,
        metadata={
            "metavar": "SHARE",
            "help": "Share of training images of women, such as 0.5 (balanced), 0.33 or 0.67; sampled by patient. "
            "Default: that of the build.",
        },
    )
    max_examples: int | None = field(
        default=None, metadata={"help": "Maximum number of training images, sampled by patient with the seed."}
    )
    max_validate: int | None = field(
        default=500, metadata={"help": "Maximum number of validation images, sampled by patient with the seed."}
    )
    train_split: str = field(default="train", metadata={"metavar": "SPLIT", "help": "Split to train on."})
    validate_split: str = field(
        default="validate", metadata={"metavar": "SPLIT", "help": "Split that selects the adapter to keep."}
    )
    model: str = field(
        default="Qwen/Qwen3-VL-8B-Instruct",
        metadata={
            "group": "model",
            "metavar": "MODEL",
            "help": "Any image-text-to-text model of transformers: a folder, or ORG/NAME on the Hugging Face Hub. "
            f"{TINY}: a small Qwen3-VL with random weights for a CPU, created in RUN/base from the reports.",
        },
    )
    lora_rank: int = field(default=16, metadata={"help": "Rank of the adapters."})
    lora_alpha: float = field(default=32.0, metadata={"help": "Adapters are scaled by alpha / rank."})
    lora_dropout: float = field(default=0.0, metadata={"help": "Dropout before the adapters."})
    train_embeddings: bool = field(
        default=False, metadata={"help": "Also train the word embeddings: large files; for models from scratch."}
    )
    merge: bool = field(
        default=False, metadata={"help": "Also write RUN/merged: the whole model with the adapter merged in."}
    )
    tiny_hidden: int = field(default=128, metadata={"help": "Hidden size of the model `tiny`."})
    tiny_layers: int = field(default=2, metadata={"help": "Layers of the language model of `tiny`."})
    learning_rate: float = field(default=1e-4, metadata={"group": "optimisation", "help": "Peak learning rate."})
    batch_size: int = field(
        default=16, metadata={"help": "Examples per step, summed over all processes and accumulation steps."}
    )
    epochs: int = field(default=1, metadata={"help": "Passes over the training examples."})
    max_steps: int | None = field(default=None, metadata={"help": "Maximum number of steps, whatever the epoch."})
    weight_decay: float = field(default=0.0, metadata={"help": "Weight decay."})
    schedule: str = field(
        default="cosine", metadata={"metavar": "HOW", "help": "Learning rate schedule: cosine (to 0), constant."}
    )
    warmup: int = field(default=0, metadata={"help": "Steps of linear warm-up from 0."})
    clip: float | None = field(default=1.0, metadata={"help": "Maximum gradient norm."})
    group_by_length: bool = field(
        default=True,
        metadata={"help": "Batches group examples of similar length, to save time. --no-group-by-length shuffles."},
    )
    keep: str = field(
        default="best",
        metadata={
            "group": "validation and checkpoint",
            "metavar": "WHICH",
            "help": "Adapter to keep: best by validation loss, or last.",
        },
    )
    validate_every: int | None = field(
        default=None, metadata={"help": "Steps between validations. Default: after every epoch."}
    )
    save_every: int = field(
        default=200, metadata={"help": "Steps between checkpoints; one is also saved at every validation."}
    )
    device: str = field(default="auto", metadata={"group": "hardware"} | DEVICE)
    precision: str = field(
        default="auto",
        metadata={"metavar": "KIND", "help": "auto (bf16 on GPUs that support it), float32, bf16, fp16."},
    )
    four_bit: bool = field(
        default=False, metadata={"help": "Keep the frozen weights in 4 bits; requires a GPU and bitsandbytes."}
    )
    gradient_checkpointing: bool = field(
        default=False, metadata={"help": "Compute activations twice: much less memory, about 30% more time."}
    )
    accumulate: int = field(
        default=1, metadata={"help": "Accumulation steps: split each batch into this many parts to save memory."}
    )
    workers: int | None = field(default=None, metadata=WORKERS)

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("views", self.views, VIEWS), ("schedule", self.schedule, SCHEDULES), ("keep", self.keep, KEEP),
            ("precision", self.precision, PRECISIONS), ("device", self.device, DEVICES),
            ("tracker", self.tracker, TRACKERS),
        ):  # fmt: skip
            one_of(name, value, allowed)
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
