"""A build and a vision-language model, or reports from elsewhere -> a run with GENERATION rows.

    RUN/generations.parquet  RUN/run.json  RUN/local/generating/        the journal: see models/generate_journal.py

Calls add to a run: other models, other strategies. Within one run, reports of one model name have the same weights,
prompt, images and seed, whatever the strategy: what differs between strategies is then the strategy.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrhf.config import to_mapping
from cxrhf.config_generate import GenerateConfig
from cxrhf.errors import RunError
from cxrhf.imaging.predicting import Written
from cxrhf.writing.finetuning import check_vlm_packages

if TYPE_CHECKING:
    import pyarrow as pa

    from cxrhf.models.generate_journal import Report
    from cxrhf.models.strategies import Strategy
    from cxrhf.models.vlm import Vlm
    from cxrhf.run import Input, Run
    from cxrhf.writing.sampled import Sample

Progress = Callable[[str], None]
TABLE = "generations"
# What all reports of one model name in a run must share.
SHARED = ("weights", "adapter", "prompt", "images", "seed", "size", "precision", "four_bit")


def generate_run(config: GenerateConfig, show: Progress) -> Written | None:
    """Write the reports, or read them. None in processes that only help."""
    from cxrhf.data.load import build_record
    from cxrhf.encode.processes import one_writer_of_all
    from cxrhf.tables.folders import one_writer

    if config.reports:
        paths = [Path(each) for each in config.reports]
        folder = Path(config.out) if config.out else Path("runs") / (paths[0].name.split(".")[0] or "reports")
        with one_writer(folder, "generate"):
            return _read(config, paths, folder)
    assert config.source is not None
    assert config.build is not None
    check_vlm_packages()
    build_record(config.build)
    folder = Path(config.out) if config.out else Path("runs") / f"{Path(config.source).name}-reports"
    with one_writer_of_all(folder, "generate"):
        return _write(config, config.source, config.build, folder, show)


def _write(config: GenerateConfig, source: str, data: str, folder: Path, show: Progress) -> Written | None:
    from cxrhf.encode.loading import choose_device  # torch, which takes seconds
    from cxrhf.encode.processes import barrier, first, main_process
    from cxrhf.models.strategies import find_strategies
    from cxrhf.models.vlm import load_vlm
    from cxrhf.models.vlm_prompts import check_template, prompt_for

    strategies = find_strategies(config.strategies, max_new_tokens=config.max_new_tokens)
    if config.prompt is not None:
        check_template(config.prompt)
    from cxrhf.models.generate import plan_asks, write_reports
    from cxrhf.models.generate_journal import FOLDER
    from cxrhf.run import fingerprint
    from cxrhf.writing.sampled import sample_images

    build = fingerprint(Path(data) / "build.json")
    _refuse_others(folder, build, config)
    say: Progress = show if main_process() else (lambda _: None)
    say(f"reading {data}")
    sample = sample_images(
        data, split=config.split, views=config.views, per=config.per, n=config.n_images,
        balance=config.balance, seed=config.seed,
    )  # fmt: skip
    say(f"opening {source}")
    vlm = first(
        lambda: load_vlm(
            source, adapter=config.adapter, device=choose_device(config.device), precision=config.precision,
            four_bit=config.four_bit, size=config.size,
        )
    )  # fmt: skip
    template = config.prompt or vlm.about["prompt"]
    prompts = [prompt_for(template, row) for row in sample.images.table.to_pylist()]
    facts = _facts(config, vlm, template, sample, build)
    name = config.model or vlm.about["name"]
    run: Run | None = None
    if main_process():
        known = {} if config.overwrite else _known(folder)
        _refuse_mixture(folder, name, known.get(name), facts, strategies)
        run = _open(folder, config, [build])
    barrier()
    asks = plan_asks(vlm, sample.images.ids, prompts, strategies, seed=config.seed,
                     model=f"{facts['weights']} {facts['adapter']}", images=build.sha256)  # fmt: skip
    written = write_reports(
        vlm, sample.images.pictures, asks, folder / FOLDER, batch_size=config.batch_size, progress=say
    )
    if run is None:
        return None
    tables, lines, notes, counts = [], list[str](), list(sample.notes), dict[str, Any]()
    for strategy in strategies:
        own = [written[each.key] for each in asks if each.strategy == strategy]
        tables.append(_rows(sample, [each.text for each in own], name, strategy.name))
        counts[strategy.name] = count = _counts(strategy, own)
        lines.append(
            f"{name}, {strategy.name} ({strategy.said()}): {len(own):,} reports, {count['different']:,} distinct, "
            f"{count['tokens'] / max(len(own), 1):,.0f} tokens on average"
        )
        if count["empty"]:
            notes.append(f"{strategy.name}: {count['empty']:,} of {len(own):,} reports are empty")
        if count["cut"]:
            most = f"{strategy.max_new_tokens:,} tokens"
            notes.append(f"{strategy.name}: {count['cut']:,} of {len(own):,} reports were truncated at {most}")
    _add(run, tables, {name: {**facts, "strategies": counts}}, notes)
    return Written(folder, lines, notes)


def _counts(strategy: Strategy, reports: list[Report]) -> dict[str, Any]:
    texts = [each.text for each in reports]
    return {
        "settings": strategy.settings(), "reports": len(texts), "different": len(set(texts)), "empty": texts.count(""),
        "cut": sum(not each.ended for each in reports), "tokens": sum(each.tokens for each in reports),
    }  # fmt: skip


def _facts(config: GenerateConfig, vlm: Vlm, template: str, sample: Sample, build: Input) -> dict[str, Any]:
    """What run.json says of a model: no id and no text of a patient."""
    from cxrhf.models.vlm_files import ADAPTER_WEIGHTS, adapter_place, fetched_adapter
    from cxrhf.run import fingerprint

    adapter = fetched_adapter(config.adapter) if config.adapter else adapter_place(config.source or "")
    images = hashlib.sha256("\n".join([build.sha256, *sorted(sample.images.ids)]).encode()).hexdigest()
    return {
        "source": vlm.about["source"], "architecture": vlm.about["base"]["architecture"],
        "weights": vlm.about["base"]["weights"],
        "adapter": None if adapter is None else fingerprint(adapter / ADAPTER_WEIGHTS).sha256,
        "prompt": template, "size": vlm.about["size"], "precision": vlm.about["precision"],
        "four_bit": vlm.about["four_bit"], "seed": config.seed, "split": config.split, "n": len(sample.images),
        "images": images,
    }  # fmt: skip


def _rows(sample: Sample, texts: list[str], model: str, strategy: str) -> pa.Table:
    import pyarrow as pa

    from cxrhf.schema import GENERATION, check

    n, there = len(texts), sample.images.table
    columns: dict[str, Any] = {
        name: there[name]
        for name in ("image_id", "patient_id", "dataset", "sex", "age", "race")
        if name in there.column_names
    }
    columns |= {
        "model": pa.repeat(pa.scalar(model), n),
        "strategy": pa.repeat(pa.scalar(strategy), n),
        "reference": pa.array(sample.references, pa.string()),
        "generated": pa.array(texts, pa.string()),
    }
    return check(pa.table(columns), GENERATION, source=TABLE)


def _read(config: GenerateConfig, paths: list[Path], folder: Path) -> Written:
    """Reports that others wrote, into a run."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from cxrhf.run import check_folder, fingerprint, read_run
    from cxrhf.tables.generations import load_generations

    check_folder(folder, overwrite=config.overwrite)
    if (folder / "run.json").is_file() and not config.overwrite and not (folder / f"{TABLE}.parquet").is_file():
        made = read_run(folder).record.get("verb")
        raise RunError(f"{folder} holds a run of cxrhf {made}, which has no reports", next_step="choose another --out")
    loaded = load_generations(paths, columns=config.columns())
    run = _open(folder, config, [fingerprint(path) for path in _files(paths)])
    facts: dict[str, Any] = {}
    for model in pc.unique(loaded.table["model"]).to_pylist():
        own = loaded.table.filter(pc.equal(loaded.table["model"], model))
        counts = {}
        for strategy in pc.unique(own["strategy"]).to_pylist():
            texts = own.filter(pc.equal(own["strategy"], strategy))["generated"]
            counts[strategy] = {
                "reports": len(texts), "different": len(pc.unique(texts)),
                "empty": pc.sum(pc.equal(texts, pa.scalar(""))).as_py(),
            }  # fmt: skip
        facts[model] = {"from": [reading.source for reading in loaded.readings], "strategies": counts}
    _add(run, [loaded.table], facts, list(loaded.notes))
    return Written(folder, loaded.lines())


