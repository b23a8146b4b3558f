"""Parameters of planted truth D2 -> embeddings with a hidden failing slice, or scores that lean on a chest drain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Counts = dict[str, dict[str, int]]


Null = Literal["none", "blind", "harmless", "score"]

# Share of images with a chest drain in CheXpert, by (sex, pneumothorax).
CHEXPERT_DRAINS: Mapping[tuple[str, int], float] = {
    ("M", 0): 0.230,
    ("M", 1): 0.505,
    ("F", 0): 0.147,
    ("F", 1): 0.502,
}

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(200)
_REACH = 9.0


@dataclass(frozen=True, slots=True)
class SlicesTruth:
    """Brier of the positives (hidden slice, rest, all) and of the negatives; the best slice any method can find."""

    brier_hidden: float
    brier_rest: float
    brier_positive: float
    brier_negative: float
    precision: float
    recall: float


@dataclass(frozen=True, slots=True)
class PlantedSlices:
    """One row per patient. `hidden` marks the slice, which only positives have."""

    y: Integers
    logit: Floats
    prob: Floats
    embedding: Floats
    hidden: Integers
    patient: Integers
    truth: SlicesTruth


@dataclass(frozen=True, slots=True)
class ShortcutTruth:
    """AUROC by sex as drains really lie, and when both sexes have the drains of their average."""

    auroc: Mapping[str, float]
    auroc_equalised: float


@dataclass(frozen=True, slots=True)
class PlantedShortcut:
    """One row per patient; `drain` is the shortcut, `sex` holds "M" and "F"."""

    y: Integers
    score: Floats
    drain: Integers
    sex: NDArray[np.str_]
    patient: Integers
    truth: ShortcutTruth


def slices(
    n: int,
    *,
    prevalence: float = 0.5,
    share: float = 0.1,
    gap: float = 2.0,
    shift: float = 4.0,
    dimensions: int = 16,
    null: Null = "none",
    seed: int = 0,
) -> PlantedSlices:
    """`n` rows of D2.

    Positives: U ~ Bernoulli(share), logit N(1.5 - gap U, 1); negatives: logit N(-1.5, 1) and no U. The embedding is
    unit Gaussian, its first axis moved by `shift` where U. Nulls, where an audit must find nothing:
    "blind" (shift 0: the slice fails but the embedding does not know it), "harmless" (gap 0: the embedding shows
    the group but it does not fail), "score" (no U at all; the embedding is tanh of straight lines in the logit with a
    little noise, so that clusters differ in Brier score although nothing is hidden).
    """
    if null not in ("none", "blind", "harmless", "score"):
        raise ValueError(f"null is {null!r}, allowed: 'none', 'blind', 'harmless', 'score'")
    gap = 0.0 if null == "harmless" else gap
    shift = 0.0 if null == "blind" else shift
    share = 0.0 if null == "score" else share
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < prevalence).astype(np.int64)
    hidden = ((rng.random(n) < share) & (y == 1)).astype(np.int64)
    logits = np.where(y == 1, 1.5 - gap * hidden, -1.5) + rng.standard_normal(n)
    embedding = rng.standard_normal((n, dimensions))
    if null == "score":
        slope, offset = np.linspace(0.5, 2.0, dimensions), np.linspace(-1.0, 1.0, dimensions)
        embedding = np.tanh(logits[:, None] * slope + offset) + 0.1 * embedding
    else:
        embedding[:, 0] += shift * hidden
    truth = slices_truth(share=share, gap=gap, shift=shift)
    return PlantedSlices(y, logits, expit(logits), embedding, hidden, np.arange(n), truth)


def rare_misses(
    prob: Floats, *, shares: Sequence[float] = (0.005, 0.01, 0.03, 0.1, 0.2), seed: int = 0
) -> tuple[Floats, dict[str, Integers]]:
    """Vectors of patients with these scores, and random attributes that the vectors show: a null for any errors.

    Errors of real models are skewed: most are near 0, a few near 1. An attribute that few patients have, and that
    vectors show, has by chance no large error or several; an audit must find nothing in either.
    """
    rng = np.random.default_rng([seed, 11])
    shown = rng.standard_normal((len(prob), len(shares) + 3))
    traits = {f"random {share:.1%}": (rng.random(len(prob)) < share).astype(np.int64) for share in shares}
    for axis, has in enumerate(traits.values()):
        shown[:, axis] += 4.0 * has
    shown[:, -1] += 3.0 * prob
    return shown, traits


def slices_truth(*, share: float = 0.1, gap: float = 2.0, shift: float = 4.0) -> SlicesTruth:
    """Population values of D2; the best slice calls a positive hidden where that is likelier than not."""
    z = _REACH * _NODES
    mass = _REACH * _NODE_WEIGHTS * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)

    def brier(centre: float) -> float:
        return float(mass @ (1 - expit(centre + z)) ** 2)

    hidden, rest = brier(1.5 - gap), brier(1.5)
    if share == 0 or shift == 0:  # no cut is better than taking nobody
        precision = recall = np.nan
    else:
        cut = shift / 2 + np.log((1 - share) / share) / shift
        recall = float(ndtr(shift - cut))
        precision = share * recall / (share * recall + (1 - share) * float(ndtr(-cut)))
    return SlicesTruth(hidden, rest, share * hidden + (1 - share) * rest, brier(1.5), precision, recall)


def shortcut(
    n: int,
    *,
    prevalence: float = 0.3,
    effect: float = 1.5,
    drains: Mapping[tuple[str, int], float] = CHEXPERT_DRAINS,
    equalised: bool = False,
    seed: int = 0,
) -> PlantedShortcut:
    """`n` patients, half of each sex, with score S = Y + effect * drain + N(0, 1).

    With `equalised` both sexes draw drains with the mean share of their class, which removes the gap by sex while
    the model and its lean on drains stay as they are.
    """
    if equalised:
        mean = {label: (drains["M", label] + drains["F", label]) / 2 for label in (0, 1)}
        drains = {(sex, label): mean[label] for sex in "MF" for label in (0, 1)}
    rng = np.random.default_rng(seed)
    sex = np.where(rng.random(n) < 0.5, "M", "F")
    y = (rng.random(n) < prevalence).astype(np.int64)
    chance = np.select([(sex == s) & (y == label) for s, label in drains], list(drains.values()))
    drain = (rng.random(n) < chance).astype(np.int64)
    score = y + effect * drain + rng.standard_normal(n)
    return PlantedShortcut(y, score, drain, sex, np.arange(n), shortcut_truth(effect=effect, drains=drains))


def shortcut_truth(*, effect: float = 1.5, drains: Mapping[tuple[str, int], float] = CHEXPERT_DRAINS) -> ShortcutTruth:
    """AUROC by sex: four cases of drain or none in the positive and in the negative."""

    def auroc(positive: float, negative: float) -> float:
        cases = (
            chance_pos * chance_neg * ndtr((1 + effect * (i - j)) / np.sqrt(2))
            for i, chance_pos in enumerate((1 - positive, positive))
            for j, chance_neg in enumerate((1 - negative, negative))
        )
        return float(sum(cases))

    by_sex = {sex: auroc(drains[sex, 1], drains[sex, 0]) for sex in "MF"}
    both = auroc((drains["M", 1] + drains["F", 1]) / 2, (drains["M", 0] + drains["F", 0]) / 2)
    return ShortcutTruth(by_sex, both)


# Parameters of planted truth D3 -> scores of races that differ in prevalence and age, with one threshold for all.
#
# Without a `shift` no race is treated worse at the same age and disease: the raw TPR and FPR differ only because the
# races differ in age, and an audit that balances prevalence and age must find them equal.
#
# `diseases` has races that differ in ENCODING's three disease groups: for effusion, women have the higher AUROC (.833
# against .813; .850 against .830 with the races balanced over effusion alone), and the lower (.809 against .835) in
# the paper's population.

SHARE = np.array([0.78, 0.15, 0.07])
PREVALENCE = np.array([0.41, 0.44, 0.33])
# P(age band | disease, race): [disease][race][age band]
AGE = np.array(
    [
        [[0.20, 0.35, 0.45], [0.25, 0.40, 0.35], [0.40, 0.40, 0.20]],
        [[0.10, 0.30, 0.60], [0.15, 0.35, 0.50], [0.30, 0.40, 0.30]],
    ]
)


@dataclass(frozen=True, slots=True)
class SubgroupsTruth:
    """Population values by race at the threshold with FPR .20; `balanced_*` after balancing prevalence and age."""

    threshold: float
    tpr: Floats
    fpr: Floats
    auroc: Floats
    balanced_tpr: Floats
    balanced_fpr: Floats
    balanced_auroc: Floats


@dataclass(frozen=True, slots=True)
class PlantedSubgroups:
    """One row per patient; `race` and `age` hold 0, 1, 2."""

    y: Integers
    score: Floats
    race: Integers
    age: Integers
    patient: Integers
    truth: SubgroupsTruth


def subgroups(n: int, *, shift: float = 0.0, seed: int = 0) -> PlantedSubgroups:
    """`n` rows of D3: S ~ N(1.4 Y + .4 age, 1), and positives of the third race score `shift` lower."""
    rng = np.random.default_rng(seed)
    race = rng.choice(3, size=n, p=SHARE)
    y = (rng.random(n) < PREVALENCE[race]).astype(np.int64)
    age = (rng.random(n)[:, None] > np.cumsum(AGE[y, race], axis=1)[:, :2]).sum(axis=1)
    score = 1.4 * y + 0.4 * age - shift * ((race == 2) & (y == 1)) + rng.standard_normal(n)
    return PlantedSubgroups(y, score, race.astype(np.int64), age, np.arange(n), subgroups_truth(shift=shift))


def subgroups_truth(*, shift: float = 0.0, fpr: float = 0.2) -> SubgroupsTruth:
    """Population values of D3. Balancing gives each race the population's P(age | disease), so the threshold stays."""
    joint = np.stack([SHARE * (1 - PREVALENCE), SHARE * PREVALENCE])[:, :, None] * AGE
    population = joint.sum(axis=1) / joint.sum(axis=(1, 2))[:, None]
    centre_neg = 0.4 * np.arange(3)
    low, high = -10.0, 10.0
    for _ in range(100):
        threshold = (low + high) / 2
        low, high = (threshold, high) if population[0] @ ndtr(centre_neg - threshold) > fpr else (low, threshold)

    def values(age_pos: Floats, age_neg: Floats, race: int) -> tuple[float, float, float]:
        centre_pos = 1.4 + centre_neg - shift * (race == 2)
        wins = ndtr((centre_pos[:, None] - centre_neg[None, :]) / np.sqrt(2))
        hits, alarms = age_pos @ ndtr(centre_pos - threshold), age_neg @ ndtr(centre_neg - threshold)
        return float(hits), float(alarms), float(age_pos @ wins @ age_neg)

    raw = np.array([values(AGE[1, race], AGE[0, race], race) for race in range(3)])
    balanced = np.array([values(population[1], population[0], race) for race in range(3)])
    return SubgroupsTruth(threshold, *raw.T, *balanced.T)


