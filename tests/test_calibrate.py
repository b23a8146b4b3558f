"""Calibrated scores are those of scikit-learn where they should be, right on fresh data, and never certain."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.special import expit, logit

from cxrhf.errors import ConfigError
from cxrhf.learn import LEAST, Calibrator, apply_calibrator, fit_calibrator, fit_temperature, platt, rescale_calibrator
from cxrhf.metrics import adaptive_calibration_error, auroc, brier, calibration_line, expected_ace
from cxrhf.metrics.checks import InputError
from tests.refusals import refused

METHODS = ("platt", "isotonic")  # of any score; a temperature needs log odds
EVERY = (*METHODS, "temperature")


def drawn(seed: int, n: int, slope: float = 0.7, shift: float = -1.5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    score = 2 * rng.standard_normal(n) + 1
    p = expit(slope * score + shift)
    return score, (rng.random(n) < p).astype(float), p


@pytest.mark.parametrize("n", [40, 300, 5000])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_platt_is_that_of_scikit_learn(n, scale):
    from sklearn.calibration import _SigmoidCalibration

    score, y, _ = drawn(n, n)
    weight = np.random.default_rng(1).integers(0, 4, n).astype(float)
    for given in (None, weight):
        theirs = _SigmoidCalibration().fit(score * scale, y, given)
        ours = fit_calibrator(score * scale, y, "platt", given)
        assert apply_calibrator(ours, score * scale) == pytest.approx(theirs.predict(score * scale), abs=1e-5)


def test_platt_is_that_of_a_calibrated_classifier():
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator
    from sklearn.svm import LinearSVC

    rng = np.random.default_rng(0)
    x = rng.standard_normal((600, 5))
    y = (rng.random(600) < expit(x @ [1, -1, 0.5, 0, 0])).astype(float)
    model = LinearSVC(C=0.1).fit(x[:300], y[:300])
    theirs = CalibratedClassifierCV(FrozenEstimator(model), method="sigmoid").fit(x[300:], y[300:])
    ours = fit_calibrator(model.decision_function(x[300:]), y[300:], "platt")
    assert apply_calibrator(ours, model.decision_function(x)) == pytest.approx(theirs.predict_proba(x)[:, 1], abs=1e-5)


def test_pools_are_those_of_scikit_learn():
    """With the made-up rows added by hand, at the mean score of each pool."""
    from sklearn.isotonic import IsotonicRegression

    rng = np.random.default_rng(2)
    for n in (30, 400):
        score, y, _ = drawn(n, n)
        score = np.round(score, 1)  # ties
        weight = rng.integers(0, 3, n).astype(float)
        kept = weight > 0
        made = fit_calibrator(score, y, "isotonic", weight)
        ends = [score[kept].min(), score[kept].max()]
        slow = IsotonicRegression().fit(
            np.r_[score[kept], ends], np.r_[y[kept], 1, 0], sample_weight=np.r_[weight[kept], 1, 1]
        )
        inside = slow.predict(score[kept])
        assert made.y == pytest.approx(np.unique(np.round(inside, 12)), abs=1e-9)
        for at, value in zip(made.x, made.y, strict=True):
            pool = np.isclose(inside, value)
            assert at == pytest.approx(np.average(score[kept][pool], weights=weight[kept][pool]))
        assert (np.diff(made.x) > 0).all()
        assert (np.diff(made.y) > 0).all()
        assert apply_calibrator(made, made.x) == pytest.approx(made.y)


@pytest.mark.parametrize("method", METHODS)
def test_calibrated_on_fresh_data(method):
    """Slope 1 within its error (that of the fit and of the fresh data), mean right, ACE near its null."""
    slopes, gaps, aces, nulls = [], [], [], []
    for seed in range(12):
        score, y, _ = drawn(seed, 4000)
        fresh, labels, truth = drawn(seed + 100, 20_000)
        p = apply_calibrator(fit_calibrator(score, y, method), fresh)
        line = calibration_line(labels, p)
        slopes.append(line.slope)
        gaps.append(p.mean() - truth.mean())
        aces.append(adaptive_calibration_error(labels, p))
        nulls.append(expected_ace(p, n_simulations=50))
    # The fit of 4,000 rows has a slope's error of .04, the fresh data one of .02.
    error = np.hypot(0.04, 0.02) / np.sqrt(12)
    allowed = 4 * error if method == "platt" else 0.09
    assert abs(np.mean(slopes) - 1) < allowed
    assert abs(np.mean(gaps)) < 4 * 0.007 / np.sqrt(12)
    # Calibrators of 4,000 rows are off by that many rows' noise: the null of 4,000 rows, not of 20,000.
    assert np.mean(aces) < 2.5 * np.mean(nulls)
    truth_ace = adaptive_calibration_error(labels, truth)
    assert truth_ace < 2 * np.mean(nulls)


def test_a_fit_that_sees_all_is_within_the_null():
    score, y, _ = drawn(0, 60_000)
    fresh, labels, _ = drawn(1, 4000)
    for method in METHODS:
        p = apply_calibrator(fit_calibrator(score, y, method), fresh)
        assert adaptive_calibration_error(labels, p) < 1.5 * expected_ace(p)
        assert abs(calibration_line(labels, p).slope - 1) < 4 * 0.045


def test_isotonic_follows_a_bend_and_platt_does_not():
    rng = np.random.default_rng(3)
    score = 3 * rng.standard_normal(8000)
    y = (rng.random(8000) < expit(-2 + 2 * np.tanh(score))).astype(float)
    fresh = 3 * rng.standard_normal(8000)
    truth = expit(-2 + 2 * np.tanh(fresh))
    rough = np.abs(apply_calibrator(fit_calibrator(score, y, "platt"), fresh) - truth).mean()
    assert np.abs(apply_calibrator(fit_calibrator(score, y, "isotonic"), fresh) - truth).mean() < 0.5 * rough


@pytest.mark.parametrize("method", METHODS)
def test_invariances(method):
    score, y, _ = drawn(4, 700)
    rng = np.random.default_rng(0)
    asked = np.linspace(-12, 12, 101)
    first = apply_calibrator(fit_calibrator(score, y, method), asked)
    order = rng.permutation(700)
    assert apply_calibrator(fit_calibrator(score[order], y[order], method), asked) == pytest.approx(first, abs=1e-9)
    moved = fit_calibrator(1e3 * score + 7, y, method)
    assert apply_calibrator(moved, 1e3 * asked + 7) == pytest.approx(first, abs=1e-7)
    times = rng.integers(0, 4, 700)
    twice = np.repeat(np.arange(700), times)
    weighted = apply_calibrator(fit_calibrator(score, y, method, times.astype(float)), asked)
    assert weighted == pytest.approx(apply_calibrator(fit_calibrator(score[twice], y[twice], method), asked), abs=1e-7)
    assert (np.diff(first) >= 0).all()
    turned = fit_calibrator(-score, 1 - y, method)  # the other class, backwards
    assert 1 - apply_calibrator(turned, -asked) == pytest.approx(first, abs=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_stretched(method):
    score, y, _ = drawn(10, 500)
    made = fit_calibrator(score, y, method)
    other = rescale_calibrator(made, 1.3, -0.4)
    assert apply_calibrator(other, 1.3 * score - 0.4) == pytest.approx(apply_calibrator(made, score), abs=1e-12)
    level = rescale_calibrator(fit_calibrator(np.zeros(500), y, method), 1.3, -0.4)
    assert apply_calibrator(level, [-9, 0, 9]) == pytest.approx(y.mean())


def test_ranking_is_kept():
    score, y, _ = drawn(5, 900)
    for method in METHODS:
        assert auroc(y, apply_calibrator(fit_calibrator(score, y, method), score)) == pytest.approx(
            auroc(y, score), abs=2e-3
        )


@pytest.mark.parametrize("method", METHODS)
def test_backwards_and_constant_scores_say_the_prevalence(method):
    score, y, _ = drawn(6, 500)
    share = y.mean()
    backwards = apply_calibrator(fit_calibrator(-score, y, method), [-9.0, 0.0, 9.0])
    assert np.ptp(backwards) < (1e-12 if method == "platt" else 0.12)  # a few pools may rise by chance
    assert backwards == pytest.approx(share, abs=1e-9 if method == "platt" else 0.1)
    for value in (0.0, 0.1, -3e7, 1e-300):
        same = apply_calibrator(fit_calibrator(np.full(500, value), y, method), [value, value + 1])
        assert same == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_certain(method):
    y = np.r_[np.zeros(50), np.ones(50)]
    apart = fit_calibrator(np.r_[np.linspace(-2, -1, 50), np.linspace(1, 2, 50)], y, method)
    p = apply_calibrator(apart, [-1e300, -2, -1, 1, 2, 1e300])
    assert (p >= LEAST).all()
    assert (p <= 1 - LEAST).all()
    assert p[1] > 0.003
    assert p[4] < 0.997
    assert p[2] < 0.1
    two = fit_calibrator([0.0, 1.0], [0, 1], method)  # the least that can be asked
    assert ((apply_calibrator(two, [0, 1]) > 0.05) & (apply_calibrator(two, [0, 1]) < 0.95)).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        apply_calibrator(fit_calibrator(1e90 * np.r_[-1.0, 1, 2], [0, 1, 0], method), [1e300, -1e300])
        apply_calibrator(fit_calibrator(1e-90 * np.r_[-1.0, 1, 2], [0, 1, 0], method), [1e300, -1e300])


def test_few_rows_at_an_end_are_believed_less_than_many():
    few = fit_calibrator(np.arange(40.0), np.r_[np.zeros(3), np.tile([1, 0, 0, 0], 9), 1], "isotonic")
    many = fit_calibrator(np.arange(340.0), np.r_[np.zeros(303), np.tile([1, 0, 0, 0], 9), 1], "isotonic")
    assert few.y[0] > 10 * many.y[0]
    assert few.y[-1] < 0.6  # one positive at the very top is no certainty


@pytest.mark.parametrize("method", EVERY)
@pytest.mark.parametrize(
    ("score", "y", "weight", "said"),
    [
        ([1, 2, 3], [1, 1, 1], None, "3 rows with label 1 and 0 with label 0"),
        ([1, 2, 3], [0, 0, 0], None, "0 rows with label 1"),
        ([1, 2, 3], [0, 0, 1], [1, 1, 0], "0 rows with label 1"),
        ([], [], None, "0 rows with label 1 and 0 with label 0"),
        ([1, np.nan, 3], [0, 1, 1], None, "finite"),
        ([1, np.inf, 3], [0, 1, 1], None, "finite"),
        ([1, 1e200, 3], [0, 1, 1], None, "too large"),
        ([1, 2, 3], [0, np.nan, 1], None, "0 or 1"),
        ([1, 2, 3], [0, 2, 1], None, "0 or 1"),
        ([1, 2], [0, 1, 1], None, "rows"),
        ([1, 2, 3], [0, 1, 1], [1, -1, 1], ">= 0"),
    ],
)
def test_bad_input_stops_at_the_door(method, score, y, weight, said):
    with pytest.raises((ConfigError, InputError), match=said):
        fit_calibrator(score, y, method, weight)


def test_other_refusals():
    with refused(ConfigError, got="isotnic", fix="did you mean 'isotonic'"):
        fit_calibrator([1, 2], [0, 1], "isotnic")
    made = Calibrator("platt", np.array([1.0]), np.array([0.0]))
    for bad in (np.nan, np.inf):
        with pytest.raises(InputError, match="finite"):
            apply_calibrator(made, [0.0, bad])
    assert apply_calibrator(made, []).shape == (0,)


def test_better_than_no_calibration():
    score, y, _ = drawn(7, 3000, slope=0.3)
    fresh, labels, truth = drawn(8, 3000, slope=0.3)
    for method in METHODS:
        p = apply_calibrator(fit_calibrator(score, y, method), fresh)
        assert brier(labels, p) < brier(labels, expit(fresh))
        assert brier(labels, p) < brier(labels, truth) + 0.005


def test_the_coarser_search_ends_close_to_the_exact_line():
    """Classifiers of notes call platt with counts and its own, coarser stop."""
    score, y, _ = drawn(9, 2000)
    slope, shift = platt(score, y, 1 - y)
    exact = fit_calibrator(score, y, "platt")
    assert expit(slope * score + shift) == pytest.approx(apply_calibrator(exact, score), abs=1e-3)
    assert float(exact.x[0]) == pytest.approx(0.7, abs=0.1)
    backwards = platt(-score, y, 1 - y)
    assert backwards == (0.0, pytest.approx(logit(y.mean())))


def too_sharp(seed: int, n: int, times: float = 2.5, shift: float = -1.0) -> tuple[np.ndarray, np.ndarray]:
    """Log odds `times` too large, and labels."""
    rng = np.random.default_rng(seed)
    odds = 2 * rng.standard_normal(n) + shift
    return times * odds, (rng.random(n) < expit(odds)).astype(float)


def slow_temperature(score: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    """The log loss written out, with the two made-up images, searched over log T."""
    from scipy.optimize import minimize_scalar

    repeated = np.repeat(np.abs(score), weight.astype(int))
    margin = np.sort(repeated[repeated > 0])[int(np.ceil(0.1 * (repeated > 0).sum())) - 1]
    x, labels, times = np.r_[score, margin, margin], np.r_[y, 0, 1], np.r_[weight, 1, 1]

    def loss(log_t: float) -> float:
        odds = x / np.exp(log_t)
        return float(np.sum(times * np.logaddexp(0, np.where(labels == 1, -odds, odds))))

    return float(np.exp(minimize_scalar(loss, bounds=(-4, 4), method="bounded", options={"xatol": 1e-10}).x))


def one_temperature(score, y, weight=None) -> float:
    made = fit_calibrator(score, y, "temperature", weight)
    assert made.method == "temperature"
    assert made.x.shape == made.y.shape == (1,)
    assert made.y[0] == 0
    return 1 / float(made.x[0])


@pytest.mark.parametrize("times", [0.4, 1.0, 2.5])
def test_a_planted_temperature_is_found(times):
    found = [one_temperature(*too_sharp(seed, 4000, times)) for seed in range(10)]
    # One fit of 4,000 rows has an error of some 3%.
    assert np.abs(np.log(np.array(found) / times)).max() < 0.12
    assert np.mean(found) == pytest.approx(times, rel=0.04)


@pytest.mark.parametrize("n", [30, 300, 4000])
def test_temperature_and_its_slow_twin(n):
    score, y = too_sharp(n, n)
    weight = np.random.default_rng(1).integers(0, 4, n).astype(float)
    for given in (np.ones(n), weight):
        assert one_temperature(score, y, given) == pytest.approx(slow_temperature(score, y, given), rel=1e-6)
    repeated = np.repeat(np.arange(n), weight.astype(int))
    assert one_temperature(score, y, weight) == pytest.approx(one_temperature(score[repeated], y[repeated]), rel=1e-12)
    order = np.random.default_rng(2).permutation(n)
    assert one_temperature(score[order], y[order]) == pytest.approx(one_temperature(score, y), rel=1e-12)
    assert one_temperature(-score, 1 - y) == pytest.approx(one_temperature(score, y), rel=1e-12)
    for scale in (1e-90, 1e-3, 1e4, 1e90):
        assert one_temperature(scale * score, y) == pytest.approx(scale * one_temperature(score, y), rel=1e-9)


def test_temperature_is_nearly_that_of_scikit_learn():
    """Theirs has no made-up images, and reads a score s as the classes -s and s: twice the T."""
    from sklearn.calibration import _TemperatureScaling

    for n, allowed in ((300, 0.01), (4000, 1e-3)):
        score, y = too_sharp(n, n)
        theirs = _TemperatureScaling().fit(score, y)
        assert 2 * one_temperature(score, y) == pytest.approx(1 / theirs.beta_, rel=allowed)


def test_temperature_on_fresh_data():
    score, y = too_sharp(0, 20_000)
    fresh, labels = too_sharp(1, 20_000)
    p = apply_calibrator(fit_calibrator(score, y, "temperature"), fresh)
    assert calibration_line(labels, expit(fresh)).slope == pytest.approx(0.4, abs=0.03)
    assert calibration_line(labels, p).slope == pytest.approx(1, abs=0.06)
    assert adaptive_calibration_error(labels, p) < 2 * expected_ace(p)
    assert brier(labels, p) < brier(labels, expit(fresh))
    assert auroc(labels, p) == auroc(labels, fresh)


@pytest.mark.parametrize("shift", [-4.0, 4.0])
def test_no_temperature_for_what_it_cannot_help(shift):
    score, y = too_sharp(0, 500, shift=0.0)
    for bad in (-score, np.zeros(500), np.full(500, 3.0 if y.mean() < 0.5 else -3.0)):
        with pytest.raises(ConfigError, match="platt"):
            fit_calibrator(bad, y, "temperature")
    rare = np.random.default_rng(0).random(500) < 0.05
    labels = rare if shift > 0 else ~rare
    with pytest.raises(ConfigError, match="wrong side of 0"):  # ranks well, but says that all are there, or none
        fit_calibrator(shift + np.where(labels, 0.5, -0.5), labels.astype(float), "temperature")
    constant = fit_calibrator(np.full(500, -3.0), np.r_[np.ones(100), np.zeros(400)], "temperature")
    assert apply_calibrator(constant, [-3.0]) == pytest.approx(0.2, abs=0.005)


def test_a_temperature_is_never_certain():
    y = np.r_[np.zeros(50), np.ones(50)]
    apart = fit_calibrator(np.r_[np.linspace(-2, -1, 50), np.linspace(1, 2, 50)], y, "temperature")
    p = apply_calibrator(apart, [-1e300, -2, -1, 0, 1, 2, 1e300])
    assert p[0] == LEAST
    assert p[-1] == 1 - LEAST
    assert 1e-4 < p[1] < p[2] < 0.1
    assert p[3] == 0.5
    assert apply_calibrator(fit_calibrator([0.0, 1.0], [0, 1], "temperature"), [1.0])[0] == pytest.approx(2 / 3)
    rare = fit_calibrator(np.r_[np.full(12, 3.0), np.full(388, -9.0)], np.arange(400) < 12, "temperature")
    assert apply_calibrator(rare, [3.0])[0] < 0.999


def test_a_stretched_temperature():
    score, y = too_sharp(3, 400)
    made = fit_calibrator(score, y, "temperature")
    narrower, moved = rescale_calibrator(made, 0.5, 0.0), rescale_calibrator(made, 0.5, 0.3)
    assert narrower.method == "temperature"
    assert moved.method == "platt"  # a line with a shift
    assert apply_calibrator(narrower, 0.5 * score) == pytest.approx(apply_calibrator(made, score), abs=1e-12)
    assert apply_calibrator(moved, 0.5 * score + 0.3) == pytest.approx(apply_calibrator(made, score), abs=1e-12)


def soft(seed: int, n: int, k: int = 4, times: float = 2.5) -> tuple[np.ndarray, np.ndarray]:
    """Outputs of k classes, `times` too large, and classes drawn from what they should be."""
    rng = np.random.default_rng(seed)
    odds = 1.5 * rng.standard_normal((n, k)) - np.arange(k)
    return times * odds, np.argmax(odds + rng.gumbel(size=(n, k)), axis=1)


def test_the_temperature_of_a_softmax():
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    found = [fit_temperature(*soft(seed, 4000)) for seed in range(5)]
    assert np.mean(found) == pytest.approx(2.5, rel=0.03)
    assert fit_temperature(*soft(9, 4000, times=1)) == pytest.approx(1, rel=0.06)
    logits, classes = soft(0, 4000)

    def loss(log_t: float) -> float:
        return -float(log_softmax(logits / np.exp(log_t), axis=1)[np.arange(4000), classes].sum())

    slow = np.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded").x)
    assert found[0] == pytest.approx(slow, rel=1e-3)  # without the made-up images
    assert fit_temperature(log_softmax(logits, axis=1), classes) == pytest.approx(found[0], rel=1e-12)
    turned = fit_temperature(logits[:, ::-1], 3 - classes)
    assert turned == pytest.approx(found[0], rel=1e-12)
    times = np.random.default_rng(0).integers(0, 3, 4000)
    twice = np.repeat(np.arange(4000), times)
    assert fit_temperature(logits, classes, times) == pytest.approx(
        fit_temperature(logits[twice], classes[twice]), rel=1e-12
    )


def test_two_classes_are_a_label():
    score, y = too_sharp(4, 600)
    pair = np.stack([np.full(600, 7.0), score + 7], 1)
    assert fit_temperature(pair, y) == pytest.approx(one_temperature(score, y), rel=1e-12)


@pytest.mark.parametrize(
    ("logits", "classes", "said"),
    [
        ([[1, 2], [2, 1]], [0, 0], "one class"),
        ([[1], [2]], [0, 0], "one class"),
        ([[1, 2], [2, 1]], [0, 2], "from 0 to 1"),
        ([[1, 2], [2, 1]], [0, 0.5], "from 0 to 1"),
        ([[1, 2], [2, 1]], [0], "shape"),
        ([1, 2], [0, 1], "shape"),
        ([[1, np.nan], [2, 1]], [0, 1], "must be numbers"),
        ([[1, 2], [2, 1]], [0, 1], "platt"),  # backwards
    ],
)
def test_no_temperature_of_bad_input(logits, classes, said):
    with pytest.raises((ConfigError, InputError), match=said):
        fit_temperature(logits, classes)


def test_a_saved_context_model_keeps_a_temperature(tmp_path):
    from cxrhf.context.model_files import load_calibrator, save_calibrator

    made = fit_calibrator(*too_sharp(5, 300), "temperature")
    kept = save_calibrator(made, tmp_path, "edema")
    back = load_calibrator(None, kept)
    assert (back.method, back.x.tolist(), back.y.tolist()) == ("temperature", made.x.tolist(), [0.0])
    for bad in ({"slope": 0.0}, {"shift": 0.1}, {"slope": -1.0}):
        with pytest.raises(ValueError, match="line"):
            load_calibrator(None, kept | bad)
