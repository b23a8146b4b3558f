"""What is saved comes back bit for bit; what was damaged, swapped or forged is refused, and nothing in it ever runs."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import pickle
import shutil
import time
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from cxrhf.context.families import candidates
from cxrhf.context.material import Candidate, Fitted, Tried
from cxrhf.context.model_files import (
    check_children,
    checked_model,
    find_foreign_types,
    import_optional,
    load_arrays,
    read_ubj,
    unpack_skops,
)
from cxrhf.context.sealed import MANIFEST, open_sealed, plain_json
from cxrhf.context.store import Bundle, StoredModel, load_models, load_one, save_models, save_one
from cxrhf.context.sweep import KINDS, fit, importance, scores
from cxrhf.errors import CxrhfError, CxrhfWarning, RunError
from cxrhf.learn import apply_calibrator, fit_calibrator
from tests.refusals import refused

RNG = np.random.default_rng(0)
N, WIDTH = 240, 24
DENSE = RNG.standard_normal((N, WIDTH)).astype(np.float32)
SPARSE = sparse.csr_array(np.maximum(DENSE, 0))
PATIENTS = np.repeat(np.arange(N // 3), 3)
Y = (RNG.random(N) < 0.4).astype(float)
RAN = "never"  # what a forged file would change


def kinds() -> list[tuple[str, Candidate]]:
    """The first and last cell of every kind of every grid, and two draws of XGBoost."""
    found: dict[tuple[str, str, int], Candidate] = {}
    for kind in ("words", "encoder", "boosted"):
        for search in ("default", "paper"):
            for each in candidates(kind, search, draws=2, seed=0):
                if each.params.get("n_estimators", 0) > 50 and each.kind != "XGBoost":
                    continue  # more trees of a forest take time, and no other way through the code
                found.setdefault((kind, each.kind, 0), each)
                found[kind, each.kind, 1] = each
    return [(kind, each) for (kind, *_), each in found.items()]


def model_of(candidate: Candidate, kind: str) -> Any:
    features = DENSE if kind == "encoder" else SPARSE
    return fit(candidate, features, np.arange(N), Y, PATIENTS, 0)


def stored(candidate: Candidate, kind: str, finding: str = "edema") -> StoredModel:
    model = model_of(candidate, kind)
    score = scores(model, DENSE if kind == "encoder" else SPARSE)
    calibrator = fit_calibrator(score, Y, "isotonic" if kind == "boosted" else "platt")
    return StoredModel(finding, "org/encoder" if kind == "encoder" else kind, kind, candidate, model, calibrator)


def bundle(*models: StoredModel, width: int = WIDTH) -> Bundle:
    words = {"style": "default", "recipe": "plain", "words": [f"w\u00f6rd{at}" for at in range(width)],
             "weights": [1 / 3] * width}  # fmt: skip
    return Bundle(
        {each.finding: each for each in models},
        {each.family: words for each in models if each.kind != "encoder"},
        {each.family: {"settings": {"encoder": "org/encoder"}, "identity": {"dim": width}} for each in models
         if each.kind == "encoder"},
        {"edema": 0.1 + 0.2},
        {"seed": 3, "findings": ["edema"], "level": 0.95, "out": None, "overwrite": False},
    )  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of four formats."""
    folder = tmp_path_factory.mktemp("store") / "models"
    forest = Candidate("RandomForestClassifier", {"n_estimators": 3, "max_depth": 4})
    boosted = Candidate("XGBoost", {"n_estimators": 5, "max_depth": 3})
    save_models(
        folder,
        bundle(
            stored(Candidate("WordRidge", {"penalty": 3.0}), "words", "edema"),
            stored(boosted, "boosted", "fracture"),
            stored(forest, "words", "pneumonia"),
            stored(Candidate("LinearSVC", {"C": 0.1}), "encoder", "lung_lesion"),
        ),
    )
    return folder


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "models"))


