"""`cxrhf demo`: a made-up hospital -> dataset with prior notes -> what the notes tell -> predictions -> their audit."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cxrhf.config import AuditConfig, DemoConfig

if TYPE_CHECKING:
    import pyarrow as pa

    from cxrhf.data.build import Built

ABOUT = """See the whole way in a minute or two, without any data: draw the films of a made-up hospital in MIMIC's
layout, link them with prior notes, show what every step left, learn from the notes how likely each finding is before
the image is seen, and audit three simulated models whose flaws are known (data/source/truth.json in the run folder says
what was planted): one reads picture and chart, one the picture alone, one ranks like the first but is too sure of
disease.

examples:
  cxrhf demo
  cxrhf demo --out runs/small --n-patients 100 --n-resamples 200"""


# Kind of simulated model -> its name on the page.
MODELS = {"ideal": "picture + chart", "image_only": "picture only", "miscalibrated": "too sure"}


def main(args: Sequence[str]) -> int:
    """Make, build, audit, and end with the path of the page."""
    from cxrhf.cli.flags import parse

    config = parse(DemoConfig, args, verb="demo", about=ABOUT)
    from cxrhf.auditing import prepare, progress_line
    from cxrhf.cli.audit import audit_into
    from cxrhf.config import to_mapping
    from cxrhf.config_build import BuildConfig
    from cxrhf.config_context import ContextFitConfig
    from cxrhf.data.build import build
    from cxrhf.pretesting import fit_run
    from cxrhf.run import made_up, open_run
    from cxrhf.schema import load_predictions, read_table

    run = open_run(
        config.out,
        verb="demo",
        config=to_mapping(config),
        inputs=[made_up("synthetic", n_patients=config.n_patients, seed=config.seed, size=config.size)],
        overwrite=config.overwrite,
    )
    folder = run.path / "data"
    built = build(
        BuildConfig("synthetic", out=str(folder), n_patients=config.n_patients, seed=config.seed, size=config.size,
                    overwrite=config.overwrite)
    )  # fmt: skip
    print(f"A made-up hospital in MIMIC's layout, built into {built.folder}:")
    print("\n".join(built.lines), end="\n\n")
    run.add("attrition", read_table(folder / "attrition.parquet"))
    (run.path / "figures").mkdir(exist_ok=True)
    shutil.copyfile(folder / "flow.svg", run.path / "figures" / "flow.svg")
    show = progress_line()
    chart = fit_run(
        ContextFitConfig(str(folder), out=str(run.path / "context"), features=("words",), seed=config.seed,
                         n_resamples=config.n_resamples, overwrite=config.overwrite),
        show,
    )  # fmt: skip
    assert chart is not None
    print("\n".join(["What the prior notes alone tell, without any image:", *chart.lines()]), end="\n\n")
    written = run.add("predictions", simulated(config, built))
    loaded = load_predictions(written)  # through the same door as everybody's file
    audit = AuditConfig(predictions=(str(written),), out=config.out, context=str(chart.path),
                        n_resamples=config.n_resamples, seed=config.seed)  # fmt: skip
    prepared = prepare(loaded, audit, show)
    run.add("predictions", prepared.table)
    print("\n".join(prepared.reading))
    print(audit_into(run, prepared, audit, show))
    return 0


def simulated(config: DemoConfig, built: Built) -> pa.Table:
    """PREDICTION rows of the simulated models for the images of the build; they were trained on none of them.

    What is planted of the chart is left out: the demo learns it from the notes, as one does with real data.
    """
    import pyarrow as pa

    from cxrhf.data.load import load_images
    from cxrhf.data.synthetic.mimic_files import mimic_names
    from cxrhf.data.synthetic.models import predictions
    from cxrhf.data.synthetic.people import people

    made = people(config.n_patients, config.seed)
    there = load_images(Path(built.folder), columns=["image_id"]).column("image_id").to_pylist()
    names = mimic_names(made, config.seed)
    ids = names.filter(names["image_id"].is_in(there))
    parts = []
    for kind, name in MODELS.items():
        table = predictions(made, model=kind, ids=ids, dataset="synthetic twin")
        named = pa.repeat(pa.scalar(name), table.num_rows)
        table = table.set_column(table.schema.get_field_index("model"), table.schema.field("model"), named)
        parts.append(table.drop_columns(["pretest", "mention"]))
    return pa.concat_tables(parts)
