"""RESULT rows and facts of a model -> its model card: README.md, results.json, figures, .eval_results/cxrhf.yaml.

`card_files` is a pure function: the same rows and facts give the same bytes. A card folder holds the rows and facts it
was made from (results.json), so `rewrite` makes it again from itself, and nobody need write a number by hand.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from cxrhf.errors import RunError
from cxrhf.report.card_about import described, intended_use, limits
from cxrhf.report.card_facts import facts_in, facts_of, find_weights, is_open, nested_runs
from cxrhf.report.card_index import eval_results, front_matter, model_index
from cxrhf.report.card_load import load_lines
from cxrhf.report.card_markdown import escaped
from cxrhf.report.card_origin import citation, provenance, reproduce, training_data
from cxrhf.report.card_rows import Row, models_of, own_rows, published, shown
from cxrhf.report.card_sections import PICTURES, doubts, number_lines
from cxrhf.report.files import figures, png, results_json, write_bytes
from cxrhf.report.page import Page, make_page
from cxrhf.report.sections.view import Rows
from cxrhf.run import is_finished, read_run
from cxrhf.tables.folders import one_writer
from cxrhf.tables.json_files import read_object
from cxrhf.tables.places import CARD_PLACES, check_inside, check_links, file_name, is_empty

__all__ = [
    "card_files", "card_text", "cards_in", "eval_results", "facts_of", "find_weights", "model_index", "rewrite",
    "write_cards",
]  # fmt: skip

README, RESULTS, EVALUATED = "README.md", "results.json", ".eval_results/cxrhf.yaml"
FORMAT = 1
WHAT = "RESULT rows of cxrhf and facts of a run: all that the card in README.md is made from"
_HEAD = (
    "**For research on evaluation. Not a medical device.** [Results](#results) · [Intended use](#intended-use) · "
    "[Limits](#limits) · [Training data](#training-data) · [How to load](#how-to-load) · "
    "[How to reproduce](#how-to-reproduce)"
)
# What a page says of itself -> the same said by a card.
_INSTEAD = {
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
    own = _own(rows, facts)
    stand = _plain(shown(own))
    page, drawn = _page(stand, facts)
    text = _text(stand, page, facts, repo, list(drawn))
    made = {README: text.encode(), RESULTS: _results(_plain(own) if every else stand, facts, repo).encode()}
    made[EVALUATED] = _yaml(eval_results(stand, facts, repo)).encode()
    for name, svg in drawn.items():
        made |= {f"figures/{name}.svg": svg.encode(), f"figures/{name}.png": png(svg)}
    return made


def card_text(rows: Rows, facts: Mapping[str, Any], repo: str | None = None) -> str:
    """README.md alone: front matter and card."""
    stand = _plain(shown(_own(rows, facts)))
    page, drawn = _page(stand, facts)
    return _text(stand, page, facts, repo, list(drawn))


def _own(rows: Rows, facts: Mapping[str, Any]) -> list[Row]:
    """The model's rows, as they may leave."""
    kept = published(own_rows(rows, facts["model"]), words=is_open(facts))
    if not kept:
        raise RunError(
            f"the run has no results of the model {facts['model']!r}",
            next_step="cxrhf audit RUN, then cxrhf report RUN",
        )
    return kept


def _plain(rows: Rows) -> list[Row]:
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
        ("Limits", limits(facts, books or page.pretest[:1], doubts(page))),
        ("Training data", training_data(facts)),
        ("How to load", load_lines(facts, books, repo)),
        ("How to reproduce", reproduce(facts)),
        ("Provenance", provenance(facts)),
        ("Citation", citation(facts)),
    )
    lines = [f"# {escaped(title)}", "", *described(facts), _HEAD, ""]
    lines += ["## Results", "", *number_lines(page, facts, pictures)]
    for head, part in parts:
        lines += [f"## {head}", "", *part]
    text = "\n".join(lines).rstrip("\n")
    for words, instead in _INSTEAD.items():
        text = text.replace(words, instead)
    return f"---\n{_yaml(front_matter(rows, facts, repo))}---\n\n{text}\n"


def _yaml(values: Any) -> str:
    import yaml  # type: ignore[import-untyped]

    # Lists and mappings of plain values on one line each: the results of a dozen findings stay readable.
    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=1000, default_flow_style=None))


def _results(rows: Rows, facts: Mapping[str, Any], repo: str | None) -> str:
    """Facts and rows, a row a line, without what is null."""
    left = facts["rows"] - len(rows)
    head = {"format": FORMAT, "what": WHAT, "repo": repo, "rows": len(rows), "rows_left_out": left, "facts": facts}
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
                own = own_rows(rows, model)
                facts = facts_in(opened, own, model, find_weights(run, model))
                made[_free(target / slug(model), made)] = card_files(own, facts, every=False)
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
        made = {card: _files_again(card) for card in cards_in(folder)}
        for card, files in made.items():
            _write(card, files)
    return list(made)


def _files_again(card: Path) -> dict[str, bytes]:
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
        if _holds(folder)
        else sorted(each.parent for each in folder.glob(f"*/{RESULTS}") if _holds(each.parent))
    )


def _holds(folder: Path) -> bool:
    path = folder / RESULTS
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return WHAT.encode() in file.read(500)


def slug(model: str) -> str:
    """A model's name as a folder's.

    >>> slug("image + context"), slug("Netz (seed 3)"), slug("模型")
    ('image-context', 'netz-seed-3', 'model')
    """
    return file_name(re.sub(r"[^a-z0-9.]+", "-", model.lower()).strip("-.") or "model")


def _free(wanted: Path, taken: Collection[Path]) -> Path:
    """Two models whose names differ in signs alone get a folder each."""
    names = (wanted.with_name(f"{wanted.name}-{at}") if at > 1 else wanted for at in range(1, len(taken) + 2))
    return next(each for each in names if each not in taken)


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a card; weights or whatever else lies in its folder stay. A folder of something else is left alone."""
    if folder.exists() and (not folder.is_dir() or not (is_empty(folder) or _holds(folder))):
        raise RunError(f"{folder} exists and is not a model card", next_step="move it, or pass another --cards")
    for old in (folder / "figures").glob("*"):
        if f"figures/{old.name}" not in files and old.stem.partition("-")[0] in PICTURES:
            old.unlink()
    for name in sorted(files, key=lambda name: name != RESULTS):  # first what tells that it is a card
        write_bytes(folder / name, files[name])
