"""What a visitor gives a metric's page: cells, a file, pasted lines, options -> what `compute` takes, or a `Problem`.

Goes into every Space beside widget.py: the standard library only.
"""

from __future__ import annotations

import csv
import inspect
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

MAX_BYTES = 50 * 2**20
# A browser holds more only with long waits; larger tables belong into Python.
MAX_ROWS = 50_000


class Problem(ValueError):
    """What a visitor can put right, as a sentence for the page."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An option with a few allowed values; None among them means: not given."""

    name: str
    allowed: Sequence[Any]
    default: Any
    help: str = ""

    def read(self, field: Any) -> Any:
        """The value behind what the page shows."""
        for value in self.allowed:
            if str(value) == str(field):
                return value
        raise Problem(f"{self.name}: expected {', '.join(map(str, self.allowed))}, got {field!r}")


@dataclass(frozen=True, slots=True)
class Number:
    """A number between `least` and `most`; may stay empty (not given) when its default is None."""

    name: str
    default: float | None
    whole: bool = False
    least: float | None = None
    most: float | None = None
    help: str = ""

    def read(self, field: float | str | None) -> float | int | None:
        """The number in a field of the page, which is one of text when it may stay empty."""
        if field is None or (isinstance(field, str) and not field.strip()):
            if self.default is None:
                return None
            raise Problem(f"{self.name}: expected {self.allowed}, got nothing")
        if isinstance(field, str):
            written = field.strip()
            try:
                field = float(written)
            except ValueError:
                raise Problem(f"{self.name}: expected {self.allowed}, got {written!r}") from None
        low, high = self.least is not None and field < self.least, self.most is not None and field > self.most
        if not math.isfinite(field) or low or high or (self.whole and field != int(field)):
            raise Problem(f"{self.name}: expected {self.allowed}, got {field:.10g}")
        return int(field) if self.whole else float(field)

    @property
    def allowed(self) -> str:
        """What may stand in the field, in words."""
        ends = {">=": self.least, "<=": self.most}
        bounds = " and ".join(f"{sign} {end:.10g}" for sign, end in ends.items() if end is not None)
        return f"{'a whole number' if self.whole else 'a number'} {bounds}".strip()


@dataclass(frozen=True, slots=True)
class Text:
    """A word, for example the name of a group; empty means: not given."""

    name: str
    default: str = ""
    help: str = ""

    def read(self, field: str | None) -> str | None:
        """The text in a field of the page."""
        return (field or "").strip() or None


Option = Choice | Number | Text


class Column(NamedTuple):
    """One input of the module: text or number, and whether the module can do without."""

    name: str
    text: bool
    required: bool


def columns_of(module: Any, example: Mapping[str, Sequence[Any]]) -> list[Column]:
    """The inputs an example names, with their kinds from the module's features, else from the example's values."""
    declared = module.features if isinstance(module.features, list) else [module.features]
    needed = getattr(module, "required", None) or _without_default(module._compute)
    columns = []
    for name, values in example.items():
        kinds = [kind for each in declared if isinstance(kind := getattr(each.get(name), "dtype", None), str)]
        text = kinds[0] in ("string", "large_string") if kinds else any(isinstance(value, str) for value in values)
        columns.append(Column(name, text, name in needed))
    return columns


def _without_default(function: Callable[..., Any]) -> set[str]:
    given = inspect.signature(function).parameters.items()
    return {name for name, each in given if each.default is inspect.Parameter.empty}


def _empty(cell: Any) -> bool:
    blank = isinstance(cell, str) and not cell.strip()
    return cell is None or blank or (isinstance(cell, float) and math.isnan(cell))


def _text(cell: Any) -> str:
    """Tables turn a patient's number 7 into 7.0; it stays "7"."""
    if _empty(cell):
        return ""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def _number(cell: Any, row: int, name: str) -> float:
    try:
        value = float(cell)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise Problem(f'Row {row}, column "{name}": expected a number such as 0.25 or 1e-3, got {cell!r}')
    return value


