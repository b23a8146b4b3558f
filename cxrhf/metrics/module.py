"""What users hand to an `evaluate` module -> checked columns: optional inputs, batches, several processes.

A mixin, placed before `evaluate.Metric`; it does not import evaluate. evaluate itself wants every declared input in
every call, writes all rows to a file in the user's cache and reads them back as Python lists. Here a missing optional
input is simply missing, bad input is refused when it is handed over, and in a single process rows stay in memory:
faster, and no patient's report touches the disk. Several processes need evaluate's shared files; there missing
inputs are filled with NaN or '' on the way in and taken out again on the way back, and the other processes wait in
`compute` until the first has read their rows.

Rows are kept when `compute` fails, so that a misspelt option costs nothing, and dropped when it succeeds.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
import warnings
from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.calibration import (
    adaptive_calibration_error,
    balanced_brier,
    brier,
    brier_negative,
    brier_positive,
    brier_skill_score,
    expected_calibration_error,
)
from cxrhf.metrics.catalogue import METRICS, find_metric
from cxrhf.metrics.checks import (
    InputError,
    as_labels,
    as_pretest,
    as_probabilities,
    as_scores,
    as_texts,
    as_weights,
    is_missing,
    undefined,
    where_labelled,
)
from cxrhf.metrics.matching import matched_auroc
from cxrhf.metrics.operating import Rates, net_benefit, rates_at, sensitivity_at_specificity
from cxrhf.metrics.ranking import auprc_trapezoid, auroc, average_precision
from cxrhf.metrics.reliability import pav_decomposition

Columns = dict[str, NDArray[Any]]

# What an input holds, whichever module takes it.
FAMILY = ("predictions", "references", "sample_weight", "context", "groups", "clusters")
_NAMES = ("groups", "clusters")
# None is a value: a label that is missing.
_LEFT_OUT: Any = object()


if TYPE_CHECKING:

    class _Module:
        """The part of evaluate.Metric that is used here."""

        name: str
        num_process: int
        process_id: int
        timeout: float
        cache_file_name: str | None

        def compute(self, **inputs: Any) -> dict[str, Any] | None: ...
        def add_batch(self, **inputs: Any) -> None: ...
        def _feature_names(self) -> list[str]: ...
        def __len__(self) -> int: ...
else:
    _Module = object


class ModuleInputs(_Module):
    """`required` and `optional` name a module's inputs; `_measure` computes its result from checked columns."""

    required: ClassVar[tuple[str, ...]] = ("predictions", "references")
    optional: ClassVar[tuple[str, ...]] = ()
    texts: ClassVar[bool] = False
    probability: ClassVar[bool] = False

    _measure: Callable[..., dict[str, Any]]

    def compute(self, *, predictions: Any = None, references: Any = None, **kwargs: Any) -> dict[str, Any] | None:
        """Compute the metric from the rows given here and those added before.

        Inputs that the description below calls optional may be left out. Options are keyword arguments.
        """
        given = {"predictions": predictions, "references": references, **kwargs}
        batch = {name: given.pop(name) for name in FAMILY if name in given}
        self._check_options(given)
        passed = any(value is not None for value in batch.values())
        if self.num_process > 1:
            if passed:
                self.add_batch(**batch)
            own_file = self.cache_file_name
            result = super().compute(**given)
            if self.process_id > 0 and own_file is not None:
                _wait_until_deleted(own_file, self.timeout)
            self.__dict__["_rows"] = []
            return result
        batches = [*self._batches(), *([self._checked(batch, self._batches())] if passed else [])]
        if not batches:
            raise InputError(
                f"{self.name} has no rows. Call compute(predictions=..., references=...), or add_batch first."
            )
        columns = {name: np.concatenate([each[name] for each in batches]) for name in batches[0]}
        out = self._measure(**columns, **given)
        self.__dict__["_rows"] = []
        return out

    def add_batch(self, *, predictions: Any = None, references: Any = None, **kwargs: Any) -> None:
        """Add rows for a later `compute`, with the optional inputs that all batches have."""
        batch = self._checked({"predictions": predictions, "references": references, **kwargs}, self._batches())
        self._batches().append(batch if self.num_process == 1 else {k: v[:1] for k, v in batch.items()})
        if self.num_process > 1:
            super().add_batch(**self._filled(batch))

    def add(self, *, prediction: Any = _LEFT_OUT, reference: Any = _LEFT_OUT, **kwargs: Any) -> None:
        """Add one row for a later `compute`. A reference of None is a missing label."""
        row = {"predictions": prediction, "references": reference, **kwargs}
        given = {name: value for name, value in row.items() if value is not _LEFT_OUT}
        label = () if self.texts else ("references",)
        self.add_batch(**{name: [value] for name, value in given.items() if value is not None or name in label})

    def __len__(self) -> int:
        if self.num_process > 1:
            return super().__len__()
        return sum(len(batch["predictions"]) for batch in self._batches())

    def _compute(self, **inputs: Any) -> dict[str, Any]:
        """What evaluate calls in the first of several processes, with all rows as lists."""
        batch = {name: inputs.pop(name) for name in FAMILY if name in inputs}
        for name in self.optional:
            if name in batch and _is_filling(batch[name]):
                del batch[name]
        return self._measure(**self._checked(batch, []), **inputs)

    def _feature_names(self) -> list[str]:
        """evaluate.combine looks up every declared input in what it was given; leave out the optional ones it lacks."""
        names = super()._feature_names()
        caller = sys._getframe(1)
        batch = caller.f_locals.get("batch")
        if caller.f_code.co_name in ("add", "add_batch") and isinstance(batch, dict):
            return [name for name in names if name in batch or name not in self.optional]
        return names

    def declared(self, datasets: Any) -> list[Any]:
        """The inputs as features of the `datasets` package: one label a row and, for numbers, several."""
        number, name = datasets.Value("float64"), datasets.Value("string")
        inputs = (*self.required, *self.optional)
        if self.texts:
            return [datasets.Features(dict.fromkeys(inputs, name))]
        single = {each: name if each in _NAMES else number for each in inputs}
        wide = {each: datasets.List(number) for each in ("predictions", "references", "context") if each in inputs}
        return [datasets.Features(single), datasets.Features(single | wide)]

    def _batches(self) -> list[Columns]:
        """Rows of earlier calls (of each batch only the first, where evaluate's files hold the rest)."""
        rows: list[Columns] = self.__dict__.setdefault("_rows", [])
        return rows

    def _check_options(self, options: dict[str, Any]) -> None:
        known = [
            name
            for name, each in inspect.signature(self._measure).parameters.items()
            if each.kind is inspect.Parameter.KEYWORD_ONLY
        ]
        for name in options:
            if name not in known:
                near = get_close_matches(name, [*known, *self.required, *self.optional], 1)
                hint = f". Did you mean {near[0]!r}?" if near else ""
                raise InputError(
                    f"{self.name}: expected the inputs {', '.join((*self.required, *self.optional))} and the options "
                    f"{', '.join(known)}, got {name!r}{hint}"
                )

    def _checked(self, batch: dict[str, Any], earlier: list[Columns]) -> Columns:
        given = {name: value for name, value in batch.items() if value is not None}
        for name in [name for name in given if name not in (*self.required, *self.optional)]:
            if name not in FAMILY:
                self._check_options({name: None})
            # evaluate.combine hands every input to every module.
            warnings.warn(f"{self.name} ignores {name}", UserWarning, stacklevel=3)
            del given[name]
        for name in self.required:
            if name not in given:
                raise InputError(f"{self.name} requires {name}, got {', '.join(given) or 'nothing'}")
        columns = self._columns(given)
        lengths = {name: len(column) for name, column in columns.items()}
        for name, length in lengths.items():
            if length != lengths["predictions"]:
                raise InputError(f"{name}: expected {lengths['predictions']} rows as in predictions, got {length}")
        for before in earlier[:1]:
            if set(before) != set(columns):
                odd = sorted(set(before) ^ set(columns))[0]
                raise InputError(f"{odd}: expected in all batches or in none, got it in some")
            for name, column in columns.items():
                if column.shape[1:] != before[name].shape[1:]:
                    raise InputError(
                        f"{name}: expected rows of shape {before[name].shape[1:]} as before, got {column.shape[1:]}"
                    )
        return columns

    def _columns(self, given: dict[str, Any]) -> Columns:
        """Numbers as float64, names and texts as str; refused here what no metric can use."""
        out: Columns
        if self.texts:
            inputs = [name for name in ("predictions", "references") if name in given]
            out = {name: np.array(as_texts(given[name], name), dtype=object) for name in inputs}
        else:
            out = _numbers(given, self.probability)
        return out | {name: _as_names(given[name], name) for name in _NAMES if name in given}

    def _filled(self, batch: Columns) -> dict[str, list[Any]]:
        """Every declared input, as evaluate's writer wants it."""
        n = len(batch["predictions"])
        full: dict[str, list[Any]] = {name: column.tolist() for name, column in batch.items()}
        for name in self.optional:
            if name not in full:
                like = batch["predictions"]
                if name in _NAMES or self.texts:
                    full[name] = [""] * n
                else:
                    full[name] = (np.full(like.shape, np.nan) if name == "context" else np.full(n, np.nan)).tolist()
        return full

    def ticking(self, total: int) -> Callable[[int], None]:
        """A progress bar for long work: it appears after two seconds."""
        from tqdm.auto import tqdm

        bar = tqdm(total=total, desc=f"{self.name}, resamples", delay=2, leave=False)

        def tick(count: int) -> None:
            bar.update(count)
            if bar.n >= total:
                bar.close()

        return tick