def sealed_again(folder: Path) -> None:
    """A forger's manifest: every file with its right hash."""
    manifest = json.loads((folder / MANIFEST).read_text())
    names = [each.name for each in folder.iterdir() if each.name != MANIFEST]
    manifest["files"] = {
        name: {"sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest(),
               "size": (folder / name).stat().st_size}
        for name in names
    }  # fmt: skip
    (folder / MANIFEST).write_text(json.dumps(manifest))


def change(folder: Path, name: str, edit: Any) -> None:
    values = json.loads((folder / name).read_text())
    edit(values)
    (folder / name).write_text(json.dumps(values))


# There and back


@pytest.mark.parametrize(("kind", "candidate"), kinds(), ids=lambda each: getattr(each, "label", each))
def test_every_kind_of_classifier_comes_back(kind, candidate, tmp_path):
    one = stored(candidate, kind)
    save_models(tmp_path / "models", bundle(one))
    found = load_models(tmp_path / "models").models["edema"]
    features = DENSE if kind == "encoder" else SPARSE
    assert np.array_equal(scores(found.model, features), scores(one.model, features))
    before, after = importance(one.model, WIDTH), importance(found.model, WIDTH)
    assert (before is None) == (after is None)
    assert before is None or np.array_equal(before.values, after.values)
    assert found.candidate == one.candidate
    assert (found.finding, found.family, found.kind) == (one.finding, one.family, one.kind)
    p = apply_calibrator(one.calibrator, scores(one.model, features))
    assert np.array_equal(apply_calibrator(found.calibrator, scores(found.model, features)), p)
    assert found.calibrator.method == one.calibrator.method


def test_every_kind_is_tested():
    assert {each.kind for _, each in kinds()} == set(KINDS)


def test_the_bundle_comes_back(saved):
    found = load_models(saved)
    assert list(found.models) == ["edema", "fracture", "pneumonia", "lung_lesion"]
    assert found.without_notes == {"edema": 0.1 + 0.2}
    assert found.config == {"seed": 3, "findings": ["edema"], "level": 0.95, "out": None, "overwrite": False}
    assert found.vocabularies["words"]["words"][1] == "w\u00f6rd1"
    assert found.vocabularies["words"]["weights"][0] == 1 / 3
    assert found.encoders == {"org/encoder": {"settings": {"encoder": "org/encoder"}, "identity": {"dim": WIDTH}}}
    names = {each.name for each in saved.iterdir()}
    assert {"edema.safetensors", "fracture.ubj", "fracture.knots.safetensors", "pneumonia.skops", "lung_lesion.skops",
            "contents.json", MANIFEST} < names  # fmt: skip
    manifest = json.loads((saved / MANIFEST).read_text())
    assert set(manifest["files"]) == names - {MANIFEST}
    assert {"cxrhf", "scikit-learn", "xgboost", "skops"} <= set(manifest["versions"])
    assert [each.name for each in saved.parent.iterdir()] == ["models"]  # no rests


def test_any_name_has_a_file(tmp_path):
    ridge = Candidate("WordRidge", {"penalty": 3.0})
    names = ["../up", "a/b", "a-b", "", ".", "\u00e9", "x" * 200, "con: trol\n"]
    save_models(tmp_path / "models", bundle(*(stored(ridge, "words", each) for each in names)))
    assert list(load_models(tmp_path / "models").models) == names
    assert [each.name for each in tmp_path.iterdir()] == ["models"]


def test_saving_again_replaces(copy):
    one = stored(Candidate("WordRidge", {"penalty": 3.0}), "words", "hernia")
    save_models(copy, bundle(one))
    assert list(load_models(copy).models) == ["hernia"]
    assert [each.name for each in copy.parent.iterdir()] == ["models"]


