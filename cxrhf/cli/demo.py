"""`cxrhf demo`: a made-up hospital -> dataset with prior notes -> what the notes tell -> a network -> its audit."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from cxrhf.config import AuditConfig
from cxrhf.config_demo import DemoConfig

if TYPE_CHECKING:
    from cxrhf.cli.demo_simulated import Said
    from cxrhf.cli.demo_steps import Steps

ABOUT = """Run the whole workflow in a few minutes, without any data. The demo generates the images of a synthetic
hospital in MIMIC's layout, links them with prior notes and reports what every step excludes. It estimates pre-test
probabilities from the notes, trains a small network and audits its predictions on test images, next to three simulated
models with known flaws (data/source/truth.json in the run folder lists the planted truth): one uses image and context,
one the image alone, and one ranks like the first but overestimates disease. Embeddings of the network and of the first
model, and attributes of the images (drains, wires), show what is encoded, which slices fail, and whether a shortcut
explains a gap. Last, a tiny vision-language model learns to write reports and writes about the test images with six
decoding strategies; the page shows what they omit, next to a simulated report model with known flaws. Finally cxrhf
checks and lists what could be published; nothing is sent.

If the demo is interrupted, run the same command to resume. A finished demo is not repeated.

examples:
  cxrhf demo
  cxrhf demo --quick                                       an eighth of the patients, no reports: under two minutes
  cxrhf demo --out runs/small --n-patients 100 --n-resamples 200 --steps 20
  cxrhf demo --report-steps 0                              without the report model
  cxrhf demo --steps 0 --report-steps 0                    simulated models only, without torch"""

FOLDERS = ("data", "context", "network", "writer")  # each holds what another verb makes
NETWORK = "network"
ENOUGH = 100  # patients in the test set; the demo as it stands has twice as many


def main(args: Sequence[str]) -> int:
    """Make, build, audit, and end with the path of the page."""
    from cxrhf.cli.flags import parse

    config = settled(parse(DemoConfig, args, verb="demo", about=ABOUT))
    from cxrhf.tables.folders import one_writer
    from cxrhf.tables.places import check_links

    place = Path(str(config.out))
    with one_writer(place, "demo"):
        check_links(place, FOLDERS)
        return _made(config, place)


def _made(config: DemoConfig, place: Path) -> int:
    import pyarrow as pa

    from cxrhf.auditing import add_sources, progress_line
    from cxrhf.cli.audit import audit_into
    from cxrhf.cli.demo_done import KEY, PAGE, is_done, made_with
    from cxrhf.cli.demo_example import write_example
    from cxrhf.cli.demo_push import dry_runs
    from cxrhf.cli.demo_reports import reports
    from cxrhf.cli.demo_simulated import MODELS, simulated_models
    from cxrhf.cli.demo_steps import WIDTH, Steps
    from cxrhf.config import to_mapping
    from cxrhf.config_build import BuildConfig
    from cxrhf.config_context import ContextFitConfig
    from cxrhf.data.build import build
    from cxrhf.errors import need_packages
    from cxrhf.preparing import prepare, prepare_reports
    from cxrhf.pretesting import fit_run
    from cxrhf.report.card import write_cards
    from cxrhf.representations.looking import look_beside
    from cxrhf.run import made_up, open_run
    from cxrhf.schema import load_predictions, read_table

    stamp = made_with(config)
    if not config.overwrite and is_done(place, stamp):
        print(f"This demo is finished and up to date. To run it again, remove {place} first.")
        print(_next(place))
        print(place / PAGE)
        return 0
    need_packages("the images of the demo", ("PIL", "pydicom"), "data,words,train,vlm")
    run = open_run(
        str(config.out),
        verb="demo",
        config=to_mapping(config),
        inputs=[
            made_up(
                "synthetic",
                n_patients=config.n_patients,
                seed=config.seed,
                size=config.size,
                steps=config.steps,
                report_steps=config.report_steps,
            )
        ],
        overwrite=config.overwrite,
    )
    steps = Steps(5 + bool(config.steps) + bool(config.report_steps), progress_line(every=10))
    print(f"A whole evaluation on synthetic data with known answers, written to {run.path}. If it is interrupted, run "
          "the same command to resume.")  # fmt: skip

    steps.begin("data")
    folder = run.path / "data"
    built = build(
        BuildConfig("synthetic", out=str(folder), n_patients=config.n_patients, seed=config.seed, size=config.size,
                    overwrite=config.overwrite)
    )  # fmt: skip
    steps.say(built.lines)
    run.add("attrition", read_table(folder / "attrition.parquet"))
    (run.path / "figures").mkdir(exist_ok=True)
    shutil.copyfile(folder / "flow.svg", run.path / "figures" / "flow.svg")

    steps.begin("notes")
    chart = fit_run(
        ContextFitConfig(str(folder), out=str(run.path / "context"), features=("words",), seed=config.seed,
                         n_resamples=config.n_resamples, overwrite=config.overwrite),
        steps.show,
    )  # fmt: skip
    assert chart is not None
    steps.say(chart.lines())

    if config.steps:
        steps.begin("network")
    network = trained(config, folder, run.path / "network", steps) if config.steps else None
    steps.begin("simulated")
    said = [simulated_models(config, folder), *([network] if network else [])]
    written = run.add("predictions", pa.concat_tables([each.predictions for each in said]))
    run.add("embeddings", pa.concat_tables([each.embeddings for each in said]))
    loaded = load_predictions(written)  # through the same door as everybody's file
    audit = AuditConfig(predictions=(str(written),), out=config.out, context=str(chart.path), pictures=str(folder),
                        attributes=str(folder), n_resamples=config.n_resamples, seed=config.seed)  # fmt: skip
    prepared = prepare(loaded, audit, steps.show)
    if small := _small(written):
        prepared = replace(prepared, notes=[*prepared.notes, small])
        steps.say(wrap(small, WIDTH))

    if config.report_steps:
        steps.begin("writer")
        if (found := reports(config, folder, run.path / "writer", steps)) is not None:
            prepared = prepare_reports(found, prepared)

    steps.begin("audit")
    add_sources(run, prepared)
    steps.say(prepared.reading[:1])
    looked = look_beside(audit, [run.path], prepared.table)
    page = audit_into(run, prepared, looked, audit, steps.show, brief=True)

    steps.begin("publish")
    cards = write_cards(run.path)
    steps.say([f"Model cards of {len(cards)} models, written from the results: {cards[0].parent}",
               *dry_runs(run.path, steps.show)])  # fmt: skip
    assert prepared.table is not None
    write_example(run.path, prepared.table, MODELS["ideal"])
    run.finish(**{KEY: stamp})
    steps.finish()
    print(_next(run.path))
    print(page)
    return 0


def settled(config: DemoConfig) -> DemoConfig:
    """What --quick means, and where the run goes."""
    if config.quick:
        # Fewer films want fewer steps, or the network learns them by heart.
        config = replace(config, n_patients=max(20, config.n_patients // 8), steps=config.steps // 8, report_steps=0,
                         out=config.out or "runs/demo-quick", quick=False)  # fmt: skip
    return replace(config, out=config.out or "runs/demo")


def _next(run: Path) -> str:
    """The three commands that lie nearest; the page's path comes last, for scripts."""
    from cxrhf.cli.demo_example import NAME

    program = _program()
    commands = {
        f"{program} audit {run / NAME} --out runs/example": "audit a file; yours can have the same columns",
        f"{program} report {run} --cards model_cards": "write a card for each model of this run",
        f"{program} selfcheck": "check this installation",
    }
    width = max(map(len, commands)) + 2
    lines = [f"  {command:<{width}}{why}" for command, why in commands.items()]
    return "\n".join(["", "Next:", *lines, "", "Open the page in a browser:"])


