"""Material and settings -> the families of features that are tried: words, boosted trees on the words, encoders."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal, NoReturn, cast, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from cxrhf.context.material import Calibration, Candidate, Family, Features, Material, Progress
from cxrhf.context.settings import FEATURES, SEARCHES, ContextFitConfig
from cxrhf.context.words import (
    MAX_WORDS,
    MIN_PATIENTS,
    Style,
    WordCounts,
    clean,
    commonest_words,
    count_all,
    rarity,
    stack_batches,
    sums,
    weigh_counts,
)
from cxrhf.encode.settings import RECIPES, EncodeConfig
from cxrhf.errors import ConfigError, RunError, TableError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Families:
    """The families, and by their names: fingerprints, vocabularies (JSON), encoders (JSON), patients of each word."""

    all: tuple[Family, ...]
    prints: Mapping[str, str] = field(repr=False)
    vocabularies: Mapping[str, dict[str, Any]] = field(repr=False)
    encoders: Mapping[str, dict[str, Any]] = field(repr=False)
    n_patients: Mapping[str, Integers] = field(repr=False)


def make_families(
    material: Material,
    learn: Flags,
    config: ContextFitConfig,
    *,
    cache: str | Path | None = None,
    progress: Progress = lambda _: None,
) -> Families | None:
    """Features of every distinct set of prior notes. None in processes that only helped to encode.

    Encoders come first: several processes encode together, and one goes on.
    """
    texts = clean(material.notes["text"], config.recipe)
    parts: list[Family] = []
    prints: dict[str, str] = {}
    encoders: dict[str, dict[str, Any]] = {}
    vocabularies: dict[str, dict[str, Any]] = {}
    n_patients: dict[str, Integers] = {}
    if "encoder" in config.features:
        from cxrhf.encode import main_process

        for name in config.encoders:
            settings = config.encode(name)
            vectors, about = _vectors(texts, material, settings, cache, progress)
            cells = candidates("encoder", cast(Search, config.search), draws=config.draws(), seed=config.seed)
            encoders[name] = about
            prints[name] = _print(about["settings"], vectors)
            parts.append(Family(name, "encoder", vectors, (), cells, "platt"))
        if not main_process():
            return None
    kinds: list[Literal["words", "boosted"]] = [kind for kind in ("words", "boosted") if kind in config.features]
    if kinds:
        style: Style = "paper" if config.search == "paper" else "default"
        counted = count_all(texts, style, progress=progress)
        vocabulary = learn_vocabulary(counted, material, learn, style, config.recipe)
        if not vocabulary.words:
            raise TableError(
                f"the {material.notes.num_rows:,} notes of the training images share no words: no word occurs in the "
                "notes of five patients",
                next_step="build a larger dataset, or pass --features encoder",
            )
        matrix = word_features(vocabulary, counted, material.sets)
        for kind in kinds:
            cells = candidates(kind, cast(Search, config.search), draws=config.draws(), seed=config.seed)
            vocabularies[kind] = vocabulary.to_json()
            prints[kind] = _print(vocabularies[kind], matrix.data)
            n_patients[kind] = vocabulary.n_patients
            calibration: Calibration = "isotonic" if kind == "boosted" else "platt"
            parts.insert(kinds.index(kind), Family(kind, kind, matrix, tuple(vocabulary.words), cells, calibration))
    return Families(tuple(parts), prints, vocabularies, encoders, n_patients)


def features_again(
    material: Material,
    vocabulary: Mapping[str, Any] | None,
    settings: EncodeConfig | None,
    *,
    cache: str | Path | None = None,
    progress: Progress = lambda _: None,
) -> Features:
    """The features of other notes, as a saved family reads them."""
    if vocabulary is not None:
        known = vocabulary_from_json(vocabulary)
        texts = clean(material.notes["text"], known.recipe)
        return word_features(known, count(known, texts, progress=progress), material.sets)
    assert settings is not None
    from cxrhf.encode import encode_sets

    texts = clean(material.notes["text"], settings.recipe)
    return encode_sets(texts, material.sets, settings, cache=cache, progress=progress)


def _vectors(
    texts: Any, material: Material, settings: EncodeConfig, cache: str | Path | None, progress: Progress
) -> tuple[NDArray[np.float32], dict[str, Any]]:
    from cxrhf.encode import encode_sets, identity

    vectors = encode_sets(texts, material.sets, settings, cache=cache, progress=progress)
    return vectors, {"settings": asdict(settings), "identity": identity(settings)}


def _print(about: Mapping[str, Any], values: NDArray[Any]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
    digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


# A way to read the notes and the name of a search -> the classifiers and parameters that are tried.
#
# paper: Tables A.5 (encoder, 62 cells) and A.11 (words, 64 cells); what is fixed of each classifier (A.4, A.10)
# stands in classifiers.KINDS. The paper's random_state is 42, here the run's seed. RidgeClassifierCV is one cell: it
# chooses among its nine alphas itself. All seven classifiers of the words take sparse features.
#
# default, words: only WordRidge, in nine cells. Real notes spread a finding over many words, the twin plants a few
# among filler, so the choice that matters is how sharply words that go with the label are favoured. Mean AUROC in
# nested folds of patients (cells chosen inside), on the twin (2,000 patients, 12 findings) and on real IU
# indications: these nine .696 and .619; l1 logistic regression .687 and .609; SGD .686 and .610; all of them together
# .693 and .614. Both data took part in setting up the grid. On a twin of 3,000 patients that did not (planted .729):
# .714, .710, .702, .710. A forest is behind too (.680 where WordRidge has .721, six findings); only on plain counts,
# as in the paper, it is ahead of linear classifiers: .673 and .60 to .62. default, encoder: on the same data (all-
# MiniLM) logistic regression and discriminant analysis were best, and no choice among their cells was above another
# by more than chance; forests, neighbours, networks, GaussianNB and boosted trees were behind by .02 to .1. Cost of a
# fit, 20,000 images, one core: 8,192 words 1 to 3 s, 384 dimensions 1 s; 100 trees of XGBoost on words 10 s.
#
# XGBoost: the paper makes 60 draws and does not publish the space. Here, each draw on its own:
#     n_estimators      50, 100, 200; paper also 400       trees
#     learning_rate     .02 to .15; paper .01 to .3        log scale, as all ranges
#     max_depth         1, 2, 3, 4; paper also 6
#     min_child_weight  1 to 30
#     subsample         .5 to 1
#     colsample_bytree  .1 to .6; paper to 1
#     reg_lambda        .3 to 30
# Deep and fast trees did worse on both data; the default leaves them out.

Kind = Literal["words", "boosted", "encoder"]
Search = Literal["default", "paper"]
Grid = Sequence[tuple[str, Mapping[str, Sequence[Any]]]]

FOREST = {"n_estimators": (50, 100, 150), "max_depth": (None, 5, 10), "min_samples_leaf": (1, 5, 10)}

GRIDS: dict[tuple[str, str], Grid] = {
    ("words", "default"): (
        ("WordRidge", {"sharpness": (0.0,), "penalty": (3.0,)}),
        ("WordRidge", {"sharpness": (0.5,), "penalty": (1.0, 3.0, 10.0)}),
        ("WordRidge", {"sharpness": (1.0,), "penalty": (3.0, 10.0, 30.0)}),
        ("WordRidge", {"sharpness": (1.5,), "penalty": (10.0, 30.0)}),
    ),
    ("encoder", "default"): (
        ("LogisticRegression", {"C": (1.0, 3.0, 10.0)}),
        ("LinearDiscriminantAnalysis", {"solver": ("lsqr",), "shrinkage": (0.1, 0.5)}),
    ),
    ("words", "paper"): (
        ("Perceptron", {"alpha": (1e-6, 1e-5, 1e-4)}),
        ("RidgeClassifierCV", {}),
        ("PassiveAggressive", {"C": (0.001, 0.01, 0.1, 1.0)}),
        ("RandomForestClassifier", FOREST | {"n_estimators": (50, 100, 200), "max_depth": (10, 20, None)}),
        ("LinearSVC", {"C": (0.01, 0.1, 1.0, 10.0), "max_iter": (2000,)}),
        ("SGDClassifier", {"alpha": (1e-6, 1e-5, 1e-4), "penalty": ("l1", "l2", "elasticnet")}),
        ("DecisionTreeClassifier", {"max_depth": (5, 10, 20, None), "min_samples_leaf": (1, 5, 10, 20)}),
    ),
    ("encoder", "paper"): (
        ("Perceptron", {"alpha": (1e-5, 1e-4, 1e-3)}),
        ("RidgeClassifierCV", {}),
        ("PassiveAggressive", {"C": (0.01, 0.1, 0.5, 1.0)}),
        ("GaussianNB", {}),
        ("LinearDiscriminantAnalysis", {"solver": ("lsqr", "eigen"), "shrinkage": (None, "auto")}),
        ("RandomForestClassifier", FOREST),
        ("KNeighborsClassifier", {"n_neighbors": (3, 5, 7, 9)}),
        ("MLPClassifier", {"alpha": (1e-5, 1e-4, 1e-3), "hidden_layer_sizes": ((64,), (128,), (64, 32))}),
        ("LinearSVC", {"C": (0.1, 1.0, 10.0)}),
        ("SGDClassifier", {"alpha": (1e-5, 1e-4, 1e-3), "penalty": ("l1", "l2")}),
    ),
}


def candidates(kind: Kind, search: Search, *, draws: int, seed: int) -> tuple[Candidate, ...]:
    """All cells of a grid; for `boosted`, `draws` draws of XGBoost's space (more draws begin with the same ones)."""
    if kind not in FEATURES or search not in SEARCHES:
        raise ConfigError(
            "unknown search",
            got=f"{search} of {kind}",
            allowed=f"{' or '.join(SEARCHES)} of one of {', '.join(FEATURES)}",
        )
    if kind == "boosted":
        return tuple(_draw_candidate(np.random.default_rng([seed, at]), wide=search == "paper") for at in range(draws))
    return tuple(
        Candidate(name, dict(zip(axes, cell, strict=True)))
        for name, axes in GRIDS[kind, search]
        for cell in product(*axes.values())
    )


