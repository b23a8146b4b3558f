"""RESULT rows and facts of a model -> its model card: README.md, results.json, figures, .eval_results/cxrhf.yaml.

`card_files` is a pure function: the same rows and facts give the same bytes. A card folder holds the rows and facts it
was made from (results.json), so `rewrite` makes it again from itself, and nobody need write a number by hand.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cxrhf.errors import RunError
from cxrhf.report.blocks import finding_name
from cxrhf.report.book import MACRO, PRETEST, REPORTS
from cxrhf.report.card_facts import (
    CLASSIFIER,
    CONTEXT,
    MEAN,
    WHOLE,
    WRITER,
    Row,
    card_rows,
    facts_in,
    facts_of,
    find_weights,
    is_open,
    model_rows,
    models_of,
    nested_runs,
    publishable_rows,
)
from cxrhf.report.card_sections import PICTURES, escape_markdown, number_lines, too_few_sentences
from cxrhf.report.card_text import (
    ANYBODY,
    base_name,
    citation,
    dataset_id,
    intended_use,
    is_grey,
    is_made_up,
    limits,
    load_lines,
    model_description,
    provenance,
    reproduce,
    split_of,
    training_data,
)
from cxrhf.report.files import figures, png, results_json, write_bytes
from cxrhf.report.numbers import format_number, is_finite
from cxrhf.report.page import Page, level_of, make_page
from cxrhf.report.sections.reports_table import REFERENCE
from cxrhf.report.sections.view import Rows
from cxrhf.run import is_finished, read_run
from cxrhf.tables.files import read_object
from cxrhf.tables.folders import CARD_PLACES, check_inside, check_links, file_name, is_empty, one_writer

__all__ = [
    "card_files",
    "card_text",
    "cards_in",
    "eval_results",
    "facts_of",
    "find_weights",
    "model_index",
    "rewrite",
    "write_cards",
]


README, RESULTS, EVALUATED = "README.md", "results.json", ".eval_results/cxrhf.yaml"
FORMAT = 1
RESULTS_DESCRIPTION = "RESULT rows of cxrhf and facts of a run: all that the card in README.md is made from"
_HEAD = (
    "**For research on evaluation. Not a medical device.** [Results](#results) · [Intended use](#intended-use) · "
    "[Limits](#limits) · [Training data](#training-data) · [How to load](#how-to-load) · "
    "[How to reproduce](#how-to-reproduce)"
)
# What a page says of itself -> the same said by a card.
_CARD_WORDINGS = {
    "this page": "the run's page",
    "results.parquet": "results.json",
    "point at it to read why": "reasons are listed below",
    "Small print: ": "Below each number: ",
    " Only words in the notes of at least five patients are shown.": "",
}


# --- one card --------------------------------------------------------------------------------------------------------


def card_files(
    rows: Rows, facts: Mapping[str, Any], repo: str | None = None, *, every: bool = True
) -> dict[str, bytes]:
    """Every file of a card, by its path. `rows`: of the model, or of a run that holds it.

    `repo`: "user/name" on the Hub; without one examples say "user/name". `every`: results.json has all rows of the
    model; else those that the card stands on, and says how many were left out.
    """
    own = _publishable_rows(rows, facts)
    stand = _json_rows(card_rows(own))
    page, drawn = _page(stand, facts)
    text = _text(stand, page, facts, repo, list(drawn))
    made = {README: text.encode(), RESULTS: _results(_json_rows(own) if every else stand, facts, repo).encode()}
    made[EVALUATED] = _yaml(eval_results(stand, facts, repo)).encode()
    for name, svg in drawn.items():
        made |= {f"figures/{name}.svg": svg.encode(), f"figures/{name}.png": png(svg)}
    return made


def card_text(rows: Rows, facts: Mapping[str, Any], repo: str | None = None) -> str:
    """README.md alone: front matter and card."""
    stand = _json_rows(card_rows(_publishable_rows(rows, facts)))
    page, drawn = _page(stand, facts)
    return _text(stand, page, facts, repo, list(drawn))


def _publishable_rows(rows: Rows, facts: Mapping[str, Any]) -> list[Row]:
    """The model's rows, as they may leave."""
    kept = publishable_rows(model_rows(rows, facts["model"]), words=is_open(facts))
    if not kept:
        raise RunError(
            f"the run has no results of the model {facts['model']!r}",
            next_step="cxrhf audit RUN, then cxrhf report RUN",
        )
    return kept


