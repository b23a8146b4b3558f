"""Several corpora of the same images -> diversity of each, and differences of any two, from one deal of patients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cxrhf.metrics.checks import InputError, as_texts, same_length
from cxrhf.metrics.diversity import Diversity, less, study_diversity


class Compared:
    """Corpora by name, studied together: what `measure_diversity_pair` gives of two, at the cost of one each."""

    def __init__(self, found: Mapping[str, Diversity]) -> None:
        self._found = found

    def of(self, name: str) -> dict[str, Any]:
        """Diversity of one corpus, as `measure_diversity` gives it."""
        return self._found[name].flat()

    def less(self, name: str, other: str) -> dict[str, Any]:
        """One corpus less another, with paired intervals."""
        return less(self._found[name], self._found[other], (name, other)).flat()


def compare_diversity(
    corpora: Mapping[str, Iterable[str]],
    *,
    clusters: ArrayLike | None = None,
    n_resamples: int = 0,
    sample: int | None = None,
    seed: int = 0,
    level: float = 0.95,
) -> Compared:
    """Diversity of corpora whose rows belong to the same images; options as in `measure_diversity_pair`.

    >>> both = compare_diversity({"greedy": ["Clear."] * 3, "rich": ["Clear.", "Large heart.", "Effusion."]})
    >>> round(both.less("greedy", "rich")["template_diversity"], 3)
    -0.667
    """
    if not corpora:
        raise InputError("corpora: expected at least one corpus by name, got none")
    texts = {name: as_texts(each, name) for name, each in corpora.items()}
    same_length(**{name: np.empty(len(each)) for name, each in texts.items()})
    return Compared(
        dict(zip(texts, study_diversity(list(texts.values()), clusters, n_resamples, sample, seed, level), strict=True))
    )
