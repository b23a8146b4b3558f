"""Who may be shown: open and made-up data, never credentialed ones, others if somebody says so."""

from __future__ import annotations

import pytest

from cxrhf.audits.representations import terms
from cxrhf.errors import ConfigError
from tests.refusals import refused


@pytest.mark.parametrize(
    ("datasets", "build", "asked", "may"),
    [
        (["nih_chestxray14"], None, False, True),
        (["nih_chestxray14", None], None, False, True),
        (["NIH"], None, False, True),
        (["our hospital"], None, False, False),
        (["our hospital"], None, True, True),
        ([None], None, False, False),
        ([], None, False, False),
        (["mimic_cxr_context"], None, False, False),
        (["chexpert"], {"dataset": "nih_chestxray14", "credentialed": False}, False, False),
        (["nih"], {"dataset": "mimic_cxr_context", "credentialed": True}, False, False),
        (["anything"], {"dataset": "covid_chestxray", "credentialed": False}, False, True),
        (["mimic_cxr_context"], {"dataset": "synthetic", "credentialed": False}, False, True),  # the twin
        (["nih", "our hospital"], None, False, False),
    ],
)
def test_terms(datasets: list[str | None], build: dict[str, object] | None, asked: bool, may: bool) -> None:
    found = terms(datasets, build, asked)
    assert found.may_show is may
    assert found.why


@pytest.mark.parametrize("dataset", ["mimic_cxr_context", "CheXpert-Plus", "ReXGradient-160K", "MIMIC"])
def test_credentialed_data_are_never_shown(dataset: str) -> None:
    with refused(ConfigError, "may_show", fix="--may-show"):
        terms([dataset], None, True)
