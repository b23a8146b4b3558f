"""The card's example of lexical diversity -> a page: twelve generated reports beside those of radiologists."""

from pathlib import Path

import evaluate

from cxrhf.hub.widget import Number, metric_app

HERE = Path(__file__).parent

app = metric_app(
    evaluate.load(str(HERE / "lexical_diversity.py")),
    columns={
        "predictions": [
            "The lungs are clear. The heart is normal.",
            "The lungs are clear. The heart is normal.",
            "The heart is enlarged.",
            "The lungs are clear. The heart is normal.",
            "The lungs are clear. The heart is normal.",
            "The lungs are clear.",
            "The lungs are clear. The heart is normal.",
            "The lungs are clear. The heart is normal.",
            "The lungs are clear. The heart is normal.",
            "Small left pleural effusion.",
            "The lungs are clear. The heart is normal.",
            "The lungs are clear. The heart is normal.",
        ],
        "references": [
            "The lungs are clear.",
            "Small left pleural effusion.",
            "The heart is enlarged.",
            "Clips after left mastectomy.",
            "The lungs are clear. The heart is normal.",
            "Right lower lobe opacity.",
            "The heart is normal. The lungs are clear.",
            "Sternotomy wires are intact.",
            "Mild scoliosis.",
            "Left pleural effusion, unchanged.",
            "The lungs are clear.",
            "New right chest port.",
        ],
        "clusters": [None] * 12,
    },
    options=[
        Number("sample", None, whole=True, least=2, help="Number of reports to draw before self-BLEU; empty: all."),
        Number(
            "n_resamples",
            0,
            whole=True,
            least=0,
            most=2000,
            help="Splits of the patients into quarters; 0 gives no intervals.",
        ),
        Number("seed", 0, whole=True, least=0, help="Seed of the sample and the splits."),
    ],
    card=HERE / "README.md",
)

if __name__ == "__main__":
    app.launch()
