"""Written reports -> how varied they are beside their references, and which words they keep, lose and bring in."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from cxrhf.audits.reports.report_rows import NAN, Ends, RowMaker
from cxrhf.audits.reports.written import REFERENCE, Vectors, WordSettings, Written
from cxrhf.audits.rows import Row
from cxrhf.metrics.diversity_compared import Compared
from cxrhf.metrics.language import vocabulary_shift
from cxrhf.metrics.semantic import semantic_spread

MEASURES = ("template_diversity", "type_token_ratio", "self_bleu_diversity")


def diversity(
    written: Written, study: Compared, settings: WordSettings, *, reference: bool, may_show: bool
) -> list[Row]:
    """Rows of one corpus; with `reference` also those of its references."""
    make = RowMaker("reports", written, settings)
    found = study.of(written.strategy)
    rows = _measures(make, found)
    rows += _measures(make, study.less(written.strategy, REFERENCE), versus=REFERENCE)
    rows += _semantic(make)
    rows += _size(make, found, written.generated, may_show)
    words = vocabulary_shift(written.reference, written.generated)
    rows.append(make.row("vocabulary", words.n_generated, method=_WORDS))
    for name in ("kept", "lost", "new"):
        rows.append(make.row(f"vocabulary_{name}", len(getattr(words, name)), method=_WORDS))
    for name in ("lost_mass", "new_mass"):
        rows.append(make.row(name, getattr(words, name), method="share of tokens, stop words left out"))
    if reference:
        rows += _measures(make, study.of(REFERENCE), strategy=REFERENCE)
        rows += _size(make, study.of(REFERENCE), written.reference, may_show, strategy=REFERENCE)
        rows.append(make.row("vocabulary", words.n_reference, strategy=REFERENCE, method=_WORDS))
        rows += _semantic_reference(make)
    return rows


_WORDS = "different words, stop words left out"


def _measures(make: RowMaker, found: dict[str, Any], **where: Any) -> list[Row]:
    return [
        make.row(name, found[name], ends=ends_of(found, name), note=found.get(f"{name}_note"), **where)
        for name in MEASURES
    ]


def ends_of(found: dict[str, Any], name: str) -> Ends | None:
    """The interval of a measure as `cxrhf.metrics.diversity` gives it; None where it could not be made."""
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
                                 method=f"1 - mean cosine of pairs of reports, {vectors.encoder}"))  # fmt: skip
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
        note=None if not np.isnan(found.value) else "undefined: fewer than two reports have a vector", **where,
    )  # fmt: skip
