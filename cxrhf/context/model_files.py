"""A fitted classifier or calibrator <-> a file that holds no code.

scikit-learn's classifiers: skops, packed. Only the types in `TYPES` may be in it, looked up in the file's own list
before anything is made; skops then checks again. Trees of scikit-learn and of XGBoost are followed without bounds, so a
tree is checked before it is used. XGBoost: its own .ubj. `WordRidge` and knots of calibrators: safetensors.

A classifier is a file of its kind: a LinearSVC where the manifest says forest is refused. Known gap: KNeighbours keeps
the vectors of the images it learned from, so its file is as confidential as the notes.
"""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from cxrhf.calibrate import Calibrator
from cxrhf.context.classifiers import KINDS, Linear
from cxrhf.context.parts import Candidate, Floats
from cxrhf.context.sealed import Sealed
from cxrhf.context.ubj import check_children, check_trees, read_ubj
from cxrhf.errors import CxrhfError, RunError

# What a saved scikit-learn classifier may consist of: how skops makes a part, and the types it may make so.
TYPES: dict[str, frozenset[str]] = {
    "DictNode": frozenset({"builtins.dict"}),
    "ListNode": frozenset({"builtins.list"}),
    "TupleNode": frozenset({"builtins.tuple"}),
    "JsonNode": frozenset({"builtins.str"}),
    "TypeNode": frozenset({"builtins.str"}),
    "NdArrayNode": frozenset({"numpy.ndarray", "numpy.float32", "numpy.float64", "numpy.int32", "numpy.int64"}),
    "RandomStateNode": frozenset({"numpy.random.mtrand.RandomState"}),
    "TreeNode": frozenset({"sklearn.tree._tree.Tree"}),
    "LossNode": frozenset({"sklearn._loss._loss.CyHalfBinomialLoss", "sklearn.linear_model._sgd_fast.Hinge"}),
    "ObjectNode": frozenset(
        {
            "sklearn.discriminant_analysis.LinearDiscriminantAnalysis",
            "sklearn.ensemble._forest.RandomForestClassifier",
            "sklearn.linear_model._logistic.LogisticRegression",
            "sklearn.linear_model._perceptron.Perceptron",
            "sklearn.linear_model._ridge.RidgeClassifierCV",
            "sklearn.linear_model._stochastic_gradient.SGDClassifier",
            "sklearn.naive_bayes.GaussianNB",
            "sklearn.neighbors._classification.KNeighborsClassifier",
            "sklearn.neural_network._multilayer_perceptron.MLPClassifier",
            "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
            "sklearn.preprocessing._label.LabelBinarizer",
            "sklearn.svm._classes.LinearSVC",
            "sklearn.tree._classes.DecisionTreeClassifier",
        }
    ),
}
# Packed files may grow by so much, and a little more: a few bytes must not fill the memory.
GROWTH, SLACK = 100, 1 << 24
ENDINGS = {"WordRidge": ".safetensors", "XGBoost": ".ubj"}
CLASSES = {"PassiveAggressive": "SGDClassifier"}


def save_model(model: Any, candidate: Candidate, folder: Path, stem: str) -> str:
    """Write a classifier; the name of its file."""
    name = stem + ENDINGS.get(candidate.kind, ".skops")
    path = folder / name
    if isinstance(model, Linear):
        save_arrays(path, {"weight": model.weight, "intercept": np.array([model.intercept])})
    elif candidate.kind == "XGBoost":
        path.write_bytes(bytes(model.save_raw("ubj")))
    else:
        needed("skops.io").dump(model, path, compression=zipfile.ZIP_DEFLATED, compresslevel=1)
        if other := foreign(path.read_bytes()):
            raise RunError(f"{candidate.label} cannot be saved: it holds {other[0]}, which would not be read again")
    return name


def load_model(sealed: Sealed, name: str, candidate: Candidate) -> Any:
    """Read a classifier of the candidate's kind."""
    if candidate.kind not in KINDS or not name.endswith(ENDINGS.get(candidate.kind, ".skops")):
        raise sealed.wrong(f"{name} is no file of a {candidate.kind}")
    data = sealed.read(name)
    with sealed.reading(name):
        if candidate.kind == "WordRidge":
            arrays = load_arrays(data, ("weight", "intercept"))
            return Linear(arrays["weight"], float(arrays["intercept"][0]))
        if candidate.kind == "XGBoost":
            return _load_booster(data, sealed, name)
        return _load_sklearn(data, sealed, name, CLASSES.get(candidate.kind, candidate.kind))


def width(model: Any) -> int:
    """The number of features that a classifier reads."""
    if isinstance(model, Linear):
        return len(model.weight)
    return int(model.n_features_in_ if hasattr(model, "n_features_in_") else model.num_features())


