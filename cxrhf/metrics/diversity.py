"""Reports and their patients -> lexical diversity with intervals that hold, of one corpus or of a pair.

The bootstrap is useless here: it draws reports twice, so the corpus looks less varied than it is, and its 95% interval
covered the truth in 0% of samples of 200 patients (type-token ratio: up to 13%). The jackknife is too wide: its
standard error is 1.02 to 1.47 times the true one, because what two reports have in common is counted for both.

Here patients are dealt into four quarters, many times. Parts without a common patient are independent, so their spread
gives the variance of a measure at a half and at a quarter of the patients without bias; how it changes from a quarter
to a half (by 1/2, more or less) is taken once more, to the whole. The interval is Wilson's with the number of trials
that this variance stands for, and Student's t. It is about the expected value over corpora of as many patients from the
same source. All measures move with the size of the corpus: it says nothing about other sizes.

Coverage of 95% intervals in percent (200 splits, 300 to 600 samples a figure, so a standard error of about 1), for
template diversity / type-token ratio / self-BLEU: 200 real findings 96.0 / 95.6 / 96.2, 200 generated reports 95.4 /
96.2 / 96.2; 200 patients with one to four nearly equal reports each, real 95.2 / 95.2 / 97.4, generated 95.6 / 95.8 /
96.2. All figures for 400 were 94.2 to 97.8, for 1,000 (real sentences, exchanged) 94.3 to 97.7, for 12 to 50 patients
93.0 to 99.6; self-BLEU of a sample of 100 had 93.5 to 98.5, paired differences 94.0 to 100.

Known gaps: patients must be independent: copies under other ids look like certainty. A rare kind of report that nobody
in the sample has cannot be foreseen. With ten templates and .3 to 10% other reports, template diversity and self-BLEU
covered 93.0 to 100; the type-token ratio has no interval with fewer than five patients who have a word of their own,
and where it had one it covered 94.5 to 100, but 87 at 1% of others (31 of 600 samples). Levels other than 95% and more
than 1,000 patients were not studied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from cxrhf.metrics.checks import Floats, InputError, as_count, as_fraction, as_texts, same_length, wilson
from cxrhf.metrics.draws import draw
from cxrhf.metrics.intervals import patient_numbers
from cxrhf.metrics.language import (
    ORDERS,
    SMOOTHING,
    lexical_diversity,
    numbered_ngrams,
    sample_texts,
    semantic_diversity,
    template_of,
    token_ids,
    vocabulary_shift,
)

# The spread of different reports or words hangs on patients who have one that nobody else has.
FEW_ALONE = 5
METHOD = "wilson, quarters of patients"
DIFFERENCE_METHOD = "paired limits, quarters of patients"


def measure_diversity(
    texts: Iterable[str],
    *,
    clusters: ArrayLike | None = None,
    n_resamples: int = 0,
    sample: int | None = None,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, Any]:
    """Measure the diversity of a corpus.

    Returns counts, `template_diversity`, `type_token_ratio`, `self_bleu` and `self_bleu_diversity` (1 minus self-BLEU).
    All four are from 0 to 1. Higher means more diverse, except for self-BLEU. More diverse is not better as such: noise
    is diverse too. The values are those of `lexical_diversity`.

    With `n_resamples` > 0, each value has `<x>_ci_low`, `<x>_ci_high` and `<x>_ci_method`. Patients (`clusters`; by
    default every text is its own patient) are split into quarters `n_resamples` times: 200 are enough, and fewer give
    wider intervals. Self-BLEU of a `sample` has the interval of a corpus of that size. Undefined values and intervals
    are NaN with the reason in `<x>_note`: a value without texts or words, and an interval with fewer than 12 patients
    or without visible spread.

    >>> out = measure_diversity(["Clear lungs.", "Clear  lungs.", "No effusion."] * 8, n_resamples=200)
    >>> out["n_types"], round(out["template_diversity"], 3), out["template_diversity_ci_high"] > 2 / 24
    (4, 0.083, True)
    """
    (found,) = study_diversity([as_texts(texts)], clusters, n_resamples, sample, seed, level)
    return found.flat()


def measure_diversity_pair(
    generated: Iterable[str],
    reference: Iterable[str],
    *,
    clusters: ArrayLike | None = None,
    n_resamples: int = 0,
    sample: int | None = None,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, dict[str, Any]]:
    """Compare the diversity of generated reports with that of the references for the same images, row by row.

    `generated` and `reference` hold the results of `measure_diversity`, and `difference` generated minus reference (-1
    to 1; negative if generated reports are less diverse, positive for self-BLEU). Its interval is paired: the same
    patients are in the same quarters of both corpora. `vocabulary` holds the numbers of `vocabulary_shift`.

    >>> out = measure_diversity_pair(["Clear lungs."] * 3, ["Clear lungs.", "Small effusion.", "Clear lungs."])
    >>> round(out["difference"]["template_diversity"], 3), out["vocabulary"]["n_lost"]
    (-0.333, 2)
    """
    texts = [as_texts(generated, "generated"), as_texts(reference, "reference")]
    same_length(generated=np.empty(len(texts[0])), reference=np.empty(len(texts[1])))
    one, other = study_diversity(texts, clusters, n_resamples, sample, seed, level)
    shift = vocabulary_shift(texts[1], texts[0])
    return {
        "generated": one.flat(),
        "reference": other.flat(),
        "difference": less(one, other).flat(),
        "vocabulary": {
            "kept_share": shift.kept_share,
            "lost_mass": shift.lost_mass,
            "new_mass": shift.new_mass,
            "n_lost": len(shift.lost),
            "n_new": len(shift.new),
        },
    }


class _Ends(NamedTuple):
    low: float
    high: float
    method: str


_NO_ENDS = _Ends(float("nan"), float("nan"), "undefined")


@dataclass(frozen=True, slots=True)
class Diversity:
    """Values, why one or its interval is NaN, intervals, and how far the halves of each split lie apart."""

    counts: dict[str, int]
    value: dict[str, float]
    note: dict[str, str]
    ends: dict[str, _Ends]
    apart: dict[str, Floats]

    def flat(self) -> dict[str, Any]:
        """Plain numbers under the names of the public functions."""
        out: dict[str, Any] = dict(self.counts)
        for name, value in self.value.items():
            out[name] = value
            if name in self.ends:
                out |= {f"{name}_ci_{part}": each for part, each in self.ends[name]._asdict().items()}
            if name in self.note:
                out[f"{name}_note"] = self.note[name]
        return out


def study_diversity(
    corpora: list[list[str]], clusters: ArrayLike | None, n_resamples: int, sample: int | None, seed: int, level: float
) -> list[Diversity]:
    """All corpora (row i of each belongs to one image) with the same patients in the same quarters."""
    as_count(n_resamples, "n_resamples", 0)
    as_count(seed, "seed", 0)
    as_fraction(level, "level")
    unit = _patients(corpora, clusters)
    found = [_values(texts, sample, seed) for texts in corpora]
    if n_resamples:
        tables = [text_tables(texts, sample, seed) for texts in corpora]
        parts, n_patients = measured_parts(tables, unit, n_resamples, seed)
        for each, table, values in zip(found, tables, parts, strict=True):
            alone = (count_unique_patients(table.templates, unit), count_unique_patients(table.words, unit), FEW_ALONE)
            for name, piece, patients, own in zip(MEASURES, values, n_patients, alone, strict=True):
                each.ends[name], why = _interval(name, each.value[name], piece, patients, own, level)
                each.apart[name] = piece[4] - piece[5]
                if why:
                    each.note[name] = why
    for each in found:
        _mirror(each)
    return found


def _patients(corpora: list[list[str]], clusters: ArrayLike | None) -> NDArray[np.int64]:
    """A number for the patient of each row that does not depend on the order of the rows."""
    n_rows = len(corpora[0])
    if clusters is not None:
        unit = draw(clusters).unit.astype(np.int64)
        same_length(texts=np.empty(n_rows), clusters=unit)
        return unit
    unit = np.empty(n_rows, dtype=np.int64)
    unit[sorted(range(n_rows), key=lambda row: [texts[row] for texts in corpora])] = np.arange(n_rows)
    return unit


def _values(texts: list[str], sample: int | None, seed: int) -> Diversity:
    got = lexical_diversity(texts, sample=sample, seed=seed)
    counts = {name: getattr(got, name) for name in ("n_texts", "n_empty", "n_tokens", "n_types")}
    value = {name: float(getattr(got, name)) for name in MEASURES}
    worded = got.n_texts - got.n_empty
    why = {
        "template_diversity": "undefined: no texts",
        "type_token_ratio": f"undefined: no words in {got.n_texts} texts",
        "self_bleu": f"undefined: at least 2 texts with words are required, got {worded} of {got.n_texts}",
    }
    return Diversity(counts, value, {name: why[name] for name in MEASURES if np.isnan(value[name])}, {}, {})


def _mirror(found: Diversity) -> None:
    """1 - self-BLEU, with the interval turned round."""
    found.value["self_bleu_diversity"] = 1 - found.value["self_bleu"]
    if "self_bleu" in found.note:
        found.note["self_bleu_diversity"] = found.note["self_bleu"]
    if "self_bleu" in found.ends:
        low, high, method = found.ends["self_bleu"]
        found.ends["self_bleu_diversity"] = _Ends(1 - high, 1 - low, method)
        found.apart["self_bleu_diversity"] = -found.apart["self_bleu"]


def _interval(name: str, value: float, parts: Floats, patients: int, alone: int, level: float) -> tuple[_Ends, str]:
    """Wilson's interval with the trials that the variance stands for, or why there is none."""
    if np.isnan(value):
        return _NO_ENDS, ""
    if patients < FEW_PATIENTS:
        return _NO_ENDS, f"no interval: at least {FEW_PATIENTS} patients are required, got {patients}"
    if np.isnan(parts).any():
        return (
            _NO_ENDS,
            f"no interval: {name} is undefined in a quarter of the patients because too few texts have words",
        )
    if name == "type_token_ratio" and alone < FEW_ALONE:  # nobody knows how many words an unusual patient brings
        return _NO_ENDS, f"no interval: at least {FEW_ALONE} patients with a unique word are required, got {alone}"
    variance = _variance(parts, patients)
    if variance == 0 and name != "template_diversity" and not (name == "self_bleu" and value == 1):
        return _NO_ENDS, "no interval: all parts of the corpus give the same value, so its spread cannot be estimated"
    trials = value * (1 - value) / variance if variance > 0 and 0 < value < 1 else float(patients)
    if alone < FEW_ALONE:  # a corpus of templates: what share of patients may be unlike all of them?
        trials = min(trials, float(patients))
    # Noise of the variance: from the number of splits, and (measured) from the number of patients.
    freedom = 2 / (8 / parts.shape[1] + 4 / patients)
    return _Ends(*wilson(value, trials, float(stdtrit(freedom, 0.5 + level / 2))), METHOD), ""


