"""CAD and WAE: published vectors, the planted truth D4, slow twins, invariances, planted erasures and nulls."""

from __future__ import annotations

import csv
import gzip
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.stats import binomtest, norm

from cxrhf.metrics.checks import InputError
from cxrhf.metrics.language import STOP_WORDS, tokenize
from cxrhf.metrics.words import (
    STATISTICS,
    Displacement,
    association,
    bootstrap_words,
    cad,
    cad_corpora,
    cad_each,
    cad_texts,
    categories,
    corpora,
    delta_dir,
    delta_wae,
    omitted_mass,
    permute_groups,
    split_half,
    summary,
    swap_corpora,
    sweep,
    wae,
)
from cxrhf.metrics.words_corpora import Corpora
from tests.real_data import real_data

VECTORS = json.loads((Path(__file__).parents[1] / "vectors.json").read_text())
EXACT = {"abs": 1e-9, "rel": 0}
ERASED = ("omitted", "neutralised")

# Reference F, M, prediction F, M (D4 of the methods page).
D4 = {
    "effusion": (300, 300, 400, 200),
    "pneumothorax": (100, 100, 50, 250),
    "mastectomy": (60, 2, 0, 0),
    "pacemaker": (20, 80, 80, 20),
    "sternotomy": (60, 120, 60, 120),
    "scoliosis": (150, 88, 119, 119),
    **{f"word{i}": (50, 50, 50, 50) for i in range(390)},
}


def sides(table: dict[str, tuple[int, int, int, int]]) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
    columns = [{word: row[i] for word, row in table.items()} for i in range(4)]
    return {"F": columns[0], "M": columns[1]}, {"F": columns[2], "M": columns[3]}


def category(moved: Displacement, word: str) -> str:
    return str(moved.category[moved.words.index(word)])


def letters(number: int) -> str:
    """A made-up alphabetic word for a number."""
    return "w" + "".join("abcdefghij"[int(digit)] for digit in f"{number:04d}")


def reports(rng: np.random.Generator, n: int, chance: NDArray[np.float64], tokens: int = 40) -> list[str]:
    words = np.array([letters(i) for i in range(len(chance))])
    return [" ".join(words[rng.choice(len(chance), tokens, p=chance)]) for _ in range(n)]


def zipf(size: int) -> NDArray[np.float64]:
    chance = 1 / np.arange(2.0, size + 2)
    return chance / chance.sum()