# Races that differ in their disease groups (No Finding, Pleural Effusion, Other), ages within each, and share of women.
SHARES = np.array([0.6, 0.25, 0.15])
DISEASE = np.array([[0.10, 0.35, 0.55], [0.55, 0.25, 0.20], [0.75, 0.15, 0.10]])
# P(age band | race, disease group): [race][disease group][age band]
AGE_OF_DISEASE = np.array(
    [
        [[0.30, 0.40, 0.30], [0.10, 0.30, 0.60], [0.20, 0.35, 0.45]],
        [[0.40, 0.40, 0.20], [0.20, 0.40, 0.40], [0.25, 0.40, 0.35]],
        [[0.50, 0.35, 0.15], [0.30, 0.40, 0.30], [0.35, 0.40, 0.25]],
    ]
)
WOMEN = np.array([0.30, 0.60, 0.95])
SEXES = ("F", "M")
FINDINGS = ("no_finding", "pleural_effusion")


@dataclass(frozen=True, slots=True)
class PopulationTruth:
    """Population values by group (`sex=F`, `race=0`, ...) at the one threshold with FPR .20 of that population."""

    threshold: float
    auroc: dict[str, float]
    tpr: dict[str, float]
    fpr: dict[str, float]


@dataclass(frozen=True, slots=True)
class PlantedDiseases:
    """One row per patient; labels and scores by finding; `race` and `age` hold 0, 1, 2, `disease` 0, 1, 2 too."""

    y: dict[str, Integers]
    score: dict[str, Floats]
    race: Integers
    age: Integers
    sex: NDArray[np.str_]
    disease: Integers


