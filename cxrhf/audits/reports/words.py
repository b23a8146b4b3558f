"""Written reports and pairs of groups -> categories of words, WAE and its companions, with their tests and nulls.

Resampling: of two groups 1,000 replicates, of each of several groups 300, of crossings 200 for the tests alone: there
are dozens of them, and none is a headline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from cxrhf.audits.reports.pairs import Pair
from cxrhf.audits.reports.report_rows import NAN, Ends, RowMaker
from cxrhf.audits.reports.written import Floats, Written
from cxrhf.audits.rows import Row
from cxrhf.metrics.association import cad_corpora, omitted_mass, sweep
from cxrhf.metrics.displacement import Displacement, categories
from cxrhf.metrics.words_category import DEFAULT_CATEGORIES, PAPER_CATEGORIES, counted
from cxrhf.metrics.words_chance import category_chance
from cxrhf.metrics.words_corpora import Corpora, corpora
from cxrhf.metrics.words_resample import (
    WordBootstrap,
    WordTest,
    bootstrap_words,
    permute_groups,
    split_half,
    swap_corpora,
)
from cxrhf.schema import WORD, check

MAIN, SEVERAL, CROSSED = 1000, 300, 200
# Shuffles of the groups; more where no shuffle has as many words: the p values of six strategies are corrected
# together, and the smallest of 108 must be able to pass .05.
CHANCE, MOST_CHANCE = 500, 5000
RULE = "either"  # sees words that only one group has, too: see cxrhf.metrics.words_category
STATISTICS = ("wae_prediction", "wae_reference", "delta_wae_prediction", "delta_wae_reference", "delta_dir")
# Categories that are counted in RESULT, and those whose level by chance is told.
OURS = ("omitted", "neutralised", "erasure", "new", "flip", "amplified", "weakened", "preserved")
PRINTED = ("erasure", "new", "flip", "preserved")
BY_CHANCE = ("erasure", "new", "flip")
SWEPT = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)


@dataclass(frozen=True, slots=True)
class Associations:
    """What one pair of groups gave; `drawn` are the bootstrap replicates, for differences between strategies."""

    rows: list[Row]
    curves: list[Row]
    words: pa.Table
    found: Displacement
    drawn: WordBootstrap | None


class Counted(NamedTuple):
    """Word counts of both corpora over one vocabulary, whoever the reports are of."""

    corpora: Corpora
    patients: NDArray[np.int64]


def count_words(written: Written) -> Counted:
    """Counted once for all groups."""
    everybody = ["all"] * len(written.images)
    return Counted(
        corpora(written.reference, written.generated, everybody, written.patients.tolist()), written.patients
    )


def left_out(counted_words: Counted, make: RowMaker) -> list[Row]:
    """The share of the reference tokens in words that the model leaves out, of all reports together."""
    texts = counted_words.corpora
    everybody = np.zeros(len(texts.group), dtype=np.int64)
    found = cad_corpora(
        texts.split(everybody, ("all", "nobody")), alpha=make.settings.alpha, p_star=make.settings.p_star
    )
    value = omitted_mass(found)
    method = "share of reference tokens in words written at less than half their rate (exact test, Benjamini-Hochberg)"
    why = "undefined: no words in one of the corpora" if np.isnan(value) else None
    return [make.row("omitted_mass", value, note=why, method=method)]


def associations(counted_words: Counted, pair: Pair, make: RowMaker) -> Associations:
    """Categories, WAE, tests and words of one pair of groups."""
    settings = make.settings
    two = counted_words.corpora.split(pair.code, (pair.first, pair.second))
    found = cad_corpora(two, rule=RULE, alpha=settings.alpha, p_star=settings.p_star)
    n, n_patients = len(two.group), len(two.patients)
    here: dict[str, Any] = {"slice": pair.first, "versus": pair.second, "n": n, "n_patients": n_patients}
    silent = _silent(two)
    if silent:
        rows = [make.row(name, NAN, note=f"undefined: {silent}", **here) for name in (*OURS, *STATISTICS)]
        return Associations(rows, [], _words(two, found, pair, make.of), found, None)
    shared = _in_both(two)
    rows = _counts(two, found, pair, make, here, shared)
    rows_wae, drawn = _wae(two, pair, make, here, shared)
    curves = [] if pair.crossed else _sweep(found, pair, make.of)
    return Associations([*rows, *rows_wae], curves, _words(two, found, pair, make.of), found, drawn)


def _silent(two: Corpora) -> str | None:
    """Which group has no words, and where."""
    for what, counts in zip(("references", "generated reports"), two.counts(), strict=True):
        for name, total in zip(two.groups, counts.sum(axis=1), strict=True):
            if not total:
                return f"no words in the {what} of {name}"
    return None


def _in_both(two: Corpora) -> int:
    """Patients with reports in both groups (of other ages): their labels cannot be permuted."""
    pairs = np.unique(two.patient * 2 + two.group)
    return len(pairs) - len(np.unique(two.patient))


def _counts(
    two: Corpora, found: Displacement, pair: Pair, make: RowMaker, here: Mapping[str, Any], shared: int
) -> list[Row]:
    """How many words each rule puts where, and how many it would by chance."""
    ours = categories(found, rule=RULE)
    counts = {
        "": counted(ours.category, DEFAULT_CATEGORIES),
        ".exact": counted(categories(found, rule="exact").category, DEFAULT_CATEGORIES),
        ".paper": counted(categories(found, rule="paper").category, PAPER_CATEGORIES),
    }
    chance = None
    if pair.by_sex and not shared:
        chance = category_chance(two, found, rule=RULE, n_resamples=CHANCE, seed=make.settings.seed)
        if any((chance.counts[RULE][name] < counts[""][name]).all() for name in BY_CHANCE):
            chance = category_chance(two, found, rule=RULE, n_resamples=MOST_CHANCE, seed=make.settings.seed)
    associated = int((~np.isnan(ours.q_omission)).sum())
    rows = [make.row("n_associated", associated, method="words associated with a group in the references", **here)]
    share = counts[""]["erasure"] / associated if associated else NAN
    why = None if associated else "undefined: no word is associated with a group in the references"
    rows.append(
        make.row("cad", share, higher=False, note=why, method=f"erased words as a share of those; {_RULES['']}", **here)
    )
    for suffix, names in (("", OURS), (".exact", ("erasure",)), (".paper", PRINTED)):
        for name in names:
            value = counts[suffix][name]
            known = chance is not None and suffix != ".exact" and name in BY_CHANCE
            p_value = chance.p_value("paper" if suffix else RULE, name, value) if chance and known else None
            method = _RULES[suffix] + ("; p: groups shuffled between patients" if known else "")
            rows.append(make.row(f"{name}{suffix}", value, p_value=p_value, method=method, **here))
    if chance is not None:
        for suffix, rule in (("", RULE), (".paper", "paper")):
            for name in BY_CHANCE:
                drawn = chance.counts[rule][name]
                low, high = np.quantile(drawn, [0.025, 0.975])
                ends = Ends(float(low), float(high), f"quantiles of {len(drawn)} shuffles")
                method = f"{_RULES[suffix]}; mean with groups shuffled between patients"
                rows.append(make.row(f"{name}{suffix}.chance", float(drawn.mean()), ends=ends, method=method, **here))
    return rows


_RULES = {
    "": "words; our rule: tests corrected by Benjamini-Hochberg",
    ".exact": "words; exact tests of patients with the word",
    ".paper": "words; the published rule, uncorrected",
}


def _wae(
    two: Corpora, pair: Pair, make: RowMaker, here: Mapping[str, Any], shared: int
) -> tuple[list[Row], WordBootstrap | None]:
    """WAE and its companions with their tests, and the replicates; of crossings the tests alone."""
    settings = make.settings
    most = CROSSED if pair.crossed else SEVERAL if pair.several else MAIN
    options: dict[str, Any] = {"alpha": settings.alpha, "n_resamples": min(settings.n_resamples, most),
                               "seed": settings.seed}  # fmt: skip
    drawn = None if pair.crossed else bootstrap_words(two, **options)
    swapped = swap_corpora(two, **options)
    permuted = None if shared else permute_groups(two, **options)
    halves = None if pair.crossed else split_half(two, **options)
    rows = []
    for name in STATISTICS:
        value = swapped.observed[name]
        why = None if not np.isnan(value) else _why(name, pair)
        ends = None
        if drawn is not None and why is None:
            got = drawn.interval(name, settings.level)
            ends = Ends(got.low, got.high, f"{got.method}, patients resampled")
        rows.append(make.row(name, value, ends=ends, p_value=_p(swapped, name), note=why,
                             method=f"{_ABOUT[name]}; p: {swapped.null}", **here))  # fmt: skip
        if name == "delta_dir":
            continue
        if permuted is not None:
            rows.append(make.row(f"{name}.association", value, p_value=_p(permuted, name), note=why,
                                 method=f"{_ABOUT[name]}; p: {permuted.null}", **here))  # fmt: skip
        else:
            rows.append(make.row(f"{name}.association", value, method=_ABOUT[name], **here,
                                 note=f"not tested: {shared} patients have reports in both groups"))  # fmt: skip
        if name.startswith("wae") and halves is not None:
            rows.append(_null(make, name, halves[name], here))
    rows += _wae_of_groups(swapped.observed, pair, make, here)
    return rows, drawn


_ABOUT = {
    "wae_prediction": "mean squared displacement of words, weighted by their counts in generated reports; no direction",
    "wae_reference": "mean squared displacement of words, weighted by their counts in references; no direction",
    "delta_wae_prediction": "WAE of the words of the first group minus that of the second, weighted by generated "
    "counts",
    "delta_wae_reference": "WAE of the words of the first group minus that of the second, weighted by reference counts",
    "delta_dir": "tokens of the second group over those of the first, generated minus references",
}


def _p(test: WordTest, name: str) -> float | None:
    p_value = test.p_value[name]
    return None if np.isnan(p_value) else p_value


def _why(name: str, pair: Pair) -> str:
    if name.startswith("delta_wae"):
        return f"undefined: no word of {pair.first} or of {pair.second} has a weight"
    return "undefined: no words"


def _null(make: RowMaker, name: str, values: Floats, here: Mapping[str, Any]) -> Row:
    known = values[~np.isnan(values)]
    method = "the same between two halves of the references, by patient"
    if not len(known):
        return make.row(f"{name}.null", NAN, method=method, note="undefined: too few references", **here)
    tail = (1 - make.settings.level) / 2
    low, high = np.quantile(known, [tail, 1 - tail])
    ends = Ends(float(low), float(high), f"quantiles of {len(known)} halvings")
    return make.row(f"{name}.null", float(known.mean()), ends=ends, method=method, **here)


def _wae_of_groups(observed: Mapping[str, float], pair: Pair, make: RowMaker, here: Mapping[str, Any]) -> list[Row]:
    """WAE over the words of each group."""
    rows = []
    sizes = {name: here[name] for name in ("n", "n_patients")}
    for side, slice in zip(("first", "second"), pair.own, strict=False):
        for weights in ("prediction", "reference"):
            value = observed[f"wae_{weights}_{side}"]
            note = "undefined: none of its words has a weight" if np.isnan(value) else None
            rows.append(make.row(f"wae_{weights}.group", value, slice=slice, note=note, **sizes,
                                 method="WAE over words of the group, by the references (|z| > 1)"))  # fmt: skip
    return rows


def _sweep(found: Displacement, pair: Pair, of: Written) -> list[Row]:
    """Counts at other levels p*."""
    curves = []
    for rule, suffix in ((RULE, ""), ("paper", ".paper")):
        for step in sweep(found, SWEPT, rule):
            for kind, y in (("erasure", step["erasure"]), ("emergent", step["new"] + step["flip"])):
                curves.append({"model": of.label, "strategy": of.strategy, "kind": f"p_star.{kind}{suffix}",
                               "slice": pair.first, "x": step["p_star"], "y": float(y)})  # fmt: skip
    return curves


def _words(two: Corpora, found: Displacement, pair: Pair, of: Written) -> pa.Table:
    """WORD rows: all words, of crossings only those that moved or went with a group."""
    exact, paper = (categories(found, rule=rule).category for rule in ("exact", "paper"))
    place = {word: at for at, word in enumerate(two.vocabulary)}
    holders = _holders(two)[[place[word] for word in found.words]] if found.words else np.zeros(0, dtype=np.int64)
    size = len(found.words)
    table = pa.table(
        {
            "model": pa.repeat(of.label, size),
            "strategy": pa.repeat(of.strategy, size),
            "word": pa.array(found.words, pa.string()),
            "group": pa.repeat(pair.first, size),
            "versus": pa.repeat(pair.second, size),
            "n_ref_group": found.reference[0],
            "n_ref_other": found.reference[1],
            "n_pred_group": found.prediction[0],
            "n_pred_other": found.prediction[1],
            "n_patients": holders,
            "z_ref": found.z_ref,
            "z_pred": found.z_pred,
            "z_disp": found.z_disp,
            "rate_ratio": found.rate_ratio,
            "q_value": found.q_value,
            "q_reference": found.q_reference,
            "q_omission": found.q_omission,
            "category": pa.array(found.category.tolist(), pa.string()),
            "category_exact": pa.array(exact.tolist(), pa.string()),
            "category_paper": pa.array(paper.tolist(), pa.string()),
        }
    )
    if pair.crossed:
        moved = [i for i, kinds in enumerate(zip(found.category, paper, strict=True)) if set(kinds) - {"stable"}]
        table = table.take(pa.array(moved, pa.int64()))
    return check(table, WORD, source="words")


def _holders(two: Corpora) -> NDArray[np.int64]:
    """Patients with each word, in a reference or in a generated report."""
    n = len(two.patient)
    owner = sp.csr_array((np.ones(n), (two.patient, np.arange(n))), shape=(len(two.patients), n))
    return np.asarray(((owner @ (two.reference + two.prediction)) > 0).sum(axis=0)).ravel().astype(np.int64)


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """WORD rows of all pairs and strategies."""
    return pa.concat_tables(tables) if tables else WORD.empty_table()
