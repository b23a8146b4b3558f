"""Fitted models -> the same models with a change a stranger could make; each is read and asked in this process.

`python -m tests.context.forging FOLDER FROM TO` ends with 0 if every change is refused in one sentence or harmless. It
is run as a process of its own (test_forged_models.py), for what goes wrong here ends the process.
"""

from __future__ import annotations

import hashlib
import io
import json
import resource
import shutil
import struct
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cxrhf.context.material import Candidate
from cxrhf.context.model_files import read_ubj
from cxrhf.context.sealed import MANIFEST
from cxrhf.context.store import Bundle, StoredModel, load_models, save_models
from cxrhf.context.sweep import fit, importance, scores
from cxrhf.errors import CxrhfError
from cxrhf.learn import fit_calibrator

WIDTH, N = 20, 150  # wide enough for neighbours without a tree
RNG = np.random.default_rng(0)
FEATURES = RNG.standard_normal((N, WIDTH)).astype(np.float32)
Y = (RNG.random(N) < 0.4).astype(float)
CANDIDATES = (
    Candidate("XGBoost", {"n_estimators": 4, "max_depth": 3}),
    Candidate("RandomForestClassifier", {"n_estimators": 3, "max_depth": 4}),
    Candidate("DecisionTreeClassifier", {"max_depth": 4}),
    Candidate("KNeighborsClassifier", {"n_neighbors": 3}),
    Candidate("MLPClassifier", {"hidden_layer_sizes": (6, 4)}),
    Candidate("GaussianNB", {}),
    Candidate("LinearSVC", {"C": 0.1}),
    Candidate("LinearDiscriminantAnalysis", {"solver": "lsqr"}),
    Candidate("WordRidge", {"penalty": 3.0}),
)
ODD: tuple[Any, ...] = (
    -1, 0, 1, 2, 3, 255, 10**6, 2**31 - 1, -(2**31), 10**9, 2**62, -(2**63), 10**40, 0.5, -0.0, 1e300, float("inf"),
    float("nan"), None, True, "", "x", "\ud800", "9" * 5000, [], {}, [[1, 2], [3]], [0] * 1000,
)  # fmt: skip


def save_all(folder: Path) -> list[str]:
    """One model of each kind, one finding a kind; the files that hold them."""
    stored = {}
    for each in CANDIDATES:
        model = fit(each, FEATURES, np.arange(N), Y, np.arange(N), 0)
        calibrator = fit_calibrator(scores(model, FEATURES), Y, "platt")
        stored[each.kind] = StoredModel(each.kind, "org/encoder", "encoder", each, model, calibrator)
    about = {"settings": {"encoder": "org/encoder"}, "identity": {"dim": WIDTH}}
    save_models(folder, Bundle(stored, {}, {"org/encoder": about}, {}, {}))
    return [each["model"] for each in json.loads((folder / "contents.json").read_text())["models"]]


def seal(folder: Path, name: str, data: bytes) -> None:
    """Put a file in the place of another, with a manifest that vouches for it."""
    (folder / name).write_bytes(data)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    (folder / MANIFEST).write_text(json.dumps(manifest))


def only(folder: Path, kind: str, to: Path) -> Path:
    """A copy with the model of one kind alone, so that it is quick to read."""
    shutil.copytree(folder, to)
    contents = json.loads((to / "contents.json").read_text())
    contents["models"] = [each for each in contents["models"] if each["finding"] == kind]
    kept = {contents["models"][0]["model"], "contents.json", MANIFEST}
    for each in to.iterdir():
        if each.name not in kept:
            each.unlink()
    manifest = json.loads((to / MANIFEST).read_text())
    manifest["files"] = {name: about for name, about in manifest["files"].items() if name in kept}
    (to / MANIFEST).write_text(json.dumps(manifest))
    seal(to, "contents.json", json.dumps(contents).encode())
    return to


