"""A build and frozen networks -> a run with what new layers read from them: SPLIT, and the reduction layer of SLICES.

    RUN/run.json  RUN/results.parquet  RUN/characteristics.parquet  RUN/probes/<name>/
    with findings: RUN/predictions.parquet   with --reduce: RUN/embeddings.parquet

Pictures go through each network once; the layers learn from its vectors, on the CPU of the first process. All backbones
see the same images and the same draws of patients, so that their results can be compared.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrhf.config import to_mapping
from cxrhf.config_models import ProbeConfig
from cxrhf.errors import ConfigError, RunError
from cxrhf.imaging.opened import check_packages, findings_of, open_images, splits_there
from cxrhf.imaging.predicting import SAVED, Written
from cxrhf.imaging.sources import Source, find_sources, slug

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from cxrhf.models.images import Images
    from cxrhf.models.probe import Probed
    from cxrhf.models.probe_parts import Part
    from cxrhf.models.tasks import Targets, Task

Progress = Callable[[str], None]
LOOKED_AT_ONCE = 64  # images
# Settings that do not change what is found.
ASIDE = ("build", "out", "overwrite", "workers", "device")
_FOLDS = (
    "{folds} folds: all images are test images, each scored by a probe trained on other patients. Intervals are too "
    "narrow because the probes share most of their training patients: with random labels on 621 real images, 29 of "
    "200 intervals excluded 0.5, against 10 of 200 for a probe trained on one half and tested on the other"
)


@dataclass(frozen=True, slots=True)
class Study:
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
class Found:
    """What the layers of one backbone said: tables by name, RESULT rows, the layers, and what is told of them."""

    tables: dict[str, list[pa.Table]]
    results: list[dict[str, Any]] = field(default_factory=list)
    layers: list[tuple[str, Probed, dict[str, Any]]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def probe_run(config: ProbeConfig, show: Progress) -> Written | None:
    """Probe every backbone and write the run. None in processes that only help."""
    check_packages()
    from cxrhf.encode.processes import one_writer_of_all

    def join() -> object:
        from cxrhf.models.processes import make_accelerator

        return make_accelerator(device=config.device)

    out = Path(config.out) if config.out else Path("runs") / f"{Path(config.build).resolve().name}-probe"
    with one_writer_of_all(out, "probe", join):
        return _probed(config, out, show)


def _probed(config: ProbeConfig, out: Path, show: Progress) -> Written | None:
    from cxrhf.data.load import build_record
    from cxrhf.run import check_folder, fingerprint

    check_folder(out, overwrite=config.overwrite)
    check_reduce(config)
    build_record(config.build)
    from cxrhf.models.processes import make_accelerator  # torch, which takes seconds

    sources = find_sources(config)
    inputs = [fingerprint(Path(config.build) / "build.json")]
    inputs += [fingerprint(each.folder / SAVED) for each in sources if each.folder is not None]
    check_earlier(out, config, inputs)
    accelerator = make_accelerator(device=config.device)
    main = bool(accelerator.is_main_process)
    say: Progress = show if main else (lambda _: None)
    check_networks(sources, config)
    say(f"reading {config.build}")
    study = gather(config)
    found = probe_sources(study, sources, config, accelerator, say)
    if not main:
        return None
    notes = [*study.notes, *(note for each in found for note in each.notes)]
    write(out, config, inputs, found, notes)
    return Written(out, [line for each in found for line in each.lines], notes)


def check_networks(sources: Sequence[Source], config: ProbeConfig) -> None:
    """Open the networks of all sources, so that the last one is not refused after hours with the others."""
    from cxrhf.encode.processes import first
    from cxrhf.models.probe_backbone import new_backbone, saved_backbone

    for source in sources:
        if source.folder is not None:
            saved_backbone(source.folder)
        else:
            first(partial(new_backbone, source.word, config.architecture, size=config.size, seed=config.seed))


def probe_sources(
    study: Study, sources: list[Source], config: ProbeConfig, accelerator: Any, say: Progress
) -> list[Found]:
    """One after the other; in processes that only help, nothing is returned."""
    from cxrhf.encode.processes import first
    from cxrhf.models.forward import look_at
    from cxrhf.models.loader import open_squares
    from cxrhf.models.probe_backbone import new_backbone, saved_backbone

    found, kept = [], {}
    for source in sources:
        say(f"{source.name}: opening the network")
        if source.folder is not None:
            frozen = saved_backbone(source.folder)
        else:
            make = partial(new_backbone, source.word, config.architecture, size=config.size, seed=config.seed)
            frozen = first(make)  # what the first process fetches, the others find
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
    study: Study, vectors: NDArray[np.float32], name: str, facts: dict[str, Any], config: ProbeConfig, say: Progress
) -> Found:
    """The layers of one backbone from its vectors, and with `reduce` those of the reduced one."""
    from cxrhf.models.probe import probe
    from cxrhf.models.probe_results import measure
    from cxrhf.models.rows import embedding_rows, prediction_rows
    from cxrhf.models.tasks import columns

    out = Found({"predictions": [], "characteristics": [], "embeddings": []})
    plans: list[tuple[str, list[Task], Any, int | None]] = [(name, study.tasks, study.goal, None)]
    if config.reduce is not None:
        task, at = next((task, at) for task, at in columns(study.tasks) if task.name == "findings")
        plans.append((f"{name}-reduce{config.reduce}", [task], study.goal[:, at], config.reduce))
    rows = study.asked
    images = study.images.take(rows)
    for model, tasks, goal, reduce in plans:
        told: Progress = partial(_named, say, model)
        probed = probe(vectors, study.images.ids, goal, tasks, study.parts, config, reduce=reduce, say=told)
        made = prediction_rows(images, tasks, probed.logits[rows], model=model, seed=config.seed)
        out.tables["predictions"].append(made[0])
        out.tables["characteristics"].append(made[1])
        if probed.activations is not None:
            only = tasks[0].outputs[0] if len(tasks[0].outputs) == 1 else None
            out.tables["embeddings"].append(embedding_rows(images, probed.activations[rows], model=model, finding=only))
        say(f"{model}: intervals")
        measured = measure(
            study.images.table, probed, goal, model=model, n_resamples=config.n_resamples, seed=config.seed,
            how=_how(config, reduce),
        )  # fmt: skip
        out.results.extend(measured.rows)
        out.lines.extend(measured.lines)
        out.notes.extend(f"{model}: {note}" for note in unfinished(probed, config.epochs))
        out.layers.append((model, probed, {"name": model, "vectors": vectors.shape[1], **facts}))
    return out


def _named(say: Progress, model: str, text: str) -> None:
    say(f"{model}: {text}")


def unfinished(probed: Probed, epochs: int) -> list[str]:
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


def gather(config: ProbeConfig) -> Study:
    """The images of the build, its targets, and the parts that learn and are asked."""
    from cxrhf.models.probe_parts import TEST, TRAIN, VALIDATE

    there = splits_there(config.build, ["all"])
    wanted = there if config.folds is not None else [each for each in (TRAIN, VALIDATE, TEST) if each in there]
    images = open_images(config.build, wanted or there, labels=config.labels)
    return study_of(images, findings_of(config.build), config)


def study_of(images: Images, findings: list[str], config: ProbeConfig) -> Study:
    """Images that are already open, their findings and settings -> what is learned from whom."""
    import numpy as np

    from cxrhf.models.images import Images, unique_ids
    from cxrhf.models.probe_parts import TRAIN, all_asked, enough, fold_parts, split_parts
    from cxrhf.models.tasks import check_findings, make_tasks, targets

    unique_ids(images)
    check_findings(config.findings, findings)
    split = np.asarray(images.table["split"].to_pylist(), dtype=object)
    learning = np.arange(len(images)) if config.folds is not None else np.flatnonzero(split == TRAIN)
    nothing = np.empty((len(images), 0), dtype=np.int8)
    if config.folds is None:
        split_parts(images.table, nothing, config.seed)  # says now what is wrong with the splits
    tasks, notes = make_tasks(images.take(learning).table, config.targets, config.findings or findings)
    tasks, more = enough(images.table, tasks, targets(images.table, tasks), learning)
    if config.reduce is not None and all(task.name != "findings" for task in tasks):
        raise ConfigError(f"--reduce: no finding can be learned ({'; '.join([*notes, *more])})")
    goal = targets(images.table, tasks)
    if config.folds is None:
        parts, said = split_parts(images.table, goal, config.seed)
        return Study(images, tasks, goal, parts, [*notes, *more, *said])
    parts = fold_parts(images.table, goal, config.folds, config.seed)
    images = Images(all_asked(images.table), images.pictures)
    return Study(images, tasks, goal, parts, [*notes, *more, _FOLDS.format(folds=config.folds)])


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


def write(out: Path, config: ProbeConfig, inputs: list[Any], found: list[Found], notes: list[str]) -> None:
    """The whole run; what an earlier probe left in the folder is replaced."""
    import pyarrow as pa

    from cxrhf.models.probe_files import save_probe
    from cxrhf.run import clear_run, open_run
    from cxrhf.schema import RESULT, table_of

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


def _settings(config: ProbeConfig, aside: Sequence[str] = ASIDE) -> dict[str, Any]:
    """As run.json has them: no path of this machine, also not behind a name."""
    from cxrhf.run import public, public_path

    kept = {name: each for name, each in to_mapping(config).items() if name not in aside}
    kept["backbones"] = [
        f"{each.name}={each.word if each.folder is None else public_path(each.word)}" for each in find_sources(config)
    ]
    values: dict[str, Any] = json.loads(json.dumps(public(kept)))
    return values


def _how(config: ProbeConfig, reduce: int | None) -> str:
    layer = "linear layer" if reduce is None else f"{reduce} sigmoids and a linear layer"
    return f"{layer} on a frozen network" + (f", {config.folds} folds of patients" if config.folds is not None else "")
