"""Files and tables of predictions -> PREDICTION -> arrays. Take the names from `cxrhf.schema`.

files (formats), delimited (CSV), columns (which column is what), cells (one column), scores, rows (who is who),
predictions (all together), matrices (to numpy).
"""
