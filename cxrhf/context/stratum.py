"""Images without prior notes -> a pre-test probability all the same: the share of positives among such images.

Known gap: learning images get the share of the other folds, which is a little lower where their own fold has more
positives; folds are dealt so that this is next to nothing.
"""

from __future__ import annotations

import numpy as np

from cxrhf.config_context import ContextFitConfig
from cxrhf.context.material import Material
from cxrhf.context.parts import Flags, Floats


def without_notes(
    material: Material, finding: int, learn: Flags, config: ContextFitConfig
) -> tuple[Floats, float, str | None]:
    """Pre-test probability of images without prior notes, a stratum of its own: its share of positives in training.

    Half a made-up image of each class keeps it from 0 and 1. Learning images get the share of the other folds (whole
    patients, positives spread evenly), so none is told its own label. Returns the probability of every image (NaN where
    there are notes), the share for images that were not learned from, and why there is none, if so.
    """
    probability = np.full(len(material.noted), np.nan)
    y, alone = material.y[:, finding], ~material.noted
    learned = alone & learn
    known = learned & ~np.isnan(y)
    count = len(np.unique(material.patients[known]))
    if count < config.needed():
        several = "s" * (count != 1)
        reason = f"{count} patient{several} with a label and no prior note; at least {config.needed()} are required"
        return probability, np.nan, reason
    who, of = np.unique(material.patients[learned], return_inverse=True)
    positive = np.bincount(of, np.nan_to_num(y[learned]), minlength=len(who)) > 0
    chance = np.random.default_rng(config.seed).random(len(who))
    place = np.empty(len(who), dtype=np.int64)
    place[np.lexsort((chance, positive))] = np.arange(len(who)) % config.folds
    fold = np.full(len(y), -1)
    fold[learned] = place[of]

    def share(rows: Flags) -> float:
        return float((np.sum(y[rows] == 1) + 0.5) / (rows.sum() + 1))

    probability[alone] = share(known)
    for each in range(config.folds):
        probability[fold == each] = share(known & (fold != each))
    return probability, share(known), None
