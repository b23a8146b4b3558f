"""Flips, turns, shifts: drawn by the image's own number, never for validation."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from cxrhf.models.data import Augment, Plan, augmented, open_squares, plan_reading, read_batches
from tests.models.tiny import LOOK, images

ALL = Augment(flip=0.5, rotation=20, translate=0.2, scale=0.2)
SQUARES = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (6, 1, 32, 32), dtype=np.uint8))


@pytest.mark.parametrize("augment", [ALL, Augment(0.5, 20, 0.2, 0.2, p=0.5), Augment(flip=0.5), Augment(rotation=9)])
def test_a_picture_depends_on_its_own_number_only(augment: Augment) -> None:
    draws = [11, 12, 13, 14, 15, 2**64 - 1]
    torch.manual_seed(1)
    before = torch.rand(1)
    torch.manual_seed(1)
    together = augmented(SQUARES, augment, draws)
    assert torch.equal(torch.rand(1), before)  # others' random numbers stay as they were
    for at, draw in enumerate(draws):
        assert torch.equal(augmented(SQUARES[at : at + 1], augment, [draw])[0], together[at])
    assert together.dtype == torch.uint8
    assert not torch.equal(together, SQUARES)


def test_flip_is_a_flip() -> None:
    got = augmented(SQUARES, Augment(flip=1.0), list(range(6)))
    assert torch.equal(got, SQUARES.flip(-1))
    half = augmented(SQUARES[:1].expand(400, -1, -1, -1), Augment(flip=0.5), list(range(400)))
    flipped = sum(bool((each == SQUARES[0].flip(-1)).all()) for each in half)
    assert 150 < flipped < 250


def test_nothing_is_nothing() -> None:
    assert Augment().nothing
    assert Augment(rotation=10, p=0).nothing
    assert not Augment(scale=0.1).nothing
    assert augmented(SQUARES, Augment(), [1] * 6) is SQUARES


def test_epochs_differ_and_repeat_and_validation_is_untouched() -> None:
    given = images(24)
    squares = open_squares(given, LOOK, memory=1, progress=lambda _: None)
    plan = Plan(given.ids, seed=0, batch_size=8)
    epochs = []
    for epoch in (0, 1, 0):
        first = epoch * plan.steps_per_epoch + 1
        asks = list(plan.asks(first, first + 2, ALL))
        seen = torch.cat(list(read_batches(asks, squares, ALL, workers=0)))
        rows = np.concatenate([ask.rows for ask in asks])
        epochs.append(seen[np.argsort(rows)])
    assert torch.equal(epochs[0], epochs[2])
    assert all(not torch.equal(a, b) for a, b in pairwise(epochs))
    # The plan of validation and prediction has no numbers to draw by, so an augmentation would change nothing.
    held = torch.cat(list(read_batches(plan_reading(24, 7), squares, ALL, workers=0)))
    assert torch.equal(held, squares(np.arange(24)))