def _numbers(given: dict[str, Any], probability: bool) -> Columns:
    labels = as_labels(_to_array(given["references"], "references"), "references", masked=True)
    missing = np.isnan(labels)
    scores = where_labelled(_to_array(given["predictions"], "predictions"), missing, "predictions", "references")
    check = as_probabilities if probability else as_scores
    out = {"predictions": check(scores, "predictions", masked=True), "references": labels}
    if "sample_weight" in given:
        out["sample_weight"] = as_weights(
            _to_array(given["sample_weight"], "sample_weight"), len(labels), "sample_weight"
        )
    if "context" in given:
        out["context"] = as_pretest(_to_array(given["context"], "context"), missing, "context", "references")
    return out


def _to_array(values: Any, name: str) -> NDArray[Any]:
    """Lists, arrays, table columns and tensors (also on a device, with gradients, in half precision) as an array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if "float16" in str(values.dtype) else values
    if isinstance(values, (list, tuple)) and any(hasattr(each, "detach") for each in values[:1]):
        values = [_to_array(each, name) for each in values]
    if isinstance(values, (str, bytes, dict)) or not hasattr(values, "__len__"):
        raise InputError(
            f"{name}: expected a list or array with one entry per row, got {values!r:.60} ({type(values).__name__})"
        )
    if hasattr(values, "to_numpy") and not isinstance(values, np.ndarray):
        values = values.to_numpy()
    try:
        return np.asarray(values)
    except (ValueError, TypeError):
        sizes = sorted({len(row) if hasattr(row, "__len__") else 0 for row in values})
        raise InputError(f"{name}: expected the same number of labels in each row, got {sizes}") from None


def _as_names(values: Any, name: str) -> NDArray[Any]:
    """Groups or patients as text, so that 7, 7.0 and "7" are one patient in every process."""
    raw = _to_array(values, name)
    if raw.ndim != 1:
        raise InputError(f"{name}: expected one value per row, got shape {raw.shape}")
    if raw.dtype.kind in "iub":
        return raw.astype(str).astype(object)
    out = np.empty(len(raw), dtype=object)
    for position, value in enumerate(raw.tolist()):
        if is_missing(value) or value == "":
            hint = ". Name unknown groups, for example 'unknown'." if name == "groups" else ""
            raise InputError(f"{name}[{position}]: expected a value in every row, got {value!r}{hint}")
        out[position] = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return out


def _wait_until_deleted(path: str, timeout: float) -> None:
    """Wait until the first process has read this one's rows, which it shows by deleting them.

    evaluate would go on at once, and the rows of the next round could take the place of those still to be read.
    """
    end = time.monotonic() + timeout
    while os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.01)


def _is_filling(values: Any) -> bool:
    """Whether an optional column holds only the filling of `_filled`."""
    rows = list(values)
    if all(isinstance(row, str) for row in rows):
        return all(row == "" for row in rows)
    return bool(np.isnan(np.asarray(rows, dtype=np.float64)).all())


# Name of a metric -> a scikit-learn scorer with the right sign, fed with probabilities where it needs them.
#
#     cross_validate(model, X, y, groups=patient, cv=StratifiedGroupKFold(5), scoring=scorer("brier_skill_score"))
#
# One finding at a time, labels 0 and 1. scikit-learn maximises, so a metric whose lower values are better comes back
# with a minus, as from scikit-learn's own "neg_" scorers. A fold in which a metric is undefined scores NaN, and a
# warning says why. What scikit-learn makes of it: the mean over folds is NaN, and as all candidates of a grid search
# share their folds, all of them are NaN, all rank first, and the first is called the best. Use folds that hold both
# classes (StratifiedGroupKFold), or pool out-of-fold predictions.

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        auroc,
        average_precision,
        auprc_trapezoid,
        brier,
        brier_positive,
        brier_negative,
        balanced_brier,
        brier_skill_score,
        adaptive_calibration_error,
        expected_calibration_error,
        sensitivity_at_specificity,
        net_benefit,
        matched_auroc,
    )
} | dict.fromkeys(Rates._fields, rates_at)
_FUNCTIONS |= dict.fromkeys(("pav_calibration", "pav_refinement"), pav_decomposition)
# One field of what the function returns.
_FIELDS = {
    "sensitivity_at_specificity": "sensitivity",
    "pav_calibration": "calibration",
    "pav_refinement": "refinement",
} | {name: name for name in Rates._fields}


def scorer(metric: str, **options: Any) -> Any:
    """Create a scikit-learn scorer for cross_validate, GridSearchCV and similar; higher is better.

    `metric` is a name in METRICS that has a better direction; metrics for which lower is better are negated. `options`
    are those of its function (`specificity=0.9`, `bins=15`, `threshold=0.2`). Probability metrics and rates at a
    threshold use `predict_proba`; ranking metrics use `decision_function` if the estimator has one. Undefined values
    are NaN with a warning.

    Pass weights as `sample_weight`, and the pre-test probability of "matched_auroc" as `pretest`. Both require metadata
    routing and a request such as `scorer("matched_auroc").set_score_request(pretest=True)`.

    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1]
    >>> model = LogisticRegression().fit(X, y)
    >>> scorer("auroc")(model, X, y)
    0.75
    >>> scorer("balanced_brier")(model, X, y) == -balanced_brier(y, model.predict_proba(X)[:, 1])
    True
    """
    entry = find_metric(metric)
    allowed = [name for name in METRICS if name in _FUNCTIONS]
    if metric not in _FUNCTIONS:
        why = "chooses its threshold on the rows it scores" if entry.higher_is_better else "has no better direction"
        why = "is only available in the bootstrap" if entry.matched else why
        raise InputError(f"metric: expected {', '.join(allowed)}, got {metric!r}, which {why}")
    if entry.option is not None and np.isfinite(entry.default):
        options = {entry.option: entry.default} | options
    known = [name for name in inspect.signature(_FUNCTIONS[metric]).parameters if name not in _ROWS]
    for name in options:
        if name not in known:
            raise InputError(f"options of {metric}: expected {', '.join(known) or 'none'}, got {name!r}")
    matched = metric == "matched_auroc"
    # A bad value is refused now, by the function itself, and not fold by fold.
    _FUNCTIONS[metric]([0, 1], [0.25, 0.75], **({"pretest": [0.5, 0.5]} if matched else {}), **options)

    from sklearn.metrics import make_scorer

    return make_scorer(
        context_score if matched else catalogue_score,
        greater_is_better=bool(entry.higher_is_better),
        response_method="predict_proba"
        if entry.probability or entry.option == "threshold"
        else ("decision_function", "predict_proba"),
        metric=metric,
        **options,
    )


_ROWS = ("y", "p", "weight", "pretest")


# Two functions, because scikit-learn reads from the signature which metadata a scorer can take; at the top of the
# module, so that scorers can be sent to other processes.
def catalogue_score(
    y_true: ArrayLike, y_score: ArrayLike, *, metric: str, sample_weight: ArrayLike | None = None, **options: Any
) -> float:
    """A metric of the catalogue, in the words of scikit-learn."""
    return _value(metric, y_true, y_score, {"weight": sample_weight}, options)


def context_score(
    y_true: ArrayLike, y_score: ArrayLike, *, metric: str, pretest: ArrayLike | None = None, **options: Any
) -> float:
    """A metric that needs the pre-test probability of each row."""
    if pretest is None:
        raise InputError(
            f"{metric} requires pretest for the rows it scores. Call sklearn.set_config(enable_metadata_routing=True) "
            f"and scorer({metric!r}).set_score_request(pretest=True), and pass params={{'pretest': ...}}."
        )
    return _value(metric, y_true, y_score, {"pretest": pretest}, options)


def _value(
    metric: str, y: ArrayLike, p: ArrayLike, rows: dict[str, ArrayLike | None], options: dict[str, Any]
) -> float:
    found = _FUNCTIONS[metric](y, p, **rows, **options)
    value = float(getattr(found, _FIELDS[metric]) if metric in _FIELDS else found)
    if np.isnan(value):
        from sklearn.exceptions import UndefinedMetricWarning

        reason = undefined(metric, y, rows.get("weight")) or f"{metric} is undefined on these {np.size(y)} rows"
        warnings.warn(reason, UndefinedMetricWarning, stacklevel=2)
    return value