def save_calibrator(calibrator: Calibrator, folder: Path, stem: str) -> dict[str, Any]:
    """Write the knots; what JSON keeps of a calibrator."""
    if calibrator.method != "isotonic":
        return {"method": calibrator.method, "slope": float(calibrator.x[0]), "shift": float(calibrator.y[0])}
    name = f"{stem}.knots.safetensors"
    save_arrays(folder / name, {"x": calibrator.x, "y": calibrator.y})
    return {"method": calibrator.method, "file": name}


def load_calibrator(sealed: Sealed, about: Mapping[str, Any]) -> Calibrator:
    """What `save_calibrator` kept."""
    method = about["method"]
    if method in ("platt", "temperature"):
        slope, shift = about["slope"], about["shift"]
        if type(slope) is not float or type(shift) is not float or slope < 0:
            raise ValueError("line")
        if method == "temperature" and (slope == 0 or shift != 0):
            raise ValueError("line")
        return Calibrator(method, np.array([slope]), np.array([shift]))
    if method != "isotonic":
        raise ValueError("method")
    arrays = load_arrays(sealed.read(about["file"]), ("x", "y"))
    x, y = arrays["x"], arrays["y"]
    rising = len(x) > 0 and len(x) == len(y) and bool(np.all(np.diff(x) >= 0) and np.all(np.diff(y) >= 0))
    if not rising or y[0] <= 0 or y[-1] >= 1:
        raise ValueError("knots")
    return Calibrator("isotonic", x, y)


def save_arrays(path: Path, arrays: Mapping[str, Floats]) -> None:
    """Numbers in double precision, every bit."""
    kept = {name: np.ascontiguousarray(each, dtype=np.float64) for name, each in arrays.items()}
    path.write_bytes(needed("safetensors.numpy").save(kept))


def load_arrays(data: bytes, names: tuple[str, ...], *, missing: bool = False) -> dict[str, Floats]:
    """Arrays of finite numbers with exactly these names; `missing`: NaN may be among them. Else a ValueError."""
    try:
        found = needed("safetensors.numpy").load(data)
    except CxrhfError:
        raise
    except Exception as error:  # safetensors has an error of its own for everything
        raise ValueError("not safetensors") from error
    if set(found) != set(names):
        raise ValueError("names")
    for each in found.values():
        bad = np.isinf(each) if missing else ~np.isfinite(each)
        if each.dtype != np.float64 or each.ndim != 1 or bad.any():
            raise ValueError("numbers")
    return {name: np.array(each) for name, each in found.items()}


def foreign(data: bytes) -> list[str]:
    """What is in a skops file and not in `TYPES`. Nothing is imported or made."""
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        if sum(each.file_size for each in packed.infolist()) > GROWTH * len(data) + SLACK:
            raise ValueError("it would fill the memory")
        schema = json.loads(packed.read("schema.json"))
    found: set[str] = set()
    rest = [schema]
    while rest:
        each = rest.pop()
        if isinstance(each, dict):
            if "__loader__" in each or "__class__" in each or "__module__" in each:
                name = f"{each.get('__module__')}.{each.get('__class__')}"
                if name not in TYPES.get(str(each.get("__loader__")), ()):
                    found.add(f"{name} ({each.get('__loader__')})")
            rest.extend(each.values())
        elif isinstance(each, list):
            rest.extend(each)
    return sorted(found)


def needed(module: str) -> Any:
    """A module of the optional packages."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise CxrhfError(f"{package} is not installed", next_step='pip install "cxrhf[context]"') from error


def _load_sklearn(data: bytes, sealed: Sealed, name: str, kind: str) -> Any:
    try:
        if other := foreign(data):
            raise sealed.wrong(f"{name} holds {other[0]}, which no model of cxrhf holds; it was not opened")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of another version: store.py says so once
            model = needed("skops.io").loads(data, trusted=sorted(set().union(*TYPES.values())))
    except zipfile.BadZipFile as error:
        raise sealed.wrong(f"{name} is no skops file (a pickle is never opened)") from error
    if type(model).__name__ != kind:
        raise sealed.wrong(f"{name} holds a {type(model).__name__} instead of a {kind}")
    for tree in [model, *getattr(model, "estimators_", ())]:
        if hasattr(tree, "tree_"):
            inner = tree.tree_
            if inner.node_count != inner.capacity or inner.n_features != model.n_features_in_:
                raise ValueError("tree")
            check_children(inner.children_left, inner.children_right, inner.feature, inner.n_features)
    return model


def _load_booster(data: bytes, sealed: Sealed, name: str) -> Any:
    check_trees(read_ubj(data))
    xgboost = needed("xgboost")
    booster = xgboost.Booster({"nthread": 1, "verbosity": 0})
    try:
        booster.load_model(bytearray(data))
    except xgboost.core.XGBoostError as error:
        raise sealed.wrong(f"XGBoost cannot read {name}") from error
    return booster
