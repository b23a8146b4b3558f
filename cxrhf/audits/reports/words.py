"""Written reports and pairs of groups -> categories of words, WAE and its companions, with their tests and nulls.

Resampling: of two groups 1,000 replicates, of each of several groups 300, of crossings 200 for the tests alone: there
are dozens of them, and none is a headline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from cxrhf.audits.reports.written import NAN, Floats, GeneratedReports, Pair, ReportInterval, RowMaker
from cxrhf.audits.rows import Row
from cxrhf.errors import ConfigError
from cxrhf.metrics.displacement import DEFAULT_CATEGORIES, PAPER_CATEGORIES, Displacement, categories, count_categories
from cxrhf.metrics.word_embedding import DIM, cooccurrence_vectors, weat
from cxrhf.metrics.words import (
    WordBootstrap,
    WordTest,
    bootstrap_words,
    cad_corpora,
    category_chance,
    omitted_mass,
    permute_groups,
    split_half,
    swap_corpora,
    sweep,
)
from cxrhf.metrics.words_corpora import Corpora, corpora
from cxrhf.schema import WORD
from cxrhf.settings import read_yaml
from cxrhf.tables.checks import check

MAIN, SEVERAL, CROSSED = 1000, 300, 200
# Shuffles of the groups; more where no shuffle has as many words: the p values of six strategies are corrected
# together, and the smallest of 108 must be able to pass .05.
CHANCE, MOST_CHANCE = 500, 5000
RULE = "either"  # sees words that only one group has, too: see cxrhf.metrics.displacement
STATISTICS = ("wae_prediction", "wae_reference", "delta_wae_prediction", "delta_wae_reference", "delta_dir")
# Categories that are counted in RESULT, and those whose level by chance is told.
RULE_CATEGORIES = ("omitted", "neutralised", "erasure", "new", "flip", "amplified", "weakened", "preserved")
PRINTED_CATEGORIES = ("erasure", "new", "flip", "preserved")
BY_CHANCE = ("erasure", "new", "flip")
P_STAR_GRID = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)


@dataclass(frozen=True, slots=True)
class Associations:
    """What one pair of groups gave; `drawn` are the bootstrap replicates, for differences between strategies."""

    rows: list[Row]
    curves: list[Row]
    words: pa.Table
    found: Displacement
    drawn: WordBootstrap | None


class CountedCorpora(NamedTuple):
    """Word counts of both corpora over one vocabulary, whoever the reports are of."""

    corpora: Corpora
    patients: NDArray[np.int64]


def count_words(written: GeneratedReports) -> CountedCorpora:
    """Counted once for all groups."""
    everybody = ["all"] * len(written.images)
    return CountedCorpora(
        corpora(written.reference, written.generated, everybody, written.patients.tolist()), written.patients
    )


def omitted_mass_rows(counted_words: CountedCorpora, make: RowMaker) -> list[Row]:
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


def associations(counted_words: CountedCorpora, pair: Pair, make: RowMaker) -> Associations:
    """Categories, WAE, tests and words of one pair of groups."""
    settings = make.settings
    two = counted_words.corpora.split(pair.code, (pair.first, pair.second))
    found = cad_corpora(two, rule=RULE, alpha=settings.alpha, p_star=settings.p_star)
    n, n_patients = len(two.group), len(two.patients)
    here: dict[str, Any] = {"slice": pair.first, "versus": pair.second, "n": n, "n_patients": n_patients}
    silent = _silent(two)
    if silent:
        rows = [make.row(name, NAN, note=f"undefined: {silent}", **here) for name in (*RULE_CATEGORIES, *STATISTICS)]
        return Associations(rows, [], _words(two, found, pair, make.of), found, None)
    shared = _n_patients_in_both(two)
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


def _n_patients_in_both(two: Corpora) -> int:
    """Patients with reports in both groups (of other ages): their labels cannot be permuted."""
    pairs = np.unique(two.patient * 2 + two.group)
    return len(pairs) - len(np.unique(two.patient))


def _counts(
    two: Corpora, found: Displacement, pair: Pair, make: RowMaker, here: Mapping[str, Any], shared: int
) -> list[Row]:
    """How many words each rule puts where, and how many it would by chance."""
    ours = categories(found, rule=RULE)
    counts = {
        "": count_categories(ours.category, DEFAULT_CATEGORIES),
        ".exact": count_categories(categories(found, rule="exact").category, DEFAULT_CATEGORIES),
        ".paper": count_categories(categories(found, rule="paper").category, PAPER_CATEGORIES),
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
    for suffix, names in (("", RULE_CATEGORIES), (".exact", ("erasure",)), (".paper", PRINTED_CATEGORIES)):
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
                ends = ReportInterval(float(low), float(high), f"quantiles of {len(drawn)} shuffles")
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
            ends = ReportInterval(got.low, got.high, f"{got.method}, patients resampled")
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
    ends = ReportInterval(float(low), float(high), f"quantiles of {len(known)} halvings")
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


def _sweep(found: Displacement, pair: Pair, of: GeneratedReports) -> list[Row]:
    """Counts at other levels p*."""
    curves = []
    for rule, suffix in ((RULE, ""), ("paper", ".paper")):
        for step in sweep(found, P_STAR_GRID, rule):
            for kind, y in (("erasure", step["erasure"]), ("emergent", step["new"] + step["flip"])):
                curves.append({"model": of.label, "strategy": of.strategy, "kind": f"p_star.{kind}{suffix}",
                               "slice": pair.first, "x": step["p_star"], "y": float(y)})  # fmt: skip
    return curves


def _words(two: Corpora, found: Displacement, pair: Pair, of: GeneratedReports) -> pa.Table:
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


def join_word_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """WORD rows of all pairs and strategies."""
    return pa.concat_tables(tables) if tables else WORD.empty_table()


# Written reports and two groups -> WEAT: do words of normal and abnormal findings lie nearer to one group's words?
#
# A baseline that the paper reports beside its own measures. Targets are words of normal and of abnormal findings,
# attributes the references' own words of either group (the eight with the largest |z_ref| and at least five
# patients), or whatever the user names. Vectors come from the corpus itself: which words stand together in a report.
# The paper names neither its word sets nor its vectors.

NORMAL = ("normal", "clear", "unremarkable", "intact", "stable", "unchanged", "limits", "negative")
ABNORMAL = ("effusion", "opacity", "consolidation", "atelectasis", "edema", "pneumonia", "cardiomegaly", "enlarged")
OWN_WORDS, LEAST_PATIENTS, LEAST_WORDS = 8, 5, 2
_SETS = ("targets_first", "targets_second", "attributes_first", "attributes_second")


class WordSets(NamedTuple):
    """Two sets of targets and two of attributes; empty attributes: the references' own words."""

    targets_first: tuple[str, ...] = NORMAL
    targets_second: tuple[str, ...] = ABNORMAL
    attributes_first: tuple[str, ...] = ()
    attributes_second: tuple[str, ...] = ()


