"""Which column is what, from its name alone."""

from __future__ import annotations

import pytest

from cxrhf.errors import ConfigError, TableError
from cxrhf.tables.columns import SYNONYMS, Columns, plan_columns, pretest_sources
from tests.refusals import refused


def plan(names: list[str], **given: str) -> object:
    return plan_columns(names, Columns.of(given), "p.csv")


def as_names(names: list[str], **given: str) -> dict[str, object]:
    """The plan with names for positions, to read it easily."""
    found = plan_columns(names, Columns.of(given), "p.csv")
    out: dict[str, object] = {"form": found.form, **{role: names[at] for role, at in found.roles.items()}}
    for each in found.findings:
        columns = (each.label, each.score, each.logit, each.pretest, each.mention)
        out[each.finding] = tuple(None if at is None else names[at] for at in columns)
    return {**out, **found.constants}


def test_wide_by_bare_names() -> None:
    assert as_names(["Image Index", "Patient ID", "Effusion", "prob_Effusion", "Follow-up #"]) == {
        "form": "wide", "image": "Image Index", "patient": "Patient ID", "time": "Follow-up #",
        "pleural_effusion": ("Effusion", "prob_Effusion", None, None, None),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("label", "score"),
    [
        ("label_edema", "prob_edema"),
        ("Edema", "score_Edema"),
        ("EDEMA", "pred edema"),
        ("y_edema", "probability.Edema"),
        ("Edema_label", "Edema_score"),
        ("Edema", "Edema prob"),
        ("gt_Edema", "prediction_edema"),
        ("y_true_Edema", "prob_Edema"),
        ("Pulmonary Edema", "prob_Edema"),
    ],
)
def test_wide_in_other_spellings(label: str, score: str) -> None:
    assert as_names(["id", "patient", label, score])["edema"] == (label, score, None, None, None)


def test_wide_extras_and_preferences() -> None:
    names = [
        "id",
        "pid",
        "Edema",
        "pred_Edema",
        "prob_Edema",
        "logit_Edema",
        "pretest_Edema",
        "mention_Edema",
        "weight",
    ]
    found = as_names(names)
    assert found["edema"] == ("Edema", "prob_Edema", "logit_Edema", "pretest_Edema", "mention_Edema")
    assert found["weight"] == "weight"
    assert as_names(["id", "pid", "Edema", "logit_Edema"])["edema"] == ("Edema", None, "logit_Edema", None, None)


def test_wide_score_without_label_is_said() -> None:
    found = plan_columns(["id", "pid", "Edema", "prob_Edema", "prob_Hernia"], Columns(), "p.csv")
    assert len(found.findings) == 1
    assert "prob_Hernia" in found.notes[0]


def test_a_column_with_another_meaning_is_no_finding() -> None:
    found = as_names(["id", "patient", "label", "pred_label", "prob"])
    assert found == {
        "form": "single",
        "image": "id",
        "patient": "patient",
        "finding": ("label", "prob", None, None, None),
    }


def test_long() -> None:
    found = as_names(["image_id", "subject_id", "finding", "label", "prob", "logit", "pretest", "sex", "age"])
    assert found["form"] == "long"
    assert (found["label"], found["score"], found["logit"], found["finding"]) == ("label", "prob", "logit", "finding")
    assert as_names(["dicom_id", "PatientID", "Pathology", "Y_true", "y_score"])["form"] == "long"


def test_single_with_a_name() -> None:
    assert "finding" in as_names(["id", "patient", "label", "score"])
    assert "pleural_effusion" in as_names(["id", "patient", "label", "score"], finding="Effusion")
    found = as_names(["id", "patient", "Edema", "score"], finding="Edema")
    assert found["edema"] == ("Edema", "score", None, None, None)


