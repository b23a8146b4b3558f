"""A run folder, a model's name and its weights -> facts of the model's card: plain values, nothing of single patients.

Weights are not opened: what is known of them stands in JSON files beside them. Everything that a card says and that is
no RESULT row is in its facts, so that rows and facts together write the card again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from cxrhf.errors import RunError
from cxrhf.report.book import DECODING, PRETEST, REPORTS, open_books
from cxrhf.report.card_calibration import calibrated_outputs, calibration_facts
from cxrhf.report.card_commands import commands
from cxrhf.report.card_rows import own_rows, published
from cxrhf.report.files import RECORDED
from cxrhf.report.sections.pretest_shelf import CHOSEN
from cxrhf.report.sections.reports_said import first_pair
from cxrhf.report.sections.reports_shelf import writers
from cxrhf.report.sections.reports_words import chosen, words_of
from cxrhf.report.sections.view import Rows
from cxrhf.run import Run, fingerprint, is_finished, read_run, record_of
from cxrhf.tables.json_files import read_object
from cxrhf.tables.places import check_inside
from cxrhf.tables.weights_record import wrong_field
from cxrhf.terms import standing

CLASSIFIER, WRITER, CONTEXT = "image classifier", "report writer", "context model"
ABOUT, ADAPTER, MANIFEST = "cxrhf.json", "adapter_config.json", "manifest.json"
_NEAR = ("", "*/", "*/*/")  # a run, the runs in it, and theirs: the demo keeps its models so
_NETWORK = ("backbone", "outputs", "look", "sha256", "seed", "start", "trained", "images")
_LORA = ("base", "prompt", "size", "seed", "examples", "trained")
# Facts of a build, with their kinds: those who write about them need not ask again.
_TEXT, _COUNT = (str,), (int, float)
_BUILD: dict[str, tuple[type, ...]] = {
    "dataset": _TEXT, "labels": _TEXT, "fingerprint": _TEXT, "settings": (dict,), "splits": (dict,), "splits.*": _COUNT,
}  # fmt: skip
_PAGE = r"labelling sheets|thumbnails"  # notes on what lies beside the page, which no card has
_NAMED = 12  # words of a category
_CATEGORIES = {"erased": ("omitted", "neutralised"), "new": ("new",), "flipped": ("flip",)}


# --- weights ---------------------------------------------------------------------------------------------------------


def find_weights(run: Path, model: str) -> Path | None:
    """The folder with a model's weights in a run or in the runs that it holds; of several seeds the first."""
    for near in _NEAR:
        if model == CHOSEN:
            places = [each.parent for each in sorted(run.glob(f"{near}models/context/{MANIFEST}"))]
        else:
            networks = [each.parent for each in run.glob(f"{near}models/seed-*/{ABOUT}") if _seed(each.parent) >= 0]
            places = sorted(networks, key=lambda each: (each.parent, _seed(each)))
            places += [each.parent for each in sorted(run.glob(f"{near}adapter/{ABOUT}"))]
            places = [each for each in places if _name(each, run) == model]
        if places:
            check_inside(run, [places[0], *places[0].glob("*.json")])
            return places[0]
    return None


def _seed(folder: Path) -> int:
    """`seed-3` -> 3; -1 for other names."""
    number = folder.name.removeprefix("seed-")
    return int(number) if number.isdecimal() else -1


def _name(weights: Path, run: Path) -> str:
    """What a model is called in the tables: `cxrhf generate --model` may have given an adapter another name."""
    for near in _NEAR if (weights / ADAPTER).is_file() else ():
        for each in sorted(run.glob(f"{near}run.json")):
            said = record_of(each.parent, "generate").get("config", {})
            if said.get("model") and PurePath(str(said.get("source"))).name in (weights.name, weights.parent.name):
                return str(said["model"])
    return str(_json(weights / ABOUT).get("name"))


def _json(path: Path) -> dict[str, Any]:
    """An object of a JSON file; empty where there is none."""
    return read_object(path, next_step="copy the run again, or repeat it") if path.is_file() else {}


