"""A build -> images with the sections of their reports; with settings, examples to learn from and to validate on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrhf.config_finetune import FinetuneConfig
from cxrhf.errors import ConfigError, RunError, TableError
from cxrhf.imaging.opened import CARRIED

if TYPE_CHECKING:
    import numpy as np

    from cxrhf.models.images import Images

FRONTAL = ("PA", "AP")
SECTIONS = ("indication", "comparison", "findings", "impression")


@dataclass(frozen=True, slots=True)
class Reports:
    """Images whose reports are known, and what is asked of each."""

    images: Images
    prompts: list[str]
    answers: list[str]

    def __len__(self) -> int:
        return len(self.answers)

    def counts(self) -> dict[str, int]:
        """Images of each sex, patients, and all."""
        table = self.images.table
        sexes = Counter(each or "unknown" for each in table["sex"].to_pylist())
        patients = len(set(table["patient_id"].to_pylist()))
        return {"images": len(self), "patients": patients, **dict(sorted(sexes.items()))}


def images_with_reports(build: str | Path, splits: Sequence[str]) -> Images:
    """The images of these splits with the sections of their reports; every image id once."""
    import pyarrow as pa

    from cxrhf.data.load import RAW, load_images
    from cxrhf.data.pixels import Pixels, open_shards
    from cxrhf.models.images import Images, unique_ids

    tables = []
    for split in splits:
        table = load_images(build, split=split, labels=RAW)
        tables.append(table.select([name for name in (*CARRIED, *SECTIONS) if name in table.column_names]))
    files = [file for split in splits for file in open_shards(Path(build) / "images", split).files]
    table = pa.concat_tables(tables, promote_options="default").combine_chunks()
    if not {"findings", "impression"} & set(table.column_names):
        raise TableError(
            f"{build} has no reports (neither findings nor impression)",
            next_step="build a dataset with reports: rexgradient, chexpert_plus or mimic_cxr_context",
        )
    images = Images(table.replace_schema_metadata(None), Pixels(files))
    unique_ids(images)
    return images


def open_reports(config: FinetuneConfig, split: str) -> tuple[Reports, Reports | None, list[str]]:
    """Examples of training and of validation, and what must be said of them."""
    from cxrhf.imaging.opened import has_validation
    from cxrhf.imaging.training import apart

    notes: list[str] = []
    validates = has_validation(config)  # before the first table is read
    train = _with_reports(config, split, notes)
    if not len(train):
        raise RunError(
            f'{config.build}: no image of split "{split}" has a report to train on ({"; ".join(notes) or "no images"})',
            next_step="build a dataset with reports: rexgradient, mimic_cxr_context or synthetic",
        )
    train = _mixed(train, config, notes)
    if not validates:
        notes.append(f"there is no split {config.validate_split}, so the last adapter is kept")
        return train, None, notes
    validate = _with_reports(config, config.validate_split, notes)
    if not len(validate):
        notes.append("no validation image has a report, so the last adapter is kept")
        return train, None, notes
    apart(train.images, validate.images)
    return train, _fewer(validate, config.max_validate, config.seed), notes


def _with_reports(config: FinetuneConfig, split: str, notes: list[str]) -> Reports:
    """All images of a split that are of the views asked for and have a report; the others are counted."""
    import numpy as np

    from cxrhf.models.vlm_prompts import DEFAULT_PROMPT, prompt_for, report_of

    images = images_with_reports(config.build, [split])
    known = images.table.to_pylist()
    seen = [config.views == "all" or row["view"] in FRONTAL for row in known]
    answers = [report_of(row) if use else "" for row, use in zip(known, seen, strict=True)]
    rows = np.array([at for at, answer in enumerate(answers) if answer], dtype=np.int64)
    if other := len(seen) - sum(seen):
        notes.append(f"split {split}: {other:,} of {len(seen):,} images were excluded because they are not frontal")
    if without := sum(seen) - len(rows):
        notes.append(f"split {split}: {without:,} images without a report were excluded")
    template = config.prompt or DEFAULT_PROMPT
    return Reports(images.take(rows), [prompt_for(template, known[at]) for at in rows], [answers[at] for at in rows])


def _mixed(reports: Reports, config: FinetuneConfig, notes: list[str]) -> Reports:
    """At most so many examples, with the share of women that was asked for."""
    from cxrhf.data.splits import sex_mix

    before = len(reports)
    if config.female is None:
        reports = _fewer(reports, config.max_examples, config.seed)
    else:
        rows = sex_mix(reports.images.table, config.female, config.max_examples, config.seed)
        if not len(rows):
            raise ConfigError("the build has images of one sex only", got=f"--female {config.female}",
                              next_step="choose another --female")  # fmt: skip
        reports = _taken(reports, rows)
    if len(reports) < before:
        counts = reports.counts()
        share = counts.get("F", 0) / max(counts.get("F", 0) + counts.get("M", 0), 1)
        notes.append(f"{len(reports):,} of {before:,} examples are used for training, {share:.1%} of them of women")
    return reports


def _fewer(reports: Reports, most: int | None, seed: int) -> Reports:
    import numpy as np

    from cxrhf.models.images import Images, fewer

    if most is None or len(reports) <= most:
        return reports
    numbered = reports.images.table.append_column("at", [np.arange(len(reports))])
    kept = fewer(Images(numbered, reports.images.pictures), most, seed)
    return _taken(reports, np.asarray(kept.table["at"]))


def _taken(reports: Reports, rows: np.ndarray[Any, Any]) -> Reports:
    places = [int(row) for row in rows]
    return Reports(
        reports.images.take(rows), [reports.prompts[at] for at in places], [reports.answers[at] for at in places]
    )
