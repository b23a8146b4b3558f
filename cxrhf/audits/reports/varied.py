"""Written reports of one model -> how varied each strategy and the references are, studied together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrhf.audits.reports.written import REFERENCE, WordSettings, Written
from cxrhf.metrics.diversity_compared import Compared, compare_diversity

SPLITS = 200  # how often patients are dealt into quarters: see cxrhf.metrics.diversity
SELF_BLEU = 2000  # texts; it rises with their number, so larger corpora are cut to the paper's size
Varied = Mapping[str, Compared]


def compared(corpora: Mapping[str, Sequence[str]], clusters: Any, settings: WordSettings) -> Compared:
    """Corpora of the same images."""
    n = len(next(iter(corpora.values())))
    return compare_diversity(
        corpora,
        clusters=clusters,
        n_resamples=SPLITS,
        sample=SELF_BLEU if n > SELF_BLEU else None,
        seed=settings.seed,
        level=settings.level,
    )


def varied(several: Sequence[Written], settings: WordSettings) -> Varied:
    """By strategy: what it was studied with. Strategies of the same images share one study, where nothing is sampled.

    A sample of self-BLEU is of the texts with a word, so it may hold other images in each corpus.
    """
    together: dict[tuple[Any, ...], list[Written]] = {}
    for each in several:
        alone = () if len(each.images) <= SELF_BLEU else (each.strategy,)
        together.setdefault((*alone, *each.images, *each.reference), []).append(each)
    out: dict[str, Compared] = {}
    for same in together.values():
        corpora = {REFERENCE: same[0].reference, **{each.strategy: each.generated for each in same}}
        study = compared(corpora, same[0].patients, settings)
        out.update(dict.fromkeys((each.strategy for each in same), study))
    return out
