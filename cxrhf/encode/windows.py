"""Tokens of a text -> windows that an encoder can read.

A text is cut without special tokens. A window takes `max_length` less the room of the special tokens, neighbours share
`overlap` tokens, the last window may be shorter, and no window lies wholly inside the one before.

>>> cut(10, window=6, overlap=2)
[(0, 6), (4, 10)]
>>> cut(11, window=6, overlap=2)
[(0, 6), (4, 10), (8, 11)]
>>> cut(0, window=6, overlap=2)
[]
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from cxrhf.config_context import EncodeConfig
from cxrhf.encode.files import SENTENCES
from cxrhf.errors import ConfigError

# Tokens of a window if nobody asks for others, special tokens included. An encoder reads as many as its own config and
# tokenizer name; the paper's code stops at 4096 with Mistral, which has positions for 32768.
LONGEST = 4096
_UNNAMED = 512  # where neither the config nor the tokenizer names a limit
CODE_ROOM = 2  # the public code leaves room for two special tokens and adds none
# Models that number positions from behind the padding token's, so that their table holds fewer than it has rows.
_SHIFTED = frozenset(
    ("camembert", "data2vec-text", "ibert", "layoutlmv3", "lilt", "longformer", "luke", "markuplm", "mpnet", "roberta",
     "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod")
)  # fmt: skip


class Frame(NamedTuple):
    """How texts are cut: tokens of a window without the special ones, tokens that neighbours share, special tokens."""

    window: int
    overlap: int
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    @property
    def room(self) -> int:
        """Special tokens of a window."""
        return len(self.before) + len(self.after)


def frame(config: Any, tokenizer: Any, folder: Path, settings: EncodeConfig) -> Frame:
    """The frame that a model and the settings ask for; a ConfigError if it does not fit."""
    before, after = special_tokens(tokenizer)
    if settings.pooling != "tokens":
        before, after = (), ()
    room = len(before) + len(after) if settings.pooling == "tokens" else CODE_ROOM
    limit = position_limit(config)
    if settings.max_length is not None:
        if limit is not None and settings.max_length > limit:
            raise ConfigError(
                f"encoder {settings.encoder}, --max-length",
                allowed=f"at most {limit:,} tokens",
                got=str(settings.max_length),
                next_step=f"--max-length {min(limit, LONGEST)}; in a fit with several encoders, --max-length "
                f"{settings.encoder}={min(limit, LONGEST)} sets it for this one only",
            )
        length = settings.max_length
    else:
        named = [each for each in (limit, _asked(tokenizer, folder)) if each is not None]
        length = min(LONGEST, *named) if named else _UNNAMED
    window = length - room
    if settings.overlap >= window:
        raise ConfigError(
            f"encoder {settings.encoder}, --overlap, with windows of {max(window, 0):,} tokens",
            got=str(settings.overlap),
            allowed=f"0 to {window - 1}" if window > 0 else "a larger --max-length",
        )
    return Frame(window, settings.overlap, before, after)


def cut(n_tokens: int, window: int, overlap: int) -> list[tuple[int, int]]:
    """Start and end of each window of a text."""
    if n_tokens <= 0:
        return []
    step = window - overlap
    count = 1 + max(0, -(-(n_tokens - window) // step))
    return [(at * step, min(at * step + window, n_tokens)) for at in range(count)]


def position_limit(config: Any) -> int | None:
    """The most tokens that a model has positions for; None if it has no such limit."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    rows = getattr(text, "max_position_embeddings", None)
    if not isinstance(rows, int) or rows <= 0:
        return None
    if getattr(text, "model_type", "") in _SHIFTED:
        padding = getattr(text, "pad_token_id", None)
        rows -= 1 + (1 if padding is None else int(padding))
    return rows


def special_tokens(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the tokenizer puts before and after a text, seen on a short one."""
    bare = list(tokenizer("chest", add_special_tokens=False)["input_ids"])
    full = list(tokenizer("chest", add_special_tokens=True)["input_ids"])
    for at in range(len(full) - len(bare) + 1):
        if full[at : at + len(bare)] == bare:
            return tuple(full[:at]), tuple(full[at + len(bare) :])
    return (), ()


def _asked(tokenizer: Any, folder: Path) -> int | None:
    """The length that the tokenizer, or the page of a sentence encoder, names; many tokenizers say 1e30."""
    asked = []
    length = getattr(tokenizer, "model_max_length", None)
    if length is not None and 0 < length < 1_000_000:
        asked.append(int(length))
    try:
        length = json.loads((folder / SENTENCES).read_text(encoding="utf-8")).get("max_seq_length")
    except (OSError, ValueError, AttributeError):
        length = None
    if isinstance(length, int) and length > 0:
        asked.append(length)
    return min(asked, default=None)
