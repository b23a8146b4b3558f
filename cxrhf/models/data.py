"""IMAGE rows and their pictures -> the part of them that a network is to learn from or to look at.

Nothing here knows where pictures lie: whoever opens a build hands over an object that gives grey levels by row.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from cxrhf.errors import ConfigError, CxrhfError, TableError, did_you_mean
from cxrhf.models.seeding import Progress, number, numbers, seeded_torch
from cxrhf.models.settings import FITS, PIXELS, condition
from cxrhf.tables.cells import AGE_BANDS, NO_VALUE, age_band
from cxrhf.tables.folders import end_with_parent

Integers = NDArray[np.int64]


class Pictures(Protocol):
    """Grey levels by row. Must survive pickling: worker processes open their own."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> NDArray[np.uint8]: ...


@dataclass(frozen=True, slots=True)
class SomePictures:
    """Some pictures of others, in a new order."""

    whole: Pictures
    rows: Integers

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> NDArray[np.uint8]:
        return self.whole[int(self.rows[row])]


@dataclass(frozen=True, slots=True)
class Images:
    """IMAGE rows without the picture column, labels 1 / 0 / null, and the picture of each row."""

    table: pa.Table
    pictures: Pictures

    def __post_init__(self) -> None:
        if len(self.pictures) != self.table.num_rows:
            raise TableError(
                "the table of images and the pixels have different lengths",
                got=f"{self.table.num_rows:,} and {len(self.pictures):,}",
            )

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def ids(self) -> list[str]:
        """Image ids, in order."""
        return [str(each) for each in self.table["image_id"].to_pylist()]

    def take(self, rows: NDArray[np.int64]) -> Images:
        """These rows, in this order."""
        return Images(self.table.take(pa.array(rows)), SomePictures(self.pictures, np.asarray(rows, dtype=np.int64)))


def unique_ids(images: Images) -> None:
    """Predictions are joined by image id, so an id that stands twice is an error."""
    twice = len(images) - len(pc.unique(images.table["image_id"]))
    if twice:
        raise TableError(f"{twice:,} images share an id with another image", next_step="build the dataset again")


def filter_images(images: Images, only: Sequence[str]) -> Images:
    """The images for which every condition holds (`sex=F`, `view=AP|PA`, `age=18-65`); unknown values never hold."""
    keep = np.ones(len(images), dtype=bool)
    for text in only:
        name, values = condition(text)
        column = images.table[name] if name in images.table.column_names else pa.nulls(len(images), pa.string())
        if name == "age":
            low, high = (float(each) for each in values)
            ages = np.asarray(pc.fill_null(column.cast(pa.float64()), float("nan")))
            keep &= (ages >= low) & (ages <= high)
            continue
        there = sorted({str(each) for each in pc.unique(column).to_pylist() if each is not None})
        wanted = [each for each in there if each.lower() in [value.lower() for value in values]]
        for value in values:
            if value.lower() not in [each.lower() for each in there]:
                raise ConfigError(
                    f"--only {name}={value}",
                    allowed=", ".join(there) or f"a build that records {name}",
                    next_step=did_you_mean(value, there),
                )
        keep &= np.asarray(pc.fill_null(pc.is_in(column, value_set=pa.array(wanted, pa.string())), False))
    if not keep.any():
        raise ConfigError(f"--only {','.join(only)} selects no images")
    return images if keep.all() else images.take(np.flatnonzero(keep))


def limit_images(images: Images, most: int | None, seed: int) -> Images:
    """At most so many images: patients in an order drawn by the seed, each with all images, until it is full."""
    if most is None or len(images) <= most:
        return images
    patients = images.table["patient_id"].to_pylist()
    drawn = {each: number(seed, "patient", each) for each in set(patients)}
    order = np.array([drawn[each] for each in patients], dtype=np.uint64)
    _, place, counts = np.unique(order, return_inverse=True, return_counts=True)
    # A patient with more images than there is room for is passed over, and the next one may still fit.
    left, taken = most, np.zeros(len(counts), dtype=bool)
    for at, count in enumerate(counts.tolist()):
        taken[at] = count <= left
        left -= count * int(taken[at])
    kept = np.flatnonzero(taken[place])
    if not len(kept):
        raise ConfigError(
            "--max-images",
            got=most,
            allowed=f"at least {counts.min()}, as no patient has fewer images",
        )
    return images.take(kept)


