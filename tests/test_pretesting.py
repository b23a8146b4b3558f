"""Context runs on a made-up hospital: what is planted in the notes comes out, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from cxrhf import cli
from cxrhf.context import fit as fitting
from cxrhf.context.material import Material
from cxrhf.context.run import ContextRun, fit_context, load_context, read_build
from cxrhf.context.settings import ContextFitConfig
from cxrhf.errors import ConfigError, RunError, TableError
from cxrhf.metrics import adaptive_calibration_error, auroc, bootstrap, calibration_line, draw, expected_ace
from cxrhf.tables.files import read_table, write_table
from cxrhf.twin import layout_ids
from cxrhf.twin.models import predictions
from cxrhf.twin.people import people
from tests.pretest_twin import FINDINGS, Twin, make_twin, permuted, planted, planted_words
from tests.refusals import refused

SEED = 11


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Twin:
    return make_twin(tmp_path_factory.mktemp("twin"), 3000, SEED)


@pytest.fixture(scope="module")
def material(twin: Twin) -> Material:
    return read_build(twin.built, FINDINGS)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Material:
    """Edema in a smaller hospital, for what holds in any: who plays a part in a fit, what is said and kept."""
    return read_build(make_twin(tmp_path_factory.mktemp("small"), 800, SEED).built, ("cardiomegaly", "edema"))


@pytest.fixture(scope="module")
def run(twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> ContextRun:
    return fit_context(
        twin.built, out=tmp_path_factory.mktemp("run") / "context", features=["words"], findings=list(FINDINGS),
        n_resamples=300, workers=1,
    )  # fmt: skip


def probability(run: ContextRun, material: Material, finding: str) -> np.ndarray:
    rows = run.predictions.filter(pc.equal(run.predictions["finding"], finding))
    at = pc.index_in(material.images["image_id"], value_set=rows["image_id"].combine_chunks()).to_numpy()
    return rows["prob"].to_numpy()[at]


def labels(material: Material, finding: str) -> np.ndarray:
    return material.y[:, material.findings.index(finding)]


def test_rows_of_every_image_with_notes_in_every_split(run, material):
    rows = run.predictions
    assert set(rows["model"].to_pylist()) == {"context"}
    assert rows.num_rows == int(material.noted.sum()) * len(FINDINGS)
    assert set(rows["split"].to_pylist()) == {"train", "validate", "test"}
    assert rows["prob"].null_count == rows["mention"].null_count == 0
    assert pc.min(rows["prob"]).as_py() > 0
    assert pc.max(rows["prob"]).as_py() < 1
    assert rows["pretest"].null_count == rows.num_rows


@pytest.mark.parametrize("finding", FINDINGS)
def test_recovers_what_the_notes_tell(run, twin, material, finding):
    """The notes tell the level of C, so P(y | level) is all that can be had: found within what 1,270 patients allow."""
    p, truth, y = probability(run, material, finding), planted(twin, material, finding), labels(material, finding)
    assert np.mean((p - truth.best) ** 2) < 0.5 * np.var(truth.best)  # more of it is found than missed
    assert np.abs(p - truth.best).mean() < 0.05
    # A calibrated estimate of the planted probability: on average it is what it says, wherever it is, as exactly as
    # labels of these patients can tell a slope. On 15 other twins it scatters by .04 to .08, and so do resamples.
    train = material.split("train")
    draws = draw(material.patients[train], n_resamples=300, seed=1)
    spread = np.nanstd(bootstrap("calibration_slope", y[train], p[train], draws=draws))
    assert abs(np.polyfit(p, truth.best, 1)[0] - 1) < 3 * spread + 0.05
    means = [p[truth.level == level].mean() for level in range(6)]
    assert (np.diff(means[:5]) > 0).all()  # the rarest level has few patients
    assert auroc(y, p) > auroc(y, truth.best) - 0.02


@pytest.mark.parametrize("finding", FINDINGS)
@pytest.mark.parametrize("split", ["train", "held out"])
def test_is_calibrated(run, material, finding, split):
    p, y = probability(run, material, finding), labels(material, finding)
    rows = material.split("train") == (split == "train")
    patients = material.patients[rows]
    draws = draw(patients, n_resamples=300, seed=1)
    spread = np.nanstd(bootstrap("calibration_slope", y[rows], p[rows], draws=draws))
    assert abs(calibration_line(y[rows], p[rows]).slope - 1) < 3 * spread + 0.05
    # Images of a patient share what the notes do not tell, so the null is that of resampled patients.
    reached = adaptive_calibration_error(y[rows], p[rows])
    null = np.nanstd(bootstrap("adaptive_calibration_error", y[rows], p[rows], draws=draws))
    assert reached < expected_ace(p[rows], seed=1) + 4 * null


@pytest.mark.parametrize("finding", FINDINGS)
def test_top_words_are_the_planted_ones(run, finding):
    words = run.choices["findings"][finding]["families"]["words"]["features"][:10]
    assert sum(each["word"] in planted_words(finding) for each in words) >= 8
    assert run.choices["findings"][finding]["families"]["words"]["signed"]


@pytest.mark.parametrize("finding", FINDINGS)
def test_auroc_lies_in_the_interval_of_the_planted_optimum(run, twin, material, finding):
    p, truth, y = probability(run, material, finding), planted(twin, material, finding), labels(material, finding)
    for rows in (material.split("test"), material.split("train")):
        draws = draw(material.patients[rows], n_resamples=500, seed=3)
        low, high = np.quantile(bootstrap("auroc", y[rows], truth.best[rows], draws=draws), [0.025, 0.975])
        assert low < auroc(y[rows], p[rows]) < high
    row = next(
        each
        for each in run.results.to_pylist()
        if each["metric"] == "auroc" and each["finding"] == finding and each["model"] == "context"
    )
    assert row["audit"] == "pretest"
    # A 95% interval misses one time in twenty, one and a half times as wide one in three hundred.
    assert abs(row["value"] - truth.text["auroc"]) < 1.5 * (row["ci_high"] - row["ci_low"]) / 2


def test_mentions_are_the_planted_ones(run, twin, material):
    for finding in FINDINGS:
        rows = run.predictions.filter(pc.equal(run.predictions["finding"], finding))
        at = pc.index_in(material.images["image_id"], value_set=rows["image_id"].combine_chunks()).to_numpy()
        assert (np.array(rows["mention"].to_pylist())[at] == (planted(twin, material, finding).level >= 3)).all()


@pytest.mark.slow
def test_permuted_labels_find_nothing(material):
    some = FINDINGS[:2]
    mixed = permuted(replace(material, findings=some, y=material.y[:, : len(some)]), 5)
    found = fitting.fit_context(mixed, ContextFitConfig("-", features=("words",), workers=1))
    assert found is not None
    for at, finding in enumerate(some):
        rows = found.predictions.filter(pc.equal(found.predictions["finding"], finding))
        p, y = rows["prob"].to_numpy(), rows["label"].to_numpy()
        people = rows["patient_id"].combine_chunks().dictionary_encode().indices.to_numpy()
        train = np.asarray(pc.equal(rows["split"], "train"))
        # Folds learn from each other's patients: in training chance is wider than resamples say, by a fifth to a third.
        for some, times in ((train, 5), (~train, 3.5)):
            draws = draw(people[some], n_resamples=200, seed=0)
            spread = np.std(bootstrap("auroc", y[some], p[some], draws=draws))
            assert abs(auroc(y[some], p[some]) - 0.5) <= times * spread
            if times == 5:
                assert found.choices["findings"][finding]["families"]["words"]["cv_auroc"] - 0.5 < times * spread
        assert np.std(p) < 0.25 * np.std(mixed.y[:, at])


def test_no_label_of_the_test_split_plays_a_part(small):
    """Other labels of the test images: the same models, the same choice, the same probabilities."""
    config = ContextFitConfig("-", features=("words",), findings=("edema",), workers=1)
    some = replace(small, findings=("edema",), y=small.y[:, [1]])
    flipped = some.y.copy()
    test = some.split("test")
    flipped[test] = 1 - flipped[test]
    one, other = (fitting.fit_context(each, config) for each in (some, replace(some, y=flipped)))
    assert one is not None
    assert other is not None
    assert one.predictions["prob"].equals(other.predictions["prob"])
    assert _without_seconds(one) == _without_seconds(other)


def _without_seconds(found):
    families = json.loads(json.dumps(found.choices["findings"]["edema"]["families"]))
    for each in families.values():
        for tried in each["tried"]:
            del tried["seconds"]
    return families


def test_a_stopped_fit_goes_on(small, tmp_path, monkeypatch):
    config = ContextFitConfig("-", features=("words",), findings=("edema",), workers=1)
    some = replace(small, findings=("edema",), y=small.y[:, [1]])
    first = fitting.fit_context(some, config, checkpoint=tmp_path, inputs="a")
    monkeypatch.setattr("cxrhf.context.sweep.sweep_candidates", lambda *_, **__: pytest.fail("fitted again"))
    again = fitting.fit_context(some, config, checkpoint=tmp_path, inputs="a")
    assert first is not None
    assert again is not None
    assert first.scored.equals(again.scored)
    with pytest.raises(pytest.fail.Exception):  # other data: nothing of it may be used
        fitting.fit_context(some, config, checkpoint=tmp_path, inputs="b")


def test_the_run_keeps_no_note(run, twin):
    """Ids and texts of notes are in local/ alone; words that five patients share are in the models."""
    notes = read_table(next((twin.built / "notes").glob("*.parquet")))
    ids = [each.encode() for each in notes["note_id"].to_pylist()[:50]]
    piece = notes["text"][0].as_py()[20:60].encode()
    for path in run.path.rglob("*"):
        if path.is_file() and path.parent.name != "local":
            held = path.read_bytes()
            assert piece not in held, path
            assert not any(each in held for each in ids), path
    assert (run.path / "local").stat().st_mode & 0o077 == 0


def test_saved_models_say_the_same(run, twin, material):
    """The models read from disk give the test images what the run says; images of the fit keep the run's numbers."""
    from cxrhf.context.predict import predict_context

    fresh = predict_context(run.models(), material)
    for split in ("validate", "test"):
        wanted = run.predictions.filter(pc.equal(run.predictions["split"], split))
        got = fresh.filter(pc.equal(fresh["split"], split))
        assert np.abs(wanted["prob"].to_numpy() - got["prob"].to_numpy()).max() < 1e-12
    train = fresh.filter(pc.equal(fresh["split"], "train"))["prob"].to_numpy()
    own = run.predictions.filter(pc.equal(run.predictions["split"], "train"))["prob"].to_numpy()
    assert np.abs(train - own).max() > 0.01  # in-sample: never handed out
    kept = run.predict(twin.built)
    assert kept.table.sort_by([("image_id", "ascending"), ("finding", "ascending")])["prob"].equals(
        run.predictions.sort_by([("image_id", "ascending"), ("finding", "ascending")])["prob"]
    )
    assert "belong to the fit" in kept.notes[0]