def test_a_save_that_fails_leaves_what_was(copy, monkeypatch):
    before = {each.name: each.read_bytes() for each in copy.iterdir()}
    bad = stored(Candidate("WordRidge", {"penalty": 3.0}), "words")
    with pytest.raises(ValueError):
        save_models(copy, Bundle({"edema": bad}, {}, {}, {"edema": math.nan}, {}))
    monkeypatch.setattr("cxrhf.context.sealed._print", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        save_models(copy, bundle(bad))
    monkeypatch.undo()
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if self.suffix == ".part":
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with refused(RunError, "cannot write"):
        save_models(copy, bundle(bad))
    monkeypatch.undo()
    assert {each.name: each.read_bytes() for each in copy.iterdir()} == before
    assert [each.name for each in copy.parent.iterdir()] == ["models"]


def test_other_peoples_folders_are_left_alone(tmp_path):
    one = bundle(stored(Candidate("WordRidge", {"penalty": 3.0}), "words"))
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("mine")
    with refused(RunError, f"{tmp_path}/thesis", fix="move it away"):
        save_models(tmp_path / "thesis", one)
    (tmp_path / "file").write_text("mine")
    with refused(RunError, f"{tmp_path}/file", fix="move it away"):
        save_models(tmp_path / "file", one)
    (tmp_path / "empty").mkdir()
    save_models(tmp_path / "empty", one)
    with refused(RunError, "manifest.json", fix="cxrhf context fit"):
        load_models(tmp_path / "nothing")
    stale, recent = tmp_path / ".empty-1-aa.part", tmp_path / ".empty-2-bb.part"
    stale.mkdir()
    recent.mkdir()
    os.utime(stale, (time.time() - 7200,) * 2)
    save_models(tmp_path / "empty", one)
    assert (stale.exists(), recent.exists()) == (False, True)


# Damage


def test_damage_is_found(saved, tmp_path):
    """Every file: cut short, a byte changed, missing."""
    for at, name in enumerate(sorted(each.name for each in saved.iterdir())):
        for way in ("cut", "byte", "missing"):
            folder = Path(shutil.copytree(saved, tmp_path / f"{at}{way}"))
            path, data = folder / name, bytearray((folder / name).read_bytes())
            if way == "missing":
                path.unlink()
            elif way == "cut":
                path.write_bytes(data[: len(data) // 2])
            else:
                data[len(data) // 2] ^= 0x55
                path.write_bytes(data)
            with pytest.raises(RunError) as error:
                load_models(folder)
            assert name in str(error.value) or name == MANIFEST
            assert "cxrhf context fit" in (error.value.next_step or "")


def test_extra_files_and_links(copy, saved):
    (copy / ".DS_Store").write_bytes(b"rests of a file manager")
    load_models(copy)
    (copy / "more.skops").write_bytes(b"")
    with pytest.raises(RunError, match=r"more.skops is not in the manifest"):
        load_models(copy)
    sealed_again(copy)
    change(copy, MANIFEST, lambda values: values["files"].pop(".DS_Store"))
    with pytest.raises(RunError, match=r"more.skops is not used"):
        load_models(copy)
    (copy / "more.skops").unlink()
    shutil.copy(saved / MANIFEST, copy / MANIFEST)
    (copy / "edema.safetensors").unlink()
    (copy / "edema.safetensors").symlink_to(saved / "edema.safetensors")
    with pytest.raises(RunError, match=r"edema.safetensors is a link"):
        load_models(copy)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda m: m.update(format=99), r"format 99.*pip install --upgrade"),
        (lambda m: m.update(format=10**400), "newer version"),
        (lambda m: m.update(format="1"), "manifest.json has unexpected content"),
        (lambda m: m.update(format=0), "unexpected content"),
        (lambda m: m.pop("format"), "unexpected content"),
        (lambda m: m.update(what="a cake"), "context models, got a cake"),
        (lambda m: m.pop("versions"), "unexpected content"),
        (lambda m: m.update(files=[]), "unexpected content"),
        (lambda m: m["files"].update({"../up.json": {"sha256": "0" * 64, "size": 1}}), "outside this folder"),
        (lambda m: m["files"].update({"/etc/passwd": {"sha256": "0" * 64, "size": 1}}), "outside this folder"),
        (lambda m: m["files"].update({"a\\b": {"sha256": "0" * 64, "size": 1}}), "outside this folder"),
        (lambda m: m["files"].update({"..": {"sha256": "0" * 64, "size": 1}}), "outside this folder"),
        (lambda m: m["files"].update({MANIFEST: {"sha256": "0" * 64, "size": 1}}), "outside this folder"),
        (lambda m: m["files"]["contents.json"].update(size=10**300), "bytes instead of"),
        (lambda m: m["files"]["contents.json"].update(size=-1), "unexpected content"),
        (lambda m: m["files"]["contents.json"].update(size=True), "unexpected content"),
        (lambda m: m["files"]["contents.json"].update(sha256="0"), "unexpected content"),
        (lambda m: m["files"]["contents.json"].update(sha256="0" * 64), "contents.json was changed"),
        (lambda m: m["files"].pop("contents.json"), "contents.json is not in the manifest"),
    ],
)
def test_wrong_manifests(copy, edit, said):
    change(copy, MANIFEST, edit)
    with pytest.raises(RunError, match=said):
        load_models(copy)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[]",
        "7",
        '{"format": 1e999}',
        '{"format": NaN}',
        "[" * 100_000,
        '{"format": ' + "9" * 5000 + "}",
        "\ud800",
    ],
)
@pytest.mark.parametrize("name", [MANIFEST, "contents.json"])
def test_not_json(copy, text, name):
    (copy / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    if name != MANIFEST:
        sealed_again(copy)
    with pytest.raises(RunError, match=f"{name} has unexpected content"):
        load_models(copy)


def _model(contents: dict[str, Any], finding: str) -> dict[str, Any]:
    return next(each for each in contents["models"] if each["finding"] == finding)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda c: _model(c, "edema").update(model="../edema.safetensors"), "not in the manifest"),
        (lambda c: _model(c, "edema").update(model="/etc/passwd"), "is not the file of a WordRidge"),
        (lambda c: _model(c, "edema").update(model=7), "unexpected content"),
        (lambda c: _model(c, "edema").update(model="fracture.knots.safetensors"), "unexpected content"),
        (lambda c: _model(c, "pneumonia").update(model="lung_lesion.skops"), "a LinearSVC instead of a RandomForest"),
        (lambda c: _model(c, "pneumonia").update(model="fracture.ubj"), "is not the file of a RandomForest"),
        (lambda c: _model(c, "pneumonia")["candidate"].update(kind="os.system"), "is not the file of a os.system"),
        (lambda c: _model(c, "pneumonia")["candidate"].update(params=[]), "unexpected content"),
        (lambda c: _model(c, "edema").update(finding="fracture"), "unexpected content"),
        (lambda c: _model(c, "edema").update(family="other"), "unexpected content"),
        (lambda c: _model(c, "edema")["calibrator"].update(method="other"), "unexpected content"),
        (lambda c: _model(c, "edema")["calibrator"].update(slope=-1.0), "unexpected content"),
        (lambda c: _model(c, "edema")["calibrator"].update(slope="1"), "unexpected content"),
        (lambda c: _model(c, "fracture")["calibrator"].update(file="edema.safetensors"), "unexpected content"),
        (lambda c: c["without_notes"].update(edema=1.0), "unexpected content"),
        (lambda c: c["without_notes"].update(edema="half"), "unexpected content"),
        (lambda c: c.update(config=[]), "unexpected content"),
        (lambda c: c.update(models={}), "is not used"),
        (lambda c: c.pop("encoders"), "unexpected content"),
        (lambda c: c["vocabularies"].update(words="edema.safetensors"), "unexpected content"),
    ],
)
def test_wrong_contents(copy, edit, said):
    change(copy, "contents.json", edit)
    sealed_again(copy)
    with pytest.raises(RunError, match=said):
        load_models(copy)


