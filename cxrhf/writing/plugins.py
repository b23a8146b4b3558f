"""Name of a plug-in -> a function that scores pairs of reports with a package of the user's, on this machine.

`ratescore` and `radgraph` are packages that bring models of their own; they are imported only when asked for, and run
only on weights that are already here: no text leaves the machine. (HF_HUB_OFFLINE=1 keeps their libraries from asking
the Hub for news of the weights, too.) `MODULE:FUNCTION` is any function (references, generated) -> one number a report,
None or NaN where there is none.

Known gaps: both packages cut a report at 512 tokens of their own models, and are tied to old versions of others, so
they may need an environment of their own: score there, the run folder is the same. A function of the user's may change
from run to run, so its scores are not kept.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrhf.errors import ConfigError, CxrhfError

Scores = NDArray[np.float32]
Function = Callable[[list[str], list[str]], Sequence[Any]]

RATE_NER, RATE_SYNONYMS = "Angelakeke/RaTE-NER-Deberta", "FremyCompany/BioLORD-2023-C"
RADGRAPH = "radgraph-xl"
_AT_ONCE = 64  # reports between two savings


@dataclass(frozen=True, slots=True)
class Plugin:
    """Names of its scores, what stands in the column `encoder`, and what scores pairs, some at a time."""

    metrics: tuple[str, ...]
    encoder: str
    compute: Callable[[list[tuple[str, str]]], Iterator[tuple[Sequence[int], Scores]]]
    key: Mapping[str, Any] | None = None  # of the cache; None: not kept
    empty: float = float("nan")  # score of an empty generated report
    asks_empty: bool = False  # empty generated reports are scored by `compute` too, and have no fixed score


def open_plugin(name: str, device: str = "auto", progress: Callable[[str], None] = lambda line: None) -> Plugin:
    """The plug-in of a name; a CxrhfError if its package or its weights are not here."""
    if name == "ratescore":
        return _ratescore(device, progress)
    if name == "radgraph":
        return _radgraph(device, progress)
    return _custom(name)


def _custom(name: str) -> Plugin:
    where, _, called = name.partition(":")
    try:
        module = importlib.import_module(where)
    except ImportError as error:
        raise ConfigError(
            f"the plug-in {name} cannot be imported ({error})",
            next_step="install its package, or put PYTHONPATH=FOLDER before the command",
        ) from None
    function = getattr(module, called, None)
    if not callable(function):
        raise ConfigError(
            f"the module {where} has no function {called}",
            allowed="a function that maps (references, generated) to numbers",
        )

    def compute(pairs: list[tuple[str, str]]) -> Iterator[tuple[Sequence[int], Scores]]:
        yield range(len(pairs)), _asked(name, function, pairs, 1)  # all at once: it may look at the whole corpus

    return Plugin((called,), name, compute, asks_empty=True)


def _ratescore(device: str, progress: Callable[[str], None]) -> Plugin:
    module = _package("RaTEScore", "ratescore")
    if "loguru" in sys.modules:  # its sentence splitter would print every report
        sys.modules["loguru"].logger.disable("PyRuSH")
    ner, synonyms = (_weights(each, "ratescore") for each in (RATE_NER, RATE_SYNONYMS))
    made: list[Any] = []

    def score(references: list[str], generated: list[str]) -> list[float]:
        if not made:
            gpu = _device(device).startswith("cuda")
            made.append(module.RaTEScore(bert_model=str(ner), eval_model=str(synonyms), batch_size=16, use_gpu=gpu))
        return [one(reference, report) for reference, report in zip(references, generated, strict=True)]

    def one(reference: str, report: str) -> float:
        # One pair a call: the package loses a report in which it finds no sentence ("ok"), and all after it move up.
        try:
            found = made[0].compute_score([report], [reference])
        except IndexError:
            split = importlib.import_module("RaTEScore.utils").sentence_split
            if all(split([text])[0] for text in (reference, report)):
                raise
            found = []
        return float(found[0]) if len(found) == 1 else float("nan")

    key = {"plugin": "ratescore", "package": _version("RaTEScore"), "weights": [_hash(ner), _hash(synonyms)]}
    return Plugin(("ratescore",), "RaTEScore", _stepwise("ratescore", score, 1, progress), key, empty=0.0)


def _radgraph(device: str, progress: Callable[[str], None]) -> Plugin:
    module = _package("radgraph", "radgraph")
    place = Path(importlib.import_module("radgraph.radgraph").CACHE_DIR) / RADGRAPH
    if not (place / "weights.th").is_file():
        raise CxrhfError(
            f"the weights of {RADGRAPH} are not on this machine, and cxrhf does not download them",
            next_step=f"python -c \"from radgraph import RadGraph; RadGraph(model_type='{RADGRAPH}')\"",
        )
    settings = json.loads((place / "config.json").read_text(encoding="utf-8"))
    _weights(settings["model"]["embedder"]["token_embedders"]["bert"]["model_name"], "radgraph")
    made: list[Any] = []

    def score(references: list[str], generated: list[str]) -> list[Sequence[float]]:
        if not made:
            cuda = 0 if _device(device).startswith("cuda") else -1
            made.append(module.F1RadGraph(reward_level="all", model_type=RADGRAPH, cuda=cuda))
        return list(zip(*made[0](refs=references, hyps=generated)[1], strict=True))

    metrics = ("radgraph_simple", "radgraph_partial", "radgraph_complete")
    stat = (place / "weights.th").stat()
    key = {"plugin": "radgraph", "package": _version("radgraph"), "weights": [RADGRAPH, stat.st_size, stat.st_mtime_ns]}
    return Plugin(metrics, RADGRAPH, _stepwise("radgraph", score, 3, progress), key, empty=0.0)


def _stepwise(
    name: str, function: Function, n_scores: int, progress: Callable[[str], None]
) -> Callable[[list[tuple[str, str]]], Iterator[tuple[Sequence[int], Scores]]]:
    """Some pairs at a time, so that a killed job keeps what it has."""

    def compute(pairs: list[tuple[str, str]]) -> Iterator[tuple[Sequence[int], Scores]]:
        for start in range(0, len(pairs), _AT_ONCE):
            part = pairs[start : start + _AT_ONCE]
            yield range(start, start + len(part)), _asked(name, function, part, n_scores)
            progress(f"{name}: {start + len(part):,} of {len(pairs):,} pairs of reports")

    return compute


def _asked(name: str, function: Function, pairs: list[tuple[str, str]], n_scores: int) -> Scores:
    """What a function says of pairs, checked. Its own words are not shown: they may quote reports."""
    try:
        with contextlib.redirect_stdout(sys.stderr):  # packages print; stdout is for results
            said = list(function([reference for reference, _ in pairs], [generated for _, generated in pairs]))
    except CxrhfError:
        raise
    except Exception as error:
        raise CxrhfError(
            f"the plug-in {name} failed with {type(error).__name__} on {len(pairs):,} pairs of reports",
            next_step="run again with --debug to see where",
        ) from error
    if len(said) != len(pairs):
        raise CxrhfError(
            f"result of the plug-in {name}",
            got=f"{len(said):,} values for {len(pairs):,} pairs of reports",
            allowed="one number or None per pair",
        )
    try:
        values = np.array([np.nan if each is None else each for each in said], dtype=np.float64)
        scores = values.reshape(len(pairs), n_scores)
    except (TypeError, ValueError):
        raise CxrhfError(
            f"result of the plug-in {name}", got="a value that is not a number", allowed="one number or None per pair"
        ) from None
    return np.where(np.isfinite(scores), scores, np.nan).astype(np.float32)


def _package(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except Exception as error:  # packages that load models when they are imported fail in many ways
        lacks = "" if getattr(error, "name", None) == module else f" ({type(error).__name__}: {error})"
        raise CxrhfError(
            f"the plug-in {name} requires the Python package {module}, which cannot be imported{lacks}",
            next_step=f"pip install {module} (or pass --metrics bertscore,semantic, which require no package)",
        ) from None


def _weights(hub_id: str, name: str) -> Path:
    """A model of the Hub's cache; what is not there is not fetched."""
    from cxrhf.encode.download import kept_folder

    found = kept_folder(hub_id)
    if found is None:
        raise CxrhfError(
            f"the plug-in {name} requires {hub_id}, which is not on this machine, and cxrhf does not download it",
            next_step=f"run `hf download {hub_id}` on a machine with network access",
        )
    return found


def _hash(folder: Path) -> str:
    from cxrhf.encode.files import model_files, model_hash

    return model_hash(model_files(folder, folder.name, allow_bin=True))


def _device(device: str) -> str:
    from cxrhf.encode.loading import choose_device

    return choose_device(device)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
