"""A fitted classifier or calibrator <-> a file that holds no code.

scikit-learn's classifiers: skops, packed. The file is unpacked here, counted as it grows; only the types in `TYPES` may
be in it, looked up in the file's own list before anything is made; skops then reads what was looked at, and checks
again. scikit-learn follows trees, neighbours and layers without bounds, so every shape that a prediction relies on is
compared with the record before the classifier is used. XGBoost: its own .ubj (ubj.py). `WordRidge` and knots of
calibrators: safetensors.

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
from cxrhf.context.classifiers import KINDS, Linear, scores
from cxrhf.context.parts import Candidate, Floats
from cxrhf.context.sealed import Sealed, Unfit, must
from cxrhf.context.ubj import check_children, checked_model, read_ubj
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
# Packed files may grow by so much, and a little more: a few bytes must not fill the memory. Real ones grow sixfold.
GROWTH, SLACK = 30, 1 << 24
BLOCK = 1 << 20
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
        if other := foreign(unpacked(path.read_bytes())):
            raise RunError(f"{candidate.label} cannot be saved: it contains {other[0]}, which cxrhf refuses to load")
    return name


def load_model(sealed: Sealed, name: str, candidate: Candidate, width: int) -> Any:
    """Read a classifier of the candidate's kind that takes `width` features."""
    if candidate.kind not in KINDS or not name.endswith(ENDINGS.get(candidate.kind, ".skops")):
        raise sealed.wrong(f"{name} is not the file of a {candidate.kind}")
    data = sealed.read(name)
    with sealed.reading(name):
        if candidate.kind == "WordRidge":
            arrays = load_arrays(data, ("weight", "intercept"))
            must(len(arrays["weight"]) == width and len(arrays["intercept"]) == 1, "number of features")
            return Linear(arrays["weight"], float(arrays["intercept"][0]))
        if candidate.kind == "XGBoost":
            return _load_booster(data, width)
        return _load_sklearn(data, sealed, name, CLASSES.get(candidate.kind, candidate.kind), width)


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


def unpacked(data: bytes) -> dict[str, bytes]:
    """The files in a skops file, counted while they are read: what a zip says of its sizes proves nothing."""
    found: dict[str, bytes] = {}
    left = GROWTH * len(data) + SLACK
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        for each in packed.infolist():
            if each.filename in found:
                raise Unfit("a name that appears twice")
            blocks = []
            with packed.open(each) as stream:
                while block := stream.read(BLOCK):
                    left -= len(block)
                    if left < 0:
                        raise Unfit("it would fill the memory")
                    blocks.append(block)
            found[each.filename] = b"".join(blocks)
    return found


def foreign(files: dict[str, bytes]) -> list[str]:
    """What is in an unpacked skops file and not in `TYPES`. Nothing is imported or made.

    By the numbers of its parts skops may put one in the place of another. They go, so that what was looked at is read.
    """
    schema = json.loads(files["schema.json"])
    found: set[str] = set()
    rest = [schema]
    while rest:
        each = rest.pop()
        if isinstance(each, dict):
            each.pop("__id__", None)
            if "__loader__" in each or "__class__" in each or "__module__" in each:
                name, loader = f"{each.get('__module__')}.{each.get('__class__')}", str(each.get("__loader__"))
                if name not in TYPES.get(loader, ()):
                    found.add(f"{name} ({loader})")
                elif loader == "TreeNode":
                    _check_tree(each, files)
                elif loader == "NdArrayNode" and each["type"] != "numpy":
                    found.add(f"{name} of objects")
            rest.extend(each.values())
        elif isinstance(each, list):
            rest.extend(each)
    files["schema.json"] = json.dumps(schema).encode()
    return sorted(found)


