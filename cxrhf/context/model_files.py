"""A fitted classifier or calibrator <-> a file that holds no code.

scikit-learn's classifiers: skops, packed. The file is unpacked here, counted as it grows; only the types in `TYPES` may
be in it, looked up in the file's own list before anything is made; skops then reads what was looked at, and checks
again. scikit-learn follows trees, neighbours and layers without bounds, so every shape that a prediction relies on is
compared with the record before the classifier is used. XGBoost: its own .ubj. `WordRidge` and knots of
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

from cxrhf.context.material import Candidate, Floats
from cxrhf.context.sealed import Sealed, Unfit, require
from cxrhf.context.sweep import KINDS, Linear, scores
from cxrhf.errors import CxrhfError, RunError
from cxrhf.learn import Calibrator

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
        import_optional("skops.io").dump(model, path, compression=zipfile.ZIP_DEFLATED, compresslevel=1)
        if other := find_foreign_types(unpack_skops(path.read_bytes())):
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
            require(len(arrays["weight"]) == width and len(arrays["intercept"]) == 1, "number of features")
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
    path.write_bytes(import_optional("safetensors.numpy").save(kept))


def load_arrays(data: bytes, names: tuple[str, ...], *, missing: bool = False) -> dict[str, Floats]:
    """Arrays of finite numbers with exactly these names; `missing`: NaN may be among them. Else a ValueError."""
    try:
        found = import_optional("safetensors.numpy").load(data)
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


def unpack_skops(data: bytes) -> dict[str, bytes]:
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


def find_foreign_types(files: dict[str, bytes]) -> list[str]:
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
    require(set(state) == {"max_depth", "node_count", "nodes", "values"}, "tree")
    plain = (features, outputs, state["max_depth"], state["node_count"])
    require(all(each["__loader__"] == "JsonNode" and type(each["content"]) is str for each in plain), "tree")
    width, n_outputs, _, n = (int(each["content"]) for each in plain)
    arrays = []
    for each in (classes, state["nodes"], state["values"]):
        require(each["__loader__"] == "NdArrayNode" and each["__class__"] == "ndarray", "tree")
        arrays.append(np.lib.format.read_array(io.BytesIO(files[each["file"]])))
    n_classes, nodes, values = arrays
    require(n_classes.dtype == np.int64 and n_classes.tolist() == [2] and n_outputs == 1, "classes of a tree")
    require(
        n > 0 and nodes.shape == (n,) and nodes.dtype == import_optional("sklearn.tree._tree").NODE_DTYPE,
        "nodes of a tree",
    )
    _check_numbers(values, (n, 1, 2))
    check_children(nodes["left_child"], nodes["right_child"], nodes["feature"], width)


def import_optional(module: str) -> Any:
    """A module of the optional packages."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise CxrhfError(f"{package} is not installed", next_step="pip install 'cxrhf[context]'") from error


