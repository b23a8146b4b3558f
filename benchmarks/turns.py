"""Trainings of copies of one network -> the seconds of their steps, measured in turn, a step of each at a time.

A clock in front of the network's first layer reads the time of every step, so a step is timed with all that lies
between two of them. A machine which slows down does so for all, and steps in which one was held up by other programs
are left out for all.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

FIRST = 4  # steps before this one warm up
HELD_UP = 1.3  # times the median, from which a step shows the machine and not the loop
Training = Callable[[torch.nn.Module], list[float]]  # trains a network; its losses


@dataclass
class Side:
    """What one training showed: its losses, seconds of each step, and of what it did after the last one."""

    losses: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    after: float = 0.0
    failed: BaseException | None = None


class Turns:
    """Whose turn it is among so many threads; one that has ended is passed over."""

    def __init__(self, n: int) -> None:
        self.changed, self.waiting, self.turn = threading.Condition(), list(range(n)), 0

    def take(self, me: int) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.waiting[self.turn] == me)

    def give(self, me: int, *, ended: bool = False) -> None:
        with self.changed:
            at = self.waiting.index(me)
            if ended:
                self.waiting.remove(me)
            self.turn = (at if ended else at + 1) % max(len(self.waiting), 1)
            self.changed.notify_all()


def in_turn(model: torch.nn.Module, sides: Mapping[str, Training]) -> dict[str, Side]:
    """Each trains a copy of the network in a thread of its own, one step of each at a time."""
    turns, found = Turns(len(sides)), {name: Side() for name in sides}

    def train(me: int, side: Side, how: Training) -> None:
        network, began = copy.deepcopy(model), [0.0]

        def step(*_: Any) -> None:
            if began[0]:
                side.steps.append(time.perf_counter() - began[0])
            turns.give(me)
            turns.take(me)
            began[0] = time.perf_counter()

        network.register_forward_pre_hook(step)
        turns.take(me)
        try:
            side.losses = how(network)
            side.after = max(0.0, time.perf_counter() - began[0] - middle(side.steps))
        except BaseException as error:
            side.failed = error
        turns.give(me, ended=True)

    threads = [
        threading.Thread(target=train, args=(me, found[name], how)) for me, (name, how) in enumerate(sides.items())
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for side in found.values():
        if side.failed is not None:
            raise side.failed
    return found


def middle(values: Iterable[float]) -> float:
    return float(np.median(list(values)))


def steps_of(found: dict[str, Side], *names: str) -> tuple[list[float], str]:
    """Mean seconds of a step of each side, over the steps in which none of them was held up; and how many these are."""
    times = np.array([found[name].steps[FIRST:] for name in names])
    smooth = (times < HELD_UP * np.median(times, axis=1, keepdims=True)).all(axis=0)
    said = f"{smooth.sum()} steps of each in turn ({(~smooth).sum()} more were held up)"
    return [float(each) for each in times[:, smooth].mean(axis=1)], said
