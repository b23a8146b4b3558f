"""Slices: methods held against planted slices, and our mixture against scikit-learn's with the same start and rounds.

The methods are compared on halves: slices are found on one half of the patients; of these the one that matches the
planted slice best there (F1) is looked at on the other half, and so is the worst one (largest mean error), which is
what somebody finds who does not know the truth. Both sides of every ratio run on one thread.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks.rows import Row, row
from cxrhf.audits.sample import one_thread
from cxrhf.audits.slices.found import fit_reduction
from cxrhf.audits.slices.methods import METHODS, Seen, assign, discover
from cxrhf.audits.slices.mixture import DIAGONAL_FLOOR, FULL_FLOOR, fit, maximise, prepare, start, unit_axes
from cxrhf.twin.planted_groups import slices

N_ROWS = 8_000
# Draws that played no part when choices of the methods were made (those were made on draws 0 to 9).
SEEDS = range(100, 105)
MIXTURE_ROWS, MIXTURE_AXES, COMPONENTS = 20_000, 128, 16
ALLOWED_SECONDS = 120.0


class Planted(NamedTuple):
    """Rows of the positives: vectors, probabilities, who is hidden, and which half is to discover on."""

    name: str
    vectors: np.ndarray
    p: np.ndarray
    hidden: np.ndarray
    first: np.ndarray


class Score(NamedTuple):
    """On the other half: of the slice that matches best and, last, of the worst one."""

    at_10: float
    precision: float
    recall: float
    worst_at_10: float
    n_slices: float
    seconds: float


def planted(seed: int) -> Iterator[Planted]:
    """D2; the twin's embedding of atelectasis; D2 in 512 axes with noise and score, reduced to 128 sigmoids."""
    made = slices(N_ROWS, seed=seed)
    first, positive = np.arange(N_ROWS) % 2 == 0, made.y == 1
    yield Planted("D2", made.embedding[positive], made.prob[positive], made.hidden[positive] == 1, first[positive])
    yield twin(seed)
    rng = np.random.default_rng([seed, 1])
    long = made.embedding @ rng.standard_normal((16, 512)) / 4 + 0.2 * rng.standard_normal((N_ROWS, 512))
    long += 0.3 * made.logit[:, None] * rng.standard_normal(512)
    reduced = fit_reduction(long[first], made.y[first], made.patient[first], seed=seed, progress=lambda text: None)
    short = reduced(long[positive])
    yield Planted("D2 in 512 axes, reduced", short, made.prob[positive], made.hidden[positive] == 1, first[positive])


def twin(seed: int) -> Planted:
    """Hazy positives of atelectasis; halves by patient."""
    from cxrhf.twin.models import attributes, embeddings, predictions
    from cxrhf.twin.people import people

    made = people(2_500, seed)
    rows = predictions(made).to_pylist()
    known = {row["image_id"]: row for row in rows if row["finding"] == "atelectasis" and row["label"] == 1}
    hazy = {row["image_id"] for row in attributes(made).to_pylist() if row["name"] == "hazy" and row["value"] == "1"}
    vectors = {row["image_id"]: row["vector"] for row in embeddings(made, seed=seed).to_pylist() if row["finding"]}
    names = sorted(known)
    patients = np.unique([known[name]["patient_id"] for name in names], return_inverse=True)[1]
    return Planted(
        "twin, atelectasis",
        np.array([vectors[name] for name in names]),
        np.array([known[name]["prob"] for name in names]),
        np.array([name in hazy for name in names]),
        patients % 2 == 0,
    )


def score(method: str, data: Planted, seed: int) -> Score:
    """One method on one planted slice."""
    first, other = data.first, ~data.first
    label = np.ones(len(data.p))
    begin = time.perf_counter()
    seen = Seen(data.vectors[first], label[first], data.p[first])
    found = discover(method, seen, seed=seed, progress=lambda text: None)
    seconds = time.perf_counter() - begin
    if found.n_slices == 0:
        return Score(np.nan, np.nan, 0.0, np.nan, 0, seconds)
    weights = found.weights(data.vectors, label, data.p)
    code = assign(weights, found.floor)
    size = [max(1, int((first & (code == j)).sum())) for j in range(found.n_slices)]
    right = [int((first & data.hidden & (code == j)).sum()) for j in range(found.n_slices)]
    error = [((1 - data.p) ** 2)[first & (code == j)].sum() / size[j] for j in range(found.n_slices)]
    best = int(np.argmax([2 * r / (s + (first & data.hidden).sum()) for r, s in zip(right, size, strict=True)]))
    inside = other & (code == best)

    def at_10(j: int) -> float:
        top = np.argsort(-weights[other, j], kind="stable")[:10]
        return float(data.hidden[other][top].mean())

    precision = float(data.hidden[inside].mean()) if inside.any() else np.nan
    recall = float(inside[other & data.hidden].mean())
    return Score(at_10(best), precision, recall, at_10(int(np.argmax(error))), found.n_slices, seconds)


