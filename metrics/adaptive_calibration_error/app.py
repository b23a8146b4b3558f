"""A page for the adaptive calibration error: twelve images with their probabilities, to be changed or replaced."""

from pathlib import Path

import evaluate

from cxrhf.hub.widget import Choice, Number, metric_app

HERE = Path(__file__).parent

app = metric_app(
    evaluate.load(str(HERE / "adaptive_calibration_error.py")),
    columns={
        "predictions": [0.05, 0.1, 0.15, 0.2, 0.3, 0.35, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9],
        "references": [0, 0, 0, 1, 0, 0, 1, 0, 1, 0, 1, 1],
        "sample_weight": [None] * 12,
        "clusters": [None] * 12,
    },
    options=[
        Number("bins", 3, whole=True, least=1, most=1000, help="number of bins; 10 is usual for larger tables"),
        Choice("method", ("exact", "array_split", "whole_rows"), "exact", "how rows are divided into bins"),
        Number(
            "n_resamples",
            0,
            whole=True,
            least=0,
            most=10_000,
            help="bootstrap replicates (method exact only); 0: no interval",
        ),
        Number("seed", 0, whole=True, least=0, help="seed of the bootstrap and of the expected value"),
        Number("level", 0.95, least=0.5, most=0.999, help="level of the interval"),
    ],
    card=HERE / "README.md",
)

if __name__ == "__main__":
    app.launch()