def test_a_model_of_other_words_is_refused(copy):
    change(copy, "words-words.json", lambda values: values["words"].pop())
    sealed_again(copy)
    with pytest.raises(RunError, match=r"edema.safetensors has unexpected content \(number of features\)"):
        load_models(copy)


# Forgery


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("import tests.context.test_store as t; t.RAN = 'ran'",)


def forged(folder: Path, data: bytes, name: str = "lung_lesion.skops") -> pytest.ExceptionInfo[RunError]:
    (folder / name).write_bytes(data)
    sealed_again(folder)
    with pytest.raises(RunError) as error:
        load_models(folder)
    assert RAN == "never"
    return error


def test_a_pickle_is_never_opened(copy):
    for name in ("lung_lesion.skops", "fracture.ubj", "edema.safetensors", "fracture.knots.safetensors"):
        folder = Path(shutil.copytree(copy, copy.parent / name))
        said = str(forged(folder, pickle.dumps(Evil()), name).value)
        assert name in said or "contents.json" in said
    said = forged(copy, pickle.dumps(Evil()))
    assert "is not a skops file" in str(said.value)


def test_a_pickle_inside_an_array_is_never_opened(copy, saved):
    """An .npy of objects is a pickle: numpy would run it if it were allowed to."""
    inside = io.BytesIO()
    np.save(inside, np.array([Evil()], dtype=object), allow_pickle=True)

    def swapped(name: str, data: bytes) -> bytes:
        return inside.getvalue() if name.endswith(".npy") else data

    said = forged(copy, repacked((saved / "lung_lesion.skops").read_bytes(), swapped))
    assert "lung_lesion.skops has unexpected content" in str(said.value)


