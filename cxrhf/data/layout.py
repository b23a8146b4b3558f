"""A dataset's published files: what each is called, where it normally lies, which project it comes from -> its path.

Users keep downloads in many shapes: the whole PhysioNet tree, one project, or a folder with the files alone. So a file
is looked for by name in every given folder and a few levels below it, the shallowest first.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from cxrhf.errors import SourceError, did_you_mean

# Root -> what lies below it, within `one_walk`.
_walked: ContextVar[dict[Path, list[tuple[str, Path, bool]]] | None] = ContextVar("walked", default=None)
_DEPTH = 7  # folders below a root; pictures lie deeper and are found by their names in the tables
# Folders with nothing but pictures: hundreds of thousands of entries that hold no table.
_PICTURES = re.compile(r"^(p\d\d|p\d{8}|s\d{8}|patient\d+|study\d+|deid_png|images(_\d+)?|images-\d+|PNG)$")


@dataclass(frozen=True, slots=True)
class RequiredFile:
    """A file or folder of a dataset. `names` are patterns for the end of its path, any of which will do."""

    key: str
    names: tuple[str, ...]
    lies: str  # where it normally lies, as users know it
    project: str  # where it comes from
    columns: tuple[str, ...] = ()  # what its header must hold
    optional: bool = False
    folder: bool = False
    use: str = ""  # what an optional one adds


_JPG = "PhysioNet: mimic-cxr-jpg"
_IV = "PhysioNet: mimiciv"
_MIMIC = (
    RequiredFile("labels", ("mimic-cxr-2.?.0-chexpert.csv*",), "mimic-cxr-jpg/2.0.0/mimic-cxr-2.0.0-chexpert.csv.gz", _JPG,
           ("subject_id", "study_id", "Pleural Effusion", "No Finding")),
    RequiredFile("metadata", ("mimic-cxr-2.?.0-metadata.csv*",), "mimic-cxr-jpg/2.0.0/mimic-cxr-2.0.0-metadata.csv.gz", _JPG,
           ("dicom_id", "subject_id", "study_id", "ViewPosition", "StudyDate", "StudyTime")),
    RequiredFile("split", ("mimic-cxr-2.?.0-split.csv*",), "mimic-cxr-jpg/2.0.0/mimic-cxr-2.0.0-split.csv.gz", _JPG,
           ("dicom_id", "split"), optional=True, use="the official split"),
    RequiredFile("files", ("files",), "mimic-cxr-jpg/2.0.0/files/p10/...", _JPG, optional=True, folder=True,
           use="the images (without them, pass --no-pixels)"),
    RequiredFile("admissions", ("hosp/admissions.csv*", "core/admissions.csv*", "admissions.csv*"),
           "mimiciv/3.0/hosp/admissions.csv.gz", _IV, ("subject_id", "hadm_id", "admittime", "dischtime")),
    RequiredFile("patients", ("hosp/patients.csv*", "core/patients.csv*", "patients.csv*"),
           "mimiciv/3.0/hosp/patients.csv.gz", _IV, ("subject_id", "gender", "anchor_age", "anchor_year")),
    RequiredFile("discharge", ("note/discharge.csv*", "discharge.csv*"), "mimic-iv-note/2.2/note/discharge.csv.gz",
           "PhysioNet: mimic-iv-note", ("note_id", "subject_id", "hadm_id", "charttime", "text")),
)  # fmt: skip
_CHEXPERT_LABELS = ("Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", "No Finding", "Pleural Effusion")

LAYOUTS: Mapping[str, tuple[RequiredFile, ...]] = {
    "mimic_cxr_context": _MIMIC,
    "synthetic": _MIMIC,
    "chexpert": (
        RequiredFile("train", ("train.csv*", "chexpert_train.csv*"), "CheXpert-v1.0/train.csv", "Stanford AIMI: CheXpert",
               _CHEXPERT_LABELS),
        RequiredFile("valid", ("valid.csv*",), "CheXpert-v1.0/valid.csv", "Stanford AIMI: CheXpert", _CHEXPERT_LABELS,
               optional=True, use="the radiologists' validation set"),
        RequiredFile("demo", ("CHEXPERT DEMO.xlsx", "CHEXPERT_DEMO.xlsx"), "CHEXPERT DEMO.xlsx",
               "Stanford AIMI: CheXpert demographic data", optional=True, use="race and ethnicity"),
        RequiredFile("attributes", ("*drain*.csv*", "*annotations*.csv*"), "a CSV of drain annotations with image names",
               "the chest drain annotations of SLICES, for example", optional=True, use="ATTRIBUTE rows"),
    ),
    "nih_chestxray14": (
        RequiredFile("entries", ("Data_Entry_2017_v2020.csv*", "Data_Entry_2017.csv*"), "Data_Entry_2017_v2020.csv",
               "NIH Clinical Center: ChestX-ray14",
               ("Image Index", "Finding Labels", "Patient ID", "Patient Age", "Patient Gender", "View Position")),
        RequiredFile("train_list", ("train_val_list.txt",), "train_val_list.txt", "NIH Clinical Center: ChestX-ray14",
               optional=True, use="the official split"),
        RequiredFile("test_list", ("test_list.txt",), "test_list.txt", "NIH Clinical Center: ChestX-ray14", optional=True,
               use="the official split"),
        RequiredFile("attributes", ("*drain*.csv*", "*annotations*.csv*"), "a CSV of drain annotations with image names",
               "the chest drain annotations of SLICES, for example", optional=True, use="ATTRIBUTE rows"),
    ),
    "covid_chestxray": (
        RequiredFile("metadata", ("metadata.csv",), "covid-chestxray-dataset/metadata.csv",
               "GitHub: ieee8023/covid-chestxray-dataset",
               ("patientid", "offset", "finding", "view", "filename", "clinical_notes")),
        RequiredFile("images", ("images",), "covid-chestxray-dataset/images/", "GitHub: ieee8023/covid-chestxray-dataset",
               optional=True, folder=True, use="the images (without them, pass --no-pixels)"),
    ),
    "rexgradient": tuple(
        RequiredFile(split, (f"{split}_metadata_view_position.json",), f"metadata/{split}_metadata_view_position.json",
               "Hugging Face: rajpurkarlab/ReXGradient-160K", optional=True, use=f"the {split} split")
        for split in ("train", "valid", "test")
    ),
    "chexpert_plus": (
        RequiredFile("table", ("df_chexpert_plus_*.csv*",), "df_chexpert_plus_240401.csv", "Stanford AIMI: CheXpert Plus",
               ("path_to_image", "frontal_lateral", "ap_pa", "deid_patient_id", "sex", "age", "race",
                "section_findings", "section_impression")),
        RequiredFile("labels", ("impression_fixed.json", "findings_fixed.json", "report_fixed.json"),
               "chexbert_labels/impression_fixed.json", "Stanford AIMI: CheXpert Plus", optional=True, use="labels"),
    ),
}  # fmt: skip


def needed(dataset: str, key: str) -> RequiredFile:
    """One file of a dataset by its key."""
    return next(each for each in LAYOUTS[dataset] if each.key == key)


def find(roots: Sequence[str | Path], dataset: str, key: str) -> Path | None:
    """The path of a dataset's file, or None where no root holds it."""
    return next(iter(candidates(roots, dataset, key)), None)


