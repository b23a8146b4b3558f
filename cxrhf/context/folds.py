"""Labels and patients -> folds for cross-validation: patients whole, labels spread evenly."""

from __future__ import annotations

import numpy as np

from cxrhf.context.parts import Flags, Floats, Integers
from cxrhf.errors import ConfigError


def deal(y: Floats, patients: Integers, learn: Flags, folds: int, seed: int) -> Integers:
    """The fold of each learning image, -1 elsewhere: patients whole, labels spread evenly, both classes in every fold.

    Patients without any label go round in turn. Numbers of patients count, the order of rows does not. Fewer patients
    with or without the finding than folds is an error (`too_few` says so beforehand).
    """
    from sklearn.model_selection import StratifiedGroupKFold

    who, of = np.unique(patients[learn], return_inverse=True)
    labels = y[learn]
    known = np.flatnonzero(~np.isnan(labels))
    known = known[np.lexsort((labels[known], of[known]))]
    has = np.zeros((len(who), 2), dtype=bool)  # patients x (without, with)
    has[of[known], labels[known].astype(np.int64)] = True
    if (has.sum(axis=0) < folds).any():
        raise ConfigError(
            "--folds",
            got=f"{folds} folds for {has[:, 1].sum():,} patients with the finding and {has[:, 0].sum():,} without",
            allowed="no more folds than patients with the finding and patients without it",
            next_step="use fewer folds",
        )
    place = np.full(len(who), -1)
    cuts = StratifiedGroupKFold(folds, shuffle=True, random_state=seed % 2**32)
    for at, (_, held) in enumerate(cuts.split(known, labels[known], of[known])):
        place[of[known[held]]] = at
    _mend(place, has, np.bincount(of, minlength=len(who)), folds)
    rest = np.flatnonzero(place < 0)
    place[rest] = np.arange(len(rest)) % folds
    fold = np.full(len(y), -1, dtype=np.int64)
    fold[learn] = place[of]
    return fold


def _mend(place: Integers, has: Flags, size: Integers, folds: int) -> None:
    """Give a class to folds that lack it: the smallest patient that its own fold can spare, from the fold with most."""
    for _ in range(4 * folds):
        count = np.array([np.bincount(place[one & (place >= 0)], minlength=folds) for one in has.T])
        lacking = np.argwhere(count == 0)
        if not len(lacking):
            return
        label, fold = lacking[0]
        spare = has[:, label] & (place >= 0) & (count[:, place] > has.T).all(axis=0)
        if not spare.any():
            return
        found = np.flatnonzero(spare)
        place[found[np.lexsort((found, size[found], -count[label, place[found]]))[0]]] = fold
