"""`cxrhf context fit|predict|explain`: prior notes -> a pre-test probability, what it rests on, and where it goes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cxrhf.context.settings import ContextExplainConfig, ContextFitConfig, ContextPredictConfig
from cxrhf.errors import CxrhfError, did_you_mean

if TYPE_CHECKING:
    from cxrhf.context.run import ContextRun
    from cxrhf.run import Input

SUBVERBS = {
    "fit": "prior notes and labels of a build -> calibrated pre-test probabilities of its images, and the models",
    "predict": "fitted run -> pre-test probabilities for another build, or added to a model's predictions",
    "explain": "fitted run -> the words and examples behind its probabilities, and the paper's tables",
}

HELP = f"""usage: cxrhf context VERB ...

Estimate the pre-test probability of each finding from prior notes alone, so that audits can hold context equal.

verbs:
{chr(10).join(f"  {verb:<8} {what}" for verb, what in SUBVERBS.items())}

examples:
  cxrhf context fit data/twin --features words --out runs/context        minutes, no torch
  cxrhf context fit data/mimic --features words,boosted,encoder          each finding keeps its best features
  cxrhf context fit data/mimic --config pretest_paper                    the paper's encoders, grids and pooling
  accelerate launch -m cxrhf context fit data/mimic                      encode on all GPUs of this machine
  cxrhf context explain runs/context
  cxrhf context predict runs/context --onto predictions.parquet          adds the columns pretest and mention
  cxrhf audit predictions.parquet --context runs/context                 join and audit in one step

cxrhf context VERB --help lists the flags.
"""

FIT = """Fit one model per finding to the prior notes of a build and write a run.

Folds, splits and intervals are by patient. Training images get cross-fitted probabilities: no label of their patient is
used for them, or for their calibration. Embeddings of notes are cached by content, so that each encoder reads a note
once. If a fit is interrupted, run the same command to resume; a finished fit is kept. Notes never leave this machine,
and the run contains no text.

examples:
  cxrhf context fit data/twin --features words
  cxrhf context fit data/mimic --features words,boosted,encoder --encoders minilm,pubmedbert
  cxrhf context fit data/mimic --config pretest_paper --dask tcp://scheduler:8786"""

PREDICT = """Pre-test probabilities from a fitted run.

--onto adds them (columns pretest and mention) to the predictions of an image model, by image id and finding. --build
applies the saved models to the notes of another build; with both, its probabilities are joined. Images that the models
were fitted on keep their cross-fitted probabilities.

The run's encoder must be on this machine; --fetch downloads it from the Hugging Face Hub.

examples:
  cxrhf context predict runs/context --onto predictions.parquet --out with_context.parquet
  cxrhf context predict runs/context --build data/other_hospital --out runs/other-context"""

EXPLAIN = """Explain the probabilities of a fitted run: words, examples, tables.

Words are printed and appear on the page. A fit writes its examples (image and note ids) to local/ in the run folder,
which must stay on this disk; --build writes them again with their texts.

examples:
  cxrhf context explain runs/context
  cxrhf context explain runs/context --findings edema --top 20
  cxrhf context explain runs/context --build data/mimic"""


def main(args: Sequence[str]) -> int:
    """Run one of the three verbs."""
    import sys

    if not args or args[0] in ("-h", "--help", "help"):
        print(HELP, end="", file=sys.stdout if args else sys.stderr)
        return 0 if args else 2
    verb, *rest = args
    if verb not in SUBVERBS:
        raise CxrhfError(
            "cxrhf context",
            got=verb,
            allowed="fit, predict or explain",
            next_step=did_you_mean(verb, SUBVERBS) or "cxrhf context --help",
        )
    return {"fit": fit, "predict": predict, "explain": explain}[verb](rest)


def fit(args: Sequence[str]) -> int:
    """Fit, print what was chosen, end with the path of the page."""
    from cxrhf.cli.flags import parse

    config = parse(ContextFitConfig, args, verb="context fit", about=FIT)
    from cxrhf.audits.run import progress_line
    from cxrhf.context.run import fit_run

    done = fit_run(config, progress_line())
    if done is None:  # a process that only helped to encode
        return 0
    from cxrhf.report.lines import printable
    from cxrhf.run import read_run

    print("\n".join(["", *map(printable, done.lines()), ""]))
    for note in read_run(done.path).record.get("notes", []):
        print(printable(f"note: {note}"))
    print(f"next: cxrhf audit PREDICTIONS --context {shlex.quote(str(done.path))}")
    print(done.path / "report.html")
    return 0


def predict(args: Sequence[str]) -> int:
    """Predict, join, and end with the path of what was written."""
    from cxrhf.cli.flags import parse

    config = parse(ContextPredictConfig, args, verb="context predict", about=PREDICT)
    from cxrhf.context.run import load_context
    from cxrhf.run import check_folder, check_inputs
    from cxrhf.tables.folders import one_writer

    run = load_context(config.run)
    out = _out(config)
    if config.onto is not None:
        if out.exists() and not config.overwrite:
            raise CxrhfError(f"{out} exists already", next_step="choose another --out, or pass --overwrite")
        return _predict(config, run, out)
    with one_writer(out, "context predict"):
        check_folder(out, overwrite=config.overwrite)
        check_inputs(out, _inputs(config), overwrite=config.overwrite)
        return _predict(config, run, out)


