"""Images without notes get the share of positives among such images, never of their own fold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse

from cxrhf.context.fit import without_notes
from cxrhf.context.material import Material
from cxrhf.context.settings import ContextFitConfig
from cxrhf.metrics import auroc


def made(seed: int, share: float = 0.3, n_patients: int = 200) -> tuple[Material, np.ndarray]:
    rng = np.random.default_rng(seed)
    patients = np.repeat(np.arange(n_patients), rng.integers(1, 5, n_patients))
    n = len(patients)
    noted = rng.random(n) < 0.5
    y = (rng.random((n, 1)) < share).astype(float)
    y[rng.random(n) < 0.1] = np.nan
    empty = sparse.csr_array((n, 0))
    return Material(
        pa.table({}), ("edema",), y, patients, empty, pa.table({}), noted, np.zeros(n), empty
    ), patients < 150


def config(**more: Any) -> ContextFitConfig:
    return ContextFitConfig("build", no_note="stratum", **more)


def test_images_without_notes_get_their_share():
    material, learn = made(0)
    p, share, why = without_notes(material, 0, learn, config())
    assert why is None
    assert np.isnan(p[material.noted]).all()
    assert not np.isnan(p[~material.noted]).any()
    mine = ~material.noted & learn & ~np.isnan(material.y[:, 0])
    assert share == pytest.approx((material.y[mine, 0].sum() + 0.5) / (mine.sum() + 1))
    assert (p[~material.noted & ~learn] == share).all()
    assert len(np.unique(p[~material.noted & learn])) <= 5
    assert p[~material.noted & learn] == pytest.approx(share, abs=0.05)
    assert auroc(material.y[mine, 0], p[mine]) > 0.35  # lower shares where there are more: unavoidable, small


def test_no_label_of_a_fold_is_in_its_share():
    material, learn = made(3)
    y, patients = material.y.copy(), material.patients
    p, *_ = without_notes(material, 0, learn, config())
    alone = ~material.noted & learn
    groups = np.unique(p[alone])
    assert len(groups) == 5
    for value in groups:
        mine = alone & (p == value)
        changed = y.copy()
        # Among the positive images, so that the patients are dealt alike: the labels of one more image of a patient.
        rows = np.flatnonzero(mine & np.isin(patients, patients[mine & (y[:, 0] == 1)]) & (y[:, 0] == 0))
        assert len(rows)
        changed[rows, 0] = 1.0
        other, *_ = without_notes(replace(material, y=changed), 0, learn, config())
        assert np.array_equal(other[mine], p[mine])
        assert not np.array_equal(other[alone & ~mine], p[alone & ~mine])
    flipped = np.where(learn[:, None], y, 1 - y)
    assert np.array_equal(without_notes(replace(material, y=flipped), 0, learn, config())[0], p, equal_nan=True)
    noted = np.where(material.noted[:, None], 1 - y, y)
    assert np.array_equal(without_notes(replace(material, y=noted), 0, learn, config())[0], p, equal_nan=True)


def test_few_patients_without_notes_have_none():
    material, learn = made(2, n_patients=40)
    p, share, why = without_notes(material, 0, learn & (material.patients < 15), config())
    assert np.isnan(p).all()
    assert np.isnan(share)
    assert why is not None
    assert why.endswith("no prior note; at least 20 are required")
    p, share, why = without_notes(material, 0, np.ones(len(learn), dtype=bool), config(min_patients=5))
    assert why is None
    never, *_ = without_notes(
        replace(material, y=np.zeros_like(material.y)), 0, np.ones(len(learn), dtype=bool), config()
    )
    assert ((never[~material.noted] > 0) & (never[~material.noted] < 0.05)).all()
