"""Vectors of a frozen network and targets -> a new linear layer for each task, and what it says of other patients.

SPLIT of ENCODING: whatever the network does not hand to its last layer, no layer can read; so one new linear layer
measures what is there to be read of sex, race or view. SLICES adds a layer of sigmoids before the last one and learns
both. The network itself is never touched: its vectors are computed once, in eval mode, and the layers learn from them.

Vectors are learned from in units of their spread over the learning images. That changes no layer that can be learned
(a linear layer of scaled numbers is one of the numbers themselves, and is saved as such), only how fast it is found:
Adam makes steps of one size, and vectors of a random, an ImageNet and a trained network differ in size by orders of
magnitude, so that one learning rate would otherwise favour one of them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from scipy.special import expit, softmax

from cxrhf.errors import ConfigError, CxrhfError, LeakageError, RunError
from cxrhf.models.backbone import check_backbone, make_model
from cxrhf.models.data import Look, Targets, Task, from_json, look_facts, look_from_facts, task_columns, to_json
from cxrhf.models.saved import load_saved, read_tensors, sha256, write_tensors
from cxrhf.models.seeding import Progress, number, numbers, seeded_torch
from cxrhf.models.settings import ProbeConfig
from cxrhf.models.step import count_known_labels, loss_sums, total_loss
from cxrhf.models.weights import expected_pixels, load_weights
from cxrhf.tables.files import write_atomically

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


PATIENCE = 5  # epochs without gain after which a layer stops
_CONSTANT = 1e-5  # spread over mean below which what a dimension tells is rounding
_AT_ONCE = 8192  # rows


@dataclass(frozen=True, slots=True)
class Layer:
    """What was learned for one task, on raw vectors: a linear layer, or one of sigmoids (`first`) and one on these."""

    task: Task
    weight: Floats
    bias: Floats
    first: tuple[Floats, Floats] | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def activations(self, vectors: Floats) -> Floats:
        """What the sigmoids say, between 0 and 1."""
        if self.first is None:
            raise CxrhfError("the probe has no sigmoid layer")
        return expit(_linear(vectors, *self.first)).astype(np.float32)

    def logits(self, vectors: Floats) -> Floats:
        """images x outputs."""
        given = vectors if self.first is None else self.activations(vectors)
        return _linear(given, self.weight, self.bias).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Probed:
    """Of every row that was asked about (others hold NaN): logits, the threshold of its layer, the sigmoids if any.

    `layers`: part by part, one a task.
    """

    tasks: tuple[Task, ...]
    logits: Floats
    thresholds: NDArray[np.float64]
    layers: tuple[tuple[Layer, ...], ...]
    activations: Floats | None = None


def fit_probe(
    vectors: Floats,
    ids: Sequence[str],
    goal: Targets,
    tasks: Sequence[Task],
    parts: Sequence[Part],
    config: ProbeConfig,
    *,
    reduce: int | None = None,
    say: Progress = lambda _: None,
) -> Probed:
    """Learn a layer for each part and task, ask it about the part's rows; with `reduce`, so many sigmoids before it.

    The threshold of an output is the one with the largest TPR - FPR among the rows that stopped the layer.
    """
    if not np.isfinite(vectors).all():
        raise CxrhfError(
            "the network returns embeddings that are not finite",
            next_step="use other weights, another --pixels or a smaller --size",
        )
    n, width = len(vectors), goal.shape[1]
    logits = np.full((n, width), np.nan, dtype=np.float32)
    thresholds = np.full((n, width), np.nan)
    inside = None if reduce is None else np.full((n, reduce), np.nan, dtype=np.float32)
    layers = []
    for at, part in enumerate(parts):
        where = f"fold {at + 1} of {len(parts)}, " if len(parts) > 1 else ""
        scale = scale_of(vectors, part.learn)
        mine = []
        for task, place in task_columns(tasks):
            layer = fit_layer(vectors, ids, goal[:, place], task, part, config, scale=scale, reduce=reduce)
            say(f"{where}{task.name}: best epoch {layer.facts['best_epoch']} of {layer.facts['epochs']}")
            logits[part.asked, place] = layer.logits(vectors[part.asked])
            cut = _thresholds(layer, vectors[part.held], goal[part.held, place])
            layer.facts["thresholds"] = [None if np.isnan(each) else float(each) for each in cut]
            thresholds[part.asked, place] = cut
            if inside is not None:
                inside[part.asked] = layer.activations(vectors[part.asked])
            mine.append(layer)
        layers.append(tuple(mine))
    return Probed(tuple(tasks), logits, thresholds, tuple(layers), inside)


def fit_layer(
    vectors: Floats,
    ids: Sequence[str],
    goal: Targets,
    task: Task,
    part: Part,
    config: ProbeConfig,
    *,
    scale: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
    reduce: int | None = None,
) -> Layer:
    """Adam on the learning rows; the weights of the epoch with the lowest loss on the held rows are kept.

    A linear layer starts from zeros. Each epoch shows every row with a known label once, in an order drawn from the
    seed and the image ids.
    """
    middle, inverse = scale if scale is not None else scale_of(vectors, part.learn)
    mean, factor = torch.from_numpy(middle.astype(np.float32)), torch.from_numpy(inverse.astype(np.float32))
    tasks = [task]

    def numbers_of(rows: Integers) -> torch.Tensor:
        return (torch.from_numpy(vectors[rows]) - mean) * factor

    learn, held = (rows[(goal[rows] >= 0).any(axis=1)] for rows in (part.learn, part.held))
    # By a number of the image, so that the order of rows plays no part.
    learn = learn[np.argsort(numbers(config.seed, "probe", task.name, ids=[ids[row] for row in learn]), kind="stable")]
    module = _module(vectors.shape[1], len(task.outputs), reduce, number(config.seed, "probe", task.name, reduce))
    optimizer = torch.optim.Adam(module.parameters(), lr=config.learning_rate)
    best, best_epoch, kept, epoch = float("inf"), 0, copy.deepcopy(module.state_dict()), 0
    for epoch in range(1, config.epochs + 1):
        order = np.random.default_rng(number(config.seed, "probe", task.name, epoch)).permutation(len(learn))
        # Batches of nearly one size: a last one of a few images would be a step as long as the others.
        for rows in np.array_split(learn[order], max(1, round(len(learn) / config.batch_size))):
            target = goal[rows]
            loss = total_loss(
                loss_sums(module(numbers_of(rows)), torch.from_numpy(target), tasks), count_known_labels(target, tasks)
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        now = _loss(module, numbers_of, goal, tasks, held)
        if now < best or (not len(held) and np.isfinite(now)):  # where nothing says which is best, the last
            best, best_epoch, kept = now, epoch, copy.deepcopy(module.state_dict())
        elif epoch - best_epoch >= PATIENCE:
            break
    if best_epoch == 0:
        raise CxrhfError(
            f"the loss of the probe for {task.name} is not finite", next_step="use a smaller --learning-rate"
        )
    facts = {
        "epochs": epoch, "best_epoch": best_epoch, "loss": best if len(held) else None, "learned_from": len(learn),
        "stopped_by": len(held),
    }  # fmt: skip
    return _to_raw_layer(task, kept, middle, inverse, facts)


def scale_of(vectors: Floats, rows: Integers) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean, and 1 / spread, of each dimension over these rows; 0 where nothing varies, so that it is left out."""
    mean = np.zeros(vectors.shape[1])
    square = np.zeros(vectors.shape[1])
    for start in range(0, len(rows), _AT_ONCE):
        mean += vectors[rows[start : start + _AT_ONCE]].sum(axis=0, dtype=np.float64)
    mean /= max(len(rows), 1)
    for start in range(0, len(rows), _AT_ONCE):
        square += ((vectors[rows[start : start + _AT_ONCE]] - mean) ** 2).sum(axis=0)
    spread = np.sqrt(square / max(len(rows), 1))
    varies = spread > _CONSTANT * np.abs(mean)
    return mean, np.divide(1.0, spread, out=np.zeros_like(spread), where=varies & (spread > 0))


