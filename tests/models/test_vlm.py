"""Loading vision-language models: names, prompts, batches whose loss stands on the answer only, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cxrhf.errors import ConfigError, CxrhfError
from cxrhf.models.lora import tiny_qwen3_vl
from cxrhf.models.vlm import DEFAULT_PROMPT, Vlm, load_vlm, prompt_for, report_of, rgb
from cxrhf.models.vlm_data import IGNORED, answer_batch, question_batch, question_lengths
from tests.models.tiny_vlms import KINDS, llava
from tests.refusals import refused

TEXTS = ["The lungs are clear. No acute cardiopulmonary process.", "There is cardiomegaly. No pleural effusion."]
SIDE = 64


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3_vl(tmp_path_factory.mktemp("vlm") / "tiny", TEXTS, hidden=32, vision_hidden=32)


@pytest.fixture(scope="module")
def vlm(tiny: Path) -> Vlm:
    return load_vlm(str(tiny), size=SIDE)


def film(seed: int, shape: tuple[int, int] = (90, 70)) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"findings": "A  b.\n", "impression": " C."}, "A b. C."),
        ({"findings": None, "impression": "C."}, "C."),
        ({"findings": "", "impression": None}, ""),
        ({}, ""),
    ],
)
def test_the_reference(row: dict[str, Any], text: str) -> None:
    assert report_of(row) == text


def test_prompts() -> None:
    row = {"age": 61.4, "sex": "F", "view": "PA", "indication": " cough\n ", "comparison": float("nan")}
    said = prompt_for("{age} {sex} {view} {indication} {comparison} {{x}}", row)
    assert said == "61 F PA cough not given {x}"
    assert prompt_for(DEFAULT_PROMPT, row) == DEFAULT_PROMPT
    with refused(ConfigError, "--prompt", "{indication}", got="{indicaton}"):
        prompt_for("{indicaton}", row)
    for broken in ("{age", "{age.real}", "{0}", "", "{}"):
        with refused(ConfigError, "--prompt"):
            prompt_for(broken, row)


def test_pictures_of_any_form_become_the_same_square() -> None:
    from PIL import Image

    grey = film(0, (130, 75))
    made = [np.asarray(rgb(each, SIDE)) for each in (grey, Image.fromarray(grey))]
    assert made[0].shape == (SIDE, SIDE, 3)
    assert all((each == made[0]).all() for each in made)
    assert (made[0][..., 0] == made[0][..., 2]).all()
    for bad in (np.zeros((3, 4, 5), np.uint8), np.zeros((0, 4), np.uint8)):
        with refused(CxrhfError, got=str(bad.shape)):
            rgb(bad, SIDE)


def test_tokens_of_a_picture_are_bounded(tiny: Path) -> None:
    for side, tokens in ((32, 4), (64, 16), (128, 64)):
        model = load_vlm(str(tiny), size=side)
        ids = question_batch(model, [film(1, (900, 400))], ["Write."])["input_ids"]
        assert int((ids == model.model.config.image_token_id).sum()) == tokens


def test_questions_stand_on_the_right_edge(vlm: Vlm) -> None:
    prompts = ["Write.", "Write a longer report of this film."]
    made = question_batch(vlm, [film(1), film(2)], prompts)
    assert made["attention_mask"][:, -1].tolist() == [1, 1]
    assert made["attention_mask"][0, 0] == 0
    alone = question_batch(vlm, [film(1)], prompts[:1])["input_ids"][0]
    assert made["input_ids"][0, -len(alone) :].tolist() == alone.tolist()
    assert question_lengths(vlm, prompts) == made["attention_mask"].sum(dim=1).tolist()
    with refused(CxrhfError, "one prompt per image", got="1 images"):
        question_batch(vlm, [film(1)], prompts)


@pytest.fixture(scope="module", params=sorted(KINDS))
def any_kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Vlm:
    return load_vlm(str(KINDS[request.param](tmp_path_factory.mktemp("kinds") / request.param)), size=28)


def test_a_text_begins_once(any_kind: Vlm) -> None:
    """A template that writes the token itself: the tokenizer must not write it again."""
    prompts = ["Write.", "Write a longer report."]
    made = question_batch(any_kind, [film(1), film(2)], prompts)
    if any_kind.tokenizer.bos_token is not None:
        assert (made["input_ids"] == any_kind.tokenizer.bos_token_id).sum(dim=1).tolist() == [1, 1]
    assert "labels" not in made
    assert question_lengths(any_kind, prompts) == made["attention_mask"].sum(dim=1).tolist()


def test_no_position_sees_the_answer_behind_it(any_kind: Vlm) -> None:
    """Another answer token moves no logits before it, and moves those behind it."""
    batch = answer_batch(any_kind, [film(1)], ["Write."], ["There is edema."], 200).inputs
    labels = batch.pop("labels")
    first = int((labels[0] != IGNORED).nonzero()[0])
    at = first + 3
    with torch.no_grad():
        before = any_kind.model(**batch).logits[0]
        other = batch["input_ids"].clone()
        other[0, at] = other[0, at + 1]
        assert other[0, at] != batch["input_ids"][0, at]
        after = any_kind.model(**{**batch, "input_ids": other}).logits[0]
    torch.testing.assert_close(after[:at], before[:at], rtol=0, atol=1e-5)
    assert (after[at:] - before[at:]).abs().max() > 1e-4


@pytest.mark.parametrize("kind", ["qwen", "llava"])
def test_the_loss_stands_on_the_answer_and_its_end(kind: str, vlm: Vlm, tmp_path: Path) -> None:
    model = vlm if kind == "qwen" else load_vlm(str(llava(tmp_path / "llava")), size=SIDE)
    pictures, prompts = [film(1), film(2)], ["Write.", "Write a longer report of this film."]
    answers = ["There is cardiomegaly.", "No."]
    made = answer_batch(model, pictures, prompts, answers, 300)
    labels, ids = made.inputs["labels"], made.inputs["input_ids"]
    end = model.tokenizer.eos_token_id
    asked = question_batch(model, pictures, prompts)
    lengths = asked["attention_mask"].sum(dim=1).tolist()
    for row, answer in enumerate(answers):
        tail = model.tokenizer((" " if kind == "llava" else "") + answer, add_special_tokens=False)["input_ids"]
        begin, stop = lengths[row], lengths[row] + len(tail) + 1
        assert labels[row, begin:stop].tolist() == [*tail, end]
        assert set(labels[row, :begin].tolist()) == {IGNORED}
        assert set(labels[row, stop:].tolist()) <= {IGNORED}
        question = asked["input_ids"][row][asked["attention_mask"][row].bool()]
        assert ids[row, :begin].tolist() == question.tolist(), "the question is the one that is asked when writing"
        assert made.inputs["attention_mask"][row].tolist() == [1] * stop + [0] * (ids.shape[1] - stop)
    assert made.n_cut == 0
    with torch.no_grad():
        whole = model.model(**made.inputs)
    logits = whole.logits[:, :-1].flatten(0, 1).double()
    loss = torch.nn.functional.cross_entropy(logits, labels[:, 1:].flatten())
    assert float(whole.loss) == pytest.approx(float(loss), rel=1e-5)


def test_right_filling_changes_nothing(vlm: Vlm) -> None:
    pictures, prompts = [film(1), film(2)], ["Write.", "Write a longer report of this film."]
    both = answer_batch(vlm, pictures, prompts, TEXTS, 300).inputs
    one = answer_batch(vlm, pictures[:1], prompts[:1], TEXTS[:1], 300).inputs
    with torch.no_grad():
        a, b = vlm.model(**both).logits[0], vlm.model(**one).logits[0]
    torch.testing.assert_close(a[: len(b)], b, atol=1e-5, rtol=1e-4)


def test_long_answers_are_cut_counted_and_not_ended(vlm: Vlm) -> None:
    room = question_lengths(vlm, ["Write."])[0] + 5
    made = answer_batch(vlm, [film(1), film(2)], ["Write."] * 2, ["word " * 50_000, "No."], room)
    assert made.n_cut == 1
    assert made.inputs["input_ids"].shape[1] == room
    assert int((made.inputs["labels"][0] != IGNORED).sum()) == 5
    assert vlm.tokenizer.eos_token_id not in made.inputs["labels"][0].tolist()
    assert vlm.tokenizer.eos_token_id in made.inputs["labels"][1].tolist()
    with refused(ConfigError, "--max-length", got="20", fix="--max-length"):
        answer_batch(vlm, [film(1)], ["Write."], ["No."], 20)


def test_the_same_texts_and_seed_give_the_same_tiny_model(tiny: Path, tmp_path: Path) -> None:
    again = tiny_qwen3_vl(tmp_path / "again", TEXTS, hidden=32, vision_hidden=32)
    other = tiny_qwen3_vl(tmp_path / "other", TEXTS, hidden=32, vision_hidden=32, seed=1)
    read = lambda folder: (folder / "model.safetensors").read_bytes()  # noqa: E731
    assert read(again) == read(tiny) != read(other)
    with refused(ConfigError, "multiples of the heads", got="33"):
        tiny_qwen3_vl(tmp_path / "odd", TEXTS, hidden=33)


def test_names_that_are_no_model(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("transformers.utils.hub.is_offline_mode", lambda: True)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    with pytest.raises(CxrhfError, match=r"nobody/no-model is not on this machine.*HF_HUB_OFFLINE.*hf download"):
        load_vlm("nobody/no-model")
    with refused(ConfigError, "--model", got="no such name!"):
        load_vlm("no such name!")
    (tmp_path / "empty").mkdir()
    with refused(CxrhfError, got="config.json"):
        load_vlm(str(tmp_path / "empty"))
    with refused(ConfigError, "--adapter", got="empty"):
        load_vlm(str(tiny), adapter=tmp_path / "empty")
    with refused(ConfigError, "--precision", got="int7"):
        load_vlm(str(tiny), precision="int7")


def test_models_that_cannot_be_read(tiny: Path, tmp_path: Path) -> None:
    def changed(name: str) -> Path:
        return Path(shutil.copytree(tiny, tmp_path / name))

    bare = changed("bare")
    (bare / "model.safetensors").unlink()
    (bare / "pytorch_model.bin").write_bytes(b"x")
    with refused(CxrhfError, "bare", "safetensors"):
        load_vlm(str(bare))
    torn = changed("torn")
    (torn / "model.safetensors").write_bytes((tiny / "model.safetensors").read_bytes()[:-100])
    with pytest.raises(CxrhfError, match="safetensors"):
        load_vlm(str(torn))
    mute = changed("mute")
    (mute / "chat_template.jinja").unlink()
    with pytest.raises(CxrhfError, match="no chat template"):
        load_vlm(str(mute))
    other = changed("other")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "model_type": "bert"}))
    with refused(CxrhfError, "image-text-to-text", got="bert"):
        load_vlm(str(other))
    lacking = changed("lacking")
    config["text_config"]["num_hidden_layers"] = 3
    (lacking / "config.json").write_text(json.dumps(config))
    with refused(CxrhfError, "lacking", "language_model.layers.2"):
        load_vlm(str(lacking))


def test_four_bits_need_their_package(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    usual = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "bitsandbytes" else usual(name, *a)
    )
    with refused(CxrhfError, "--four-bit", fix="pip install bitsandbytes"):
        load_vlm(str(tiny), four_bit=True)
