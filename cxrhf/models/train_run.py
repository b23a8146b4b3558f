"""A build and settings -> a run with trained networks, one a seed, each loadable by transformers and timm.

    RUN/run.json  RUN/models/seed-0/  RUN/history-0.jsonl  RUN/checkpoints/seed-0/ (until the seed is done)

A training that was stopped goes on with the same command; a finished seed is left as it is.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cxrhf.errors import ConfigError, RunError, TableError, did_you_mean, need_packages
from cxrhf.models.settings import TrainConfig
from cxrhf.settings import to_mapping
from cxrhf.tables.files import read_object

if TYPE_CHECKING:
    from cxrhf.models.data import Images, Look, Task
    from cxrhf.models.predict import RunUpdate
    from cxrhf.models.report_settings import FinetuneConfig
    from cxrhf.models.train import Material
    from cxrhf.run import Run

Progress = Callable[[str], None]


SAVED = "cxrhf.json"
# Settings that do not change what is learned.
IGNORED_SETTINGS = (
    "build",
    "out",
    "name",
    "overwrite",
    "seed",
    "seeds",
    "workers",
    "memory",
    "device",
    "tracker",
    "save_every",
)


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """A run whose networks are trained."""

    path: Path
    name: str
    seeds: tuple[int, ...]
    notes: list[str]
    facts: dict[int, dict[str, Any]]
    curves: str | None = None

    def lines(self) -> list[str]:
        """What became of each seed."""
        said = []
        for seed in self.seeds:
            facts = self.facts[seed]
            by, best = facts["best_by"], facts["best"]
            kept = (
                f"the weights of step {facts['best_step']:,}, best by validation {by} ({best:.4f})"
                if by
                else "the last weights"
            )
            epochs = f"{facts['epochs']:,} epoch{'s' if facts['epochs'] > 1 else ''}"
            said.append(f"seed {seed}: {facts['steps']:,} steps, {epochs}; kept {kept}")
        return said if self.curves is None else [*said, self.curves]


def train_run(config: TrainConfig, show: Progress) -> TrainedRun | None:
    """Train every seed. None in processes that only help."""
    check_packages(*([config.tracker] if config.tracker != "none" else []))
    from cxrhf.encode.processes import one_writer_of_all
    from cxrhf.run import check_folder

    folder = run_folder(config)
    check_folder(folder, overwrite=config.overwrite)
    split = choose_splits(config.build, [config.train_split], all_of=True)[0]
    from cxrhf.models.processes import make_accelerator

    accelerator = make_accelerator(
        device=config.device, precision=config.precision, tracker=config.tracker, folder=folder
    )
    with one_writer_of_all(folder, "train"):
        return _train_seeds(config, folder, split, accelerator, show if accelerator.is_main_process else lambda _: None)


def _train_seeds(config: TrainConfig, folder: Path, split: str, accelerator: Any, say: Progress) -> TrainedRun | None:
    """Open the run and train every seed that is not trained yet; this process holds the folder."""
    from cxrhf.run import fingerprint

    inputs = [fingerprint(Path(config.build) / "build.json")]
    say(f"reading {config.build}")
    tasks, train, validate, notes = gather_training(config, split)
    look, weights_said = look_of_config(config)
    content = {key: value for key, value in to_mapping(config).items() if key not in IGNORED_SETTINGS}
    if config.max_images is not None or config.shuffle_labels:
        content["seed"] = config.seed  # draws the images, deals the labels
    key = hashlib.sha256(json.dumps([content, inputs[0].sha256], sort_keys=True).encode()).hexdigest()[:16]
    if config.overwrite or not all((seed_folder(folder, seed) / SAVED).is_file() for seed in config.all_seeds()):
        new_network(config, tasks, config.all_seeds()[0])  # before a run is opened, and before a picture is read
    run: Run | None = None
    if accelerator.is_main_process:
        run = open_training(folder, config, inputs, content)
    accelerator.wait_for_everyone()
    notes += weights_said
    for note in notes:
        say(f"note: {note}")
    material = open_training_data(train, validate, tasks, look, config, say)
    name = config.name or folder.name
    facts: dict[int, dict[str, Any]] = {}
    for seed in config.all_seeds():
        done = read_finished(seed_folder(folder, seed), key)
        if done is None:
            told = (lambda text, seed=seed: say(f"seed {seed}: {text}")) if config.seeds else say
            done, more = train_seed(config, material, look, seed, name, key, folder, accelerator, told)
            notes += [each for each in more if each not in notes]
        else:
            say(f"seed {seed} is already trained")
        facts[seed] = done
        if run is not None:
            remove_checkpoints(checkpoints_of(folder, seed))
    if run is None:
        return None
    run.finish(notes=notes, trained={str(seed): each for seed, each in facts.items()}, model=name)
    return TrainedRun(folder, name, config.all_seeds(), notes, facts, curves(config.tracker, folder))


def run_folder(config: TrainConfig) -> Path:
    """Where a training goes."""
    if config.out:
        return Path(config.out)
    return Path("runs") / f"{Path(config.build).resolve().name}-{config.backbone.split('.')[0]}"


def seed_folder(folder: Path, seed: int) -> Path:
    """Where the network of a seed is saved."""
    return folder / "models" / f"seed-{seed}"


def checkpoints_of(folder: Path, seed: int) -> Path:
    """Where the training of a seed goes on from."""
    return folder / "checkpoints" / f"seed-{seed}"


def remove_checkpoints(folder: Path) -> None:
    """Remove what a finished training could go on from: its weights are saved, and other settings are another run."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.parent.name == "checkpoints":
        with suppress(OSError):  # other seeds are there
            folder.parent.rmdir()