# IMAGE rows -> tasks and targets: what each output of the last layer stands for, and what it should say.
#
# All tasks share one linear layer, so that every network is a plain classifier that others can load. Findings have an
# output each (sigmoid); sex, race, view and age band have an output for each class (softmax over them). Targets are
# one matrix of 1, 0 and -1: -1 is unknown, and unknown never counts. Classes are those of the training images.

Targets = NDArray[np.int8]
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Task:
    """`labels`: each output is 1 or 0 on its own; `classes`: one of the outputs holds."""

    name: str
    kind: Literal["labels", "classes"]
    outputs: tuple[str, ...]


def names(tasks: Sequence[Task]) -> list[str]:
    """Every output of the last layer in order: a finding by its name, a class as `race=Black`.

    >>> names([Task("findings", "labels", ("edema",)), Task("sex", "classes", ("F", "M"))])
    ['edema', 'sex=F', 'sex=M']
    """
    return [each if task.kind == "labels" else f"{task.name}={each}" for task in tasks for each in task.outputs]


def task_columns(tasks: Sequence[Task]) -> list[tuple[Task, slice]]:
    """Where the outputs of each task stand in the last layer."""
    found, at = [], 0
    for task in tasks:
        found.append((task, slice(at, at + len(task.outputs))))
        at += len(task.outputs)
    return found


def make_tasks(table: pa.Table, wanted: Sequence[str], findings: Sequence[str]) -> tuple[list[Task], list[str]]:
    """The tasks that these training images can teach, and what was left out.

    A finding without a positive or without a negative, and an attribute with one value, cannot be learned: they are
    left out, which is said. Nothing left is an error.
    """
    tasks, notes = [], []
    for name in wanted:
        if name == "findings":
            kept = []
            for finding in findings:
                said = _unlearnable(table, finding)
                if said:
                    notes.append(f"{finding} is excluded: {said}")
                else:
                    kept.append(finding)
            if kept:
                tasks.append(Task("findings", "labels", tuple(kept)))
            continue
        classes = _classes(table, name)
        if len(classes) < 2:
            notes.append(f"{name} is excluded: training images have {len(classes) or 'no'} value of it")
        else:
            tasks.append(Task(name, "classes", tuple(classes)))
    if not tasks:
        raise ConfigError(
            f"no task can be learned from these images ({'; '.join(notes) or 'no findings'})",
            next_step="choose other --tasks or --findings, exclude less with --only, or use a build with more labels",
        )
    return tasks, notes


def check_findings(findings: Sequence[str], there: Sequence[str]) -> None:
    """A finding that the build does not have is an error with the nearest name."""
    for name in findings:
        if name not in there:
            raise ConfigError(
                f'the build has no finding "{name}"', allowed=", ".join(there), next_step=did_you_mean(name, there)
            )


def targets(table: pa.Table, tasks: Sequence[Task]) -> Targets:
    """images x outputs: 1, 0, or -1 where it is not known. Columns that a table lacks are unknown."""
    parts = []
    for task in tasks:
        if task.kind == "labels":
            parts += [_labels(table, finding)[:, None] for finding in task.outputs]
        else:
            place = _place(table, task)
            hot = (place[:, None] == np.arange(len(task.outputs))).astype(np.int8)
            hot[place < 0] = UNKNOWN
            parts.append(hot)
    if not parts:
        return np.empty((table.num_rows, 0), dtype=np.int8)
    return np.ascontiguousarray(np.concatenate(parts, axis=1), dtype=np.int8)


