"""The made-up raw files that `build synthetic` builds from: written once, and of the films those that the build keeps.

Half of the images have no prior note and leave a build before their picture is opened; drawing them is what takes time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from cxrhf.data.folder import FIRST, WORK, read_json, remove, version_of, write_text
from cxrhf.data.settings import BuildConfig
from cxrhf.errors import RunError

_README = """# Synthetic files in the layout of MIMIC

cxrhf generated these files for the dataset in the parent folder. They contain no real patients, and only the images
that this dataset keeps. To write all of them elsewhere:

    python -m cxrhf.twin mimic FOLDER --patients {n_patients} --seed {seed} --size {size}
"""


def with_twin(config: BuildConfig, folder: Path) -> BuildConfig:
    """Make up the raw files below the build's own folder, once, and build from them; `draw_films` adds the pictures.

    The caller holds the folder: two at once would write into the same draft.
    """
    from cxrhf.twin import write

    source, said = folder / "source", _settings(config)
    made = read_json(source / "made.json")
    if made is not None:
        made = {"version": FIRST} | made
    if source.exists() and made != said and not config.overwrite:
        raise RunError(
            f"{source} exists and is not the twin of these settings",
            next_step="choose another --out, or pass --overwrite to replace the twin",
        )
    if made != said:
        if source.exists() and made is None:
            raise RunError(f"{source} was not made by cxrhf", next_step="move it away, or choose another --out")
        draft, old = folder / WORK / "source", folder / WORK / "old"
        for each in (draft, old):
            remove(each)
        # Where pictures are to be damaged, all have to be there: defects.json counts them.
        asked = {name: value for name, value in said.items() if name != "version"}
        write("mimic", draft, **(asked | {"pixels": said["pixels"] and config.dirty}))
        if said["pixels"] and not config.dirty:
            write_text(draft / "README.md", _README.format(**said))
        write_text(draft / "made.json", json.dumps(said))
        # Moved and then removed: a kill while it is removed would leave a folder of which nobody knows whose it is.
        if source.exists() or source.is_symlink():
            source.rename(old)
        draft.replace(source)
        remove(old)
    return config.with_root(source)


def draw_films(config: BuildConfig, images: pl.DataFrame) -> None:
    """Draw the pictures of these images (image_id, path) that are not there yet; after a kill it goes on."""
    if config.no_pixels or config.dirty or not images.height:
        return
    from tqdm import tqdm

    from cxrhf.twin.films import save_films
    from cxrhf.twin.mimic import mimic_names
    from cxrhf.twin.people import people

    missing = [(image_id, Path(path)) for image_id, path in images.select("image_id", "path").iter_rows()
               if not Path(path).is_file()]  # fmt: skip
    if not missing:
        return
    said = _settings(config)
    made = people(said["n_patients"], said["seed"])
    row = dict(mimic_names(made, said["seed"]).select("image_id", "image").iter_rows())
    with tqdm(total=len(missing), unit=" images", disable=None) as bar:
        save_films(made, {row[image_id]: path for image_id, path in missing}, said["size"], seed=said["seed"],
                   heard=bar.update)  # fmt: skip


def _settings(config: BuildConfig) -> dict[str, Any]:
    """What a twin is made from, and known again by."""
    return {
        "n_patients": config.n_patients,
        "seed": config.seed,
        "dirty": config.dirty,
        "pixels": not config.no_pixels,
        "size": min(max(config.size or 0, 64), 256),
        "version": version_of("synthetic"),
    }
