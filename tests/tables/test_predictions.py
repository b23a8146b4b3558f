"""Anybody's file becomes PREDICTION, or an error a person can act on; never another exception."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cxrhf.errors import CxrhfError, CxrhfWarning, TableError
from cxrhf.findings import CHEXPERT, NIH
from cxrhf.schema import PREDICTION
from cxrhf.tables.checks import arrays, check
from cxrhf.tables.files import write_table
from cxrhf.tables.predictions import load_predictions, read_predictions, run_seeds
from tests.real_data import real_data
from tests.refusals import refused

VENDOR = "id,patient,label,score,sex\na,p,1,0.9,M\nb,p,0,0.2,F\nc,q,,0.4,\n"


def saved(tmp_path: Path, text: str, name: str = "p.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def notes(source: object, **named: str) -> str:
    return "\n".join(load_predictions(source, **named).notes)


def test_vendor_csv(tmp_path: Path) -> None:
    loaded = load_predictions(saved(tmp_path, VENDOR))
    table = loaded.table
    assert table.schema.equals(PREDICTION)
    assert table["finding"].to_pylist() == ["finding"] * 3
    assert table["label"].to_pylist() == [1, 0, None]
    assert table["prob"].to_pylist() == [0.9, 0.2, 0.4]
    assert table["model"].to_pylist() == ["model"] * 3
    reading = loaded.readings[0]
    assert (reading.form, reading.n_rows, reading.n_images, reading.n_patients) == ("one-finding", 3, 3, 2)
    assert loaded.notes == ()
    said = "\n".join(reading.lines())
    assert "p.csv: one-finding form, 3 rows, 3 images, 2 patients, 1 finding\n" in said
    assert "patient = patient" in said
    named = read_predictions(tmp_path / "p.csv", finding="Effusion", model="v2", dataset="here")
    assert named.select(["finding", "model", "dataset"]).to_pylist()[0] == {
        "finding": "pleural_effusion",
        "model": "v2",
        "dataset": "here",
    }


def test_wide_long_and_every_format_agree(tmp_path: Path) -> None:
    wide = {
        "image_id": ["a", "b"],
        "patient_id": ["p", "q"],
        "Edema": [1, None],
        "prob_Edema": [0.9, 0.1],
        "Effusion": [0, 1],
        "prob_Effusion": [0.3, 0.4],
        "pretest_Edema": [0.5, 0.6],
        "mention_Effusion": [True, False],
        "age": [60.0, 70.0],
    }
    expected = read_predictions(wide)
    assert expected.num_rows == 4
    assert expected["pretest"].to_pylist() == [0.5, 0.6, None, None]
    assert expected["mention"].to_pylist() == [None, None, True, False]
    for name in ("w.csv", "w.parquet", "w.jsonl", "w.tsv.gz"):
        again = read_predictions(write_table(pa.table(wide), tmp_path / name))
        assert again.combine_chunks().equals(expected.combine_chunks()), name
    for name in ("long.csv", "long.parquet", "long.jsonl.gz"):  # PREDICTION itself, read as a long file
        again = read_predictions(write_table(expected, tmp_path / name))
        assert again.combine_chunks().equals(expected.combine_chunks()), name
    assert read_predictions(expected).combine_chunks().equals(expected.combine_chunks())


def test_other_containers() -> None:
    rows = [{"id": "a", "patient": 1, "label": 1, "score": 0.5}, {"id": "b", "patient": 2, "label": 0, "score": 0.25}]
    expected = read_predictions(rows)
    import pandas  # comes with datasets
    import polars

    for each in (pandas.DataFrame(rows), polars.DataFrame(rows), pa.Table.from_pylist(rows)):
        assert read_predictions(each).combine_chunks().equals(expected.combine_chunks())
    for wrong in (3, object(), [1, 2], {"a": [1, "x"]}, [], None):
        with pytest.raises(TableError):
            read_predictions(wrong)


def test_findings_can_be_chosen(tmp_path: Path) -> None:
    wide = {"id": ["a"], "patient": ["p"], "Edema": [1], "prob_Edema": [0.9], "Mass": [0], "prob_Mass": [0.3]}
    assert read_predictions(wide, findings=["edema"])["finding"].to_pylist() == ["edema"]
    long = read_predictions(wide)
    assert read_predictions(long, findings=["Mass"])["finding"].to_pylist() == ["mass"]
    for each in (wide, long):
        with refused(TableError, '"edma"', fix="'edema'"):
            read_predictions(each, findings=["edma"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id,patient,label,score\na,p,1,0.5\nb,p,2,0.5\n", ['"label"', "line 3", "2"]),
        ("id,patient,label,score\na,p,1,0.5\nb,p,0,nan\n", ['"score"', "line 3", "an empty cell or NaN", "label"]),
        ("id,patient,label,score\na,p,1,\n", ['"score"', "line 2", "an empty cell or NaN", "label"]),
        ("id,patient,label,score\na,p,1,inf\n", ['"score"', "line 2", "inf", "a finite number"]),
        ("id,patient,label,score\na,p,,-inf\n", ['"score"', "line 2", "-inf", "a finite number"]),
        ("id,patient,label,score\na,p,1,high\n", ['"score"', "line 2", "a finite number", "high"]),
        ("id,patient,label,score\na,p,1,0.5\n,p,0,0.5\n", ['"id"', "line 3", "empty"]),
        ("id,patient,label,score\na,p,1,0.5\nb,p,0,0.5\na,p,1,0.4\n", ['image "a"', "line 2 and line 4", "twice"]),
        ("id,patient,label,score,weight\na,p,1,0.5,-1\n", ['"weight"', "line 2", "-1"]),
        ("id,patient,label,score,weight\na,p,1,0.5,\nb,p,1,0.5,2\n", ['"weight"', "line 2", "empty"]),
        ("id,patient,label,score,pretest\na,p,1,0.5,1.2\n", ['"pretest"', "line 2", "1.2", "0 to 1"]),
        ("id,patient,label,score,seed\na,p,1,0.5,1.5\n", ['"seed"', "line 2", "1.5"]),
        ("id,patient,label,score,mention\na,p,1,0.5,perhaps\n", ['"mention"', "line 2", "perhaps"]),
        ("id,patient,finding,label,score\na,p,,1,0.5\n", ['"finding"', "line 2", "empty"]),
        ("id,patient,finding,label,score\na,p,x,1,0.5\na,p,X,0,0.5\n", ['image "a", finding "x"', "line 2 and line 3"]),
        ("id,patient,finding,label,score\na,p,x,1,0.5\na,q,y,0,0.5\n", ['image "a"', '"p" and "q"', "one patient"]),
        ("id,patient,model,label,score\na,p,m,1,0.5\na,q,n,1,0.5\n", ['image "a"', '"p" and "q"', "one patient"]),
        ("patient,finding,label,score\np,x,1,0.5\n", ["image column", "--image"]),
        ("id,patient,label,prob,logit\na,p,1,1.5,3\n", ['"prob"', "line 2", "1.5"]),
        ("id,patient,label,score\n", ["no rows"]),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, text: str, words: list[str]) -> None:
    with refused(TableError, "p.csv", *words):
        read_predictions(saved(tmp_path, text))


def test_rows_of_tables_count_from_one(tmp_path: Path) -> None:
    lines = '{"id": "a", "label": 1, "score": 0.5}\n\n{"id": "b", "label": 3, "score": 0.5}\n'
    with refused(TableError, 'p.jsonl, column "label", line 3', got="3"):
        read_predictions(saved(tmp_path, lines, "p.jsonl"))
    with refused(TableError, 'table, column "label", row 2', got="3"):
        read_predictions({"id": ["a", "b"], "label": [1, 3], "score": [0.1, 0.2]})


def test_uncertain_labels_are_counted(tmp_path: Path) -> None:
    path = saved(tmp_path, "id,patient,label,score\na,p,-1,0.5\nb,p,-1.0,0.5\nc,p,1,0.5\n")
    assert "2 uncertain labels (-1)" in notes(path)
    with pytest.warns(CxrhfWarning, match="uncertain"):
        assert read_predictions(path)["label"].to_pylist() == [None, None, 1]


def test_scores_that_are_no_probabilities() -> None:
    wide = {
        "id": ["a", "b"],
        "pid": [1, 2],
        "Edema": [1, 0],
        "score_Edema": [2.8, 0.5],
        "Mass": [0, 1],
        "score_Mass": [0.1, 1],
    }
    loaded = load_predictions(wide)
    assert loaded.table["prob"].to_pylist() == [None, None, 0.1, 1.0]
    assert loaded.table["logit"].to_pylist() == [2.8, 0.5, None, None]
    assert all(fact in loaded.notes[0] for fact in ("edema: ", "2.8", "0.5", "ranking metrics only"))
    long = {
        "id": ["a", "b", "a", "b"] * 2,
        "pid": [1, 2, 1, 2] * 2,
        "finding": ["x", "x", "y", "y"] * 2,
        "model": ["m"] * 4 + ["n"] * 4,
        "label": [1, 0] * 4,
        "score": [3.0, 0.5, 0.5, 0.1, 0.1, 0.2, 0.3, 0.4],
    }
    table = load_predictions(long).table  # x of model m alone is on another scale
    assert table["prob"].to_pylist() == [None, None, 0.5, 0.1, 0.1, 0.2, 0.3, 0.4]
    assert table["logit"].to_pylist() == [3.0, 0.5] + [None] * 6


def test_logits_stay_logits() -> None:
    only = load_predictions({"id": ["a", "b"], "pid": [1, 2], "Edema": [1, 0], "logit_Edema": [0.5, 0.2]})
    assert only.table["prob"].to_pylist() == [None, None]
    assert only.table["logit"].to_pylist() == [0.5, 0.2]
    assert "ranking metrics only" in only.notes[0]
    both = load_predictions({"id": ["a"], "pid": [1], "Edema": [1], "logit_Edema": [3.0], "prob_Edema": [0.95]})
    assert both.table.select(["prob", "logit"]).to_pylist() == [{"prob": 0.95, "logit": 3.0}]
    assert both.notes == ()


def test_a_score_may_be_missing_where_the_label_is() -> None:
    table = read_predictions({"id": ["a", "b"], "pid": [1, 2], "label": [None, 1], "score": [None, 0.5]})
    assert table["prob"].to_pylist() == [None, 0.5]


def test_thresholded_scores_are_said() -> None:
    n = 40
    table = {"id": list(range(n)), "pid": list(range(n)), "label": [0, 1] * 20, "score": [0, 1] * 20}
    assert "at most two values" in notes(table)
    assert "two values" not in notes({**table, "score": [0, 1] * 19 + [0.5, 1]})


def test_missing_patients_are_loud(tmp_path: Path) -> None:
    loaded = load_predictions(saved(tmp_path, "id,label,score\na,1,0.5\nb,0,0.4\n"))
    assert "NO PATIENT COLUMN" in loaded.notes[0]
    assert "--patient" in loaded.notes[0]
    assert loaded.readings[0].n_patients == 2
    some = load_predictions(
        {"id": ["a", "b", "c"], "patient": ["image:a", None, "p"], "label": [1, 0, 1], "score": [0.1, 0.2, 0.3]}
    )
    assert "no patient id in 1 row" in some.notes[0]
    assert some.readings[0].n_patients == 3


def test_columns_without_any_value_are_as_if_they_were_not_there() -> None:
    n = 200  # from 100 rows on it is asked whether a model or a dataset is an id
    rows = {"id": [f"i{at}" for at in range(n)], "patient": list(range(n)), "label": [0, 1] * 100}
    rows["score"] = [at / n for at in range(n)]
    blank = dict.fromkeys(("model", "dataset", "seed"), [None] * n)
    assert read_predictions({**rows, **blank}).equals(read_predictions(rows))


def test_missing_images() -> None:
    numbered = load_predictions({"patient": ["p", "p"], "label": [1, 0], "score": [0.1, 0.2]})
    assert numbered.table["image_id"].to_pylist() == ["row-1", "row-2"]
    assert "rows are numbered" in numbered.notes[0]
    studies = load_predictions({"study_id": ["s", "t"], "patient": ["p", "p"], "label": [1, 0], "score": [0.1, 0.2]})
    assert studies.table["image_id"].to_pylist() == ["s", "t"]
    assert studies.table["study_id"].to_pylist() == ["s", "t"]


def test_several_files_are_several_models(tmp_path: Path) -> None:
    a, b = saved(tmp_path, VENDOR, "a.csv"), saved(tmp_path, VENDOR, "b.csv")
    loaded = load_predictions([a, b])
    assert loaded.table["model"].to_pylist() == ["a"] * 3 + ["b"] * 3
    assert len(loaded.readings) == 2
    assert arrays(loaded.table, "b").y.shape == (3, 1)
    with refused(TableError, got="a.csv, "):
        load_predictions([a, a])
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    same = [saved(tmp_path / each, VENDOR, "p.csv") for each in "xy"]
    assert set(load_predictions(same).table["model"].to_pylist()) == {"x/p", "y/p"}
    shards = [
        saved(tmp_path, VENDOR, "s1.csv"),
        saved(tmp_path, VENDOR.replace("\na", "\nA").replace("\nb", "\nB").replace("\nc", "\nC"), "s2.csv"),
    ]
    assert arrays(load_predictions(shards, model="one").table).y.shape == (6, 1)


def test_files_of_one_model_that_share_images_are_its_runs(tmp_path: Path) -> None:
    a, b = saved(tmp_path, VENDOR, "a.csv"), saved(tmp_path, VENDOR, "b.csv")
    loaded = load_predictions([a, b], model="one")
    assert loaded.table["seed"].to_pylist() == [0] * 3 + [1] * 3
    assert set(loaded.table["model"].to_pylist()) == {"one"}
    assert all(fact in loaded.notes[0] for fact in ("a.csv", '"one"', "seed 0"))
    numbered = [saved(tmp_path, VENDOR, f"v2_seed{seed}.csv") for seed in (7, 3)]
    loaded = load_predictions(numbered, model="one")
    assert loaded.table["seed"].to_pylist() == [7] * 3 + [3] * 3
    assert "seed 7" in loaded.notes[0]
    assert arrays(loaded.table, seed=3).y.shape == (3, 1)
    folders = []
    for seed in (1, 2):
        (tmp_path / f"run{seed}").mkdir()
        folders.append(saved(tmp_path / f"run{seed}", VENDOR, "p.csv"))
    assert set(load_predictions(folders, model="one").table["seed"].to_pylist()) == {1, 2}
    seeded = [
        saved(tmp_path, VENDOR.replace("sex", "seed").replace("M", "4").replace("F", "4"), f"{x}.csv") for x in "cd"
    ]
    with refused(TableError, "c.csv and d.csv", got='"a"'):
        load_predictions(seeded, model="one")
    with refused(TableError, "a.csv and c.csv", got='"c"'):  # its seed is blank
        load_predictions([a, seeded[0]], model="one")
    named = VENDOR.replace("sex", "model").replace("M", "x").replace("F", "x")
    columns = [saved(tmp_path, named.replace("\nc,q,,0.4,", ""), f"{each}.csv") for each in "ef"]
    with refused(TableError, "e.csv and f.csv", got='"a"'):
        load_predictions(columns, model="model")


@pytest.mark.parametrize(
    ("paths", "seeds"),
    [
        (["x/seed_3.csv", "x/seed_14.csv"], [3, 14]),
        (["run1/v2.csv", "run2/v2.csv"], [1, 2]),
        (["a.csv", "b.csv"], [0, 1]),
        (["s1_f1.csv", "s2_f2.csv"], [0, 1]),
        (["s1.csv", "s01.csv"], [0, 1]),
        (["s1.csv", "t2.csv"], [0, 1]),
        (["s1.csv", "s99999999999999999999.csv"], [0, 1]),
    ],
)
def test_seeds_of_runs(paths: list[str], seeds: list[int]) -> None:
    assert run_seeds(paths)[0] == seeds


def test_a_run_folder_stands_for_its_predictions(tmp_path: Path) -> None:
    with refused(TableError, "predictions.parquet", got="an empty folder"):
        read_predictions(tmp_path)
    write_table(read_predictions(saved(tmp_path, VENDOR)), tmp_path / "predictions.parquet")
    assert read_predictions(tmp_path).num_rows == 3


def test_a_pretest_column_for_all_findings_is_said() -> None:
    wide = {"id": ["a"], "pid": [1], "risk": [0.2], "Edema": [1], "prob_Edema": [0.9], "Mass": [0], "prob_Mass": [0.3]}
    loaded = load_predictions(wide, pretest="risk")
    assert loaded.table["pretest"].to_pylist() == [0.2, 0.2]
    assert '"risk" is used for all 2 findings' in loaded.notes[0]


def test_weights_are_said() -> None:
    table = {"id": ["a", "b"], "pid": [1, 2], "label": [1, 0], "score": [0.1, 0.2], "Weight": [80.5, 60]}
    assert '"Weight"' in notes(table)
    assert notes({**table, "Weight": [1, 1]}) == ""


def test_only_needed_columns_of_parquet_are_read(tmp_path: Path) -> None:
    table = pa.table({"id": ["a"], "a.b": [1], "pid": ["p"], "label": [1], "score": [0.5], "image": [{"bytes": b"x"}]})
    path = write_table(table, tmp_path / "p.parquet")
    assert read_predictions(path, label="a.b")["label"].to_pylist() == [1]
    twice = pa.Table.from_arrays([*table.columns, table["id"]], names=[*table.column_names, "pid2"])
    twice = twice.rename_columns(["id", "junk", "pid", "label", "score", "junk", "pid2"])
    assert read_predictions(write_table(twice, path)).num_rows == 1


def test_groups_and_ages() -> None:
    table = {
        "id": ["a", "b"],
        "pid": [1, 2],
        "label": [1, 0],
        "score": [0.1, 0.2],
        "Gender": ["male", "F"],
        "Age": ["069Y", "old"],
    }
    loaded = load_predictions(table)
    assert loaded.table["sex"].to_pylist() == ["M", "F"]
    assert loaded.table["age"].to_pylist() == [69.0, None]
    assert "1 age could not be read (first: 'old')" in loaded.notes[0]


# --- anything at all: a table or a CxrhfError -------------------------------------------------------------------------

CELL = st.one_of(
    st.sampled_from(
        [
            "",
            "0",
            "1",
            "-1",
            "2",
            "0.5",
            "1.5",
            "nan",
            "inf",
            "-inf",
            "1e400",
            "a",
            "b",
            "p",
            "é",
            '"',
            "a,b",
            "x\ny",
            "True",
            " 1 ",
            "\x00",
            "0,5",
            "061Y",
            "20190331",
            "2019-03-31 10:00",
            "٣",
        ]
    ),
    st.text(max_size=4),
)
NAME = st.sampled_from(
    [
        "id",
        "image_id",
        "patient",
        "PatientID",
        "label",
        "score",
        "prob",
        "logit",
        "finding",
        "Edema",
        "prob_Edema",
        "score_Edema",
        "logit_Edema",
        "label_Edema",
        "Effusion",
        "prob_Pleural Effusion",
        "pretest",
        "pretest_Edema",
        "mention",
        "weight",
        "sex",
        "age",
        "seed",
        "model",
        "study_id",
        "StudyDate",
        "StudyTime",
        "time",
        "",
        "junk",
        "é",
    ]
)
QUIET = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def table_or_error(source: object, **named: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CxrhfWarning)
            table = read_predictions(source, **named)
    except CxrhfError:
        return
    assert check(table, PREDICTION).num_rows > 0
    assert table.schema.equals(PREDICTION)
    for model in set(table["model"].to_pylist()):
        rows = table.filter(pa.compute.equal(table["model"], model))
        for seed in set(rows["seed"].to_pylist()):
            if seed is not None:
                arrays(rows, seed=seed)


@QUIET
@given(
    names=st.lists(NAME, min_size=1, max_size=7),
    rows=st.lists(st.lists(CELL, min_size=7, max_size=7), max_size=5),
    quoted=st.booleans(),
)
def test_fuzz_csv(tmp_path: Path, names: list[str], rows: list[list[str]], quoted: bool) -> None:
    lines = [names, *(row[: len(names)] for row in rows)]
    quote = (lambda cell: '"' + cell.replace('"', '""') + '"') if quoted else str
    path = tmp_path / "p.csv"
    path.write_bytes("\n".join(",".join(map(quote, line)) for line in lines).encode("utf-8", "surrogatepass"))
    table_or_error(path)


@QUIET
@given(
    head=st.sampled_from([b"", b"id,label,score\n", b"id,patient,Edema,prob_Edema\r\n"]),
    body=st.binary(max_size=60),
    ending=st.sampled_from([".csv", ".csv.gz", ".tsv", ".jsonl", ".parquet", ".jsonl.gz", ".txt"]),
    zipped=st.booleans(),
)
def test_fuzz_bytes(tmp_path: Path, head: bytes, body: bytes, ending: str, zipped: bool) -> None:
    path = tmp_path / f"p{ending}"
    path.write_bytes(gzip.compress(head + body) if zipped else head + body)
    table_or_error(path)


WIDE = "image_id,patient_id,Edema,prob_Edema,pretest_Edema,Mass,score_Mass,age,sex\n" + "".join(
    f"i{at},p{at // 2},{at % 2},0.{at}1,0.5,{'' if at == 3 else 1},{at - 2}.5,6{at},F\n" for at in range(6)
)
LONG = "id,patient,finding,label,prob,weight\n" + "".join(
    f"i{at // 2},p{at // 4},{'ab'[at % 2]},{at % 3 % 2},0.{at},{at}\n" for at in range(8)
)


@QUIET
@given(
    text=st.sampled_from([VENDOR, WIDE, LONG]),
    edits=st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 6), st.one_of(CELL, st.just(","), st.just("\n"))), max_size=3
    ),
)
def test_fuzz_edits_of_good_files(tmp_path: Path, text: str, edits: list[tuple[float, int, str]]) -> None:
    for where, cut, new in edits:
        at = int(where * len(text))
        text = text[:at] + new + text[at + cut :]
    path = tmp_path / "p.csv"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    table_or_error(path)


VALUES = st.one_of(
    st.lists(st.one_of(st.none(), st.floats()), min_size=3, max_size=3),
    st.lists(st.one_of(st.none(), st.integers(-2, 2)), min_size=3, max_size=3),
    st.lists(st.one_of(st.none(), st.booleans()), min_size=3, max_size=3),
    st.lists(st.one_of(st.none(), CELL), min_size=3, max_size=3),
    st.lists(st.sampled_from([0.1, 0.5, 0.9]), min_size=3, max_size=3),
    st.sampled_from([["a", "b", "c"], [[1], [2], [3]], [{"a": 1}] * 3, [b"x", b"y", b"\xff"], [None] * 3]),
)


@QUIET
@given(
    columns=st.dictionaries(NAME, VALUES, max_size=8),
    named=st.dictionaries(
        st.sampled_from(["patient", "label", "score", "finding", "model", "pretest"]), NAME, max_size=2
    ),
)
def test_fuzz_tables(columns: dict[str, list[object]], named: dict[str, str]) -> None:
    table_or_error(columns, **named)


# --- the slow twin: the same table by plain Python --------------------------------------------------------------------

CELLS = st.tuples(st.sampled_from([1, 0, -1, None]), st.floats(0, 1), st.one_of(st.none(), st.floats(0, 1)))


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=8), wide=st.booleans())
def test_slow_twin(rows: list[list[tuple[int | None, float, float | None]]], wide: bool) -> None:
    findings = ["Edema", "Effusion", "Strange Thing"]
    expected, table = {}, []
    for at, row in enumerate(rows):
        who = {"image": f"i{at}", "patient": f"p{at // 2}", "sex": "MF"[at % 2]}
        together: dict[str, object] = dict(who)
        for finding, (label, prob, pretest) in zip(findings, row, strict=True):
            name = {"Edema": "edema", "Effusion": "pleural_effusion"}.get(finding, "strange_thing")
            expected[f"i{at}", name] = (f"p{at // 2}", None if label == -1 else label, prob, pretest, "MF"[at % 2])
            together |= {f"label_{finding}": label, f"prob_{finding}": prob, f"pretest_{finding}": pretest}
            if not wide:
                table.append({**who, "finding": finding, "label": label, "score": prob, "pretest": pretest})
        if wide:
            table.append(together)
    got = load_predictions(table).table.to_pylist()
    found = {
        (row["image_id"], row["finding"]): tuple(row[key] for key in ("patient_id", "label", "prob", "pretest", "sex"))
        for row in got
    }
    assert found == expected
    assert len(got) == len(expected)


# --- size and real data -----------------------------------------------------------------------------------------------


def test_a_wide_file_of_the_usual_size_is_quick(tmp_path: Path) -> None:
    import time

    rng = np.random.default_rng(0)
    n = 20_770
    wide: dict[str, object] = {"image_id": [f"{i:08d}" for i in range(n)], "patient_id": rng.integers(0, 9000, n)}
    for name in CHEXPERT[1:]:
        wide |= {name: rng.integers(0, 2, n), f"prob_{name}": rng.random(n)}
    path = tmp_path / "wide.csv"
    pcsv.write_csv(pa.table(wide), path)
    start = time.perf_counter()
    table = read_predictions(path)
    matrices = arrays(table)
    took = time.perf_counter() - start
    assert matrices.y.shape == (n, 13)
    np.testing.assert_array_equal(matrices.p[:, 0], wide["prob_enlarged_cardiomediastinum"])
    assert took < 5, f"{took:.2f} s; well under a second on a quiet machine"


@pytest.mark.real
def test_nih_predictions_are_understood_without_flags() -> None:
    loaded = load_predictions(real_data("nih/predictions.csv.gz"))
    reading = loaded.readings[0]
    assert (reading.form, reading.n_images, reading.n_patients) == ("wide", 6485, 1621)
    assert reading.findings == NIH
    assert reading.ignored == ("finding_labels", "has_jpeg")
    assert loaded.times is not None
    assert loaded.times.num_rows == 6485
    assert {row["image_id"]: row["time"] for row in loaded.times.to_pylist()}["00000071_003.png"] == 3
    assert loaded.notes == ()
    matrices = arrays(loaded.table)
    assert matrices.y.shape == matrices.p.shape == (6485, 14)
    assert not np.isnan(matrices.y).any()
    assert matrices.is_probability.all()
    assert set(matrices.groups) == {"sex", "view"}
    assert len(matrices.patient_ids) == 1621


def _with_ids(tmp_path: Path, name: str, patients: list[str], images: list[str] | None = None) -> Path:
    rows = zip(images or [f"i{at}" for at in range(len(patients))], patients, strict=True)
    lines = [f"{image},{patient},{at % 2},0.{at}" for at, (image, patient) in enumerate(rows)]
    path = tmp_path / name
    path.write_text("\n".join(["image_id,patient_id,label,prob", *lines]), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("written", "read", "said"),
    [
        (["12", "12.0", "13.0", "0"], ["12", "12", "13", "0"], "12.0 as 12"),
        (["p1", "p\u200b1", "\ufeffp1", " p1\u00a0"], ["p1"] * 4, "invisible characters"),
        (["\u00e9", "e\u0301"], ["\u00e9", "\u00e9"], "accented letters"),
        (["12.0", "12", "x"], ["12.0", "12", "x"], "1 patient id differs from another only in .0"),
        (["007.0", "12.0"], ["007.0", "12.0"], None),  # not what a tool makes of whole numbers
        (["1.5", "2.0"], ["1.5", "2.0"], None),
        (["A1", "a1", "B2", "b2"], ["A1", "a1", "B2", "b2"], "2 patient ids differ from another only in case"),
        (["0071", "71"], ["0071", "71"], "1 patient id differs from another only in leading zeros"),
    ],
)
def test_two_spellings_of_a_patient(tmp_path: Path, written: list[str], read: list[str], said: str | None) -> None:
    loaded = load_predictions(_with_ids(tmp_path, "p.csv", written))
    assert loaded.table["patient_id"].to_pylist() == read
    told = [note for note in loaded.notes if "patient" in note]
    assert len(told) == (said is not None)
    assert said is None or said in told[0]


def test_files_meet_however_each_writes_its_ids(tmp_path: Path) -> None:
    one = _with_ids(tmp_path, "one.csv", ["12", "13", "14"], ["1", "2", "3"])
    two = _with_ids(tmp_path, "two.csv", ["12.0", "13.0", "14\u200b"], ["1.0", "2.0", "3.0"])
    table = load_predictions([one, two]).table
    assert set(table["patient_id"].to_pylist()) == {"12", "13", "14"}
    assert set(table["image_id"].to_pylist()) == {"1", "2", "3"}


def test_long_numbers_that_pandas_made_floats_stay_ids() -> None:
    rows = {"image_id": [1, 2], "patient_id": [123456789012.0, None], "label": [0, 1], "prob": [0.1, 0.2]}
    assert load_predictions(rows).table["patient_id"].to_pylist() == ["123456789012", "image:2"]


@pytest.mark.parametrize(("column", "most"), [("image_id", 1000), ("patient_id", 1000), ("sex", 200), ("model", 500)])
def test_a_cell_of_book_length_is_an_error_that_does_not_quote_it(column: str, most: int) -> None:
    rows: dict[str, list[object]] = {"image_id": ["a", "b"], "patient_id": ["p", "q"], "label": [0, 1], "prob": [0, 1]}
    rows[column] = ["x", "y" * (most + 1)]
    with refused(TableError, f'"{column}", row 2', f"{most + 1:,}", f"{most:,}") as refusal:
        load_predictions(rows)
    assert len(str(refusal.error)) < 300
    rows[column] = ["x", "y" * most]
    assert load_predictions(rows).table.num_rows == 2


def test_a_column_name_of_book_length_is_an_error() -> None:
    with refused(TableError, "column 2", got="605", fix="first line"):
        load_predictions({"label": [0, 1], "prob_" + "x" * 600: [0.1, 0.2]})