def _files(paths: list[Path]) -> list[Path]:
    return [path / f"{TABLE}.parquet" if path.is_dir() else path for path in paths]


def _refuse_others(folder: Path, build: Input, config: GenerateConfig) -> None:
    """A run of another build is left alone; so is the model's own run by --overwrite."""
    from cxrhf.run import check_folder, read_run

    check_folder(folder, overwrite=config.overwrite)
    named = [Path(each).expanduser().resolve() for each in (config.source, config.adapter, config.build) if each]
    if config.overwrite and any(each.exists() and each.is_relative_to(folder.resolve()) for each in named):
        raise RunError(
            f"{folder} holds the model, its adapter or the build, which --overwrite would delete",
            next_step="choose another --out",
        )
    if config.overwrite or not (folder / "run.json").is_file():
        return
    record = read_run(folder).record
    records = [record, *record.get("earlier", {}).values()]
    if not any(each.get("sha256") == build.sha256 for one in records for each in one.get("inputs", [])):
        raise RunError(
            f"{folder} holds a run with other inputs",
            got=", ".join(str(each.get("name")) for each in record.get("inputs", [])) or "unknown inputs",
            next_step=f"pass another --out, or --overwrite to replace {folder}",
        )


def _known(folder: Path) -> dict[str, Any]:
    """What earlier calls wrote into the run, by model."""
    from cxrhf.run import record_of

    return dict(record_of(folder, "generate").get("generated", {}))


