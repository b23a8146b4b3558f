"""Counted words of notes -> the words that models of a build know, and the features of each set of prior notes.

Every note is counted once over all its words (words.count_all). Which words make up the vocabulary, and how much each
weighs, is decided by the prior notes of learning images alone and without any label; then one matrix serves all sets.

default: words of at least 5 patients, of these the 8,192 commonest in the learning notes, each note counting once.
Features: log(1 + count), times 1 + log(patients / patients whose notes hold the word), rows of length 1.
paper: scikit-learn's CountVectorizer(max_features=8192, max_df=.9, min_df=5, stop_words="english"). A document is a
learning image: its prior notes joined, so a note counts once for every image it is prior to. Features: plain counts.
Words, counts and the order of columns are the same, but for ties at the edge of max_features: scikit-learn keeps what
numpy's unstable sort leaves, which differs between processors; here the alphabet decides.

Known gap: min_df of the paper counts images, so a word of one patient with five images gets in. explain.py shows such
words to nobody, but a saved `paper` vocabulary holds them, so it is as confidential as the notes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from cxrhf.config_context import RECIPES
from cxrhf.context.material import Material
from cxrhf.context.words import (
    MAX_WORDS,
    MIN_PATIENTS,
    Counted,
    Progress,
    Style,
    commonest,
    count_all,
    rarity,
    stacked,
    sums,
    weighed,
)
from cxrhf.errors import RunError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

MIN_IMAGES = 5
MAX_SHARE = 0.9
BLOCK = 10_000
_KEYS = ("style", "recipe", "words", "weights", "n_patients")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Words in alphabetical order: the columns of the features. `recipe`: how texts are cleaned before counting."""

    words: tuple[str, ...] = field(repr=False)
    weights: Floats = field(repr=False)  # inverse patient frequency; ones for "paper"
    style: Style
    recipe: str
    n_patients: Integers = field(repr=False)  # patients whose learning notes hold the word

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers for `json.dump`, which writes every digit; `vocabulary_from_json` takes them back."""
        return {
            "style": self.style,
            "recipe": self.recipe,
            "words": list(self.words),
            "weights": self.weights.tolist(),
            "n_patients": self.n_patients.tolist(),
        }


def learn_vocabulary(
    counted: Counted, material: Material, learn: Flags, style: Style, recipe: str, *, max_words: int = MAX_WORDS
) -> Vocabulary:
    """The vocabulary of the prior notes of learning images.

    `counted`: all notes of `material`, cleaned by `recipe`, counted in this style. `learn`: one flag an image; those
    without prior notes bring nothing. A vocabulary may come out empty: few patients, or nothing but stop words.
    """
    _same_style(counted, style)
    images = np.flatnonzero(learn & material.noted)
    links = material.links[images]
    people, patient = np.unique(material.patients[images], return_inverse=True)
    of_link = np.repeat(patient, np.diff(links.indptr))
    owned = sparse.csr_array(
        sparse.coo_array((np.ones(links.nnz, dtype=np.int32), (of_link, links.indices)),
                         shape=(len(people), links.shape[1]))
    )  # fmt: skip
    owned.data[:] = 1  # a note that is prior to many images of its patient is still one note
    held, total = sums(owned, counted.counts)
    words = np.array(counted.words, dtype=object)
    if style == "paper":
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        times = np.bincount(material.set_of[images], minlength=material.sets.shape[0])
        some = np.flatnonzero(times)
        documents, total = sums(_ones(material.sets[some]), counted.counts, times[some])
        allowed = (documents >= MIN_IMAGES) & (documents <= MAX_SHARE * len(images))
        allowed &= np.array([word not in ENGLISH_STOP_WORDS for word in counted.words], dtype=bool)
    else:
        allowed = held >= MIN_PATIENTS
    kept = commonest(words, total, allowed, max_words)
    weights = np.ones(len(kept)) if style == "paper" else rarity(held[kept], len(people))
    return Vocabulary(tuple(words[kept].tolist()), weights, style, recipe, held[kept])


def count(vocabulary: Vocabulary, texts: pa.ChunkedArray | pa.Array, *, progress: Progress = lambda _: None) -> Counted:
    """Notes of another build, cleaned by `vocabulary.recipe`, counted over the words that the vocabulary knows."""
    return count_all(texts, style=vocabulary.style, known=vocabulary.words, progress=progress)


def word_features(vocabulary: Vocabulary, counted: Counted, sets: sparse.csr_array) -> sparse.csr_array:
    """Sets of notes (sets x notes) -> sets x words of the vocabulary, float32. Words that it does not know are dropped.

    A set without any known word is a row of zeros.
    """
    _same_style(counted, vocabulary.style)
    counts = _columns(counted, vocabulary)
    parts = []
    for start in range(0, sets.shape[0], BLOCK):
        part = _ones(sets[start : start + BLOCK]) @ counts
        if vocabulary.style == "default":
            part = weighed(part, vocabulary.weights)
        part.sort_indices()
        parts.append(part.astype(np.float32))
    return sparse.csr_array(stacked(parts, len(vocabulary.words)).astype(np.float32, copy=False))


def _same_style(counted: Counted, style: Style) -> None:
    if counted.style != style:
        raise ValueError(f"style: expected {counted.style!r}, as in count_all, got {style!r}")


def _columns(counted: Counted, vocabulary: Vocabulary) -> sparse.csr_array:
    """The counts of the vocabulary's words, in its order."""
    at = {word: number for number, word in enumerate(vocabulary.words)}
    place = np.array([at.get(word, -1) for word in counted.words], dtype=np.int32)
    there = np.flatnonzero(place >= 0)
    found = counted.counts[:, there]
    shape = (found.shape[0], len(vocabulary.words))
    return sparse.csr_array((found.data, place[there][found.indices], found.indptr), shape=shape)


