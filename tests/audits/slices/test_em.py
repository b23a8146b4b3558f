"""EM: the same as scikit-learn's from the same start, with kinds as by the definition, small components dropped."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from cxrhf.audits.slices import mixture as em
from cxrhf.audits.slices.mixture import fit, maximise, prepare, start, unit_axes


def blobs(n: int = 400, d: int = 3, k: int = 3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = (
        rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
        + 2 * rng.standard_normal((k, d))[rng.integers(k, size=n)]
    )
    return unit_axes(x)(x)


@pytest.mark.parametrize("kind", ["diag", "full"])
@pytest.mark.parametrize("few_axes", [0, 8])
def test_as_scikit_learn(kind: str, few_axes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to handle full covariances: by products of axes, and one component after the other."""
    from sklearn.mixture import GaussianMixture

    monkeypatch.setattr(em, "FEW_AXES", few_axes)
    x, full = blobs(), kind == "full"
    rows = prepare(x, full=full)
    assert (rows.products is None) == (full and few_axes == 0)
    first = start(x, 4, (0,))
    begun = maximise(rows, first, full=full, floor=1e-4)
    ours = fit(rows, first, full=full, floor=1e-4, rounds=20, tolerance=-np.inf)
    precision = np.linalg.inv(begun.covariance) if full else 1 / begun.covariance
    peer = GaussianMixture(
        4, covariance_type=kind, reg_covar=1e-4, max_iter=19, tol=0, weights_init=begun.share, means_init=begun.mean,
        precisions_init=precision,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer.fit(x)
    belonging, log_likelihood = ours.belonging(rows)
    np.testing.assert_allclose(ours.mean, peer.means_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ours.covariance, peer.covariances_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(belonging, peer.predict_proba(x), atol=1e-7)
    np.testing.assert_allclose(log_likelihood, peer.score_samples(x), atol=1e-7)
    assert ours.log_likelihood == pytest.approx(peer.score(x) * len(x))
    assert ours.bic(len(x)) == pytest.approx(peer.bic(x))


def test_kinds_are_a_categorical_that_counts_several_times() -> None:
    x = blobs(200, 2)
    p = np.random.default_rng(1).random(200)
    rows = prepare(x, full=False, kinds=np.column_stack([1 - p, p]), kind_weight=10.0)
    found = fit(rows, start(x, 3, (0,)), full=False, floor=1e-3, rounds=15)
    assert found.kinds is not None
    slow = np.array(
        [
            [
                np.log(share)
                + multivariate_normal(mean, np.diag(variance)).logpdf(row)
                + 10 * ((1 - q) * np.log(no) + q * np.log(yes))
                for share, mean, variance, (no, yes) in zip(
                    found.share, found.mean, found.covariance, found.kinds, strict=True
                )
            ]
            for row, q in zip(x, p, strict=True)
        ]
    )
    np.testing.assert_allclose(found.log_joint(rows), slow, atol=1e-9)
    np.testing.assert_allclose(found.kinds.sum(axis=1), 1)
    assert np.ptp(found.kinds[:, 1]) > 0.3  # ten times the prediction: components differ in it


def test_every_round_is_likelier() -> None:
    x = blobs(seed=3)
    rows, first = prepare(x, full=False), start(x, 5, (1,))
    likelihoods = [
        fit(rows, first, full=False, floor=1e-6, rounds=rounds, tolerance=-np.inf).log_likelihood
        for rounds in range(1, 15)
    ]
    assert np.all(np.diff(likelihoods) > -1e-6)


def test_small_components_are_dropped() -> None:
    x = np.r_[blobs(300, 2), np.full((4, 2), 9.0)]
    rows, first = prepare(x, full=False), start(x, 6, (0,))
    kept = fit(rows, first, full=False, floor=1e-3, least=0)
    assert (kept.share * len(x)).min() < 10
    dropped = fit(rows, first, full=False, floor=1e-3, least=10)
    assert len(dropped.share) < len(kept.share)
    assert (dropped.share * len(x)).min() >= 10
    assert dropped.share.sum() == pytest.approx(1)


def test_a_start_has_no_more_centres_than_different_rows() -> None:
    assert start(np.repeat([[0.0], [1.0]], 20, axis=0), 5, (0,)).shape == (40, 2)
    x = blobs(6_000, 2)
    assert start(x, 3, (0,)).sum(axis=1).tolist() == [1.0] * 6_000  # k-means on some, all rows belong


def test_axes_of_one_value_stay_at_nothing() -> None:
    x = np.column_stack([np.arange(5.0), np.full(5, 7.0)])
    scale = unit_axes(x)
    np.testing.assert_allclose(scale(x).std(axis=0), [1, 0])
    assert scale(np.array([[0.0, 9.0]]))[0, 1] == 0
