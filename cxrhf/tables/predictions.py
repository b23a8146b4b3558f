"""Anybody's predictions (files or tables, wide, long or one finding) -> the PREDICTION table, and what was understood.

Rules. A label is 1, 0 or null; -1 (uncertain) becomes null and is counted. A score within 0..1 is `prob`. When any
score of a finding lies outside, all scores of that finding (and model) go to `logit`, with `prob` null: ranking metrics
only. Columns called logit are never turned into probabilities. A score may be missing only where the label is. Without
a patient column every image counts as its own patient, and the reading says so. Several files without a model column
are several models, named by their files; under one given model name, files that share images are its runs.

Cost: a wide file of 20,770 images x 13 findings takes about .3 s, a long CSV of 2 million rows (145 MB) about 6 s and
.84 GB at its peak, most of it the text of the ids.
"""

from __future__ import annotations

import os
import re
import shlex
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.errors import CxrhfWarning, TableError, did_you_mean
from cxrhf.findings import finding_name
from cxrhf.schema import PREDICTION
from cxrhf.tables import cells
from cxrhf.tables.cells import Scores, split_scores
from cxrhf.tables.checks import MOST_GROUP, MOST_ID, MOST_NAME, quoted
from cxrhf.tables.columns import Columns, FindingColumns, Plan, plan_columns
from cxrhf.tables.files import Kind, RawTable, open_raw
from cxrhf.tables.folders import describe_path, suggest_folder
from cxrhf.tables.times import (
    KEY_COLUMNS,
    alike_notes,
    codes,
    filled,
    first_repeated,
    image_times,
    merge_times,
    nih_times,
    refuse_ids,
    refuse_long,
    refuse_repeated,
    refuse_shared,
    refuse_two_patients,
)

_NUMBERS = ("score", "logit", "pretest", "weight", "age", "seed")


def read_predictions(
    source: Any, *, findings: Iterable[str] = (), columns: Columns | None = None, **named: str | None
) -> pa.Table:
    """PREDICTION rows of a file, several files, a run folder, a table, a DataFrame, a dictionary or a list of rows.

    Columns are found by their usual names or named: `read_predictions("vendor.csv", patient="PatientID", label="gt")`.
    `findings` keeps some of the findings. What needs attention is given as a warning; `load_predictions` returns it.
    """
    loaded = load_predictions(source, findings=findings, columns=columns, **named)
    for note in loaded.notes:
        warnings.warn(note, CxrhfWarning, stacklevel=2)
    return loaded.table


def load_predictions(
    source: Any, *, findings: Iterable[str] = (), columns: Columns | None = None, **named: str | None
) -> Loaded:
    """As `read_predictions`, with the record of what was understood."""
    given = columns if columns is not None else Columns.of(named)
    sources = listed_sources(source)
    models = model_names(sources)
    wanted = tuple(dict.fromkeys(finding_name(each) for each in findings))
    parts = [_load_one(each, given, wanted, model) for each, model in zip(sources, models, strict=True)]
    if len(parts) > 1:
        parts = as_runs(parts, sources, given.model)
    table = pa.concat_tables([part.table for part in parts])
    readings = tuple(reading for part in parts for reading in part.readings)
    names = [reading.source for reading in readings]
    if len(parts) > 1:
        refuse_shared(table, names, [part.table.num_rows for part in parts])
    alike = alike_notes(table["patient_id"], "patient")
    alike += alike_notes(table["image_id"], "image") if len(parts) > 1 else []
    if alike:
        readings = (replace(readings[0], notes=(*readings[0].notes, *alike)), *readings[1:])
    times = merge_times([part.times for part in parts], names)
    if times is None and (times := nih_times(table)) is not None:
        said = "no time column: the follow-up number in NIH's file names gives the order of a patient's images"
        readings = (replace(readings[0], notes=(*readings[0].notes, said)), *readings[1:])
    pa.default_memory_pool().release_unused()
    return Loaded(table, readings, times)