def _program() -> str:
    """What to type for cxrhf: after `make demo` it lies in an environment that is not on the path."""
    if shutil.which("cxrhf"):
        return "cxrhf"
    beside = Path(sys.executable).with_name("cxrhf")
    if not beside.is_file():
        return f"{shlex.quote(sys.executable)} -m cxrhf"
    here = Path.cwd()
    return shlex.quote(str(beside.relative_to(here) if beside.is_relative_to(here) else beside))


def _small(predictions: Path) -> str:
    """What to say of a demo too small to tell its models apart; "" for one that is not."""
    from cxrhf.schema import PREDICTION, read_table

    table = read_table(predictions, PREDICTION)
    n = len({row["patient_id"] for row in table.select(["patient_id", "split"]).to_pylist() if row["split"] == "test"})
    if n >= ENOUGH:
        return ""
    return (f"A SMALL DEMO: its test set has {n} patients, so intervals are wide and the page shows the workflow, not "
            "the planted truth; `cxrhf demo` has enough patients")  # fmt: skip


def trained(config: DemoConfig, data: Path, out: Path, steps: Steps) -> Said | None:
    """What a network says that learned from the training films; None where the packages are not there."""
    from cxrhf.cli.demo_simulated import Said
    from cxrhf.config import load_mapping
    from cxrhf.config_models import EmbedConfig, PredictConfig
    from cxrhf.config_train import TrainConfig
    from cxrhf.errors import CxrhfError
    from cxrhf.imaging.opened import check_packages, findings_of
    from cxrhf.imaging.predicting import embed_run, predict_run
    from cxrhf.imaging.training import train_run
    from cxrhf.schema import EMBEDDING, PREDICTION, read_table

    try:
        check_packages()
    except CxrhfError as error:
        steps.say([f"No network is trained: {error}"])
        return None
    findings = tuple(each for each in findings_of(data) if each != "no_finding")  # as the simulated models
    recipe = load_mapping("quick") | {"max_steps": config.steps, "findings": findings}
    done = train_run(TrainConfig(str(data), out=str(out), name=NETWORK, seed=config.seed, overwrite=config.overwrite,
                                 **recipe), steps.show)  # fmt: skip
    assert done is not None
    steps.say(done.lines())
    predict_run(PredictConfig(str(out), build=str(data), out=str(out)), steps.show)
    embed_run(EmbedConfig(str(out), build=str(data), out=str(out)), steps.show)
    return Said(read_table(out / "predictions.parquet", PREDICTION), read_table(out / "embeddings.parquet", EMBEDDING))
