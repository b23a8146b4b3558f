"""Column names of anybody's predictions file -> a plan: which column is what, and which findings there are.

Three forms are understood. Wide: one row an image, `prob_<finding>` (or score_, pred_, logit_, before or after the
name) with `<finding>` or `label_<finding>`, and optional `pretest_<finding>`, `mention_<finding>`. Long: one row an
image and finding. Single: one label and one score column. A column the user names wins over every guess; names are
compared without case, spaces and signs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal

from cxrhf.errors import ConfigError, TableError, did_you_mean
from cxrhf.findings import finding_name
from cxrhf.tables.checks import quoted

# Role -> names it goes by, best first. Left out on purpose: vendor (often of the scanner), fold (not a test split),
# timestamp and created_at (often of the prediction, not of the image).
SYNONYMS: dict[str, tuple[str, ...]] = {
    "image": ("image_id", "image", "dicom_id", "sop_instance_uid", "image_index", "image_name", "image_path", "img",
              "img_id", "image_file", "file_name", "filename", "path", "file_path", "file", "uid", "id"),
    "study": ("study_id", "study", "study_instance_uid", "accession_number", "accession", "exam_id", "exam"),
    "patient": ("patient_id", "patient", "subject_id", "subject", "patient_uid", "person_id", "mrn", "pid"),
    "finding": ("finding", "finding_name", "pathology", "disease", "condition", "label_name", "class_name", "task"),
    "label": ("label", "y_true", "y", "ground_truth", "truth", "gt", "true_label", "target", "reference"),
    "score": ("prob", "probability", "score", "y_prob", "y_score", "ai_score", "model_score", "risk_score",
              "prediction", "pred", "y_pred", "p", "output", "confidence"),
    "logit": ("logit", "logits"),
    "pretest": ("pretest", "pretest_probability", "pretest_prob", "pre_test_probability"),
    "mention": ("mention", "prior_mention", "mentioned"),
    "weight": ("weight", "sample_weight", "weights"),
    "sex": ("sex", "gender", "patient_sex", "patient_gender"),
    "age": ("age", "patient_age", "age_years"),
    "race": ("race", "ethnicity", "primary_race", "race_ethnicity"),
    "view": ("view", "view_position", "projection", "ap_pa"),
    "time": ("study_datetime", "acquisition_datetime", "exam_datetime", "image_datetime", "study_date",
             "acquisition_date", "exam_date", "image_date", "scan_date", "visit_date", "study_time", "follow_up",
             "follow_up_number", "visit", "visit_number", "patient_report_date_order", "offset", "datetime", "date",
             "time"),
    "split": ("split", "subset", "partition"),
    "model": ("model", "model_name", "algorithm"),
    "seed": ("seed",),
    "dataset": ("dataset", "dataset_name"),
}  # fmt: skip
_SCORES = ("prob", "probability", "score", "prediction", "pred", "logit")  # the first that is there is used
_LABELS = ("label", "y_true", "true", "truth", "gt", "target", "y")
_CONSTANTS = ("finding", "model", "dataset")  # may also be given as a value instead of a column
# What a pre-test probability can be fitted from: columns of the table, and labels of the patient's earlier images.
PRETEST_SOURCES = ("age", "sex", "view", "race", "prior_labels")


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns named by the user; None = found by its usual names."""

    image: str | None = None
    study: str | None = None
    patient: str | None = None
    finding: str | None = None
    label: str | None = None
    score: str | None = None
    pretest: str | None = None
    mention: str | None = None
    weight: str | None = None
    sex: str | None = None
    age: str | None = None
    race: str | None = None
    view: str | None = None
    time: str | None = None
    split: str | None = None
    model: str | None = None
    seed: str | None = None
    dataset: str | None = None

    @staticmethod
    def of(given: Mapping[str, str | None]) -> Columns:
        """Columns from keyword arguments; an unknown role is an error."""
        known = [each.name for each in fields(Columns)]
        for role in given:
            if role not in known:
                raise TableError(
                    f"unknown column role {quoted(role)}",
                    allowed=f"one of {', '.join(known)}",
                    next_step=did_you_mean(role, known),
                )
        return Columns(**given)


