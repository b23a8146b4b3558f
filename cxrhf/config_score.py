"""Settings of `cxrhf score`: which run, which scores, which encoder.

The same frozen dataclass serves the command line, YAML recipes and Python; see config.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cxrhf.config import listed, set_field, within
from cxrhf.config_context import DEVICES, EncodeConfig
from cxrhf.errors import ConfigError, did_you_mean

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
            "help": "bertscore; semantic (a vector a report); ratescore and radgraph, if their packages and weights "
            "are on this machine; MODULE:FUNCTION, a function of your own (references, generated) -> numbers.",
        },
    )
    encoder: str = field(
        default="minilm",
        metadata={
            "metavar": "MODEL",
            "aliases": ("--encoders",),
            "help": "Encoder of bertscore and semantic: minilm (inside a Python package, no network), bert, pubmedbert "
            "and others, a folder, any model of the Hugging Face Hub; NAME=PATH gives it a name, and "
            "chexbert=chexbert.pth reads CheXbert's checkpoint.",
        },
    )
    tokenizer: str | None = field(
        default=None,
        metadata={
            "metavar": "FOLDER",
            "help": "For a checkpoint: folder of bert-base-uncased (config and tokenizer); the Hub's cache if not "
            "given.",
        },
    )
    layer: int | None = field(
        default=None, metadata={"help": "Layer that BERTScore takes vectors from; the last one if not given."}
    )
    idf: bool = field(default=False, metadata={"help": "Rare tokens of the references weigh more in BERTScore."})
    overlap: int = field(default=50, metadata={"help": "Tokens that neighbouring windows of a long report share."})
    max_length: int | None = field(
        default=None, metadata={"help": "Tokens of a window; what the encoder reads, to 4096, if not given."}
    )
    device: str = field(default="auto", metadata={"help": f"Where the encoder runs: {', '.join(DEVICES)}."})
    dtype: str = field(default="auto", metadata={"help": "auto (bfloat16 on a GPU that has it), float32, bfloat16."})
    batch_tokens: int = field(default=8192, metadata={"help": "Tokens that the encoder reads at a time."})
    cache: str | None = field(
        default=None,
        metadata={
            "metavar": "FOLDER",
            "help": "Where scores and vectors are kept, by content and encoder; CXRHF_CACHE or ~/.cache/cxrhf/notes; "
            "off for none.",
        },
    )
    allow_bin: bool = field(
        default=False,
        metadata={"help": "Read an encoder that has only .bin weights, with torch's restricted reader."},
    )

    def __post_init__(self) -> None:
        set_field(self, "metrics", tuple(dict.fromkeys(listed(self.metrics))))
        if not self.metrics:
            raise ConfigError("metrics is empty", allowed=f"{', '.join(METRICS)}, MODULE:FUNCTION")
        for each in self.metrics:
            if each not in METRICS and not _CALLABLE.fullmatch(each):
                raise ConfigError(
                    "metrics: not known", got=each, allowed=f"{', '.join(METRICS)}, MODULE:FUNCTION",
                    next_step=did_you_mean(each, METRICS),
                )  # fmt: skip
        if self.encoder.strip() == "chexbert":
            raise ConfigError(
                "chexbert has no id on the Hub: its weights must lie on this machine",
                next_step="--encoder chexbert=/path/to/chexbert.pth (with --tokenizer FOLDER of bert-base-uncased), "
                "or chexbert=FOLDER in transformers format",
            )
        if self.layer is not None:
            within("layer", self.layer, 0, 10_000)
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
