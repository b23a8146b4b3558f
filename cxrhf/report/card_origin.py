"""Facts of a model -> where it comes from: training data and their terms, commands, versions, how to cite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cxrhf.report.card_about import is_made_up
from cxrhf.report.card_facts import CLASSIFIER
from cxrhf.report.card_markdown import bullets, code, escaped, paragraphs
from cxrhf.report.sections.provenance import mapping

Facts = Mapping[str, Any]
_TERMS = {
    "synthetic": "the data are synthetic, contain no real patient and may be shared.",
    "credentialed": "these data are credentialed: access requires a signed data use agreement. This repository "
    "contains none of their images, texts or rows. The agreement decides whether models trained on them may be shared.",
    "other": "check the terms of the dataset before you use or share this model.",
}
_CITE = (
    "@software{cxrhf,",
    "  title  = {cxrhf: honest evaluation of chest X-ray models},",
    "  author = {{The cxrhf authors}},",
    "  note   = {Version VERSION; CITATION.cff lists the papers whose methods it uses},",
    "}",
)


def training_data(facts: Facts) -> list[str]:
    """What it learned from, how long, and under which terms that stands."""
    data, made = facts["data"], facts["weights"] or {}
    if facts["simulated"]:
        return paragraphs(["None: the model is simulated."])
    if not made:
        return paragraphs(["Unknown: only the output of the model was audited."])
    patients = mapping(data.get("patients"))
    splits = [
        f"{name} {n:,} images of {patients.get(name, 0):,} patients" for name, n in mapping(data.get("splits")).items()
    ]
    seeds = made.get("seeds") or ([made["seed"]] if made.get("seed") is not None else [])
    said = {
        "Dataset": data.get("dataset") or "not recorded",
        "Splits, by patient": ", ".join(splits),
        "Labels": f"policy {data['labels']}" if data.get("labels") else "",
        "Training set": _learned(made),
        "Training": _trained(mapping(made.get("trained"))),
        "Initial weights": made.get("start"),
        "Seeds": ", ".join(map(str, seeds)),
        "Calibration": _calibration(facts),
    }
    terms = "synthetic" if is_made_up(facts) else "credentialed" if data.get("credentialed") else "other"
    lines = bullets(f"{name}: {escaped(str(each))}" for name, each in said.items() if each)
    return [*lines, *paragraphs([f"Terms: {_TERMS[terms]}"])]


def _learned(made: Mapping[str, Any]) -> str:
    examples = dict(mapping(made.get("examples")))
    if not examples:
        return f"{made['images']:,} images" if made.get("images") else ""
    whole = f"{examples.pop('images', 0):,} images of {examples.pop('patients', 0):,} patients"
    return whole + (f" ({', '.join(f'{name} {n:,}' for name, n in examples.items())})" if examples else "")


def _trained(facts: Mapping[str, Any]) -> str:
    if not facts:
        return ""
    kept = facts.get("best_step", facts.get("kept_step"))
    return f"{facts.get('steps') or 0:,} steps, {facts.get('epochs') or 0:,} epochs" + (
        f"; kept step {kept:,}" if kept is not None else ""
    )


def _calibration(facts: Facts) -> str:
    found = mapping((facts["weights"] or {}).get("calibration"))
    if found and found.get("fitted"):
        said = f"{found['method']}, fitted on the split {found['split']} for {found['fitted']} outputs"
        applied = found.get("applied", True)
        doubt = {True: "", False: "; not applied: the numbers rest on raw probabilities", None: "; not checked"}[
            applied
        ]
        return f"{said} (calibration.json){doubt}"
    return "none; probabilities are those of the network" if facts["kind"] == CLASSIFIER else ""


def reproduce(facts: Facts) -> list[str]:
    """The commands, in order; what is written in capitals is for the reader to name."""
    if not facts["commands"]:
        return paragraphs(["The run does not record its commands."])
    version = mapping(facts["run"].get("versions")).get("cxrhf", "")
    run = str(mapping(facts["run"].get("config")).get("out") or "RUN")
    last = f"cxrhf report {run} --cards model_cards"
    return code("bash", [f'pip install "cxrhf[all]=={version}"', *facts["commands"], last])


def provenance(facts: Facts) -> list[str]:
    """Versions, commit, times and hashes; how the card itself is made."""
    run, digest = facts["run"], (facts["weights"] or {}).get("sha256")
    versions = mapping(run.get("versions"))
    packages = ", ".join(f"{name} {text}" for name, text in versions.items() if name != "cxrhf")
    said = [
        f"Made by cxrhf {versions.get('cxrhf', '')} ({_commit(run)}), seed {run.get('seed')}, on "
        f"{str(run.get('finished') or run.get('started') or '')[:10]}",
        f"Python {run.get('python')}, {packages}",
        *(f"Input: {each.get('name')}, SHA-256 {str(each.get('sha256'))[:16]}…" for each in run.get("inputs") or []),
        f"Dataset fingerprint: {facts['data']['fingerprint']}" if facts["data"].get("fingerprint") else "",
        f"Weights: SHA-256 {str(digest)[:16]}…" if digest else "",
    ]
    words = (
        "Every number of this card is a rounded row of results.json, which also has its interval, sample sizes, method "
        "and note. cxrhf report wrote the card from that file."
    )
    return [*paragraphs([words]), *bullets(escaped(each) for each in said if each)]


def _commit(run: Mapping[str, Any]) -> str:
    commit = str(run.get("commit") or "")
    if commit.endswith("-dirty"):
        return "sources with uncommitted changes"
    return f"commit {commit}" if commit else "commit not recorded"


def citation(facts: Facts) -> list[str]:
    """How to cite the evaluation."""
    version = str(mapping(facts["run"].get("versions")).get("cxrhf", ""))
    return code("bibtex", [line.replace("VERSION", version) for line in _CITE])
