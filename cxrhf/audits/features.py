"""EMBEDDING beside a sample -> POINT and RESULT: maps of a network's vectors and logits, coloured by who is there.

ENCODING's inspection of features: PCA (the modes with 99% of the variance), t-SNE of these, and the logits of two
findings; two-sample Kolmogorov-Smirnov tests of four modes and both logits for pairs of diseases, sexes and races,
Benjamini-Yekutieli over this family. Where a characteristic lies along the mode or the logit that tells a disease, that
is a hint at scenario C (the finding is told by it), no proof; where nothing is seen, scenario B is the better guess.

One image a patient, by chance. Where two or more races are known, at most 1,000 patients of each (fewer if there are
more than five), so that no group hides the others; else, and in all, at most 5,000. The paper takes its patients from a
test set resampled to equal prevalence and age; here groups may differ in both, and in their marginals because of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from cxrhf.audits.material import Layer
from cxrhf.audits.rows import AuditPart, Row, RowMaker
from cxrhf.audits.sample import DISEASES, SECONDS, Counts, Floats, Progress, Sample, one_thread
from cxrhf.metrics.estimates import FEW
from cxrhf.metrics.intervals import benjamini_yekutieli, count_units
from cxrhf.tables.cells import AGE_BANDS, age_band

MOST, MOST_OF_RACE = 5_000, 1_000
MODES = 4
OTHER = "Other"
# Groups of an attribute that are compared pair by pair.
COMPARED = {"disease": 2, "sex": 2, "race": 3}
_CLIP = 1e-6


class _People(NamedTuple):
    """Rows of the sample that are shown, one a patient, and what they are coloured by ("" = not known)."""

    at: NDArray[np.intp]
    colours: dict[str, NDArray[np.str_]]


def features(sample: Sample) -> AuditPart:
    """Maps and tests of one model."""
    layers = sample.beside.layers
    layer = layers.get(None) or next((layers[name] for name in sorted(name for name in layers if name)), None)
    if layer is None:
        return AuditPart([], [], [])
    said: list[str] = []
    if None not in layers:
        said.append("maps show the embeddings of one finding, because there are none of the penultimate layer")
    diseases = _diseases(sample)
    place, people = _people(sample, layer, diseases)
    who = f"{sample.model}: features, {len(people.at):,} patients"
    sample.progress(f"{who}, PCA")
    modes = principal_modes(layer.vectors[place])
    marginals = {f"pca_{k + 1}": modes.scores[:, k] for k in range(min(MODES, modes.scores.shape[1]))}
    if not marginals:
        return AuditPart([], [], [f"{sample.model}: all embeddings are identical, so there are no maps"])
    logits = {f"logit_{name}": _logits(sample, name, people.at) for name in diseases}
    near = neighbour_map(modes, sample.settings.seed, sample.progress, f"{who}, t-SNE")
    if near is None:
        said.append(f"too few patients ({len(people.at)}) for t-SNE")
    points = _points(sample, people, marginals, logits, near)
    groups = {name: people.colours[name] for name in COMPARED if (people.colours[name] != "").any()}
    if "disease" in groups and len(diseases) > 1:  # the rest is everything else, no group to compare with
        groups["disease"] = np.where(groups["disease"] == OTHER, "", groups["disease"])
    tests = run_marginal_tests(marginals | logits, pairs_of(groups, COMPARED, said))
    make = RowMaker("features", sample)
    rows = _mode_rows(make, people, modes) + [_test_row(make, test, len(tests)) for test in tests]
    said += [f"no {name} column to colour the maps by" for name in ("sex", "race") if name not in groups]
    return AuditPart(rows, [], [f"{sample.model}: features: {each}" for each in said], points)


def _diseases(sample: Sample) -> list[str]:
    """No Finding and Pleural Effusion; where one is missing, the two findings with most positives."""
    names = sample.data.findings
    if all(name in names for name in DISEASES):
        return list(DISEASES)
    positives = np.nansum(sample.data.y == 1, axis=0)
    order = sorted(range(len(names)), key=lambda k: (-positives[k], names[k]))
    return [names[k] for k in order[:2]]


def _people(sample: Sample, layer: Layer, diseases: list[str]) -> tuple[NDArray[np.intp], _People]:
    """Places among the vectors of those that are shown, and who they are."""
    data = sample.data
    rng = np.random.default_rng([sample.settings.seed, 71])
    shuffled = rng.permutation(len(layer.at))
    _, first = np.unique(data.patients[layer.at[shuffled]], return_index=True)
    one = rng.permutation(shuffled[first])  # an image of each patient, in any order
    race = data.groups["race"][layer.at[one]] if "race" in data.groups else np.zeros(len(one), dtype="U1")
    names, group, counts = np.unique(race, return_inverse=True, return_counts=True)
    large = counts >= FEW
    most = np.full(len(names), MOST)
    if (large & (names != "")).sum() > 1:
        most[:] = min(MOST_OF_RACE, (MOST - int(counts[~large].sum())) // int(large.sum()))
    order = np.argsort(group, kind="stable")
    rank = np.empty(len(one), dtype=np.int64)
    rank[order] = np.arange(len(one)) - np.repeat(np.cumsum(counts) - counts, counts)
    place = np.sort(one[rank < most[group]][:MOST])
    at = layer.at[place]
    colours = {name: data.groups[name][at] if name in data.groups else np.full(len(at), "") for name in ("sex", "race")}
    age = np.full(len(at), np.nan) if data.age is None else data.age[at]
    colours["age"] = np.array([*AGE_BANDS, ""])[age_band(age)]
    colours["disease"] = _disease(sample, diseases, at)
    return place, _People(at, colours)


def _disease(sample: Sample, diseases: list[str], at: NDArray[np.intp]) -> NDArray[np.str_]:
    """The last of the diseases that an image has, Other without any of them, "" where none is labelled."""
    y = sample.data.y[at][:, [sample.data.findings.index(name) for name in diseases]]
    found = np.where(np.isnan(y).all(axis=1), "", OTHER).astype(object)
    for k, name in enumerate(diseases):
        found[y[:, k] == 1] = name.replace("_", " ").title()
    return found.astype(str)


def _logits(sample: Sample, name: str, at: NDArray[np.intp]) -> Floats:
    """Of a probability its logit; a score that is none as it is."""
    k = sample.data.findings.index(name)
    p: Floats = sample.data.p[at, k]
    return np.asarray(logit(np.clip(p, _CLIP, 1 - _CLIP)) if sample.data.is_probability[k] else p, dtype=np.float64)


def _points(
    sample: Sample, people: _People, marginals: dict[str, Floats], logits: dict[str, Floats], near: Floats | None
) -> list[Row]:
    """A row for each patient and map."""
    maps: dict[str, tuple[Floats, Floats]] = {}
    modes = list(marginals.values())
    for first in range(0, len(modes) - 1, 2):
        maps[f"pca {first + 1}-{first + 2}"] = (modes[first], modes[first + 1])
    if near is not None:
        maps["t-sne"] = (near[:, 0], near[:, 1])
    if len(logits) == 2:
        one, other = logits.values()
        maps["logits"] = (one, other)
    ids = sample.data.image_ids[people.at].tolist()
    colours = {name: [value or None for value in values.tolist()] for name, values in people.colours.items()}
    rows: list[Row] = []
    for name, (x, y) in maps.items():
        for k in np.flatnonzero(np.isfinite(x) & np.isfinite(y)).tolist():
            own = {colour: values[k] for colour, values in colours.items()}
            place = {"image_id": ids[k], "model": sample.curve_model, "map": name, "x": float(x[k]), "y": float(y[k])}
            rows.append(place | own)
    return rows


def _mode_rows(make: RowMaker, people: _People, modes: Modes) -> list[Row]:
    n = len(people.at)
    how = f"PCA of {n:,} patients, one image each"
    rows = [
        _row(make, f"explained_variance.pca_{k + 1}", float(modes.share[k]), n, how)
        for k in range(min(MODES, len(modes.share)))
    ]
    note = f"modes that explain {VARIANCE:.0%} of the variance; the input of t-SNE"
    return [*rows, _row(make, "n_components", float(modes.n_components), n, how) | {"note": note}]


def _test_row(make: RowMaker, test: MarginalTest, tests: int) -> Row:
    one, other = test.sizes
    how = (
        f"two-sample Kolmogorov-Smirnov, {one:,} and {other:,} patients, one image each; p depends on their number; "
        f"Benjamini-Yekutieli, {tests} tests"
    )
    row = _row(make, f"ks.{test.marginal}", test.statistic, one + other, how)
    return row | {"slice": test.pair.one, "versus": test.pair.other, "p_value": test.p_value}


def _row(make: RowMaker, metric: str, value: float, n: int, how: str) -> Row:
    nobody = count_units(np.zeros(n))
    row: dict[str, Any] = make.row(metric, None, Counts(n, 0, n, nobody), value, weighting=how)
    return row | {"n_pos": None, "higher_is_better": None}


# Vectors -> places in a plane: principal components (PCA), and t-SNE of the components with 99% of the variance.

VARIANCE = 0.99
PERPLEXITY = 30.0
# Fewer rows have no neighbourhoods to keep.
LEAST_ROWS = 10


class Modes(NamedTuple):
    """Scores of the rows on all modes with variance, each one's share of it, and how many hold 99% of it."""

    scores: Floats
    share: Floats
    n_components: int


