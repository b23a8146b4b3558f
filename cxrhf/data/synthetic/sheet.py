"""People and rows -> a contact sheet of their films; run as a module it makes one of rows chosen from a twin."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cxrhf.data.synthetic.devices import DEVICES
from cxrhf.data.synthetic.films import films
from cxrhf.data.synthetic.people import People, people, severity
from cxrhf.errors import ConfigError

Pixels = NDArray[np.uint8]

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

    parser = argparse.ArgumentParser(prog="python -m cxrhf.data.synthetic.sheet", description=__doc__)
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