def probabilities(logits: Floats, tasks: Sequence[Task]) -> NDArray[np.float64]:
    """Sigmoids of findings, softmax over the classes of the other tasks."""
    out = np.empty(logits.shape)
    for task, at in task_columns(tasks):
        z = np.asarray(logits[:, at], dtype=np.float64)
        out[:, at] = expit(z) if task.kind == "labels" else softmax(z, axis=1)
    return out


def _module(d: int, n_outputs: int, reduce: int | None, seed: int) -> torch.nn.Module:
    with seeded_torch(seed):  # torch draws first weights in any case
        last = torch.nn.Linear(d if reduce is None else reduce, n_outputs)
        if reduce is not None:
            return torch.nn.Sequential(torch.nn.Linear(d, reduce), torch.nn.Sigmoid(), last)
    torch.nn.init.zeros_(last.weight)  # the loss has one minimum: no chance is needed
    torch.nn.init.zeros_(last.bias)
    return torch.nn.Sequential(last)


@torch.no_grad()
def _loss(module: torch.nn.Module, numbers_of: Any, goal: Targets, tasks: list[Task], rows: Integers) -> float:
    """Over all rows: the loss of each known label, on average."""
    sums = torch.zeros(len(tasks), dtype=torch.float64)
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        sums += loss_sums(module(numbers_of(some)), torch.from_numpy(goal[some]), tasks)
    return float(total_loss(sums, count_known_labels(goal[rows], tasks)))


