"""The shortcut audit: the drain explains the planted gap, nothing is explained where nothing is, and who is too few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit

from cxrhf import metrics
from cxrhf.audits.material import Material
from cxrhf.audits.plan import AuditOutput, run_audits
from cxrhf.errors import ConfigError
from cxrhf.metrics.balancing import equalising_weights
from cxrhf.schema import ATTRIBUTE
from cxrhf.tables.checks import check
from cxrhf.twin.planted_groups import PlantedShortcut, shortcut_truth
from cxrhf.twin.planted_groups import shortcut as planted
from tests.audits.tables import block, settings
from tests.refusals import refused

F, M = "drain known & sex=F", "drain known & sex=M"
GAPS = ("auroc", "auroc_equalised", "auroc_gap_explained")


class Shortcuts:
    """RESULT rows of the audit by metric, slice, versus and finding."""

    def __init__(self, output: AuditOutput) -> None:
        self.rows = output.results.to_pylist()
        self.curves = output.curves.to_pylist()
        self.notes = "\n".join(output.notes)
        assert {row["audit"] for row in self.rows} <= {"shortcut"}

    def __call__(
        self, metric: str, where: str = F, versus: str | None = None, finding: str | None = None
    ) -> dict[str, Any]:
        (row,) = [
            row
            for row in self.rows
            if (row["metric"], row["slice"], row["versus"]) == (metric, where, versus)
            and finding in (None, row["finding"])
        ]
        return row

    def gap(self, metric: str) -> dict[str, Any]:
        return self(metric, F, M)


def attribute(values: Any, name: str = "drain") -> pa.Table:
    """ATTRIBUTE rows of the images of `block`; -1 = not known."""
    known = [(f"secret-image-{i:05d}", str(value)) for i, value in enumerate(values) if str(value) != "-1"]
    columns = {"image_id": [each for each, _ in known], "name": [name] * len(known), "value": [v for _, v in known]}
    return check(pa.table(columns), ATTRIBUTE)


def found_in(*blocks: pa.Table, marks: Any, n_resamples: int = 200, **options: Any) -> Shortcuts:
    """`marks`: the drain of each image, or ATTRIBUTE rows."""
    attributes = marks if isinstance(marks, pa.Table) else attribute(marks)
    config = settings(n_resamples, only=("shortcut",), **options)
    return Shortcuts(run_audits(pa.concat_tables(blocks), config, material=Material(attributes=attributes)))


def of_planted(data: PlantedShortcut, **options: Any) -> Shortcuts:
    made = block("x", data.y, data.patient, prob=expit(data.score - 2), sex=data.sex)
    return found_in(made, marks=data.drain, **options)


def hospital(seed: int = 0, n: int = 900, weighted: bool = True) -> dict[str, Any]:
    """Several images a patient, ties, masked labels, unknown sex and drain."""
    rng = np.random.default_rng(seed)
    patient = rng.integers(0, n // 3, n)
    sex = rng.choice(["F", "M", ""], n // 3, p=[0.5, 0.4, 0.1])[patient]
    y = (rng.random(n) < 0.35).astype(float)
    drain = (rng.random(n) < np.where(y == 1, 0.5, np.where(sex == "F", 0.2, 0.4))).astype(int)
    prob = np.round(expit(y + drain - 1.5 + rng.normal(size=n)), 2)
    y[rng.random(n) < 0.1] = np.nan
    drain[rng.random(n) < 0.1] = -1
    made = {"y": y, "patient": patient, "prob": prob, "sex": sex, "drain": drain}
    return made | ({"weight": rng.choice([0.5, 1.0, 2.0], n)} if weighted else {})


def hospital_block(made: dict[str, Any], **changed: Any) -> pa.Table:
    columns = {name: value for name, value in made.items() if name not in ("y", "patient", "drain")}
    sex = columns.pop("sex")
    null = pa.array(sex.tolist(), mask=sex == "")
    table = block("x", made["y"], made["patient"], **(columns | changed))
    return table.set_column(table.schema.get_field_index("sex"), table.schema.field("sex"), null)


# ---------------------------------------------------------------- planted truth and nulls


@pytest.fixture(scope="module")
def large() -> Shortcuts:
    return of_planted(planted(20_000, seed=1), n_resamples=400, level=0.99)


def test_the_drain_explains_the_planted_gap(large) -> None:
    truth = shortcut_truth()
    assert (truth.auroc["M"], truth.auroc["F"]) == pytest.approx((0.7931, 0.8172), abs=1e-4)
    for where, sex in ((F, "F"), (M, "M")):
        natural, equalised = large("auroc", where), large("auroc_equalised", where)
        assert natural["ci_low"] < truth.auroc[sex] < natural["ci_high"]
        assert equalised["ci_low"] < truth.auroc_equalised < equalised["ci_high"]
        assert natural["value"] == pytest.approx(truth.auroc[sex], abs=0.012)
        assert equalised["value"] == pytest.approx(0.8052, abs=0.012)
        assert natural["higher_is_better"]
        assert equalised["higher_is_better"]
    gap = truth.auroc["F"] - truth.auroc["M"]
    natural, equalised, explained = (large.gap(metric) for metric in GAPS)
    assert natural["ci_low"] < gap < natural["ci_high"]
    assert natural["p_value"] < 0.01
    assert equalised["ci_low"] < 0 < equalised["ci_high"]
    assert equalised["p_value"] > 0.05
    assert explained["ci_low"] < gap < explained["ci_high"]
    assert explained["p_value"] < 0.01
    assert explained["value"] == pytest.approx(natural["value"] - equalised["value"])
    # Paired: what is explained is known better than either gap.
    assert explained["ci_high"] - explained["ci_low"] < 0.7 * (natural["ci_high"] - natural["ci_low"])
    assert "p corrected for 3 differences" in explained["method"]
    assert "drain equalised between the sexes within each label" in equalised["method"]


def test_shares_and_confidence_are_the_planted_ones(large) -> None:
    z = np.random.default_rng(0).standard_normal(400_000)
    for where, share in ((("F", 0), 0.147), (("F", 1), 0.502), (("M", 0), 0.23), (("M", 1), 0.505)):
        row = large("share", f"sex={where[0]} & label={where[1]} & drain=1")
        assert row["ci_low"] < share < row["ci_high"]
        assert row["higher_is_better"] is None
        for drain in (0, 1):
            cell = f"sex={where[0]} & label={where[1]} & drain={drain}"
            said = expit(where[1] + 1.5 * drain - 2 + z)
            confidence, brier = large("confidence", cell), large("brier", cell)
            assert confidence["ci_low"] - 0.001 < said.mean() < confidence["ci_high"] + 0.001
            assert brier["ci_low"] - 0.001 < ((said - where[1]) ** 2).mean() < brier["ci_high"] + 0.001
            assert (confidence["higher_is_better"], brier["higher_is_better"]) == (None, False)
            levels = [row["y"] for row in large.curves if row["slice"] == cell]
            assert levels == sorted(levels)
            assert levels[4] == pytest.approx(np.median(said), abs=0.03)


@pytest.mark.parametrize("nothing", [{"equalised": True}, {"effect": 0.0}])
def test_nothing_is_explained_where_nothing_is(nothing) -> None:
    """Drains as frequent in both sexes, or a score that does not look at them."""
    found = of_planted(planted(10_000, seed=4, **nothing), n_resamples=300)
    for metric in GAPS:
        row = found.gap(metric)
        assert row["p_value"] > 0.05
        assert row["ci_low"] < 0 < row["ci_high"]
        assert abs(row["value"]) < 0.03


def _simulated(times: int, n: int, n_resamples: int) -> tuple[np.ndarray, np.ndarray]:
    """Whether the equalised gap's interval holds the truth (0), and its raw p value."""
    held, p_value = [], []
    for seed in range(times):
        options = {"n_resamples": n_resamples, "correction": "none", "shortcuts": ("drain",), "seed": seed}
        row = of_planted(planted(n, seed=seed), **options).gap("auroc_equalised")
        held.append(row["ci_low"] <= 0 <= row["ci_high"])
        p_value.append(1.0 if row["p_value"] is None else row["p_value"])
    return np.array(held), np.array(p_value)


