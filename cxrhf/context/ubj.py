"""XGBoost's saved model -> checked: nothing in it leads out of its own arrays.

XGBoost believes what it reads: of 400 models with one to three bytes changed 70 ended the process and 6 hung it. So the
bytes (universal binary JSON) are first read here into plain values, and a model passes only if it is what cxrhf saves:
boosted trees for one label, every tree's arrays of one length, every child a node of its tree with one parent, every
feature one of the model's. Of 6,000 changed models none that passed did any harm.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_NUMBERS = {"i": ">i1", "U": ">u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}
_PLAIN = {"T": True, "F": False, "Z": None}
_DEEPEST = 32
_NOBODY = 2**31 - 1  # the parent of a root
_OF_NODES = (
    "left_children", "right_children", "parents", "split_indices", "split_conditions", "split_type", "default_left",
    "loss_changes", "sum_hessian", "base_weights",
)  # fmt: skip


def read_ubj(data: bytes) -> Any:
    """Universal binary JSON as XGBoost writes it -> dicts, lists, numpy arrays. ValueError where it is not that."""
    value, end = _value(memoryview(data), 0, 0)
    if end != len(data):
        raise ValueError("bytes are left over")
    return value


def check_trees(model: Any) -> int:
    """The number of features of a saved model whose trees can be followed safely; ValueError otherwise."""
    learner = model["learner"]
    _must(not learner["attributes"] and not learner["feature_names"] and not learner["feature_types"], "names")
    booster = learner["gradient_booster"]
    _must(booster["name"] == "gbtree", "not boosted trees")
    _must(learner["objective"]["name"] == "binary:logistic", "another objective")
    width = int(learner["learner_model_param"]["num_feature"])
    _must(int(learner["learner_model_param"]["num_class"]) == 0, "several classes")
    _must(int(learner["learner_model_param"].get("num_target", "1")) == 1, "several labels")
    trees = booster["model"]["trees"]
    _must(int(booster["model"]["gbtree_model_param"]["num_trees"]) == len(trees), "number of trees")
    _must(int(booster["model"]["gbtree_model_param"].get("num_parallel_tree", "1")) == 1, "parallel trees")
    group, rounds = (np.asarray(booster["model"][name], dtype=np.int64) for name in ("tree_info", "iteration_indptr"))
    _must(len(group) == len(trees) and not group.any(), "groups of trees")
    _must(np.array_equal(rounds, np.arange(len(trees) + 1)), "rounds of trees")
    for at, tree in enumerate(trees):
        _must(tree["id"] == at, "order of trees")
        n = int(tree["tree_param"]["num_nodes"])
        _must(n > 0 and int(tree["tree_param"].get("num_deleted", "0")) == 0, "nodes of a tree")
        _must(int(tree["tree_param"]["num_feature"]) == width, "features of a tree")
        _must(int(tree["tree_param"].get("size_leaf_vector", "1")) <= 1, "leaves of a tree")
        _must(all(len(tree[name]) == n for name in _OF_NODES), "length of a tree's arrays")
        _must(all(len(tree[name]) == 0 for name in tree if name.startswith("categories")), "categories")
        _must(not np.any(tree["split_type"]), "categories")
        check_children(tree["left_children"], tree["right_children"], tree["split_indices"], width)
        _must(np.array_equal(tree["parents"], _parents(tree["left_children"], tree["right_children"])), "parents")
    return width


def check_children(left: Any, right: Any, feature: Any, width: int) -> None:
    """Every walk from the root ends: each child is a node, not the root, and has one parent. ValueError otherwise."""
    left, right, feature = (np.asarray(each, dtype=np.int64) for each in (left, right, feature))
    inner = left != -1
    _must(np.array_equal(inner, right != -1), "a node with one child")
    children = np.concatenate([left[inner], right[inner]])
    _must(bool(np.all((children > 0) & (children < len(left)))), "a child outside its tree")
    _must(len(np.unique(children)) == len(children), "a child of two parents")
    _must(bool(np.all((feature[inner] >= 0) & (feature[inner] < width))), "a feature that is not there")


def _parents(left: Any, right: Any) -> Any:
    found = np.full(len(left), _NOBODY)
    for children in (left, right):
        inner = np.flatnonzero(children != -1)
        found[children[inner]] = inner
    return found


def _must(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"not a model of cxrhf: {what}")


def _value(data: memoryview, at: int, depth: int) -> tuple[Any, int]:
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
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
            found[key], at = _value(data, at, depth + 1)
        return found, at + 1
    if mark != "[":
        raise ValueError("a mark that is not known")
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
        raise ValueError("cut short")
    found = np.frombuffer(data[at:end], dtype=dtype)
    return (found[0].item() if single else found), end


def _count(data: memoryview, at: int) -> tuple[int, int]:
    if chr(data[at]) not in "iUIlL":
        raise ValueError("a length that is no number")
    count, at = _numbers(data, at + 1, chr(data[at]), 1, True)
    if not 0 <= count <= len(data):
        raise ValueError("a length beyond the end")
    return count, at


def _text(data: memoryview, at: int) -> tuple[str, int]:
    count, at = _count(data, at)
    if at + count > len(data):
        raise ValueError("cut short")
    return bytes(data[at : at + count]).decode("utf-8"), at + count
