"""Settings of `cxrhf build` and `cxrhf doctor`, with what each dataset takes where nothing is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from cxrhf.errors import ConfigError
from cxrhf.findings import finding_name
from cxrhf.settings import check_one_of, check_range, either, set_field, split_list

CONFIGURATIONS = ("linked", "images", "notes")
LABEL_POLICIES = ("positive_only", "masked", "ones", "zeros")
ONE_IMAGE = ("all", "first", "positive_first", "stitched")
VIEWS = ("all", "frontal")
SPLITS = ("ratio", "official", "file", "none")
AVAILABLE = ("charted", "stored")
OWN_REPORT = ("fail", "drop")
SAMPLES = ("all", "encoding")

# What a dataset takes where the user says nothing; USUAL where this does not name it either.
DATASETS: Mapping[str, Mapping[str, Any]] = {
    "mimic_cxr_context": {"configuration": "linked", "split": "ratio"},
    "chexpert": {"configuration": "images", "split": "ratio", "ratios": "60/10/30"},
    "nih_chestxray14": {"configuration": "images", "split": "official"},
    "covid_chestxray": {"configuration": "linked", "split": "ratio", "ratios": "60/10/30", "own_report": "drop"},
    "synthetic": {"configuration": "linked", "split": "ratio", "ratios": "60/10/30", "size": 64},
    "rexgradient": {"configuration": "images", "split": "official", "views": "frontal"},
    "chexpert_plus": {"configuration": "images", "split": "ratio", "ratios": "60/10/30"},
}
USUAL: Mapping[str, Any] = {"views": "all", "ratios": "80/10/10", "own_report": "fail", "size": 512}
WITH_RACE = ("mimic_cxr_context", "synthetic", "chexpert", "chexpert_plus")
WITH_NOTES = ("mimic_cxr_context", "covid_chestxray", "synthetic")

RETIRED = ("resamples",)  # settings that builds recorded once, and that changed nothing in their images


def _one_of(allowed: tuple[str, ...], text: str) -> dict[str, Any]:
    return {"metavar": "|".join(allowed), "help": text}


@dataclass(frozen=True, slots=True)
class BuildConfig:
    """Raw files of a published dataset -> Parquet shards, notes linked without leakage, attrition, dataset card."""

    dataset: str = field(metadata={"positional": True, "metavar": "DATASET", "help": f"One of {', '.join(DATASETS)}."})
    root: tuple[str, ...] = field(
        default=(),
        metadata={
            "metavar": "FOLDER",
            "help": "Folder or folders with the raw files as downloaded; cxrhf only reads them.",
        },
    )
    out: str | None = field(
        default=None,
        metadata={"metavar": "DIR", "aliases": ("-o",), "help": "Folder to write. Default: data/<dataset>."},
    )
    configuration: str | None = field(
        default=None,
        metadata=_one_of(CONFIGURATIONS, "Images with their prior notes, images only, or notes only."),
    )
    seed: int = field(default=0, metadata={"help": "Seed of the split and of all sampling."})
    overwrite: bool = field(default=False, metadata={"help": "Replace a build made with other settings or sources."})
    views: str | None = field(
        default=None, metadata={"group": "selection"} | _one_of(VIEWS, "Keep every view, or frontal (PA, AP) only.")
    )
    images_per_patient: str = field(
        default="all",
        metadata=_one_of(
            ONE_IMAGE,
            "All images, or one per patient: the first, a positive one if there is one, or the first with labels "
            "stitched from all.",
        ),
    )
    finding: str | None = field(default=None, metadata={"metavar": "FINDING", "help": "Finding for positive_first."})
    one_per_study: bool = field(default=False, metadata={"help": "Keep the first image of each study."})
    exclude_devices: bool = field(default=False, metadata={"help": "Exclude images with support devices."})
    sample: str = field(
        default="all",
        metadata=_one_of(
            SAMPLES, "encoding: White, Asian and Black patients with a single recorded race, not Hispanic."
        ),
    )
    female: float | None = field(
        default=None,
        metadata={"metavar": "SHARE", "help": "Share of images of women in each split, such as 0.5, 0.33 or 0.67."},
    )
    sample_size: int | None = field(
        default=None, metadata={"metavar": "N", "help": "Maximum number of images in each split."}
    )
    labels: str = field(
        default="positive_only",
        metadata={"group": "label and split"}
        | _one_of(
            LABEL_POLICIES, "How uncertain and blank labels count when the build is loaded; raw labels are kept."
        ),
    )
    split: str | None = field(
        default=None,
        metadata=_one_of(SPLITS, "By ratio of patients, the dataset's official split, from --split-file, or none."),
    )
    ratios: str | None = field(
        default=None,
        metadata={
            "metavar": "A/B/C",
            "help": "Patients in train/validate/test. Default: 80/10/10 or 60/10/30, by dataset.",
        },
    )
    split_file: str | None = field(
        default=None,
        metadata={
            "metavar": "CSV",
            "help": "File with a column split and one of image_id, patient_id, index (row of the source).",
        },
    )
    withhold_annotated: bool = field(
        default=False,
        metadata={
            "help": "Put every patient with an annotated image (a chest drain, for example) into test, as SLICES did; "
            "positive_first then prefers annotated images."
        },
    )
    keep_without_notes: bool = field(
        default=False, metadata={"group": "note", "help": "Keep images without a prior note."}
    )
    available: str = field(
        default="charted",
        metadata=_one_of(
            AVAILABLE,
            "When a note is available: charted, after discharge and chart time; stored, also after storetime.",
        ),
    )
    own_report: str | None = field(
        default=None,
        metadata=_one_of(OWN_REPORT, "If a prior note contains the image's own report: fail, or drop that note."),
    )
    keep_label_notes: bool = field(
        default=False, metadata={"help": "covid_chestxray: keep notes that name the diagnosis."}
    )
    size: int | None = field(
        default=None,
        metadata={"group": "image", "help": "Longest side of the stored images. Default: 512; 64 for synthetic."},
    )
    no_pixels: bool = field(default=False, metadata={"help": "Tables only: images are listed, not read."})
    workers: int = field(default=0, metadata={"help": "Threads that read images; 0: one per core."})
    n_patients: int = field(
        default=1000, metadata={"group": "synthetic data", "help": "synthetic: number of patients."}
    )
    dirty: bool = field(default=False, metadata={"help": "synthetic: add the defects that real copies have."})

    def __post_init__(self) -> None:
        name = self.dataset.replace("-", "_")
        set_field(self, "dataset", name)
        check_one_of("dataset", name, DATASETS)
        given = (self.root,) if isinstance(self.root, (str, Path)) else tuple(self.root)
        set_field(self, "root", tuple(str(Path(each).expanduser()) for each in given))
        for key in ("out", "split_file"):
            if getattr(self, key):
                set_field(self, key, str(Path(getattr(self, key)).expanduser()))
        choices = {
            "configuration": CONFIGURATIONS,
            "labels": LABEL_POLICIES,
            "views": VIEWS,
            "images_per_patient": ONE_IMAGE,
            "split": SPLITS,
            "available": AVAILABLE,
            "sample": SAMPLES,
            "own_report": OWN_REPORT,
        }
        for key, default in {**USUAL, **DATASETS[name]}.items():
            if getattr(self, key) is None:
                set_field(self, key, default)
        for key, allowed in choices.items():
            check_one_of(key, getattr(self, key), allowed)
        if self.configuration != "images" and name not in WITH_NOTES:
            raise ConfigError(
                f"{name} has no notes", got=f"configuration {self.configuration}", allowed="configuration images",
                next_step=f"cxrhf build {name} --configuration images",
            )  # fmt: skip
        if self.sample == "encoding" and name not in WITH_RACE:
            raise ConfigError("sample encoding: the dataset has no race", got=name, allowed=either(WITH_RACE))
        if self.images_per_patient == "positive_first" and not self.finding:
            raise ConfigError("positive_first requires a finding", next_step="add --finding pneumothorax")
        if self.configuration != "linked":
            set_field(self, "keep_without_notes", False)  # nothing is linked, so it changes nothing
        if self.split_file and self.split != "file":
            set_field(self, "split", "file")
        if self.split == "file" and not self.split_file:
            raise ConfigError("split file requires --split-file", next_step="add --split-file FILE")
        if self.split == "none" and self.withhold_annotated:
            raise ConfigError(
                "withhold_annotated requires a test split", got="split none", allowed="ratio, official or file"
            )
        if self.finding:
            set_field(self, "finding", finding_name(self.finding))
        check_range("seed", self.seed, 0, 2**32 - 1)
        check_range("size", self.size or 0, 32, 4096)
        check_range("workers", self.workers, 0, 1024)
        check_range("n_patients", self.n_patients, 5, 1_000_000)
        if self.female is not None:
            check_range("female", self.female, 0.01, 0.99)
        if self.sample_size is not None:
            check_range("sample_size", self.sample_size, 1, 10**9)
        self.shares()  # says now what is wrong with it

    def shares(self) -> tuple[float, float, float]:
        """The ratios of train, validate and test as shares that sum to 1."""
        parts = split_list((self.ratios or "").replace("/", ","))
        try:
            numbers = [float(part) for part in parts]
        except ValueError:
            numbers = []
        if len(numbers) != 3 or not all(0 <= each < 1e9 for each in numbers) or sum(numbers) <= 0:
            raise ConfigError("ratios", got=self.ratios, allowed="three shares such as 80/10/10")
        return (numbers[0] / sum(numbers), numbers[1] / sum(numbers), numbers[2] / sum(numbers))

    def folder(self) -> Path:
        """Where the build is written."""
        return Path(self.out) if self.out else Path("data") / self.dataset

    def with_root(self, *root: str | Path) -> BuildConfig:
        """The same settings for raw files that lie elsewhere."""
        return replace(self, root=tuple(str(each) for each in root))

    def content(self) -> dict[str, Any]:
        """The settings that decide what is built: not where, nor by how many threads."""
        aside = ["root", "out", "workers", "overwrite", "split_file"]
        aside += ["n_patients", "dirty"] if self.dataset != "synthetic" else []
        aside += ["keep_label_notes"] if self.dataset != "covid_chestxray" else []
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in aside}


@dataclass(frozen=True, slots=True)
class DoctorConfig:
    """Raw files of a published dataset -> what is there, what is missing, and where it comes from."""

    dataset: str = field(metadata={"positional": True, "metavar": "DATASET", "help": f"One of {', '.join(DATASETS)}."})
    root: tuple[str, ...] = field(
        default=(), metadata={"metavar": "FOLDER", "help": "Folder or folders with the raw files."}
    )
    json: bool = field(default=False, metadata={"help": "Print one JSON object on stdout."})

    def __post_init__(self) -> None:
        known = BuildConfig(self.dataset, root=self.root)
        set_field(self, "dataset", known.dataset)
        set_field(self, "root", known.root)
        if not self.root and self.dataset != "synthetic":
            raise ConfigError("--root is missing", next_step=f"cxrhf doctor {self.dataset} --root FOLDER")
