"""One of two processes that share the rows of every evaluate module: `python -m tests.metric_process CACHE RANK`."""

from __future__ import annotations

import json
import sys

import evaluate

import cxrhf
from tests.metric_cases import CASES, case


def main() -> None:
    cache, rank = sys.argv[1], int(sys.argv[2])
    found = {}
    for name in sorted(CASES):
        module = evaluate.load(
            cxrhf.metric_path(name), num_process=2, process_id=rank, experiment_id="two", cache_dir=cache
        )
        data = {key: value[rank::2] for key, value in case(name).items()}
        for start, stop in ((0, 40), (40, None)):
            module.add_batch(**{key: value[start:stop] for key, value in data.items()})
        found[name] = module.compute(n_resamples=50)
    if rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