def test_other_hospital(run, tmp_path):
    other = make_twin(tmp_path, 400, 77)
    found = run.predict(other.built)
    edema = found.table.filter(pc.equal(found.table["finding"], "edema"))
    assert edema.num_rows > 500
    assert auroc(edema["label"].to_numpy(), edema["prob"].to_numpy()) > 0.75


def image_model(twin: Twin) -> object:
    made = people(3000, SEED)
    return predictions(made, ids=layout_ids("mimic", made, SEED)).drop_columns(["pretest", "mention"])


def test_command_line_from_fit_to_audit(run, twin, tmp_path, capsys):
    """explain, predict --onto and audit --context on the run; the page and the file name what they have."""
    file = write_table(image_model(twin), tmp_path / "model.parquet")
    assert cli.main(["context", "explain", str(run.path), "--top", "5", "--findings", "edema"]) == 0
    said = capsys.readouterr().out
    assert "Edema" in said
    assert any(word in said for word in planted_words("edema"))
    assert cli.main(["context", "predict", str(run.path), "--onto", str(file)]) == 0
    joined = read_table(Path(capsys.readouterr().out.strip().splitlines()[-1]))
    assert joined.num_rows == read_table(file).num_rows
    edema = joined.filter(pc.equal(joined["finding"], "edema"))
    assert 0 < edema["pretest"].null_count < edema.num_rows  # images without prior notes
    assert cli.main(["context", "predict", str(run.path), "--onto", str(file)]) == 2  # there already
    assert "--overwrite" in capsys.readouterr().err
    out = tmp_path / "audited"
    words = ["--out", str(out), "--findings", "edema", "--only", "reweighted", "--n-resamples", "100"]
    assert cli.main(["audit", str(file), "--context", str(run.path), *words]) == 0
    results = read_table(out / "results.parquet").to_pylist()
    value = {row["metric"]: row["value"] for row in results if row["slice"] == "all" and not row["versus"]}
    assert value["auroc_att"] < value["auroc"] - 0.1  # edema's score is mostly chart
    assert load_context(run.path).choices == run.choices


