"""A build and prompts -> a run with PREDICTION rows of a CLIP-style model, and its pictures' vectors if asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cxrhf.config import to_mapping
from cxrhf.config_models import ZeroshotConfig
from cxrhf.imaging.opened import check_packages, findings_of, open_images, splits_there
from cxrhf.imaging.predicting import Written

Progress = Callable[[str], None]
DEFAULT = ("validate", "test")


def zeroshot_run(config: ZeroshotConfig, show: Progress) -> Written:
    """Every image of the splits against every pair of prompts."""
    check_packages(*(["open_clip"] if _needs_open_clip(config.model) else []))
    from cxrhf.tables.folders import one_writer

    out = Path(config.out) if config.out else Path("runs") / f"{Path(config.build).resolve().name}-zeroshot"
    with one_writer(out, "zeroshot"):
        return _written(config, out, show)


def _written(config: ZeroshotConfig, out: Path, show: Progress) -> Written:
    from cxrhf.run import check_folder, fingerprint, open_run

    check_folder(out, overwrite=config.overwrite)
    there = findings_of(config.build)
    from cxrhf.models.clip import load_clip  # torch, which takes seconds
    from cxrhf.models.prompts import as_mapping, prompts_for
    from cxrhf.models.rows import embedding_rows, prediction_rows
    from cxrhf.models.tasks import Task, check_findings
    from cxrhf.models.zero_shot import zero_shot

    check_findings(config.findings, there)
    prompts = prompts_for(config.findings or there, file=config.prompts)
    splits = splits_there(config.build, config.splits, all_of=config.splits != DEFAULT)
    images = open_images(config.build, splits, labels=config.labels)
    show(f"loading {config.model}")
    clip = load_clip(config.model, config.device)
    seen = zero_shot(images, clip, prompts, batch_size=config.batch_size, progress=show)
    name = f"{Path(config.model).name} zero-shot"
    task = Task("findings", "labels", tuple(prompts))
    rows, _ = prediction_rows(images, [task], seen.logits, model=name, seed=None)
    inputs = [fingerprint(Path(config.build) / "build.json")]
    if config.prompts is not None:
        inputs.append(fingerprint(config.prompts))
    run = open_run(out, verb="zeroshot", config=to_mapping(config), inputs=inputs, overwrite=config.overwrite)
    run.add("predictions", rows)
    if config.embed:
        run.add("embeddings", embedding_rows(images, seen.embeddings, model=name))
    run.finish(prompts=as_mapping(prompts), model=name, weights=clip.model_hash())
    lines = [f"{name}: {len(images):,} images of {', '.join(splits)}, {len(prompts)} findings"]
    notes = ["probabilities are not calibrated; on validation images, run cxrhf calibrate RUN --method platt"]
    return Written(out, lines, notes)


def _needs_open_clip(model: str) -> bool:
    return model == "biomedclip" or model.startswith(("hf-hub:", "open_clip:"))
