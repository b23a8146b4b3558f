"""Prior notes -> what was known before the image: mentions of findings and a pre-test probability.

Tables: notes (which notes are earlier than which image), material (images, labels and their notes). Mentions: mentions.
Words: words (cleaning, counting), bow. `cxrhf audit --notes`: join (bow's probabilities onto PREDICTION rows). `cxrhf
context fit`: run and fit, in this order families (features and candidates), sweep (cross-validation, classifiers), fit
(calibrated probabilities, images without notes), explain (what context.json says). On disk: store, sealed and
model_files; read again by predict. tables has the paper's tables.
"""