def _json_rows(rows: Rows) -> list[Row]:
    """Rows as JSON keeps them, so that a card from a table and one from a file are the same."""
    return [_row(each) for each in json.loads(results_json(rows, {}))["results"]]


def _row(row: Mapping[str, Any]) -> Row:
    """A row with all its columns: files leave out what is null."""
    from cxrhf.schema import RESULT

    return {name: row.get(name) for name in RESULT.names}


def _page(rows: Rows, facts: Mapping[str, Any]) -> tuple[Page, dict[str, str]]:
    """The page of these rows, and those of its pictures that a card has. Nobody's picture or place is in it."""
    page = make_page(rows, (), {**facts["run"], "may_show": False})
    return page, {name: svg for name, svg in figures(page).items() if name.partition("-")[0] in PICTURES}


def _text(rows: Rows, page: Page, facts: Mapping[str, Any], repo: str | None, pictures: list[str]) -> str:
    books = [subject.book for subject in page.subjects]
    title = (repo or "").rpartition("/")[2] or facts["model"]
    parts = (
        ("Intended use", intended_use()),
        ("Limits", limits(facts, books or page.pretest[:1], too_few_sentences(page))),
        ("Training data", training_data(facts)),
        ("How to load", load_lines(facts, books, repo)),
        ("How to reproduce", reproduce(facts)),
        ("Provenance", provenance(facts)),
        ("Citation", citation(facts)),
    )
    lines = [f"# {escape_markdown(title)}", "", *model_description(facts), _HEAD, ""]
    lines += ["## Results", "", *number_lines(page, facts, pictures)]
    for head, part in parts:
        lines += [f"## {head}", "", *part]
    text = "\n".join(lines).rstrip("\n")
    for words, instead in _CARD_WORDINGS.items():
        text = text.replace(words, instead)
    return f"---\n{_yaml(front_matter(rows, facts, repo))}---\n\n{text}\n"


def _yaml(values: Any) -> str:
    import yaml  # type: ignore[import-untyped]

    # Lists and mappings of plain values on one line each: the results of a dozen findings stay readable.
    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=1000, default_flow_style=None))


def _results(rows: Rows, facts: Mapping[str, Any], repo: str | None) -> str:
    """Facts and rows, a row a line, without what is null."""
    left = facts["rows"] - len(rows)
    head = {
        "format": FORMAT,
        "what": RESULTS_DESCRIPTION,
        "repo": repo,
        "rows": len(rows),
        "rows_left_out": left,
        "facts": facts,
    }
    whole = json.dumps(head, ensure_ascii=False, indent=1, allow_nan=False, default=str)
    kept = ({name: value for name, value in row.items() if value is not None} for row in rows)
    lines = (json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":")) for row in kept)
    return whole[:-2] + ',\n "results": [\n' + ",\n".join(lines) + "\n ]\n}\n"


# --- folders of cards ------------------------------------------------------------------------------------------------


def write_cards(run: Path, folder: Path | None = None) -> list[Path]:
    """The cards of a run's models and of the runs in it, a folder each, in RUN/model_cards or another folder.

    Of runs that are not finished there are none.
    """
    target = folder or run / "model_cards"
    with one_writer(run, "report"), one_writer(target, "report", "folder of cards"):
        places = nested_runs(run)
        for place in places:
            check_links(place)
        finished = [each for each in places if is_finished(read_run(each).record)]
        made: dict[Path, dict[str, bytes]] = {}
        for place in finished:
            opened = read_run(place)
            rows = opened.table("results").to_pylist()
            for model in models_of(rows):
                own = model_rows(rows, model)
                facts = facts_in(opened, own, model, find_weights(run, model))
                made[_unused_folder(target / slug(model), made)] = card_files(own, facts, every=False)
        for card in made:  # all are looked at before the first is written
            check_inside(target, [card])
            check_links(card, CARD_PLACES)
        for card, files in made.items():
            _write(card, files)
        if folder is None and finished == places:  # nobody else writes there: the rest is of models it has no more
            for old in set(cards_in(target)) - set(made):
                shutil.rmtree(old)
    return list(made)


