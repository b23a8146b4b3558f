"""Reference and generated reports with groups and patients -> two sparse count matrices over one vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cxrhf.metrics.checks import InputError, as_texts, is_missing
from cxrhf.metrics.language import document_terms

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Corpora:
    """Word counts of the reference and the generated report of each image, one image per row of both matrices.

    `group` holds indices of `groups`, and `patient` indices of `patients`.
    """

    reference: sp.csr_array
    prediction: sp.csr_array
    vocabulary: list[str]
    group: NDArray[np.int64]
    groups: tuple[str, ...]
    patient: NDArray[np.int64]
    patients: tuple[Any, ...]

    def pair(self, groups: tuple[str, str] | None = None) -> Corpora:
        """Select the rows of two groups, of which the first is positive; drop words that neither uses."""
        if groups is None and len(self.groups) == 2:
            return self
        first, second = pair_of(set(self.groups), groups)
        code = np.array([{first: 0, second: 1}.get(name, -1) for name in self.groups])[self.group]
        return self.split(code, (first, second))

    def against_rest(self, group: str) -> Corpora:
        """Compare the named group (positive) with all others together."""
        if group not in self.groups:
            raise InputError(f"group: expected {' or '.join(map(repr, self.groups))}, got {group!r}")
        code = np.where(self.group == self.groups.index(group), 0, 1)
        return self.split(code, (group, f"not {group}"))

    def counts(self) -> tuple[Counts, Counts]:
        """Count tokens [group, word] of the references and of the predictions."""
        member = np.equal.outer(np.arange(len(self.groups)), self.group).astype(np.int64)
        return member @ self.reference, member @ self.prediction

    def presence(self) -> Counts:
        """Count patients [group, word] whose references contain the word."""
        out = []
        for code in range(len(self.groups)):
            here = np.flatnonzero(self.group == code)
            shape = (len(self.patients), len(here))
            owner = sp.csr_array((np.ones(len(here)), (self.patient[here], np.arange(len(here)))), shape=shape)
            out.append(np.asarray(((owner @ self.reference[here]) > 0).sum(axis=0)).ravel())
        return np.array(out, dtype=np.int64)

    def split(self, code: NDArray[np.int64], groups: tuple[str, str]) -> Corpora:
        """Split into two groups by the code of each row: 0 first, 1 second, -1 neither; drop unused words."""
        rows = np.flatnonzero(code >= 0)
        reference, prediction = self.reference[rows], self.prediction[rows]
        used = np.flatnonzero(np.asarray(reference.sum(axis=0) + prediction.sum(axis=0)).ravel())
        patients, patient = np.unique(self.patient[rows], return_inverse=True)
        return Corpora(
            reference=reference[:, used],
            prediction=prediction[:, used],
            vocabulary=[self.vocabulary[i] for i in used],
            group=code[rows],
            groups=groups,
            patient=patient.astype(np.int64),
            patients=tuple(self.patients[i] for i in patients),
        )


def corpora(
    reference: Iterable[str],
    generated: Iterable[str],
    groups: Sequence[Any],
    patients: Sequence[Any] | None = None,
    *,
    stop: bool = True,
) -> Corpora:
    """Count the words of the reference and generated report of every image over the union of their words.

    `groups` and `patients` have one entry per image; without `patients`, every image counts as a patient. A missing
    group is an error; drop those rows.
    """
    references, predictions = as_texts(reference, "reference"), as_texts(generated, "generated")
    n = len(references)
    names = [name if isinstance(name, str) else str(name) for name in _require_present(groups, "groups")]
    owners = list(range(n)) if patients is None else _require_present(patients, "patients")
    for what, length in (("generated", len(predictions)), ("groups", len(names)), ("patients", len(owners))):
        if length != n:
            raise InputError(f"{what}: expected {n} rows as in reference, got {length}")
    both = document_terms(references + predictions, stop=stop)
    group_names = tuple(sorted(set(names)))
    place = {name: i for i, name in enumerate(group_names)}
    order: dict[Any, int] = {}
    patient = np.array([order.setdefault(owner, len(order)) for owner in owners], dtype=np.int64)
    return Corpora(
        reference=both.matrix[:n],
        prediction=both.matrix[n:],
        vocabulary=both.vocabulary,
        group=np.array([place[name] for name in names], dtype=np.int64),
        groups=group_names,
        patient=patient,
        patients=tuple(order),
    )


def pair_of(names: set[str], groups: tuple[str, str] | None) -> tuple[str, str]:
    """The two groups to compare, in order: those asked for, or the only two there are, by alphabet."""
    if groups is None:
        if len(names) != 2:
            hint = "Name two of them, or compare each against the rest (cad_each, Corpora.against_rest)."
            raise InputError(f"groups: expected 2, got {len(names)} ({', '.join(sorted(names)) or 'none'}). {hint}")
        first, second = sorted(names)
        return first, second
    first, second = groups
    if first == second or not {first, second} <= names:
        raise InputError(
            f"groups: expected two different ones of {', '.join(map(repr, sorted(names)))}, got {groups!r}"
        )
    return first, second


def _require_present(values: Sequence[Any], name: str) -> list[Any]:
    rows = list(values)
    for position, value in enumerate(rows):
        if is_missing(value):
            raise InputError(f"{name}[{position}]: expected a value, got {value!r}. Drop rows without {name} first.")
    return rows
