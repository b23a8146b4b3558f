"""People -> their pictures, handed out in order or saved by several processes; and pictures spoilt as copies are."""

from __future__ import annotations

import argparse
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import ndimage

from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.findings import CHEXPERT
from cxrhf.tables.folders import end_with_parent
from cxrhf.twin.anatomy import RIGHT, Grid, Layer, Physique, bones, clouds, make_chest, make_grid, make_physique
from cxrhf.twin.people import People, people, severity
from cxrhf.twin.signs import (
    DEVICES,
    add_devices,
    add_lateral_signs,
    add_signs,
    breaks_of,
    lateral_bones,
    make_profile,
    side_of,
)

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Film", "Picture", "draw", "enlarge"]


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
    from cxrhf.twin.people import severity

    shown = severity(people)
    images = people.images.with_columns(sex=people.patients.get_column("sex").gather(people.images["patient"]))

    def draw_row(row: int) -> Pixels:
        strength = {name: float(shown[row, at]) for at, name in enumerate(people.findings) if name != "no_finding"}
        return draw(film_of(images.row(row, named=True), strength, seed), size)

    return draw_row


def _number(*parts: int) -> int:
    """A seed of its own for each picture and patient, far from those of its neighbours."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> 1)


# What is to be seen on a chest film -> the film, as grey pixels made from nothing but numbers.
#
# Nobody's picture: ribs, vessels and tubes are curves, and two seeds their only chance. A film is a sum of
# thicknesses (anatomy.py; changed by signs.py, with devices on top) put
# through a film's grey curve. Known gaps: findings do not know of each other (fluid and free air lie
# over each other without a level), a lateral film tells no side, and hearts, fissures and vessels are far simpler
# than people's.

LATERAL = ("LATERAL", "LL")
VIEWS = ("PA", "AP", *LATERAL)
SMALLEST, LARGEST = 64, 4096
DRAWN = 512  # the largest size that is drawn; beyond it the picture is enlarged


@dataclass(frozen=True, slots=True)
class Film:
    """What is to be seen on one film.

    `patient_seed` makes the person, `seed` the day: films of one patient look alike. `severity` goes from 0 (nothing to
    see) to 1 (gross) for CheXpert's findings; those left out are 0, and no_finding and support_devices have no sign of
    their own. `drain` lies on the side of the pneumothorax (or of the fluid, where there is more of it). `hazy` makes a
    hard film, flat and grainy; signs keep their severity and lose contrast with all the rest.
    """

    view: str
    sex: str
    age: float
    seed: int
    patient_seed: int
    severity: Mapping[str, float]
    drain: bool = False
    ecg_wires: bool = False
    pacemaker: bool = False
    central_line: bool = False
    et_tube: bool = False
    sternotomy: bool = False
    hazy: bool = False

    def __post_init__(self) -> None:
        if self.view not in VIEWS:
            raise ConfigError("view", got=self.view, allowed=f"one of {', '.join(VIEWS)}")
        if self.sex not in ("F", "M"):
            raise ConfigError("sex", got=self.sex, allowed="F or M")
        if not 0 <= self.age <= 130:
            raise ConfigError("age", got=self.age, allowed="0 to 130 years")
        if self.seed < 0 or self.patient_seed < 0:
            raise ConfigError("seeds", got=f"{self.seed} and {self.patient_seed}", allowed="numbers >= 0")
        for finding, value in self.severity.items():
            if finding not in CHEXPERT:
                hint = did_you_mean(finding, CHEXPERT) or "use a name of cxrhf.findings.CHEXPERT"
                raise ConfigError(f'"{finding}" is not a finding that cxrhf draws', next_step=hint)
            if not 0 <= value <= 1:
                raise ConfigError(f"severity of {finding}", got=value, allowed="0 to 1")


def draw(film: Film, size: int = 256) -> Picture:
    """The film as (size, size) grey bytes. The same film gives the same bytes."""
    if not SMALLEST <= size <= LARGEST:
        raise ConfigError("size of the image", got=size, allowed=f"{SMALLEST} to {LARGEST} pixels per side")
    if size > DRAWN:
        return enlarge(draw(film, DRAWN), size, size, film.seed)
    # Small films are drawn at twice their size: ribs and wires would otherwise break up.
    grid = make_grid(size if size >= 128 else 2 * size)
    patient = np.random.default_rng([film.patient_seed, 1])
    today = np.random.default_rng([film.patient_seed, 2, film.seed])
    severity = {finding: float(value) for finding, value in film.severity.items()}
    build = _build(film, severity, patient, today)
    lateral = film.view in LATERAL
    thick: Layer
    if lateral:
        profile = make_profile(grid, build, patient)
        add_lateral_signs(profile, severity, film.patient_seed, film.seed)
        thick = profile.thickness() + lateral_bones(profile, severity.get("fracture", 0.0), patient)
    else:
        chest = make_chest(grid, build, patient)
        add_signs(chest, severity, film.patient_seed, film.seed)
        breaks = breaks_of(severity.get("fracture", 0.0), film.patient_seed)
        thick = chest.thickness() + bones(chest, breaks, patient)
    worn = [name for name in DEVICES if getattr(film, name)]
    if worn:
        thick = thick + add_devices(grid, worn, lateral, _drain_side(film), film.patient_seed, film.seed)
    zoom = {"PA": 1.1, "AP": 1.13}.get(film.view, 1.24)
    return expose(thick, grid, size, zoom, film.view == "AP", film.hazy, patient, today)


def _build(
    film: Film, severity: Mapping[str, float], patient: np.random.Generator, today: np.random.Generator
) -> Physique:
    """The patient's build, with the findings that show in outlines: a wide heart, a wide mediastinum, a raised dome."""
    heart, wide = severity.get("cardiomegaly", 0.0), severity.get("enlarged_cardiomediastinum", 0.0)
    # On a lateral film the upper of both domes is drawn, and it is the right one's.
    side = RIGHT if film.view in LATERAL else side_of(film.patient_seed, "atelectasis")
    loss = side * severity.get("atelectasis", 0.0)
    build = make_physique(film.view == "AP", film.sex == "F", float(film.age), patient, today, loss)
    return replace(build, heart=build.heart * (1 + 0.55 * heart) + 0.08 * wide, upper=build.upper + 0.05 * wide)


