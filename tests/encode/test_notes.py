"""Encoding as a whole: what is read, how often, and that nothing but the text decides about its vector."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from cxrhf.encode import encode_texts
from cxrhf.encode import processes as progress_module
from cxrhf.encode.cache import reader
from cxrhf.encode.settings import EncodeConfig
from cxrhf.encode.windows import Frame, batch_windows, blocks, pad_batch, windows_of
from cxrhf.errors import CxrhfWarning, TableError
from tests.encode.tiny import notes
from tests.refusals import refused


def test_batch_size_and_row_order_do_not_matter(bert: str, passes: list[tuple[int, int]]) -> None:
    texts = [*notes(15), " ".join(notes(8, seed=9))]
    found = {}
    for batch_tokens in (64, 300, 100_000):
        passes.clear()
        found[batch_tokens] = encode_texts(
            texts, EncodeConfig(bert, overlap=10, batch_tokens=batch_tokens), cache="off"
        )
        assert all(rows * width <= max(batch_tokens, 64) for rows, width in passes)
    np.testing.assert_allclose(found[64], found[300], atol=1e-5)
    np.testing.assert_allclose(found[64], found[100_000], atol=1e-5)
    order = np.random.default_rng(0).permutation(len(texts))
    shuffled = encode_texts([texts[at] for at in order], EncodeConfig(bert, overlap=10, batch_tokens=300), cache="off")
    np.testing.assert_array_equal(shuffled, found[300][order])  # the same notes meet in the same batches


def test_padding_is_small(bert: str, passes: list[tuple[int, int]]) -> None:
    texts = notes(200, longest=40)
    encode_texts(texts, EncodeConfig(bert, overlap=10, batch_tokens=512), cache="off")
    frame = Frame(62, 10, (1,), (2,))
    from cxrhf.encode.encoder import open_encoder, token_ids

    lengths = [len(ids) for ids in token_ids(open_encoder(EncodeConfig(bert, overlap=10)).tokenizer, texts)]
    needed = sum(each.end - each.start + 2 for each in windows_of(lengths, frame))
    assert needed <= sum(rows * width for rows, width in passes) <= 1.15 * needed


def test_each_distinct_text_is_read_once(bert: str, passes: list[tuple[int, int]]) -> None:
    texts = notes(6, longest=8)
    found = encode_texts(texts * 3 + [texts[0].upper()], EncodeConfig(bert), cache="off")
    assert sum(rows for rows, _ in passes) == 7
    np.testing.assert_array_equal(found[:6], found[6:12])
    assert not np.array_equal(found[0], found[18])


def test_kinds_of_columns(bert: str) -> None:
    texts: list[str | None] = ["fluid", None, "no fluid", "", "fluid"]
    settings = EncodeConfig(bert)
    with pytest.warns(CxrhfWarning, match="2 of 5 texts"):
        expected = encode_texts([each or "" for each in texts], settings)
    assert not expected[[1, 3]].any()
    columns = (
        pa.array(texts),
        pa.chunked_array([texts[:2], [], texts[2:]], pa.large_string()),
        pa.array(texts).dictionary_encode(),
    )
    for column in columns:
        with pytest.warns(CxrhfWarning, match="2 of 5"):
            np.testing.assert_array_equal(encode_texts(column, settings), expected)
    assert encode_texts([], settings).shape == (0, 32)
    assert encode_texts(pa.chunked_array([], pa.string()), settings).shape == (0, 32)
    with refused(TableError, "the texts", "strings"):
        encode_texts(pa.array([1, 2]), settings)
    with pytest.raises(TableError, match="Unicode"):
        encode_texts(["\ud800"], settings)
    read = reader(pa.chunked_array([["a"], [], ["b", "c"]]))
    assert [read(at) for at in range(3)] == ["a", "b", "c"]


def test_a_text_of_200_000_characters_and_one_of_none(bert: str, passes: list[tuple[int, int]]) -> None:
    long = ("pleural effusion, no pneumothorax. " * 6000)[:200_000]
    word = "x" * 20_000  # no place to cut
    with pytest.warns(CxrhfWarning, match="1 of 3 texts"):
        found = encode_texts([long, "", word], EncodeConfig(bert, overlap=10, batch_tokens=2048))
    assert len(passes) > 30  # the windows of one note over many batches, each within the budget
    assert max(rows * width for rows, width in passes) <= 2048
    assert np.isfinite(found).all()
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [1, 0, 1], atol=1e-6)


def test_blocks_hold_everything_once_and_do_not_depend_on_order() -> None:
    rng = np.random.default_rng(1)
    letters = rng.integers(1, 5000, size=300)
    digests = [bytes([at % 251, at // 251]) for at in range(300)]
    made = blocks(letters, digests, batch_tokens=500)
    assert sorted(at for block in made for at in block) == list(range(300))
    assert all(letters[block].sum() <= 8000 or len(block) == 1 for block in made)
    order = rng.permutation(300)
    again = blocks(letters[order], [digests[at] for at in order], batch_tokens=500)
    assert [[int(order[at]) for at in block] for block in again] == made


def test_a_batch_by_hand() -> None:
    frame = Frame(4, 1, (101,), (102,))
    windows = windows_of([5, 0, 2], frame)
    assert [tuple(each) for each in windows] == [(0, 0, 4), (0, 3, 5), (2, 0, 2)]
    first, second = batch_windows(windows, frame, 10)
    assert (len(first), len(second)) == (1, 2)
    tokens = [np.array([11, 12, 13, 14, 15]), np.array([], dtype=np.int64), np.array([21, 22])]
    ids, mask = pad_batch(tokens, windows, frame, 0)
    assert ids.tolist() == [[101, 11, 12, 13, 14, 102], [101, 14, 15, 102, 0, 0], [101, 21, 22, 102, 0, 0]]
    assert mask.tolist() == [[1] * 6, [1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 0, 0]]


def test_progress_says_notes_per_second(
    bert: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_module, "EVERY", 0.0)
    said: list[str] = []
    texts = notes(20)
    encode_texts(texts, EncodeConfig(bert, batch_tokens=64, overlap=10), progress=said.append)
    assert said[0] == "bert: 20 notes, 20 different"
    assert all("of 20 notes" in line and "notes/s" in line and line.endswith(" left") for line in said[1:-1])
    assert said[-1].startswith("bert: 20 notes in ")
    assert said[-1].endswith(" notes/s")
    assert len(said) > 10
    assert not any(word in line for line in said for word in ("effusion", "pleural"))
    encode_texts(texts, EncodeConfig(bert, overlap=10), cache="off", progress=True)
    shown = capsys.readouterr()
    assert not shown.out
    assert "20 of 20 notes" in shown.err
    assert "notes/s" in shown.err
    said.clear()
    encode_texts(texts, EncodeConfig(bert, overlap=10, batch_tokens=64), progress=said.append)
    assert not said  # all in the cache