@pytest.mark.slow
def test_intervals_of_the_equalised_gap_hold_the_truth() -> None:
    """Of 400 such samples 387 did, and p was below .05 in 3.2%."""
    held, p_value = _simulated(60, 500, 150)
    assert held.sum() >= 53
    assert (p_value < 0.05).sum() <= 7
    assert 0.35 < p_value.mean() < 0.65


@pytest.mark.slow
@pytest.mark.parametrize("n", [300, 500, 1500])
def test_coverage_and_size_over_many_samples(n) -> None:
    from scipy.stats import kstest

    held, p_value = _simulated(600, n, 400)
    assert 0.93 <= held.mean() <= 0.985
    assert 0.015 <= (p_value < 0.05).mean() <= 0.07
    assert n == 300 or kstest(p_value, "uniform").pvalue > 0.001


@pytest.mark.parametrize("model", ["ideal", "shortcut", "image_only"])
def test_the_twin_leans_on_drains(twin, model) -> None:
    from cxrhf.twin.scores import model_truth

    tables, attributes = twin
    truth = model_truth(model=model)["pneumothorax"]
    found = found_in(tables[model], marks=attributes, n_resamples=300, level=0.99, shortcuts=("drain",))
    for where, sex in ((F, "F"), (M, "M")):
        natural, equalised = found("auroc", where), found("auroc_equalised", where)
        assert natural["ci_low"] < truth["by_sex"][sex] < natural["ci_high"]
        assert equalised["ci_low"] < truth["drains_equalised"] < equalised["ci_high"]
    gap = truth["by_sex"]["F"] - truth["by_sex"]["M"]
    explained = found.gap("auroc_gap_explained")
    assert explained["ci_low"] < gap < explained["ci_high"]
    assert (explained["p_value"] < 0.01) == (model != "image_only")
    assert found.gap("auroc_equalised")["p_value"] > 0.05


