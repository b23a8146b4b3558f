"""Honest evaluation of chest X-ray models.

Importing this package loads nothing heavy: names below are fetched when first used, so that `import cxrhf`
and `cxrhf --help` answer at once.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_LAZY = {
    "audit": ("cxrhf.audits.run", "audit"),
    "builder_path": ("cxrhf.paths", "builder_path"),
    "calibrate": ("cxrhf.learn", None),
    "fit_context": ("cxrhf.context.run", "fit_context"),
    "load_context": ("cxrhf.context.run", "load_context"),
    "metric_path": ("cxrhf.paths", "metric_path"),
    "metrics": ("cxrhf.metrics", None),
    "predict": ("cxrhf.models.train_run", "predict"),
    "schema": ("cxrhf.schema", None),
    "read_predictions": ("cxrhf.tables.predictions", "read_predictions"),
    "train": ("cxrhf.models.train_run", "train"),
}

__all__ = [
    "__version__", "audit", "builder_path", "calibrate", "fit_context", "load_context", "metric_path", "metrics",
    "predict", "read_predictions", "schema", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        from cxrhf.cli import VERBS

        command = f" The command line has `cxrhf {name}`." if name in VERBS else ""
        raise AttributeError(f"module 'cxrhf' has no attribute {name!r}, only {', '.join(__all__)}.{command}")
    module, attribute = _LAZY[name]
    loaded = importlib.import_module(module)
    found: Any = loaded if attribute is None else getattr(loaded, attribute)
    if name in ("audit", "fit_context", "load_context", "predict", "train"):
        from cxrhf.errors import in_python

        found = in_python(found)  # errors name arguments, where those of a command name flags
        found.__module__ = __name__  # where pickle finds it, for worker processes
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return list(__all__)
