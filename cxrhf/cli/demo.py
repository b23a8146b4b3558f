"""`cxrhf demo`: made-up predictions whose answers are known -> the same audit as for real ones."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.config import AuditConfig, DemoConfig

ABOUT = """Make up predictions of several findings with a known share of chart context, and audit them. Needs no data.

examples:
  cxrhf demo
  cxrhf demo --out runs/small --n-patients 300 --n-resamples 200"""


def main(args: Sequence[str]) -> int:
    """Make, audit, and end with the path of the page."""
    from cxrhf.cli.flags import parse

    config = parse(DemoConfig, args, verb="demo", about=ABOUT)
    from cxrhf.cli.audit import audit_into
    from cxrhf.config import to_mapping
    from cxrhf.data.planted import demo_predictions
    from cxrhf.run import made_up, open_run
    from cxrhf.schema import load_predictions

    run = open_run(
        config.out,
        verb="demo",
        config=to_mapping(config),
        inputs=[made_up("synthetic", n_patients=config.n_patients, seed=config.seed)],
        overwrite=config.overwrite,
    )
    written = run.add("predictions", demo_predictions(config.n_patients, config.seed))
    loaded = load_predictions(written)  # through the same door as everybody's file
    lines = [line for reading in loaded.readings for line in reading.lines()]
    print("\n".join(lines))
    audit = AuditConfig(predictions=(str(written),), out=config.out, n_resamples=config.n_resamples, seed=config.seed)
    print(audit_into(run, loaded.table, audit, lines, notes=loaded.notes))
    return 0
