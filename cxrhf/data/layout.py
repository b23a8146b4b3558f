"""A dataset's published files: what each is called, where it normally lies, which project it comes from -> its path.

Users keep downloads in many shapes: the whole PhysioNet tree, one project, or a folder with the files alone. So a file
is looked for by name in every given folder and a few levels below it, the shallowest first.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from cxrhf.errors import SourceError, did_you_mean

# Root -> what lies below it, within `one_walk`.
_walked: ContextVar[dict[Path, list[tuple[str, Path, bool]]] | None] = ContextVar("walked", default=None)
_DEPTH = 7  # folders below a root; pictures lie deeper and are found by their names in the tables
# Folders with nothing but pictures: hundreds of thousands of entries that hold no table.
_PICTURES = re.compile(r"^(p\d\d|p\d{8}|s\d{8}|patient\d+|study\d+|deid_png|images(_\d+)?|images-\d+|PNG)$")


@dataclass(frozen=True, slots=True)
class Needed:
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
    Needed("labels", ("mimic-cxr-2.?.0-chexpert.csv*",), "mimic-cxr-jpg/2.0.0/mimic-cxr-2.0.0-chexpert.csv.gz", _JPG,
           ("subject_id", "study_id", "Pleural Effusion", "No Finding")),
    Needed("metadata", ("mimic-cxr-2.?.0-metadata.csv*",), "mimic-cxr-jpg/2.0.0/mimic-cxr-2.0.0-metadata.csv.gz", _JPG,
           ("dicom_id", "subject_id", "study_id", "ViewPosition", "StudyDate", "StudyTime")),
    Needed("split", ("mimic-cxr-2.?.0-split.csv*",), "mimic-cxr-jpg/2.0.0/mimic-cxr-2.0.0-split.csv.gz", _JPG,
           ("dicom_id", "split"), optional=True, use="the official split"),
    Needed("files", ("files",), "mimic-cxr-jpg/2.0.0/files/p10/...", _JPG, optional=True, folder=True,
           use="the images (without them, pass --no-pixels)"),
    Needed("admissions", ("hosp/admissions.csv*", "core/admissions.csv*", "admissions.csv*"),
           "mimiciv/3.0/hosp/admissions.csv.gz", _IV, ("subject_id", "hadm_id", "admittime", "dischtime")),
    Needed("patients", ("hosp/patients.csv*", "core/patients.csv*", "patients.csv*"),
           "mimiciv/3.0/hosp/patients.csv.gz", _IV, ("subject_id", "gender", "anchor_age", "anchor_year")),
    Needed("discharge", ("note/discharge.csv*", "discharge.csv*"), "mimic-iv-note/2.2/note/discharge.csv.gz",
           "PhysioNet: mimic-iv-note", ("note_id", "subject_id", "hadm_id", "charttime", "text")),
)  # fmt: skip
_CHEXPERT_LABELS = ("Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", "No Finding", "Pleural Effusion")

LAYOUTS: Mapping[str, tuple[Needed, ...]] = {
    "mimic_cxr_context": _MIMIC,
    "synthetic": _MIMIC,
    "chexpert": (
        Needed("train", ("train.csv*", "chexpert_train.csv*"), "CheXpert-v1.0/train.csv", "Stanford AIMI: CheXpert",
               _CHEXPERT_LABELS),
        Needed("valid", ("valid.csv*",), "CheXpert-v1.0/valid.csv", "Stanford AIMI: CheXpert", _CHEXPERT_LABELS,
               optional=True, use="the radiologists' validation set"),
        Needed("demo", ("CHEXPERT DEMO.xlsx", "CHEXPERT_DEMO.xlsx"), "CHEXPERT DEMO.xlsx",
               "Stanford AIMI: CheXpert demographic data", optional=True, use="race and ethnicity"),
        Needed("attributes", ("*drain*.csv*", "*annotations*.csv*"), "a CSV of drain annotations with image names",
               "the chest drain annotations of SLICES, for example", optional=True, use="ATTRIBUTE rows"),
    ),
    "nih_chestxray14": (
        Needed("entries", ("Data_Entry_2017_v2020.csv*", "Data_Entry_2017.csv*"), "Data_Entry_2017_v2020.csv",
               "NIH Clinical Center: ChestX-ray14",
               ("Image Index", "Finding Labels", "Patient ID", "Patient Age", "Patient Gender", "View Position")),
        Needed("train_list", ("train_val_list.txt",), "train_val_list.txt", "NIH Clinical Center: ChestX-ray14",
               optional=True, use="the official split"),
        Needed("test_list", ("test_list.txt",), "test_list.txt", "NIH Clinical Center: ChestX-ray14", optional=True,
               use="the official split"),
        Needed("attributes", ("*drain*.csv*", "*annotations*.csv*"), "a CSV of drain annotations with image names",
               "the chest drain annotations of SLICES, for example", optional=True, use="ATTRIBUTE rows"),
    ),
    "covid_chestxray": (
        Needed("metadata", ("metadata.csv",), "covid-chestxray-dataset/metadata.csv",
               "GitHub: ieee8023/covid-chestxray-dataset",
               ("patientid", "offset", "finding", "view", "filename", "clinical_notes")),
        Needed("images", ("images",), "covid-chestxray-dataset/images/", "GitHub: ieee8023/covid-chestxray-dataset",
               optional=True, folder=True, use="the images (without them, pass --no-pixels)"),
    ),
    "rexgradient": tuple(
        Needed(split, (f"{split}_metadata_view_position.json",), f"metadata/{split}_metadata_view_position.json",
               "Hugging Face: rajpurkarlab/ReXGradient-160K", optional=True, use=f"the {split} split")
        for split in ("train", "valid", "test")
    ),
    "chexpert_plus": (
        Needed("table", ("df_chexpert_plus_*.csv*",), "df_chexpert_plus_240401.csv", "Stanford AIMI: CheXpert Plus",
               ("path_to_image", "frontal_lateral", "ap_pa", "deid_patient_id", "sex", "age", "race",
                "section_findings", "section_impression")),
        Needed("labels", ("impression_fixed.json", "findings_fixed.json", "report_fixed.json"),
               "chexbert_labels/impression_fixed.json", "Stanford AIMI: CheXpert Plus", optional=True, use="labels"),
    ),
}  # fmt: skip


def needed(dataset: str, key: str) -> Needed:
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