def _predict(config: ContextPredictConfig, run: ContextRun, out: Path) -> int:
    from cxrhf.audits.run import progress_line
    from cxrhf.context.predict import join_context
    from cxrhf.context.run import predict_build
    from cxrhf.report.lines import printable
    from cxrhf.tables.predictions import load_predictions

    rows, said = run.predictions, list[str]()
    if config.build is not None:
        found = predict_build(
            run, config.build, progress_line(), device=config.device, cache=config.cache,
            allow_bin=config.allow_bin, fetch=config.fetch,
        )  # fmt: skip
        rows, said = found.table, found.notes
    if config.onto is not None:
        joined = join_context(load_predictions(config.onto).table, rows)
        counted = f"{joined.about['rows_with_context']:,} of {joined.about['rows']:,} rows are in the context run"
        rows, said = joined.table, [*said, counted, *joined.notes]
    path = _write(config, out, rows)
    for note in said:
        print(printable(f"note: {note}"))
    typed = shlex.quote(str(path))
    print(f"next: cxrhf audit {typed}" if config.onto else f"next: cxrhf audit PREDICTIONS --context {typed}")
    print(path)
    return 0


def _out(config: ContextPredictConfig) -> Path:
    if config.out is not None:
        return Path(config.out)
    if config.onto is not None:
        onto = Path(config.onto)
        file = onto / "predictions.parquet" if onto.is_dir() else onto
        return file.with_name(file.name.split(".")[0] + "_context.parquet")
    assert config.build is not None
    return Path("runs") / f"{Path(config.build).resolve().name}-context"


def _write(config: ContextPredictConfig, out: Path, rows: object) -> Path:
    import pyarrow as pa

    from cxrhf.run import open_run
    from cxrhf.schema import PREDICTION
    from cxrhf.settings import to_mapping
    from cxrhf.tables.checks import check
    from cxrhf.tables.files import write_table

    assert isinstance(rows, pa.Table)
    if config.onto is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        _remove_drafts(out)
        return write_table(check(rows, PREDICTION, source=str(out)), out)
    run = open_run(
        out, verb="context predict", config=to_mapping(config), inputs=_inputs(config), overwrite=config.overwrite
    )
    run.add("predictions", rows)
    run.finish()
    return out


def _inputs(config: ContextPredictConfig) -> list[Input]:
    from cxrhf.context.run import CHOICES
    from cxrhf.data.load import build_record
    from cxrhf.run import fingerprint

    assert config.build is not None
    build_record(config.build)
    return [fingerprint(Path(config.run) / CHOICES), fingerprint(Path(config.build) / "build.json")]


def _remove_drafts(file: Path) -> None:
    """What killed commands left of this file: drafts hold ids."""
    import glob
    import os

    for draft in file.parent.glob(f".{glob.escape(file.name)}.*.tmp") if os.name == "posix" else ():
        process = draft.name.split(".")[-2]
        try:
            os.kill(int(process), 0)  # only asks whether it is there
        except ProcessLookupError:
            draft.unlink(missing_ok=True)
        except (ValueError, OSError):  # not of ours, or alive under another user
            continue


def _same_build(run: Path, build: str) -> None:
    """Examples of another build would replace those of the run by nothing."""
    from cxrhf.data.load import build_record
    from cxrhf.errors import ConfigError
    from cxrhf.run import fingerprint, read_run

    build_record(build)
    inputs = read_run(run).record.get("inputs", [])
    if fingerprint(Path(build) / "build.json").sha256 not in [each.get("sha256") for each in inputs]:
        raise ConfigError(
            f"{run} was fitted on another build",
            got=build,
            allowed=", ".join(str(Path(each["name"]).parent) for each in inputs),
        )


def explain(args: Sequence[str]) -> int:
    """Print words and tables, write them and the examples, end with the path of the tables."""
    from cxrhf.cli.flags import parse

    config = parse(ContextExplainConfig, args, verb="context explain", about=EXPLAIN)
    from cxrhf.context.explain import write_examples
    from cxrhf.context.run import load_context, read_build
    from cxrhf.context.tables import table_lines, word_lines, write_tables
    from cxrhf.errors import ConfigError
    from cxrhf.report.lines import printable
    from cxrhf.tables.folders import one_writer

    run = load_context(config.run)
    fitted = list(run.choices["findings"])
    for name in config.findings:
        if name not in fitted:
            raise ConfigError(
                f"{config.run}, findings", got=name, allowed=", ".join(fitted), next_step=did_you_mean(name, fitted)
            )
    findings = list(config.findings) or fitted
    if config.build is not None:
        _same_build(run.path, config.build)
    lines = [*word_lines(run.choices, findings, top=config.top), *table_lines(run.results, run.choices, findings)]
    print("\n".join(map(printable, lines)))
    material = None if config.build is None else read_build(config.build, tuple(fitted))
    with one_writer(run.path, "context explain"):
        folder = write_tables(run.path / "tables", run.results, run.choices)
        if material is not None:
            local = write_examples(
                run.path / "local", run.predictions, material, number=config.examples, findings=findings, texts=True
            )
            print(f"examples (keep on this disk): {local}")
    print(folder)
    return 0