def principal_modes(vectors: NDArray[np.float32]) -> Modes:
    """PCA of these rows, centred, not scaled. The largest loading of a mode is positive, which settles its sign."""
    centred = vectors.astype(np.float64)
    centred -= centred.mean(axis=0)
    wide = centred.shape[1] > len(centred)
    with one_thread():
        values, axes = np.linalg.eigh(centred @ centred.T if wide else centred.T @ centred)
        values, axes = values[::-1], axes[:, ::-1]
        kept = values > 1e-10 * max(float(values[0]), 0.0)
        values, axes = values[kept], axes[:, kept]
        if wide:
            axes = centred.T @ (axes / np.sqrt(values))
        largest = axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])] if axes.size else np.ones(0)
        scores = centred @ (axes * np.sign(largest))
    share = values / values.sum()
    return Modes(scores, share, int(np.searchsorted(np.cumsum(share), VARIANCE - 1e-12) + 1) if len(share) else 0)


def neighbour_map(modes: Modes, seed: int, progress: Progress, text: str) -> Floats | None:
    """t-SNE of the modes that hold 99% of the variance; None for too few rows. The same seed gives the same map.

    scikit-learn's takes no function to report to, so the time that has passed is reported beside it.
    """
    from sklearn.manifold import TSNE

    rows = modes.scores[:, : modes.n_components]
    if len(rows) < LEAST_ROWS or not rows.shape[1]:
        return None
    # Started from the first two modes; where there is one only, from chance.
    start: Any = "pca" if rows.shape[1] > 1 else "random"
    method = TSNE(init=start, perplexity=min(PERPLEXITY, (len(rows) - 1) / 3), random_state=seed % 2**32, n_jobs=1)
    with one_thread(), _report_elapsed_time(progress, text):
        return np.asarray(method.fit_transform(rows), dtype=np.float64)


