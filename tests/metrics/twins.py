"""The definitions of methods.md written as plainly as they can be said: loops over pairs, rows, thresholds, subsets.

Nothing here is fast and nothing is shared with cxrhf.metrics; the tests hold one against the other.
"""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np


def _weights(weight, n):
    return np.ones(n) if weight is None else np.asarray(weight, dtype=float)


def _rows(y, p, weight=None):
    y, p = np.asarray(y, dtype=float), np.asarray(p, dtype=float)
    return y, p, _weights(weight, len(y))


# ---------------------------------------------------------------- ranking


def auroc(y, p, weight=None):
    """Every positive against every negative; a tie is half a win."""
    y, p, w = _rows(y, p, weight)
    wins = pairs = 0.0
    for i in range(len(y)):
        for j in range(len(y)):
            if y[i] == 1 and y[j] == 0:
                wins += w[i] * w[j] * ((p[i] > p[j]) + 0.5 * (p[i] == p[j]))
                pairs += w[i] * w[j]
    return wins / pairs if pairs > 0 else np.nan


def confusion(y, p, threshold, weight=None):
    """Weights of true positives, false positives, false negatives, true negatives of `p >= threshold`."""
    y, p, w = _rows(y, p, weight)
    tp = fp = fn = tn = 0.0
    for label, score, mass in zip(y, p, w, strict=True):
        if score >= threshold and label == 1:
            tp += mass
        elif score >= threshold:
            fp += mass
        elif label == 1:
            fn += mass
        else:
            tn += mass
    return tp, fp, fn, tn


def pr_points(y, p, weight=None):
    """(recall, precision) at each distinct score of a row that weighs something, from the highest down."""
    y, p, w = _rows(y, p, weight)
    points = []
    for threshold in sorted(set(p[w > 0]), reverse=True):
        tp, fp, fn, _ = confusion(y, p, threshold, w)
        points.append((tp / (tp + fn), tp / (tp + fp)))
    return points


def _one_class(y, w):
    return w[y == 1].sum() == 0 or w[y == 0].sum() == 0


def average_precision(y, p, weight=None):
    y, p, w = _rows(y, p, weight)
    if _one_class(y, w):
        return np.nan
    area = before = 0.0
    for recall, precision in pr_points(y, p, w):
        area += (recall - before) * precision
        before = recall
    return area


def auprc_trapezoid(y, p, weight=None):
    y, p, w = _rows(y, p, weight)
    if _one_class(y, w):
        return np.nan
    points = [(0.0, 1.0), *pr_points(y, p, w)]
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(points))


def delong_se(y, p):
    """Root of var(V10)/n_pos + var(V01)/n_neg, V the placements of single rows among the other class."""
    y, p, _ = _rows(y, p)
    beats = [[(a > b) + 0.5 * (a == b) for b in p[y == 0]] for a in p[y == 1]]
    beats = np.array(beats, dtype=float)
    return np.sqrt(beats.mean(axis=1).var(ddof=1) / beats.shape[0] + beats.mean(axis=0).var(ddof=1) / beats.shape[1])


def clustered_se(y, p, clusters):
    """Obuchowski (1997): sums of placements over clusters, with the covariance of clusters that hold both classes."""
    y, p, _ = _rows(y, p)
    clusters = np.asarray(clusters)
    theta = auroc(y, p)
    n_pos, n_neg = int(y.sum()), int((1 - y).sum())
    dev_pos, dev_neg, has_pos, has_neg = [], [], 0, 0
    for cluster in np.unique(clusters):
        inside = clusters == cluster
        v10 = [np.mean([(a > b) + 0.5 * (a == b) for b in p[y == 0]]) for a in p[inside & (y == 1)]]
        v01 = [np.mean([(a > b) + 0.5 * (a == b) for a in p[y == 1]]) for b in p[inside & (y == 0)]]
        dev_pos.append(sum(v10) - len(v10) * theta)
        dev_neg.append(sum(v01) - len(v01) * theta)
        has_pos += bool(v10)
        has_neg += bool(v01)
    dev_pos, dev_neg, n = np.array(dev_pos), np.array(dev_neg), len(dev_pos)
    s10 = has_pos / ((has_pos - 1) * n_pos) * (dev_pos**2).sum()
    s01 = has_neg / ((has_neg - 1) * n_neg) * (dev_neg**2).sum()
    s11 = n / (n - 1) * (dev_pos * dev_neg).sum()
    return np.sqrt(s10 / n_pos + s01 / n_neg + 2 * s11 / (n_pos * n_neg))


