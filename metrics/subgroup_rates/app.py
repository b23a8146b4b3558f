"""The card's example of subgroup rates -> a page: nine women, nine men, one threshold, and the rates of each group."""

from pathlib import Path

import evaluate

from cxrhf.hub.widget import Choice, Number, metric_app

HERE = Path(__file__).parent

app = metric_app(
    evaluate.load(str(HERE / "subgroup_rates.py")),
    columns={
        "predictions": [0.9, 0.8, 0.7, 0.4, 0.6, 0.5, 0.3, 0.2, 0.1, 0.8, 0.6, 0.4, 0.3, 0.7, 0.3, 0.2, 0.2, 0.1],
        "references": [1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0],
        "groups": ["F"] * 9 + ["M"] * 9,
        "sample_weight": [None] * 18,
        "clusters": [None] * 18,
    },
    options=[
        Number("threshold", None, help="One for all groups, from validation data; empty: chosen by fpr."),
        Number("fpr", 0.2, least=0, most=1, help="The false positive rate of all rows at the threshold."),
        Choice(
            "rule",
            ("nearest", "nearest_all", "conservative"),
            "nearest",
            help="Point of the ROC curve: the nearest corner, the nearest of all points, or never above fpr.",
        ),
        Number("n_resamples", 0, whole=True, least=0, most=5000, help="Bootstrap replicates; 0 gives no intervals."),
        Number("seed", 0, whole=True, least=0, help="Seed of the bootstrap."),
    ],
    card=HERE / "README.md",
)

if __name__ == "__main__":
    app.launch()