@pytest.fixture(scope="module")
def twin() -> tuple[dict[str, pa.Table], pa.Table]:
    import pyarrow.compute as pc

    from cxrhf.twin.models import attributes, predictions
    from cxrhf.twin.people import people

    crowd = people(5_000, seed=5)
    tables = {model: predictions(crowd, model=model) for model in ("ideal", "shortcut", "image_only")}
    wanted = {name: table.filter(pc.equal(table["finding"], "pneumothorax")) for name, table in tables.items()}
    drains = attributes(crowd)
    return wanted, drains.filter(pc.equal(drains["name"], "drain"))


# ---------------------------------------------------------------- slow twin and invariances


@pytest.mark.parametrize("weighted", [False, True])
def test_numbers_are_those_of_literal_weights(weighted) -> None:
    made = hospital(weighted=weighted)
    found = found_in(hospital_block(made), marks=made["drain"])
    known = ~np.isnan(made["y"]) & (made["drain"] >= 0) & (made["sex"] != "")
    y, p, sex, drain = (made[name][known] for name in ("y", "prob", "sex", "drain"))
    weight = made["weight"][known] if weighted else np.ones(known.sum())
    equal = equalising_weights(y, sex == "M", drain, weight)
    values = {}
    for where, inside in (("drain known", sex != ""), (F, sex == "F"), (M, sex == "M")):
        for metric, used in (("auroc", weight), ("auroc_equalised", equal)):
            row = found(metric, where)
            values[metric, where] = metrics.auroc(y[inside], p[inside], used[inside])
            assert row["value"] == pytest.approx(values[metric, where], abs=1e-12)
            assert (row["n"], row["n_pos"]) == (inside.sum(), int(y[inside].sum()))
            assert row["n_patients"] == len(np.unique(made["patient"][known][inside]))
    natural, equalised = (values[metric, F] - values[metric, M] for metric in GAPS[:2])
    for metric, value in zip(GAPS, (natural, equalised, natural - equalised), strict=True):
        assert found.gap(metric)["value"] == pytest.approx(value, abs=1e-12)
    for who in "FM":
        for label in (0, 1):
            own = (sex == who) & (y == label)
            row = found("share", f"sex={who} & label={label} & drain=1")
            assert row["value"] == pytest.approx(np.average(drain[own], weights=weight[own]))
            assert row["note"] == f"{drain[own].sum()} of {own.sum()} images"
            for value in (0, 1):
                cell, at = f"sex={who} & label={label} & drain={value}", own & (drain == value)
                for metric, each in (("confidence", p), ("brier", (p - y) ** 2)):
                    row = found(metric, cell)
                    assert row["value"] == pytest.approx(np.average(each[at], weights=weight[at]))
                    assert row["ci_low"] < row["value"] < row["ci_high"]
                copies = np.repeat(p[at], (2 * weight[at]).astype(int))
                expected = np.quantile(copies, [0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1], method="inverted_cdf")
                assert [each["y"] for each in found.curves if each["slice"] == cell] == expected.tolist()
    assert ("weight column" in found.gap("auroc_equalised")["method"]) == weighted
    images = (made["sex"] == "").sum()
    assert f"{images} images are neither of sex F nor M" in found.notes
    assert "secret" not in found.notes


