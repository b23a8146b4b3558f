"""Reading for training: the resized copies in shards against decoding full-size originals, and what making them costs.

Both sides end with 224 x 224 pixels by the same filter (bilinear, antialiased, the data loaders' usual choice), one
thread, files in the page cache, rounds in turn and the best of each, so that a busy machine wrongs neither. The peer
does what training scripts do: open, convert to RGB, resize. Ours reads 512-pixel copies at random out of Parquet,
decodes them grey and resizes; every round opens the shards anew and learns again where the pictures lie. A peer that
asks libjpeg for a small grey picture is shown too: much faster than the usual one, and no target is claimed for it.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.rows import Row, row
from cxrhf.data.images import stored
from cxrhf.data.shards import Pixels, ShardPlan, open_shards, write_shards

WIDTH, HEIGHT, ORIGINALS, COPIES = 2544, 3056, 12, 20  # MIMIC-CXR's usual film; each copied as many rows as a shard has
SIZE, SIDE, ROUNDS = 512, 224, 5
TARGET = 30.0


def original(seed: int) -> np.ndarray:
    """Two dark lungs in soft tissue, structure at several scales, and noise as a detector has: 1 to 2 MB as JPEG."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    y, x = np.mgrid[-1 : 1 : HEIGHT * 1j, -1 : 1 : WIDTH * 1j]
    film = 170 - 120 * np.exp(-1.5 * (((np.abs(x) - 0.45) / 0.3) ** 2 + (y / 0.6) ** 2))
    for grain, strength in ((40, 40), (160, 20), (500, 10)):
        coarse = Image.fromarray((255 * rng.random((grain * 6 // 5, grain))).astype(np.uint8))
        film += strength * (np.asarray(coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)) / 255 - 0.5)
    return np.clip(film + rng.normal(0, 3, film.shape), 0, 255).astype(np.uint8)


def usual(path: Path) -> np.ndarray:
    from PIL import Image

    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def reduced(path: Path) -> np.ndarray:
    from PIL import Image

    with Image.open(path) as picture:
        picture.draft("L", (SIDE, SIDE))
        return np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def decoded_only(path: Path) -> np.ndarray:
    from PIL import Image

    with Image.open(path) as picture:
        return np.asarray(picture)


def best(measured: dict[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, float]:
    """Seconds of the best round of each, taken in turn."""
    found = dict.fromkeys(measured, float("inf"))
    for _ in range(rounds):
        for name, function in measured.items():
            start = time.perf_counter()
            function()
            found[name] = min(found[name], time.perf_counter() - start)
    return found


def run() -> list[Row]:
    from PIL import Image

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        paths = [folder / f"{number}.jpg" for number in range(ORIGINALS)]
        for number, path in enumerate(paths):
            Image.fromarray(original(number)).save(path, quality=90)
        # A set large enough to be read at random: the stored copies again and again, kept as they are.
        small = [folder / f"small{number}.jpg" for number in range(ORIGINALS)]
        for path, copy in zip(paths, small, strict=True):
            copy.write_bytes(stored(path, SIZE))
        write_pictures(small * COPIES, folder / "shards", 2)
        megabytes = sum(path.stat().st_size for path in paths) / ORIGINALS / 1e6
        kilobytes = sum(path.stat().st_size for path in small) / ORIGINALS / 1e3
        order = [int(at) for at in np.random.default_rng(0).permutation(ORIGINALS * COPIES)]

        def opened() -> Pixels:
            return open_shards(folder / "shards")

        found = best(
            {
                "ours": lambda: opened().batch(order, side=SIDE),
                "ours, decoded": lambda: opened().batch(order),
                "ours, bytes": lambda: [*map(opened().encoded, order)],
                "peer": lambda: [*map(usual, paths)],
                "peer, reduced": lambda: [*map(reduced, paths)],
                "peer, decoded": lambda: [*map(decoded_only, paths)],
                "build, 1": lambda: write_pictures(paths, folder / "one", 1),
                "build, 2": lambda: write_pictures(paths, folder / "two", 2),
            }
        )
    each = {name: value / (len(order) if name.startswith("ours") else ORIGINALS) for name, value in found.items()}
    return [
        row("images for training, decoded and resized to 224", each["ours"], each["peer"],
            f"{WIDTH} x {HEIGHT} originals of {megabytes:.1f} MB against {SIZE} px copies of {kilobytes:.0f} KB at "
            f"random, 1 thread: {1 / each['peer']:.0f} against {1 / each['ours']:.0f} images/s; finding and reading "
            f"the bytes is {1e6 * each['ours, bytes']:.0f} us of ours", target=TARGET),
        row("the same, peer reduces while decoding", each["ours"], each["peer, reduced"],
            "peer: draft('L') at 1/8, grey, resized; coarser, and rare in training scripts"),
        row("images decoded only", each["ours, decoded"], each["peer, decoded"],
            "grey, no conversion, no resize"),
        row("making the copies, once", each["build, 2"], each["peer"],
            f"{1 / each['build, 1']:.0f} originals/s by 1 thread, {1 / each['build, 2']:.0f} by 2; "
            "peer: decoding the original, once"),
    ]  # fmt: skip


def write_pictures(paths: list[Path], folder: Path, threads: int) -> None:
    """Write the shards of these pictures, all of them anew."""
    shutil.rmtree(folder, ignore_errors=True)
    ids = [str(number) for number in range(len(paths))]
    rows = pa.table({"image_id": ids, "patient_id": ids, "path": [str(path) for path in paths]})
    write_shards(
        ShardPlan("train", rows), folder, build=folder / ".build", fingerprint="benchmark", size=SIZE, threads=threads,
        progress=False,
    )  # fmt: skip
