"""`cxrhf audit` with vectors, attributes and pictures beside the predictions: tables, page, sheets, who is shown."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from cxrhf import cli
from cxrhf.audits import features
from cxrhf.audits.representations import EMPTY
from cxrhf.schema import IMAGE
from cxrhf.tables.files import read_table, write_table
from cxrhf.twin.models import attributes, embeddings, predictions
from cxrhf.twin.people import people

PATIENTS = 500
FLAGS = ["--n-resamples", "40", "--findings", "atelectasis,cardiomegaly"]


def pictures(ids: list[str]) -> pa.Array:
    """A small grey picture for each image, as builds store them."""
    made = []
    for k in range(len(ids)):
        out = io.BytesIO()
        Image.new("L", (40, 48), k % 256).save(out, "JPEG")
        made.append({"bytes": out.getvalue(), "path": None})
    return pa.array(made, IMAGE.field("image").type)


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The twin as tables: predictions and vectors of a simulated model, and a build with pictures that show nothing."""
    folder = tmp_path_factory.mktemp("twin")
    made = people(PATIENTS, 1)
    table = predictions(made, dataset="synthetic")
    write_table(table, folder / "predictions.parquet")
    write_table(embeddings(made), folder / "vectors.parquet")
    build = folder / "data"
    (build / "images").mkdir(parents=True)
    record = {"dataset": "synthetic", "credentialed": False, "labels": "zeros", "findings": ["atelectasis"]}
    (build / "build.json").write_text(json.dumps(record))
    write_table(attributes(made), build / "attributes.parquet")
    ids = table["image_id"].unique().to_pylist()
    shard = pa.table({"image": pictures(ids), "image_id": ids})
    pq.write_table(shard, build / "images" / "test-00000-of-00001.parquet")
    return folder


@pytest.fixture(scope="module")
def run(twin: Path) -> Path:
    folder = twin / "run"
    flags = ["--embeddings", str(twin / "vectors.parquet"), "--pictures", str(twin / "data"), "--out", str(folder)]
    flags += ["--only", "encoding,features,slices,shortcut"]
    assert cli.main(["audit", str(twin / "predictions.parquet"), *flags, *FLAGS]) == 0
    return folder


def rows_of(run: Path) -> list[dict[str, Any]]:
    return read_table(run / "results.parquet").to_pylist()


def test_all_four_audits_are_on_the_page_and_in_the_tables(run: Path) -> None:
    audits = {row["audit"] for row in rows_of(run)}
    assert {"encoding", "features", "slices", "shortcut"} <= audits
    for name in ("points", "slices", "gallery", "attributes", "embeddings"):
        assert (run / f"{name}.parquet").is_file(), name
    page = (run / "report.html").read_text()
    for place in ("encoding", "m0-features", "m0-slices", "m0-shortcut"):
        assert f'id="{place}"' in page
    for name in ("encoding", "features", "slices", "shortcut"):
        assert (run / "figures" / f"{name}.png").is_file(), name


def test_the_gallery_is_small_pictures_of_the_ends(run: Path) -> None:
    rows = read_table(run / "gallery.parquet").to_pylist()
    assert {row["role"] for row in rows} == {"worst", "best"}
    assert all(row["thumbnail"].startswith(b"\xff\xd8") and len(row["thumbnail"]) < 6000 for row in rows)
    members = {(row["image_id"], row["slice"]) for row in read_table(run / "slices.parquet").to_pylist()}
    assert all((row["image_id"], row["slice"]) in members for row in rows)