def small(seed: int = 0, n: int = 60, images: int = 1) -> tuple[list[str], list[str], list[str], list[int]]:
    rng = np.random.default_rng(seed)
    patients = [i for i in range(n // images) for _ in range(images)]
    groups = ["FM"[i % 2] for i in patients]
    return reports(rng, n, zipf(30), 12), reports(rng, n, zipf(30), 12), groups, patients


# --- published values -------------------------------------------------------------------------------------------


def test_vectors() -> None:
    moved = cad(VECTORS["input"]["cad_ref"], VECTORS["input"]["cad_pred"])
    assert list(moved.words) == VECTORS["cad.vocab"]
    assert moved.groups == ("F", "M")
    for name in ("z_ref", "z_pred", "z_disp"):
        assert getattr(moved, name) == pytest.approx(VECTORS[f"cad.{name}"], **EXACT)
    assert moved.q_value == pytest.approx(VECTORS["cad.p_bh"], **EXACT)
    paper = cad(VECTORS["input"]["cad_ref"], VECTORS["input"]["cad_pred"], rule="paper")
    assert paper.q_value == pytest.approx(VECTORS["cad.p_bh"], **EXACT)
    assert wae(moved, "prediction") == pytest.approx(VECTORS["wae.pred"], **EXACT)
    assert wae(moved, "reference") == pytest.approx(VECTORS["wae.ref"], **EXACT)
    same = cad(VECTORS["input"]["cad_ref"], VECTORS["input"]["cad_ref"])
    assert wae(same) == VECTORS["wae.identical_corpora"] == 0


def never(first: int, second: int, alpha: float = 0.1) -> Displacement:
    """A word with so many reference tokens by group and none generated; all group totals equal."""
    table = {"word": (first, second, 0, 0), "filler": (5000, 5000, 9000, 9000), "more": (second, first, 0, 0)}
    return cad(*sides(table), alpha=alpha)


def test_vectors_never_generated() -> None:
    for first, second in ((200, 20), (60, 0)):
        moved = never(first, second)
        at = moved.words.index("word")
        got = [moved.z_ref[at], moved.z_pred[at], moved.z_disp[at]]
        assert got == pytest.approx(VECTORS[f"cad.never_generated({first}F,{second}M)"], **EXACT)
    z_crit = norm.ppf(0.975)
    assert z_crit == pytest.approx(VECTORS["cad.z_crit(.05)"], **EXACT)
    least = VECTORS["cad.min_count_to_flag_never_generated(alpha=.1, .5, 1)"]
    for alpha, count in zip((0.1, 0.5, 1), least, strict=True):
        for tokens, flagged in ((count - 1, False), (count, True)):
            moved = never(tokens, 0, alpha)
            assert bool(abs(moved.z_disp[moved.words.index("word")]) > z_crit) is flagged


def test_printed_rule_cannot_see_full_erasure_and_ours_can() -> None:
    moved = never(200, 20)
    assert category(moved, "word") == "omitted"
    assert "erasure" not in categories(moved, rule="paper").category


def test_d4() -> None:
    moved = cad(*sides(D4))
    at = [moved.words.index(word) for word in list(D4)[:6]]
    assert moved.z_disp[at] == pytest.approx([5.8226, -7.6704, -0.7409, 7.8375, 0, -2.8560], abs=5e-5)
    # Scoliosis is displaced at the raw level only (p = .004, one of 396 words): after BH nothing is shown.
    truth = ["new", "new", "omitted", "flip", "preserved"]
    assert moved.category[at].tolist() == [*truth, "stable"]
    assert categories(moved, adjusted=False).category[at].tolist() == [*truth, "neutralised"]
    assert moved.p_value[at[5]] < 0.05 < moved.q_value[at[5]]
    printed = categories(moved, rule="paper").category[at].tolist()
    assert printed == ["new", "new", "stable", "flip", "stable", "erasure"]
    assert set(moved.category.tolist()) == {*truth, "stable"}
    assert wae(moved, "prediction") == pytest.approx(1.13999, abs=5e-6)
    assert wae(moved, "reference") == pytest.approx(0.99621, abs=6e-6)
    assert wae(moved, "reference", "F") == pytest.approx(6.58462, abs=6e-6)
    assert wae(moved, "reference", "M") == pytest.approx(21.93806, abs=6e-6)
    assert delta_wae(moved, "reference") == pytest.approx(6.58462 - 21.93806, abs=1e-5)
    counts = summary(moved)
    assert counts["n_associated"] == 4
    assert [counts[rule]["erasure"] for rule in ("either", "score", "exact", "paper")] == [1, 1, 1, 1]
    assert counts["either_raw"]["erasure"] == 2
    assert counts["omitted_mass"] == counts["never_generated_mass"] == 62 / moved.reference.sum()


def test_neutralised_amplified_and_weakened() -> None:
    quiet = {f"word{i}": (200, 200, 200, 200) for i in range(60)}
    table = {"scar": (900, 300, 600, 600), "stent": (150, 300, 30, 400), "clip": (900, 300, 750, 450), **quiet}
    moved = cad(*sides(table))
    assert category(moved, "scar") == "neutralised"
    assert category(moved, "stent") == "amplified"
    assert category(moved, "clip") == "weakened"


# --- slow twins -------------------------------------------------------------------------------------------------


def slow_scores(texts: list[str], groups: list[str], words: list[str]) -> tuple[list[float], list[float]]:
    """s and its variance for every word, from counters."""
    counts = {g: Counter(t for x, h in zip(texts, groups, strict=True) if h == g for t in tokenize(x)) for g in "FM"}
    total = {g: sum(counts[g][w] for w in words) for g in "FM"}
    p = {g: [(counts[g][w] + 0.1) / (total[g] + 0.1 * len(words)) for w in words] for g in "FM"}
    s = [math.log(a / b) for a, b in zip(p["F"], p["M"], strict=True)]
    return s, [1 / (counts["F"][w] + 0.1) + 1 / (counts["M"][w] + 0.1) for w in words]


def slow_wae(reference: list[str], generated: list[str], groups: list[str], words: list[str]) -> dict[str, float]:
    ref, pred = slow_scores(reference, groups, words), slow_scores(generated, groups, words)
    squared = [(a - b) ** 2 / (v + u) for a, b, v, u in zip(ref[0], pred[0], ref[1], pred[1], strict=True)]
    z_ref = [s / math.sqrt(v) for s, v in zip(*ref, strict=True)]
    out = {}
    for name, texts in (("prediction", generated), ("reference", reference)):
        weight = Counter(token for text in texts for token in tokenize(text))
        for suffix, chosen in (("", words), ("_first", [1]), ("_second", [-1])):
            rows = [
                (weight[w], q) for w, q, z in zip(words, squared, z_ref, strict=True) if not suffix or z * chosen[0] > 1
            ]
            mass = sum(w for w, _ in rows)
            out[f"wae_{name}{suffix}"] = sum(w * q for w, q in rows) / mass if mass else math.nan
        out[f"delta_wae_{name}"] = out[f"wae_{name}_first"] - out[f"wae_{name}_second"]
    size = {
        (side, g): sum(len(tokenize(t)) for t, h in zip(texts, groups, strict=True) if h == g)
        for side, texts in (("r", reference), ("p", generated))
        for g in "FM"
    }
    out["delta_dir"] = size["p", "M"] / size["p", "F"] - size["r", "M"] / size["r", "F"]
    return out


def assert_replicate(values: dict[str, NDArray[np.float64]], index: int, twin: dict[str, float]) -> None:
    for name in STATISTICS:
        assert values[name][index] == pytest.approx(twin[name], abs=1e-9, nan_ok=True), name


def test_texts_agree_with_counters() -> None:
    reference, generated, groups, _ = small()
    moved = cad_texts(reference, generated, groups)
    words = sorted({t for text in reference + generated for t in tokenize(text)} - STOP_WORDS)
    assert list(moved.words) == words
    ref, pred = slow_scores(reference, groups, words), slow_scores(generated, groups, words)
    z_disp = [(a - b) / math.sqrt(v + u) for a, b, v, u in zip(pred[0], ref[0], ref[1], pred[1], strict=True)]
    assert moved.z_disp == pytest.approx(z_disp, abs=1e-9)
    twin = slow_wae(reference, generated, groups, words)
    assert wae(moved, "prediction") == pytest.approx(twin["wae_prediction"])
    assert wae(moved, "reference", "M") == pytest.approx(twin["wae_reference_second"])
    assert delta_wae(moved) == pytest.approx(twin["delta_wae_prediction"])
    assert delta_dir(moved) == pytest.approx(twin["delta_dir"], abs=1e-12)


@settings(deadline=None, max_examples=30, derandomize=True)
@given(st.lists(st.tuples(*[st.integers(0, 40)] * 4), min_size=1, max_size=8))
def test_tests_agree_with_scipy(rows: list[tuple[int, int, int, int]]) -> None:
    rows = [*rows, (5, 5, 5, 5)]
    moved = cad(*sides({letters(i): row for i, row in enumerate(rows)}))
    n_ref, n_pred = moved.reference.sum(axis=0), moved.prediction.sum(axis=0)
    share = n_pred.sum() / (n_ref.sum() + n_pred.sum())
    first = moved.reference[0].sum() / n_ref.sum()
    for i in range(len(moved.words)):
        expected = binomtest(int(n_pred[i]), int(n_ref[i] + n_pred[i]), share, alternative="less").pvalue
        assert moved.p_omission[i] == pytest.approx(expected, abs=1e-12)
        if n_ref[i]:
            tails = [
                binomtest(int(moved.reference[0, i]), int(n_ref[i]), first, alternative=side).pvalue
                for side in ("less", "greater")
            ]
            assert moved.p_exact[i] == pytest.approx(min(1, 2 * min(tails)), abs=1e-12)
    assert moved.p_value == pytest.approx(2 * norm.sf(np.abs(moved.z_disp)))


def test_bootstrap_agrees_with_a_loop_over_documents() -> None:
    reference, generated, groups, patients = small(images=2)
    texts = corpora(reference, generated, groups, patients)
    got = bootstrap_words(texts, n_resamples=5, seed=7)
    strata = [sorted({p for p, g in zip(patients, groups, strict=True) if g == name}) for name in "FM"]
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence(7).spawn(2)]
    draws = [rng.integers(0, len(m), size=(5, len(m))) for m, rng in zip(strata, streams, strict=True)]
    for replicate in range(5):
        drawn = [m[i] for m, d in zip(strata, draws, strict=True) for i in d[replicate]]
        rows = [i for patient in drawn for i, owner in enumerate(patients) if owner == patient]
        chosen = [[column[i] for i in rows] for column in (reference, generated, groups)]
        assert_replicate(got.replicates, replicate, slow_wae(*chosen, texts.vocabulary))
    assert_replicate(
        {k: np.array([v]) for k, v in got.observed.items()}, 0, slow_wae(reference, generated, groups, texts.vocabulary)
    )


def test_permutations_agree_with_a_loop_over_documents() -> None:
    reference, generated, groups, patients = small(images=2)
    texts = corpora(reference, generated, groups, patients)
    test = permute_groups(texts, n_resamples=4, seed=3)
    rng = np.random.default_rng(np.random.SeedSequence(3).spawn(1)[0])
    labels = np.array([groups[patients.index(p)] == "F" for p in range(30)])
    for replicate, drawn in enumerate(rng.permuted(np.tile(labels, (4, 1)), axis=1)):
        mixed = ["F" if drawn[p] else "M" for p in patients]
        assert_replicate(test.replicates, replicate, slow_wae(reference, generated, mixed, texts.vocabulary))
    swap = swap_corpora(texts, n_resamples=4, seed=3)
    rng = np.random.default_rng(np.random.SeedSequence(3).spawn(1)[0])
    for replicate, drawn in enumerate(rng.integers(0, 2, size=(4, 30))):
        pairs = [(g, r) if drawn[p] else (r, g) for r, g, p in zip(reference, generated, patients, strict=True)]
        one, two = (list(column) for column in zip(*pairs, strict=True))
        assert_replicate(swap.replicates, replicate, slow_wae(one, two, groups, texts.vocabulary))
    assert "no association" in test.null
    assert "no displacement" in swap.null


# --- invariances ------------------------------------------------------------------------------------------------


def test_order_of_documents_does_not_matter() -> None:
    reference, generated, groups, patients = small()
    order = np.random.default_rng(1).permutation(len(groups))
    one = cad_texts(reference, generated, groups, patients)
    mixed = [[column[i] for i in order] for column in (reference, generated, groups, patients)]
    two = cad_texts(*mixed)  # type: ignore[arg-type]
    assert one.words == two.words
    assert np.array_equal(one.z_disp, two.z_disp)
    assert np.array_equal(one.p_exact, two.p_exact)


def test_swapping_group_names_flips_signs() -> None:
    one, two = cad(*sides(D4)), cad(*sides(D4), groups=("M", "F"))
    assert two.groups == ("M", "F")
    for name in ("z_ref", "z_pred", "z_disp"):
        assert getattr(two, name) == pytest.approx(-getattr(one, name), abs=1e-12)
    assert two.category.tolist() == one.category.tolist()
    assert wae(two) == pytest.approx(wae(one))
    assert delta_wae(two) == pytest.approx(-delta_wae(one))


def test_a_duplicated_corpus_doubles_the_evidence() -> None:
    double = {word: tuple(2 * n for n in row) for word, row in D4.items()}
    one, two = cad(*sides(D4)), cad(*sides(double))  # type: ignore[arg-type]
    frequent = np.minimum(one.reference, one.prediction).min(axis=0) >= 20
    assert two.z_disp[frequent] == pytest.approx(math.sqrt(2) * one.z_disp[frequent], abs=0.05)
    assert wae(two) == pytest.approx(2 * wae(one), rel=0.01)
    assert category(two, "scoliosis") == "neutralised"  # enough data now


@pytest.mark.parametrize("function", [bootstrap_words, permute_groups, swap_corpora, split_half])
def test_results_depend_on_the_seed_only(function: Callable[..., Any]) -> None:
    reference, generated, groups, patients = small(images=3)
    texts = corpora(reference, generated, groups, patients)

    def replicates(**options: Any) -> NDArray[np.float64]:
        result = function(texts, n_resamples=30, **options)
        return np.stack(list((result if isinstance(result, dict) else result.replicates).values()))

    whole = replicates(seed=1)
    for batch in (1, 7, 30):
        assert np.array_equal(replicates(seed=1, batch=batch), whole, equal_nan=True)
    assert not np.array_equal(replicates(seed=2), whole, equal_nan=True)
    if function is bootstrap_words:
        assert np.array_equal(function(texts, batch=1).se_disp, function(texts).se_disp)


# --- groups -----------------------------------------------------------------------------------------------------


def test_each_group_against_the_rest() -> None:
    rng = np.random.default_rng(0)
    reference, generated = reports(rng, 90, zipf(40)), reports(rng, 90, zipf(40))
    bands = ["old", "young", "middle"] * 30
    texts = corpora(reference, generated, bands)
    counts = [
        {g: dict(zip(texts.vocabulary, row.tolist(), strict=True)) for g, row in zip(texts.groups, side, strict=True)}
        for side in texts.counts()
    ]
    each = cad_each(*counts)
    assert list(each) == ["middle", "old", "young"]
    binary = cad_texts(reference, generated, ["old" if b == "old" else "rest" for b in bands])
    assert each["old"].groups == ("old", "not old")
    assert np.array_equal(each["old"].z_disp, binary.z_disp)
    assert np.array_equal(cad_corpora(texts.against_rest("old")).z_disp, binary.z_disp)
    pair = cad_corpora(texts, pair=("young", "old"))
    assert np.array_equal(
        pair.reference.sum(axis=1), [counts[0]["young"] and sum(counts[0][g].values()) for g in pair.groups]
    )
    assert bootstrap_words(texts.against_rest("old"), n_resamples=3).observed["wae_reference"] == pytest.approx(
        wae(binary, "reference")
    )
    with pytest.raises(InputError, match="groups: expected 2, got 3"):
        cad(*counts)


# --- planted truths and nulls -----------------------------------------------------------------------------------


def planted(seed: int, n: int = 1000) -> tuple[list[str], list[str], list[str], set[str]]:
    """Reports in which ten words belong to women 9 to 1, and generated reports of a model that never says them."""
    rng = np.random.default_rng(seed)
    chance = zipf(300)
    own = np.arange(30, 40)
    groups = ["F", "M"] * (n // 2)
    female, silent = chance.copy(), chance.copy()
    male = chance.copy()
    male[own] /= 9
    silent[own] = 0
    rows = {"F": reports(rng, n // 2, female / female.sum()), "M": reports(rng, n // 2, male / male.sum())}
    reference = [rows[g][i // 2] for i, g in enumerate(groups)]
    return reference, reports(rng, n, silent / silent.sum()), groups, {letters(i) for i in own}


def test_planted_erasure_is_found() -> None:
    reference, generated, groups, own = planted(0)
    texts = corpora(reference, generated, groups)
    moved = cad_corpora(texts)
    erased = {word for word, name in zip(moved.words, moved.category, strict=True) if name in ERASED}
    assert own <= erased
    assert len(erased - own) <= 1
    printed = categories(moved, rule="paper").category
    assert not own & {word for word, name in zip(moved.words, printed, strict=True) if name == "erasure"}
    share = sum(sum(t in own for t in tokenize(text)) for text in reference) / sum(map(len, map(tokenize, reference)))
    assert omitted_mass(moved) == pytest.approx(share, rel=0.1)
    found = permute_groups(texts, n_resamples=199)
    at = [found.vocabulary.index(word) for word in own]
    assert (found.word_p["z_ref"][at] == 1 / 200).all()
    swapped = swap_corpora(texts, n_resamples=199)
    assert set(found.word_p) == {"z_ref", "z_pred", "z_disp"}
    assert set(swapped.word_p) == {"z_disp"}


def test_words_of_one_group_only_need_the_exact_rule() -> None:
    table = {f"word{i}": (100, 100, 100, 100) for i in range(200)}
    assert category(cad(*sides({**table, "mastectomy": (60, 0, 0, 0)})), "mastectomy") == "omitted"
    moved = cad(*sides({**table, "mastectomy": (60, 0, 0, 0)}), rule="score")
    assert category(moved, "mastectomy") == "stable"  # z_ref is 2.0: the Wald score cannot see it
    exact = cad(*sides({**table, "mastectomy": (60, 0, 0, 0)}), rule="exact")
    assert category(exact, "mastectomy") == "omitted"
    # The mirror image: a word that only the model uses, with an association.
    reference, prediction = sides({**table, "device": (0, 0, 5, 60)})
    assert category(cad(reference, prediction), "device") == "stable"
    assert category(cad(prediction, reference), "device") == "omitted"


def test_nulls_have_no_erasure() -> None:
    """Random groups with a collapsed model, a bootstrap of the references, and identical corpora."""
    false = Counter[str]()
    for seed in range(30):
        rng = np.random.default_rng(seed)
        reference = reports(rng, 300, zipf(200))
        groups = rng.permutation(["F", "M"] * 150).tolist()
        again = [reference[i] for i in rng.integers(0, 300, 300)]
        for name, generated in (("collapse", [reference[0]] * 300), ("bootstrap", again), ("identical", reference)):
            moved = cad_texts(reference, generated, groups)
            for rule in ("score", "exact"):
                false[name, rule] += int(np.isin(categories(moved, rule=rule).category, ERASED).sum())  # type: ignore[index]
            if name == "identical":
                assert wae(moved) == 0
                assert set(moved.category) <= {"stable", "preserved"}
    assert max(false.values()) <= 3  # .05 a corpus expected at most


def test_p_values_under_their_nulls() -> None:
    small_p: Counter[str] = Counter()
    for seed in range(60):
        reference, generated, groups, patients = small(seed, n=80, images=2)
        texts = corpora(reference, generated, groups, patients)
        for name, function in (("groups", permute_groups), ("swap", swap_corpora)):
            test = function(texts, n_resamples=59, seed=seed)
            small_p[name] += test.p_value["wae_reference"] <= 0.1
            assert (test.word_p["z_disp"] >= 1 / 60).all()
    assert max(small_p.values()) <= 13  # 6 expected, 13 is three standard deviations above


def test_identical_corpora_have_no_displacement_in_any_replicate() -> None:
    reference, _, groups, patients = small(images=2)
    texts = corpora(reference, reference, groups, patients)
    boot = bootstrap_words(texts, n_resamples=50)
    assert (boot.replicates["wae_reference"] == 0).all()
    assert (boot.se_disp == 0).all()
    assert (boot.se_ref > 0).all()
    assert boot.interval("wae_prediction")[:2] == (0, 0)
    swapped = swap_corpora(texts, n_resamples=50)
    assert swapped.p_value["wae_reference"] == 1
    assert (swapped.word_p["z_disp"] == 1).all()


def test_patients_not_images_are_the_unit() -> None:
    """Every report twice: as two patients the standard error is too small by the square root of two."""
    reference, generated, groups, _ = small(n=200)
    twice = [column * 2 for column in (reference, generated, groups)]
    owners = list(range(200)) * 2
    honest = bootstrap_words(corpora(*twice, owners), n_resamples=400)  # type: ignore[arg-type]
    naive = bootstrap_words(corpora(*twice), n_resamples=400)  # type: ignore[arg-type]
    frequent = np.argsort(cad_texts(reference, generated, groups).reference.sum(axis=0))[-10:]
    assert np.median(honest.se_disp[frequent] / naive.se_disp[frequent]) == pytest.approx(math.sqrt(2), abs=0.1)
    assert (honest.n_patients, naive.n_patients) == (200, 400)


def test_wae_of_faithful_text_is_near_one_and_so_is_its_null() -> None:
    rng = np.random.default_rng(5)
    reference, generated = reports(rng, 600, zipf(200)), reports(rng, 600, zipf(200))
    texts = corpora(reference, generated, ["F", "M"] * 300)
    null = split_half(texts, n_resamples=200)
    assert null["wae_reference"].mean() == pytest.approx(1, abs=0.1)
    boot = bootstrap_words(texts, n_resamples=200)
    low, high, method, n_undefined = boot.interval("wae_reference")
    assert (method, n_undefined) == ("centred percentile", 0)
    assert low < boot.observed["wae_reference"] < high
    # Why the interval is shifted: replicates carry the noise twice.
    assert np.quantile(boot.replicates["wae_reference"], 0.025) > boot.observed["wae_reference"]


def test_sweep_and_summary() -> None:
    moved = cad(*sides(D4))
    rows = sweep(moved, (0.001, 0.05))
    assert [row["p_star"] for row in rows] == [0.001, 0.05]
    assert rows[1]["omitted"] == 1
    printed = [row["erasure"] for row in sweep(moved, (0.001, 0.004, 0.005, 0.3), rule="paper")]
    assert printed == [0, 0, 1, 1]  # raw p of scoliosis is .0043


# --- undefined and bad input ------------------------------------------------------------------------------------


def test_undefined_is_nan_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    moved = cad({"F": {"lung": 3}, "M": {}}, {"F": {"lung": 3}, "M": {"lung": 2}})
    assert np.isnan(moved.z_ref).all()
    assert np.isnan(moved.z_disp).all()
    assert moved.category.tolist() == ["undefined"]
    assert math.isnan(wae(moved))
    silent = cad({"F": {"lung": 3}, "M": {"lung": 2}}, {"F": {}, "M": {}})
    assert math.isnan(omitted_mass(silent))
    assert math.isnan(delta_dir(silent))
    assert math.isnan(wae(cad({"F": {"a": 5}, "M": {"a": 5}}, {"F": {"a": 5}, "M": {"a": 5}}), group="F"))
    empty = cad({"F": {}, "M": {}}, {"F": {}, "M": {}})
    assert empty.words == ()
    assert math.isnan(summary(empty)["wae_reference"])
    assert np.isnan(association([0, 0], [1, 2]).z).all()
    texts = corpora(["lung clear", "heart"], ["", ""], ["F", "M"])
    assert np.isnan(bootstrap_words(texts, n_resamples=3).replicates["wae_prediction"]).all()
    assert math.isnan(bootstrap_words(texts, n_resamples=3).interval("wae_prediction").low)
    mute = permute_groups(texts, n_resamples=3)
    assert math.isnan(mute.p_value["wae_reference"])
    assert np.isnan(mute.word_p["z_disp"]).all()
    assert (mute.word_p["z_ref"] == 1).all()
    assert not recwarn.list


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cad({"F": {"lung": -1}, "M": {}}, {}), r"reference\['F'\]\['lung'\]: .*got -1"),
        (lambda: cad({"F": {"lung": 1.5}, "M": {}}, {}), r"reference\['F'\]\['lung'\]: .*got 1.5"),
        (lambda: cad({"F": {}, "M": {}}, {}, groups=("F", "X")), r"groups: .*got \('F', 'X'\)"),
        (lambda: cad({"F": {}, "M": {}}, {}, rule="printed"), "rule: expected 'either'.*got 'printed'"),
        (lambda: cad({"F": {}, "M": {}}, {}, p_star=0), r"p_star: .*got 0"),
        (lambda: cad({"F": {}, "M": {}}, {}, alpha=0), r"alpha: .*got 0"),
        (lambda: cad({"F": {}}, {}), r"groups: expected 2, got 1 \(F\)"),
        (lambda: cad_each({"F": {}}, {}), "groups: expected at least two"),
        (lambda: cad_each({"F": {}, "M": {"rib": "2"}}, {}), r"reference\['M'\]\['rib'\]: .*got '2'"),
        (lambda: wae(cad({"F": {"a": 1}, "M": {"a": 1}}, {}), "both"), r"weights: .*got 'both'"),
        (lambda: wae(cad({"F": {"a": 1}, "M": {"a": 1}}, {}), group="X"), r"group: .*got 'X'"),
        (lambda: association([1, 2], [1]), r"counts_b: expected shape \(2,\)"),
        (lambda: association([1, -2], [1, 1]), r"counts_a\[1\]: .*got -2"),
        (lambda: association(["a"], [1]), "counts_a: .*got 'a'"),
        (lambda: corpora(["a"], ["a", "b"], ["F"]), r"generated: expected 1 rows .*got 2"),
        (lambda: corpora(["a"], ["a"], [None]), r"groups\[0\]: .*got None"),
        (lambda: corpora(["a"], ["a"], ["F"], [float("nan")]), r"patients\[0\]: .*got nan"),
        (lambda: corpora(["a"], [None], ["F"]), r"generated\[0\]: .*got None"),
        (lambda: permute_groups(corpora(["lung", "rib"], ["x", "y"], ["F", "M"], ["p7", "p7"])), "got patient 'p7'"),
        (
            lambda: bootstrap_words(corpora(["lung", "rib"], ["x", "y"], ["F", "M"]), n_resamples=0),
            r"n_resamples: .*got 0",
        ),
        (lambda: bootstrap_words(corpora([], [], [])), r"groups: expected 2, got 0"),
        (lambda: corpora(["a"], ["a"], ["F"]).against_rest("X"), r"group: .*got 'X'"),
    ],
)
def test_bad_input_is_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


# --- real reports -----------------------------------------------------------------------------------------------


def rows_of(name: str) -> list[dict[str, str]]:
    with gzip.open(real_data(f"iu/{name}"), "rt", newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.real
@pytest.mark.slow
def test_real_reports() -> None:
    """Random sexes on real reports: next to no false erasure; planted erasures under collapse: most are found."""
    rng = np.random.default_rng(0)
    human = [f"{row['findings']} {row['impression']}".strip() for row in rows_of("reports.csv.gz")]
    human = [text for text in human if text]
    template = "The heart is normal in size. The mediastinum is unremarkable. The lungs are clear. No acute disease."
    pairs = rows_of("generated.csv.gz")
    machine = corpora([row["reference"] for row in pairs], [row["generated"] for row in pairs], ["F"] * len(pairs))
    collapsed = corpora(human, [template] * len(human), ["F"] * len(human))
    false: dict[tuple[str, str], list[int]] = {}
    level: dict[str, list[float]] = {}
    for _ in range(50):
        first = rng.random(len(human)) < 0.5
        drawn = np.zeros(len(human), dtype=int)  # a bootstrap of the references, each with its own sex
        for sex in (first, ~first):
            drawn[sex] = rng.choice(np.flatnonzero(sex), int(sex.sum()))
        for name, moved in (
            ("collapse", labelled(collapsed, first)),
            ("bootstrap", labelled(replace(collapsed, prediction=collapsed.reference[drawn]), first)),
            ("machine", labelled(machine, rng.random(len(pairs)) < 0.5)),
        ):
            level.setdefault(name, []).append(wae(moved, "reference"))
            for rule in ("score", "exact"):
                erased = int(np.isin(categories(moved, rule=rule).category, ERASED).sum())
                false.setdefault((name, rule), []).append(erased)
    assert np.mean(level["collapse"]) < 0.5
    assert np.mean(level["bootstrap"]) == pytest.approx(0.48, abs=0.06)
    # Measured over 900 labellings: .06 (default) and .01 (exact) after collapse, .02 and .01 for the real system.
    assert all(np.mean(counts) <= 0.15 for counts in false.values()), {k: np.mean(v) for k, v in false.items()}

    totals = np.asarray(collapsed.reference.sum(axis=0)).ravel()
    unsaid = np.asarray(collapsed.prediction.sum(axis=0)).ravel() == 0
    candidates = np.flatnonzero((totals >= 60) & (totals <= 400) & unsaid)
    found: dict[tuple[str, float], list[int]] = {}
    dense = collapsed.reference.toarray()
    for keep in (0.1, 0.2, 0.0):
        for _ in range(4):
            first = rng.random(len(human)) < 0.5
            own = rng.choice(candidates, 20, replace=False)
            counts = dense.copy()
            for column in own:
                thinned = first if rng.random() < 0.5 else ~first
                counts[thinned, column] = rng.binomial(counts[thinned, column], keep)
            moved = labelled(replace(collapsed, reference=csr_array(counts)), first)
            words = {collapsed.vocabulary[i] for i in own}
            for rule in ("score", "exact", "paper"):
                names = categories(moved, rule=rule).category
                hits = [w in words and c in (*ERASED, "erasure") for w, c in zip(moved.words, names, strict=True)]
                found.setdefault((rule, keep), []).append(sum(hits))
    for keep in (0.1, 0.2):
        assert np.mean(found["score", keep]) >= 17
        assert np.mean(found["exact", keep]) >= 16
        assert np.mean(found["paper", keep]) <= 2
    assert np.mean(found["score", 0.0]) <= 1  # the known blindness to words of one group only
    assert np.mean(found["exact", 0.0]) >= 18


def labelled(texts: Corpora, first: NDArray[np.bool_]) -> Displacement:
    """CAD of counted reports under the given sexes, without counting again."""
    return cad_corpora(replace(texts, group=np.where(first, 0, 1), groups=("F", "M")))
