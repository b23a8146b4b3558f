"""Records of runs -> the commands that make them again, in the order they were run. Only settings that were changed."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from importlib import import_module
from typing import Any

# Verb -> its config: what is a position, what a flag, and what it is when nobody says anything.
_CONFIGS = {
    "audit": "config:AuditConfig",
    "build": "config_build:BuildConfig",
    "calibrate": "config_models:CalibrateConfig",
    "context fit": "config_context:ContextFitConfig",
    "context predict": "config_context:ContextPredictConfig",
    "demo": "config_demo:DemoConfig",
    "embed": "config_models:EmbedConfig",
    "finetune": "config_finetune:FinetuneConfig",
    "generate": "config_generate:GenerateConfig",
    "predict": "config_models:PredictConfig",
    "probe": "config_models:ProbeConfig",
    "score": "config_score:ScoreConfig",
    "train": "config_train:TrainConfig",
    "zeroshot": "config_models:ZeroshotConfig",
}
_NOT_SAID = ("overwrite", "workers", "device", "cache", "dask", "tracker")  # of the machine, not of the numbers


def command(verb: str, config: Mapping[str, Any]) -> str:
    """`cxrhf VERB ...` with what differs from the defaults; "" for a verb that is not known.

    >>> command("demo", {"n_patients": 60, "seed": 0, "out": "runs/x", "overwrite": True})
    'cxrhf demo --out runs/x --n-patients 60'
    """
    if verb not in _CONFIGS:
        return ""
    module, _, name = _CONFIGS[verb].partition(":")
    words, flags = list[str](), list[str]()
    for each in fields(getattr(import_module(f"cxrhf.{module}"), name)):
        value = config.get(each.name)
        default = list(each.default) if isinstance(each.default, tuple) else each.default
        if value is None or value == default or each.name in _NOT_SAID or (value == [] and default is MISSING):
            continue
        said = [str(one) for one in (value if isinstance(value, (list, tuple)) else [value])]
        if each.metadata.get("positional"):
            words += said
        else:
            flags += [f"--{each.name.replace('_', '-')}", *([] if isinstance(value, bool) else said)]
    return shlex.join(["cxrhf", *verb.split(), *words, *flags])


def build_command(build: Mapping[str, Any], out: str) -> str:
    """The command of a build, from what build.json says; where its files lie is nobody's business."""
    settings = {**build.get("settings", {}), "dataset": build.get("dataset"), "out": out}
    made = command("build", settings) if build.get("dataset") else ""
    return made if not made or build.get("dataset") == "synthetic" else f"{made} --root FOLDER"


def commands(records: Iterable[Mapping[str, Any]], build: Mapping[str, Any], calibration: str = "") -> list[str]:
    """All that leads to the numbers. `records`: of run.json files, each with the verbs that came before it.

    The demo does all of it in one command. What `cxrhf predict` and `cxrhf calibrate` (by the method `calibration`) add
    to a training leaves no record of its own.
    """
    verbs = [each for record in records for each in (*record.get("earlier", {}).values(), record)]
    if demo := next((each for each in verbs if each.get("verb") == "demo"), None):
        verbs, build = [demo], {}
    verbs.sort(key=lambda each: str(each.get("started") or ""))
    named = (str((each.get("config") or {}).get("build") or "") for each in verbs)
    made = [build_command(build, next(filter(None, named), "BUILD"))]
    for each in verbs:
        made.append(command(str(each.get("verb")), each.get("config") or {}))
        if each.get("verb") == "train":
            run = str((each.get("config") or {}).get("out") or "RUN")
            made += [command("calibrate", {"run": run, "method": calibration})] if calibration else []
            made.append(command("predict", {"run": run}))
    return [each for each in dict.fromkeys(made) if each]
