"""Material and settings -> the families of features that are tried: words, boosted trees on the words, encoders."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from cxrhf.config_context import ContextFitConfig, EncodeConfig
from cxrhf.context.grids import Search, candidates
from cxrhf.context.material import Material
from cxrhf.context.parts import Calibration, Family, Features, Flags, Integers, Progress
from cxrhf.context.recipes import clean
from cxrhf.context.vocabulary import count, learn_vocabulary, vocabulary_from_json, word_features
from cxrhf.context.words import Style, count_all
from cxrhf.errors import TableError


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
