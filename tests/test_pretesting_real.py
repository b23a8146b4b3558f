"""Context models on real text: IU indications, and the notes of the COVID set from the raw table to the audit."""

from __future__ import annotations

import csv
import gzip
import re
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cxrhf import cli
from cxrhf.context.fit import fit_context
from cxrhf.context.material import Material, material
from cxrhf.context.run import load_context, read_build
from cxrhf.context.settings import ContextFitConfig
from cxrhf.data.load import load_notes
from cxrhf.metrics import auroc, bootstrap, draw
from tests.real_data import real_data

pytestmark = pytest.mark.real
# Headings of the index, and what a chart may know of them.
HEADINGS = {"cardiomegaly": "cardiomegaly", "pleural_effusion": "pleural effusion", "opacity": "opacity",
            "devices": "catheters, indwelling"}  # fmt: skip


def indications() -> Material:
    """Why the film was asked for -> what the report's index says: text that was there before the image."""
    with gzip.open(real_data("iu/reports.csv.gz"), "rt", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["indication"].strip()]
    terms = [{part.split("/")[0].strip().lower() for part in re.split(r"[;|]", row["mesh_major"])} for row in rows]
    names, n = [f"r{row['uid']}" for row in rows], len(rows)
    rng = np.random.default_rng(0)
    split = rng.permutation(["train" if k % 10 < 7 else "validate" if k % 10 < 8 else "test" for k in range(n)])
    images = pa.table(
        {
            "image_id": names, "study_id": names, "patient_id": names, "dataset": ["iu"] * n, "split": split.tolist(),
            "study_time": pa.array([datetime(2000, 1, 2)] * n, pa.timestamp("us")),
            "prior_note_ids": pa.array([[f"note of {name}"] for name in names]),
            **{key: pa.array([int(term in each) for each in terms], pa.int8()) for key, term in HEADINGS.items()},
        }
    )  # fmt: skip
    notes = pa.table(
        {
            "note_id": [f"note of {name}" for name in names], "patient_id": names,
            "available_at": pa.array([datetime(2000, 1, 1)] * n, pa.timestamp("us")), "kind": ["indication"] * n,
            "text": [row["indication"] for row in rows],
        }
    )  # fmt: skip
    return material(images, notes, list(HEADINGS))


@pytest.mark.slow
def test_indications_beat_chance():
    """Every report is a patient of its own here; identical indications of two patients are two notes."""
    found = fit_context(indications(), ContextFitConfig("-", features=("words",), workers=1))
    assert found is not None
    above = 0
    for finding in HEADINGS:
        rows = found.predictions.filter(pc.equal(found.predictions["finding"], finding))
        y, p = rows["label"].to_numpy(), rows["prob"].to_numpy()
        people = rows["patient_id"].combine_chunks().dictionary_encode().indices.to_numpy()
        low = np.quantile(bootstrap("auroc", y, p, draws=draw(people, n_resamples=300, seed=0)), 0.005)
        above += low > 0.5
        assert auroc(y, p) > 0.5
    assert above >= 3


@pytest.mark.slow
def test_covid_runs_from_the_table_to_the_audit(tmp_path, capsys):
    """57 images have a prior note that does not name the diagnosis: it runs, says so, and claims nothing."""
    root = str(real_data("covid/metadata.csv").parent)
    build, run = tmp_path / "covid", tmp_path / "context"
    assert cli.main(["build", "covid_chestxray", "--root", root, "--out", str(build), "--no-pixels"]) == 0
    words = ["--features", "words", "--out", str(run), "--n-resamples", "50", "--workers", "1"]
    assert cli.main(["context", "fit", str(build), *words]) == 0
    said = capsys.readouterr().out
    assert "to try, not to quote" in said
    assert "do not quote these numbers" in said
    fitted = load_context(run)
    assert {name for name, each in fitted.choices["findings"].items() if each["chosen"]} == {
        "viral_pneumonia", "covid_19",
    }  # fmt: skip
    assert cli.main(["context", "explain", str(run)]) == 0
    texts = " ".join(load_notes(build)["text"].to_pylist()).lower()
    assert "covid" not in texts  # notes that name the label were left out by the build


def test_covid_with_notes_that_name_the_label_has_more_images(tmp_path):
    root = str(real_data("covid/metadata.csv").parent)
    for name, more in (("without", []), ("with", ["--keep-label-notes"])):
        words = ["build", "covid_chestxray", "--root", root, "--out", str(tmp_path / name), "--no-pixels", *more]
        assert cli.main(words) == 0
    assert int(read_build(tmp_path / "with").noted.sum()) > int(read_build(tmp_path / "without").noted.sum())