def word_sets(path: str | None) -> WordSets:
    """Those of a YAML file, or ours."""
    if path is None:
        return WordSets()
    given = read_yaml(Path(path))
    good = isinstance(given, dict) and set(given) <= set(_SETS)
    if not good or not all(isinstance(each, list) and all(isinstance(w, str) for w in each) for each in given.values()):
        raise ConfigError(f"weat_words: {path} has no word sets", allowed=f"lists of words under {', '.join(_SETS)}")
    return WordSets(**{name: tuple(word.lower() for word in words) for name, words in given.items()})


def choose_own_words(
    found: Displacement, holders: Mapping[str, int], sets: WordSets
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words that go most with each group in the references and are no targets."""
    targets = {*sets.targets_first, *sets.targets_second}
    order = np.argsort(-np.abs(found.z_ref), kind="stable")
    usable = [
        i
        for i in order
        if found.reference[:, i].sum() >= found.min_count
        and holders.get(found.words[i], 0) >= LEAST_PATIENTS
        and found.words[i] not in targets
    ]
    first = tuple(found.words[i] for i in usable if found.z_ref[i] > found.z_neutral)[:OWN_WORDS]
    second = tuple(found.words[i] for i in usable if found.z_ref[i] < -found.z_neutral)[:OWN_WORDS]
    return first, second


def association_test(
    texts: Sequence[str], sets: WordSets, own: tuple[tuple[str, ...], tuple[str, ...]], pair: Pair, make: RowMaker,
    strategy: str | None = None,
) -> list[Row]:  # fmt: skip
    """The rows weat and weat_effect_size of one corpus."""
    wanted = sets._replace(attributes_first=sets.attributes_first or own[0],
                           attributes_second=sets.attributes_second or own[1])  # fmt: skip
    words, vectors = cooccurrence_vectors(texts, seed=make.settings.seed)
    place = {word: at for at, word in enumerate(words)}
    used = {name: [word for word in dict.fromkeys(each) if word in place] for name, each in wanted._asdict().items()}
    where: dict[str, Any] = {"slice": pair.first, "versus": pair.second, "strategy": strategy}
    method = f"WEAT; word embeddings: words that occur together in these reports (PPMI, {DIM} dimensions)"
    lacking = [name for name in _SETS if len(used[name]) < LEAST_WORDS]
    if lacking:
        why = f"undefined: fewer than {LEAST_WORDS} words of {' and '.join(lacking)} occur in five of these reports"
        return [make.row(name, NAN, method=method, note=why, **where) for name in ("weat", "weat_effect_size")]
    sides: list[NDArray[np.float64]] = [vectors[[place[word] for word in used[name]]] for name in _SETS]
    found = weat(sides[0], sides[1], sides[2], sides[3], seed=make.settings.seed)
    note = "; ".join(f"{name.replace('_', ' ')}: {', '.join(used[name])}" for name in _SETS)
    # Its p is about the choice of target words, not about patients: it takes no part in this page's corrections.
    note += f"; one-sided p {found.p_value:.3g} by permuting the targets"
    values = {"weat": found.statistic, "weat_effect_size": found.effect_size}
    return [make.row(name, value, method=method, note=note, **where) for name, value in values.items()]