def _drain_side(film: Film) -> float:
    fluid, air = (film.severity.get(finding, 0.0) for finding in ("pleural_effusion", "pneumothorax"))
    return side_of(film.patient_seed, "pleural_effusion" if fluid > air else "pneumothorax")


# Thickness of what the beam crosses -> grey pixels: position, grey curve, noise, marker, size.

Picture = NDArray[np.uint8]


def expose(
    thick: Layer,
    grid: Grid,
    size: int,
    zoom: float,
    portable: bool,
    hazy: bool,
    patient: np.random.Generator,
    film: np.random.Generator,
) -> Picture:
    """The film of `size` pixels a side; `thick` may be drawn at a multiple of it."""
    grey = _curve(_place_drawing(thick, grid, zoom, portable, patient, film), portable, film)
    if grid.size > size:
        step = grid.size // size
        grey = grey.reshape(size, step, size, step).mean(axis=(1, 3))
    if hazy:
        grey = 0.24 + 0.55 * grey
    noise = film.standard_normal((size, size), dtype=np.float32)
    # Thick parts let few rays through, and few rays are grainy.
    grey = grey + noise * ((0.006 + 0.012 * grey) * (1.25 if portable else 1) * (1.5 if hazy else 1))
    _shutters(grey, film)
    _marker(grey, film)
    return np.clip(255 * grey, 0, 255).astype(np.uint8)


def _place_drawing(
    thick: Layer, grid: Grid, zoom: float, portable: bool, patient: np.random.Generator, film: np.random.Generator
) -> Layer:
    """The upright drawing turned, shifted and scaled as the patient stood, and bent: no two people are alike."""
    tilt = math.radians(float(film.normal(0, 2.2 if portable else 0.8)))
    stature = 0.03 * float(np.clip(patient.standard_normal(), -2, 2))
    zoom = zoom + stature + 0.015 * float(film.standard_normal())
    dx, dy = (float(v) for v in film.normal((0, -0.02), 0.01))
    bent_x, bent_y = 0.006 * clouds(patient, grid, 0.25), 0.006 * clouds(patient, grid, 0.25)
    c, s, middle = math.cos(tilt) / zoom, math.sin(tilt) / zoom, grid.y - 0.5
    at_y = (s * grid.x + c * middle + bent_y + (0.5 + dy)) * grid.size - 0.5
    at_x = (c * grid.x - s * middle + bent_x + (0.5 + dx)) * grid.size - 0.5
    return ndimage.map_coordinates(thick, [at_y, at_x], order=1, mode="nearest")