def about_weights(weights: Path) -> dict[str, Any]:
    """What cxrhf.json beside weights says, every field of its kind; empty where there is none."""
    said = _json(weights / ABOUT)
    if (wrong := wrong_field(said)) is not None:
        raise RunError(
            f"{weights / ABOUT} is damaged: {wrong} has the wrong type",
            next_step="copy the whole folder again from its source, or train again",
        )  # fmt: skip
    return said


def _checked(made: dict[str, Any], wanted: Mapping[str, tuple[type, ...]], where: Path) -> dict[str, Any]:
    """The same, every field of its kind, absent or null."""
    for name, kinds in wanted.items():
        outer, _, inner = name.partition(".")
        held = made.get(outer)
        several = held.values() if isinstance(held, dict) else held if isinstance(held, list) else ()
        values = [held] if not inner else several if inner == "*" else [held.get(inner)] if held else []
        if not all(isinstance(each, kinds) or (each is None and inner != "*") for each in values):
            raise RunError(
                f"{where} is damaged: {name} has the wrong type",
                next_step="copy it again, or repeat it",
            )
    return made


def _made(weights: Path, run: Path) -> dict[str, Any]:
    """What the files beside weights say of them; `run` is the one that was audited."""
    if (weights / MANIFEST).is_file():
        models = _json(weights / "contents.json").get("models")
        models = models if isinstance(models, list) else []
        models = [each for each in models if isinstance(each, dict) and "finding" in each]
        return {"kind": CONTEXT, "outputs": [each["finding"] for each in models],
                "families": sorted({str(each.get("family")) for each in models})}  # fmt: skip
    said = about_weights(weights)
    if (weights / ADAPTER).is_file():
        lora = _checked(_json(weights / ADAPTER), {"r": _COUNT}, weights)
        return {"kind": WRITER, **{name: said.get(name) for name in _LORA}, "rank": lora.get("r")}
    seeds = sorted(_seed(each.parent) for each in weights.parent.glob(f"seed-*/{ABOUT}"))
    return {"kind": CLASSIFIER, **{name: said.get(name) for name in _NETWORK}, "seeds": seeds,
            "calibration": calibration_facts(weights, run)}  # fmt: skip


# --- the data behind them --------------------------------------------------------------------------------------------


def _run_of(weights: Path) -> Path | None:
    """The run that made weights: RUN/models/seed-0, RUN/models/context, RUN/adapter."""
    return next((each for each in (weights.parent, weights.parent.parent) if (each / "run.json").is_file()), None)


def _build_of(run: Path, records: list[dict[str, Any]]) -> Path | None:
    """The build that a run was made from, if it still lies where it may be looked for: the very same, by its hash."""
    verbs = [each for record in records for each in (record, *record.get("earlier", {}).values())]
    digests = {each.get("sha256") for record in verbs for each in record.get("inputs") or []}
    named = [Path(str(path)) for record in verbs if (path := (record.get("config") or {}).get("build"))]
    places = [each.parent for near in (*_NEAR, "../*/") for each in sorted(run.glob(f"{near}build.json"))] + named
    found = (each for each in places if (each / "build.json").is_file())
    return next((each for each in found if fingerprint(each / "build.json").sha256 in digests), None)


def _data(build: Path | None, weights: Path | None) -> dict[str, Any]:
    """What a model learned from: its name, whether it is credentialed, images and patients of each split."""
    said = about_weights(weights) if weights is not None else {}
    record = _build_record(build)
    name = record.get("dataset") or said.get("dataset")
    strict = record.get("credentialed") or said.get("credentialed")
    data: dict[str, Any] = {"dataset": name, "credentialed": bool(strict) or standing([name]) == "credentialed"}
    if build is not None:
        data |= {name: record.get(name) for name in ("labels", "splits", "fingerprint")}
        data["patients"] = {split: _patients(build, split) for split in record.get("splits") or {}}
    return data


def _build_record(build: Path | None) -> dict[str, Any]:
    return {} if build is None else _checked(_json(build / "build.json"), _BUILD, build)