def shuffled(target: Targets, patients: Sequence[str], seed: int) -> Targets:
    """Each patient gets the labels of another patient, image by image: what is learned then is nothing.

    Whole patients are dealt, because images of one patient share labels: a permutation of rows alone would leave the
    patient's own habits in place. A patient with more images than the other has takes the other's again from the start.
    """
    _, place = np.unique(np.asarray(patients), return_inverse=True)
    count = int(place.max()) + 1 if len(place) else 0
    rng = np.random.default_rng([seed, 7])
    # A cycle through a random order: nobody keeps the own labels.
    order = rng.permutation(count)
    other = np.empty(count, dtype=np.int64)
    other[order] = np.roll(order, 1)
    rows = _rows_by_patient(place, count)
    out = target.copy()
    for mine, theirs in enumerate(other):
        given = rng.permutation(rows[theirs])
        out[rows[mine]] = target[given[np.arange(len(rows[mine])) % len(given)]]
    return out


def to_json(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """Tasks as plain values."""
    return [{"name": each.name, "kind": each.kind, "outputs": list(each.outputs)} for each in tasks]


def from_json(values: Sequence[Mapping[str, Any]]) -> list[Task]:
    """What `to_json` wrote."""
    return [Task(str(each["name"]), each["kind"], tuple(map(str, each["outputs"]))) for each in values]


def _rows_by_patient(place: NDArray[np.int64], count: int) -> list[NDArray[np.int64]]:
    order = np.argsort(place, kind="stable")
    return np.split(order, np.cumsum(np.bincount(place, minlength=count))[:-1])


def _labels(table: pa.Table, finding: str) -> NDArray[np.int8]:
    if finding not in table.column_names:
        return np.full(table.num_rows, UNKNOWN, dtype=np.int8)
    return np.asarray(pc.fill_null(table[finding].cast(pa.int8()), UNKNOWN), dtype=np.int8)


def _unlearnable(table: pa.Table, finding: str) -> str | None:
    label = _labels(table, finding)
    positive, negative = int((label == 1).sum()), int((label == 0).sum())
    if positive and negative:
        return None
    if not positive and not negative:
        return "no training image is labelled for it"
    return f"none of {positive + negative:,} labelled training images is {'positive' if not positive else 'negative'}"


def _values(table: pa.Table, name: str) -> list[str | None]:
    if name == "age_band":
        if "age" not in table.column_names:
            return [None] * table.num_rows
        ages = np.asarray(pc.fill_null(table["age"].cast(pa.float64()), float("nan")))
        return [AGE_BANDS[each] if each >= 0 else None for each in age_band(ages)]
    if name not in table.column_names:
        return [None] * table.num_rows
    given = table[name].cast(pa.string()).to_pylist()
    return [None if each is None or each.strip().lower() in NO_VALUE else each for each in given]


def _classes(table: pa.Table, name: str) -> list[str]:
    return sorted({each for each in _values(table, name) if each is not None})


def _place(table: pa.Table, task: Task) -> NDArray[np.int64]:
    at = {each: place for place, each in enumerate(task.outputs)}
    return np.array([at.get(each, UNKNOWN) if each else UNKNOWN for each in _values(table, task.name)], dtype=np.int64)


# Grey levels of a picture -> the square that a network sees, and squares -> the numbers it computes with.
#
# The first step is done once for a picture, in whole grey levels, so that squares can be kept in a quarter of the
# memory. The second is done for a batch, where the network runs.

SCALES = tuple(each for each in PIXELS if each != "auto")
# Mean and spread of grey levels between 0 and 1, for each colour.
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(frozen=True, slots=True)
class Look:
    """How a network sees a picture. `pixels`: imagenet, unit (0..1), half (-1..1), xrv (-1024..1024)."""

    size: int = 224
    fit: str = "crop"
    pixels: str = "imagenet"
    channels: int = 3

    def __post_init__(self) -> None:
        if self.fit not in FITS or self.pixels not in SCALES or self.channels not in (1, 3):
            raise ConfigError(
                "image settings",
                got=asdict(self),
                allowed=f"fit {' or '.join(FITS)}, pixels {' or '.join(SCALES)}, 1 or 3 channels",
            )

    def mean_std(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """What is taken off and divided by, for grey levels between 0 and 1, one for each channel."""
        if self.pixels == "imagenet":
            mean, std = _IMAGENET
            if self.channels == 1:
                return (sum(mean) / 3,), (sum(std) / 3,)
            return mean, std
        mid, width = {"unit": (0.0, 1.0), "half": (0.5, 0.5), "xrv": (0.5, 1 / 2048)}[self.pixels]
        return (mid,) * self.channels, (width,) * self.channels


def look_facts(look: Look) -> dict[str, Any]:
    """A look as plain values, with mean and spread for those who load the model without us."""
    mean, std = look.mean_std()
    return {**asdict(look), "mean": list(mean), "std": list(std)}


def look_from_facts(facts: dict[str, Any]) -> Look:
    """What `look_facts` wrote."""
    return Look(int(facts["size"]), str(facts["fit"]), str(facts["pixels"]), int(facts["channels"]))


def to_square(grey: NDArray[np.uint8], look: Look) -> NDArray[np.uint8]:
    """size x size grey levels. `crop`: the shorter side becomes `size`, then the middle of the longer one is cut out.

    In the order and with the rounding of torchvision's Resize and CenterCrop, so that others see what we see.
    """
    from PIL import Image
    from PIL.Image import Resampling

    height, width = grey.shape
    side, short = look.size, min(grey.shape)
    if look.fit == "squash":
        new = side, side
    else:
        new = max(side, int(side * height / short)), max(side, int(side * width / short))
    if (height, width) != new:
        grey = np.asarray(Image.fromarray(grey).resize(new[::-1], Resampling.BILINEAR), dtype=np.uint8)
    top, left = round((new[0] - side) / 2), round((new[1] - side) / 2)
    return grey[top : top + side, left : left + side]


def to_pixels(squares: torch.Tensor, look: Look) -> torch.Tensor:
    """(b, 1, s, s) grey levels -> (b, channels, s, s) float32, where the squares are."""
    mean, std = look.mean_std()
    grey = squares.to(torch.float32)
    if len(set(mean)) == 1 and len(set(std)) == 1:
        # One pass over the pixels, and no copy of the channels.
        scaled = grey.mul_(1 / (255 * std[0])).sub_(mean[0] / std[0])
        return scaled.expand(-1, look.channels, -1, -1)
    middle = torch.tensor(mean, device=grey.device).view(1, -1, 1, 1)
    width = torch.tensor(std, device=grey.device).view(1, -1, 1, 1)
    return (grey / 255 - middle) / width


# A training square -> the same square flipped, turned, shifted or scaled, drawn by (seed, epoch, image) alone.
#
# torchvision's v2 transforms do it. Validation and test never come here: only a plan of training batches has an
# epoch.


@dataclass(frozen=True)
class Augment:
    """What may happen to a training picture. `p` is the probability of turn, shift and scale, each on its own."""

    flip: float = 0.0
    rotation: float = 0.0
    translate: float = 0.0
    scale: float = 0.0
    p: float = 1.0

    @property
    def nothing(self) -> bool:
        """Pictures stay as they are."""
        return not self.flip and not (self.p and (self.rotation or self.translate or self.scale))

    @cached_property
    def steps(self) -> Any:
        """The transforms of torchvision, in order."""
        from torchvision.transforms import InterpolationMode, v2

        bilinear = InterpolationMode.BILINEAR
        steps: list[Any] = [v2.RandomHorizontalFlip(self.flip)] if self.flip else []
        shift = (self.translate, self.translate) if self.translate else None
        scale = (1 - self.scale, 1 + self.scale) if self.scale else None
        if self.p == 1 and (self.rotation or shift or scale):
            # One resampling of the picture instead of three.
            steps.append(v2.RandomAffine(self.rotation, translate=shift, scale=scale, interpolation=bilinear))
        elif self.p:
            alone: list[Any] = []
            if self.rotation:
                alone.append(v2.RandomRotation(self.rotation, interpolation=bilinear))
            if shift:
                alone.append(v2.RandomAffine(0, translate=shift, interpolation=bilinear))
            if scale:
                alone.append(v2.RandomAffine(0, scale=scale, interpolation=bilinear))
            steps += [v2.RandomApply([each], self.p) for each in alone]
        return v2.Compose(steps)


def augmented(squares: torch.Tensor, augment: Augment, draws: list[int]) -> torch.Tensor:
    """(b, 1, s, s) grey levels -> the same, each picture by its own number."""
    if augment.nothing:
        return squares
    steps = augment.steps
    out = torch.empty_like(squares)
    for at, draw in enumerate(draws):
        with seeded_torch(draw):
            out[at] = steps(squares[at])
    return out


# Images -> batches of squares, as fast as a network asks for them: which rows when, who reads them, what is kept.
#
# Every process works out the order of all batches for itself and reads its own share: nothing is dealt out twice,
# nothing is filled up. A batch of training is cut into pieces (to accumulate gradients) and each piece between the
# processes, so one process or several see the same batch. The rest of an epoch that fills no batch is left out,
# another one each epoch. Pictures are read once and kept as grey levels where the memory allows; else in every epoch,
# by worker processes.

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
            return to_square(self.pictures[row], self.look)
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
class ReadRequest:
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

    def asks(self, first: int, last: int, augment: Augment) -> Iterator[ReadRequest]:
        """What this process has to read for these steps, a piece at a time."""
        for step in self.steps(first, last):
            for rows in step.mine:
                yield ReadRequest(rows, self.draws(step.epoch, rows) if not augment.nothing else ())

    def draws(self, epoch: int, rows: Integers) -> tuple[int, ...]:
        """The numbers of these images in this epoch."""
        ids = [self.ids[row] for row in rows]
        return tuple(int(each) for each in numbers(self.seed, "augment", epoch, ids=ids))


def plan_reading(n: int, batch_size: int, processes: int = 1, process: int = 0) -> list[ReadRequest]:
    """Every row once over all processes, in batches, without augmentation: for validation and prediction.

    A process that has a batch less than others looks at one image once more and throws it away (`counts` is false):
    where each holds a part of the weights (FSDP), all must look equally often.
    """
    batches = [np.arange(start, min(start + batch_size, n)) for start in range(0, n, batch_size)]
    asks = [ReadRequest(rows) for rows in batches[process::processes]]
    short = len(asks) < -(-len(batches) // processes)
    return [*asks, ReadRequest(np.zeros(1, dtype=np.int64), counts=False)] if short else asks


def read_batches(
    asks: Iterator[ReadRequest] | Sequence[ReadRequest],
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
            yield _raise_if_error(source[ask])
        return
    # One stretch over all epochs: workers are started once, and read on while the network validates.
    loader: Any = DataLoader(
        source, sampler=asks, batch_size=None, num_workers=workers, prefetch_factor=4, pin_memory=pin,
        worker_init_fn=partial(_end_with, os.getpid()),
    )  # fmt: skip
    for item in loader:
        yield _raise_if_error(item)


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

    def __getitem__(self, ask: ReadRequest) -> torch.Tensor | str:
        try:
            found = self.squares(ask.rows)
            return augmented(found, self.augment, list(ask.draws)) if ask.draws else found
        except CxrhfError as error:
            return str(error)  # a message survives the way out of a worker, an error's kind does not


def _raise_if_error(item: torch.Tensor | str) -> torch.Tensor:
    if isinstance(item, str):
        raise CxrhfError(item)
    return item
