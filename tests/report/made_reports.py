"""Made-up RESULT, CURVE and WORD rows of generated reports, named as the audits name them; words are really compared.

Five strategies, one with a name full of odd signs; words that are markup; groups by sex, age, race and a crossing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrhf.metrics.displacement import Displacement, categories
from cxrhf.metrics.words import cad
from tests.report.made import RECORD

ODD = 'my "hot" <b>T=1.3</b> & co; 温度'
STRATEGIES = ("greedy", "beam", "rich", "top_p", ODD)
BAD_WORD = "<img src=x onerror=alert(1)>"
RARE = "secretname"  # a word that two patients have
TEMPLATE = "no acute <cardiopulmonary> process"
SEX = ("sex=F", "sex=M")
PAIRS = (SEX, ("age=60-80", "age=not 60-80"), ("race=Black", "race=not Black"),
         ("sex=F & age=60-80", "not sex=F & age=60-80"))  # fmt: skip
SHOWN = {**RECORD, "may_show": True}
LEVELS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
# Reference tokens of the first and the second group; then how each kind of strategy writes them.
_KNOWN = {
    "mastectomy": (90, 6), "breast": (160, 20), "scoliosis": (150, 80), "osteopenia": (120, 40), "hiatal": (80, 30),
    "sternotomy": (70, 150), "pacemaker": (30, 110), "cabg": (10, 70), "emphysema": (60, 120), "aicd": (6, 60),
    "effusion": (300, 300), "pneumothorax": (220, 215), "cardiomegaly": (180, 170), "nodule": (120, 118),
    "granuloma": (100, 98), BAD_WORD: (90, 92), RARE: (3, 1),
}  # fmt: skip
_COLLAPSED = {"effusion": (700, 690), "pneumothorax": (690, 700), "cardiomegaly": (20, 18), "scoliosis": (3, 2)}
_DRAWN = {"pneumothorax": (120, 310), "nodule": (190, 80), BAD_WORD: (160, 60), "pacemaker": (95, 40),
          "scoliosis": (110, 108), "breast": (150, 24), "sternotomy": (60, 190), "emphysema": (66, 110)}  # fmt: skip


def counts(strategy: str, n_words: int = 300, seed: int = 0) -> tuple[dict[str, dict[str, int]], ...]:
    """Word counts by group, in the references and as a strategy writes them."""
    random = np.random.default_rng(seed)
    reference = {**_KNOWN, **{f"word{k}": (int(n), int(n)) for k, n in enumerate(random.integers(4, 80, n_words))}}
    if strategy in ("greedy", "beam"):
        written = {**_COLLAPSED, **({"breast": (40, 38)} if strategy == "beam" else {})}
    else:
        drawn = np.random.default_rng([seed, *strategy.encode()])
        written = {word: tuple(int(v) for v in drawn.poisson(pair)) for word, pair in reference.items()}
        written |= _DRAWN if strategy != "rich" else {"pneumothorax": (140, 260), "scoliosis": (115, 112)}
        written |= {f"invented{k}": (int(drawn.integers(1, 20)), int(drawn.integers(1, 20))) for k in range(40)}
    return tuple(
        {
            "first": {word: pair[0] for word, pair in side.items()},
            "second": {word: pair[1] for word, pair in side.items()},
        }
        for side in (reference, written)
    )


def word_rows(strategy: str, pair: Sequence[str], model: str | None = "vlm", seed: int = 0) -> list[dict[str, Any]]:
    """WORD rows as the metrics give them."""
    found = displaced(strategy, seed)
    paper, exact = (categorised(strategy, seed, rule) for rule in ("paper", "exact"))
    rows = []
    for k, word in enumerate(found.words):
        row = {name: _finite(getattr(found, name)[k]) for name in ("z_ref", "z_pred", "z_disp", "rate_ratio", "q_value",
                                                                  "q_reference", "q_omission")}  # fmt: skip
        total = int(found.reference[:, k].sum() + found.prediction[:, k].sum())
        rows.append(
            {
                "model": model, "strategy": strategy, "word": word, "group": pair[0], "versus": pair[1],
                "n_ref_group": int(found.reference[0, k]), "n_ref_other": int(found.reference[1, k]),
                "n_pred_group": int(found.prediction[0, k]), "n_pred_other": int(found.prediction[1, k]),
                "n_patients": 2 if word == RARE else max(5, total // 2), **row, "category": str(found.category[k]),
                "category_exact": str(exact[k]), "category_paper": str(paper[k]),
            }
        )  # fmt: skip
    return rows


@cache  # every pair of groups has the same counts
def displaced(strategy: str, seed: int = 0) -> Displacement:
    """The comparison behind the rows."""
    return cad(*counts(strategy, seed=seed), groups=("first", "second"))


@cache
def categorised(strategy: str, seed: int, rule: str) -> NDArray[np.str_]:
    """Categories of the same words by another rule."""
    return categories(displaced(strategy, seed), rule=rule).category


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


class Written:
    """Collects the rows of one model's strategies."""

    def __init__(self, model: str | None = "vlm", dataset: str | None = None, seed: int = 0) -> None:
        self.model, self.dataset, self.seed = model, dataset, seed
        self.rows: list[dict[str, Any]] = []
        self.curves: list[dict[str, Any]] = []
        self.words: list[dict[str, Any]] = []

    def add(self, metric: str, value: float, strategy: str = "greedy", width: float | None = None, **more: Any) -> None:
        ends = {"ci_low": None if width is None else value - width, "ci_high": None if width is None else value + width}
        self.rows.append(
            {
                "audit": "reports", "metric": metric, "dataset": self.dataset, "model": self.model, "finding": None,
                "strategy": strategy, "slice": "all", "versus": None, "value": float(value), **ends, "p_value": None,
                "n": 400, "n_pos": None, "n_patients": 350, "method": "made up", "seed": 0, "higher_is_better": None,
                "note": None, **more,
            }
        )  # fmt: skip


