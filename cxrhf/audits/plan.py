"""PREDICTION -> RESULT and CURVE: the audits, each one file with one function from a sample to rows.

`run_audits` runs the wanted ones for every dataset and model of the table, on the same draws of patients, so that all
differences are paired. Then models are compared, runs of one model are summarised, and all p values are corrected
together. Audits of representations (REPRESENTATIONS) run if their tables are next to the predictions. For the names of
rows see `cxrhf.audits.rows`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from cxrhf.audits.rows import INTERVAL_SOURCE, Row
from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.findings import finding_name
from cxrhf.metrics.intervals import benjamini_hochberg, benjamini_yekutieli, bonferroni, holm, max_t

if TYPE_CHECKING:
    import pyarrow as pa

    from cxrhf.audits.material import Material
    from cxrhf.audits.rows import AuditedSample, AuditPart
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
    from cxrhf.audits.compare import summarize_runs
    from cxrhf.audits.rows import AuditedSample, GatheredParts, to_result_rows
    from cxrhf.audits.sample import samples
    from cxrhf.errors import ConfigError, TableError
    from cxrhf.schema import CURVE, POINT, PREDICTION, RESULT, SLICE
    from cxrhf.tables.checks import check, table_of

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
    whole = GatheredParts()
    # With compare alone there would be nothing to compare.
    single = tuple(name for name in wanted if name in PREDICTIONS) or (PREDICTIONS if "compare" in wanted else ())
    looked = tuple(name for name in wanted if name in REPRESENTATIONS and has_material(name, material))
    baselines: dict[Any, dict[Any, AuditedSample]] = {}  # dataset -> training seed -> the first model
    runs: dict[tuple[Any, str], list[AuditedSample]] = {}
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
        audited = AuditedSample(sample, [*found.rows, *(row for row in seen.rows if row["audit"] == "shortcut")])
        if "compare" in wanted and sample.several_models:
            whole.add(_compare_with_first(audited, baselines.setdefault(sample.dataset, {}), single))
        if sample.model != sample.name:  # one of several runs
            runs.setdefault((sample.dataset, sample.name), []).append(audited)
    for several in runs.values():
        if "imbalance" in wanted:
            whole.add(summarize_runs(several))
        if "shortcut" in looked:
            from cxrhf.audits.shortcut import shortcut_runs

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
        table_of(to_result_rows(whole.rows), RESULT, source="results"),
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

    few: Any = replace(
        cast("Any", config), n_resamples=10, primary=(), correction="none",
        only=tuple(name for name in wanted if name not in OWN_RULE) or wanted,
    )  # fmt: skip
    correct(
        run_audits(predictions, few, workers=workers, material=material).results.to_pylist(), "none", config.primary
    )


def _compare_with_first(audited: AuditedSample, firsts: dict[Any, AuditedSample], names: tuple[str, ...]) -> AuditPart:
    """A model compared with the first of its dataset, run by run; a run of the first itself is added to `firsts`.

    `names`: the audits to repeat where both must be brought to common ground.
    """
    from cxrhf.audits.compare import compare
    from cxrhf.audits.rows import AuditPart

    sample = audited.sample
    if not firsts or next(iter(firsts.values())).sample.name == sample.name:
        firsts[sample.data.seed] = audited
        return AuditPart([], [], [])
    first = firsts.get(sample.data.seed, next(iter(firsts.values())) if len(firsts) == 1 else None)
    if first is None:
        note = f"{sample.model}: not compared, because no run of the first model has seed {sample.data.seed}"
        return AuditPart([], [], [note])
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


# Audits that share a file.
_FILES = {"matched": "controlled", "reweighted": "controlled"}


def audit_sample(sample: Sample, names: tuple[str, ...]) -> AuditPart:
    """The named audits of one model."""
    from cxrhf.audits.rows import GatheredParts

    whole = GatheredParts()
    where = f" (dataset {sample.dataset})" if sample.several_datasets and sample.dataset else ""
    for name in names:
        whole.add(getattr(importlib.import_module(f"cxrhf.audits.{_FILES.get(name, name)}"), name)(sample), where)
    return whole.part()


# RESULT rows with raw p values -> the same, corrected for everything one page tests.
#
# A page tests hundreds of differences. With the default (Bonferroni) the chance that the page calls any of them
# significant when nothing is going on is at most 5%: all differences of an audit of one model are one family, and the
# families of the page share the 5% evenly, so that a long list of subgroups does not drown the headline. `bh` and
# `by` hold the share of false ones among what is called significant within each family instead. Intervals are not
# corrected.
#
# What the user asks for before the audit (`primary`, else the named `shortcuts`) does not compete with what the page
# explores on its own: all differences asked for, of all models, are one family with a 5% of its own, and the rest is
# corrected as above. So a page with both kinds holds two levels of 5%, not one.
#
# `features` and `slices` look for what nobody asked about beforehand: they come with a rule of their own, which their
# rows name, and take no part in this.

_RULES: Mapping[str, Callable[..., Any]] = {
    "bonferroni": bonferroni,
    "holm": holm,
    "bh": benjamini_hochberg,
    "by": benjamini_yekutieli,
}
OWN_RULE = ("features", "slices")
_NAMES = {"bonferroni": "Bonferroni", "holm": "Holm", "bh": "Benjamini-Hochberg", "by": "Benjamini-Yekutieli"}


def correct(rows: Sequence[Row], how: str, primary: Sequence[str] = (), shortcuts: Sequence[str] = ()) -> list[str]:
    """Replace the raw p values of these rows in place; `method` then names the rule, the family and its size.

    `primary`: what was asked for, as `AuditConfig.primary` has it; without it, whatever tests one of the named
    `shortcuts`. Returns notes: what was asked for and is not tested.
    """
    tested = [row for row in rows if _is_tested(row)]
    # With names in `shortcuts` the shortcut audit looks at no other attribute.
    questions = [question.split(":") for question in primary] or ([["shortcut"]] if shortcuts else [])
    notes = _untested_notes(rows, tested, primary)
    asked, families = list[Row](), dict[tuple[Any, ...], list[Row]]()
    for row in tested:
        if any(_matches(row, question) for question in questions):
            asked.append(row)
            continue
        other = row["versus"] if row["audit"] == "compare" else None
        families.setdefault((row["dataset"], row["model"], row["audit"], other), []).append(row)
    if how == "none":
        return notes
    if asked:
        _correct(asked, how, 1, "primary ")
    for family in families.values():
        _correct(family, how, len(families), "exploratory " if asked else "")
    return notes


def _is_tested(row: Row) -> bool:
    return row["p_value"] is not None and not np.isnan(row["p_value"]) and row["audit"] not in OWN_RULE


def _matches(row: Row, question: Sequence[str]) -> bool:
    """Whether every word of a question describes this difference."""
    words = _words(row)
    return all(word.casefold() in words or finding_name(word) == row["finding"] for word in question)


def _words(row: Row) -> set[str]:
    """What a difference can be asked for by: audit, metric, finding, group or attribute (`sex`, `sex=F`, `drain`)."""
    parts = [each for name in ("slice", "versus") for each in (row[name] or "").split(" & ")]
    words = {row["audit"], row["finding"] or "", *row["metric"].split(" vs "), *parts}
    words |= {part.partition("=")[0].removesuffix(" known") for part in parts}
    return {word.casefold() for word in words if word}


def _untested_notes(rows: Sequence[Row], tested: Sequence[Row], primary: Sequence[str]) -> list[str]:
    """A note for each question whose differences are shown but not tested; an error where there is no such difference.

    Without the error a misspelt question would silently be corrected as if nobody had asked it.
    """
    notes = []
    for question in primary:
        words = question.split(":")
        if any(_matches(row, words) for row in tested):
            continue
        if any(row["versus"] is not None and _matches(row, words) for row in rows):
            notes.append(f"primary: {question} is shown but not tested; its rows state why")
            continue
        known = sorted(set[str]().union(*map(_words, tested)))
        unknown = [word for word in words if word.casefold() not in known and finding_name(word) not in known]
        audits = ", ".join(sorted({row["audit"] for row in tested}))
        raise ConfigError(
            "primary: no difference matches all of these words",
            got=question,
            allowed=f"an audit with tests ({audits or 'there is none'}) and a metric, finding, group or attribute of "
            "its rows, joined by colons",
            next_step=(did_you_mean(unknown[0], known) or f"check {unknown[0]!r}") if unknown else "remove a word",
        )
    return notes


def _correct(family: Sequence[Row], how: str, families: int, kind: str) -> None:
    raw = np.array([row["p_value"] for row in family])
    shared = 1 if how in ("bh", "by") else families
    if how == "max_t":
        together = max_t(
            [row["value"] for row in family], np.stack([row[INTERVAL_SOURCE].replicates for row in family], axis=1)
        )
        # It sees the replicates of a picked pair, not of those it was picked from.
        picked = max(row[INTERVAL_SOURCE].picked for row in family)
        # What max-T cannot resolve (no replicate is as extreme) is not called smaller than Bonferroni would.
        corrected, name = np.minimum(together.p_value * picked, bonferroni(raw)), "max-T"
    else:
        corrected, name = _RULES[how](raw), _NAMES[how]
    beside = f" in each of {shared} families" if shared > 1 else ""
    said = f"; p corrected for {len(family)} {kind}difference{'s' * (len(family) != 1)}{beside} ({name})"
    for row, p_value in zip(family, corrected, strict=True):
        row["p_value"] = float(min(1.0, p_value * shared))
        row["method"] += said
