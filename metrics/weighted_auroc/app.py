"""A page for the weighted AUROC: twelve images with their pre-test probabilities, to be changed or replaced."""

from pathlib import Path

import evaluate

from cxrhf.hub.widget import Choice, Number, metric_app

HERE = Path(__file__).parent

app = metric_app(
    evaluate.load(str(HERE / "weighted_auroc.py")),
    columns={
        "predictions": [0.9, 0.7, 0.5, 0.6, 0.3, 0.8, 0.4, 0.5, 0.2, 0.3, 0.1, 0.2],
        "references": [1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0],
        "context": [0.7, 0.6, 0.6, 0.4, 0.3, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1],
        "sample_weight": [None] * 12,
        "clusters": [None] * 12,
    },
    options=[
        Choice("weighting", ("att", "ipw"), "att", "att: context of the positives; ipw: context of all patients"),
        Number("n_resamples", 0, whole=True, least=0, most=10_000, help="bootstrap replicates; 0: no intervals"),
        Number("seed", 0, whole=True, least=0, help="seed of the bootstrap"),
        Number("level", 0.95, least=0.5, most=0.999, help="level of the intervals"),
    ],
    card=HERE / "README.md",
)

if __name__ == "__main__":
    app.launch()
