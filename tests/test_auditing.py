"""`cxrhf.audit`: tables of every kind in, results that display themselves out, the same numbers as the command line."""

from __future__ import annotations

import io
import pickle
import re
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import cxrhf
from cxrhf import cli
from cxrhf.audits.run import progress_line
from cxrhf.errors import ConfigError, TableError
from cxrhf.metrics import auroc
from cxrhf.schema import RESULT
from cxrhf.tables.files import read_table
from cxrhf.twin.planted import context
from tests.refusals import refused

FEW = {"n_resamples": 50}


@pytest.fixture(scope="module")
def columns() -> dict[str, np.ndarray]:
    made = context(600, images_per_patient=(1, 3), seed=5)
    rng = np.random.default_rng(0)
    return {
        "file": np.array([f"secret-{at}" for at in range(600)]),
        "who": np.array([f"person-{each}" for each in made.patient]),
        "truth": made.y,
        "ai": made.prob,
        "risk": made.pretest,
        "sex": rng.choice(["F", "M"], 600),
    }


NAMED = {"image": "file", "patient": "who", "label": "truth", "score": "ai", "pretest": "risk"}


@pytest.mark.parametrize("kind", ["dict", "arrow", "pandas", "rows", "file"])
def test_tables_of_every_kind(columns: dict[str, np.ndarray], kind: str, tmp_path: Path) -> None:
    table: object = columns
    if kind == "arrow":
        table = pa.table(columns)
    elif kind == "pandas":
        table = pd.DataFrame(columns)
    elif kind == "rows":
        table = pd.DataFrame(columns).to_dict("records")
    elif kind == "file":
        table = tmp_path / "f.csv"
        pd.DataFrame(columns).to_csv(table, index=False)
    found = cxrhf.audit(table, **NAMED, **FEW, only="overview")
    assert found.value("auroc", audit="overview", finding="finding") == pytest.approx(
        auroc(columns["truth"], columns["ai"])
    )
    assert found.results.schema.names == RESULT.names


def test_results_display_themselves(columns: dict[str, np.ndarray]) -> None:
    found = cxrhf.audit(columns, **NAMED, **FEW)
    text, html = repr(found), found._repr_html_()
    assert "auroc_att" in text
    assert "95% intervals" in text
    assert "<svg" in html or "data:image/svg+xml" in html
    assert "<script" not in html
    assert "secret-" not in html + found.html()
    assert "person-" not in html + found.html()
    assert found.to_pandas().shape[0] == found.results.num_rows
    assert found.curves.num_rows > 0