def test_named_columns_win() -> None:
    names = ["id", "patient", "Edema", "prob_Edema", "truth2", "ai"]
    found = as_names(names, label="truth2", score="ai", finding="mass")
    assert found["form"] == "single"
    assert found["mass"] == ("truth2", "ai", None, None, None)
    assert as_names(["id", "label", "score", "who"], patient="WHO")["patient"] == "who"
    assert as_names(["id", "label", "score", "patient_id", "patient"], patient="patient")["patient"] == "patient"
    assert as_names(["id", "label", "score", "task"], finding="task")["form"] == "long"


def test_model_and_dataset_may_be_values() -> None:
    found = as_names(["id", "label", "score"], model="v2", dataset="here")
    assert (found["model"], found["dataset"]) == ("v2", "here")


def test_one_finding_of_a_wide_file() -> None:
    names = ["id", "Edema", "prob_Edema", "Effusion", "prob_Effusion"]
    assert set(as_names(names, finding="Effusion")) == {"form", "image", "pleural_effusion"}
    with refused(TableError, '"Efusion"', "pleural_effusion"):
        plan(names, finding="Efusion")


def test_every_usual_name_is_found() -> None:
    for role, usual in SYNONYMS.items():
        if role in ("label", "score", "logit", "finding"):
            continue
        for name in usual:
            for written in (name, name.upper(), name.replace("_", " ").title(), name.replace("_", "")):
                assert as_names([written, "label", "score"])[role] == written


@pytest.mark.parametrize(
    ("names", "given", "words"),
    [
        (["id", "patient", "score"], {}, ["no label column", "--label COLUMN", "columns id, patient, score"]),
        (["id", "patient"], {}, ["no label and no score column"]),
        (["id", "prob_Edema", "prob_Mass"], {}, ["no label and no score column"]),
        (["id", "label", "score"], {"patient": "pateint"}, ['"pateint"', "--patient"]),
        (["id", "label", "score", "patient_key"], {"patient": "patientkye"}, ["did you mean 'patient_key'?"]),
        (["id", "id", "label", "score"], {}, ["2 columns", '"id"']),
        (["id", "Edema", "edema", "prob_Edema"], {}, ['"Edema" and "edema"', "label"]),
        (["id", "Effusion", "prob_Effusion", "prob_Pleural Effusion"], {}, ["prob", '"pleural_effusion"']),
        (["id", "label_Edema", "Edema", "prob_Edema"], {}, ["label", '"edema"']),
    ],
)
def test_what_cannot_be_understood(names: list[str], given: dict[str, str], words: list[str]) -> None:
    with refused(TableError, "p.csv", *words):
        plan(names, **given)


def test_unknown_role() -> None:
    with refused(TableError, '"patients"', fix="'patient'"):
        Columns.of({"patients": "x"})


def test_a_date_is_better_than_a_bare_time_and_takes_its_clock() -> None:
    dicom = as_names(["id", "label", "score", "StudyTime", "StudyDate"])
    assert (dicom["time"], dicom["clock"]) == ("StudyDate", "StudyTime")
    assert as_names(["id", "label", "score", "study_time"])["time"] == "study_time"
    for other in ("timestamp", "inference_time", "AcquisitionTime", "created_at", "birth_date"):
        assert "time" not in as_names(["id", "label", "score", other])
    named = as_names(["id", "label", "score", "study_date", "when"], time="when")
    assert (named["time"], named.get("clock")) == ("when", None)


def test_pretest_sources() -> None:
    assert pretest_sources("risk") is None
    assert pretest_sources("fromage") is None
    assert pretest_sources("from:sex, age") == ("age", "sex")
    assert pretest_sources("from:Prior-Labels,age,age") == ("age", "prior_labels")
    with refused(ConfigError, "age, sex, view, race, prior_labels", got="veiw", fix="'view'"):
        pretest_sources("from:age,veiw")
    with refused(ConfigError, fix="--pretest from:age,sex"):
        pretest_sources("from: ,")


def test_a_pretest_to_be_fitted_is_no_column() -> None:
    assert "pretest" not in as_names(["id", "label", "score", "age", "pretest"], pretest="from:age")
    assert as_names(["id", "label", "score", "age", "pretest"])["pretest"] == "pretest"
