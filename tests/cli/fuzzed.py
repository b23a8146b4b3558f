"""Seed -> a predictions file with something wrong in it, or merely strange: what people's files look like."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

STRANGE = (
    "", " ", "nan", "NaN", "None", "null", "NA", "-1", "2", "0.5", "1e400", "-inf", "inf", "1,5", "1.0", "TRUE", "yes",
    "<script>alert(1)</script>", "=cmd()", "ü", "\u200b", "\x00",
    '"', "'", "a,b", "9" * 40, "-0.0", "1e-320", "0x1", "٣",
    "2180-05-06", "20180101", "#N/A", "\ufeff", "😀",
    "\x1b[31m", "\u202e", "e\u0301", "{{7*7}}", "%s%n", "../../x", "50%", "0,5", "1e308", "true ", "x" * 3000,
)  # fmt: skip
NAMES = (
    "id", "image", "patient", "label", "score", "prob", "logit", "pretest", "mention", "sex", "race", "age", "view",
    "split", "model", "seed", "weight", "finding", "time", "study_date", "", "  ", "prob_Edema", "Edema", "label_Edema",
    "<b>x</b>", "unnamed: 0", "dataset", "label ", "LABEL", "\x1b[2J", "macro", "all", "prob_", "label_", "y" * 500,
)  # fmt: skip
WORDS = ("0", "0.9", "11", "holm", "max_t", "from:", "a,,b", "macro", "--", "\x1b")


def fuzzed(seed: int, folder: Path) -> tuple[Path, list[str]]:
    """A file in the folder, and flags to audit it with."""
    rng = np.random.default_rng([seed, 77])
    n = int(rng.choice([0, 1, 2, 5, 20, 60]))
    columns = _columns(rng, n)
    for _ in range(int(rng.integers(0, 4))):
        _spoil(rng, columns, n)
    kind = rng.choice(["csv", "csv", "csv", "tsv", "parquet", "jsonl", "csv.gz"])
    path = folder / f"fuzz{seed}.{kind}"
    if kind == "parquet":
        pq.write_table(_arrow(rng, columns), path)
    elif kind == "jsonl":
        rows = [{name: values[at] for name, values in columns.items()} for at in range(n)]
        path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    else:
        path.write_bytes(_bytes(rng, columns, n, kind))
    flags = ["--n-resamples", "10"]
    for flag in (
        "--patient",
        "--label",
        "--score",
        "--pretest",
        "--sex",
        "--finding",
        "--only",
        "--model",
        "--time",
        "--findings",
        "--level",
        "--correction",
        "--baseline",
        "--n-resamples",
    ):
        if rng.random() < 0.04:
            flags += [
                flag,
                str(rng.choice([*columns, "nothing", "overview", "from:age,sex", "from:prior_labels", *WORDS])),
            ]
    return path, flags


def _columns(rng: np.random.Generator, n: int) -> dict[str, list[object]]:
    """A file as it should be: one finding, wide or long."""
    form = rng.choice(["one", "wide", "long"])
    label = [int(x) for x in rng.random(n) < 0.4]
    prob = [round(float(x), int(rng.choice([1, 3, 9]))) for x in rng.random(n)]
    made: dict[str, list[object]] = {
        "image_id": [f"i{at}" for at in range(n)],
        "patient_id": [f"p{at // 2}" for at in range(n)],
    }
    if form == "wide":
        made |= {"Edema": label, "prob_Edema": prob, "Pneumonia": label[::-1], "prob_Pneumonia": prob}
        if rng.random() < 0.5:
            made["pretest_Edema"] = prob[::-1]
    else:
        made |= {"label": label, "prob": prob}
        if form == "long":
            made["finding"] = [str(rng.choice(["Edema", "Effusion"])) for _ in range(n)]
        if rng.random() < 0.5:
            made["pretest"] = prob[::-1]
    for name, values in {
        "sex": ["F", "M", "", "X"],
        "age": [0, 40, 90, "058Y", -3],
        "view": ["AP", "PA"],
        "race": ["A", "B", "<i>"],
        "split": ["test", "validate", "train"],
        "weight": [1, 2, 0],
        "mention": [True, False, ""],
        "model": ["a", "b"],
        "study_date": ["2019-01-01", "2019-01-02", "20190103"],
    }.items():
        if rng.random() < 0.25:
            made[name] = [values[int(rng.integers(0, len(values) if rng.random() < 0.3 else 2))] for _ in range(n)]
    return made


def _spoil(rng: np.random.Generator, columns: dict[str, list[object]], n: int) -> None:
    names = list(columns)
    if not names:
        return
    name = str(rng.choice(names))
    what = int(rng.integers(0, 12))
    if what == 0:
        del columns[name]
    elif what == 1:
        columns[str(rng.choice(NAMES))] = columns.pop(name)
    elif what == 2 and n:
        columns[name][int(rng.integers(0, n))] = str(rng.choice(STRANGE))
    elif what == 3:
        columns[name] = [str(rng.choice(STRANGE)) for _ in range(n)]
    elif what == 4:
        columns[name] = [columns[name][0]] * n if n else []
    elif what == 5 and n > 1:
        columns[name] = [*columns[name][:-1], columns[name][0]]
    elif what == 6:
        columns[name] = [float(x) for x in rng.normal(0, 3, n)]
    elif what == 7:
        columns[str(rng.choice(NAMES))] = [str(rng.choice(STRANGE)) for _ in range(n)]
    elif what == 9:  # an id where something else should be
        columns[str(rng.choice(["model", "finding", "dataset", "race", "view", "seed"]))] = [
            f"id{at}" for at in range(n)
        ]
    elif what == 10 and n:  # numbers at the ends of what a float holds
        columns[name] = [float(rng.choice([1e308, -1e308, 5e-324, 0.0, -0.0, 1.0, 1 + 1e-15])) for _ in range(n)]
    elif what == 11:
        columns[name] = [f" {each}\t" for each in columns[name]]
    else:
        columns[name] = list(rng.permutation(np.array(columns[name], dtype=object)))


def _arrow(rng: np.random.Generator, columns: dict[str, list[object]]) -> pa.Table:
    made = {}
    for name, values in columns.items():
        try:
            made[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            made[name] = pa.array([str(each) for each in values])
        if rng.random() < 0.05:
            made[name] = pa.nulls(len(values), made[name].type)
        elif rng.random() < 0.03:
            made[name] = pa.array([[1, 2]] * len(values))
    return pa.table(made)


def _bytes(rng: np.random.Generator, columns: dict[str, list[object]], n: int, kind: str) -> bytes:
    mark = "\t" if kind == "tsv" else str(rng.choice([",", ",", ",", ";", "|"]))
    lines = [mark.join(columns), *(mark.join(str(values[at]) for values in columns.values()) for at in range(n))]
    if rng.random() < 0.1 and len(lines) > 1:
        lines[int(rng.integers(1, len(lines)))] += mark + "more"
    data = str(rng.choice(["\n", "\r\n"])).join(lines).encode(str(rng.choice(["utf-8", "utf-8-sig", "utf-16"])))
    if rng.random() < 0.1 and data:
        at = int(rng.integers(0, len(data)))
        data = data[:at] + rng.bytes(5) + data[at:]
    if kind == "csv.gz":
        data = gzip.compress(data)
        data = data[: len(data) // 2] if rng.random() < 0.2 else data
    return data
