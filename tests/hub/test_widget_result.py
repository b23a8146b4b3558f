"""What the page of a metric shows: the main number, tables, a card, an error, and Python that gives the number."""

from __future__ import annotations

import ast
import csv
import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest

from cxrhf.hub.widget import CODE_ROWS, SHOWN_ROWS, Column, code, explain, headline, plain, read_card, tables
from cxrhf.metrics import auroc

SCORE, LABEL = Column("predictions", False, True), Column("references", False, True)
WEIGHT = Column("sample_weight", False, False)


def test_results_as_text() -> None:
    result = plain(
        {
            "m": np.float64("nan"),
            "m_ci_low": np.float32(0.5),
            "m_note": "undefined: no <positives>",
            "m_groups": {"f": {"n": np.int64(2), "rate": 2 / 3}, "m": {"n": 1, "note": "few"}},
            "m_words": [{"word": "a", "z": 1.0}],
            "m_list": np.array([0.25, np.inf]),
            "m_none": [],
        }
    )
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    top = headline("m", result)
    assert "undefined</div>" in top
    assert "no &lt;positives&gt;" in top
    assert "interval" not in top
    shown = tables(result)
    assert "<td>0.666667</td>" in shown
    assert "<td>few</td>" in shown
    assert '<th scope="row">a</th><td>1</td>' in shown
    assert "no &lt;positives&gt;" in shown
    assert shown.count("<table") == 4
    many = tables({"m": list(range(SHOWN_ROWS + 3))})
    assert "3 more rows are in the JSON" in many


def test_headline_of_a_table_is_its_first_number() -> None:
    assert "m_gap" in headline("m", {"m": {"f": {"rate": 1.0}}, "m_source": "given", "m_gap": 0.25})
    assert "95% interval 0.1 to 0.2" in headline("m", {"m": 0.15, "m_ci_low": 0.1, "m_ci_high": 0.2}, 0.95)
    assert "Done" in headline("m", {"m": {}})


def test_positions_become_rows() -> None:
    assert explain(ValueError("references[2] is 2.0"), [LABEL]).endswith("references[2] is row 3 of the table.")
    assert explain(ValueError("weight is bad"), [LABEL]) == "weight is bad"
    assert explain(ZeroDivisionError("x"), [LABEL]) == "The metric could not be computed (ZeroDivisionError): x"


def test_cards() -> None:
    card = '---\ntitle: "A: b"\ntags: [x]\n---\n\n# Heading\n\nWords.\n\n---\n\nMore.\n'
    assert read_card(card) == ("A: b", "Words.\n\n---\n\nMore.")
    assert read_card("# Only a heading\nWords") == ("Only a heading", "Words")
    assert read_card("Words") == ("", "Words")


@pytest.mark.slow
def test_the_code_gives_the_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page shows as Python runs, with the lists written out and with the table from a file."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    columns = [SCORE, LABEL, WEIGHT, Column("clusters", True, False)]
    for rows in (4, CODE_ROWS + 2):
        labels = [0.0, 1.0, None, *rng.integers(0, 2, rows - 3).astype(float).tolist()]
        patients = ["it's", 'a "b", c'] * (rows // 2)
        inputs = {"predictions": rng.random(rows).tolist(), "references": labels, "clusters": patients}
        with open("table.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([inputs, *zip(*inputs.values(), strict=True)])
        program = code('cxrhf.metric_path("weighted_auroc")', columns, inputs, {"weighting": "att", "seed": 3})
        assert ("table.csv" in program) == (rows > CODE_ROWS)
        said = io.StringIO()
        with redirect_stdout(said):
            exec(program, {})
        known = [at for at, label in enumerate(labels) if label is not None]
        wanted = auroc([labels[at] for at in known], [inputs["predictions"][at] for at in known])
        assert ast.literal_eval(said.getvalue()) == {"weighted_auroc": wanted}
