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
    CLASSIFIER: "A model that gives findings a score",
    WRITER: "A model that writes reports",
    CONTEXT: "A model that reads prior notes",
}
_USES = (
    "Research on how models for chest X-rays are evaluated: comparing what a model reaches with what patient context "
    "alone reaches, looking for groups and slices that it fails, and testing evaluation tools.",
)
_NOT = (
    "Not a medical device. Not for diagnosis, triage, treatment or any decision about a patient.",
    "Not for finding out sex, race, age or identity of patients.",
    "Not as a measure of how such a model would do in another hospital: that must be measured there.",
)
_DRAWN = (
    "Made-up data: films, notes, labels and reports were drawn by a program with known flaws in it. The numbers show "
    "what the evaluation finds; they say nothing about patients."
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
        said = f"{what}, simulated with known flaws. It has no weights: a program drew what it says."
    elif not made:
        said = f"{what}, audited from what it gave out. Its weights are not part of this."
    elif facts["kind"] == WRITER:
        base, side = mapping(made.get("base")), made.get("size")
        whose = base_name(facts) or "a small one, whose weights are in base/"
        said = (
            f"A LoRA adapter (rank {made.get('rank')}) for {base.get('architecture')} ({whose}) that writes the report "
            f"of a chest X-ray. It sees pictures of {side} x {side} pixels and is asked: “{made.get('prompt')}”"
        )
    elif facts["kind"] == CONTEXT:
        said = (
            f"Classifiers that read notes from before a chest X-ray and say how likely each of {outputs} findings is, "
            f"without any image (what they read of the notes: {listed(made.get('families') or [])}). Made to measure "
            "how much an image model owes to what the chart already said."
        )
    else:
        look = mapping(made.get("look"))
        side, grey = look.get("size"), "grey levels" if look.get("channels") == 1 else "three channels"
        fit = "squeezed to" if look.get("fit") == "squash" else "cut to the middle"
        said = (
            f"A {made.get('backbone')} that gives each of {outputs} findings of a chest X-ray a probability. It sees "
            f"the film {fit} {side} x {side} pixels, {grey}."
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
    said += [f"{drop}: {told[drop]}" if drop in told else "", told.get("Many comparisons", ""), told.get("Limits", "")]
    return [*bullets(escaped(each) for each in said if each), *folded(*_warnings(facts, books))]


def _source(facts: Facts) -> str:
    """Whether model and numbers come from the same place."""
    learned, tested = facts["data"].get("dataset"), facts["datasets"]
    if facts["simulated"]:
        return ""
    if not facts["weights"] or not learned or not tested:
        return "Where the model learned is not known here: patients it was measured on may be among them."
    if tested == [learned]:
        return f"Trained and measured on one source ({learned}), on different patients: elsewhere expect less."
    return f"Trained on {learned}, measured on {listed(list(tested))}."


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
