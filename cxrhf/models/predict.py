"""A trained run or a saved model, and a build -> PREDICTION and EMBEDDING rows, added to a run folder.

Rows of the same model, seed, dataset and split are replaced; all others in the folder stay. Several processes that
accelerate launch or torchrun started share the images; the first one writes.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax

from cxrhf.errors import ConfigError, RunError
from cxrhf.models.settings import EmbedConfig, LookConfig, PredictConfig, seed_list
from cxrhf.models.train_run import check_packages, choose_splits, open_images
from cxrhf.schema import EMBEDDING, PREDICTION
from cxrhf.settings import to_mapping
from cxrhf.tables.checks import check
from cxrhf.tables.folders import describe_path, free_folder_name, suggest_folder

if TYPE_CHECKING:
    from cxrhf.models.data import Images, Task

Progress = Callable[[str], None]


SAVED_MODEL_FILE = "cxrhf.json"
KEY_COLUMNS = ("model", "seed", "dataset", "split", "finding")


@dataclass(frozen=True, slots=True)
class PredictionPlace:
    """Folders of saved models, the build whose images they look at, and where the rows go."""

    models: list[Path]
    build: Path
    out: Path
    own: bool  # the build that the models were trained on


@dataclass(frozen=True, slots=True)
class RunUpdate:
    """What was added to a run folder."""

    path: Path
    lines: list[str]
    notes: list[str] = field(default_factory=list)


def predict_run(config: PredictConfig, show: Progress) -> RunUpdate | None:
    """Predictions of every seed. None in processes that only help."""
    check_packages()
    place = find_prediction_place(config, "predict")  # before torch is loaded, which takes seconds
    with hold_run(config, place, "predict"):
        check_place(config, place, ("predictions", "characteristics"))
        return _predict_held(config, place, show)


def _predict_held(config: PredictConfig, place: PredictionPlace, show: Progress) -> RunUpdate | None:
    import pyarrow as pa

    lines: list[str] = []
    notes: list[str] = []
    findings, characteristics = [], []
    for folder, about, tasks, images, seen, main in looked(config, place, show, vectors=False):
        if not main:
            continue
        rows = prediction_rows(images, tasks, seen.logits, model=about["name"], seed=about["seed"])
        probabilities, how, said = (rows, "raw", []) if config.raw else with_calibration(folder, rows)
        findings.append(probabilities[0])
        characteristics.append(probabilities[1])
        lines.append(f"{about['name']}, seed {about['seed']}: {len(images):,} images, probabilities {how}")
        notes += said
        if place.own and "train" in images.table["split"].unique().to_pylist():
            notes.append("the split train holds images that the model was trained on")
    if not findings:
        return None
    tables = {"predictions": pa.concat_tables(findings), "characteristics": pa.concat_tables(characteristics)}
    add_tables(config, place, {name: (table, KEY_COLUMNS) for name, table in tables.items() if table.num_rows})
    return RunUpdate(place.out, lines, list(dict.fromkeys(notes)))


def embed_run(config: EmbedConfig, show: Progress) -> RunUpdate | None:
    """Vectors of every seed, and the rows of their images, so that audits know who is in the picture."""
    check_packages()
    place = find_prediction_place(config, "embed")
    with hold_run(config, place, "embed"):
        check_place(config, place, ("embeddings", "images"))
        return _embed_held(config, place, show)


def _embed_held(config: EmbedConfig, place: PredictionPlace, show: Progress) -> RunUpdate | None:
    import pyarrow as pa

    lines: list[str] = []
    tables: list[pa.Table] = []
    for _, about, _, images, seen, main in looked(config, place, show, vectors=True):
        if not main:
            continue
        if not tables:
            rows = images.table
        tables.append(embedding_rows(images, seen.vectors, model=about["name"], seed=about["seed"]))
        lines.append(
            f"{about['name']}, seed {about['seed']}: {len(images):,} images, {seen.vectors.shape[1]:,} numbers each"
        )
    if not tables:
        return None
    made = {
        "embeddings": (pa.concat_tables(tables), ("model", "seed", "finding", "image_id")),
        "images": (rows, ("image_id",)),
    }
    add_tables(config, place, made)
    return RunUpdate(place.out, lines)


def hold_run(config: LookConfig, place: PredictionPlace, verb: str) -> AbstractContextManager[None]:
    """The run that the rows go to, held for this verb; by the first process for all of a launch."""
    from cxrhf.encode.processes import one_writer_of_all

    def join() -> object:
        from cxrhf.models.processes import make_accelerator

        return make_accelerator(device=config.device, precision=config.precision)

    return one_writer_of_all(place.out, verb, join)


def looked(
    config: LookConfig, place: PredictionPlace, show: Progress, *, vectors: bool
) -> Iterator[tuple[Path, dict[str, Any], Any, Images, Any, bool]]:
    """Each saved model with what it makes of the images."""
    from cxrhf.models.data import look_from_facts, open_squares
    from cxrhf.models.processes import make_accelerator
    from cxrhf.models.saved import load_saved
    from cxrhf.models.step import look_at

    chosen = choose_splits(place.build, config.splits, all_of=config.splits not in (("validate", "test"), ("test",)))
    accelerator = make_accelerator(device=config.device, precision=config.precision)
    main = bool(accelerator.is_main_process)
    say: Progress = show if main else (lambda _: None)
    images: Images | None = None
    kept: dict[Any, Any] = {}
    for folder in place.models[1:]:  # before the first picture is read
        _tasks(folder, load_saved(folder)[1])
    for folder in place.models:
        model, about = load_saved(folder)
        tasks = _tasks(folder, about)
        if images is None:
            # On its own build a model is judged by the labels it learned from.
            own = (about.get("settings") or {}).get("labels") if place.own else None
            images = open_images(place.build, chosen, labels=config.labels or own)
        look = look_from_facts(about["look"])
        if look not in kept:  # seeds of one run look alike: pictures are read once
            memory = 4.0 if len(place.models) > 1 else 0.0
            kept = {look: open_squares(images, look, memory=memory, progress=say)}
        model.to(accelerator.device)
        seen = look_at(
            model, kept[look], len(images), accelerator, batch_size=config.batch_size, workers=config.workers,
            vectors=vectors, progress=say, what=f"{about['name']}, seed {about['seed']}",
        )  # fmt: skip
        yield folder, about, tasks, images, seen, main


def _tasks(folder: Path, about: dict[str, Any]) -> list[Task]:
    """What the outputs of a saved network are; an error where cxrhf.json does not say it as `cxrhf train` does."""
    from cxrhf.models.data import from_json

    tasks: list[Task] = []
    with contextlib.suppress(LookupError, TypeError, ValueError):
        tasks = from_json(about["tasks"])
    plain = {"name": (str,), "seed": (int, type(None)), "settings": (dict, type(None))}
    if not tasks or not all(type(about.get(name)) in kinds for name, kinds in plain.items()):
        raise RunError(f"{folder / SAVED_MODEL_FILE} is damaged", next_step="copy it again, or train again")
    return tasks


def with_calibration(folder: Path, rows: tuple[pa.Table, pa.Table]) -> tuple[tuple[pa.Table, pa.Table], str, list[str]]:
    """Probabilities by the calibration that lies beside the model, if there is one; how, and what stays raw."""
    import warnings

    from cxrhf.errors import CxrhfWarning
    from cxrhf.models.calibration import apply_calibration, read_calibration

    calibration = read_calibration(folder)
    if calibration is None:
        return rows, "not calibrated (cxrhf calibrate)", []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", CxrhfWarning)
        done = tuple(apply_calibration(each, calibration) if each.num_rows else each for each in rows)
    how = f"calibrated by {calibration.method}" if calibration.fitted else "not calibrated: no finding could be fitted"
    return (done[0], done[1]), how, [str(each.message) for each in said]


def find_prediction_place(config: LookConfig, verb: str) -> PredictionPlace:
    """Which models, which images, where to. `verb`: the command that asks."""
    from cxrhf.run import check_folder

    folder = Path(config.run)
    models = saved_models(folder, None if config.seeds is None else seed_list(config.seeds))
    recorded = recorded_build(folder)
    build = Path(config.build) if config.build is not None else recorded
    if build is None:
        raise ConfigError(
            f"the build with the images of {folder} was not found",
            next_step=f"name the build: cxrhf {verb} {shlex.quote(str(folder))} --build BUILD",
        )
    own = was_trained_on(folder, build)
    out = Path(config.out) if config.out is not None else folder
    if config.out is None and (not own or folder.parent.name == "models"):
        out = Path("runs") / f"{folder.resolve().name}-on-{build.resolve().name}"
    check_folder(out, overwrite=config.overwrite)
    return PredictionPlace(models, build, out, own)


def saved_models(folder: Path, seeds: Sequence[int] | None = None) -> list[Path]:
    """The saved models of a run by seed, or the one folder that was named."""
    if (folder / SAVED_MODEL_FILE).is_file():
        return [folder]
    found = {int(path.parent.name[5:]): path.parent for path in folder.glob(f"models/seed-*/{SAVED_MODEL_FILE}")}
    if not found:
        going = folder / "checkpoints"
        what = "is not finished; the same command resumes it" if going.is_dir() else "holds no trained model"
        out = shlex.quote(str(folder)) if going.is_dir() else free_folder_name(folder, "runs/network")
        how = f"cxrhf train BUILD --out {out}"
        got = None if going.is_dir() else describe_path(folder)
        raise RunError(
            f"{folder} {what}", got=got, next_step=suggest_folder(folder, f"models/seed-*/{SAVED_MODEL_FILE}") or how
        )
    wanted = sorted(found) if seeds is None else list(seeds)
    for seed in wanted:
        if seed not in found:
            raise RunError(
                f"{folder}, seed of a model", got=seed, allowed=", ".join(map(str, sorted(found))),
                next_step=f"cxrhf train BUILD --out {folder} --seeds {seed}",
            )  # fmt: skip
    return [found[seed] for seed in wanted]


def _record(folder: Path) -> dict[str, Any]:
    from cxrhf.run import record_of

    for each in (folder, folder.parent.parent):  # RUN, or RUN/models/seed-0
        if (each / "run.json").is_file():
            return record_of(each, "train")
    return {}


def recorded_build(folder: Path) -> Path | None:
    """The build that a run was trained on, if it still lies where it lay."""
    path = _record(folder).get("config", {}).get("build")
    return Path(path) if path and (Path(path) / "build.json").is_file() and was_trained_on(folder, Path(path)) else None


def was_trained_on(folder: Path, build: Path) -> bool:
    """Whether a run was made from this very build."""
    from cxrhf.data.load import build_record
    from cxrhf.run import fingerprint

    build_record(build)
    digests = [each.get("sha256") for each in _record(folder).get("inputs", [])]
    return fingerprint(build / "build.json").sha256 in digests


def check_place(config: LookConfig, place: PredictionPlace, tables: Sequence[str]) -> None:
    """Refuse, before the first picture is read, what would only be met when all have been looked at.

    A run made from other inputs, tables of it that cannot be read, calibrations that cannot be applied.
    """
    from cxrhf.models.calibration import read_calibration
    from cxrhf.schema import TABLES
    from cxrhf.tables.files import read_table

    if _goes_on(config, place):
        for name in tables:
            if (path := place.out / f"{name}.parquet").is_file():
                read_table(path, TABLES[name])
    for folder in place.models:
        read_calibration(folder)


def _goes_on(config: LookConfig, place: PredictionPlace) -> bool:
    """Whether rows are added to a run that is there; one made from other inputs is an error."""
    from cxrhf.run import fingerprint, read_run

    if config.overwrite or not (place.out / "run.json").is_file():
        return False
    inputs = [fingerprint(place.models[0] / SAVED_MODEL_FILE), fingerprint(place.build / "build.json")]
    record = read_run(place.out).record
    known = [record.get("inputs"), *(each.get("inputs") for each in record.get("earlier", {}).values())]
    if place.out.resolve() != Path(config.run).resolve() and [asdict(each) for each in inputs] not in known:
        raise RunError(f"{place.out} holds a run with other inputs", next_step="pass another --out, or --overwrite")
    return True


def add_tables(
    config: LookConfig, place: PredictionPlace, tables: Mapping[str, tuple[pa.Table, Sequence[str]]]
) -> None:
    """Write tables into the run, each with the rows that were there of others (`by` model, seed, split ...).

    All are put together before the first is written.
    """
    from cxrhf.run import fingerprint, open_run, reopen_run
    from cxrhf.schema import TABLES
    from cxrhf.tables.checks import check
    from cxrhf.tables.files import read_table

    run = None
    if not _goes_on(config, place):
        inputs = [fingerprint(place.models[0] / SAVED_MODEL_FILE), fingerprint(place.build / "build.json")]
        verb = "embed" if isinstance(config, EmbedConfig) else "predict"
        run = open_run(place.out, verb=verb, config=to_mapping(config), inputs=inputs, overwrite=config.overwrite)
    whole = {}
    for name, (table, by) in tables.items():
        path = place.out / f"{name}.parquet"
        there = read_table(path, TABLES[name]) if path.is_file() else None
        whole[name] = merge_rows(check(table, TABLES[name], source=name), there, by)
    run = run or reopen_run(place.out)
    for name, table in whole.items():
        run.add(name, table)
    run.finish()


# Logits and vectors of a network -> PREDICTION and EMBEDDING rows of its images.

_OF_IMAGE = ("image_id", "study_id", "patient_id", "dataset", "split", "age", "sex", "race", "view")


def prediction_rows(
    images: Images, tasks: Sequence[Task], logits: NDArray[np.floating], *, model: str, seed: int | None
) -> tuple[pa.Table, pa.Table]:
    """Rows of findings, and rows of characteristics (`sex=F`), an image x output each; labels null where unknown.

    The logit of a class is the logarithm of its probability among the classes of its task: it ranks images as that
    does, and is what a temperature divides.
    """
    from cxrhf.models.data import targets, task_columns

    goal = targets(images.table, tasks)
    findings: list[pa.Table] = []
    characteristics: list[pa.Table] = []
    for task, at in task_columns(tasks):
        z = np.asarray(logits[:, at], dtype=np.float64)
        logit, prob = (z, expit(z)) if task.kind == "labels" else (log_softmax(z, axis=1), softmax(z, axis=1))
        for k, output in enumerate(task.outputs):
            label = goal[:, at.start + k]
            rows = _rows(images, output if task.kind == "labels" else f"{task.name}={output}", model, seed)
            rows |= {
                "label": pa.array(label, pa.int8(), mask=label < 0),
                "prob": prob[:, k],
                "logit": logit[:, k],
            }
            (findings if task.kind == "labels" else characteristics).append(pa.table(rows))
    return _joined(findings), _joined(characteristics)


def embedding_rows(
    images: Images, vectors: NDArray[np.float32], *, model: str, seed: int | None = None, finding: str | None = None
) -> pa.Table:
    """One row an image; `finding` None is the penultimate layer."""
    n, width = vectors.shape
    flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).ravel())
    starts = pa.array(np.arange(n + 1, dtype=np.int32) * width) if n * width < 2**31 else None
    if starts is None:
        vector = pa.array(list(vectors), pa.list_(pa.float32()))
    else:
        vector = pa.ListArray.from_arrays(starts, flat)
    table = pa.table(
        {
            "image_id": images.table["image_id"],
            "model": pa.repeat(pa.scalar(model), n),
            "seed": pa.repeat(pa.scalar(seed, pa.int64()), n),
            "finding": pa.repeat(pa.scalar(finding, pa.string()), n),
            "vector": vector,
        }
    )
    return check(table, EMBEDDING, source="embeddings")


def merge_rows(new: pa.Table, old: pa.Table | None, by: Sequence[str]) -> pa.Table:
    """New rows, and the old ones that are of another `by` (model, seed, split, ...)."""
    if old is None or not old.num_rows:
        return new
    keys = [_row_key(table, by) for table in (old, new)]
    kept = old.filter(pc.invert(pc.is_in(keys[0], value_set=pc.unique(keys[1]))))
    return pa.concat_tables([kept, new], promote_options="default")  # other builds have other findings


def _row_key(table: pa.Table, by: Sequence[str]) -> pa.ChunkedArray:
    texts = [pc.fill_null(table[name].cast(pa.string()), "") for name in by]
    return pc.binary_join_element_wise(*texts, "\x1f")


def _rows(images: Images, finding: str, model: str, seed: int | None) -> dict[str, object]:
    n = len(images)
    there = images.table.column_names
    return {name: images.table[name] for name in _OF_IMAGE if name in there} | {
        "model": pa.repeat(pa.scalar(model), n),
        "seed": pa.repeat(pa.scalar(seed, pa.int64()), n),
        "finding": pa.repeat(pa.scalar(finding), n),
    }


def _joined(tables: list[pa.Table]) -> pa.Table:
    if not tables:
        return PREDICTION.empty_table()
    return check(pa.concat_tables(tables).combine_chunks(), PREDICTION, source="predictions")
