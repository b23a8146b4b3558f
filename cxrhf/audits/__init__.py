"""PREDICTION -> RESULT and CURVE: the audits, each one file with one function from a sample to rows.

`run_audits` runs the wanted ones for every dataset and model of the table, on the same draws of patients, so that all
differences are paired. Then models are compared, runs of one model are summarised, and all p values are corrected
together. Audits of representations (REPRESENTATIONS) run if their tables are next to the predictions. For the names of
rows see `cxrhf.audits.rows`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

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
    """Results of the audits: RESULT and CURVE tables, and notes that a reader must see with the numbers.

    `points` and `slices` (POINT, SLICE) are None if no audit of representations ran, and `words` (WORD) if no audit of
    generated reports ran.
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

    `material` has the embeddings, attributes and other tables that belong to the predictions.

    Values depend on the table and the seed, not on the order of rows, the threads or the other audits. p values are
    corrected for all audits that ran.
    """
    from cxrhf.audits.correction import correct
    from cxrhf.audits.rows import Audited, Gathered, plain
    from cxrhf.audits.runs import over_runs
    from cxrhf.audits.sample import samples
    from cxrhf.errors import ConfigError, TableError
    from cxrhf.schema import CURVE, POINT, PREDICTION, RESULT, SLICE, check, table_of

    wanted = tuple(name for name in AUDITS if name in config.only) if config.only else AUDITS
    if unknown := [name for name in config.only or () if name not in AUDITS]:
        raise ConfigError("only", got=unknown[0], allowed=f"one of {', '.join(AUDITS)}")
    predictions = check(predictions, PREDICTION, source="predictions")
    if predictions.num_rows == 0:
        raise TableError("the predictions have no rows", next_step="check the file and --findings")
    say = progress or (lambda _: None)
    if "shortcut" in wanted:
        _check_shortcuts(config.shortcuts, material)
    if config.primary:
        say("checking that the primary differences exist, with 10 resamples")
        _check_primary(predictions, config, wanted, workers, material)
    whole = Gathered()
    # With compare alone there would be nothing to compare.
    single = tuple(name for name in wanted if name in PREDICTIONS) or (PREDICTIONS if "compare" in wanted else ())
    looked = tuple(name for name in wanted if name in REPRESENTATIONS and has_material(name, material))
    baselines: dict[Any, dict[Any, Audited]] = {}  # dataset -> training seed -> the first model
    runs: dict[tuple[Any, str], list[Audited]] = {}
    for sample in samples(predictions, config, workers, say, whole.notes, material):
        found = audit_sample(sample, single)
        if any(name in wanted for name in PREDICTIONS):
            whole.add(found)
        else:
            whole.notes.extend(found.notes)
        # Maps and slices of every run would say the same ten times over; distributions over runs are the shortcut's.
        first_run = (sample.dataset, sample.name) not in runs
        seen = audit_sample(sample, looked if first_run else tuple(name for name in looked if name == "shortcut"))
        whole.add(seen)
        audited = Audited(sample, [*found.rows, *(row for row in seen.rows if row["audit"] == "shortcut")])
        if "compare" in wanted and sample.several_models:
            whole.add(_against_first(audited, baselines.setdefault(sample.dataset, {}), single))
        if sample.model != sample.name:  # one of several runs
            runs.setdefault((sample.dataset, sample.name), []).append(audited)
    for several in runs.values():
        if "imbalance" in wanted:
            whole.add(over_runs(several))
        if "shortcut" in looked:
            from cxrhf.audits.shortcut_runs import shortcut_runs

            whole.add(shortcut_runs(several))
    if "encoding" in wanted and has_material("encoding", material):
        from cxrhf.audits.encoding import encoding

        assert material is not None
        whole.add(encoding(material, predictions, config, workers, say))
    if wanted == ("compare",) and len(predictions["model"].unique()) == 1:
        whole.notes.append(
            "nothing to compare: the predictions are of one model. Give a second file, or a model column"
        )
    whole.notes.extend(correct(whole.rows, config.correction, config.primary, config.shortcuts))
    return AuditOutput(
        table_of(plain(whole.rows), RESULT, source="results"),
        table_of(whole.curves, CURVE, source="curves"),
        list(dict.fromkeys(whole.notes)),
        table_of(whole.points, POINT, source="points") if whole.points else None,
        table_of(whole.slices, SLICE, source="slices") if whole.slices else None,
    )


def _check_shortcuts(shortcuts: Sequence[str], material: Material | None) -> None:
    """Refuse attributes that no image has, before the first audit runs."""
    from cxrhf.errors import ConfigError, did_you_mean

    table = None if material is None else material.attributes
    known = [] if table is None else sorted(map(str, table["name"].unique().to_pylist()))
    for name in shortcuts:
        if name not in known:
            raise ConfigError(
                "shortcuts" if known else f'shortcuts: "{name}" requires a table of attributes',
                got=name if known else None,
                allowed=f"an attribute of the images ({', '.join(known)})" if known else None,
                next_step=did_you_mean(name, known) if known else "pass --attributes FILE, or omit --shortcuts",
            )


def _check_primary(
    predictions: pa.Table, config: Settings, wanted: Sequence[str], workers: int | None, material: Material | None
) -> None:
    """Refuse a primary difference that does not exist, before an hour of resampling.

    The data determine which differences exist, not the resamples, so the audits run once with 10 resamples.
    """
    from cxrhf.audits.correction import OWN_RULE, correct

    few: Any = replace(
        cast("Any", config), n_resamples=10, primary=(), correction="none",
        only=tuple(name for name in wanted if name not in OWN_RULE) or wanted,
    )  # fmt: skip
    correct(
        run_audits(predictions, few, workers=workers, material=material).results.to_pylist(), "none", config.primary
    )


def _against_first(audited: Audited, firsts: dict[Any, Audited], names: tuple[str, ...]) -> Part:
    """A model compared with the first of its dataset, run by run; a run of the first itself is added to `firsts`.

    `names`: the audits to repeat where both must be brought to common ground.
    """
    from cxrhf.audits.compare import compare
    from cxrhf.audits.rows import Part

    sample = audited.sample
    if not firsts or next(iter(firsts.values())).sample.name == sample.name:
        firsts[sample.data.seed] = audited
        return Part([], [], [])
    first = firsts.get(sample.data.seed, next(iter(firsts.values())) if len(firsts) == 1 else None)
    if first is None:
        note = f"{sample.model}: not compared, because no run of the first model has seed {sample.data.seed}"
        return Part([], [], [note])
    sample.progress(f"{first.sample.model} against {sample.model}")
    return compare(first, audited, lambda each: audit_sample(each, names).rows)


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
    from cxrhf.audits.rows import Gathered

    whole = Gathered()
    where = f" (dataset {sample.dataset})" if sample.several_datasets and sample.dataset else ""
    for name in names:
        whole.add(getattr(importlib.import_module(f"cxrhf.audits.{name}"), name)(sample), where)
    return whole.part()
