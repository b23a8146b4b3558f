"""A build's prior notes -> a run with pre-test probabilities: what `cxrhf context` and Python share.

`fit_context("data/mimic", out="runs/context")` fits and writes; `load_context("runs/context")` opens what was written,
to join it onto an image model's predictions or to read other notes with it. A context run holds predictions.parquet
(model = "context": cross-fitted where the models learned, theirs elsewhere), families.parquet (every family that was
tried), context.json (what was chosen and why), models/context (no pickle), results, tables, page, and local/ (examples
by note id, for this disk only).
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrhf.context.settings import ContextFitConfig
from cxrhf.errors import ConfigError, CxrhfError, RunError, TableError, shorten
from cxrhf.settings import from_mapping, to_mapping
from cxrhf.tables.checks import quoted
from cxrhf.tables.folders import describe_path, free_folder_name, suggest_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from cxrhf.context.fit import Context
    from cxrhf.context.join import JoinedContext
    from cxrhf.context.material import Material
    from cxrhf.context.store import Bundle
    from cxrhf.run import Input, Run

    Progress = Callable[[str], None]


VERB = "context fit"
CHOICES, FAMILIES, MODELS, SEARCH = "context.json", "families.parquet", "models/context", "search"


def fit_context(build: str | Path, *, progress: bool | Progress = False, **options: Any) -> ContextRun:
    """Fit context models to the prior notes of a build and write a run. Options are those of `cxrhf context fit`.

    `cxrhf.fit_context("data/twin", out="runs/context", features=["words"])`
    """
    config = from_mapping(ContextFitConfig, {"build": str(build), **_paths(options)}, source="fit_context")
    done = fit_run(config, _to_progress(progress))
    if done is None:
        raise CxrhfError("this process only helps with encoding", next_step="use the run in the main process")
    return done


def load_context(folder: str | Path) -> ContextRun:
    """Open a run made by `fit_context` or `cxrhf context fit`."""
    from cxrhf.context.explain import check_choices
    from cxrhf.context.fit import FORMAT
    from cxrhf.context.sealed import plain_json

    path = Path(folder) / CHOICES
    if not path.is_file():
        raise RunError(
            str(folder),
            allowed=f"a finished context run (a folder with {CHOICES})",
            got=describe_path(folder),
            next_step=suggest_folder(folder, CHOICES)
            or f"cxrhf context fit BUILD --out {free_folder_name(folder, 'runs/context')}",
        )
    try:
        choices = check_choices(plain_json(path.read_bytes()))
    except (ValueError, OSError, RecursionError) as error:
        raise RunError(f"{path} cannot be read ({error})", next_step="fit again with --overwrite") from None
    if choices["format"] != FORMAT:
        raise RunError(
            f"{path} was written by {'a newer' if choices['format'] > FORMAT else 'another'} version of cxrhf",
            got=f"format {shorten(str(choices['format']), 20)}",
            allowed=f"format {FORMAT}",
            next_step="pip install --upgrade cxrhf, or fit again with --overwrite",
        )
    return ContextRun(Path(folder), choices)


@dataclass(frozen=True, slots=True, repr=False)
class ContextRun:
    """A fitted context run on disk."""

    path: Path
    choices: dict[str, Any]

    def table(self, name: str) -> pa.Table:
        """predictions, results or curves of the run; "families" for every family's predictions."""
        from cxrhf.run import read_run
        from cxrhf.schema import PREDICTION
        from cxrhf.tables.files import read_table

        if name == "families":
            return read_table(self.path / FAMILIES, PREDICTION)
        return read_run(self.path).table(name)

    @property
    def predictions(self) -> pa.Table:
        """PREDICTION rows of `model="context"`: the pre-test probabilities."""
        return self.table("predictions")

    @property
    def results(self) -> pa.Table:
        """RESULT rows: how well the notes alone predict, on the test split."""
        return self.table("results")

    def models(self) -> Bundle:
        """The fitted models, after every file was checked."""
        from cxrhf.context.store import load_models

        return load_models(self.path / MODELS)

    def join(self, predictions: Any) -> JoinedContext:
        """An image model's predictions (a table or a file) with `pretest` and `mention` filled in: `.table`."""
        from cxrhf.context.predict import join_context
        from cxrhf.tables.predictions import load_predictions

        return join_context(load_predictions(predictions).table, self.predictions)

    def predict(
        self,
        build: str | Path,
        *,
        progress: bool | Progress = False,
        device: str = "auto",
        cache: str | Path | None = None,
        allow_bin: bool = False,
        fetch: bool = False,
    ) -> Predicted:
        """Pre-test probabilities for the images of a build: see `predict_build`."""
        return predict_build(
            self, build, _to_progress(progress), device=device, cache=cache, allow_bin=allow_bin, fetch=fetch
        )

    def lines(self) -> list[str]:
        """A short table of what was chosen for each finding and what it reaches on the test split."""
        from cxrhf.report.lines import align_columns, format_result

        found = {
            row["finding"]: row
            for row in self.results.to_pylist()
            if row["metric"] == "auroc" and row["model"] == "context" and row["slice"] == "all"
        }
        rows = [("finding", "images", "positive", "read by", "classifier", "AUROC of the notes alone (test)")]
        for finding, each in self.choices["findings"].items():
            if each["reason"]:
                rows.append((finding, f"{each['n']:,}", f"{each['n_pos']:,}", "", "", each["reason"]))
                continue
            chosen = each["families"][each["chosen"]]
            rows.append(
                (finding, f"{each['n']:,}", f"{each['n_pos']:,}", each["chosen"], chosen["classifier"],
                 format_result(found.get(finding)))
            )  # fmt: skip
        return align_columns(rows)

    def __repr__(self) -> str:
        return "\n".join([*self.lines(), f"Next: .join(predictions) or .predict(build). Results are in {self.path}"])


