"""Notes for a terminal: grouped, short, and unable to steer it."""

from __future__ import annotations

import numpy as np

import cxrhf
from cxrhf.report.lines import note_lines, printable
from cxrhf.report.numbers import shorten, text_width
from cxrhf.report.sections.methods import group_warnings

ROWS = [{"model": "net", "finding": finding} for finding in ("mass", "edema", "macro")]


def test_notes_that_differ_in_numbers_are_one_line() -> None:
    notes = [
        f"net: {name}: poor overlap (ATT): {n} negatives count like 8" for name, n in (("mass", 90), ("edema", 70))
    ]
    lines = note_lines([*notes, notes[0]], ROWS)
    assert lines == [
        "Patient context:",
        "  - Mass: poor overlap (ATT): 90 negatives count like 8 (and 1 more like this; see the page)",
    ]
    assert note_lines([], ROWS) == []


def test_what_every_dataset_and_run_says_is_said_once() -> None:
    notes = [f"net: no groups by race (dataset {name})" for name in ("A", "B")]
    assert note_lines(notes, ROWS) == ["Subgroups:", "  - No groups by race"]
    ((_, (first, second)),) = group_warnings([*notes, "net: no groups by age (dataset A)"], ["net"], [])
    assert (first.who, second.who) == ("", "A")
    runs = ["net (seed 0)", "net (seed 1)", "net"]
    ((_, (warned,)),) = group_warnings([f"{run}: no groups by race" for run in runs[:2]], runs, [])
    assert warned.who == ""
    ((_, (warned,)),) = group_warnings(["net (seed 1): no groups by race"], runs, [])
    assert warned.who == "net (seed 1)"


def test_nothing_steers_the_terminal() -> None:
    said = "".join(note_lines(["\x1b[31mred\u202e: a note\x07"], ROWS))
    assert "red" in said
    assert not set(said) & set("\x1b\u202e\x07")
    assert printable("Lunge, 肺, \u00a01") == "Lunge, 肺, \u00a01"


def test_letters_count_what_is_seen() -> None:
    assert text_width("abc") == text_width("a\u0301bc") == 3
    assert text_width("肺水腫") == 6
    assert shorten("肺水腫と胸水", 6) == "肺水…"
    assert shorten("edema", 5) == "edema"
    assert len(shorten("x" * 10_000, 20)) == 20


def test_a_negative_drop_is_a_rise_and_percentages_are_asked_after() -> None:
    rng = np.random.default_rng(0)
    y = rng.random(600) < 0.3
    context = rng.normal(size=600) + y  # the model reads it the wrong way round
    score = 1.5 * y - context + rng.normal(size=600)
    score = 99 * (score - score.min()) / np.ptp(score)
    rows = {"id": range(600), "label": y, "score": score, "pretest": 1 / (1 + np.exp(1.4 - context))}
    found = cxrhf.audit(rows, patient="id", n_resamples=20, only="overview,reweighted")
    assert "divide them by 100" in " ".join(found.notes)
    drop = found.value("auroc_drop", finding="finding", versus="auroc_att")
    assert drop < -0.05
    assert f"{-drop:.2f} (" in found._repr_html_()
    assert "higher than overall" in found._repr_html_()
