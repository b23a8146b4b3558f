"""Vectors of one class -> slices by SLICES' own way: a mixture of Gaussians, its number of components by BIC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from cxrhf.audits.sample import Progress
from cxrhf.audits.slices.em import (
    DIAGONAL_FLOOR,
    FULL_FLOOR,
    ROUNDS,
    TOLERANCE,
    Mixture,
    Rows,
    components_text,
    fit,
    prepare,
    start,
    unit_axes,
)
from cxrhf.audits.slices.found import Found, Seen, least_rows, nothing, ticker

# Components that are tried. SLICES' code has 4 to 16 in steps of 2; fewer are added. 1 is not: by BIC a class of some
# hundred images is one cloud, and D2's slice, which two components find, would never be looked at.
COMPONENTS = (2, 3, 4, 6, 8, 10, 12, 14, 16)
PAPER_COMPONENTS = (4, 6, 8, 10, 12, 14, 16)
PAPER_ROUNDS, PAPER_TOLERANCE = 100, 1e-3  # what SLICES' code leaves as scikit-learn has it
STARTS = 3
SHORT = 25  # rounds of EM after which the best start is chosen
SEARCH_ROWS = 4_000  # rows on which the number of components is chosen; all rows then fit that many


@dataclass(frozen=True, slots=True)
class Choice:
    """The mixture with the best BIC, and the BIC of every number of components that was tried."""

    mixture: Mixture
    tried: dict[int, float]


def by_bic(
    rows: Rows,
    components: Sequence[int],
    *,
    full: bool,
    floor: float,
    least: float,
    starts: int,
    seed: int,
    progress: Progress,
    patience: int | None = 2,
    rounds: int = ROUNDS,
    tolerance: float = TOLERANCE,
) -> Choice:
    """Fit every number of components; the search ends once `patience` in a row were worse than the best.

    Of several starts the one with the best likelihood after some rounds is followed to the end.
    """
    tick, n = ticker(progress), len(rows.vectors)
    best: Mixture | None = None
    tried: dict[int, float] = {}
    worse = 0
    for k in components:
        if best is not None and k * max(least, 2) > n:
            break
        run = partial(fit, rows, full=full, floor=floor, tolerance=tolerance)
        first = start(rows.vectors, k, (seed, k, 0))
        if starts > 1:
            shorts = [
                run(start(rows.vectors, k, (seed, k, s)), rounds=SHORT, tick=_after(f"k = {k}, start {s + 1}", tick))
                for s in range(starts)
            ]
            first = max(shorts, key=lambda each: each.log_likelihood).belonging(rows)[0]
        found = run(first, least=least, rounds=rounds, tick=_after(f"k = {k}", tick))
        tried[k] = found.bic(n)
        if best is None or tried[k] < best.bic(n):
            best, worse = found, 0
        else:
            worse += 1
        if worse == patience:
            break
    assert best is not None, "components is empty"
    return Choice(best, tried)


def _after(said: str, tick: Progress) -> Progress:
    return lambda text: tick(f"{said}: {text}")


def mixture(seen: Seen, *, seed: int, recipe: str, progress: Progress) -> Found:
    """Gaussians with diagonal covariances; with the recipe `paper` full ones, 4 to 16, one start, no least size."""
    paper = recipe == "paper"
    scale = unit_axes(seen.vectors)
    x = scale(seen.vectors)
    n, d = x.shape
    least = 2 if paper else least_rows(n)
    components = PAPER_COMPONENTS if paper else COMPONENTS
    floor, searched = FULL_FLOOR if paper else DIAGONAL_FLOOR, x
    if n > SEARCH_ROWS and not paper:
        searched = x[np.sort(np.random.default_rng([seed, 223]).choice(n, SEARCH_ROWS, replace=False))]
    choice = by_bic(
        prepare(searched, full=paper), components, full=paper, floor=floor,
        least=2 if paper else least_rows(len(searched)), starts=1 if paper else STARTS, seed=seed, progress=progress,
        patience=None if paper else 2, rounds=PAPER_ROUNDS if paper else ROUNDS,
        tolerance=PAPER_TOLERANCE if paper else TOLERANCE,
    )  # fmt: skip
    best = choice.mixture
    if len(searched) < n:
        rows = prepare(x, full=paper)
        tick = _after(f"all {n:,} rows", ticker(progress))
        best = fit(rows, best.belonging(rows)[0], full=paper, floor=floor, least=least, tick=tick)
    k = len(best.share)
    about = (
        f"Gaussian mixture with {'full' if paper else 'diagonal'} covariances: {components_text(k)} by BIC, tried "
        f"{', '.join(map(str, choice.tried))}{f' on {len(searched):,} of the rows' if len(searched) < n else ''}, "
        f"{1 if paper else STARTS} start{'' if paper else 's'} each, at least {least} rows a component"
    )
    if k == max(components):
        about += ", the largest number tried, so more might be better"
    if paper and (thin := int((best.share * n <= d).sum())):
        about += f"; {thin} have no more rows than dimensions, so their covariances depend on the regularisation"
    if k == 1:
        return nothing(f"{about}: the embeddings of this class form no clusters")
    return Found(lambda vectors, y, p: best.belonging(prepare(scale(vectors), full=paper))[0], k, 0.0, about)
