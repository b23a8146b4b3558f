"""Generated reports of a run -> SCORE rows (BERTScore, plug-ins) and REPORT_VECTOR rows, added to the run.

Rows of the same encoder and metric are replaced, all others stay. An empty generated report has BERTScore 0 and no
vector; an empty reference gives no score (null). Both are counted and said.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cxrhf.encode.settings import EncodeConfig
from cxrhf.errors import ConfigError, CxrhfError, RunError, TableError, need_packages
from cxrhf.models.predict import RunUpdate
from cxrhf.models.report_settings import ScoreConfig
from cxrhf.settings import to_mapping
from cxrhf.tables.folders import free_folder_name, temporary_folder

if TYPE_CHECKING:
    import pyarrow as pa

Progress = Callable[[str], None]
Floats = NDArray[np.float64]


REFERENCE = "reference"
_NEEDS_ENCODER = {"bertscore", "semantic"}
_PACKAGES = ("torch", "transformers", "safetensors")


@dataclass(slots=True)
class ScoredReports:
    """New rows, what the encoder was, and what a reader should know."""

    scores: pa.Table
    vectors: pa.Table
    identity: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)


def score_run(config: ScoreConfig, show: Progress) -> RunUpdate | None:
    """Score the reports of a run and add the rows to it. None in processes that only help."""
    from cxrhf.encode.processes import one_writer_of_all

    read_generations(Path(config.run))  # says what is no run before anything is locked
    with one_writer_of_all(config.run, "score"):
        return _score_held(config, show)


def _score_held(config: ScoreConfig, show: Progress) -> RunUpdate | None:
    from cxrhf.run import open_run, public_path
    from cxrhf.schema import REPORT_VECTOR, SCORE
    from cxrhf.tables.files import read_table

    folder = Path(config.run)
    generations = read_generations(folder)
    # Also what the new rows will stand beside: nothing is scored that could not be written.
    earlier = {name: read_table(path, schema) for name, schema in (("scores", SCORE), ("report_vectors", REPORT_VECTOR))
               if (path := folder / f"{name}.parquet").is_file()}  # fmt: skip
    if _NEEDS_ENCODER & set(config.metrics):
        need_packages("encoders", _PACKAGES, "context")
        from cxrhf.encode.cache import check_cache

        check_cache(config.cache)
    done = score_table(generations, config, show)
    from cxrhf.encode.processes import main_process
    from cxrhf.models.predict import merge_rows

    if not main_process():
        return None
    name, place = config.named()
    shown = f"{name}={public_path(place)}" if name else config.encoder  # no path of this machine behind the name
    whole = {}
    for table, rows, by in (
        ("scores", done.scores, ("encoder", "metric")),
        ("report_vectors", done.vectors, ("encoder",)),
    ):
        if rows.num_rows:
            whole[table] = merge_rows(rows, earlier.get(table), by)
    run = open_run(folder, verb="score", config=to_mapping(config) | {"encoder": shown}, inputs=None)
    for table, rows in whole.items():
        run.add(table, rows)
    run.finish(**({"encoder": done.identity} if done.identity else {}))
    vectors = f"{done.vectors.num_rows:,} embeddings of reports" if done.vectors.num_rows else None
    return RunUpdate(folder, [*mean_lines(done.scores), *filter(None, [vectors])], done.notes)


def read_generations(folder: Path) -> pa.Table:
    """The GENERATION rows of a run; an error that says how to make them."""
    from cxrhf.run import read_run

    out = shlex.quote(str(folder)) if (folder / "run.json").is_file() else free_folder_name(folder, "runs/words")
    file = shlex.quote(str(folder)) if folder.is_file() else "reports.csv"
    how = f"cxrhf generate MODEL --build BUILD --out {out}, or cxrhf generate --from {file} --out {out}"
    if not folder.is_dir() or not (folder / "run.json").is_file():
        what = "is a file, not a run folder" if folder.is_file() else "is not a run folder"
        raise RunError(f"{folder} {what}", next_step=how)
    if not (folder / "generations.parquet").is_file():
        there = ", ".join(sorted(each.stem for each in folder.glob("*.parquet"))) or "(none)"
        raise RunError(f"{folder} has no generations.parquet", got=f"tables {there}", next_step=how)
    table = read_run(folder).table("generations")
    if not table.num_rows:
        raise TableError(f"{folder / 'generations.parquet'} has no rows to score", next_step=how)
    return table


def score_table(generations: pa.Table, config: ScoreConfig, show: Progress) -> ScoredReports:
    """GENERATION rows -> SCORE and REPORT_VECTOR rows."""
    import pyarrow as pa

    from cxrhf.schema import REPORT_VECTOR, SCORE

    # What is missing of a plug-in is said before an encoder has worked for an hour.
    plugins = [open_plugin(name, config.device, show) for name in config.metrics if name not in _NEEDS_ENCODER]
    references, generated = (generations[name].to_pylist() for name in ("reference", "generated"))
    empty = np.array([not text.strip() for text in generated])
    unknown = np.array([not text.strip() for text in references])
    scores: list[pa.Table] = []
    done = ScoredReports(SCORE.empty_table(), REPORT_VECTOR.empty_table())
    if unknown.any():
        done.notes.append(f"{unknown.sum():,} of {len(unknown):,} references are empty; their reports get no score")
    if _NEEDS_ENCODER & set(config.metrics):
        with encoder_of(config) as (label, settings):
            from cxrhf.encode import identity

            done.identity = {"name": label, **identity(settings)}
            if "bertscore" in config.metrics:
                scores += _bertscore(generations, references, generated, config, label, settings, show)
                if empty.any():
                    done.notes.append(f"{empty.sum():,} generated reports are empty and get a BERTScore of 0")
            if "semantic" in config.metrics:
                done.vectors, left_out = report_vectors(generations, config, label, settings, show)
                if left_out:
                    done.notes.append(f"{left_out:,} reports or references without words have no embedding")
    for plugin in plugins:
        made, without = _plugin_rows(generations, references, generated, empty, unknown, plugin, config)
        scores += made
        if without:
            done.notes.append(f"{plugin.encoder} returned no score for {without:,} pairs of reports")
    if scores:
        done.scores = pa.concat_tables(scores)
    return done


@contextlib.contextmanager
def encoder_of(config: ScoreConfig) -> Iterator[tuple[str, EncodeConfig]]:
    """What stands in the column `encoder`, and the settings that open it."""
    need_packages("encoders", _PACKAGES, "context")
    from cxrhf.encode.cache import cache_folder
    from cxrhf.encode.chexbert import ENDINGS, checkpoint_folder
    from cxrhf.encode.files import locate

    name, place = config.named()
    path = Path(place).expanduser()
    if path.suffix.lower() in ENDINGS and not path.is_dir():
        with contextlib.ExitStack() as stack:
            root = cache_folder(config.cache)
            if root is None:
                root = stack.enter_context(temporary_folder("encoder"))
            folder = checkpoint_folder(path, name or path.stem, config.tokenizer, root)
            yield name or path.stem, config.encode(str(folder))
    else:
        yield name or locate(place).name, config.encode(place)


def _bertscore(
    generations: pa.Table,
    references: list[str],
    generated: list[str],
    config: ScoreConfig,
    label: str,
    settings: EncodeConfig,
    show: Progress,
) -> list[pa.Table]:
    from cxrhf.encode.bertscore import bertscore
    from cxrhf.encode.processes import main_process

    if not main_process():
        return []
    corpus = list(dict(zip(generations["image_id"].to_pylist(), references, strict=True)).values())  # an image once
    found = bertscore(
        references, generated, settings, layer=config.layer, idf=config.idf, corpus=corpus, cache=config.cache,
        keep_vectors="semantic" in config.metrics, progress=show,
    )  # fmt: skip
    # Another layer is another measure: its rows stand beside those of the last one.
    label += f", layer {config.layer}" if config.layer is not None else ""
    label += ", idf" if config.idf else ""
    return [
        score_rows(generations, f"bertscore_{part}", getattr(found, part), label)
        for part in ("f1", "precision", "recall")
    ]


def report_vectors(
    generations: pa.Table, config: ScoreConfig, label: str, settings: EncodeConfig, show: Progress
) -> tuple[pa.Table, int]:
    """One vector of length 1 a report, and one for the reference of each image; how many have no word to encode."""
    import pyarrow as pa

    from cxrhf.encode import encode_texts
    from cxrhf.schema import REPORT_VECTOR
    from cxrhf.tables.checks import check

    own = generations.select(["image_id", "model", "strategy", "generated"]).rename_columns({"generated": "text"})
    seen: dict[str, str] = {}
    for image, text in zip(generations["image_id"].to_pylist(), generations["reference"].to_pylist(), strict=True):
        seen.setdefault(image, text)
    n = len(seen)
    theirs = {"image_id": list(seen), "model": [""] * n, "strategy": [REFERENCE] * n, "text": list(seen.values())}
    rows = pa.concat_tables([own, pa.table(theirs, schema=own.schema)])
    full = pa.array([bool(text.strip()) for text in rows["text"].to_pylist()])
    worded = rows.filter(full)
    vectors = encode_texts(worded["text"], settings, cache=config.cache, progress=show)
    there = vectors.any(axis=1)
    kept = worded.filter(pa.array(there)).drop_columns(["text"])
    flat = pa.array(vectors[there].reshape(-1), pa.float32())
    columns = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]).cast(pa.list_(pa.float32()))
    table = kept.append_column("encoder", pa.repeat(pa.scalar(label), kept.num_rows)).append_column("vector", columns)
    return check(table, REPORT_VECTOR, source="report_vectors"), rows.num_rows - kept.num_rows


def _plugin_rows(
    generations: pa.Table,
    references: list[str],
    generated: list[str],
    empty: NDArray[np.bool_],
    unknown: NDArray[np.bool_],
    plugin: Plugin,
    config: ScoreConfig,
) -> tuple[list[pa.Table], int]:
    """Rows of a plug-in, and how many reports it gives no number for although both texts have words."""
    from cxrhf.encode.cache import score_pairs
    from cxrhf.encode.processes import main_process

    if not main_process():
        return [], 0
    values = np.full((len(references), len(plugin.metrics)), np.nan)
    values[empty & ~unknown] = plugin.empty
    asked = np.flatnonzero(~unknown if plugin.asks_empty else ~unknown & ~empty)
    if len(asked):
        values[asked] = score_pairs(
            [references[at] for at in asked], [generated[at] for at in asked], plugin.compute,
            n_scores=len(plugin.metrics), key=plugin.key, about={"plugin": plugin.encoder}, cache=config.cache,
        )  # fmt: skip
    tables = [
        score_rows(generations, metric, values[:, at], plugin.encoder) for at, metric in enumerate(plugin.metrics)
    ]
    return tables, int(np.isnan(values[asked]).any(axis=1).sum())


def score_rows(generations: pa.Table, metric: str, values: Floats, encoder: str) -> pa.Table:
    """SCORE rows of one metric, one for each generated report; null where there is no number."""
    import pyarrow as pa

    from cxrhf.schema import SCORE
    from cxrhf.tables.checks import check

    n = generations.num_rows
    columns = {name: generations[name] for name in ("image_id", "model", "strategy")} | {
        "metric": pa.repeat(pa.scalar(metric), n),
        "value": pa.array(values, pa.float64(), mask=~np.isfinite(values)),
        "encoder": pa.repeat(pa.scalar(encoder), n),
    }
    return check(pa.table(columns), SCORE, source="scores")


def mean_lines(scores: pa.Table) -> list[str]:
    """The mean of each score by model and strategy, a line each."""
    by: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in scores.select(["model", "strategy", "metric", "encoder", "value"]).to_pylist():
        held = by.setdefault((row["model"], row["strategy"]), {}).setdefault(row["metric"], [])
        held += [] if row["value"] is None else [row["value"]]
    lines = []
    for (model, strategy), metrics in by.items():
        n = max(map(len, metrics.values()))
        means = ", ".join(f"{name} {np.mean(held):.4f}" if held else f"{name} none" for name, held in metrics.items())
        lines.append(f"{model}, {strategy}: {means} ({n:,} reports)")
    return lines


# Name of a plug-in -> a function that scores pairs of reports with a package of the user's, on this machine.
#
# `ratescore` and `radgraph` are packages that bring models of their own; they are imported only when asked for, and
# run only on weights that are already here: no text leaves the machine. (HF_HUB_OFFLINE=1 keeps their libraries from
# asking the Hub for news of the weights, too.) `MODULE:FUNCTION` is any function (references, generated) -> one
# number a report, None or NaN where there is none.
#
# Known gaps: both packages cut a report at 512 tokens of their own models, and are tied to old versions of others, so
# they may need an environment of their own: score there, the run folder is the same. A function of the user's may
# change from run to run, so its scores are not kept.

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
        yield range(len(pairs)), _call_plugin(name, function, pairs, 1)  # all at once: it may look at the whole corpus

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
            yield range(start, start + len(part)), _call_plugin(name, function, part, n_scores)
            progress(f"{name}: {start + len(part):,} of {len(pairs):,} pairs of reports")

    return compute


def _call_plugin(name: str, function: Function, pairs: list[tuple[str, str]], n_scores: int) -> Scores:
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
    from cxrhf.encode.encoder import choose_device

    return choose_device(device)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
