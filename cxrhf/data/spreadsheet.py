"""A published .xlsx workbook -> the named columns of its first sheet, as text."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from cxrhf.errors import SourceError, did_you_mean


def read_xlsx(path: Path, columns: Sequence[str]) -> pl.DataFrame:
    """Rows below the header of the first sheet; numbers as people read them, empty cells null, empty rows left out."""
    try:
        import openpyxl
    except ImportError:
        raise SourceError(
            f"{path.name}: reading it requires the Python package openpyxl, which is not installed",
            next_step="pip install 'cxrhf[data]'",
        ) from None
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except (zipfile.BadZipFile, KeyError, ValueError, OSError) as error:
        raise SourceError(
            f"{path.name}: the file cannot be read as a workbook ({error})", next_step=f"copy {path} again"
        ) from None
    try:
        rows = book.worksheets[0].iter_rows(values_only=True)
        header = [str(cell).strip() if cell is not None else "" for cell in next(rows, ())]
        at = [_place(path, header, name) for name in columns]
        kept = [[_text(row[place]) if place < len(row) else None for place in at] for row in rows]
    finally:
        book.close()
    frame = pl.DataFrame(kept, schema=dict.fromkeys(columns, pl.String), orient="row")
    return frame.filter(~pl.all_horizontal(pl.all().is_null()))


def _place(path: Path, header: list[str], name: str) -> int:
    if header.count(name) == 1:
        return header.index(name)
    hint = did_you_mean(name, header)
    raise SourceError(
        path.name,
        allowed=f'one column "{name}"',
        got=f"columns {', '.join(header)}" if header else "no columns",
        next_step=(f"{hint} Was it renamed? " if hint else "") + f"download {path} again",
    )


def _text(cell: object) -> str | None:
    if cell is None:
        return None
    if isinstance(cell, float) and cell.is_integer():  # workbooks keep every number as a float
        return str(int(cell))
    return str(cell).strip() or None