def _draw_candidate(rng: np.random.Generator, *, wide: bool) -> Candidate:
    def between(low: float, high: float) -> float:
        return float(f"{np.exp(rng.uniform(np.log(low), np.log(high))):.2g}")

    return Candidate(
        "XGBoost",
        {
            "n_estimators": int(rng.choice([50, 100, 200, 400][: 3 + wide])),
            "learning_rate": between(0.01, 0.3) if wide else between(0.02, 0.15),
            "max_depth": int(rng.choice([1, 2, 3, 4, 6][: 4 + wide])),
            "min_child_weight": between(1, 30),
            "subsample": between(0.5, 1),
            "colsample_bytree": between(0.1, 1 if wide else 0.6),
            "reg_lambda": between(0.3, 30),
        },
    )


# Counted words of notes -> the words that models of a build know, and the features of each set of prior notes.
#
# Every note is counted once over all its words (words.count_all). Which words make up the vocabulary, and how much
# each weighs, is decided by the prior notes of learning images alone and without any label; then one matrix serves
# all sets.
#
# default: words of at least 5 patients, of these the 8,192 commonest in the learning notes, each note counting once.
# Features: log(1 + count), times 1 + log(patients / patients whose notes hold the word), rows of length 1. paper:
# scikit-learn's CountVectorizer(max_features=8192, max_df=.9, min_df=5, stop_words="english"). A document is a
# learning image: its prior notes joined, so a note counts once for every image it is prior to. Features: plain
# counts. Words, counts and the order of columns are the same, but for ties at the edge of max_features: scikit-learn
# keeps what numpy's unstable sort leaves, which differs between processors; here the alphabet decides.
#
# Known gap: min_df of the paper counts images, so a word of one patient with five images gets in. explain.py shows
# such words to nobody, but a saved `paper` vocabulary holds them, so it is as confidential as the notes.

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
    counted: WordCounts, material: Material, learn: Flags, style: Style, recipe: str, *, max_words: int = MAX_WORDS
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
        documents, total = sums(_to_integer_links(material.sets[some]), counted.counts, times[some])
        allowed = (documents >= MIN_IMAGES) & (documents <= MAX_SHARE * len(images))
        allowed &= np.array([word not in ENGLISH_STOP_WORDS for word in counted.words], dtype=bool)
    else:
        allowed = held >= MIN_PATIENTS
    kept = commonest_words(words, total, allowed, max_words)
    weights = np.ones(len(kept)) if style == "paper" else rarity(held[kept], len(people))
    return Vocabulary(tuple(words[kept].tolist()), weights, style, recipe, held[kept])