def _to_raw_layer(
    task: Task,
    state: dict[str, torch.Tensor],
    mean: NDArray[np.float64],
    inverse: NDArray[np.float64],
    facts: dict[str, Any],
) -> Layer:
    """The learned numbers as a layer on raw vectors: mean and spread go into weight and bias."""
    given = {name: each.numpy().astype(np.float64) for name, each in state.items()}
    weight = (given["0.weight"] * inverse).astype(np.float32)
    # From the rounded weights, so that their rounding does not move the logit of the mean vector.
    bias = (given["0.bias"] - weight.astype(np.float64) @ mean).astype(np.float32)
    if "2.weight" not in given:
        return Layer(task, weight, bias, facts=facts)
    last = given["2.weight"].astype(np.float32), given["2.bias"].astype(np.float32)
    return Layer(task, *last, first=(weight, bias), facts=facts)


def _linear(vectors: Floats, weight: Floats, bias: Floats) -> NDArray[np.float64]:
    """In double precision: where a dimension hardly varies, large numbers cancel."""
    out = np.empty((len(vectors), len(weight)))
    turned = weight.T.astype(np.float64)
    for start in range(0, len(vectors), _AT_ONCE):
        out[start : start + _AT_ONCE] = vectors[start : start + _AT_ONCE].astype(np.float64) @ turned
    return out + bias


def _thresholds(layer: Layer, vectors: Floats, goal: Targets) -> NDArray[np.float64]:
    """One an output, NaN where the held rows lack a class."""
    from cxrhf.metrics.operating import youden_threshold

    prob = probabilities(layer.logits(vectors), [layer.task])
    found = np.full(goal.shape[1], np.nan)
    for k, label in enumerate(goal.T):
        there = label >= 0
        if there.any():
            found[k] = youden_threshold(label[there].astype(np.float64), prob[there, k])
    return found


# Random or ImageNet weights, or a saved network -> a frozen network: in eval mode, nothing in it learns.

CHANNELS = 3


@dataclass(frozen=True, slots=True)
class Frozen:
    """A network, how it sees pictures, and where it is from."""

    model: torch.nn.Module
    look: Look
    facts: dict[str, Any]


