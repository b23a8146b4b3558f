"""Images -> batches of squares, as fast as a network asks for them: which rows when, who reads them, what is kept.

Every process works out the order of all batches for itself and reads its own share: nothing is dealt out twice, nothing
is filled up. A batch of training is cut into pieces (to accumulate gradients) and each piece between the processes, so
one process or several see the same batch. The rest of an epoch that fills no batch is left out, another one each epoch.
Pictures are read once and kept as grey levels where the memory allows; else in every epoch, by worker processes.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from cxrhf.errors import ConfigError, CxrhfError, TableError
from cxrhf.models.augment import Augment, augmented
from cxrhf.models.images import Images, Pictures
from cxrhf.models.meter import Progress
from cxrhf.models.pictures import Look, square
from cxrhf.models.seeding import numbers
from cxrhf.tables.workers import end_with_parent

Integers = NDArray[np.int64]
_NOTHING = Augment()
_AT_ONCE = 256  # pictures between two words of progress


@dataclass(frozen=True, slots=True)
class Squares:
    """Rows -> (b, 1, size, size) grey levels; `kept` holds those of all rows, read before."""

    pictures: Pictures
    look: Look
    kept: torch.Tensor | None = None

    def __call__(self, rows: Integers) -> torch.Tensor:
        if self.kept is not None:
            return self.kept[torch.from_numpy(rows)]
        return torch.from_numpy(np.stack([self.one(int(row)) for row in rows])[:, None])

    def one(self, row: int) -> NDArray[np.uint8]:
        """The square of one row; what is wrong with its picture is said with the row, never with the image's id."""
        try:
            return square(self.pictures[row], self.look)
        except CxrhfError as error:
            raise TableError(
                f"the image in row {row + 1:,} cannot be read: {str(error).rstrip('.')}",
                next_step="build the dataset again: cxrhf build excludes damaged images",
            ) from None


def open_squares(images: Images, look: Look, *, memory: float, progress: Progress, what: str = "pictures") -> Squares:
    """Read all pictures now and keep them, if they fit into so many gigabytes; else later, when they are asked for."""
    n, size = len(images), look.size
    reader = Squares(images.pictures, look)
    if n * size * size > memory * 1e9:
        return reader
    kept = torch.empty((n, 1, size, size), dtype=torch.uint8)
    into = kept.numpy()

    def read(row: int) -> None:
        into[row, 0] = reader.one(row)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # Pillow decodes outside the GIL
        for start in range(0, n, _AT_ONCE):
            list(pool.map(read, range(start, min(start + _AT_ONCE, n))))
            progress(f"reading {what}: {min(start + _AT_ONCE, n):,} of {n:,}")
    return replace(reader, kept=kept)


@dataclass(frozen=True, slots=True)
class Ask:
    """One piece of work for one process: the rows to read, and the numbers that draw their augmentation."""

    rows: Integers
    draws: tuple[int, ...] = ()
    counts: bool = True  # False: looked at and thrown away