def test_the_same_numbers_as_the_command_line(columns: dict[str, np.ndarray], tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    flags = [word for role, name in NAMED.items() for word in (f"--{role}", name)]
    assert cli.main(["audit", str(path), *flags, "--n-resamples", "50", "--out", str(tmp_path / "run")]) == 0
    found = cxrhf.audit(pd.read_csv(path), **NAMED, **FEW)
    assert found.results.equals(read_table(tmp_path / "run" / "results.parquet", RESULT))


def test_save_writes_a_run(columns: dict[str, np.ndarray], tmp_path: Path) -> None:
    found = cxrhf.audit(columns, **NAMED, **FEW)
    page = found.save(tmp_path / "run")
    assert page.read_text().startswith("<!doctype html>")
    assert (tmp_path / "run" / "predictions.parquet").is_file()
    assert (tmp_path / "run" / "run.json").is_file()
    assert found.save(tmp_path / "run") == page  # the same input: the same run
    assert cli.main(["report", str(tmp_path / "run")]) == 0


def test_one_number_at_a_time(columns: dict[str, np.ndarray]) -> None:
    found = cxrhf.audit(columns, **NAMED, **FEW, only="overview,reweighted")
    with refused(TableError, "auroc_drop", got="rows", fix="versus="):
        found.value("auroc_drop")
    drop = found.value("auroc_drop", finding="finding", versus="auroc_att")
    assert drop == pytest.approx(found.value("auroc", audit="overview") - found.value("auroc_att"))


def test_bad_options_are_named(columns: dict[str, np.ndarray]) -> None:
    with refused(ConfigError, "resamples"):
        cxrhf.audit(columns, resamples=10)
    with refused(ConfigError, "only", "context", got="contxt"):
        cxrhf.audit(columns, only="contxt", **NAMED)
    with refused(TableError, "ia"):
        cxrhf.audit(columns, score="ia", label="truth")
    with refused(ConfigError, "baseline", got="other"):
        cxrhf.audit(columns, **NAMED, **FEW, baseline="other")


def test_pretest_from_columns(columns: dict[str, np.ndarray]) -> None:
    rng = np.random.default_rng(1)
    more = columns | {"age": 50 + 15 * columns["truth"] + rng.normal(0, 10, 600)}
    named = {role: name for role, name in NAMED.items() if role != "pretest"}
    found = cxrhf.audit(more, **named, pretest="from:age,sex", **FEW, only="reweighted")
    assert found.value("auroc_context", finding="finding") > 0.75
    with pytest.raises((TableError, ConfigError), match="view"):
        cxrhf.audit(more, **named, pretest="from:age,view", **FEW)


def test_a_misspelt_number_is_asked_back() -> None:
    rows = {"id": range(40), "label": [0, 1] * 20, "score": [k % 7 / 7 for k in range(40)]}
    found = cxrhf.audit(rows, patient="id", n_resamples=20, only="overview")
    with refused(TableError, "aurok", got="0 rows", fix="auroc"):
        found.value("aurok")
    with refused(ConfigError, "slise", "slice", fix="slice"):
        found.value("auroc", slise="all")


def test_lines_of_progress_of_several_threads_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[str] = []

    class Slow(io.StringIO):
        def write(self, text: str) -> int:
            writes.append(text)
            time.sleep(0.001)  # as a pipe may: others come between two writes
            return len(text)

    monkeypatch.setattr("sys.stderr", Slow())
    shows = [progress_line() for _ in range(4)]
    threads = [threading.Thread(target=lambda show=show: [show("a line") for _ in range(10)]) for show in shows]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    lines = "".join(writes).splitlines()
    assert len(lines) == 40
    assert all(re.fullmatch(r"\[ *[\d.]+ s\] a line", line) for line in lines)


def _two() -> dict[str, pd.DataFrame]:
    made = {}
    for name, seed in (("ours", 1), ("theirs", 2)):
        rng = np.random.default_rng(seed)
        label = np.arange(60) % 3 == 0
        score = np.clip(rng.normal(0.3 + 0.3 * label, 0.2), 0, 1)
        made[name] = pd.DataFrame({"image": range(60), "patient": range(60), "label": label * 1, "score": score})
    return made


QUICK = {"n_resamples": 20, "only": "overview", "workers": 1}


@pytest.mark.parametrize("kind", ["dict", "frames", "columns", "files", "mixed", "rows", "named files"])
def test_several_models_as_a_dictionary_or_a_list(kind: str, tmp_path: Path) -> None:
    tables = _two()
    paths = [str(tmp_path / f"{name}.csv") for name in tables]
    for path, table in zip(paths, tables.values(), strict=True):
        table.to_csv(path, index=False)
    ours, theirs = tables.values()
    given, names = {
        "dict": (tables, ["ours", "theirs"]),
        "frames": ([ours, theirs], ["table 1", "table 2"]),
        "columns": ({"ours": ours.to_dict("list"), "theirs": pa.table(theirs)}, ["ours", "theirs"]),
        "files": (paths, ["ours", "theirs"]),
        "mixed": ([paths[0], theirs], ["ours", "table 2"]),
        "rows": ([ours.to_dict("records"), theirs.to_dict("records")], ["table 1", "table 2"]),
        "named files": ({"a": paths[0], "b": Path(paths[1])}, ["a", "b"]),
    }[kind]
    found = cxrhf.audit(given, **QUICK)
    for name, table in zip(names, tables.values(), strict=True):
        expected = auroc(table["label"].to_numpy(), table["score"].to_numpy())
        assert found.value("auroc", finding="finding", model=name) == pytest.approx(expected)


def test_models_of_the_same_name_get_those_of_the_dictionary() -> None:
    tables = {name: table.assign(model="network") for name, table in _two().items()}
    found = cxrhf.audit(tables, **QUICK)
    assert set(found.results["model"].to_pylist()) == {"ours", "theirs"}
    with refused(TableError, "table 1", "table 2"):
        cxrhf.audit(list(tables.values()), **QUICK)
    runs = cxrhf.audit([table.drop(columns="model") for table in tables.values()], model="network", **QUICK)
    assert set(runs.results["model"].to_pylist()) >= {"network (seed 1)", "network (seed 2)"}


def test_reports_of_several_models() -> None:
    table = pd.DataFrame({"image": range(20), "patient": range(20), "reference": ["the heart is big today"] * 20})
    given = {"a": table.assign(generated="the heart is large"), "b": table.assign(generated="no heart seen")}
    found = cxrhf.audit(given, n_resamples=20, only="reports")
    assert {"a", "b"} <= set(found.results["model"].to_pylist())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda y, t: (y, y), "got 2 unnamed arguments"),
        (lambda y, t: (y,), "values without columns"),
        (lambda y, t: ([y, y],), "item 1: expected"),
        (lambda y, t: ([1, 2],), "got int"),
        (lambda y, t: ({"a": t, "b": [1, 2]},), 'model "a", entry "b"'),
        (lambda y, t: ({1: t},), "got 1"),
        (lambda y, t: ({},), "score column"),
        (lambda y, t: ([],), "predictions"),
        (lambda y, t: ({"a": t, "b": t.drop(columns="score")},), "b: "),
        (lambda y, t: ({"a": t, "b": "nowhere.csv"},), "nowhere.csv"),
    ],
)
def test_what_is_no_table_is_said(given: object, said: str) -> None:
    table = _two()["ours"]
    with pytest.raises((ConfigError, TableError)) as error:
        cxrhf.audit(*given(table["label"].to_numpy(), table), **QUICK)  # type: ignore[operator]
    assert said in str(error.value)


def test_python_speaks_of_arguments() -> None:
    table = _two()["ours"]
    with refused(TableError, fix='score="COLUMN"'):
        cxrhf.audit(table.drop(columns="score"))
    with refused(ConfigError, got='pretest="from:sex" and context="runs/x"'):
        cxrhf.audit(table, pretest="from:sex", context="runs/x")
    found = cxrhf.audit(table.drop(columns="patient"), **QUICK)
    assert any('patient="COLUMN"' in note for note in found.notes)
    assert not any("--" in note for note in found.notes)


def test_what_is_a_module_is_always_one() -> None:
    assert cxrhf.calibrate.__name__ == "cxrhf.learn"
    assert pickle.loads(pickle.dumps(cxrhf.audit)) is cxrhf.audit
    with pytest.raises(AttributeError, match="`cxrhf zeroshot`"):
        _ = cxrhf.zeroshot
