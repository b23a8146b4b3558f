"""RESULT rows of a run -> the rows of one model, and of those the ones that its card stands on.

A card is made from `shown` rows alone, so that it can be written again from a small file: `shown(shown(rows))` is
`shown(rows)`. Everything else stays in the run and in what is published with the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cxrhf.report.book import MACRO, PRETEST, REPORTS, Book, Key, Subject, open_books, subjects
from cxrhf.report.numbers import known
from cxrhf.report.sections.pretest_shelf import CHOSEN
from cxrhf.report.sections.reports_groups import quality_metrics
from cxrhf.report.sections.reports_rows import WORDS
from cxrhf.report.sections.reports_shelf import REFERENCE, Writer, writers
from cxrhf.report.sections.slice_shelf import AUDIT as SLICES
from cxrhf.report.sections.slice_shelf import Cut, Slice, Trait, cuts
from cxrhf.report.sections.slices import standing
from cxrhf.report.sections.view import Rows

Row = Mapping[str, Any]
TOLD = 10  # rows of a table of slices
_RANKING = ("auroc", "average_precision", "prevalence", "sensitivity_at_specificity", "brier", "brier_skill_score",
            "adaptive_calibration_error", "expected_ace", "calibration_slope", "calibration_intercept",
            "calibration_in_the_large", "verdict")  # fmt: skip
_CONTROLLED = ("auroc", "auroc_context", "auroc_att", "matched_auroc", "auroc_drop", "verdict")
MEAN = "imbalance"  # the audit that means over runs and their spread (".sd") are written under
# Audit -> its numbers of the whole sample that a card has.
WHOLE = {
    "overview": _RANKING,
    "reweighted": _CONTROLLED,
    "matched": _CONTROLLED,
    "encoding": ("split_auroc", "auroc", "tasks"),
    PRETEST: (*_RANKING, "images_without_notes", "chosen", "cv_auroc", "validation_auroc"),
}
GROUPS = ("auroc", "auroc_balanced", "tpr", "fpr")
_SHORTCUT = ("auroc", "auroc_equalised", "auroc_gap_explained", "mann_whitney", "mann_whitney_equalised")
_WORDS = {
    *(metric.name for metric in WORDS if "." not in metric.name),
    *(f"{name}.chance" for name in ("erasure", "new", "flip")),
    *(f"wae_prediction{end}" for end in ("", ".null", ".association")),
}


def models_of(rows: Rows) -> list[str]:
    """Models that have a card: image models, models that write reports, and the one that reads prior notes."""
    names = [subject.model for subject in subjects(open_books(rows))]
    names += [model.model for model in writers(open_books(rows, apart=REPORTS), (), ())]
    names += [CHOSEN] if any(row["audit"] == PRETEST and row["model"] == CHOSEN for row in rows) else []
    return [name for name in dict.fromkeys(names) if name]


def own_rows(rows: Rows, model: str) -> list[Row]:
    """The rows of one model, of all its runs; with them those of the references, or of the families it chose from."""
    run = re.compile(rf"{re.escape(model)} \(seed .*\)", re.DOTALL)
    from_notes = model == CHOSEN

    def own(row: Row) -> bool:
        name = row["model"] or ""
        if name == model or run.fullmatch(name):
            return True
        return (from_notes and row["audit"] == PRETEST) or (row.get("strategy") == REFERENCE and not name)

    return [row for row in rows if own(row)]


def published(rows: Rows, *, words: bool) -> list[Row]:
    """Rows as they may leave: without the text of a report, and without the words of notes unless they are open."""
    kept = []
    for row in rows:
        if not words and row["audit"] == PRETEST and row["slice"].startswith("word="):
            continue
        kept.append({**row, "note": None} if row["metric"] == "top_template" else row)
    return kept


def shown(rows: Rows) -> list[Row]:
    """The rows that a card of these stands on, in their order."""
    wanted: set[tuple[str, str, str, *Key]] = set()
    counted: set[str] = set()  # runs that are told of in the mean alone
    for subject in subjects(open_books(rows)):
        wanted |= {_place(book, key) for book, key in _of_subject(subject)}
        counted |= {book.model for book in subject.runs[1:]}
    for model in writers(open_books(rows, apart=REPORTS), (), ()):
        wanted |= {_place(book, key) for book, key in _of_reports(model)}
    # Numbers of pairs stand behind those of weights: what both give is told once.
    paired = any(row["audit"] == "reweighted" for row in rows)
    told_once = [row for row in rows if not (paired and row["audit"] == "matched" and row["metric"] != "matched_auroc")]
    return [row for row in told_once if _whole(row, counted) or _placed(row) in wanted]


def _place(book: Book, key: Key) -> tuple[str, str, str, *Key]:
    return book.dataset, book.model, book.strategy, *key


def _placed(row: Row) -> tuple[str, str, str, *Key]:
    """Where a row stands: the same as `_place` of its cell."""
    key = (row["audit"], row["finding"] or MACRO, row["metric"], row["slice"], row["versus"] or "")
    return row["dataset"] or "", row["model"] or "", row.get("strategy") or "", *key


def _whole(row: Row, counted: set[str]) -> bool:
    """Numbers of the whole sample: by audit and name, whosever they are."""
    named = row["metric"] in (("auroc",) if row["model"] in counted else WHOLE.get(row["audit"], ()))
    drop = row["metric"] == "auroc_drop" and row["versus"] in ("auroc_att", "matched_auroc")
    return named and row["slice"] == "all" and (not row["versus"] or drop)


def _of_subject(subject: Subject) -> Iterator[tuple[Book, Key]]:
    """Groups, slices and shortcuts of the run that is shown in detail, and of the mean of all runs."""
    if subject.mean is not None:
        for key in subject.mean.keys(MEAN):
            if key[2].removesuffix(".sd") in (*_RANKING, *_CONTROLLED) and key[3] == "all":
                yield subject.mean, key
    for book in filter(None, (subject.book, subject.mean)):
        everyone = MACRO if len(book.findings) > 1 else next(iter(book.findings), MACRO)
        for key in book.keys("subgroups"):
            _, finding, metric, part, versus = key
            if " & " not in part and (
                (metric in GROUPS and (versus or finding == everyone)) or metric.startswith("threshold_at_fpr")
            ):
                yield book, key
        for key in book.keys("shortcut"):
            if key[4] and key[2] in _SHORTCUT:
                yield book, key
        for key in _of_slices(book):
            yield book, key


def _of_slices(book: Book) -> Iterator[Key]:
    found = cuts(book)
    traits = set[tuple[str, str]]()
    for cut, part, trait in confirmed(found):
        traits.add((cut.finding, f"{cut.side} & {trait.name}"))
        yield from _of_slice(cut, part, trait)
    for cut, part in worst(found):
        yield from _of_slice(cut, part, next(iter(part.frequent), None))
    yield from (key for key in book.keys(SLICES) if key[2] == "brier_gap" and (key[1], key[3]) in traits)


def _of_slice(cut: Cut, part: Slice, trait: Trait | None) -> Iterator[Key]:
    for metric in ("brier", "share", "worst"):
        yield SLICES, cut.finding, metric, part.name, ""
    if trait is not None:
        for metric in ("prevalence", "prevalence_rest", "odds_ratio", "confirmed"):
            yield SLICES, cut.finding, metric, f"{part.name} & {trait.name}", ""


def confirmed(found: Sequence[Cut]) -> list[tuple[Cut, Slice, Trait]]:
    """What held-out patients confirm, the largest gap in error first."""
    return [(cut, part, trait) for cut, part, trait, _ in standing(found)[:TOLD]]


def worst(found: Sequence[Cut]) -> list[tuple[Cut, Slice]]:
    """The worst slice of each class by the first way of finding slices: positives before negatives, worst first.

    Errors of the two classes cannot be compared: of a rare finding those of its positives are always larger.
    """
    first = next((cut.method for cut in found), "")
    ends = [(cut, cut.worst) for cut in found if cut.worst is not None and cut.method == first]
    ends = [(cut, end) for cut, end in ends if known(end.brier.value)]
    return sorted(ends, key=lambda each: (each[0].side != "positive", -each[1].brier.value))[:TOLD]


def _of_reports(model: Writer) -> Iterator[tuple[Book, Key]]:
    """Strategies side by side, words of the first pair of groups, how much the others lose, likeness by group."""
    first, alike = next(iter(model.pairs), None), likeness(model)
    for book in (model.reference, *model.strategies):
        for key in book.keys(REPORTS):
            _, _, metric, part, versus = key
            if part == "all":
                keep = not versus
            elif first is not None and (part, versus) == tuple(first):
                keep = metric in _WORDS or metric == alike
            else:
                keep = " & " not in part and (
                    metric == alike or (bool(versus) and metric in ("erasure", "n_associated"))
                )
            if keep:
                yield book, key


def likeness(model: Writer) -> str:
    """The number of likeness that groups are compared by."""
    there = quality_metrics(model)
    return next((name for name in ("bertscore_f1", "rougeL", *there) if name in there), "")
