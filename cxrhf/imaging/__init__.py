"""A build and settings -> image models, predictions, embeddings, probes: what the commands and Python share.

`train("data/twin", config="quick", out="runs/quick")`, then `predict("runs/quick")`; both are also `cxrhf.train` and
`cxrhf.predict`. Here builds are opened and runs are written; the networks themselves are in cxrhf/models.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from cxrhf.imaging.predicting import Written
    from cxrhf.imaging.training import TrainedRun

C = TypeVar("C")
Progress = Callable[[str], None]


def train(
    build: str | Path, *, config: str | None = None, progress: Progress | None = None, **options: Any
) -> TrainedRun | None:
    """Train on a build: `config` is a recipe or a YAML file, `options` are those of `cxrhf train` with underscores."""
    from cxrhf.config_train import TrainConfig
    from cxrhf.imaging.training import train_run

    return train_run(_settings(TrainConfig, {"build": build, **options}, config), progress or _silent)


def predict(run: str | Path, *, progress: Progress | None = None, **options: Any) -> Written | None:
    """Predictions of a trained run, as `cxrhf predict` writes them."""
    from cxrhf.config_models import PredictConfig
    from cxrhf.imaging.predicting import predict_run

    return predict_run(_settings(PredictConfig, {"run": run, **options}, None), progress or _silent)


def _settings(kind: type[C], given: dict[str, Any], recipe: str | None) -> C:
    from cxrhf.config import from_mapping, load_mapping

    base = load_mapping(recipe) if recipe else {}
    plain = {key: str(value) if isinstance(value, Path) else value for key, value in given.items()}
    return from_mapping(kind, {**base, **plain}, source="settings")


def _silent(_: str) -> None:
    pass
