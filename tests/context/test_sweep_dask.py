"""The same search on a Dask cluster of two worker processes, through joblib: the same numbers, and it ran there."""

from __future__ import annotations

import os
import time

import joblib
import pytest

from cxrhf.context.sweep import spread, sweep_candidates
from tests.context.test_sweep import planted, same


@pytest.mark.slow
def test_a_cluster_of_two_workers():
    import distributed

    family, data = planted()
    alone = sweep_candidates(family, data, seed=1, workers=1)
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    )
    with cluster, distributed.Client(cluster):
        said: list[str] = []
        with joblib.parallel_config(backend="dask"):
            there = sweep_candidates(family, data, seed=1, progress=said.append)
            pids = {pid for _, pid in spread(_pid, [(at,) for at in range(6)], workers=None)}
    assert same(there, alone)
    assert len(said) == len(family.candidates)
    assert len(pids) == 2
    assert os.getpid() not in pids


def _pid(at: int) -> int:
    time.sleep(0.1)
    return os.getpid()
