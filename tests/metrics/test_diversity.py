"""Diversity with its intervals: parts against the plain measures, edges, pairs, and coverage."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import stdtrit

from cxrhf.metrics import diversity as diversity_parts
from cxrhf.metrics.checks import InputError
from cxrhf.metrics.diversity import MEASURES, compare_diversity, measure_diversity, measure_diversity_pair
from cxrhf.metrics.language import lexical_diversity, self_bleu, vocabulary_shift
from tests.real_data import real_data

NAMES = (*MEASURES, "self_bleu_diversity")
Draw = Callable[[int, np.random.Generator], tuple[list[str], np.ndarray]]


def words(count: int) -> list[str]:
    ends = [f"{b}{c}" for b in "aeiou" for c in "lmnrst"]
    return [f"{a}{end}" for tail in ("", *ends) for end in (each + tail for each in ends) for a in "bdfgklmnprst"][
        :count
    ]


VOCABULARY = words(9000)
BANK = [" ".join(np.random.default_rng(k).choice(VOCABULARY[: 40 + 3 * k], 3 + k % 5)) for k in range(2000)]


def reports(n: int, seed: int | np.random.Generator = 0) -> list[str]:
    """Texts of two to five sentences, some sentences and words much more common than others."""
    rng = np.random.default_rng(seed)
    return [". ".join(BANK[k % 2000] for k in rng.zipf(1.4, rng.integers(2, 6))) + "." for _ in range(n)]


def slow_parts(texts: list[str], unit: np.ndarray, quarter: np.ndarray) -> np.ndarray:
    """The plain measures of the texts in each quarter, then in each half, of one split."""
    inside = [quarter[unit] == k for k in range(4)]
    inside += [inside[0] | inside[1], inside[2] | inside[3]]
    values = [lexical_diversity([texts[i] for i in np.flatnonzero(part)]) for part in inside]
    return np.array([[getattr(each, name) for each in values] for name in MEASURES])


@pytest.mark.parametrize(("n_patients", "per_patient"), [(40, 1), (43, 3)])
def test_parts_are_the_plain_measures_of_the_texts_in_them(n_patients: int, per_patient: int) -> None:
    rng = np.random.default_rng(n_patients)
    unit = rng.permutation(np.repeat(np.arange(n_patients), per_patient))
    texts = reports(len(unit), 1)
    texts[3] = texts[11] = texts[20] = texts[21].replace(" ", "  ")
    texts[5], texts[6], texts[7] = "", "bal bal bal bal", "12"
    tables = diversity_parts.text_tables(texts, None, 0)
    (parts,), n_behind = diversity_parts.measured_parts([tables], unit, 6, 4)
    assert n_behind == (n_patients,) * 3
    deal = diversity_parts.dealt_quarters(n_patients, 6, 4)
    assert (np.sort(deal, axis=1)[:, -4 * (n_patients // 4) :] == np.repeat(np.arange(4), n_patients // 4)).all()
    for split in range(6):
        np.testing.assert_allclose(parts[:, :, split], slow_parts(texts, unit, deal[split]), atol=1e-12)


def test_parts_do_not_depend_on_the_size_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, unit = reports(50), np.arange(50)
    tables = diversity_parts.text_tables(texts, None, 0)
    (whole,), _ = diversity_parts.measured_parts([tables], unit, 7, 0)
    monkeypatch.setattr(diversity_parts, "_BATCH", 1)
    (single,), _ = diversity_parts.measured_parts([tables], unit, 7, 0)
    np.testing.assert_allclose(single, whole, atol=1e-12)


def test_parts_of_a_sample_hold_its_patients_only() -> None:
    texts, unit = ["", *reports(119, 2)], np.arange(120) // 2
    tables = diversity_parts.text_tables(texts, 30, 5)
    assert self_bleu([texts[i] for i in tables.used]) == self_bleu(texts, sample=30, seed=5)
    (parts,), (_, _, n_behind) = diversity_parts.measured_parts([tables], unit, 4, 9)
    some = np.unique(unit[tables.used])
    assert n_behind == len(some) < 60
    deal = diversity_parts.dealt_quarters(len(some), 4, 9)
    place = np.searchsorted(some, unit[tables.used])
    for split in range(4):
        slow = slow_parts([texts[i] for i in tables.used], place, deal[split])[2]
        np.testing.assert_allclose(parts[2, :, split], slow, atol=1e-12)


def test_interval_equals_its_definition() -> None:
    texts, n, n_splits = reports(64, 3), 64, 40
    out = measure_diversity(texts, clusters=np.arange(n), n_resamples=n_splits, seed=2, level=0.9)
    quarters = diversity_parts.dealt_quarters(n, n_splits, 2)
    slow = np.array([slow_parts(texts, np.arange(n), quarter) for quarter in quarters])
    for name, parts in zip(MEASURES, slow.transpose(1, 0, 2), strict=True):
        at_half = np.mean([(a - b) ** 2 / 2 for *_, a, b in parts])
        at_quarter = np.mean([np.var(part[:4], ddof=1) for part in parts])
        variance = at_half * at_half / at_quarter
        t = stdtrit(2 / (8 / n_splits + 4 / n), 0.95)
        # Wilson's limits are where the distance is t standard errors of a value there.
        for end, sign in (("low", -1), ("high", 1)):
            limit = out[f"{name}_ci_{end}"]
            trials = out[name] * (1 - out[name]) / variance
            assert (limit - out[name]) / math.sqrt(limit * (1 - limit) / trials) == pytest.approx(sign * t, rel=1e-9)


def test_values_are_those_of_lexical_diversity() -> None:
    texts = ["", *reports(60)]
    for sample in (None, 20):
        out, plain = measure_diversity(texts, sample=sample, seed=3), lexical_diversity(texts, sample, 3)
        assert list(out) == ["n_texts", "n_empty", "n_tokens", "n_types", *NAMES]
        assert all(out[name] == getattr(plain, name) for name in out if name != "self_bleu_diversity")
        assert out["self_bleu_diversity"] == 1 - plain.self_bleu
        assert all(type(value) in (int, float) for value in out.values())


def test_keys_and_order_within_the_interval() -> None:
    out = measure_diversity(reports(80), n_resamples=50)
    for name in NAMES:
        assert 0 <= out[f"{name}_ci_low"] < out[name] < out[f"{name}_ci_high"] <= 1
        assert out[f"{name}_ci_method"] == "wilson, quarters of patients"
        assert f"{name}_note" not in out
    assert out["self_bleu_diversity_ci_low"] == 1 - out["self_bleu_ci_high"]
    assert {type(value) for value in out.values()} == {int, float, str}


@pytest.mark.parametrize("by_patient", [True, False])
def test_order_of_rows_does_not_matter(by_patient: bool) -> None:
    texts = [*reports(70), "", "same text", "same text"]
    patient = np.arange(len(texts)) // 2
    mixed = np.random.default_rng(0).permutation(len(texts))
    one = measure_diversity(texts, clusters=patient if by_patient else None, n_resamples=30)
    two = measure_diversity([texts[i] for i in mixed], clusters=patient[mixed] if by_patient else None, n_resamples=30)
    assert one == pytest.approx(two, abs=1e-9)


def test_seed_level_and_number_of_splits() -> None:
    texts = reports(120)
    ends = {}
    for key, settings in {
        "plain": {},
        "again": {},
        "seed": {"seed": 1},
        "narrow": {"level": 0.5},
        "few": {"n_resamples": 5},
    }.items():
        out = measure_diversity(texts, **{"n_resamples": 100, **settings})
        ends[key] = (out["self_bleu_ci_low"], out["self_bleu_ci_high"])
    assert ends["plain"] == ends["again"] != ends["seed"]
    assert ends["plain"] == pytest.approx(ends["seed"], abs=0.03)
    assert ends["plain"][0] < ends["narrow"][0] < ends["narrow"][1] < ends["plain"][1]
    assert np.diff(ends["few"]) > np.diff(ends["plain"])


def test_reports_of_one_patient_are_not_independent() -> None:
    """Patients with one report or six equal ones, and a word of their own: fewer independent pieces than reports."""
    patient = np.repeat(np.arange(80), np.random.default_rng(1).choice([1, 6], 80))
    own = [f"{text} {word}" for text, word in zip(reports(80, 1), words(80), strict=True)]
    texts = [own[k] for k in patient]
    apart = measure_diversity(texts, n_resamples=100)
    together = measure_diversity(texts, clusters=patient, n_resamples=100)
    assert apart["type_token_ratio"] == together["type_token_ratio"]
    assert width(together, "type_token_ratio") > 1.4 * width(apart, "type_token_ratio")


def width(out: dict[str, Any], name: str) -> float:
    return float(out[f"{name}_ci_high"] - out[f"{name}_ci_low"])


def test_one_template_beside_varied_reports() -> None:
    same = measure_diversity(["The lungs are clear."] * 100, n_resamples=50)
    varied = measure_diversity(reports(100), n_resamples=50)
    assert (same["template_diversity"], same["self_bleu"]) == (0.01, 1.0)
    assert same["template_diversity_ci_high"] < varied["template_diversity_ci_low"]
    assert same["self_bleu_ci_low"] > varied["self_bleu_ci_high"]
    # Nobody unlike the others among 100 patients: some 4% of patients may still be, and bring any number of words.
    assert 0.03 < same["template_diversity_ci_high"] < 0.08
    assert 0.94 < same["self_bleu_ci_low"] < same["self_bleu_ci_high"] == 1.0
    assert math.isnan(same["type_token_ratio_ci_low"])
    assert same["type_token_ratio_ci_method"] == "undefined"
    assert same["type_token_ratio_note"] == "no interval: at least 5 patients with a unique word are required, got 0"


def test_a_handful_of_templates_is_not_taken_for_certain() -> None:
    """Five templates, all common: their number shows no spread, but a rare sixth may have been missed."""
    texts = [f"Template {word}." for word in words(5) for _ in range(20)]
    out = measure_diversity(texts, n_resamples=50)
    assert out["template_diversity"] == 0.05
    assert out["template_diversity_ci_high"] > 0.05 + 3 / 100


def test_all_reports_different() -> None:
    texts = [f"{a} {b}" for a, b in zip(words(60), words(120)[60:], strict=True)]
    out = measure_diversity(texts, n_resamples=20)
    assert out["template_diversity"] == out["type_token_ratio"] == 1.0
    assert out["template_diversity_ci_low"] < 0.97
    assert out["template_diversity_ci_high"] == pytest.approx(1.0)
    for name in ("type_token_ratio", "self_bleu"):
        assert math.isnan(out[f"{name}_ci_high"])
        assert "all parts of the corpus give the same value" in out[f"{name}_note"]


def test_undefined() -> None:
    nothing = measure_diversity([], n_resamples=10)
    assert all(math.isnan(nothing[name]) and math.isnan(nothing[f"{name}_ci_low"]) for name in NAMES)
    assert nothing["template_diversity_note"] == "undefined: no texts"
    assert measure_diversity([])["template_diversity_note"] == "undefined: no texts"
    one = measure_diversity(["clear lungs"], n_resamples=10)
    assert (one["template_diversity"], one["type_token_ratio"]) == (1.0, 1.0)
    assert one["template_diversity_note"] == "no interval: at least 12 patients are required, got 1"
    assert one["self_bleu_note"] == "undefined: at least 2 texts with words are required, got 1 of 1"
    wordless = measure_diversity(["", "12"] * 10, n_resamples=10)
    assert wordless["type_token_ratio_note"] == "undefined: no words in 20 texts"
    assert math.isnan(wordless["type_token_ratio_ci_low"])
    few = measure_diversity(reports(22), clusters=np.arange(22) // 2, n_resamples=10)
    assert few["self_bleu_diversity_note"] == "no interval: at least 12 patients are required, got 11"
    sampled = measure_diversity(reports(40), sample=8, n_resamples=10)
    assert sampled["self_bleu_note"] == "no interval: at least 12 patients are required, got 8"
    assert not math.isnan(sampled["type_token_ratio_ci_low"])
    hollow = measure_diversity([*reports(8), *[""] * 20], n_resamples=10)
    assert hollow["self_bleu_note"].startswith("no interval: self_bleu is undefined in a quarter")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"texts": "clear lungs"}, "texts: expected a list of str"),
        ({"texts": ["clear", None]}, r"texts\[1\]: .*got None"),
        ({"clusters": [1, 2]}, r"clusters: expected 4 rows .*got 2"),
        ({"clusters": [1, 2, None, 3]}, r"clusters\[2\]: .*got None"),
        ({"n_resamples": -1}, r"n_resamples: .*got -1"),
        ({"n_resamples": 2.5}, r"n_resamples: .*got 2.5"),
        ({"sample": 1}, r"sample: .*got 1"),
        ({"seed": -1}, r"seed: .*got -1"),
        ({"level": 95}, r"level: .*got 95"),
    ],
)
def test_bad_input(settings: dict[str, Any], message: str) -> None:
    texts = settings.pop("texts", ["clear", "lungs", "no", "effusion"])
    with pytest.raises(InputError, match=message):
        measure_diversity(texts, **settings)


def test_pair_finds_a_collapsed_generator() -> None:
    reference = reports(150, 7)
    generated = [*reports(30, 8), *["The lungs are clear."] * 120]
    out = measure_diversity_pair(generated, reference, n_resamples=60)
    for name in NAMES:
        assert out["difference"][name] == out["generated"][name] - out["reference"][name]
        assert out["difference"][f"{name}_ci_low"] < out["difference"][name] < out["difference"][f"{name}_ci_high"]
    assert out["difference"]["template_diversity_ci_high"] < 0 < out["difference"]["self_bleu_ci_low"]
    assert out["difference"]["self_bleu_diversity_ci_high"] == -out["difference"]["self_bleu_ci_low"]
    shift = vocabulary_shift(reference, generated)
    assert out["vocabulary"] == {
        "kept_share": shift.kept_share,
        "lost_mass": shift.lost_mass,
        "new_mass": shift.new_mass,
        "n_lost": len(shift.lost),
        "n_new": len(shift.new),
    }
    assert out["generated"] == measure_diversity(generated, n_resamples=60)
    assert "template_diversity_ci_low" not in measure_diversity_pair(generated, reference)["difference"]


def test_pair_of_near_copies_is_told_apart_better_than_two_strangers() -> None:
    reference = reports(200, 9)
    copies = [text.replace("bal", "bel") + " New." * (i % 9 == 0) for i, text in enumerate(reference)]
    paired = measure_diversity_pair(copies, reference, n_resamples=100)["difference"]
    strangers = measure_diversity_pair(reports(200, 10), reference, n_resamples=100)["difference"]
    assert width(paired, "self_bleu") < 0.6 * width(strangers, "self_bleu")
    same = measure_diversity_pair(reference, reference, n_resamples=100)["difference"]
    for name in NAMES:
        assert same[name] == 0.0
        assert same[f"{name}_ci_low"] <= 0 <= same[f"{name}_ci_high"]


def test_pair_is_undefined_with_the_side_that_is() -> None:
    out = measure_diversity_pair(["clear lungs"] * 20, reports(20), n_resamples=10)["difference"]
    assert out["type_token_ratio_note"] == (
        "generated: no interval: at least 5 patients with a unique word are required, got 0"
    )
    assert not math.isnan(out["type_token_ratio"])
    assert math.isnan(out["type_token_ratio_ci_low"])
    with pytest.raises(InputError, match="reference: expected 2 rows as in generated, got 1"):
        measure_diversity_pair(["a", "b"], ["a"])
    with pytest.raises(InputError, match=r"reference\[0\]: .*got 3"):
        measure_diversity_pair(["a"], [3])  # type: ignore[list-item]


def test_several_corpora_are_compared_two_by_two() -> None:
    corpora = {"greedy": ["clear lungs"] * 30, "rich": reports(30, 1), "reference": reports(30, 2)}
    patient = np.arange(30)
    study = compare_diversity(corpora, clusters=patient, n_resamples=20)
    pair = measure_diversity_pair(corpora["rich"], corpora["reference"], clusters=patient, n_resamples=20)
    assert study.of("rich") == pair["generated"]
    assert study.less("rich", "reference") == pair["difference"]
    note = study.less("rich", "greedy")["type_token_ratio_note"]
    assert note == "greedy: no interval: at least 5 patients with a unique word are required, got 0"
    with pytest.raises(InputError, match="corpora"):
        compare_diversity({})


def coverage(draw: Draw, n: int, simulations: int, n_resamples: int) -> dict[str, float]:
    """How often the 95% interval holds the mean over corpora of n patients; a missing interval holds nothing."""
    rng = np.random.default_rng(n)
    truth = dict.fromkeys(MEASURES, 0.0)
    for _ in range(400):
        plain = lexical_diversity(draw(n, rng)[0])
        truth = {name: truth[name] + getattr(plain, name) / 400 for name in MEASURES}
    held = dict.fromkeys(MEASURES, 0)
    for seed in range(simulations):
        texts, patient = draw(n, rng)
        out = measure_diversity(texts, clusters=patient, n_resamples=n_resamples, seed=seed)
        for name in MEASURES:
            held[name] += out[f"{name}_ci_low"] <= truth[name] <= out[f"{name}_ci_high"]
    return {name: held[name] / simulations for name in MEASURES}


def synthetic(n: int, rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    return reports(n, rng), np.arange(n)


def repeated(n: int, rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    """One to four reports a patient, most of them equal."""
    patient = np.repeat(np.arange(n), rng.integers(1, 5, n))
    own, other = reports(n, rng), reports(len(patient), rng)
    return [own[k] if rng.random() < 0.7 else other[i] for i, k in enumerate(patient)], patient


@pytest.mark.slow
def test_coverage_in_a_small_cell() -> None:
    """A quick guard: 60 simulations, more than 3 standard errors below .95."""
    for name, held in coverage(synthetic, 32, 60, 40).items():
        assert held > 0.85, name


@pytest.mark.slow
@pytest.mark.parametrize("draw", [synthetic, repeated])
@pytest.mark.parametrize("n", [20, 200])
def test_coverage(draw: Draw, n: int) -> None:
    found = coverage(draw, n, 300, 200)
    print(f"\n{draw.__name__}, {n} patients: {found}")
    assert min(found.values()) > 0.91, found


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize(("file", "column"), [("reports", "findings"), ("generated", "generated")])
def test_coverage_on_real_reports(file: str, column: str) -> None:
    with gzip.open(real_data(f"iu/{file}.csv.gz"), "rt", encoding="utf-8") as handle:
        pool = [row[column] for row in csv.DictReader(handle) if row[column].strip()]

    def drawn(n: int, rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
        return [pool[i] for i in rng.integers(len(pool), size=n)], np.arange(n)

    found = coverage(drawn, 200, 300, 200)
    print(f"\n{file}, 200 reports: {found}")
    assert min(found.values()) > 0.91, found
