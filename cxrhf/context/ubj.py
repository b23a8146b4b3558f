"""XGBoost's saved model -> the same model as JSON, made anew from what was checked.

XGBoost believes what it reads: of 400 models with one to three bytes changed 70 ended the process and 6 hung it. So the
bytes (universal binary JSON) are first read here into plain values, and a model passes only if it is what cxrhf saves:
boosted trees for one label, every tree's arrays of one length, every child a node of its tree with one parent, every
feature one of the model's. XGBoost never sees the bytes: it gets JSON that is written from the checked values alone, so
that two readers cannot read one file in two ways (of two equal keys XGBoost takes the first, dict the last).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cxrhf.context.sealed import Unfit, must

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
    must(not learner["attributes"] and not learner["feature_names"] and not learner["feature_types"], "names")
    booster = learner["gradient_booster"]
    must(booster["name"] == "gbtree", "not boosted trees")
    must(learner["objective"]["name"] == "binary:logistic", "another objective")
    param = learner["learner_model_param"]
    features = int(param["num_feature"])
    must(0 < features < 2**31 and width in (None, features), "another number of features")
    must(int(param["num_class"]) == 0, "several classes")
    must(int(param.get("num_target", "1")) == 1, "several labels")
    given = param["base_score"]  # "5E-1", since XGBoost 3.1 "[5E-1]"
    base = float(given.strip("[]"))
    must(0 < base < 1, "base score")
    inner = booster["model"]
    must(not any(len(each) for each in inner.get("cats", {}).values()), "categories")
    trees = inner["trees"]
    must(isinstance(trees, list) and int(inner["gbtree_model_param"]["num_trees"]) == len(trees), "number of trees")
    must(int(inner["gbtree_model_param"].get("num_parallel_tree", "1")) == 1, "parallel trees")
    group, rounds = (_array(inner[name], np.int64) for name in ("tree_info", "iteration_indptr"))
    must(len(group) == len(trees) and not group.any(), "groups of trees")
    must(np.array_equal(rounds, np.arange(len(trees) + 1)), "rounds of trees")
    version = [int(each) for each in model["version"]]
    must(len(version) == 3 and version[0] >= 1 and all(0 <= each < 10_000 for each in version), "version")
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
    must(tree["id"] == at, "order of trees")
    param = tree["tree_param"]
    n = int(param["num_nodes"])
    must(n > 0 and int(param.get("num_deleted", "0")) == 0, "nodes of a tree")
    must(int(param["num_feature"]) == width, "features of a tree")
    must(int(param.get("size_leaf_vector", "1")) <= 1, "leaves of a tree")
    found = {name: _array(tree[name], kind) for name, kind in _OF_NODES.items()}
    must(all(len(each) == n for each in found.values()), "length of a tree's arrays")
    must(all(len(tree[name]) == 0 for name in tree if name.startswith("categories")), "categories")
    must(not found["split_type"].any() and bool((found["default_left"] <= 1).all()), "categories")
    left, right = found["left_children"], found["right_children"]
    check_children(left, right, found["split_indices"], width)
    must(np.array_equal(found["parents"], _parents(left, right)), "parents")
    return {
        "id": at,
        "tree_param": {"num_nodes": str(n), "num_feature": str(width), "num_deleted": "0", "size_leaf_vector": "1"},
        **{name: each.tolist() for name, each in found.items()},
        **{name: [] for name in _EMPTY},
    }


def _array(values: Any, dtype: Any) -> Any:
    """One row of finite numbers that the type holds."""
    given = np.asarray(values)
    must(given.ndim == 1 and (not given.size or given.dtype.kind in "iuf"), "an array that holds no numbers")
    must(bool(np.isfinite(given).all()), "a number that is not finite")
    with np.errstate(all="ignore"):
        found = given.astype(dtype)
    must(np.array_equal(found, given), "a number that is too large")
    return found


def check_children(left: Any, right: Any, feature: Any, width: int) -> None:
    """Every walk from the root ends: each child is a node, not the root, and has one parent. ValueError otherwise."""
    left, right, feature = (np.asarray(each, dtype=np.int64) for each in (left, right, feature))
    inner = left != -1
    must(np.array_equal(inner, right != -1), "a node with one child")
    children = np.concatenate([left[inner], right[inner]])
    must(bool(np.all((children > 0) & (children < len(left)))), "a child outside its tree")
    must(len(np.unique(children)) == len(children), "a child of two parents")
    must(bool(np.all((feature[inner] >= 0) & (feature[inner] < width))), "a feature that does not exist")


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