# ---------------------------------------------------------------- calibration


def brier(y, p, weight=None, among=None):
    """Weighted mean of (p - y)^2, over one class with `among`."""
    y, p, w = _rows(y, p, weight)
    rows = [(m, (s - label) ** 2) for label, s, m in zip(y, p, w, strict=True) if among is None or label == among]
    mass = sum(m for m, _ in rows)
    return sum(m * e for m, e in rows) / mass if mass > 0 else np.nan


def balanced_brier(y, p, weight=None):
    return brier(y, p, weight, 1) + brier(y, p, weight, 0)


def brier_skill_score(y, p, weight=None, prevalence=None):
    y, p, w = _rows(y, p, weight)
    if _one_class(y, w):
        return np.nan
    constant = (w * y).sum() / w.sum() if prevalence is None else prevalence
    return 1 - brier(y, p, w) / brier(y, np.full(len(y), constant), w)


def ace_exact(y, p, weight=None, bins=10):
    """Each group of equal scores is a bar on a line of length 1; bin k is the stretch from k/bins to (k+1)/bins."""
    y, p, w = _rows(y, p, weight)
    if w.sum() == 0:
        return np.nan
    bars, start = [], Fraction(0)
    total = sum(map(Fraction, w))
    for value in sorted(set(p)):
        here = p == value
        mass = sum(map(Fraction, w[here]))
        if mass > 0:
            label = sum(Fraction(m) * int(v) for m, v in zip(w[here], y[here], strict=True)) / mass
            bars.append((start, start + mass / total, Fraction(value), label))
            start += mass / total
    error = Fraction(0)
    for k in range(bins):
        low, high = Fraction(k, bins), Fraction(k + 1, bins)
        inside = sum((max(Fraction(0), min(b, high) - max(a, low)) * (v - label) for a, b, v, label in bars))
        error += abs(inside)
    return float(error)


def ace_array_split(y, p, bins=10):
    """CONTEXT's public code: rows sorted by score, numpy.array_split, each bin counts the same."""
    y, p, _ = _rows(y, p)
    parts = [part for part in np.array_split(np.argsort(p, kind="stable"), bins) if len(part)]
    return float(np.mean([abs(p[part].mean() - y[part].mean()) for part in parts]))


def ace_whole_rows(y, p, weight=None, bins=10):
    """A row belongs to the bin in which its cumulative weight ends; each bin that holds weight counts the same."""
    y, p, w = _rows(y, p, weight)
    order = np.argsort(p, kind="stable")
    total = sum(map(Fraction, w))
    members, filled = {}, Fraction(0)
    for i in order:
        filled += Fraction(w[i])
        k = next(k for k in range(bins) if filled * bins <= (k + 1) * total)
        members.setdefault(k, []).append(i)
    gaps = [
        abs(np.average(p[rows], weights=w[rows]) - np.average(y[rows], weights=w[rows]))
        for rows in members.values()
        if w[rows].sum() > 0
    ]
    return float(np.mean(gaps))


def expected_calibration_error(y, p, weight=None, bins=10):
    y, p, w = _rows(y, p, weight)
    error = 0.0
    for k in range(bins):
        inside = (p >= k / bins) & ((p < (k + 1) / bins) | (k == bins - 1))
        error += abs((w * (p - y))[inside].sum())
    return error / w.sum()


