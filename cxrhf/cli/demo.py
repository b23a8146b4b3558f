"""`cxrhf demo`: a made-up hospital -> dataset with prior notes -> what the notes tell -> a network -> its audit."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from cxrhf.errors import CxrhfError
from cxrhf.settings import AuditConfig, check_range

if TYPE_CHECKING:
    import pyarrow as pa

    from cxrhf.audits.sources import ReadReports
    from cxrhf.hub.artefact import Artefact


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

    config = resolve_config(parse(DemoConfig, args, verb="demo", about=ABOUT))
    from cxrhf.tables.folders import check_links, one_writer

    place = Path(str(config.out))
    with one_writer(place, "demo"):
        check_links(place, FOLDERS)
        return _make_demo(config, place)


def _make_demo(config: DemoConfig, place: Path) -> int:
    import pyarrow as pa

    from cxrhf.audits.representations import load_representations
    from cxrhf.audits.run import add_sources, progress_line
    from cxrhf.audits.sources import prepare, prepare_reports
    from cxrhf.cli.audit import audit_into
    from cxrhf.context.run import fit_run
    from cxrhf.context.settings import ContextFitConfig
    from cxrhf.data.build import build
    from cxrhf.data.settings import BuildConfig
    from cxrhf.errors import need_packages
    from cxrhf.report.card import write_cards
    from cxrhf.run import fingerprint_settings, open_run
    from cxrhf.settings import to_mapping
    from cxrhf.tables.files import read_table
    from cxrhf.tables.predictions import load_predictions

    stamp = made_with(config)
    if not config.overwrite and is_done(place, stamp):
        print(f"This demo is finished and up to date. To run it again, remove {place} first.")
        print(_next_commands(place))
        print(place / PAGE)
        return 0
    need_packages("the images of the demo", ("PIL", "pydicom"), "data,words,train,vlm")
    run = open_run(
        str(config.out),
        verb="demo",
        config=to_mapping(config),
        inputs=[
            fingerprint_settings(
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
    network = train_demo_network(config, folder, run.path / "network", steps) if config.steps else None
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
    looked = load_representations(audit, [run.path], prepared.table)
    page = audit_into(run, prepared, looked, audit, steps.show, brief=True)

    steps.begin("publish")
    cards = write_cards(run.path)
    steps.say([f"Model cards of {len(cards)} models, written from the results: {cards[0].parent}",
               *dry_runs(run.path, steps.show)])  # fmt: skip
    assert prepared.table is not None
    write_example(run.path, prepared.table, MODELS["ideal"])
    run.finish(**{KEY: stamp})
    steps.finish()
    print(_next_commands(run.path))
    print(page)
    return 0


def resolve_config(config: DemoConfig) -> DemoConfig:
    """What --quick means, and where the run goes."""
    if config.quick:
        # Fewer films want fewer steps, or the network learns them by heart.
        config = replace(config, n_patients=max(20, config.n_patients // 8), steps=config.steps // 8, report_steps=0,
                         out=config.out or "runs/demo-quick", quick=False)  # fmt: skip
    return replace(config, out=config.out or "runs/demo")


def _next_commands(run: Path) -> str:
    """The three commands that lie nearest; the page's path comes last, for scripts."""

    program = _program()
    commands = {
        f"{program} audit {run / EXAMPLE_FILE} --out runs/example": "audit a file; yours can have the same columns",
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
    from cxrhf.schema import PREDICTION
    from cxrhf.tables.files import read_table

    table = read_table(predictions, PREDICTION)
    n = len({row["patient_id"] for row in table.select(["patient_id", "split"]).to_pylist() if row["split"] == "test"})
    if n >= ENOUGH:
        return ""
    return (f"A SMALL DEMO: its test set has {n} patients, so intervals are wide and the page shows the workflow, not "
            "the planted truth; `cxrhf demo` has enough patients")  # fmt: skip


def train_demo_network(config: DemoConfig, data: Path, out: Path, steps: Steps) -> ModelOutputs | None:
    """What a network says that learned from the training films; None where the packages are not there."""
    from cxrhf.errors import CxrhfError
    from cxrhf.models.predict import embed_run, predict_run
    from cxrhf.models.settings import EmbedConfig, PredictConfig, TrainConfig
    from cxrhf.models.train_run import check_packages, findings_of, train_run
    from cxrhf.schema import EMBEDDING, PREDICTION
    from cxrhf.settings import load_mapping
    from cxrhf.tables.files import read_table

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
    return ModelOutputs(
        read_table(out / "predictions.parquet", PREDICTION), read_table(out / "embeddings.parquet", EMBEDDING)
    )


# A run folder -> whether a finished demo lies there, made with the same settings, packages and code.

KEY = "made_with"  # in run.json; written when everything is there
PAGE = "report.html"


def made_with(config: DemoConfig) -> str:
    """A hash of all that decides what a demo shows: settings, versions of packages, every file of this one."""
    from cxrhf.run import versions
    from cxrhf.settings import to_mapping

    package = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256(json.dumps([to_mapping(config), versions()], sort_keys=True, default=str).encode())
    for path in sorted(package.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:32]


def is_done(run: Path, stamp: str) -> bool:
    """Nothing is left to do: the last thing that happened to the folder is this demo, and its page is there.

    An audit of the folder, or settings or code of another demo, and the steps are gone through again.
    """
    from cxrhf.run import read_run

    if not all((run / name).is_file() for name in ("run.json", PAGE, EXAMPLE_FILE)):
        return False
    record = read_run(run).record
    return record.get("verb") == "demo" and record.get(KEY) == stamp


# PREDICTION -> example.csv: what a model of the demo said, in the form a newcomer would bring a file of their own.

EXAMPLE_FILE = "example.csv"
FINDINGS = ("edema", "pleural_effusion", "pneumothorax")
ABOUT_IMAGE = ("image_id", "patient_id", "sex", "age", "view")


def write_example(run: Path, predictions: pa.Table, model: str) -> Path:
    """The test images of one model: a row an image, label, probability and pre-test probability of each finding.

    `predictions` has `pretest` filled in; a finding that this demo does not have is left out.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from cxrhf.tables.files import write_table

    mine = predictions.filter(pc.and_(pc.equal(predictions["model"], model), pc.equal(predictions["split"], "test")))
    wide: dict[str, list[object]] = {}
    for finding in FINDINGS:
        rows = mine.filter(pc.equal(mine["finding"], finding)).sort_by("image_id").to_pylist()
        if not rows:
            continue
        if not wide:
            wide = {name: [row[name] for row in rows] for name in ABOUT_IMAGE}
        wide[finding] = [row["label"] for row in rows]
        wide[f"prob_{finding}"] = [_rounded(row["prob"]) for row in rows]
        wide[f"pretest_{finding}"] = [_rounded(row["pretest"]) for row in rows]
    return write_table(pa.table(wide), run / EXAMPLE_FILE)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


# The demo's last step: what would be published of all that it made, without sending anything.

OWNER = "USER"
LISTING = "push.txt"


def dry_runs(run: Path, show: Callable[[str], None]) -> list[str]:
    """Stage every push of the demo, look through every file, write the lists to push.txt; what to show."""
    from cxrhf.hub.scan import check
    from cxrhf.hub.upload import listing
    from cxrhf.tables.files import write_atomically
    from cxrhf.tables.folders import temporary_folder

    lines, lists = list[str](), list[str]()
    with temporary_folder("demo-push") as work:
        for command, to, private, make in _pushes(run, work):
            show(f"checking what would be published: {command}")
            lines += ["", command]
            try:
                made = make()
            except CxrhfError as error:
                lines.append(f"  cannot be published: {error}")
                continue
            for artefact in made:
                check(artefact)
                found = listing(artefact, to or f"{OWNER}/{artefact.name}", private=private)
                lists += [*found, ""]
                # Their files, a hundred and more, would push everything else off the screen.
                lines += [f"  {line}" for line in found[:1]]
                lines += [f"    note: {note}" for note in artefact.notes if len(made) == 1]
    text = "\n".join(lists)
    write_atomically(run / LISTING, lambda file: file.write(text.encode()))
    return lines


Push = tuple[str, str, bool, Callable[[], "list[Artefact]"]]


def _pushes(run: Path, work: Path) -> list[Push]:
    """Command, repository ("" for one each), whether it would be private, and what makes it."""
    from cxrhf.hub.dataset import dataset_artefact
    from cxrhf.hub.metric import choose_metrics, metric_artefact
    from cxrhf.hub.model import model_artefact
    from cxrhf.hub.settings import PushModelConfig

    def model(folder: Path, name: str) -> Push:
        to = f"{OWNER}/{name}"
        config = PushModelConfig(str(folder), to=to)
        return f"cxrhf push model {folder} --to {to}", to, True, lambda: [model_artefact(config)]

    found: list[Push] = [
        (f"cxrhf push metric --all --to {OWNER}", "", False,
         lambda: [metric_artefact(name, OWNER) for name in choose_metrics((), every=True)]),
    ]  # fmt: skip
    for part, name in (("network", "demo-network"), ("writer/model", "demo-writer"), ("context", "demo-context")):
        if (run / part).is_dir():
            found.append(model(run / part, name))
    to = f"{OWNER}/demo-twin"
    found.append((f"cxrhf push dataset {run / 'data'} --to {to}", to, True,
                  lambda: [dataset_artefact(run / "data", to, work=work)]))  # fmt: skip
    return found


# The demo's generated reports: a tiny vision-language model learns to write them, beside a simulated writer.

REPORT_MODEL = "report model"
LONGEST = 128  # tokens of a report; the made-up references have at most 60
TOGETHER = 64  # reports at a time: so small a model mostly waits for the next token


def reports(config: DemoConfig, data: Path, out: Path, steps: Steps) -> ReadReports | None:
    """Reports by six strategies and by the simulated writer; None where the packages are not there."""
    import pyarrow as pa

    from cxrhf.audits.reports.written import Tables
    from cxrhf.audits.sources import ReadReports
    from cxrhf.errors import CxrhfError
    from cxrhf.models.report_run import check_vlm_packages, finetune_run, generate_run
    from cxrhf.models.report_settings import FinetuneConfig, GenerateConfig, ScoreConfig
    from cxrhf.models.scoring import score_run
    from cxrhf.run import read_run
    from cxrhf.settings import load_mapping

    try:
        check_vlm_packages()
    except CxrhfError as error:
        steps.say([f"No reports are generated: {error}"])
        return None
    recipe = load_mapping("tiny_qwen") | {"max_steps": config.report_steps, "seed": config.seed, "name": REPORT_MODEL}
    learned = finetune_run(
        FinetuneConfig(str(data), out=str(out / "model"), overwrite=config.overwrite, **recipe), steps.show
    )
    assert learned is not None
    steps.say(learned.lines())
    generate = GenerateConfig(str(out / "model"), build=str(data), model=REPORT_MODEL, out=str(out / "reports"),
                              max_new_tokens=LONGEST, batch_size=TOGETHER, seed=config.seed,
                              overwrite=config.overwrite)  # fmt: skip
    written = generate_run(generate, steps.show)
    score_run(ScoreConfig(str(out / "reports")), steps.show)
    assert written is not None
    steps.say(written.lines)
    run = read_run(out / "reports")
    made = pa.concat_tables([run.table("generations"), simulated_writer(config)])
    return ReadReports(Tables(made, run.table("scores"), run.table("report_vectors")), [], list(written.notes))


# The demo's hospital -> what simulated models with known flaws say of its films, and write about them.

# Kind of simulated model -> its name on the page.
MODELS = {"ideal": "image + context", "image_only": "image only", "miscalibrated": "overconfident"}
SIMULATED_REPORTS = "report model with planted flaws"


class ModelOutputs(NamedTuple):
    """What models say of the films, and vectors of some of them."""

    predictions: pa.Table
    embeddings: pa.Table


def simulated_models(config: DemoConfig, build: Path) -> ModelOutputs:
    """What the simulated models say of the films that the network did not learn from; vectors of the first of them.

    What is planted of the chart is left out: the demo learns it from the notes, as one does with real data.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from cxrhf.data.load import load_images
    from cxrhf.twin.mimic import mimic_names
    from cxrhf.twin.models import embeddings, predictions
    from cxrhf.twin.people import people

    made = people(config.n_patients, config.seed)
    images = load_images(build, columns=["image_id", "split", "dataset"])
    images = images.filter(pc.not_equal(images["split"], "train"))
    names = mimic_names(made, config.seed)
    dataset = images["dataset"][0].as_py()
    parts = []
    for split in pc.unique(images["split"]).to_pylist():
        there = images.filter(pc.equal(images["split"], split))["image_id"].to_pylist()
        ids = names.filter(names["image_id"].is_in(there))
        for kind, name in MODELS.items():
            table = predictions(made, model=kind, ids=ids, dataset=dataset, split=split)
            parts.append(_fill_columns(table, model=name, pretest=None, mention=None))
    tested = images.filter(pc.equal(images["split"], "test"))["image_id"].to_pylist()
    vectors = embeddings(made, seed=config.seed, ids=names.filter(names["image_id"].is_in(tested)))
    return ModelOutputs(pa.concat_tables(parts), _fill_columns(vectors, model=next(iter(MODELS.values()))))


def simulated_writer(config: DemoConfig) -> pa.Table:
    """The simulated writer's reports of all patients: enough of them to show what it moved."""
    from cxrhf.twin.generations import generations
    from cxrhf.twin.people import people

    table = generations(people(config.n_patients, config.seed), kind="planted", seed=config.seed)
    return _fill_columns(table, model=SIMULATED_REPORTS, strategy="simulated", dataset="synthetic")


def _fill_columns(table: pa.Table, **values: Any) -> pa.Table:
    """The table with one value in all rows of some columns."""
    import pyarrow as pa

    for name, value in values.items():
        field = table.schema.field(name)
        same = pa.repeat(pa.scalar(value, field.type), table.num_rows)
        table = table.set_column(table.schema.get_field_index(name), field, same)
    return table


# The steps of the demo -> what a newcomer sees of them: a number, what happens, why it matters, how long it took.

WIDTH = 110
# Step -> what happens, and why it matters.
STEPS = {
    "data": (
        "Generate a hospital and link its data",
        "Images, prior notes and labels in MIMIC's layout. Nothing recorded after an image enters its context. The "
        "table counts what every step excludes: what is missing from a test set limits what it can show.",
    ),
    "notes": (
        "Estimate pre-test probabilities from the notes",
        "How likely is each finding before the image is seen? What a model scores above this comes from the image; "
        "the rest may come from the context.",
    ),
    "network": (
        "Train a small network on the images",
        "A real training run, small enough for two cores. The network predicts all images it was not trained on; its "
        "embeddings show what else it learned.",
    ),
    "simulated": (
        "Add three simulated models with known flaws",
        "One uses image and context, one the image alone, one is overconfident. A useful audit must distinguish them.",
    ),
    "writer": (
        "Train a tiny vision-language model to write reports",
        "Six decoding strategies of one model: what do the reports omit, and for whom? A simulated report model with "
        "planted omissions is audited next to it.",
    ),
    "audit": (
        "Audit all models",
        "AUROC overall, from context alone, and with context held equal; calibration, rare findings, subgroups, what "
        "is encoded, slices that fail, shortcuts, words of reports. Intervals resample patients.",
    ),
    "publish": (
        "Write model cards and check what could be published",
        "Nothing is sent. Every file is searched for notes, images, patients, tokens and paths; push.txt in the run "
        "folder lists all files.",
    ),
}


class Steps:
    """Numbered headings on stdout; `show` tells on stderr what is being done, in one changing line on a terminal."""

    def __init__(self, total: int, show: Callable[[str], None]) -> None:
        self.total, self.number, self.began = total, 0, time.monotonic()
        self.show, self._live, self._step = show, sys.stderr.isatty(), self.began

    def begin(self, step: str) -> None:
        """The heading of the next step."""
        title, why = STEPS[step]
        self.end()
        self.number += 1
        self._step = time.monotonic()
        bold, plain = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() else ("", "")
        print(f"\n{bold}{self.number}/{self.total}  {title}{plain}")
        print("\n".join(wrap(why, WIDTH, initial_indent="     ", subsequent_indent="     ")), flush=True)

    def say(self, lines: Sequence[str]) -> None:
        """What came of it, indented below the heading."""
        from cxrhf.report.lines import printable

        self._clear()
        print("\n".join(["", *(printable(f"     {line}").rstrip() for line in lines)]), flush=True)

    def end(self) -> None:
        """How long the step took."""
        if self.number:
            self._clear()
            print(f"     ({time.monotonic() - self._step:.0f} s)", flush=True)

    def finish(self) -> None:
        """The same of the last one, and of all."""
        self.end()
        print(f"\nDone in {shown_time(time.monotonic() - self.began)}.", flush=True)

    def _clear(self) -> None:
        if self._live:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def shown_time(seconds: float) -> str:
    """
    >>> shown_time(59.6), shown_time(125)
    ('1 min 0 s', '2 min 5 s')
    """
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"


# Settings of `cxrhf demo`: how large the made-up hospital is, and how long its models learn.


@dataclass(frozen=True, slots=True)
class DemoConfig:
    """A made-up hospital -> its dataset with prior notes, a small network, simulated models, and their audit."""

    out: str | None = field(
        default=None,
        metadata={
            "metavar": "RUN",
            "aliases": ("-o",),
            "help": "Run folder to write. Default: runs/demo or runs/demo-quick.",
        },
    )
    quick: bool = field(
        default=False,
        metadata={"help": "An eighth of the patients and no vision-language model: under two minutes."},
    )
    n_patients: int = field(default=1200, metadata={"help": "Synthetic patients, with about six images each."})
    size: int = field(default=128, metadata={"help": "Side of the synthetic images, in pixels."})
    seed: int = field(default=0, metadata={"help": "Seed of the patients and of the resampling."})
    steps: int = field(default=350, metadata={"help": "Training steps of the network; 0: no network, no torch."})
    report_steps: int = field(
        default=300,
        metadata={"help": "Training steps of the tiny report model; 0: no report model."},
    )
    n_resamples: int = field(default=2000, metadata={"help": "Bootstrap resamples of patients."})
    overwrite: bool = field(default=False, metadata={"help": "Replace a run made from other inputs."})

    def __post_init__(self) -> None:
        check_range("n_patients", self.n_patients, 20, 1_000_000)
        check_range("steps", self.steps, 0, 1_000_000)
        check_range("report_steps", self.report_steps, 0, 1_000_000)
        check_range("size", self.size, 64, 512)
        check_range("n_resamples", self.n_resamples, 10, 1_000_000)
        check_range("seed", self.seed, 0, 2**63 - 1)
