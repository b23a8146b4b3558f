"""Facts of a model -> what its card says in words: what it is, what it is for and not for, and its limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrhf.report.blocks import finding_name
from cxrhf.report.book import Book
from cxrhf.report.card_facts import CLASSIFIER, CONTEXT, WRITER
from cxrhf.report.card_markdown import bullets, escaped, folded, paragraphs
from cxrhf.report.numbers import known, listed
from cxrhf.report.sections.methods import methods
from cxrhf.report.sections.provenance import mapping
from cxrhf.report.sections.view import correction_of
from cxrhf.report.sections.warnings import grouped

Facts = Mapping[str, Any]
_MADE_UP = {"synthetic", "demo"}
_WHAT = {
    CLASSIFIER: "A model that scores findings",
    WRITER: "A report model",
    CONTEXT: "A context model that reads prior notes",
}
_USES = (
    "Research on the evaluation of chest X-ray models: comparing a model with patient context alone, finding subgroups "
    "and slices in which it fails, and testing evaluation tools.",
)
_NOT = (
    "Not a medical device. Not for diagnosis, triage, treatment or any decision about a patient.",
    "Not for inferring the sex, race, age or identity of patients.",
    "Not as an estimate of performance in another hospital: measure it there.",
)
_DRAWN = (
    "Synthetic data: a program generated images, notes, labels and reports, with known flaws. The numbers show what "
    "the evaluation detects; they do not describe patients."
)


def is_made_up(facts: Facts) -> bool:
    """Whether all that the numbers and the model come from is made up."""
    names = {str(each) for each in (*facts["datasets"], facts["data"].get("dataset")) if each}
    return bool(names) and names <= _MADE_UP and not facts["data"].get("credentialed")


def split_of(facts: Facts) -> str:
    """The split that was measured, as the notes say it; "" where they say nothing."""
    start = "only the split "
    return next((note[len(start) :].split(" ")[0] for note in facts["notes"] if note.startswith(start)), "")


def described(facts: Facts) -> list[str]:
    """What the model is, in a sentence or two."""
    made = facts["weights"] or {}
    what, outputs = _WHAT[facts["kind"]], len(made.get("outputs") or [])
    if facts["simulated"]:
        said = f"{what}, simulated with known flaws. It has no weights: a program generated its output."
    elif not made:
        said = f"{what}, audited from its output. Its weights are not included."
    elif facts["kind"] == WRITER:
        base, side = mapping(made.get("base")), made.get("size")
        whose = base_name(facts) or "a small model with weights in base/"
        said = (
            f"A LoRA adapter (rank {made.get('rank')}) for {base.get('architecture')} ({whose}) that writes the report "
            f"of a chest X-ray. Its input is an image of {side} x {side} pixels and the prompt “{made.get('prompt')}”"
        )
    elif facts["kind"] == CONTEXT:
        said = (
            f"Classifiers that estimate the pre-test probability of {outputs} findings from prior notes, without any "
            f"image (features: {listed(made.get('families') or [])}). They measure how much of an image model's "
            "performance context explains."
        )
    else:
        look = mapping(made.get("look"))
        side, grey = look.get("size"), "grey levels" if look.get("channels") == 1 else "three channels"
        fit = "resized" if look.get("fit") == "squash" else "resized and centre-cropped"
        said = (
            f"A {made.get('backbone')} that predicts the probabilities of {outputs} findings of a chest X-ray. Its "
            f"input is the image, {fit} to {side} x {side} pixels, {grey}."
        )
    return paragraphs([said])


def base_name(facts: Facts) -> str:
    """The Hub's name of the model that an adapter belongs to; "" where that is a folder."""
    source = str(mapping((facts["weights"] or {}).get("base")).get("source") or "")
    parts = source.split("/")
    return source if len(parts) == 2 and all(each and each[0].isalnum() for each in parts) else ""


def intended_use() -> list[str]:
    """What it is for, and what not; the same for every model."""
    return ["### For", "", *bullets(_USES), "### Not for", "", *bullets(_NOT)]


def limits(facts: Facts, books: Sequence[Book], doubts: Sequence[str]) -> list[str]:
    """What the numbers cannot say: their source, findings without enough data, warnings of the audits."""
    said = [_DRAWN if is_made_up(facts) else "", _source(facts), *doubts]
    said += [f"{finding_name(name)} has no AUROC: {why}." for name, why in _undefined(books)]
    told = dict(methods(books, correction_of(facts["run"]))) if books else {}
    drop = "What a drop means"
    said += [
        f"{drop}: {told[drop]}" if drop in told else "",
        told.get("Multiple comparisons", ""),
        told.get("Limits", ""),
    ]
    return [*bullets(escaped(each) for each in said if each), *folded(*_warnings(facts, books))]


def _source(facts: Facts) -> str:
    """Whether model and numbers come from the same place."""
    learned, tested = facts["data"].get("dataset"), facts["datasets"]
    if facts["simulated"]:
        return ""
    if not facts["weights"] or not learned or not tested:
        return "The training data are unknown and may include patients of the test set."
    if tested == [learned]:
        return f"Trained and tested on one source ({learned}), on different patients: expect less elsewhere."
    return f"Trained on {learned}, tested on {listed(list(tested))}."


def _undefined(books: Sequence[Book]) -> list[tuple[str, str]]:
    found = {}
    for book in books:
        for finding in book.findings:
            cell = book.get("overview", finding, "auroc")
            if cell.note and not known(cell.value):
                found[finding] = cell.note.removeprefix("auroc is undefined: ")
    return list(found.items())


def _warnings(facts: Facts, books: Sequence[Book]) -> tuple[str, list[str]]:
    """All that the audits noted, grouped as on the page."""
    findings = list(dict.fromkeys(finding for book in books for finding in book.findings))
    models = list(dict.fromkeys(book.model for book in books)) or [facts["model"]]
    notes = list(dict.fromkeys(map(str, facts["notes"])))
    lines = list[str]()
    for kind, several in grouped(notes, models, findings):
        said = [
            one for each in several for one in each.each or [f"{each.who}: {each.words}" if each.who else each.words]
        ]
        lines += [f"**{escaped(kind)}**", "", *bullets(map(escaped, said))]
    return f"Warnings of the audits ({len(notes)})", lines