def count(
    vocabulary: Vocabulary, texts: pa.ChunkedArray | pa.Array, *, progress: Progress = lambda _: None
) -> WordCounts:
    """Notes of another build, cleaned by `vocabulary.recipe`, counted over the words that the vocabulary knows."""
    return count_all(texts, style=vocabulary.style, known=vocabulary.words, progress=progress)


def word_features(vocabulary: Vocabulary, counted: WordCounts, sets: sparse.csr_array) -> sparse.csr_array:
    """Sets of notes (sets x notes) -> sets x words of the vocabulary, float32. Words that it does not know are dropped.

    A set without any known word is a row of zeros.
    """
    _same_style(counted, vocabulary.style)
    counts = _columns(counted, vocabulary)
    parts = []
    for start in range(0, sets.shape[0], BLOCK):
        part = _to_integer_links(sets[start : start + BLOCK]) @ counts
        if vocabulary.style == "default":
            part = weigh_counts(part, vocabulary.weights)
        part.sort_indices()
        parts.append(part.astype(np.float32))
    return sparse.csr_array(stack_batches(parts, len(vocabulary.words)).astype(np.float32, copy=False))


def _same_style(counted: WordCounts, style: Style) -> None:
    if counted.style != style:
        raise ValueError(f"style: expected {counted.style!r}, as in count_all, got {style!r}")


