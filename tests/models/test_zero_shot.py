"""Zero-shot: a slow twin, invariances, a planted truth, a null, and what goes wrong in plain words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import expit, softmax

from cxrhf.errors import ConfigError, CxrhfError, CxrhfWarning
from cxrhf.metrics import auroc
from cxrhf.models import seeding as meter
from cxrhf.models.clip import Clip, load_clip
from cxrhf.models.zeroshot import Pair, directions, prompts_for, zero_shot
from tests.models.clip_tiny import SAVED, bright_and_dark, films, plant, save_clip, save_open_clip, seen_by, some
from tests.refusals import refused
from tests.thinned import thinned

FINDINGS = ("pleural_effusion", "edema", "no_finding")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Clip]:
    place = tmp_path_factory.mktemp("models")
    return {kind: load_clip(str(save(place / kind / kind)), "cpu") for kind, save in SAVED.items()}


def twin(clip: Clip, picture: NDArray[np.uint8], pair: Pair) -> float:
    """One picture, one prompt at a time, by the definition."""
    seen = seen_by(clip, [picture])[0].astype(np.float64)
    cosines = []
    for texts in (pair.positive, pair.negative):
        total = np.zeros(clip.dim)
        for text in texts:
            total += clip.text_features([text])[0].astype(np.float64)
        cosines.append(float(seen @ total) / float(np.linalg.norm(total)))
    return clip.scale * (cosines[0] - cosines[1])


@pytest.mark.parametrize("kind", list(SAVED))
@pytest.mark.parametrize("ensemble", thinned([False, True], [True]))
def test_as_the_slow_twin(loaded: dict[str, Clip], kind: str, ensemble: bool) -> None:
    clip, pictures, prompts = loaded[kind], films(5), prompts_for(FINDINGS, ensemble=ensemble)
    logits, embeddings = zero_shot(some(pictures), clip, prompts, batch_size=2)
    wanted = [[twin(clip, picture, pair) for pair in prompts.values()] for picture in pictures]
    np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-4)
    assert logits.dtype == np.float64
    assert embeddings.dtype == np.float32
    np.testing.assert_allclose(embeddings, seen_by(clip, pictures), atol=1e-5)
    assert logits.std() > 1e-3


def test_probability_is_the_softmax_over_the_pair(loaded: dict[str, Clip]) -> None:
    """Also SigLIP's: its bias is added to both prompts."""
    for kind in ("clip", "siglip"):
        clip, pictures, pair = loaded[kind], films(4), Pair(("edema",), ("clear lungs",))
        logits, seen = zero_shot(some(pictures), clip, {"edema": pair})
        both = clip.scale * seen @ clip.text_features(["edema", "clear lungs"]).T + (clip.bias or 0)
        np.testing.assert_allclose(expit(logits[:, 0]), softmax(both, axis=1)[:, 0], atol=1e-5)


@pytest.mark.parametrize("kind", ["clip", "biomed"])
def test_batches_do_not_matter(loaded: dict[str, Clip], kind: str) -> None:
    images, prompts = some(films(7)), prompts_for(FINDINGS)
    logits, embeddings = zero_shot(images, loaded[kind], prompts, batch_size=7)
    for size in (1, 3, 32):
        other = zero_shot(images, loaded[kind], prompts, batch_size=size)
        np.testing.assert_allclose(other.logits, logits, atol=1e-4)  # of numbers times the scale, 14
        np.testing.assert_allclose(other.embeddings, embeddings, atol=1e-5)
    again = zero_shot(images, loaded[kind], prompts, batch_size=7)
    np.testing.assert_array_equal(again.logits, logits)


def test_order_and_sign(loaded: dict[str, Clip]) -> None:
    clip, pictures, prompts = loaded["clip"], films(6), prompts_for(FINDINGS, ensemble=True)
    logits, _ = zero_shot(some(pictures), clip, prompts)
    swapped = {name: Pair(pair.negative, pair.positive) for name, pair in prompts.items()}
    np.testing.assert_array_equal(zero_shot(some(pictures), clip, swapped).logits, -logits)
    turned = {name: Pair(pair.positive[::-1], pair.negative) for name, pair in reversed(prompts.items())}
    np.testing.assert_allclose(zero_shot(some(pictures), clip, turned).logits, logits[:, ::-1], atol=1e-9)
    np.testing.assert_allclose(zero_shot(some(pictures[::-1]), clip, prompts).logits, logits[::-1], atol=1e-4)