def rewrite(folder: Path) -> list[Path]:
    """Write a card folder, or every card folder in it, again from its own results.json."""
    with one_writer(folder, "report", "folder of cards"):
        check_inside(folder, cards_in(folder))
        made = {card: _rebuild_files(card) for card in cards_in(folder)}
        for card, files in made.items():
            _write(card, files)
    return list(made)


def _rebuild_files(card: Path) -> dict[str, bytes]:
    """A card's files from its own results.json; whatever is wrong in there is damage."""
    again = "cxrhf report RUN --cards FOLDER"
    check_links(card, CARD_PLACES)
    held = read_object(card / RESULTS, next_step=again)
    if isinstance(number := held.get("format"), int) and number > FORMAT:
        raise RunError(
            f"{card / RESULTS} was written by a newer version of cxrhf (format {number}; this version reads up to "
            f"{FORMAT})", next_step="pip install --upgrade cxrhf",
        )  # fmt: skip
    try:
        return card_files([_row(each) for each in held["results"]], held["facts"], held["repo"])
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        said = f"{type(error).__name__}: {error}"
        raise RunError(f"{card / RESULTS} is damaged ({said})", next_step=again) from error


def cards_in(folder: Path) -> list[Path]:
    """Cards that can be written again: the folder's own, or those in it. A run is no card, whatever it holds."""
    if (folder / "run.json").is_file():
        return []
    return (
        [folder]
        if _holds_card(folder)
        else sorted(each.parent for each in folder.glob(f"*/{RESULTS}") if _holds_card(each.parent))
    )


def _holds_card(folder: Path) -> bool:
    path = folder / RESULTS
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return RESULTS_DESCRIPTION.encode() in file.read(500)


def slug(model: str) -> str:
    """A model's name as a folder's.

    >>> slug("image + context"), slug("Netz (seed 3)"), slug("模型")
    ('image-context', 'netz-seed-3', 'model')
    """
    return file_name(re.sub(r"[^a-z0-9.]+", "-", model.lower()).strip("-.") or "model")


def _unused_folder(wanted: Path, taken: Collection[Path]) -> Path:
    """Two models whose names differ in signs alone get a folder each."""
    names = (wanted.with_name(f"{wanted.name}-{at}") if at > 1 else wanted for at in range(1, len(taken) + 2))
    return next(each for each in names if each not in taken)


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a card; weights or whatever else lies in its folder stay. A folder of something else is left alone."""
    if folder.exists() and (not folder.is_dir() or not (is_empty(folder) or _holds_card(folder))):
        raise RunError(f"{folder} exists and is not a model card", next_step="move it, or pass another --cards")
    for old in (folder / "figures").glob("*"):
        if f"figures/{old.name}" not in files and old.stem.partition("-")[0] in PICTURES:
            old.unlink()
    for name in sorted(files, key=lambda name: name != RESULTS):  # first what tells that it is a card
        write_bytes(folder / name, files[name])


# RESULT rows and facts -> what the Hub reads: front matter with `model-index`, and `.eval_results` entries.
#
# Neither form has a field for intervals: `model-index` gets them as arguments of the metric, `.eval_results` in
# notes. Values are the rows' own, to the last digit.

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
        if not whole or row["value"] is None or not is_finite(row["value"]):
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
    if row["ci_low"] is not None and is_finite(row["ci_low"], row["ci_high"]):
        ends = f"{format_number(row['ci_low'])} to {format_number(row['ci_high'])}"
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
