"""Planted truth D4 -> word counts by sex in reference and generated reports, and report texts with those counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

Counts = dict[str, dict[str, int]]

GROUPS = ("F", "M")
# word: (reference F, reference M), (prediction F, prediction M), what happened to it
_PLANTED: Mapping[str, tuple[tuple[int, int], tuple[int, int], str]] = {
    "effusion": ((300, 300), (400, 200), "new"),
    "pneumothorax": ((100, 100), (50, 250), "new"),
    "mastectomy": ((60, 2), (0, 0), "omitted"),
    "pacemaker": ((20, 80), (80, 20), "flip"),
    "sternotomy": ((60, 120), (60, 120), "preserved"),
    "scoliosis": ((150, 88), (119, 119), "neutralised"),
}
_FILLERS, _FILLER_COUNT = 390, 50
_SYLLABLES = ("bo", "da", "fe", "gu", "ki", "lo", "mu", "re")


@dataclass(frozen=True, slots=True)
class WordsTruth:
    """What happened to each planted word, and its displacement; WAE with prediction and with reference weights.

    `raw_level_only`: scoliosis is neutralised at the raw level (z_disp -2.86) and does not survive Benjamini-Hochberg
    over the whole vocabulary.
    """

    category: Mapping[str, str]
    raw_level_only: tuple[str, ...]
    z_ref: Mapping[str, float]
    z_pred: Mapping[str, float]
    z_disp: Mapping[str, float]
    wae_pred: float
    wae_ref: float
    wae_f: float
    wae_m: float


@dataclass(frozen=True, slots=True)
class PlantedWords:
    """Counts as group -> word -> count. Words that were never generated are absent from `prediction`."""

    reference: Counts
    prediction: Counts
    truth: WordsTruth


@dataclass(frozen=True, slots=True)
class WordReports:
    """Report i of patient i, of sex `group[i]`, as written and as generated."""

    reference: list[str]
    generated: list[str]
    group: list[str]
    patient: list[str]


def filler_words() -> list[str]:
    """390 words of three syllables that no stop list holds."""
    return ["".join(parts) for parts in product(_SYLLABLES, repeat=3)][:_FILLERS]


def words() -> PlantedWords:
    """The counts of D4 with their truth."""
    reference: Counts = {group: {} for group in GROUPS}
    prediction: Counts = {group: {} for group in GROUPS}
    for word, (ref, pred, _) in _PLANTED.items():
        for group, n_ref, n_pred in zip(GROUPS, ref, pred, strict=True):
            reference[group][word] = n_ref
            if n_pred:
                prediction[group][word] = n_pred
    for word in filler_words():
        for group in GROUPS:
            reference[group][word] = prediction[group][word] = _FILLER_COUNT
    return PlantedWords(reference, prediction, _truth())


def _truth(smoothing: float = 0.1) -> WordsTruth:
    """The closed forms of the specification, written out on arrays of the planted and the filler words."""
    filler = (_FILLER_COUNT, _FILLER_COUNT)
    ref = np.array([row[0] for row in _PLANTED.values()] + [filler] * _FILLERS, dtype=float)
    pred = np.array([row[1] for row in _PLANTED.values()] + [filler] * _FILLERS, dtype=float)

    def log_ratio(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rate = (counts + smoothing) / (counts.sum(axis=0) + smoothing * len(counts))
        return np.log(rate[:, 0] / rate[:, 1]), (1 / (counts + smoothing)).sum(axis=1)

    (s_ref, var_ref), (s_pred, var_pred) = log_ratio(ref), log_ratio(pred)
    z_ref, z_pred = s_ref / np.sqrt(var_ref), s_pred / np.sqrt(var_pred)
    z_disp = (s_pred - s_ref) / np.sqrt(var_ref + var_pred)
    in_ref, in_pred = ref.sum(axis=1), pred.sum(axis=1)

    def wae(weight: np.ndarray, among: np.ndarray) -> float:
        return float((weight * z_disp**2)[among].sum() / weight[among].sum())

    everywhere = np.ones(len(ref), dtype=bool)
    return WordsTruth(
        category={word: row[2] for word, row in _PLANTED.items()},
        raw_level_only=("scoliosis",),
        z_ref=dict(zip(_PLANTED, z_ref.tolist(), strict=False)),
        z_pred=dict(zip(_PLANTED, z_pred.tolist(), strict=False)),
        z_disp=dict(zip(_PLANTED, z_disp.tolist(), strict=False)),
        wae_pred=wae(in_pred, everywhere),
        wae_ref=wae(in_ref, everywhere),
        wae_f=wae(in_ref, z_ref > 1),
        wae_m=wae(in_ref, z_ref < -1),
    )


def word_reports(
    n_reports: int = 2000,
    *,
    kind: Literal["planted", "faithful", "collapsed"] = "planted",
    exact: bool = True,
    seed: int = 0,
) -> WordReports:
    """`n_reports` pairs of reports, half of each sex, whose tokens have the counts of D4.

    Each token falls into a random report of its group. `exact` keeps the totals of D4 whatever the number of reports;
    otherwise each total is Poisson around it. The two other kinds keep the references: "faithful" generates from the
    reference's own rates (nothing is displaced), "collapsed" generates the two commonest filler words only.
    """
    if kind not in ("planted", "faithful", "collapsed"):
        raise ValueError(f"kind is {kind!r}, allowed: 'planted', 'faithful', 'collapsed'")
    if n_reports < len(GROUPS):
        raise ValueError(f"n_reports is {n_reports}, allowed: at least {len(GROUPS)}")
    rng = np.random.default_rng(seed)
    planted = words()
    generated = {"planted": planted.prediction, "faithful": planted.reference}.get(kind)
    if generated is None:
        total = {group: sum(planted.reference[group].values()) for group in GROUPS}
        generated = {group: dict.fromkeys(filler_words()[:2], total[group] // 2) for group in GROUPS}
    group = [GROUPS[i % 2] for i in range(n_reports)]
    return WordReports(
        _texts(planted.reference, group, exact, rng),
        _texts(generated, group, exact, rng),
        group,
        [f"p{i:05d}" for i in range(n_reports)],
    )


def _texts(counts: Counts, group: list[str], exact: bool, rng: np.random.Generator) -> list[str]:
    """Throw each group's tokens, shuffled, into that group's reports."""
    tokens: list[list[str]] = [[] for _ in group]
    for name in GROUPS:
        rows = [i for i, of in enumerate(group) if of == name]
        totals = np.array(list(counts[name].values()))
        bag = np.repeat(np.array(list(counts[name])), totals if exact else rng.poisson(totals))
        rng.shuffle(bag)
        for word, row in zip(bag.tolist(), rng.choice(rows, size=len(bag)).tolist(), strict=True):
            tokens[row].append(word)
    return [" ".join(report).capitalize() + "." if report else "" for report in tokens]
