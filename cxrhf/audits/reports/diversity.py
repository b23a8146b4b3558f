"""Written reports -> how varied they are beside their references, and which words they keep, lose and bring in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cxrhf.audits.reports.report_rows import NAN, Ends, RowMaker
from cxrhf.audits.reports.written import REFERENCE, Vectors, WordSettings, Written
from cxrhf.audits.rows import Row
from cxrhf.metrics.diversity_compared import Compared, compare_diversity
from cxrhf.metrics.language import vocabulary_shift
from cxrhf.metrics.semantic import semantic_spread

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


def studies(several: Sequence[Written], settings: WordSettings) -> dict[str, Compared]:
    """Strategy -> the study it is part of. Strategies of the same images share one, where nothing is sampled.

    A sample of self-BLEU is of the texts with a word, so it may hold other images in each corpus.
    """
    together: dict[tuple[Any, ...], list[Written]] = {}
    for each in several:
        alone = () if len(each.images) <= SELF_BLEU else (each.strategy,)
        together.setdefault((*alone, *each.images, *each.reference), []).append(each)
    out: dict[str, Compared] = {}
    for same in together.values():
        corpora = {REFERENCE: same[0].reference, **{each.strategy: each.generated for each in same}}
        out |= dict.fromkeys((each.strategy for each in same), study(corpora, same[0].patients, settings))
    return out


def diversity(
    written: Written, together: Compared, settings: WordSettings, *, reference: bool, may_show: bool
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
        make.row(name, found[name], ends=_ends_of(found, name), note=found.get(f"{name}_note"), **where)
        for name in MEASURES
    ]


def _ends_of(found: Mapping[str, Any], name: str) -> Ends | None:
    """The interval of a measure; None where it could not be made."""
    if found.get(f"{name}_ci_low") is None:
        return None
    return Ends(found[f"{name}_ci_low"], found[f"{name}_ci_high"], str(found[f"{name}_ci_method"]))


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
    ends = None if np.isnan(found.low) else Ends(found.low, found.high, "jackknife over patients")
    several = len({each.encoder for each in (*make.of.vectors, *make.of.reference_vectors)}) > 1
    name = f"semantic_diversity.{vectors.encoder}" if several else "semantic_diversity"
    return make.row(
        name, found.value, ends=ends, n=len(vectors.at), n_patients=found.n_patients,
        method=f"1 - mean cosine of pairs of reports, {vectors.encoder}",
        note=None if not np.isnan(found.value) else "undefined: fewer than two reports have an embedding", **where,
    )  # fmt: skip