def _curve(thick: Layer, portable: bool, film: np.random.Generator) -> Layer:
    dose, contrast = (float(v) for v in np.exp(film.normal(0, (0.08, 0.1))))
    grey = 1 - np.exp(np.maximum(thick, 0) * (-1.4 * dose))
    # A film's toe and shoulder: the middle greys are spread at the cost of both ends.
    grey = grey + 0.25 * contrast * grey * (1 - grey) * (2 * grey - 1)
    return 0.07 + 0.84 * grey if portable else 0.02 + 0.95 * grey


def _shutters(grey: Layer, film: np.random.Generator) -> None:
    """Edges of the beam: on some films a margin stayed unexposed."""
    n = len(grey)
    widths = film.uniform(0, 0.035, 4) * (film.uniform(size=4) < 0.3)
    top, bottom, left, right = (round(float(w) * n) for w in widths)
    for edge in (grey[:top], grey[n - bottom :], grey[:, :left], grey[:, n - right :]):
        edge[...] = 0.03


def _marker(grey: Layer, film: np.random.Generator) -> None:
    """A lead L at the patient's left shoulder."""
    n = len(grey)
    x, y = (float(v) for v in film.uniform((0.88, 0.05), (0.93, 0.12)))
    bar = max(1, round(0.008 * n))
    left, top, bottom = round(x * n), round(y * n), round((y + 0.045) * n)
    grey[top:bottom, left : left + bar] = 0.97
    grey[bottom - bar : bottom, left : left + round(0.03 * n)] = 0.97


def enlarge(picture: Picture, height: int, width: int, seed: int) -> Picture:
    """The picture at another, larger size, with grain of that size: for files as big as a detector's."""
    from PIL import Image

    large = np.asarray(Image.fromarray(picture).resize((width, height), Image.Resampling.BICUBIC), dtype=np.float32)
    grain = np.random.default_rng([seed, height, width]).standard_normal(large.shape, dtype=np.float32)
    return np.clip(large + 2.5 * grain + 0.5, 0, 255).astype(np.uint8)


# People and rows -> a contact sheet of their films; run as a module it makes one of rows chosen from a twin.

_STRIP = 14  # pixels below each film, for its caption
_GAP = 4
_PAPER, _INK = 255, 0
_PATIENTS = 4000  # enough for a row with any one finding alone
# Captions and what must be true of the row; a finding's name stands for: the only one, and drawn strongly.
_FINDINGS = (
    "cardiomegaly",
    "enlarged_cardiomediastinum",
    "edema",
    "consolidation",
    "pneumonia",
    "lung_opacity",
    "lung_lesion",
    "atelectasis",
    "pleural_effusion",
    "pneumothorax",
    "pleural_other",
    "fracture",
)


