"""Maps: principal modes as by a decomposition of the rows, UMAP where it is there, and which it was is said."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

from cxrhf.audits.slices import found as maps
from cxrhf.audits.slices.found import modes, plane
from tests.audits.slices.planted import silent


def test_principal_modes() -> None:
    x = np.random.default_rng(0).standard_normal((80, 5)) * [3, 2, 1, 0.5, 0.1] + 4
    found = modes(x, 2)(x)
    _, _, axes = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    expected = (x - x.mean(axis=0)) @ axes[:2].T
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-9)
    np.testing.assert_allclose(modes(x[::-1], 2)(x), found, atol=1e-9)  # and of the same sign
    assert modes(x, 9)(x).shape == (80, 5)


def test_without_umap_principal_modes_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "find_spec", lambda name: None)
    x = np.random.default_rng(0).standard_normal((80, 5))
    found = plane(x, seed=0, progress=silent)
    assert found.about == "umap-learn is not installed: two principal modes instead"
    assert plane(x, seed=0, progress=silent, wanted="scvis").about.startswith("scvis and UMAP are not installed")
    np.testing.assert_allclose(found.project(x), modes(x, 2)(x))
    assert plane(x[:, :2], seed=0, progress=silent).about.startswith("no map")


def test_umap_where_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in with UMAP's face: it is seeded, sees even scales, and maps other rows with what it was fitted to."""

    class UMAP:
        def __init__(self, **options: int) -> None:
            assert (options["n_components"], options["random_state"], options["n_jobs"]) == (2, 3, 1)

        def fit(self, x: np.ndarray) -> None:
            assert (x**2).mean() == pytest.approx(1)

        def transform(self, x: np.ndarray) -> np.ndarray:
            return x[:, :2].astype(np.float32)

    module = ModuleType("umap")
    module.UMAP = UMAP  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "umap", module)
    monkeypatch.setattr(maps, "find_spec", lambda name: name)
    x = 9 * np.random.default_rng(0).standard_normal((80, 5))
    found = plane(x, seed=3, progress=silent)
    assert found.about == "UMAP to 2 axes"
    assert found.project(x).dtype == np.float64
    assert plane(x, seed=3, progress=silent, wanted="scvis").about == "UMAP to 2 axes instead of scvis"
    few = plane(np.repeat(x[:3], 20, axis=0), seed=3, progress=silent)
    assert few.about == "too few different embeddings for UMAP: two principal modes instead"
