"""Sections of reports, as MIMIC-CXR writes them and otherwise."""

from __future__ import annotations

from cxrhf.data.mimic import read_reports, sections

REPORT = """                                 FINAL REPORT
 EXAMINATION:  CHEST (PA AND LAT)

 INDICATION:  ___F with cough  // eval for
 pneumonia: please

 TECHNIQUE:  Chest PA and lateral

 COMPARISON:  None.

 FINDINGS:

 Lungs are clear. Heart size: normal.
 No effusion.

 IMPRESSION:

 No acute cardiopulmonary process.
"""


def test_the_usual_form():
    assert sections(REPORT) == {
        "indication": "___F with cough // eval for pneumonia: please",
        "comparison": "None.",
        "findings": "Lungs are clear. Heart size: normal. No effusion.",
        "impression": "No acute cardiopulmonary process.",
    }


def test_other_headings_and_none():
    got = sections("HISTORY: Fall.\nREASON FOR EXAM: Pain.\nCONCLUSION: Fracture.\nRECOMMENDATION(S): CT.")
    assert got == {"indication": "Fall. Pain.", "comparison": None, "findings": None, "impression": "Fracture."}
    assert set(sections("no heading at all").values()) == {None}
    assert set(sections("").values()) == {None}


def test_files_are_found_and_missing_ones_are_null(tmp_path):
    folder = tmp_path / "p10" / "p10000032"
    folder.mkdir(parents=True)
    (folder / "s50414267.txt").write_text(REPORT)
    got = read_reports(tmp_path, [("10000032", "50414267"), ("10000032", "59999999")])
    assert got.get_column("comparison").to_list() == ["None.", None]
    assert got.get_column("study_id").to_list() == ["50414267", "59999999"]
