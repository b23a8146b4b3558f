"""Numbers from a seed and a purpose."""

from __future__ import annotations

import numpy as np
import torch

from cxrhf.models.seeding import number, numbers, seeded_torch


def test_many_are_one_by_one() -> None:
    ids = [f"image{k}" for k in range(50)]
    assert numbers(3, "order", 2, ids=ids).tolist() == [number(3, "order", 2, each) for each in ids]


def test_every_part_counts() -> None:
    assert len({number(0, "a", 1), number(1, "a", 1), number(0, "b", 1), number(0, "a", 2), number(0, "a", 1, "")}) == 5
    assert number(0, "a", 12) != number(0, "a1", 2)  # parts do not run together


def test_numbers_look_uniform() -> None:
    share = numbers(0, "order", 0, ids=[str(k) for k in range(20_000)]) / 2.0**64
    assert abs(share.mean() - 0.5) < 0.01
    assert abs(np.quantile(share, 0.1) - 0.1) < 0.01


def test_drawing_leaves_the_generator_alone() -> None:
    torch.manual_seed(5)
    first = torch.rand(3)
    torch.manual_seed(5)
    with seeded_torch(2**64 - 1):
        inside = torch.rand(3)
    assert torch.equal(torch.rand(3), first)
    with seeded_torch(2**64 - 1):
        assert torch.equal(torch.rand(3), inside)
