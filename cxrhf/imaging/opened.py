"""The folder of a build -> Images of some splits: rows with labels under a policy, and a way to their pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cxrhf.errors import RunError, TableError, did_you_mean, need_packages

if TYPE_CHECKING:
    from cxrhf.config_finetune import FinetuneConfig
    from cxrhf.config_train import TrainConfig
    from cxrhf.models.images import Images

CARRIED = ("image_id", "study_id", "patient_id", "dataset", "split", "view", "study_time", "age", "sex", "race")
PACKAGES = ("torch", "torchvision", "timm", "accelerate", "transformers", "safetensors", "PIL")


def check_packages(*more: str) -> None:
    """Networks need packages that the light core does not bring: said before anything is read."""
    extra = "zeroshot" if "open_clip" in more else "train,track" if more else "train"
    need_packages("image models", (*PACKAGES, *more), extra)


def findings_of(build: str | Path) -> list[str]:
    """The findings that a build has labels of."""
    from cxrhf.data.load import build_record

    return [str(each) for each in build_record(build)["findings"]]


def splits_there(build: str | Path, wanted: Sequence[str], *, all_of: bool = False) -> list[str]:
    """The splits of a build that were asked for, `all` for every one; none of them there is an error.

    One that is not there is an error too if `all_of`.
    """
    from cxrhf.data.load import build_record, splits_of

    build_record(build)
    there = splits_of(build)
    if list(wanted) == ["all"]:
        return there
    missing = [each for each in wanted if each not in there]
    if missing and (all_of or len(missing) == len(wanted)):
        raise RunError(
            f'{build} has no split "{missing[0]}"',
            allowed=", ".join([*there, "all"]) if there else "a build with images",
            next_step=did_you_mean(missing[0], there),
        )
    return [each for each in wanted if each in there]


def has_validation(config: TrainConfig | FinetuneConfig) -> bool:
    """Whether the build has the split that chooses the best weights. Builds may lack the usual one, not one by name."""
    from cxrhf.data.load import splits_of

    if config.validate_split in splits_of(config.build):
        return True
    if config.validate_split != type(config).__dataclass_fields__["validate_split"].default:
        splits_there(config.build, [config.validate_split], all_of=True)
    return False


def open_images(build: str | Path, splits: Sequence[str], *, labels: str | None = None) -> Images:
    """The images of these splits, one after the other; every image id once."""
    import pyarrow as pa

    from cxrhf.data.load import load_images
    from cxrhf.data.pixels import Pixels, open_shards
    from cxrhf.models.images import Images, unique_ids

    columns = [*CARRIED, *findings_of(build)]
    tables = [load_images(build, split=split, labels=labels, columns=columns) for split in splits]
    files = [file for split in splits for file in open_shards(Path(build) / "images", split).files]
    pictures = Pixels(files)
    table = pa.concat_tables(tables).combine_chunks()
    if len(pictures) != table.num_rows:
        raise TableError(
            f"{build}: image shards and tables have different lengths",
            got=f"{len(pictures):,} and {table.num_rows:,}",
            next_step="build again with --overwrite",
        )
    images = Images(table, pictures)
    unique_ids(images)
    return images
