"""Best and worst slices and a build's pictures -> GALLERY rows: thumbnails for the page, of data that may be shown."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.representations.ends import ends
from cxrhf.schema import GALLERY, table_of

SIDE = 96  # of a thumbnail
EACH = 12  # of a slice
MOST = 720  # of a page: half a megabyte for every 200
QUALITY = 72


def gallery(
    results: pa.Table, slices: pa.Table, build: Path, progress: Callable[[str], None], notes: list[str]
) -> pa.Table | None:
    """Thumbnails of the images that belong most to the worst and to the best slice of each class.

    Those of the patients to confirm on come first: the slice was not made for them.
    """
    rows = _wanted(results, slices)
    if not rows:
        return None
    if importlib.util.find_spec("PIL") is None:
        notes.append("no thumbnails: pillow is not installed (pip install 'cxrhf[data]')")
        return None
    from cxrhf.data.pixels import open_shards

    pixels = open_shards(build / "images")
    place = {image: at for at, image in enumerate(pixels.table["image_id"].to_pylist())}
    there = [row for row in rows if row["image_id"] in place]
    if not there:
        notes.append(f"no thumbnails: none of the images is in {build.name}")
        return None
    licences = _licences(build)
    shown = [row for row in there if licences is None or licences.get(row["image_id"], "").upper().startswith("CC")]
    if len(shown) < len(there):
        notes.append(f"{len(there) - len(shown)} thumbnails are excluded: no licence states that they may be shown")
    if len(shown) > MOST:
        notes.append(f"{len(shown) - MOST} thumbnails are excluded: the page shows at most {MOST}")
    made: dict[str, bytes] = {}
    out: list[dict[str, Any]] = []
    for k, row in enumerate(shown[:MOST]):
        if k % 100 == 0:
            progress(f"thumbnails: {k} of {min(len(shown), MOST)}")
        image = row["image_id"]
        if image not in made:
            made[image] = thumbnail(pixels[place[image]])
        out.append(row | {"thumbnail": made[image]})
    return table_of(out, GALLERY, source="gallery") if out else None


def _wanted(results: pa.Table, slices: pa.Table) -> list[dict[str, Any]]:
    """image_id, model, finding, slice, role of every thumbnail, slice by slice."""
    members: dict[tuple[str, str, str], list[tuple[bool, float, str]]] = {}
    for row in slices.to_pylist():
        key = (row["model"], row["finding"], row["slice"])
        members.setdefault(key, []).append((row["half"] != "confirm", -(row["weight"] or 0.0), row["image_id"]))
    return [
        {"image_id": image, **end._asdict()}
        for end in ends(results, slices)
        for _, _, image in sorted(members.get((end.model, end.finding, end.slice), []))[:EACH]
    ]


def thumbnail(picture: np.ndarray) -> bytes:
    """Grey levels -> a small JPEG on black, its longer side SIDE."""
    from PIL import Image

    image = Image.fromarray(np.asarray(picture, dtype=np.uint8))
    image.thumbnail((SIDE, SIDE))
    square = Image.new("L", (SIDE, SIDE))
    square.paste(image, ((SIDE - image.width) // 2, (SIDE - image.height) // 2))
    out = io.BytesIO()
    square.save(out, "JPEG", quality=QUALITY, optimize=True)
    return out.getvalue()


def _licences(build: Path) -> dict[str, str] | None:
    """The licence of each image where a source has one a row; None where it has not."""
    from cxrhf.schema import ATTRIBUTE, read_table

    path = build / "attributes.parquet"
    if not path.is_file():
        return None
    table = read_table(path, ATTRIBUTE)
    rows = table.filter(pc.equal(table["name"], "licence"))
    if not rows.num_rows:
        return None
    return {
        image: value or "" for image, value in zip(rows["image_id"].to_pylist(), rows["value"].to_pylist(), strict=True)
    }
