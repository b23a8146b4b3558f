"""Tables of unusual size: time and memory grow with the cells, not faster; the page stays one that opens."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pytest

import cxrhf
from cxrhf.audits.rows import macro_counts
from cxrhf.audits.sample import Finding, count
from cxrhf.metrics.estimates import mean_over
from cxrhf.metrics.intervals import UnitCount, count_units
from cxrhf.metrics.sums import row_sums, sums_by_unit, total_sums, unit_sums
from cxrhf.report import page_html
from cxrhf.report.book import MOST, open_books, shown_findings, without_hidden
from cxrhf.report.lines import summary_lines
from cxrhf.report.sections.methods import group_warnings
from cxrhf.schema import RESULT
from cxrhf.tables.checks import table_of
from tests.report import made


def wide(n_rows: int, n_findings: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    table = {
        "image_id": np.array([f"i{at}" for at in range(n_rows)]),
        "patient_id": np.array([f"p{at}" for at in rng.integers(0, n_rows * 3 // 5, n_rows)]),
    }
    for k in range(n_findings):
        label = rng.integers(0, 2, n_rows)
        table |= {f"f{k}": label, f"prob_f{k}": np.round(np.clip(rng.normal(0.4 + 0.2 * label, 0.2), 0, 1), 3)}
    return table


def page_rows(n_findings: int) -> made.Rows:
    rows = made.Rows()
    for k in range(n_findings):
        made.overview(rows, f"finding_{k}")
        rows.rows[-1]["n_pos"] = 100 + k  # the later ones rest on more images
    made.overview(rows, "macro")
    return rows


def test_a_page_of_too_many_findings_shows_those_with_most_data_and_says_so() -> None:
    rows = page_rows(MOST + 20)
    text = page_html(rows.rows, rows.curves, dict(made.RECORD))
    assert f"This page shows {MOST} of {MOST + 20} findings" in text
    assert "results.parquet" in text
    assert f"Finding {MOST + 19}" in text
    assert ">Finding 3<" not in text
    assert f"<dd>{MOST + 20}</dd>" in text  # findings audited, in the head


def test_a_page_of_as_many_as_fit_shows_all() -> None:
    books = open_books(page_rows(MOST).rows)
    assert shown_findings(books) is None
    assert without_hidden(books[0], None) is books[0]


def test_the_terminal_names_how_many_findings_it_leaves_out() -> None:
    results = table_of(page_rows(MOST + 20).rows, RESULT)
    assert "... and 20 more findings in results.parquet" in summary_lines(results, 0.95)


def test_means_keep_all_findings_where_the_page_does_not() -> None:
    books = open_books(page_rows(MOST + 20).rows)
    cut = without_hidden(books[0], shown_findings(books))
    assert len(cut.findings) == MOST
    assert len(cut.hidden) == 20
    assert cut.get("overview", "macro", "auroc") == books[0].get("overview", "macro", "auroc")


def test_thousands_of_warnings_are_grouped_at_once() -> None:
    findings = [f"finding_{k}" for k in range(2000)]
    notes = [f"m: {name}: few positives: {k} patients with positives" for k, name in enumerate(findings)]
    start = time.process_time()
    ((_, (warned,)),) = group_warnings(notes, ["m"], findings)
    assert len(warned.each) == 2000
    assert time.process_time() - start < 5


def test_three_times_the_findings_take_about_three_times_as_long() -> None:
    def seconds(n_findings: int) -> float:
        start = time.process_time()
        cxrhf.audit(wide(40, n_findings), n_resamples=20, only="overview,imbalance", workers=1).html()
        return time.process_time() - start

    seconds(2)  # what is compiled and imported once
    assert seconds(60) < 6 * seconds(20)


@pytest.mark.parametrize("n", [0, 1, 70_000, 140_000])
def test_sums_in_pieces_are_the_same_to_the_bit(n: int) -> None:
    rng = np.random.default_rng(n)
    y, p, weight = rng.integers(0, 2, n).astype(float), rng.random(n), rng.random(n)
    unit, units = rng.integers(0, n // 3 + 1, n), n // 3 + 1
    for name, option in (("brier", np.nan), ("expected_calibration_error", 10.0), ("tpr", 0.5)):
        rows = row_sums(name, y, p, weight, option)
        np.testing.assert_array_equal(total_sums(name, y, p, weight, option), rows.sum(axis=0))
        np.testing.assert_array_equal(
            sums_by_unit(name, y, p, weight, option, unit, units), unit_sums(rows, unit, units)
        )


def test_means_over_findings_are_the_same_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    replicates = list(rng.random((30, 500)))
    replicates[3][7] = np.nan
    units = [UnitCount(20 + k, 30 + k, 50, 20.0 + k, 30.0, 50.0) for k in range(30)]
    found = mean_over(replicates, units)
    np.testing.assert_array_equal(found.replicates, np.stack(replicates).mean(axis=0))
    variance = np.array([np.nanvar(each) for each in replicates])
    freedom = np.array([each.effective_positive for each in units]) - 1
    assert found.units.effective_positive == variance.sum() ** 2 / (variance**2 / freedom).sum() + 1


def test_data_behind_a_mean_are_counted_as_by_hand() -> None:
    rng = np.random.default_rng(0)
    patients = rng.integers(0, 40, 100)
    sample = type("Sample", (), {"data": type("Data", (), {"patients": patients})})
    findings = []
    for k in range(3):
        at = np.sort(rng.choice(100, 30, replace=False))
        y = rng.integers(0, 2, 30).astype(float)
        counts = count(y, patients[at])
        findings.append(Finding(f"f{k}", at, y, y, np.ones(30), None, None, patients[at], True, counts))
        assert counts.n_patients == len(np.unique(patients[at]))
    found = macro_counts(sample, findings)  # type: ignore[arg-type]
    there = sorted({at for finding in findings for at in finding.at.tolist()})
    hit = {at for finding in findings for at in finding.at[finding.y == 1].tolist()}
    assert (found.n, found.n_pos) == (len(there), len(hit))
    assert found.n_patients == len({patients[at] for at in there})
    assert found.units == count_units(np.array([at in hit for at in there], dtype=float), patients[there])


_AUDIT = """
import sys, time
from cxrhf.cli import main
start = time.monotonic()
code = main(["audit", *sys.argv[1:]])
seconds = time.monotonic() - start
with open("/proc/self/status") as status:  # getrusage would count what the parent held when it was forked
    peak = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
print(code, seconds, peak)
"""


def audited(path: Path, *flags: str) -> tuple[float, float]:
    """Seconds and MB of an audit in a process of its own."""
    words = [sys.executable, "-c", _AUDIT, str(path), "--out", str(path.with_suffix("")), *flags]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    code, seconds, peak = done.stdout.strip().rsplit("\n", 1)[1].split()
    assert code == "0", done.stderr
    return float(seconds), float(peak)


@pytest.mark.slow
def test_two_million_rows(tmp_path: Path) -> None:
    pcsv.write_csv(pa.table(wide(2_000_000, 1)), tmp_path / "m.csv")
    seconds, peak = audited(tmp_path / "m.csv", "--only", "overview", "--n-resamples", "100")
    assert seconds < 120
    assert peak < 1500


@pytest.mark.slow
def test_two_thousand_findings(tmp_path: Path) -> None:
    pcsv.write_csv(pa.table(wide(40, 2000)), tmp_path / "f.csv")
    seconds, peak = audited(tmp_path / "f.csv")
    assert seconds < 120
    assert peak < 2500
    assert (tmp_path / "f" / "report.html").stat().st_size < 10_000_000