def test_bad_input(run, twin, tmp_path, capsys):
    with refused(RunError, "context.json", fix="cxrhf context fit"):
        load_context(tmp_path)
    with refused(ConfigError, '"edemaa"', fix="'edema'"):
        read_build(twin.built, ("edemaa",))
    with pytest.raises(ConfigError, match="boosted"):
        ContextFitConfig("-", features=("wrds",))
    assert cli.main(["context", "ft"]) == 2
    assert "'fit'" in capsys.readouterr().err
    assert cli.main(["context", "predict", str(run.path)]) == 2
    assert "--onto" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert cli.main(["context", "fit", str(tmp_path / "empty"), "--features", "words"]) == 2
    assert "build.json" in capsys.readouterr().err


def test_a_finding_with_three_positives_is_left_out_and_the_others_are_not(small):
    y = small.y.copy()
    y[:, 0] = 0
    few = np.flatnonzero(small.split("train"))[:3]
    y[few, 0] = 1
    some = replace(small, findings=("cardiomegaly", "edema"), y=y[:, :2])
    config = ContextFitConfig("-", features=("words",), workers=1)
    found = fitting.fit_context(some, config)
    assert found is not None
    assert "are required" in found.choices["findings"]["cardiomegaly"]["reason"]
    rows = found.predictions
    assert set(rows.filter(pc.is_valid(rows["prob"]))["finding"].to_pylist()) == {"edema"}
    assert rows.filter(pc.equal(rows["finding"], "cardiomegaly"))["mention"].null_count == 0  # known all the same
    assert any("cardiomegaly: no pre-test probability" in each for each in found.notes)
    with refused(TableError, "no finding can be fitted", fix="--min-patients"):
        fitting.fit_context(replace(some, findings=("cardiomegaly",), y=y[:, :1]), config)


