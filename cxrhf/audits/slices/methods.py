"""The name of a method and rows of one class -> slices, by one interface for all of SLICES' Table 1.

Rows are put in an order of their own before a method sees them, so what it finds depends on the rows and the seed, not
on the order in which they came. All of it runs on one thread: several that share a busy machine's cores are slower.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.sample import Progress, one_thread
from cxrhf.audits.slices.found import (
    HALF,
    Floats,
    Found,
    Seen,
    assign,
    content_order,
    end_slices,
    least_rows,
    modes,
    no_slices,
    plane,
    ticker,
    to_unit_variance,
)
from cxrhf.audits.slices.mixture import (
    COMPONENTS,
    DIAGONAL_FLOOR,
    FULL_FLOOR,
    STARTS,
    Mixture,
    Rows,
    by_bic,
    fit,
    mixture,
    prepare,
    start,
    unit_axes,
)
from cxrhf.errors import ConfigError, CxrhfError, did_you_mean
from cxrhf.settings import SLICE_METHODS, SLICE_RECIPES

__all__ = ["METHODS", "Found", "Seen", "assign", "discover"]


# Vectors and errors of one class -> slices by bias-aware hierarchical clustering (Misztal-Radecka and Indurkhya
# 2021).
#
# In a plane, the cluster whose errors differ most is cut in two by k-means, and again, as long as a part deviates
# more from the mean error of all rows than the whole did. The printed rule never ends: the mean of the whole lies
# between those of its parts, so one part always deviates at least as much. Here it must do so by two standard errors.

CLUSTERS = 16
STANDARD_ERRORS = 2.0


class Cut(NamedTuple):
    """Cluster `whole` becomes itself (nearer to the first centre) and cluster `new` (nearer to the second)."""

    whole: int
    new: int
    centres: Floats


def bias_clusters(seen: Seen, *, seed: int, recipe: str, progress: Progress) -> Found:
    """Clusters of a plane, cut where errors differ."""
    flat = plane(seen.vectors, seed=seed, progress=progress)
    cuts = list(_cuts(flat.project(seen.vectors), seen.error, least_rows(len(seen.y)), seed))
    if not cuts:
        return no_slices(f"bias-aware clusters: {flat.about}; no cut separates errors")
    about = (
        f"bias-aware clusters: {flat.about}; cut in two by k-means where errors differ most, while a part deviates "
        f"more than the whole by {STANDARD_ERRORS:g} standard errors: {len(cuts) + 1} clusters"
    )
    return Found(
        lambda vectors, y, p: np.eye(len(cuts) + 1)[_codes(flat.project(vectors), cuts)], len(cuts) + 1, 0.0, about
    )  # fmt: skip


def _cuts(places: Floats, error: Floats, least: int, seed: int) -> Iterator[Cut]:
    """Cuts in the order in which they are to be made."""
    from sklearn.cluster import KMeans

    code = np.zeros(len(places), dtype=np.int64)
    n, final = 1, set[int]()
    while n < CLUSTERS and len(final) < n:
        whole = max((j for j in range(n) if j not in final), key=lambda j: (error[code == j].std(), -j))
        inside = np.flatnonzero(code == whole)
        final.add(whole)
        if len(inside) < 2 * least or len(np.unique(places[inside], axis=0)) < 2:
            continue
        centres = KMeans(2, n_init=4, random_state=(seed + n) % 2**32).fit(places[inside]).cluster_centers_
        second = _second(places[inside], centres)
        parts = [inside[~second], inside[second]]
        if min(map(len, parts)) < least or not _farther(error, inside, parts):
            continue
        code[parts[1]] = n
        final.discard(whole)
        yield Cut(whole, n, centres)
        n += 1


def _farther(error: Floats, whole: NDArray[np.intp], parts: list[NDArray[np.intp]]) -> bool:
    """Whether a part deviates more from the mean of all rows than the whole, beyond its own noise."""
    middle = error.mean()
    before = abs(error[whole].mean() - middle)
    return any(
        abs(error[part].mean() - middle) - before > STANDARD_ERRORS * error[part].std() / np.sqrt(len(part))
        for part in parts
    )


def _second(places: Floats, centres: Floats) -> NDArray[np.bool_]:
    far = ((places[:, None, :] - centres) ** 2).sum(axis=2)
    return np.asarray(far[:, 1] < far[:, 0])


def _codes(places: Floats, cuts: list[Cut]) -> NDArray[np.int64]:
    code = np.zeros(len(places), dtype=np.int64)
    for cut in cuts:
        inside = np.flatnonzero(code == cut.whole)
        code[inside[_second(places[inside], cut.centres)]] = cut.new
    return code


# Vectors and predictions of one class -> slices by Domino's error-aware mixture (Eyuboglu et al. 2022).
#
# A mixture over principal modes of the vectors and over what the model predicts, the latter counted ten times, so
# that a component is alike in both. Components in which label and prediction lie farthest apart are the slices.
# Within one class the label is the same everywhere, so Domino's term for it falls away. Domino was made for CLIP's
# vectors, which let it describe slices in words; here the vectors are those that are given.

MODES = 128
DOMINO_COMPONENTS, ROWS_EACH = 25, 20  # at most so many components, and so many rows for each
SLICES = 5
PREDICTION_WEIGHT = 10.0


def domino(seen: Seen, *, seed: int, recipe: str, progress: Progress) -> Found:
    """The five components with the largest gap between label and mean prediction."""
    project = modes(seen.vectors, MODES)
    scale = unit_axes(project(seen.vectors))

    def rows(vectors: Floats, p: Floats) -> Rows:
        kinds = np.column_stack([1 - p, p])
        return prepare(scale(project(vectors)), full=False, kinds=kinds, kind_weight=PREDICTION_WEIGHT)

    made = rows(seen.vectors, seen.p)
    n, d = made.vectors.shape
    k = int(np.clip(n // ROWS_EACH, 2, DOMINO_COMPONENTS))
    first = _start(made.vectors, seen.error > 0.25, k, seed)
    best = fit(made, first, full=False, floor=DIAGONAL_FLOOR, least=least_rows(n), tick=ticker(progress))
    assert best.kinds is not None
    gap = np.abs(seen.y[0] - best.kinds[:, 1])
    kept = np.argsort(-gap, kind="stable")[:SLICES]
    about = (
        f"Domino's mixture over {d} principal modes of the given embeddings (not CLIP's) and the prediction counted "
        f"{PREDICTION_WEIGHT:g} times: {len(gap)} components, kept the {len(kept)} with the largest gap between label "
        "and mean prediction"
    )
    return Found(lambda vectors, y, p: best.belonging(rows(vectors, p))[0][:, kept], len(kept), HALF, about)


def _start(vectors: Floats, wrong: np.ndarray, k: int, seed: int) -> Floats:
    """Rows that are predicted wrong and rows that are predicted right start in components of their own, as Domino's."""
    if min(wrong.sum(), (~wrong).sum()) < ROWS_EACH:
        return start(vectors, k, (seed, k))
    parts = [start(vectors[rows], size, (seed, k)) for rows, size in ((wrong, k // 2), (~wrong, k - k // 2))]
    belonging = np.zeros((len(vectors), sum(part.shape[1] for part in parts)))
    belonging[wrong, : parts[0].shape[1]] = parts[0]
    belonging[~wrong, parts[0].shape[1] :] = parts[1]
    return belonging


# Vectors and errors of one class -> slices at the ends of the direction of failure (Jain et al. 2023): a linear SVM.
#
# Their vectors are CLIP's; here those that are given. Known gap: cuts are set on folds of rows, not of patients, so
# with many images a patient the ends hold somewhat more or less than a tenth of other patients.

FEW = 10  # wrong or right rows with which a direction is not learnt
FOLDS = 5
STRENGTHS = (0.001, 0.01, 0.1)
MOST = 5_000  # rows on which the strength is chosen


def failure_svm(seen: Seen, *, seed: int, recipe: str, progress: Progress) -> Found:
    """The tenth of the rows that lies farthest in the direction of failure, and the tenth farthest from it."""
    failed = seen.error > 0.25
    which = "errors from successes at 0.5"
    if min(failed.sum(), (~failed).sum()) < FEW:
        failed = seen.error > np.median(seen.error)
        which = "errors above the median from those below, because at 0.5 too few rows are wrong or right"
    scale = unit_axes(seen.vectors)
    x = scale(seen.vectors)
    if min(failed.sum(), (~failed).sum()) < FEW or not x.any():
        return no_slices("failure direction: the embeddings or the errors do not differ")
    strength, outside = _unseen_values(x, failed, seed, ticker(progress))
    weights = end_slices(outside)
    if weights is None:
        return no_slices("failure direction: no direction of the embeddings separates errors from successes")
    fitted = _svm(strength).fit(x, failed)
    about = (
        f"failure direction: a linear SVM on the given embeddings (not CLIP's) separates {which}; slices are the "
        f"tenths at its two ends, cut on held-out folds, C = {strength:g} by the same folds"
    )
    return Found(lambda vectors, y, p: weights(fitted.decision_function(scale(vectors))), 2, HALF, about)


def _svm(strength: float) -> Any:
    from sklearn.svm import LinearSVC

    return LinearSVC(C=strength, class_weight="balanced", dual=False, max_iter=200)


def _unseen_values(x: Floats, failed: np.ndarray, seed: int, tick: Progress) -> tuple[float, Floats]:
    """The C whose values rank failures best in rows it had not seen, and its values of all rows, each unseen."""
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    from cxrhf.metrics import auroc

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed % 2**32)
    some = np.arange(len(x))
    if len(x) > MOST:
        some = np.sort(np.random.default_rng([seed, 227]).choice(len(x), MOST, replace=False))

    def values(strength: float, rows: np.ndarray) -> Floats:
        tick(f"C = {strength:g}")
        return np.asarray(
            cross_val_predict(_svm(strength), x[rows], failed[rows], cv=folds, method="decision_function")
        )

    best = max(STRENGTHS, key=lambda strength: float(auroc(failed[some], values(strength, some))))
    return best, values(best, np.arange(len(x)))


# Vectors of one class -> slices by GEORGE (Sohoni et al. 2020): a plane, a mixture there, k by silhouette.

GEORGE_COMPONENTS = range(2, 11)
SILHOUETTE_ROWS = 2_000  # distances of all pairs


def george(seen: Seen, *, seed: int, recipe: str, progress: Progress) -> Found:
    """Gaussians in the plane; the number with the best mean silhouette."""
    flat = plane(seen.vectors, seed=seed, progress=progress)
    places = flat.project(seen.vectors)
    scale = unit_axes(places)
    rows = prepare(scale(places), full=True)
    x = rows.vectors
    least, tick = least_rows(len(x)), ticker(progress)
    best: tuple[float, Mixture] | None = None
    for k in GEORGE_COMPONENTS:
        if k * least > len(x):
            break
        tick(f"k = {k}")
        found = fit(rows, start(x, k, (seed, k)), full=True, floor=FULL_FLOOR, least=least)
        height = _silhouette(places, found.belonging(rows)[0].argmax(axis=1), seed)
        if not np.isnan(height) and (best is None or height > best[0]):
            best = height, found
    if best is None:
        return no_slices(f"GEORGE: {flat.about}; no two clusters there")
    height, chosen = best
    k = len(chosen.share)
    about = (
        f"GEORGE: {flat.about}; Gaussian mixture with full covariances there, {k} components by silhouette "
        f"({height:.2f})"
    )
    return Found(
        lambda vectors, y, p: chosen.belonging(prepare(scale(flat.project(vectors)), full=True))[0], k, 0.0, about
    )  # fmt: skip


def _silhouette(places: Floats, code: np.ndarray, seed: int) -> float:
    """Mean silhouette of at most some rows; NaN where they are all in one cluster."""
    from sklearn.metrics import silhouette_score

    if len(code) > SILHOUETTE_ROWS:
        chosen = np.sort(np.random.default_rng([seed, 211]).choice(len(code), SILHOUETTE_ROWS, replace=False))
        places, code = places[chosen], code[chosen]
    if not 2 <= len(np.unique(code)) < len(code):
        return float("nan")
    return float(silhouette_score(places, code))


# Vectors and errors of one class -> slices where nearest neighbours fail most and least (Oakden-Rayner et al. 2020).
#
# SLICES' Table 1 names KNN for their "algorithmic measurement". A row's local error is the mean error of its
# neighbours; the tenth with the largest and the tenth with the smallest are the slices.


def knn(seen: Seen, *, seed: int, recipe: str, progress: Progress) -> Found:
    """Two slices by the mean error of as many neighbours as the root of the number of rows."""
    from sklearn.neighbors import NearestNeighbors

    scale = to_unit_variance(seen.vectors)
    # Rows with one and the same vector are one point: which of them comes first must not matter.
    points, code, count = np.unique(scale(seen.vectors), axis=0, return_inverse=True, return_counts=True)
    error = np.bincount(code.ravel(), seen.error) / count
    k = max(10, round(np.sqrt(len(seen.y))))
    if len(points) <= k + 1:
        return no_slices(f"nearest neighbours: only {len(points)} different embeddings, at least {k + 2} are needed")
    progress(f"{k} neighbours of {len(points)} points")
    tree = NearestNeighbors().fit(points)

    def local(near: np.ndarray) -> Floats:
        return np.asarray((error[near] * count[near]).sum(axis=1) / count[near].sum(axis=1))

    # Of the k + 1 nearest of a point the first is itself.
    near = tree.kneighbors(points, k + 1, return_distance=False)
    own = near == np.arange(len(points))[:, None]
    own[~own.any(axis=1), -1] = True
    around = local(near[~own].reshape(len(points), k))
    weights = end_slices(around[code.ravel()])
    if weights is None:
        return no_slices("nearest neighbours: local errors do not differ")
    about = (
        f"nearest neighbours: the tenths of the rows whose {k} nearest neighbours among the embeddings have the "
        "largest and the smallest mean error"
    )
    return Found(
        lambda vectors, y, p: weights(local(tree.kneighbors(scale(vectors), k, return_distance=False))), 2, HALF, about
    )  # fmt: skip


# Vectors and residuals of one class -> slices as in Multiaccuracy boost (Kim et al. 2019): a regression of residuals.
#
# The auditor there is ridge regression or a small decision tree. Here it is the ridge: the tree finds slices that lie
# along an axis (D2 as it is: precision .96, recall .69 with four leaves) but hardly others (D2 turned: .85 and .44),
# the ridge finds both alike (.92 and .93, turned .91 and .94). Their vectors are an autoencoder's; here those that
# are given.

MULTIACCURACY_STRENGTHS = np.logspace(-1, 5, 13)


def multiaccuracy(seen: Seen, *, seed: int, recipe: str, progress: Progress) -> Found:
    """The tenth of the rows with the largest error by the regression, and the tenth with the smallest."""
    from sklearn.linear_model import Ridge, RidgeCV
    from sklearn.model_selection import KFold, cross_val_predict

    scale = unit_axes(seen.vectors)
    x, residual = scale(seen.vectors), np.abs(seen.y - seen.p)
    progress("a regression of residuals")
    ridge = RidgeCV(MULTIACCURACY_STRENGTHS).fit(x, residual)
    folds = KFold(FOLDS, shuffle=True, random_state=seed % 2**32)
    weights = end_slices(cross_val_predict(Ridge(ridge.alpha_), x, residual, cv=folds)) if x.any() else None
    if weights is None or not np.ptp(residual) > 1e-9:
        return no_slices("Multiaccuracy: the embeddings or the residuals do not differ")
    about = (
        "Multiaccuracy: ridge regression of the residuals on the given embeddings (not those of an autoencoder); "
        "slices are the tenths with the largest and the smallest predicted residual, cut on held-out folds"
    )
    return Found(lambda vectors, y, p: weights(ridge.predict(scale(vectors))), 2, HALF, about)


# Vectors and predictions of one class -> slices by PlaneSpot (Plumb et al. 2023): a plane, the confidence, a mixture.
#
# PlaneSpot takes scvis for its plane; what stands in for it here, `Found.about` says.


def planespot(seen: Seen, *, seed: int, recipe: str, progress: Progress) -> Found:
    """Gaussians over two axes of a map and the model's probability, all brought to variance 1."""
    flat = plane(seen.vectors, seed=seed, progress=progress, wanted="scvis")

    def beside(vectors: Floats, p: Floats) -> Floats:
        return np.column_stack([flat.project(vectors), p])

    scale = unit_axes(beside(seen.vectors, seen.p))
    choice = by_bic(
        prepare(scale(beside(seen.vectors, seen.p)), full=True), COMPONENTS, full=True, floor=FULL_FLOOR,
        least=least_rows(len(seen.p)), starts=STARTS, seed=seed, progress=progress,
    )  # fmt: skip
    best = choice.mixture
    k = len(best.share)
    about = (
        f"PlaneSpot: {flat.about}, the probability as a third axis of the same spread; Gaussian mixture with full "
        f"covariances, {k} by BIC of {min(choice.tried)} to {max(choice.tried)}"
    )
    if k == 1:
        return no_slices(f"{about}: no clusters")
    return Found(
        lambda vectors, y, p: best.belonging(prepare(scale(beside(vectors, p)), full=True))[0], k, 0.0, about
    )  # fmt: skip


# Vectors and errors of one class -> slices by Spotlight (d'Eon et al. 2022): where the mean error is largest.
#
# A spotlight has a centre and a width; a row's weight is 1 at the centre and falls with the squared distance to 0.
# The centre is moved until the weighted mean error is largest, the width always such that the weights sum to a share
# of the rows, half of them at first, then fewer down to the least: so it cannot shrink onto single rows. The best of
# these is kept. For the next one the errors that are already lit are taken out.
#
# A slice is the rows with the largest weights, as many as the weights of all rows sum to. A fixed weight would not
# do: in many axes distances are nearly equal, and a light of a tenth of the rows gives none of them a weight of a
# half.

SPOTLIGHTS = 5
SHARES = (0.5, 0.2, 0.1)  # total weight as a share of the rows, the last is the least
SPOTLIGHT_STARTS = 5
REACH = 20.0  # how far a centre may go, in spreads of the vectors: from afar the light is a half-space
ROUNDS = 100


class Light(NamedTuple):
    """Centre, how fast the weight falls with the squared distance, and the mean error under it where it was found."""

    centre: Floats
    falls: float
    error: float


def spotlight(seen: Seen, *, seed: int, recipe: str, progress: Progress) -> Found:
    """Five spotlights, each the best of several starts at rows with large errors."""
    scale = to_unit_variance(seen.vectors)
    x, error = scale(seen.vectors), seen.error
    if np.ptp(error) < 1e-12 or np.ptp(x, axis=0).max() < 1e-9:
        return no_slices("Spotlight: the embeddings or the errors do not differ")
    rng, tick = np.random.default_rng([seed, 223]), ticker(progress)
    left = error.copy()
    lights: list[Light] = []
    while len(lights) < SPOTLIGHTS and left.sum() > 1e-9 * error.sum():
        worst = np.argsort(-left, kind="stable")[: max(SPOTLIGHT_STARTS, len(x) // 10)]
        centres = [left @ x / left.sum(), *x[np.sort(rng.choice(worst, SPOTLIGHT_STARTS - 1, replace=False))]]
        found: list[Light] = []
        for centre in centres:
            start = len(found) // len(SHARES) + 1
            tick(f"spotlight {len(lights) + 1} of {SPOTLIGHTS}, start {start} of {SPOTLIGHT_STARTS}")
            found += _optimise_spotlights(x, left, centre)
        lights.append(max(found, key=lambda each: each.error))
        left = left * (1 - spotlight_weights(x, lights[-1]))
    cuts = [_cut(spotlight_weights(x, each)) for each in lights]
    about = (
        f"Spotlight: {len(lights)} kernels in the given embeddings, each with the largest mean error under a total "
        f"weight of at least {SHARES[-1]:.0%} of the rows, {SPOTLIGHT_STARTS} starts; errors already covered are "
        "removed"
    )

    def weights(vectors: Floats, y: Floats, p: Floats) -> Floats:
        light = np.column_stack([spotlight_weights(scale(vectors), each) for each in lights])
        return np.asarray(light / (light + cuts))  # half at the cut

    return Found(weights, len(lights), HALF, about)


def spotlight_weights(x: Floats, light: Light) -> Floats:
    """Weight of each row."""
    return np.maximum(1 - light.falls * ((x - light.centre) ** 2).sum(axis=1), 0)


def _cut(weight: Floats) -> float:
    """The weight that as many rows reach as all weights sum to."""
    return float(np.sort(weight)[-max(1, round(float(weight.sum())))])


def objective(centre: Floats, x: Floats, error: Floats, total: float) -> tuple[float, Floats, float]:
    """Minus the mean error under the light whose weights sum to `total`, its slope by the centre, how fast it falls."""
    apart = x - centre
    far = np.einsum("ij,ij->i", apart, apart)
    order = np.argsort(far, kind="stable")
    near = far[order]
    # Were the light to end at each row in turn, the sum of weights would rise; it ends where that is enough.
    inside = np.arange(len(near)) - (np.cumsum(near) - near) / np.maximum(near, 1e-300)
    m = int(np.clip(np.searchsorted(inside, total), np.ceil(total), len(near)))
    rows = order[:m]
    falls = max((m - total) / max(float(near[:m].sum()), 1e-300), 1e-300)
    weight = np.maximum(1 - falls * far[rows], 0)
    mean = float(weight @ error[rows]) / total
    # A step of the centre changes distances, and `falls` so that the sum of weights stays.
    change = 2 * falls * apart[rows].sum(axis=0) / max(float(near[:m].sum()), 1e-300)
    slope = 2 * falls * (error[rows] @ apart[rows]) - change * float(error[rows] @ far[rows])
    return -mean, -slope / total, falls


def _optimise_spotlights(x: Floats, error: Floats, centre: Floats) -> list[Light]:
    """One start: a light for each share of the rows, each begun where the wider one ended."""
    from scipy.optimize import minimize

    unit = error.mean()
    lights = []
    for share in SHARES:
        total = share * len(x)

        def both(at: Floats, total: float = total) -> tuple[float, Floats]:
            value, slope, _ = objective(at, x, error, total)
            return value / unit, slope / unit

        limits = [(-REACH, REACH)] * len(centre)
        centre = minimize(both, centre, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": ROUNDS}).x
        value, _, falls = objective(centre, x, error, total)
        lights.append(Light(centre, falls, -value))
    return lights


# The main part.

LEAST = 30  # rows


class Method(Protocol):
    """Rows of one class -> slices. `recipe` paper: as published, where a method's default differs from that."""

    def __call__(self, seen: Seen, *, seed: int, recipe: str, progress: Progress) -> Found: ...


METHODS: Mapping[str, Method] = {
    "mixture": mixture,
    "domino": domino,
    "spotlight": spotlight,
    "george": george,
    "planespot": planespot,
    "multiaccuracy": multiaccuracy,
    "failure_svm": failure_svm,
    "bias_clusters": bias_clusters,
    "knn": knn,
}


def discover(name: str, seen: Seen, *, seed: int, recipe: str = "default", progress: Progress) -> Found:
    """Slices of these rows by one method."""
    if name not in METHODS:
        raise ConfigError(
            "slice_methods: no such method", got=name, allowed=", ".join(SLICE_METHODS),
            next_step=did_you_mean(name, SLICE_METHODS),
        )  # fmt: skip
    if recipe not in SLICE_RECIPES:
        raise ConfigError("slice_recipe: no such recipe", got=recipe, allowed=", ".join(SLICE_RECIPES))
    vectors, y, p = (np.asarray(each, dtype=np.float64) for each in seen)
    if len(vectors) < LEAST:
        raise CxrhfError("too few rows of one class to find slices in", got=len(vectors), allowed=f"{LEAST} or more")
    if vectors.ndim != 2 or vectors.shape[1] == 0 or y.shape != (len(vectors),) or p.shape != y.shape:
        raise CxrhfError(
            "slices require an embedding, a label and a probability for each row",
            got=f"shapes {vectors.shape}, {y.shape}, {p.shape}",
        )
    if not (np.isfinite(vectors).all() and ((p >= 0) & (p <= 1)).all()):
        raise CxrhfError("slices require finite embeddings and probabilities from 0 to 1")
    if not ((y == y[0]).all() and y[0] in (0, 1)):
        raise CxrhfError("slices are found in one class at a time", got="both labels", allowed="all 1 or all 0")
    order = content_order(np.column_stack([vectors, p]))
    with one_thread():
        found = METHODS[name](Seen(vectors[order], y[order], p[order]), seed=seed, recipe=recipe, progress=progress)

    def weights(vectors: Floats, y: Floats, p: Floats) -> Floats:
        with one_thread():
            return found.weights(*(np.asarray(each, dtype=np.float64) for each in (vectors, y, p)))

    return found._replace(weights=weights)
