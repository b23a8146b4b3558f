"""A run folder -> one page that people can read: `write_report(run)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def write_report(run: str | Path) -> Path:
    """Read results.parquet, curves.parquet and run.json of a run folder; write report.html, results.json and figures/.

    Returns the page's path.
    """
    from cxrhf.report.files import write_all

    return write_all(Path(run))


def page_html(
    results: Sequence[Mapping[str, Any]], curves: Sequence[Mapping[str, Any]], record: Mapping[str, Any]
) -> str:
    """The whole page as text, from RESULT and CURVE rows and the facts of run.json."""
    from cxrhf.report.html import render

    return render(results, curves, record)


def summary_html(results: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> str:
    """A short fragment for a notebook: headline, waterfall and a table, without script."""
    from cxrhf.report.summary import summary_html as made

    return made(results, record)