def test_row_order_and_threads_change_nothing() -> None:
    made = hospital(3)
    table, drains = hospital_block(made), attribute(made["drain"])
    order = np.random.default_rng(0).permutation(table.num_rows)
    config = settings(150, only=("shortcut",))
    one = run_audits(table, config, material=Material(attributes=drains), workers=1)
    two = run_audits(
        table.take(order),
        config,
        material=Material(attributes=drains.take(np.random.default_rng(1).permutation(drains.num_rows))),
        workers=2,
    )
    assert one.results.equals(two.results)
    assert one.curves.equals(two.curves)


def test_monotone_scores_rank_alike_and_have_no_confidence() -> None:
    made = hospital(5)
    one = found_in(hospital_block(made), marks=made["drain"])
    logits = hospital_block({name: value for name, value in made.items() if name != "prob"}, logit=9 * made["prob"])
    two = found_in(logits, marks=made["drain"])
    for metric in GAPS:
        first, second = one.gap(metric), two.gap(metric)
        assert first["value"] == pytest.approx(second["value"], abs=1e-12)
        assert first["p_value"] == pytest.approx(second["p_value"], abs=1e-9)
    assert {row["metric"] for row in two.rows} == {"share", *GAPS}
    assert not two.curves


def test_one_correction_by_max_t_for_all() -> None:
    found = of_planted(planted(4_000, seed=1), correction="max_t")
    assert all("(max-T)" in found.gap(metric)["method"] for metric in GAPS)


# ---------------------------------------------------------------- what is not there


def test_without_two_sexes_there_is_nothing_to_compare() -> None:
    data = planted(300, seed=0)
    made = block("x", data.y, data.patient, prob=expit(data.score))
    assert "the table has no sex" in found_in(made, marks=data.drain).notes
    made = block("x", data.y, data.patient, prob=expit(data.score), sex="")
    assert "the table has no sex" in found_in(made, marks=data.drain).notes
    made = block("x", data.y, data.patient, prob=expit(data.score), sex="F")
    found = found_in(made, marks=data.drain)
    assert "only one sex, F" in found.notes
    assert not found.rows


def test_of_three_sexes_the_two_with_most_patients_are_compared() -> None:
    data = planted(3_000, seed=0)
    sex = np.where(np.arange(3_000) % 7 == 0, "A", data.sex)
    found = found_in(block("x", data.y, data.patient, prob=expit(data.score), sex=sex), marks=data.drain)
    assert found.gap("auroc")["n"] == (sex != "A").sum()
    assert f"{(sex == 'A').sum()} images are neither of sex F nor M" in found.notes


def test_too_few_patients_are_left_out_in_one_note_and_shown_when_asked_for() -> None:
    data = planted(2_000, seed=0)
    rare = np.where((data.sex == "F") & (data.y == 1), np.cumsum(data.drain) % 97 == 0, data.drain).astype(int)
    constant = np.ones(2_000, dtype=int)
    marks = pa.concat_tables([attribute(data.drain), attribute(rare, "rare"), attribute(constant, "constant")])
    columns = {"prob": expit(data.score), "sex": data.sex}
    healthy = np.where(np.arange(2_000) < 8, 1.0, 0.0)
    tables = [block("x", data.y, data.patient, **columns), block("few", healthy, data.patient, **columns)]
    found = found_in(*tables, marks=marks)
    assert {row["finding"] for row in found.rows} == {"x"}
    (left,) = [note for note in found.notes.splitlines() if "excluded" in note]
    assert left.endswith("constant for all findings; drain for few; rare for all findings")
    assert "fewer than 10 patients" in left

    asked = found_in(*tables, marks=marks, shortcuts=("drain",))
    gap = asked("auroc", F, M, "few")
    assert gap["p_value"] is None
    assert "not tested: sex=" in gap["note"]
    assert np.isfinite(gap["ci_low"])
    for metric in GAPS:
        assert asked(metric, F, M, "x")["p_value"] is not None
    cells = [row for row in asked.rows if row["metric"] == "brier" and row["finding"] == "few" and row["n_pos"]]
    assert cells
    assert all("only" in row["note"] for row in cells)
    assert not [row for row in asked.curves if row["finding"] == "few" and "label=1" in row["slice"]]

    asked = found_in(tables[0], marks=marks, shortcuts=("rare",))
    where = ("rare known & sex=F", "rare known & sex=M")
    assert asked("auroc", *where)["p_value"] is not None
    assert asked("auroc_equalised", *where)["p_value"] is None
    assert "of sex=F & label=1 & rare=1" in asked("auroc_equalised", *where)["note"]


