"""PREDICTION -> RESULT and CURVE: the audits, each one file with one function from a sample to rows.

`run_audits` runs the wanted ones for every dataset and model of the table, on the same draws of patients, so that all
differences are paired; then the models are compared, runs of one model summed up, and all p values corrected together.
Audits of representations (REPRESENTATIONS) run where their tables lie beside the predictions. How rows are named stands
in `cxrhf.audits.rows`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from cxrhf.audits.material import Material
    from cxrhf.audits.rows import Audited, Part
    from cxrhf.audits.sample import Sample, Settings

# In the order of the page. Each is one function in the file of its name: those of PREDICTIONS and, where vectors or
# attributes lie beside them, of REPRESENTATIONS take one model; encoding takes all networks, compare two models.
PREDICTIONS = ("overview", "context", "matched", "reweighted", "imbalance", "subgroups")
REPRESENTATIONS = ("features", "slices", "shortcut")
AUDITS = (*PREDICTIONS, "encoding", *REPRESENTATIONS, "compare")


@dataclass(frozen=True, slots=True)
class AuditOutput:
    """What the audits found: RESULT and CURVE tables, and sentences a reader must see beside the numbers.

    `points` and `slices` (POINT, SLICE) are None where no audit of representations ran, `words` (WORD) where none of
    generated reports did.
    """

    results: pa.Table
    curves: pa.Table
    notes: list[str]
    points: pa.Table | None = None
    slices: pa.Table | None = None
    words: pa.Table | None = None


def run_audits(
    predictions: pa.Table,
    config: Settings,
    progress: Callable[[str], None] | None = None,
    *,
    workers: int | None = None,
    material: Material | None = None,
) -> AuditOutput:
    """Audit every model of a PREDICTION table. `config.only` names audits (empty = all); `workers` = threads.

    `material`: vectors, attributes and what else lies beside the predictions.

    The values depend on the table and the seed, not on row order, threads or which other audits run; p values are
    corrected for what was run.
    """
    from cxrhf.audits.compare import compare
    from cxrhf.audits.correction import correct
    from cxrhf.audits.rows import Audited, plain
    from cxrhf.audits.runs import over_runs
    from cxrhf.audits.sample import samples
    from cxrhf.errors import ConfigError, TableError
    from cxrhf.schema import CURVE, POINT, PREDICTION, RESULT, SLICE, check, table_of

    wanted = tuple(name for name in AUDITS if name in config.only) if config.only else AUDITS
    if unknown := [name for name in config.only or () if name not in AUDITS]:
        raise ConfigError("no such audit", got=unknown[0], allowed=", ".join(AUDITS))
    predictions = check(predictions, PREDICTION, source="predictions")
    if predictions.num_rows == 0:
        raise TableError("the predictions have no rows", next_step="check the file and the findings asked for")
    say = progress or (lambda _: None)
    rows, curves, notes = list[dict[str, Any]](), list[dict[str, Any]](), list[str]()
    points, slices = list[dict[str, Any]](), list[dict[str, Any]]()

    def add(part: Part) -> None:
        rows.extend(part.rows)
        curves.extend(part.curves)
        notes.extend(part.notes)
        points.extend(part.points)
        slices.extend(part.slices)

    # With compare alone there would be nothing to compare.
    single = tuple(name for name in wanted if name in PREDICTIONS) or (PREDICTIONS if "compare" in wanted else ())
    looked = tuple(name for name in wanted if name in REPRESENTATIONS and has_material(name, material))
    baselines: dict[Any, dict[Any, Audited]] = {}  # dataset -> training seed -> the first model
    runs: dict[tuple[Any, str], list[Audited]] = {}
    for sample in samples(predictions, config, workers, say, notes, material):
        found = audit_sample(sample, single)
        audited = Audited(sample, found.rows)
        if any(name in wanted for name in PREDICTIONS):
            add(found)
        else:
            notes.extend(found.notes)
        # Maps and slices of every run would say the same ten times over; distributions over runs are the shortcut's.
        first_run = (sample.dataset, sample.name) not in runs
        seen = audit_sample(sample, looked if first_run else tuple(name for name in looked if name == "shortcut"))
        add(seen)
        audited = audited._replace(rows=[*audited.rows, *(row for row in seen.rows if row["audit"] == "shortcut")])
        if "compare" in wanted and sample.several_models:
            firsts = baselines.setdefault(sample.dataset, {})
            if not firsts or next(iter(firsts.values())).sample.name == sample.name:
                firsts[sample.data.seed] = audited
            elif first := firsts.get(sample.data.seed, next(iter(firsts.values())) if len(firsts) == 1 else None):
                say(f"{first.sample.model} against {sample.model}")
                add(compare(first, audited, lambda each: audit_sample(each, single).rows))
            else:
                notes.append(f"{sample.model}: not compared, no run of the first model has the seed {sample.data.seed}")
        if sample.model != sample.name:  # one of several runs
            runs.setdefault((sample.dataset, sample.name), []).append(audited)
    for several in runs.values():
        if "imbalance" in wanted:
            add(over_runs(several))
        if "shortcut" in looked:
            from cxrhf.audits.shortcut_runs import shortcut_runs

            add(shortcut_runs(several))
    if "encoding" in wanted and has_material("encoding", material):
        from cxrhf.audits.encoding import encoding

        assert material is not None
        add(encoding(material, predictions, config, workers, say))
    if wanted == ("compare",) and len(predictions["model"].unique()) == 1:
        notes.append("nothing to compare: the predictions hold one model; give a second file, or a model column")
    correct(rows, config.correction)
    results = table_of(plain(rows), RESULT, source="results")
    return AuditOutput(
        results,
        table_of(curves, CURVE, source="curves"),
        list(dict.fromkeys(notes)),
        table_of(points, POINT, source="points") if points else None,
        table_of(slices, SLICE, source="slices") if slices else None,
    )


def has_material(audit: str, material: Material | None) -> bool:
    """Whether an audit of representations has what it needs."""
    if material is None:
        return False
    if audit == "shortcut":
        return material.attributes is not None
    if audit == "encoding":
        return bool(material.probes) or material.embeddings is not None or material.characteristics is not None
    return material.embeddings is not None


def audit_sample(sample: Sample, names: tuple[str, ...]) -> Part:
    """The named audits of one model."""
    from cxrhf.audits.rows import Part

    points, slices = list[dict[str, Any]](), list[dict[str, Any]]()
    whole = Part([], [], [], points, slices)
    where = f" (dataset {sample.dataset})" if sample.several_datasets and sample.dataset else ""
    for name in names:
        part = getattr(importlib.import_module(f"cxrhf.audits.{name}"), name)(sample)
        whole.rows.extend(part.rows)
        whole.curves.extend(part.curves)
        whole.notes.extend(note + where for note in part.notes)
        points.extend(part.points)
        slices.extend(part.slices)
    return whole
