"""All audits of one model at the size of CONTEXT's test set: seconds against the limit, and against scikit-learn.

The peer computes only the AUROC, the least of what the audits compute, in a plain loop over resampled patients; its
time is measured on a few replicates and scaled up.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from benchmarks.rows import Row, row

IMAGES, FINDINGS, RESAMPLES = 20_770, 13, 2_000
PEER_REPLICATES = 3
LIMIT = 120.0


def predictions(images: int = IMAGES, findings: int = FINDINGS, seed: int = 0) -> pa.Table:
    """A PREDICTION table with everything an audit can use: context, mentions, groups."""
    from cxrhf.schema import PREDICTION
    from cxrhf.tables.checks import check
    from cxrhf.twin.planted import context_of, patients_of

    rng = np.random.default_rng(seed)
    patient = patients_of(images, (1, 8), rng)
    people = int(patient.max()) + 1
    shared = {
        "image_id": [f"i{at}" for at in range(images)],
        "patient_id": [f"p{each}" for each in patient],
        "dataset": ["bench"] * images,
        "model": ["net"] * images,
        "age": rng.uniform(18, 95, people)[patient],
        "sex": rng.choice(["F", "M"], people)[patient],
        "race": rng.choice(["White", "Black", "Asian"], people, p=[0.78, 0.15, 0.07])[patient],
        "view": rng.choice(["AP", "PA"], images),
    }
    parts = []
    for at in range(findings):
        made = context_of(patient, rng, pi=0.03 + 0.3 * at / findings, m=1.0, g=0.8, eta=0.4, d0=1.5)
        columns = shared | {
            "finding": [f"finding_{at}"] * images,
            "label": made.y.astype(np.int8),
            "prob": made.prob,
            "pretest": made.pretest,
            "mention": made.context > 0.6,
        }
        parts.append(check(pa.table(columns), PREDICTION))
    return pa.concat_tables(parts)


def run() -> list[Row]:
    from sklearn.metrics import roc_auc_score

    from cxrhf.audits.plan import AUDITS, run_audits
    from cxrhf.settings import AuditConfig
    from cxrhf.tables.checks import arrays

    run_audits(predictions(300, 2), AuditConfig(predictions=("warm up",), n_resamples=20))
    table = predictions()
    seconds: dict[str, float] = {}
    for name in AUDITS[:-1]:  # the last compares models, and there is one
        start = time.perf_counter()
        run_audits(table, AuditConfig(predictions=("bench",), n_resamples=RESAMPLES, only=(name,)))
        seconds[name] = time.perf_counter() - start
    start = time.perf_counter()
    run_audits(table, AuditConfig(predictions=("bench",), n_resamples=RESAMPLES))
    ours = time.perf_counter() - start

    data, rng = arrays(table), np.random.default_rng(0)
    rows = [np.flatnonzero(data.patients == each) for each in range(len(data.patient_ids))]
    start = time.perf_counter()
    for _ in range(PEER_REPLICATES):
        at = np.concatenate([rows[each] for each in rng.integers(0, len(rows), len(rows))])
        for k in range(FINDINGS):
            roc_auc_score(data.y[at, k], data.p[at, k])
    peer = (time.perf_counter() - start) / PEER_REPLICATES * RESAMPLES
    parts = ", ".join(f"{name} {each:.1f} s" for name, each in seconds.items())
    size = f"{IMAGES:,} images x {FINDINGS} findings x {RESAMPLES:,} resamples"
    note = f"peer: the AUROC alone with scikit-learn, from {PEER_REPLICATES} replicates; each alone: {parts}"
    return [
        row(f"all audits, {size}", ours, peer, note),
        row(
            f"  the same against its limit of {LIMIT:g} s (on 2 cores)", ours, LIMIT,
            "the limit is our own, not a peer", ratio=ours / LIMIT, target=1.0, at_most=True,
        ),
    ]  # fmt: skip
