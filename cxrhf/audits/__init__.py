"""PREDICTION and GENERATION tables -> RESULT, CURVE and NOTE rows: one file an audit."""