def candidates(roots: Sequence[str | Path], dataset: str, key: str) -> list[Path]:
    """Every path that may be a dataset's file, the likeliest first: no demo, shallow, the newest version."""
    wanted = needed(dataset, key)
    entries = [entry for root in roots for entry in _entries(Path(root))]
    for name in wanted.names:
        pattern = re.compile(
            "(^|.*/)" + "[^/]*".join(re.escape(part).replace(r"\?", "[^/]") for part in name.split("*"))
        )
        hits = [each for each in entries if each[2] == wanted.folder and pattern.fullmatch(each[0])]
        good = [each for each in hits if wanted.folder or each[1].suffix in (".gz", ".csv", ".json", ".txt", ".xlsx")]
        if good:
            return list(dict.fromkeys(path for _, path, _ in sorted(good, key=_likely)))
    return []


def _likely(entry: tuple[str, Path, bool]) -> tuple[bool, int, list[float], str]:
    shown = entry[0]
    versions = [-float(each) for each in re.findall(r"(?<![\d.])\d+\.\d+(?=[./])", shown)]
    return "demo" in shown.lower().rsplit("/", 1)[0], shown.count("/"), versions, shown


def several(roots: Sequence[str | Path], dataset: str) -> list[str]:
    """Sentences about files of which more than one copy lies below the roots: which was taken, and which were not."""
    said = []
    for each in LAYOUTS[dataset]:
        found = [] if each.folder else candidates(roots, dataset, each.key)
        if len(found) > 1:
            others = ", ".join(str(path) for path in found[1:4]) + (" and more" if len(found) > 4 else "")
            said.append(f"several files match {each.key}: cxrhf reads {found[0]}, not {others}")
    return said


def require(roots: Sequence[str | Path], dataset: str, key: str) -> Path:
    """The path of a file that the build cannot do without, or an error that says where it comes from."""
    found = find(roots, dataset, key)
    if found is not None:
        return found
    wanted = needed(dataset, key)
    where = " ".join(shlex.quote(str(root)) for root in roots) or "FOLDER"
    raise SourceError(
        missing(roots, dataset, key),
        next_step=f"get it from {wanted.project}, and check the other files: cxrhf doctor {dataset} --root {where}",
    )