def _load_one(source: Any, columns: Columns, wanted: tuple[str, ...], model: str) -> Loaded:
    raw = open_raw(source)
    refuse_long(raw)
    names = ["" if at in raw.nested else name for at, name in enumerate(raw.columns)]
    plan = plan_columns(names, columns, raw.name)
    if wanted and plan.form != "long":
        _check_findings(wanted, [each.finding for each in plan.findings], raw.name)
        kept = tuple(each for each in plan.findings if each.finding in wanted)
        plan = Plan(plan.form, plan.roles, kept, plan.constants, plan.notes)
    cols = _Cells(raw, plan)
    if cols.n_rows == 0:
        raise TableError(f"{raw.name}: the table has no rows", next_step="check how the file was made")
    for role in ("model", "dataset", "finding", "seed"):
        if role in plan.roles:
            column, where = cols[plan.roles[role]]
            refuse_ids(column, where.column, role, raw.name, "seed-column" if role == "seed" else role)
    shared, notes = _shared_columns(cols, plan, model)
    if plan.form == "long":
        table, more = _long(cols, plan, shared, wanted)
    else:
        table, more = _wide(cols, plan, shared)
    times, said, used = None, list[str](), plan.used()
    if "time" in plan.roles:
        clock = cols[plan.roles["clock"]] if "clock" in plan.roles else None
        who = (shared["image_id"], shared["patient_id"])
        times, said = image_times(cols[plan.roles["time"]], clock, *who, named=columns.time is not None)
    reading = Reading(
        source=raw.name,
        form={"wide": "wide", "long": "long", "single": "one-finding"}[plan.form],
        columns=_columns_read(cols, plan),
        ignored=tuple(name for at, name in enumerate(raw.columns) if at not in used and name.strip()),
        findings=tuple(pc.unique(table["finding"]).to_pylist()),
        n_rows=cols.n_rows,
        n_images=pc.count_distinct(table["image_id"]).as_py(),
        n_patients=pc.count_distinct(table["patient_id"]).as_py(),
        notes=(*plan.notes, *notes, *more, *said),
    )
    return Loaded(table, (reading,), times)


class _Cells:
    """The columns a plan needs, read once, with the place of each cell at hand."""

    def __init__(self, raw: RawTable, plan: Plan) -> None:
        kinds: dict[int, Kind] = {at: "number" if role in _NUMBERS[:4] else "text" for role, at in plan.roles.items()}
        for each in plan.findings:
            kinds.update(dict.fromkeys((at for at in (each.label, each.mention) if at is not None), "text"))
            numeric = (at for at in (each.score, each.logit, each.pretest) if at is not None)
            kinds.update(dict.fromkeys(numeric, "number"))
        self.raw = raw
        # Categories (pandas) are dictionaries of values.
        loaded = [
            each.cast(each.type.value_type) if pa.types.is_dictionary(each.type) else each for each in raw.load(kinds)
        ]
        self.columns = dict(zip(kinds, loaded, strict=True))
        self.n_rows = len(next(iter(self.columns.values())))

    def __getitem__(self, at: int) -> tuple[pa.ChunkedArray, cells.Where]:
        return self.columns[at], cells.Where(self.raw.name, self.raw.columns[at], self.raw.place)


def _columns_read(cols: _Cells, plan: Plan) -> tuple[tuple[str, str], ...]:
    """Role and column of what is there; a column without any value says nothing."""
    names = cols.raw.columns
    said = [(role, names[at]) for role, at in plan.roles.items() if cols.columns[at].null_count < cols.n_rows]
    said += [(role, repr(value)) for role, value in plan.constants.items()]
    for role in ("label", "score", "logit", "pretest", "mention"):
        own = [names[at] for each in plan.findings if (at := getattr(each, role)) is not None]
        if own:
            said.append((role, own[0] if len(own) == 1 else f"{own[0]} ... {own[-1]} ({len(own)})"))
    return tuple(said)


