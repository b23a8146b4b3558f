"""Raw labels 1 / 0 / -1 / null -> labels 1 / 0 / null under a named policy, and counts.

| policy        | 1 | 0 | -1 (uncertain) | blank | for                                              |
| positive_only | 1 | 0 | 0              | 0     | CONTEXT and ENCODING: positive only where it is said |
| masked        | 1 | 0 | null           | null  | IMBALANCE: neither trained on nor counted        |
| ones          | 1 | 0 | 1              | 0     | CheXpert's U-Ones                                |
| zeros         | 1 | 0 | 0              | 0     | CheXpert's U-Zeros                               |

positive_only and zeros give the same labels by different reasoning, and are recorded under the name that was chosen.
Masked has one rule more: where no_finding is 1 every other finding is 0, whatever was there, except support_devices: a
device is no disease, and 39% of CheXpert's No Finding images show one. In CheXpert's raw rows No Finding never meets
another positive, so this only fills blanks; after `stitched` (see choose.py) it overrules a positive of another image
in 5,480 patients, and the published class ratios hold only with that. No Finding itself is read as any other finding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl

from cxrhf.errors import ConfigError, TableError, did_you_mean
from cxrhf.tables.checks import quoted

NO_FINDING, DEVICES = "no_finding", "support_devices"
COUNTS = ("positive", "negative", "uncertain", "blank")


def _positive_only(label: pl.Expr) -> pl.Expr:
    return (label == 1).fill_null(False).cast(pl.Int8)


def _masked(label: pl.Expr) -> pl.Expr:
    return pl.when(label >= 0).then(label)


def _ones(label: pl.Expr) -> pl.Expr:
    return (label != 0).fill_null(False).cast(pl.Int8)


POLICIES: Mapping[str, Callable[[pl.Expr], pl.Expr]] = {
    "positive_only": _positive_only,
    "masked": _masked,
    "ones": _ones,
    "zeros": _positive_only,
}


def check_policy(policy: str, *more: str) -> None:
    """An unknown policy is an error; `more` are other words allowed here."""
    allowed = (*POLICIES, *more)
    if policy not in allowed:
        raise ConfigError(
            "--labels",
            got=quoted(policy),
            allowed=f"one of {', '.join(allowed)}",
            next_step=did_you_mean(policy, allowed) or "see the policies: cxrhf build --help",
        )


def need_columns(images: pl.DataFrame, names: Sequence[str], use: str) -> None:
    """The columns that a step needs must be there."""
    for name in names:
        if name not in images.columns:
            raise TableError(
                use,
                allowed=f"images with a column {quoted(name)}",
                got=f"columns {', '.join(images.columns)}",
                next_step=did_you_mean(name, images.columns) or f"omit this step, or add column {quoted(name)}",
            )


def apply_policy(images: pl.DataFrame, findings: Sequence[str], policy: str) -> pl.DataFrame:
    """The same rows with the raw labels of `findings` replaced by 1, 0 or null (Int8).

    `no_finding` decides in policy masked whether it is among `findings` or only a column of the images.
    """
    check_policy(policy)
    need_columns(images, findings, f"labels {policy}")
    rule = POLICIES[policy]
    healthy = pl.col(NO_FINDING) == 1 if policy == "masked" and NO_FINDING in images.columns else None
    labels = []
    for finding in findings:
        label = rule(pl.col(finding).cast(pl.Int8))
        if healthy is not None and finding not in (NO_FINDING, DEVICES):
            label = pl.when(healthy).then(pl.lit(0, pl.Int8)).otherwise(label)
        labels.append(label.alias(finding))
    return images.with_columns(labels)


def label_counts(images: pl.DataFrame, findings: Sequence[str]) -> pl.DataFrame:
    """One row a finding: how many images are positive, negative, uncertain, blank. Under a policy blank = masked."""
    need_columns(images, findings, "label counts")
    rows = []
    for finding in findings:
        label = images.get_column(finding)
        found = [int((label == value).sum()) for value in (1, 0, -1)]
        rows.append({"finding": finding, **dict(zip(COUNTS, (*found, label.null_count()), strict=True))})
    return pl.DataFrame(rows, schema={"finding": pl.String, **dict.fromkeys(COUNTS, pl.Int64)})
