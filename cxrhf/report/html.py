"""results, curves and run.json -> report.html: one file that loads nothing from anywhere.

The page is built from aggregates only: no row, image or patient id can reach it. Everything that comes from the user's
data is escaped by the template engine or by `figures.escape`; a content policy in the page forbids every request and
every script but the page's own.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from cxrhf.report import figures
from cxrhf.report.book import MACRO, Book, Cell, open_books
from cxrhf.report.figures import Fall, Line, known, number
from cxrhf.report.tables import Table, attrition_table, context_tables, overview_tables
from cxrhf.report.words import FEW_PATIENTS, Sentence, beside, headline, sentence
from cxrhf.schema import display_name

_LONGEST = 22  # letters of a name beside the headline picture


class Multiple(NamedTuple):
    """A row of small pictures of one kind."""

    title: str
    about: str
    pictures: list[tuple[str, str, Markup]]  # finding, line below its name, picture


class Section(NamedTuple):
    """All the page says of one model on one dataset."""

    ident: str
    title: str
    facts: list[tuple[str, str]]
    headline: str
    has_context: bool
    wide: Markup
    narrow: Markup
    not_shown: list[str]
    sentences: list[Sentence]
    context: list[Table]
    overview: list[Table]
    multiples: list[Multiple]


def write_page(run: Path) -> Path:
    """RUN/results.parquet, curves.parquet and run.json -> RUN/report.html."""
    from cxrhf.run import read_run
    from cxrhf.schema import CURVE

    opened = read_run(run)
    results = opened.table("results").to_pylist()
    curves = (
        opened.table("curves").to_pylist() if (run / "curves.parquet").is_file() else CURVE.empty_table().to_pylist()
    )
    steps = opened.table("attrition").to_pylist() if (run / "attrition.parquet").is_file() else []
    flow = run / "figures" / "flow.svg"
    picture = flow.read_bytes() if steps and flow.is_file() else b""
    target, beside_it = run / "report.html", run / "report.html.part"
    beside_it.write_text(render(results, curves, opened.record, steps, picture), encoding="utf-8")
    beside_it.replace(target)
    return target


def render(
    results: Sequence[Mapping[str, Any]],
    curves: Sequence[Mapping[str, Any]],
    record: Mapping[str, Any],
    steps: Sequence[Mapping[str, Any]] = (),
    flow: bytes = b"",
) -> str:
    """The page as text; `steps` is the attrition of the dataset, `flow` its picture as SVG."""
    config = _mapping(record.get("config"))
    level = f"{100 * float(config.get('level') or 0.95):.4g}%"
    books = open_books(results)
    drawn: dict[tuple[str, str, str], Line] = _lines(curves)
    style, script = _asset("style.css"), _asset("page.js")
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{_digest(script)}'"
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cxrhf.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["finding"] = display_name
    return environment.get_template("report.html.j2").render(
        style=Markup(style),
        script=Markup(script),
        policy=policy,
        title=_title(books),
        sections=[_section(book, drawn, level, f"m{at}", len(books) > 1) for at, book in enumerate(books)],
        attrition=attrition_table(steps) if steps else None,
        flow=f"data:image/svg+xml;base64,{base64.b64encode(flow).decode()}" if flow else "",
        warnings=[str(each) for each in record.get("notes") or []],
        reading=[str(each) for each in record.get("reading") or []],
        level=level,
        key={kind: figures.key_mark(kind) for kind in (figures.OVERALL, figures.CONTEXT, figures.REMAINS)},
        summary=_summary(books, record, config),
        inputs=[_input(each) for each in record.get("inputs") or [] if isinstance(each, Mapping)],
        provenance=_provenance(record),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _asset(name: str) -> str:
    return (resources.files("cxrhf.report") / "templates" / name).read_text(encoding="utf-8").strip()


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _title(books: Sequence[Book]) -> str:
    models = list(dict.fromkeys(book.model for book in books if book.model))
    return f"Audit of {', '.join(models[:3])}{' and more' if len(models) > 3 else ''}" if models else "Audit"


def _lines(curves: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, str], Line]:
    points: dict[tuple[str, str, str], list[tuple[float, ...]]] = {}
    for row in curves:
        if row["slice"] == "all":
            key = (row["model"] or "", row["finding"] or "", row["kind"])
            values = (row[name] for name in ("x", "y", "low", "high"))
            points.setdefault(key, []).append(tuple(math.nan if v is None else float(v) for v in values))
    return {key: Line(*(list(column) for column in zip(*rows, strict=True))) for key, rows in points.items()}


def _section(book: Book, lines: Mapping[tuple[str, str, str], Line], level: str, ident: str, several: bool) -> Section:
    has_context = book.has("matched")
    falls, not_shown = _falls(book, has_context)
    about = f"For each finding the AUROC with its {level} interval: " + "; ".join(
        f"{fall.name}: overall {number(fall.overall.value)}"
        + (
            f", context alone {number(fall.context.value)}, context held equal {number(fall.remains.value)}"
            if has_context
            else ""
        )
        for fall in falls
    )
    picture = "AUROC overall, from context alone, and with context held equal" if has_context else "AUROC overall"
    title = "What it reaches, and what goes with patient context" if has_context else "What it reaches"
    counts = book.get("overview", MACRO, "auroc")
    if not counts.n and book.findings:
        counts = max((cell for key, cell in book.cells.items()), key=lambda cell: cell.n)
    facts = [
        ("Images", f"{counts.n:,}"),
        ("Patients", f"{counts.n_patients:,}"),
        ("Findings", f"{len(book.findings)}"),
    ]
    name = f"{book.model} on {book.dataset}" if book.dataset and book.dataset != book.model else book.model
    return Section(
        ident=ident,
        title=(name or "Model") if several else title,
        facts=facts,
        headline=headline(book, level) if book.findings else "No findings were audited.",
        has_context=has_context,
        wide=figures.waterfall(falls, width=960, ident=f"{ident}-wide", title=picture, about=about),
        narrow=figures.waterfall(falls, width=350, ident=f"{ident}-narrow", title=picture, about=about),
        not_shown=not_shown,
        sentences=[sentence(book, finding, level) for finding in book.findings],
        context=context_tables(book) if has_context else [],
        overview=overview_tables(book) if book.has("overview") else [],
        multiples=_multiples(book, lines, ident),
    )


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"


def _falls(book: Book, has_context: bool) -> tuple[list[Fall], list[str]]:
    """Rows of the headline picture, the largest drop first, the mean last; and the findings without a number."""
    audit = "matched" if has_context else "overview"
    shown, missing = [], []
    for finding in [*book.findings, MACRO]:
        overall = book.get(audit, finding, "auroc")
        drop = book.get(audit, finding, "auroc_drop", "auroc_att")
        patients = book.get("overview", finding, "verdict").value
        if not known(overall.value) or patients < FEW_PATIENTS:
            if finding != MACRO:
                missing.append(
                    display_name(finding) + (" (too few patients)" if known(overall.value) else " (undefined)")
                )
            continue
        if finding == MACRO and len(book.findings) < 2:
            continue
        name = "Mean of findings" if finding == MACRO else _short(display_name(finding))
        said = beside(drop) if has_context else overall.with_interval()
        context, remains = (book.get(audit, finding, metric).mark for metric in ("auroc_context", "auroc_att"))
        size = drop.value if known(drop.value) else -1.0
        shown.append((finding == MACRO, -size, Fall(name, overall.mark, context, remains, said)))
    return [fall for *_, fall in sorted(shown, key=lambda each: each[:2])], missing


def _multiples(book: Book, lines: Mapping[tuple[str, str, str], Line], ident: str) -> list[Multiple]:
    kinds = (
        ("roc", "ROC curves", "Sensitivity against false positive rate. Dot: 95% specificity. Band: where the curve "
         "may lie, point by point. Dashed: coin toss."),
        ("pr", "Precision-recall curves", "What share of the images called positive are positive. Dashed: the "
         "prevalence, what a coin toss reaches."),
        ("reliability", "Reliability", "Observed share of positives against the predicted probability, in ten groups "
         "of equal size. On the dashed line = calibrated. The axes end where the data do."),
    )  # fmt: skip
    out = []
    for kind, title, about in kinds:
        pictures = []
        for at, finding in enumerate(book.findings):
            line = lines.get((book.model, finding, kind)) or lines.get(
                (f"{book.model} on {book.dataset}", finding, kind)
            )
            if line is not None:
                name = f"{ident}-{kind}-{at}"
                pictures.append((finding, *_small(book, finding, kind, line, name)))
        if pictures:
            out.append(Multiple(title, about, pictures))
    return out


def _small(book: Book, finding: str, kind: str, line: Line, ident: str) -> tuple[str, Markup]:
    def get(metric: str) -> Cell:
        return book.get("overview", finding, metric)

    shown = display_name(finding)
    if kind == "roc":
        words = f"AUROC {number(get('auroc').value)}"
        point = (1 - get("sensitivity_at_specificity.specificity").value, get("sensitivity_at_specificity").value)
        return words, figures.roc(line, ident=ident, title=f"ROC curve, {shown}", about=words, point=point)
    if kind == "pr":
        words = f"AP {number(get('average_precision').value)}"
        prevalence = get("prevalence").value
        about = f"average precision {number(get('average_precision').value)}, prevalence {number(prevalence)}"
        title = f"Precision-recall curve, {shown}"
        return words, figures.precision_recall(line, prevalence=prevalence, ident=ident, title=title, about=about)
    words = f"slope {number(get('calibration_slope').value, 2)}"
    pairs = zip(line.x, line.y, strict=True)
    about = "predicted and observed: " + ", ".join(f"{number(x)} and {number(y)}" for x, y in pairs)
    return words, figures.reliability(line, ident=ident, title=f"Reliability, {shown}", about=about)


def _summary(books: Sequence[Book], record: Mapping[str, Any], config: Mapping[str, Any]) -> list[tuple[str, str]]:
    resamples = config.get("n_resamples")
    made = str(record.get("finished") or record.get("started") or "")
    facts = [
        ("Resamples of patients", f"{resamples:,}" if isinstance(resamples, int) else "not recorded"),
        ("Seed", str(record.get("seed", "not recorded"))),
    ]
    if len(books) > 1:
        facts.insert(0, ("Models audited", str(len(books))))
    return [*facts, ("Made", made[:10])] if made else facts


def _input(each: Mapping[str, Any]) -> dict[str, str]:
    size = each.get("size")
    return {
        "name": str(each.get("name", "")),
        "sha256": str(each.get("sha256", ""))[:16],
        "size": f"{size:,} bytes" if isinstance(size, int) and size else "made up",
    }


def _provenance(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    versions = _mapping(record.get("versions"))
    facts = [
        ("Made by", f"cxrhf {versions.get('cxrhf', '')} {record.get('verb', '')}".strip()),
        ("Commit", str(record.get("commit") or "not recorded")),
        ("Started", str(record.get("started") or "")),
        ("Finished", str(record.get("finished") or "")),
        ("Python", str(record.get("python") or "")),
        ("Platform", str(record.get("platform") or "")),
        ("Packages", ", ".join(f"{name} {text}" for name, text in versions.items() if name != "cxrhf")),
    ]
    return [fact for fact in facts if fact[1]]
