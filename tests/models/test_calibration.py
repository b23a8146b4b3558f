"""Image models are calibrated on validation: planted distortions are undone, nothing leaks, files keep every bit."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy.special import expit, log_softmax, softmax

from cxrhf.errors import ConfigError, CxrhfError, CxrhfWarning, TableError
from cxrhf.metrics import auroc
from cxrhf.models.calibration import (
    apply_calibration,
    calibration_lines,
    fit_calibration,
    read_calibration,
    write_calibration,
)
from cxrhf.schema import PREDICTION
from cxrhf.tables.checks import check
from tests.refusals import refused

SHA = "a" * 64
N = 4000


def made(finding: str, given, label, split: str = "validate", **more) -> pa.Table:
    """Rows of one finding, two images a patient; NaN labels are masked."""
    n = len(given)
    ids = [f"{split}{at}" for at in range(n)]
    columns = {
        "image_id": ids,
        "patient_id": [f"{split}{at // 2}" for at in range(n)],
        "dataset": ["made"] * n,
        "split": [split] * n,
        "model": ["m"] * n,
        "seed": [0] * n,
        "finding": [finding] * n,
        "label": pa.array(np.asarray(label, dtype=float), from_pandas=True).cast(pa.int8()),
        "prob": expit(given),
        "logit": given,
    }
    return check(pa.table(columns | more), PREDICTION)


def truth(seed: int, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """Log odds, and labels drawn from them."""
    rng = np.random.default_rng(seed)
    odds = 1.5 * rng.standard_normal(n) - 1
    return odds, (rng.random(n) < expit(odds)).astype(float)


def distorted(bend, **more) -> pa.Table:
    """Validation and test rows of a model whose log odds are `bend` of the true ones."""
    (odds, y), (fresh, labels) = truth(0), truth(1)
    return pa.concat_tables([made("edema", bend(odds), y, **more), made("edema", bend(fresh), labels, "test", **more)])


def characteristics(seed: int, times: float = 2.5, n: int = N, split: str = "validate", logs: bool = True) -> pa.Table:
    """Rows of a task of three classes whose outputs are `times` too large."""
    rng = np.random.default_rng(seed)
    odds = 1.5 * rng.standard_normal((n, 3)) - np.arange(3)
    drawn = np.argmax(odds + rng.gumbel(size=(n, 3)), axis=1)
    outputs = log_softmax(times * odds, axis=1) if logs else times * odds
    parts = [
        made(f"race={name}", outputs[:, k], drawn == k, split, prob=softmax(times * odds, axis=1)[:, k])
        for k, name in enumerate(("White", "Black", "Asian"))
    ]
    return pa.concat_tables(parts)


def of(rows: pa.Table, split: str) -> tuple[np.ndarray, np.ndarray]:
    chosen = rows.filter(pc.equal(rows["split"], split))
    return chosen["label"].to_numpy(), chosen["prob"].to_numpy()


@pytest.mark.parametrize("method", ["temperature", "platt", "isotonic"])
@pytest.mark.parametrize(
    ("bend", "slope_before"),
    [(lambda odds: 2.5 * odds, 0.4), (lambda odds: odds, 1.0), (lambda odds: 0.5 * odds, 2.0)],
    ids=["too bold", "null", "too shy"],
)
def test_planted_sharpness(method, bend, slope_before):
    rows = distorted(bend)
    calibration = fit_calibration(rows, method)
    after = apply_calibration(rows, calibration)
    fitted = calibration.fitted["edema"]
    if method != "isotonic":
        assert float(fitted.calibrator.x[0]) == pytest.approx(slope_before, rel=0.06)
        assert float(fitted.calibrator.y[0]) == pytest.approx(0, abs=0.12)
    (line,) = calibration_lines(rows, after)
    assert line["split"] == "test"
    assert line["slope_before"] == pytest.approx(slope_before, rel=0.08)
    assert line["slope_after"] == pytest.approx(1, abs=0.12)
    assert line["ace_after"] < 2.5 * line["ace_null_after"]
    if slope_before != 1:
        assert line["ace_after"] < line["ace_before"]
        assert line["ece_after"] < line["ece_before"]
    assert line["brier_after"] < line["brier_before"] + (0.001 if slope_before == 1 else 0)
    assert (line["n"], fitted.n, fitted.n_patients) == (N, N, N // 2)
    assert fitted.n_pos == int(np.nansum(of(rows, "validate")[0]))
    assert (calibration.dataset, calibration.split, calibration.notes) == ("made", "validate", {})


def test_planted_slope_and_shift():
    rows = distorted(lambda odds: (odds + 0.8) / 0.6)
    calibration = fit_calibration(rows, "platt")
    assert float(calibration.fitted["edema"].calibrator.x[0]) == pytest.approx(0.6, rel=0.08)
    assert float(calibration.fitted["edema"].calibrator.y[0]) == pytest.approx(-0.8, abs=0.12)
    y, p = of(apply_calibration(rows, calibration), "test")
    assert p.mean() == pytest.approx(y.mean(), abs=0.02)
    y, p = of(apply_calibration(rows, fit_calibration(rows, "temperature")), "test")
    assert p.mean() > y.mean() + 0.05  # no temperature moves the mean


def test_planted_bend():
    rows = distorted(lambda odds: np.sign(odds + 1) * (odds + 1) ** 2)
    odds = truth(1)[0]
    off = {}
    for method in ("platt", "isotonic"):
        p = of(apply_calibration(rows, fit_calibration(rows, method)), "test")[1]
        off[method] = np.abs(p - expit(odds)).mean()
    assert off["isotonic"] < 0.02
    assert off["isotonic"] < 0.5 * off["platt"]


def test_ranking():
    rows = distorted(lambda odds: 2 * odds + 0.3)
    for method in ("temperature", "platt", "isotonic"):
        after = apply_calibration(rows, fit_calibration(rows, method))
        for split in ("validate", "test"):
            y, p = of(after, split)
            logit = rows.filter(pc.equal(rows["split"], split))["logit"].to_numpy()
            if method == "isotonic":  # ties, but no two images change places
                assert (np.diff(p[np.argsort(logit)]) >= 0).all()
                assert auroc(y, p) == pytest.approx(auroc(y, logit), abs=0.003)
            else:
                assert auroc(y, p) == auroc(y, logit)


def test_only_prob_changes_and_twice_is_once():
    rows = distorted(lambda odds: 2.5 * odds)
    calibration = fit_calibration(rows, "platt")
    after = apply_calibration(rows, calibration)
    assert after.drop_columns(["prob"]).equals(rows.drop_columns(["prob"]))
    assert after.schema.equals(rows.schema)
    assert apply_calibration(after, calibration).equals(after)
    assert same(fit_calibration(after, "platt"), calibration)


def same(first, second) -> bool:
    """Equal bit for bit."""
    kept = ("method", "split", "dataset", "model", "seed", "notes")
    if any(getattr(first, name) != getattr(second, name) for name in kept) or set(first.fitted) != set(second.fitted):
        return False
    return all(
        (one.n, one.n_pos, one.n_patients, one.classes) == (two.n, two.n_pos, two.n_patients, two.classes)
        and one.calibrator.method == two.calibrator.method
        and one.calibrator.x.tobytes() == two.calibrator.x.tobytes()
        and one.calibrator.y.tobytes() == two.calibrator.y.tobytes()
        for one, two in ((first.fitted[name], second.fitted[name]) for name in first.fitted)
    )


@pytest.mark.parametrize("method", ["temperature", "platt", "isotonic"])
def test_masked_and_test_rows_have_no_influence(method):
    odds, y = truth(2, 900)
    y[::3] = np.nan
    other, wild = odds.copy(), np.random.default_rng(0).standard_normal(300) * 50
    other[::3] = wild
    first = made("edema", odds, y)
    calibration = fit_calibration(first, method)
    assert calibration.fitted["edema"].n == 600
    assert same(fit_calibration(made("edema", other, y), method), calibration)
    test = made("edema", -5 * truth(3, 500)[0], truth(3, 500)[1], "test")
    assert same(fit_calibration(pa.concat_tables([test, first]), method), calibration)
    known = first.filter(pc.is_valid(first["label"]))
    assert same(fit_calibration(known, method), calibration)
    weightless = pa.concat_tables([first, made("edema", wild, wild > 0, weight=np.zeros(300))])
    assert same(fit_calibration(weightless, method), calibration)
    shuffled = first.take(np.random.default_rng(1).permutation(900))
    back, there = (fit_calibration(each, method).fitted["edema"].calibrator for each in (shuffled, first))
    assert back.x == pytest.approx(there.x, rel=1e-9)
    assert back.y == pytest.approx(there.y, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("method", ["temperature", "platt", "isotonic"])
def test_a_weight_of_two_is_a_row_twice(method):
    odds, y = truth(4, 600)
    times = np.random.default_rng(0).integers(0, 4, 600)
    twice = np.repeat(np.arange(600), times)
    one = fit_calibration(made("edema", odds, y, weight=times.astype(float)), method).fitted["edema"].calibrator
    two = fit_calibration(made("edema", odds[twice], y[twice]), method).fitted["edema"].calibrator
    assert one.x == pytest.approx(two.x, rel=1e-6)
    assert one.y == pytest.approx(two.y, rel=1e-6, abs=1e-7)


def test_patients_are_counted_not_images():
    odds, y = truth(5, 400)
    few = np.where(y == 1, "one", "p") + np.where(y == 1, "", np.arange(400).astype(str)).astype(object)
    rows = made("edema", odds, y, patient_id=pa.array(few))  # all images with the finding are of one patient
    calibration = fit_calibration(rows, "platt")
    assert not calibration.fitted
    assert f"1 patients with and {int((y == 0).sum())} without" in calibration.notes["edema"]
    assert "at least 10" in calibration.notes["edema"]
    assert fit_calibration(rows, "platt", min_positives=1).fitted["edema"].n == 400


def test_what_is_not_calibrated_stays_raw_and_is_said():
    odds, y = truth(6, 300)
    backwards = made("hernia", -3 * odds, y)
    rows = pa.concat_tables(
        [
            made("edema", odds, y),
            made("fracture", odds, np.zeros(300)),
            made("mass", odds, np.full(300, np.nan)),
            backwards,
            made("nodule", odds, y, logit=pa.nulls(300, pa.float64())),
        ]
    )
    calibration = fit_calibration(rows, "temperature")
    assert list(calibration.fitted) == ["edema"]
    assert set(calibration.notes) == {"fracture", "hernia", "mass", "nodule"}
    assert "0 patients with" in calibration.notes["fracture"]
    assert "platt" in calibration.notes["hernia"]
    assert calibration.notes["nodule"].endswith("(300 more rows have a label but no logit)")
    strange = pa.concat_tables([rows, made("lung_lesion", odds, y)])
    with pytest.warns(CxrhfWarning) as said:
        after = apply_calibration(strange, calibration)
    told = [str(each.message) for each in said]
    assert len(told) == 5
    assert told[0].startswith("fracture: 300 probabilities are not calibrated (0 patients")
    assert any("lung_lesion: 300" in each for each in told)
    changed = pc.not_equal(after["prob"], strange["prob"])
    assert set(strange.filter(changed)["finding"].to_pylist()) == {"edema"}
    some = made("edema", odds, y, logit=pa.array([None, *odds[1:]]))
    with pytest.warns(CxrhfWarning, match=r"^edema: 1 probabilities are not calibrated \(rows without a logit\)$"):
        assert apply_calibration(some, calibration)["prob"][0] == some["prob"][0]


def test_a_temperature_that_is_not_enough_is_told():
    rng = np.random.default_rng(0)
    y = rng.random(800) < 0.1
    rows = made("edema", np.where(y, 2.0, 0.0) + 0.5 * rng.standard_normal(800) + 0.1, y)
    assert "prevalence" in fit_calibration(rows, "temperature").notes["edema, fit"]
    assert not fit_calibration(rows, "platt").notes


@pytest.mark.parametrize("split", ["test", "Test", " testing"])
def test_never_on_the_test_split(split):
    odds, y = truth(0, 100)
    for rows in (made("edema", odds, y, split), made("edema", odds, y)):
        with refused(ConfigError, "--split", got=split, fix="validate"):
            fit_calibration(rows, "platt", split=split)


def test_refusals():
    odds, y = truth(0, 100)
    rows = made("edema", odds, y)
    with refused(ConfigError, got="isotonc", fix="did you mean 'isotonic'"):
        fit_calibration(rows, "isotonc")
    with refused(ConfigError, fix="did you mean 'validate'"):
        fit_calibration(rows, "platt", split="valid")
    two = pa.concat_tables([rows, made("edema", odds, y, seed=[1] * 100)])
    with refused(ConfigError, "2 seeds", fix="seed"):
        fit_calibration(two, "platt")
    calibration = fit_calibration(rows, "platt")
    with refused(ConfigError, "2 seeds"):
        apply_calibration(two, calibration)
    for other in ({"seed": [1] * 100}, {"model": ["other"] * 100}):
        with refused(ConfigError, "another model"):
            apply_calibration(made("edema", odds, y, **other), calibration)
    with refused(TableError, fix="apply_calibration"):
        calibration_lines(rows, rows.slice(1))
    train = made("edema", odds, y, "train")
    assert "too extreme" in fit_calibration(train, "platt", split="train").notes["split train"]
    assert apply_calibration(rows.slice(0, 0), calibration).num_rows == 0


@pytest.mark.parametrize("logs", [True, False])
@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_a_softmax_has_one_temperature(method, logs):
    rows = pa.concat_tables([characteristics(0, logs=logs), characteristics(1, split="test", logs=logs)])
    rows = rows.take(np.random.default_rng(0).permutation(rows.num_rows))
    calibration = fit_calibration(rows, method)
    fitted = calibration.fitted["race"]
    assert set(calibration.fitted) == {"race"}
    assert 1 / float(fitted.calibrator.x[0]) == pytest.approx(2.5, rel=0.06)
    assert (fitted.classes, fitted.n, fitted.n_pos, fitted.n_patients) == (
        ("Asian", "Black", "White"), N, None, N // 2,
    )  # fmt: skip
    after = apply_calibration(rows, calibration)
    summed = after.group_by("image_id").aggregate([("prob", "sum")])["prob_sum"].to_numpy()
    assert summed == pytest.approx(1, abs=1e-8)
    for line in calibration_lines(rows, after):
        assert line["slope_before"] == pytest.approx(0.4, abs=0.1)
        assert line["slope_after"] == pytest.approx(1, abs=0.12)
        assert line["brier_after"] < line["brier_before"]


def test_softmax_rows_that_are_masked_or_missing():
    rows = characteristics(0, n=300)
    calibration = fit_calibration(rows, "temperature")
    label = np.array(rows["label"].to_numpy(), dtype=float)
    label[[5, 310]] = np.nan  # of two images, one class each
    place = rows.column_names.index("label")
    masked = rows.set_column(place, rows.schema.field(place), pa.array(label, from_pandas=True).cast(pa.int8()))
    assert fit_calibration(masked, "temperature").fitted["race"].n == 298
    with refused(TableError, "race", fix="together"):
        apply_calibration(rows.slice(1), calibration)
    with refused(TableError, "race", "classes"):
        apply_calibration(rows.slice(300), calibration)
    with refused(TableError, "race", "same image and class"):
        fit_calibration(pa.concat_tables([rows, rows.slice(0, 1)]), "temperature")
    uneven = rows.set_column(rows.column_names.index("weight"), "weight", pa.array(np.arange(900.0)))
    with refused(TableError, "race", "weights"):
        fit_calibration(uneven, "temperature")
    alone = fit_calibration(rows.slice(0, 300), "temperature")
    assert "two classes" in alone.notes["race"]
    assert not alone.fitted


def everything() -> pa.Table:
    odds, y = truth(7, 500)
    parts = [made("edema", odds, y), made("mass", odds * 3, y), made("hernia", odds, np.zeros(500))]
    return pa.concat_tables([*parts, characteristics(2, n=500)])


@pytest.mark.parametrize("method", ["temperature", "platt", "isotonic"])
def test_files_keep_every_bit(tmp_path, method):
    rows = everything()
    calibration = fit_calibration(rows, method)
    path = write_calibration(tmp_path, calibration, fingerprint=SHA)
    assert path == tmp_path / "calibration.json"
    back = read_calibration(tmp_path, fingerprint=SHA)
    assert same(back, calibration)
    assert back.fingerprint == SHA
    assert path.read_bytes() == write_calibration(tmp_path, back, fingerprint=SHA).read_bytes()
    assert [each.name for each in tmp_path.iterdir()] == ["calibration.json"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CxrhfWarning)
        assert apply_calibration(rows, back).equals(apply_calibration(rows, calibration))
    kept = json.loads(path.read_text())
    assert kept["format"] == 1
    assert set(kept["fitted"]) == {"edema", "mass", "race"}
    assert set(kept["notes"]) == {"hernia"}


def test_a_calibration_belongs_to_its_weights(tmp_path):
    calibration = fit_calibration(everything(), "platt")
    assert read_calibration(tmp_path) is None
    with refused(CxrhfError, "model.safetensors"):
        write_calibration(tmp_path, calibration)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    write_calibration(tmp_path, replace(calibration, fingerprint="older"))
    assert same(read_calibration(tmp_path), calibration)
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    with refused(CxrhfError, "calibration.json", got="sha256", fix="cxrhf calibrate"):
        read_calibration(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda kept: kept | {"format": 2}, "newer cxrhf"),
        (lambda kept: kept | {"format": "1"}, "damaged"),
        (lambda kept: kept | {"method": "magic"}, "damaged"),
        (lambda kept: kept | {"method": 3}, "damaged"),
        (lambda kept: kept | {"fingerprint": None}, "damaged"),
        (lambda kept: kept | {"seed": "0"}, "damaged"),
        (lambda kept: kept | {"fitted": []}, "damaged"),
        (lambda kept: [kept], "damaged"),
        (lambda kept: {}, "damaged"),
        (lambda kept: kept | {"fitted": {"edema": kept["fitted"]["edema"] | {"x": [float("nan")]}}}, "damaged"),
        (lambda kept: kept | {"fitted": {"edema": kept["fitted"]["edema"] | {"x": [-1.0]}}}, "damaged"),
        (lambda kept: kept | {"fitted": {"edema": kept["fitted"]["edema"] | {"y": [0.0, 1.0]}}}, "damaged"),
        (lambda kept: kept | {"fitted": {"edema": kept["fitted"]["edema"] | {"n": "many"}}}, "damaged"),
        (lambda kept: kept | {"fitted": {"edema": {}}}, "damaged"),
    ],
)
def test_damaged_files_are_refused(tmp_path, change, said):
    path = write_calibration(tmp_path, fit_calibration(everything(), "platt"), fingerprint=SHA)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(CxrhfError, match=said):
        read_calibration(tmp_path, fingerprint=SHA)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"null", b"[" * 100_000])
def test_bytes_that_are_no_json(tmp_path, data):
    (tmp_path / "calibration.json").write_bytes(data)
    with refused(CxrhfError, "damaged", fix="cxrhf calibrate"):
        read_calibration(tmp_path, fingerprint=SHA)


def test_lines_leave_out_the_split_of_the_fit():
    rows = pa.concat_tables([distorted(lambda odds: odds), made("edema", *truth(8, 200), "train")])
    assert [line["split"] for line in calibration_lines(rows, rows)] == ["test", "train"]
    assert [line["split"] for line in calibration_lines(rows, rows, split="train")] == ["validate", "test"]
    odds, y = truth(9, 50)
    outside = made("edema", odds, y * 0, split="x")
    outside = outside.set_column(outside.column_names.index("split"), "split", pa.nulls(50, pa.string()))
    (line,) = calibration_lines(outside, outside)
    assert (line["split"], line["n"], line["n_pos"]) == (None, 50, 0)
    assert np.isnan(line["slope_before"])
    assert line["brier_before"] == line["brier_after"]