@contextmanager
def _report_elapsed_time(progress: Progress, text: str) -> Iterator[None]:
    """Say every few seconds that it goes on, and for how long."""
    done, begun = threading.Event(), time.monotonic()

    def tell() -> None:
        while not done.wait(SECONDS):
            progress(f"{text}, {time.monotonic() - begun:.0f} s")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


# Places of patients on modes and logits, and their groups -> Kolmogorov-Smirnov tests, corrected as one family.
#
# ENCODING: for each pair of groups and each marginal, whether both groups are spread alike along it. One patient is
# one row, so rows are independent. The p value depends on how many patients were taken: with more of them smaller
# differences become certain, so the statistic (the largest distance of the two distribution functions, 0 to 1) stands
# beside it.


class Pair(NamedTuple):
    """Two groups, by the names that RESULT gives them; True for the rows of each."""

    one: str
    other: str
    in_one: NDArray[np.bool_]
    in_other: NDArray[np.bool_]


class MarginalTest(NamedTuple):
    """One test: the statistic, the p value (that of the family, once corrected), patients of both groups."""

    marginal: str
    pair: Pair
    statistic: float
    p_value: float
    sizes: tuple[int, int]


def pairs_of(groups: Mapping[str, NDArray[np.str_]], most: Mapping[str, int], notes: list[str]) -> list[Pair]:
    """Every pair among the largest groups of each attribute; `groups`: attribute -> value of each row, "" = none.

    `most`: how many groups of an attribute take part. Groups of few patients do not.
    """
    pairs: list[Pair] = []
    for name, values in groups.items():
        found, counts = np.unique(values[values != ""], return_counts=True)
        enough = sorted(((-count, value) for value, count in zip(found, counts, strict=True) if count >= FEW))
        if small := len(found) - len(enough):
            notes.append(f"{name}: {small} of {len(found)} groups have fewer than {FEW} patients and are not tested")
        chosen = sorted(str(value) for _, value in enough[: most[name]])
        if len(chosen) < 2:
            notes.append(f"{name}: no two groups of {FEW} patients to test")
        pairs += [
            Pair(f"{name}={one}", f"{name}={other}", values == one, values == other)
            for one, other in combinations(chosen, 2)
        ]
    return pairs


def run_marginal_tests(marginals: Mapping[str, Floats], pairs: Sequence[Pair]) -> list[MarginalTest]:
    """All marginals for all pairs, Benjamini-Yekutieli over all of them. A marginal is NaN where a row has none."""
    from scipy.stats import ks_2samp

    found = []
    for pair in pairs:
        for marginal, values in marginals.items():
            known = np.isfinite(values)
            one, other = values[pair.in_one & known], values[pair.in_other & known]
            if min(len(one), len(other)) < FEW:
                continue
            test = ks_2samp(one, other)
            found.append(
                MarginalTest(marginal, pair, float(test.statistic), float(test.pvalue), (len(one), len(other)))
            )
    corrected = benjamini_yekutieli([each.p_value for each in found])
    return [each._replace(p_value=float(p)) for each, p in zip(found, corrected, strict=True)]