PLANTED = {
    "clip": (save_clip, "model.safetensors", "visual_projection.weight", False),
    "open_clip": (save_open_clip, "open_clip_model.safetensors", "visual.proj", True),
}


@pytest.mark.parametrize("kind", list(PLANTED))
def test_a_planted_truth_is_found(tmp_path: Path, kind: str) -> None:
    """Bright pictures were made to point to one prompt, dark ones to the other; noise elsewhere stays noise."""
    save, weights, key, transposed = PLANTED[kind]
    pair = prompts_for(["pleural_effusion"])["pleural_effusion"]
    clip = plant(save(tmp_path / kind), weights, key, transposed, pair.positive[0], pair.negative[0])
    pictures, y = bright_and_dark(40, seed=1)
    prompts = {"pleural_effusion": pair, "not": Pair(pair.negative, pair.positive)}
    logits, _ = zero_shot(some(pictures), clip, prompts, batch_size=16)
    assert auroc(y, logits[:, 0]) == 1
    assert auroc(y, logits[:, 1]) == 0
    assert (expit(logits[y == 1, 0]) > 0.5).all()
    # All of one brightness: nothing to find, whatever the labels say.
    noise = [picture for picture, bright in zip(*bright_and_dark(200, seed=2), strict=True) if bright]
    by_chance = auroc(np.arange(100) % 2, zero_shot(some(noise), clip, {"edema": pair}).logits[:, 0])
    assert abs(by_chance - 0.5) < 0.17  # three standard errors


def test_prompts_that_cannot_be_told_apart(loaded: dict[str, Clip]) -> None:
    """The tokenizer lowers letters, and knows one token for all unknown words."""
    prompts = {"edema": Pair(("edema",), ("EDEMA",)), "mass": Pair(("mass",), ("no mass",))}
    with pytest.warns(CxrhfWarning, match="edema.*logit near 0"):
        logits, _ = zero_shot(some(films(2)), loaded["clip"], prompts)
    np.testing.assert_allclose(logits[:, 0], 0, atol=1e-4)
    assert np.abs(logits[:, 1]).min() > 1e-4


def test_no_pictures(loaded: dict[str, Clip]) -> None:
    logits, embeddings = zero_shot(some([]), loaded["clip"], prompts_for(FINDINGS))
    assert logits.shape == (0, 3)
    assert embeddings.shape == (0, loaded["clip"].dim)


def test_pictures_are_opened_in_order_and_not_far_ahead(
    loaded: dict[str, Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more is held than the batch in work, the one before it and the one in the making."""
    opened: list[int] = []
    ahead_by: list[int] = []
    whole = films(30)

    class Counted(list[NDArray[np.uint8]]):
        def __getitem__(self, row: int) -> NDArray[np.uint8]:  # type: ignore[override]
            opened.append(row)
            return super().__getitem__(row)

    real = Clip.vectors

    def vectors(self: Clip, batch: list[dict[str, torch.Tensor]]) -> NDArray[np.float32]:
        ahead_by.append(len(opened))
        return real(self, batch)

    monkeypatch.setattr(Clip, "vectors", vectors)
    zero_shot(some(Counted(whole)), loaded["clip"], prompts_for(["edema"]), batch_size=5)
    assert opened == list(range(30))
    assert all(n <= 5 * (at + 3) for at, n in enumerate(ahead_by))


def test_progress(loaded: dict[str, Clip], monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(meter, "EVERY", 0.0)
    zero_shot(some(films(5)), loaded["clip"], prompts_for(["edema"]), batch_size=2, progress=lines.append)
    assert [line.split(",")[0] for line in lines] == [f"clip: {n} of 5" for n in (2, 4, 5)]
    assert lines[0].endswith("s left")


def test_errors(loaded: dict[str, Clip]) -> None:
    clip, prompts = loaded["clip"], prompts_for(["edema"])
    with refused(ConfigError, "batch_size", got="0"):
        zero_shot(some(films(1)), clip, prompts, batch_size=0)
    with refused(ConfigError, "no prompts"):
        zero_shot(some(films(1)), clip, {})
    with refused(ConfigError, "edema"):
        directions(clip, {"edema": Pair(("a",), ())})
    with refused(CxrhfError, "row 2", "grey levels"):
        zero_shot(some([films(1)[0], np.zeros((3, 3))]), clip, prompts)  # type: ignore[list-item]