def calibration_line(y, p, weight=None):
    """(slope, intercept, in_the_large) by a general minimiser of the negative log likelihood."""
    from scipy.optimize import minimize, minimize_scalar

    y, p, w = _rows(y, p, weight)
    x = np.log(p / (1 - p))

    def loss(a, b):
        t = a + b * x
        return (w * (np.logaddexp(0, t) - y * t)).sum() / w.sum()

    both = minimize(lambda v: loss(*v), [0.0, 1.0], method="BFGS", options={"gtol": 1e-9})
    alone = minimize_scalar(lambda a: loss(a, 1.0), tol=1e-12)
    return both.x[1], both.x[0], alone.x


def isotonic(y, p, weight=None):
    """Min-max formula: the largest over starts of the smallest over ends of the mean label in between."""
    y, p, w = _rows(y, p, weight)
    values = sorted(set(p[w > 0]))
    mass = np.array([w[p == v].sum() for v in values])
    hits = np.array([(w * y)[p == v].sum() for v in values])
    fitted = {}
    for i, value in enumerate(values):
        fitted[value] = max(
            min(hits[a : b + 1].sum() / mass[a : b + 1].sum() for b in range(i, len(values))) for a in range(i + 1)
        )
    return np.array([fitted.get(v, np.nan) for v in p])


# ---------------------------------------------------------------- operating points


def candidate_thresholds(p, weight=None):
    """Infinity (nothing is called), then each distinct score of a row that weighs something, from the highest down."""
    p = np.asarray(p, dtype=float)
    return [np.inf, *sorted(set(p[_weights(weight, len(p)) > 0]), reverse=True)]


def rates(y, p, threshold, weight=None):
    """tpr, fpr, precision, npv, f1, mcc, j; NaN where the denominator is empty."""
    tp, fp, fn, tn = confusion(y, p, threshold, weight)

    def ratio(a, b):
        return a / b if b > 0 else np.nan

    tpr, fpr = ratio(tp, tp + fn), ratio(fp, fp + tn)
    mcc = ratio(tp * tn - fp * fn, np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)))
    f1 = ratio(2 * tp, 2 * tp + fp + fn) if tp + fn > 0 else np.nan
    return tpr, fpr, ratio(tp, tp + fp), ratio(tn, tn + fn), f1, mcc, tpr - fpr


def conservative(y, p, specificity, weight=None):
    """(sensitivity, specificity): the largest TPR over all thresholds whose FPR is allowed."""
    reached = [rates(y, p, t, weight)[:2] for t in candidate_thresholds(p, weight)]
    allowed = [(tpr, fpr) for tpr, fpr in reached if fpr <= 1 - specificity + 1e-12]
    tpr, fpr = max(allowed, key=lambda point: (point[0], point[1]))
    return tpr, 1 - fpr


def interpolated(y, p, specificity, weight=None):
    """Sensitivity on the straight line through the highest point at each FPR."""
    best = {}
    for t in candidate_thresholds(p, weight):
        tpr, fpr = rates(y, p, t, weight)[:2]
        best[fpr] = (min(tpr, best.get(fpr, (tpr, tpr))[0]), max(tpr, best.get(fpr, (0, 0))[1]))
    allowed, points = 1 - specificity, sorted(best.items())
    if any(abs(fpr - allowed) < 1e-12 for fpr, _ in points):
        return next(high for fpr, (_, high) in points if abs(fpr - allowed) < 1e-12)
    (f0, (_, top)), (f1, (bottom, _)) = next(pair for pair in itertools.pairwise(points) if pair[1][0] > allowed)
    return top + (allowed - f0) / (f1 - f0) * (bottom - top)


def net_benefit(y, p, threshold, weight=None):
    tp, fp, fn, tn = confusion(y, p, threshold, weight)
    return (tp - fp * threshold / (1 - threshold)) / (tp + fp + fn + tn)


# ---------------------------------------------------------------- context


def ipw_weights(y, q, prevalence, clip=0.001):
    raw = []
    for label, pretest in zip(y, q, strict=True):
        chance = min(max(pretest, clip), 1 - clip)
        raw.append(prevalence / chance if label == 1 else (1 - prevalence) / (1 - chance))
    return np.array(raw) * len(raw) / sum(raw)