def compare() -> None:
    """Print the table of the methods, means over seeds."""
    scores: dict[tuple[str, str], list[Score]] = {}
    for seed in SEEDS:
        for data in planted(seed):
            for method in METHODS:
                scores.setdefault((data.name, method), []).append(score(method, data, seed))
    print(f"means over {len(SEEDS)} draws; a slice that is not found counts with recall 0")
    print("| data | method | slices | precision at 10 | precision | recall | precision at 10 of the worst | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for (name, method), found in scores.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # means of nothing
            mean = Score(*np.nanmean(np.array(found), axis=0).tolist())
        shown = (mean.at_10, mean.precision, mean.recall, mean.worst_at_10, mean.seconds)
        print(f"| {name} | {method} | {mean.n_slices:.1f} | {' | '.join(f'{each:.2f}' for each in shown)} |")


def activations(seed: int = 0) -> np.ndarray:
    """20,000 rows of 128 sigmoids over ten axes with twelve clusters."""
    rng = np.random.default_rng(seed)
    centres, cluster = rng.standard_normal((12, 10)), rng.integers(12, size=MIXTURE_ROWS)
    hidden = rng.standard_normal((MIXTURE_ROWS, 10)) + 2 * centres[cluster]
    line = 0.5 * (hidden @ rng.standard_normal((10, MIXTURE_AXES)) + rng.standard_normal((MIXTURE_ROWS, MIXTURE_AXES)))
    x = 1 / (1 + np.exp(-line))
    return unit_axes(x)(x)


def mixtures(kind: str, rounds: int) -> list[Row]:
    """Ours and scikit-learn's from the same start for the same rounds, then ours until it has converged."""
    from sklearn.mixture import GaussianMixture

    full, floor = kind == "full", FULL_FLOOR if kind == "full" else DIAGONAL_FLOOR
    x = activations()
    rows = prepare(x, full=full)
    first = start(x, COMPONENTS, (0,))
    begun = maximise(rows, first, full=full, floor=floor)
    with one_thread():
        begin = time.perf_counter()
        ours = fit(rows, first, full=full, floor=floor, rounds=rounds, tolerance=-np.inf)
        ours_seconds = time.perf_counter() - begin
        peer = GaussianMixture(
            COMPONENTS, covariance_type=kind, reg_covar=floor, max_iter=rounds - 1, tol=0, weights_init=begun.share,
            means_init=begun.mean,
            precisions_init=np.linalg.inv(begun.covariance) if full else 1 / begun.covariance,
        )  # fmt: skip
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is not to converge
            peer.fit(x)
        peer_seconds = time.perf_counter() - begin
        differ = abs(float(peer.score(x)) - ours.log_likelihood / len(x))
        begin = time.perf_counter()
        done = fit(rows, first, full=full, floor=floor, tolerance=1e-3 if full else 1e-6)
        seconds = time.perf_counter() - begin
    size = f"{COMPONENTS} components, {MIXTURE_ROWS:,} x {MIXTURE_AXES}, {kind}"
    return [
        row(
            f"mixture, {size}, {rounds} rounds", ours_seconds, peer_seconds,
            f"peer: scikit-learn GaussianMixture, same start and rounds; mean log likelihoods differ by {differ:.1e}",
        ),
        row(
            f"mixture, {size}, to the end", seconds, ALLOWED_SECONDS,
            f"{done.rounds} rounds; peer: the limit of two minutes", target=1.0,
        ),
    ]  # fmt: skip


def run() -> list[Row]:
    compare()
    return mixtures("diag", 40) + mixtures("full", 8)
