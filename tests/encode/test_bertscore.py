"""BERTScore against its definition, what it must not depend on, its cache, and CheXbert's checkpoint."""

from __future__ import annotations

import math
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cxrhf.encode import bertscore as bertscore_module
from cxrhf.encode import encode_texts
from cxrhf.encode.bertscore import bertscore, greedy, owned, token_vectors
from cxrhf.encode.cache import score_pairs
from cxrhf.encode.chexbert import checkpoint_folder
from cxrhf.encode.files import locate
from cxrhf.encode.settings import EncodeConfig
from cxrhf.encode.windows import cut
from cxrhf.errors import ConfigError, CxrhfError, TableError
from tests.encode.tiny import notes, plain, save_tiny
from tests.refusals import refused

REFERENCES = ["The heart is enlarged. No effusion.", "Clear lungs.", "Small left pleural effusion, no pneumothorax."]
GENERATED = ["Heart size is normal without effusion.", "The lungs are clear.", "Right-sided pneumothorax."]


def slow_vectors(model: Any, tokenizer: Any, text: str, window: int, overlap: int, layer: int = -1) -> list[np.ndarray]:
    """One window at a time; a token of two windows comes from the one in which it stands farther from an edge."""
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    found: dict[int, tuple[int, np.ndarray]] = {}
    start = 0
    while ids:
        part = ids[start : start + window]
        given = [tokenizer.cls_token_id, *part, tokenizer.sep_token_id]
        with torch.inference_mode():
            hidden = model(input_ids=torch.tensor([given]), output_hidden_states=True).hidden_states[layer][0]
        for at in range(len(part)):
            inside = min(at if start else math.inf, len(part) - 1 - at if start + window < len(ids) else math.inf)
            vector = hidden[1 + at].double().numpy()
            if start + at not in found or inside >= found[start + at][0]:
                found[start + at] = (inside, vector / np.linalg.norm(vector))
        if start + window >= len(ids):
            break
        start += window - overlap
    return [vector for _, vector in found.values()]


def slow_bertscore(one: list[np.ndarray], other: list[np.ndarray], weights: Any = None) -> tuple[float, float, float]:
    """Every token of the generated report looks for its best partner, then every token of the reference."""
    of_one, of_other = weights or ([1.0] * len(one), [1.0] * len(other))
    best = [max(float(g @ r) for r in one) for g in other]
    precision = sum(w * each for w, each in zip(of_other, best, strict=True)) / sum(of_other)
    best = [max(float(g @ r) for g in other) for r in one]
    recall = sum(w * each for w, each in zip(of_one, best, strict=True)) / sum(of_one)
    return precision, recall, 2 * precision * recall / (precision + recall)


@pytest.fixture(scope="module")
def minilm() -> tuple[Any, Any]:
    return plain(Path(str(locate("minilm").folder)))


@pytest.mark.parametrize("layer", [None, 0, 4])
def test_equals_the_definition_with_real_weights(minilm: tuple[Any, Any], layer: int | None) -> None:
    found = bertscore(REFERENCES, GENERATED, EncodeConfig("minilm", dtype="float32"), layer=layer, cache="off")
    for row, (reference, made) in enumerate(zip(REFERENCES, GENERATED, strict=True)):
        both = [slow_vectors(*minilm, text, 254, 50, -1 if layer is None else layer) for text in (reference, made)]
        expected = slow_bertscore(*both)
        np.testing.assert_allclose([each[row] for each in found], expected, atol=1e-5)
    assert found.f1[1] > found.f1[2]  # clear lungs are clear lungs