@dataclass(frozen=True, slots=True)
class Predicted:
    """PREDICTION rows of a build, and what a reader must know of them."""

    table: pa.Table
    notes: list[str]


def fit_run(config: ContextFitConfig, show: Progress) -> ContextRun | None:
    """Fit and write. None in processes that `accelerate launch` started to help with encoding."""
    from cxrhf.context.material import check_packages
    from cxrhf.encode.processes import main_process, one_writer_of_all
    from cxrhf.tables.folders import one_writer

    together = "encoder" in config.features
    if not main_process() and not together:
        return None
    check_packages(config.features)
    folder = Path(config.out) if config.out else Path("runs") / f"{Path(config.build).resolve().name}-context"
    with one_writer_of_all(folder, VERB) if together else one_writer(folder, VERB):
        return _fit_run(config, folder, show if main_process() else (lambda _: None))


def _fit_run(config: ContextFitConfig, folder: Path, say: Progress) -> ContextRun | None:
    """The fit, in a folder that is held."""
    from cxrhf.context.sweep import cluster
    from cxrhf.data.load import build_record
    from cxrhf.encode.processes import main_process
    from cxrhf.run import check_folder, check_inputs, fingerprint

    main, started = main_process(), datetime.now(UTC).isoformat(timespec="seconds")
    # Before hours are spent on what cannot be kept, and before the first note is read.
    check_folder(folder, overwrite=config.overwrite)
    build_record(config.build)
    inputs = [fingerprint(Path(config.build) / "build.json")]
    check_inputs(folder, inputs, overwrite=config.overwrite)
    if not config.overwrite and _is_done(folder, config):
        shutil.rmtree(folder / SEARCH, ignore_errors=True)
        say(f"{folder} is already finished with the same settings; --overwrite fits again")
        return load_context(folder) if main else None
    if "encoder" in config.features:
        from cxrhf.encode.cache import check_cache
        from cxrhf.encode.encoder import check_weights, open_encoder
        from cxrhf.encode.processes import call_first

        check_cache(config.cache)
        for opened in [open_encoder(config.encode(name), together=True) for name in config.encoders]:
            call_first(partial(check_weights, opened))
    say(f"reading {config.build}")
    material = read_build(config.build, config.findings)
    if main and not (folder / "run.json").is_file():  # an earlier run stays whole until something can replace it
        _open(folder, config, inputs, started)
    with cluster(config.dask):
        from cxrhf.context.fit import fit_context as fit

        found = fit(
            material, config, checkpoint=folder / SEARCH, cache=config.cache, inputs=material.fingerprint(),
            progress=say,
        )  # fmt: skip
    if found is None:
        return None
    run = _open(folder, config, inputs, started)  # from here on it is no finished run
    (folder / CHOICES).unlink(missing_ok=True)
    return _write(run, found, material, config, say)