def diseases(n: int, *, alike: bool = False, seed: int = 0) -> PlantedDiseases:
    """`n` patients whose women and men change places once the races are balanced over the three disease groups.

    Effusion is told from No Finding with ease, from Other with effort, in women with more effort than in men. But women
    are more often of the races in which nearly everybody without effusion has no finding. `alike`: scores depend on
    nothing but the label, and no population may show a gap.
    """
    rng = np.random.default_rng(seed)
    race = rng.choice(3, size=n, p=SHARES)
    disease = (rng.random(n)[:, None] > np.cumsum(DISEASE[race], axis=1)[:, :2]).sum(axis=1)
    age = (rng.random(n)[:, None] > np.cumsum(AGE_OF_DISEASE[race, disease], axis=1)[:, :2]).sum(axis=1)
    sex = (rng.random(n) >= WOMEN[race]).astype(np.int64)
    y = {name: (disease == k).astype(np.int64) for k, name in enumerate(FINDINGS)}
    score = {name: _centres(name, alike)[disease, age, sex] + rng.standard_normal(n) for name in FINDINGS}
    return PlantedDiseases(y, score, race.astype(np.int64), age, np.array(SEXES)[sex], disease)


def _centres(finding: str, alike: bool) -> Floats:
    """Mean score by disease group, age band and sex."""
    own = FINDINGS.index(finding)
    if alike:
        return np.broadcast_to(1.5 * (np.arange(3) == own)[:, None, None], (3, 3, 2))
    by_sex = {"no_finding": ((1.5, 1.5), (-0.6, -0.6), (0, 0)), "pleural_effusion": ((0, 0), (1.7, 1.85), (0.85, 0.85))}
    older = 0.35 if finding == "pleural_effusion" else -0.35
    return np.array(by_sex[finding])[:, None, :] + older * np.arange(3)[None, :, None]