def _patients(build: Path, split: str) -> int:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    files = sorted((build / "images").glob(f"{split}-*.parquet"))
    ids = (pc.unique(pq.read_table(file, columns=["patient_id"])["patient_id"]) for file in files)
    return len({patient for some in ids for patient in some.to_pylist()})


# --- all of it -------------------------------------------------------------------------------------------------------


def facts_of(results_run: Path, model: str, weights: Path | None) -> dict[str, Any]:
    """Facts of a model whose RESULT rows are in a run; `weights` as `find_weights` gives them, None without any."""
    run = read_run(results_run)
    return facts_in(run, own_rows(run.table("results").to_pylist(), model), model, weights)


def facts_in(run: Run, rows: Rows, model: str, weights: Path | None) -> dict[str, Any]:
    """The same from an open run and the model's rows."""
    record = run.record
    if not is_finished(record):
        raise RunError(
            f"{run.path} is not finished, and a card requires complete results", next_step="run its command again"
        )
    made = _made(weights, run.path) if weights is not None else {}
    maker = _run_of(weights) if weights is not None else None
    records = [record, *([read_run(maker).record] if maker is not None and maker != run.path else [])]
    build = _build_of(run.path, records)
    method = calibrated_outputs(made).get("method", "")
    facts = {
        "model": model,
        "kind": made.pop("kind", None) or _kind(rows),
        "simulated": weights is None and record.get("verb") == "demo",
        "datasets": sorted({row["dataset"] for row in rows if row["dataset"]}),
        "weights": made or None,
        "data": _data(build, weights),
        "words": {},
        "commands": commands(records, _build_record(build), method),
        "notes": _notes(run, model),
        "rows": len(published(rows, words=True)),
        "run": {name: record.get(name) for name in RECORDED},
    }
    if is_open(facts):  # a card is there to be published, and so are these facts
        facts["words"] = _words(run, rows)
    return facts


def is_open(facts: Mapping[str, Any]) -> bool:
    """Whether words of the data may stand in what is published: made up or open, by all names that are known."""
    names = [*facts["datasets"], facts["data"].get("dataset")]
    return not facts["data"].get("credentialed") and standing(each for each in names if each) == "open"


def _kind(rows: Rows) -> str:
    """What a model without weights does, by the audits that it has rows of."""
    audits = {row["audit"] for row in rows}
    return CONTEXT if audits == {PRETEST} else WRITER if audits and audits <= {REPORTS, DECODING} else CLASSIFIER


def _notes(run: Run, model: str) -> list[str]:
    """Notes of this model, and of nobody; a name that starts like another is told from it."""
    models = {each for each in run.table("results")["model"].unique().to_pylist() if each}
    kept = []
    for note in map(str, run.record.get("notes") or []):
        if re.search(_PAGE, note):
            continue
        whose = next((each for each in sorted(models, key=len, reverse=True) if note.startswith(f"{each}: ")), model)
        if whose == model or whose.startswith(f"{model} (seed "):
            kept.append(note)
    return kept


def _words(run: Run, rows: Rows) -> dict[str, dict[str, list[str]]]:
    """Words that go with one of two groups, by strategy: erased, new and flipped; of at least five patients."""
    if not (run.path / "words.parquet").is_file():
        return {}
    models = writers(open_books(rows, apart=REPORTS), (), run.table("words").to_pylist())
    found, pair = chosen(models, may_show=False), first_pair(models[0]) if models else None
    if pair is None:
        return {}
    return {
        book.strategy: {
            name: words_of(found, models[0], book.strategy, pair, kinds)[:_NAMED] for name, kinds in _CATEGORIES.items()
        }
        for book in models[0].strategies
    }


def nested_runs(run: Path) -> list[Path]:
    """A run and the runs in it that have results of their own, the run itself first."""
    found = (each.parent for near in _NEAR for each in sorted(run.glob(f"{near}results.parquet")))
    runs = [each for each in found if (each / "run.json").is_file()]
    check_inside(run, (each / name for each in runs for name in ("results.parquet", "run.json")))
    return runs
