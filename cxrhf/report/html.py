"""results, curves and run.json -> report.html: one file that loads nothing from anywhere.

The page is built from aggregates: no row, image or patient id can reach it. Only where the record says that the data
may be shown does it hold places of single patients in maps, thumbnails with their ids, and words of reports that fewer
than five patients have; its foot says so. Everything that comes from the user's data is escaped by the template engine
or by `figures.ink`; a content policy in the page forbids every request and every script but the page's own.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup

from cxrhf.report.blocks import finding_name
from cxrhf.report.figures import key_mark
from cxrhf.report.page import Page, Rows, level_of, make_page
from cxrhf.report.sections.methods import checklists, group_warnings, methods, privacy_words
from cxrhf.report.sections.pretest import pretest_facts
from cxrhf.report.sections.provenance import (
    UNNAMED,
    Facts,
    attrition_table,
    input_names,
    inputs_table,
    mapping,
    missing_audits,
    provenance,
    summary,
)
from cxrhf.report.sections.reports import report_facts
from cxrhf.report.sections.view import correction_of, headline_of_all
from cxrhf.report.sheet import page_script, page_style, policy
from cxrhf.run import is_finished

UNFINISHED = (
    "the last command that wrote to this run did not finish, so tables, page and figures may disagree; run the "
    "command again"
)
ASKED = "Performance on chest X-rays, and how much of it goes with what was known before the image."
# Title and question of a page without predictions: of context models, of networks whose vectors were read, of reports.
_OF_NOTES = (
    "Pre-test probability from prior notes",
    "How well notes written before the image predict each finding, without the image.",
)
_OF_VECTORS = (
    "Patient characteristics in embeddings",
    "Which characteristics of a patient can be read from a network's embedding of the image.",
)
_OF_REPORTS = (
    "Audit of generated reports",
    "Similarity to the references, variety, and the words lost or added for each patient group.",
)


def render(
    results: Rows,
    curves: Rows,
    record: Mapping[str, Any],
    steps: Sequence[Mapping[str, Any]] = (),
    flow: bytes = b"",
    page: Page | None = None,
    points: Rows = (),
    gallery: Rows = (),
    words: Rows = (),
) -> str:
    """The page as text; `steps` is the attrition of the dataset, `flow` its picture as SVG."""
    page = page or make_page(results, curves, record, points, gallery, words)
    script = page_script({block.kind for block in page.blocks()})
    notes = [str(each) for each in record.get("notes") or []]
    books = [*page.books, *page.pretest]
    findings = list(dict.fromkeys(finding for book in books for finding in book.findings))
    hidden = [finding for book in books for finding in book.hidden]
    models = list(dict.fromkeys(book.model for book in [*books, *page.encoding, *page.reports]))
    alone = not page.books and bool(page.pretest or page.encoding or page.reports)  # and no predictions
    missing = missing_audits(page.subjects, record, encoded=bool(page.encoding), written=bool(page.reports))
    attrition = attrition_table(steps) if steps else None
    tail = [("Not on this page", "absent")] if missing else []
    tail += [("Data", "data")] if attrition else []
    tail += [("Warnings", "warnings")] if notes else []
    lists = [] if alone else checklists(page.books)
    tail += [("Methods and limits", "methods"), *([("Checklists", "checklist")] if lists else [])]
    tail += [("Provenance", "provenance")]
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            style=Markup(page_style()),
            script=Markup(script),
            policy=policy(script),
            title=_title(page, record, alone),
            question=_title_and_question(page)[1] if alone else ASKED,
            summary=_facts(page, record, alone),
            unfinished="" if is_finished(record) else f"{UNFINISHED[0].upper()}{UNFINISHED[1:]}.",
            held=privacy_words(page.blocks(), bool(page.pretest), bool(page.reports), record.get("may_show") is True),
            contents=[*_contents(page), *((name, target, ()) for name, target in tail)],
            chapters=page.chapters,
            overall=_overall(page, record),
            shared=page.shared,
            several_findings=len(findings) > 3,
            finding_names=[finding_name(each) for each in findings],
            absent=missing,
            attrition=attrition,
            flow=f"data:image/svg+xml;base64,{base64.b64encode(flow).decode()}" if flow else "",
            warnings=group_warnings(notes, models, list(dict.fromkeys([*findings, *hidden]))),
            methods=methods([*books, *page.encoding], correction_of(record), page.reports),
            checklists=lists,
            inputs=inputs_table(record),
            provenance=provenance(record),
            fitted=_flat(_fitted_facts(page, record)),
            reading=[str(each) for each in record.get("reading") or []],
            counter=itertools.count(1),
        )
    )


@cache
def environment() -> jinja2.Environment:
    """Templates that escape everything."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("cxrhf.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["finding"] = finding_name
    made.filters["key"] = key_mark
    made.filters["next"] = next
    return made


def _facts(page: Page, record: Mapping[str, Any], alone: bool) -> Facts:
    facts = summary(page.subjects, record)
    if not alone:
        return facts
    own = pretest_facts(page.pretest) or report_facts(page.reports)
    return [*own, *(fact for fact in facts if fact[0] not in dict(own))]


def _fitted_facts(page: Page, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """What was fitted, without what has a section of its own."""
    found = mapping(record.get("fitted"))
    return {name: each for name, each in found.items() if not (page.pretest and name == "context")}


def _overall(page: Page, record: Mapping[str, Any]) -> list[str]:
    several_datasets = len({subject.book.dataset for subject in page.subjects}) > 1
    return headline_of_all(page.subjects, level_of(record), several_datasets)


def _title(page: Page, record: Mapping[str, Any], alone: bool) -> str:
    if alone:
        return _title_and_question(page)[0]
    models = list(dict.fromkeys(subject.model for subject in page.subjects if subject.model))
    if models == [UNNAMED]:
        models = input_names(record)
    return f"Audit of {', '.join(models[:3])}{' and more' if len(models) > 3 else ''}" if models else "Audit"


def _title_and_question(page: Page) -> tuple[str, str]:
    """Title and question of a page without predictions."""
    return _OF_NOTES if page.pretest else _OF_VECTORS if page.encoding else _OF_REPORTS


def _contents(page: Page) -> list[tuple[str, str, Sequence[tuple[str, str]]]]:
    if len(page.chapters) == 1:
        return [(section.short, section.ident, ()) for section in page.chapters[0].sections]
    out: list[tuple[str, str, Sequence[tuple[str, str]]]] = [("Headline", "headline", ())] if page.chapters else []
    out += [(section.short, section.ident, ()) for section in page.shared]
    for chapter in page.chapters:
        out.append((chapter.name, chapter.ident, [(each.short, each.ident) for each in chapter.sections]))
    return out


def _flat(value: Any, name: str = "") -> Facts:
    """Nested settings as lines of `a.b`: value."""
    if isinstance(value, Mapping):
        return [fact for key, each in value.items() for fact in _flat(each, f"{name}.{key}" if name else str(key))]
    if isinstance(value, (list, tuple)) and not any(isinstance(each, (Mapping, list, tuple)) for each in value):
        return [(name, ", ".join(map(str, value)))]
    return [(name, str(value))] if value is not None else []
