"""`cxrhf calibrate`: a trained run -> calibrators fitted on validation images and saved with the model."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.models.settings import CalibrateConfig

ABOUT = """Calibrate a network: fit one calibrator per finding on the validation images.

The calibrator is saved with the model and applied by cxrhf predict; existing predictions of the run are updated.
temperature divides the log odds by one number, so that 0.5 stays 0.5. platt also shifts them, which models with class
weights and zero-shot models require. isotonic fits any increasing curve and requires many positives. Calibrators are
never fitted on test images.

examples:
  cxrhf calibrate runs/quick
  cxrhf calibrate runs/quick --method platt
  cxrhf calibrate runs/mimic-zeroshot --method platt"""


def main(args: Sequence[str]) -> int:
    """Calibrate, and end with the path of the run."""
    from cxrhf.cli.flags import parse

    config = parse(CalibrateConfig, args, verb="calibrate", about=ABOUT)
    from cxrhf.audits.run import progress_line
    from cxrhf.cli import print_outcome
    from cxrhf.models.calibration import calibrate_run

    return print_outcome(calibrate_run(config, progress_line()), "audit")