def _shared_columns(cols: _Cells, plan: Plan, model: str) -> tuple[dict[str, pa.Array], list[str]]:
    """Columns that do not depend on the finding."""
    roles, n, notes = plan.roles, cols.n_rows, list[str]()
    out: dict[str, pa.Array] = {}
    if "image" in roles:
        out["image_id"] = cells.identifiers(*cols[roles["image"]], notes=notes)
    elif "study" in roles:
        out["image_id"] = cells.identifiers(*cols[roles["study"]], notes=notes)
        notes.append("no image column: each study counts as one image")
    elif plan.form == "long":
        raise TableError(
            cols.raw.name,
            allowed="an image column, which links the findings of an image in long form",
            got=f"columns {', '.join(cols.raw.columns)}",
            next_step="name the column: --image COLUMN",
        )
    else:
        out["image_id"] = pc.binary_join_element_wise("row", pa.array(np.arange(1, n + 1)).cast(pa.string()), "-")
        notes.append("no image column: each row counts as one image, and rows are numbered")
    if "study" in roles:
        out["study_id"] = cells.names(*cols[roles["study"]], MOST_ID)
    patients = pa.nulls(n, pa.string())
    if "patient" in roles:
        patients = cells.names(*cols[roles["patient"]], MOST_ID, notes)
        if patients.null_count:
            rows = f"{patients.null_count:,} row{'s' * (patients.null_count != 1)}"
            notes.append(f"no patient id in {rows}: each such image counts as its own patient")
    else:
        notes.append(
            "NO PATIENT COLUMN: each image counts as its own patient, so intervals are too narrow if patients have "
            "several images. Name the column: --patient COLUMN"
        )
    if patients.null_count:
        patients = pc.coalesce(patients, pc.binary_join_element_wise("image", out["image_id"], ":"))
    out["patient_id"] = patients
    for role in ("dataset", "split", "model", "race", "view", "sex"):
        if role in roles:
            most = MOST_NAME if role == "model" else MOST_GROUP
            out[role] = cells.sexes(*cols[roles[role]]) if role == "sex" else cells.names(*cols[roles[role]], most)
        elif role in plan.constants:
            out[role] = pa.repeat(pa.scalar(plan.constants[role], pa.string()), n)
    named = out.get("model", pa.nulls(n, pa.string()))
    out["model"] = named.fill_null(model)
    if "seed" in roles:
        column, where = cols[roles["seed"]]
        seeds = cells.numbers(column, where, allowed="a whole number")
        odd = np.flatnonzero(~np.isnan(seeds) & ((seeds != np.round(seeds)) | (np.abs(seeds) > 2**53)))
        if odd.size:
            raise where.error(int(odd[0]), None, seeds[odd[0]], "a whole number or empty")
        out["seed"] = pa.array(seeds, from_pandas=True).cast(pa.int64())
    if "age" in roles:
        ages = cells.ages(*cols[roles["age"]])
        if ages.n_unknown:
            several = "s" * (ages.n_unknown != 1)
            notes.append(
                f"{ages.n_unknown:,} age{several} could not be read (first: {ages.example!r}): treated as missing"
            )
        out["age"] = pa.array(ages.values, from_pandas=True)
    if "weight" in roles:
        out["weight"] = _weight(cols, roles["weight"], codes(out["model"]))
        if pc.count_distinct(out["weight"]).as_py() > 1:  # might be the patient's weight in kg: let people see it
            notes.append(f"rows are weighted by column {quoted(cols.raw.columns[roles['weight']])}")
    if "pretest" in roles:
        out["pretest"] = _pretest(cols, roles["pretest"])
    if "mention" in roles:
        out["mention"] = cells.flags(*cols[roles["mention"]])
    return out, notes


