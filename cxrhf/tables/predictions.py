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

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.errors import CxrhfWarning, TableError, did_you_mean
from cxrhf.findings import finding_name
from cxrhf.schema import PREDICTION
from cxrhf.tables import cells
from cxrhf.tables.checks import MOST_GROUP, MOST_ID, MOST_NAME, quoted
from cxrhf.tables.columns import Columns, FindingColumns, Plan, plan_columns
from cxrhf.tables.files import Kind, RawTable, open_raw
from cxrhf.tables.reading import Loaded, Reading, score_notes
from cxrhf.tables.rows import (
    alike_notes,
    codes,
    filled,
    refuse_ids,
    refuse_long,
    refuse_repeated,
    refuse_shared,
    refuse_two_patients,
)
from cxrhf.tables.scores import Scores, split_scores
from cxrhf.tables.sources import as_runs, listed_sources, model_names
from cxrhf.tables.times import image_times, merge_times, nih_times

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
        _known(wanted, [each.finding for each in plan.findings], raw.name)
        kept = tuple(each for each in plan.findings if each.finding in wanted)
        plan = Plan(plan.form, plan.roles, kept, plan.constants, plan.notes)
    cols = _Cells(raw, plan)
    if cols.n_rows == 0:
        raise TableError(f"{raw.name}: the table has no rows", next_step="check how the file was made")
    for role in ("model", "dataset", "finding", "seed"):
        if role in plan.roles:
            column, where = cols[plan.roles[role]]
            refuse_ids(column, where.column, role, raw.name, "seed-column" if role == "seed" else role)
    shared, notes = _shared(cols, plan, model)
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
        columns=_said(cols, plan),
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


def _said(cols: _Cells, plan: Plan) -> tuple[tuple[str, str], ...]:
    """Role and column of what is there; a column without any value says nothing."""
    names = cols.raw.columns
    said = [(role, names[at]) for role, at in plan.roles.items() if cols.columns[at].null_count < cols.n_rows]
    said += [(role, repr(value)) for role, value in plan.constants.items()]
    for role in ("label", "score", "logit", "pretest", "mention"):
        own = [names[at] for each in plan.findings if (at := getattr(each, role)) is not None]
        if own:
            said.append((role, own[0] if len(own) == 1 else f"{own[0]} ... {own[-1]} ({len(own)})"))
    return tuple(said)


def _shared(cols: _Cells, plan: Plan, model: str) -> tuple[dict[str, pa.Array], list[str]]:
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
        _known(wanted, pc.unique(finding).to_pylist(), cols.raw.name)
        table = table.filter(pc.is_in(table["finding"], value_set=pa.array(wanted)))
    return table, score_notes([scores], None, uncertain, table["label"])


def _answers(cols: _Cells, each: FindingColumns, by: list[pa.Array] | None) -> tuple[pa.Array, Scores, int]:
    labels = cells.labels(*cols[each.label])
    score = None if each.score is None else cols[each.score]
    logit = None if each.logit is None else cols[each.logit]
    return labels.values, split_scores(score, logit, labels.values, by), labels.n_uncertain


def _known(wanted: Sequence[str], known: Sequence[str], source: str) -> None:
    for name in wanted:
        if name not in known:
            raise TableError(
                f"{source}: unknown finding {quoted(name)}",
                allowed=f"one of {', '.join(known)}",
                next_step=did_you_mean(name, known),
            )
