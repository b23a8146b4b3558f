"""One of two processes that share the rows of every evaluate module: `python -m tests.metric_process CACHE RANK`."""

from __future__ import annotations

import json
import sys
from typing import Any

import cxrhf
from tests.metric_cases import CASES, TEXTS, case


def forms(name: str) -> tuple[str, ...]:
    """Every input, only those that are required, and several labels with only those."""
    return ("all", "least") if name in TEXTS else ("all", "least", "labels")


def inputs(name: str, form: str, required: tuple[str, ...]) -> dict[str, Any]:
    data = case(name, labels=3 if form == "labels" else 1)
    return data if form == "all" else {key: data[key] for key in required}


def main() -> None:
    import tests.without_transformers  # noqa: F401, I001  before evaluate
    import evaluate

    cache, rank = sys.argv[1], int(sys.argv[2])
    found = {}
    for name in sorted(CASES):
        module = evaluate.load(
            cxrhf.metric_path(name), num_process=2, process_id=rank, experiment_id="two", cache_dir=cache
        )
        for form in forms(name):
            data = {key: value[rank::2] for key, value in inputs(name, form, module.required).items()}
            for start, stop in ((0, 40), (40, None)):
                module.add_batch(**{key: value[start:stop] for key, value in data.items()})
            found[f"{name}, {form}"] = module.compute(n_resamples=50)
    if rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