def _weight(cols: _Cells, at: int, model: np.ndarray) -> pa.Array:
    """A model has a weight for every row or for none: a blank one among others would be a guess."""
    column, where = cols[at]
    weight = cells.bounded(cells.numbers(column, where), where, 0, np.inf, allowed="a finite number, 0 or more")
    blank = np.isnan(weight)
    gaps = blank & (np.bincount(model[~blank], minlength=int(model.max()) + 1) > 0)[model]
    if gaps.any():
        allowed = "a weight in every row of a model that has weights"
        raise where.error(int(np.argmax(gaps)), None, cells.EMPTY, allowed, "fill in the cell")
    return pa.array(weight, from_pandas=True)


def _pretest(cols: _Cells, at: int) -> pa.Array:
    column, where = cols[at]
    allowed = "a probability from 0 to 1, or empty"
    values = cells.bounded(cells.numbers(column, where, allowed=allowed), where, 0, 1, allowed=allowed)
    return pa.array(values, from_pandas=True)


def _wide(cols: _Cells, plan: Plan, shared: Mapping[str, pa.Array]) -> tuple[pa.Table, list[str]]:
    """One block of rows per finding; the shared columns are not copied."""
    image, source, place = shared["image_id"], cols.raw.name, cols.raw.place
    refuse_repeated(image, [shared["model"], shared.get("seed")], source, place, None)
    refuse_two_patients(image, shared["patient_id"], source, place)
    blocks, parts, uncertain = [], list[Scores](), 0
    for each in plan.findings:
        label, scores, n_uncertain = _answers(cols, each, None)
        uncertain += n_uncertain
        parts.append(scores)
        block = {**shared, "label": label, "prob": scores.prob, "logit": scores.logit}
        block["finding"] = pa.repeat(pa.scalar(each.finding), cols.n_rows)
        if each.pretest is not None:
            block["pretest"] = _pretest(cols, each.pretest)
        if each.mention is not None:
            block["mention"] = cells.flags(*cols[each.mention])
        blocks.append(filled(block, PREDICTION, cols.n_rows))
    table = pa.concat_tables(blocks)
    return table, score_notes(parts, [each.finding for each in plan.findings], uncertain, table["label"])


def _long(
    cols: _Cells, plan: Plan, shared: Mapping[str, pa.Array], wanted: tuple[str, ...]
) -> tuple[pa.Table, list[str]]:
    roles = plan.roles
    given = cells.identifiers(*cols[roles["finding"]], MOST_NAME).dictionary_encode()
    names = pa.array([finding_name(each) for each in given.dictionary.to_pylist()], pa.string())
    finding = names.take(given.indices)
    image, source, place = shared["image_id"], cols.raw.name, cols.raw.place
    refuse_repeated(image, [shared["model"], shared.get("seed")], source, place, finding)
    refuse_two_patients(image, shared["patient_id"], source, place)
    answers = FindingColumns("", roles["label"], roles.get("score"), roles.get("logit"))
    label, scores, uncertain = _answers(cols, answers, [finding, shared["model"]])
    block = {**shared, "label": label, "finding": finding, "prob": scores.prob, "logit": scores.logit}
    table = filled(block, PREDICTION, cols.n_rows)
    if wanted:
        _check_findings(wanted, pc.unique(finding).to_pylist(), cols.raw.name)
        table = table.filter(pc.is_in(table["finding"], value_set=pa.array(wanted)))
    return table, score_notes([scores], None, uncertain, table["label"])


def _answers(cols: _Cells, each: FindingColumns, by: list[pa.Array] | None) -> tuple[pa.Array, Scores, int]:
    labels = cells.labels(*cols[each.label])
    score = None if each.score is None else cols[each.score]
    logit = None if each.logit is None else cols[each.logit]
    return labels.values, split_scores(score, logit, labels.values, by), labels.n_uncertain


def _check_findings(wanted: Sequence[str], known: Sequence[str], source: str) -> None:
    for name in wanted:
        if name not in known:
            raise TableError(
                f"{source}: unknown finding {quoted(name)}",
                allowed=f"one of {', '.join(known)}",
                next_step=did_you_mean(name, known),
            )


