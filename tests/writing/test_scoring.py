"""`cxrhf score` as a whole: rows, empties, several encoders, the cache, plug-ins, and what goes wrong."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from cxrhf.cli import main
from cxrhf.encode import encode_texts
from cxrhf.encode.bertscore import bertscore
from cxrhf.encode.settings import EncodeConfig
from cxrhf.errors import ConfigError, CxrhfError
from cxrhf.models import scoring as plugins
from cxrhf.models.report_settings import ScoreConfig
from cxrhf.models.scoring import score_run
from cxrhf.run import fingerprint_settings, open_run, read_run, record_of
from cxrhf.schema import GENERATION
from cxrhf.tables.checks import check
from tests.encode.tiny import notes, plain, save_tiny
from tests.refusals import refused

PLUGIN = """
def words(references, generated):
    assert len(set(zip(references, generated))) == len(references)
    return [len(set(r.split()) & set(g.split())) if g.strip() else None for r, g in zip(references, generated)]

def short(references, generated):
    return [1.0]

def rude(references, generated):
    raise ValueError(references[0])

def texts(references, generated):
    return generated

constant = 3
"""


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny("bert", tmp_path_factory.mktemp("models") / "tiny_bert"))


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder and a cache of its own, and a module of scores that Python finds."""
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXRHF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "own_scores.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.delitem(sys.modules, "own_scores", raising=False)
    return tmp_path


def reports(n: int = 6, **changed: list[str]) -> pa.Table:
    """n images, greedy decoding that has collapsed, and sampling; the last two are empty in different places."""
    references = [*notes(n - 1, longest=8), ""]
    generated = {"greedy": ["no pleural effusion"] * n, "rich": [*notes(n, seed=1, longest=8)]}
    generated["rich"][0] = " \n"
    columns = {"image_id": [], "patient_id": [], "model": [], "strategy": [], "reference": [], "generated": []}
    for strategy, texts in generated.items():
        for at in range(n):
            row = (f"i{at}", f"p{at // 2}", "vlm", strategy, references[at], texts[at])
            for name, value in zip(columns, row, strict=True):
                columns[name].append(value)
    return check(pa.table(columns | changed), GENERATION)


def make_run(folder: Path, table: pa.Table | None = None) -> Path:
    run = open_run(folder, verb="generate", config={"seed": 3}, inputs=[fingerprint_settings("reports")])
    run.add("generations", reports() if table is None else table)
    run.finish()
    return folder


def rows(folder: Path, **wanted: str) -> list[dict[str, Any]]:
    found = read_run(folder).table("scores").to_pylist()
    return [row for row in found if all(row[key] == value for key, value in wanted.items())]