def new_backbone(weights: str, architecture: str, *, size: int, seed: int) -> Frozen:
    """`imagenet` or `random`. Both are given the pixels that the ImageNet weights know, so only weights differ."""
    check_backbone(architecture, "--architecture")
    look = Look(size, "crop", expected_pixels("imagenet", architecture) or "imagenet", CHANNELS)
    model = make_model(architecture, 1, channels=CHANNELS, seed=seed, size=size)
    said = load_weights(model, weights, backbone=architecture, channels=CHANNELS)
    facts: dict[str, Any] = {"backbone": architecture, "weights": said, "look": look_facts(look)}
    if weights == "random":
        facts["seed"] = seed
    return Frozen(_freeze(model), look, facts)


def saved_backbone(folder: Path) -> Frozen:
    """The network of a saved folder, which sees pictures as it was trained."""
    model, about = load_saved(folder)
    look = look_from_facts(about["look"])
    kept = {name: about[name] for name in ("backbone", "name", "seed", "sha256") if about.get(name) is not None}
    return Frozen(_freeze(model), look, {**kept, "look": look_facts(look)})


def _freeze(model: torch.nn.Module) -> torch.nn.Module:
    return model.requires_grad_(False).eval()


# New layers <-> a folder: layers.safetensors, and probe.json that says what they read and how they were learned.
#
# Tensors `sex.weight` and `sex.bias` make a plain linear layer on what the frozen network hands to its last layer
# (`penultimate`). Cross-fitted layers are `fold-0.sex.weight`, ...; with a layer of sigmoids before it, that one is
# `findings.first.weight`: sigmoid(vectors @ first.weight.T + first.bias) @ weight.T + bias.

FORMAT = 1
LAYERS, ABOUT = "layers.safetensors", "probe.json"
_AGAIN = "cxrhf probe BUILD"


def save_probe(folder: Path, probed: Probed, about: Mapping[str, Any]) -> None:
    """Write the layers; those of an earlier probe in the folder are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, torch.Tensor] = {}
    facts: dict[str, dict[str, Any]] = {}
    for at, layers in enumerate(probed.layers):
        for layer in layers:
            key = _layer_key(at, layer.task.name, len(probed.layers))
            pair = {"weight": layer.weight, "bias": layer.bias}
            if layer.first is not None:
                pair |= {"first.weight": layer.first[0], "first.bias": layer.first[1]}
            tensors |= {f"{key}.{name}": torch.from_numpy(np.ascontiguousarray(each)) for name, each in pair.items()}
            facts[key] = layer.facts
    record = {
        "format": FORMAT, **about, "tasks": to_json(probed.tasks), "parts": len(probed.layers),
        "sha256": write_tensors(folder / LAYERS, tensors), "layers": facts,
    }  # fmt: skip
    text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomically(folder / ABOUT, lambda file: file.write(text.encode()))


def load_probe(folder: Path) -> tuple[list[dict[str, Layer]], dict[str, Any]]:
    """The layers of each part by task (one part, or one a fold), and what probe.json says."""
    folder = Path(folder)
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        tasks, parts, number = from_json(about["tasks"]), int(about["parts"]), about["format"]
    except FileNotFoundError:
        raise RunError(f"{folder} is not a saved probe: it has no {ABOUT}", next_step=_AGAIN) from None
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder / ABOUT} is damaged ({error})", next_step=_AGAIN) from None
    if number != FORMAT:
        raise RunError(
            f"{folder} was written by another version of cxrhf", got=f"format {number}", allowed=f"format {FORMAT}"
        )
    if (folder / LAYERS).is_file() and sha256(folder / LAYERS) != about["sha256"]:
        raise RunError(f"{folder / LAYERS} was changed after it was written", next_step=_AGAIN)
    tensors = {name: each.numpy() for name, each in read_tensors(folder / LAYERS, _AGAIN).items()}
    found: list[dict[str, Layer]] = []
    for at in range(parts):
        mine = {}
        for task in tasks:
            key = _layer_key(at, task.name, parts)
            pair = (f"{key}.weight", f"{key}.bias")
            if any(name not in tensors for name in pair):
                raise RunError(f"{folder / LAYERS} lacks {key}", next_step=_AGAIN)
            first = f"{key}.first.weight", f"{key}.first.bias"
            before = (tensors[first[0]], tensors[first[1]]) if first[0] in tensors else None
            mine[task.name] = Layer(task, tensors[pair[0]], tensors[pair[1]], before, about["layers"].get(key, {}))
        found.append(mine)
    return found, about


def _layer_key(part: int, task: str, parts: int) -> str:
    return task if parts == 1 else f"fold-{part}.{task}"


# Images, their splits or a number of folds -> who teaches a new layer, who stops it, whom it is asked about.
#
# Patients are never cut: those a layer is asked about have no image among those that teach or stop it.

TRAIN, VALIDATE, TEST = "train", "validate", "test"
HELD_ONE_IN = 8  # where there is no validation split, one in so many of the learning patients stops the layers
FEWEST = 10  # patients of a class below which it is left out


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that teach a layer, rows that say when it is best, and rows that it is asked about."""

    learn: Integers
    held: Integers
    asked: Integers


