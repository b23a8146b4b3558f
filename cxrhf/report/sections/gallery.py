"""GALLERY rows -> thumbnails of the worst and best slices with controls to label them, else how to fill a sheet."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from cxrhf.report.blocks import Block, Gallery, Text, as_json, finding_name
from cxrhf.report.numbers import known, number
from cxrhf.report.sections.slice_shelf import Cut, Slice, trait_name
from cxrhf.report.sections.view import View

SHEETS = (
    "This page does not show images of these slices. It shows images only if the data may be shown and their build "
    "folder was passed to cxrhf audit. To name what is in a slice, use a sheet in RUN/labelling. It lists images of "
    "the worst and best slice of a class without revealing which is which. Name its empty column after the attribute "
    "you look for (for example ecg_wires), write 1 or 0 for each image you have checked, and run: cxrhf audit RUN "
    "--annotations RUN/labelling/SHEET.csv"
)


def gallery(view: View, found: Sequence[Cut]) -> list[Block]:
    """The gallery; without thumbnails that may be shown, a sentence on sheets."""
    rows = view.own(view.gallery) if view.may_show else []
    if not rows:
        return [Text(SHEETS, "muted")]
    pictures: dict[str, int] = {}
    sources: list[str] = []
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    by_slice = {(cut.finding, each.name): (cut, each) for cut in found for each in cut.slices}
    for row in rows:
        at = pictures.get(row["image_id"])
        if at is None:
            at = pictures[row["image_id"]] = len(sources)
            sources.append(base64.b64encode(row["thumbnail"]).decode())
        method, _, rest = row["slice"].partition(":")
        side = rest.partition(":")[0]
        key = (row["finding"], method, side)
        group = groups.setdefault(key, {"finding": finding_name(row["finding"]), "key": row["finding"],
                                        "part": _part(side, method), "parts": []})  # fmt: skip
        part = next((each for each in group["parts"] if each["slice"] == row["slice"]), None)
        if part is None:
            about = (
                _about(*by_slice[row["finding"], row["slice"]]) if (row["finding"], row["slice"]) in by_slice else ""
            )
            part = {"slice": row["slice"], "role": row["role"], "about": about, "images": []}
            group["parts"].append(part)
        if at not in part["images"]:
            part["images"].append(at)
    data = {"ids": list(pictures), "sources": sources, "groups": list(groups.values())}
    names = list(dict.fromkeys(group["finding"] for group in groups.values()))
    return [Gallery(f"{view.ident}-gallery", names, as_json(data), len(sources))]


def _part(side: str, method: str) -> str:
    return f"finding {'present' if side == 'positive' else 'absent'} ({method})"


def _about(cut: Cut, each: Slice) -> str:
    """What the numbers say of a slice, in a few words."""
    words = [f"slice {each.place} of {len(cut.slices)}"]
    words += [f"Brier {number(each.brier.value)}"] if known(each.brier.value) else []
    traits = ", ".join(trait_name(trait.name) for trait in each.frequent[:3])
    return "; ".join([*words, *([f"over-represented: {traits}"] if traits else [])])
