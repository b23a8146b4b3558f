"""Small drawn pictures with labels that can be seen in them, and what a training needs to learn them in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from cxrhf.models.backbone import make_model
from cxrhf.models.data import Images, Look, Task, make_tasks, names, open_squares, targets
from cxrhf.models.processes import make_accelerator
from cxrhf.models.settings import TrainConfig
from cxrhf.models.train import Material, Trained, fit

LOOK = Look(size=32, fit="squash", pixels="half", channels=1)
FINDINGS = ["edema", "fracture"]


@dataclass(frozen=True)
class Drawn:
    """Grey levels in memory; picklable, as worker processes need it."""

    grey: np.ndarray

    def __len__(self) -> int:
        return len(self.grey)

    def __getitem__(self, row: int) -> np.ndarray:
        return self.grey[row]


def images(n: int = 96, seed: int = 0, *, side: int = 32, unknown: float = 0.2, split: str = "train") -> Images:
    """Edema brightens the left, fracture the right, women the lower edge; three images a patient."""
    rng = np.random.default_rng(seed)
    patient = np.arange(n) // 3
    edema, fracture = (rng.random(n) < 0.4).astype(int), (rng.random(n) < 0.3).astype(int)
    female = (rng.random(n)[patient * 3] < 0.5).astype(int)
    grey = rng.normal(90, 20, (n, side, side))
    grey[:, : side // 2, : side // 2] += 60 * edema[:, None, None]
    grey[:, : side // 2, side // 2 :] += 60 * fracture[:, None, None]
    grey[:, side - 6 :] += 60 * female[:, None, None]
    table = pa.table(
        {
            "image_id": [f"{split}{k}" for k in range(n)],
            "study_id": [f"{split}s{k}" for k in range(n)],
            "patient_id": [f"{split}p{k}" for k in patient],
            "dataset": ["drawn"] * n,
            "split": [split] * n,
            "view": np.where(rng.random(n) < 0.5, "AP", "PA"),
            "age": rng.uniform(20, 90, n),
            "sex": np.where(female == 1, "F", "M"),
            "race": np.where(rng.random(n)[patient * 3] < 0.5, "Black", "White"),
            "edema": pa.array(edema, pa.int8(), mask=rng.random(n) < unknown),
            "fracture": pa.array(fracture, pa.int8(), mask=rng.random(n) < unknown),
        }
    )
    return Images(table, Drawn(np.clip(grey, 0, 255).astype(np.uint8)))


def config(**changes: object) -> TrainConfig:
    """Settings of a training of seconds."""
    base = {
        "backbone": "test_resnet", "weights": "random", "channels": 1, "pixels": "half", "size": 32, "fit": "squash",
        "batch_size": 16, "epochs": 2, "learning_rate": 0.003, "workers": 0, "device": "cpu",
    }  # fmt: skip
    return TrainConfig("nowhere", **(base | changes))  # type: ignore[arg-type]


def material(
    n: int = 96, *, seed: int = 0, tasks: tuple[str, ...] = ("findings",), validate: bool = True
) -> tuple[Material, list[Task]]:
    train, held = images(n, seed), images(48, seed + 1, split="validate")
    made, _ = make_tasks(train.table, tasks, FINDINGS)
    squares = open_squares(train, LOOK, memory=1, progress=lambda _: None)
    other = open_squares(held, LOOK, memory=1, progress=lambda _: None)
    goal = targets(train.table, made)
    return Material(train.ids, squares, goal, made, (other, targets(held.table, made)) if validate else None), made


def trained(folder: Path, settings: TrainConfig, what: Material, *, key: str = "k", **options: object) -> Trained:
    model = make_model(
        settings.backbone, len(names(what.tasks)), channels=1, seed=settings.seed, size=settings.size,
        drop_rate=settings.drop_rate, drop_path=settings.drop_path,
    )  # fmt: skip
    return fit(
        model, what, settings, seed=settings.seed, accelerator=make_accelerator(device="cpu"),
        folder=folder / "checkpoints", history=folder / "history.jsonl", key=key, progress=lambda _: None, **options,
    )  # fmt: skip
