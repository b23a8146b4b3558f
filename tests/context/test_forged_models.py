"""Models of a stranger: whatever was changed in a file, it is refused in one sentence or does no harm."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skops.io as sio

from cxrhf.context.model_files import checked_model, read_ubj, unpack_skops
from cxrhf.context.sealed import MANIFEST
from cxrhf.context.store import load_models
from cxrhf.context.sweep import fit, scores
from cxrhf.errors import RunError
from tests.context.forging import CANDIDATES, FEATURES, WIDTH, N, Y, main, only, save_all, seal, ubj


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forged") / "models"
    save_all(folder)
    return folder


def alone(saved: Path, kind: str, to: Path) -> tuple[Path, str]:
    folder = only(saved, kind, to / kind)
    return folder, next(each.name for each in folder.iterdir() if each.name not in ("contents.json", MANIFEST))


def refused(saved: Path, kind: str, data: bytes, to: Path, why: str = "") -> None:
    folder, name = alone(saved, kind, to)
    seal(folder, name, data)
    with pytest.raises(RunError, match=f"{name} (has unexpected content|is not a skops file).*{why}") as error:
        load_models(folder)
    assert "\n" not in str(error.value)


def test_changed_files_are_refused_or_harmless(saved, capsys):
    assert main(saved, 0, 90) == 0
    assert "90 changed" in capsys.readouterr().out


@pytest.mark.slow
def test_thousands_of_changed_files_in_a_process_of_their_own(saved):
    command = [sys.executable, "-m", "tests.context.forging", str(saved), "1000", "6000"]
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "5000 changed" in done.stdout


def test_a_booster_with_equal_keys_is_refused(saved, tmp_path):
    """The last of two was looked at, XGBoost took the first: its children led out of the tree."""
    raw = (saved / "XGBoost.ubj").read_bytes()
    other = read_ubj(raw)
    tree = other["learner"]["gradient_booster"]["model"]["trees"][0]
    tree["left_children"] = np.where(tree["left_children"] >= 0, 10**6, -1).astype(">i4")
    twin = b"{" + ubj(other)[1:-1] + raw[1:]
    refused(saved, "XGBoost", twin, tmp_path, "twice")


def test_a_booster_is_made_anew_from_what_was_checked(saved):
    """Whatever else a file holds never reaches XGBoost, and the model is the same to the byte."""
    import xgboost

    raw = (saved / "XGBoost.ubj").read_bytes()
    model = read_ubj(raw)
    assert ubj(model) != raw
    model["Config"] = {"learner": {"generic_param": {"nthread": "1000"}}}
    model["learner"]["gradient_booster"]["model"]["trees"][0]["more"] = np.arange(3)
    checked = json.dumps(checked_model(model, WIDTH))
    assert "Config" not in checked
    assert "more" not in checked
    booster = xgboost.Booster()
    booster.load_model(bytearray(checked.encode()))
    assert bytes(booster.save_raw("ubj")) == raw


@pytest.mark.parametrize("place", ["base_score", "split_conditions", "sum_hessian"])
def test_a_booster_with_numbers_that_are_none_is_refused(saved, tmp_path, place):
    model = read_ubj((saved / "XGBoost.ubj").read_bytes())
    if place == "base_score":
        model["learner"]["learner_model_param"][place] = "nan"
    else:
        tree = model["learner"]["gradient_booster"]["model"]["trees"][1]
        tree[place] = np.full(len(tree[place]), np.nan, dtype=">f4")
    refused(saved, "XGBoost", ubj(model), tmp_path)


def bomb(n: int, said: int | None) -> bytes:
    """A zip of zeros; `said`: the size that its directory claims."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("zeros.npy", bytes(n))
        packed.writestr("schema.json", "{}")
    data = bytearray(out.getvalue())
    if said is not None:  # in the directory and before the file itself
        for mark, at in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
            start = data.index(mark)
            data[start + at : start + at + 4] = said.to_bytes(4, "little")
    return bytes(data)


