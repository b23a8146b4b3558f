"""A page for the balanced Brier score: ten images with their probabilities, to be changed or replaced."""

from pathlib import Path

import evaluate

from cxrhf.hub.widget import Number, metric_app

HERE = Path(__file__).parent

app = metric_app(
    evaluate.load(str(HERE / "balanced_brier.py")),
    columns={
        "predictions": [0.7, 0.3, 0.4, 0.2, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05],
        "references": [1, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        "sample_weight": [None] * 10,
        "clusters": [None] * 10,
    },
    options=[
        Number("n_resamples", 0, whole=True, least=0, most=10_000, help="bootstrap replicates; 0: no intervals"),
        Number("seed", 0, whole=True, least=0, help="seed of the bootstrap"),
        Number("level", 0.95, least=0.5, most=0.999, help="level of the intervals"),
    ],
    card=HERE / "README.md",
)

if __name__ == "__main__":
    app.launch()
