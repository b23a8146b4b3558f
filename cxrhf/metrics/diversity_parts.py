"""Reports and their patients -> measures of diversity in quarters and halves of the patients, dealt many times.

A part's value is the plain measure (`language.lexical_diversity`) of the texts of its patients. Tables of which text
has what are made once; after that a split is a few sparse products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cxrhf.metrics.checks import Floats
from cxrhf.metrics.language import drawn_texts, template_of, token_ids
from cxrhf.metrics.ngrams import ORDERS, SMOOTHING, numbered_ngrams

MEASURES = ("template_diversity", "type_token_ratio", "self_bleu")
# Quarters of fewer than three patients say nothing about the spread; coverage was measured from here on.
FEW_PATIENTS = 12
# Things times splits that are counted at once: bounds the memory.
_BATCH = 2**20


@dataclass(frozen=True, slots=True)
class TextTables:
    """Which text has what, in tables of ones (texts x things), made once; `used` are the texts of self-BLEU.

    `grams` (one table an order) hold an n-gram that a text has c times as c things, "once", ..., "c times". BLEU's
    clipped count is then the number of things that another text has too.
    """

    sizes: sp.csr_array
    templates: sp.csr_array
    words: sp.csr_array
    used: NDArray[np.int64]
    sampled: bool
    length: NDArray[np.int64]
    grams: tuple[sp.csr_array, ...]


def text_tables(texts: list[str], sample: int | None, seed: int) -> TextTables:
    rows, tokens, found = token_ids(texts)
    length = np.diff(rows)
    document = np.repeat(np.arange(len(texts)), length)
    number: dict[str, int] = {}
    template = np.array([number.setdefault(template_of(text), len(number)) for text in texts], dtype=np.int64)
    pair = np.unique(document * len(found) + tokens)
    worded = np.flatnonzero(length)
    used = worded[drawn_texts(len(worded), sample, seed)]  # the very texts that `language.self_bleu` draws
    kept = np.isin(document, used)
    return TextTables(
        sp.csr_array(np.stack([np.ones(len(texts)), length], axis=1)),
        _ones(np.arange(len(texts)), template, len(texts)),
        _ones(pair // max(len(found), 1), pair % max(len(found), 1), len(texts)),
        used,
        len(used) < len(worded),
        length[used],
        tuple(_grams(length[used], tokens[kept])),
    )


def _ones(row: NDArray[Any], thing: NDArray[Any], n_rows: int) -> sp.csr_array:
    kinds, column = np.unique(thing, return_inverse=True)
    return sp.csr_array((np.ones(len(row), dtype=np.float32), (row, column)), shape=(n_rows, len(kinds)))


def _grams(length: NDArray[np.int64], tokens: NDArray[np.int64]) -> list[sp.csr_array]:
    document = np.repeat(np.arange(len(length)), length)
    rows = np.concatenate([[0], np.cumsum(length)])
    tables = []
    for _, start, gram in numbered_ngrams(rows, tokens, ORDERS):
        size = int(gram.max(initial=0)) + 1
        pair, times = np.unique(document[start] * size + gram, return_counts=True)
        level = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        row, thing = np.repeat(pair // size, times), np.repeat(pair % size, times) + level * size
        _, which, holders = np.unique(thing, return_inverse=True, return_counts=True)
        several = holders[which] > 1  # what only one text of the whole corpus has is matched in no part of it
        tables.append(_ones(row[several], thing[several], len(length)))
    return tables


def dealt_quarters(n_patients: int, n_resamples: int, seed: int) -> NDArray[np.int8]:
    """The quarter (0 to 3) of each patient in each split, shape (splits, patients).

    Quarters are equal in size, so that only chance sets them apart; up to three patients sit out with -1.
    """
    quarter = np.full(n_patients, -1, dtype=np.int8)
    quarter[: n_patients // 4 * 4] = np.arange(n_patients // 4 * 4) % 4
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    return rng.permuted(np.tile(quarter, (n_resamples, 1)), axis=1)


def measured_parts(
    corpora: list[TextTables], unit: NDArray[np.int64], n_resamples: int, seed: int
) -> tuple[list[Floats], tuple[int, int, int]]:
    """Each corpus' measures in its quarters and halves, (measures, 6, splits), and the patients behind each measure."""
    everybody = np.arange(int(unit.max(initial=-1)) + 1)
    # Patients without a text in the sample would leave the parts of the sample unequal: they are not dealt.
    sampled = any(each.sampled for each in corpora)
    some = np.unique(np.concatenate([unit[each.used] for each in corpora])) if sampled else everybody
    n_patients = (len(everybody), len(everybody), len(some))
    deals = dealt_quarters(len(everybody), n_resamples, seed), dealt_quarters(len(some), n_resamples, seed)
    found = []
    for each in corpora:
        values = np.full((len(MEASURES), 6, n_resamples), np.nan)
        place = np.searchsorted(some, unit[each.used])
        step = max(1, _BATCH // max(len(unit), 1, *(table.shape[1] for table in each.grams)))
        for first in range(0, n_resamples, step):
            now = slice(first, first + step)
            if len(everybody) >= FEW_PATIENTS:
                values[:2, :, now] = _shares(each, np.ascontiguousarray(deals[0][now, unit].T))
            if len(some) >= FEW_PATIENTS:
                values[2, :, now] = _bleu(each, np.ascontiguousarray(deals[1][now, place].T))
        found.append(values)
    return found, n_patients


def _six(quarters: NDArray[Any]) -> NDArray[Any]:
    """The four quarters (axis 1), and behind them the sums for the two halves."""
    halves = quarters[:, 0] + quarters[:, 1], quarters[:, 2] + quarters[:, 3]
    return np.concatenate([quarters, halves[0][:, None], halves[1][:, None]], axis=1)


def _holders(things: sp.csr_array, quarter: NDArray[np.int8]) -> NDArray[Any]:
    """How many texts of each part have each thing, (things, 6, splits), for the `quarter` of each text and split."""
    inside = (quarter[:, None] == np.arange(4)[:, None]).astype(things.dtype)
    quarters = things.T @ inside.reshape(len(inside), 4 * quarter.shape[1])
    return _six(quarters.reshape(things.shape[1], 4, quarter.shape[1]))


def _shares(corpus: TextTables, quarter: NDArray[np.int8]) -> Floats:
    """Template diversity and type-token ratio of every part, (2, 6, splits)."""
    different = [(_holders(each, quarter) > 0).sum(axis=0) for each in (corpus.templates, corpus.words)]
    with np.errstate(invalid="ignore"):
        return np.asarray(np.stack(different) / _holders(corpus.sizes, quarter))


def _bleu(corpus: TextTables, quarter: NDArray[np.int8]) -> Floats:
    """Self-BLEU of every part, (6, splits)."""
    length, n_splits = corpus.length, quarter.shape[1]
    own = np.stack([quarter, 4 + quarter // 2], axis=1).astype(np.int64)  # quarter and half that a text is in
    score = np.zeros(own.shape)
    common = np.ones(own.shape, dtype=bool)
    for n, things in enumerate(corpus.grams, start=1):
        shared = (_holders(things, quarter) > 1).astype(np.float32)
        matches = (things @ shared.reshape(len(shared), 6 * n_splits)).reshape(len(length), 6, n_splits)
        matches = np.take_along_axis(matches, own, axis=1).astype(np.float64)
        if n == 1:
            common = matches > 0
        here = length >= n
        score[here] += np.log(np.where(matches > 0, matches, SMOOTHING)[here] / (length[here] - n + 1)[:, None, None])
    score /= np.minimum(length, ORDERS)[:, None, None]
    score += np.take_along_axis(_brevity(length, quarter), own, axis=1)
    score = np.where(common, np.exp(score), 0.0)
    inside = quarter[:, None] == np.arange(4)[:, None]
    texts = _six(inside.sum(axis=0, dtype=np.float64)[None])[0]
    halves = [((quarter // 2 == half) * score[:, 1]).sum(axis=0) for half in (0, 1)]
    sums = np.concatenate([(inside * score[:, :1]).sum(axis=0), halves])
    return np.where(texts > 1, sums / np.maximum(texts, 1), np.nan)


def _brevity(length: NDArray[np.int64], quarter: NDArray[np.int8]) -> Floats:
    """Logarithm of the brevity penalty that each text would have in each part, (texts, 6, splits)."""
    sizes, which = np.unique(length, return_inverse=True)
    times = _holders(_ones(np.arange(len(length)), which, len(length)), quarter)
    size = sizes[:, None, None].astype(np.float64)
    beyond = np.full((1, *times.shape[1:]), np.inf)
    below = np.maximum.accumulate(np.concatenate([-beyond, np.where(times > 0, size, -np.inf)[:-1]]))
    above = np.minimum.accumulate(np.concatenate([np.where(times > 0, size, np.inf)[1:], beyond])[::-1])[::-1]
    closest = np.where(times > 1, size, np.where(size - below <= above - size, below, above))
    return np.minimum(0.0, 1.0 - closest / size)[which]


def patients_alone(things: sp.csr_array, unit: NDArray[np.int64]) -> int:
    """Patients who have something that nobody else has."""
    table = things.tocoo()
    n_patients = int(unit.max(initial=-1)) + 1
    pair = np.unique(table.col.astype(np.int64) * n_patients + unit[table.row])
    thing, patient = pair // max(n_patients, 1), pair % max(n_patients, 1)
    return len(np.unique(patient[np.bincount(thing)[thing] == 1]))
