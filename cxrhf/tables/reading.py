"""What was understood of a predictions file -> a few lines a person can check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.tables.scores import Scores


@dataclass(frozen=True, slots=True)
class Reading:
    """What was understood of one source, for people to check."""

    source: str
    form: str
    columns: tuple[tuple[str, str], ...]  # role, column
    ignored: tuple[str, ...]
    findings: tuple[str, ...]
    n_rows: int
    n_images: int
    n_patients: int
    notes: tuple[str, ...]

    def lines(self) -> list[str]:
        """A few lines to print."""
        counts = ((self.n_rows, "row"), (self.n_images, "image"), (self.n_patients, "patient"))
        counted = [f"{n:,} {noun}{'s' * (n != 1)}" for n, noun in (*counts, (len(self.findings), "finding"))]
        head = f"{self.source}: {self.form} form, {', '.join(counted)}"
        said = [head, "  columns: " + ", ".join(f"{role} = {column}" for role, column in self.columns)]
        said.append("  findings: " + ", ".join(self.findings))
        if self.ignored:
            said.append("  not used: " + some(self.ignored, 12))
        return said + [f"  note: {note}" for note in self.notes]


@dataclass(frozen=True, slots=True)
class Loaded:
    """PREDICTION rows, one Reading per source, and when the images were taken where that is known.

    `times` has one row per image: image_id, patient_id, time (days since 1970, or the number itself where the column
    holds numbers; its metadata `unit` says which).
    """

    table: pa.Table
    readings: tuple[Reading, ...]
    times: pa.Table | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Everything a reader of the numbers should know about the input."""
        return tuple(f"{reading.source}: {note}" for reading in self.readings for note in reading.notes)


def score_notes(
    parts: Sequence[Scores], findings: Sequence[str] | None, uncertain: int, labels: pa.ChunkedArray
) -> list[str]:
    """What should be said about labels and scores; `findings` names the parts, None where a part names its own."""
    notes = []
    if uncertain:
        several = "s" * (uncertain != 1)
        notes.append(f"masked {uncertain:,} uncertain label{several} (-1): neither positive nor negative")
        if not pc.any(pc.equal(labels, 0)).as_py():
            notes.append("NO LABEL IS 0: if -1 means negative in this file, replace it with 0")
    elif labels.null_count == len(labels):
        notes.append("NO LABELS: every cell of the label column is empty, so no metric can be computed")
    ranked = [part for part in parts if part.not_probabilities]
    if ranked:
        low, high = min(part.low for part in ranked), max(part.high for part in ranked)
        names = _names([part.not_probabilities for part in parts], findings)
        spread = f"scores from {low:.3g} to {high:.3g}"
        percent = " (if they are percentages, divide them by 100)" if low >= 0 and 50 < high <= 100 else ""
        notes.append(f"{some(names, 3)}: {spread} are not probabilities: ranking metrics only{percent}")
    if two := _names([part.two_valued for part in parts], findings):
        notes.append(f"{some(two, 3)}: scores take at most two values; AUROC requires the score before the threshold")
    return notes


def _names(parts: Sequence[Sequence[str]], findings: Sequence[str] | None) -> list[str]:
    if findings is None:
        return [name for part in parts for name in part]
    return [name for name, part in zip(findings, parts, strict=True) if part]


def some(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