def _load_sklearn(data: bytes, sealed: Sealed, name: str, kind: str, width: int) -> Any:
    try:
        files = unpack_skops(data)
        if other := find_foreign_types(files):
            raise sealed.wrong(f"{name} contains {other[0]}, which no cxrhf model contains; the file was not opened")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of another version: store.py says so once
            model = import_optional("skops.io").loads(_packed(files), trusted=sorted(set().union(*TYPES.values())))
    except zipfile.BadZipFile as error:
        raise sealed.wrong(f"{name} is not a skops file (cxrhf never opens a pickle)") from error
    if type(model).__name__ != kind:
        raise sealed.wrong(f"{name} contains a {type(model).__name__} instead of a {kind}")
    check_classifier(model, width)
    # What remains is said by a trial: a setting that is missing, or of another kind.
    require(bool(np.isfinite(scores(model, np.zeros((2, width), dtype=np.float32))).all()), "scores")
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
    require(type(model.n_features_in_) is int and model.n_features_in_ == width, "number of features")
    require(np.array_equal(model.classes_, [0, 1]), "classes")
    for name, value in (("n_jobs", 1), ("verbose", 0)):  # they belong to whoever reads
        if hasattr(model, name):
            setattr(model, name, value)
    if kind == "GaussianNB":
        for name, shape in (("theta_", (2, width)), ("var_", (2, width)), ("class_prior_", (2,))):
            _check_numbers(getattr(model, name), shape)
        require(bool((model.var_ > 0).all() and (model.class_prior_ > 0).all()), "likelihoods")
    elif kind == "KNeighborsClassifier":
        n = len(model._fit_X)
        _check_numbers(model._fit_X, (n, width))
        y = np.asarray(model._y)
        require(y.shape == (n,) and y.dtype.kind == "i" and bool(np.isin(y, (0, 1)).all()), "labels of the neighbours")
        require(model._fit_method == "brute" and model.outputs_2d_ is False, "neighbours")
        require(
            model.n_samples_fit_ == n and type(model.n_neighbors) is int and 0 < model.n_neighbors <= n, "neighbours"
        )
        require(model.weights in ("uniform", "distance") and model.effective_metric_ == "euclidean", "neighbours")
    elif kind == "MLPClassifier":
        sizes = [width, *(len(each) for each in model.intercepts_)]
        require(len(model.coefs_) == len(model.intercepts_) == model.n_layers_ - 1, "layers")
        for at, (weight, bias) in enumerate(zip(model.coefs_, model.intercepts_, strict=True)):
            _check_numbers(weight, (sizes[at], sizes[at + 1]))
            _check_numbers(bias, (sizes[at + 1],))
        require(sizes[-1] == model.n_outputs_ == 1 and model.out_activation_ == "logistic", "layers")
    elif kind in ("DecisionTreeClassifier", "RandomForestClassifier"):
        trees = model.estimators_ if kind == "RandomForestClassifier" else [model]
        require(isinstance(trees, list) and len(trees) > 0, "trees")
        for each in (model, *trees):
            require(each.n_features_in_ == width and each.n_outputs_ == 1 and each.n_classes_ == 2, "trees")
        for each in trees:
            require(type(each).__name__ == "DecisionTreeClassifier" and len(each.classes_) == 2, "trees")
            require(type(each.tree_).__name__ == "Tree" and each.tree_.n_features == width, "number of features")
    else:  # linear
        require(np.shape(model.coef_) in ((1, width), (width,)), "coefficients")
        _check_numbers(model.coef_, np.shape(model.coef_))
        _check_numbers(model.intercept_, (1,))


def _check_numbers(values: Any, shape: tuple[int, ...]) -> None:
    require(isinstance(values, np.ndarray) and values.dtype.kind == "f", "numbers")
    require(values.shape == shape and bool(np.isfinite(values).all()), "numbers")


def _load_booster(data: bytes, width: int) -> Any:
    checked = json.dumps(checked_model(read_ubj(data), width), allow_nan=False)
    booster = import_optional("xgboost").Booster({"nthread": 1, "verbosity": 0})
    booster.load_model(bytearray(checked.encode()))
    return booster


# XGBoost's saved model -> the same model as JSON, made anew from what was checked.
#
# XGBoost believes what it reads: of 400 models with one to three bytes changed 70 ended the process and 6 hung it. So
# the bytes (universal binary JSON) are first read here into plain values, and a model passes only if it is what cxrhf
# saves: boosted trees for one label, every tree's arrays of one length, every child a node of its tree with one
# parent, every feature one of the model's. XGBoost never sees the bytes: it gets JSON that is written from the
# checked values alone, so that two readers cannot read one file in two ways (of two equal keys XGBoost takes the
# first, dict the last).