# Settings that a finished run may differ in: they change no number.
_IGNORED_SETTINGS = ("out", "build", "workers", "dask", "device", "batch_tokens", "cache", "allow_bin", "overwrite")


def _is_done(folder: Path, config: ContextFitConfig) -> bool:
    """Whether the folder holds this very fit, finished. Another verb's finished run, or another fit, is an error."""
    from cxrhf.run import public, read_run

    if not (folder / "run.json").is_file():
        return False
    record = read_run(folder).record
    if not record.get("finished"):
        return False
    how = "choose another --out, or pass --overwrite to replace it"
    if record.get("verb") != VERB:
        raise RunError(
            str(folder),
            allowed=f"a run of cxrhf {VERB}",
            got=f"a finished run of cxrhf {record.get('verb')}",
            next_step=how,
        )
    was, now = record.get("config") or {}, public(to_mapping(config))
    other = [name for name in now if name not in _IGNORED_SETTINGS and was.get(name, now[name]) != now[name]]
    if other:
        raise RunError(
            f"{folder} contains a finished run with different settings ("
            + ", ".join(f"{name} {_as_text(was[name])} there, {_as_text(now[name])} now" for name in other)
            + ")",
            next_step=how,
        )
    return (folder / CHOICES).is_file()


def _as_text(value: Any) -> str:
    return shorten(", ".join(map(str, value)) or "(all)" if isinstance(value, list) else str(value), 100)


def _open(folder: Path, config: ContextFitConfig, inputs: list[Input], started: str) -> Run:
    from cxrhf.run import open_run

    run = open_run(folder, verb=VERB, config=to_mapping(config), inputs=inputs, overwrite=config.overwrite)
    run.record["started"] = started
    return run


def read_build(build: str | Path, findings: tuple[str, ...] = ()) -> Material:
    """Images with labels and prior notes of a build; findings of the build if none are named."""
    from cxrhf.context.material import CARRIED_COLUMNS, material
    from cxrhf.data.load import build_record, load_images, load_notes
    from cxrhf.errors import did_you_mean

    record = build_record(build)
    there = [str(each) for each in record["findings"]]
    for name in findings:
        if name not in there:
            raise ConfigError(
                f"the build has no finding {quoted(name)}",
                allowed=f"one of {', '.join(there)}",
                next_step=did_you_mean(name, there),
            )
    wanted = list(findings) or there
    try:
        images = load_images(build, columns=[*CARRIED_COLUMNS, "study_time", "prior_note_ids", *wanted])
        notes = load_notes(build)
    except (TableError, RunError) as error:
        raise TableError(
            error.what,
            got=error.got,
            allowed=error.allowed,
            next_step="use a build that can have prior notes: mimic_cxr_context, covid_chestxray or synthetic",
        ) from None
    return material(images, notes, wanted)


