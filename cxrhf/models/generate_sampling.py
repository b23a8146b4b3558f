"""Scores of the next token -> the token that a report's own random numbers choose.

transformers draws a whole batch from one generator, so a report would depend on its neighbours and on how far a run had
come. Here every report draws from numbers of its own, which follow from (its key, position, token) alone: Gumbel noise
is added to the scores after temperature, top-k and top-p, and the largest one is taken. That is an exact draw from the
same distribution. Noise that belongs to a token, rather than one number that is looked up in a cumulated sum, also
keeps the choice when another batch size changes the last digits of the scores.

The noise comes from a hash in whole numbers, so it is the same on every device, and needs no state to be kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cxrhf.models.seeding import number
from cxrhf.models.strategies import Strategy

_WORD = 0xFFFFFFFF
# Two rounds of a 32-bit mixing function. The second factor stands less 2**32, so that no product leaves 64 bits.
_FACTORS = (0x7FEB352D, 0x846CA68B - 2**32)


def gumbel(keys: Sequence[int], step: int, vocabulary: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """(reports, vocabulary) noise of one step: independent standard Gumbel numbers."""
    seeds = [number(key, "step", step) for key in keys]
    low, high = (
        torch.tensor([each >> shift & _WORD for each in seeds], device=device).unsqueeze(1) for shift in (0, 32)
    )
    tokens = torch.arange(vocabulary, device=device).unsqueeze(0)
    x = _mixed((_mixed(tokens ^ low) + high) & _WORD)
    if torch.device(device).type == "mps":  # has no float64; its largest noise is 16.6 instead of 22.9
        uniform = ((x.to(torch.float32) + 0.5) / 2**32).clamp(2**-33, 1 - 2**-24)
    else:
        uniform = (x.to(torch.float64) + 0.5) / 2**32
    return uniform.log_().neg_().log_().neg_()


def _mixed(x: torch.Tensor) -> torch.Tensor:
    x = x ^ (x >> 16)
    x = (x * _FACTORS[0]) & _WORD
    x = x ^ (x >> 15)
    x = (x * _FACTORS[1]) & _WORD
    return x ^ (x >> 16)


class OwnDraw:
    """A logits processor after which the largest score is the drawn token; one key for each row."""

    def __init__(self, keys: Sequence[int], start: int) -> None:
        self.keys, self.start = list(keys), start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        assert len(scores) == len(self.keys)
        return scores + gumbel(self.keys, input_ids.shape[1] - self.start, scores.shape[1], scores.device)


class OnlyNew:
    """A logits processor that sees the new tokens alone: prompts, and what fills them up, are not repeated words."""

    def __init__(self, processor: Any, start: int) -> None:
        self.processor, self.start = processor, start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        new = input_ids[:, self.start :]
        changed: torch.Tensor = self.processor(new, scores) if new.shape[1] else scores
        return changed


def processors(strategy: Strategy, keys: Sequence[int], start: int) -> list[Any]:
    """What turns scores into the choice of a strategy, in transformers' order; `start` is the prompts' length."""
    from transformers.generation import logits_process as usual

    made: list[Any] = []
    if strategy.repetition_penalty != 1:
        made.append(OnlyNew(usual.RepetitionPenaltyLogitsProcessor(strategy.repetition_penalty), start))
    if strategy.no_repeat_ngram_size:
        made.append(OnlyNew(usual.NoRepeatNGramLogitsProcessor(strategy.no_repeat_ngram_size), start))
    if not strategy.do_sample:
        return made
    if strategy.temperature != 1:
        made.append(usual.TemperatureLogitsWarper(strategy.temperature))
    if strategy.top_k:
        made.append(usual.TopKLogitsWarper(strategy.top_k))
    if strategy.top_p < 1:
        made.append(usual.TopPLogitsWarper(strategy.top_p))
    if strategy.min_p:
        made.append(usual.MinPLogitsWarper(strategy.min_p))
    return [*made, OwnDraw(keys, start)]