def diseases_truth(finding: str, population: str, *, alike: bool = False, fpr: float = 0.2) -> PopulationTruth:
    """Population values: of everybody as they are (""), with the races balanced over the finding's own label
    ("_balanced_by_race"), or over the three disease groups ("_balanced_by_race_and_disease")."""
    own = FINDINGS.index(finding)
    classes = {"_balanced_by_race": [[own], [k for k in range(3) if k != own]], "": []}
    mass = (SHARES[:, None] * DISEASE)[..., None] * AGE_OF_DISEASE  # race, disease group, age band
    weight = np.ones_like(mass)
    for together in classes.get(population, [[0], [1], [2]]):
        cell = mass[:, together].sum(axis=1)
        weight[:, together] = (cell.sum(axis=0) / len(SHARES) / cell)[:, None, :]
    women = np.stack([WOMEN, 1 - WOMEN], axis=-1)[:, None, None, :]
    joint = (mass * weight)[..., None] * women
    centre = np.broadcast_to(_centres(finding, alike), joint.shape)
    low, high = -10.0, 10.0
    negatives = joint * (np.arange(3) != own)[:, None, None]
    for _ in range(100):
        at = (low + high) / 2
        rate = (negatives * ndtr(centre - at)).sum() / negatives.sum()
        low, high = (at, high) if rate > fpr else (low, at)
    found = PopulationTruth(at, {}, {}, {})
    groups = [(f"sex={name}", np.s_[:, :, :, k]) for k, name in enumerate(SEXES)]
    for name, inside in [*groups, *((f"race={k}", np.s_[k]) for k in range(3))]:
        part = np.zeros_like(joint)
        part[inside] = joint[inside]
        ill, well = part[:, own].ravel() / part[:, own].sum(), (part * (negatives > 0)).ravel()
        well /= well.sum()
        here, there = centre[:, own].ravel(), centre.ravel()
        found.auroc[name] = float(ill @ ndtr((here[:, None] - there) / np.sqrt(2)) @ well)
        found.tpr[name], found.fpr[name] = float(ill @ ndtr(here - at)), float(well @ ndtr(there - at))
    return found


# Planted truth D4 -> word counts by sex in reference and generated reports, and report texts with those counts.

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
