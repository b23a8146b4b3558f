"""A claim that was measured -> a row, and the line that shows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]


def row(
    name: str,
    ours: float,
    peer: float,
    note: str,
    *,
    ratio: float | None = None,
    target: float | None = None,
    at_most: bool = False,
) -> Row:
    """Seconds of both sides; the ratio, the peer's over ours if not given, must reach the target, or not pass it."""
    found = peer / ours if ratio is None else ratio
    return {"name": name, "ours_seconds": ours, "peer_seconds": peer, "ratio": found, "target": target,
            "at_most": at_most, "note": note}  # fmt: skip


def line(row: Row) -> str:
    """The row as it is printed, with a verdict where there is a target."""
    verdict = ""
    if row["target"] is not None:
        sign, met = ("<=", row["ratio"] <= row["target"]) if row["at_most"] else (">=", row["ratio"] >= row["target"])
        verdict = f"target {sign} {row['target']:g}: {'met' if met else 'MISSED'}"
    return (
        f"{row['name']:<62} ours {row['ours_seconds']:>10.4g} s   peer {row['peer_seconds']:>10.4g} s   "
        f"ratio {row['ratio']:>9.4g}   {verdict}\n    {row['note']}"
    )


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a call, and its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result
