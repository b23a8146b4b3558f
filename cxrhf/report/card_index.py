"""RESULT rows and facts -> what the Hub reads: front matter with `model-index`, and `.eval_results` entries.

Neither form has a field for intervals: `model-index` gets them as arguments of the metric, `.eval_results` in notes.
Values are the rows' own, to the last digit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cxrhf.report.blocks import finding_name
from cxrhf.report.book import MACRO, PRETEST, REPORTS
from cxrhf.report.card_about import base_name, is_made_up, split_of
from cxrhf.report.card_facts import CLASSIFIER, CONTEXT, WRITER
from cxrhf.report.card_load import ANYBODY, dataset_id, is_grey
from cxrhf.report.card_rows import MEAN, WHOLE, Row
from cxrhf.report.numbers import known, number
from cxrhf.report.page import level_of
from cxrhf.report.sections.reports_shelf import REFERENCE
from cxrhf.report.sections.view import Rows

Facts = Mapping[str, Any]
HOST = "https://huggingface.co"
_TASKS = {
    CLASSIFIER: ("image-classification", "Findings of a chest X-ray"),
    WRITER: ("image-text-to-text", "Report of a chest X-ray"),
    CONTEXT: ("text-classification", "Findings from prior notes"),
}
_LIBRARIES = {CLASSIFIER: "timm", WRITER: "peft"}
# Number -> how the Hub's metrics call it (or ours, where it is our own), and how people do.
_SCORES = {
    "auroc": ("roc_auc", "AUROC"),
    "auroc_att": ("weighted_auroc", "AUROC with context held equal"),
    "matched_auroc": ("matched_auroc", "AUROC of pairs matched on context"),
}
_OF_REPORTS = {
    "rougeL": ("rouge", "ROUGE-L"), "bleu": ("bleu", "BLEU"), "bertscore_f1": ("bertscore", "BERTScore F1"),
    "template_diversity": ("lexical_diversity", "Share of distinct reports"),
    "cad": ("cad", "Erased share of the words associated with sex"),
}  # fmt: skip


class Score(NamedTuple):
    """A number that stands for the model elsewhere: its row, its name on the Hub, its name for people, an id."""

    row: Row
    kind: str
    name: str
    task: str


def scores(rows: Rows, model: str) -> Iterator[Score]:
    """AUROCs of every finding and their mean; of reports, likeness, diversity and erased words of every strategy.

    Undefined ones are left out.
    """
    taken = set[tuple[str, str, str]]()
    audits = ["overview", "reweighted", "matched", PRETEST]
    if not any(row["audit"] == "overview" and row["model"] == model for row in rows):
        audits.append(MEAN)  # several runs: their mean
    weighted = any(row["metric"] == "auroc_att" for row in rows)  # then pairs would say the same again
    several = len({row["finding"] for row in rows if row["audit"] in (MEAN, *WHOLE)} - {None, MACRO}) > 1
    for row in rows:
        audit, metric, finding = row["audit"], row["metric"], row["finding"] or MACRO
        of_sex = metric == "cad" and str(row["slice"]).startswith("sex=") and " & " not in row["slice"]
        whole = (of_sex or (row["slice"] == "all" and not row["versus"])) and row["model"] == model
        if not whole or row["value"] is None or not known(row["value"]):
            continue
        if finding == MACRO and audit != REPORTS and not several:
            continue  # the mean of one finding
        if audit == REPORTS and metric in _OF_REPORTS and row.get("strategy") != REFERENCE:
            kind, name = _OF_REPORTS[metric]
            yield Score(row, kind, f"{name}, decoded by {row['strategy']}", f"{row['strategy']}_{metric}")
        # Some audits give the AUROC of the same images again.
        elif audit in audits and metric in _SCORES:
            place = (row["dataset"] or "", finding, metric)
            if place not in taken and not (weighted and metric == "matched_auroc"):
                taken.add(place)
                kind, name = _SCORES[metric]
                yield Score(row, kind, f"{name}, {finding_name(finding)}", f"{finding}_{metric}")


def model_index(rows: Rows, facts: Facts, repo: str | None = None) -> list[dict[str, Any]]:
    """The older form, in the card itself: one result for each dataset, with all its metrics."""
    kind, task = _TASKS[facts["kind"]]
    results: dict[str, dict[str, Any]] = {}
    for row, metric, name, _ in scores(rows, facts["model"]):
        dataset = row["dataset"] or next(iter(facts["datasets"]), None) or "unknown"
        place = results.setdefault(
            dataset,
            {
                "task": {"type": kind, "name": task},
                "dataset": {
                    "type": dataset,
                    "name": dataset,
                    **({"split": split_of(facts)} if split_of(facts) else {}),
                },
                "metrics": [],
                "source": {"name": "cxrhf, every number with its interval", "url": _address(repo)},
            },
        )
        place["metrics"].append({"type": metric, "value": row["value"], "name": name, "args": _arguments(row, facts)})
    model = (repo or "").rpartition("/")[2] or facts["model"]
    return [{"name": model, "results": list(results.values())}] if results else []


def _arguments(row: Row, facts: Facts) -> dict[str, Any]:
    """What belongs to a number; nothing where a row has nothing."""
    level = {"level": level_of(facts["run"])} if row["ci_low"] is not None else {}
    names = ("finding", "strategy", "ci_low", "ci_high", "n", "n_pos", "n_patients")
    there = {name: row.get(name) for name in names}
    return {**{name: value for name, value in there.items() if value is not None}, **level}


def _address(repo: str | None) -> str:
    return f"{HOST}/{repo or f'{ANYBODY}/name'}/blob/main/results.json"


def eval_results(rows: Rows, facts: Facts, repo: str | None, dataset: str | None = None) -> list[dict[str, Any]]:
    """The newer form, `.eval_results/*.yaml`: an entry a number. `dataset`: its name on the Hub."""
    where = dataset or dataset_id(facts, (repo or ANYBODY).partition("/")[0])
    date = facts["run"].get("finished") or facts["run"].get("started")
    entries = []
    for row, _, name, task in scores(rows, facts["model"]):
        entry: dict[str, Any] = {"dataset": {"id": where, "task_id": task}, "value": row["value"]}
        entry |= {"date": date} if date else {}
        entry["source"] = {"url": _address(repo), "name": "cxrhf"}
        entry["notes"] = f"{name}. {_interval(row, facts)}Every number with its interval is in results.json."
        entries.append(entry)
    return entries


def _interval(row: Row, facts: Facts) -> str:
    parts = []
    if row["ci_low"] is not None and known(row["ci_low"], row["ci_high"]):
        ends = f"{number(row['ci_low'])} to {number(row['ci_high'])}"
        parts.append(f"{level_of(facts['run'])} CI {ends} (patients resampled)")
    names = (("n", "images"), ("n_pos", "positive"), ("n_patients", "patients"))
    parts += [f"{row[name]:,} {words}" for name, words in names if row[name]]
    return f"{', '.join(parts)}. " if parts else ""


def front_matter(rows: Rows, facts: Facts, repo: str | None = None) -> dict[str, Any]:
    """The card's metadata, in the order people read it. A model without weights is no model of a library."""
    made, kind = facts["weights"], facts["kind"]
    open_to_all = is_made_up(facts)
    front: dict[str, Any] = {"license": facts.get("license") or ("apache-2.0" if open_to_all else "other")}
    front |= {} if front["license"] != "other" else {"license_name": "see-training-data"}
    front |= {"language": ["en"]} if kind in (WRITER, CONTEXT) else {}
    if made:
        front |= {"library_name": _LIBRARIES[kind]} if kind in _LIBRARIES else {}
        # `pipeline("image-classification")` gives a network three channels, whatever it was trained on.
        front |= {} if is_grey(made) else {"pipeline_tag": _TASKS[kind][0]}
        if kind == WRITER and base_name(facts):
            front |= {"base_model": base_name(facts), "base_model_relation": "adapter"}
    tags = ["chest-x-ray", "radiology", "cxrhf", "evaluation"]
    if made:
        network = ["timm"] if is_grey(made) else ["transformers", "timm"]
        tags += {CLASSIFIER: network, WRITER: ["lora", "report-generation"], CONTEXT: []}[kind]
    front["tags"] = [*tags, *(["synthetic-data"] if open_to_all else [])]
    front |= {"datasets": [facts["dataset_id"]]} if facts.get("dataset_id") else {}
    metrics = list(dict.fromkeys(score.kind for score in scores(rows, facts["model"])))
    front |= {"metrics": metrics} if metrics else {}
    index = model_index(rows, facts, repo)
    return front | ({"model-index": index} if index else {})