def _columns(counted: WordCounts, vocabulary: Vocabulary) -> sparse.csr_array:
    """The counts of the vocabulary's words, in its order."""
    at = {word: number for number, word in enumerate(vocabulary.words)}
    place = np.array([at.get(word, -1) for word in counted.words], dtype=np.int32)
    there = np.flatnonzero(place >= 0)
    found = counted.counts[:, there]
    shape = (found.shape[0], len(vocabulary.words))
    return sparse.csr_array((found.data, place[there][found.indices], found.indptr), shape=shape)


def _to_integer_links(links: sparse.csr_array) -> sparse.csr_array:
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
    _check_entries("words", words, _is_word, "text that is not empty")
    _check_entries("weights", weights, _is_weight, "numbers above 0")
    _check_entries("n_patients", n_patients, _is_number, "whole numbers from 1")
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


def _check_entries(name: str, values: list[Any], good: Callable[[object], bool], allowed: str) -> None:
    wrong = next((at for at, value in enumerate(values) if not good(value)), None)
    if wrong is not None:
        _refuse(f"entry {wrong + 1:,} of {name}", allowed)


def _refuse(what: str, allowed: str) -> NoReturn:
    raise RunError(
        f"the vocabulary of the saved context model is damaged ({what})",
        allowed=allowed,
        next_step="copy the run folder again, or fit again: cxrhf context fit BUILD",
    )
