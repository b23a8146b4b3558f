"""run.json -> what was audited, and what the page was made from and with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrhf.report.blocks import Column, Entry, Table
from cxrhf.report.book import MACRO, REPORTS, Subject
from cxrhf.report.numbers import join_names

Facts = list[tuple[str, str]]
UNNAMED = "model"  # what readers call a model that the table does not name
_PRETEST = "a pre-test probability (--pretest COLUMN, or --pretest from:age,sex,view,prior_labels)"
# Audit -> its title, and what it needs, said where it left nothing.
NEEDS = {
    "overview": ("Overview", "labels and scores"),
    "context": ("Performance by patient context", "a pre-test probability or mentions in prior notes (--pretest, "
                                                  "--notes)"),
    "matched": ("Context held equal in matched pairs", _PRETEST),
    "reweighted": ("Context held equal by reweighting", _PRETEST),
    "imbalance": ("Rare findings and other prevalences", "labels and scores"),
    "subgroups": ("Performance by subgroup", "a column sex, race, age or view"),
    "encoding": ("Patient characteristics in embeddings",
                 "embeddings of a network (cxrhf embed RUN, then --embeddings RUN) or runs of cxrhf probe (--probes "
                 "RUN)"),
    "features": ("Maps of the embeddings", "embeddings of the model (cxrhf embed RUN, then --embeddings RUN)"),
    "slices": ("Slices",
               "embeddings of the model (cxrhf embed RUN, then --embeddings RUN); --attributes FILE names the slices"),
    "shortcut": ("Shortcuts",
                 "attributes of the images (--attributes FILE with image_id, name, value) and a column sex"),
    "reports": ("Generated reports",
                "generated reports and their references (cxrhf generate RUN, or a table with both)"),
    "compare": ("Comparison of models", "predictions of a second model on the same images"),
}  # fmt: skip


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping; a damaged record must not stop the page."""
    return value if isinstance(value, Mapping) else {}


def input_names(record: Mapping[str, Any]) -> list[str]:
    """Names of the files that were audited."""
    return [str(each.get("name", "")) for each in record.get("inputs") or [] if isinstance(each, Mapping)]


def size_of(subject: Subject) -> Facts:
    """Images, patients and findings of a subject."""
    book = subject.book
    counts = book.get("overview", MACRO, "auroc")
    if not counts.n and book.cells:
        counts = max(book.cells.values(), key=lambda cell: cell.n)
    return [
        ("Images", f"{counts.n:,}"),
        ("Patients", f"{counts.n_patients:,}"),
        ("Findings", f"{len(book.findings) + len(book.hidden):,}"),
    ]


def summary(subjects: Sequence[Subject], record: Mapping[str, Any]) -> Facts:
    """What was audited, in a line of facts."""
    config = mapping(record.get("config"))
    resamples = config.get("n_resamples")
    models = list(dict.fromkeys(subject.model for subject in subjects))
    datasets = list(dict.fromkeys(subject.book.dataset for subject in subjects if subject.book.dataset))
    facts: Facts = []
    files = input_names(record)
    if datasets or files:
        facts.append(("Datasets" if len(datasets) > 1 else "Data", join_names(datasets or files, 4)))
    if len(subjects) == 1:
        facts += size_of(subjects[0])
    if len(models) == 1:
        facts += [("Model", models[0])] if models[0] != UNNAMED else []
    elif models:
        facts.append(("Models audited", str(len(models))))
    runs = max((len(subject.runs) for subject in subjects), default=0)
    if runs:
        facts.append(("Runs", str(runs)))
    notes = [str(note) for note in record.get("notes") or []]
    if split := next((note for note in notes if note.startswith("only the split ")), ""):
        facts.append(("Split", split.removeprefix("only the split ").split(" is evaluated")[0]))
    elif any(note.startswith("the splits ") for note in notes):
        facts.append(("Split", "all splits together"))
    facts += [
        ("Resamples of patients", f"{resamples:,}" if isinstance(resamples, int) else "not recorded"),
        ("Seed", str(record.get("seed", "not recorded"))),
    ]
    made = str(record.get("finished") or record.get("started") or "")
    return [*facts, ("Date", made[:10])] if made else facts


def missing_audits(
    subjects: Sequence[Subject], record: Mapping[str, Any], encoded: bool = False, written: bool = False
) -> list[tuple[str, str]]:
    """Audits that left nothing, and what they need; `encoded`, `written`: those of networks, of reports left some."""
    only = mapping(record.get("config")).get("only") or ()
    out = []
    for name, (title, needs) in NEEDS.items():
        if any(subject.book.has(name) for subject in subjects) or not subjects or (encoded and name == "encoding"):
            continue
        if written and name == REPORTS:
            continue
        if name == "compare" and len({subject.model for subject in subjects}) < 2 and not only:
            continue  # nothing is missing where one model was given
        why = f"not run: --only does not include {name}" if only and name not in only else f"requires {needs}"
        out.append((title, why))
    return out


def inputs_table(record: Mapping[str, Any]) -> Table | None:
    """The files it was made from."""
    rows = []
    for each in record.get("inputs") or []:
        if isinstance(each, Mapping):
            size = each.get("size")
            shown = f"{size:,} bytes" if isinstance(size, int) and size else "synthetic"
            name, digest = str(each.get("name", "")), str(each.get("sha256", ""))[:16]
            rows.append([Entry(name), Entry(digest, words=True), Entry(shown)])
    columns = [Column("File"), Column("SHA-256 (first 16)", words=True), Column("Size")]
    return Table("Input files", columns, rows, by_finding=False) if rows else None


def provenance(record: Mapping[str, Any]) -> Facts:
    """Versions, commit, times, settings."""
    versions, config = mapping(record.get("versions")), mapping(record.get("config"))
    given = {name: value for name, value in config.items() if value not in (None, [], (), "", False)}
    facts = [
        ("Created by", f"cxrhf {versions.get('cxrhf', '')} {record.get('verb', '')}".strip()),
        ("Commit", str(record.get("commit") or "not recorded")),
        ("Settings", ", ".join(f"{name} = {_value_text(value)}" for name, value in given.items())),
        ("Started", str(record.get("started") or "")),
        ("Finished", str(record.get("finished") or "")),
        ("Python", str(record.get("python") or "")),
        ("Platform", str(record.get("platform") or "")),
        ("Packages", ", ".join(f"{name} {text}" for name, text in versions.items() if name != "cxrhf")),
    ]
    return [fact for fact in facts if fact[1]]


def _value_text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def attrition_table(steps: Sequence[Mapping[str, Any]]) -> Table:
    """What every step of the dataset's build left, with the published count below where there is one."""
    counts = ("images", "studies", "patients", "admissions", "notes")
    used = [name for name in counts if any(step[name] is not None for step in steps)]
    noted = any(step["note"] for step in steps)
    rows = []
    for at, step in enumerate(steps):
        cells = []
        for name in used:
            here, public = step[name], step[f"expected_{name}"]
            below = "" if public is None else f"published {public:,}"
            cells.append(Entry("" if here is None else f"{here:,}", below))
        said = [Entry(step["note"] or "", words=True)] if noted else []
        rows.append([Entry(step["step"], key=f"{at:04d}"), *cells, *said])
    columns = [
        Column("Step"),
        *(Column(name.capitalize()) for name in used),
        *([Column("Note", words=True)] if noted else []),
    ]
    return Table("Counts after each step", columns, rows, by_finding=False)
