"""`cxrhf calibrate`: a trained run -> calibrators fitted on validation images and saved with the model."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.config_models import CalibrateConfig

ABOUT = """Make a network's probabilities mean what they say: fit a calibrator a finding on the validation images.

It is saved with the model and applied by cxrhf predict; predictions that the run already has are written again.
temperature divides the log odds by one number, so that .5 stays .5; platt also shifts them, and is what class weights
and zero-shot models need; isotonic follows any rising curve and needs many positives. Never fitted on test images.

examples:
  cxrhf calibrate runs/quick
  cxrhf calibrate runs/quick --method platt
  cxrhf calibrate runs/mimic-zeroshot --method platt"""


def main(args: Sequence[str]) -> int:
    """Calibrate, and end with the path of the run."""
    from cxrhf.cli.flags import parse

    config = parse(CalibrateConfig, args, verb="calibrate", about=ABOUT)
    from cxrhf.auditing import progress_line
    from cxrhf.cli.written import told
    from cxrhf.imaging.calibrating import calibrate_run

    return told(calibrate_run(config, progress_line()), "audit")