def curves(tracker: str, folder: Path) -> str | None:
    """How to look at the curves of a run; None without any."""
    from cxrhf.models.processes import tracker_command

    return None if tracker == "none" else f"curves: {tracker_command(tracker, folder)}"


def open_training(
    folder: Path, config: TrainConfig | FinetuneConfig, inputs: list[Any], content: dict[str, Any], verb: str = "train"
) -> Run:
    """The run, new or as it was left; other settings than before are an error, unless it is to be replaced."""
    from cxrhf.run import check_inputs, clear_run, open_run, public, read_run, record_of

    if (folder / "run.json").is_file() and not config.overwrite:
        check_inputs(folder, inputs, overwrite=False)
        record = record_of(folder, verb)
        if not record:
            made = read_run(folder).record.get("verb")
            raise RunError(f"{folder} holds a run of cxrhf {made}", next_step="pass another --out, or --overwrite")
        before = record.get("config", {})
        now = json.loads(json.dumps(public(content)))
        changed = [name for name, each in now.items() if name in before and before[name] != each]
        if changed:
            raise RunError(
                f"{folder} holds a training run with other settings "
                f"({'; '.join(f'{name} was {before[name]}, is {now[name]}' for name in changed[:4])})",
                next_step="pass another --out, or --overwrite to start again",
            )
    if config.overwrite and folder.is_dir():
        from cxrhf.models.processes import clear_curves

        clear_run(folder)
        clear_curves(folder)
        (folder / "run.json").unlink(missing_ok=True)  # its tables and audits are gone, and so is what it says of them
    for draft in (
        *folder.glob("models/.*.part"),
        *folder.glob(".*.part"),
    ):  # of killed trainings: this one has the lock
        shutil.rmtree(draft, ignore_errors=True)
    return open_run(folder, verb=verb, config=to_mapping(config), inputs=inputs, overwrite=config.overwrite)


def gather_training(config: TrainConfig, split: str) -> tuple[list[Task], Images, Images | None, list[str]]:
    """Tasks, training images and validation images, and what must be said of them."""
    from cxrhf.models.data import check_findings, filter_images, limit_images, make_tasks, targets

    there = findings_of(config.build)
    check_findings(config.findings, there)
    validates = has_validation(config)  # before the first table is read
    train = open_images(config.build, [split], labels=config.labels)
    train = limit_images(filter_images(train, config.only), config.max_images, config.seed)
    tasks, notes = make_tasks(train.table, config.tasks, config.findings or there)
    if config.validate_split == split:
        raise ConfigError("--train-split and --validate-split must differ", got=split)
    if not validates:
        notes.append(f"there is no split {config.validate_split}, so the last epoch is kept instead of the best one")
        return tasks, train, None, notes
    validate = open_images(config.build, [config.validate_split], labels=config.labels)
    check_disjoint_patients(train, validate)
    try:
        validate = filter_images(validate, config.only)
    except ConfigError:
        notes.append("--only excludes all validation images, so the last epoch is kept")
        return tasks, train, None, notes
    if (targets(validate.table, tasks) < 0).all():
        notes.append("no validation image is labelled for these tasks, so the last epoch is kept")
        return tasks, train, None, notes
    return tasks, train, validate, notes


def check_disjoint_patients(train: Images, validate: Images) -> None:
    """A patient in both splits would let the network recognise people instead of findings."""
    both = set(train.table["patient_id"].to_pylist()) & set(validate.table["patient_id"].to_pylist())
    if both:
        raise RunError(
            f"{len(both):,} patients are in both the training and the validation split",
            next_step="build the dataset again: cxrhf build splits by patient",
        )


