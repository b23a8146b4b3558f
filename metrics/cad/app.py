"""The card's example of CAD -> a page: seven women's and seven men's reports, and the word that the model erased."""

from pathlib import Path

import evaluate

from cxrhf.hub.widget import Choice, Number, Text, metric_app

HERE = Path(__file__).parent

app = metric_app(
    evaluate.load(str(HERE / "cad.py")),
    columns={
        "predictions": ["Clear."] * 7 + ["Clear. Pacemaker."] * 7,
        "references": ["Clear. Mastectomy."] * 7 + ["Clear. Pacemaker."] * 7,
        "groups": ["F"] * 7 + ["M"] * 7,
        "clusters": [None] * 14,
    },
    options=[
        Choice(
            "rule",
            ("either", "score", "exact", "paper"),
            "either",
            help="Test of association; score does not detect words that only one group has.",
        ),
        Number("min_count", 5, whole=True, least=1, help="Least reference count of a word that can be erased."),
        Text("group", help="With more than two groups: the one to compare with all others."),
        Number("n_resamples", 0, whole=True, least=0, most=2000, help="Bootstrap replicates; 0 gives no intervals."),
        Number("seed", 0, whole=True, least=0, help="Seed of the bootstrap."),
    ],
    card=HERE / "README.md",
)

if __name__ == "__main__":
    app.launch()