def _refuse_mixture(
    folder: Path, name: str, before: dict[str, Any] | None, facts: dict[str, Any], strategies: list[Strategy]
) -> None:
    """Reports of one model name with other weights, prompts, images or settings would be compared as if alike."""
    if before is None:
        return
    now = json.loads(json.dumps(facts))
    other = [key for key in SHARED if before.get(key) != now[key]]
    other += [
        f"strategy {each.name}" for each in strategies
        if before.get("strategies", {}).get(each.name, {}).get("settings", each.settings()) != each.settings()
    ]  # fmt: skip
    if other:
        raise RunError(
            f"{folder} holds reports of {name} with other settings ({', '.join(other)})",
            next_step="pass another --out, --model NAME for a second entry in this run, or --overwrite to start again",
        )


def _open(folder: Path, config: GenerateConfig, inputs: list[Input]) -> Run:
    """The run, new or with what it held; the inputs of this call are added to those it was made from."""
    from dataclasses import asdict

    from cxrhf.models.generate_journal import FOLDER
    from cxrhf.run import clear_run, open_run

    known = {} if config.overwrite else _known(folder)
    if config.overwrite and folder.is_dir():
        clear_run(folder)
        shutil.rmtree(folder / FOLDER, ignore_errors=True)
    there = (folder / "run.json").is_file() and not config.overwrite
    run = open_run(folder, verb="generate", config=to_mapping(config), inputs=None if there else inputs,
                   overwrite=config.overwrite)  # fmt: skip
    for each in inputs:
        if each.sha256 not in [held.get("sha256") for held in run.record["inputs"]]:
            run.record["inputs"].append(asdict(each))
    run.record["generated"] = known
    return run


def _add(run: Run, tables: list[pa.Table], facts: dict[str, Any], notes: list[str]) -> None:
    """Write the table with the rows of other models and strategies that were there, and the record."""
    import pyarrow as pa

    from cxrhf.models.rows import merged

    there = (run.path / f"{TABLE}.parquet").is_file()
    new = pa.concat_tables(tables)
    run.add(TABLE, merged(new, run.table(TABLE) if there else None, ("model", "strategy")))
    generated = dict(run.record["generated"])
    for name, each in facts.items():
        earlier = generated.get(name, {}).get("strategies", {})
        generated[name] = {**each, "strategies": {**earlier, **each["strategies"]}}
    run.finish(generated=generated, notes=notes)
