"""PREDICTION, ATTRIBUTE -> RESULT, CURVE: does a model rank better in one sex because of what lies in the pictures?

SLICES found that a pneumothorax model leans on chest drains, and that men and women without pneumothorax have drains
unequally often: the gap in AUROC between the sexes went away once drains were equally frequent. Here that question is
asked of every finding and every attribute with values 1 and 0, on the images whose attribute is known: AUROC by sex as
attributes lie (`auroc`), and with weights that give both sexes the same share of the attribute within each class
(`auroc_equalised`, metrics/equalising.py; weights made anew in every resample). Natural less equalised gap is what the
attribute explains. Why the model leans on it is shown by confidence and Brier score by sex, label and attribute.

Without names in `shortcuts`, an attribute is looked at where at least 10 patients of each sex are in each of the four
cells of label and attribute. Named ones are shown in any case; a gap that rests on fewer patients is not tested.

Known gaps. An attribute that explains a gap need not be a shortcut: sicker patients get drains, and are easier to see.
Where neither the shares differ by sex nor scores by attribute, the p value of what is explained is too large (a product
of two things that are 0). Groups are those by sex; two values at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.rows import Part, Row, RowMaker
from cxrhf.audits.sample import Finding, Sample, patients_in
from cxrhf.audits.shortcut_rows import Marked, confidence_curves, shortcut_rows
from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.metrics.balancing import cells_of
from cxrhf.metrics.estimates import FEW
from cxrhf.metrics.pairs import CellRows, drawn_tallies, rank_cells, sample_tally
from cxrhf.schema import PredictionArrays

Integers = NDArray[np.int64]


class _Sexes(NamedTuple):
    """The two that are compared, as slices name them, and the place of each image's, -1 = neither."""

    names: tuple[str, str]
    code: Integers


def shortcut(sample: Sample) -> Part:
    """All attributes of one model."""
    said: list[str] = []
    marks = _marks(sample, said)
    sexes = _sexes(sample.data, said) if marks else None
    rows, curves = list[Row](), list[Row]()
    if sexes is not None:
        chosen = _chosen(sample, marks, sexes, said)
        names = ", ".join(chosen) or "no attribute"
        sample.progress(f"{sample.model}: shortcut ({names}), {sample.draws.n_resamples:,} resamples")
        tick = sample.ticking(f"{sample.model}: shortcut, resamples", len(chosen))
        make = RowMaker("shortcut", sample)
        for several in chosen.values():
            ranked = [_ranked(marked, sample) for marked in several]
            tallies = drawn_tallies(ranked, sample.draws, sample.workers, tick)
            for marked, own, drawn in zip(several, ranked, tallies, strict=True):
                rows += shortcut_rows(make, marked, sample_tally(own), drawn)
                curves += confidence_curves(sample.curve_model, marked)
    return Part(rows, curves, [f"{sample.model}: {each}" for each in said])


def _ranked(marked: Marked, sample: Sample) -> CellRows:
    own = marked.finding
    return rank_cells(own.y, own.p, own.weight, sample.draws.unit[own.at], marked.sex, marked.mark, 2)


def _marks(sample: Sample, said: list[str]) -> dict[str, Integers]:
    """Attributes to ask about: 1, 0, or -1 where it is not known, of each image."""
    known = sample.beside.attributes
    asked = tuple(dict.fromkeys(sample.settings.shortcuts))
    found: dict[str, Integers] = {}
    for name in asked or known:
        if name not in known:
            if not sample.several_datasets:  # another dataset may have it
                raise ConfigError(
                    "shortcuts" if known else f'shortcuts: no image with a prediction has the attribute "{name}"',
                    got=name if known else None,
                    allowed=f"an attribute of the images ({', '.join(known)})" if known else None,
                    next_step=did_you_mean(name, known),
                )
            said.append(f"shortcut: no image of this dataset has the attribute {name}")
            continue
        values = set(known[name].tolist()) - {""}
        if values <= {"0", "1"}:
            found[name] = np.select([known[name] == "1", known[name] == "0"], [1, 0], -1).astype(np.int64)
        elif asked:
            said.append(
                f"shortcut: {name} is excluded: it has values other than 1 and 0 (make one attribute of each value)"
            )
    if not found and not asked:
        why = "no attribute has only the values 1 and 0" if known else "no image has an attribute"
        said.append(f"shortcut: not run, {why}")
    return found


def _sexes(data: PredictionArrays, said: list[str]) -> _Sexes | None:
    """The two sexes with most patients, in the order of the alphabet."""
    text = data.groups["sex"].astype(str) if "sex" in data.groups else np.zeros(0, dtype=str)
    values = sorted(set(text.tolist()) - {""})
    if not values:
        said.append("shortcut: not run, the table has no sex (name the column with --sex COLUMN)")
        return None
    if len(values) < 2:
        said.append(f"shortcut: not run, there is only one sex, {values[0]}")
        return None
    patients = [len(np.unique(data.patients[text == value])) for value in values]
    one, two = sorted(np.argsort(-np.array(patients), kind="stable")[:2].tolist())
    code = np.select([text == values[one], text == values[two]], [0, 1], -1).astype(np.int64)
    if outside := int((code < 0).sum()):
        said.append(f"shortcut: {outside:,} images are neither of sex {values[one]} nor {values[two]} and are excluded")
    return _Sexes((f"sex={values[one]}", f"sex={values[two]}"), code)


def _chosen(sample: Sample, marks: Mapping[str, Integers], sexes: _Sexes, said: list[str]) -> dict[str, list[Marked]]:
    """What is looked at, attribute by attribute; what is not is said once."""
    findings = sample.findings()
    asked, least = bool(sample.settings.shortcuts), 1 if sample.settings.shortcuts else FEW
    chosen: dict[str, list[Marked]] = {}
    left: list[str] = []
    for name, mark in marks.items():
        several = [_marked(finding, name, mark, sexes) for finding in findings]
        kept = [m for m in several if (m.patients.sum() if asked else m.patients.min()) >= least]
        if kept:
            chosen[name] = kept
            known = int((mark >= 0).sum())
            if known < len(mark):
                said.append(f"shortcut: {name} is known for {known:,} of {len(mark):,} images; the audit uses those")
        if lost := [m.finding.name for m in several if m not in kept]:
            left.append(f"{name} for {', '.join(lost) if kept else 'all findings'}")
    if left:
        why = "no patient with label and attribute" if asked else f"fewer than {FEW} patients of a sex, label and value"
        said.append(f"shortcut: excluded ({why}): {'; '.join(left)}")
    return chosen


def _marked(finding: Finding, name: str, mark: Integers, sexes: _Sexes) -> Marked:
    """The rows of a finding whose attribute and sex are known."""
    inside = (mark[finding.at] >= 0) & (sexes.code[finding.at] >= 0)
    own = finding.only(inside)
    sex, marks = sexes.code[own.at], mark[own.at]
    cell = cells_of(own.y, sex, marks, 2).astype(np.int64)
    return Marked(own, name, sexes.names, sex, marks, patients_in(cell, own.patients, 8).reshape(2, 2, 2))
