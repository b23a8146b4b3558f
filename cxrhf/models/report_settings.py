"""Settings of `cxrhf finetune`: which reports, which vision-language model, how its adapters learn.

The same frozen dataclasses serve the command line, YAML recipes and Python; see cxrhf/settings.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from cxrhf.encode.settings import EncodeConfig
from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.models.settings import BUILD, DEVICE, DEVICES, OVERWRITE, PRECISIONS, RUN, TRACKERS, WORKERS
from cxrhf.settings import check_one_of, check_range, set_field, split_list

if TYPE_CHECKING:
    from cxrhf.tables.columns import GenerationColumns


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
            check_one_of(name, value, allowed)
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
            check_range(name, number, low, high)
        for name, maybe, low, high in (
            ("female", self.female, 0, 1), ("max_examples", self.max_examples, 2, 1_000_000_000),
            ("max_validate", self.max_validate, 1, 1_000_000_000), ("max_steps", self.max_steps, 1, 100_000_000),
            ("clip", self.clip, 1e-6, 1e9), ("validate_every", self.validate_every, 1, 100_000_000),
            ("workers", self.workers, 0, 1024),
        ):  # fmt: skip
            if maybe is not None:
                check_range(name, maybe, low, high)
        if not self.model.strip():
            raise ConfigError("model is empty", allowed=f"a folder, ORG/NAME of the Hugging Face Hub, {TINY}")
        if self.train_split == self.validate_split:
            raise ConfigError("train_split and validate_split are the same", got=self.train_split)


# Settings of `cxrhf generate`: which model writes about which images, how it is decoded; or whose reports are read.

BALANCE = ("sex", "none")
PER = ("patient", "study", "image")
COLUMNS = ("image", "patient", "generated", "reference", "sex", "age", "race", "strategy", "dataset")
_COLUMN: dict[str, Any] = {"metavar": "COLUMN"}


@dataclass(frozen=True, slots=True)
class GenerateConfig:
    """A vision-language model and the images of a build, or reports from elsewhere -> GENERATION rows."""

    source: str | None = field(
        default=None,
        metadata={
            "positional": True,
            "metavar": "MODEL",
            "help": "Run of cxrhf finetune, model or adapter folder, or ORG/NAME on the Hugging Face Hub. Omit with "
            "--from.",
        },
    )
    build: str | None = field(
        default=None, metadata={"metavar": "BUILD", "help": "Folder written by cxrhf build, with images and reports."}
    )
    out: str | None = field(
        default=None,
        metadata=RUN | {"help": "Run folder to write or to add to. Default: runs/<model>-reports."},
    )
    model: str | None = field(
        default=None,
        metadata={"metavar": "NAME", "help": "Model name in tables and pages; with --from also a column."},
    )
    seed: int = field(default=0, metadata={"help": "Seed of the sampled images and of sampling strategies."})
    overwrite: bool = field(
        default=False, metadata={"help": "Replace the contents of the run folder and generate everything again."}
    )
    split: str = field(
        default="test", metadata={"group": "data", "metavar": "SPLIT", "help": "Split of the images, or all."}
    )
    n_images: int = field(
        default=2000,
        metadata={
            "metavar": "N",
            "aliases": ("--n",),
            "help": "Maximum number of images, patients sampled with the seed; 0: all. Under torchrun --n-images: it "
            "reads --n as short for one of its options.",
        },
    )
    per: str = field(
        default="patient",
        metadata={
            "metavar": "WHOM",
            "help": "One image per patient (tests of words treat all words as independent), one per study, or every "
            "image: patient, study, image.",
        },
    )
    balance: str = field(
        default="sex",
        metadata={"metavar": "WHAT", "help": "sex: equal numbers of women and men, others excluded; none: all images."},
    )
    views: str = field(
        default="frontal",
        metadata={"metavar": "WHICH", "help": "frontal (PA or AP), or all."},
    )
    size: int | None = field(
        default=None, metadata={"help": "Side of the images in pixels. Default: as in fine-tuning, otherwise 512."}
    )
    strategies: tuple[str, ...] = field(
        default=("all",),
        metadata={
            "group": "decoding",
            "metavar": "STRATEGY,...",
            "help": "Decoding strategies: all, greedy, beam, conservative, rich, top_k, top_p, or a YAML file with "
            "your own.",
        },
    )
    prompt: str | None = field(
        default=None,
        metadata={
            "metavar": "TEXT",
            "help": "Prompt; may contain {indication}, {age}, {sex}, {view}, {comparison}. Default: the prompt of the "
            "fine-tuning, otherwise ours.",
        },
    )
    adapter: str | None = field(
        default=None, metadata={"metavar": "ADAPTER", "help": "LoRA adapter to load onto MODEL: a run or a folder."}
    )
    max_new_tokens: int | None = field(
        default=None, metadata={"help": "Maximum tokens of a report. Default: 512, or as a YAML strategy sets it."}
    )
    batch_size: int = field(
        default=8,
        metadata={
            "group": "hardware",
            "help": "Reports generated at a time, in each process; each beam counts as a report.",
        },
    )
    device: str = field(default="auto", metadata=DEVICE)
    precision: str = field(
        default="auto",
        metadata={"metavar": "KIND", "help": "auto (bf16 on GPUs that support it), float32, bf16, fp16."},
    )
    four_bit: bool = field(default=False, metadata={"help": "Load weights in 4 bits; requires a GPU and bitsandbytes."})
    reports: tuple[str, ...] = field(
        default=(),
        metadata={
            "group": "existing report",
            "metavar": "FILE",
            "aliases": ("--from",),
            "help": "Existing reports: one or more Parquet, CSV, TSV or JSON lines files.",
        },
    )
    image: str | None = field(default=None, metadata=_COLUMN | {"help": "With --from: image or study id."})
    patient: str | None = field(default=None, metadata=_COLUMN | {"help": "With --from: patient id."})
    generated: str | None = field(
        default=None,
        metadata=_COLUMN | {"help": "With --from: generated report; several: greedy=COLUMN,rich=COLUMN."},
    )
    reference: str | None = field(
        default=None, metadata=_COLUMN | {"help": "With --from: reference report, or findings+impression."}
    )
    sex: str | None = field(default=None, metadata=_COLUMN | {"help": "With --from: sex."})
    age: str | None = field(default=None, metadata=_COLUMN | {"help": "With --from: age in years."})
    race: str | None = field(default=None, metadata=_COLUMN | {"help": "With --from: race or ethnicity."})
    strategy: str | None = field(
        default=None,
        metadata=_COLUMN | {"help": "With --from: decoding strategy, a column or the name of the only one."},
    )
    dataset: str | None = field(
        default=None, metadata=_COLUMN | {"help": "With --from: dataset, a column or the name of the only one."}
    )

    def __post_init__(self) -> None:
        set_field(self, "strategies", split_list(self.strategies))
        set_field(self, "reports", (self.reports,) if isinstance(self.reports, str) else tuple(self.reports))
        if bool(self.source) == bool(self.reports):
            raise ConfigError(
                "input",
                got="both" if self.source else "neither",
                allowed="a model or existing reports",
                next_step="cxrhf generate MODEL --build BUILD, or cxrhf generate --from reports.csv --out RUN",
            )
        if self.source and not self.build:
            raise ConfigError(
                "--build is missing: it supplies the images", next_step=f"cxrhf generate {self.source} --build BUILD"
            )
        given = [name for name in COLUMNS if getattr(self, name) is not None]
        if self.source and given:
            raise ConfigError(
                f"--{given[0]} names a column of --from FILE, but MODEL was given",
                next_step="--strategies selects the decoding" if given[0] == "strategy" else "omit one of the two",
            )
        if self.reports and (self.build or self.adapter or self.prompt):
            raise ConfigError("--from reads existing reports", next_step="omit --build, --adapter and --prompt")
        check_one_of("views", self.views, VIEWS)
        check_one_of("balance", self.balance, BALANCE)
        check_one_of("per", self.per, PER)
        check_one_of("precision", self.precision, PRECISIONS)
        check_one_of("device", self.device, DEVICES)
        check_range("n_images", self.n_images, 0, 1_000_000_000)
        check_range("seed", self.seed, 0, 2**63 - 1)
        check_range("batch_size", self.batch_size, 1, 1_000_000)
        if self.size is not None:
            check_range("size", self.size, 16, 4096)
        if self.max_new_tokens is not None:
            check_range("max_new_tokens", self.max_new_tokens, 1, 1_000_000)

    def columns(self) -> GenerationColumns:
        """The columns named by the user, as `load_generations(columns=...)` takes them."""
        from cxrhf.tables.columns import GenerationColumns

        return GenerationColumns(**{each.name: getattr(self, each.name) for each in fields(GenerationColumns)})


# Settings of `cxrhf score`: which run, which scores, which encoder.

METRICS = ("bertscore", "semantic", "ratescore", "radgraph")
_CALLABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_NAMED = re.compile(r"([\w.\-]+)=(.+)")


@dataclass(frozen=True, slots=True)
class ScoreConfig:
    """Generated reports of a run -> SCORE rows and vectors of reports."""

    run: str = field(metadata={"positional": True, "metavar": "RUN", "help": "Run folder of cxrhf generate."})
    metrics: tuple[str, ...] = field(
        default=("bertscore", "semantic"),
        metadata={
            "metavar": "SCORE,...",
            "help": "bertscore; semantic (one embedding per report); ratescore and radgraph, if their packages and "
            "weights are installed; MODULE:FUNCTION, your own function (references, generated) -> numbers.",
        },
    )
    encoder: str = field(
        default="minilm",
        metadata={
            "metavar": "MODEL",
            "aliases": ("--encoders",),
            "help": "Encoder of bertscore and semantic: minilm (ships in a Python package, needs no network), bert, "
            "pubmedbert and others, a folder, or any model on the Hugging Face Hub; NAME=PATH sets its name, and "
            "chexbert=chexbert.pth loads CheXbert's checkpoint.",
        },
    )
    tokenizer: str | None = field(
        default=None,
        metadata={
            "metavar": "FOLDER",
            "help": "For a checkpoint: folder of bert-base-uncased (config and tokenizer). Default: the Hub's cache.",
        },
    )
    layer: int | None = field(
        default=None, metadata={"help": "Layer whose embeddings BERTScore uses. Default: the last."}
    )
    idf: bool = field(default=False, metadata={"help": "Weight rare tokens of the references more in BERTScore."})
    overlap: int = field(default=50, metadata={"help": "Tokens shared by neighbouring windows of a long report."})
    max_length: int | None = field(
        default=None, metadata={"help": "Tokens per window. Default: the encoder's limit, at most 4096."}
    )
    device: str = field(default="auto", metadata={"help": f"Device of the encoder: {', '.join(DEVICES)}."})
    dtype: str = field(default="auto", metadata={"help": "auto (bfloat16 on GPUs that support it), float32, bfloat16."})
    batch_tokens: int = field(default=8192, metadata={"help": "Tokens per batch of the encoder."})
    cache: str | None = field(
        default=None,
        metadata={
            "metavar": "FOLDER",
            "help": "Cache of scores and embeddings, by content and encoder; off disables it. Default: CXRHF_CACHE or "
            "~/.cache/cxrhf/notes.",
        },
    )
    allow_bin: bool = field(
        default=False,
        metadata={"help": "Load an encoder that only has .bin weights, with torch's restricted reader."},
    )

    def __post_init__(self) -> None:
        set_field(self, "metrics", tuple(dict.fromkeys(split_list(self.metrics))))
        if not self.metrics:
            raise ConfigError("metrics is empty", allowed=f"{', '.join(METRICS)} or MODULE:FUNCTION")
        for each in self.metrics:
            if each not in METRICS and not _CALLABLE.fullmatch(each):
                raise ConfigError(
                    "metrics", got=each, allowed=f"{', '.join(METRICS)} or MODULE:FUNCTION",
                    next_step=did_you_mean(each, METRICS),
                )  # fmt: skip
        if self.encoder.strip() == "chexbert":
            raise ConfigError(
                "chexbert is not on the Hub: it requires weights on this machine",
                next_step="--encoder chexbert=/path/to/chexbert.pth (with --tokenizer FOLDER of bert-base-uncased), "
                "or chexbert=FOLDER in transformers format",
            )
        if self.layer is not None:
            check_range("layer", self.layer, 0, 10_000)
        self.encode(self.named()[1])  # its checks

    def named(self) -> tuple[str | None, str]:
        """NAME and PATH of `NAME=PATH`; no name for a preset, a folder or an id."""
        found = _NAMED.fullmatch(self.encoder.strip())
        return (found[1], found[2]) if found else (None, self.encoder.strip())

    def encode(self, encoder: str) -> EncodeConfig:
        """The settings of an encoder, where it was found."""
        return EncodeConfig(
            encoder=encoder, overlap=self.overlap, max_length=self.max_length, dtype=self.dtype, device=self.device,
            batch_tokens=self.batch_tokens, allow_bin=self.allow_bin,
        )  # fmt: skip
