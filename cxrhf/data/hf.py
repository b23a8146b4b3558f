"""A dataset's name -> its `datasets` builder class, and what the classes of `cxrhf.data.builders` are made of.

`datasets` 4 and later load no scripts, but a builder class still works when it is called. This module does not import
`datasets`, which takes a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from cxrhf.config_build import CONFIGURATIONS, DATASETS, WITH_NOTES, BuildConfig
from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.findings import CHEXPERT, MIMIC, NIH
from cxrhf.tables.checks import quoted

# What a user sets on the builder itself, or not at all.
ASIDE = ("dataset", "out", "configuration", "overwrite", "workers")
_FINDINGS: Mapping[str, tuple[str, ...]] = {
    "mimic_cxr_context": MIMIC,
    "synthetic": MIMIC,
    "chexpert": CHEXPERT,
    "chexpert_plus": CHEXPERT,
    "nih_chestxray14": (*NIH, "no_finding"),
    "rexgradient": (),
}


def settings(dataset: str, configuration: str, config: Any) -> BuildConfig:
    """The settings that a builder's configuration stands for."""
    given = {each.name: getattr(config, each.name) for each in fields(BuildConfig) if each.name not in ASIDE}
    given["root"] = given["root"] or config.data_dir or ()  # data_dir: what users of `datasets` know
    return BuildConfig(dataset, configuration=configuration, **given)


def config_names(dataset: str) -> tuple[str, ...]:
    """The configurations of a dataset, the default one first."""
    return CONFIGURATIONS if dataset in WITH_NOTES else ("images",)


def findings_of(dataset: str) -> tuple[str, ...]:
    """The findings whose labels a dataset has."""
    if dataset == "covid_chestxray":
        from cxrhf.data.covid import FINDINGS

        return FINDINGS
    if dataset not in _FINDINGS:
        raise ConfigError(
            "the findings of this dataset are unknown",
            got=quoted(dataset),
            allowed=f"one of {', '.join(DATASETS)}",
            next_step=did_you_mean(dataset, DATASETS) or "add them to cxrhf/data/hf.py",
        )
    return _FINDINGS[dataset]


def builder_class(dataset: str) -> Any:
    """The builder class of a dataset: `builder_class("chexpert")(root="FOLDER", cache_dir="cache")`."""
    from cxrhf.data.builders import BUILDERS

    name = dataset.replace("-", "_")
    if name not in BUILDERS:
        raise ConfigError(
            "unknown dataset",
            got=quoted(dataset),
            allowed=f"one of {', '.join(BUILDERS)}",
            next_step=did_you_mean(name, BUILDERS),
        )
    return BUILDERS[name]