def missing(roots: Sequence[str | Path], dataset: str, key: str) -> str:
    """What is missing and where it normally lies, with the nearest name that is there."""
    wanted = needed(dataset, key)
    there = {path.name for root in roots for _, path, _ in _entries(Path(root))}
    hint = did_you_mean(Path(wanted.lies).name, there, alike=0.8)  # files share endings, so less would be any file
    looked = ", ".join(str(root) for root in roots) or "any folder, because --root is not given"
    named = f" ({hint})" if hint else ""
    return f"{dataset}: {Path(wanted.lies).name} was not found in {looked}{named}; it is usually at {wanted.lies}"


def check_roots(roots: Iterable[str | Path]) -> None:
    """Every root must be a folder that can be listed."""
    for root in roots:
        folder = Path(root)
        if not folder.is_dir():
            beside = [each.name for each in folder.parent.iterdir()] if folder.parent.is_dir() else []
            raise SourceError(
                f"--root: {folder} is not a folder", next_step=did_you_mean(folder.name, beside) or "check the path"
            )


@contextmanager
def one_walk() -> Iterator[None]:
    """Within the block the folders below a root are listed once, however many files are looked for.

    On a network disk a walk takes seconds to minutes, and a build looks for a dozen files. Files that appear within the
    block are not found.
    """
    if _walked.get() is not None:
        yield
        return
    token = _walked.set({})
    try:
        yield
    finally:
        _walked.reset(token)


def _entries(root: Path) -> list[tuple[str, Path, bool]]:
    """(path below the root, path, is a folder) of what may be a table or hold one, the shallowest first."""
    known, root = _walked.get(), root.resolve()
    if known is not None and root in known:
        return known[root]
    found = sorted(_walk(root, root.name, _DEPTH), key=lambda each: (each[0].count("/"), each[0]))
    if known is not None:
        known[root] = found
    return found


def _walk(folder: Path, shown: str, depth: int) -> Iterator[tuple[str, Path, bool]]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        name, is_folder = f"{shown}/{entry.name}", entry.is_dir()
        if entry.name.startswith("."):
            continue
        yield name, entry, is_folder
        if is_folder and depth > 0 and not _PICTURES.match(entry.name):
            yield from _walk(entry, name, depth - 1)


# Names of pictures in a table -> where the pictures lie, without a look at every file.
#
# Downloads are unpacked in many places. So a few names spread over the table are looked for in every likely folder,
# and the folder that holds one of them is taken for all; or a folder with all pictures in it is listed once.

PICTURES = (".png", ".jpg", ".jpeg", ".dcm")
_IMAGE_LOOKS, _MANY = 24, 500
_FOUND = {"stem": pl.String, "found": pl.String}


def folders(roots: Iterable[str | Path], *files: Path | None) -> list[Path]:
    """The roots and the folders of these files, absolute, each once."""
    places = [*(Path(root) for root in roots), *(file.parent for file in files if file is not None)]
    return list(dict.fromkeys(place.resolve() for place in places))


def find_holding_folder(
    candidates: Sequence[Path], names: pl.Series, endings: Sequence[str] = ("",)
) -> tuple[Path, str] | None:
    """The first folder below which one of the names exists, and the ending that had to be put behind it.

    A few names are tried. Where none is there, as in a copy of a few patients, the folders two levels down are listed
    once and the names that lie in them are tried.
    """
    some = names.drop_nulls()
    few = [*some.head(4), *some.gather_every(max(1, some.len() // _IMAGE_LOOKS))]
    there = [folder for folder in candidates if folder.is_dir()]
    for folder in there:
        if (ending := _ending(folder, few, endings)) is not None:
            return folder, ending
    parts = some.str.extract_groups(r"^(?<outer>[^/]+)/(?<inner>[^/]+)/").struct
    outer, inner = parts.field("outer"), parts.field("inner")
    for folder in there:
        for top in outer.drop_nulls().unique().sort():
            inside = _image_entries(folder / top)
            listed_here = some.filter((outer == top) & inner.is_in(inside)) if inside else some.clear()
            if (ending := _ending(folder, listed_here.head(_MANY).to_list(), endings)) is not None:
                return folder, ending
    return None


def _ending(folder: Path, names: Sequence[str], endings: Sequence[str]) -> str | None:
    tries = (ending for name in names for ending in endings if (folder / f"{name}{ending}").is_file())
    return next(tries, None)


def _image_entries(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []


def below(folder: Path, name: pl.Expr) -> pl.Expr:
    """Names joined to a folder."""
    return pl.concat_str([pl.lit(f"{folder}{os.sep}"), name])


def list_pictures(places: Iterable[Path]) -> pl.DataFrame:
    """Every picture right in these folders: its name without ending, and its path. The first place wins."""
    rows: list[tuple[str, str]] = []
    for place in dict.fromkeys(places):
        try:
            with os.scandir(place) as entries:
                names = sorted((entry.name, entry.path) for entry in entries)
        except (FileNotFoundError, NotADirectoryError):
            continue
        rows += [(Path(name).stem, path) for name, path in names if name.lower().endswith(PICTURES)]
    frame = pl.DataFrame(rows, schema=_FOUND, orient="row")
    return frame.unique("stem", keep="first", maintain_order=True)
