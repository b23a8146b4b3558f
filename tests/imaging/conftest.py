"""A made-up hospital with pictures, built once for all tests of image models."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from cxrhf.data.build import build
from cxrhf.data.settings import BuildConfig


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All images of 90 patients, 64 pixels, in three splits. Drawn by the first process that needs it; read only."""
    several = "PYTEST_XDIST_WORKER" in os.environ
    base = tmp_path_factory.getbasetemp().parent if several else tmp_path_factory.getbasetemp()
    folder = base / "twin-of-images" / "built"
    with FileLock(base / "twin-of-images.lock"):
        if not (folder / "build.json").is_file():
            build(BuildConfig("synthetic", out=str(folder), n_patients=90, seed=3, size=64, configuration="images"))
    return folder