def split_parts(table: pa.Table, goal: Targets, seed: int) -> tuple[list[Part], list[str]]:
    """Learn on train, stop on validate, ask about validate and test; and what must be said of it."""
    split = np.asarray(table["split"].to_pylist(), dtype=object)
    rows = {name: np.flatnonzero(split == name) for name in (TRAIN, VALIDATE, TEST)}
    for name in (TRAIN, TEST):
        if not len(rows[name]):
            there = ", ".join(sorted({str(each) for each in split if each is not None})) or "none"
            raise RunError(
                f"the build has no split {name} (splits: {there})",
                next_step="pass --folds 5 to cross-validate over all images by patient",
            )
    patients = patients_of(table)
    _check_disjoint_patients(patients, rows)
    if len(rows[VALIDATE]):
        return [Part(rows[TRAIN], rows[VALIDATE], np.concatenate([rows[VALIDATE], rows[TEST]]))], []
    learn, held = _split_held_patients(patients, goal, rows[TRAIN], seed)
    note = (
        f"there is no split {VALIDATE}, so one in {HELD_ONE_IN} training patients is used for early stopping and to "
        "choose thresholds"
    )
    return [Part(learn, held, rows[TEST])], [note]


def fold_parts(table: pa.Table, goal: Targets, folds: int, seed: int) -> list[Part]:
    """Every row is asked about once, by a layer whose learning and stopping rows are of other patients."""
    patients = patients_of(table)
    names, place = np.unique(patients, return_inverse=True)
    if len(names) < folds * 2:
        raise ConfigError(
            "--folds", got=f"{folds} for {len(names):,} patients", allowed="at least two patients per fold"
        )
    fold = deal(names.tolist(), _habits(place, len(names), goal), folds, seed, "fold")[place]
    parts = []
    for each in range(folds):
        rest = np.flatnonzero(fold != each)
        learn, held = _split_held_patients(patients, goal, rest, seed)
        parts.append(Part(learn, held, np.flatnonzero(fold == each)))
    for part in parts:
        inside = set(patients[part.learn]) | set(patients[part.held])
        if inside & set(patients[part.asked]) or set(patients[part.learn]) & set(patients[part.held]):
            raise LeakageError("a patient is in the training and the test images of a fold", counts={"folds": folds})
    return parts


def deal(names: list[str], habits: NDArray[np.int8], n: int, seed: int, purpose: str) -> Integers:
    """A pile from 0 to n - 1 for each patient: piles differ by one patient at most, and hold the same kinds of them.

    Patients are put in order by what is known of them (`habits`, the first column first), those alike by chance, and
    dealt round. The order in which they come plays no part.

    >>> deal(["a", "b", "c", "d"], np.array([[1], [0], [1], [0]], dtype=np.int8), 2, 0, "fold")[[0, 2]].sum()
    np.int64(1)
    """
    drawn = numbers(seed, "probe", purpose, ids=names)
    order = np.lexsort((drawn, *habits.T[::-1]))
    pile = np.empty(len(names), dtype=np.int64)
    pile[order] = np.arange(len(names)) % n
    return pile