@pytest.mark.parametrize("value", [0, 1])
def test_what_cannot_be_equalised_is_no_number(value) -> None:
    data = planted(2_000, seed=0)
    drain = np.where((data.sex == "M") & (data.y == 1), value, data.drain)
    made = block("x", data.y, data.patient, prob=expit(data.score), sex=data.sex)
    found = found_in(made, marks=drain, shortcuts=("drain",))
    assert found.gap("auroc")["p_value"] is not None
    for row in [found("auroc_equalised", each) for each in (F, M, "drain known")] + [found.gap(m) for m in GAPS[1:]]:
        assert np.isnan([row["value"], row["ci_low"], row["ci_high"]]).all()
        assert f"no patient of sex=M & label=1 & drain={1 - value}" in row["note"]
        assert row["p_value"] is None
    empty = found("brier", f"sex=M & label=1 & drain={1 - value}")
    assert (np.isnan(empty["value"]), empty["n"], empty["note"]) == (True, 0, "no patient in this cell")
    assert found("share", "sex=M & label=1 & drain=1")["value"] == value


def test_a_sex_without_the_finding_has_no_auroc() -> None:
    data = planted(1_000, seed=0)
    y = np.where(data.sex == "M", 0, data.y)
    made = block("x", y, data.patient, prob=expit(data.score), sex=data.sex)
    found = found_in(made, marks=data.drain, shortcuts=("drain",))
    assert np.isnan(found("auroc", M)["value"])
    assert "undefined" in found("auroc", M)["note"]
    assert np.isfinite(found("auroc", F)["value"])
    gap = found.gap("auroc")
    assert np.isnan(gap["value"])
    assert "sex=M has 0 patients with" in gap["note"]
    assert np.isnan(found("share", "sex=M & label=1 & drain=1")["value"])


def test_an_attribute_known_of_few_images_is_audited_on_those() -> None:
    data = planted(12_000, seed=0)
    known = np.arange(12_000) % 12 == 0
    made = block("x", data.y, data.patient, prob=expit(data.score), sex=data.sex)
    found = found_in(made, marks=np.where(known, data.drain, -1))
    row = found("auroc", "drain known")
    assert (row["n"], row["n_patients"]) == (1_000, 1_000)
    assert row["value"] == pytest.approx(metrics.auroc(data.y[known], data.score[known]))
    assert "drain is known for 1,000 of 12,000 images" in found.notes


def test_attributes_that_cannot_be_asked_about() -> None:
    data = planted(600, seed=0)
    made = block("x", data.y, data.patient, prob=expit(data.score), sex=data.sex)
    size = attribute(np.where(data.drain == 1, "large", "small"), "size")
    marks = pa.concat_tables([attribute(data.drain), size])
    assert "size" not in found_in(made, marks=marks).notes
    found = found_in(made, marks=marks, shortcuts=("size", "drain"))
    assert "size is excluded" in found.notes
    assert found.gap("auroc")["n"] == 600
    assert "no attribute has only the values 1 and 0" in found_in(made, marks=size).notes
    with refused(ConfigError, "shortcuts", "drain, size", got="drains", fix="'drain'"):
        found_in(made, marks=marks, shortcuts=("drains",))


def test_the_dataset_that_lacks_an_attribute_says_so() -> None:
    data = planted(1_200, seed=0)
    made = block("x", data.y, data.patient, prob=expit(data.score), sex=data.sex, dataset="here")
    other = {"dataset": ["there"] * 1_200, "image_id": [f"other-{i}" for i in range(1_200)]}
    columns = [pa.array(other[name]) if name in other else made[name] for name in made.schema.names]
    there = pa.table(columns, schema=made.schema)
    found = found_in(made, there, marks=data.drain, shortcuts=("drain",))
    assert {row["dataset"] for row in found.rows} == {"here"}
    assert "no image of this dataset has the attribute drain (dataset there)" in found.notes
