"""A made-up hospital with pictures, built once for all tests of image models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cxrhf.config_build import BuildConfig
from cxrhf.data.build import build


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All images of 90 patients, 64 pixels, in three splits."""
    folder = tmp_path_factory.mktemp("twin") / "built"
    build(BuildConfig("synthetic", out=str(folder), n_patients=90, seed=3, size=64, configuration="images"))
    return folder
