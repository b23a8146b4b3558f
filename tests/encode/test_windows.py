"""Windows: nothing is lost, nothing is read twice for nothing, and every model gets what it can read."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from cxrhf.config_context import EncodeConfig
from cxrhf.encode.loading import open_encoder
from cxrhf.encode.windows import Frame, cut, position_limit, special_tokens
from cxrhf.errors import ConfigError


@pytest.mark.parametrize(("window", "overlap"), [(1, 0), (5, 0), (5, 4), (6, 2), (254, 50), (510, 50)])
def test_windows_cover_the_text_and_none_lies_in_another(window: int, overlap: int) -> None:
    for n in [*range(1, 40), 253, 254, 255, 458, 459, 509, 510, 511, 1000, 50_000]:
        parts = cut(n, window, overlap)
        assert parts[0][0] == 0
        assert parts[-1][1] == n
        for (start, end), (following, last) in pairwise(parts):
            assert end - start == window
            assert end - following == overlap
            assert last > end
        assert 1 <= parts[-1][1] - parts[-1][0] <= window
    assert cut(0, window, overlap) == []


def test_the_frame_of_each_architecture(tiny: dict[str, Path]) -> None:
    frames = {
        (kind, pooling): open_encoder(EncodeConfig(str(tiny[kind]), pooling=pooling, overlap=5)).frame
        for kind in tiny
        for pooling in ("tokens", "paper")
    }
    # 64 positions; RoBERTa's table has 66 rows, of which 2 stand before the first position.
    assert frames["bert", "tokens"] == Frame(62, 5, (1,), (2,))
    assert frames["roberta", "tokens"] == Frame(62, 5, (0,), (2,))
    assert frames["mistral", "tokens"] == Frame(63, 5, (1,), ())
    for kind in tiny:  # the public code leaves room for two and adds none
        assert frames[kind, "paper"] == Frame(62, 5, (), ())


def test_minilm_reads_the_256_tokens_it_was_trained_on_unless_asked_for_more() -> None:
    encoder = open_encoder(EncodeConfig("minilm"))
    assert encoder.frame == Frame(254, 50, (101,), (102,))
    assert position_limit(encoder.config) == 512
    assert open_encoder(EncodeConfig("minilm", max_length=512)).frame.window == 510
    with pytest.raises(ConfigError, match=r"minilm reads 512 tokens at a time.*--max-length 600.*--max-length 512"):
        open_encoder(EncodeConfig("minilm", max_length=600))


def test_a_tokenizer_that_names_no_length_leaves_it_to_the_model(tiny: dict[str, Path]) -> None:
    encoder = open_encoder(EncodeConfig(str(tiny["roberta"]), overlap=5))
    assert encoder.tokenizer.model_max_length > 1e20
    assert position_limit(encoder.config) == 64
    assert special_tokens(encoder.tokenizer) == ((0,), (2,))


def test_an_overlap_that_does_not_fit_is_refused(bert: str) -> None:
    settings = EncodeConfig(bert, overlap=62)
    with pytest.raises(ConfigError, match=r"holds 62 tokens.*--overlap 62.*0 to 61"):
        open_encoder(settings)
    assert open_encoder(replace(settings, overlap=61)).frame.overlap == 61
