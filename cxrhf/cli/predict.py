"""`cxrhf predict`: a trained run and images -> PREDICTION rows with logits."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.models.settings import PredictConfig

ABOUT = """Write the predictions of a trained network: probabilities and logits, as PREDICTION rows in a run folder.

Without --build, it predicts the validation and test images of the build it was trained on and adds the rows to its own
run; `cxrhf audit RUN` comes next. Another build gets a separate run. All seeds of a run are predicted. A calibrator
saved with the model is applied to the probabilities, not to the logits.

examples:
  cxrhf predict runs/quick
  cxrhf predict runs/quick --splits all
  cxrhf predict runs/quick --build data/other_hospital --splits all --out runs/quick-elsewhere
  accelerate launch -m cxrhf predict runs/mimic-densenet121"""


def main(args: Sequence[str]) -> int:
    """Predict, and end with the path of the run."""
    from cxrhf.cli.flags import parse

    config = parse(PredictConfig, args, verb="predict", about=ABOUT)
    from cxrhf.audits.run import progress_line
    from cxrhf.cli import print_outcome
    from cxrhf.models.predict import predict_run

    return print_outcome(predict_run(config, progress_line()), "audit")
