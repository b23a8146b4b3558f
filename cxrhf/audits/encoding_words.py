"""SPLIT rows and what each network was trained for -> rows that say it in words: tasks, and a verdict for each target.

What SPLIT can say (ENCODING, its Figure 2): nothing to be read = scenario A, the tasks are unrelated. Something to be
read = scenario B (the same layer serves both, in directions of their own) or C (what tells the finding also tells the
characteristic). SPLIT does not tell B from C, however high it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cxrhf.audits.people import TARGETS
from cxrhf.audits.rows import Row

# An interval that holds .5 and ends below this leaves nothing worth reading.
LOW = 0.6
# Networks that are named one by one in a verdict.
_NAMED = 4
_B_OR_C = (
    "This is scenario B (present, along a separate direction) or C (used for findings). SPLIT cannot show which, "
    "however high it is."
)
_HINT = "Maps of the embeddings (features) and multitask networks can hint at B or C, but prove neither."
_PICTURES = "By their names, these were never trained on X-rays: it is visible in the images, which does not show use."
_EMPTY: Row = {
    "audit": "encoding", "dataset": None, "model": None, "finding": None, "slice": "all", "versus": None,
    "value": np.nan, "ci_low": None, "ci_high": None, "p_value": None, "n": None, "n_pos": None, "n_patients": None,
    "method": None, "seed": None, "higher_is_better": None, "note": None,
}  # fmt: skip


def is_called(model: str, word: str) -> bool:
    """Whether a word stands in a model's name.

    >>> is_called("densenet-random", "random"), is_called("randomised", "random")
    (True, False)
    """
    return re.search(rf"(?<![a-z]){word}(?![a-z])", model.lower()) is not None


def is_untaught(model: str) -> bool:
    """Whether, by its name, a network never learned from X-rays."""
    return is_called(model, "random") or is_called(model, "imagenet")


def task_rows(tasks: Mapping[str, Sequence[str]], dataset: str | None, seed: int) -> list[Row]:
    """One row a network: what it was trained for."""
    rows = []
    for model, own in tasks.items():
        kind = "multitask: " if len(own) > 1 else "single task: "
        note = kind + ", ".join(own) if own else "frozen: embeddings only"
        rows.append(
            _EMPTY | {
                "metric": "tasks", "dataset": dataset, "model": model, "value": float(len(own)), "seed": seed,
                "method": "by the tables it has rows in", "note": note,
            }
        )  # fmt: skip
    return rows


def verdict_rows(rows: Sequence[Row], seed: int) -> list[Row]:
    """One row for each dataset and target with a SPLIT."""
    found = []
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        for target in TARGETS:
            values = _values([row for row in rows if row["dataset"] == dataset], target)
            if values:
                best, note = _verdict(target, values)
                found.append(
                    best | {
                        "metric": "verdict", "model": None, "finding": target, "ci_low": None, "ci_high": None,
                        "method": "what SPLIT can and cannot show", "seed": seed, "note": note,
                    }
                )  # fmt: skip
    return found


def _values(rows: Sequence[Row], target: str) -> list[Row]:
    """One AUROC a network: the mean over classes, else the only class."""
    found: dict[Any, Row] = {}
    for row in rows:
        whole = row["finding"] == target
        if row["metric"] != "split_auroc" or row["versus"] or not np.isfinite(_low(row)):
            continue
        if whole or (str(row["finding"]).startswith(f"{target}=") and row["model"] not in found):
            found[row["model"]] = row
    return list(found.values())


def _verdict(target: str, values: Sequence[Row]) -> tuple[Row, str]:
    """The row a verdict rests on, and its words."""
    what = target.replace("_", " ")
    untaught = [row for row in values if is_untaught(row["model"])]
    taught = [row for row in values if not is_untaught(row["model"])]
    asked = taught or untaught
    read = [row for row in asked if _low(row) > 0.5]
    empty = [row for row in asked if _low(row) <= 0.5 and row["ci_high"] < LOW]
    unclear = [row for row in asked if _low(row) <= 0.5 and row["ci_high"] >= LOW]
    said = []
    if read:
        said.append(f"{what[0].upper()}{what[1:]} can be read from {_shown(read)}.")
        said += [_B_OR_C, *_beside(untaught, min(map(_low, read))), _HINT] if taught else [_PICTURES]
    if empty:
        said.append(
            f"No linear layer reads {what} from {_shown(empty)}. This is scenario A: the embeddings hold no "
            "information on it that a last layer could use. SPLIT can show this."
        )
    if unclear:
        said.append(
            f"No conclusion for {_shown(unclear)}: the interval includes 0.5 and values above {LOW}, so there are too "
            "few patients."
        )
    best = max(asked, key=lambda row: float(row["value"]))
    return best, " ".join(said)


def _beside(untaught: Sequence[Row], least: float) -> list[str]:
    """What networks that never saw an X-ray reach, where those that did reach `least`."""
    if not untaught:
        return ["Networks never trained on X-rays often reach as much; none is available here for comparison."]
    said = []
    if same := [row for row in untaught if row["ci_high"] >= least]:
        said.append(
            f"{_shown(same)} {_reach(same)} about as much without training on X-rays, so the value does not show use."
        )
    if less := [row for row in untaught if row["ci_high"] < least]:
        said.append(f"{_shown(less)} {_reach(less)} less: training made it easier to read, which does not prove use.")
    return said


def _reach(rows: Sequence[Row]) -> str:
    return "reach" if len(rows) > 1 else "reaches"


def _shown(rows: Sequence[Row]) -> str:
    if len(rows) > _NAMED:
        values = [row["value"] for row in rows]
        return f"{len(rows)} networks (AUROC {min(values):.2f} to {max(values):.2f})"
    return ", ".join(
        f"{row['model']} (AUROC {row['value']:.2f}, {row['ci_low']:.2f} to {row['ci_high']:.2f})" for row in rows
    )


def _low(row: Row) -> float:
    return np.nan if row["ci_low"] is None else float(row["ci_low"])
