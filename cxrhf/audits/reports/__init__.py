"""GENERATION (+ SCORE, REPORT_VECTOR) -> RESULT, CURVE and WORD rows: what generated reports say, and what they don't.

In the order of the work: written.py (the reports of one model and strategy, and who they are of), report_rows.py,
similarity.py, diversity.py, words.py (associations with groups), association_test.py (WEAT), decoding.py (strategies
side by side); audit.py calls them.
"""

AUDITS = ("reports", "decoding")