@dataclass(frozen=True, slots=True)
class Step:
    """A step of training: rows of the whole batch, and this process's share of each piece."""

    number: int  # from 1
    epoch: int  # from 0
    rows: Integers
    mine: tuple[Integers, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The order in which training images are seen."""

    ids: Sequence[str]
    seed: int
    batch_size: int
    pieces: int = 1
    processes: int = 1
    process: int = 0

    def __post_init__(self) -> None:
        least = self.pieces * self.processes
        if min(self.batch_size, len(self.ids)) < least:
            raise ConfigError(
                "--batch-size",
                got=f"{min(self.batch_size, len(self.ids))} for {self.pieces} pieces in {self.processes} processes",
                allowed=f"at least {least} images",
                next_step="use a larger --batch-size, a smaller --accumulate or fewer processes",
            )

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches; one where there are fewer images than a batch has."""
        return max(1, len(self.ids) // self.batch_size)

    def steps(self, first: int, last: int) -> Iterator[Step]:
        """The steps of these numbers, both included, over as many epochs as they take."""
        epoch, order = -1, np.empty(0, dtype=np.int64)
        for step in range(first, last + 1):
            now, at = divmod(step - 1, self.steps_per_epoch)
            if now != epoch:
                epoch, order = now, self.order(now)
            rows = order[at * self.batch_size : (at + 1) * self.batch_size]
            mine = tuple(
                np.array_split(piece, self.processes)[self.process] for piece in np.array_split(rows, self.pieces)
            )
            yield Step(step, epoch, rows, mine)

    def order(self, epoch: int) -> Integers:
        """Rows by a number drawn from (seed, epoch, image): the order of the table plays no part."""
        return np.argsort(numbers(self.seed, "order", epoch, ids=self.ids), kind="stable")

    def asks(self, first: int, last: int, augment: Augment) -> Iterator[Ask]:
        """What this process has to read for these steps, a piece at a time."""
        for step in self.steps(first, last):
            for rows in step.mine:
                yield Ask(rows, self.draws(step.epoch, rows) if not augment.nothing else ())

    def draws(self, epoch: int, rows: Integers) -> tuple[int, ...]:
        """The numbers of these images in this epoch."""
        ids = [self.ids[row] for row in rows]
        return tuple(int(each) for each in numbers(self.seed, "augment", epoch, ids=ids))


def looking(n: int, batch_size: int, processes: int = 1, process: int = 0) -> list[Ask]:
    """Every row once over all processes, in batches, without augmentation: for validation and prediction.

    A process that has a batch less than others looks at one image once more and throws it away (`counts` is false):
    where each holds a part of the weights (FSDP), all must look equally often.
    """
    batches = [np.arange(start, min(start + batch_size, n)) for start in range(0, n, batch_size)]
    asks = [Ask(rows) for rows in batches[process::processes]]
    short = len(asks) < -(-len(batches) // processes)
    return [*asks, Ask(np.zeros(1, dtype=np.int64), counts=False)] if short else asks


def read_batches(
    asks: Iterator[Ask] | Sequence[Ask],
    squares: Squares,
    augment: Augment = _NOTHING,
    *,
    workers: int,
    pin: bool = False,
) -> Generator[torch.Tensor, None, None]:
    """The squares of each ask, in order; `workers` processes read ahead. What fails there is raised here."""
    source = _Reader(squares, augment)
    if workers == 0:
        for ask in asks:
            yield _good(source[ask])
        return
    # One stretch over all epochs: workers are started once, and read on while the network validates.
    loader: Any = DataLoader(
        source, sampler=asks, batch_size=None, num_workers=workers, prefetch_factor=4, pin_memory=pin,
        worker_init_fn=partial(_end_with, os.getpid()),
    )  # fmt: skip
    for item in loader:
        yield _good(item)


def _end_with(parent: int, _: int) -> None:
    end_with_parent(parent)  # torch itself looks every five seconds


def n_workers(asked: int | None, squares: Squares, augment: Augment, *, gpu: bool, processes: int) -> int:
    """Worker processes: as asked, else none where there is nothing to do for them."""
    if asked is not None:
        return asked
    if squares.kept is not None and augment.nothing:
        return 0
    cores = max(1, (os.cpu_count() or 1) // processes)
    # Beside a network on the CPU, one: more would take its cores.
    return min(8, cores) if gpu else min(1, cores - 1)


class _Reader(Dataset[Any]):
    def __init__(self, squares: Squares, augment: Augment) -> None:
        self.squares, self.augment = squares, augment

    def __getitem__(self, ask: Ask) -> torch.Tensor | str:
        try:
            found = self.squares(ask.rows)
            return augmented(found, self.augment, list(ask.draws)) if ask.draws else found
        except CxrhfError as error:
            return str(error)  # a message survives the way out of a worker, an error's kind does not


def _good(item: torch.Tensor | str) -> torch.Tensor:
    if isinstance(item, str):
        raise CxrhfError(item)
    return item
