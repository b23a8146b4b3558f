"""Written reports -> how near they are to their references: overall, by group, and gaps between groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cxrhf.audits.reports.words import STATISTICS
from cxrhf.audits.reports.written import (
    NAN,
    REFERENCE,
    Floats,
    GeneratedReports,
    Pair,
    ReportInterval,
    RowMaker,
    Vectors,
    WordSettings,
    pairs_of,
)
from cxrhf.audits.rows import Row, small_p_value
from cxrhf.audits.sample import Groups
from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.metrics.diversity import Compared, compare_diversity, semantic_spread
from cxrhf.metrics.draws import draw
from cxrhf.metrics.intervals import UnitCount, count_patients, difference_interval, interval, mean_replicates
from cxrhf.metrics.language import vocabulary_shift
from cxrhf.metrics.words import WordBootstrap

# Parts of a score whose groups are not compared: its F1 speaks for them.
PARTS = ("_precision", "_recall")
_UNIT = (0.0, 1.0)


class ReportScores(NamedTuple):
    """Values of each report by metric, and how each was made."""

    values: Mapping[str, Floats]
    methods: Mapping[str, str]
    corpus_bleu: float


def score_reports(written: GeneratedReports) -> ReportScores:
    """Token overlap, and what `cxrhf score` has said of these reports."""
    from cxrhf.metrics.language import overlap_scores

    found = overlap_scores(written.reference, written.generated)
    values = {"rouge1": found.rouge1, "rougeL": found.rougeL, "bleu": found.bleu}
    methods = dict.fromkeys(values, "mean over reports, lower-case alphabetic tokens")
    for name, (scores, encoder) in written.scores.items():
        values[name], methods[name] = scores, f"mean over reports, {encoder}"
    return ReportScores(values, methods, found.corpus_bleu)


def similarity(
    written: GeneratedReports, measured: ReportScores, groups: Sequence[Groups], settings: WordSettings
) -> list[Row]:
    """Means of all reports, of each group, and differences between groups."""
    make = RowMaker("reports", written, settings)
    draws = written.draws(settings)
    names = list(measured.values)
    pairs = [pair for each in groups for pair in pairs_of(each)]
    columns, keys = list[Floats](), list[tuple[str, str]]()
    for name in names:
        columns.append(measured.values[name])
        keys.append((name, "all"))
        for pair in () if name.partition(".")[0].endswith(PARTS) else pairs:
            for code, slice in ((0, pair.first), (1, pair.second)):
                if (name, slice) not in keys:
                    columns.append(np.where(pair.code == code, measured.values[name], np.nan))
                    keys.append((name, slice))
    matrix = np.stack(columns, axis=1)
    replicates = mean_replicates(matrix, draws)
    place = {key: at for at, key in enumerate(keys)}
    rows = []
    own = {"all", *(group for pair in pairs for group in pair.own)}
    for (name, slice), at in place.items():
        if slice not in own:
            continue
        rows.append(_mean(make, name, slice, matrix[:, at], replicates[:, at], count_patients(matrix[:, at], draws),
                          measured.methods[name]))  # fmt: skip
        if slice == "all" and name == "bleu":
            rows.append(make.row("corpus_bleu", measured.corpus_bleu, method="BLEU-4 of the corpus, no smoothing",
                                 higher=True))  # fmt: skip
    for pair in pairs:
        for name in names:
            if (name, pair.first) in place:
                ends = [place[name, pair.first], place[name, pair.second]]
                rows.append(_gap(make, name, pair, matrix[:, ends], replicates[:, ends],
                                 [count_patients(matrix[:, each], draws) for each in ends],
                                 measured.methods[name]))  # fmt: skip
    return rows


def _mean(
    make: RowMaker, name: str, slice: str, values: Floats, replicates: Floats, units: UnitCount, method: str
) -> Row:
    there = values[~np.isnan(values)]
    sizes: dict[str, Any] = {"n": len(there), "n_patients": units.total}
    if not len(there):
        return make.row(name, NAN, slice=slice, method=method, higher=True, note="undefined: no report has it", **sizes)
    inside = bool(there.min() >= 0 and there.max() <= 1)
    value = float(there.mean())
    found = interval(value, replicates, level=make.settings.level, units=units,
                     bounds=_UNIT if inside else (-np.inf, np.inf))  # fmt: skip
    lost = len(values) - len(there) if slice == "all" else 0
    note = f"{lost} reports have no value" if lost else None
    ends = ReportInterval(found.low, found.high, f"{found.method}, patients resampled")
    return make.row(name, value, ends=ends, slice=slice, method=method, higher=True, note=note, **sizes)


def _gap(
    make: RowMaker, name: str, pair: Pair, values: Floats, replicates: Floats, units: Sequence[UnitCount], method: str
) -> Row:
    if np.isnan(values).all(axis=0).any():
        return make.row(name, NAN, slice=pair.first, versus=pair.second, note="undefined: a group has no such value")
    value = float(np.nanmean(values[:, 0]) - np.nanmean(values[:, 1]))
    few = min(units, key=lambda each: each.effective_total)
    apart = replicates[:, 0] - replicates[:, 1]
    found = difference_interval(value, apart, level=make.settings.level, units=few, bounds=(-np.inf, np.inf))
    ends = ReportInterval(found.low, found.high, f"{found.method}, patients resampled")
    p_value = small_p_value(found, value, apart, few)
    return make.row(
        name, value, ends=ends, p_value=p_value, slice=pair.first, versus=pair.second, method=method,
        n=int((~np.isnan(values)).sum()), n_patients=sum(each.total for each in units),
    )  # fmt: skip


# Written reports -> how varied they are beside their references, and which words they keep, lose and bring in.

MEASURES = ("template_diversity", "type_token_ratio", "self_bleu_diversity")
SPLITS = 200  # how often patients are dealt into quarters: see cxrhf.metrics.diversity
SELF_BLEU = 2000  # texts; it rises with their number, so larger corpora are cut to the paper's size
_WORDS = "different words, without stop words"


def study(corpora: Mapping[str, Sequence[str]], patients: Any, settings: WordSettings) -> Compared:
    """How varied corpora of the same images are, and by how much they differ."""
    n = len(next(iter(corpora.values())))
    return compare_diversity(
        corpora,
        clusters=patients,
        n_resamples=SPLITS,
        sample=SELF_BLEU if n > SELF_BLEU else None,
        seed=settings.seed,
        level=settings.level,
    )


def compare_strategies(several: Sequence[GeneratedReports], settings: WordSettings) -> dict[str, Compared]:
    """Strategy -> the study it is part of. Strategies of the same images share one, where nothing is sampled.

    A sample of self-BLEU is of the texts with a word, so it may hold other images in each corpus.
    """
    together: dict[tuple[Any, ...], list[GeneratedReports]] = {}
    for each in several:
        alone = () if len(each.images) <= SELF_BLEU else (each.strategy,)
        together.setdefault((*alone, *each.images, *each.reference), []).append(each)
    out: dict[str, Compared] = {}
    for same in together.values():
        corpora = {REFERENCE: same[0].reference, **{each.strategy: each.generated for each in same}}
        out |= dict.fromkeys((each.strategy for each in same), study(corpora, same[0].patients, settings))
    return out


def diversity(
    written: GeneratedReports, together: Compared, settings: WordSettings, *, reference: bool, may_show: bool
) -> list[Row]:
    """Rows of one corpus; with `reference` also those of its references."""
    make = RowMaker("reports", written, settings)
    found = together.of(written.strategy)
    rows = measure_rows(make, found)
    rows += measure_rows(make, together.less(written.strategy, REFERENCE), versus=REFERENCE)
    rows += _semantic(make)
    rows += _size(make, found, written.generated, may_show)
    words = vocabulary_shift(written.reference, written.generated)
    rows.append(make.row("vocabulary", words.n_generated, method=_WORDS))
    for name in ("kept", "lost", "new"):
        rows.append(make.row(f"vocabulary_{name}", len(getattr(words, name)), method=_WORDS))
    for name in ("lost_mass", "new_mass"):
        rows.append(make.row(name, getattr(words, name), method="share of tokens, without stop words"))
    if reference:
        rows += measure_rows(make, together.of(REFERENCE), strategy=REFERENCE)
        rows += _size(make, together.of(REFERENCE), written.reference, may_show, strategy=REFERENCE)
        rows.append(make.row("vocabulary", words.n_reference, strategy=REFERENCE, method=_WORDS))
        rows += _semantic_reference(make)
    return rows


def measure_rows(make: RowMaker, found: Mapping[str, Any], **where: Any) -> list[Row]:
    """The measures of one corpus, or of one less another, as a study gives them."""
    return [
        make.row(name, found[name], ends=_measure_interval(found, name), note=found.get(f"{name}_note"), **where)
        for name in MEASURES
    ]


def _measure_interval(found: Mapping[str, Any], name: str) -> ReportInterval | None:
    """The interval of a measure; None where it could not be made."""
    if found.get(f"{name}_ci_low") is None:
        return None
    return ReportInterval(found[f"{name}_ci_low"], found[f"{name}_ci_high"], str(found[f"{name}_ci_method"]))


def _size(make: RowMaker, found: dict[str, Any], texts: list[str], may_show: bool, **where: Any) -> list[Row]:
    counts = Counter(" ".join(text.split()) for text in texts)
    # Of equally frequent ones the first by alphabet, so that no file order can matter.
    top, times = min(counts.items(), key=lambda each: (-each[1], each[0]))
    words = found["n_tokens"] / found["n_texts"] if found["n_texts"] else NAN
    return [
        make.row("n_templates", len(counts), method="different reports", **where),
        make.row("top_template", times / len(texts), method="share of the most frequent report", **where,
                 note=top if may_show and times > 1 else None),
        make.row("n_empty", found["n_empty"], method="reports without a word", **where),
        make.row("words_per_report", words, method="mean number of tokens", **where),
    ]  # fmt: skip


def _semantic(make: RowMaker) -> list[Row]:
    rows = []
    beside = {each.encoder: each for each in make.of.reference_vectors}
    for vectors in make.of.vectors:
        own = _spread(make, vectors)
        rows.append(own)
        if vectors.encoder in beside:
            other = _spread(make, beside[vectors.encoder])
            rows.append(make.row(own["metric"], own["value"] - other["value"], versus=REFERENCE,
                                 method=f"1 - mean cosine of pairs of reports, {vectors.encoder}",
                                 note=own["note"] or other["note"]))  # fmt: skip
    return rows


def _semantic_reference(make: RowMaker) -> list[Row]:
    return [_spread(make, each, strategy=REFERENCE) for each in make.of.reference_vectors]


def _spread(make: RowMaker, vectors: Vectors, **where: Any) -> Row:
    found = semantic_spread(vectors.matrix, make.of.patients[vectors.at], level=make.settings.level)
    ends = None if np.isnan(found.low) else ReportInterval(found.low, found.high, "jackknife over patients")
    several = len({each.encoder for each in (*make.of.vectors, *make.of.reference_vectors)}) > 1
    name = f"semantic_diversity.{vectors.encoder}" if several else "semantic_diversity"
    return make.row(
        name, found.value, ends=ends, n=len(vectors.at), n_patients=found.n_patients,
        method=f"1 - mean cosine of pairs of reports, {vectors.encoder}",
        note=None if not np.isnan(found.value) else "undefined: fewer than two reports have an embedding", **where,
    )  # fmt: skip


# Written reports of one model by several strategies -> each strategy less the baseline, on the same images.

USUAL_BASELINE = "greedy"
_UNDEFINED = "undefined: no value for both strategies"


class AuditedDecoding(NamedTuple):
    """One strategy of a model: its reports, their scores, how varied they are, and the bootstrap of pairs of groups."""

    written: GeneratedReports
    measured: ReportScores
    study: Compared
    drawn: Mapping[str, tuple[Pair, WordBootstrap]]


def check_baseline(wanted: str | None, strategies: Sequence[str]) -> None:
    """Refuse a baseline that no model has, before minutes are spent."""
    if wanted is not None and wanted not in strategies:
        raise ConfigError("baseline_strategy: no such strategy", got=wanted, allowed=", ".join(strategies),
                          next_step=did_you_mean(wanted, strategies))  # fmt: skip


def decoding(several: Sequence[AuditedDecoding], settings: WordSettings, notes: list[str]) -> list[Row]:
    """Differences of all strategies to the baseline."""
    names = [each.written.strategy for each in several]
    first = next((names.index(name) for name in (settings.baseline_strategy, USUAL_BASELINE) if name in names), 0)
    base = several[first]
    return [
        row
        for at, each in enumerate(several)
        if at != first
        for row in _compare_with_baseline(each, base, settings, notes)
    ]


def _compare_with_baseline(
    one: AuditedDecoding, base: AuditedDecoding, settings: WordSettings, notes: list[str]
) -> list[Row]:
    mine, theirs = _common(one.written, base.written)
    who, versus = f"{one.written.model}: {one.written.strategy}", f"strategy={base.written.strategy}"
    if not len(mine):
        notes.append(f"{who} is not compared with {base.written.strategy}: no image in common")
        return []
    if len(mine) < max(len(one.written.images), len(base.written.images)):
        notes.append(f"{who} is compared with {base.written.strategy} on the {len(mine):,} images they share")
    make = RowMaker("decoding", one.written, settings)
    n_patients = len(set(one.written.patients[mine].tolist()))
    here: dict[str, Any] = {"versus": versus, "n": len(mine), "n_patients": n_patients}
    rows = _means(one, base, mine, theirs, make, here)
    rows += _diversity_difference_rows(one, base, mine, theirs, make, here)
    same = len(mine) == len(one.written.images) == len(base.written.images)
    return rows + (_wae_difference_rows(one, base, make, here) if same else [])


def _common(one: GeneratedReports, base: GeneratedReports) -> tuple[np.ndarray, np.ndarray]:
    place = {image: at for at, image in enumerate(base.images)}
    both = [(at, place[image]) for at, image in enumerate(one.images) if image in place]
    mine, theirs = zip(*both, strict=True) if both else ((), ())
    return np.array(mine, dtype=np.intp), np.array(theirs, dtype=np.intp)


def _means(
    one: AuditedDecoding,
    base: AuditedDecoding,
    mine: np.ndarray,
    theirs: np.ndarray,
    make: RowMaker,
    here: Mapping[str, Any],
) -> list[Row]:
    names = [name for name in one.measured.values if name in base.measured.values]
    changes = np.stack([one.measured.values[name][mine] - base.measured.values[name][theirs] for name in names], axis=1)
    owners = [one.written.patient_ids[at] for at in mine]
    draws = draw(owners, n_resamples=make.settings.n_resamples, seed=make.settings.seed)
    replicates = mean_replicates(changes, draws)
    rows = []
    for at, name in enumerate(names):
        change = changes[:, at]
        if np.isnan(change).all():
            rows.append(make.row(name, NAN, method=one.measured.methods[name], note=_UNDEFINED, **here))
            continue
        value = float(np.nanmean(change))
        units = count_patients(change, draws)
        found = difference_interval(value, replicates[:, at], level=make.settings.level, units=units,
                                    bounds=(-np.inf, np.inf))  # fmt: skip
        ends = ReportInterval(found.low, found.high, f"{found.method}, patients resampled, paired")
        p_value = small_p_value(found, value, replicates[:, at], units)
        rows.append(make.row(name, value, ends=ends, p_value=p_value, method=one.measured.methods[name], **here))
    return rows


def _diversity_difference_rows(
    one: AuditedDecoding,
    base: AuditedDecoding,
    mine: np.ndarray,
    theirs: np.ndarray,
    make: RowMaker,
    here: Mapping[str, Any],
) -> list[Row]:
    name, other = one.written.strategy, base.written.strategy
    together = one.study
    if together is not base.study:
        corpora = {
            name: [one.written.generated[at] for at in mine],
            other: [base.written.generated[at] for at in theirs],
        }
        together = study(corpora, one.written.patients[mine], make.settings)
    return measure_rows(make, together.less(name, other), **here)


def _wae_difference_rows(
    one: AuditedDecoding, base: AuditedDecoding, make: RowMaker, here: Mapping[str, Any]
) -> list[Row]:
    """WAE and its companions: the same patients were drawn for both strategies, so replicates are paired."""
    rows = []
    for name, (pair, drawn) in one.drawn.items():
        if name not in base.drawn or not pair.by_sex:
            continue
        other = base.drawn[name][1]
        for statistic in STATISTICS:
            value = drawn.observed[statistic] - other.observed[statistic]
            apart: Floats = drawn.replicates[statistic] - other.replicates[statistic]
            apart = apart[~np.isnan(apart)]
            if np.isnan(value) or not len(apart):
                rows.append(make.row(statistic, NAN, slice=pair.first, note=_UNDEFINED, **here))
                continue
            # Replicates lie above what is observed (each adds noise): they are moved back, as in the interval of one.
            apart = apart - apart.mean() + value
            tail = (1 - make.settings.level) / 2
            low, high = np.quantile(apart, [tail, 1 - tail])
            ends = ReportInterval(float(low), float(high), "centred percentile, patients resampled, paired")
            beyond = min(int((apart <= 0).sum()), int((apart >= 0).sum()))
            p_value = min(1.0, 2 * (beyond + 1) / (len(apart) + 1))
            rows.append(make.row(statistic, value, ends=ends, p_value=p_value, slice=pair.first, **here))
    return rows