def look_of_config(config: TrainConfig) -> tuple[Look, list[str]]:
    """How the network sees pictures: as its weights know them, unless it is said otherwise."""
    from cxrhf.models.data import Look
    from cxrhf.models.weights import expected_pixels

    expected = expected_pixels(config.weights, config.backbone)
    pixels = (expected or "imagenet") if config.pixels == "auto" else config.pixels
    notes = []
    if expected is not None and pixels != expected:
        notes.append(
            f"the weights {config.weights} were trained on {expected} pixels but receive {pixels} pixels; pass "
            f"--pixels {expected} to match"
        )
    return Look(config.size, config.fit, pixels, config.channels), notes


def open_training_data(
    train: Images, validate: Images | None, tasks: list[Task], look: Look, config: TrainConfig, say: Progress
) -> Material:
    """Pictures and targets, read once for all seeds."""
    from cxrhf.models.data import open_squares, shuffled, targets
    from cxrhf.models.train import Material

    squares = open_squares(train, look, memory=config.memory, progress=say, what="training images")

    def goal_of(images: Images) -> Any:
        found = targets(images.table, tasks)
        # Also of validation: the best of many epochs by true labels would not be by chance.
        return shuffled(found, images.table["patient_id"].to_pylist(), config.seed) if config.shuffle_labels else found

    goal = goal_of(train)
    if validate is None:
        return Material(train.ids, squares, goal, tasks)
    rest = config.memory - (0 if squares.kept is None else squares.kept.numel() / 1e9)
    held = open_squares(validate, look, memory=rest, progress=say, what="validation images")
    return Material(train.ids, squares, goal, tasks, (held, goal_of(validate)))


def read_finished(saved: Path, key: str) -> dict[str, Any] | None:
    """The facts of a network or adapter that is trained; one of other settings is an error."""
    path = saved / SAVED
    if not path.is_file():
        return None
    about = read_object(path, next_step="train again with --overwrite")
    if about.get("key") != key:
        raise RunError(
            f"{saved} was trained with other settings or from other weights",
            next_step="pass another --out, or --overwrite",
        )
    facts = about.get("trained")
    if not isinstance(facts, dict):
        raise RunError(f"{path} has no training record", next_step="train again with --overwrite")
    return facts


def new_network(config: TrainConfig, tasks: list[Task], seed: int) -> tuple[Any, str]:
    """The network of a seed as it starts to learn, and where its weights are from; every process must ask."""
    from cxrhf.encode.processes import call_first
    from cxrhf.models.backbone import draw_kaiming, make_model
    from cxrhf.models.data import names
    from cxrhf.models.weights import check_start, load_weights

    call_first(lambda: check_start(config.weights, config.backbone))
    model = make_model(
        config.backbone, len(names(tasks)), channels=config.channels, seed=seed, size=config.size,
        drop_rate=config.drop_rate, drop_path=config.drop_path, checkpointing=config.checkpointing,
    )  # fmt: skip
    if config.kaiming:
        draw_kaiming(model, seed)
    said = call_first(lambda: load_weights(model, config.weights, backbone=config.backbone, channels=config.channels))
    return model, said


def train_seed(
    config: TrainConfig,
    material: Material,
    look: Look,
    seed: int,
    name: str,
    key: str,
    folder: Path,
    accelerator: Any,
    say: Progress,
) -> tuple[dict[str, Any], list[str]]:
    """One network from its first weights to its folder."""
    from cxrhf.data.load import build_record
    from cxrhf.models.data import look_facts, names, to_json
    from cxrhf.models.processes import track_curves
    from cxrhf.models.saved import save_model
    from cxrhf.models.train import fit
    from cxrhf.run import public

    outputs = names(material.tasks)
    model, said = new_network(config, material.tasks, seed)
    say(said)
    with track_curves(accelerator, config.tracker, folder, f"{name}-{seed}", to_mapping(config)):
        trained = fit(
            model, material, config, seed=seed, accelerator=accelerator, folder=checkpoints_of(folder, seed),
            history=folder / f"history-{seed}.jsonl", key=key, progress=say,
        )  # fmt: skip
    if accelerator.is_main_process:
        source = build_record(config.build)  # whoever publishes the network must know whose data it has seen
        about = {
            "name": name, "seed": seed, "key": key, "tasks": to_json(material.tasks), "start": said,
            "trained": trained.facts, "images": len(material.ids),
            "dataset": source.get("dataset"), "credentialed": source.get("credentialed"),
            "settings": public(
                {each: value for each, value in to_mapping(config).items() if each not in IGNORED_SETTINGS}
            ),
        }  # fmt: skip
        save_model(
            seed_folder(folder, seed), trained.model, backbone=config.backbone, outputs=outputs,
            look_facts=look_facts(look), about=about,
        )  # fmt: skip
    accelerator.wait_for_everyone()
    accelerator.free_memory()  # it would hold on to the network and optimizer of every seed
    return trained.facts, trained.notes