def repacked(data: bytes, edit: Any) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for each in old.infolist():
            new.writestr(each.filename, edit(each.filename, old.read(each.filename)))
    return out.getvalue()


def with_node(data: bytes, node: dict[str, Any]) -> bytes:
    """The classifier's `C` becomes something else."""

    def edit(name: str, inner: bytes) -> bytes:
        if name != "schema.json":
            return inner
        schema = json.loads(inner)
        schema["content"]["content"]["C"] = node
        return json.dumps(schema).encode()

    return repacked(data, edit)


@pytest.mark.parametrize(
    "node",
    [
        {"__class__": "system", "__module__": "os", "__loader__": "FunctionNode"},
        {"__class__": "ndarray", "__module__": "numpy", "__loader__": "FunctionNode"},
        {"__class__": "Pipeline", "__module__": "sklearn.pipeline", "__loader__": "ObjectNode"},
        {"__class__": "Evil", "__module__": "tests.context.test_store", "__loader__": "ObjectNode"},
        {"__class__": "str", "__module__": "builtins", "__loader__": "ObjectNode"},
        {"__class__": "Evil", "__module__": "tests.context.test_store", "__loader__": "ConstructorFromReduceNode"},
        {"__class__": "attrgetter", "__module__": "operator", "__loader__": "OperatorFuncNode"},
        {"__class__": "eval", "__module__": "builtins", "__loader__": "TypeNode"},
        {"__class__": None, "__module__": None, "__loader__": "CachedNode", "__id__": 1},
        {"__class__": "dict", "__module__": "builtins"},
    ],
)
def test_types_that_no_model_has_are_refused(copy, saved, node):
    data = with_node((saved / "lung_lesion.skops").read_bytes(), node)
    said = str(forged(copy, data).value)
    assert f"{node['__module__']}.{node['__class__']}" in said
    assert "not opened" in said


