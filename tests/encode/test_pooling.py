"""Every pooling against the slow twin: one window at a time, in plain torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from cxrhf.encode import encode_sets, encode_texts
from cxrhf.encode.files import locate
from cxrhf.encode.settings import EncodeConfig
from cxrhf.errors import CxrhfWarning, TableError
from tests.encode.tiny import notes, plain, slow_vector
from tests.refusals import refused

POOLINGS = ("tokens", "paper", "code")
# Notes 0 and 4 are long, 5 is empty; set 2 holds it alone, set 3 with others, set 4 nothing.
SETS = sparse.csr_array(
    np.array(
        [[1, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1], [1, 0, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0]],
        dtype=np.float64,
    )
)


def six_notes() -> list[str]:
    short = notes(4, seed=3, longest=20)
    return [" ".join(notes(6, seed=1)), short[0], short[1], short[2], " ".join(notes(3, seed=2)), " \n"]


@pytest.mark.parametrize("kind", ["bert", "roberta", "mistral"])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_texts_equal_the_slow_twin(tiny: dict[str, Path], kind: str, pooling: str) -> None:
    texts = six_notes()
    model, tokenizer = plain(tiny[kind])
    window = 63 if kind == "mistral" and pooling == "tokens" else 62
    assert len(tokenizer(texts[0], verbose=False)["input_ids"]) > 4 * window
    slow = np.array([slow_vector(model, tokenizer, text.strip(), pooling, window, 10) for text in texts])
    with pytest.warns(CxrhfWarning, match="1 of 6 texts"):
        fast = encode_texts(texts, EncodeConfig(str(tiny[kind]), pooling=pooling, overlap=10, batch_tokens=200))
    assert fast.dtype == np.float32
    assert fast.shape == (6, 32)
    np.testing.assert_allclose(fast, slow, atol=1e-5)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.filterwarnings("ignore::cxrhf.errors.CxrhfWarning")
def test_sets_equal_the_slow_twin(tiny: dict[str, Path], pooling: str) -> None:
    texts = six_notes()
    model, tokenizer = plain(tiny["bert"])
    expected = []
    for row in SETS.toarray():
        chosen = [texts[at] for at in np.flatnonzero(row) if texts[at].strip()]
        if pooling == "code":
            expected.append(slow_vector(model, tokenizer, " ".join(chosen), pooling, 62, 10))
            continue
        each = [slow_vector(model, tokenizer, text, pooling, 62, 10) for text in chosen]
        mean = np.mean(each, axis=0) if each else np.zeros(32)
        expected.append(mean / np.linalg.norm(mean) if pooling == "tokens" and each else mean)
    found = encode_sets(texts, SETS, EncodeConfig(str(tiny["bert"]), pooling=pooling, overlap=10))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    lengths = np.linalg.norm(found[[0, 1, 3]], axis=1)
    assert np.allclose(lengths, 1, atol=1e-6) == (pooling == "tokens")


def test_notes_in_no_set_are_not_encoded_and_values_do_not_matter(bert: str, passes: list[tuple[int, int]]) -> None:
    texts = notes(5, longest=8)
    sets = sparse.csr_array(np.array([[0.0, 3.0, 0.0, 0.5, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0]]))
    settings = EncodeConfig(bert, overlap=10)
    found = encode_sets(texts, sets, settings, cache="off")
    assert sum(rows for rows, _ in passes) == 2
    apart = encode_texts(texts, settings)
    mean = (apart[1] + apart[3]) / 2
    np.testing.assert_allclose(found, [mean / np.linalg.norm(mean), apart[1]], atol=1e-6)
    with refused(TableError, "4 columns", got="5"):
        encode_sets(texts[:4], sets, settings)


def test_minilm_is_all_minilm() -> None:
    """Mean over all tokens, special ones too, then length 1: what the model's page says, computed directly."""
    import torch

    texts = ["No pleural effusion.", "a large left-sided pneumothorax, chest tube placed", "the cat sat on the mat"]
    folder = locate("minilm").folder
    assert folder is not None
    model, tokenizer = plain(folder)
    tokenizer.backend_tokenizer.no_padding()
    expected = []
    for text in texts:
        with torch.inference_mode():
            hidden = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        expected.append(torch.nn.functional.normalize(hidden.mean(0), dim=0).numpy())
    found = encode_texts(texts, EncodeConfig("minilm"))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found[0] @ found[1] > found[0] @ found[2] + 0.2  # it has a meaning


def test_bfloat16_is_close_to_float32() -> None:
    texts = notes(4, longest=30)
    exact = encode_texts(texts, EncodeConfig("minilm", dtype="float32"))
    rough = encode_texts(texts, EncodeConfig("minilm", dtype="bfloat16"))
    assert not np.array_equal(exact, rough)
    assert ((exact * rough).sum(axis=1) > 0.995).all()