@pytest.mark.parametrize("said", [None, 10])
def test_a_file_that_would_fill_the_memory_is_refused_while_it_is_read(saved, tmp_path, said):
    data = bomb(1 << 27, said)
    tracemalloc.start()
    try:
        refused(saved, "LinearSVC", data, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 60 << 20
    finally:
        tracemalloc.stop()


def test_names_that_are_there_twice_are_refused(saved, tmp_path):
    data = io.BytesIO((saved / "LinearSVC.skops").read_bytes())
    with zipfile.ZipFile(data, "a") as packed, pytest.warns(UserWarning, match="Duplicate"):
        packed.writestr("schema.json", "{}")
    refused(saved, "LinearSVC", data.getvalue(), tmp_path, "twice")


def edited(kind: str, edit: Any) -> bytes:
    """A fitted classifier with other attributes, saved by skops."""
    candidate = next(each for each in CANDIDATES if each.kind == kind)
    model = fit(candidate, FEATURES, np.arange(N), Y, np.arange(N), 0)
    edit(model)
    return bytes(sio.dumps(model))


def put(**values: Any) -> Any:
    return lambda model: [setattr(model, name, value) for name, value in values.items()]


@pytest.mark.parametrize(
    ("kind", "edit"),
    [
        ("LinearSVC", put(coef_=np.zeros((1, WIDTH + 1)))),
        ("LinearSVC", put(coef_=np.zeros((1, WIDTH)), n_features_in_=WIDTH + 1)),
        ("LinearSVC", put(coef_=np.zeros((2, WIDTH)), intercept_=np.zeros(2), classes_=np.arange(3))),
        ("LinearSVC", put(intercept_=np.array([np.nan]))),
        ("LinearSVC", put(coef_=np.zeros((1, WIDTH), dtype=np.int64))),
        ("LinearDiscriminantAnalysis", put(coef_=np.zeros((5, WIDTH)))),
        ("RandomForestClassifier", put(n_classes_=10**9)),
        ("RandomForestClassifier", put(n_outputs_=10**9)),
        ("RandomForestClassifier", put(estimators_=[])),
        ("RandomForestClassifier", put(estimators_=[1])),
        ("RandomForestClassifier", put(n_features_in_=10**9)),
        ("DecisionTreeClassifier", put(n_classes_=10**9)),
        ("KNeighborsClassifier", put(_y=np.zeros(3, dtype=np.int64))),
        ("KNeighborsClassifier", put(_y=np.full(N, 10**9))),
        ("KNeighborsClassifier", put(n_neighbors=10**9)),
        ("KNeighborsClassifier", put(n_samples_fit_=10**9)),
        ("KNeighborsClassifier", put(_fit_X=np.zeros((N, 3), dtype=np.float32))),
        ("KNeighborsClassifier", put(_fit_method="ball_tree")),
        ("MLPClassifier", put(n_layers_=10**6)),
        ("MLPClassifier", put(coefs_=[np.zeros((WIDTH, 6)), np.zeros((4, 4)), np.zeros((4, 1))])),
        ("MLPClassifier", put(intercepts_=[np.zeros(6)])),
        ("MLPClassifier", put(activation="none of these")),
        ("GaussianNB", put(theta_=np.zeros((3, WIDTH)))),
        ("GaussianNB", put(var_=np.zeros((2, WIDTH)))),
        ("GaussianNB", put(predict_joint_log_proba="not a function")),
    ],
)
def test_shapes_that_do_not_fit_the_record_are_refused(saved, tmp_path, kind, edit):
    refused(saved, kind, edited(kind, edit), tmp_path)


def test_a_part_cannot_take_the_place_of_another(saved, tmp_path):
    """skops puts in what has the same number: the number of classes was checked, and another array used."""
    files = unpack_skops((saved / "DecisionTreeClassifier.skops").read_bytes())
    schema = json.loads(files["schema.json"])
    tree = schema["content"]["content"]["tree_"]
    stranger = schema["content"]["content"]["classes_"]
    tree["__reduce__"]["args"]["content"][1]["__id__"] = stranger["__id__"] = 7
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for name, data in {**files, "schema.json": json.dumps(schema).encode()}.items():
            packed.writestr(name, data)
    folder, name = alone(saved, "DecisionTreeClassifier", tmp_path)
    seal(folder, name, out.getvalue())
    model = load_models(folder).models["DecisionTreeClassifier"].model
    assert model.tree_.n_classes.tolist() == [2]
    assert np.isfinite(scores(model, FEATURES)).all()


@pytest.mark.parametrize(
    "edit",
    [
        lambda c: c["encoders"]["org/encoder"].update(settings=[]),
        lambda c: c["encoders"]["org/encoder"]["settings"].update(encoder=5),
        lambda c: c["encoders"]["org/encoder"]["settings"].update(overlap="one"),
        lambda c: c["encoders"]["org/encoder"]["settings"].update(more=1),
        lambda c: c["encoders"]["org/encoder"]["identity"].update(dim=2**40),
        lambda c: c["encoders"]["org/encoder"]["identity"].update(dim=True),
        lambda c: c["encoders"]["org/encoder"]["identity"].update(encoder="x" * 5000),
        lambda c: c["config"].update(seed="three"),
        lambda c: c["config"].update(seed=-1),
        lambda c: c["config"].update(no_note=[]),
        lambda c: c["config"].update(mention_rule="any"),
        lambda c: c["models"][0].update(finding="\ud800"),
    ],
)
def test_records_of_another_kind_are_refused(saved, tmp_path, edit):
    folder, _ = alone(saved, "LinearSVC", tmp_path)
    contents = json.loads((folder / "contents.json").read_text())
    edit(contents)
    seal(folder, "contents.json", json.dumps(contents).encode())
    with pytest.raises(RunError, match=r"unexpected content") as error:
        load_models(folder)
    assert len(str(error.value)) < 500


def test_how_much_work_is_done_is_for_who_reads_to_say(saved, tmp_path):
    folder, name = alone(saved, "RandomForestClassifier", tmp_path)
    seal(folder, name, edited("RandomForestClassifier", put(n_jobs=1000, verbose=9)))
    model = load_models(folder).models["RandomForestClassifier"].model
    assert (model.n_jobs, model.verbose) == (1, 0)