def test_a_function_saved_by_skops_is_refused(copy):
    import skops.io as sio
    from sklearn.preprocessing import FunctionTransformer

    assert "posix.getcwd" in str(forged(copy, sio.dumps(FunctionTransformer(func=os.getcwd))).value)
    assert "FunctionTransformer" in str(forged(copy, sio.dumps(FunctionTransformer())).value)
    assert find_foreign_types(unpack_skops(sio.dumps(os.getcwd))) == ["posix.getcwd (TypeNode)"]
    from sklearn.svm import LinearSVC

    odd = LinearSVC().fit(DENSE, Y)
    odd.extra = os.getcwd
    assert "posix.getcwd" in str(forged(copy, sio.dumps(odd)).value)


def test_a_classifier_that_could_not_be_read_again_is_not_saved(tmp_path):
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    one = stored(Candidate("LinearSVC", {"C": 0.1}), "words")
    odd = StoredModel(
        "edema", "words", "words", one.candidate, make_pipeline(LinearSVC()).fit(SPARSE, Y), one.calibrator
    )
    with pytest.raises(RunError, match="cannot be saved"):
        save_models(tmp_path / "models", bundle(odd))
    assert not list(tmp_path.iterdir())


def test_other_skops_files(copy, saved):
    whole = (saved / "lung_lesion.skops").read_bytes()
    empty = io.BytesIO()
    with zipfile.ZipFile(empty, "w"):
        pass
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("schema.json", "{}")
        packed.writestr("zeros.npy", bytes(1 << 26))
    for data in (b"", whole[:-30], empty.getvalue(), bomb.getvalue(),
                 repacked(whole, lambda name, inner: b"{}" if name == "schema.json" else inner),
                 repacked(whole, lambda name, inner: b"" if name.endswith(".npy") else inner)):  # fmt: skip
        forged(copy, data)


def test_trees_that_lead_out_are_refused(copy, saved):
    """scikit-learn follows a tree without looking: a forged one would end the process."""
    whole = (saved / "pneumonia.skops").read_bytes()
    for column, value in (("left_child", 10**6), ("feature", 10**6), ("right_child", 0), ("left_child", 1)):

        def edit(name: str, inner: bytes, column: str = column, value: int = value) -> bytes:
            if not name.endswith(".npy"):
                return inner
            array = np.load(io.BytesIO(inner), allow_pickle=False)
            if array.dtype.names is None:
                return inner
            array[column][array["left_child"] != -1] = value
            out = io.BytesIO()
            np.save(out, array)
            return out.getvalue()

        assert "pneumonia.skops" in str(forged(copy, repacked(whole, edit), "pneumonia.skops").value)


def test_forged_bytes_of_a_booster_are_found(saved):
    """The check lets through what XGBoost can follow, and nothing else (see also model_files.py)."""
    raw = (saved / "fracture.ubj").read_bytes()
    good = read_ubj(raw)
    assert checked_model(good, WIDTH)
    refused = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        data = bytearray(raw)
        data[rng.integers(len(data))] = rng.integers(256)
        try:
            checked_model(read_ubj(bytes(data[: rng.integers(len(data))] if seed % 4 == 0 else data)))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            refused += 1
    assert refused > 250
    trees = good["learner"]["gradient_booster"]["model"]["trees"]
    for name, value in (("left_children", 10**6), ("right_children", 0), ("split_indices", WIDTH), ("parents", 5)):
        kept = trees[0][name]
        trees[0][name] = kept.copy()
        trees[0][name][0] = value
        with pytest.raises(ValueError, match=r"child|feature|parents"):
            checked_model(good)
        trees[0][name] = kept
    assert checked_model(good, WIDTH)