def pretest_sources(text: str) -> tuple[str, ...] | None:
    """`from:age,sex` -> ("age", "sex"), in one order however it is written; None when a column is named instead."""
    head, colon, tail = text.partition(":")
    if not colon or head.strip().lower() != "from":
        return None
    given = [re.sub(r"[\s-]+", "_", each.strip().lower()) for each in tail.split(",") if each.strip()]
    every = ", ".join(PRETEST_SOURCES)
    for name in given:
        if name not in PRETEST_SOURCES:
            raise ConfigError(
                "--pretest",
                got=quoted(name),
                allowed=f"from: and any of {every}",
                next_step=did_you_mean(name, PRETEST_SOURCES) or "--pretest from:age,sex",
            )
    if not given:
        raise ConfigError(
            "--pretest", got=quoted(text), allowed=f"from: and any of {every}", next_step="--pretest from:age,sex"
        )
    return tuple(name for name in PRETEST_SOURCES if name in given)


@dataclass(frozen=True, slots=True)
class FindingColumns:
    """The columns of one finding, by position in the file."""

    finding: str
    label: int
    score: int | None
    logit: int | None = None
    pretest: int | None = None
    mention: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What each column of a file is taken for."""

    form: Literal["wide", "long", "single"]
    roles: Mapping[str, int]  # shared by all findings; in long files also finding, label, score, logit; clock (below)
    findings: tuple[FindingColumns, ...]  # wide and single
    constants: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def used(self) -> set[int]:
        """Positions of all columns that are read."""
        own = {
            position
            for each in self.findings
            for position in (each.label, each.score, each.logit, each.pretest, each.mention)
            if position is not None
        }
        return own | set(self.roles.values())


def plan_columns(names: Sequence[str], columns: Columns, source: str) -> Plan:
    """Decide what the columns of a file are, or say what is missing and which flag names it."""
    roles, constants = _roles(names, columns, source)
    pairs, notes = ([], []) if columns.label or columns.score else _wide(names, roles, source)
    if pairs:
        shared = {role: at for role, at in roles.items() if role not in ("finding", "label", "score", "logit")}
        taken = {at for each in pairs for at in (each.label, each.score, each.logit)}
        shared = {role: at for role, at in shared.items() if at not in taken}
        pairs, constants = _keep_finding(pairs, names, columns.finding, constants, source)
        if len(pairs) > 1:
            notes += [
                f"column {quoted(names[shared[role]])} is used for all {len(pairs)} findings"
                for role in ("pretest", "mention")
                if role in shared
            ]
        return Plan("wide", shared, tuple(pairs), constants, tuple(notes))
    if "label" not in roles and columns.finding and (at := find_column(names, columns.finding, source)) is not None:
        roles["label"] = at  # --finding Edema beside a score column: the labels stand under the finding's name
        constants["finding"] = columns.finding
        roles.pop("finding", None)
    missing = [role for role in ("label", "score") if role not in roles and not (role == "score" and "logit" in roles)]
    if missing:
        raise _missing(missing, names, columns, roles, source)
    if "finding" in roles:
        return Plan("long", roles, (), constants)
    alone = FindingColumns(finding_name(constants.get("finding", "finding")), roles.pop("label"),
                           roles.pop("score", None), roles.pop("logit", None))  # fmt: skip
    return Plan("single", roles, (alone,), constants)


def _missing(
    missing: Sequence[str], names: Sequence[str], columns: Columns, roles: Mapping[str, int], source: str
) -> TableError:
    """The error for a file without labels or scores; columns that the user gave another role are marked."""
    named = {at: role for role, at in roles.items() if getattr(columns, role, None)}
    shown = [name + (f" (your --{named[at]})" if at in named else "") for at, name in enumerate(names)]
    flags = " ".join(f"--{role} COLUMN" for role in missing)
    # A header of numbers is a row; a single column means that its names are apart by something else.
    header = len(names) == 1 or any(re.fullmatch(r"[-+.\de]+", name.strip().lower()) for name in names)
    return TableError(
        f"{source}: found no {' and no '.join(missing)} column",
        got=f"columns {', '.join(shown)}" if shown else "no columns",
        allowed="label and score; or finding, label and score; or label_<finding> (or <finding>) and prob_<finding>",
        next_step="write the column names on the first line, separated by comma, semicolon, tab or |"
        if header
        else f"name the columns: {flags} ({missing[0]}=... in Python)",
    )


def column_key(name: str) -> str:
    """A name by its letters and digits alone: how columns are compared."""
    return re.sub(r"[\W_]+", "", name).lower()


def find_column(names: Sequence[str], wanted: str, source: str) -> int | None:
    """The position of a column by exact name, else by its letters alone."""
    for same in (str, column_key):
        hits = [at for at, name in enumerate(names) if same(name) == same(wanted) and same(wanted)]
        if len(hits) > 1:
            raise TableError(
                f"{source}: {len(hits)} columns have the name {quoted(names[hits[0]])}",
                next_step="rename or remove all but one",
            )
        if hits:
            return hits[0]
    return None


def usual_column(names: Sequence[str], usual: Sequence[str], taken: set[int], source: str) -> int | None:
    """The first free column by its usual names, the best name first."""
    keys = [column_key(name) for name in names]
    for name in usual:
        hits = [at for at, key in enumerate(keys) if key == column_key(name) and at not in taken]
        if len(hits) > 1:
            find_column(names, names[hits[0]], source)  # equal names are an error; of padded twins the first is taken
        if hits:
            return hits[0]
    return None


def _roles(names: Sequence[str], columns: Columns, source: str) -> tuple[dict[str, int], dict[str, str]]:
    roles: dict[str, int] = {}
    constants: dict[str, str] = {}
    given = {each.name: value for each in fields(Columns) if (value := getattr(columns, each.name))}
    fitted = pretest_sources(columns.pretest or "") is not None  # made later from other columns
    if fitted:
        del given["pretest"]
    for role, wanted in given.items():
        at = find_column(names, wanted, source)
        if at is not None:
            roles[role] = at
        elif role in _CONSTANTS:
            constants[role] = wanted
        else:
            raise TableError(
                source,
                allowed=f"a column {quoted(wanted)} for {role}",
                got=f"columns {', '.join(names)}",
                next_step=did_you_mean(wanted, names) or f"pass one of them to --{role}",
            )
    keys = [column_key(name) for name in names]
    taken = set(roles.values())
    for role, usual in SYNONYMS.items():
        if role in roles or role in constants or (role == "logit" and columns.score) or (role == "pretest" and fitted):
            continue
        if (at := usual_column(names, usual, taken, source)) is not None:
            roles[role] = at
            taken.add(at)
    if "time" in roles and (day := keys[roles["time"]]).endswith("date"):  # DICOM's pair: StudyDate and StudyTime
        clocks = [at for at, key in enumerate(keys) if key == day.removesuffix("date") + "time" and at not in taken]
        if len(clocks) == 1:
            roles["clock"] = clocks[0]
    return roles, constants


def _split_name(name: str, marks: Sequence[str]) -> tuple[str, str] | None:
    """`prob_Edema`, `Edema prob` -> ("prob", "Edema")."""
    choice = "|".join(marks)
    if match := re.fullmatch(rf"({choice})[\s_.:-]+(.+)", name.strip(), re.IGNORECASE):
        return match[1].lower(), match[2]
    if match := re.fullmatch(rf"(.+?)[\s_.:-]+({choice})", name.strip(), re.IGNORECASE):
        return match[2].lower(), match[1]
    return None


def _wide(names: Sequence[str], roles: Mapping[str, int], source: str) -> tuple[list[FindingColumns], list[str]]:
    """Findings that have a score and a label column."""
    found: dict[str, dict[str, int]] = {}
    # Not "finding": with prob_disease beside it, a column called disease (or named by --finding) holds labels.
    reserved = {at for role, at in roles.items() if role != "finding"}
    for mark_of, marks in (("", _SCORES), ("label", _LABELS), ("pretest", ("pretest",)), ("mention", ("mention",))):
        for at, name in enumerate(names):
            if at in reserved or (parts := _split_name(name, marks)) is None:
                continue
            slot = found.setdefault(finding_name(parts[1]), {})
            mark = mark_of or parts[0]
            if mark in slot:
                raise TableError(
                    f"{source}: columns {quoted(names[slot[mark]])} and {quoted(name)} both hold the {mark} of "
                    f"{quoted(finding_name(parts[1]))}",
                    next_step="rename or remove one of them",
                )
            slot[mark] = at
    scored = {finding for finding, slot in found.items() if any(mark in slot for mark in _SCORES)}
    for at, name in enumerate(names):  # a bare <finding> column holds labels, unless it has another meaning
        finding = finding_name(name)
        if at not in reserved and finding in scored and _split_name(name, _SCORES) is None:
            if "label" in found[finding]:
                twins = f"{quoted(names[found[finding]['label']])} and {quoted(name)}"
                raise TableError(
                    f"{source}: columns {twins} both hold the label of {quoted(finding)}",
                    next_step="rename or remove one of them",
                )
            found[finding]["label"] = at
    pairs, notes = [], []
    for finding in sorted(scored, key=lambda each: min(found[each].values())):
        slot = found[finding]
        score = next((slot[mark] for mark in _SCORES if mark in slot and mark != "logit"), None)
        if "label" in slot:
            optional = (slot.get(each) for each in ("logit", "pretest", "mention"))
            pairs.append(FindingColumns(finding, slot["label"], score, *optional))
        else:
            lonely = names[score if score is not None else slot["logit"]]
            notes.append(f"column {quoted(lonely)} is not used: it has no label column ({finding} or label_{finding})")
    return pairs, notes


def _keep_finding(
    pairs: list[FindingColumns], names: Sequence[str], wanted: str | None, constants: dict[str, str], source: str
) -> tuple[list[FindingColumns], dict[str, str]]:
    """--finding with a wide file keeps that one finding."""
    if wanted is None:
        return pairs, constants
    kept = [each for each in pairs if each.finding == finding_name(wanted) or names[each.label] == wanted]
    if not kept:
        known = [each.finding for each in pairs]
        hint = did_you_mean(finding_name(wanted), known)
        raise TableError(
            f"{source}: unknown finding {quoted(wanted)}", allowed=f"one of {', '.join(known)}", next_step=hint
        )
    return kept, {role: value for role, value in constants.items() if role != "finding"}


# Column names of anybody's generated reports -> a plan: which column is what, and which ways of decoding there are.
#
# Long: one row an image (and model, and way of decoding), with one generated column. Wide: several generated columns
# side by side, `generated_<strategy>`, or as the user names them: `greedy=hyp_greedy,rich=hyp_rich`. A reference may
# be several columns, `findings+impression`. A column the user names wins over every guess; names are compared without
# case, spaces and signs.

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
GENERATION_SYNONYMS: dict[str, tuple[str, ...]] = {
    "generated": (*SURE_GENERATED, *UNSURE_GENERATED),
    "reference": (*UNSURE_REFERENCE[:3], *SURE_REFERENCE, *UNSURE_REFERENCE[3:]),
    "patient": (*SYNONYMS["patient"], "uid"),
    "image": (*(name for name in SYNONYMS["image"] if name not in ("uid", "id")), *SYNONYMS["study"],
              "report_id", "sample_id", "sample", "id", "uid"),
    "sex": (*SYNONYMS["sex"], "sex_from_indication"),
    "age": (*SYNONYMS["age"], "age_dicom", "age_from_indication"),
    "race": SYNONYMS["race"],
    "model": SYNONYMS["model"],
    "strategy": ("strategy", "decoding", "decoding_strategy", "sampling"),
    "dataset": SYNONYMS["dataset"],
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
    for role in (
        "generated",
        "reference",
        *(each for each in GENERATION_SYNONYMS if each not in ("generated", "reference")),
    ):
        if role in roles or role in constants or (role == "generated" and generated):
            continue
        if role == "reference" and reference:
            continue
        at = usual_column(names, GENERATION_SYNONYMS[role], taken, source)
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
    return (
        match[1].strip()
        if match and column_key(name) not in map(column_key, GENERATION_SYNONYMS["generated"])
        else None
    )


def _no_column(names: Sequence[str], wanted: str, role: str, source: str) -> TableError:
    return TableError(
        source,
        allowed=f"a column {quoted(wanted)} for {role}",
        got=f"columns {', '.join(names)}",
        next_step=did_you_mean(wanted, names) or f"pass one of them to --{role}",
    )
