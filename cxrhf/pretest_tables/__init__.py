"""Probabilities from prior notes -> RESULT rows of the audit "pretest", and the paper's tables made from them.

`pretest_results` measures, `paper_table` lays out, `write_tables` writes RUN/tables/*.csv, `table_lines` and
`word_lines` are for the terminal.
"""

from cxrhf.pretest_tables.layouts import TABLES, paper_table, write_tables
from cxrhf.pretest_tables.lines import table_lines, word_lines
from cxrhf.pretest_tables.results import AUDIT, Measured, pretest_results

__all__ = ["AUDIT", "TABLES", "Measured", "paper_table", "pretest_results", "table_lines", "word_lines", "write_tables"]
