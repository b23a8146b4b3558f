"""Vectors of frozen networks and who is in the pictures -> what a new linear layer says of sex, race, view and age.

SPLIT (ENCODING). Intervals are of the patients asked about, the layer held fixed: they say how well this layer reads
the characteristic from other patients, not how a layer of other learning patients would have done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import softmax

from cxrhf.audits.compare import compare
from cxrhf.audits.material import TARGETS, People, Texts, vectors_by_image
from cxrhf.audits.rows import AuditedSample, AuditPart, Row, RowMaker, macro_counts
from cxrhf.audits.sample import Progress, Sample, Settings, bootstrap_findings, one_thread
from cxrhf.metrics.draws import draw
from cxrhf.metrics.estimates import FEW, mean_over
from cxrhf.metrics.operating import rates_at, youden_threshold
from cxrhf.metrics.ranking import auroc
from cxrhf.tables.checks import PredictionArrays

Flags = NDArray[np.bool_]
Integers = NDArray[np.intp]
Floats = NDArray[np.float64]


# Images with vectors and one target -> those that teach a new layer, those it is asked about, and the classes.
#
# Layers learn from the images of the split train and are asked about those of the split test; where no training image
# has a vector, one half of the evaluated patients teaches and the other is asked about. Never in folds: layers that
# share most of their patients have intervals that are too narrow (labels dealt at random to 621 images: 29 of 200
# intervals missed .5; with halves 10 of 200).

TRAIN, TEST = ("train", "training"), "test"
# Classes of one target, and images that teach a layer: more take longer and say the same.
MOST_CLASSES, MOST_IMAGES = 12, 20_000


class Sides(NamedTuple):
    """Places among the people of the images that teach and of those asked about; `how` they were parted."""

    learn: Integers
    ask: Integers
    classes: list[str]
    how: str


def sides_of(group: People, at: Integers, target: str, seed: int, notes: list[str]) -> Sides | None:
    """Both sides of one target among the images `at`; None where there is nothing to tell apart, said in `notes`."""
    value = group.values[target]
    known = at[value[at] != ""]
    if not len(known):
        notes.append(f"encoding: no SPLIT for {target}: no image with an embedding has a value")
        return None
    learn, ask, how = _split_rows(group, known, seed, notes)
    counts = {
        name: min(len(np.unique(group.patients[side[value[side] == name]])) for side in (learn, ask))
        for name in np.unique(value[known]).tolist()
    }
    enough = [name for name in counts if counts[name] >= FEW]
    if len(enough) < 2:
        notes.append(
            f"encoding: no SPLIT for {target}: fewer than two classes have {FEW} patients to train on and {FEW} to "
            "evaluate on"
        )
        return None
    classes = sorted(sorted(enough, key=lambda name: -counts[name])[:MOST_CLASSES])
    if left := len(counts) - len(classes):
        why = f"fewer than {FEW} patients to train or evaluate on"
        if len(enough) > MOST_CLASSES:
            why = f"only the {MOST_CLASSES} with most patients are used"
        notes.append(f"encoding: SPLIT for {target}: {left} of {len(counts)} classes are excluded: {why}")
    inside = np.isin(value, classes)
    return Sides(learn[inside[learn]], ask[inside[ask]], classes, how)


def _split_rows(group: People, rows: Integers, seed: int, notes: list[str]) -> tuple[Integers, Integers, str]:
    split, patients = group.splits, group.patients
    tested = bool((split == TEST).any())
    ask = rows[split[rows] == TEST] if tested else rows
    learn = rows[np.isin(split[rows], TRAIN)] if tested else rows[:0]
    if not len(learn):
        teaches = _half(patients, np.flatnonzero(split == TEST) if tested else np.arange(len(split)), seed)
        where = " of the split test" if tested else ""
        return ask[teaches[ask]], ask[~teaches[ask]], f"one half{where}, evaluated on the other"
    both = np.isin(patients[learn], np.unique(patients[ask]))
    if both.any():
        notes.append(
            f"encoding: {int(both.sum()):,} training images are excluded because their patients are in the split test"
        )
        learn = learn[~both]
    how, n = "the split train, evaluated on the split test", len(learn)
    if n > MOST_IMAGES:
        names, place = np.unique(patients[learn], return_inverse=True)
        turn = np.random.default_rng([seed, 67]).permutation(len(names))[place]
        learn = np.sort(learn[np.argsort(turn, kind="stable")[:MOST_IMAGES]])
        how = f"of {n:,} of {how}"
    return learn, ask, how


def _half(patients: Texts, rows: Integers, seed: int) -> Flags:
    """True for images of the half of the patients that teaches; patients in the order of their ids."""
    names = np.unique(patients[rows])
    teaches = names[np.random.default_rng([seed, 61]).permutation(len(names))[: len(names) // 2]]
    return np.isin(patients, teaches)


# Vectors and classes of images -> a new linear layer learned on some patients, and what it says of others.
#
# SPLIT of ENCODING without torch: multinomial logistic regression with a ridge penalty, on vectors in units of their
# spread over the learning images. The penalty, and the thresholds at which a class is called, come from folds of
# patients within the learning images, so nothing is known of those that are asked about.
#
# How it is fitted: vectors are turned to their principal axes, where the Gram matrix, and with it an upper bound of
# the curvature, is diagonal. Steps by that bound go downhill in all folds at once, with momentum (Nesterov's, begun
# anew in a fold where it points uphill): a step is two products of matrices, whatever the number of folds and
# classes. A Newton step (pretest.py) on 1,024 features would cost some thousand of them.

Singles = NDArray[np.float32]

FOLDS = 5
# Strong to weak: a penalty of 300 expects coefficients (log odds a standard deviation) of some 0.06.
PENALTIES = (30_000.0, 3_000.0, 300.0, 30.0, 3.0)
# Log loss an image that a fit may leave to gain, and steps after which it ends anyway.
_LEFT, _STEPS = 1e-8, 2_000
# A dimension whose spread is less than this share of its size is constant but for rounding.
_CONSTANT = 1e-5
_AT_ONCE = 8192  # rows


class Layer(NamedTuple):
    """A linear layer on raw vectors: weights (dimensions x classes); the threshold of each class with the largest J."""

    weight: Floats
    bias: Floats
    thresholds: Floats
    penalty: float

    def probability(self, vectors: Singles) -> Floats:
        """Of every class: rows x classes."""
        starts = range(0, len(vectors), _AT_ONCE)
        scores = [vectors[at : at + _AT_ONCE].astype(np.float64) @ self.weight + self.bias for at in starts]
        # Rounded, because equal vectors must give equal numbers, wherever they stand in the product.
        return np.asarray(softmax(np.round(np.concatenate(scores), 9), axis=1), dtype=np.float64)


class Axes(NamedTuple):
    """Learning rows in units of spread on their principal axes (`rows`), the Gram matrix there, and the way back."""

    rows: Singles
    gram: Floats
    back: Floats  # dimensions x axes
    mean: Floats


def to_principal_axes(vectors: Singles) -> Axes:
    """Learning vectors on their principal axes."""
    mean, spread = vectors.mean(axis=0, dtype=np.float64), vectors.std(axis=0, dtype=np.float64)
    moving = spread > _CONSTANT * np.abs(mean)
    scaled = (vectors[:, moving] - mean[moving]) / spread[moving]
    if scaled.shape[1] <= len(scaled):
        gram, axes = np.linalg.eigh(scaled.T @ scaled)
    else:  # fewer rows than dimensions: no axes but those the rows span
        gram, across = np.linalg.eigh(scaled @ scaled.T)
        axes = scaled.T @ (across / np.sqrt(np.maximum(gram, np.finfo(float).tiny)))
    kept = gram > 1e-9 * gram.max(initial=0.0)
    back = np.zeros((len(mean), int(kept.sum())))
    back[moving] = axes[:, kept] / spread[moving, None]
    return Axes((scaled @ axes[:, kept]).astype(np.float32), gram[kept], back, mean)


def learn_layer(axes: Axes, code: Integers, patients: Integers, n_classes: int, seed: int) -> Layer:
    """A layer that tells the classes (`code`, the class of each learning row) apart."""
    fold = fold_patients(code, patients, seed)
    known = code[:, None] == np.arange(n_classes)
    others = fold[:, None] != np.arange(FOLDS)
    found = np.zeros((len(axes.gram) + 1, FOLDS, n_classes))
    found[0] = np.log(known.mean(axis=0))
    best, chosen, least, held = found, PENALTIES[0], np.inf, known.astype(np.float32)
    for penalty in PENALTIES:
        found = _fit(axes, known, others, penalty, found)
        said = _class_probabilities(axes.rows, found)[
            np.arange(len(fold)), fold
        ]  # by layers that did not learn from the patient
        loss = float(-np.log(np.maximum(said[known], 1e-30)).sum(dtype=np.float64))
        if loss >= least:
            break  # weaker penalties fit other patients worse still
        best, chosen, least, held = found, penalty, loss, said
    thresholds = [youden_threshold(known[:, k].astype(np.float64), held[:, k]) for k in range(n_classes)]
    layer = _fit(axes, known, np.ones((len(code), 1), dtype=bool), chosen, best.mean(axis=1, keepdims=True))[:, 0]
    weight = axes.back @ layer[1:]
    return Layer(weight, layer[0] - axes.mean @ weight, np.array(thresholds), chosen)


def fold_patients(code: Integers, patients: Integers, seed: int) -> Integers:
    """The fold of each row: patients whole, those of one class dealt round, so that every fold has its share."""
    names, place = np.unique(patients, return_inverse=True)
    kind = np.zeros(len(names), dtype=np.int64)
    np.maximum.at(kind, place, code)
    chance = np.random.default_rng([seed, 59]).permutation(len(names))
    fold = np.empty(len(names), dtype=np.int64)
    fold[np.lexsort((chance, kind))] = np.arange(len(names)) % FOLDS
    return fold[place]


def _fit(axes: Axes, known: Flags, inside: Flags, penalty: float, start: Floats) -> Floats:
    """Coefficients (1 + axes, fits, classes) with the least log loss over `inside` (rows x fits) + penalty/2 squares.

    The first are intercepts and not penalised.
    """
    n, (width, fits, classes) = len(known), start.shape
    ridge = np.full((width, 1, 1), penalty)
    ridge[0] = 0.0
    bound = np.r_[n, axes.gram][:, None, None] / 2 + ridge  # of the curvature; that of fewer rows is less
    enough = _LEFT * inside.sum(axis=0)
    weight = inside[:, :, None].astype(np.float32)
    target = known[:, None, :].astype(np.float32)
    found = ahead = start
    speed = np.ones((1, fits, 1))
    for _ in range(_STEPS):
        off = ((_class_probabilities(axes.rows, ahead) - target) * weight).reshape(n, fits * classes)
        slope = np.vstack([off.sum(axis=0, dtype=np.float64), axes.rows.T @ off]).reshape(start.shape) + ridge * ahead
        step = slope / bound
        new = ahead - step
        if ((slope * step).sum(axis=(0, 2)) < enough).all():
            return new
        uphill = (slope * (new - found)).sum(axis=(0, 2), keepdims=True) > 0
        faster = np.where(uphill, 1.0, (1 + np.sqrt(1 + 4 * speed**2)) / 2)
        ahead = new + np.where(uphill, 0.0, (speed - 1) / faster) * (new - found)
        found, speed = new, faster
    return found


def _class_probabilities(rows: Singles, layers: Floats) -> Singles:
    """Probability of every class: rows x fits x classes."""
    width, fits, classes = layers.shape
    flat = layers.reshape(width, fits * classes).astype(np.float32)
    score = (rows @ flat[1:] + flat[0]).reshape(len(rows), fits, classes)
    score -= score.max(axis=2, keepdims=True)
    np.exp(score, out=score)
    score /= score.sum(axis=2, keepdims=True)
    return score


# The main part.

_AT = f"threshold with the largest J in {FOLDS} folds of the training patients, held fixed"


class Network(NamedTuple):
    """A model and its training seed; `shown` is its name in RESULT, with the seed where there are several."""

    model: str
    seed: int | None
    shown: str


def networks_of(table: pa.Table, several: Container[str]) -> list[Network]:
    """Every network of a table by name and seed; `several`: models that are named with their seeds."""
    found = [
        Network(model, seed, f"{model} (seed {seed})" if model in several and seed is not None else model)
        for model, seed in _keys(table)
    ]
    return sorted(found, key=lambda each: (each.model, -1 if each.seed is None else each.seed))


def with_several_seeds(tables: Iterable[pa.Table]) -> set[str]:
    """Models of which some table has several runs."""
    counts = [Counter(model for model, _ in _keys(table)) for table in tables]
    return {model for each in counts for model, runs in each.items() if runs > 1}


def _keys(table: pa.Table) -> list[tuple[str, int | None]]:
    keys = table.select(["model", "seed"]).group_by(["model", "seed"], use_threads=False).aggregate([]).to_pylist()
    return [(key["model"], key["seed"]) for key in keys]


def rows_of(table: pa.Table, network: Network) -> pa.Table:
    """The rows of one network."""
    seed = table["seed"]
    same = pc.is_null(seed) if network.seed is None else pc.fill_null(pc.equal(seed, network.seed), False)
    return table.filter(pc.and_(pc.equal(table["model"], network.model), same))


def split_outputs(
    embeddings: pa.Table, network: Network, people: Sequence[People], context: Context, notes: list[str]
) -> Iterator[Output]:
    """What new layers on one network say of every target, dataset by dataset."""
    ids, vectors = vectors_by_image(rows_of(embeddings, network), network.shown)
    seed = context.settings.seed
    for group in people:
        at = np.flatnonzero(np.isin(group.image_ids, ids))
        if not len(at):
            continue
        place = np.searchsorted(ids, group.image_ids)
        turned: dict[bytes, Axes] = {}
        for target in TARGETS:
            sides = sides_of(group, at, target, seed, notes)
            if sides is None:
                continue
            context.progress(f"{network.shown}: encoding, a new layer for {target.replace('_', ' ')}")
            code = np.searchsorted(sides.classes, group.values[target])
            _, patients = np.unique(group.patients[sides.learn], return_inverse=True)
            with one_thread():
                key = sides.learn.tobytes()  # targets that are known of the same images share their axes
                if key not in turned:
                    turned = {key: to_principal_axes(vectors[place[sides.learn]])}
                layer = learn_layer(turned[key], code[sides.learn], patients, len(sides.classes), seed)
                probability = layer.probability(vectors[place[sides.ask]])
            data = _layer_predictions(group, sides, network, target, code[sides.ask], probability)
            learned = f"{len(sides.learn):,} images of {int(patients.max()) + 1:,} patients ({sides.how})"
            yield Output(
                sample_of(context, group.dataset, network.shown, network.model, data),
                target,
                dict(zip(data.findings, layer.thresholds.tolist(), strict=False)),
                "split_",
                f"linear layer, ridge penalty {layer.penalty:g}, fitted on {learned}",
                _AT,
            )


def _layer_predictions(
    group: People, sides: Sides, network: Network, target: str, code: np.ndarray, probability: Floats
) -> PredictionArrays:
    """The classes as findings; of two classes the first."""
    measured = 1 if len(sides.classes) == 2 else len(sides.classes)
    names, patients = np.unique(group.patients[sides.ask], return_inverse=True)
    return PredictionArrays(
        network.model,
        network.seed,
        tuple(f"{target}={name}" for name in sides.classes[:measured]),
        group.image_ids[sides.ask],
        names,
        patients.astype(np.int64),
        y=(code[:, None] == np.arange(measured)).astype(np.float64),
        p=probability[:, :measured],
        is_probability=np.ones(measured, dtype=bool),
        pretest=None,
        mention=None,
        weight=None,
        age=None,
        groups={},
    )


# What a network, or a new layer on it, says of a characteristic -> RESULT rows, and paired differences of two.
#
# A characteristic is treated as a finding: each class against the rest is one (`race=Black`), two classes are one
# (`sex=F`: `sex=M` is its mirror), and the mean over classes stands under the target's name (`race`). To read a
# characteristic is neither good nor bad, so `higher_is_better` is null.

NUMBERS = ("auroc", "tpr", "fpr", "j")


class Context(NamedTuple):
    """What all rows of the audit share."""

    settings: Settings
    workers: int | None
    progress: Progress


class Output(NamedTuple):
    """One network's outputs for the classes of one target, as a sample whose findings are the classes.

    `prefix` comes before the names of metrics (`split_`); `how` says how the output was learned, `at` whence its
    thresholds are.
    """

    sample: Sample
    target: str
    thresholds: Mapping[str, float]
    prefix: str
    how: str
    at: str
    note: str | None = None


def sample_of(context: Context, dataset: str | None, model: str, name: str, data: PredictionArrays) -> Sample:
    """Classes as findings, with draws of patients that are the same for every network on these images.

    The weight column is that of findings and is not used.
    """
    settings, data = context.settings, replace(data, weight=None)
    return Sample(
        dataset, model, data, draw(data.patients, y=data.y, n_resamples=settings.n_resamples, seed=settings.seed),
        settings, context.workers, context.progress, name=name, keep=True,
    )  # fmt: skip


class MeasuredOutput(NamedTuple):
    """An output and its rows, whose metrics have no prefix as yet."""

    output: Output
    rows: list[Row]

    def named(self) -> list[Row]:
        """The rows as RESULT has them."""
        return [row | {"metric": self.output.prefix + row["metric"]} for row in self.rows]


def measure_output(output: Output) -> MeasuredOutput:
    """AUROC, and TPR, FPR and J at the thresholds, of every class and of their mean."""
    return MeasuredOutput(output, _rows(output))


def _rows(output: Output) -> list[Row]:
    sample = output.sample
    findings = sample.findings()
    thresholds = [output.thresholds[finding.name] for finding in findings]
    at = {name: {} if name == "auroc" else {"threshold": thresholds} for name in NUMBERS}
    replicates = bootstrap_findings(sample, findings, at)
    make = RowMaker("encoding", sample)
    rows: list[Row] = []
    values: list[dict[str, float]] = []
    for finding, threshold, own in zip(findings, thresholds, replicates, strict=True):
        rates = None if np.isnan(threshold) else rates_at(finding.y, finding.p, threshold)
        found = {name: np.nan if rates is None else getattr(rates, name) for name in NUMBERS[1:]}
        values.append({"auroc": auroc(finding.y, finding.p)} | found)
        for name in NUMBERS:
            rate = name != "auroc"
            row = make.of(
                name, finding, values[-1][name], own[name], weighting=output.how, how=output.at if rate else None,
                note=output.note if rate and np.isfinite(values[-1][name]) else None,
            )  # fmt: skip
            rows.append(row | {"higher_is_better": None})
    if len(findings) < 2:
        return rows
    counts = macro_counts(sample, findings)
    for name in NUMBERS:
        defined = [k for k, each in enumerate(values) if np.isfinite(each[name])]
        of = f"{len(defined)} of {len(findings)}" if len(defined) < len(findings) else f"{len(findings)}"
        said = f"mean of {of} classes, each against the rest"
        if not defined:
            row = make.row(name, output.target, counts, np.nan, note=f"{name} is undefined for all classes")
        else:
            units = [findings[k].counts.units for k in defined]
            mean = mean_over([replicates[k][name] for k in defined], units)
            row = make.row(
                name, output.target, counts, float(np.mean([values[k][name] for k in defined])), mean.replicates,
                units=mean.units, weighting=output.how, how=None if name == "auroc" else output.at, note=said,
            )  # fmt: skip
        rows.append(row | {"higher_is_better": None, "n_pos": None})
    return rows


def difference_rows(one: MeasuredOutput, other: MeasuredOutput, *, tested: bool) -> AuditPart:
    """AUROC of the first less that of the second on the images that both have, patients drawn once for both."""
    outputs = {each.output.sample.model: each.output for each in (one, other)}

    def again(sample: Sample) -> list[Row]:
        return _rows(outputs[sample.model]._replace(sample=sample))

    first, second = (AuditedSample(each.output.sample, each.rows) for each in (one, other))
    found = compare(first, second, again)
    target, prefix = one.output.target, one.output.prefix
    rows = [
        row
        | {
            "audit": "encoding",
            "metric": prefix + row["metric"],
            "p_value": row["p_value"] if tested else None,
            "method": row["method"].removesuffix("; from the audit encoding"),
            "n_pos": None if row["finding"] == target else row["n_pos"],
        }
        for row in found.rows
        if row["metric"] == "auroc"
    ]
    return AuditPart(rows, [], [f"{target}: {note}" for note in found.notes])
