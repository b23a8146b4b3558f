"""`cxrhf audit`: predictions or generated reports -> a run folder with results, curves, figures and report.html."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cxrhf.errors import RunError
from cxrhf.settings import AuditConfig

if TYPE_CHECKING:
    import pyarrow as pa

    from cxrhf.audits.representations import Representations
    from cxrhf.audits.sources import Prepared
    from cxrhf.run import Input, Run

ABOUT = """Audit predictions or generated reports: metrics with patient-level intervals, with and without context, on
one page.

PREDICTIONS is Parquet, CSV, TSV or JSON lines (also .gz). These forms need no flags:
  wide   image_id, patient_id, Edema, prob_Edema, Pneumonia, prob_Pneumonia, ... (label_<finding>, score_<finding> too)
  long   image_id, patient_id, finding, label, prob
  one    id, patient, label, score

A column pretest (or pretest_<finding>) holds the pre-test probability and adds the audits of context. Without it,
--pretest from:age,sex,view,prior_labels fits a small context model to columns of the table, --notes reads prior notes,
and --context reads a run of cxrhf context fit. Columns sex, race, age, view add subgroups. A split column with validate
rows supplies thresholds. Several files are compared as models, or with --model NAME summarised as runs of one model.

Embeddings (--embeddings, or those that cxrhf embed wrote into a run) add what the network encodes about patients
(encoding), maps (features) and slices in which it fails. Attributes (--attributes: drains, wires) describe slices and
test whether a shortcut explains a gap between the sexes. Labelling sheets for the worst and best slices are written to
RUN/labelling; --annotations reads them back.

Generated reports (a file with columns generated and reference, or a run of cxrhf generate) are audited for what they
omit: similarity, template collapse, lost words, and words associated with sex, age or race in the references only or in
the generated reports only (CAD, WAE), with tests and values expected by chance. cxrhf score adds BERTScore.

examples:
  cxrhf audit predictions.csv --out runs/mine
  cxrhf audit vendor.csv --patient PID --label truth --score ai_score --finding pneumothorax
  cxrhf audit nih.csv --pretest from:age,sex,view,prior_labels --time follow_up
  cxrhf audit predictions.parquet --notes data/mimic
  cxrhf audit predictions.parquet --context runs/mimic-context
  cxrhf audit ours.parquet theirs.parquet --only overview,compare --findings edema,pneumonia
  cxrhf audit seed0.csv seed1.csv seed2.csv --model densenet
  cxrhf audit predictions.csv --embeddings vectors.parquet --attributes drains.csv
  cxrhf audit predictions.csv --attributes drains.csv --primary shortcut:drain:pneumothorax
  cxrhf audit runs/mine --slice-methods mixture,domino --findings pneumothorax
  cxrhf audit runs/mine --annotations runs/mine/labelling/net-atelectasis-mixture-negative.csv
  cxrhf audit runs/mine --n-resamples 10000
  cxrhf audit reports.csv --generated hyp --reference ref --patient pid --sex gender
  cxrhf audit runs/words --only reports,decoding --baseline-strategy greedy"""


def main(args: Sequence[str]) -> int:
    """Read, audit, write, and end with the path of the page."""
    from cxrhf.cli.flags import parse

    config = parse(AuditConfig, args, verb="audit", about=ABOUT)
    if not config.json:
        print(run_audit(config))
        return 0
    import contextlib
    import json
    import sys

    from cxrhf.run import read_run

    with contextlib.redirect_stdout(sys.stderr):
        page = run_audit(config)
    told = {"run": page.parent, "page": page, "results": page.parent / "results.json"}
    notes = read_run(page.parent).record.get("notes", [])
    print(json.dumps({**{name: str(path) for name, path in told.items()}, "notes": notes}, indent=1))
    return 0


def run_audit(config: AuditConfig) -> Path:
    """Read, audit and write a run, and say what was understood and found; the page's path."""
    from cxrhf.tables.folders import one_writer

    sources = [Path(each) for each in config.predictions]
    folder = Path(config.out) if config.out else default_out(sources)
    with one_writer(folder, "audit"):
        return _run_held_audit(config, sources, folder)