def read_cells(rows: Sequence[Sequence[Any]], columns: Sequence[Column]) -> dict[str, list[Any]]:
    """Cells, row by row -> what `compute` takes: numbers as float, text as str, columns without any value left out.

    Empty rows at the end are not read. An empty number in `references` is None, a missing label; in a text of
    `references` or `predictions` it is an empty text; anywhere else it is a `Problem`, which names row and column.

    >>> columns = [Column("predictions", False, True), Column("references", False, True)]
    >>> read_cells([["0.5", 1], [0.25, ""], ["", ""]], columns)
    {'predictions': [0.5, 0.25], 'references': [1.0, None]}
    """
    last = max((at for at, row in enumerate(rows, 1) if not all(map(_empty, row))), default=0)
    if not last:
        raise Problem("The table is empty. Type or paste rows, or upload a CSV file")
    if last > MAX_ROWS:
        raise Problem(f"This page accepts at most {MAX_ROWS:,} rows, got {last:,}. For more rows, use Python")
    inputs: dict[str, list[Any]] = {}
    for at, column in enumerate(columns):
        cells = [row[at] if at < len(row) else None for row in rows[:last]]
        if all(map(_empty, cells)):
            if column.required:
                raise Problem(f'Column "{column.name}": expected a value in every row, got an empty column')
            continue
        may_lack = column.name == "references" or (column.text and column.name == "predictions")
        values: list[Any] = []
        for row, cell in enumerate(cells, 1):
            if _empty(cell) and not may_lack:
                none = "" if column.required else " or in none"
                raise Problem(
                    f'Row {row}, column "{column.name}": expected a value in every row{none}, got an empty cell'
                )
            if column.text:
                values.append(_text(cell))
            else:
                values.append(None if _empty(cell) else _number(cell, row, column.name))
        inputs[column.name] = values
    return inputs


def in_order(names: Sequence[str], rows: Sequence[Sequence[Any]], columns: Sequence[Column]) -> list[list[Any]]:
    """Rows under the names the table shows now -> rows in the order of `columns`: a dropped file may have another.

    >>> in_order(["b", "a"], [[1, 2]], [Column("a", False, True), Column("b", False, True)])
    [[2, 1]]
    """
    known = [column.name for column in columns]
    if sorted(names) != sorted(known):
        raise Problem(f"Columns: expected {', '.join(known)}, got {', '.join(names)}. Press Example to reset them")
    return [[row[names.index(name)] for name in known] for row in rows]


def read_csv(data: bytes, columns: Sequence[Column]) -> tuple[list[list[Any]], list[str]]:
    """A CSV file whose header names the inputs -> rows of the table, and the file's columns that are no inputs.

    >>> score, label = Column("predictions", False, True), Column("references", False, True)
    >>> read_csv(b"id,references,predictions\\n7,1,.5\\n", [score, label])
    ([[0.5, 1.0]], ['id'])
    """
    if len(data) > MAX_BYTES:
        raise Problem(f"This page accepts files up to {MAX_BYTES / 2**20:.0f} MB, got {len(data) / 2**20:.0f} MB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Problem(f"The file is not UTF-8 text (byte {error.start}). Save it as CSV UTF-8") from None
    return read_text(text, columns, header=True)


def read_text(text: str, columns: Sequence[Column], header: bool = False) -> tuple[list[list[Any]], list[str]]:
    """Pasted lines, with commas or tabs -> rows of the table, and the names that are no inputs.

    A first line with the name of an input is a header, and with `header` it must be one; else columns are in order.

    >>> read_text("0.5\\t1\\n0.25\\t", [Column("predictions", False, True), Column("references", False, True)])
    ([[0.5, 1.0], [0.25, None]], [])
    """
    first = text.lstrip().partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t" if "\t" in first else ",", strict=True)
    try:
        lines = [line for line in reader if line]
    except csv.Error as error:
        raise Problem(f"Line {reader.line_num} is not valid CSV: {error}") from None
    known = [column.name for column in columns]
    names = [name.strip() for name in lines[0]] if lines else []
    if header or set(names) & set(known):
        missing = [column.name for column in columns if column.required and column.name not in names]
        if missing:
            raise Problem(
                f"Header: expected the columns {', '.join(missing)}, got {', '.join(names) or 'an empty line'}"
            )
        twice = [name for name in known if names.count(name) > 1]
        if twice:
            raise Problem(f"Header: expected each column once, got {', '.join(twice)} several times")
        lines = lines[1:]
    else:
        names = known[: max(map(len, lines), default=0)]
    for row, line in enumerate(lines, 1):
        if len(line) != len(names):
            raise Problem(f"Row {row}: expected {len(names)} cells ({', '.join(names)}), got {len(line)}")
    places = [names.index(name) if name in names else None for name in known]
    # The same door as the table's: what cannot be computed is not shown.
    read = read_cells([[None if at is None else line[at] for at in places] for line in lines], columns)
    n = len(next(iter(read.values())))
    filled = [read.get(name, [None] * n) for name in known]
    return [list(row) for row in zip(*filled, strict=True)], [name for name in names if name not in known]
