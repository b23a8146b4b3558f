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
            "help": "Run of cxrhf finetune, model or adapter folder, or ORG/NAME of the Hugging Face Hub; none with "
            "--from.",
        },
    )
    build: str | None = field(
        default=None, metadata={"metavar": "BUILD", "help": "Folder made by cxrhf build, with images and reports."}
    )
    strategies: tuple[str, ...] = field(
        default=("all",),
        metadata={
            "metavar": "STRATEGY,...",
            "help": "Ways of decoding: all, greedy, beam, conservative, rich, top_k, top_p, or a YAML file with your "
            "own.",
        },
    )
    out: str | None = field(
        default=None,
        metadata=RUN | {"help": "Run folder to write or to add to; runs/<model>-reports if not given."},
    )
    split: str = field(default="test", metadata={"metavar": "SPLIT", "help": "Split of the images, or all."})
    views: str = field(
        default="frontal",
        metadata={"metavar": "WHICH", "help": "frontal (PA or AP), or all."},
    )
    per: str = field(
        default="patient",
        metadata={
            "metavar": "WHOM",
            "help": "One image a patient (tests of words count every word as a new one), a study, or every image.",
        },
    )
    n_images: int = field(
        default=2000,
        metadata={
            "metavar": "N",
            "aliases": ("--n",),
            "help": "Images at most, patients drawn by the seed; 0: all. Under torchrun --n-images: it takes --n for "
            "an abbreviation of its own options.",
        },
    )
    balance: str = field(
        default="sex",
        metadata={"metavar": "WHAT", "help": "sex: as many women as men, others left out; none: as they are."},
    )
    prompt: str | None = field(
        default=None,
        metadata={
            "metavar": "TEXT",
            "help": "What the model is asked, with {indication}, {age}, {sex}, {view}, {comparison} where wanted; that "
            "of its fine-tuning, or ours, if not given.",
        },
    )
    adapter: str | None = field(
        default=None, metadata={"metavar": "ADAPTER", "help": "LoRA weights to put onto MODEL: a run or a folder."}
    )
    max_new_tokens: int | None = field(
        default=None, metadata={"help": "Longest report in tokens; 512 if not given. YAML files say their own."}
    )
    size: int | None = field(
        default=None, metadata={"help": "Side of the pictures; that of the fine-tuning, or 512, if not given."}
    )
    seed: int = field(default=0, metadata={"help": "Seed of the sample and of what strategies draw."})
    batch_size: int = field(default=8, metadata={"help": "Reports at a time, in each process; beams count as reports."})
    precision: str = field(
        default="auto", metadata={"metavar": "KIND", "help": "auto (bf16 on a GPU that has it), float32, bf16, fp16."}
    )
    four_bit: bool = field(default=False, metadata={"help": "Weights in 4 bits; needs a GPU and bitsandbytes."})
    device: str = field(default="auto", metadata=DEVICE)
    reports: tuple[str, ...] = field(
        default=(),
        metadata={
            "metavar": "FILE",
            "aliases": ("--from",),
            "help": "Reports generated elsewhere: Parquet, CSV, TSV or JSON lines, one file or several.",
        },
    )
    model: str | None = field(
        default=None,
        metadata={"metavar": "NAME", "help": "Name of the model in tables and pages; with --from also a column."},
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
        default=None, metadata=_COLUMN | {"help": "With --from: way of decoding, a column or the name of the one."}
    )
    dataset: str | None = field(
        default=None, metadata=_COLUMN | {"help": "With --from: dataset, a column or the name of the one."}
    )
    overwrite: bool = field(default=False, metadata={"help": "Replace what the run folder holds, and write all anew."})

    def __post_init__(self) -> None:
        set_field(self, "strategies", listed(self.strategies))
        set_field(self, "reports", (self.reports,) if isinstance(self.reports, str) else tuple(self.reports))
        if bool(self.source) == bool(self.reports):
            what = "a model and reports from elsewhere" if self.source else "neither a model nor reports"
            raise ConfigError(
                f"{what} were given",
                allowed="one of them",
                next_step="cxrhf generate MODEL --build BUILD, or cxrhf generate --from reports.csv --out RUN",
            )
        if self.source and not self.build:
            raise ConfigError(
                "no build was given: images of what?", next_step=f"cxrhf generate {self.source} --build BUILD"
            )
        given = [name for name in COLUMNS if getattr(self, name) is not None]
        if self.source and given:
            raise ConfigError(
                f"{given[0]} names a column of a file, and a model writes the reports",
                next_step="--strategies chooses the decoding"
                if given[0] == "strategy"
                else "leave it away, or --from FILE",
            )
        if self.reports and (self.build or self.adapter or self.prompt):
            raise ConfigError("--from reads reports that are written: no build, adapter or prompt is needed")
        one_of("views: not known", self.views, VIEWS)
        one_of("balance: not known", self.balance, BALANCE)
        one_of("per: not known", self.per, PER)
        one_of("precision: not known", self.precision, PRECISIONS)
        one_of("device: not known", self.device, DEVICES)
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