def test_from_the_command_line(bert: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(Path("runs/words"))
    assert main(["score", "runs/words", "--encoder", bert]) == 0
    told = capsys.readouterr().out
    assert "\nnext: cxrhf audit runs/words\nruns/words\n" in told
    assert any("1 generated reports are empty" in line for line in told.splitlines())
    assert any("2 of 12 references are empty" in line for line in told.splitlines())
    assert any("2 reports or references without words" in line for line in told.splitlines())

    table = reports()
    expected = bertscore(
        table["reference"].to_pylist(), table["generated"].to_pylist(), EncodeConfig(bert), cache="off"
    )
    for part in ("f1", "precision", "recall"):
        found = rows(folder, metric=f"bertscore_{part}", encoder="tiny_bert")
        assert [(row["image_id"], row["strategy"]) for row in found] == [
            (f"i{at}", strategy) for strategy in ("greedy", "rich") for at in range(6)
        ]
        values = np.array([np.nan if row["value"] is None else row["value"] for row in found])
        np.testing.assert_allclose(values, getattr(expected, part), atol=1e-5)
    assert [row["value"] for row in found][5::6] == [None, None]
    assert [row["value"] for row in found][6] == 0.0
    mean = np.nanmean(expected.f1[:6])
    assert f"vlm, greedy: bertscore_f1 {mean:.4f}, bertscore_precision" in told

    vectors = read_run(folder).table("report_vectors")
    keys = list(zip(*(vectors[name].to_pylist() for name in ("image_id", "model", "strategy")), strict=True))
    assert len(set(keys)) == len(keys) == 12 - 1 + 6 - 1
    assert keys[-1] == ("i4", "", "reference")  # i5 has none
    assert ("i0", "vlm", "rich") not in keys
    last = encode_texts([table["reference"][4].as_py()], EncodeConfig(bert), cache="off")[0]
    np.testing.assert_allclose(vectors["vector"][-1].as_py(), last, atol=1e-6)
    assert set(vectors["encoder"].to_pylist()) == {"tiny_bert"}


def test_the_run_remembers_how_it_was_made_and_no_path_of_this_machine(bert: str) -> None:
    folder = make_run(Path("runs/words"))
    before = json.loads((folder / "run.json").read_text())
    score_run(ScoreConfig(str(folder), encoder=f"mine={bert}", metrics=("bertscore",)), lambda line: None)
    record = json.loads((folder / "run.json").read_text())
    assert record["verb"] == "score"
    assert record_of(folder, "generate")["config"] == {"seed": 3}
    assert record["inputs"] == before["inputs"]
    assert record["tables"] == {"generations": 12, "scores": 36}
    assert record["config"]["encoder"] == "mine=tiny_bert"
    assert record["encoder"]["name"] == "mine"
    assert len(record["encoder"]["model_hash"]) == 64
    text = (folder / "run.json").read_text()
    assert str(Path(bert).parent) not in text
    assert not (folder / "report_vectors.parquet").exists()
    assert {row["encoder"] for row in rows(folder)} == {"mine"}


def test_encoders_add_up_and_the_same_one_is_replaced(bert: str) -> None:
    folder = make_run(Path("runs/words"))
    score_run(ScoreConfig(str(folder), encoder=bert), lambda line: None)
    score_run(ScoreConfig(str(folder), encoder=bert, metrics=("bertscore",), layer=1, idf=True), lambda line: None)
    score_run(ScoreConfig(str(folder), encoder=f"other={bert}"), lambda line: None)
    names = ["tiny_bert", "tiny_bert, layer 1, idf", "other"]
    assert list(dict.fromkeys(row["encoder"] for row in rows(folder))) == names
    run = read_run(folder)
    assert set(run.table("report_vectors")["encoder"].to_pylist()) == {"tiny_bert", "other"}
    # Fewer reports now: nothing of the old ones stays with this encoder.
    run.add("generations", reports().slice(0, 6))
    score_run(ScoreConfig(str(folder), encoder=bert), lambda line: None)
    assert len(rows(folder, encoder="tiny_bert")) == 18
    assert len(rows(folder, encoder="other")) == 36
    vectors = read_run(folder).table("report_vectors")["encoder"].to_pylist()
    assert (vectors.count("tiny_bert"), vectors.count("other")) == (11, 16)


def test_a_second_run_needs_no_weights(bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from cxrhf.encode import bertscore as matching
    from cxrhf.encode import notes as encoding

    first, second = make_run(Path("runs/one")), make_run(Path("runs/two"))
    config = ScoreConfig(str(first), encoder=bert)
    score_run(config, lambda line: None)

    def never(encoder: Any) -> Any:
        raise AssertionError("the weights were loaded")

    monkeypatch.setattr(matching, "load_model", never)
    monkeypatch.setattr(encoding, "load_model", never)
    score_run(ScoreConfig(str(second), encoder=bert), lambda line: None)
    assert rows(second) == rows(first)
    one, two = (read_run(folder).table("report_vectors") for folder in (first, second))
    assert one.equals(two)
    with pytest.raises(AssertionError):
        score_run(ScoreConfig(str(second), encoder=bert, cache="off"), lambda line: None)


def test_real_weights_tell_a_paraphrase_from_something_else() -> None:
    reference = "The lungs are clear. No pleural effusion."
    texts = [reference, "Clear lungs without effusion.", "Status post sternotomy with pacemaker leads."]
    n = [str(at) for at in range(3)]
    table = pa.table({"image_id": n, "patient_id": n, "model": ["m"] * 3, "strategy": ["s"] * 3,
                      "reference": [reference] * 3, "generated": texts})  # fmt: skip
    folder = make_run(Path("runs/real"), table)
    score_run(ScoreConfig(str(folder), dtype="float32"), lambda line: None)
    same, close, other = (row["value"] for row in rows(folder, metric="bertscore_f1", encoder="minilm"))
    assert same == pytest.approx(1, abs=1e-6)
    assert 1 > close > other + 0.1
    vectors = np.stack(read_run(folder).table("report_vectors")["vector"].to_pylist())
    assert vectors.shape == (6, 384)
    assert vectors[0] @ vectors[3] > vectors[1] @ vectors[3] > vectors[2] @ vectors[3]


def test_a_plug_in_of_ones_own(bert: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(Path("runs/words"))
    assert main(["score", str(folder), "--metrics", "own_scores:words"]) == 0
    table = reports()
    found = rows(folder)
    assert {(row["metric"], row["encoder"]) for row in found} == {("words", "own_scores:words")}
    for row, reference, made in zip(found, table["reference"].to_pylist(), table["generated"].to_pylist(), strict=True):
        shared = len(set(reference.split()) & set(made.split()))
        assert row["value"] == (shared if reference and made.strip() else None)
    assert "own_scores:words returned no score for 1 pairs" in capsys.readouterr().out
    assert not (folder / "report_vectors.parquet").exists()
    # Beside an encoder; rows of earlier calls stay.
    score_run(ScoreConfig(str(folder), metrics=("bertscore", "own_scores:words"), encoder=bert), lambda line: None)
    assert len(rows(folder)) == 12 + 36


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own_scores:short", "own_scores:short: expected .*got 1 values for 10 pairs"),
        ("own_scores:texts", "own_scores:texts: .*not a number"),
        ("own_scores:constant", "own_scores has no function constant"),
        ("own_scores:nothing", "own_scores has no function nothing"),
        ("no_such_module:f1", "cannot be imported .*PYTHONPATH=FOLDER"),
    ],
)
def test_plug_ins_that_do_not_work(name: str, said: str) -> None:
    folder = make_run(Path("runs/words"))
    with pytest.raises(CxrhfError, match=said):
        score_run(ScoreConfig(str(folder), metrics=(name,)), lambda line: None)
    assert not (folder / "scores.parquet").exists()
    assert read_run(folder).record["verb"] == "generate"


def test_an_error_of_a_plug_in_does_not_quote_reports(capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(Path("runs/words"))
    assert main(["score", str(folder), "--metrics", "own_scores:rude"]) == 2
    said = capsys.readouterr().err
    assert "the plug-in own_scores:rude failed with ValueError on 10 pairs of reports" in said
    assert reports()["reference"][0].as_py() not in said


@pytest.mark.parametrize("name", ["ratescore", "radgraph"])
def test_packages_that_are_not_here(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = {"ratescore": "RaTEScore", "radgraph": "radgraph"}[name]
    monkeypatch.setitem(sys.modules, package, None)  # whether it is installed or not
    folder = make_run(Path("runs/words"))
    with pytest.raises(CxrhfError, match=f"package {package}, .*pip install {package}"):
        score_run(ScoreConfig(str(folder), metrics=(name,)), lambda line: None)


def test_ratescore_is_asked_pair_by_pair_on_local_weights(bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in with the package's interface: its models cannot be had here."""
    asked: list[tuple[str, str]] = []

    class Stand:
        def __init__(self, bert_model: str, eval_model: str, batch_size: int, use_gpu: bool) -> None:
            assert bert_model == eval_model == bert
            assert not use_gpu

        def compute_score(self, candidate_list: list[str], reference_list: list[str]) -> list[float]:
            asked.extend(zip(candidate_list, reference_list, strict=True))
            if "lung" in candidate_list[0]:  # what it does with a report in which it finds no sentence
                raise IndexError
            return [0.25]

    stand, utils = types.ModuleType("RaTEScore"), types.ModuleType("RaTEScore.utils")
    stand.RaTEScore = Stand  # type: ignore[attr-defined]
    utils.sentence_split = lambda texts: ([text for text in texts if "lung" not in text], [])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "RaTEScore", stand)
    monkeypatch.setitem(sys.modules, "RaTEScore.utils", utils)
    folder = make_run(Path("runs/words"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with refused(CxrhfError, "ratescore", "Angelakeke/RaTE-NER-Deberta", fix="hf download"):
        score_run(ScoreConfig(str(folder), metrics=("ratescore",), device="cpu"), lambda line: None)
    monkeypatch.setattr(plugins, "_weights", lambda hub_id, name: Path(bert))
    config = ScoreConfig(str(folder), metrics=("ratescore",), device="cpu")
    score_run(config, lambda line: None)
    table = reports()
    texts = list(zip(table["generated"].to_pylist(), table["reference"].to_pylist(), strict=True))
    assert sorted(asked) == sorted({each for each in texts if all(map(str.strip, each))})
    expected = [None if not r else 0.0 if not g.strip() else None if "lung" in g else 0.25 for g, r in texts]
    assert [row["value"] for row in rows(folder, metric="ratescore", encoder="RaTEScore")] == expected
    # What has a number is kept; what has none is asked for again.
    asked.clear()
    score_run(config, lambda line: None)
    assert asked
    assert all("lung" in made for made, _ in asked)


def test_chexbert_from_the_command_line(bert: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(Path("runs/words"))
    model = plain(Path(bert))[0]
    torch.save({"model_state_dict": {f"module.bert.{k}": v for k, v in model.state_dict().items()}}, "weights.pth")
    assert main(["score", str(folder), "--encoder", "chexbert=weights.pth"]) == 2
    said = capsys.readouterr().err
    assert "bert-base-uncased" in said
    assert "--tokenizer FOLDER" in said
    for cache in ("kept", "off"):
        assert (
            main(["score", str(folder), "--encoder", "chexbert=weights.pth", "--tokenizer", bert, "--cache", cache])
            == 0
        )
    assert main(["score", str(folder), "--encoder", bert]) == 0
    ours = [row["value"] for row in rows(folder, encoder="chexbert")]
    np.testing.assert_allclose(
        np.array(ours, dtype=float), np.array([row["value"] for row in rows(folder, encoder="tiny_bert")], dtype=float),
        atol=1e-5,
    )  # fmt: skip
    assert main(["score", str(folder), "--encoder", f"chexbert={bert}"]) == 0  # a folder in transformers format
    assert len(rows(folder, encoder="chexbert")) == 36


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["runs/nowhere"], "cxrhf generate MODEL --build BUILD"),
        (["runs/words", "--encoder", "chexbert"], "chexbert"),
        (["runs/words", "--encoder", "chexbert=gone.pth"], "gone.pth"),
        (["runs/words", "--encoder", "no/such-model"], "no/such-model"),
        (["runs/words", "--encoder", "./no such"], "./no such"),
        (["runs/words", "--metrics", "bertscor"], "bertscore, semantic"),
        (["runs/words", "--metrics", ","], "metrics"),
        (["runs/words", "--layer", "-1"], "layer"),
        (["runs/words", "--layer", "7", "--metrics", "bertscore"], "to 6 (the last layer"),
    ],
)  # fmt: skip
def test_what_goes_wrong(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cxrhf.encode import download

    monkeypatch.setattr(download, "reachable", lambda address: False)
    make_run(Path("runs/words"))
    assert main(["score", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_runs_without_reports(capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(Path("runs/words"), reports().slice(0, 0))
    assert main(["score", str(folder)]) == 2
    assert "generations.parquet has no rows" in capsys.readouterr().err
    (folder / "generations.parquet").unlink()
    assert main(["score", str(folder)]) == 2
    said = capsys.readouterr().err
    assert "runs/words has no generations.parquet" in said
    assert "cxrhf generate MODEL" in said


@pytest.mark.slow
def test_unicode_and_long_reports(bert: str) -> None:
    table = reports(3, reference=["Épanchement 胸水 🫁"] * 6, generated=["left lung " * 25_000, "🫁", "胸水"] * 2)
    folder = make_run(Path("runs/words"), table)
    score_run(ScoreConfig(str(folder), encoder=bert), lambda line: None)
    assert all(-1 <= row["value"] <= 1 for row in rows(folder))
    assert read_run(folder).table("report_vectors").num_rows == 6 + 3


def test_settings() -> None:
    assert ScoreConfig("run", encoder="chexbert=a=b.pth").named() == ("chexbert", "a=b.pth")
    assert ScoreConfig("run", encoder="org/model").named() == (None, "org/model")
    assert ScoreConfig("run", metrics=("semantic,semantic", "a.b:c")).metrics == ("semantic", "a.b:c")
    with pytest.raises(ConfigError, match="device"):
        ScoreConfig("run", device="gpu")