def predict_build(
    run: ContextRun,
    build: str | Path,
    show: Progress,
    *,
    device: str = "auto",
    cache: str | Path | None = None,
    allow_bin: bool = False,
    fetch: bool = False,
) -> Predicted:
    """Pre-test probabilities for the images of a build.

    `allow_bin`: read an encoder that has only .bin weights; `fetch`: get the encoder from the Hub if it is not here.
    What the run says of either counts for nothing, for somebody else may have made it.
    Images of the fit itself keep what the run says of them: cross-fitted where the models learned. Other images of
    patients that the models learned from are left out, and counted: the models have seen these patients' labels.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from cxrhf.context.predict import check_same_images, open_encoders, predict_context
    from cxrhf.data.load import build_record

    bundle = run.models()
    known = [name for name in map(str, build_record(build)["findings"]) if name in bundle.models]
    if not known:
        raise TableError(
            f"{build} has none of the findings of the fit", allowed=f"at least one of {', '.join(bundle.models)}"
        )
    open_encoders(bundle, known, device=device, allow_bin=allow_bin, fetch=fetch)  # before any note is read
    material = read_build(build, tuple(known))
    fresh = predict_context(
        bundle, material, device=device, cache=cache, allow_bin=allow_bin, fetch=fetch, progress=show
    )
    stored, said = _own_predictions(run)
    stored = stored.filter(pc.is_in(stored["finding"], value_set=pa.array(known)))
    same = _person(fresh, "image_id"), _person(stored, "image_id")
    in_fit = pc.is_in(same[0], value_set=pc.unique(same[1]))
    learned = stored.filter(pc.is_in(stored["split"], value_set=pa.array(run.choices["splits"]["learned"])))
    seen = pc.is_in(_person(fresh, "patient_id"), value_set=pc.unique(_person(learned, "patient_id")))
    left = fresh.filter(pc.and_(seen, pc.invert(in_fit)))
    said += check_same_images(fresh, stored)
    if left.num_rows:
        said.append(f"excluded {len(pc.unique(left['image_id'])):,} images of patients that the models learned from")
    kept = stored.filter(pc.is_in(same[1], value_set=pc.unique(same[0])))
    if kept.num_rows:
        said.append(
            f"{len(pc.unique(kept['image_id'])):,} images belong to the fit: they keep the run's probabilities, "
            "cross-fitted where the models learned"
        )
    without = int((~material.noted).sum())
    if without and not bundle.without_notes:
        said.append(f"excluded {without:,} of {len(material.noted):,} images, which have no prior note")
    new = fresh.filter(pc.invert(pc.or_(seen, in_fit)))
    return Predicted(pa.concat_tables([kept, new]), said)


def _own_predictions(run: ContextRun) -> tuple[pa.Table, list[str]]:
    """What the run says of its own images. A published model comes without: nothing of patients leaves with it."""
    from cxrhf.schema import PREDICTION

    if (run.path / "predictions.parquet").is_file():
        return run.predictions, []
    return PREDICTION.empty_table(), [
        "the models came without the rows they were fitted on, so it is unknown whether they have seen these patients"
    ]


def _person(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Ids of two datasets may be alike; they are not the same people."""
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(table["dataset"].fill_null(""), table[name], "\x1f")


def _write(run: Run, found: Context, material: Material, config: ContextFitConfig, show: Progress) -> ContextRun:
    """Everything a context run holds; context.json and the end in run.json last: they mean that all is there."""
    from cxrhf.context.explain import write_examples
    from cxrhf.context.store import save_models
    from cxrhf.context.tables import pretest_results, write_tables
    from cxrhf.data.load import build_record
    from cxrhf.report import write_report
    from cxrhf.tables.files import write_atomically, write_table

    folder: Path = run.path
    run.add("predictions", found.predictions)
    write_table(found.scored, folder / FAMILIES)
    save_models(folder / MODELS, found.bundle)
    results, curves, notes = pretest_results(
        found.scored, found.choices, n_resamples=config.n_resamples, level=config.level, seed=config.seed,
        workers=config.workers, progress=show,
    )  # fmt: skip
    run.add("results", results)
    run.add("curves", curves)
    write_tables(folder / "tables", results, found.choices)
    write_examples(folder / "local", found.predictions, material)
    said = list(dict.fromkeys([*found.notes, *notes]))
    source = build_record(config.build)  # whoever publishes the models must know whose notes they have read
    choices = {**found.choices, "dataset": source.get("dataset"), "credentialed": source.get("credentialed")}
    text = json.dumps(choices, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    chosen = {finding: each["chosen"] for finding, each in found.choices["findings"].items()}
    fitted = {"context": {"chosen": chosen, "without_notes": found.choices["without_notes"]}}

    def rest(done: Run) -> None:
        show("writing the page and its figures")
        write_report(done)
        write_atomically(folder / CHOICES, lambda file: file.write(text.encode()))

    run.finish(rest, notes=said, fitted=fitted)
    # What a stopped fit would need: whole models, some of which hold vectors of notes. The same command removes what a
    # stop leaves of it.
    shutil.rmtree(folder / SEARCH, ignore_errors=True)
    return ContextRun(folder, choices)


def _paths(options: dict[str, Any]) -> dict[str, Any]:
    return {key: str(value) if isinstance(value, Path) else value for key, value in options.items()}


def _to_progress(progress: bool | Progress) -> Progress:
    if callable(progress):
        return progress
    from cxrhf.audits.run import progress_line

    return progress_line() if progress else (lambda _: None)
