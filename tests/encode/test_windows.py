"""Windows: nothing is lost, nothing is read twice for nothing, and every model gets what it can read."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from cxrhf.cli.flags import parse
from cxrhf.context.settings import ContextFitConfig
from cxrhf.encode import encode_texts, identity, same_encoder, saved_settings
from cxrhf.encode.encoder import open_encoder
from cxrhf.encode.settings import EncodeConfig
from cxrhf.encode.windows import Frame, cut, position_limit, special_tokens
from cxrhf.errors import ConfigError
from cxrhf.settings import from_mapping, to_mapping
from tests.encode.tiny import notes, save_tiny
from tests.refusals import refused


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
    with refused(ConfigError, "minilm", "at most 512", got="600", fix="--max-length 512"):
        open_encoder(EncodeConfig("minilm", max_length=600))


@pytest.fixture
def long(tmp_path: Path) -> str:
    """A Mistral of a few weights with the real one's positions: 32,768."""
    return str(save_tiny("mistral", tmp_path / "long", max_position_embeddings=32_768))


def test_an_encoder_reads_windows_of_its_own_length(long: str, bert: str) -> None:
    """All encoders were given windows of 512 tokens; the paper's code gives Mistral 4096, less two."""
    assert open_encoder(EncodeConfig(long, pooling="paper")).frame == Frame(4094, 50)
    asked = ContextFitConfig("data", encoders=(long, bert), max_length=(f"{long}=100", "60"), overlap=5)
    assert [open_encoder(asked.encode(each)).frame.window for each in asked.encoders] == [99, 58]
    with pytest.raises(ConfigError) as refused:
        open_encoder(EncodeConfig(bert, max_length=100))
    assert f"--max-length {bert}=64" in str(refused.value)


def test_windows_of_another_length_have_their_own_vectors_and_identity(long: str, own_cache: Path) -> None:
    texts = [" ".join(notes(40))]
    whole, parts = (encode_texts(texts, EncodeConfig(long, max_length=length)) for length in (None, 512))
    assert not np.allclose(whole, parts)
    assert len([each for each in own_cache.iterdir() if each.is_dir()]) == 2
    assert identity(EncodeConfig(long))["window"] == 4095


@pytest.mark.parametrize("pooling", ["tokens", "paper"])
def test_a_saved_run_keeps_its_windows(long: str, pooling: str) -> None:
    """Runs from before this version read 512 tokens, and do not say so in their settings."""
    before = identity(EncodeConfig(long, pooling=pooling, max_length=512))
    settings = saved_settings({"settings": asdict(EncodeConfig(long, pooling=pooling)), "identity": before})
    assert settings.max_length == 512
    same_encoder(before, settings)
    assert saved_settings({"settings": {"encoder": long}, "identity": {}}) == EncodeConfig(long)


@pytest.mark.parametrize(
    ("given", "lengths"),
    [(None, [None, None]), (512, [512, 512]), ("512", [512, 512]), ("mistral=4096", [4096, None]),
     ("mistral=4096,512", [4096, 512]), (["512", "mistral=2048"], [2048, 512])],
)  # fmt: skip
def test_lengths_by_encoder(given: object, lengths: list[int | None]) -> None:
    values = {"build": "data", "encoders": ["mistral", "bert"], "max_length": given}
    made = from_mapping(ContextFitConfig, values)
    assert [made.encode(each).max_length for each in made.encoders] == lengths
    assert from_mapping(ContextFitConfig, to_mapping(made)) == made  # as run.json keeps it
    if isinstance(given, str):
        flags = ["data", "--encoders", "mistral,bert", "--max-length", given]
        assert parse(ContextFitConfig, flags, verb="context fit", about="") == made


@pytest.mark.parametrize("wrong", ["many", "1.5", "512,256", "bert=512", "mistral=", "7", "mistral=60", "9" * 5000])
def test_lengths_that_mean_nothing_are_refused(wrong: str) -> None:
    with pytest.raises(ConfigError):
        from_mapping(
            ContextFitConfig, {"build": "data", "encoders": "minilm,mistral", "max_length": wrong, "overlap": 60}
        )


def test_a_tokenizer_that_names_no_length_leaves_it_to_the_model(tiny: dict[str, Path]) -> None:
    encoder = open_encoder(EncodeConfig(str(tiny["roberta"]), overlap=5))
    assert encoder.tokenizer.model_max_length > 1e20
    assert position_limit(encoder.config) == 64
    assert special_tokens(encoder.tokenizer) == ((0,), (2,))


def test_an_overlap_that_does_not_fit_is_refused(bert: str) -> None:
    settings = EncodeConfig(bert, overlap=62)
    with refused(ConfigError, "--overlap", "62 tokens", "0 to 61", got="62"):
        open_encoder(settings)
    assert open_encoder(replace(settings, overlap=61)).frame.overlap == 61
