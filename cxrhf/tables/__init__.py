"""Files and tables of predictions -> PREDICTION -> arrays. Take the names from `cxrhf.schema`.

sources (what was given), files (formats), delimited (CSV), columns (which column is what), cells (one column), scores,
times, rows (who is who), predictions (all together), matrices (to numpy), checks (any table against its schema).
"""
