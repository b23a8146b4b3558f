"""Seed -> a PREDICTION table of two models in which nothing is to be found: context, groups and models make no odds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cxrhf.twin.planted import context_of, patients_of, shared_noise
from tests.audits.tables import block

PREVALENCES = (0.2, 0.35, 0.12)


def null_table(seed: int, n: int = 2500) -> pa.Table:
    """D1 with g = eta = 0: what the chart knows says nothing about the score beyond the label.

    Sex, race, age and view are drawn at random; both models see the same signal, each with its own noise.
    """
    rng = np.random.default_rng([seed, 11])
    patient = patients_of(n, (1, 4), rng)
    people = int(patient.max()) + 1
    groups = {
        "sex": rng.choice(["F", "M"], people)[patient],
        "race": rng.choice(["A", "B", "C"], people, p=[0.6, 0.25, 0.15])[patient],
        "view": rng.choice(["AP", "PA"], n),
        "age": rng.uniform(20, 90, people)[patient],
    }
    blocks = []
    for at, pi in enumerate(PREVALENCES):
        made = context_of(patient, rng, pi=pi, m=1.0, g=0.0, eta=0.0, d0=1.5)
        for model in ("first", "second"):
            score = 1.5 * made.y + shared_noise(patient, 0.5, rng)
            prob = 1 / (1 + np.exp(-(1.5 * score - 1.125 + np.log(pi / (1 - pi)))))
            columns = {"prob": prob, "pretest": made.pretest, "mention": made.context > 0.6, **groups}
            blocks.append(block(f"finding_{at}", made.y, patient, model=model, **columns))
    return pa.concat_tables(blocks)
