"""One model on several datasets -> tables side by side."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.report.blocks import Block, Column, Entry, Section, Table, entry, name_entry, words_entry
from cxrhf.report.book import Subject
from cxrhf.report.sections.subgroups import gaps_of


def datasets(subjects: Sequence[Subject]) -> Section | None:
    """The section, or None where no model has several datasets."""
    by_model: dict[str, list[Subject]] = {}
    for subject in subjects:
        by_model.setdefault(subject.model, []).append(subject)
    several = {model: found for model, found in by_model.items() if len(found) > 1}
    if not several:
        return None
    blocks: list[Block] = []
    for model, found in several.items():
        blocks += [table for table in (_numbers(model, found), _gaps(model, found)) if table]
    lead = ["Each dataset is audited separately. Findings are matched by name; they may be labelled differently."]
    return Section("datasets", "The same model across datasets", "Across datasets", lead, blocks)


def _findings(subjects: Sequence[Subject]) -> list[str]:
    return list(dict.fromkeys(finding for subject in subjects for finding in subject.book.findings))


def _numbers(model: str, subjects: Sequence[Subject]) -> Table:
    rows: list[list[Entry]] = []
    held = any(subject.book.has("reweighted", "matched") for subject in subjects)
    for finding in _findings(subjects):
        row = [name_entry(finding)]
        for subject in subjects:
            row.append(entry(subject.book.overall(finding)))
            row += [entry(subject.book.held(finding, "auroc_att"))] if held else []
            row.append(entry(subject.book.get("overview", finding, "prevalence")))
        rows.append(row)
    columns = [Column("Finding")]
    for subject in subjects:
        name = subject.book.dataset or "no name"
        columns.append(Column(f"{name}: AUROC"))
        columns += [Column(f"{name}: context equal", "AUROC with context held equal (ATT)")] if held else []
        columns.append(Column(f"{name}: prevalence"))
    return Table(f"{model} on every dataset", columns, rows)


def _gaps(model: str, subjects: Sequence[Subject]) -> Table | None:
    found = [gaps_of(subject.book) for subject in subjects]
    kinds = list(dict.fromkeys(kind for gaps in found for _, kind, _ in gaps if " & " not in kind))
    rows = []
    for finding in _findings(subjects):
        for kind in kinds:
            if not any((finding, kind, "auroc") in gaps for gaps in found):
                continue
            row = [name_entry(finding), words_entry(kind)]
            for gaps in found:
                for metric in ("auroc", "auroc_balanced"):
                    highest, lowest, cell = gaps.get((finding, kind, metric), ("", "", None))
                    made = entry(cell) if cell is not None else Entry("–")
                    row.append(made._replace(below=f"{made.below}\n{highest} over {lowest}".strip()) if cell else made)
            rows.append(row)
    if not rows:
        return None
    columns = [Column("Finding"), Column("Groups", "", True)]
    for subject in subjects:
        name = subject.book.dataset or "no name"
        columns += [Column(f"{name}: AUROC gap", "Highest minus lowest subgroup"), Column(f"{name}: balanced")]
    return Table(f"{model}: AUROC gaps between subgroups on every dataset", columns, rows)