def contact_sheet(
    people: People,
    rows: Sequence[int],
    size: int = 160,
    columns: int = 6,
    captions: Sequence[str] | None = None,
    *,
    seed: int = 0,
) -> Pixels:
    """The films of `rows` side by side, `columns` a line, each with its caption below (what is positive by default)."""
    from PIL import Image, ImageDraw

    if not len(rows) or columns < 1:
        raise ConfigError("contact sheet", got=f"{len(rows)} rows and {columns} columns", allowed="1 or more of each")
    texts = [_caption(people, row) for row in rows] if captions is None else list(captions)
    if len(texts) != len(rows):
        raise ConfigError("captions of the images", got=len(texts), allowed=f"{len(rows)}")
    across, down = min(columns, len(rows)), -(-len(rows) // columns)
    step_x, step_y = size + _GAP, size + _STRIP
    sheet = Image.new("L", (across * step_x + _GAP, down * step_y + _GAP), _PAPER)
    pen = ImageDraw.Draw(sheet)
    for at, (_, pixels) in enumerate(films(people, size, rows=rows, seed=seed)):
        left, top = _GAP + at % columns * step_x, _GAP + at // columns * step_y
        sheet.paste(Image.fromarray(pixels), (left, top))
        pen.text((left + 1, top + size), texts[at], fill=_INK)
    return np.asarray(sheet)


def example_rows(people: People) -> dict[str, int]:
    """caption -> a row of the twin that shows it: normal films, each finding alone and strong, devices, haze."""
    images = people.images.with_columns(sex=people.patients.get_column("sex").gather(people.images["patient"]))
    shown = dict(zip(people.findings, severity(people).T, strict=True))
    signs = [name for name in people.findings if name not in ("no_finding", "support_devices")]
    y = dict(zip(people.findings, people.y.T, strict=True))
    most = np.max([shown[name] for name in signs], axis=0)

    def where(*conditions: pl.Expr) -> NDArray[np.bool_]:
        return images.select(pl.all_horizontal(*conditions)).to_series().to_numpy()

    bare, frontal = where(*(~pl.col(name) for name in DEVICES)), where(pl.col("view") != "LATERAL")
    standing, adult = where(pl.col("view") == "PA"), where(pl.col("age").is_between(30, 70))
    normal = (y["no_finding"] == 1) & adult
    found: dict[str, int] = {}

    def take(caption: str, fits: NDArray[np.bool_], ill: NDArray[np.float64]) -> None:
        """The fitting row that shows least besides; no row, no film."""
        allowed = np.flatnonzero(fits)
        if len(allowed):
            found[caption] = int(allowed[np.argmin(ill[allowed])])

    for caption, fits in (
        ("normal woman, PA", standing & where(pl.col("sex") == "F")),
        ("normal man, PA", standing & where(pl.col("sex") == "M")),
        ("normal, portable AP", where(pl.col("view") == "AP")),
        ("normal, lateral", where(pl.col("view") == "LATERAL")),
    ):
        take(caption, fits & bare & normal, most)
    for name in (each for each in _FINDINGS if each in signs):
        others = np.max([shown[other] for other in signs if other != name] or [0 * most], axis=0)
        alone = np.sum([y[other] for other in signs], axis=0) == y[name]
        strong = (shown[name] > 0.75) & (y[name] == 1)
        take(name.replace("_", " "), frontal & bare & alone & strong, others)
    for name in DEVICES:
        only = where(pl.col(name), *(~pl.col(other) for other in DEVICES if other != name))
        caption = (
            "ECG wires, hazy" if name == "ecg_wires" else name.replace("_", " ").replace("et tube", "tracheal tube")
        )
        take(caption, frontal & only, most)
    take("hazy, atelectasis", frontal & where(pl.col("hazy")) & (y.get("atelectasis", 0 * most) == 1), most)
    take("pneumothorax and drain", frontal & where(pl.col("drain")) & (shown.get("pneumothorax", most) > 0.7), 1 - most)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Write a sheet of example films to a file."""
    from PIL import Image

    parser = argparse.ArgumentParser(prog="python -m cxrhf.twin.films", description=__doc__)
    parser.add_argument("out", type=Path, help="the picture to write: .jpg or .png")
    parser.add_argument("--seed", type=int, default=0, help="seed of the twin")
    parser.add_argument("--patients", type=int, default=_PATIENTS)
    parser.add_argument("--size", type=int, default=160, help="pixels a film")
    parser.add_argument("--columns", type=int, default=6)
    chosen = parser.parse_args(arguments)
    made = people(chosen.patients, chosen.seed)
    rows = example_rows(made)
    sheet = contact_sheet(made, list(rows.values()), chosen.size, chosen.columns, list(rows), seed=chosen.seed)
    Image.fromarray(sheet).save(chosen.out, quality=80, optimize=True)  # a .png has no quality and ignores it


def _caption(people: People, row: int) -> str:
    positive = [name for at, name in enumerate(people.findings) if people.y[row, at] == 1]
    return ", ".join(name.replace("_", " ") for name in positive) or "nothing"


if __name__ == "__main__":
    main()