def _check_tree(node: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """What scikit-learn makes a tree from, without looking at it: of two classes, and every walk in it ends."""
    features, classes, outputs = node["__reduce__"]["args"]["content"]
    state = node["content"]["content"]
    must(set(state) == {"max_depth", "node_count", "nodes", "values"}, "tree")
    plain = (features, outputs, state["max_depth"], state["node_count"])
    must(all(each["__loader__"] == "JsonNode" and type(each["content"]) is str for each in plain), "tree")
    width, n_outputs, _, n = (int(each["content"]) for each in plain)
    arrays = []
    for each in (classes, state["nodes"], state["values"]):
        must(each["__loader__"] == "NdArrayNode" and each["__class__"] == "ndarray", "tree")
        arrays.append(np.lib.format.read_array(io.BytesIO(files[each["file"]])))
    n_classes, nodes, values = arrays
    must(n_classes.dtype == np.int64 and n_classes.tolist() == [2] and n_outputs == 1, "classes of a tree")
    must(n > 0 and nodes.shape == (n,) and nodes.dtype == needed("sklearn.tree._tree").NODE_DTYPE, "nodes of a tree")
    _check_numbers(values, (n, 1, 2))
    check_children(nodes["left_child"], nodes["right_child"], nodes["feature"], width)


def needed(module: str) -> Any:
    """A module of the optional packages."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise CxrhfError(f"{package} is not installed", next_step="pip install 'cxrhf[context]'") from error


def _load_sklearn(data: bytes, sealed: Sealed, name: str, kind: str, width: int) -> Any:
    try:
        files = unpacked(data)
        if other := foreign(files):
            raise sealed.wrong(f"{name} contains {other[0]}, which no cxrhf model contains; the file was not opened")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of another version: store.py says so once
            model = needed("skops.io").loads(_packed(files), trusted=sorted(set().union(*TYPES.values())))
    except zipfile.BadZipFile as error:
        raise sealed.wrong(f"{name} is not a skops file (cxrhf never opens a pickle)") from error
    if type(model).__name__ != kind:
        raise sealed.wrong(f"{name} contains a {type(model).__name__} instead of a {kind}")
    check_classifier(model, width)
    # What remains is said by a trial: a setting that is missing, or of another kind.
    must(bool(np.isfinite(scores(model, np.zeros((2, width), dtype=np.float32))).all()), "scores")
    return model


def _packed(files: Mapping[str, bytes]) -> bytes:
    """A file for skops, of what was looked at and nothing else."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for name, data in files.items():
            packed.writestr(name, data)
    return out.getvalue()


def check_classifier(model: Any, width: int) -> None:
    """Everything that a prediction relies on has the shape it must have; ValueError otherwise.

    scikit-learn's loops over trees, neighbours and layers follow their arrays without looking.
    """
    kind = type(model).__name__
    must(type(model.n_features_in_) is int and model.n_features_in_ == width, "number of features")
    must(np.array_equal(model.classes_, [0, 1]), "classes")
    for name, value in (("n_jobs", 1), ("verbose", 0)):  # they belong to whoever reads
        if hasattr(model, name):
            setattr(model, name, value)
    if kind == "GaussianNB":
        for name, shape in (("theta_", (2, width)), ("var_", (2, width)), ("class_prior_", (2,))):
            _check_numbers(getattr(model, name), shape)
        must(bool((model.var_ > 0).all() and (model.class_prior_ > 0).all()), "likelihoods")
    elif kind == "KNeighborsClassifier":
        n = len(model._fit_X)
        _check_numbers(model._fit_X, (n, width))
        y = np.asarray(model._y)
        must(y.shape == (n,) and y.dtype.kind == "i" and bool(np.isin(y, (0, 1)).all()), "labels of the neighbours")
        must(model._fit_method == "brute" and model.outputs_2d_ is False, "neighbours")
        must(model.n_samples_fit_ == n and type(model.n_neighbors) is int and 0 < model.n_neighbors <= n, "neighbours")
        must(model.weights in ("uniform", "distance") and model.effective_metric_ == "euclidean", "neighbours")
    elif kind == "MLPClassifier":
        sizes = [width, *(len(each) for each in model.intercepts_)]
        must(len(model.coefs_) == len(model.intercepts_) == model.n_layers_ - 1, "layers")
        for at, (weight, bias) in enumerate(zip(model.coefs_, model.intercepts_, strict=True)):
            _check_numbers(weight, (sizes[at], sizes[at + 1]))
            _check_numbers(bias, (sizes[at + 1],))
        must(sizes[-1] == model.n_outputs_ == 1 and model.out_activation_ == "logistic", "layers")
    elif kind in ("DecisionTreeClassifier", "RandomForestClassifier"):
        trees = model.estimators_ if kind == "RandomForestClassifier" else [model]
        must(isinstance(trees, list) and len(trees) > 0, "trees")
        for each in (model, *trees):
            must(each.n_features_in_ == width and each.n_outputs_ == 1 and each.n_classes_ == 2, "trees")
        for each in trees:
            must(type(each).__name__ == "DecisionTreeClassifier" and len(each.classes_) == 2, "trees")
            must(type(each.tree_).__name__ == "Tree" and each.tree_.n_features == width, "number of features")
    else:  # linear
        must(np.shape(model.coef_) in ((1, width), (width,)), "coefficients")
        _check_numbers(model.coef_, np.shape(model.coef_))
        _check_numbers(model.intercept_, (1,))


def _check_numbers(values: Any, shape: tuple[int, ...]) -> None:
    must(isinstance(values, np.ndarray) and values.dtype.kind == "f", "numbers")
    must(values.shape == shape and bool(np.isfinite(values).all()), "numbers")


def _load_booster(data: bytes, width: int) -> Any:
    checked = json.dumps(checked_model(read_ubj(data), width), allow_nan=False)
    booster = needed("xgboost").Booster({"nthread": 1, "verbosity": 0})
    booster.load_model(bytearray(checked.encode()))
    return booster