def whole(
    strategies: Sequence[str] = STRATEGIES,
    model: str | None = "vlm",
    dataset: str | None = None,
    pairs: Sequence[Sequence[str]] = PAIRS,
    seed: int = 0,
) -> Written:
    """All rows of one model."""
    made = Written(model, dataset, seed)
    _size(made, "reference", 0.82, 330)
    for k, strategy in enumerate(strategies):
        collapsed = strategy in ("greedy", "beam")
        share = 0.0075 if strategy == "greedy" else 0.02 if collapsed else min(1.0, 0.5 + 0.2 * k)
        _likeness(made, strategy, 0.34 - 0.03 * k)
        _size(made, strategy, share, round(400 * share))
        for pair in pairs:
            _associations(made, strategy, pair)
            made.words += word_rows(strategy, pair, model, seed)
        if k:
            _against(made, strategy, k)
    return made


def _likeness(made: Written, strategy: str, value: float) -> None:
    for metric, more in (("rouge1", 0.05), ("rougeL", 0.0), ("bleu", -0.1), ("bertscore_f1", 0.4), ("my_score", 0.1)):
        made.add(metric, value + more, strategy, 0.01, higher_is_better=True)
        for k, group in enumerate((*SEX, "age=60-80", "race=Black")):
            made.add(metric, value + more + 0.01 * k, strategy, 0.02, slice=group, n=100 + k)
        made.add(metric, -0.01, strategy, 0.02, slice=SEX[0], versus=SEX[1], p_value=0.04)
    made.add("corpus_bleu", math.nan, strategy, note="undefined: <no> text")


