"""The card's example of WAE -> a page: twelve reports, how far their words moved, the null, and what is left out."""

from pathlib import Path

import evaluate

from cxrhf.hub.widget import Choice, Number, Text, metric_app

HERE = Path(__file__).parent

app = metric_app(
    evaluate.load(str(HERE / "wae.py")),
    columns={
        "predictions": ["Lungs clear. Pacemaker."] * 12,
        "references": [
            "Lungs clear. Left mastectomy, mastectomy clips.",
            "Right mastectomy.",
            "Lungs clear. Mastectomy. Scoliosis.",
            "Left mastectomy, mastectomy clips.",
            "Lungs clear. Mastectomy, mastectomy clips.",
            "Lungs clear. Mastectomy, mastectomy scar.",
            "Pacemaker. Heart enlarged.",
            "Lungs clear. Pacemaker.",
            "Pacemaker leads.",
            "Lungs clear. Heart enlarged.",
            "Lungs clear. Pacemaker.",
            "Lungs clear. Scoliosis. Pacemaker.",
        ],
        "groups": ["F"] * 6 + ["M"] * 6,
        "clusters": [None] * 12,
    },
    options=[
        Choice("weights", ("prediction", "reference"), "prediction", help="The corpus in which words are counted."),
        Text("group", help="With more than two groups: the one to compare with all others."),
        Number("n_null", 200, whole=True, least=0, most=2000, help="Random halvings of the references for the null."),
        Number(
            "n_resamples",
            0,
            whole=True,
            least=0,
            most=2000,
            help="Bootstrap replicates; 0: no interval and p value.",
        ),
        Number("seed", 0, whole=True, least=0, help="Seed of the bootstrap and the null."),
    ],
    card=HERE / "README.md",
)

if __name__ == "__main__":
    app.launch()
