"""A page for the sensitivity at a specificity: fifteen images with their scores, to be changed or replaced."""

from pathlib import Path

import evaluate

from cxrhf.hub.widget import Choice, Number, metric_app

HERE = Path(__file__).parent

app = metric_app(
    evaluate.load(str(HERE / "sensitivity_at_specificity.py")),
    columns={
        "predictions": [0.05, 0.1, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.55, 0.7, 0.35, 0.6, 0.65, 0.8, 0.9],
        "references": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1],
        "sample_weight": [None] * 15,
        "clusters": [None] * 15,
    },
    options=[
        Number("specificity", 0.9, least=0, most=1, help="between 0 and 1; 0.95 is usual for larger tables"),
        Choice(
            "rule",
            ("conservative", "plus_one", "nearest", "nearest_first", "interp"),
            "conservative",
            "conservative: the lowest threshold that keeps the specificity; see the card for the others",
        ),
        Number("n_resamples", 0, whole=True, least=0, most=10_000, help="bootstrap replicates; 0: no interval"),
        Number("seed", 0, whole=True, least=0, help="seed of the bootstrap"),
        Number("level", 0.95, least=0.5, most=0.999, help="level of the interval"),
    ],
    card=HERE / "README.md",
)

if __name__ == "__main__":
    app.launch()
