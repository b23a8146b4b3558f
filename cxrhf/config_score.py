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
        set_field(self, "metrics", tuple(dict.fromkeys(listed(self.metrics))))
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
