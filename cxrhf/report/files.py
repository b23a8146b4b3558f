"""A run folder -> report.html, results.json and figures/*.svg and *.png, each there whole or not at all."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrhf.report import PAGE
from cxrhf.report.blocks import Figure, Multiples, finding_name
from cxrhf.report.html import UNFINISHED, render
from cxrhf.report.page import Page, make_page, pictures
from cxrhf.report.sheet import Group, sheet
from cxrhf.tables.files import finite

if TYPE_CHECKING:
    from cxrhf.run import Run

FORMAT = 1
# How much larger a PNG is than its picture; hundreds of findings must not take all memory.
ZOOM, PIXELS = 1.5, 12e6
# Facts of run.json that results.json and cards repeat.
RECORDED = ("verb", "config", "seed", "inputs", "versions", "commit", "python", "platform", "started", "finished")
KEPT_FIGURES = ("flow",)  # pictures of the dataset's build, which are not ours
# File name -> the title of its picture.
TITLES = {
    "waterfall": "AUROC overall, from context alone, and with context held equal",
    "overview": "ROC curves",
    "context": "Within strata of patient context",
    "reweighted": "AUROC with context controlled in three ways",
    "matched": "Balance, effective sample size and pairs",
    "imbalance": "Rare findings",
    "subgroups": "Gaps between subgroups",
    "encoding": "Patient characteristics read from embeddings",
    "features": "Maps of a network's embeddings",
    "slices": "Attributes of the worst and best slices",
    "shortcut": "Subgroups with an attribute as observed and equally frequent",
    "tradeoff": "Words that decoding strategies lose and add",
    "diversity": "Variety of generated reports",
    "vocabulary": "Vocabulary of generated reports",
    "displacement": "Words associated with a group, in references and generated reports",
    "p_star": "Erased and added words at other significance levels",
    "report_groups": "Similarity to references by patient group",
    "compare": "Paired differences",
    "runs": "Training runs",
    "pretest": "AUROC and calibration of prior notes alone",
    "pretest-words": "Words behind the pre-test probability",
}


def write_all(run: Run) -> Path:
    """RUN's tables and its record -> the page's path; the rest is written beside it. A held folder, without links."""
    from cxrhf.run import is_finished
    from cxrhf.tables.folders import check_links

    check_links(run.path)
    results, record = run.table("results").to_pylist(), dict(run.record)
    if not is_finished(record):
        record["notes"] = [UNFINISHED, *(record.get("notes") or [])]

    def rows(name: str) -> list[dict[str, Any]]:
        return list(run.table(name).to_pylist()) if (run.path / f"{name}.parquet").is_file() else []

    curves, steps = rows("curves"), rows("attrition")
    # Thumbnails that may not be shown are not even read.
    gallery = rows("gallery") if record.get("may_show") is True else []
    flow = run.path / "figures" / "flow.svg"
    picture = flow.read_bytes() if steps and flow.is_file() else b""
    page = make_page(results, curves, record, rows("points"), gallery, rows("words"))
    text = render(results, curves, record, steps, picture, page)
    target = write_bytes(run.path / PAGE, text.encode())
    write_bytes(run.path / "results.json", results_json(results, record).encode())
    write_figures(run.path / "figures", page)
    return target


def results_json(results: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> str:
    """Every number and what the run was made from; NaN is null, the order is that of the rows."""
    made = {
        "format": FORMAT,
        "run": {name: record.get(name) for name in RECORDED},
        "notes": [str(each) for each in record.get("notes") or []],
    }
    encode = json.JSONEncoder(ensure_ascii=False, default=str, allow_nan=False, separators=(",", ":")).encode
    rows = ",\n".join(encode(finite(row)) for row in results)
    return f'{encode(finite(made))[:-1]},"results":[{rows}]}}\n'


def write_figures(folder: Path, page: Page) -> list[Path]:
    """Every figure as SVG and PNG; those of an earlier page are removed."""
    folder.mkdir(exist_ok=True)
    wanted = figures(page)
    for ending in ("svg", "png"):
        for old in folder.glob(f"*.{ending}"):
            if old.stem not in KEPT_FIGURES and old.stem not in wanted:
                old.unlink()
    written = []
    for name, svg in wanted.items():
        target, picture = folder / f"{name}.svg", folder / f"{name}.png"
        # A PNG costs most of the page's time; the same picture needs none.
        same = target.is_file() and picture.is_file() and target.read_bytes() == svg.encode()
        if not same:
            write_bytes(picture, png(svg))
        written += [write_bytes(target, svg.encode()), picture]
    return written


def write_bytes(target: Path, content: bytes) -> Path:
    """Write a file that is there whole or not at all."""
    from cxrhf.tables.files import write_atomically

    def write(file: Any) -> None:
        file.write(content)

    return write_atomically(target, write)


def figures(page: Page) -> dict[str, str]:
    """Name of the file without its ending -> standalone SVG. With several subjects a number follows the name."""
    out: dict[str, str] = {}
    several = len(page.chapters) > 1
    groups = [
        (
            [chapter.opening, *chapter.sections] if several else chapter.sections,
            f"-{k + 1}" if several else "",
            chapter.name,
        )
        for k, chapter in enumerate(page.chapters)
    ]
    groups.append((page.shared, "", ""))
    for sections, end, whose in groups:
        found: dict[str, list[Figure | Multiples]] = {}
        for name, block in pictures(sections):
            found.setdefault(name, []).append(block)
        for name, blocks in found.items():
            title = TITLES.get(name, name) + (f": {whose}" if whose and several else "")
            out[f"{name}{end}"] = _sheet(title, blocks)
    return out


def _sheet(title: str, blocks: Sequence[Figure | Multiples]) -> str:
    groups = []
    for block in blocks:
        shown = block.title if len(blocks) > 1 else ""
        if isinstance(block, Multiples):
            panels = [(finding_name(finding), picture) for finding, _, picture in block.pictures]
            groups.append(Group(shown, panels, block.legend, columns=5))
        else:
            groups.append(Group(shown, block.panels, block.legend, columns=4 if block.size == "small" else 3))
    return sheet(title, groups)


def png(svg: str) -> bytes:
    """The picture as PNG, half as large again where that is not too large.

    Text is set in Roboto, so that a server without fonts shows it too.
    """
    import font_roboto  # type: ignore[import-untyped]
    import resvg_py

    fonts = [font_roboto.font_files[name] for name in ("Roboto", "RobotoBold", "RobotoMedium")]
    found = re.match(r'<svg [^>]*width="([\d.]+)" height="([\d.]+)"', svg)
    size = float(found[1]) * float(found[2]) if found else 1.0
    # Names in other scripts need the fonts of the machine; without any they show as boxes.
    plain = all(ord(letter) < 0x250 or letter in "–−…’≥≤×" for letter in svg)
    made = resvg_py.svg_to_bytes(
        svg_string=svg,
        zoom=min(ZOOM, math.sqrt(PIXELS / size)),
        background="#ffffff",
        skip_system_fonts=plain,
        font_files=fonts,
        font_family="Roboto",
        sans_serif_family="Roboto",
    )
    return bytes(made)
