"""Real reports (Indiana University): shuffled sexes erase nothing; figures equal an independent computation."""

from __future__ import annotations

import csv
import gzip
import re
from collections import Counter

import numpy as np
import pytest

from cxrhf.audits.reports.words import associations, count_words
from cxrhf.audits.reports.written import Pair, RowMaker, Tables, generated_reports
from tests.audits.reports.made import TEMPLATE, Settings, audited, category, rows_of, table, value
from tests.real_data import real_data

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    with gzip.open(real_data("iu/generated.csv.gz"), "rt", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def full(rows):
    return audited(
        table(
            [row["reference"] for row in rows],
            [row["generated"] for row in rows],
            patients=[row["uid"] for row in rows],
            sex=[row["sex_from_indication"] or None for row in rows],
            age=[float(row["age_dicom"]) if row["age_dicom"] else None for row in rows],
        ),
        n_resamples=100,
    )


def test_diversity_equals_an_independent_computation(full, rows) -> None:
    texts = [" ".join(row["generated"].split()) for row in rows]
    assert value(full, "template_diversity") == len(set(texts)) / len(texts)
    # These reports hold only plain English letters; hyphens and possessives are cut as by `tokenize`.
    tokens = [re.findall(r"[a-z]+", re.sub(r"\b\w*\d\w*\b|\bx{2,}\b|'s\b", " ", text.lower())) for text in texts]
    counts = Counter(token for text in tokens for token in text)
    assert value(full, "type_token_ratio") == pytest.approx(len(counts) / sum(counts.values()), rel=0.002)
    some = tokens[:60]
    assert 1 - slow_self_bleu(some) == pytest.approx(
        value(audited(table([TEMPLATE] * 60, texts[:60]), n_resamples=20), "self_bleu_diversity"), abs=1e-9
    )


def slow_self_bleu(texts: list[list[str]]) -> float:
    """BLEU of each text against all others, from its definition."""
    scores = []
    for at, text in enumerate(texts):
        others = [each for place, each in enumerate(texts) if place != at]
        logs = []
        for n in range(1, min(4, len(text)) + 1):
            own = Counter(zip(*(text[k:] for k in range(n)), strict=False))
            best: Counter[tuple[str, ...]] = Counter()
            for other in others:
                best |= Counter(zip(*(other[k:] for k in range(n)), strict=False))
            hits = sum((own & best).values())
            logs.append(np.log((hits or 0.1) / sum(own.values())))
        closest = min((abs(len(each) - len(text)), len(each)) for each in others)[1]
        scores.append(np.exp(np.mean(logs) + min(0.0, 1 - closest / len(text))))
    return float(np.mean(scores))


def test_shuffled_sexes_erase_nothing(rows) -> None:
    """At most .5 false erasures a run on average, for the system as it is and for total collapse."""
    reference, made = [row["reference"] for row in rows], [row["generated"] for row in rows]
    given = {"greedy": made, "collapsed": [TEMPLATE] * len(rows)}
    settings, erased = Settings(n_resamples=10), []
    for strategy, texts in given.items():
        reports = next(generated_reports(Tables(table(reference, texts, strategy=strategy))))
        counted = count_words(reports)
        for seed in range(10):
            code = np.random.default_rng(seed).permutation(len(rows)) % 2
            found = associations(
                counted, Pair("sex=F", "sex=M", code, False, True), RowMaker("reports", reports, settings)
            )
            erased.append(next(row["value"] for row in found.rows if row["metric"] == "erasure"))
    assert np.mean(erased) <= 0.5


def test_real_words_by_age_make_sense(full) -> None:
    """Calcified and tortuous aortas, degenerative spines: words of the old; the system leaves many of them out."""
    old = category(full, "greedy", group="age=60-79")
    young = category(full, "greedy", group="age=20-39")
    assert len({"degenerative", "calcified", "tortuous", "aorta", "spine"} & set(old)) >= 4
    z = {row["word"]: row["z_ref"] for row in full.words.to_pylist() if row["group"] == "age=60-79"}
    assert z["degenerative"] > 3
    assert z["aorta"] > 2
    moved = [word for word, kind in (*old.items(), *young.items()) if kind in ("omitted", "neutralised")]
    assert len(moved) >= 3
    assert rows_of(full, metric="wae_prediction", slice="age=60-79", versus="age=not 60-79")
