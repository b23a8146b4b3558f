"""Generated reports of a run -> SCORE rows (BERTScore, plug-ins) and REPORT_VECTOR rows, added to the run.

Rows of the same encoder and metric are replaced, all others stay. An empty generated report has BERTScore 0 and no
vector; an empty reference gives no score (null). Both are counted and said.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cxrhf.config import to_mapping
from cxrhf.config_context import EncodeConfig
from cxrhf.config_score import ScoreConfig
from cxrhf.errors import RunError, TableError, need_packages
from cxrhf.imaging.predicting import Written
from cxrhf.tables.places import free
from cxrhf.tables.temporary import temporary_folder

if TYPE_CHECKING:
    import pyarrow as pa

    from cxrhf.writing.plugins import Plugin

Progress = Callable[[str], None]
Floats = NDArray[np.float64]
REFERENCE = "reference"
_NEEDS_ENCODER = {"bertscore", "semantic"}
_PACKAGES = ("torch", "transformers", "safetensors")


@dataclass(slots=True)
class Scored:
    """New rows, what the encoder was, and what a reader should know."""

    scores: pa.Table
    vectors: pa.Table
    identity: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)


def score_run(config: ScoreConfig, show: Progress) -> Written | None:
    """Score the reports of a run and add the rows to it. None in processes that only help."""
    from cxrhf.encode.processes import one_writer_of_all

    read_generations(Path(config.run))  # says what is no run before anything is locked
    with one_writer_of_all(config.run, "score"):
        return _scored(config, show)


def _scored(config: ScoreConfig, show: Progress) -> Written | None:
    from cxrhf.run import open_run, public_path
    from cxrhf.schema import REPORT_VECTOR, SCORE, read_table

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
    from cxrhf.encode.processes import main_process  # torch, once it is known to be there
    from cxrhf.models.rows import merged

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
            whole[table] = merged(rows, earlier.get(table), by)
    run = open_run(folder, verb="score", config=to_mapping(config) | {"encoder": shown}, inputs=None)
    for table, rows in whole.items():
        run.add(table, rows)
    run.finish(**({"encoder": done.identity} if done.identity else {}))
    vectors = f"{done.vectors.num_rows:,} embeddings of reports" if done.vectors.num_rows else None
    return Written(folder, [*mean_lines(done.scores), *filter(None, [vectors])], done.notes)


def read_generations(folder: Path) -> pa.Table:
    """The GENERATION rows of a run; an error that says how to make them."""
    from cxrhf.run import read_run

    out = shlex.quote(str(folder)) if (folder / "run.json").is_file() else free(folder, "runs/words")
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


def score_table(generations: pa.Table, config: ScoreConfig, show: Progress) -> Scored:
    """GENERATION rows -> SCORE and REPORT_VECTOR rows."""
    import pyarrow as pa

    from cxrhf.schema import REPORT_VECTOR, SCORE
    from cxrhf.writing.plugins import open_plugin

    # What is missing of a plug-in is said before an encoder has worked for an hour.
    plugins = [open_plugin(name, config.device, show) for name in config.metrics if name not in _NEEDS_ENCODER]
    references, generated = (generations[name].to_pylist() for name in ("reference", "generated"))
    empty = np.array([not text.strip() for text in generated])
    unknown = np.array([not text.strip() for text in references])
    scores: list[pa.Table] = []
    done = Scored(SCORE.empty_table(), REPORT_VECTOR.empty_table())
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
        made, without = _plugged(generations, references, generated, empty, unknown, plugin, config)
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
    from cxrhf.encode.presets import locate

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
    from cxrhf.schema import REPORT_VECTOR, check

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


def _plugged(
    generations: pa.Table,
    references: list[str],
    generated: list[str],
    empty: NDArray[np.bool_],
    unknown: NDArray[np.bool_],
    plugin: Plugin,
    config: ScoreConfig,
) -> tuple[list[pa.Table], int]:
    """Rows of a plug-in, and how many reports it gives no number for although both texts have words."""
    from cxrhf.encode.processes import main_process
    from cxrhf.encode.scores import score_pairs

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

    from cxrhf.schema import SCORE, check

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
