"""A page for the Brier skill score: ten images with their probabilities, to be changed or replaced."""

from pathlib import Path

import evaluate

from cxrhf.hub.widget import Number, metric_app

HERE = Path(__file__).parent

app = metric_app(
    evaluate.load(str(HERE / "brier_skill_score.py")),
    columns={
        "predictions": [0.8, 0.6, 0.4, 0.5, 0.3, 0.2, 0.2, 0.1, 0.1, 0.1],
        "references": [1, 1, 1, 0, 0, 0, 0, 0, 0, 0],
        "sample_weight": [None] * 10,
        "clusters": [None] * 10,
    },
    options=[
        Number("prevalence", None, least=0, most=1, help="the constant forecast; empty: the prevalence of these rows"),
        Number("n_resamples", 0, whole=True, least=0, most=10_000, help="bootstrap replicates; 0: no intervals"),
        Number("seed", 0, whole=True, least=0, help="seed of the bootstrap"),
        Number("level", 0.95, least=0.5, most=0.999, help="level of the intervals"),
    ],
    card=HERE / "README.md",
)

if __name__ == "__main__":
    app.launch()
