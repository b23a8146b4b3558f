"""What was understood of a file with generated reports -> a few lines a person can check."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from cxrhf.tables.reading import some


@dataclass(frozen=True, slots=True)
class GenerationReading:
    """What was understood of one source, for people to check."""

    source: str
    columns: tuple[tuple[str, str], ...]  # role, column
    ignored: tuple[str, ...]
    n_rows: int
    n_reports: int
    n_images: int
    n_patients: int
    models: tuple[str, ...]
    strategies: tuple[str, ...]
    notes: tuple[str, ...]

    def lines(self) -> list[str]:
        """A few lines to print."""
        counts = (
            (self.n_rows, "row"),
            (self.n_reports, "report"),
            (self.n_images, "image"),
            (self.n_patients, "patient"),
        )
        said = [f"{self.source}: " + ", ".join(f"{n:,} {noun}{'s' * (n != 1)}" for n, noun in counts)]
        said.append("  columns: " + ", ".join(f"{role} = {column}" for role, column in self.columns))
        said.append(f"  models: {some(self.models, 6)}; strategies: {some(self.strategies, 6)}")
        if self.ignored:
            said.append("  not used: " + some(self.ignored, 12))
        return said + [f"  note: {note}" for note in self.notes]


@dataclass(frozen=True, slots=True)
class LoadedGenerations:
    """GENERATION rows and one reading per source."""

    table: pa.Table
    readings: tuple[GenerationReading, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Everything a reader of the numbers should know about the input."""
        return tuple(f"{reading.source}: {note}" for reading in self.readings for note in reading.notes)

    def lines(self) -> list[str]:
        """What was understood, to print."""
        return [line for reading in self.readings for line in reading.lines()]