# The folder of a build -> Images of some splits: rows with labels under a policy, and a way to their pictures.

CARRIED_COLUMNS = ("image_id", "study_id", "patient_id", "dataset", "split", "view", "study_time", "age", "sex", "race")
PACKAGES = ("torch", "torchvision", "timm", "accelerate", "transformers", "safetensors", "PIL")


def check_packages(*more: str) -> None:
    """Networks need packages that the light core does not bring: said before anything is read."""
    extra = "zeroshot" if "open_clip" in more else "train,track" if more else "train"
    need_packages("image models", (*PACKAGES, *more), extra)


def findings_of(build: str | Path) -> list[str]:
    """The findings that a build has labels of."""
    from cxrhf.data.load import build_record

    return [str(each) for each in build_record(build)["findings"]]


def choose_splits(build: str | Path, wanted: Sequence[str], *, all_of: bool = False) -> list[str]:
    """The splits of a build that were asked for, `all` for every one; none of them there is an error.

    One that is not there is an error too if `all_of`.
    """
    from cxrhf.data.load import build_record, list_splits

    build_record(build)
    there = list_splits(build)
    if list(wanted) == ["all"]:
        return there
    missing = [each for each in wanted if each not in there]
    if missing and (all_of or len(missing) == len(wanted)):
        raise RunError(
            f'{build} has no split "{missing[0]}"',
            allowed=", ".join([*there, "all"]) if there else "a build with images",
            next_step=did_you_mean(missing[0], there),
        )
    return [each for each in wanted if each in there]


def has_validation(config: TrainConfig | FinetuneConfig) -> bool:
    """Whether the build has the split that chooses the best weights. Builds may lack the usual one, not one by name."""
    from cxrhf.data.load import list_splits

    if config.validate_split in list_splits(config.build):
        return True
    if config.validate_split != type(config).__dataclass_fields__["validate_split"].default:
        choose_splits(config.build, [config.validate_split], all_of=True)
    return False


def open_images(build: str | Path, splits: Sequence[str], *, labels: str | None = None) -> Images:
    """The images of these splits, one after the other; every image id once."""
    import pyarrow as pa

    from cxrhf.data.load import load_images
    from cxrhf.data.shards import Pixels, open_shards
    from cxrhf.models.data import Images, unique_ids

    columns = [*CARRIED_COLUMNS, *findings_of(build)]
    tables = [load_images(build, split=split, labels=labels, columns=columns) for split in splits]
    files = [file for split in splits for file in open_shards(Path(build) / "images", split).files]
    pictures = Pixels(files)
    table = pa.concat_tables(tables).combine_chunks()
    if len(pictures) != table.num_rows:
        raise TableError(
            f"{build}: image shards and tables have different lengths",
            got=f"{len(pictures):,} and {table.num_rows:,}",
            next_step="build again with --overwrite",
        )
    images = Images(table, pictures)
    unique_ids(images)
    return images


# A build and settings -> image models, predictions, embeddings, probes: what the commands and Python share.
#
# `train("data/twin", config="quick", out="runs/quick")`, then `predict("runs/quick")`; both are also `cxrhf.train`
# and `cxrhf.predict`. Here builds are opened and runs are written; the networks themselves are in cxrhf/models.

C = TypeVar("C")


def train(
    build: str | Path, *, config: str | None = None, progress: Progress | None = None, **options: Any
) -> TrainedRun | None:
    """Train on a build: `config` is a recipe or a YAML file, `options` are those of `cxrhf train` with underscores."""
    from cxrhf.models.settings import TrainConfig

    return train_run(_settings(TrainConfig, {"build": build, **options}, config), progress or _ignore_progress)


def predict(run: str | Path, *, progress: Progress | None = None, **options: Any) -> RunUpdate | None:
    """Predictions of a trained run, as `cxrhf predict` writes them."""
    from cxrhf.models.predict import predict_run
    from cxrhf.models.settings import PredictConfig

    return predict_run(_settings(PredictConfig, {"run": run, **options}, None), progress or _ignore_progress)


def _settings(kind: type[C], given: dict[str, Any], recipe: str | None) -> C:
    from cxrhf.settings import from_mapping, load_mapping

    base = load_mapping(recipe) if recipe else {}
    plain = {key: str(value) if isinstance(value, Path) else value for key, value in given.items()}
    return from_mapping(kind, {**base, **plain}, source="settings")


def _ignore_progress(_: str) -> None:
    pass
