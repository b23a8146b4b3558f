"""GENERATION (+ SCORE, REPORT_VECTOR) -> RESULT, CURVE and WORD rows: what generated reports say, and what they don't.

In the order of the work: written.py (the reports of one model and strategy, their patients, and RESULT rows),
likeness.py (similarity, diversity, strategies compared), words.py (associations with groups, WEAT). audit.py calls
them.
"""

AUDITS = ("reports", "decoding")
