"""Words: CAD and WAE with their resampling, and self-BLEU, against loops over `collections.Counter`.

The peer is a loop in Python, not a strong one: one counter a report, made once; in every replicate the counters of the
drawn reports are added up by group, laid out over the vocabulary, and the formulas run in numpy. It is timed on a few
replicates (reports, for self-BLEU) and scaled; ours runs in full. Texts are synthetic: 2,000 pairs of reports of about
60 tokens over 1,500 words with Zipf's frequencies, in the same run for both.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

from benchmarks.rows import Row, row, timed
from cxrhf.metrics.language import self_bleu, tokenize
from cxrhf.metrics.words import bootstrap_words, cad_corpora, corpora, permute_groups, wae

N_REPORTS, N_WORDS, N_TOKENS, N_RESAMPLES = 2_000, 1_500, 60, 1_000


def synthetic_reports(n: int, seed: int) -> list[str]:
    """Reports of about 60 tokens (Poisson) over 1,500 made-up words with Zipf's frequencies."""
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    words = np.array(["w" + "".join("abcdefghij"[int(digit)] for digit in f"{i:04d}") for i in range(N_WORDS)])
    chance = 1 / np.arange(1.0, N_WORDS + 1)
    return [" ".join(rng.choice(words, max(1, rng.poisson(N_TOKENS)), p=chance / chance.sum())) for _ in range(n)]


def loop_wae(
    reference: list[Counter[str]], generated: list[Counter[str]], groups: list[int], vocabulary: list[str]
) -> float:
    """CAD and WAE (reference weights) of one replicate: counters added up by group, then numpy."""
    totals = [Counter[str]() for _ in range(4)]
    for one, two, group in zip(reference, generated, groups, strict=True):
        totals[group].update(one)
        totals[2 + group].update(two)
    counts = np.array([[total[word] for word in vocabulary] for total in totals], dtype=float)
    smooth = counts + 0.1
    log_p = np.log(smooth / smooth.sum(axis=1, keepdims=True))
    variance = 1 / smooth
    s_ref, s_pred = log_p[0] - log_p[1], log_p[2] - log_p[3]
    z_disp = (s_pred - s_ref) / np.sqrt(variance.sum(axis=0))
    weight = counts[0] + counts[1]
    return float((weight * z_disp**2).sum() / weight.sum())


def loop_self_bleu(texts: list[list[str]], hypotheses: list[int]) -> list[float]:
    """Self-BLEU by its definition, for some of the texts; n-gram counters of all texts are made once."""
    grams = [[Counter(zip(*(tokens[k:] for k in range(n)), strict=False)) for n in range(1, 5)] for tokens in texts]
    scores = []
    for i in hypotheses:
        others = [j for j in range(len(texts)) if j != i]
        logs = 0.0
        for n in range(4):
            best: dict[Any, int] = {}
            for j in others:
                for gram in grams[i][n].keys() & grams[j][n].keys():
                    best[gram] = max(best.get(gram, 0), grams[j][n][gram])
            matches = sum(min(count, best.get(gram, 0)) for gram, count in grams[i][n].items())
            logs += math.log((matches or 0.1) / max(1, sum(grams[i][n].values()))) / 4
        length = len(texts[i])
        closest = min((abs(len(texts[j]) - length), len(texts[j])) for j in others)[1]
        scores.append(math.exp(logs + min(0.0, 1 - closest / length)))
    return scores


def run(peer_replicates: int = 20, peer_texts: int = 5) -> list[Row]:
    """Time both sides once; ratio = peer seconds (scaled) over our seconds."""
    reference, generated = synthetic_reports(N_REPORTS, 0), synthetic_reports(N_REPORTS, 1)
    groups = ["F", "M"] * (N_REPORTS // 2)
    counting, texts = timed(lambda: corpora(reference, generated, groups))
    bootstrap_words(texts, n_resamples=1)  # imports and first touches are not what is measured

    def ours() -> Any:
        cad_corpora(texts)
        bootstrap_words(texts, n_resamples=N_RESAMPLES)
        return permute_groups(texts, n_resamples=N_RESAMPLES)

    ours_seconds, _ = timed(ours)

    counters = [[Counter(tokenize(text)) for text in side] for side in (reference, generated)]
    codes = [0, 1] * (N_REPORTS // 2)
    observed = loop_wae(counters[0], counters[1], codes, texts.vocabulary)
    if not math.isclose(observed, wae(cad_corpora(texts), "reference"), rel_tol=1e-9):
        raise RuntimeError("the peer and we compute different numbers; the comparison means nothing")
    rng = np.random.default_rng(np.random.SeedSequence(2))

    def peer_bootstrap() -> None:
        for _ in range(peer_replicates):
            rows = [
                *(2 * rng.integers(0, N_REPORTS // 2, N_REPORTS // 2)),
                *(2 * rng.integers(0, N_REPORTS // 2, N_REPORTS // 2) + 1),
            ]
            drawn = [[side[i] for i in rows] for side in counters]
            loop_wae(drawn[0], drawn[1], [codes[i] for i in rows], texts.vocabulary)

    def peer_permutation() -> None:
        for _ in range(peer_replicates):
            loop_wae(counters[0], counters[1], rng.permutation(codes).tolist(), texts.vocabulary)

    peer_seconds = sum(timed(call)[0] for call in (peer_bootstrap, peer_permutation)) * N_RESAMPLES / peer_replicates

    bleu_seconds, _ = timed(lambda: self_bleu(reference))
    tokens = [tokenize(text) for text in reference]
    loop_seconds, _ = timed(lambda: loop_self_bleu(tokens, list(range(peer_texts))))
    loop_seconds *= N_REPORTS / peer_texts
    words = f"{N_REPORTS} reports, {len(texts.vocabulary)} words"
    return [
        row(
            "CAD + WAE, 1,000 bootstraps and 1,000 permutations", ours_seconds, peer_seconds,
            f"{words}; peer: Python loop of counters, 2 x {peer_replicates} replicates scaled to 2,000; "
            f"ours also gives per-word errors and p values; counting the words once: {counting:.2f} s",
            target=50.0,
        ),
        row(
            "self-BLEU", bleu_seconds, loop_seconds,
            f"{N_REPORTS} reports; peer: the definition in Python, {peer_texts} texts against all others, scaled",
        ),
    ]  # fmt: skip
