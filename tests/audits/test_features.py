"""The features audit: maps of one image a patient, and tests that find a planted shift and nothing else."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit

from cxrhf.audits import features
from cxrhf.audits import features as feature_maps
from cxrhf.audits.features import Modes, neighbour_map, pairs_of, principal_modes, run_marginal_tests
from cxrhf.audits.material import Material
from cxrhf.audits.plan import AuditOutput, run_audits
from cxrhf.audits.sample import samples
from tests.audits.embedded import vectors
from tests.audits.tables import block, settings

MAPS = ("pca 1-2", "pca 3-4", "t-sne", "logits")
FINDINGS = ("no_finding", "pleural_effusion")


class Found:
    """RESULT rows by metric and slice, POINT rows by map."""

    def __init__(self, output: AuditOutput) -> None:
        self.rows = [row for row in output.results.to_pylist() if row["audit"] == "features"]
        self.points = [] if output.points is None else output.points.to_pylist()
        self.notes = "\n".join(output.notes)

    def __call__(self, metric: str, where: str = "all") -> Any:
        (row,) = [row for row in self.rows if (row["metric"], row["slice"]) == (metric, where)]
        return row

    def on(self, name: str) -> list[Any]:
        return [row for row in self.points if row["map"] == name]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """t-SNE takes seconds: where it is not asked about, the first two modes stand in for it."""

    def two(modes: Modes, *_: Any) -> Any:
        return modes.scores[:, :2]

    monkeypatch.setattr(features, "neighbour_map", two)


def hospital(
    n: int = 900, seed: int = 0, findings: tuple[str, ...] = FINDINGS, far: float = 0.0, **given: Any
) -> tuple[pa.Table, np.ndarray]:
    """Predictions, and vectors whose first axis is moved by the sex and whose last ones show the findings."""
    rng = np.random.default_rng(seed)
    n_patients = n * 2 // 3
    patient = rng.integers(0, n_patients, n)
    who: dict[str, Any] = {
        "sex": rng.choice(["F", "M"], n_patients)[patient],
        "race": rng.choice(["Asian", "Black", "White"], n_patients, p=[0.2, 0.3, 0.5])[patient],
        "age": rng.uniform(10, 95, n_patients)[patient],
    } | given
    matrix = rng.standard_normal((n, 8)) * np.array([3, 2.5, 2, 1.5, 1, 1, 1, 1])
    matrix[:, 0] += far * (who["sex"] == "M") if who["sex"] is not None else 0
    made = []
    for k, name in enumerate(findings):
        y = (rng.random(n) < 0.3).astype(float)
        matrix[:, 7 - k] += y
        columns = {key: value for key, value in who.items() if value is not None}
        made.append(block(name, y, patient, prob=expit(matrix[:, 7 - k]), **columns))
    return pa.concat_tables(made), matrix


def looked_at(table: pa.Table, matrix: np.ndarray, progress: Any = None, **options: Any) -> Found:
    embedded = vectors(table.slice(0, len(matrix)), matrix)
    config = settings(10, only=("features",), **options)
    return Found(run_audits(table, config, progress, material=Material(embeddings=embedded)))


# ---------------------------------------------------------------- planted truth and null


def test_a_planted_shift_is_found_where_it_is(quick) -> None:
    found = looked_at(*hospital(1500, far=3.0))
    row = found("ks.pca_1", "sex=F")
    assert row["versus"] == "sex=M"
    assert row["p_value"] < 1e-6
    assert row["value"] > 0.25
    tests = [row for row in found.rows if row["metric"].startswith("ks.")]
    assert len(tests) == 30
    shifted = {(row["metric"], row["slice"]) for row in tests if row["p_value"] < 0.05}
    told = {("ks.logit_no_finding", "disease=No Finding"), ("ks.logit_pleural_effusion", "disease=No Finding")}
    assert {("ks.pca_1", "sex=F")} <= shifted <= {("ks.pca_1", "sex=F"), *told}
    assert "Benjamini-Yekutieli, 30 tests" in row["method"]
    assert "p depends on their number" in row["method"]
    assert (row["finding"], row["ci_low"], row["higher_is_better"], row["n_pos"]) == (None, None, None, None)


def test_nothing_planted_nothing_found(quick) -> None:
    """Of 200 such samples 3 showed a difference by sex or race; the family allows 10."""
    seen = 0
    for seed in range(15):
        found = looked_at(*hospital(600, seed), seed=seed)
        tests = [row for row in found.rows if row["slice"].startswith(("sex=", "race="))]
        assert len(tests) == 24
        seen += any(row["p_value"] < 0.05 for row in tests)
    assert seen <= 1


def test_statistics_and_corrected_p_values_are_those_of_the_book(quick) -> None:
    """KS by counting, its p value from scipy, Benjamini-Yekutieli by its formula."""
    from scipy.stats import ks_2samp

    rng = np.random.default_rng(1)
    group = rng.choice(["a", "b", "c", ""], 300)
    marginals = {"pca_1": rng.standard_normal(300) + (group == "a") / 2, "pca_2": rng.standard_normal(300)}
    marginals["pca_2"][:5] = np.nan
    said: list[str] = []
    found = run_marginal_tests(marginals, pairs_of({"race": group}, {"race": 3}, said))
    assert len(found) == 6
    raw = {}
    for name, values in marginals.items():
        for one, other in combinations("abc", 2):
            x, y = (values[(group == each) & np.isfinite(values)] for each in (one, other))
            at = np.concatenate([x, y])
            distance = max(abs((x <= t).mean() - (y <= t).mean()) for t in at)
            raw[name, f"race={one}", f"race={other}"] = distance, ks_2samp(x, y).pvalue, (len(x), len(y))
    factor = 6 * sum(1 / k for k in range(1, 7))
    order = sorted(raw, key=lambda key: raw[key][1])
    for test in found:
        key = (test.marginal, test.pair.one, test.pair.other)
        after = order[order.index(key) :]
        corrected = min(min(1.0, raw[each][1] * factor / (order.index(each) + 1)) for each in after)
        assert test.statistic == pytest.approx(raw[key][0], abs=1e-12)
        assert test.p_value == pytest.approx(corrected, rel=1e-9)
        assert test.sizes == raw[key][2]
    assert not said


# ---------------------------------------------------------------- maps


@pytest.mark.parametrize("shape", [(200, 12), (40, 90)])
def test_modes_are_those_of_scikit_learn(shape) -> None:
    from sklearn.decomposition import PCA

    rng = np.random.default_rng(0)
    x = (rng.standard_normal(shape) * np.geomspace(5, 0.1, shape[1]) + 7).astype(np.float32)
    ours, theirs = principal_modes(x), PCA(0.99, svd_solver="full").fit(x.astype(float))
    assert ours.n_components == theirs.n_components_
    k = ours.n_components
    np.testing.assert_allclose(ours.share[:k], theirs.explained_variance_ratio_, rtol=1e-6)
    scores = theirs.transform(x.astype(float))
    np.testing.assert_allclose(np.abs(ours.scores[:, :k]), np.abs(scores), atol=1e-5)
    assert ours.share.sum() == pytest.approx(1)
    mirrored = principal_modes(-x)  # loadings are the same, so every score changes its sign
    np.testing.assert_allclose(mirrored.scores[:, :k], -ours.scores[:, :k], atol=1e-8)
    assert principal_modes(np.ones((20, 5), dtype=np.float32)).scores.shape == (20, 0)


def test_neighbours_stay_neighbours_and_a_seed_gives_one_map(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    group = np.arange(120) % 3
    x = (rng.standard_normal((120, 6)) + 12 * np.eye(3)[group] @ np.eye(3, 6)).astype(np.float32)
    said: list[str] = []
    monkeypatch.setattr(feature_maps, "SECONDS", 0.02)
    modes = principal_modes(x)
    first = neighbour_map(modes, 5, said.append, "t-SNE")
    again = neighbour_map(modes, 5, lambda _: None, "t-SNE")
    assert first is not None
    assert again is not None
    np.testing.assert_array_equal(first, again)
    distance = np.linalg.norm(first[:, None] - first[None], axis=2) + np.diag(np.full(120, np.inf))
    assert (group[distance.argmin(axis=1)] == group).all()
    assert said
    assert all(text.startswith("t-SNE, ") and text.endswith(" s") for text in said)
    assert neighbour_map(principal_modes(x[:9]), 5, said.append, "t-SNE") is None


@pytest.mark.slow
def test_the_whole_audit_with_its_four_maps() -> None:
    table, matrix = hospital(240)
    said: list[str] = []
    found = looked_at(table, matrix, said.append)
    patients = len(set(table["patient_id"].to_pylist()))
    for name in MAPS:
        rows = found.on(name)
        assert len(rows) == patients
        assert np.isfinite([[row["x"], row["y"]] for row in rows]).all()
    assert {row["disease"] for row in found.points} == {"No Finding", "Pleural Effusion", "Other"}
    assert {row["age"] for row in found.points} <= {"0-19", "20-39", "40-59", "60-79", "80+"}
    assert f"net: features, {patients} patients, PCA" in said
    shares = [found(f"explained_variance.pca_{k}")["value"] for k in range(1, 5)]
    assert shares == sorted(shares, reverse=True)
    assert 4 <= found("n_components")["value"] <= 8
    order = np.random.default_rng(0).permutation(240)
    both = np.concatenate([order, 240 + order])
    moved = looked_at(table.take(pa.array(both)), matrix[order])
    for one, other in zip(found.rows, moved.rows, strict=True):
        assert one == other
    for one, other in zip(found.points, moved.points, strict=True):
        assert one == other
    assert "secret" not in found.notes
    assert not any("secret" in str(row) for row in found.rows)


# ---------------------------------------------------------------- who is shown


def test_one_image_a_patient_and_as_many_of_each_race(quick, monkeypatch) -> None:
    monkeypatch.setattr(features, "MOST_OF_RACE", 60)
    monkeypatch.setattr(features, "MOST", 250)
    table, matrix = hospital(900)
    found = looked_at(table, matrix)
    rows = found.on("t-sne")
    race = [row["race"] for row in rows]
    assert {name: race.count(name) for name in set(race)} == {"Asian": 60, "Black": 60, "White": 60}
    owner = dict(zip(table["image_id"].to_pylist(), table["patient_id"].to_pylist(), strict=True))
    assert len({owner[row["image_id"]] for row in rows}) == len(rows) == 180
    other = looked_at(table, matrix, seed=1)
    assert {row["image_id"] for row in other.on("t-sne")} != {row["image_id"] for row in rows}
    # No races: as many as there may be, by chance.
    table, matrix = hospital(900, race=None)
    assert len(looked_at(table, matrix).on("t-sne")) == 250
    # Many races share what there is; those of a few patients are shown and not tested.
    many = np.array([f"r{k}" for k in range(10)])[np.arange(900) % 10]
    many[:6] = "s"
    table, matrix = hospital(900, race=many)
    found = looked_at(table, matrix)
    race = [row["race"] for row in found.on("t-sne")]
    assert len(race) <= 250
    assert max(race.count(f"r{k}") for k in range(10)) == (250 - race.count("s")) // 10
    assert "race: 1 of 11 groups have fewer than 10 patients and are not tested" in found.notes


def test_no_more_than_5000_patients(quick) -> None:
    rng = np.random.default_rng(0)
    table = block("edema", rng.integers(0, 2, 6000), np.arange(6000), prob=rng.random(6000), sex="F")
    found = looked_at(table, rng.standard_normal((6000, 3)))
    assert len(found.on("pca 1-2")) == features.MOST == 5000
    assert not found.on("pca 3-4")
    assert not found.on("logits")  # of one finding there is no plane
    assert "sex: no two groups of 10 patients to test" in found.notes
    assert {row["slice"] for row in found.rows} == {"all", "disease=Edema"}
    assert {row["versus"] for row in found.rows} == {None, "disease=Other"}


# ---------------------------------------------------------------- diseases and logits


def test_the_second_disease_overrides_the_first(quick) -> None:
    rng = np.random.default_rng(0)
    n = 400
    first, second = np.arange(n) % 2, (np.arange(n) // 2) % 2
    first, second = first.astype(float), second.astype(float)
    first[:8], second[:8] = np.nan, np.nan
    first[8:12], second[8:12] = np.nan, 0
    prob = rng.random(n)
    prob[20], prob[21] = 0.0, 1.0
    blocks = [
        block("pleural_effusion", second, np.arange(n), prob=prob),
        block("edema", rng.integers(0, 2, n), np.arange(n), prob=rng.random(n)),
        block("no_finding", first, np.arange(n), logit=rng.standard_normal(n) * 5),
    ]
    found = looked_at(pa.concat_tables(blocks), rng.standard_normal((n, 5)))
    disease = {row["image_id"]: row["disease"] for row in found.on("logits")}
    for k in range(n):
        named = disease[f"secret-image-{k:05d}"]
        if k < 8:
            assert named is None
        elif second[k] == 1:
            assert named == "Pleural Effusion"
        else:
            assert named == ("No Finding" if first[k] == 1 else "Other")
    place = {row["image_id"]: (row["x"], row["y"]) for row in found.on("logits")}
    scores = blocks[2]["logit"].to_pylist()
    x, y = place["secret-image-00030"]
    assert x == pytest.approx(scores[30])  # no probability: as it is
    assert y == pytest.approx(np.log(prob[30] / (1 - prob[30])))
    assert place["secret-image-00020"][1] == pytest.approx(-place["secret-image-00021"][1])
    assert {row["slice"] for row in found.rows if row["metric"].startswith("ks")} == {"disease=No Finding"}
    assert "no sex column" in found.notes
    assert "no race column" in found.notes


def test_without_these_two_the_commonest_findings_are_taken(quick) -> None:
    rng = np.random.default_rng(0)
    shares = {"edema": 0.2, "mass": 0.4, "nodule": 0.1}
    made = [
        block(name, (rng.random(500) < p) * 1.0, np.arange(500), prob=rng.random(500)) for name, p in shares.items()
    ]
    found = looked_at(pa.concat_tables(made), rng.standard_normal((500, 4)))
    assert {row["metric"] for row in found.rows if "logit" in row["metric"]} == {"ks.logit_mass", "ks.logit_edema"}
    assert {(row["slice"], row["versus"]) for row in found.rows if row["versus"]} == {("disease=Edema", "disease=Mass")}


def test_other_layers_and_vectors_that_say_nothing(quick) -> None:
    table, matrix = hospital(300)
    of_finding = vectors(table.slice(0, 300), matrix, finding="pleural_effusion")
    config = settings(10, only=("features",))
    out = Found(run_audits(table, config, material=Material(embeddings=of_finding)))
    assert out.on("pca 1-2")
    assert "embeddings of one finding" in out.notes
    same = looked_at(table, np.ones((300, 4)))
    assert not same.points
    assert "all embeddings are identical" in same.notes
    (sample,) = samples(table, config, 1, lambda _: None, [])
    assert features.features(sample).rows == []
    none = run_audits(table, config, material=Material(embeddings=of_finding.slice(0, 0)))
    assert none.results.num_rows == 0