def test_idf_equals_the_definition(minilm: tuple[Any, Any]) -> None:
    found = bertscore(REFERENCES, GENERATED, EncodeConfig("minilm", dtype="float32"), idf=True, cache="off")
    tokenizer = minilm[1]

    def ids(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    held = Counter(token for text in REFERENCES for token in set(ids(text)))

    def weight(text: str) -> list[float]:
        return [math.log((len(REFERENCES) + 1) / (held[token] + 1)) for token in ids(text)]

    for row, (reference, made) in enumerate(zip(REFERENCES, GENERATED, strict=True)):
        both = [slow_vectors(*minilm, text, 254, 50) for text in (reference, made)]
        expected = slow_bertscore(*both, (weight(reference), weight(made)))
        np.testing.assert_allclose([each[row] for each in found], expected, atol=1e-5)
    # One reference alone: all its tokens are in every reference, so nothing has a weight.
    alone = bertscore(["clear lungs"], ["clear lungs"], EncodeConfig("minilm"), idf=True)
    assert np.isnan(alone).all()


def test_long_reports_are_read_in_windows(bert: str) -> None:
    texts = [" ".join(notes(8, seed=3)), " ".join(notes(9, seed=4)), "left lung"]
    settings = EncodeConfig(bert, overlap=11)
    found = bertscore(texts, texts[::-1], settings, cache="off")
    model, tokenizer = plain(Path(bert))
    vectors = [slow_vectors(model, tokenizer, text, 62, 11) for text in texts]
    assert len(vectors[0]) > 200
    for row in range(3):
        np.testing.assert_allclose(
            [each[row] for each in found], slow_bertscore(vectors[row], vectors[2 - row]), atol=1e-5
        )
    for size, window, overlap in ((1, 6, 2), (13, 6, 2), (13, 6, 5), (62, 62, 0), (500, 62, 11)):
        parts = owned(cut(size, window, overlap))
        assert [at for start, end in parts for at in range(start, end)] == list(range(size))


def test_the_same_text_scores_one_and_sides_swap(bert: str) -> None:
    texts = [*notes(6), " ".join(notes(10))]
    same = bertscore(texts, texts, EncodeConfig(bert))
    np.testing.assert_allclose(same, 1.0, atol=1e-6)
    assert (np.array(same) <= 1).all()
    one, other = bertscore(texts, texts[::-1], EncodeConfig(bert)), bertscore(texts[::-1], texts, EncodeConfig(bert))
    np.testing.assert_allclose(one.precision, other.recall, atol=1e-6)
    np.testing.assert_allclose(one.f1, other.f1, atol=1e-6)


def test_batch_size_and_row_order_do_not_matter(bert: str) -> None:
    references = [*notes(15), " ".join(notes(8, seed=9))]
    generated = notes(16, seed=5)
    found = [
        np.array(bertscore(references, generated, EncodeConfig(bert, batch_tokens=size), cache="off"))
        for size in (64, 700, 100_000)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)
    np.testing.assert_allclose(found[0], found[2], atol=1e-5)
    order = np.random.default_rng(0).permutation(16)
    mixed = bertscore([references[k] for k in order], [generated[k] for k in order], EncodeConfig(bert), cache="off")
    np.testing.assert_allclose(mixed, found[2][:, order], atol=1e-5)


def test_each_text_is_encoded_once_and_each_pair_matched_once(bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read, matched = [], []

    def counted(model: Any, encoder: Any, tokens: Any, **more: Any) -> Any:
        read.extend(tuple(each.tolist()) for each in tokens)
        return token_vectors(model, encoder, tokens, **more)

    def seen(*given: Any) -> Any:
        matched.append(1)
        return greedy(*given)

    monkeypatch.setattr(bertscore_module, "token_vectors", counted)
    monkeypatch.setattr(bertscore_module, "greedy", seen)
    references = notes(40, longest=12) * 3
    generated = ["no effusion"] * 40 + ["no effusion", "clear"] * 20 + notes(40, longest=12)  # collapse, and a copy
    found = bertscore(references, generated, EncodeConfig(bert, batch_tokens=64), cache="off")  # many blocks
    assert len(read) == len(set(read)) == 42
    assert len(matched) == 40 + 20 + 40
    np.testing.assert_allclose(found.f1[80:], 1.0, atol=1e-6)


def test_the_cache_makes_the_weights_unnecessary(bert: str, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    references, generated = [*notes(6), "", "lung"], [*notes(6, seed=2), "lung", " \n"]
    settings = EncodeConfig(bert)
    first = np.array(bertscore(references, generated, settings))
    weighted = np.array(bertscore(references, generated, settings, idf=True))

    def never(encoder: Any) -> Any:
        raise AssertionError("the weights were loaded")

    monkeypatch.setattr(bertscore_module, "load_model", never)
    again = bertscore(references[::-1], generated[::-1], EncodeConfig(bert, batch_tokens=99, device="cpu"))
    np.testing.assert_array_equal(np.array(again)[:, ::-1], first)
    np.testing.assert_array_equal(bertscore(references, generated, settings, layer=2), first)  # 2 is the last one
    np.testing.assert_array_equal(bertscore(references, generated, settings, idf=True), weighted)
    for changed in ({"layer": 1}, {"idf": True, "corpus": notes(3)}):
        with pytest.raises(AssertionError, match="weights were loaded"):
            bertscore(references, generated, settings, **changed)  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="weights were loaded"):
        bertscore(references, generated, EncodeConfig(bert, max_length=60))
    with pytest.raises(AssertionError, match="weights were loaded"):
        bertscore(generated, references, settings)  # the other way round is another pair
    # Numbers and hashes, for the owner alone.
    for path in own_cache.rglob("*"):
        if path.is_dir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
        else:
            assert b"lung" not in path.read_bytes()


@pytest.mark.parametrize("layer", [None, 1])
def test_one_reading_gives_the_vectors_of_texts_too(
    bert: str, monkeypatch: pytest.MonkeyPatch, layer: int | None
) -> None:
    from cxrhf.encode import notes as encoding

    texts = [*notes(7), " ".join(notes(8, seed=9))]  # the last one in several windows
    settings = EncodeConfig(bert, overlap=10)
    expected = encode_texts(texts, settings, cache="off")
    bertscore(texts, texts[::-1], settings, layer=layer, keep_vectors=True)
    monkeypatch.setattr(encoding, "load_model", None)
    np.testing.assert_allclose(encode_texts(texts, settings), expected, atol=1e-5)


def test_what_was_scored_before_an_end_is_kept(bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    references, generated = notes(30), notes(30, seed=2)
    settings = EncodeConfig(bert, batch_tokens=64)
    matched: list[int] = []

    def killed(*given: Any) -> Any:
        matched.append(1)
        if len(matched) > 20:
            raise KeyboardInterrupt
        return greedy(*given)

    monkeypatch.setattr(bertscore_module, "greedy", killed)
    with pytest.raises(KeyboardInterrupt):
        bertscore(references, generated, settings)
    monkeypatch.setattr(bertscore_module, "greedy", lambda *given: matched.append(1) or greedy(*given))
    matched.clear()
    found = bertscore(references, generated, settings)
    assert len(matched) < 30 - 10
    np.testing.assert_allclose(found, bertscore(references, generated, settings, cache="off"), atol=1e-5)


def test_texts_without_a_word(bert: str) -> None:
    found = bertscore(["lung", "", "lung", " "], ["", "lung", " \n\t", ""], EncodeConfig(bert))
    np.testing.assert_array_equal(found, [[0, np.nan, 0, np.nan]] * 3)
    assert bertscore([], [], EncodeConfig(bert)).f1.shape == (0,)


def test_opposite_vectors_and_large_tables() -> None:
    rng = np.random.default_rng(0)
    one, other = (rng.normal(size=(n, 4)).astype(np.float32) for n in (3000, 2500))
    one /= np.linalg.norm(one, axis=1, keepdims=True)
    other /= np.linalg.norm(other, axis=1, keepdims=True)
    weight, weight_other = rng.uniform(size=3000), rng.uniform(size=2500)
    alike = other @ one.T  # 7.5 million cells: more than are held at a time
    precision, recall = np.average(alike.max(1), weights=weight_other), np.average(alike.max(0), weights=weight)
    found = greedy(one, other, weight, weight_other)
    np.testing.assert_allclose(found, [precision, recall, 2 * precision * recall / (precision + recall)], atol=1e-6)
    ones = np.ones(1)
    np.testing.assert_array_equal(greedy(one[:1], -one[:1], ones, ones)[2], 0)


@pytest.mark.slow
def test_a_report_of_50_000_tokens(bert: str) -> None:
    words = ["left", "right", "lung", "heart", "effusion"]
    long = " ".join(np.random.default_rng(0).choice(words, 50_000))
    found = bertscore([long, "left lung"], ["left lung", long], EncodeConfig(bert), cache="off")
    assert found.recall[0] == pytest.approx(found.precision[1], abs=1e-5)
    assert 0 < found.f1[0] < 1


def test_bad_input(bert: str) -> None:
    with refused(TableError, "references and generated reports", got="2 and 1"):
        bertscore(["a", "b"], ["a"], EncodeConfig(bert))
    with refused(ConfigError, "--layer", "to 2", got="3"):
        bertscore(["a"], ["a"], EncodeConfig(bert), layer=3)


def test_pairs_are_told_apart_and_scores_without_a_number_are_asked_for_again(tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    def compute(pairs: list[tuple[str, str]]) -> Any:
        asked.extend(pairs)
        values = [[np.nan if "?" in made else len(reference)] for reference, made in pairs]
        yield range(len(pairs)), np.array(values, dtype=np.float32)

    given: dict[str, Any] = {"n_scores": 1, "about": {}, "cache": tmp_path / "kept"}
    pairs = [("a b", "c"), ("a", "b c"), ("a", "?"), ("a b", "c")]
    for _ in range(2):
        found = score_pairs([r for r, _ in pairs], [g for _, g in pairs], compute, key={"score": "x"}, **given)
        np.testing.assert_array_equal(found[:, 0], [3, 1, np.nan, 3])
    assert asked == [*pairs[:3], pairs[2]]
    score_pairs(["a b"], ["c"], compute, key=None, **given)
    assert len(asked) == 5


# ---------------------------------------------------------------- CheXbert


def chexbert_file(folder: Path, path: Path, **more: Any) -> Path:
    """A tiny BERT as the public checkpoint has it: behind DataParallel, with heads, in a file of a training."""
    model = plain(folder)[0]
    state = {f"module.bert.{key}": value for key, value in model.state_dict().items()}
    state |= {
        "module.bert.embeddings.position_ids": torch.arange(64)[None],
        "module.linear_heads.0.weight": torch.ones(4, 32),
    }
    torch.save({"epoch": 3, "model_state_dict": state | more}, path)
    return path


@pytest.fixture
def described(tmp_path: Path, tiny: dict[str, Path]) -> Path:
    """Config and tokenizer alone, as somebody copies them."""
    folder = tmp_path / "bert-base-uncased"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((tiny["bert"] / name).read_bytes())
    return folder


def test_a_chexbert_checkpoint_is_the_bert_in_it(
    tmp_path: Path, tiny: dict[str, Path], described: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = chexbert_file(tiny["bert"], tmp_path / "chexbert.pth")
    folder = checkpoint_folder(file, "chexbert", str(described), tmp_path / "made")
    assert folder.name == "chexbert"
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    texts = notes(5)
    ours = encode_texts(texts, EncodeConfig(str(folder)), cache="off")
    np.testing.assert_allclose(ours, encode_texts(texts, EncodeConfig(str(tiny["bert"])), cache="off"), atol=1e-6)
    # The second time nothing is read but the hash.
    monkeypatch.setattr(torch, "load", None)
    assert checkpoint_folder(file, "chexbert", str(described), tmp_path / "made") == folder


def test_checkpoints_that_cannot_be_read(tmp_path: Path, tiny: dict[str, Path], described: Path) -> None:
    def said(file: Path, tokenizer: str | None = str(described)) -> str:
        with pytest.raises(CxrhfError) as error:
            checkpoint_folder(file, "chexbert", tokenizer, tmp_path / "made")
        return str(error.value)

    good = chexbert_file(tiny["bert"], tmp_path / "chexbert.pth")
    assert "nowhere.pth" in said(tmp_path / "nowhere.pth")
    assert "--tokenizer FOLDER" in said(good, None)
    assert "--tokenizer: expected a folder" in said(good, str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    assert "has no config.json" in said(good, str(tmp_path / "empty"))
    (tmp_path / "empty" / "config.json").write_text("{}")
    assert "has no tokenizer" in said(good, str(tmp_path / "empty"))
    wide = save_tiny("bert", tmp_path / "wide", intermediate_size=128)
    assert "has a different size for 6 parts of the model" in said(good, str(wide))
    torch.save({"model_state_dict": {"weight": torch.ones(2)}}, tmp_path / "other.pth")
    assert "weights under module.bert.*" in said(tmp_path / "other.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    assert "holds no BERT" in said(tmp_path / "list.pth")
    state = torch.load(good, weights_only=True)["model_state_dict"]
    state.pop("module.bert.encoder.layer.1.output.dense.weight")
    torch.save(state, tmp_path / "cut.pth")
    assert "lacks 1 parts of the model, for example encoder.layer.1.output.dense.weight" in said(tmp_path / "cut.pth")
    chexbert_file(tiny["bert"], tmp_path / "evil.pth", owner=tmp_path)  # a Python object beside the weights
    assert "something other than weights" in said(tmp_path / "evil.pth")  # and not torch's advice to load it
    (tmp_path / "text.pth").write_text("not a checkpoint")
    assert "chexbert: text.pth is damaged" in said(tmp_path / "text.pth")
    assert not list((tmp_path / "made").rglob("config.json"))
