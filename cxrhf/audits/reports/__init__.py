"""GENERATION (+ SCORE, REPORT_VECTOR) -> RESULT, CURVE and WORD rows: what generated reports say, and what they don't.

In the order of the work: written (the reports of one model and strategy, and who they are of), rows, similarity,
diversity, words (associations with groups), weat; decoding (strategies side by side).
"""

AUDITS = ("reports", "decoding")
