"""README.md -> what the Hub would complain of in its front matter, or the metadata it shows.

The Hub's own schema is not public as a whole; these are the rules its documentation states, and no more: a card that
passes here can still be refused there for a value from one of its long lists (tasks, languages).
"""

from __future__ import annotations

import re
from typing import Any

import yaml  # type: ignore[import-untyped]

_FRONT = re.compile(r"^\s*---[\r\n]+([\S\s]*?)[\r\n]+---(?:\r\n|\r|\n|$)")
_COLOURS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
_SDKS = {"gradio", "streamlit", "docker", "static"}
_SIZES = re.compile(r"n<1K|\d+[KMBT]<n<\d+[KMBT]|n>1T")
_LICENCES = """
    apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0
    bigcode-openrail-m afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc
    cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0
    cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0
    cdla-sharing-1.0 cdla-permissive-1.0 cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1
    eupl-1.2 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0 isc lppl-1.3c ms-pl mpl-2.0 odc-by odbl
    openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib pddl lgpl-lr llama2 llama3 gemma unknown other
"""
_STRINGS = ("title", "pretty_name", "library_name", "pipeline_tag", "license_name", "license_link", "app_file", "emoji")
_LISTS = ("tags", "models", "size_categories", "task_categories", "task_ids", "source_datasets")
_EITHER = ("language", "datasets", "metrics", "base_model")  # a string, or a list of strings


def front_matter(card: str) -> Any:
    """The metadata of a card, None without any; raises yaml.YAMLError."""
    found = _FRONT.match(card)
    return yaml.safe_load(found[1]) if found else None


def complaints(card: str, kind: str) -> tuple[list[str], list[str]]:
    """Errors, which refuse the card, and warnings."""
    try:
        said = front_matter(card)
    except yaml.YAMLError as error:
        return [f"bad indentation or syntax in the YAML metadata: {error}"], []
    if said is None:
        return [], ["empty or missing yaml metadata in repo card"]
    if not isinstance(said, dict):
        return ["the YAML metadata is not a mapping"], []
    errors = [f'"{key}" must be a string' for key in _STRINGS if not isinstance(said.get(key, ""), str)]
    errors += [f'"{key}" must be an array of strings' for key in _LISTS if not _strings(said.get(key, []))]
    for key in _EITHER:
        if not isinstance(said.get(key, ""), str) and not _strings(said[key]):
            errors.append(f'"{key}" must be a string or an array of strings')
    licences = said.get("license", [])
    licences = licences if isinstance(licences, list) else [licences]
    if not all(isinstance(each, str) and each in _LICENCES.split() for each in licences):
        errors.append('"license" must be one of the identifiers of https://hf.co/docs/hub/repositories-licenses')
    errors += {"space": _space, "model": _model, "dataset": _dataset}[kind](said)
    return errors, []


def evaluation_complaint(text: str) -> str | None:
    """What is wrong with a file of .eval_results, None if nothing."""
    try:
        said = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return f"not YAML: {error}"
    if not isinstance(said, list) or not said:
        return "must be a list of results"
    for at, each in enumerate(said):
        if not isinstance(each, dict) or "value" not in each:
            return f'"[{at}].value" is required'
        dataset = each.get("dataset")
        for key in ("id", "task_id"):
            if not isinstance(dataset, dict) or not isinstance(dataset.get(key), str):
                return f'"[{at}].dataset.{key}" is required'
        if "source" in each and not (isinstance(each["source"], dict) and each["source"].get("url")):
            return f'"[{at}].source.url" is required'
    return None


def _strings(given: Any) -> bool:
    return isinstance(given, list) and all(isinstance(each, str) for each in given)


def _space(said: dict[str, Any]) -> list[str]:
    errors = [
        f'"{key}" must be one of [{", ".join(sorted(_COLOURS))}]'
        for key in ("colorFrom", "colorTo")
        if said.get(key, "red") not in _COLOURS
    ]
    if said.get("sdk") not in _SDKS:
        errors.append(f'"sdk" must be one of [{", ".join(sorted(_SDKS))}]')
    if not isinstance(said.get("sdk_version", ""), str):
        errors.append('"sdk_version" must be a string')
    if not isinstance(said.get("pinned", False), bool):
        errors.append('"pinned" must be a boolean')
    if re.search(r"\w", str(said.get("emoji", ""))):
        errors.append('"emoji" must be an emoji')
    if len(str(said.get("short_description", ""))) > 60:
        errors.append('"short_description" length must be less than or equal to 60 characters long')
    return errors


def _model(said: dict[str, Any]) -> list[str]:
    if "model-index" not in said:
        return []
    index = said["model-index"]
    if not isinstance(index, list) or not index:
        return ['"model-index" must be an array']
    errors: list[str] = []

    def need(held: Any, where: str, *keys: str) -> None:
        absent = [key for key in keys if not isinstance(held, dict) or held.get(key) in (None, "")]
        errors.extend(f'"{where}.{key}" is required' for key in absent)

    for at, model in enumerate(index):
        need(model, f"model-index[{at}]", "name", "results")
        for number, result in enumerate((isinstance(model, dict) and model.get("results")) or []):
            where = f"model-index[{at}].results[{number}]"
            need(result, where, "task", "dataset", "metrics")
            need(result.get("task"), f"{where}.task", "type")
            need(result.get("dataset"), f"{where}.dataset", "type", "name")
            for place, metric in enumerate(result.get("metrics") or []):
                need(metric, f"{where}.metrics[{place}]", "type", "value")
    return errors


def _dataset(said: dict[str, Any]) -> list[str]:
    errors = []
    sizes = said.get("size_categories", [])
    if _strings(sizes) and not all(_SIZES.fullmatch(each) for each in sizes):
        errors.append('"size_categories" must be one of n<1K, 1K<n<10K, ...')
    configs = said.get("configs", [])
    if not isinstance(configs, list) or not all(isinstance(each, dict) and each.get("config_name") for each in configs):
        errors.append('"configs" must be an array of mappings with a "config_name"')
    if not isinstance(said.get("dataset_info", {}), (dict, list)):
        errors.append('"dataset_info" must be a mapping or an array')
    return errors
