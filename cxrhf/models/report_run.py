"""A build and settings -> a run with adapters of a vision-language model, loadable by peft.

    RUN/run.json  RUN/adapter/  RUN/merged/ (if asked)  RUN/history-0.jsonl  RUN/base/ (model `tiny`)
    RUN/checkpoints/ (until it is done)

A training that was stopped goes on with the same command; a finished one is left as it is. Adapters can give back parts
of the reports that they learned: they are as confidential as the data, whose name stands in adapter/cxrhf.json.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrhf.errors import ConfigError, RunError, need_packages
from cxrhf.models.predict import RunUpdate
from cxrhf.models.report_data import Reports, open_reports
from cxrhf.models.report_settings import TINY, FinetuneConfig, GenerateConfig
from cxrhf.models.train_run import choose_splits, curves, open_training, read_finished, remove_checkpoints
from cxrhf.settings import to_mapping
from cxrhf.tables.files import read_object

if TYPE_CHECKING:
    import pyarrow as pa

    from cxrhf.models.generate import Report
    from cxrhf.models.report_data import Sample
    from cxrhf.models.strategies import Strategy
    from cxrhf.models.vlm import Vlm
    from cxrhf.run import Input, Run

Progress = Callable[[str], None]


PACKAGES = ("torch", "torchvision", "transformers", "peft", "accelerate", "safetensors", "PIL")
# Settings that do not change what is learned.
IGNORED_SETTINGS = ("build", "out", "name", "overwrite", "workers", "device", "tracker", "save_every", "merge",
         "gradient_checkpointing")  # fmt: skip


@dataclass(frozen=True, slots=True)
class FinetunedRun:
    """A run whose adapter is trained."""

    path: Path
    name: str
    notes: list[str]
    facts: dict[str, Any]
    curves: str | None = None

    def lines(self) -> list[str]:
        """What became of it."""
        facts = self.facts
        learned, whole = facts["learned_parameters"], facts["parameters"]
        best = facts["best"]
        by = "the last adapter" if best is None or facts["kept_step"] != facts["best_step"] else (
            f"the adapter of step {facts['kept_step']:,}, best by validation loss ({best:.4f})"
        )  # fmt: skip
        return [
            f"{facts['steps']:,} steps, {facts['epochs']:,} epoch{'s' if facts['epochs'] > 1 else ''} of "
            f"{facts['examples']:,} examples; kept {by}",
            f"{learned:,} of {whole:,} parameters trained ({learned / whole:.2%})",
            *([] if self.curves is None else [self.curves]),
        ]


def finetune_run(config: FinetuneConfig, show: Progress) -> FinetunedRun | None:
    """Train the adapter. None in processes that only help."""
    check_vlm_packages(*([config.tracker] if config.tracker != "none" else []))
    from cxrhf.encode.processes import one_writer_of_all
    from cxrhf.run import check_folder

    folder = run_folder(config)
    check_folder(folder, overwrite=config.overwrite)
    split = choose_splits(config.build, [config.train_split], all_of=True)[0]
    from cxrhf.models.finetune import whole_weights
    from cxrhf.models.processes import make_accelerator
    from cxrhf.models.vlm import DEFAULT_PROMPT, check_template

    prompt = config.prompt or DEFAULT_PROMPT
    check_template(prompt)
    check_model(config.model)
    accelerator = make_accelerator(
        device=config.device, precision=config.precision, tracker=config.tracker, folder=folder
    )
    whole_weights(accelerator)
    say: Progress = show if accelerator.is_main_process else (lambda _: None)
    with one_writer_of_all(folder, "finetune"):
        return _finetune(config, folder, split, prompt, accelerator, say)


def _finetune(
    config: FinetuneConfig, folder: Path, split: str, prompt: str, accelerator: Any, say: Progress
) -> FinetunedRun | None:
    """Open the run and train the adapter if it is not trained yet; this process holds the folder."""
    from cxrhf.run import fingerprint

    main = accelerator.is_main_process
    inputs = [fingerprint(Path(config.build) / "build.json")]
    say(f"reading {config.build}")
    train, validate, notes = open_reports(config, split)
    content = {key: value for key, value in to_mapping(config).items() if key not in IGNORED_SETTINGS} | {
        "prompt": prompt
    }
    run: Run | None = open_training(folder, config, inputs, content, "finetune") if main else None
    accelerator.wait_for_everyone()
    for note in notes:
        say(f"note: {note}")
    base = base_model(config, folder, train, prompt, main=main)
    accelerator.wait_for_everyone()
    name = config.name or folder.name
    done = _train_adapter(
        config, base, train, validate, prompt, name, content, inputs[0].sha256, folder, accelerator, say
    )
    if run is None:
        return None
    notes += [each for each in done.notes if each not in notes]
    run.finish(notes=notes, trained=done.facts, model=name)
    return FinetunedRun(folder, name, notes, done.facts, curves(config.tracker, folder))


def check_vlm_packages(*more: str) -> None:
    """Said before anything is read."""
    need_packages("vision-language models", (*PACKAGES, *more), "vlm,track" if more else "vlm")


def check_model(model: str) -> None:
    """Adapters are trained on whole models."""
    from cxrhf.models.vlm import adapter_place

    if model != TINY and adapter_place(model) is not None:
        raise ConfigError(
            "--model", got=f"the adapter {model}", allowed="a whole model",
            next_step="pass its base model, or RUN/merged of a run with --merge",
        )  # fmt: skip


def run_folder(config: FinetuneConfig) -> Path:
    """Where a training goes."""
    if config.out:
        return Path(config.out)
    return Path("runs") / f"{Path(config.build).resolve().name}-{Path(config.model).name.lower()}"


def base_model(config: FinetuneConfig, folder: Path, train: Reports, prompt: str, *, main: bool) -> str:
    """The folder or id of the frozen model; `tiny` is made now, in the run, unless it is there already."""
    if config.model != TINY:
        return config.model
    from cxrhf.models.lora import tiny_qwen3_vl
    from cxrhf.tables.folders import replace_folder

    place = folder / "base"
    if main and not (place / "config.json").is_file():
        with replace_folder(place, "config.json", "model", "choose another --out") as fresh:
            tiny_qwen3_vl(
                fresh, [*train.answers, prompt], seed=config.seed, hidden=config.tiny_hidden,
                layers=config.tiny_layers, patch=max(2, config.size // 8),
            )  # fmt: skip
    return str(place)


@dataclass(frozen=True, slots=True)
class _Done:
    facts: dict[str, Any]
    notes: list[str]


def _train_adapter(
    config: FinetuneConfig, base: str, train: Reports, validate: Reports | None, prompt: str, name: str,
    content: dict[str, Any], build: str, folder: Path, accelerator: Any, say: Progress,
) -> _Done:  # fmt: skip
    """From the frozen model to the folder of the adapter."""
    from cxrhf.encode.processes import call_first
    from cxrhf.models.finetune import fit
    from cxrhf.models.lora import add_lora, save_adapter, save_merged
    from cxrhf.models.processes import track_curves
    from cxrhf.models.vlm import load_vlm, model_place
    from cxrhf.models.vlm_data import make_examples
    from cxrhf.run import public_path

    place = call_first(lambda: model_place(base))
    say(f"loading {place.name}")
    vlm = load_vlm(
        base, device=str(accelerator.device), precision=config.precision, four_bit=config.four_bit, size=config.size
    )
    own = vlm.about["base"]
    text = json.dumps([content, build, own["weights"]], sort_keys=True)
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    adapter = folder / "adapter"
    facts, notes = read_finished(adapter, key), []
    if facts is None:
        learned = make_examples(vlm, train.images, train.prompts, train.answers, config.max_length)
        held = None if validate is None else make_examples(
            vlm, validate.images, validate.prompts, validate.answers, config.max_length
        )  # fmt: skip
        for examples, what in ((learned, "training"), (held, "validation")):
            if examples is not None and examples.n_cut:
                notes.append(f"{examples.n_cut:,} {what} reports are truncated to {config.max_length:,} tokens; pass "
                             f"--max-length {examples.longest} to keep them whole")  # fmt: skip
        for note in notes:
            say(f"note: {note}")
        vlm.model = add_lora(
            vlm, rank=config.lora_rank, alpha=config.lora_alpha, dropout=config.lora_dropout,
            embeddings=config.train_embeddings, four_bit=config.four_bit, seed=config.seed,
        )  # fmt: skip
        with track_curves(accelerator, config.tracker, folder, name, to_mapping(config)):
            trained = fit(
                vlm, learned, held, config, accelerator=accelerator, folder=folder / "checkpoints",
                history=folder / f"history-{config.seed}.jsonl", key=key, progress=say,
            )  # fmt: skip
        facts, notes = trained.facts, notes + trained.notes
        if accelerator.is_main_process:
            about = _adapter_record(config, vlm, train, name, key, prompt, facts)
            shown = public_path(str(folder / "base")) if config.model == TINY else place.source
            save_adapter(adapter, vlm.model, trained.tensors, vlm.processor, about, shown)
        accelerator.wait_for_everyone()
    else:
        say("the adapter is already trained")
    if accelerator.is_main_process:
        remove_checkpoints(folder / "checkpoints")
    if config.merge and accelerator.is_main_process and not (folder / "merged" / "cxrhf.json").is_file():
        say("merging the adapter into the weights")
        about = read_object(adapter / "cxrhf.json", next_step="train again with --overwrite")
        save_merged(folder / "merged", base, adapter, about, precision=vlm.about["precision"], size=config.size)
    accelerator.wait_for_everyone()
    return _Done(facts, notes)


def _adapter_record(
    config: FinetuneConfig, vlm: Vlm, train: Reports, name: str, key: str, prompt: str, facts: dict[str, Any]
) -> dict[str, Any]:
    """What an adapter says of itself: its base, how it is asked, what it learned from."""
    from cxrhf.data.load import build_record
    from cxrhf.run import public

    record = build_record(config.build)
    base = dict(vlm.about["base"])
    if config.model == TINY:
        base["source"] = "../base"  # beside the adapter, wherever the run is moved to
    settings = {each: value for each, value in to_mapping(config).items() if each not in IGNORED_SETTINGS}
    return {
        "name": name, "key": key, "base": base, "prompt": prompt, "size": config.size, "seed": config.seed,
        "dataset": record.get("dataset"), "credentialed": record.get("credentialed"),
        "confidential": "Adapters can reproduce parts of their training reports: protect them like the dataset.",
        "examples": train.counts(), "trained": facts, "settings": public(settings),
    }  # fmt: skip


# A build and a vision-language model, or reports from elsewhere -> a run with GENERATION rows.
#
#     RUN/generations.parquet  RUN/run.json  RUN/local/generating/        the journal: see models/generate.py
#
# Calls add to a run: other models, other strategies. Within one run, reports of one model name have the same weights,
# prompt, images and seed, whatever the strategy: what differs between strategies is then the strategy.

TABLE = "generations"
# What all reports of one model name in a run must share.
SHARED = ("weights", "adapter", "prompt", "images", "seed", "size", "precision", "four_bit")


def generate_run(config: GenerateConfig, show: Progress) -> RunUpdate | None:
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


def _write(config: GenerateConfig, source: str, data: str, folder: Path, show: Progress) -> RunUpdate | None:
    from cxrhf.encode.encoder import choose_device
    from cxrhf.encode.processes import barrier, call_first, main_process
    from cxrhf.models.strategies import find_strategies
    from cxrhf.models.vlm import check_template, load_vlm, prompt_for

    strategies = find_strategies(config.strategies, max_new_tokens=config.max_new_tokens)
    if config.prompt is not None:
        check_template(config.prompt)
    from cxrhf.models.generate import FOLDER, plan_asks, write_reports
    from cxrhf.models.report_data import sample_images
    from cxrhf.run import fingerprint

    build = fingerprint(Path(data) / "build.json")
    _refuse_others(folder, build, config)
    say: Progress = show if main_process() else (lambda _: None)
    say(f"reading {data}")
    sample = sample_images(
        data, split=config.split, views=config.views, per=config.per, n=config.n_images,
        balance=config.balance, seed=config.seed,
    )  # fmt: skip
    say(f"opening {source}")
    vlm = call_first(
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
        known = {} if config.overwrite else _recorded_models(folder)
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
    return RunUpdate(folder, lines, notes)


def _counts(strategy: Strategy, reports: list[Report]) -> dict[str, Any]:
    texts = [each.text for each in reports]
    return {
        "settings": strategy.settings(), "reports": len(texts), "different": len(set(texts)), "empty": texts.count(""),
        "cut": sum(not each.ended for each in reports), "tokens": sum(each.tokens for each in reports),
    }  # fmt: skip


def _facts(config: GenerateConfig, vlm: Vlm, template: str, sample: Sample, build: Input) -> dict[str, Any]:
    """What run.json says of a model: no id and no text of a patient."""
    from cxrhf.models.vlm import ADAPTER_WEIGHTS, adapter_place, fetched_adapter
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

    from cxrhf.schema import GENERATION
    from cxrhf.tables.checks import check

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


def _read(config: GenerateConfig, paths: list[Path], folder: Path) -> RunUpdate:
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
    return RunUpdate(folder, loaded.lines())


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


def _recorded_models(folder: Path) -> dict[str, Any]:
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

    from cxrhf.models.generate import FOLDER
    from cxrhf.run import clear_run, open_run

    known = {} if config.overwrite else _recorded_models(folder)
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

    from cxrhf.models.predict import merge_rows

    there = (run.path / f"{TABLE}.parquet").is_file()
    new = pa.concat_tables(tables)
    run.add(TABLE, merge_rows(new, run.table(TABLE) if there else None, ("model", "strategy")))
    generated = dict(run.record["generated"])
    for name, each in facts.items():
        earlier = generated.get(name, {}).get("strategies", {})
        generated[name] = {**each, "strategies": {**earlier, **each["strategies"]}}
    run.finish(generated=generated, notes=notes)


# A build and settings -> models that write reports, their GENERATION rows, and SCORE rows of single reports.