def _ones(links: sparse.csr_array) -> sparse.csr_array:
    """The same links as whole numbers, so that counts stay whole."""
    return sparse.csr_array((np.ones(links.nnz, dtype=np.int32), links.indices, links.indptr), shape=links.shape)


def vocabulary_from_json(saved: Any) -> Vocabulary:
    """What `to_json` wrote -> the vocabulary, checked. Messages name places, never words: those are of the notes."""
    if not isinstance(saved, Mapping) or set(saved) != set(_KEYS):
        _refuse("its entries", ", ".join(_KEYS))
    if saved["style"] not in get_args(Style):
        _refuse("its style", f"one of {', '.join(get_args(Style))}")
    if saved["recipe"] not in RECIPES:
        _refuse("its recipe", f"one of {', '.join(RECIPES)}")
    words, weights, n_patients = (saved[name] for name in ("words", "weights", "n_patients"))
    if not all(isinstance(each, list) for each in (words, weights, n_patients)):
        _refuse("words, weights and n_patients", "three lists")
    if not len(words) == len(weights) == len(n_patients):
        _refuse(f"{len(words):,} words, {len(weights):,} weights and {len(n_patients):,} numbers of patients",
                "the same number of each")  # fmt: skip
    _each("words", words, _is_word, "text that is not empty")
    _each("weights", weights, _is_weight, "numbers above 0")
    _each("n_patients", n_patients, _is_number, "whole numbers from 1")
    for at in range(1, len(words)):
        if not words[at - 1] < words[at]:
            _refuse(f"word {at + 1:,}", "each word once, in alphabetical order")
    return Vocabulary(
        tuple(words),
        np.array(weights, dtype=np.float64),
        saved["style"],
        saved["recipe"],
        np.array(n_patients, dtype=np.int64),
    )


def _is_word(value: object) -> bool:
    return isinstance(value, str) and value != "" and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _is_weight(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e6


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**53


def _each(name: str, values: list[Any], good: Callable[[object], bool], allowed: str) -> None:
    wrong = next((at for at, value in enumerate(values) if not good(value)), None)
    if wrong is not None:
        _refuse(f"entry {wrong + 1:,} of {name}", allowed)


def _refuse(what: str, allowed: str) -> NoReturn:
    raise RunError(
        f"the vocabulary of the saved context model is damaged ({what})",
        allowed=allowed,
        next_step="copy the run folder again, or fit again: cxrhf context fit BUILD",
    )
