"""Which rows when, and who reads them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cxrhf.errors import ConfigError, CxrhfError, TableError
from cxrhf.models.data import Augment, Images, Plan, n_workers, open_squares, plan_reading, read_batches
from tests.models.tiny import LOOK, images
from tests.refusals import refused

IDS = [f"image{k}" for k in range(50)]
TURN = Augment(flip=0.5, rotation=10)


def quiet(_: str) -> None:
    pass


def test_an_epoch_sees_every_image_once_but_for_the_rest() -> None:
    plan = Plan(IDS, seed=0, batch_size=8)
    assert plan.steps_per_epoch == 6
    left = []
    for epoch in range(3):
        steps = list(plan.steps(epoch * 6 + 1, epoch * 6 + 6))
        assert {step.epoch for step in steps} == {epoch}
        rows = np.concatenate([step.rows for step in steps])
        assert len(set(rows.tolist())) == 48
        left.append(set(range(50)) - set(rows.tolist()))
    assert left[0] != left[1]
    few = Plan(IDS[:5], seed=0, batch_size=8)
    assert [sorted(step.rows.tolist()) for step in few.steps(1, 2)] == [[0, 1, 2, 3, 4]] * 2


def test_the_order_follows_the_ids_not_the_rows() -> None:
    turned = IDS[::-1]
    here = [[IDS[row] for row in step.rows] for step in Plan(IDS, 3, 8).steps(1, 12)]
    there = [[turned[row] for row in step.rows] for step in Plan(turned, 3, 8).steps(1, 12)]
    assert here == there
    assert here[:6] != here[6:]
    assert here != [[IDS[row] for row in step.rows] for step in Plan(IDS, 4, 8).steps(1, 12)]


def test_starting_in_the_middle_is_going_on() -> None:
    plan = Plan(IDS, 0, 8)
    whole = [step.rows.tolist() for step in plan.steps(1, 14)]
    assert [step.rows.tolist() for step in plan.steps(9, 14)] == whole[8:]


@pytest.mark.parametrize(("pieces", "processes"), [(1, 2), (3, 1), (2, 2), (3, 4)])
def test_pieces_and_processes_share_a_batch(pieces: int, processes: int) -> None:
    plans = [Plan(IDS, 0, 13, pieces, processes, each) for each in range(processes)]
    alone = list(Plan(IDS, 0, 13).steps(1, 5))
    for step, *parts in zip(alone, *(plan.steps(1, 5) for plan in plans), strict=True):
        assert all(len(each.mine) == pieces for each in parts)
        rows = np.concatenate([rows for each in parts for rows in each.mine])
        assert sorted(rows.tolist()) == sorted(step.rows.tolist())
        assert min(len(rows) for each in parts for rows in each.mine) >= 1
        # The draws of an image do not depend on who reads it.
        assert all(each.rows.tolist() == step.rows.tolist() for each in parts)
    draws = dict(zip(alone[0].rows.tolist(), plans[0].draws(0, alone[0].rows), strict=True))
    for plan in plans:
        for ask in list(plan.asks(1, 1, TURN)):
            assert list(ask.draws) == [draws[row] for row in ask.rows.tolist()]


def test_too_few_images_for_the_pieces() -> None:
    with refused(ConfigError, "--batch-size", got="3 for 2 pieces in 2 processes"):
        Plan(IDS, 0, batch_size=3, pieces=2, processes=2)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_looking_sees_everything_once(processes: int) -> None:
    asks = [plan_reading(50, 8, processes, each) for each in range(processes)]
    rows = [row for each in asks for ask in each if ask.counts for row in ask.rows.tolist()]
    assert sorted(rows) == list(range(50))
    assert len({len(each) for each in asks}) == 1  # all look equally often
    assert plan_reading(0, 8) == []


@pytest.mark.parametrize("memory", [0, 1])
def test_workers_read_the_same(memory: float) -> None:
    given = images(30, side=40)
    squares = open_squares(given, LOOK, memory=memory, progress=quiet)
    assert (squares.kept is None) == (memory == 0)
    plan = Plan(given.ids, 0, 6, pieces=2)
    asks = list(plan.asks(1, 12, TURN))
    alone = list(read_batches(iter(asks), squares, TURN, workers=0))
    together = list(read_batches(asks, squares, TURN, workers=2))
    assert len(alone) == 24
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))
    kept = open_squares(given, LOOK, memory=1, progress=quiet)
    assert all(torch.equal(a, b) for a, b in zip(alone, read_batches(asks, kept, TURN, workers=0), strict=True))


class Broken:
    """One picture cannot be read."""

    def __len__(self) -> int:
        return 9

    def __getitem__(self, row: int) -> np.ndarray:
        if row == 5:
            raise TableError("test-00000-of-00001.parquet: the picture of row 6 is damaged (cut)")
        return np.zeros((32, 32), dtype=np.uint8)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_picture_is_named_without_its_id(workers: int) -> None:
    broken = Images(images(9).table, Broken())
    squares = open_squares(broken, LOOK, memory=0, progress=quiet)
    with refused(CxrhfError, "row 6", "test-00000-of-00001.parquet", "Build the dataset again") as refusal:
        list(read_batches(plan_reading(9, 4), squares, workers=workers))
    said = str(refusal.error)
    assert "train5" not in said
    assert "\n" not in said
    with refused(TableError, "row 6"):
        open_squares(broken, LOOK, memory=1, progress=quiet)


def test_who_reads() -> None:
    kept = open_squares(images(6), LOOK, memory=1, progress=quiet)
    anew = open_squares(images(6), LOOK, memory=0, progress=quiet)
    assert n_workers(None, kept, Augment(), gpu=True, processes=1) == 0
    assert n_workers(None, anew, Augment(), gpu=True, processes=1) >= 1
    assert n_workers(3, kept, Augment(), gpu=False, processes=1) == 3
    assert n_workers(None, kept, TURN, gpu=False, processes=64) == 0


def test_reading_tells_how_far_it_is() -> None:
    said: list[str] = []
    open_squares(images(6), LOOK, memory=1, progress=said.append, what="training images")
    assert said == ["reading training images: 6 of 6"]
