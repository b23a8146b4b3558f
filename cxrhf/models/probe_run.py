"""A build and frozen networks -> a run with what new layers read from them: SPLIT, and the reduction layer of SLICES.

    RUN/run.json  RUN/results.parquet  RUN/characteristics.parquet  RUN/probes/<name>/
    with findings: RUN/predictions.parquet   with --reduce: RUN/embeddings.parquet

Pictures go through each network once; the layers learn from its vectors, on the CPU of the first process. All backbones
see the same images and the same draws of patients, so that their results can be compared.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cxrhf.errors import ConfigError, RunError, did_you_mean
from cxrhf.metrics.catalogue import METRICS
from cxrhf.metrics.draws import Draws, draw
from cxrhf.metrics.estimates import mean_over
from cxrhf.metrics.intervals import UnitCount, count_units, interval
from cxrhf.metrics.operating import rates_at
from cxrhf.metrics.ranking import auroc
from cxrhf.metrics.resample import bootstrap_many
from cxrhf.models.predict import SAVED_MODEL_FILE, RunUpdate, saved_models
from cxrhf.models.settings import ProbeConfig
from cxrhf.models.train_run import check_packages, choose_splits, findings_of, open_images
from cxrhf.settings import to_mapping
from cxrhf.tables.folders import file_name

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from cxrhf.models.data import Images, Targets, Task
    from cxrhf.models.probe import Part, Probed

Progress = Callable[[str], None]
Floats = NDArray[np.float64]


LOOKED_AT_ONCE = 64  # images
# Settings that do not change what is found.
IGNORED_SETTINGS = ("build", "out", "overwrite", "workers", "device")
_FOLDS = (
    "{folds} folds: all images are test images, each scored by a probe trained on other patients. Intervals are too "
    "narrow because the probes share most of their training patients: with random labels on 621 real images, 29 of "
    "200 intervals excluded 0.5, against 10 of 200 for a probe trained on one half and tested on the other"
)


@dataclass(frozen=True, slots=True)
class ProbeStudy:
    """Images, what is asked of them, and who teaches whom."""

    images: Images
    tasks: list[Task]
    goal: Targets
    parts: list[Part]
    notes: list[str] = field(default_factory=list)

    @property
    def asked(self) -> NDArray[np.int64]:
        """Every row that some layer is asked about, in the order of the table."""
        import numpy as np

        return np.unique(np.concatenate([part.asked for part in self.parts]))


@dataclass(frozen=True, slots=True)
class BackboneResults:
    """What the layers of one backbone said: tables by name, RESULT rows, the layers, and what is told of them."""

    tables: dict[str, list[pa.Table]]
    results: list[dict[str, Any]] = field(default_factory=list)
    layers: list[tuple[str, Probed, dict[str, Any]]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def probe_run(config: ProbeConfig, show: Progress) -> RunUpdate | None:
    """Probe every backbone and write the run. None in processes that only help."""
    check_packages()
    from cxrhf.encode.processes import one_writer_of_all

    def join() -> object:
        from cxrhf.models.processes import make_accelerator

        return make_accelerator(device=config.device)

    out = Path(config.out) if config.out else Path("runs") / f"{Path(config.build).resolve().name}-probe"
    with one_writer_of_all(out, "probe", join):
        return _probe_held(config, out, show)


def _probe_held(config: ProbeConfig, out: Path, show: Progress) -> RunUpdate | None:
    from cxrhf.data.load import build_record
    from cxrhf.run import check_folder, fingerprint

    check_folder(out, overwrite=config.overwrite)
    check_reduce(config)
    build_record(config.build)
    from cxrhf.models.processes import make_accelerator

    sources = find_sources(config)
    inputs = [fingerprint(Path(config.build) / "build.json")]
    inputs += [fingerprint(each.folder / SAVED_MODEL_FILE) for each in sources if each.folder is not None]
    check_earlier(out, config, inputs)
    accelerator = make_accelerator(device=config.device)
    main = bool(accelerator.is_main_process)
    say: Progress = show if main else (lambda _: None)
    check_networks(sources, config)
    say(f"reading {config.build}")
    study = gather_study(config)
    found = probe_sources(study, sources, config, accelerator, say)
    if not main:
        return None
    notes = [*study.notes, *(note for each in found for note in each.notes)]
    write_probe(out, config, inputs, found, notes)
    return RunUpdate(out, [line for each in found for line in each.lines], notes)


def check_networks(sources: Sequence[Source], config: ProbeConfig) -> None:
    """Open the networks of all sources, so that the last one is not refused after hours with the others."""
    from cxrhf.encode.processes import call_first
    from cxrhf.models.probe import new_backbone, saved_backbone

    for source in sources:
        if source.folder is not None:
            saved_backbone(source.folder)
        else:
            call_first(partial(new_backbone, source.word, config.architecture, size=config.size, seed=config.seed))


def probe_sources(
    study: ProbeStudy, sources: list[Source], config: ProbeConfig, accelerator: Any, say: Progress
) -> list[BackboneResults]:
    """One after the other; in processes that only help, nothing is returned."""
    from cxrhf.encode.processes import call_first
    from cxrhf.models.data import open_squares
    from cxrhf.models.probe import new_backbone, saved_backbone
    from cxrhf.models.step import look_at

    found, kept = [], {}
    for source in sources:
        say(f"{source.name}: opening the network")
        if source.folder is not None:
            frozen = saved_backbone(source.folder)
        else:
            make = partial(new_backbone, source.word, config.architecture, size=config.size, seed=config.seed)
            frozen = call_first(make)  # what the first process fetches, the others find
        if frozen.look not in kept:  # backbones that look alike share pictures that are read once
            memory = 4.0 if len(sources) > 1 else 0.0
            kept = {frozen.look: open_squares(study.images, frozen.look, memory=memory, progress=say)}
        seen = look_at(
            frozen.model.to(accelerator.device), kept[frozen.look], len(study.images), accelerator,
            batch_size=LOOKED_AT_ONCE, workers=config.workers, vectors=True, progress=say, what=source.name,
        )  # fmt: skip
        if accelerator.is_main_process and seen.vectors is not None:
            found.append(probe_vectors(study, seen.vectors, source.name, frozen.facts, config, say))
    return found


def probe_vectors(
    study: ProbeStudy,
    vectors: NDArray[np.float32],
    name: str,
    facts: dict[str, Any],
    config: ProbeConfig,
    say: Progress,
) -> BackboneResults:
    """The layers of one backbone from its vectors, and with `reduce` those of the reduced one."""
    from cxrhf.models.data import task_columns
    from cxrhf.models.predict import embedding_rows, prediction_rows
    from cxrhf.models.probe import fit_probe

    out = BackboneResults({"predictions": [], "characteristics": [], "embeddings": []})
    plans: list[tuple[str, list[Task], Any, int | None]] = [(name, study.tasks, study.goal, None)]
    if config.reduce is not None:
        task, at = next((task, at) for task, at in task_columns(study.tasks) if task.name == "findings")
        plans.append((f"{name}-reduce{config.reduce}", [task], study.goal[:, at], config.reduce))
    rows = study.asked
    images = study.images.take(rows)
    for model, tasks, goal, reduce in plans:
        told: Progress = partial(_say_with_name, say, model)
        probed = fit_probe(vectors, study.images.ids, goal, tasks, study.parts, config, reduce=reduce, say=told)
        made = prediction_rows(images, tasks, probed.logits[rows], model=model, seed=config.seed)
        out.tables["predictions"].append(made[0])
        out.tables["characteristics"].append(made[1])
        if probed.activations is not None:
            only = tasks[0].outputs[0] if len(tasks[0].outputs) == 1 else None
            out.tables["embeddings"].append(embedding_rows(images, probed.activations[rows], model=model, finding=only))
        say(f"{model}: intervals")
        measured = measure_outputs(
            study.images.table, probed, goal, model=model, n_resamples=config.n_resamples, seed=config.seed,
            how=_method_text(config, reduce),
        )  # fmt: skip
        out.results.extend(measured.rows)
        out.lines.extend(measured.lines)
        out.notes.extend(f"{model}: {note}" for note in unfinished_notes(probed, config.epochs))
        out.layers.append((model, probed, {"name": model, "vectors": vectors.shape[1], **facts}))
    return out


def _say_with_name(say: Progress, model: str, text: str) -> None:
    say(f"{model}: {text}")


def unfinished_notes(probed: Probed, epochs: int) -> list[str]:
    """Layers whose last epoch was their best one could have read more."""
    notes = []
    for at, task in enumerate(probed.tasks):
        last = sum(layers[at].facts["best_epoch"] == epochs for layers in probed.layers)
        if last:
            where = f"{last} of {len(probed.layers)} layers" if len(probed.layers) > 1 else "the layer"
            notes.append(
                f"{task.name}: {where} still improved in the last of {epochs} epochs; more --epochs may improve further"
            )
    return notes


def gather_study(config: ProbeConfig) -> ProbeStudy:
    """The images of the build, its targets, and the parts that learn and are asked."""
    from cxrhf.models.probe import TEST, TRAIN, VALIDATE

    there = choose_splits(config.build, ["all"])
    wanted = there if config.folds is not None else [each for each in (TRAIN, VALIDATE, TEST) if each in there]
    images = open_images(config.build, wanted or there, labels=config.labels)
    return make_study(images, findings_of(config.build), config)


def make_study(images: Images, findings: list[str], config: ProbeConfig) -> ProbeStudy:
    """Images that are already open, their findings and settings -> what is learned from whom."""
    import numpy as np

    from cxrhf.models.data import Images, check_findings, make_tasks, targets, unique_ids
    from cxrhf.models.probe import TRAIN, fold_parts, keep_learnable_tasks, mark_all_test, split_parts

    unique_ids(images)
    check_findings(config.findings, findings)
    split = np.asarray(images.table["split"].to_pylist(), dtype=object)
    learning = np.arange(len(images)) if config.folds is not None else np.flatnonzero(split == TRAIN)
    nothing = np.empty((len(images), 0), dtype=np.int8)
    if config.folds is None:
        split_parts(images.table, nothing, config.seed)  # says now what is wrong with the splits
    tasks, notes = make_tasks(images.take(learning).table, config.targets, config.findings or findings)
    tasks, more = keep_learnable_tasks(images.table, tasks, targets(images.table, tasks), learning)
    if config.reduce is not None and all(task.name != "findings" for task in tasks):
        raise ConfigError(f"--reduce: no finding can be learned ({'; '.join([*notes, *more])})")
    goal = targets(images.table, tasks)
    if config.folds is None:
        parts, said = split_parts(images.table, goal, config.seed)
        return ProbeStudy(images, tasks, goal, parts, [*notes, *more, *said])
    parts = fold_parts(images.table, goal, config.folds, config.seed)
    images = Images(mark_all_test(images.table), images.pictures)
    return ProbeStudy(images, tasks, goal, parts, [*notes, *more, _FOLDS.format(folds=config.folds)])


def check_reduce(config: ProbeConfig) -> None:
    """A reduction layer is learned for findings, once."""
    if config.reduce is None:
        return
    if "findings" not in config.targets:
        raise ConfigError(
            "--reduce requires the target findings", got=", ".join(config.targets), next_step="--targets findings"
        )
    if config.folds is not None:
        raise ConfigError(
            "--reduce cannot be used with --folds: embeddings of different folds could not be compared",
            next_step="use a build with splits, without --folds",
        )


def check_earlier(out: Path, config: ProbeConfig, inputs: list[Any]) -> None:
    """A run with other settings or inputs is left alone, unless it is to be replaced."""
    from cxrhf.run import check_inputs, read_run

    if config.overwrite or not (out / "run.json").is_file():
        return
    record = read_run(out).record
    if record.get("verb") != "probe":
        raise RunError(
            f"{out} holds a run of cxrhf {record.get('verb')}", next_step="pass another --out, or --overwrite"
        )
    check_inputs(out, inputs, overwrite=False)
    before, now = record.get("config", {}), _settings(config)
    changed = [name for name in now if name in before and before[name] != now[name]]
    if changed:
        raise RunError(
            f"{out} holds a probe with other settings "
            f"({'; '.join(f'{name} was {before[name]}, is {now[name]}' for name in changed[:4])})",
            next_step="pass another --out, or --overwrite",
        )


def write_probe(
    out: Path, config: ProbeConfig, inputs: list[Any], found: list[BackboneResults], notes: list[str]
) -> None:
    """The whole run; what an earlier probe left in the folder is replaced."""
    import pyarrow as pa

    from cxrhf.models.probe import save_probe
    from cxrhf.run import clear_run, open_run
    from cxrhf.schema import RESULT
    from cxrhf.tables.checks import table_of

    if (out / "run.json").is_file():
        clear_run(out)
        shutil.rmtree(out / "probes", ignore_errors=True)
    run = open_run(out, verb="probe", config=_settings(config, aside=()), inputs=inputs, overwrite=config.overwrite)
    run.record["tables"] = {}
    for name in ("predictions", "characteristics", "embeddings"):
        tables = [table for each in found for table in each.tables[name] if table.num_rows]
        if tables:
            run.add(name, pa.concat_tables(tables))
    run.add("results", table_of([row for each in found for row in each.results], RESULT))
    for each in found:
        for model, probed, facts in each.layers:
            save_probe(out / "probes" / slug(model), probed, facts)
    run.finish(notes=notes, probes=[slug(model) for each in found for model, _, _ in each.layers])


def _settings(config: ProbeConfig, aside: Sequence[str] = IGNORED_SETTINGS) -> dict[str, Any]:
    """As run.json has them: no path of this machine, also not behind a name."""
    from cxrhf.run import public, public_path

    kept = {name: each for name, each in to_mapping(config).items() if name not in aside}
    kept["backbones"] = [
        f"{each.name}={each.word if each.folder is None else public_path(each.word)}" for each in find_sources(config)
    ]
    values: dict[str, Any] = json.loads(json.dumps(public(kept)))
    return values


def _method_text(config: ProbeConfig, reduce: int | None) -> str:
    layer = "linear layer" if reduce is None else f"{reduce} sigmoids and a linear layer"
    return f"{layer} on a frozen network" + (f", {config.folds} folds of patients" if config.folds is not None else "")


# Backbones as a user names them -> new weights or folders of saved networks, each under a name of its own.

NEW = ("imagenet", "random")


@dataclass(frozen=True, slots=True)
class Source:
    """A backbone as it was asked for; `folder` is None for new weights."""

    name: str
    word: str
    folder: Path | None = None


def find_sources(config: ProbeConfig) -> list[Source]:
    """Each backbone with its name and folder; nothing is loaded yet."""
    sources = [_source(text) for text in config.backbones]
    for at, each in enumerate(sources):
        if (same := slug(each.name)) in [slug(other.name) for other in sources[:at]]:
            raise ConfigError(
                "--backbones: two have the same name",
                got=same,
                next_step=f"rename one, for example --backbones other={each.word}",
            )
    return sources


def _source(text: str) -> Source:
    name, equals, word = text.partition("=")
    if not equals or Path(text).exists():
        name, word = "", text
    elif not name.strip() or not word.strip():
        raise ConfigError("--backbones", got=text, allowed="NAME=SOURCE")
    name, word = name.strip(), word.strip()
    if name and not slug(name):
        raise ConfigError("--backbones", got=name, allowed="a name with a letter or digit")
    if word in NEW:
        return Source(name or word, word)
    folder = Path(word).expanduser()
    if not folder.is_dir():
        beside = [str(each) for each in folder.parent.glob("*") if each.is_dir()] if folder.parent.is_dir() else []
        raise ConfigError(
            "--backbones",
            got=word,
            allowed=f"{', '.join(NEW)}, a run of cxrhf train or a model folder",
            next_step=did_you_mean(word, [*NEW, *beside]) or "cxrhf train BUILD --out RUN",
        )
    from cxrhf.models.saved import read_about

    saved = saved_models(folder)[0]  # of a run, that of the first seed
    about = read_about(saved)
    own = str(about.get("name") or folder.name)
    if saved == folder and about.get("seed") is not None:
        own = f"{own}-seed-{about['seed']}"
    return Source(name or own, word, saved)


def slug(name: str) -> str:
    """A name that can be a folder.

    >>> slug("White only, seed 3")
    'white-only-seed-3'
    """
    return file_name(re.sub(r"[^\w.+-]+", "-", name.lower()).strip(".-"))


# What new layers say of test images -> RESULT rows with intervals by patient, and the lines that are printed of them.
#
# Audit `split`. A class is measured against the rest (`race=Black`), two classes once (`sex=F`: `sex=M` is its
# mirror); the mean over the classes of a target stands under the target's name (`race`), that over findings under
# `macro`. `tpr`, `fpr` and `j` are at the threshold with the largest J on the images that stopped the layer, and hold
# it fixed. To read a characteristic is neither good nor bad, so `higher_is_better` is null for it.

AUDIT = "split"
RATES = ("tpr", "fpr", "j")
_AT = "at the threshold with the largest TPR - FPR on the early-stopping images"


class MeasuredOutputs(NamedTuple):
    """RESULT rows as mappings, and a line for each output."""

    rows: list[dict[str, Any]]
    lines: list[str]


class _Output(NamedTuple):
    """One output: labels (NaN = unknown), metrics, their replicates, and the patients behind them."""

    name: str
    y: Floats
    values: dict[str, float]
    drawn: dict[str, Floats]
    units: UnitCount


def measure_outputs(
    table: pa.Table, probed: Probed, goal: Targets, *, model: str, n_resamples: int, seed: int, how: str
) -> MeasuredOutputs:
    """Every output on the rows of the split test. `how` says how the layers were learned."""
    from cxrhf.models.data import task_columns
    from cxrhf.models.probe import is_test, patients_of, probabilities

    at = np.flatnonzero(is_test(table) & ~np.isnan(probed.logits).any(axis=1))
    patients = patients_of(table)[at]
    datasets = table["dataset"].unique().to_pylist() if "dataset" in table.column_names else []
    prob = probabilities(probed.logits[at], probed.tasks)
    calls = np.where(np.isnan(probed.thresholds[at]), np.nan, prob >= probed.thresholds[at])
    y = np.where(goal[at] < 0, np.nan, goal[at].astype(np.float64))
    shared = {
        "audit": AUDIT, "dataset": datasets[0] if len(datasets) == 1 else None, "model": model, "slice": "all",
        "seed": seed,
    }  # fmt: skip
    rows, lines = [], []
    for task, place in task_columns(probed.tasks):
        outputs = _outputs(task, y[:, place], prob[:, place], calls[:, place], patients, n_resamples, seed)
        for each in outputs:
            made = [_row(task, each, name, patients, how) for name in ("auroc", *RATES)]
            rows += [shared | row for row in made]
            lines.append(f"{model}: {_line(made)}")
        if len(outputs) > 1:
            mean = _mean(task, outputs, patients, how)
            rows.append(shared | mean)
            lines.append(f"{model}: {mean['finding']}, {mean['note']}: AUROC {_format_value(mean)}")
    return MeasuredOutputs(rows, lines)


def _outputs(
    task: Task, y: Floats, prob: Floats, calls: Floats, patients: NDArray[np.str_], n_resamples: int, seed: int
) -> list[_Output]:
    measured = range(1 if task.kind == "classes" and len(task.outputs) == 2 else len(task.outputs))
    # One draw of patients for all outputs of a task, and the same for every backbone: differences are paired.
    draws = draw(patients, y=y[:, : len(measured)], n_resamples=n_resamples, seed=seed)
    return [
        _output(
            task.outputs[k] if task.kind == "labels" else f"{task.name}={task.outputs[k]}",
            y[:, k], prob[:, k], calls[:, k], patients, draws,
        )
        for k in measured
    ]  # fmt: skip


def _output(name: str, y: Floats, p: Floats, calls: Floats, patients: NDArray[np.str_], draws: Draws) -> _Output:
    there = ~np.isnan(y)
    values = {"auroc": auroc(y[there], p[there])}
    drawn = bootstrap_many({"auroc": {}}, y, p, draws=draws)
    if np.isnan(calls[there]).any() or not there.any():
        values |= dict.fromkeys(RATES, np.nan)
    else:
        reached = rates_at(y[there], calls[there], 0.5)
        values |= {rate: getattr(reached, rate) for rate in RATES}
        drawn |= bootstrap_many({rate: {"threshold": 0.5} for rate in RATES}, y, np.nan_to_num(calls), draws=draws)
    return _Output(name, y, values, drawn, count_units(y, patients))


def _row(task: Task, output: _Output, metric: str, patients: NDArray[np.str_], how: str) -> dict[str, Any]:
    value = output.values[metric]
    row = _common(task, metric, output.name, value, output.drawn.get(metric), output.units, how)
    there = ~np.isnan(output.y)
    row |= {"n": int(there.sum()), "n_pos": int((output.y == 1).sum()), "n_patients": len(np.unique(patients[there]))}
    if np.isnan(value):
        lacking = [side for side, label in (("with it", 1), ("without it", 0)) if not (output.y == label).any()]
        why = f"no test image {lacking[0]}" if lacking else "the early-stopping images lack a class"
        return row | {"note": f"{metric} is undefined: {why}"}
    return row | {"note": _AT if metric in RATES else None}


def _mean(task: Task, outputs: list[_Output], patients: NDArray[np.str_], how: str) -> dict[str, Any]:
    """The unweighted mean AUROC over outputs that have one."""
    defined = [each for each in outputs if np.isfinite(each.values["auroc"])]
    what = "findings" if task.kind == "labels" else "classes, one against the rest"
    name = "macro" if task.kind == "labels" else task.name
    there = ~np.isnan(np.stack([each.y for each in outputs])).all(axis=0)
    counts = {"n": int(there.sum()), "n_pos": None, "n_patients": len(np.unique(patients[there]))}
    if not defined:
        row = _common(task, "auroc", name, np.nan, None, None, how)
        return row | counts | {"note": f"undefined for all {len(outputs)} {what}"}
    mean = mean_over([each.drawn["auroc"] for each in defined], [each.units for each in defined])
    value = float(np.mean([each.values["auroc"] for each in defined]))
    row = _common(task, "auroc", name, value, mean.replicates, mean.units, how)
    of = f"{len(defined)} of {len(outputs)}" if len(defined) < len(outputs) else f"{len(outputs)}"
    return row | counts | {"note": f"mean of {of} {what}"}


def _common(
    task: Task, metric: str, finding: str, value: float, drawn: Floats | None, units: UnitCount | None, how: str
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "metric": metric, "finding": finding, "value": value, "ci_low": np.nan, "ci_high": np.nan, "method": how,
        "higher_is_better": METRICS[metric].higher_is_better if task.kind == "labels" else None,
    }  # fmt: skip
    if drawn is None or np.isnan(value):
        return row
    found = interval(value, drawn, units=units, metric=metric)
    return row | {
        "ci_low": found.low, "ci_high": found.high, "method": f"{how}; 0.95 {found.method}, patients resampled",
    }  # fmt: skip


def _line(rows: list[dict[str, Any]]) -> str:
    """One output in a line."""
    first = rows[0]
    by = {row["metric"]: row["value"] for row in rows}
    counted = f"{first['n']:,} images, {first['n_patients']:,} patients"
    if np.isnan(first["value"]):
        return f"{first['finding']}: {first['note']} ({counted})"
    rates = f"; sensitivity {by['tpr']:.3f}, specificity {1 - by['fpr']:.3f}" if np.isfinite(by["j"]) else ""
    return f"{first['finding']}: AUROC {_format_value(first)}{rates} ({counted})"


def _format_value(row: dict[str, Any]) -> str:
    if np.isnan(row["value"]):
        return "undefined"
    ends = f" ({row['ci_low']:.3f} to {row['ci_high']:.3f})" if np.isfinite(row["ci_low"]) else " (no interval)"
    return f"{row['value']:.3f}{ends}"
