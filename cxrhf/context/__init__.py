"""Prior notes -> what was known before the image: mentions of findings and a pre-test probability.

From tables: prior and note_files (which notes are earlier than which image), material (images, labels and their notes).
Mentions: phrases, mentions, negation and cues. Words: recipes (cleaning), words (counting), vocabulary, ridge and bow.
`cxrhf audit --notes`: join (bow's probabilities onto PREDICTION rows). `cxrhf context fit`: fit, in this order families
(features), grids (candidates), folds, sweep (cross-validation), classifiers, crossfit (calibrated probabilities),
stratum (images without notes), choices and explain (what context.json says), rows, examples. cluster spreads fits over
Dask. Kept on disk by store, sealed, model_files and ubj; read again by predict.
"""
