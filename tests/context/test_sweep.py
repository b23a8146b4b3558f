"""Candidates are ranked by patients they never saw; nothing outside the learning images plays a part."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import joblib
import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

from cxrhf.context import sweep as module
from cxrhf.context.material import Candidate, Family, Labelled, Tried
from cxrhf.context.sweep import best_of_each_kind, fit, pack, scores, spread, sweep_candidates, unpack
from cxrhf.errors import CxrhfError, LeakageError, TableError
from cxrhf.metrics import auroc
from tests.refusals import refused
from tests.thinned import thinned

CANDIDATES = (
    Candidate("LinearSVC", {"C": 0.001}),
    Candidate("WordRidge", {"penalty": 1.0}),
    Candidate("WordRidge", {"penalty": 100.0}),
    Candidate("DecisionTreeClassifier", {"min_samples_leaf": 5}),
    Candidate("LinearSVC", {"C": 1.0}),
    Candidate("XGBoost", {"n_estimators": 20, "max_depth": 2, "subsample": 0.7}),
)


def planted(
    seed: int = 0, n_patients: int = 150, *, dense: bool = False, slope: float = 6.0
) -> tuple[Family, Labelled]:
    """Patients with up to three sets of notes and several images of each; the first two words tell."""
    rng = np.random.default_rng(seed)
    of_set = np.repeat(np.arange(n_patients), rng.integers(1, 4, n_patients))
    counts = rng.poisson(0.3, size=(len(of_set), 40)).astype(np.float32)
    counts /= np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1)
    rows = np.repeat(np.arange(len(of_set)), rng.integers(1, 4, len(of_set)))
    odds = slope * (counts[rows, 0] - counts[rows, 1])
    y = (rng.random(len(rows)) < expit(odds - 0.5)).astype(float)
    y[rng.random(len(rows)) < 0.1] = np.nan
    patients = of_set[rows]
    role = rng.integers(0, 4, n_patients)[patients]  # 0 = test, 1 = validate
    fold = np.where(role > 1, rng.integers(0, 5, n_patients)[patients], -1)
    data = Labelled(rows, y, patients, role > 1, role == 1, fold)
    features = counts if dense else sparse.csr_array(counts)
    return Family("words", "words", features, tuple(f"w{at}" for at in range(40)), CANDIDATES, "platt"), data


def same(one: list[Tried], two: list[Tried]) -> bool:
    """Everything but the seconds."""
    return len(one) == len(two) and all(
        a.candidate == b.candidate
        and np.array_equal([a.auroc, a.auroc_sd], [b.auroc, b.auroc_sd], equal_nan=True)
        and np.array_equal(a.scores, b.scores, equal_nan=True)
        and (a.failed, a.unsettled) == (b.failed, b.unsettled)
        for a, b in zip(one, two, strict=True)
    )


def test_slow_twin():
    """A loop over candidates and folds, written out."""
    family, data = planted()
    found = {each.candidate.label: each for each in sweep_candidates(family, data, seed=3, workers=1)}
    assert len(found) == len(CANDIDATES)
    for candidate in CANDIDATES:
        expected = np.full(len(data.y), np.nan)
        areas = []
        for held in range(5):
            learned = data.learn & ~np.isnan(data.y)
            seen, asked = np.flatnonzero(learned & (data.fold != held)), np.flatnonzero(data.fold == held)
            model = fit(candidate, family.features, data.rows[seen], data.y[seen], data.patients[seen], 3)
            expected[asked] = scores(model, family.features[data.rows[asked]])
            known = asked[learned[asked]]
            areas.append(auroc(data.y[known], expected[known]))
        tried = found[candidate.label]
        assert tried.auroc == pytest.approx(np.mean(areas), abs=1e-12)
        assert tried.auroc_sd == pytest.approx(np.std(areas, ddof=1), abs=1e-12)
        assert tried.scores == pytest.approx(expected, nan_ok=True, abs=1e-9)
        assert tried.seconds > 0


def test_best_first():
    family, data = planted()
    tried = sweep_candidates(family, data, seed=0, workers=1)
    assert [each.auroc for each in tried] == sorted((each.auroc for each in tried), reverse=True)
    assert tried[0].auroc > 0.7
    best = best_of_each_kind(tried)
    assert [each.candidate.kind for each in best] == list(dict.fromkeys(each.candidate.kind for each in tried))
    assert best[0] is tried[0]
    assert best_of_each_kind([tried[0]._replace(failed="why"), *tried[1:]])[0] is tried[1]


def test_what_is_not_learned_from_is_never_touched():
    family, data = planted()
    before = sweep_candidates(family, data, seed=0, workers=1)
    rng = np.random.default_rng(9)
    others = ~data.learn
    dense = family.features.toarray()
    dense[np.unique(data.rows[others])] = np.nan
    poisoned = Family(family.name, family.kind, sparse.csr_array(dense), family.feature_names, CANDIDATES, "platt")
    y = np.where(others, rng.integers(0, 2, len(data.y)), data.y)
    assert same(sweep_candidates(poisoned, data._replace(y=y), seed=0, workers=1), before)
    for each in before:
        assert np.array_equal(np.isnan(each.scores), others)


def test_images_without_a_label_are_scored_and_not_learned_from():
    family, data = planted()
    asked = data.learn & np.isnan(data.y)
    assert asked.sum() > 10
    one = sweep_candidates(family, data, seed=0, workers=1)
    without = data._replace(learn=data.learn & ~asked)  # as if they were not there
    two = sweep_candidates(family, without, seed=0, workers=1)
    for a, b in zip(one, two, strict=True):
        assert a.auroc == b.auroc
        assert np.isfinite(a.scores[asked]).all()
        assert np.array_equal(a.scores[~asked], b.scores[~asked], equal_nan=True)
    nowhere = data._replace(fold=np.where(asked, -1, data.fold))  # nor need they have a fold
    assert same(sweep_candidates(family, nowhere, seed=0, workers=1), two)


def test_labels_of_a_fold_play_no_part_in_its_scores():
    family, data = planted()
    before = {each.candidate.label: each.scores for each in sweep_candidates(family, data, seed=0, workers=1)}
    mine = data.fold == 2
    flipped = data._replace(y=np.where(mine, 1 - data.y, data.y))
    for each in sweep_candidates(family, flipped, seed=0, workers=1):
        known = before[each.candidate.label]
        assert np.array_equal(each.scores[mine], known[mine], equal_nan=True)
        assert not np.array_equal(each.scores[~mine], known[~mine], equal_nan=True)


def test_nothing_is_found_where_nothing_is():
    family, data = planted(slope=0.0, n_patients=400)
    tried = sweep_candidates(family, data, seed=0, workers=1)
    # Under the null an AUROC's SD is at most sqrt((n + 1) / 12 n+ n-), and images of a patient share notes, not labels.
    learned = data.y[data.learn & ~np.isnan(data.y)]
    sd = np.sqrt((len(learned) + 1) / 12 / learned.sum() / (1 - learned).sum())
    assert all(abs(each.auroc - 0.5) < 4 * sd for each in tried)


@pytest.mark.parametrize("dense", thinned([False, True], [False]))
def test_workers_and_threads_give_the_same_numbers(dense):
    family, data = planted(dense=dense)
    more = (Candidate("KNeighborsClassifier", {"n_neighbors": 3}), Candidate("RidgeClassifierCV", {}),
            Candidate("RandomForestClassifier", {"n_estimators": 10}),
            Candidate("MLPClassifier", {"hidden_layer_sizes": (8,), "max_iter": 20}))  # fmt: skip
    family = Family("words", "words", family.features, (), (*CANDIDATES, *more), "platt")
    alone = sweep_candidates(family, data, seed=1, workers=1)
    assert same(sweep_candidates(family, data, seed=1), alone)
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert same(sweep_candidates(family, data, seed=1), alone)
    if dense:  # processes take seconds to start: with the slow case
        assert same(sweep_candidates(family, data, seed=1, workers=2), alone)


def test_order_of_candidates_does_not_matter():
    family, data = planted()
    turned = Family("words", "words", family.features, (), CANDIDATES[::-1], "platt")
    assert same(sweep_candidates(family, data, seed=1, workers=1), sweep_candidates(turned, data, seed=1, workers=1))


def test_failed_and_unsettled():
    family, data = planted(dense=True)
    cells = (
        Candidate("LinearDiscriminantAnalysis", {"solver": "eigen"}),
        Candidate("LogisticRegression", {"C": 1.0, "max_iter": 2}),
        Candidate("LinearSVC", {"C": -1.0}),
        Candidate("KNeighborsClassifier", {"n_neighbors": 10_000}),
    )
    twice = np.hstack([family.features, family.features])  # singular
    family = Family("minilm", "encoder", twice, (), cells, "platt")
    tried = sweep_candidates(family, data, seed=0, workers=1)
    assert [each.candidate.kind for each in tried] == [cells[at].kind for at in (1, 0, 2, 3)]
    assert (tried[0].failed, tried[0].unsettled) == (None, 5)
    for each in tried[1:]:
        assert each.failed
        assert np.isnan(each.auroc)
        assert each.scores.size == 0
    assert "C" in tried[2].failed
    assert len(best_of_each_kind(tried)) == 1


def test_scores_that_are_no_numbers_fail(monkeypatch):
    monkeypatch.setattr(module, "scores", lambda model, features: np.full(features.shape[0], np.inf))
    tried = sweep_candidates(*planted(), seed=0, workers=1)
    assert {each.failed for each in tried} == {"its scores are not all numbers"}


def test_folds_of_one_class():
    family, data = planted()
    y = np.where(data.fold == 1, 0.0, data.y)
    tried = sweep_candidates(family, data._replace(y=y), seed=0, workers=1)
    areas = [auroc(y[mine], tried[0].scores[mine]) for held in (0, 2, 3, 4)
             for mine in [(data.fold == held) & ~np.isnan(y)]]  # fmt: skip
    assert tried[0].auroc == pytest.approx(np.mean(areas))
    only = np.where(data.fold == 1, 1.0, 0.0)  # without fold 1 nobody has it
    tried = sweep_candidates(family, data._replace(y=only), seed=0, workers=1)
    assert {"without one fold, no image with" in (each.failed or "") for each in tried} == {True}
    half = np.where(data.fold % 2 == 1, 1.0, 0.0)  # each fold has one class, but there is always something to learn
    tried = sweep_candidates(family, data._replace(y=half), seed=0, workers=1)
    assert {each.failed for each in tried} == {"no fold has images with and without the finding"}


def test_progress():
    family, data = planted()
    said: list[str] = []
    tried = sweep_candidates(family, data, seed=0, workers=1, progress=said.append)
    assert len(said) == len(CANDIDATES)
    assert said[0].startswith("words 1 of 6 candidates, best so far LinearSVC(C=0.001) 0.")
    shown = f"{tried[0].auroc:.3f}"
    assert said[-1] == f"words 6 of 6 candidates, best so far {tried[0].candidate.label} {shown}"


def test_bad_input():
    family, data = planted()
    split = data.fold.copy()
    mine = np.flatnonzero(data.learn & (data.patients == data.patients[data.learn][0]))
    split[mine] = np.arange(len(mine)) % 2
    with refused(LeakageError, "1 patients are in two folds"):
        sweep_candidates(family, data._replace(fold=split, y=np.nan_to_num(data.y)), seed=0, workers=1)
    with refused(TableError, "two or more"):
        sweep_candidates(family, data._replace(fold=np.full(len(data.y), -1)), seed=0, workers=1)
    with refused(TableError, "two or more"):
        sweep_candidates(family, data._replace(y=np.full(len(data.y), np.nan)), seed=0, workers=1)


def test_packed_features_come_back():
    dense = np.random.default_rng(0).poisson(0.5, (6, 4)).astype(np.float32)
    unsorted = sparse.csr_array((np.array([1.0, 2.0, 3.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 4))
    assert np.array_equal(unpack(*pack(dense)), dense)
    assert np.array_equal(unpack(*pack(sparse.csr_array(dense))).toarray(), dense)
    assert np.array_equal(unpack(*pack(unsorted)).toarray(), [[2, 0, 4, 0]])
    assert unsorted.nnz == 3


def test_a_killed_process_says_what_to_do():
    with pytest.raises(CxrhfError, match=r"memory ran out.*--workers 1"):
        list(spread(_die, [(at,) for at in range(4)], workers=2))


def _die(at: int) -> int:
    import os

    if at == 2:
        os._exit(9)
    time.sleep(0.01)
    return at


def test_spread_where_no_generator_is_to_be_had():
    with joblib.parallel_config(backend="multiprocessing", n_jobs=2):
        assert sorted(spread(_square, [(at,) for at in range(5)], workers=None)) == [(at, at * at) for at in range(5)]
    assert list(spread(_square, [], workers=2)) == []


def _square(at: int) -> int:
    return at * at


@pytest.mark.slow
def test_no_process_outlives_a_killed_fit(tmp_path):
    """kill -9 while all are in the middle of a fit: within seconds nobody is there any more."""
    script = (
        "from pathlib import Path\n"
        "from cxrhf.context.sweep import spread\n"
        "from tests.context.test_sweep import _long\n"
        f"list(spread(_long, [({str(tmp_path)!r}, at) for at in range(2)], workers=2))\n"
    )
    root = str(Path(__file__).resolve().parents[2])
    child = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": root})
    try:
        while len(there := list(tmp_path.iterdir())) < 2 and child.poll() is None:
            time.sleep(0.05)
    finally:
        child.kill()
        child.wait()
    end = time.monotonic() + 20
    while time.monotonic() < end and (left := [each.name for each in there if Path("/proc", each.name).exists()]):
        time.sleep(0.1)
    assert len(there) == 2
    assert not left


def _long(folder: str, at: int) -> None:
    Path(folder, str(os.getpid())).touch()
    time.sleep(60)
