"""Settings of an encoder: which one, which text it reads, and how windows become a vector."""

from __future__ import annotations

from dataclasses import dataclass

from cxrhf.errors import ConfigError
from cxrhf.settings import check_one_of, check_range

RECIPES = ("plain", "oberst")
POOLINGS = ("tokens", "paper", "code")
DTYPES = ("auto", "float32", "bfloat16")
DEVICES = ("auto", "cpu", "cuda", "mps")


@dataclass(frozen=True, slots=True)
class EncodeConfig:
    """How the text of a note becomes a vector; everything here but device and batch is part of the cache's key."""

    encoder: str = "minilm"
    recipe: str = "plain"
    pooling: str = "tokens"
    overlap: int = 50
    max_length: int | None = None
    dtype: str = "auto"
    device: str = "auto"
    batch_tokens: int = 8192
    allow_bin: bool = False

    def __post_init__(self) -> None:
        check_one_of("recipe", self.recipe, RECIPES)
        check_one_of("pooling", self.pooling, POOLINGS)
        check_one_of("dtype", self.dtype, DTYPES)
        check_one_of("device", self.device, DEVICES)
        check_range("overlap", self.overlap, 0, 100_000)
        check_range("batch_tokens", self.batch_tokens, 16, 10_000_000)
        if self.max_length is not None:
            check_range("max_length", self.max_length, 8, 1_000_000)
            if self.overlap >= self.max_length - 2:
                raise ConfigError(
                    "overlap is as long as a window", got=self.overlap, allowed=f"less than {self.max_length - 2}"
                )
