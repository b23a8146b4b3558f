"""A radiology report as one text -> its indication, comparison, findings and impression.

Headings are words in capitals at the start of a line with a colon, as MIMIC-CXR writes them. Several headings mean the
same section (HISTORY, INDICATION, REASON FOR EXAM); what stands under a heading we do not know is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl

SECTIONS = ("indication", "comparison", "findings", "impression")
_HEADING = re.compile(r"^[ \t]*([A-Z][A-Z /&()\-]{2,60}?)[ \t]*:", re.MULTILINE)
_NAMES = {
    "INDICATION": "indication",
    "INDICATIONS": "indication",
    "HISTORY": "indication",
    "CLINICAL HISTORY": "indication",
    "CLINICAL INFORMATION": "indication",
    "CLINICAL INDICATION": "indication",
    "REASON FOR EXAM": "indication",
    "REASON FOR EXAMINATION": "indication",
    "COMPARISON": "comparison",
    "COMPARISONS": "comparison",
    "FINDINGS": "findings",
    "FINDING": "findings",
    "CHEST": "findings",
    "IMPRESSION": "impression",
    "IMPRESSIONS": "impression",
    "CONCLUSION": "impression",
    "CONCLUSIONS": "impression",
}


def sections(report: str) -> dict[str, str | None]:
    """The four sections, white space folded; None where a report has none.

    >>> sections("INDICATION: Cough.\\nFINDINGS: Lungs\\n are clear.\\nIMPRESSION: Normal.")["findings"]
    'Lungs are clear.'
    """
    found: dict[str, list[str]] = {}
    headings = list(_HEADING.finditer(report))
    for at, heading in enumerate(headings):
        end = headings[at + 1].start() if at + 1 < len(headings) else len(report)
        name = _NAMES.get(" ".join(heading.group(1).split()))
        body = " ".join(report[heading.end() : end].split())
        if name and body:
            found.setdefault(name, []).append(body)
    return {name: " ".join(found[name]) if name in found else None for name in SECTIONS}


def read_reports(folder: Path, studies: Iterable[tuple[str, str]], threads: int = 8) -> pl.DataFrame:
    """MIMIC-CXR's reports of (subject_id, study_id) -> study_id and the four sections, null where there is none."""
    wanted = list(studies)

    def read(study: tuple[str, str]) -> dict[str, str | None]:
        subject, number = study
        path = folder / f"p{subject[:2]}" / f"p{subject}" / f"s{number}.txt"
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return {"study_id": number}
        return {"study_id": number, **sections(text)}

    from tqdm import tqdm

    with ThreadPoolExecutor(threads) as pool:
        rows = list(
            tqdm(
                pool.map(read, wanted, chunksize=256), total=len(wanted), unit=" reports", desc="reports", disable=None
            )
        )
    return pl.DataFrame(rows, schema=dict.fromkeys(("study_id", *SECTIONS), pl.String))