def test_pooled_choice_cross_fits_validation_images_too(small):
    config = ContextFitConfig("-", features=("words",), findings=("edema",), choose="pooled", workers=1)
    some = replace(small, findings=("edema",), y=small.y[:, [1]])
    found = fitting.fit_context(some, config)
    assert found is not None
    assert found.choices["splits"]["learned"] == ["train", "validate"]
    assert found.choices["findings"]["edema"]["families"]["words"]["validation_auroc"] is None


@pytest.mark.slow
def test_images_without_notes_as_a_stratum(tmp_path):
    twin = make_twin(tmp_path, 900, 5, keep_without_notes=True)
    some = read_build(twin.built, ("edema",))
    assert not some.noted.all()
    left_out = fitting.fit_context(some, ContextFitConfig("-", features=("words",), workers=1))
    kept = fitting.fit_context(some, ContextFitConfig("-", features=("words",), no_note="stratum", workers=1))
    assert left_out is not None
    assert kept is not None
    assert left_out.predictions.num_rows == int(some.noted.sum())
    assert kept.predictions.num_rows == len(some.noted)
    assert left_out.choices["without_notes"]["images"] == int((~some.noted).sum())
    alone = kept.predictions.filter(
        pc.is_in(kept.predictions["image_id"], value_set=some.images["image_id"].filter(~some.noted))
    )
    train = ~some.noted & some.split("train")
    assert alone["prob"].to_numpy().mean() == pytest.approx(some.y[train, 0].mean(), abs=0.02)
    assert not any(alone["mention"].to_pylist())
    assert kept.bundle.without_notes["edema"] == pytest.approx(some.y[train, 0].mean(), abs=0.005)
