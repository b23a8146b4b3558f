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

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from cxrhf.metrics.checks import Floats, as_count, as_fraction, as_texts, same_length
from cxrhf.metrics.diversity_parts import FEW_PATIENTS, MEASURES, measured_parts, patients_alone, text_tables
from cxrhf.metrics.draws import draw
from cxrhf.metrics.language import lexical_diversity, vocabulary_shift
from cxrhf.metrics.proportions import wilson

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
            alone = (patients_alone(table.templates, unit), patients_alone(table.words, unit), FEW_ALONE)
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