def keep_learnable_tasks(
    table: pa.Table, tasks: list[Task], goal: Targets, learn: Integers
) -> tuple[list[Task], list[str]]:
    """The tasks without classes and findings that too few learning patients have; and what was left out."""
    _, place = np.unique(patients_of(table)[learn], return_inverse=True)
    kept, notes = [], []
    for task, at in task_columns(tasks):
        outputs = []
        for name, label in zip(task.outputs, goal[learn, at].T, strict=True):
            sides = [len(np.unique(place[label == side])) for side in ((1, 0) if task.kind == "labels" else (1,))]
            what = name if task.kind == "labels" else f"{task.name}={name}"
            if min(sides) >= FEWEST:
                outputs.append(name)
            else:
                side = "with" if sides[0] < FEWEST else "without"
                whose = f"{side} it" if task.kind == "labels" else "of it"
                notes.append(
                    f"{what} is excluded: {min(sides)} training patients {whose}, at least {FEWEST} are required"
                )
        if len(outputs) >= (1 if task.kind == "labels" else 2):
            kept.append(Task(task.name, task.kind, tuple(outputs)))
        elif outputs:
            notes.append(f"{task.name} is excluded: only one class remains")
    if not kept:
        raise ConfigError(
            f"no target has enough training patients ({'; '.join(notes)})",
            next_step="choose other --targets or a larger build",
        )
    return kept, notes


def patients_of(table: pa.Table) -> NDArray[np.str_]:
    """The patient of each row."""
    return np.asarray(table["patient_id"].cast(pa.string()).to_pylist(), dtype=np.str_)


def mark_all_test(table: pa.Table) -> pa.Table:
    """The same images, all of the split test: what cross-fitted layers say of them is said of strangers."""
    rest = table.drop_columns("split") if "split" in table.column_names else table
    return rest.append_column("split", pa.repeat(pa.scalar(TEST), table.num_rows))


def is_test(table: pa.Table) -> NDArray[np.bool_]:
    """The rows that results are made of."""
    return np.asarray(pc.fill_null(pc.equal(table["split"], TEST), False))


def _split_held_patients(
    patients: NDArray[np.str_], goal: Targets, rows: Integers, seed: int
) -> tuple[Integers, Integers]:
    """Learning rows, and those of one in HELD patients that stop the layers."""
    names, place = np.unique(patients[rows], return_inverse=True)
    if len(names) < 2:
        raise ConfigError("training patients", got=f"{len(names):,}", allowed="at least 2")
    pile = deal(names.tolist(), _habits(place, len(names), goal[rows]), min(HELD_ONE_IN, len(names)), seed, "held")
    held = pile[place] == 0
    return rows[~held], rows[held]


def _habits(place: Integers, n: int, goal: Targets) -> NDArray[np.int8]:
    """patients x outputs: 1 if any image has it, 0 if none does, -1 if nothing is known."""
    found = np.full((n, goal.shape[1]), -1, dtype=np.int8)
    np.maximum.at(found, place, goal)
    return found


def _check_disjoint_patients(patients: NDArray[np.str_], rows: dict[str, Integers]) -> None:
    """A patient on both sides would let a layer recognise people instead of what it is asked about."""
    sets = {name: set(patients[at]) for name, at in rows.items()}
    counts = {
        f"{one} and {other}": len(sets[one] & sets[other])
        for one, other in ((TRAIN, TEST), (TRAIN, VALIDATE), (VALIDATE, TEST))
    }
    if any(counts.values()):
        said = ", ".join(f"{count:,} in {which}" for which, count in counts.items() if count)
        raise LeakageError(
            f"patients are in two splits: {said}",
            counts=counts,
            next_step="build the dataset again (cxrhf build splits by patient), or pass --folds 5 to ignore splits",
        )
