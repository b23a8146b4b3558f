"""Counted corpora -> how many words each rule puts into each category when groups mean nothing.

Group labels are permuted across patients, so that what is left is chance: of the vocabulary's size, of words repeated
within a patient's reports (which the tests of words take for independent), and of the rule. The pooled counts of a word
stay as they are, so a word that the model leaves out is left out here too; but no word goes with a group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import ndtr

from cxrhf.metrics.checks import InputError, one_of
from cxrhf.metrics.displacement import Displacement, Floats, exact_p
from cxrhf.metrics.words_category import (
    DEFAULT_CATEGORIES,
    PAPER_CATEGORIES,
    WordScores,
    counted,
    default_categories,
    paper_categories,
)
from cxrhf.metrics.words_corpora import Corpora
from cxrhf.metrics.words_patients import PatientCounts, weighted_counts


@dataclass(frozen=True, slots=True)
class Chance:
    """Counts of words in each permutation: rule (the one asked for, "paper") -> category -> one count each."""

    counts: dict[str, dict[str, NDArray[np.int64]]]

    def p_value(self, rule: str, category: str, observed: int) -> float:
        """P(as many words or more by chance) = (1 + #) / (1 + permutations)."""
        drawn = self.counts[rule][category]
        return float((1 + (drawn >= observed).sum()) / (1 + len(drawn)))


def category_chance(
    texts: Corpora, found: Displacement, *, rule: str = "either", n_resamples: int = 200, seed: int = 0
) -> Chance:
    """Categories of the corpora that gave `found`, with its settings, over permutations of the groups.

    By `rule` (either, score, exact) and by the published one. Each patient must have one group.
    """
    one_of(rule, "rule", ("either", "score", "exact"))
    two = PatientCounts(texts, found.alpha, n_resamples, None)
    if (two.membership == 3).any():
        raise InputError("groups: a permutation test requires one group per patient, got a patient in both")
    if list(two.vocabulary) != list(found.words):
        raise InputError(f"found: expected the {two.n_words} words of the corpora, got {len(found.words)} words")
    is_first = two.membership == 1
    blank = np.full(two.n_words, np.nan)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    sides = [two.reference[0] + two.reference[1], two.prediction[0] + two.prediction[1]]
    totals = [weighted_counts(side, np.ones((1, two.n_patients))) for side in sides]

    def drawn(size: int) -> NDArray[np.float64]:
        return rng.permuted(np.tile(is_first, (size, 1)), axis=1).astype(np.float64)

    lists: dict[str, list[dict[str, int]]] = {rule: [], "paper": []}
    holders = sp.csr_array((sides[0] > 0).astype(np.float64))  # words x patients with the word in a reference
    everybody = np.asarray(holders.sum(axis=1), dtype=np.float64).ravel()
    for labels in two.batches(drawn):
        having = weighted_counts(holders, labels)
        firsts = [weighted_counts(side, labels) for side in sides]
        ref, pred, _ = two.scores(firsts[0], totals[0] - firsts[0], firsts[1], totals[1] - firsts[1])
        z_disp = (pred.s - ref.s) / np.sqrt(pred.variance + ref.variance)
        p_reference, p_displacement = 2 * ndtr(-np.abs(ref.z)), 2 * ndtr(-np.abs(z_disp))
        for row in range(len(labels)):
            words = WordScores(
                s_ref=ref.s[row],
                s_pred=pred.s[row],
                z_ref=ref.z[row],
                z_pred=pred.z[row],
                p_reference=p_reference[row],
                p_exact=blank if rule == "score" else _exact(having[row], everybody, firsts[0][row], totals[0][0]),
                p_displacement=p_displacement[row],
                p_omission=found.p_omission,
                rate_ratio=found.rate_ratio,
                n_reference=found.reference.sum(axis=0),
                n_prediction=found.prediction.sum(axis=0),
                p_star=found.p_star,
                z_neutral=found.z_neutral,
                z_strong=found.z_strong,
                min_count=found.min_count,
            )
            lists[rule].append(counted(default_categories(words, gate=rule).category, DEFAULT_CATEGORIES))
            lists["paper"].append(counted(paper_categories(words).category, PAPER_CATEGORIES))
    return Chance(
        {
            rule: {name: np.array([each[name] for each in rows], dtype=np.int64) for name in rows[0]}
            for rule, rows in lists.items()
        }
    )


def _exact(having: Floats, everybody: Floats, first: Floats, tokens: Floats) -> Floats:
    """p values of the exact test: patients of the first group with each word, of all, and tokens likewise."""
    units = np.stack([having, everybody - having]).astype(np.int64)
    return exact_p(units, np.stack([first, tokens - first]).astype(np.int64))
