"""A build and settings -> a run with adapters of a vision-language model, loadable by peft.

    RUN/run.json  RUN/adapter/  RUN/merged/ (if asked)  RUN/history-0.jsonl  RUN/base/ (model `tiny`)
    RUN/checkpoints/ (until it is done)

A training that was stopped goes on with the same command; a finished one is left as it is. Adapters can give back parts
of the reports that they learned: they are as confidential as the data, whose name stands in adapter/cxrhf.json.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrhf.config import to_mapping
from cxrhf.config_finetune import TINY, FinetuneConfig
from cxrhf.errors import ConfigError, need_packages
from cxrhf.imaging.opened import splits_there
from cxrhf.imaging.training import curves, finished, open_training, remove_checkpoints
from cxrhf.tables.json_files import read_object
from cxrhf.writing.reports import Reports, open_reports

if TYPE_CHECKING:
    from cxrhf.models.vlm import Vlm
    from cxrhf.run import Run

Progress = Callable[[str], None]
PACKAGES = ("torch", "torchvision", "transformers", "peft", "accelerate", "safetensors", "PIL")
# Settings that do not change what is learned.
ASIDE = ("build", "out", "name", "overwrite", "workers", "device", "tracker", "save_every", "merge",
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
    split = splits_there(config.build, [config.train_split], all_of=True)[0]
    from cxrhf.models.finetune import whole_weights  # torch, which takes seconds
    from cxrhf.models.processes import make_accelerator
    from cxrhf.models.vlm_prompts import DEFAULT_PROMPT, check_template

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
    content = {key: value for key, value in to_mapping(config).items() if key not in ASIDE} | {"prompt": prompt}
    run: Run | None = open_training(folder, config, inputs, content, "finetune") if main else None
    accelerator.wait_for_everyone()
    for note in notes:
        say(f"note: {note}")
    base = base_model(config, folder, train, prompt, main=main)
    accelerator.wait_for_everyone()
    name = config.name or folder.name
    done = _trained(config, base, train, validate, prompt, name, content, inputs[0].sha256, folder, accelerator, say)
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
    from cxrhf.models.vlm_files import adapter_place

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
    from cxrhf.models.vlm_tiny import tiny_qwen3_vl
    from cxrhf.tables.folders import replacing

    place = folder / "base"
    if main and not (place / "config.json").is_file():
        with replacing(place, "config.json", "model", "choose another --out") as fresh:
            tiny_qwen3_vl(
                fresh, [*train.answers, prompt], seed=config.seed, hidden=config.tiny_hidden,
                layers=config.tiny_layers, patch=max(2, config.size // 8),
            )  # fmt: skip
    return str(place)


@dataclass(frozen=True, slots=True)
class _Done:
    facts: dict[str, Any]
    notes: list[str]


def _trained(
    config: FinetuneConfig, base: str, train: Reports, validate: Reports | None, prompt: str, name: str,
    content: dict[str, Any], build: str, folder: Path, accelerator: Any, say: Progress,
) -> _Done:  # fmt: skip
    """From the frozen model to the folder of the adapter."""
    from cxrhf.encode.processes import first
    from cxrhf.models.finetune import fit
    from cxrhf.models.processes import tracking
    from cxrhf.models.vlm import load_vlm
    from cxrhf.models.vlm_examples import make_examples
    from cxrhf.models.vlm_files import model_place
    from cxrhf.models.vlm_lora import add_lora, save_adapter, save_merged
    from cxrhf.run import public_path

    place = first(lambda: model_place(base))
    say(f"loading {place.name}")
    vlm = load_vlm(
        base, device=str(accelerator.device), precision=config.precision, four_bit=config.four_bit, size=config.size
    )
    own = vlm.about["base"]
    text = json.dumps([content, build, own["weights"]], sort_keys=True)
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    adapter = folder / "adapter"
    facts, notes = finished(adapter, key), []
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
        with tracking(accelerator, config.tracker, folder, name, to_mapping(config)):
            trained = fit(
                vlm, learned, held, config, accelerator=accelerator, folder=folder / "checkpoints",
                history=folder / f"history-{config.seed}.jsonl", key=key, progress=say,
            )  # fmt: skip
        facts, notes = trained.facts, notes + trained.notes
        if accelerator.is_main_process:
            about = _about(config, vlm, train, name, key, prompt, facts)
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


def _about(
    config: FinetuneConfig, vlm: Vlm, train: Reports, name: str, key: str, prompt: str, facts: dict[str, Any]
) -> dict[str, Any]:
    """What an adapter says of itself: its base, how it is asked, what it learned from."""
    from cxrhf.data.load import build_record
    from cxrhf.run import public

    record = build_record(config.build)
    base = dict(vlm.about["base"])
    if config.model == TINY:
        base["source"] = "../base"  # beside the adapter, wherever the run is moved to
    settings = {each: value for each, value in to_mapping(config).items() if each not in ASIDE}
    return {
        "name": name, "key": key, "base": base, "prompt": prompt, "size": config.size, "seed": config.seed,
        "dataset": record.get("dataset"), "credentialed": record.get("credentialed"),
        "confidential": "Adapters can reproduce parts of their training reports: protect them like the dataset.",
        "examples": train.counts(), "trained": facts, "settings": public(settings),
    }  # fmt: skip
