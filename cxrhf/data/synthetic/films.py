"""People -> their pictures, handed out in order or saved by several processes; and pictures spoilt as copies are."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cxrhf.data.synthetic.devices import DEVICES
from cxrhf.data.synthetic.people import People
from cxrhf.tables.workers import end_with_parent

if TYPE_CHECKING:
    import polars as pl

    from cxrhf.data.synthetic.picture import Film

Pixels = NDArray[np.uint8]
Made = TypeVar("Made")

_AHEAD = 4  # pictures waiting for each thread: enough to keep it busy, few enough to stay small in memory
_SMALL = 256  # up to here two threads, waiting for each other, draw no faster than one; at 128 a third slower
_JPEG_QUALITY = 90
MANY, _PART = 300, 50  # fewer pictures are drawn before other processes have started; those of one part
SPOILT = ("missing", "empty", "truncated", "not_an_image")


def film_of(image: Mapping[str, Any], severity: Mapping[str, float], seed: int = 0) -> Film:
    """What a picture shows, from its row of `people.images` with `sex` beside it.

    Patients keep their build from picture to picture; everything else is the image's own.
    """
    from cxrhf.data.synthetic.picture import Film

    return Film(
        view=image["view"],
        sex=image["sex"],
        age=float(image["age"]),
        seed=_number(seed, 1, int(image["image"])),
        patient_seed=_number(seed, 2, int(image["patient"])),
        severity=severity,
        hazy=bool(image.get("hazy") or False),
        **{name: bool(image.get(name) or False) for name in DEVICES},
    )


def films(
    people: People, size: int, *, rows: Iterable[int] | None = None, seed: int = 0
) -> Iterator[tuple[int, Pixels]]:
    """(row of `people.images`, grey pixels of size x size), in the order of `rows` (all by default)."""
    draw_row = _drawer(people, size, seed)
    wanted = range(people.images.height) if rows is None else rows
    return in_order(lambda row: (row, draw_row(row)), wanted, size)


def write_pictures(
    people: People,
    names: pl.DataFrame,
    paths: Sequence[Path],
    size: int,
    *,
    seed: int,
    trouble: np.random.Generator | None,
    heard: Callable[[int], object] = lambda _: None,
) -> dict[str, list[str]]:
    """The picture of each row of `names` at its path; with `trouble` some are then spoilt: kind -> their image ids."""
    save_films(people, dict(zip(names.get_column("image"), paths, strict=True)), size, seed=seed, heard=heard)
    if trouble is None:
        return {}
    return spoil(dict(zip(names.get_column("image_id"), paths, strict=True)), trouble)


def save_films(
    people: People,
    paths: Mapping[int, Path],
    size: int,
    *,
    seed: int = 0,
    heard: Callable[[int], object] = lambda _: None,
) -> None:
    """Draw the picture of each row of `people.images` and write it to its path, as .jpg or .png by the path's ending.

    `heard` is told how many more are done.
    """
    listed = list(paths.items())
    for folder in {path.parent for _, path in listed}:
        folder.mkdir(parents=True, exist_ok=True)
    cores = min(8, os.cpu_count() or 1)
    if cores == 1 or len(listed) < MANY:
        draw_row = _drawer(people, size, seed)
        for _ in in_order(lambda pair: save(draw_row(pair[0]), pair[1]), listed, size):
            heard(1)
        return
    from joblib import Parallel, delayed

    # Drawing mostly holds Python's lock, so threads share a core; parts are small, so that no process is long the last.
    parts = [listed[at : at + _PART] for at in range(0, len(listed), _PART)]
    done = Parallel(n_jobs=cores, return_as="generator")(
        delayed(_save_some)(people, each, size, seed, os.getpid()) for each in parts
    )
    for part, _ in zip(parts, done, strict=True):
        heard(len(part))


def _save_some(people: People, listed: Sequence[tuple[int, Path]], size: int, seed: int, started_by: int) -> None:
    end_with_parent(started_by)
    draw_row = _drawer(people, size, seed)
    for row, path in listed:
        save(draw_row(row), path)


def save(pixels: Pixels, path: Path) -> None:
    """Grey pixels -> a file, the same bytes every time, there whole or not at all."""
    from PIL import Image

    picture, part = Image.fromarray(pixels), path.with_name(f"{path.name}.part")
    if path.suffix == ".png":
        picture.save(part, "PNG", compress_level=1)
    else:
        picture.save(part, "JPEG", quality=_JPEG_QUALITY)
    part.replace(path)


def spoil(paths: Mapping[str, Path], rng: np.random.Generator) -> dict[str, list[str]]:
    """Damage some pictures in every way of SPOILT; returns kind -> the image ids, to be found again by a build.

    One in 250 pictures each way and at least one, but of very few pictures none: half of them stay whole.
    """
    ids = sorted(paths)
    each = min(max(1, len(ids) // 250), len(ids) // (2 * len(SPOILT)))
    chosen = rng.permutation(len(ids))[: each * len(SPOILT)].reshape(len(SPOILT), each)
    spoilt = {kind: sorted(ids[at] for at in row) for kind, row in zip(SPOILT, chosen.tolist(), strict=True)}
    for kind, those in spoilt.items():
        for image_id in those:
            _damage(paths[image_id], kind)
    return spoilt


def _damage(path: Path, kind: str) -> None:
    if kind == "missing":
        path.unlink(missing_ok=True)
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "truncated":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.write_bytes(b"<html><body>Sign in to download this file.</body></html>\n")


def in_order(make: Callable[[Any], Made], items: Iterable[Any], size: int) -> Iterator[Made]:
    """make(item) for every item, in order: large pictures in threads, a few ahead of the reader and no more."""
    if size <= _SMALL:
        yield from map(make, items)
        return
    workers = min(8, os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[Made]] = deque()
        for item in items:
            waiting.append(pool.submit(make, item))
            if len(waiting) > workers * _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _drawer(people: People, size: int, seed: int) -> Callable[[int], Pixels]:
    from cxrhf.data.synthetic.people import severity
    from cxrhf.data.synthetic.picture import draw

    shown = severity(people)
    images = people.images.with_columns(sex=people.patients.get_column("sex").gather(people.images["patient"]))

    def draw_row(row: int) -> Pixels:
        strength = {name: float(shown[row, at]) for at, name in enumerate(people.findings) if name != "no_finding"}
        return draw(film_of(images.row(row, named=True), strength, seed), size)

    return draw_row


def _number(*parts: int) -> int:
    """A seed of its own for each picture and patient, far from those of its neighbours."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> 1)