def att_weights(y, q, clip=0.001):
    q = [min(max(v, clip), 1 - clip) for v in q]
    return np.array([1.0 if label == 1 else v / (1 - v) for label, v in zip(y, q, strict=True)])


def balancing_weights(y, group, bins, weight):
    """(1/R) P(d) P(a | d) / P(r, d, a), renormalised within (r, d) over the ages that the group has; row by row."""
    inside = (group >= 0) & (bins >= 0) & (weight > 0)
    total = weight[inside].sum()
    present = sorted(set(group[inside]))
    out = np.zeros(len(y))

    def share(rows):
        return weight[inside & rows].sum() / total

    def target(d, ages):
        return sum(share((y == d) & (bins == a)) for a in ages) / share(y == d)

    for r, d in {(r, d) for r, d in zip(group[inside], y[inside], strict=True)}:
        ages = set(bins[inside & (group == r) & (y == d)])
        for a in ages:
            cell = inside & (group == r) & (y == d) & (bins == a)
            factor = share(y == d) * target(d, [a]) / len(present) / share(cell) / target(d, ages)
            out[cell] = weight[cell] * factor
    return out


def ks_distance(y, q, weight=None):
    y, q, w = _rows(y, q, weight)
    pos, neg = y == 1, y == 0
    return max(abs(w[pos & (q <= v)].sum() / w[pos].sum() - w[neg & (q <= v)].sum() / w[neg].sum()) for v in q)


def midrank_groups(q, low=0.25, high=0.75):
    """0 low, 1 middle, 2 high: by the share of rows below, half of the equal ones counted as below."""
    q = np.asarray(q, dtype=float)
    groups = []
    for v in q:
        place = Fraction(int(2 * (q < v).sum() + (q == v).sum()), 2 * len(q))
        groups.append(0 if place < Fraction(low) else 2 if place > Fraction(high) else 1)
    return np.array(groups)


def assignment_cost(y, q, caliper=None):
    """Least total |difference|; with a caliper each member of the smaller class may stay alone at that price."""
    from scipy.optimize import linear_sum_assignment

    y, q = np.asarray(y), np.asarray(q, dtype=float)
    small, large = q[y == 1], q[y == 0]
    if len(small) > len(large):
        small, large = large, small
    if len(small) == 0:
        return 0.0
    cost = np.abs(small[:, None] - large[None, :])
    if caliper is not None:
        alone = np.full((len(small), len(small)), 1e9)
        np.fill_diagonal(alone, caliper)
        cost = np.hstack([cost, alone])
    rows, columns = linear_sum_assignment(cost)
    return float(cost[rows, columns].sum())


def tie_break_aurocs(y, p, q, positives, negatives):
    """AUROC of every matched set that takes as many rows of each class at each value as the given one."""
    y, p, q = np.asarray(y), np.asarray(p, dtype=float), np.asarray(q, dtype=float)
    choices = []
    for label, chosen in ((1, positives), (0, negatives)):
        for value, count in sorted(Counter(q[chosen].tolist()).items()):
            available = np.flatnonzero((y == label) & (q == value))
            choices.append(list(itertools.combinations(available.tolist(), count)))
    sets = (list(itertools.chain.from_iterable(picked)) for picked in itertools.product(*choices))
    return [auroc(y[rows], p[rows]) for rows in sets]


# ---------------------------------------------------------------- many tests at once


def bonferroni(p):
    return [min(1.0, v * len(p)) for v in p]


def holm(p):
    """Step down: the smallest p times m, the next times m - 1, ...; never below one before it."""
    out, worst = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        worst = max(worst, min(1.0, p[i] * (len(p) - rank)))
        out[i] = worst
    return out


def benjamini_hochberg(p, factor=1.0):
    """The smallest level at which this hypothesis is rejected: least over k of p_(k) m / k with p_(k) >= p."""
    ordered = sorted(p)
    m = len(p)
    return [min(1.0, *(value * m * factor / (k + 1) for k, value in enumerate(ordered) if value >= mine)) for mine in p]


def benjamini_yekutieli(p):
    return benjamini_hochberg(p, sum(1 / k for k in range(1, len(p) + 1)))
