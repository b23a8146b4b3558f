"""GENERATION (+ SCORE, REPORT_VECTOR) -> what the audits `reports` and `decoding` find in every model and strategy."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa

from cxrhf.audits.plan import AuditOutput
from cxrhf.audits.reports import AUDITS
from cxrhf.audits.reports.likeness import (
    AuditedDecoding,
    check_baseline,
    compare_strategies,
    decoding,
    diversity,
    score_reports,
    similarity,
)
from cxrhf.audits.reports.words import (
    Associations,
    CountedCorpora,
    association_test,
    associations,
    choose_own_words,
    count_words,
    join_word_tables,
    omitted_mass_rows,
    word_sets,
)
from cxrhf.audits.reports.written import (
    REFERENCE,
    GeneratedReports,
    Pair,
    Progress,
    RowMaker,
    Tables,
    WordSettings,
    correct_together,
    generated_reports,
    pairs_of,
)
from cxrhf.audits.rows import Row, to_result_rows
from cxrhf.audits.sample import one_thread
from cxrhf.errors import TableError
from cxrhf.metrics.diversity import Compared
from cxrhf.metrics.words import WordBootstrap
from cxrhf.schema import CURVE, GENERATION, RESULT
from cxrhf.tables.checks import check, table_of

# Reports a patient from which on words of one patient may look like words of a group.
MANY_REPORTS_PER_PATIENT = 1.2
MOST_THREADS = 8


def audit_reports(
    tables: Tables, settings: WordSettings, progress: Progress | None = None, *, may_show: bool = False,
    only: Sequence[str] = (),
) -> AuditOutput:  # fmt: skip
    """Audit every model and strategy of a GENERATION table. `may_show`: frequent reports may be quoted."""
    generations = check(tables.generations, GENERATION, source="generations")
    if generations.num_rows == 0:
        raise TableError(
            "there are no generated reports", next_step="cxrhf generate MODEL --build BUILD, or pass a file"
        )
    _check_once(generations)
    check_baseline(settings.baseline_strategy, generations["strategy"].unique().to_pylist())
    word_sets(settings.weat_words)  # says now what is wrong with them
    say = progress or (lambda _: None)
    tables = tables._replace(generations=generations)
    rows, curves, notes = list[Row](), list[Row](), list[str]()
    words = list[pa.Table]()
    wanted = only or AUDITS
    for _, same in groupby(generated_reports(tables), key=lambda each: (each.dataset, each.model)):
        several, decoded = list(same), list[AuditedDecoding]()
        with one_thread():
            say(f"{several[0].model}: variety of its reports")
            together = compare_strategies(several, settings)
            for at, each in enumerate(several, start=1):
                # A line a strategy: it has dozens of pairs of groups, and a minute is long enough to say no more.
                which = f"{each.strategy} ({at} of {len(several)})" if len(several) > 1 else each.strategy
                say(f"{each.model}, {which}: {len(each.images):,} reports of {each.n_patients:,} patients")
                found = _audit_one(each, together[each.strategy], settings, first=not decoded, may_show=may_show,
                                   notes=notes)  # fmt: skip
                decoded.append(found.decoded)
                rows += found.rows
                curves += found.curves
                words += found.words
            if "decoding" in wanted and len(decoded) > 1:
                say(f"{several[0].model}: strategies side by side")
                rows += decoding(decoded, settings, notes)
    rows = [row for row in rows if row["audit"] in wanted]
    correct_together(rows)
    return AuditOutput(
        table_of(to_result_rows(rows), RESULT, source="results"),
        table_of(curves, CURVE, source="curves"),
        list(dict.fromkeys(notes)),
        words=join_word_tables(words),
    )


@dataclass(frozen=True, slots=True)
class _One:
    decoded: AuditedDecoding
    rows: list[Row]
    curves: list[Row]
    words: list[pa.Table]


def _audit_one(
    each: GeneratedReports, study: Compared, settings: WordSettings, *, first: bool, may_show: bool, notes: list[str]
) -> _One:  # fmt: skip
    """All but the comparison of strategies; the references are told of once, with the first."""
    make = RowMaker("reports", each, settings)
    who = f"{each.model}, {each.strategy}"
    said = list[str]()
    groups = each.groups(settings, said)
    # What is said of groups is said once a model: its strategies have the same people.
    notes += [f"{each.model}: {note}" for note in said] if first else []
    if not groups and first:
        notes.append(
            f"{each.model}: no two patient groups to compare, so words are not compared between groups. "
            "Add a column sex, age or race"
        )
    measured = score_reports(each)
    rows = similarity(each, measured, groups, settings)
    rows += diversity(each, study, settings, reference=first, may_show=may_show)
    counted = count_words(each)
    rows += omitted_mass_rows(counted, make)
    curves, words = list[Row](), list[pa.Table]()
    drawn: dict[str, tuple[Pair, WordBootstrap]] = {}
    pairs = [pair for group in groups for pair in pairs_of(group)]
    for pair, found in zip(pairs, _in_turn(counted, pairs, make), strict=True):
        rows += found.rows
        curves += found.curves
        words.append(found.words)
        if found.drawn is not None:
            drawn[f"{pair.first}|{pair.second}"] = (pair, found.drawn)
        if pair.by_sex:
            sets = word_sets(settings.weat_words)
            table = found.words
            holders = dict(zip(table["word"].to_pylist(), table["n_patients"].to_pylist(), strict=True))
            own = choose_own_words(found.found, holders, sets)
            if first:
                rows += association_test(each.reference, sets, own, pair, make, REFERENCE)
            rows += association_test(each.generated, sets, own, pair, make)
    notes += _warnings(each, who, first)
    return _One(AuditedDecoding(each, measured, study, drawn), rows, curves, words)


def _in_turn(counted: CountedCorpora, pairs: Sequence[Pair], make: RowMaker) -> Iterator[Associations]:
    """The associations of all pairs, a thread a core: counting is done outside of Python's lock."""
    with ThreadPoolExecutor(min(os.cpu_count() or 1, MOST_THREADS)) as threads:
        yield from threads.map(lambda pair: associations(counted, pair, make), pairs)


def _warnings(each: GeneratedReports, who: str, first: bool) -> list[str]:
    notes = []
    empty = sum(not text.strip() for text in each.generated)
    if empty:
        notes.append(f"{who}: {empty:,} of {len(each.generated):,} generated reports are empty; they score 0")
    if first and len(each.images) / each.n_patients > MANY_REPORTS_PER_PATIENT:
        notes.append(
            f"{each.model}: {len(each.images):,} reports of {each.n_patients:,} patients. Tests of words treat every "
            "token as independent, so words repeated in the reports of one patient may look like words of a group. "
            "Compare the counts with those expected by chance, which shuffle whole patients, and with the exact rule"
        )
    return notes


def _check_once(generations: pa.Table) -> None:
    """An image has one report by a model and strategy."""
    keys = ("dataset", "model", "strategy", "image_id")
    counts = generations.select(keys).group_by(list(keys), use_threads=False).aggregate([([], "count_all")])
    twice = int(np.sum(counts["count_all"].to_numpy() > 1))
    if twice:
        raise TableError(
            f"generations: {twice:,} images have several reports of one model and strategy",
            next_step="keep one row for each image, model and strategy",
        )
