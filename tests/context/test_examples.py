"""Examples of pre-test probabilities: the right images, one a patient, in a folder that only the user can read."""

from __future__ import annotations

import csv
import stat
from datetime import datetime, timedelta

import pyarrow as pa
import pytest

from cxrhf.context.explain import EXAMPLE, KINDS, examples, write_examples
from cxrhf.context.material import Material, material
from cxrhf.errors import TableError
from cxrhf.schema import PREDICTION
from cxrhf.tables.checks import check
from tests.refusals import refused

DAY = datetime(2180, 1, 1)


def made(labels: list[int | None], probs: list[float], patients: list[str], **more: object) -> pa.Table:
    n = len(labels)
    columns = {
        "image_id": [f"i{k:02d}" for k in range(n)], "patient_id": patients, "split": ["test"] * n,
        "model": ["context"] * n, "finding": ["edema"] * n, "label": pa.array(labels, pa.int8()), "prob": probs, **more,
    }  # fmt: skip
    return check(pa.table(columns), PREDICTION)


LABELS = [1, 1, 1, 1, 0, 0, 0, 0, None]
PROBS = [0.9, 0.85, 0.4, 0.1, 0.05, 0.2, 0.6, 0.8, 0.99]
PATIENTS = ["a", "a", "b", "c", "d", "e", "f", "g", "h"]


def chosen(table: pa.Table) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for row in table.to_pylist():
        out[row["kind"]].append(row["image_id"])
    return out


def test_high_positives_low_negatives_and_the_opposite() -> None:
    found = examples(made(LABELS, PROBS, PATIENTS), number=1)
    assert found.schema == EXAMPLE
    assert chosen(found) == {
        "expected_positive": ["i00"], "expected_negative": ["i04"], "surprising_positive": ["i03"],
        "surprising_negative": ["i07"],
    }  # fmt: skip
    assert found["prob"].to_pylist() == [0.9, 0.05, 0.1, 0.8]
    assert found["label"].to_pylist() == [1, 0, 1, 0]


def test_one_a_patient_and_no_image_twice() -> None:
    found = chosen(examples(made(LABELS, PROBS, PATIENTS), number=3))
    assert found["expected_positive"] == ["i00", "i02", "i03"]  # i01 is of the same patient as i00
    assert found["surprising_positive"] == ["i01"]  # the others stand above already
    every = [image for images in found.values() for image in images]
    assert len(every) == len(set(every))
    assert examples(made(LABELS, PROBS, PATIENTS), number=0).num_rows == 0


def test_the_order_of_rows_does_not_matter_among_equals() -> None:
    table = made([1, 1, 1, 0], [0.5] * 4, ["a", "b", "c", "d"])
    assert examples(table, number=2).equals(examples(table.take([3, 2, 1, 0]), number=2))


def test_other_models_splits_and_findings_are_left_out() -> None:
    table = made(
        LABELS, PROBS, PATIENTS, split=["train", *["test"] * 8], finding=["edema"] * 6 + ["mass"] * 3,
        model=["context"] * 5 + ["words"] * 2 + ["context"] * 2,
    )  # fmt: skip
    found = examples(table, number=5)
    assert set(found["image_id"].to_pylist()) == {"i01", "i02", "i03", "i04", "i07"}
    assert set(examples(table, number=5, findings=["mass"])["image_id"].to_pylist()) == {"i07"}
    assert "i00" in examples(table, number=5, split=None)["image_id"].to_pylist()
    with refused(TableError, "context, words", got="contex", fix="'context'"):
        examples(table, number=5, model="contex")


@pytest.fixture
def chart() -> Material:
    """Images i00 to i07 with two notes each, but i07 without any."""
    notes = pa.table(
        {
            "note_id": [f"n{k}" for k in range(8)],
            "patient_id": PATIENTS[:8],
            "available_at": pa.array([DAY] * 8, pa.timestamp("us")),
            "text": [f"secret text {k}" for k in range(8)],
        }
    )
    prior = [[f"n{j}" for j in range(8) if PATIENTS[j] == PATIENTS[k]] if k != 7 else [] for k in range(8)]
    images = pa.table(
        {
            "image_id": [f"i{k:02d}" for k in range(8)],
            "patient_id": PATIENTS[:8],
            "split": ["test"] * 8,
            "study_time": pa.array([DAY + timedelta(days=1)] * 8, pa.timestamp("us")),
            "prior_note_ids": pa.array(prior, pa.list_(pa.string())),
            "edema": pa.array(LABELS[:8], pa.int8()),
        }
    )
    return material(images, notes, ["edema"])


def test_notes_are_named_and_images_without_any_left_out(chart) -> None:
    found = {row["image_id"]: row["note_ids"] for row in examples(made(LABELS, PROBS, PATIENTS), chart).to_pylist()}
    assert "i07" not in found
    assert found["i00"] == ["n0", "n1"]  # both of the patient's
    assert found["i04"] == ["n4"]


def test_files_are_for_the_user_alone(chart, tmp_path) -> None:
    folder = write_examples(tmp_path / "run" / "local", made(LABELS, PROBS, PATIENTS), chart, number=2)
    assert folder == tmp_path / "run" / "local"
    assert {path.name for path in folder.iterdir()} == {"examples.csv", "README.txt", ".gitignore"}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
    assert (folder / ".gitignore").read_text() == "*\n"
    assert "do not share" in (folder / "README.txt").read_text()
    with (folder / "examples.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == EXAMPLE.names
    assert rows[0]["note_ids"] == "n0;n1"
    assert "secret" not in "".join(path.read_text() for path in folder.iterdir())


def test_texts_only_where_asked_and_none_of_an_earlier_time(chart, tmp_path) -> None:
    table = made(LABELS, PROBS, PATIENTS)
    folder = write_examples(tmp_path, table, chart, number=1, texts=True)
    told = (folder / "examples.txt").read_text()
    assert stat.S_IMODE((folder / "examples.txt").stat().st_mode) == 0o600
    assert "secret text 0" in told
    assert "secret text 5" not in told
    assert "the finding was present, but the notes gave it a low probability" in told
    write_examples(tmp_path, table, chart, number=1)
    assert not (folder / "examples.txt").exists()
    write_examples(tmp_path, table, None, number=1, texts=True)
    assert not (folder / "examples.txt").exists()
