"""Settings of `cxrhf generate`: which model writes about which images, how it is decoded; or whose reports are read.

The same frozen dataclasses serve the command line, YAML recipes and Python; see config.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from cxrhf.config import listed, one_of, set_field, within
from cxrhf.config_train import DEVICE, DEVICES, PRECISIONS, RUN
from cxrhf.errors import ConfigError

if TYPE_CHECKING:
    from cxrhf.tables.generation_columns import GenerationColumns

VIEWS = ("frontal", "all")
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
        set_field(self, "strategies", listed(self.strategies))
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
        one_of("views", self.views, VIEWS)
        one_of("balance", self.balance, BALANCE)
        one_of("per", self.per, PER)
        one_of("precision", self.precision, PRECISIONS)
        one_of("device", self.device, DEVICES)
        within("n_images", self.n_images, 0, 1_000_000_000)
        within("seed", self.seed, 0, 2**63 - 1)
        within("batch_size", self.batch_size, 1, 1_000_000)
        if self.size is not None:
            within("size", self.size, 16, 4096)
        if self.max_new_tokens is not None:
            within("max_new_tokens", self.max_new_tokens, 1, 1_000_000)

    def columns(self) -> GenerationColumns:
        """The columns named by the user, as `load_generations(columns=...)` takes them."""
        from cxrhf.tables.generation_columns import GenerationColumns

        return GenerationColumns(**{each.name: getattr(self, each.name) for each in fields(GenerationColumns)})
