"""Anybody's file of reports becomes GENERATION, or an error a person can act on."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cxrhf.errors import TableError
from cxrhf.schema import GENERATION
from cxrhf.tables.files import write_table
from cxrhf.tables.generations import LoadedGenerations, is_generations, load_generations
from tests.real_data import real_data
from tests.refusals import refused

ROWS: dict[str, list[Any]] = {
    "image_id": ["a", "b", "c"],
    "patient_id": ["p", "p", "q"],
    "reference": ["Clear lungs.", "Large heart.", "Herz groß, 心臓."],
    "generated": ["Clear.", "Effusion.", "Herz groß."],
    "sex": ["F", "female", "Male"],
    "age": [61, 62, 30],
}


def changed(**columns: list[Any]) -> dict[str, list[Any]]:
    return {name: values for name, values in {**ROWS, **columns}.items() if values}


def said(loaded: LoadedGenerations) -> str:
    return "\n".join(loaded.lines())


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "jsonl", "jsonl.gz", "parquet"])
def test_every_format_agrees(tmp_path: Path, ending: str) -> None:
    path = write_table(pa.table(ROWS), tmp_path / f"theirs.{ending}")
    loaded = load_generations(path)
    assert loaded.table.schema.equals(GENERATION)
    assert loaded.table["sex"].to_pylist() == ["F", "F", "M"]
    assert loaded.table["reference"][2].as_py() == "Herz groß, 心臓."
    assert set(loaded.table["model"].to_pylist()) == {"theirs"}
    assert set(loaded.table["strategy"].to_pylist()) == {"as given"}
    assert loaded.notes == ()
    assert f"theirs.{ending}: 3 rows, 3 reports, 3 images, 2 patients\n" in said(loaded)


def test_a_run_folder_and_what_python_has(tmp_path: Path) -> None:
    table = load_generations(ROWS, model="m", strategy="greedy", dataset="here").table
    assert table["dataset"].to_pylist() == ["here"] * 3
    write_table(table, tmp_path / "generations.parquet")
    assert load_generations(tmp_path).table.equals(table)
    assert load_generations(table).table.equals(table)
    assert load_generations(table.to_pylist()).table.equals(table)
    with refused(TableError, "generations.parquet", str(tmp_path.parent)):
        load_generations(tmp_path.parent)


def test_columns_that_are_named(tmp_path: Path) -> None:
    path = tmp_path / "theirs.csv"
    path.write_text("hyp,f,i,pid,gender\nClear.,Lungs clear.,,7,F\nBad.,,Edema.,8,M\nWorse.,,,9,M\n")
    loaded = load_generations(path, generated="hyp", reference="f+i", patient="pid", sex="gender")
    assert loaded.table["reference"].to_pylist() == ["Lungs clear.", "Edema."]
    assert loaded.table["patient_id"].to_pylist() == ["7", "8"]
    assert loaded.table["image_id"].to_pylist() == ["row-1", "row-2"]
    assert "1 of 3 rows" in said(loaded)
    assert "no image column" in said(loaded)
    with refused(TableError, '"hypp"', fix="'hyp'"):
        load_generations(path, generated="hypp", reference="f")
    with refused(TableError, '"genrated"', "generated"):
        load_generations(path, genrated="hyp")


def test_findings_and_impression_are_the_reference() -> None:
    rows = changed(reference=[], findings=["A.", None, "C."], impression=["X.", "Y.", None])
    assert load_generations(rows).table["reference"].to_pylist() == ["A. X.", "Y.", "C."]


@pytest.mark.parametrize("generated", [None, "greedy=generated_greedy,rich=generated_rich"])
def test_wide(generated: str | None) -> None:
    rows = changed(generated=[], generated_greedy=["1a", "", "1c"], generated_rich=["2a", "2b", None])
    loaded = load_generations(rows, generated=generated)
    found = [(row["strategy"], row["image_id"], row["generated"]) for row in loaded.table.to_pylist()]
    assert found == [
        ("greedy", "a", "1a"), ("greedy", "b", ""), ("greedy", "c", "1c"),
        ("rich", "a", "2a"), ("rich", "b", "2b"), ("rich", "c", ""),
    ]  # fmt: skip
    assert "2 of 6 generated reports are empty" in said(loaded)
    with refused(TableError, "strategy", got="generated_greedy, generated_rich", fix="--generated"):
        load_generations(rows, generated=generated, strategy="greedy")


def test_long_with_models_and_strategies() -> None:
    rows = [
        {
            "study_id": image,
            "subject_id": "p",
            "decoding": how,
            "model_name": "m",
            "report": "R.",
            "hyp": f"{image} {how}",
        }
        for image in "ab"
        for how in ("greedy", "rich")
    ]
    table = load_generations(rows).table
    assert table.num_rows == 4
    assert set(zip(table["strategy"].to_pylist(), table["generated"].to_pylist(), strict=True)) >= {("rich", "a rich")}
    with refused(TableError, "row 1 and row 3", got="image, model and strategy", fix="--strategy") as refusal:
        load_generations([rows[0], rows[1], dict(rows[0], hyp="another")])
    assert "another" not in str(refusal.error)
    with refused(TableError, "row 1 and row 2", got="two patients", fix="--patient"):
        load_generations([rows[0], dict(rows[1], subject_id="q")])


def test_nobody_is_dropped_without_a_word() -> None:
    rows = changed(
        patient_id=[None, "p", "q"], sex=["U", None, "F"], age=["061Y", "old", "9"], generated=["x", " ", None]
    )
    loaded = load_generations(rows)
    assert loaded.table["patient_id"].to_pylist() == ["image:a", "p", "q"]
    assert loaded.table["sex"].to_pylist() == [None, None, "F"]
    assert loaded.table["generated"].to_pylist() == ["x", "", ""]
    assert loaded.table["age"].to_pylist() == [61.0, None, 9.0]
    notes = said(loaded)
    for expected in ("no patient id in 1 row:", "no known sex for 2 of 3 images", "1 age could not be read",
                     "2 of 3 generated reports are empty"):  # fmt: skip
        assert expected in notes
    assert "NO PATIENT COLUMN" in said(load_generations(changed(patient_id=[])))
    assert "different references" in said(load_generations(changed(image_id=["a", "a", "c"], strategy=["x", "y", "x"])))


def test_a_very_long_report(tmp_path: Path) -> None:
    long = "opacity " * 50_000
    path = tmp_path / "long.csv"
    path.write_text(f'id,generated,reference\n1,"{long}","He said ""no"",\nthen left."\n2,b,{long}\n')
    table = load_generations(path).table
    assert table["generated"][0].as_py() == long.strip()
    assert table["reference"][0].as_py() == 'He said "no",\nthen left.'


@pytest.mark.parametrize(
    ("rows", "facts"),
    [
        (changed(generated=[1, 2, 3]), ['"generated"', "int64", "--generated"]),
        (changed(generated=["0.1", "0.5", "1e-3"]), ['"generated"', "numbers", "cxrhf audit"]),
        (changed(reference=[[1], [2], [3]]), ["--reference"]),
        (changed(generated=[]), ["no column with the generated", "--generated"]),
        (changed(reference=["", None, " "]), ["no row", "--reference"]),
        (changed(image_id=["a", None, "c"]), ['"image_id"', "row 2", "empty"]),
        ({"generated": pa.array([], pa.string()), "reference": pa.array([], pa.string())}, ["no rows"]),
        ([], ["cxrhf generate --from"]),
        (7, ["int", "a path"]),
    ],
)
def test_what_is_wrong(rows: Any, facts: list[str]) -> None:
    with refused(TableError, *facts):
        load_generations(rows)


def test_an_id_is_no_model() -> None:
    rows = {
        "id": [str(n) for n in range(150)], "model": [f"uid{n}" for n in range(150)],
        "reference": ["r"] * 150, "generated": ["g"] * 150,
    }  # fmt: skip
    with refused(TableError, '"model"', got="150", fix="--model"):
        load_generations(rows)


def test_several_files_are_several_models(tmp_path: Path) -> None:
    for name in ("llava", "qwen"):
        pq.write_table(pa.table(ROWS), tmp_path / f"{name}.parquet")
    paths = [tmp_path / "llava.parquet", tmp_path / "qwen.parquet"]
    assert load_generations(paths).table["model"].to_pylist() == ["llava"] * 3 + ["qwen"] * 3
    with refused(TableError, "llava.parquet and qwen.parquet", fix="--model"):
        load_generations(paths, model="m")


@pytest.mark.parametrize(
    ("names", "reports"),
    [
        (["id", "generated", "reference"], True),
        (["sample", "reference", "generated", "uid", "sex_from_indication"], True),
        (["uid", "Findings", "Impression", "prediction"], True),
        (["id", "generated_greedy", "generated_rich", "report"], True),
        (["id", "hyp", "ground_truth"], True),
        (list(GENERATION.names), True),
        (["id", "prediction", "ground_truth"], False),
        (["id", "patient", "label", "score"], False),
        (["image_id", "finding", "label", "prob", "report"], False),
        (["image_id", "Edema", "prob_Edema"], False),
        (["id", "generated"], False),
    ],
)
def test_reports_are_told_from_predictions(names: list[str], reports: bool) -> None:
    assert is_generations(names) is reports


@pytest.mark.real
def test_real_reports() -> None:
    path = real_data("iu/generated.csv.gz")
    loaded = load_generations(path)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        header = file.readline().strip().split(",")
    assert is_generations(header)
    table = loaded.table
    assert table.num_rows == loaded.readings[0].n_images == 1334
    assert table["sex"].null_count == 856
    assert {each for each in table["sex"].to_pylist() if each} == {"F", "M"}
    assert "sex = sex_from_indication" in said(loaded)
    assert "patient = uid" in said(loaded)
