"""Written reports and two groups -> WEAT: do words of normal and abnormal findings lie nearer to one group's words?

A baseline that the paper reports beside its own measures. Targets are words of normal and of abnormal findings,
attributes the references' own words of either group (the eight with the largest |z_ref| and at least five patients), or
whatever the user names. Vectors come from the corpus itself: which words stand together in a report. The paper names
neither its word sets nor its vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.reports.pairs import Pair
from cxrhf.audits.reports.report_rows import NAN, RowMaker
from cxrhf.audits.rows import Row
from cxrhf.config import read_yaml
from cxrhf.errors import ConfigError
from cxrhf.metrics.displacement import Displacement
from cxrhf.metrics.word_embedding import weat
from cxrhf.metrics.word_vectors import DIM, cooccurrence_vectors

NORMAL = ("normal", "clear", "unremarkable", "intact", "stable", "unchanged", "limits", "negative")
ABNORMAL = ("effusion", "opacity", "consolidation", "atelectasis", "edema", "pneumonia", "cardiomegaly", "enlarged")
OWN, LEAST_PATIENTS, LEAST_WORDS = 8, 5, 2
_SETS = ("targets_first", "targets_second", "attributes_first", "attributes_second")


class WordSets(NamedTuple):
    """Two sets of targets and two of attributes; empty attributes: the references' own words."""

    targets_first: tuple[str, ...] = NORMAL
    targets_second: tuple[str, ...] = ABNORMAL
    attributes_first: tuple[str, ...] = ()
    attributes_second: tuple[str, ...] = ()


def word_sets(path: str | None) -> WordSets:
    """Those of a YAML file, or ours."""
    if path is None:
        return WordSets()
    given = read_yaml(Path(path))
    good = isinstance(given, dict) and set(given) <= set(_SETS)
    if not good or not all(isinstance(each, list) and all(isinstance(w, str) for w in each) for each in given.values()):
        raise ConfigError(f"weat_words: {path} has no word sets", allowed=f"lists of words under {', '.join(_SETS)}")
    return WordSets(**{name: tuple(word.lower() for word in words) for name, words in given.items()})


def own_words(
    found: Displacement, holders: Mapping[str, int], sets: WordSets
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words that go most with each group in the references and are no targets."""
    targets = {*sets.targets_first, *sets.targets_second}
    order = np.argsort(-np.abs(found.z_ref), kind="stable")
    usable = [
        i
        for i in order
        if found.reference[:, i].sum() >= found.min_count
        and holders.get(found.words[i], 0) >= LEAST_PATIENTS
        and found.words[i] not in targets
    ]
    first = tuple(found.words[i] for i in usable if found.z_ref[i] > found.z_neutral)[:OWN]
    second = tuple(found.words[i] for i in usable if found.z_ref[i] < -found.z_neutral)[:OWN]
    return first, second


def association_test(
    texts: Sequence[str], sets: WordSets, own: tuple[tuple[str, ...], tuple[str, ...]], pair: Pair, make: RowMaker,
    strategy: str | None = None,
) -> list[Row]:  # fmt: skip
    """The rows weat and weat_effect_size of one corpus."""
    wanted = sets._replace(attributes_first=sets.attributes_first or own[0],
                           attributes_second=sets.attributes_second or own[1])  # fmt: skip
    words, vectors = cooccurrence_vectors(texts, seed=make.settings.seed)
    place = {word: at for at, word in enumerate(words)}
    used = {name: [word for word in dict.fromkeys(each) if word in place] for name, each in wanted._asdict().items()}
    where: dict[str, Any] = {"slice": pair.first, "versus": pair.second, "strategy": strategy}
    method = f"WEAT; word embeddings: words that occur together in these reports (PPMI, {DIM} dimensions)"
    lacking = [name for name in _SETS if len(used[name]) < LEAST_WORDS]
    if lacking:
        why = f"undefined: fewer than {LEAST_WORDS} words of {' and '.join(lacking)} occur in five of these reports"
        return [make.row(name, NAN, method=method, note=why, **where) for name in ("weat", "weat_effect_size")]
    sides: list[NDArray[np.float64]] = [vectors[[place[word] for word in used[name]]] for name in _SETS]
    found = weat(sides[0], sides[1], sides[2], sides[3], seed=make.settings.seed)
    note = "; ".join(f"{name.replace('_', ' ')}: {', '.join(used[name])}" for name in _SETS)
    # Its p is about the choice of target words, not about patients: it takes no part in this page's corrections.
    note += f"; one-sided p {found.p_value:.3g} by permuting the targets"
    values = {"weat": found.statistic, "weat_effect_size": found.effect_size}
    return [make.row(name, value, method=method, note=note, **where) for name, value in values.items()]
