"""A run folder -> one page that people can read: `write_report(run)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cxrhf.run import Run

PAGE = "report.html"


def write_report(run: str | Path | Run) -> Path:
    """Read results, curves, points, words, gallery.parquet and run.json of a run folder; write its page and figures/.

    Of an open run its record counts, which run.json may not hold yet. Returns the page's path.
    """
    from cxrhf.report.files import write_all
    from cxrhf.run import Run, read_run
    from cxrhf.tables.folders import one_writer

    folder = run.path if isinstance(run, Run) else Path(run)
    with one_writer(folder, "report"):
        return write_all(run if isinstance(run, Run) else read_run(folder))


def page_html(
    results: Sequence[Mapping[str, Any]],
    curves: Sequence[Mapping[str, Any]],
    record: Mapping[str, Any],
    points: Sequence[Mapping[str, Any]] = (),
    gallery: Sequence[Mapping[str, Any]] = (),
    words: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The whole page as text, from RESULT and CURVE rows and the facts of run.json.

    `points`, `gallery` and `words`: POINT, GALLERY and WORD rows. Single patients and images, and words that fewer than
    five patients have, get into the page only where the record has `may_show`.
    """
    from cxrhf.report.html import render

    return render(results, curves, record, points=points, gallery=gallery, words=words)


def summary_html(results: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> str:
    """A short fragment for a notebook: headline, waterfall and a table, without script."""
    from cxrhf.report.page import summary_html as made

    return made(results, record)
