"""One name for a finding, however it is written."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cxrhf import findings
from cxrhf.findings import CHEXPERT, NIH, display_name, finding_name


def test_chexpert_and_mimic_spellings() -> None:
    theirs = (
        "No Finding", "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion", "Edema",
        "Consolidation", "Pneumonia", "Atelectasis", "Pneumothorax", "Pleural Effusion", "Pleural Other", "Fracture",
        "Support Devices",
    )  # fmt: skip
    assert tuple(map(finding_name, theirs)) == CHEXPERT


def test_nih_spellings() -> None:
    theirs = (
        "Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia", "Pneumothorax",
        "Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening", "Hernia",
    )  # fmt: skip
    assert tuple(map(finding_name, theirs)) == NIH


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("pleural effusion", "pleural_effusion"),
        (" Pleural-Effusion ", "pleural_effusion"),
        ("PleuralEffusion", "pleural_effusion"),
        ("PLEURAL EFFUSION", "pleural_effusion"),
        ("Enlarged Cardiom.", "enlarged_cardiomediastinum"),
        ("EnlargedCardiomediastinum", "enlarged_cardiomediastinum"),
        ("Support device", "support_devices"),
        ("NoFinding", "no_finding"),
        ("pulmonary oedema", "edema"),
        ("Airspace Opacity", "lung_opacity"),
        ("Bone cyst (left)", "bone_cyst_left"),
        ("COVID-19", "covid_19"),
        ("TB", "tb"),
        ("Hiatal hernia", "hiatal_hernia"),
        ("Épanchement", "épanchement"),
        ("<script>alert(1)</script>", "script_alert_1_script"),
        ("???", "???"),
    ],
)
def test_other_spellings(written: str, name: str) -> None:
    assert finding_name(written) == name


@given(st.text(max_size=30))
def test_naming_twice_changes_nothing(written: str) -> None:
    once = finding_name(written)
    assert finding_name(once) == once


def test_names_in_the_table_are_final() -> None:
    for name in findings._SPELLINGS.values():
        assert finding_name(name) == name


def test_display_and_doctest() -> None:
    assert display_name("pleural_effusion") == "Pleural effusion"
    assert doctest.testmod(findings).failed == 0