def test_children():
    check_children([1, -1, 3, -1, -1], [2, -1, 4, -1, -1], [0, -2, 1, -2, -2], 2)
    for left, right, feature in (
        ([1, -1, 2, -1, -1], [2, -1, 4, -1, -1], [0, 0, 1, 0, 0]),  # a node is its own child
        ([1, -1, 3, -1, -1], [2, -1, 5, -1, -1], [0, 0, 1, 0, 0]),
        ([1, -1, 3, -1, -1], [2, -1, -1, -1, -1], [0, 0, 1, 0, 0]),
        ([1, -1, 3, -1, -1], [2, -1, 4, -1, -1], [0, 0, 2, 0, 0]),
        ([1, -1, 3, -1, -1], [2, -1, 1, -1, -1], [0, 0, 1, 0, 0]),
        ([1, -1, 0, -1, -1], [2, -1, 4, -1, -1], [0, 0, 1, 0, 0]),  # round and round
    ):
        with pytest.raises(ValueError):
            check_children(left, right, feature, 2)


def test_forged_boosters(copy, saved):
    import xgboost

    raw = (saved / "fracture.ubj").read_bytes()
    other = xgboost.train({"objective": "reg:squarederror"}, xgboost.DMatrix(DENSE, label=Y), 2)
    deep = b"[" * 5000
    for data in (b"", b"{", raw[:-1], raw + b"x", raw[: len(raw) // 2], deep, bytes(other.save_raw("ubj")),
                 bytes(other.save_raw("json"))):  # fmt: skip
        said = str(forged(copy, data, "fracture.ubj").value)
        assert "fracture.ubj has unexpected content" in said


def test_forged_arrays(copy):
    from safetensors.numpy import save

    good = {"weight": np.zeros(WIDTH), "intercept": np.zeros(1)}
    for bad in (
        {"weight": np.zeros(WIDTH)},
        good | {"more": np.zeros(1)},
        good | {"weight": np.zeros(WIDTH, dtype=np.float32)},
        good | {"weight": np.full(WIDTH, np.nan)},
        good | {"weight": np.zeros((WIDTH, 1))},
        good | {"intercept": np.array([np.inf])},
    ):
        forged(copy, save(bad), "edema.safetensors")
    huge = (2**63 - 1).to_bytes(8, "little") + b"{}"
    assert "edema.safetensors" in str(forged(copy, huge, "edema.safetensors").value)
    with pytest.raises(ValueError):
        load_arrays(b"", ("weight",))


def test_forged_knots(copy):
    from safetensors.numpy import save

    for x, y in (([1, 0], [0.1, 0.2]), ([0, 1], [0.2, 0.1]), ([0, 1], [0.0, 0.5]), ([0, 1], [0.5, 1.0]),
                 ([0], [0.1, 0.2]), ([], [])):  # fmt: skip
        forged(copy, save({"x": np.array(x, dtype=float), "y": np.array(y, dtype=float)}), "fracture.knots.safetensors")


# Versions and missing packages


def test_another_scikit_learn_is_said(copy):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_models(copy)
    change(copy, MANIFEST, lambda values: values["versions"].update({"scikit-learn": "1.2.3"}))
    with pytest.warns(CxrhfWarning, match=r"fitted with scikit-learn 1.2.3"):
        load_models(copy)


def test_what_is_not_installed_is_named(copy, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(CxrhfError, match=r"skops is not installed.*cxrhf\[context\]"):
        load_models(copy)
    with pytest.raises(CxrhfError, match="nowhere is not installed"):
        import_optional("nowhere.at_all")


def test_nothing_here_can_read_a_pickle():
    folder = Path(__file__).resolve().parents[2] / "cxrhf" / "context"
    for name in ("store.py", "model_files.py", "sealed.py"):
        text = (folder / name).read_text()
        for word in ("import pickle", "joblib", "allow_pickle", "np.load", "torch.load", "eval(", "exec("):
            assert word not in text, f"{name}: {word}"


def test_numbers_that_json_does_not_have():
    assert plain_json(b'{"a": [1, 0.1, 1e308]}') == {"a": [1, 0.1, 1e308]}
    for text in (b"NaN", b"-Infinity", b"1e999", b"[-1e999]"):
        with pytest.raises(ValueError):
            plain_json(text)


# A part of a fit that was stopped


def part(candidate: Candidate, kind: str = "words") -> Fitted:
    one = stored(candidate, kind)
    p = np.random.default_rng(1).random(N)
    p[3] = np.nan
    tried = (
        Tried(candidate, 0.1 + 0.2, 0.01, np.zeros(0), 1.5),
        Tried(Candidate("MLPClassifier", {"hidden_layer_sizes": (64, 32)}), 0.6, np.nan, np.zeros(0), 2.0, None, 3),
        Tried(Candidate("LinearSVC", {"C": 1.0}), np.nan, np.nan, np.zeros(0), 0.5, "singular"),
    )
    return Fitted(one.family, candidate, one.model, one.calibrator, 0.7 / 3, np.nan, p, tried, ("small validation",))


@pytest.mark.parametrize(
    ("kind", "candidate"),
    [
        ("words", Candidate("WordRidge", {"penalty": 3.0})),
        ("boosted", Candidate("XGBoost", {"n_estimators": 3})),
        ("encoder", Candidate("MLPClassifier", {"hidden_layer_sizes": (8, 4), "alpha": 1e-4})),
    ],
)
def test_a_part_comes_back(tmp_path, kind, candidate):
    one = part(candidate, kind)
    place = tmp_path / "search" / "edema--words"
    assert load_one(place, "mark", WIDTH) is None
    save_one(place, "mark", one)
    found = load_one(place, "mark", WIDTH)
    assert found is not None
    assert np.array_equal(found.probability, one.probability, equal_nan=True)
    assert found.probability.dtype == np.float64
    features = DENSE if kind == "encoder" else SPARSE
    assert np.array_equal(scores(found.model, features), scores(one.model, features))
    assert np.array_equal(found.calibrator.x, one.calibrator.x)
    assert np.array_equal(found.calibrator.y, one.calibrator.y)
    assert (found.family, found.candidate, found.cv_auroc) == (one.family, one.candidate, one.cv_auroc)
    assert found.reasons == one.reasons
    assert math.isnan(found.validation_auroc)
    for before, after in zip(one.tried, found.tried, strict=True):
        assert before._replace(scores=None, auroc_sd=0, auroc=0) == after._replace(scores=None, auroc_sd=0, auroc=0)
        assert [before.auroc, before.auroc_sd] == pytest.approx([after.auroc, after.auroc_sd], abs=0, nan_ok=True)
    assert load_one(place, "other", WIDTH) is None


def test_a_part_that_was_half_removed_is_done_again(tmp_path):
    """A stop while search/ was removed: what was left refused the same command for good."""
    place = tmp_path / "edema--words"
    one = part(Candidate("WordRidge", {"penalty": 3.0}))
    for left in ("model.safetensors", "contents.json"):
        save_one(place, "mark", one)
        for each in place.iterdir():
            if each.name != left:
                each.unlink()
        with pytest.warns(CxrhfWarning, match="is repeated"):
            assert load_one(place, "mark", WIDTH) is None
        save_one(place, "mark", one)
        assert load_one(place, "mark", WIDTH) is not None


def test_a_part_that_is_damaged_or_of_other_versions_is_done_again(tmp_path):
    place = tmp_path / "edema--words"
    one = part(Candidate("WordRidge", {"penalty": 3.0}))
    save_one(place, "mark", one)
    change(place, MANIFEST, lambda values: values["versions"].update(numpy="1.0"))
    assert load_one(place, "mark", WIDTH) is None
    save_one(place, "mark", one)
    (place / "model.safetensors").write_bytes(b"cut")
    with pytest.warns(CxrhfWarning, match=r"is repeated.*model.safetensors has 3 bytes"):
        assert load_one(place, "mark", WIDTH) is None
    save_one(place, "mark", one)
    assert load_one(place, "mark", WIDTH) is not None
    with refused(RunError, "context models", got="part of a context fit"):
        load_models(place)
    assert open_sealed(place, "part of a context fit", "").manifest["fingerprint"] == "mark"
