"""IMAGE rows and their pictures -> the part of them that a network is to learn from or to look at.

Nothing here knows where pictures lie: whoever opens a build hands over an object that gives grey levels by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cxrhf.config_train import condition
from cxrhf.errors import ConfigError, TableError, did_you_mean
from cxrhf.models.seeding import number

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


def chosen(images: Images, only: Sequence[str]) -> Images:
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


def fewer(images: Images, most: int | None, seed: int) -> Images:
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
