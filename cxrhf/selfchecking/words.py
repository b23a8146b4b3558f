"""D4, words that go with one sex and what a model made of them -> WAE, and the fate of each word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from cxrhf.data.planted_words import word_reports, words
from cxrhf.selfchecking.check import Check, Rows, exact, same

if TYPE_CHECKING:
    from cxrhf.auditing import Audit

N = 1200
PAIR = {"slice": "sex=F", "versus": "sex=M"}
MOVED = ("erasure", "new", "flip", "amplified", "weakened")


def check(seed: int = 0) -> list[Check]:
    """Reports with planted flaws, faithful ones, and ones that all say the same; counts have nothing of chance."""
    truth = words().truth
    planted = audited("planted", seed)
    found = Rows(planted.results.to_pylist())
    assert planted.output.words is not None
    fates = {row["word"]: row["category"] for row in planted.output.words.to_pylist() if row["group"] == "sex=F"}
    # Some are visible at the raw level only: over the whole vocabulary they must not be called.
    expected = {word: "stable" if word in truth.raw_level_only else fate for word, fate in truth.category.items()}
    checks = [
        exact("WAE, weighted by generated reports", truth.wae_pred, found.value("wae_prediction", **PAIR)),
        exact("WAE, weighted by the references", truth.wae_ref, found.value("wae_reference", **PAIR)),
        exact("WAE, women minus men", truth.wae_f - truth.wae_m, found.value("delta_wae_reference", **PAIR)),
        *(same(f"category of {word!r}", fate, str(fates.get(word))) for word, fate in expected.items()),
        same("other words that moved", "none", called(fates, set(expected))),
    ]
    faithful = Rows(audited("faithful", seed).results.to_pylist())
    moved = sum(faithful.value(name, **PAIR) for name in MOVED)
    empty = Rows(audited("collapsed", seed).results.to_pylist())
    return [
        *checks,
        exact("faithful reports: words that moved", 0, moved),
        exact("identical reports: words erased", empty.value("n_associated", **PAIR), empty.value("erasure", **PAIR)),
        exact("identical reports: by the published rule (blind)", 0, empty.value("erasure.paper", **PAIR)),
    ]


def audited(kind: Literal["planted", "faithful", "collapsed"], seed: int) -> Audit:
    """The audit of one writer's reports."""
    import cxrhf

    made = word_reports(N, kind=kind, seed=seed)
    table = {"patient": made.patient, "sex": made.group, "reference": made.reference, "generated": made.generated}
    return cxrhf.audit(table, patient="patient", n_resamples=50, word_groups="sex", seed=seed)


def called(fates: dict[str, str], planted: set[str]) -> str:
    """Words that were not planted and are said to have been moved."""
    found = [word for word, fate in fates.items() if word not in planted and fate not in ("stable", "preserved")]
    return ", ".join(found[:5]) or "none"
