"""Layout and size -> the files of a published dataset with invented patients, and what is planted in them.

`write("mimic", folder, n_patients=300, seed=0)` writes MIMIC as PhysioNet hands it out; the other layouts are named in
LAYOUTS. Beside the files lie planted.parquet (what is true of every image), attributes.parquet (where drains, wires and
haze are) and truth.json (the population values that audits must find), so every number that the package reports can be
held against a known answer.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.tables.folders import one_writer

if TYPE_CHECKING:
    import polars as pl

    from cxrhf.twin.laws import Law
    from cxrhf.twin.people import People, Sizes


# Layout -> the module beside this one that writes it, with a function write_<layout>.
LAYOUTS = {
    "mimic": "mimic",
    "chexpert": "chexpert",
    "nih": "nih",
    "rexgradient": "rexgradient",
    "chexpert_plus": "chexpert",
    "covid": "covid",
}
_DATASETS = {"mimic_cxr_context": "mimic", "nih_chestxray14": "nih", "covid_chestxray": "covid", "synthetic": "mimic"}


def write(
    layout: str,
    folder: str | Path,
    *,
    n_patients: int = 300,
    seed: int = 0,
    sizes: Sizes | None = None,
    findings: tuple[Law, ...] | None = None,
    dirty: bool = False,
    pixels: bool = True,
    size: int = 256,
    overwrite: bool = False,
    models: bool = False,
    **options: Any,
) -> People:
    """Make people and write them in a layout below an empty folder; returns them.

    `n_patients` have images; `sizes` sets every total instead (people.MIMIC_SIZE, or MIMIC_SIZE.scaled(.01)).
    `findings` are laws (laws.changed). `dirty` plants the defects of real copies and lists them in defects.json.
    `models` adds the tables of simulated models below models/ (models.write_models). `options` go to the layout's own
    writer, such as note_length="full".
    """
    from cxrhf.twin.laws import DEFAULT
    from cxrhf.twin.people import people
    from cxrhf.twin.scores import check_laws

    name = _layout_name(layout)
    laws = DEFAULT if findings is None else findings
    check_laws(laws)
    root = Path(folder)
    if root.exists() and not root.is_dir():
        raise ConfigError(str(root), got="a file", allowed="a new or empty folder", next_step="name another folder")
    with one_writer(root, "synthetic", what="folder of made-up files"):
        there = {each.name for each in root.iterdir()} - {f".{root.resolve().name}.lock"} if root.is_dir() else ()
        if there and not overwrite:
            raise ConfigError(f"{root} is not empty", next_step="name another folder, or pass overwrite=True")
        made = people(n_patients, seed, sizes=sizes, findings=laws)
        root.mkdir(parents=True, exist_ok=True)
        writer = getattr(import_module(f"{__name__}.{LAYOUTS[name]}"), f"write_{name}")
        writer(made, root, seed=seed, dirty=dirty, pixels=pixels, size=size, **options)
        if models:
            from cxrhf.twin.models import write_models

            write_models(made, root / "models", seed, ids=layout_ids(name, made, seed))
        return made


def layout_ids(layout: str, people: People, seed: int = 0) -> pl.DataFrame:
    """image, image_id, study_id and patient_id of the images of a layout, as its writer with this seed names them."""
    name = _layout_name(layout)
    name = "chexpert" if name == "chexpert_plus" else name
    names = getattr(import_module(f"{__name__}.{LAYOUTS[name]}"), f"{name}_names")
    drawn = name in ("mimic", "rexgradient", "covid")  # the others count
    found: pl.DataFrame = names(people, seed) if drawn else names(people)
    return found.select("image", "image_id", "study_id", "patient_id")


def _layout_name(layout: str) -> str:
    name = _DATASETS.get(layout.replace("-", "_"), layout.replace("-", "_"))
    if name not in LAYOUTS:
        raise ConfigError(
            "unknown layout",
            got=f'"{layout}"',
            allowed=f"one of {', '.join(LAYOUTS)}",
            next_step=did_you_mean(layout, LAYOUTS),
        )
    return name
