"""Column names of anybody's generated reports -> a plan: which column is what, and which ways of decoding there are.

Long: one row an image (and model, and way of decoding), with one generated column. Wide: several generated columns
side by side, `generated_<strategy>`, or as the user names them: `greedy=hyp_greedy,rich=hyp_rich`. A reference may be
several columns, `findings+impression`. A column the user names wins over every guess; names are compared without case,
spaces and signs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from cxrhf.errors import TableError, did_you_mean
from cxrhf.tables.checks import quoted
from cxrhf.tables.columns import SYNONYMS as OF_PREDICTIONS
from cxrhf.tables.columns import column_key, find_column, usual_column

# Names that say "a report" by themselves, and names that a file of scores has too.
SURE_GENERATED = (
    "generated", "generated_report", "generated_text", "generated_findings", "predicted_report", "report_generated",
    "model_report", "hypothesis", "hyp", "hyps", "candidate", "cand", "generation",
)  # fmt: skip
UNSURE_GENERATED = (
    "prediction", "pred", "predicted", "output", "model_output", "response", "answer", "prediction_text",
)  # fmt: skip
SURE_REFERENCE = (
    "reference_report", "ground_truth_report", "gt_report", "original_report", "true_report", "reference_text",
    "report", "report_text", "findings_impression",
)  # fmt: skip
UNSURE_REFERENCE = ("reference", "references", "ref", "ground_truth", "gt", "target", "truth", "label", "labels")
SECTIONS = ("findings", "impression")  # together they are the reference where nothing else is
SYNONYMS: dict[str, tuple[str, ...]] = {
    "generated": (*SURE_GENERATED, *UNSURE_GENERATED),
    "reference": (*UNSURE_REFERENCE[:3], *SURE_REFERENCE, *UNSURE_REFERENCE[3:]),
    "patient": (*OF_PREDICTIONS["patient"], "uid"),
    "image": (*(name for name in OF_PREDICTIONS["image"] if name not in ("uid", "id")), *OF_PREDICTIONS["study"],
              "report_id", "sample_id", "sample", "id", "uid"),
    "sex": (*OF_PREDICTIONS["sex"], "sex_from_indication"),
    "age": (*OF_PREDICTIONS["age"], "age_dicom", "age_from_indication"),
    "race": OF_PREDICTIONS["race"],
    "model": OF_PREDICTIONS["model"],
    "strategy": ("strategy", "decoding", "decoding_strategy", "sampling"),
    "dataset": OF_PREDICTIONS["dataset"],
}  # fmt: skip
CONSTANTS = ("model", "strategy", "dataset")  # may also be given as a value instead of a column
_PREFIXES = ("generated", "generated_report", "hypothesis", "hyp", "candidate", "prediction", "pred", "output")


@dataclass(frozen=True, slots=True)
class GenerationColumns:
    """Columns named by the user; None = found by its usual names."""

    image: str | None = None
    patient: str | None = None
    generated: str | None = None
    reference: str | None = None
    sex: str | None = None
    age: str | None = None
    race: str | None = None
    model: str | None = None
    strategy: str | None = None
    dataset: str | None = None


@dataclass(frozen=True, slots=True)
class GenerationPlan:
    """What each column of a file is taken for, by position."""

    roles: Mapping[str, int]  # all but generated and reference
    generated: Mapping[str | None, int]  # strategy -> column; None: the file has one generated column
    reference: tuple[int, ...]
    constants: Mapping[str, str]

    def used(self) -> set[int]:
        """Positions of all columns that are read."""
        return {*self.roles.values(), *self.generated.values(), *self.reference}


def is_generations(names: Sequence[str]) -> bool:
    """Whether columns look like reports (generated and reference) rather than predictions of findings.

    `prediction` beside `ground_truth` may be either; scores are what this framework has always read there.

    >>> is_generations(["id", "generated", "reference"]), is_generations(["id", "prediction", "reference"])
    (True, False)
    """
    keys = {column_key(name) for name in names}

    def has(some: Sequence[str]) -> bool:
        return any(column_key(name) in keys for name in some)

    wide = any(_strategy_of(name, ("generated", "generated_report", "hypothesis", "hyp")) for name in names)
    sure = has(SURE_REFERENCE) or has(SECTIONS)
    if has(SURE_GENERATED) or wide:
        return sure or has(UNSURE_REFERENCE)
    return sure and has(UNSURE_GENERATED) and not has(("label", "y_true"))


def plan_generations(names: Sequence[str], columns: GenerationColumns, source: str) -> GenerationPlan:
    """Decide what the columns of a file are, or say what is missing and which flag names it."""
    given = {each.name: value for each in fields(columns) if (value := getattr(columns, each.name))}
    roles: dict[str, int] = {}
    constants: dict[str, str] = {}
    generated = _given_generated(names, given.pop("generated", None), source)
    reference = _given_reference(names, given.pop("reference", None), source)
    for role, wanted in given.items():
        at = find_column(names, wanted, source)
        if at is not None:
            roles[role] = at
        elif role in CONSTANTS:
            constants[role] = wanted
        else:
            raise _no_column(names, wanted, role, source)
    taken = {*roles.values(), *generated.values(), *reference}
    for role in ("generated", "reference", *(each for each in SYNONYMS if each not in ("generated", "reference"))):
        if role in roles or role in constants or (role == "generated" and generated):
            continue
        if role == "reference" and reference:
            continue
        at = usual_column(names, SYNONYMS[role], taken, source)
        if at is None:
            continue
        taken.add(at)
        if role == "generated":
            generated = {None: at}
        elif role == "reference":
            reference = (at,)
        else:
            roles[role] = at
    if not generated:
        generated = {found: at for at, name in enumerate(names)
                     if at not in taken and (found := _strategy_of(name, _PREFIXES))}  # fmt: skip
    if not reference:
        reference = tuple(at for name in SECTIONS if (at := usual_column(names, (name,), taken, source)) is not None)
    _refuse_missing(names, generated, reference, source)
    if None not in generated and ("strategy" in roles or "strategy" in constants):
        raise TableError(
            f"{source}: several generated columns cannot be combined with a strategy",
            got=f"columns {', '.join(names[at] for at in generated.values())}",
            next_step="name one generated column with --generated COLUMN, or remove the strategy: the column names "
            "give it",
        )
    return GenerationPlan(roles, generated, reference, constants)


def _refuse_missing(
    names: Sequence[str], generated: Mapping[str | None, int], reference: Sequence[int], source: str
) -> None:
    missing = [role for role, there in (("generated", generated), ("reference", reference)) if not there]
    if missing:
        flags = " ".join(f"--{role} COLUMN" for role in missing)
        raise TableError(
            f"{source}: found no column with the {' and none with the '.join(missing)} reports",
            got=f"columns {', '.join(names)}",
            allowed="generated (or generated_<strategy>) and reference (or findings and impression)",
            next_step=f"name the columns: {flags}",
        )


def _given_generated(names: Sequence[str], wanted: str | None, source: str) -> dict[str | None, int]:
    """`hyp`, or `greedy=hyp_greedy,rich=hyp_rich`, or `hyp_greedy,hyp_rich`."""
    if wanted is None:
        return {}
    if (at := find_column(names, wanted, source)) is not None:
        return {None: at}
    found: dict[str | None, int] = {}
    parts = [part.strip() for part in wanted.split(",") if part.strip()]
    for part in parts:
        strategy, equals, column = part.partition("=")
        column = column.strip() if equals else part
        at = find_column(names, column, source)
        if at is None:
            raise _no_column(names, column, "generated", source)
        name = strategy.strip() if equals else _strategy_of(names[at], _PREFIXES) or names[at].strip()
        if not name or name in found or at in found.values():
            raise TableError(
                f"{source}: --generated",
                got=wanted,
                allowed="each strategy and each column once, such as greedy=COLUMN,rich=COLUMN",
            )
        found[name] = at
    return found


def _given_reference(names: Sequence[str], wanted: str | None, source: str) -> tuple[int, ...]:
    """`ref`, or `findings+impression`."""
    if wanted is None:
        return ()
    if (at := find_column(names, wanted, source)) is not None:
        return (at,)
    found = []
    for part in (each.strip() for each in wanted.split("+") if each.strip()):
        at = find_column(names, part, source)
        if at is None:
            raise _no_column(names, part, "reference", source)
        found.append(at)
    return tuple(found)


def _strategy_of(name: str, prefixes: Sequence[str]) -> str | None:
    """`generated_greedy` -> greedy."""
    choice = "|".join(sorted(prefixes, key=len, reverse=True))
    match = re.fullmatch(rf"(?:{choice})[\s_.:-]+(.+)", name.strip(), re.IGNORECASE)
    return match[1].strip() if match and column_key(name) not in map(column_key, SYNONYMS["generated"]) else None


def _no_column(names: Sequence[str], wanted: str, role: str, source: str) -> TableError:
    return TableError(
        source,
        allowed=f"a column {quoted(wanted)} for {role}",
        got=f"columns {', '.join(names)}",
        next_step=did_you_mean(wanted, names) or f"pass one of them to --{role}",
    )
