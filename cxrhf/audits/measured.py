"""Numbers of findings with their replicates -> RESULT rows: the numbers, drops between them, means over findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.rates import directed
from cxrhf.audits.rows import MACRO, Row, RowMaker, everything
from cxrhf.audits.sample import Counts, Finding
from cxrhf.metrics.estimates import in_mean, mean_note, mean_over, settled
from cxrhf.metrics.intervals import UnitCount

Floats = NDArray[np.float64]


class Measured(NamedTuple):
    """One number of one finding; `known` is the metric of the catalogue whose range and direction it has."""

    value: float
    replicates: Floats | None
    units: UnitCount
    known: str
    weighting: str | None = None
    how: str | None = None
    note: str | None = None


# IPW weights are heavy: in simulations without any drop 10% of its p values were below .05. Intervals only.
UNTESTED = ("auroc_ipw",)


def _drop(full: Measured, rest: Measured) -> Measured:
    replicates = None
    if full.replicates is not None and rest.replicates is not None:
        replicates = settled(full.replicates - rest.replicates)
    return rest._replace(value=float(settled(full.value - rest.value)), replicates=replicates, how=None)


def number_rows(
    make: RowMaker, findings: Sequence[Finding], numbers: Sequence[Mapping[str, Measured]], controlled: Sequence[str]
) -> list[Row]:
    """Rows of every number, of the drops from `auroc` to the `controlled` AUROCs, and of their means over findings.

    Means of AUROCs are over the findings for which all of them are defined, so that they can be compared.
    """
    rows: list[Row] = []
    drops = [{name: _drop(each["auroc"], each[name]) for name in controlled} for each in numbers]
    for finding, each in zip(findings, numbers, strict=True):
        rows += [_row(make, finding, name, number) for name, number in each.items()]
    for name in controlled:
        for finding, each in zip(findings, drops, strict=True):
            rows.append(_row(make, finding, "auroc_drop", each[name], versus=name))
    counted: dict[tuple[int, ...], Counts] = {}
    names = list(dict.fromkeys(name for each in numbers for name in each))
    alike = [name for name in names if name in controlled or name.startswith("auroc")]
    for name in names:
        asked = alike if name in alike else [name]
        rows += _mean(make, findings, numbers, name, asked, counted)
    for name in controlled:
        rows += _mean(make, findings, drops, name, list(controlled), counted, versus=name)
    return rows


def _row(make: RowMaker, finding: Finding, metric: str, number: Measured, versus: str | None = None) -> Row:
    row = make.of(
        metric,
        finding,
        number.value,
        number.replicates,
        known=number.known,
        weighting=number.weighting,
        versus=versus,
        tested=versus not in UNTESTED,
        units=number.units,
        how=number.how,
        note=number.note if np.isfinite(number.value) else None,
    )
    return directed(row)


def _mean(
    make: RowMaker,
    findings: Sequence[Finding],
    numbers: Sequence[Mapping[str, Measured]],
    name: str,
    asked: Sequence[str],
    counted: dict[tuple[int, ...], Counts],
    versus: str | None = None,
) -> list[Row]:
    """The mean over the findings for which all the `asked` numbers are defined; `counted`: data behind some of them."""
    defined = [all(n in each and np.isfinite(each[n].value) for n in asked) for each in numbers]
    values = [each[name].value if there else np.nan for there, each in zip(defined, numbers, strict=True)]
    inside = in_mean(values, [finding.counts.units for finding in findings])
    if not inside:
        return []
    chosen = [numbers[k][name] for k in inside]
    if tuple(inside) not in counted:
        counted[tuple(inside)] = everything(make.sample, [findings[k] for k in inside])
    drawn = [each.replicates for each in chosen if each.replicates is not None]
    mean = mean_over(drawn, [each.units for each in chosen]) if len(drawn) == len(chosen) else None
    row = make.row(
        "auroc_drop" if versus else name,
        MACRO,
        counted[tuple(inside)],
        float(np.mean([each.value for each in chosen])),
        mean.replicates if mean else None,
        known=chosen[0].known,
        weighting=chosen[0].weighting,
        versus=versus,
        tested=versus not in UNTESTED and len(inside) > 1,  # of one finding there is nothing more to test
        units=mean.units if mean else None,
        note=mean_note([finding.name for finding in findings], values, inside, len(make.sample.data.findings)),
    )
    return [directed(row)]


def record_rows(
    make: RowMaker, finding: Finding, record: str, fields: Mapping[str, float], weighting: str | None = None
) -> list[Row]:
    """One row a field: descriptions, neither good nor bad in themselves."""
    rows = [
        make.of(f"{record}.{name}", finding, value, known="auroc", weighting=weighting)
        for name, value in fields.items()
    ]
    return [row | {"higher_is_better": None} for row in rows]
