"""Splits and samples: patients stay whole, shares hold, order does not matter."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxrhf.data.splits import file_split, ratio_split, sex_sample, sizes, take, validate_from_train
from cxrhf.errors import ConfigError, SourceError, TableError
from tests.refusals import refused

SHARES = (0.6, 0.1, 0.3)


def images(seed: int = 0, patients: int = 200, rows: int = 700, splits: bool = True) -> pl.DataFrame:
    draw = np.random.default_rng(seed)
    owner = draw.integers(0, patients, rows)
    sex = draw.choice(np.array(["F", "M", None], object), patients, p=[0.4, 0.5, 0.1])
    frame = pl.DataFrame(
        {
            "image_id": [f"i{at:04d}" for at in range(rows)],
            "patient_id": [f"p{at}" for at in owner],
            "sex": pl.Series([sex[at] for at in owner], dtype=pl.String),
            "source_row": pl.Series(range(rows), dtype=pl.UInt32),
        }
    )
    if not splits:
        return frame
    return frame.join(ratio_split(frame, SHARES, 1), on="patient_id", how="left", maintain_order="left")


def shuffled(frame: pl.DataFrame, seed: int) -> pl.DataFrame:
    return frame[np.random.default_rng(seed).permutation(frame.height)]


# ---- by ratio


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(0, 120),
    parts=st.lists(st.integers(0, 100), min_size=3, max_size=3).filter(any),
    seed=st.integers(0, 2**32 - 1),
    order=st.integers(0, 9),
)
def test_a_ratio_split_gives_every_patient_once_and_holds_the_shares(
    n: int, parts: list[int], seed: int, order: int
) -> None:
    ids = pl.Series("patient_id", [f"p{at}" for at in range(n)], pl.String)
    split = ratio_split(ids, parts, seed)
    assert split.schema == {"patient_id": pl.String, "split": pl.String}
    assert sorted(split["patient_id"]) == sorted(ids)
    for name, part in zip(("train", "validate", "test"), parts, strict=True):
        found = int((split["split"] == name).sum())
        assert abs(found - n * part / sum(parts)) < 1
        assert found == 0 or part > 0
    repeated = pl.DataFrame({"patient_id": pl.concat([ids, ids[: n // 2]])})
    assert ratio_split(shuffled(repeated, order), parts, seed).equals(split)


@given(n=st.integers(0, 10**6), parts=st.lists(st.floats(0, 1), min_size=1, max_size=5).filter(lambda p: sum(p) > 0.01))
def test_sizes_sum_and_are_within_one(n: int, parts: list[float]) -> None:
    found = sizes(n, parts)
    assert sum(found) == n
    assert all(abs(size - n * part / sum(parts)) < 1 + 1e-6 for size, part in zip(found, parts, strict=True))


def test_sizes_by_largest_remainder() -> None:
    assert sizes(10, (0.8, 0.1, 0.1)) == [8, 1, 1]
    assert sizes(5, (0.6, 0.1, 0.3)) == [3, 1, 1]
    assert sizes(100, (0.57, 0.43)) == [57, 43], "57 is not lost to binary fractions"
    assert sizes(7, (1, 1, 1)) == [3, 2, 2]
    with refused(ConfigError, "not all 0", got="[0, 0, 0]"):
        sizes(3, (0, 0, 0))


def test_seeds_differ_and_are_random() -> None:
    ids = images()["patient_id"]
    drawn = [ratio_split(ids, SHARES, seed) for seed in range(40)]
    assert not drawn[0].equals(drawn[1])
    assert drawn[3].equals(ratio_split(ids, SHARES, 3))
    # Each patient is in test in about 30% of the draws: no place in the sorted ids is favoured.
    share = pl.concat(drawn).group_by("patient_id").agg((pl.col("split") == "test").mean().alias("share"))["share"]
    assert abs(float(share.mean() or 0) - 0.3) < 0.01  # type: ignore[arg-type]
    assert float(share.max() or 0) < 0.3 + 5 * (0.21 / 40) ** 0.5  # type: ignore[arg-type]


def test_a_split_needs_three_shares() -> None:
    with refused(ConfigError, "three shares", got="[0.8, 0.2]"):
        ratio_split(images(), (0.8, 0.2), 0)


def test_validate_is_taken_from_train_patients_whole() -> None:
    frame = images().with_columns(pl.col("split").replace({"validate": "train"}))
    found = validate_from_train(frame, 0.1, 5)
    assert found.columns == frame.columns
    assert found.drop("split").equals(frame.drop("split"))
    assert found.filter(pl.col("split") == "test").equals(frame.filter(pl.col("split") == "test"))
    assert found.group_by("patient_id").agg(pl.col("split").n_unique())["split"].max() == 1
    moved = found.filter(pl.col("split") == "validate")["patient_id"].n_unique()
    train = frame.filter(pl.col("split") == "train")["patient_id"].n_unique()
    assert abs(moved - 0.1 * train) <= 1
    again = validate_from_train(shuffled(frame, 1), 0.1, 5).sort("image_id")
    assert again.equals(found.sort("image_id"))
    assert not validate_from_train(frame, 0.1, 6).equals(found)
    assert validate_from_train(frame, 0.0, 5).equals(frame)


# ---- from a file


def written(folder: Path, text: str, name: str = "split.csv") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def test_a_file_by_row_of_the_table_survives_dropped_and_shuffled_rows(tmp_path: Path) -> None:
    path = written(tmp_path, ",index,split\n0,0,train\n1,3,val\n2,2,test\n", "split.csv.gz")
    frame = shuffled(images(rows=6, splits=False).filter(pl.col("source_row") != 2), 3)
    found = file_split(frame, path)
    assert found.drop("split").equals(frame), "the rows, their order and their types are kept"
    by_row = dict(zip(found["source_row"].to_list(), found["split"].to_list(), strict=True))
    assert by_row == {0: "train", 3: "validate", 1: None, 4: None, 5: None}


@pytest.mark.parametrize("column", ["patient_id", "subject_id", "PATIENT"])
def test_a_file_by_patient(tmp_path: Path, column: str) -> None:
    frame = images()
    path = written(tmp_path, f"{column},split\np1,Training\np2, VALID \np3,test\np3,test\np999,test\n")
    found = file_split(frame, path)
    assert found.filter(pl.col("patient_id") == "p1")["split"].unique().to_list() == ["train"]
    assert found.filter(pl.col("patient_id") == "p2")["split"].unique().to_list() == ["validate"]
    others = found.filter(~pl.col("patient_id").is_in(["p1", "p2", "p3"]))
    assert others["split"].null_count() == others.height, "an older split is replaced, not mixed in"


def test_a_file_by_image_may_put_a_patient_into_two_splits(tmp_path: Path) -> None:
    frame = images(rows=3).with_columns(patient_id=pl.lit("p"))
    path = written(tmp_path, "dicom_id,subject_id,split\ni0000,p,train\ni0001,p,validation\ni0002,p,\n")
    assert file_split(frame, path)["split"].to_list() == ["train", "validate", None]


def test_split_files_that_cannot_be_meant(tmp_path: Path) -> None:
    frame = images()
    with refused(SourceError, "--split-file", "none.csv"):
        file_split(frame, tmp_path / "none.csv")
    with refused(SourceError, "split.csv", "patient_id", got="who"):
        file_split(frame, written(tmp_path, "who,split\n1,train\n"))
    with refused(SourceError, '"split"', got="index, part"):
        file_split(frame, written(tmp_path, "index,part\n1,train\n"))
    with refused(SourceError, "row 2", got="hold-out"):
        file_split(frame, written(tmp_path, "index,split\n1,train\n2,hold-out\n"))
    with refused(SourceError, '"patient_id"', "more than one split"):
        file_split(frame, written(tmp_path, "patient_id,split\np1,train\np1,test\n"))
    with refused(SourceError, '"patient_id"', "700 images"):
        file_split(frame, written(tmp_path, "patient_id,split\n00001,train\n"))
    with refused(SourceError, 'column "index", row 1', got="p1"):
        file_split(frame, written(tmp_path, "index,split\np1,train\n"))
    with refused(TableError, '"source_row"'):
        file_split(frame.drop("source_row"), written(tmp_path, "index,split\n1,train\n"))


def test_an_index_of_another_table_is_found_by_the_patients_beside_it(tmp_path: Path) -> None:
    frame = images()
    rows = [f"{at},{frame['patient_id'][at]},train" for at in range(20)]
    good = written(tmp_path, "\n".join(["index,patient_id,split", *rows]) + "\n")
    assert file_split(frame, good)["split"].count() == 20
    rows[7] = f"8,{frame['patient_id'][7]},train"
    with refused(SourceError, '"index"', '"patient_id"', "1 row"):
        file_split(frame, written(tmp_path, "\n".join(["index,patient_id,split", *rows]) + "\n"))


# ---- samples


def cut_patients(sample: pl.DataFrame, whole: pl.DataFrame) -> int:
    """Patients of whom some rows were taken and some were not."""
    kept = sample.group_by("patient_id").len().rename({"len": "kept"})
    return kept.join(whole.group_by("patient_id").len(), on="patient_id").filter(pl.col("kept") < pl.col("len")).height


@pytest.mark.parametrize("female", [0.5, 0.33, 0.67, 0.01])
@pytest.mark.parametrize("size", [None, 60, 10**6])
def test_the_share_of_women_holds_in_every_split(female: float, size: int | None) -> None:
    frame = images()
    found = sex_sample(frame, female, size, 3)
    assert found.columns == frame.columns
    assert found.equals(frame.filter(pl.col("image_id").is_in(found["image_id"].implode()))), "rows keep their order"
    for (split,), part in frame.group_by("split"):
        kept = found.filter(pl.col("split") == split)
        women, men = ((int((rows["sex"] == sex).sum())) for rows, sex in ((kept, "F"), (kept, "M")))
        assert women + men == kept.height
        assert abs(women - female * kept.height) <= 0.5
        assert size is None or kept.height <= size
        there = [int((part["sex"] == sex).sum()) for sex in ("F", "M")]
        for more in range(kept.height + 1, min(size or 10**9, sum(there)) + 1):  # no larger sample holds the share
            wanted = int(female * more + 0.5)
            assert wanted > there[0] or more - wanted > there[1]
        for sex in ("F", "M"):
            assert cut_patients(kept.filter(pl.col("sex") == sex), part) <= 1


def test_a_sample_does_not_depend_on_row_order_but_on_the_seed() -> None:
    frame = images()
    found = sex_sample(frame, 0.5, 40, 3).sort("image_id")
    assert sex_sample(shuffled(frame, 8), 0.5, 40, 3).sort("image_id").equals(found)
    assert not sex_sample(frame, 0.5, 40, 4).sort("image_id").equals(found)
    assert take(shuffled(frame, 8), 30, 3).sort("image_id").equals(take(frame, 30, 3).sort("image_id"))


def test_a_smaller_sample_lies_within_a_larger_one() -> None:
    frame = images()
    small, large = (set(sex_sample(frame, 0.5, size, 3)["image_id"]) for size in (20, 40))
    assert small < large
    assert set(take(frame, 10, 0)["image_id"]) < set(take(frame, 25, 0)["image_id"])


def test_samples_without_a_split_and_with_rows_outside_every_split() -> None:
    frame = images(splits=False)
    found = sex_sample(frame, 0.5, 100, 0)
    assert found.columns == frame.columns
    assert found["sex"].value_counts().sort("sex").rows() == [("F", 50), ("M", 50)]
    assert take(frame, 33, 0).height == 33
    part = images().with_columns(pl.when(pl.col("split") != "train").then("split").alias("split"))
    found = sex_sample(part, 0.5, 10, 0)
    assert found.group_by("split").len()["len"].to_list() == [10, 10, 10]
    assert take(part, 7, 0).group_by("split").len()["len"].to_list() == [7, 7, 7]


def test_take_keeps_patients_whole_but_the_last() -> None:
    frame = images()
    found = take(frame, 50, 1)
    for (_,), part in found.group_by("split"):
        assert part.height == 50
        assert cut_patients(part, frame) <= 1
    assert take(frame, 10**6, 1).equals(frame)
    assert take(frame, 0, 1).height == 0


def test_a_sample_by_sex_needs_sex() -> None:
    frame = images()
    with refused(TableError, "a share of female images", '"sex"'):
        sex_sample(frame.drop("sex"), 0.5, None, 0)
    with refused(ConfigError, "700 images"):
        sex_sample(frame.with_columns(sex=pl.lit(None, pl.String)), 0.5, None, 0)
    with pytest.raises(ConfigError, match="female is out of range"):
        sex_sample(frame, 50, None, 0)
    men = sex_sample(frame.filter(pl.col("sex") == "M"), 0.5, None, 0)
    assert men.height == 0, "half of nothing"