def _run_held_audit(config: AuditConfig, sources: list[Path], folder: Path) -> Path:
    from cxrhf.audits.representations import load_representations
    from cxrhf.audits.run import add_sources, progress_line
    from cxrhf.audits.sources import holds_predictions, holds_reports, prepare, prepare_reports, read_reports
    from cxrhf.report.lines import printable
    from cxrhf.run import check_folder, open_run
    from cxrhf.settings import to_mapping
    from cxrhf.tables.predictions import load_predictions

    inside = len(sources) == 1 and sources[0].is_dir() and folder.resolve() == sources[0].resolve()
    if inside and (folder / "context.json").is_file():
        raise RunError(
            f"{folder} is a context run, whose results an audit would replace",
            next_step=f"cxrhf audit PREDICTIONS --context {folder}, or pass another --out",
        )
    check_folder(folder, overwrite=config.overwrite or inside)  # before minutes are spent on what cannot be kept
    show = progress_line()
    prepared = changed = None
    of_reports = [each for each in sources if holds_reports(each, config)]
    if of_predictions := [each for each in sources if holds_predictions(each, reports=each in of_reports)]:
        loaded = load_predictions(of_predictions, findings=config.findings, columns=config.columns())
        for reading in loaded.readings:
            print("\n".join(map(printable, reading.lines())))
        say_first_time()
        prepared = prepare(loaded, config, show, sources[0] if sources[0].is_dir() else None)
        changed = prepared.table is not loaded.table and not config.findings
    if of_reports:
        found = read_reports(of_reports, config)
        print("\n".join(map(printable, found.reading)))
        prepared = prepare_reports(found, prepared)
    assert prepared is not None
    reports = prepared.reports.tables.generations if prepared.reports is not None else None
    looked = load_representations(config, sources, prepared.table, reports)
    run = open_run(
        folder,
        verb="audit",
        config=to_mapping(config),
        inputs=None if inside else inputs_of(sources, config),
        overwrite=config.overwrite,
    )
    # A run that audits itself keeps its predictions; with --findings they are a part, and the rest must not be lost.
    if not inside:
        add_sources(run, prepared)
    elif changed and prepared.table is not None:
        run.add("predictions", prepared.table)
    return audit_into(run, prepared, looked, config, show)


def say_first_time() -> None:
    """What a newcomer waits for: a first audit compiles between its lines of progress."""
    import sys

    from cxrhf.metrics.compiled import is_kept
    from cxrhf.metrics.ranking import auroc_lanes

    if not is_kept(auroc_lanes):
        text = "The first audit after installation compiles its kernels, which takes half a minute longer."
        print(text, file=sys.stderr, flush=True)


def inputs_of(sources: Sequence[Path], config: AuditConfig) -> list[Input]:
    """Fingerprints of the files that the run is made from; a build is known by its record.

    Annotations are no inputs: a run may be audited again with more of them.
    """
    from cxrhf.run import fingerprint
    from cxrhf.tables.predictions import find_predictions

    files: list[Path] = []
    for each in sources:
        held = (find_predictions(each), each / "generations.parquet") if each.is_dir() else (each,)
        files += [path for path in held if path is not None and path.is_file()]
    named = {"notes": "build", "context": "predictions", "embeddings": "embeddings", "attributes": "attributes"}
    for flag, table in named.items():
        given, inside = getattr(config, flag), "build.json" if table == "build" else f"{table}.parquet"
        if given is not None:
            files.append(Path(given) / inside if Path(given).is_dir() else Path(given))
    return [fingerprint(each) for each in files]


def default_out(sources: Sequence[Path]) -> Path:
    """A run folder audits into itself, a file into runs/<its name>."""
    first = sources[0]
    return first if first.is_dir() else Path("runs") / (first.name.split(".")[0] or "audit")


def audit_into(
    run: Run,
    prepared: Prepared,
    looked: Representations,
    config: AuditConfig,
    show: Callable[[str], None],
    *,
    brief: bool = False,
) -> Path:
    """Run the audits, write their tables and the page into an open run, print a summary; `brief`: of means alone."""
    from cxrhf.audits.run import run_all, write
    from cxrhf.report.lines import note_lines, summary_lines

    output = run_all(prepared, config, looked, show)
    show("writing the page and its figures")
    page = write(run, prepared, output, looked, config, show)
    print()
    print("\n".join(summary_lines(_mean_rows(output.results) if brief else output.results, config.level)))
    # Notes of the reader stood above, with what was understood.
    read = [line.removeprefix("  note: ") for line in prepared.reading if line.startswith("  note: ")]
    rest = [note for note in prepared.notes if not note.endswith(tuple(read))] + looked.notes + output.notes
    if brief:
        print(f"\n{len(rest):,} warnings about these numbers are listed on the page.")
    elif lines := note_lines(rest, output.results.select(["model", "finding"]).to_pylist()):
        print("\n".join(["", *lines]))
    print()
    return page


def _mean_rows(results: pa.Table) -> pa.Table:
    """Means over findings, and what is said of generated reports."""
    import pyarrow.compute as pc

    mean = pc.fill_null(pc.equal(results["finding"], "macro"), False)
    return results.filter(pc.or_(mean, pc.not_equal(pc.fill_null(results["strategy"], ""), "")))