def _variance(parts: Floats, patients: int) -> float:
    """Variance of the measure at all patients, carried on from those at a quarter and a half; 0 without a spread."""
    half = float(((parts[4] - parts[5]) ** 2).mean()) / 2
    quarter = float(parts[:4].var(axis=0, ddof=1).mean())
    if half < 1e-24:
        return 0.0
    # With a few splits the only two equal reports may never meet in a quarter; their variance does not change with n.
    change = half / quarter if quarter > 0 else 1.0
    return half * change ** float(np.log2(patients / (patients // 4 * 2)))


def less(one: Diversity, other: Diversity, names: tuple[str, str] = ("generated", "reference")) -> Diversity:
    """One corpus less the other, the interval from the limits of both and the correlation of their halves.

    `names` of the two, for a note that says in which of them something is undefined.
    """
    out = Diversity({}, {}, {}, {}, {})
    for name, value in one.value.items():
        out.value[name] = value - other.value[name]
        for side, found in zip(names, (one, other), strict=True):
            if name in found.note:
                out.note.setdefault(name, f"{side}: {found.note[name]}")
        if name in one.ends:
            out.ends[name] = _NO_ENDS if name in out.note else _paired(name, one, other)
    return out


def _paired(name: str, one: Diversity, other: Diversity) -> _Ends:
    """Each limit as far from the difference as the limits of both values together, less what they share."""
    moved, beside = one.apart[name], other.apart[name]
    size = float(np.sqrt((moved**2).sum() * (beside**2).sum()))
    shared = float((moved * beside).sum()) / size if size > 0 else 0.0
    value, other_value = one.value[name], other.value[name]

    def far(own: float, others: float) -> float:
        return float(np.sqrt(max(own**2 + others**2 - 2 * shared * own * others, 0.0)))

    low = value - other_value - far(value - one.ends[name].low, other.ends[name].high - other_value)
    high = value - other_value + far(one.ends[name].high - value, other_value - other.ends[name].low)
    return _Ends(max(low, -1.0), min(high, 1.0), DIFFERENCE_METHOD)


# Several corpora of the same images -> diversity of each, and differences of any two, from one deal of patients.


class Compared:
    """Corpora by name, studied together: what `measure_diversity_pair` gives of two, at the cost of one each."""

    def __init__(self, found: Mapping[str, Diversity]) -> None:
        self._found = found

    def of(self, name: str) -> dict[str, Any]:
        """Diversity of one corpus, as `measure_diversity` gives it."""
        return self._found[name].flat()

    def less(self, name: str, other: str) -> dict[str, Any]:
        """One corpus less another, with paired intervals."""
        return less(self._found[name], self._found[other], (name, other)).flat()


def compare_diversity(
    corpora: Mapping[str, Iterable[str]],
    *,
    clusters: ArrayLike | None = None,
    n_resamples: int = 0,
    sample: int | None = None,
    seed: int = 0,
    level: float = 0.95,
) -> Compared:
    """Diversity of corpora whose rows belong to the same images; options as in `measure_diversity_pair`.

    >>> both = compare_diversity({"greedy": ["Clear."] * 3, "rich": ["Clear.", "Large heart.", "Effusion."]})
    >>> round(both.less("greedy", "rich")["template_diversity"], 3)
    -0.667
    """
    if not corpora:
        raise InputError("corpora: expected at least one corpus by name, got none")
    texts = {name: as_texts(each, name) for name, each in corpora.items()}
    same_length(**{name: np.empty(len(each)) for name, each in texts.items()})
    return Compared(
        dict(zip(texts, study_diversity(list(texts.values()), clusters, n_resamples, sample, seed, level), strict=True))
    )


# Reports and their patients -> measures of diversity in quarters and halves of the patients, dealt many times.
#
# A part's value is the plain measure (`language.lexical_diversity`) of the texts of its patients. Tables of which
# text has what are made once; after that a split is a few sparse products.

MEASURES = ("template_diversity", "type_token_ratio", "self_bleu")
# Quarters of fewer than three patients say nothing about the spread; coverage was measured from here on.
FEW_PATIENTS = 12
# Things times splits that are counted at once: bounds the memory.
_BATCH = 2**20


@dataclass(frozen=True, slots=True)
class TextTables:
    """Which text has what, in tables of ones (texts x things), made once; `used` are the texts of self-BLEU.

    `grams` (one table an order) hold an n-gram that a text has c times as c things, "once", ..., "c times". BLEU's
    clipped count is then the number of things that another text has too.
    """

    sizes: sp.csr_array
    templates: sp.csr_array
    words: sp.csr_array
    used: NDArray[np.int64]
    sampled: bool
    length: NDArray[np.int64]
    grams: tuple[sp.csr_array, ...]


def text_tables(texts: list[str], sample: int | None, seed: int) -> TextTables:
    rows, tokens, found = token_ids(texts)
    length = np.diff(rows)
    document = np.repeat(np.arange(len(texts)), length)
    number: dict[str, int] = {}
    template = np.array([number.setdefault(template_of(text), len(number)) for text in texts], dtype=np.int64)
    pair = np.unique(document * len(found) + tokens)
    worded = np.flatnonzero(length)
    used = worded[sample_texts(len(worded), sample, seed)]  # the very texts that `language.self_bleu` draws
    kept = np.isin(document, used)
    return TextTables(
        sp.csr_array(np.stack([np.ones(len(texts)), length], axis=1)),
        _ones(np.arange(len(texts)), template, len(texts)),
        _ones(pair // max(len(found), 1), pair % max(len(found), 1), len(texts)),
        used,
        len(used) < len(worded),
        length[used],
        tuple(_grams(length[used], tokens[kept])),
    )


def _ones(row: NDArray[Any], thing: NDArray[Any], n_rows: int) -> sp.csr_array:
    kinds, column = np.unique(thing, return_inverse=True)
    return sp.csr_array((np.ones(len(row), dtype=np.float32), (row, column)), shape=(n_rows, len(kinds)))


def _grams(length: NDArray[np.int64], tokens: NDArray[np.int64]) -> list[sp.csr_array]:
    document = np.repeat(np.arange(len(length)), length)
    rows = np.concatenate([[0], np.cumsum(length)])
    tables = []
    for _, start, gram in numbered_ngrams(rows, tokens, ORDERS):
        size = int(gram.max(initial=0)) + 1
        pair, times = np.unique(document[start] * size + gram, return_counts=True)
        level = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        row, thing = np.repeat(pair // size, times), np.repeat(pair % size, times) + level * size
        _, which, holders = np.unique(thing, return_inverse=True, return_counts=True)
        several = holders[which] > 1  # what only one text of the whole corpus has is matched in no part of it
        tables.append(_ones(row[several], thing[several], len(length)))
    return tables


def dealt_quarters(n_patients: int, n_resamples: int, seed: int) -> NDArray[np.int8]:
    """The quarter (0 to 3) of each patient in each split, shape (splits, patients).

    Quarters are equal in size, so that only chance sets them apart; up to three patients sit out with -1.
    """
    quarter = np.full(n_patients, -1, dtype=np.int8)
    quarter[: n_patients // 4 * 4] = np.arange(n_patients // 4 * 4) % 4
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    return rng.permuted(np.tile(quarter, (n_resamples, 1)), axis=1)


def measured_parts(
    corpora: list[TextTables], unit: NDArray[np.int64], n_resamples: int, seed: int
) -> tuple[list[Floats], tuple[int, int, int]]:
    """Each corpus' measures in its quarters and halves, (measures, 6, splits), and the patients behind each measure."""
    everybody = np.arange(int(unit.max(initial=-1)) + 1)
    # Patients without a text in the sample would leave the parts of the sample unequal: they are not dealt.
    sampled = any(each.sampled for each in corpora)
    some = np.unique(np.concatenate([unit[each.used] for each in corpora])) if sampled else everybody
    n_patients = (len(everybody), len(everybody), len(some))
    deals = dealt_quarters(len(everybody), n_resamples, seed), dealt_quarters(len(some), n_resamples, seed)
    found = []
    for each in corpora:
        values = np.full((len(MEASURES), 6, n_resamples), np.nan)
        place = np.searchsorted(some, unit[each.used])
        step = max(1, _BATCH // max(len(unit), 1, *(table.shape[1] for table in each.grams)))
        for first in range(0, n_resamples, step):
            now = slice(first, first + step)
            if len(everybody) >= FEW_PATIENTS:
                values[:2, :, now] = _shares(each, np.ascontiguousarray(deals[0][now, unit].T))
            if len(some) >= FEW_PATIENTS:
                values[2, :, now] = _bleu(each, np.ascontiguousarray(deals[1][now, place].T))
        found.append(values)
    return found, n_patients


def _quarters_and_halves(quarters: NDArray[Any]) -> NDArray[Any]:
    """The four quarters (axis 1), and behind them the sums for the two halves."""
    halves = quarters[:, 0] + quarters[:, 1], quarters[:, 2] + quarters[:, 3]
    return np.concatenate([quarters, halves[0][:, None], halves[1][:, None]], axis=1)


def _holders(things: sp.csr_array, quarter: NDArray[np.int8]) -> NDArray[Any]:
    """How many texts of each part have each thing, (things, 6, splits), for the `quarter` of each text and split."""
    inside = (quarter[:, None] == np.arange(4)[:, None]).astype(things.dtype)
    quarters = things.T @ inside.reshape(len(inside), 4 * quarter.shape[1])
    return _quarters_and_halves(quarters.reshape(things.shape[1], 4, quarter.shape[1]))


def _shares(corpus: TextTables, quarter: NDArray[np.int8]) -> Floats:
    """Template diversity and type-token ratio of every part, (2, 6, splits)."""
    different = [(_holders(each, quarter) > 0).sum(axis=0) for each in (corpus.templates, corpus.words)]
    with np.errstate(invalid="ignore"):
        return np.asarray(np.stack(different) / _holders(corpus.sizes, quarter))


def _bleu(corpus: TextTables, quarter: NDArray[np.int8]) -> Floats:
    """Self-BLEU of every part, (6, splits)."""
    length, n_splits = corpus.length, quarter.shape[1]
    own = np.stack([quarter, 4 + quarter // 2], axis=1).astype(np.int64)  # quarter and half that a text is in
    score = np.zeros(own.shape)
    common = np.ones(own.shape, dtype=bool)
    for n, things in enumerate(corpus.grams, start=1):
        shared = (_holders(things, quarter) > 1).astype(np.float32)
        matches = (things @ shared.reshape(len(shared), 6 * n_splits)).reshape(len(length), 6, n_splits)
        matches = np.take_along_axis(matches, own, axis=1).astype(np.float64)
        if n == 1:
            common = matches > 0
        here = length >= n
        score[here] += np.log(np.where(matches > 0, matches, SMOOTHING)[here] / (length[here] - n + 1)[:, None, None])
    score /= np.minimum(length, ORDERS)[:, None, None]
    score += np.take_along_axis(_brevity(length, quarter), own, axis=1)
    score = np.where(common, np.exp(score), 0.0)
    inside = quarter[:, None] == np.arange(4)[:, None]
    texts = _quarters_and_halves(inside.sum(axis=0, dtype=np.float64)[None])[0]
    halves = [((quarter // 2 == half) * score[:, 1]).sum(axis=0) for half in (0, 1)]
    sums = np.concatenate([(inside * score[:, :1]).sum(axis=0), halves])
    return np.where(texts > 1, sums / np.maximum(texts, 1), np.nan)


def _brevity(length: NDArray[np.int64], quarter: NDArray[np.int8]) -> Floats:
    """Logarithm of the brevity penalty that each text would have in each part, (texts, 6, splits)."""
    sizes, which = np.unique(length, return_inverse=True)
    times = _holders(_ones(np.arange(len(length)), which, len(length)), quarter)
    size = sizes[:, None, None].astype(np.float64)
    beyond = np.full((1, *times.shape[1:]), np.inf)
    below = np.maximum.accumulate(np.concatenate([-beyond, np.where(times > 0, size, -np.inf)[:-1]]))
    above = np.minimum.accumulate(np.concatenate([np.where(times > 0, size, np.inf)[1:], beyond])[::-1])[::-1]
    closest = np.where(times > 1, size, np.where(size - below <= above - size, below, above))
    return np.minimum(0.0, 1.0 - closest / size)[which]


def count_unique_patients(things: sp.csr_array, unit: NDArray[np.int64]) -> int:
    """Patients who have something that nobody else has."""
    table = things.tocoo()
    n_patients = int(unit.max(initial=-1)) + 1
    pair = np.unique(table.col.astype(np.int64) * n_patients + unit[table.row])
    thing, patient = pair // max(n_patients, 1), pair % max(n_patients, 1)
    return len(np.unique(patient[np.bincount(thing)[thing] == 1]))


# Vectors of reports and their patients -> semantic diversity with an interval.
#
# 1 - mean cosine over all pairs of reports (`language.semantic_diversity`) is a mean over pairs, so a bootstrap that
# draws reports twice would see pairs of equals that nobody wrote. Here patients are left out one by one (the
# jackknife), which costs one pass over the sums of the unit vectors. Its 95% intervals covered the truth in 92.5 to
# 95% of simulated corpora (30, 100 and 400 patients, one or several reports each).

FEW_PATIENTS_SEMANTIC = 5


class Spread(NamedTuple):
    """The value and its interval; NaN where fewer than FEW_PATIENTS say nothing of the spread."""

    value: float
    low: float
    high: float
    n_patients: int


def semantic_spread(vectors: ArrayLike, clusters: ArrayLike | None = None, *, level: float = 0.95) -> Spread:
    """`semantic_diversity` with a jackknife interval over patients; rows of length 0 are left out.

    >>> semantic_spread([[1.0, 0.0], [0.0, 1.0]]).value
    1.0
    """
    as_fraction(level, "level")
    rows = np.asarray(vectors, dtype=np.float64)
    value = semantic_diversity(rows)
    unit = patient_numbers(clusters, len(rows))
    same_length(vectors=rows, clusters=unit)
    size = np.linalg.norm(rows, axis=1)
    unit, rows = np.unique(unit[size > 0], return_inverse=True)[1], rows[size > 0] / size[size > 0, None]
    n_patients = int(unit.max(initial=-1)) + 1
    if n_patients < FEW_PATIENTS_SEMANTIC:
        return Spread(value, float("nan"), float("nan"), n_patients)
    sums = np.zeros((n_patients, rows.shape[1]))
    np.add.at(sums, unit, rows)
    left = len(rows) - np.bincount(unit, minlength=n_patients)
    total = sums.sum(axis=0)
    # Squared length of the sum without each patient: |T|^2 - 2 T.s + |s|^2.
    squares = total @ total - 2 * sums @ total + (sums**2).sum(axis=1)
    without = 1 - (squares - left) / (left * (left - 1.0))
    spread = float(np.sqrt((n_patients - 1) / n_patients * ((without - without.mean()) ** 2).sum()))
    half = float(stdtrit(n_patients - 1, 0.5 + level / 2)) * spread
    return Spread(value, max(value - half, 0.0), min(value + half, 2.0), n_patients)