_NUMBERS = {"i": ">i1", "U": ">u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}
_PLAIN = {"T": True, "F": False, "Z": None}
_DEEPEST = 32
_NOBODY = 2**31 - 1  # the parent of a root
# The arrays of a tree, one value a node.
_OF_NODES: dict[str, Any] = {
    "left_children": np.int32, "right_children": np.int32, "parents": np.int32, "split_indices": np.int32,
    "split_conditions": np.float32, "split_type": np.uint8, "default_left": np.uint8, "loss_changes": np.float32,
    "sum_hessian": np.float32, "base_weights": np.float32,
}  # fmt: skip
_EMPTY = ("categories", "categories_nodes", "categories_segments", "categories_sizes")


def read_ubj(data: bytes) -> Any:
    """Universal binary JSON as XGBoost writes it -> dicts, lists, numpy arrays. ValueError where it is not that."""
    value, end = _value(memoryview(data), 0, 0)
    if end != len(data):
        raise Unfit("extra bytes at the end")
    return value


def checked_model(model: Any, width: int | None = None) -> dict[str, Any]:
    """What `read_ubj` read -> the values that XGBoost may load; ValueError if its trees cannot be followed safely.

    `width`: the number of features it must have.
    """
    learner = model["learner"]
    require(not learner["attributes"] and not learner["feature_names"] and not learner["feature_types"], "names")
    booster = learner["gradient_booster"]
    require(booster["name"] == "gbtree", "not boosted trees")
    require(learner["objective"]["name"] == "binary:logistic", "another objective")
    param = learner["learner_model_param"]
    features = int(param["num_feature"])
    require(0 < features < 2**31 and width in (None, features), "another number of features")
    require(int(param["num_class"]) == 0, "several classes")
    require(int(param.get("num_target", "1")) == 1, "several labels")
    given = param["base_score"]  # "5E-1", since XGBoost 3.1 "[5E-1]"
    base = float(given.strip("[]"))
    require(0 < base < 1, "base score")
    inner = booster["model"]
    require(not any(len(each) for each in inner.get("cats", {}).values()), "categories")
    trees = inner["trees"]
    require(isinstance(trees, list) and int(inner["gbtree_model_param"]["num_trees"]) == len(trees), "number of trees")
    require(int(inner["gbtree_model_param"].get("num_parallel_tree", "1")) == 1, "parallel trees")
    group, rounds = (_array(inner[name], np.int64) for name in ("tree_info", "iteration_indptr"))
    require(len(group) == len(trees) and not group.any(), "groups of trees")
    require(np.array_equal(rounds, np.arange(len(trees) + 1)), "rounds of trees")
    version = [int(each) for each in model["version"]]
    require(len(version) == 3 and version[0] >= 1 and all(0 <= each < 10_000 for each in version), "version")
    return {
        "version": version,
        "learner": {
            "attributes": {}, "feature_names": [], "feature_types": [],
            "gradient_booster": {
                "name": "gbtree",
                "model": {
                    "gbtree_model_param": {"num_trees": str(len(trees)), "num_parallel_tree": "1"},
                    "tree_info": group.tolist(),
                    "iteration_indptr": rounds.tolist(),
                    "trees": [_checked_tree(tree, at, features) for at, tree in enumerate(trees)],
                    "cats": {"enc": [], "feature_segments": [], "sorted_idx": []},
                },
            },
            "learner_model_param": {
                "num_feature": str(features), "num_class": "0", "num_target": "1", "boost_from_average": "1",
                "base_score": f"[{base}]" if given.startswith("[") else str(base),
            },
            "objective": {"name": "binary:logistic", "reg_loss_param": {"scale_pos_weight": "1"}},
        },
    }  # fmt: skip


def _checked_tree(tree: Any, at: int, width: int) -> dict[str, Any]:
    require(tree["id"] == at, "order of trees")
    param = tree["tree_param"]
    n = int(param["num_nodes"])
    require(n > 0 and int(param.get("num_deleted", "0")) == 0, "nodes of a tree")
    require(int(param["num_feature"]) == width, "features of a tree")
    require(int(param.get("size_leaf_vector", "1")) <= 1, "leaves of a tree")
    found = {name: _array(tree[name], kind) for name, kind in _OF_NODES.items()}
    require(all(len(each) == n for each in found.values()), "length of a tree's arrays")
    require(all(len(tree[name]) == 0 for name in tree if name.startswith("categories")), "categories")
    require(not found["split_type"].any() and bool((found["default_left"] <= 1).all()), "categories")
    left, right = found["left_children"], found["right_children"]
    check_children(left, right, found["split_indices"], width)
    require(np.array_equal(found["parents"], _parents(left, right)), "parents")
    return {
        "id": at,
        "tree_param": {"num_nodes": str(n), "num_feature": str(width), "num_deleted": "0", "size_leaf_vector": "1"},
        **{name: each.tolist() for name, each in found.items()},
        **{name: [] for name in _EMPTY},
    }


def _array(values: Any, dtype: Any) -> Any:
    """One row of finite numbers that the type holds."""
    given = np.asarray(values)
    require(given.ndim == 1 and (not given.size or given.dtype.kind in "iuf"), "an array that holds no numbers")
    require(bool(np.isfinite(given).all()), "a number that is not finite")
    with np.errstate(all="ignore"):
        found = given.astype(dtype)
    require(np.array_equal(found, given), "a number that is too large")
    return found


def check_children(left: Any, right: Any, feature: Any, width: int) -> None:
    """Every walk from the root ends: each child is a node, not the root, and has one parent. ValueError otherwise."""
    left, right, feature = (np.asarray(each, dtype=np.int64) for each in (left, right, feature))
    inner = left != -1
    require(np.array_equal(inner, right != -1), "a node with one child")
    children = np.concatenate([left[inner], right[inner]])
    require(bool(np.all((children > 0) & (children < len(left)))), "a child outside its tree")
    require(len(np.unique(children)) == len(children), "a child of two parents")
    require(bool(np.all((feature[inner] >= 0) & (feature[inner] < width))), "a feature that does not exist")


def _parents(left: Any, right: Any) -> Any:
    found = np.full(len(left), _NOBODY)
    for children in (left, right):
        inner = np.flatnonzero(children != -1)
        found[children[inner]] = inner
    return found


def _value(data: memoryview, at: int, depth: int) -> tuple[Any, int]:
    if depth > _DEEPEST:
        raise Unfit("nested too deeply")
    mark, at = chr(data[at]), at + 1
    if mark in _NUMBERS:
        return _numbers(data, at, mark, 1, True)
    if mark in _PLAIN:
        return _PLAIN[mark], at
    if mark == "S":
        return _text(data, at)
    if mark == "{":
        found: dict[str, Any] = {}
        while chr(data[at]) != "}":
            key, at = _text(data, at)
            if key in found:
                raise Unfit("a key that appears twice")
            found[key], at = _value(data, at, depth + 1)
        return found, at + 1
    if mark != "[":
        raise Unfit("an unknown marker")
    kind = None
    if chr(data[at]) == "$":
        kind, at = chr(data[at + 1]), at + 2
    if chr(data[at]) == "#":
        count, at = _count(data, at + 1)
        if kind is not None:
            return _numbers(data, at, kind, count, False)
        items = []
        for _ in range(count):
            item, at = _value(data, at, depth + 1)
            items.append(item)
        return items, at
    items = []
    while chr(data[at]) != "]":
        item, at = _value(data, at, depth + 1)
        items.append(item)
    return items, at + 1


def _numbers(data: memoryview, at: int, kind: str, count: int, single: bool) -> tuple[Any, int]:
    dtype = np.dtype(_NUMBERS[kind])
    end = at + count * dtype.itemsize
    if end > len(data):
        raise Unfit("cut short")
    found = np.frombuffer(data[at:end], dtype=dtype)
    return (found[0].item() if single else found), end


def _count(data: memoryview, at: int) -> tuple[int, int]:
    if chr(data[at]) not in "iUIlL":
        raise Unfit("a length that is not a number")
    count, at = _numbers(data, at + 1, chr(data[at]), 1, True)
    if not 0 <= count <= len(data):
        raise Unfit("a length beyond the end")
    return count, at


def _text(data: memoryview, at: int) -> tuple[str, int]:
    count, at = _count(data, at)
    if at + count > len(data):
        raise Unfit("cut short")
    return bytes(data[at : at + count]).decode("utf-8"), at + count