# What was understood of a predictions file -> a few lines a person can check.


@dataclass(frozen=True, slots=True)
class Reading:
    """What was understood of one source, for people to check."""

    source: str
    form: str
    columns: tuple[tuple[str, str], ...]  # role, column
    ignored: tuple[str, ...]
    findings: tuple[str, ...]
    n_rows: int
    n_images: int
    n_patients: int
    notes: tuple[str, ...]

    def lines(self) -> list[str]:
        """A few lines to print."""
        counts = ((self.n_rows, "row"), (self.n_images, "image"), (self.n_patients, "patient"))
        counted = [f"{n:,} {noun}{'s' * (n != 1)}" for n, noun in (*counts, (len(self.findings), "finding"))]
        head = f"{self.source}: {self.form} form, {', '.join(counted)}"
        said = [head, "  columns: " + ", ".join(f"{role} = {column}" for role, column in self.columns)]
        said.append("  findings: " + ", ".join(self.findings))
        if self.ignored:
            said.append("  not used: " + shorten_list(self.ignored, 12))
        return said + [f"  note: {note}" for note in self.notes]


@dataclass(frozen=True, slots=True)
class Loaded:
    """PREDICTION rows, one Reading per source, and when the images were taken where that is known.

    `times` has one row per image: image_id, patient_id, time (days since 1970, or the number itself where the column
    holds numbers; its metadata `unit` says which).
    """

    table: pa.Table
    readings: tuple[Reading, ...]
    times: pa.Table | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Everything a reader of the numbers should know about the input."""
        return tuple(f"{reading.source}: {note}" for reading in self.readings for note in reading.notes)


def score_notes(
    parts: Sequence[Scores], findings: Sequence[str] | None, uncertain: int, labels: pa.ChunkedArray
) -> list[str]:
    """What should be said about labels and scores; `findings` names the parts, None where a part names its own."""
    notes = []
    if uncertain:
        several = "s" * (uncertain != 1)
        notes.append(f"masked {uncertain:,} uncertain label{several} (-1): neither positive nor negative")
        if not pc.any(pc.equal(labels, 0)).as_py():
            notes.append("NO LABEL IS 0: if -1 means negative in this file, replace it with 0")
    elif labels.null_count == len(labels):
        notes.append("NO LABELS: every cell of the label column is empty, so no metric can be computed")
    ranked = [part for part in parts if part.not_probabilities]
    if ranked:
        low, high = min(part.low for part in ranked), max(part.high for part in ranked)
        names = _names([part.not_probabilities for part in parts], findings)
        spread = f"scores from {low:.3g} to {high:.3g}"
        percent = " (if they are percentages, divide them by 100)" if low >= 0 and 50 < high <= 100 else ""
        notes.append(f"{shorten_list(names, 3)}: {spread} are not probabilities: ranking metrics only{percent}")
    if two := _names([part.two_valued for part in parts], findings):
        notes.append(
            f"{shorten_list(two, 3)}: scores take at most two values; AUROC requires the score before the threshold"
        )
    return notes


def _names(parts: Sequence[Sequence[str]], findings: Sequence[str] | None) -> list[str]:
    if findings is None:
        return [name for part in parts for name in part]
    return [name for name, part in zip(findings, parts, strict=True) if part]


def shorten_list(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


# What the user gave -> the files to read, names for their models, and seeds where they are runs of one model.


def listed_sources(source: Any) -> list[Any]:
    """Several paths, one path, or one table; a run folder stands for the predictions in it."""
    if isinstance(source, (str, os.PathLike)):
        return [_run_table(Path(source))]
    if isinstance(source, Sequence) and source and all(isinstance(each, (str, os.PathLike)) for each in source):
        paths = [_run_table(Path(each)) for each in source]
        if len({path.resolve() for path in paths}) < len(paths):
            raise TableError(
                "the same predictions file is given twice",
                got=", ".join(map(str, paths)),
                next_step="pass each file once; several files are read as several models",
            )
        return list(paths)
    if isinstance(source, Sequence) and not source:
        raise TableError("no predictions are given", next_step="pass a file: cxrhf audit predictions.csv")
    return [source]


def find_predictions(run: Path) -> Path | None:
    """The predictions of a run folder; of a network that was trained on the sex or race alone, those of it."""
    there = (run / name for name in ("predictions.parquet", "characteristics.parquet"))
    return next(filter(Path.is_file, there), None)


def _run_table(path: Path) -> Path:
    if path.is_dir() and (found := find_predictions(path)):
        return found
    if path.is_dir():
        raise TableError(
            str(path),
            allowed="a folder with predictions.parquet",
            got=describe_path(path),
            next_step=suggest_folder(path, "predictions.parquet") or _before(path) or "name a predictions file",
        )
    return path


def _before(folder: Path) -> str | None:
    """What has to be done to a folder before there are predictions in it."""
    typed = shlex.quote(str(folder))
    if (folder / "build.json").is_file():
        return f"train and predict first: cxrhf train {typed} --config quick --out runs/quick, cxrhf predict runs/quick"
    return f"cxrhf predict {typed}" if (folder / "models").is_dir() else None


def model_names(sources: list[Any]) -> list[str]:
    """Names for files that do not name their model: one file "model", several by file, or by folder and file."""
    if len(sources) == 1:
        return ["model"]
    stems = [Path(each).name.split(".")[0] for each in sources]
    if len(set(stems)) < len(stems):
        stems = [f"{Path(each).resolve().parent.name}/{stem}" for each, stem in zip(sources, stems, strict=True)]
    return stems if len(set(stems)) == len(stems) else [f"{stem} ({at + 1})" for at, stem in enumerate(stems)]


def as_runs(parts: Sequence[Loaded], sources: Sequence[Any], model: str | None) -> list[Loaded]:
    """Files that share images under one given model name are its runs (training seeds, splits): a seed for each.

    Files without a shared image stay one table: the parts, splits or datasets of one model. So do files with a seed.
    """
    whole = pa.concat_tables([part.table for part in parts])
    unnamed = model is None or pc.unique(whole["model"]).to_pylist() != [model]
    if (
        unnamed
        or whole["seed"].null_count < len(whole)
        or first_repeated([whole[name] for name in KEY_COLUMNS]) is None
    ):
        return list(parts)
    seeds, by_name = run_seeds([os.path.abspath(each) for each in sources])
    how = "from the number in its name" if by_name else "from the order of the files"
    at = whole.schema.get_field_index("seed")
    out = []
    for part, seed in zip(parts, seeds, strict=True):
        said = f"shares images with other files of model {quoted(str(model))}: read as its run with seed {seed}, {how}"
        column = pa.repeat(pa.scalar(seed, pa.int64()), part.table.num_rows)
        readings = tuple(replace(each, notes=(*each.notes, said)) for each in part.readings)
        out.append(replace(part, table=part.table.set_column(at, whole.schema.field(at), column), readings=readings))
    return out


def run_seeds(paths: Sequence[str]) -> tuple[list[int], bool]:
    """The one number in which the paths differ, else 0, 1, 2 ...; and whether it was found.

    >>> run_seeds(["runs/seed_3.csv", "runs/seed_14.csv"]), run_seeds(["a.csv", "b.csv"])
    (([3, 14], True), ([0, 1], False))
    """
    pieces = [re.split(r"([0-9]+)", path) for path in paths]
    if len({tuple(each[::2]) for each in pieces}) == 1:
        differing = [at for at in zip(*(each[1::2] for each in pieces), strict=True) if len(set(at)) > 1]
        numbers = [int(each) for each in differing[0]] if len(differing) == 1 else []
        if numbers and len(set(numbers)) == len(paths) and max(numbers) < 2**63:
            return numbers, True
    return list(range(len(paths))), False
