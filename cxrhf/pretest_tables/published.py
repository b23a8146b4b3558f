"""AUROC as the CONTEXT paper prints them (MIMIC-CXR, its own split, prior discharge notes), for users with the data."""

from __future__ import annotations

from collections.abc import Mapping

# Table -> finding -> test AUROC. A user's split and build differ: something to compare with, no target.
PUBLISHED: Mapping[str, Mapping[str, float]] = {
    "1": {
        "atelectasis": 0.623, "cardiomegaly": 0.701, "consolidation": 0.633, "edema": 0.751,
        "enlarged_cardiomediastinum": 0.566, "fracture": 0.676, "lung_lesion": 0.765, "lung_opacity": 0.628,
        "pleural_effusion": 0.745, "pleural_other": 0.654, "pneumonia": 0.592, "pneumothorax": 0.712,
        "support_devices": 0.682,
    },
    "A.13": {
        "atelectasis": 0.623, "cardiomegaly": 0.688, "consolidation": 0.611, "edema": 0.717,
        "enlarged_cardiomediastinum": 0.573, "fracture": 0.657, "lung_lesion": 0.759, "lung_opacity": 0.617,
        "pleural_effusion": 0.734, "pleural_other": 0.577, "pneumonia": 0.550, "pneumothorax": 0.703,
        "support_devices": 0.681,
    },
    "A.14": {
        "atelectasis": 0.640, "cardiomegaly": 0.712, "consolidation": 0.627, "edema": 0.741,
        "enlarged_cardiomediastinum": 0.574, "fracture": 0.737, "lung_lesion": 0.800, "lung_opacity": 0.626,
        "pleural_effusion": 0.751, "pleural_other": 0.704, "pneumonia": 0.581, "pneumothorax": 0.736,
        "support_devices": 0.675,
    },
}  # fmt: skip


def published(table: str, dataset: str | None) -> Mapping[str, float]:
    """The printed values of a table where the dataset is the paper's; nothing elsewhere."""
    return PUBLISHED.get(table, {}) if (dataset or "").lower().startswith("mimic") else {}