def ubj(value: Any) -> bytes:
    """Universal binary JSON of plain values and arrays, as XGBoost reads it."""

    def length(n: int) -> bytes:
        return b"L" + struct.pack(">q", n)

    if isinstance(value, np.ndarray):
        mark = {"i1": b"i", "u1": b"U", "i2": b"I", "i4": b"l", "i8": b"L", "f4": b"d", "f8": b"D"}[value.dtype.str[1:]]
        return b"[$" + mark + b"#" + length(len(value)) + value.astype(value.dtype.newbyteorder(">")).tobytes()
    if isinstance(value, dict):
        return b"{" + b"".join(length(len(k.encode())) + k.encode() + ubj(v) for k, v in value.items()) + b"}"
    if isinstance(value, list):
        return b"[#" + length(len(value)) + b"".join(map(ubj, value))
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        return b"S" + length(len(data)) + data
    if value is None or isinstance(value, bool):
        return {None: b"Z", True: b"T", False: b"F"}[value]
    if isinstance(value, float):
        return b"d" + np.array([value]).astype(">f4").tobytes()
    return b"L" + struct.pack(">q", value if -(2**63) <= value < 2**63 else 7)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in nested values, as what holds it and its key."""
    for key in list(value if isinstance(value, dict) else range(len(value))):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from places(value[key])


def change(value: Any, rng: np.random.Generator) -> None:
    """One place gets an odd value, goes, or, if it is an array, gets an odd number somewhere."""
    every = list(places(value))
    held, key = every[rng.integers(len(every))]
    there = held[key]
    if isinstance(there, np.ndarray) and len(there) and rng.random() < 0.7:
        there = there.copy()
        info = np.iinfo(there.dtype) if there.dtype.kind in "iu" else None
        odd = (-1, 0, 1, len(there), 10**6, 2**31 - 1, -(2**31)) if info else (0.5, np.nan, np.inf, 1e38)
        number = odd[rng.integers(len(odd))]
        there[rng.integers(len(there))] = np.clip(number, info.min, info.max) if info else number
        held[key] = there if rng.random() < 0.8 else there[: rng.integers(len(there))]
    elif rng.random() < 0.15:
        del held[key]
    else:
        odd = ODD[rng.integers(len(ODD))]
        held[key] = str(odd) if isinstance(there, str) and rng.random() < 0.7 else odd


def forged_booster(data: bytes, rng: np.random.Generator) -> bytes:
    if rng.random() < 0.3:
        return flipped(data, rng)
    model = read_ubj(data)
    change(model, rng)
    made = ubj(model)
    if rng.random() < 0.2:  # an equal key before or behind: two readers, two models
        other = read_ubj(data)
        change(other, rng)
        twin = ubj({"learner": other.get("learner", {})})[1:-1]
        made = b"{" + twin + made[1:] if rng.random() < 0.5 else made[:-1] + twin + b"}"
    return made


def forged_skops(data: bytes, rng: np.random.Generator) -> bytes:
    if rng.random() < 0.1:
        return flipped(data, rng)
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        files = {each: packed.read(each) for each in packed.namelist()}
    if rng.random() < 0.5:
        schema = json.loads(files["schema.json"])
        if rng.random() < 0.4:  # the text of a value
            texts = [each for each, key in places(schema) if key == "content" and isinstance(each[key], str)]
            texts[rng.integers(len(texts))]["content"] = json.dumps(ODD[rng.integers(len(ODD))])
        elif rng.random() < 0.3:  # one part in the place of another
            ids = [each for each, key in places(schema) if key == "__id__"]
            one, other = rng.integers(len(ids), size=2)
            ids[one]["__id__"] = ids[other]["__id__"]
        else:
            change(schema, rng)
        files["schema.json"] = json.dumps(schema).encode("utf-8", "surrogatepass")
    else:
        arrays = [each for each in files if each.endswith(".npy")]
        name = arrays[rng.integers(len(arrays))]
        files[name] = forged_array(files[name], rng)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for name, inner in files.items():
            packed.writestr(name, inner)
    return out.getvalue()


def forged_array(data: bytes, rng: np.random.Generator) -> bytes:
    array = np.load(io.BytesIO(data), allow_pickle=False)
    way = rng.integers(4)
    if way == 0:
        return flipped(data, rng)
    if way == 1 and array.ndim:
        array = array[:, : max(1, array.shape[-1] // 2)] if array.ndim == 2 else array[: len(array) // 2]
    elif way == 2:
        array = np.array(ODD[rng.integers(15)], dtype=float) if array.dtype.names else array.reshape(1, -1).T
    elif array.size:
        array = array.copy()
        flat = array.reshape(-1)
        at = rng.integers(len(flat))
        for name in array.dtype.names or (None,):
            part = flat if name is None else flat[name]
            if rng.random() < 0.4:
                top = np.iinfo(part.dtype).max if part.dtype.kind in "iu" else 1e30
                part[at] = (-1 if part.dtype.kind == "i" else 0, top, 1)[rng.integers(3)]
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def flipped(data: bytes, rng: np.random.Generator) -> bytes:
    made = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        made[rng.integers(len(made))] = rng.integers(256)
    return bytes(made)


def main(folder: Path, start: int, stop: int) -> int:
    """Change, read, ask."""
    kinds = [each.kind for each in CANDIDATES]
    there = Path(tempfile.mkdtemp())
    alone = {kind: only(folder, kind, there / kind) for kind in kinds}
    names = {
        kind: next(each.name for each in place.iterdir() if each.name not in ("contents.json", MANIFEST))
        for kind, place in alone.items()
    }
    originals = {kind: (alone[kind] / names[kind]).read_bytes() for kind in kinds}
    ways: dict[str, Callable[[bytes, np.random.Generator], bytes]] = {
        ".ubj": forged_booster, ".skops": forged_skops, ".safetensors": flipped,
    }  # fmt: skip
    for kind, place in alone.items():  # what is imported does not count
        scores(load_models(place).models[kind].model, FEATURES)
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    np.seterr(all="ignore")
    for seed in range(start, stop):
        rng = np.random.default_rng(seed)
        kind = kinds[0] if seed % 3 == 0 else kinds[seed % len(kinds)]  # XGBoost most of all
        name = names[kind]
        seal(alone[kind], name, ways[Path(name).suffix](originals[kind], rng))
        (there / "last").write_text(f"{seed} {kind}")
        try:
            model = load_models(alone[kind]).models[kind].model
        except CxrhfError as error:
            refused += 1
            if name not in str(error):
                raise
            continue
        found = scores(model, FEATURES)
        assert found.shape == (N,), (seed, kind)
        importance(model, WIDTH)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - size
    shutil.rmtree(there)
    print(f"{stop - start} changed, {refused} refused, {grown // 1024} MB")
    return 0 if grown < 150 * 1024 else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