def _size(made: Written, strategy: str, share: float, kinds: int) -> None:
    for metric, value in (("template_diversity", share), ("type_token_ratio", share / 20),
                          ("self_bleu_diversity", share / 2), ("semantic_diversity", share * 0.9)):  # fmt: skip
        made.add(metric, value, strategy, min(0.004, value))
        if strategy != "reference":
            made.add(metric, value - 0.5, strategy, 0.02, versus="reference")
    made.add("n_templates", kinds, strategy)
    made.add("top_template", 0.71 if kinds < 20 else 0.01, strategy, note=TEMPLATE)
    made.add("n_empty", 1 if strategy == "greedy" else 0, strategy)
    made.add("words_per_report", 31.4, strategy)
    made.add("vocabulary", 700 * share + 22, strategy)
    if strategy != "reference":
        kept = round(20 + 600 * share)
        for metric, value in (("kept", kept), ("lost", 700 - kept), ("new", round(150 * share))):
            made.add(f"vocabulary_{metric}", value, strategy)
        for metric in ("lost_mass", "new_mass", "omitted_mass"):
            made.add(metric, (1 - share) / 2, strategy)


def _associations(made: Written, strategy: str, pair: Sequence[str]) -> None:
    found, here = displaced(strategy, made.seed), {"slice": pair[0], "versus": pair[1]}
    ours, printed = (dict(zip(*np.unique(each, return_counts=True), strict=True))
                     for each in (found.category, categorised(strategy, made.seed, "paper")))  # fmt: skip
    total = int((~np.isnan(found.q_omission)).sum())
    made.add("n_associated", total, strategy, **here)
    lost = int(ours.get("omitted", 0) + ours.get("neutralised", 0))
    made.add("erasure", lost, strategy, p_value=0.01, **here)
    made.add("cad", lost / total if total else float("nan"), strategy, **here)
    for name in ("omitted", "neutralised", "new", "flip", "amplified", "weakened", "preserved"):
        made.add(name, int(ours.get(name, 0)), strategy, **here)
    made.add("erasure.exact", lost + 1, strategy, **here)
    for name in ("erasure", "new", "flip", "preserved"):
        made.add(f"{name}.paper", int(printed.get(name, 0)), strategy, **here)
    for name, value in (("erasure", 0.3), ("new", 0.1), ("flip", 0.0)):
        made.add(f"{name}.chance", value, strategy, ci_low=0.0, ci_high=2.0, **here)
        made.add(f"{name}.paper.chance", 8 + value, strategy, ci_low=4.0, ci_high=13.0, **here)
    for weights in ("prediction", "reference"):
        made.add(f"wae_{weights}", 1.4, strategy, 0.2, p_value=0.002, **here)
        made.add(f"wae_{weights}.association", 1.4, strategy, p_value=0.0004, **here)
        made.add(f"wae_{weights}.null", 0.95, strategy, 0.1, **here)
        made.add(f"delta_wae_{weights}", -0.4, strategy, 0.3, p_value=0.2, **here)
        made.add(f"delta_wae_{weights}.association", -0.4, strategy, p_value=0.3, **here)
        for group in pair if pair == SEX else pair[:1]:
            made.add(f"wae_{weights}.group", 1.1, strategy, slice=group)
    made.add("delta_dir", -0.03, strategy, 0.05, p_value=0.4, **here)
    if pair == SEX:
        for whose in {strategy, "reference"} if strategy == "greedy" else {strategy}:
            made.add("weat", 0.27, whose, note="words of normal and abnormal findings", **here)
            made.add("weat_effect_size", 0.02, whose, **here)
    for end in ("", ".paper"):
        for k, level in enumerate(LEVELS):
            for kind, value in (("erasure", (lost + k) * (2 if end else 1)), ("emergent", k + (5 if end else 0))):
                point = {"x": level, "y": float(value), "low": None, "high": None}
                made.curves.append({"model": made.model, "strategy": strategy, "finding": None,
                                    "kind": f"p_star.{kind}{end}", "slice": pair[0], **point})  # fmt: skip


def _against(made: Written, strategy: str, k: int) -> None:
    here = {"audit": "decoding", "versus": "strategy=greedy"}
    for metric, value in (("rougeL", -0.03 * k), ("template_diversity", 0.2 * k)):
        made.add(metric, value, strategy, 0.01, p_value=0.001, **here)
    for metric in ("wae_prediction", "delta_wae_reference"):
        made.add(metric, 0.2 * k, strategy, 0.3, p_value=0.3, slice=SEX[0], **here)
