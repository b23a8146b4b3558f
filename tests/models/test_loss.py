"""The loss against a slow twin, its mask, and what pieces add up to."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from cxrhf.models.data import Task
from cxrhf.models.step import (
    LARGEST,
    class_weights,
    count_known_labels,
    loss_sums,
    mean_auroc,
    total_loss,
    validation_loss,
)

TASKS = [Task("findings", "labels", ("a", "b")), Task("race", "classes", ("x", "y", "z"))]


def drawn(n: int = 12, seed: int = 0) -> tuple[torch.Tensor, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(0, 2, (n, 5))).float()
    target = rng.integers(-1, 2, (n, 5)).astype(np.int8)
    place = rng.integers(-1, 3, n)
    target[:, 2:] = (place[:, None] == np.arange(3)).astype(np.int8)
    target[place < 0, 2:] = -1
    return logits, target


def slow(logits: torch.Tensor, target: np.ndarray, weight: np.ndarray) -> float:
    """Label by label."""
    found, counted = [0.0, 0.0], [0, 0]
    for z, y in zip(logits.double().tolist(), target.tolist(), strict=True):
        for k in (0, 1):
            if y[k] >= 0:
                p = 1 / (1 + math.exp(-z[k]))
                found[0] -= weight[k] * math.log(p) if y[k] == 1 else math.log(1 - p)
                counted[0] += 1
        if y[2] >= 0:
            at = y[2:].index(1)
            found[1] -= weight[2 + at] * (z[2 + at] - math.log(sum(map(math.exp, z[2:]))))
            counted[1] += 1
    return sum(a / b if b else 0.0 for a, b in zip(found, counted, strict=True))


@pytest.mark.parametrize("seed", range(5))
def test_slow_twin(seed: int) -> None:
    logits, target = drawn(seed=seed)
    weight = np.linspace(0.5, 2.5, 5).astype(np.float32)
    for given, used in ((None, np.ones(5)), (torch.from_numpy(weight), weight)):
        got = total_loss(loss_sums(logits, torch.from_numpy(target), TASKS, given), count_known_labels(target, TASKS))
        assert float(got) == pytest.approx(slow(logits, target, used), rel=1e-5)


def test_masked_labels_have_no_gradient_at_all() -> None:
    logits, target = drawn(40)
    logits.requires_grad_(True)
    total_loss(loss_sums(logits, torch.from_numpy(target), TASKS), count_known_labels(target, TASKS)).backward()
    grad = logits.grad
    assert grad is not None
    assert (grad[torch.from_numpy(target) < 0] == 0).all()  # exactly 0
    assert (grad[torch.from_numpy(target) >= 0] != 0).all()
    # Through a network: the weights of an output whose labels are all unknown do not move.
    layer = torch.nn.Linear(4, 5)
    blank = target.copy()
    blank[:, 1] = -1
    total_loss(
        loss_sums(layer(torch.randn(40, 4)), torch.from_numpy(blank), TASKS), count_known_labels(blank, TASKS)
    ).backward()
    assert layer.weight.grad is not None
    assert (layer.weight.grad[1] == 0).all()
    assert (layer.weight.grad[0] != 0).any()


def test_unknown_labels_do_not_count() -> None:
    logits, target = drawn(20)
    other = target.copy()
    moved = logits.clone()
    moved[torch.from_numpy(other) < 0] += 100
    both = [
        total_loss(loss_sums(each, torch.from_numpy(target), TASKS), count_known_labels(target, TASKS))
        for each in (logits, moved)
    ]
    assert float(both[0]) == float(both[1])


def test_pieces_add_up_to_the_batch() -> None:
    logits, target = drawn(21)
    counts = count_known_labels(target, TASKS)
    whole = total_loss(loss_sums(logits, torch.from_numpy(target), TASKS), counts)
    parts = [
        total_loss(loss_sums(logits[rows], torch.from_numpy(target[rows]), TASKS), counts)
        for rows in np.array_split(np.arange(21), 4)
    ]
    assert float(sum(parts)) == pytest.approx(float(whole), rel=1e-6)
    # A mean of the pieces' means would be another number, because labels are missing unevenly.
    means = [
        float(
            total_loss(
                loss_sums(logits[rows], torch.from_numpy(target[rows]), TASKS), count_known_labels(target[rows], TASKS)
            )
        )
        for rows in np.array_split(np.arange(21), 4)
    ]
    assert abs(np.mean(means) - float(whole)) > 1e-3


def test_nothing_known_is_zero_and_has_no_gradient() -> None:
    logits = torch.zeros((3, 5), requires_grad=True)
    target = np.full((3, 5), -1, dtype=np.int8)
    loss = total_loss(loss_sums(logits, torch.from_numpy(target), TASKS), count_known_labels(target, TASKS))
    loss.backward()
    assert float(loss.detach()) == 0
    assert logits.grad is not None
    assert (logits.grad == 0).all()
    assert math.isnan(validation_loss(logits.detach().numpy(), target, TASKS))


def test_class_weights_balance() -> None:
    target = np.array([[1, 0, 1, 0, 0]] * 2 + [[0, -1, 0, 1, 0]] * 8, dtype=np.int8)
    weight = class_weights(target, TASKS)
    assert weight[0] == pytest.approx(4)  # 8 negatives to 2 positives
    assert weight[1] == pytest.approx(2)  # no positive: as if one
    assert weight[2:4] == pytest.approx([10 / (3 * 2), 10 / (3 * 8)])
    assert class_weights(np.array([[1, 0, 1, 0, 0]] + [[0, 0, 1, 0, 0]] * 999, np.int8), TASKS)[0] == LARGEST


def test_mean_auroc_leaves_out_what_has_one_class() -> None:
    target = np.array([[1, 1], [0, 1], [1, -1], [0, 1]], dtype=np.int8)
    logits = np.array([[2.0, 0], [1, 0], [3, 0], [0, 0]], dtype=np.float32)
    assert mean_auroc(logits, target) == 1.0
    assert math.isnan(mean_auroc(logits[:, 1:], target[:, 1:]))