@pytest.mark.slow
def test_a_filled_sheet_comes_back_with_prevalence_and_odds(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = next(iter(sorted((run / "labelling").glob("*cardiomegaly*negative.csv"))))
    slices = {
        row["image_id"]: row["slice"]
        for row in read_table(run / "slices.parquet").to_pylist()
        if row["finding"] == "cardiomegaly"
    }
    worst = next(
        row["slice"]
        for row in rows_of(run)
        if row["metric"] == "worst" and row["finding"] == "cardiomegaly" and ":negative:" in row["slice"]
    )
    with path.open(newline="") as file:
        lines = list(csv.reader(file))
    lines[0][-1] = "ecg cables"
    for line in lines[1:]:  # as somebody would who sees cables in the worst slice only
        line[-1] = "yes" if slices[line[0]] == worst else "0"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(lines)
    again = ["audit", str(run), "--annotations", str(path), "--only", "slices", *FLAGS]
    assert cli.main(again) == 0
    assert "ecg_cables" in capsys.readouterr().out
    ratios = [
        row
        for row in rows_of(run)
        if row["metric"] == "odds_ratio"
        and row["slice"] == f"{worst} & ecg_cables=1"
        and row["finding"] == "cardiomegaly"
    ]
    (row,) = ratios
    assert row["ci_low"] > 5
    shares = {row["metric"]: row["value"] for row in rows_of(run) if row["slice"] == f"{worst} & ecg_cables=1"}
    assert shares["prevalence"] == 1
    assert shares["prevalence_rest"] == 0
    assert "ecg cables" in path.read_text()  # the sheet is still the user's

    before = (run / "results.parquet").read_bytes()
    lines[7][-1] = "perhaps"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(lines)
    assert cli.main(again) == 2
    said = capsys.readouterr().err
    assert all(fact in said for fact in (path.name, "ecg cables", "line 8", "perhaps"))
    assert lines[7][0] not in said
    assert (run / "results.parquet").read_bytes() == before  # nothing was touched


def test_credentialed_data_show_nobody(
    twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "neighbour_map", lambda modes, *_: modes.scores[:, :2])  # t-SNE takes seconds
    table = read_table(twin / "predictions.parquet")
    named = pa.repeat(pa.scalar("mimic_cxr_context"), len(table))
    closed = table.set_column(table.schema.get_field_index("dataset"), "dataset", named)
    write_table(closed, tmp_path / "closed.parquet")
    flags = ["--embeddings", str(twin / "vectors.parquet"), "--only", "features,slices", *FLAGS[:2]]
    flags += ["--findings", "cardiomegaly"]
    assert cli.main(["audit", str(tmp_path / "closed.parquet"), *flags, "--out", str(tmp_path / "run")]) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    ids = set(read_table(tmp_path / "run" / "points.parquet")["image_id"].to_pylist())
    assert not [each for each in ids if each in page]
    assert not (tmp_path / "run" / "gallery.parquet").exists()
    capsys.readouterr()
    shown = ["audit", str(tmp_path / "closed.parquet"), *flags, "--out", str(tmp_path / "other"), "--may-show"]
    assert cli.main(shown) == 2
    assert "credentialed" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_vectors_and_attributes_that_cannot_be_read(
    twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*flags: str) -> str:
        assert cli.main(["audit", str(twin / "predictions.parquet"), *flags, "--out", str(tmp_path / "r")]) == 2
        return capsys.readouterr().err

    table = read_table(twin / "vectors.parquet")
    write_table(
        table.slice(0, 40).append_column("note", pa.repeat("x", 40)).drop_columns(["vector"]), tmp_path / "v.parquet"
    )
    assert "vector" in said("--embeddings", str(tmp_path / "v.parquet"))
    vectors = table["vector"].to_pylist()
    vectors[3] = [float("nan")] * len(vectors[3])
    bad = table.set_column(table.schema.get_field_index("vector"), "vector", pa.array(vectors, pa.list_(pa.float32())))
    write_table(bad, tmp_path / "v.parquet")
    assert "not finite" in said("--embeddings", str(tmp_path / "v.parquet"))
    (tmp_path / "a.csv").write_text("image_id,drain\nnobody,1\n")
    assert "a.csv" in said("--attributes", str(tmp_path / "a.csv"))
    assert "nothing.parquet" in said("--embeddings", str(tmp_path / "nothing.parquet"))
    assert "mixtur" in said("--embeddings", str(twin / "vectors.parquet"), "--slice-methods", "mixtur")
    assert "cxrhf probe" in said("--probes", str(tmp_path))


def test_from_python_it_is_the_same(twin: Path, run: Path) -> None:
    import cxrhf

    found = cxrhf.audit(
        str(twin / "predictions.parquet"), embeddings=str(twin / "vectors.parquet"), attributes=str(twin / "data"),
        only="encoding", findings="cardiomegaly", n_resamples=40,
    )  # fmt: skip
    value = found.value("split_auroc", "sex=F", audit="encoding", model="ideal")
    assert 0.6 < value < 1
    assert np.isfinite(value)
    assert 'id="encoding"' in found.html()


def test_blank_sheets_are_named_after_what_they_are_of(run: Path) -> None:
    names = sorted(path.name for path in (run / "labelling").glob("*.csv"))
    assert all(name.startswith("ideal-") and name.endswith(("positive.csv", "negative.csv")) for name in names)
    heads = {name: (run / "labelling" / name).read_text().splitlines()[0] for name in names if "atelectasis" in name}
    assert heads
    assert set(heads.values()) == {f"image_id,finding,label,{EMPTY}"}
