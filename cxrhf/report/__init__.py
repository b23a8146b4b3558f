"""A run folder -> one page that people can read: `write_report(run)`."""

from __future__ import annotations

from pathlib import Path


def write_report(run: str | Path) -> Path:
    """Read results.parquet, curves.parquet and run.json of a run folder, write report.html, return its path."""
    from cxrhf.report.html import write_page

    return write_page(Path(run))
